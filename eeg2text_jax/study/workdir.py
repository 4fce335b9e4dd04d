"""The workdir of a run: its paths, its lock, and the digests of its finished files.

`finished.json` has the SHA-256 of finished files; a file that was changed later is an error. `config_file.py` reads
`config.json`; it is a separate module because scoring a file of the workdir reads no configuration.
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
from eeg2text_jax.files import file_digest, files_below, is_local, locked, parse_json, partial_of, write_text

# Files that a resumed run, scoring or exporting reads.
OPENED = ("data.h5", "split.json", "tokenizer", "targets.npz", "waves.json")
DECODED = ("predictions.jsonl", "rankings.jsonl", "channels.json", "metrics.jsonl")


def _path(name: str) -> property:
    """Return a property of `Workdir`: the path of its file or folder `name`."""
    return property(lambda workdir: workdir.root / name)


@dataclasses.dataclass(frozen=True)
class Workdir:
    """The paths of a run's files, and the digests of those that are finished."""

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
        """Store the digests of these files and folders, if they exist, in `finished.json`."""
        self._replace_digests({name: self._digests(name) for name in names})

    def unrecord(self, *names: str) -> None:
        """Remove the digests of files that will be rewritten, in case a kill prevents the next `record`."""
        self._replace_digests({name: {} for name in names})

    def _replace_digests(self, digests: dict[str, dict[str, str]]) -> None:
        """Replace digests in `finished.json`; `digests`: file or folder of the workdir -> path -> digest."""
        before = self._recorded()
        recorded = {path: digest for path, digest in before.items() if path.split("/")[0] not in digests}
        for found in digests.values():
            recorded |= found
        if recorded != before:
            write_text(self.finished, json.dumps(recorded, indent=1, sort_keys=True) + "\n")

    def unrecorded(self, *names: str) -> list[str]:
        """Return those of `names` that exist in the workdir but have no digest in `finished.json`."""
        recorded = {path.split("/")[0] for path in self._recorded()}
        return [name for name in names if name not in recorded and (self.root / name).exists()]

    def check(self, *names: str) -> None:
        """Raise UserError if an existing file or folder of `names` differs from its digests in `finished.json`."""
        recorded = self._recorded()
        for name in names:
            expected = {path: digest for path, digest in recorded.items() if path.split("/")[0] == name}
            found = self._digests(name) if expected else {}
            if not found:
                continue
            for other in sorted(expected.keys() | found.keys()):
                if expected.get(other) != found.get(other):
                    raise UserError(
                        f"{self.root / other}: is not what this run wrote ({self.finished} has another digest of it); "
                        f"restore the file, or remove {self.root / name} to have it made again."
                    )

    def _digests(self, name: str) -> dict[str, str]:
        """Return the digest of a file, or of every file of a folder, by path; {} if it does not exist."""
        path = self.root / name
        if path.is_dir():
            return {f"{name}/{other}": file_digest(path / other) for other in files_below(path)}
        return {name: file_digest(path)} if path.exists() else {}

    def _recorded(self) -> dict[str, str]:
        """Return the content of `finished.json`: digests by path; {} without the file."""
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

    A read-only folder needs no lock. Raises UserError if another process holds the lock, or the folder is no workdir.
    """
    folder = epath.Path(root)
    check_ours(folder)
    if is_read_only(folder):
        yield
        return
    made = list(itertools.takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / ".lock", str(folder)) if is_local(folder) else contextlib.nullcontext():
            yield
    finally:
        with contextlib.suppress(OSError, ValueError):  # a folder is not empty
            for path in made:
                path.rmdir()


def is_read_only(folder: str | os.PathLike[str]) -> bool:
    """Return whether a local folder exists and cannot be written."""
    return is_local(folder) and os.path.isdir(folder) and not os.access(folder, os.W_OK)


def verdict_in(folder: str | os.PathLike[str]) -> str:
    """Return the verdict of an audited run and its sentence, from `audit.json`; "" before the audit."""
    path = epath.Path(folder) / "audit.json"
    if not path.exists():
        return ""
    try:
        found = parse_json(path.read_text())
        return f"**{found.get('headline') or found['verdict']}**: {found['sentence']}"
    except (ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: is no JSON of an audit; restore the file, or audit again.") from error


def find_workdir(root: str) -> Workdir:
    """Return the workdir of an existing run; raise UserError if the folder holds none."""
    workdir = Workdir(epath.Path(root))
    if not workdir.config.exists():
        raise UserError(f"{root}: holds no run of eeg2text (no config.json); give the --workdir of a run.")
    return workdir


def check_unchanged(path: str | os.PathLike[str]) -> None:
    """Raise UserError if a file of a workdir was changed since it was finished; any file outside of workdirs passes."""
    path = epath.Path(path)
    if is_local(path) and (path.parent / "config.json").exists():
        Workdir(path.parent).check(path.name)


def check_ours(root: epath.Path) -> None:
    """Raise UserError if a folder is neither a workdir nor empty; the first files of a killed run are accepted."""
    first = (partial_of(root / "config.json").name, ".lock")
    if (root / "config.json").exists() or not root.exists():
        return
    if not root.is_dir() or any(path.name not in first for path in root.iterdir()):
        raise UserError(f"{root} is not empty and holds no run of eeg2text; take another --workdir.")


def read_object(path: epath.Path, advice: str) -> dict[str, Any]:
    """Return the JSON object in a file; raise UserError, which ends with `advice`, if the file has none."""
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: is not JSON ({first_line(error)}); {advice}.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a JSON object, found {content!r:.60}; {advice}.")
    return content
