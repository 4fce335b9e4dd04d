"""Which raw recordings a user means, whose they are, and whether they are there."""

import dataclasses
import glob
import re
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.data.source import library
from eeg2text_jax.errors import UserError

# What MNE reads, by ending: EDF, BDF, GDF, BrainVision, EEGLAB, FIF, Neuroscan.
SUFFIXES = (".edf", ".bdf", ".gdf", ".vhdr", ".set", ".fif", ".fif.gz", ".cnt")
BIDS = "dataset_description.json"
TASK = "reading"  # of files that do not say
_ENDINGS = re.compile(r"[-_](raw|eeg|meg|ieeg)$")
_POINTER = 1024  # bytes: what git-annex and git-lfs leave in the place of a file is smaller


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
        """The recording's name among those of all subjects."""
        return "/".join(filter(None, (self.subject, self.session, self.run, self.path.name)))

    @property
    def here(self) -> bool:
        """Whether its data are: a data set may be fetched without them, as links or pointers to elsewhere."""
        if not self.path.exists():
            return False
        if self.path.stat().st_size >= _POINTER:
            return True
        head = self.path.read_bytes()
        return not (b"/annex/objects/" in head or head.startswith(b"version https://git-lfs"))


def is_raw(source: str) -> bool:
    """Whether a source is such a recording, a BIDS folder, a folder or a glob of such recordings."""
    path = Path(source)
    if path.is_dir():
        return (path / BIDS).exists() or any(map(_has_suffix, path.iterdir()))
    return _has_suffix(path)


def refuse_nested(source: str) -> None:
    """
    Raises:
      UserError: a folder is empty, or has recordings in the folders in it alone.
    """
    folder = Path(source)
    if not folder.is_dir():
        return
    inside = sorted(path for path in folder.rglob("*") if not path.is_dir())
    if not inside:
        raise UserError(f"{source}: there is no file in this folder; name one with recordings.")
    nested = [path for path in inside if _has_suffix(path)]
    if nested and not any(path.parent == folder for path in inside):
        first = nested[0].relative_to(folder)
        pattern = folder.joinpath(*["*"] * (len(first.parts) - 1), f"*{first.suffix}")
        raise UserError(
            f"{source}: {len(nested)} recordings lie in folders in it, such as {first}; name them as '{pattern}', and "
            "where the folders tell who read, give data.raw.names='(?P<subject>[^/]+)/[^/]+'."
        )


def find_raw(sources: Sequence[str], names: str = "", task: str = "") -> list[RawFile]:
    """Recordings among files, folders and globs, in the order of their names.

    Args:
      sources: what the user named.
      names: a regular expression with the group `subject`, and `task`, `session`, `run` if there are any, for names
        that are not those of BIDS; one with a slash is for folders, too.
      task: of files whose names do not tell.

    Raises:
      UserError: there is none, two have the same name among all, the expression does not match a name, or mne-bids is
        not installed.
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
                f"where folders tell who read, give data.raw.names='(?P<subject>[^/]+)/{stem_of(first)}' (groups "
                "`session` and `run` tell recordings of one subject apart)."
            )


def _paths(root: Path, source: str, bids: bool) -> list[Path]:
    if root.is_dir():
        pattern = "sub-*/**/*_eeg.*" if bids else "*"
        paths = sorted(root.glob(pattern))
    elif root.exists() or root.is_symlink():
        return [root]
    else:
        paths = sorted(map(Path, glob.glob(source, recursive=True)))
        if not paths:
            raise UserError(f"{source}: there is no such file or folder, and as a pattern it matches nothing.")
    return [path for path in paths if _has_suffix(path) and not path.name.startswith(".")]


def _has_suffix(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def stem_of(path: Path) -> str:
    """A recording's name without what says its format."""
    name = path.name
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
            break
    return _ENDINGS.sub("", name)


def _match(names: str, path: Path) -> "re.Match[str] | None":
    """The match in a file's name; of an expression with a slash, in as few of its folders as it needs."""
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
