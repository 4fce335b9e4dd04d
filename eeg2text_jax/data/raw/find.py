"""Raw recordings: settings, files with subject and task, channels and events."""

import collections
import dataclasses
import fractions
import functools
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from eeg2text_jax.base import kinds
from eeg2text_jax.base.errors import UserError, count_of, shortlist
from eeg2text_jax.base.packages import library
from eeg2text_jax.data.source import is_pointer, matches, read_cells

# EDF, BDF, GDF, BrainVision, EEGLAB, FIF, Neuroscan, KIT, and folders of CTF.
SUFFIXES = (".edf", ".bdf", ".gdf", ".vhdr", ".set", ".fif", ".fif.gz", ".cnt", ".con", ".sqd", ".ds")
BIDS = "dataset_description.json"
TASK = "reading"  # default
_ENDINGS = re.compile(r"[-_](raw|eeg|meg|ieeg)$")
VOLTS = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "nV": 1e-9}
# Channels of eyes, heart, muscles and devices, which MNE calls EEG where a format states no types.
NOT_EEG = re.compile(r"(?i)[hvlr]?(eog|ecg|ekg|emg)|photo|trig|status|resp|gsr")


@dataclasses.dataclass(frozen=True)
class Sensor:
    """A type of sensors."""

    name: str
    small: str  # unit of features with a logarithm, a millionth of the large one
    large: str  # unit of features without one
    factor: float  # large units in one unit of MNE's values
    mne: str  # unit of MNE's values
    in_words: str  # the same in words
    lowest: float  # plausible standard deviations, in MNE's unit
    usual: float
    highest: float


SENSORS = {  # by MNE's types
    "eeg": Sensor("EEG", "uV", "V", 1.0, "V", "volts", 1e-8, 1e-5, 5e-3),
    "mag": Sensor("magnetometers", "fT", "nT", 1e9, "T", "tesla", 1e-15, 1e-12, 1e-9),
    "grad": Sensor("gradiometers", "fT/cm", "nT/cm", 1e7, "T/m", "tesla a metre", 1e-14, 1e-11, 1e-8),
    "seeg": Sensor("sEEG", "uV", "V", 1.0, "V", "volts", 1e-8, 1e-4, 2e-2),
    "ecog": Sensor("ECoG", "uV", "V", 1.0, "V", "volts", 1e-8, 1e-4, 2e-2),
}
DATATYPES = {"eeg": ("eeg",), "meg": ("mag", "grad"), "ieeg": ("seeg", "ecog")}  # by BIDS
DEFAULT = ("meg", "ieeg", "eeg")  # the first that a recording has is read
BIPOLAR = "bipolar"
_NOT_RECORDINGS = re.compile(r"^\.|_acq-crosstalk_|_split-0*([2-9]|1\d)_|^sub-emptyroom_")  # in BIDS's folders `meg`


@dataclasses.dataclass(frozen=True)
class RawSpec:
    """The fields of `config.data.raw`; frequencies in Hz, times in seconds."""

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
    features: Annotated[str, kinds.one_of("power", "waves")]
    bands: Annotated[tuple[tuple[float, float], ...], kinds.bands()]
    amplitude: Annotated[bool, kinds.flag()]
    log: Annotated[bool, kinds.flag()]
    window: Annotated[float, kinds.number(0, 1000, above=True)]
    step: Annotated[float, kinds.number(0, 1000, above=True)]
    margin: Annotated[float, kinds.number(0, 1000)]
    strict: Annotated[bool, kinds.flag()]

    def __post_init__(self) -> None:
        for kind, how in self.references.items():
            expected = ""
            if kind in DATATYPES["meg"]:
                expected = "no reference, as MEG has none"
            elif kind in DATATYPES["ieeg"] and how not in ("average", BIPOLAR):
                expected = f"average or {BIPOLAR}"
            elif kind == "eeg" and how == BIPOLAR:
                expected = f"average or names of channels; seeg:{BIPOLAR} and ecog:{BIPOLAR} are for contacts"
            if expected:
                raise UserError(f"data.raw.reference is {self.reference!r}; expected for {kind}: {expected}.")

    @property
    def references(self) -> dict[str, str]:
        """Type -> "average", "bipolar", or EEG channels with commas."""
        found: dict[str, list[str]] = {}
        for part in filter(None, map(str.strip, self.reference.split(","))):
            kind, colon, how = part.partition(":")
            kind, how = (kind, how) if colon and kind in SENSORS else ("eeg", part)
            found.setdefault(kind, []).append(how.strip())
        return {kind: ",".join(parts) for kind, parts in found.items()}

    def features_are(self, channels: Sequence[str], types: Sequence[str] = ()) -> str:
        """Return a description of the F columns, which `check.names_of` parses; default types: "eeg"."""
        types, counts = types or ("eeg",) * len(channels), ""
        if set(types) - {"eeg"}:
            counts = f" ({', '.join(f'{types.count(kind)} {kind}' for kind in dict.fromkeys(types))})"
            channels = [f"{'_'.join(name.split())}/{kind}" for name, kind in zip(channels, types, strict=True)]
        units = {kind: SENSORS[kind].small if self.log or self.is_waves else SENSORS[kind].large for kind in types}
        if not (self.amplitude or self.is_waves):
            units = {kind: f"({unit})^2" if "/" in unit else f"{unit}^2" for kind, unit in units.items()}
        unit = ", ".join(f"{unit} ({kind})" if counts else unit for kind, unit in units.items())
        many, names = f"{len(channels)} channels{counts}", " ".join(channels)
        if self.is_waves:
            edges = {name: getattr(self, name) for name in ("highpass", "lowpass", "notch")}
            filters = ", ".join(f"{name} {value:g} Hz" for name, value in edges.items() if value) or "no filter"
            return (
                f"waves in {unit} of {many}, {self.resample:g} samples a second, {filters}, each minus its mean over "
                f"the sentence; channels: {names}"
            )
        bands = " ".join(f"{low:g}-{high:g}" for low, high in self.bands)
        what = f"{'log10 of ' if self.log else ''}mean band {'amplitude' if self.amplitude else 'power'} in {unit}"
        positions = f"events {self.word!r}" if self.word else f"windows of {self.window:g} s every {self.step:g} s"
        return (
            f"{what} of {positions}, {len(self.bands)} bands x {many}, band-major; bands in Hz: {bands}; channels: "
            f"{names}"
        )

    @property
    def is_waves(self) -> bool:
        return self.features == "waves"

    def ratio(self, rate: float) -> fractions.Fraction:
        """Return the ratio of `resample` to `rate` (Hz), with a denominator that resampling takes."""
        return fractions.Fraction(self.resample / rate).limit_denominator(1000)

    def check_rate(self, rate: float, what: str) -> None:
        """Raise UserError if `resample`, a band or a filter does not fit `rate` (Hz)."""
        if self.resample and abs(float(self.ratio(rate)) * rate / self.resample - 1) > 1e-3:
            raise UserError(
                f"{what}: has {rate:g} samples a second, too many for data.raw.resample={self.resample:g}; expected "
                f"{rate / 100:g} or more, or 0 to keep the rate."
            )
        rate, bands = min(rate, self.resample or rate), () if self.is_waves else self.bands
        highest = max(*(high for _, high in bands), self.highpass, self.lowpass, self.notch)
        if highest >= rate / 2:
            raise UserError(
                f"{what}: has {rate:g} samples a second, and a band or filter at {highest:g} Hz needs more than "
                f"{2 * highest:g}; leave that band or filter out, or raise data.raw.resample if it is set."
            )


@dataclasses.dataclass(frozen=True)
class RawFile:
    """The file of a recording of a subject; `bids`: in a BIDS folder."""

    path: Path
    subject: str
    task: str
    session: str = ""
    run: str = ""
    bids: bool = False

    @property
    def name(self) -> str:
        """A name that is unique among recordings."""
        return "/".join(filter(None, (self.subject, self.session, self.run, self.path.name)))

    @property
    def datatype(self) -> str:
        """Its folder in BIDS, `eeg`, `meg` or `ieeg`; else ""."""
        return self.path.absolute().parent.name if self.bids else ""

    @property
    def here(self) -> bool:
        """Whether the file is downloaded."""
        return self.path.exists() and not is_pointer(self.path)


def select_channels(types: Mapping[str, str], spec: RawSpec, datatype: str, where: str) -> tuple[str, ...]:
    """Return the channels that `spec` selects; `types` are MNE's types by name.

    By default those of one datatype: `datatype`, the folder in BIDS, else the first of `DEFAULT`. Raises UserError if a
    part of `spec.channels` selects nothing, or no channel is left.
    """
    usable = {
        name: kind for name, kind in types.items() if kind in SENSORS and not (kind == "eeg" and NOT_EEG.match(name))
    }
    of_kind = {kind: [name for name in types if types[name] == kind] for kind in types.values()}
    counted = ", ".join(f"{len(names)} {kind} ({shortlist(names, 4)})" for kind, names in of_kind.items())
    names: list[str] = []
    for wanted in spec.channels:
        kinds = DATATYPES.get(wanted.lower(), (wanted.lower(),))
        fits = re.compile(".*".join(map(re.escape, wanted.split("*"))))
        found = [name for name, kind in usable.items() if kind in kinds or ("*" in wanted and fits.fullmatch(name))]
        if not (found := [wanted] if wanted in types else found):
            raise UserError(
                f"{where}: has no channel {wanted!r} (data.raw.channels); it has {len(types)} channels: {counted}."
            )
        names += found
    if not spec.channels:
        there = set(usable.values())
        taken = next((DATATYPES[name] for name in (datatype, *DEFAULT) if there & set(DATATYPES.get(name, ()))), ())
        names = [name for name, kind in usable.items() if kind in taken]
    if names := [name for name in dict.fromkeys(names) if name not in spec.exclude]:
        return tuple(names)
    raise UserError(
        f"{where}: has no channel of EEG, MEG, sEEG or ECoG that data.raw.exclude leaves, it has {len(types)} "
        f"channels: {counted}; set data.raw.channels to the channels to use."
    )


def sensor_types(types: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the type of each channel; one of another type than `SENSORS`, which the user named, counts as EEG."""
    return tuple(types[name] if types[name] in SENSORS else "eeg" for name in names)


def is_raw(source: str) -> bool:
    """Return whether a source is a recording, a glob or folder of some, or a BIDS folder."""
    path = Path(source)
    if path.is_dir() and not _has_suffix(path):
        return (path / BIDS).exists() or any(map(_has_suffix, path.iterdir()))
    return _has_suffix(path)


def refuse_nested(source: str) -> None:
    """Raise UserError if a source is an empty folder, or has recordings in subfolders alone."""
    folder = Path(source)
    inside = sorted(path for path in folder.rglob("*") if not path.is_dir())
    if folder.is_dir() and not inside:
        raise UserError(f"{source}: this folder holds no files; give a folder that holds recordings.")
    if (nested := [path for path in inside if _has_suffix(path)]) and not any(path.parent == folder for path in inside):
        first = nested[0].relative_to(folder)
        pattern = folder.joinpath(*["*"] * (len(first.parts) - 1), f"*{first.suffix}")
        raise UserError(
            f"{source}: its subfolders hold {len(nested)} recordings, such as {first}; name them as '{pattern}', and "
            "if the subfolders name the subjects, set data.raw.names='(?P<subject>[^/]+)/[^/]+'."
        )


def find_raw(sources: Sequence[str], names: str = "", task: str = "", channels: Sequence[str] = ()) -> list[RawFile]:
    """Return the recordings in files, folders and globs, by task, subject, session and run.

    `names`, for names other than BIDS's, is a regular expression with the group `subject` and optionally `task`,
    `session`, `run`; with a slash it matches folders, too. Files that state no task get `task`. `channels`
    (`data.raw.channels`) choose the datatype of a BIDS folder. Raises UserError if there is no recording, two have one
    name, or a name does not fit `names`.
    """
    files: dict[Path, RawFile] = {}
    for source in sources:
        bids = Path(source, BIDS).exists()
        for path in _bids_paths(Path(source), channels) if bids else _paths(source):
            files[path.absolute()] = _identify(path, bids, names, task)
    if not files:
        raise UserError(
            f"{', '.join(sources)}: no recordings found; expected files that MNE reads ({', '.join(SUFFIXES)}), or a "
            "BIDS folder with EEG, MEG or iEEG."
        )
    counts = collections.Counter((file.task, file.name) for file in files.values())
    if same := [file for file in files.values() if counts[file.task, file.name] > 1]:
        first = same[0].path
        raise UserError(
            f"{first}: {counts[same[0].task, same[0].name]} files are called {first.name}, and all would be the "
            f"subject {same[0].subject}; where folders name the subjects, set data.raw.names='(?P<subject>[^/]+)/"
            f"{stem_of(first)}' (groups `session` and `run` tell recordings of one subject apart)."
        )
    return sorted(files.values(), key=lambda file: (file.task, file.subject, file.session, file.run, str(file.path)))


def _bids_paths(root: Path, channels: Sequence[str]) -> list[Path]:
    """Return the recordings of one datatype: that of `channels`, else the first that is there."""
    wanted = {name.lower() for name in channels}
    asked = [name for name, kinds in DATATYPES.items() if wanted & {name, *kinds}][::-1]  # a folder `meg` may have EEG
    there = {}
    for name in dict.fromkeys([*asked, *DATATYPES]):
        paths = filter(_has_suffix, sorted(root.glob(f"sub-*/**/*_{name}.*")))
        if found := [path for path in paths if not _NOT_RECORDINGS.search(path.name)]:
            there[name] = found
    for name in list(there)[1:]:
        many = count_of(len(there[name]), "recording")
        print(f"{root}: also has {many} of the datatype {name}, which data.raw.channels={name} takes.", file=sys.stderr)
    return next(iter(there.values()), [])


def _paths(source: str) -> list[Path]:
    root = Path(source)
    is_folder = root.is_dir() and not _has_suffix(root)
    if not is_folder and os.path.lexists(root):
        return [root]
    paths = sorted(root.glob("*")) if is_folder else matches(source)
    return [path for path in paths if _has_suffix(path) and not path.name.startswith(".")]


def _has_suffix(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def stem_of(path: Path) -> str:
    """Return a file's name without ending, `_raw`, `_eeg`, `_meg` and `_ieeg`."""
    ending = max((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), key=len, default="")
    return _ENDINGS.sub("", path.name[: len(path.name) - len(ending)])


def _identify(path: Path, bids: bool, names: str, task: str) -> RawFile:
    entities = {"subject": stem_of(path)}
    if bids or (not names and path.name.startswith("sub-")):
        entities = library("mne_bids", "mne").get_entities_from_fname(path.name, on_error="ignore")
    elif names:
        parts = path.absolute().parts
        tries = range(1, len(parts) + 1 if "/" in names else 2)
        try:
            # With a slash, match as few parent folders as needed.
            match = next(filter(None, (re.search(names, "/".join(parts[-count:])) for count in tries)), None)
        except re.error as error:
            raise UserError(f"data.raw.names is {names!r}, which is no regular expression ({error}).") from error
        if match is None or "subject" not in match.groupdict():
            raise UserError(f"{path}: data.raw.names ({names!r}) finds no subject in this name; give (?P<subject>...).")
        entities = match.groupdict()
    if not entities.get("subject"):
        raise UserError(f"{path}: its name tells no subject; expected sub-NAME as in BIDS, or give data.raw.names.")
    session, run = (entities.get(name) or "" for name in ("session", "run"))
    return RawFile(path, entities["subject"], entities.get("task") or task or TASK, session, run, bids)


# Of BrainVision's markers. MNE writes `TYPE/description`, also in copies as FIF, EDF or BIDS.
TYPES = ("Comment", "Stimulus", "Response", "New Segment", "SyncStatus", "Optic", "Toggle", "Time 0", "Bad Interval")
_TYPED = re.compile(f"((?:{'|'.join(TYPES)})/)(.*)", re.DOTALL)
_TRIGGER = re.compile(r"S *0*(\d+)")


def split_type(description: str) -> tuple[str, str]:
    """Split `Comment/a text` into `Comment/` (else "") and the rest."""
    match = _TYPED.fullmatch(description)
    return (match[1], match[2].strip()) if match else ("", description)


@functools.lru_cache(maxsize=4096)
def spellings(code: str) -> tuple[str, ...]:
    """Return the spellings of a code, first those without type: `S 101` -> `S 101`, `S101`, `101`."""
    marker, bare = split_type(code)
    forms = [bare, *_trigger(bare)]
    return tuple(dict.fromkeys(forms + [marker + form for form in forms] + [code]))


@functools.lru_cache(maxsize=256)
def patterns(pattern: str, *, typed: bool) -> tuple["re.Pattern[str]", ...]:
    """Compile all spellings of a user's pattern; `*` is any text.

    If the code to match has a marker type (`typed`), one in the pattern must be equal to it.
    """
    marker, bare = split_type(pattern)
    prefix = marker if typed or bare.startswith("*") else ""
    forms = dict.fromkeys([pattern, prefix + bare, *(prefix + form for form in _trigger(bare))])
    return tuple(re.compile("(.*)".join(map(re.escape, form.split("*"))), re.DOTALL) for form in forms)


def _trigger(bare: str) -> list[str]:
    match = _TRIGGER.fullmatch(bare)
    return [f"S{match[1]}", match[1]] if match else []


CODES = ("trial_type", "value", "code", "description")  # columns of events that may hold codes
MISSING = ("", "n/a", "nan")  # cells without a value
NO_EVENTS = ("bad", "edge")  # MNE's prefixes of annotations on data to exclude


@dataclasses.dataclass(frozen=True)
class Event:
    """An event; times are seconds from the first sample."""

    onset: float
    duration: float
    codes: tuple[str, ...]
    columns: dict[str, str]  # column -> cell; of an annotation, its text alone

    def match(self, pattern: str) -> "re.Match[str] | None":
        """Return the match of the first code that fits `pattern`, in which `*` is any text.

        `S101`, `S 101` and `101` are equal. A pattern with a marker type matches codes of this type and of none.
        """
        tries = (
            expression.fullmatch(form)
            for code in self.codes
            for form in spellings(code)
            for expression in patterns(pattern, typed=bool(split_type(code)[0]))
        )
        return next(filter(None, tries), None)


def events_table(file: RawFile) -> Path | None:
    """Return `NAME_events.tsv` or `.csv`, if it is there."""
    places = (file.path.with_name(f"{stem_of(file.path)}_events{suffix}") for suffix in (".tsv", ".csv"))
    return next((place for place in places if place.is_file()), None)


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return columns and rows of a table with a header; raise UserError if it is damaged."""
    lines = [(number, [cell.strip() for cell in cells]) for number, cells in read_cells(path)]
    header = lines[0][1] if lines else []
    if not any(header):
        raise UserError(f"{path}: the table is empty; expected a header and a line for each event.")
    if len(header) == 1 and ";" in header[0]:
        raise UserError(f"{path}: its cells are separated by semicolons; save it with commas (.csv) or tabs (.tsv).")
    filled = [(number, cells) for number, cells in lines[1:] if any(cells)]
    for number, cells in filled:
        if len(cells) != len(header):
            raise UserError(f"{path}, line {number}: has {len(cells)} cells, the header {len(header)}; mend the line.")
    return header, [dict(zip(header, cells, strict=True)) for _, cells in filled]


def read_events(path: Path) -> tuple[list[str], list[Event]]:
    """Return columns and events, by onset, of a table with `onset` and perhaps `duration` in seconds.

    Raises UserError if the table is damaged, or a time is missing or no number.
    """
    columns, rows = read_table(path)
    if "onset" not in columns:
        raise UserError(f"{path}: there is no column 'onset', there are {', '.join(columns)}; expected seconds in it.")
    events = []
    for number, row in enumerate(rows, 1):
        onset = _seconds(path, number, row, "onset")
        has_end = row.get("duration", "").lower() not in MISSING
        duration = _seconds(path, number, row, "duration") if has_end else 0.0
        codes = tuple(row[name] for name in CODES if row.get(name, "").lower() not in MISSING)
        events.append(Event(onset, duration, codes, row))
    return columns, sorted(events, key=lambda event: event.onset)


def _seconds(path: Path, number: int, row: dict[str, str], name: str) -> float:
    try:
        if math.isfinite(value := float(row[name])):
            return value
    except ValueError:
        pass
    raise UserError(f"{path}, event {number}: {name} is {row[name]!r}; expected seconds.")


def annotations(raw: Any, text: str) -> Iterator[Event]:
    """Yield MNE's annotations; the description is both the code and the column `text`."""
    marks = ((float(mark["onset"]), float(mark["duration"]), str(mark["description"])) for mark in raw.annotations)
    for onset, duration, description in dict.fromkeys(marks):  # BrainVision may have one for each channel
        # Markers of BrainVision without duration last one sample.
        duration = duration if duration * raw.info["sfreq"] > 1.5 else 0.0
        # MNE counts from the start of the whole recording, even in a part of it.
        yield Event(onset - raw.first_time, duration, (description,), {text: description})


def is_marked_bad(event: Event) -> bool:
    """Return whether an event marks data to exclude."""
    return any(form.lower().startswith(NO_EVENTS) for code in event.codes for form in (code, split_type(code)[1]))
