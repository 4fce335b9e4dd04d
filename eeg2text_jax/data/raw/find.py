"""The settings for raw recordings, and the search for their files with subject, task, session and run."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from eeg2text_jax import kinds
from eeg2text_jax.data.source import is_pointer, matches
from eeg2text_jax.errors import UserError
from eeg2text_jax.imports import library

# Endings of files that MNE reads: EDF, BDF, GDF, BrainVision, EEGLAB, FIF, Neuroscan.
SUFFIXES = (".edf", ".bdf", ".gdf", ".vhdr", ".set", ".fif", ".fif.gz", ".cnt")
BIDS = "dataset_description.json"
TASK = "reading"  # task of files if neither their names nor data.raw.task state one
_ENDINGS = re.compile(r"[-_](raw|eeg|meg|ieeg)$")
VOLTS = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "nV": 1e-9}


@dataclasses.dataclass(frozen=True)
class RawSpec:
    """The fields of `config.data.raw`, documented in `configs/default.py`; frequencies in Hz, times in seconds."""

    begin: Annotated[str, kinds.text()]
    skip: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    end: Annotated[str, kinds.text()]
    text: Annotated[str, kinds.text(empty=False)]
    texts: Annotated[str, kinds.place()]
    seconds_per_character: Annotated[float, kinds.number(0, 60)]
    word: Annotated[str, kinds.text()]
    names: Annotated[str, kinds.text()]
    task: Annotated[str, kinds.text()]
    channels: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    exclude: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    montage: Annotated[str, kinds.text()]
    encoding: Annotated[str, kinds.encoding()]
    units: Annotated[str, kinds.one_of("", *VOLTS)]
    reference: Annotated[str, kinds.text()]
    highpass: Annotated[float, kinds.number(0, 100_000)]
    lowpass: Annotated[float, kinds.number(0, 100_000)]
    notch: Annotated[float, kinds.number(0, 100_000)]
    resample: Annotated[float, kinds.number(0, 100_000)]
    bands: Annotated[tuple[tuple[float, float], ...], kinds.bands()]
    amplitude: Annotated[bool, kinds.flag()]
    log: Annotated[bool, kinds.flag()]
    window: Annotated[float, kinds.number(0, 1000, above=True)]
    step: Annotated[float, kinds.number(0, 1000, above=True)]
    margin: Annotated[float, kinds.number(0, 1000)]
    strict: Annotated[bool, kinds.flag()]

    def __post_init__(self) -> None:
        object.__setattr__(self, "bands", tuple((float(low), float(high)) for low, high in self.bands))

    def features_are(self, channels: Sequence[str]) -> str:
        """Return a description of the F columns of a sample, which `check.names_of` parses."""
        bands = " ".join(f"{low:g}-{high:g}" for low, high in self.bands)
        kind, square = ("amplitude", "") if self.amplitude else ("power", "^2")
        unit = f"log10 of mean band {kind} in uV{square}" if self.log else f"mean band {kind} in V{square}"
        positions = f"events {self.word!r}" if self.word else f"windows of {self.window:g} s every {self.step:g} s"
        return (
            f"{unit} of {positions}, {len(self.bands)} bands x {len(channels)} channels, band-major; bands in Hz: "
            f"{bands}; channels: {' '.join(channels)}"
        )

    def check_rate(self, rate: float, what: str) -> None:
        """Raise UserError if a band or filter reaches half of the sampling rate `rate` (Hz) of the recording `what`."""
        rate = min(rate, self.resample or rate)
        highest = max([high for _, high in self.bands] + [self.highpass, self.lowpass, self.notch])
        if highest >= rate / 2:
            raise UserError(
                f"{what}: has {rate:g} samples a second, and a band or filter at {highest:g} Hz needs more than "
                f"{2 * highest:g}; leave that band or filter out, or raise data.raw.resample if it is set."
            )


@dataclasses.dataclass(frozen=True)
class RawFile:
    """The file of one recording of one subject; `bids`: it is in a BIDS folder."""

    path: Path
    subject: str
    task: str
    session: str = ""
    run: str = ""
    bids: bool = False

    @property
    def name(self) -> str:
        """A name that is unique among the recordings of all subjects."""
        return "/".join(filter(None, (self.subject, self.session, self.run, self.path.name)))

    @property
    def here(self) -> bool:
        """Whether the file is downloaded, rather than a dangling link or a pointer of git-annex or git-lfs."""
        return self.path.exists() and not is_pointer(self.path)


def is_raw(source: str) -> bool:
    """Return whether a source is a file or glob of raw recordings, a folder with such files, or a BIDS folder."""
    path = Path(source)
    if path.is_dir():
        return (path / BIDS).exists() or any(map(_has_suffix, path.iterdir()))
    return _has_suffix(path)


def refuse_nested(source: str) -> None:
    """Raise UserError if a source is an empty folder, or a folder with recordings only in its subfolders."""
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
            f"{source}: its subfolders hold {len(nested)} recordings, such as {first}; name them as '{pattern}', and "
            "if the subfolders name the subjects, set data.raw.names='(?P<subject>[^/]+)/[^/]+'."
        )


def find_raw(sources: Sequence[str], names: str = "", task: str = "") -> list[RawFile]:
    """Return the recordings in files, folders and globs, ordered by task, subject, session and run.

    Args:
      sources: the user's paths and globs.
      names: a regular expression for names that do not follow BIDS, with the group `subject` and optionally `task`,
        `session`, `run`; with a slash it also matches folders.
      task: the task of files whose names state none.

    Raises:
      UserError: no recording is found, two have the same name, `names` does not match a name, or mne-bids is missing.
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
    """Return a recording's file name without its ending and without `_raw`, `_eeg`, `_meg` or `_ieeg`."""
    ending = max((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), key=len, default="")
    return _ENDINGS.sub("", path.name[: len(path.name) - len(ending)])


def _match(names: str, path: Path) -> "re.Match[str] | None":
    """Match a file's name; if the expression has a slash, match the name with as few parent folders as needed."""
    parts = path.absolute().parts
    tries = range(1, len(parts) + 1 if "/" in names else 2)
    return next(filter(None, (re.search(names, "/".join(parts[-count:])) for count in tries)), None)


def _identify(path: Path, bids: bool, names: str, task: str) -> RawFile:
    if bids or (not names and path.name.startswith("sub-")):
        found = library("mne_bids", "mne").get_entities_from_fname(path.name, on_error="ignore")
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
        found = match.groupdict()
    else:
        found = {"subject": stem_of(path)}
    if not found.get("subject"):
        raise UserError(f"{path}: its name tells no subject; expected sub-NAME as in BIDS, or give data.raw.names.")
    return RawFile(path, found["subject"], found.get("task") or task or TASK, found.get("session") or "",
                   found.get("run") or "", bids)  # fmt: skip
