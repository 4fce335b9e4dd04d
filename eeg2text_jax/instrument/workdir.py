"""The workdir of a run: its paths, its lock, the digests of its finished files, its configuration as nested dicts.

`training/sections.py` makes settings of these.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etils import epath

from eeg2text_jax.base import files
from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.stores.buckets import is_address
from eeg2text_jax.data.splits.split import parts_digest, read_split_file
from eeg2text_jax.instrument.metrics.metric_names import WORDS_ENDPOINT
from eeg2text_jax.instrument.predictions.file import Prediction, PredictionSet
from eeg2text_jax.instrument.predictions.rankings import Ranking, RankingSet

if TYPE_CHECKING:
    from eeg2text_jax.base.kinds import Range

# Files that a resumed run, scoring or exporting reads.
OPENED = ("data.h5", "split.json", "tokenizer", "targets.npz", "waves.json")
DECODED = ("predictions.jsonl", "rankings.jsonl", "channels.json", "metrics.jsonl")


def _path(name: str) -> property:
    return property(lambda workdir: workdir.root / name)


@dataclasses.dataclass(frozen=True)
class Workdir:
    """The paths of a run's files; `finished.json` has the SHA-256 of those that are finished."""

    root: epath.Path
    config = _path("config.json")
    data = _path("data.h5")
    split = _path("split.json")
    tokenizer = _path("tokenizer")
    targets = _path("targets.npz")
    rankings = _path("rankings.jsonl")
    metrics = _path("metrics.jsonl")
    predictions = _path("predictions.jsonl")
    channels = _path("channels.json")
    results = _path("results.json")
    finished = _path("finished.json")

    def record(self, *names: str) -> None:
        """Store the digests of these files and folders, if they exist."""
        self._replace_digests(names, {path: digest for name in names for path, digest in self._digests(name).items()})

    def unrecord(self, *names: str) -> None:
        """Remove the digests of files that will be rewritten: a kill may prevent the next `record`."""
        self._replace_digests(names, {})

    def _replace_digests(self, names: Collection[str], digests: dict[str, str]) -> None:
        before = self._recorded()
        recorded = {path: digest for path, digest in before.items() if path.split("/")[0] not in names} | digests
        if recorded != before:
            files.write_text(self.finished, json.dumps(recorded, indent=1, sort_keys=True) + "\n")

    def unrecorded(self, *names: str) -> list[str]:
        """Return those of `names` that exist without a digest."""
        recorded = {path.split("/")[0] for path in self._recorded()}
        return [name for name in names if name not in recorded and (self.root / name).exists()]

    def check(self, *names: str) -> None:
        """Raise UserError if an existing file or folder differs from its digests."""
        recorded = self._recorded()
        for name in names:
            expected = {path: digest for path, digest in recorded.items() if path.split("/")[0] == name}
            actual = self._digests(name) if expected else {}
            if actual and actual != expected:
                other, _ = min(expected.items() ^ actual.items())
                raise UserError(
                    f"{self.root / other}: is not what this run wrote ({self.finished} has another digest of it); "
                    f"restore the file, or remove {self.root / name} to have it made again."
                )

    def _digests(self, name: str) -> dict[str, str]:
        """Return the digest of a file, or of every file of a folder, by path."""
        path = self.root / name
        if path.is_dir():
            return {f"{name}/{other}": files.file_digest(path / other) for other in files.files_below(path)}
        return {name: files.file_digest(path)} if path.exists() else {}

    def _recorded(self) -> dict[str, str]:
        if not self.finished.exists():
            return {}
        recorded = read_object(self.finished, "restore the file, or remove it to use the outputs unchecked")
        if not all(isinstance(digest, str) for digest in recorded.values()):
            raise UserError(
                f"{self.finished}: is damaged; expected a digest for each output of the run. Restore the file, or "
                "remove it to use the outputs unchecked."
            )
        return recorded


@contextlib.contextmanager
def lock_workdir(root: str) -> Iterator[None]:
    """Context manager that creates a workdir and holds its lock; a folder that stays empty is removed again.

    A read-only folder needs none. Raises UserError if another process holds it, or the folder is no workdir.
    """
    folder = epath.Path(root)
    check_ours(folder)
    if is_read_only(folder):
        yield
        return
    made = list(itertools.takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with files.locked(folder / ".lock", str(folder)) if files.is_local(folder) else contextlib.nullcontext():
            yield
    finally:
        with contextlib.suppress(OSError, ValueError):  # a folder is not empty
            for path in made:
                path.rmdir()


def is_read_only(folder: str | os.PathLike[str]) -> bool:
    """Return whether a local folder exists and cannot be written."""
    return files.is_local(folder) and os.path.isdir(folder) and not os.access(folder, os.W_OK)


def verdict_in(folder: str | os.PathLike[str]) -> str:
    """Return the verdict of a run and its sentence from `audit.json`; "" before the audit."""
    path = epath.Path(folder) / "audit.json"
    if not path.exists():
        return ""
    try:
        audit = files.parse_json(path.read_text())
        return f"**{audit.get('headline') or audit['verdict']}**: {audit['sentence']}"
    except (ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: is no JSON of an audit; restore the file, or audit again.") from error


def find_workdir(root: str) -> Workdir:
    """Return the workdir of a run. Raises UserError if the folder holds none."""
    workdir = Workdir(epath.Path(root))
    if not workdir.config.exists():
        raise UserError(f"{root}: holds no run of eeg2text (no config.json); give the --workdir of a run.")
    return workdir


def check_unchanged(path: str | os.PathLike[str]) -> None:
    """Raise UserError if a file of a workdir was changed since it was finished; files elsewhere pass."""
    path = epath.Path(path)
    if files.is_local(path) and (path.parent / "config.json").exists():
        Workdir(path.parent).check(path.name)


def check_name(folder: str | os.PathLike[str]) -> None:
    """Raise UserError for a path that is not UTF-8: tokenizers and tensorstore write into no such folder."""
    try:
        os.path.abspath(os.fspath(folder)).encode("utf8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{os.fspath(folder)}: the path of this folder is not UTF-8, which libraries that write checkpoints need; "
            "rename it, or take another."
        ) from error


def check_ours(root: epath.Path) -> None:
    """Raise UserError if a folder is neither a workdir nor empty, but for the first files of a killed run."""
    check_name(root)
    first = (files.partial_of(root / "config.json").name, ".lock")
    if (root / "config.json").exists() or not root.exists():
        return
    if not root.is_dir() or any(path.name not in first for path in root.iterdir()):
        raise UserError(f"{root} is not empty and holds no run of eeg2text; take another --workdir.")


def read_object(path: epath.Path, advice: str) -> dict[str, Any]:
    """Return the JSON object in a file. Raises UserError, which ends with `advice`, if there is none."""
    try:
        content = files.parse_json(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: is not JSON ({first_line(error)}); {advice}.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object, found {content!r:.60}; {advice}.")
    return content


# `config.json` has paths relative to its folder: a moved run finds its files, and no path of the machine is in it.
# Digests take their last part: equal runs in two folders have equal digests. An audit reads it, too, so this module
# knows no section of the configuration, which would import all that reads recordings.

HERE = "{workdir}"  # begins a path relative to the folder of `config.json`
NO_PATHS = ("synthetic", "synthetic-fmri", "toy", "edits", "templates", "minilm")  # values with meanings of their own
IN_SOURCE = ("data.fmri.exclude",)  # fields whose relative paths begin in the data source
PLACES = (  # fields that hold paths
    "compilation_cache", "data.source", "data.synthetic_fmri.folder", "data.raw.texts", "data.fmri.transcripts",
    "data.fmri.exclude", "split.path", "text.tokenizer", "model.checkpoint", "model.encoder_checkpoint",
    "model.waves.positions", "contrastive.text", "metrics.encoder", "metrics.judge",
)  # fmt: skip
# Names in version 0.1 -> now.
RENAMED = {"optim.free": "optim.trainable", "decode.halvings": "decode.compactions"}
REMOVED = {  # fields of version 0.2 -> why they are gone
    "audit.resamples": "the audit draws 10,000 pairings",
    "audit.seed": "the audit draws its pairings from a fixed seed",
}
ADDED: dict[str, Any] = {  # fields that version 0.2 lacked, with the values that say what it did
    "data.raw.amplitude": False,
    "data.raw.encoding": "",
    "data.raw.features": "power",
    "data.raw.montage": "",
    "data.raw.seconds_per_character": 0.0,
    "data.raw.skip": [],
    "data.synthetic_fmri.drift": 0.0,
    "data.synthetic_fmri.groups": 1,
    "decode.cache_dtype": "",
    "decode.tensor_parallel": False,
    "decode.weights_dtype": "",
    "model.decoder_prompt": "",
    "model.encoder_checkpoint": "",
    "model.encoder_train": "all",
    "model.lora.stacks": ["encoder", "decoder"],
    "model.waves.overlap": 20,
    "model.waves.patch": 200,
    "model.waves.pool": True,
    "model.waves.positions": "",
    "model.waves.strides": [2, 2],
    "parallel.heartbeat": 12,
    "parallel.startup": 300,
    "parallel.tensor_parallel": False,
    "split.unique_sessions": False,
    "train.best_by": "tokens",
}


def place_names(ranges: Mapping[str, "Range"]) -> list[str]:
    return [name for name, limits in ranges.items() if limits.is_place]


def is_path(value: Any, name: str = "") -> bool:
    """Return whether a value of field `name` is a path of this machine: no keyword, URL or name on the Hub."""
    if not isinstance(value, str) or not value or value in NO_PATHS or is_address(value):
        return False
    return os.path.isabs(value) or (name not in IN_SOURCE and os.path.exists(value))


def portable(document: Any, root: str | os.PathLike[str], names: Collection[str]) -> Any:
    """Return nested dicts with paths relative to the folder `root` of `config.json`; those with `~` stay."""

    def relative(value: str, name: str) -> str:
        return f"{HERE}/{os.path.relpath(value, root)}" if is_path(value, name) else value

    return _mapped(document, relative, names)


def resolved(document: Any, root: str | os.PathLike[str], names: Collection[str]) -> Any:
    """Return what `portable` returned with paths on this machine."""

    def absolute(value: str, name: str) -> str:
        inside = value.removeprefix(f"{HERE}/")
        return os.path.abspath(os.path.join(root, inside)) if inside != value else value

    return _mapped(document, absolute, names)


def without_folders(document: Any, names: Collection[str]) -> Any:
    """Return a configuration with the last part of each path, for digests and publication."""
    return _mapped(document, lambda value, name: value if name in IN_SOURCE else last_part(value), names)


def last_part(value: str) -> str:
    return value.rstrip("/").rpartition("/")[2]


def is_same_place(now: Any, there: Any, name: str) -> bool:
    """Return whether unequal values of a field mean one file or folder that may have moved.

    `there` is from `config.json`, and `resolved`.
    """
    if not (is_path(now, name) and isinstance(there, str)):
        return False
    if os.path.exists(there):
        return os.path.exists(now) and os.path.samefile(now, there)
    return last_part(now) == last_part(there)


def _mapped(document: Any, change: Callable[[str, str], str], names: Collection[str], prefix: str = "") -> Any:
    """Return nested dicts in which `change` replaces the texts in fields `names`."""

    def mapped(value: Any, dotted: str) -> Any:
        if isinstance(value, Mapping):
            return _mapped(value, change, names, f"{dotted}.")
        return change(value, dotted) if dotted in names and isinstance(value, str) else value

    return {name: mapped(value, f"{prefix}{name}") for name, value in document.items()}


@dataclasses.dataclass(frozen=True)
class Stage:
    products: tuple[str, ...]  # names or patterns of its files in the workdir
    fields: tuple[str, ...]  # fields or sections that it depends on, beside those of earlier stages


# In order of execution. The fields of stage "" may always change. A field of no stage belongs to training, the most
# expensive stage to repeat.
STAGES = {
    "data": Stage(
        ("data.h5",),
        ("data.source", "data.synthetic", "data.columns", "data.table", "data.recordings", "data.raw", "data.fmri",
         "data.synthetic_fmri"),
    ),
    "split": Stage(("split.json",), ("split",)),
    "tokenizer": Stage(("tokenizer",), ("text.tokenizer", "text.vocab_size", "model.checkpoint")),
    "targets": Stage(("targets.npz",), ("contrastive.text", "contrastive.layer", "contrastive.hashed")),
    "training": Stage(("checkpoints/step_*", "*/checkpoints/step_*", "wave_*", "waves.json"), ()),
    "decoding": Stage(("predictions.jsonl", "rankings.jsonl"), ("grid.eval_conditions", "decode")),
    "": Stage(
        (),
        ("audit", "compilation_cache", "grid.controls", "metrics", "parallel.heartbeat", "parallel.hosts",
         "parallel.startup", "retrieval", "train.save_every", "train.save_epochs", "train.log_every", "train.profile",
         "train.tracker"),
    ),
}  # fmt: skip


def from_stage(name: str) -> list[str]:
    names = list(STAGES)
    return names[names.index(name) :]


def stage_of(field: str) -> str:
    """Return the first stage that depends on a field; "" if it may always change."""
    for name, stage in STAGES.items():
        if any(field == prefix or field.startswith(f"{prefix}.") for prefix in stage.fields):
            return name
    return "training"


def read_configuration(workdir: Workdir) -> dict[str, Any]:
    """Return `config.json` with paths on this machine and today's fields. Raises UserError if it is not JSON."""
    content = read_object(workdir.config, f"restore the file, remove {workdir.root} or take another --workdir")
    for old in (*RENAMED, *REMOVED):
        section, _, name = old.partition(".")
        if name in (fields := content.get(section, {})):
            value = fields.pop(name)
            if old in RENAMED:
                fields[RENAMED[old].partition(".")[2]] = value
    add_fields(content, ADDED)
    if content.get("audit", {}).get("endpoint") == "bleu-1":  # of version 0.2; a corpus score no longer decides
        content["audit"]["endpoint"] = WORDS_ENDPOINT
    return resolved(content, workdir.root, PLACES)


def write_configuration(workdir: Workdir, document: Mapping[str, Any], places: Collection[str] = PLACES) -> None:
    """Write `config.json`, unless it is identical; fields `places` hold paths."""
    text = json.dumps(portable(document, workdir.root, places), indent=2, sort_keys=True) + "\n"
    if not workdir.config.exists() or workdir.config.read_bytes() != text.encode():
        files.write_text(workdir.config, text)


def check_configuration(workdir: Workdir, document: Mapping[str, Any]) -> None:
    """Raise UserError if `config.json` differs in a field that a finished stage depends on."""
    products = {stage: product(workdir, stage) for stage in STAGES}
    fixed: dict[str, list[str]] = {}
    for difference in differences(document, read_configuration(workdir), PLACES):
        later = from_stage(stage_of(difference.partition(" ")[0]))
        made = next((products[stage] for stage in later if products[stage]), None)
        if made:
            fixed.setdefault(made, []).append(difference)
    if not fixed:
        return
    last = [stage for stage in STAGES if products[stage]][-1]
    free = ", ".join(field for stage in from_stage(last)[1:] for field in STAGES[stage].fields)
    what = "; ".join(
        f"{made} was made with {', '.join(fields[:3])}{' and more' if len(fields) > 3 else ''}"
        for made, fields in fixed.items()
    )
    raise UserError(
        f"{workdir.root} belongs to another configuration (its config.json): {what}; take another --workdir or the "
        f"values marked 'there'. What may change here: {free}."
    )


UNKNOWN = "there unknown: an older version wrote it"


def differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], places: Collection[str] = (), prefix: str = ""
) -> list[str]:
    """Return a phrase, name and both values, for each field that differs; paths in fields `places` may have moved."""
    phrases = []
    for name in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            phrases += differences(a, b, places, f"{prefix}{name}.")
        elif a != b and not (f"{prefix}{name}" in places and is_same_place(a, b, f"{prefix}{name}")):
            there = f"there {shortly(b)}" if name in theirs else UNKNOWN
            phrases.append(f"{prefix}{name} (now {shortly(a)}, {there})")
    return phrases


def shortly(value: Any) -> str:
    """Return the `repr` of a value in at most 80 characters."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def product(workdir: Workdir, stage: str) -> str | None:
    """Return the name of the first file that a stage has made; None: none."""
    paths = (path for pattern in STAGES[stage].products for path in sorted(workdir.root.glob(pattern)))
    finished = (path for path in paths if "tmp" not in path.name)  # names of unfinished orbax checkpoints contain "tmp"
    return next((str(path.relative_to(workdir.root)) for path in finished), None)


def forget(workdir: Workdir) -> None:
    """Remove `config.json` of a run that failed, unless a stage has made a file."""
    if not any(product(workdir, stage) for stage in STAGES):
        files.remove(workdir.config)


def add_fields(content: dict[str, Any], added: Mapping[str, Any]) -> None:
    """Give an older configuration the fields that it lacked, in the top-level sections that it has."""
    for field, value in added.items():
        *sections, name = field.split(".")
        if not sections or content.get(sections[0]):
            functools.reduce(lambda part, key: part.setdefault(key, {}), sections, content).setdefault(name, value)


def fields_digest(document: Mapping[str, Any], stage: str) -> str:
    """Return a hash, 16 characters, of all fields that a stage and the earlier ones depend on.

    A field that does what version 0.2 did without it is left out, so that the hashes of that version hold.
    """
    later, fields = from_stage(stage)[1:], _flat(without_folders(document, PLACES)).items()
    old = {name: value for name, value in fields if name not in ADDED or value != ADDED[name]}
    return files.content_digest({name: value for name, value in old.items() if stage_of(name) not in later})[:16]


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def is_of_its_run(read: PredictionSet | RankingSet) -> bool:
    """Return whether digests tie a file to configuration, split and checkpoint of its workdir.

    A header alone could be forged; a workdir that is forged as a whole is not detected. All samples must be in the test
    part, too.
    """
    workdir = Workdir(epath.Path(read.path).parent)
    rows: Sequence[Prediction | Ranking]
    if isinstance(read, RankingSet):
        rows, path = read.rows, workdir.rankings
    else:
        rows, path = read.predictions if read.layout == "jsonl" else [], workdir.predictions
    needed = (workdir.config, workdir.split, workdir.finished)
    if not rows or read.path.name != path.name or not all(file.exists() for file in needed):
        return False
    try:
        recorded = read_object(workdir.finished, "restore the file")
        document = read_configuration(workdir)
        decoding, training = (fields_digest(document, stage) for stage in ("decoding", "training"))
        split = read_split_file(workdir.split)
    except (UserError, ValueError, TypeError):
        return False
    return (
        recorded.get(read.path.name) == files.file_digest(read.path)
        and recorded.get(workdir.split.name) == files.file_digest(workdir.split)
        and read.header.get("config") == decoding
        and read.header.get("split") == parts_digest(split.samples)
        and {row.sample_id for row in rows} <= set(split.samples["test"])
        and _has_checkpoint(workdir, read.header, training)
    )


def neighbors_of_run(read: PredictionSet) -> dict[str, Any] | None:
    """Return how near in time dev and test samples are to training samples, by the workdir's split file.

    None: the split file has no such record, or the predictions are of another split.
    """
    workdir = Workdir(epath.Path(read.path).parent)
    if read.layout != "jsonl" or not workdir.split.exists():
        return None
    try:
        split = read_split_file(workdir.split)
    except UserError:
        return None
    return split.record.get("time") if read.header.get("split") == parts_digest(split.samples) else None


def _has_checkpoint(workdir: Workdir, header: dict[str, Any], digest: str) -> bool:
    """Return whether a checkpoint records the header's split and the configuration `digest`."""
    wanted = {"split": header.get("split"), "config": digest}
    patterns = (f"{wave}checkpoints/step_*/info/metadata" for wave in ("", "*/"))  # a wave of arms may have a folder
    for path in itertools.chain.from_iterable(map(workdir.root.glob, patterns)):
        try:
            info = files.parse_json(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(info, dict) and wanted.items() <= info.items():
            return True
    return False
