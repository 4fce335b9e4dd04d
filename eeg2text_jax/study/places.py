"""What `config.json` of a workdir says: its paths, its fields of older versions, and the stages that depend on a field.

It has paths relative to its own folder, so that a moved run finds its files and no path of the user's machine is in it.
Digests take their last part alone, so that equal runs in two folders have equal digests. An audit reads it, too, so
this module knows no section of the configuration, which would import all that reads recordings.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from eeg2text_jax.files import content_digest
from eeg2text_jax.stores.address import is_address
from eeg2text_jax.study.metric_names import WORDS_ENDPOINT
from eeg2text_jax.study.workdir import Workdir, read_object

if TYPE_CHECKING:
    from eeg2text_jax.kinds import Range

HERE = "{workdir}"  # begins a path that is relative to the folder of `config.json`
NO_PATHS = ("synthetic", "synthetic-fmri", "toy", "edits", "templates", "minilm")  # values with meanings of their own
IN_SOURCE = ("data.fmri.exclude",)  # fields whose relative paths begin in the data source
PLACES = (  # fields of a run's configuration that hold paths
    "compilation_cache", "data.source", "data.synthetic_fmri.folder", "data.raw.texts", "data.fmri.transcripts",
    "data.fmri.exclude", "split.path", "text.tokenizer", "model.checkpoint", "contrastive.text", "metrics.encoder",
    "metrics.judge",
)  # fmt: skip
# Names of fields in version 0.1 -> their current names.
RENAMED = {"optim.free": "optim.trainable", "decode.halvings": "decode.compactions"}
REMOVED = ("audit.resamples", "audit.seed")  # fields of version 0.2


def place_names(ranges: Mapping[str, "Range"]) -> list[str]:
    """Return the dotted names of the fields that hold paths."""
    return [name for name, found in ranges.items() if found.is_place]


def is_path(value: Any, name: str = "") -> bool:
    """Return whether a value of field `name` is a path of this machine, and no keyword, URL or name on the Hub."""
    if not isinstance(value, str) or not value or value in NO_PATHS or is_address(value):
        return False
    return os.path.isabs(value) or (name not in IN_SOURCE and os.path.exists(value))


def portable(document: Any, root: str | os.PathLike[str], names: Collection[str]) -> Any:
    """Return the content of `config.json` in the folder `root`: nested dicts, with paths relative to that folder.

    A path that begins with `~` stays.
    """

    def relative(value: str, name: str) -> str:
        return f"{HERE}/{os.path.relpath(value, root)}" if is_path(value, name) else value

    return _mapped(document, relative, names)


def resolved(document: Any, root: str | os.PathLike[str], names: Collection[str]) -> Any:
    """Return a configuration whose paths `portable` has made relative, with paths that exist on this machine."""

    def absolute(value: str, name: str) -> str:
        inside = value.removeprefix(f"{HERE}/")
        return os.path.abspath(os.path.join(root, inside)) if inside != value else value

    return _mapped(document, absolute, names)


def without_folders(document: Any, names: Collection[str]) -> Any:
    """Return a configuration with the last part of each path, for digests and for what is published."""
    return _mapped(document, lambda value, name: value if name in IN_SOURCE else last_part(value), names)


def last_part(value: str) -> str:
    return value.rstrip("/").rpartition("/")[2]


def is_same_place(now: Any, there: Any, name: str) -> bool:
    """Return whether two values of the field `name` mean the same file or folder, which may have been moved since.

    `there` is from a `config.json`, and `resolved`.
    """
    if now == there:
        return True
    if not (is_path(now, name) and isinstance(there, str)):
        return False
    if os.path.exists(there):
        return os.path.exists(now) and os.path.samefile(now, there)
    return last_part(now) == last_part(there)


def _mapped(document: Any, change: Callable[[str, str], str], names: Collection[str], prefix: str = "") -> Any:
    """Return a copy of nested dicts in which `change` replaces the texts in fields `names`."""
    found = {}
    for name, value in document.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found[name] = _mapped(value, change, names, f"{dotted}.")
        else:
            found[name] = change(value, dotted) if dotted in names and isinstance(value, str) else value
    return found


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage of a run: its files, and the fields that it depends on in addition to the fields of earlier stages."""

    products: tuple[str, ...]  # names or patterns of files in the workdir
    fields: tuple[str, ...]  # dotted names of fields or sections


# Stages by name, in order of execution. The fields of stage "" may always change. A field that is in no stage belongs
# to training, the most expensive stage to repeat.
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
    """Return the names of a stage and of all later stages."""
    names = list(STAGES)
    return names[names.index(name) :]


def stage_of(field: str) -> str:
    """Return the first stage that depends on the field with this dotted name; "" if the field may always change."""
    for name, stage in STAGES.items():
        if any(field == prefix or field.startswith(f"{prefix}.") for prefix in stage.fields):
            return name
    return "training"


def read_configuration(workdir: Workdir) -> dict[str, Any]:
    """Return the content of `config.json` with paths on this machine, and renamed fields under their current names.

    Raises UserError if the file is not JSON.
    """
    content = read_object(workdir.config, f"restore the file, remove {workdir.root} or take another --workdir")
    for old, new in RENAMED.items():
        (section, name), (_, renamed) = old.split("."), new.split(".")
        if name in content.get(section, {}):
            content[section][renamed] = content[section].pop(name)
    for field in REMOVED:
        section, _, name = field.partition(".")
        content.get(section, {}).pop(name, None)
    if content.get("audit", {}).get("endpoint") == "bleu-1":  # of version 0.2; a corpus score no longer decides
        content["audit"]["endpoint"] = WORDS_ENDPOINT
    return resolved(content, workdir.root, PLACES)


def stored_digest(content: Mapping[str, Any], stage: str) -> str:
    """Return a hash, 16 characters, of the values of all fields that a stage and the earlier stages depend on.

    `content` is that of a `config.json`. Of a path only the last part counts.
    """
    later = from_stage(stage)[1:]
    fields = _flat(without_folders(content, PLACES))
    return content_digest({name: value for name, value in fields.items() if stage_of(name) not in later})[:16]


def _flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested dicts as one, by dotted names."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
