"""Find raw recordings, with subject and task, and detect files that are not downloaded."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.data.source import is_pointer, library, matches
from eeg2text_jax.errors import UserError

# What MNE reads, by ending: EDF, BDF, GDF, BrainVision, EEGLAB, FIF, Neuroscan.
SUFFIXES = (".edf", ".bdf", ".gdf", ".vhdr", ".set", ".fif", ".fif.gz", ".cnt")
BIDS = "dataset_description.json"
TASK = "reading"  # default
_ENDINGS = re.compile(r"[-_](raw|eeg|meg|ieeg)$")


@dataclasses.dataclass(frozen=True)
class RawFile:
    """One recording of one subject."""

    path: Path
    subject: str
    task: str
    session: str = ""
    run: str = ""
    bids: bool = False

    @property
    def name(self) -> str:
        """A unique name among the recordings of all subjects."""
        return "/".join(filter(None, (self.subject, self.session, self.run, self.path.name)))

    @property
    def here(self) -> bool:
        """Whether the data are here; a data set may be fetched with links or pointers in place of files."""
        return self.path.exists() and not is_pointer(self.path)


def is_raw(source: str) -> bool:
    """Return whether a source is such a recording, a BIDS folder, or a folder or glob of such recordings."""
    path = Path(source)
    if path.is_dir():
        return (path / BIDS).exists() or any(map(_has_suffix, path.iterdir()))
    return _has_suffix(path)


def refuse_nested(source: str) -> None:
    """Raise UserError if a folder is empty, or has recordings only in its subfolders."""
    folder = Path(source)
    if not folder.is_dir():
        return
    inside = sorted(path for path in folder.rglob("*") if not path.is_dir())
    if not inside:
        raise UserError(f"{source}: this folder holds no files; give a folder that holds recordings.")
    nested = [path for path in inside if _has_suffix(path)]
    if nested and not any(path.parent == folder for path in inside):
        first = nested[0].relative_to(folder)
        pattern = folder.joinpath(*["*"] * (len(first.parts) - 1), f"*{first.suffix}")
        raise UserError(
            f"{source}: {len(nested)} recordings lie in folders in it, such as {first}; name them as '{pattern}', and "
            "where these folders name the subjects, set data.raw.names='(?P<subject>[^/]+)/[^/]+'."
        )


def find_raw(sources: Sequence[str], names: str = "", task: str = "") -> list[RawFile]:
    """Return the recordings among files, folders and globs, ordered by task, subject, session and run.

    Args:
      sources: the user's paths and globs.
      names: a regular expression with the group `subject`, and optionally `task`, `session`, `run`, for names that are
        not those of BIDS; with a slash it also matches folders.
      task: the task of files whose names have none.

    Raises:
      UserError: there is none, two have the same name, the expression does not match a name, or mne-bids is missing.
    """
    found: dict[Path, RawFile] = {}
    for source in sources:
        root = Path(source)
        bids = (root / BIDS).exists()
        for path in _paths(root, source, bids):
            found[path.absolute()] = _identify(path, bids, names, task)
    if not found:
        raise UserError(
            f"{', '.join(sources)}: no recordings found; expected files that MNE reads ({', '.join(SUFFIXES)}), or a "
            "BIDS folder with EEG."
        )
    _refuse_same_names(list(found.values()))
    return sorted(found.values(), key=lambda file: (file.task, file.subject, file.session, file.run, str(file.path)))


def _refuse_same_names(files: Sequence[RawFile]) -> None:
    of_name: dict[tuple[str, str], list[RawFile]] = {}
    for file in files:
        of_name.setdefault((file.task, file.name), []).append(file)
    for same in of_name.values():
        if len(same) > 1:
            first = same[0].path
            raise UserError(
                f"{first}: {len(same)} files are called {first.name}, and all would be the subject {same[0].subject}; "
                f"where folders name the subjects, set data.raw.names='(?P<subject>[^/]+)/{stem_of(first)}' (groups "
                "`session` and `run` tell recordings of one subject apart)."
            )


def _paths(root: Path, source: str, bids: bool) -> list[Path]:
    if root.is_dir():
        paths = sorted(root.glob("sub-*/**/*_eeg.*" if bids else "*"))
    elif root.exists() or root.is_symlink():
        return [root]
    else:
        paths = matches(source)
    return [path for path in paths if _has_suffix(path) and not path.name.startswith(".")]


def _has_suffix(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def stem_of(path: Path) -> str:
    """Return a recording's name without its format."""
    ending = max((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), key=len, default="")
    return _ENDINGS.sub("", path.name[: len(path.name) - len(ending)])


def _match(names: str, path: Path) -> "re.Match[str] | None":
    """Match a file's name; an expression with a slash also matches as few of its folders as needed."""
    parts = path.absolute().parts
    tries = range(1, len(parts) + 1 if "/" in names else 2)
    return next(filter(None, (re.search(names, "/".join(parts[-count:])) for count in tries)), None)


def _identify(path: Path, bids: bool, names: str, task: str) -> RawFile:
    if bids or (not names and path.name.startswith("sub-")):
        told = library("mne_bids", "mne").get_entities_from_fname(path.name, on_error="ignore")
    elif names:
        try:
            match = _match(names, path)
        except re.error as error:
            raise UserError(f"data.raw.names is {names!r}, which is no regular expression ({error}).") from error
        if match is None or "subject" not in match.groupdict():
            raise UserError(
                f"{path}: data.raw.names ({names!r}) finds no subject in this name; expected a regular expression with "
                "the group (?P<subject>...)."
            )
        told = match.groupdict()
    else:
        told = {"subject": stem_of(path)}
    if not told.get("subject"):
        raise UserError(f"{path}: its name tells no subject; expected sub-NAME as in BIDS, or give data.raw.names.")
    return RawFile(path, told["subject"], told.get("task") or task or TASK, told.get("session") or "",
                   told.get("run") or "", bids)  # fmt: skip
