"""The workdir of a run: its paths, its lock, and the digests of its finished files.

`finished.json` holds the SHA-256 of finished files; one that was changed since is refused by name. `config_file` reads
`config.json`; it is separate because scoring a file of the workdir reads no configuration.
"""

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import file_digest, files_below, is_local, locked, partial_of, write_text

# Files that a resumed run, scoring or exporting reads.
OPENED = ("data.h5", "split.json", "tokenizer", "targets.npz", "waves.json")
DECODED = ("predictions.jsonl", "rankings.jsonl", "channels.json", "metrics.jsonl")


class _Path:
    """A file or folder of a workdir, by name."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, workdir: "Workdir", _: type) -> epath.Path:
        return workdir.root / self._name


@dataclasses.dataclass(frozen=True)
class Workdir:
    """The paths of all files that a run writes."""

    root: epath.Path
    config = _Path("config.json")
    data = _Path("data.h5")
    split = _Path("split.json")
    tokenizer = _Path("tokenizer")
    targets = _Path("targets.npz")
    rankings = _Path("rankings.jsonl")
    metrics = _Path("metrics.jsonl")
    predictions = _Path("predictions.jsonl")
    channels = _Path("channels.json")
    results = _Path("results.json")
    finished = _Path("finished.json")

    def record(self, *names: str) -> None:
        """Store the digests of those finished files and folders that exist."""
        self._note({name: self._digests(name) for name in names})

    def unrecord(self, *names: str) -> None:
        """Remove the digests of files that will be rewritten, in case of a kill before they are recorded again."""
        self._note({name: {} for name in names})

    def _note(self, digests: dict[str, dict[str, str]]) -> None:
        before = self._recorded()
        noted = {other: digest for other, digest in before.items() if other.split("/")[0] not in digests}
        for found in digests.values():
            noted |= found
        if noted != before:
            write_text(self.finished, json.dumps(noted, indent=1, sort_keys=True) + "\n")

    def unrecorded(self, *names: str) -> list[str]:
        """Return those of `names` that exist and have no digest."""
        noted = {other.split("/")[0] for other in self._recorded()}
        return [name for name in names if name not in noted and (self.root / name).exists()]

    def check(self, *names: str) -> None:
        """Compare existing files and folders with their recorded digests, if any.

        Raises:
          UserError: a file was changed; the message names it.
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
        noted = read_object(self.finished, "put the file back, or remove it to have the files taken as they are")
        if not all(isinstance(digest, str) for digest in noted.values()):
            raise UserError(f"{self.finished}: is damaged; expected a digest for each file. Put the file back.")
        return noted


@contextlib.contextmanager
def held(root: str) -> Iterator[None]:
    """Create the workdir and hold its lock. A folder that stays empty is removed again.

    Raises:
      UserError: another process holds the lock, or the folder is not a workdir.
    """
    folder = epath.Path(root)
    check_ours(folder)
    made = list(itertools.takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / ".lock", str(folder)) if is_local(folder) else contextlib.nullcontext():
            yield
    finally:
        with contextlib.suppress(OSError, ValueError):  # not empty
            for path in made:
                path.rmdir()


def find_workdir(root: str) -> Workdir:
    """Return the workdir of an existing run, read-only.

    Raises:
      UserError: the folder holds no run.
    """
    workdir = Workdir(epath.Path(root))
    if not workdir.config.exists():
        raise UserError(f"{root}: holds no run of eeg2text (no config.json); give the --workdir of one.")
    return workdir


def check_unchanged(path: str | os.PathLike[str]) -> None:
    """Raise if a file of a workdir was changed since it was written; files outside of workdirs pass."""
    path = epath.Path(path)
    if is_local(path) and (path.parent / "config.json").exists():
        Workdir(path.parent).check(path.name)


def check_ours(root: epath.Path) -> None:
    """Raise if a folder is neither empty nor a workdir; accept the first files of a run that was killed at once."""
    first = (partial_of(root / "config.json").name, ".lock")
    if (root / "config.json").exists() or not root.exists():
        return
    if not root.is_dir() or any(path.name not in first for path in root.iterdir()):
        raise UserError(f"{root} is not empty and holds no run of eeg2text; take another --workdir.")


def read_object(path: epath.Path, advice: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: is not JSON ({first_line(error)}); {advice}.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object, found {content!r:.60}; {advice}.")
    return content
