"""The folder of one run: what is where in it, whose it is, and who is at work in it.

`config.json` says what the run was begun with. A field of the configuration is fixed once something that depends on it
is finished (see `stages`), and may change until then. `finished.json` holds the SHA-256 of what is finished and read
again: a file that has been changed since is refused by its name.
"""

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import file_digest, files_below, is_local, locked, partial_of, remove, write_text
from eeg2text_jax.study.configuration import STAGES, differences, from_stage, stage_of, to_json
from eeg2text_jax.study.ranges import RENAMED

# What a start reads that an earlier one wrote, and what scoring and exporting read.
OPENED = ("data.h5", "split.json", "tokenizer", "targets.npz", "waves.json")
DECODED = ("predictions.jsonl", "rankings.jsonl", "metrics.jsonl")


@dataclasses.dataclass(frozen=True)
class Workdir:
    """Paths of everything that a run writes."""

    root: epath.Path

    @property
    def config(self) -> epath.Path:
        return self.root / "config.json"

    @property
    def data(self) -> epath.Path:
        return self.root / "data.h5"

    @property
    def split(self) -> epath.Path:
        return self.root / "split.json"

    @property
    def tokenizer(self) -> epath.Path:
        return self.root / "tokenizer"

    @property
    def targets(self) -> epath.Path:
        return self.root / "targets.npz"

    @property
    def rankings(self) -> epath.Path:
        return self.root / "rankings.jsonl"

    @property
    def metrics(self) -> epath.Path:
        return self.root / "metrics.jsonl"

    @property
    def predictions(self) -> epath.Path:
        return self.root / "predictions.jsonl"

    @property
    def results(self) -> epath.Path:
        return self.root / "results.json"

    @property
    def finished(self) -> epath.Path:
        return self.root / "finished.json"

    def product(self, stage: str) -> str | None:
        """What a stage has left in the folder; None where it has not been finished."""
        found = (path for pattern in STAGES[stage].products for path in sorted(self.root.glob(pattern)))
        whole = (path for path in found if "tmp" not in path.name)  # orbax's name for a save under way
        return next((str(path.relative_to(self.root)) for path in whole), None)

    def record(self, *names: str) -> None:
        """Notes the digests of finished files and folders, those that are there, as what later starts shall find."""
        self._note({name: self._digests(name) for name in names})

    def unrecord(self, *names: str) -> None:
        """Forgets the digests of what is about to be written anew: a kill may come before they are noted again."""
        self._note({name: {} for name in names})

    def _note(self, digests: dict[str, dict[str, str]]) -> None:
        before = self._recorded()
        noted = {other: digest for other, digest in before.items() if other.split("/")[0] not in digests}
        for found in digests.values():
            noted |= found
        if noted != before:
            write_text(self.finished, json.dumps(noted, indent=1, sort_keys=True) + "\n")

    def unrecorded(self, *names: str) -> list[str]:
        """Which of `names` are there and have not been recorded."""
        noted = {other.split("/")[0] for other in self._recorded()}
        return [name for name in names if name not in noted and (self.root / name).exists()]

    def check(self, *names: str) -> None:
        """Compares files and folders that are there with what was recorded, if it was.

        Raises:
          UserError: one was changed; the message names it.
        """
        recorded = self._recorded()
        for name in names:
            noted = {other: digest for other, digest in recorded.items() if other.split("/")[0] == name}
            found = self._digests(name) if noted else {}
            if not found:
                continue
            for other in sorted(noted.keys() | found.keys()):
                if noted.get(other) != found.get(other):
                    raise UserError(
                        f"{self.root / other}: is not what this run wrote ({self.finished} has another digest of it); "
                        f"put the file back, or remove {self.root / name} to have it made again."
                    )

    def _digests(self, name: str) -> dict[str, str]:
        path = self.root / name
        if path.is_dir():
            return {f"{name}/{other}": file_digest(path / other) for other in files_below(path)}
        return {name: file_digest(path)} if path.exists() else {}

    def _recorded(self) -> dict[str, str]:
        if not self.finished.exists():
            return {}
        noted = _read_object(self.finished, "put the file back, or remove it to have the files taken as they are")
        if not all(isinstance(digest, str) for digest in noted.values()):
            raise UserError(f"{self.finished}: is damaged; expected a digest for each file. Put the file back.")
        return noted


@contextlib.contextmanager
def held(root: str) -> Iterator[None]:
    """Makes the folder and keeps other processes out of it. A folder that nothing was put into goes again.

    Raises:
      UserError: another process is at work in the folder, or it is something else than a workdir.
    """
    folder = epath.Path(root)
    _check_ours(folder)
    made = list(itertools.takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / ".lock", str(folder)) if is_local(folder) else contextlib.nullcontext():
            yield
    finally:
        with contextlib.suppress(OSError, ValueError):  # not empty
            for path in made:
                path.rmdir()


def open_workdir(root: str, config: ConfigDict) -> Workdir:
    """Makes the folder, or checks that what is finished in it was made with the same configuration.

    Of what is not finished, remains of a killed process are removed, and the configuration may be another one: it takes
    the place of `config.json`.

    Raises:
      UserError: the folder belongs to another configuration, or is something else.
    """
    workdir = Workdir(epath.Path(root))
    _check_ours(workdir.root)
    if workdir.config.exists():
        check_configuration(workdir, config)
        _sweep(workdir.root)
    workdir.root.mkdir(parents=True, exist_ok=True)
    write_configuration(workdir, config)
    return workdir


def find_workdir(root: str) -> Workdir:
    """A workdir in which a run has been begun, as it is; nothing is made or changed.

    Raises:
      UserError: there is none.
    """
    workdir = Workdir(epath.Path(root))
    if not workdir.config.exists():
        raise UserError(f"{root}: holds no run of eeg2text (no config.json); give the --workdir of one.")
    return workdir


def check_unchanged(path: str | os.PathLike[str]) -> None:
    """Refuses a file of a workdir that was changed since it was written; knows nothing of other files."""
    path = epath.Path(path)
    if is_local(path) and (path.parent / "config.json").exists():
        Workdir(path.parent).check(path.name)


def read_configuration(workdir: Workdir) -> dict[str, Any]:
    """The content of `config.json`, with today's names of fields.

    Raises:
      UserError: it is not JSON.
    """
    content = _read_object(workdir.config, f"put the file back, remove {workdir.root} or take another --workdir")
    for old, new in RENAMED.items():
        (section, name), (_, renamed) = old.split("."), new.split(".")
        if name in content.get(section, {}):
            content[section][renamed] = content[section].pop(name)
    return content


def check_configuration(workdir: Workdir, config: ConfigDict) -> None:
    """
    Raises:
      UserError: a field differs on which something depends that is finished; it says which, and what may change.
    """
    differing = differences(json.loads(to_json(config)), read_configuration(workdir))
    products = {stage: workdir.product(stage) for stage in STAGES}
    fixed: dict[str, list[str]] = {}
    for difference in differing:
        later = from_stage(stage_of(difference.partition(" ")[0]))
        product = next((products[stage] for stage in later if products[stage]), None)
        if product:
            fixed.setdefault(product, []).append(difference)
    if not fixed:
        return
    last = [stage for stage in STAGES if products[stage]][-1]
    free = [field for stage in from_stage(last)[1:] for field in STAGES[stage].fields]
    what = "; ".join(f"{product} was made with {_some(fields)}" for product, fields in fixed.items())
    raise UserError(
        f"{workdir.root} belongs to another configuration (its config.json): {what}; take another --workdir or these "
        f"values. What may change here: {', '.join(free)}."
    )


def write_configuration(workdir: Workdir, config: ConfigDict) -> None:
    """Writes `config.json`, unless it says the same already."""
    text = to_json(config)
    if not workdir.config.exists() or workdir.config.read_bytes() != text.encode():
        write_text(workdir.config, text)


def forget(workdir: Workdir) -> None:
    """Takes back the configuration of a run that was refused before anything was made."""
    if not any(map(workdir.product, STAGES)):
        remove(workdir.config)


def _some(fields: list[str]) -> str:
    return f"{', '.join(fields[:3])}{' and more' if len(fields) > 3 else ''}"


def _check_ours(root: epath.Path) -> None:
    """Refuses a folder that is no workdir; a run that was killed in its first moment may have left its first files."""
    first = (partial_of(root / "config.json").name, ".lock")
    if (root / "config.json").exists() or not root.exists():
        return
    if not root.is_dir() or any(path.name not in first for path in root.iterdir()):
        raise UserError(f"{root} is not empty and holds no run of eeg2text; take another --workdir.")


def _sweep(root: epath.Path) -> None:
    """Removes what killed processes had begun to write."""
    for pattern in (".*.partial", ".*.lock", "*/.*.partial", "*/*/.*.partial"):
        for path in root.glob(pattern):
            remove(path)


def _read_object(path: epath.Path, advice: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: is not JSON ({first_line(error)}); {advice}.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object, found a {type(content).__name__}; {advice}.")
    return content
