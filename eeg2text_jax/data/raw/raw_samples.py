"""Convert raw recordings to samples, with one sentence in memory at a time."""

import collections
import contextlib
import dataclasses
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.base.errors import UserError, count_of, first_line, named, shortlist
from eeg2text_jax.base.files import content_digest, file_digest
from eeg2text_jax.base.packages import library
from eeg2text_jax.base.progress import ProgressLine
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.data.datafile import HALF_RANGE, electrodes
from eeg2text_jax.data.raw import find
from eeg2text_jax.data.raw.sentences import (
    NO_END,
    NO_TEXT,
    Flat,
    Reading,
    Short,
    Texts,
    band_power,
    bipolar_pairs,
    level_notes,
    no_sentence,
    readings,
    rereference,
    waves,
    windows,
)
from eeg2text_jax.data.rows import SentenceNumbers
from eeg2text_jax.data.source import Sample, Tally, UnreadableRecording, are_codes, read_recordings

Types = dict[str, str]  # channel -> its type in a BIDS folder's `channels.tsv`
ELECTRIC = ("eeg", "seeg", "ecog")  # types in volts
_KNOWN = {name.lower(): volts for name, volts in find.VOLTS.items()}
BEYOND = "beyond the recording"
FLAT = "flat channel"
SHORT = "too short for the filters (data.raw.margin helps)"
TOO_LARGE = f"beyond {HALF_RANGE:g} uV or fT (data.raw.highpass helps)"
Found = tuple[list[Reading], collections.Counter[str]]  # sentences, and reason -> number of dropped ones


@dataclasses.dataclass(frozen=True)
class Recording:
    """An open recording: selected channels, and how to read them."""

    file: find.RawFile
    raw: Any  # MNE's object
    channels: tuple[str, ...]
    types: tuple[str, ...]  # of `channels`: eeg | mag | grad | seeg | ecog
    factor: np.ndarray  # `[channels, 1]`, large units in one of MNE's values
    notes: list[str]  # on channels left out and units assumed, without the file's name
    warnings: list[str]  # on unreadable sidecars and bad channels, with the file's name

    @property
    def rate(self) -> float:
        return float(self.raw.info["sfreq"])

    def volts(self, begin: float, end: float) -> tuple[np.ndarray, float]:
        """Return values `[channels, samples]` in large units from `begin` to `end`, and the time of the first one.

        Seconds outside the recording are clipped. Raises UnreadableRecording, or UserError for NaN.
        """
        start = max(int(np.floor(begin * self.rate)), 0)
        stop = min(int(np.ceil(end * self.rate)), self.raw.n_times)
        picks = [self.raw.ch_names.index(name) for name in self.channels]
        with _mne_errors(self.file):
            values = self.raw.get_data(picks, start, stop)
        if not (finite := np.isfinite(values)).all():
            broken = np.flatnonzero(~finite.all(axis=1))
            first = (start + np.flatnonzero(~finite.all(axis=0))[0]) / self.rate
            where = f"at {first:.1f} s ({shortlist(self.channels[i] for i in broken)})"
            raise UserError(
                f"{self.file.path}: {len(broken)} of {len(self.channels)} channels have NaN or infinity {where}; mend "
                "the recording, or leave these channels out with data.raw.exclude."
            )
        return values.astype(np.float64, copy=False) * self.factor, start / self.rate


def open_recording(file: find.RawFile, spec: find.RawSpec) -> Recording:
    """Open a file with MNE, or with mne-bids in a BIDS folder.

    Raises UnreadableRecording if MNE cannot read it, UserError if it lacks channels or a unit.
    """
    mne = library("mne", "mne")
    has_encoding = spec.encoding and file.path.suffix.lower() in (".edf", ".bdf")
    options = {"encoding": spec.encoding} if has_encoding else {}
    with _mne_errors(file):
        if file.bids:
            raw, stated, warned = open_bids(file, spec.channels, options)
        else:
            raw, stated, warned = mne.io.read_raw(file.path, preload=False, verbose="error", **options), {}, []
    types = _types(raw)
    names = find.select_channels(types, spec, file.datatype, str(file.path))
    kinds = find.sensor_types(types, names)
    if spec.references.get("eeg") == "average" and kinds.count("eeg") == 1:
        raise UserError(f"{file.path}: an average reference leaves nothing of one channel; set data.raw.reference=''.")
    if bad := [name for name in raw.info["bads"] if name in names]:
        warned.append(f"{file.path}: marks these channels as bad, but they are kept: {', '.join(bad)}.")
    check_ranges(file, raw, names)
    electric = [name for name, kind in zip(names, kinds, strict=True) if kind in ELECTRIC]
    factor = np.array([[find.SENSORS[kind].factor] for kind in kinds])
    factor[[name in electric for name in names]], without = factors(file, raw, electric, spec.units)
    notes = []
    if not spec.channels and (left := {name: kind for name, kind in types.items() if name not in names}):
        notes += _note_on_left(raw, left, stated, spec, kinds[0])
    if without:
        many = count_of(len(without), "channel without a unit was", "channels without a unit were")
        notes.append(f"{many} read in {spec.units}: {', '.join(without)}.")
    return Recording(file, raw, names, kinds, factor, notes, warned)


def _types(raw: Any) -> Types:
    return dict(zip(raw.ch_names, raw.get_channel_types(), strict=True))


def _note_on_left(raw: Any, left: Types, stated: Types, spec: find.RawSpec, kind: str) -> list[str]:
    """Return a note on the channels `left` out that the user did not exclude, with types and units.

    `kind` is a type of the channels used.
    """
    of: Types = {}  # channel -> why it is left out
    for name, now in left.items():
        if name not in spec.exclude and now != "stim":
            why = "by its name" if now == "eeg" and find.NOT_EEG.match(name) else now
            of[name] = stated.get(name, why) + (f", unit {unit!r}" if (unit := unit_of(raw, name)) else "")
    many = {why: n for why, n in collections.Counter(of.values()).items() if why.lower() in find.SENSORS and n > 4}
    shown = [f"{n} {why} ({shortlist([name for name in of if of[name] == why], 3)})" for why, n in many.items()]
    shown += [f"{name} ({why})" for name, why in of.items() if why not in many]
    if not of:
        return []
    wanted = next(name for name, kinds in find.DATATYPES.items() if kind in kinds).upper().replace("IEEG", "iEEG")
    return [
        f"{count_of(len(of), 'channel was', 'channels were')} left out, as not {wanted} by type, unit or name: "
        f"{', '.join(shown)}; to use some of them, set data.raw.channels to all channels to use."
    ]


@contextlib.contextmanager
def _mne_errors(file: find.RawFile) -> Iterator[None]:
    """Turn MNE's exceptions into UnreadableRecording; suppress its warnings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except UserError:
        raise
    except Exception as error:
        reason = first_line(error)
        if isinstance(error, UnicodeDecodeError) or "encoding=" in str(error):
            reason = "its annotations are no UTF-8 text; set data.raw.encoding to their encoding, such as latin1"
        elif not isinstance(error, OSError | ValueError | RuntimeError):  # MNE did not expect these bytes
            reason = f"damaged, or no recording; {named(error)}"
        raise UnreadableRecording(file.path, f"cannot be read by MNE ({reason}).") from error


def open_bids(file: find.RawFile, wanted: tuple[str, ...], options: dict[str, str]) -> tuple[Any, Types, list[str]]:
    """Open a recording and apply its `channels.tsv`, even if mne-bids cannot read other sidecars.

    Return MNE's object, the table's types of channels, and warnings. Raises UserError if the table is damaged, or,
    without `wanted` channels, lacks a channel.
    """
    bids, warned = library("mne_bids", "mne"), []
    path = bids.get_bids_path_from_fname(file.path)
    table = path.find_matching_sidecar(suffix="channels", extension=".tsv", on_error="ignore")
    rows = _rows(Path(table)) if table else {}
    try:
        raw = bids.read_raw_bids(path, verbose="error", extra_params=dict(options))
    except Exception as error:  # often a faulty sidecar; a damaged recording raises again below
        raw = library("mne", "mne").io.read_raw(file.path, preload=False, verbose="error", **options)
        warned.append(f"{file.path}: was read without sidecars that mne-bids cannot read ({first_line(error)}).")
    if not table:
        return raw, {}, warned
    types = _types(raw)
    if absent := [name for name, kind in types.items() if name not in rows and kind in find.SENSORS and not wanted]:
        others = [name for name in rows if name not in types]
        what = f"; it has rows for {', '.join(others[:5])}, which the recording lacks" if others else ""
        many = count_of(len(absent), "such channel")
        raise UserError(
            f"{table}: has no row for channel {absent[0]!r} of {file.path.name} ({many}){what}. Mend the table, or "
            "name the channels to take with data.raw.channels."
        )
    stated = {name: row["type"] for name, row in rows.items() if name in types}
    for name, kind in stated.items():
        now, ours = types[name], kind.lower()
        if ours not in ELECTRIC:
            ours = "misc" if now in ELECTRIC else now
        if ours != now:
            raw.set_channel_types({name: ours}, verbose="error")
    if any("status" in row for row in rows.values()):
        raw.info["bads"] = [name for name in stated if rows[name]["status"].lower() == "bad"]
    return raw, stated, warned


def _rows(table: Path) -> dict[str, dict[str, str]]:
    """Return the rows of `channels.tsv` by channel; raise UserError if it is malformed."""
    columns, lines = find.read_table(table)
    if lacking := [column for column in ("name", "type") if column not in columns]:
        raise UserError(f"{table}: there is no column {lacking[0]!r}, there are {', '.join(columns)[:200]}.")
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        if rows.setdefault(line["name"], line) is not line:
            raise UserError(f"{table}: has two rows for channel {line['name']!r}; expected one.")
    return rows


def factors(file: find.RawFile, raw: Any, names: list[str], unit: str) -> tuple[np.ndarray, list[str]]:
    """Return factors `[channels, 1]` from MNE's values to volts, and the channels without a unit of voltage.

    These are in `unit`; if it is "", they raise UserError.
    """
    units, applied = getattr(raw, "_orig_units", None) or {}, _applied_factors(raw)
    scales, without = np.ones((len(names), 1)), []
    for i, name in enumerate(names):
        if name in units and (volts := _KNOWN.get(_symbol(units[name]))):
            scales[i] = volts / applied.get(name, volts)
        elif name in units:
            without.append(name)
            scales[i] = find.VOLTS.get(unit, 1.0) / applied.get(name, 1.0)
    if without and not unit:
        raise UserError(
            f"{file.path}: gives channel {without[0]!r} in {str(units[without[0]])!r}, no unit of voltage that MNE "
            f"knows ({count_of(len(without), 'such channel')}); set data.raw.units to their unit, one of "
            f"{', '.join(find.VOLTS)}, which applies to these channels alone, or leave them out with data.raw.exclude."
        )
    return scales, without


def unit_of(raw: Any, name: str) -> str:
    """Return a channel's unit by the file; "" for multiples of volts, or if it states none."""
    unit = (getattr(raw, "_orig_units", None) or {}).get(name)
    return "" if unit is None or _symbol(unit) in _KNOWN else str(unit)


def _symbol(unit: Any) -> str:
    return re.sub("^[µμ]", "u", str(unit).strip().lower())  # the micro sign and the Greek letter


def _applied_factors(raw: Any) -> dict[str, float]:
    """Return channel -> factor that MNE applied to get volts (none to nV in EDF, and `uv`)."""
    extras = _extras(raw)
    if "physical_min" in extras and len(extras["ch_names"]) == len(extras["units"]):
        return dict(zip(extras["ch_names"], map(float, extras["units"]), strict=True))
    if type(raw).__name__ == "RawBrainVision":
        return {channel["ch_name"]: float(channel["range"]) for channel in raw.info["chs"]}
    return {}


def check_ranges(file: find.RawFile, raw: Any, names: Sequence[str]) -> None:
    """Raise UnreadableRecording if a channel of EDF or BDF has an empty or infinite physical range."""
    extras = _extras(raw)
    if "physical_max" not in extras:
        return
    for name, low, high in zip(extras["ch_names"], extras["physical_min"], extras["physical_max"], strict=False):
        if name in names and not (np.isfinite([low, high]).all() and low != high):
            what = f"channel {name!r} has the physical minimum {low:g} and maximum {high:g}"
            advice = "Mend the header, or leave the channel out with data.raw.exclude."
            raise UnreadableRecording(file.path, f"{what}; expected two different finite numbers. {advice}")


def _extras(raw: Any) -> dict[str, Any]:
    """Return the header fields that MNE's reader keeps, if any."""
    extras = getattr(raw, "_raw_extras", None) or [{}]
    return extras[0] if isinstance(extras[0], dict) else {}


class RawRecordings:
    """The samples of raw recordings; iterating reads them and completes `tally` and `provenance`.

    The constructor reads all tables of events, so that faults are reported before a signal is read; it raises UserError
    for them, or without recordings. Iterating raises it if channels differ, no sample is left, or, with `spec.strict`,
    a file is unreadable.
    """

    def __init__(self, sources: Sequence[str], spec: find.RawSpec, tally: Tally):
        self._spec, self._tally = spec, tally
        self._unmatched: list[str] = []  # on recordings without a sentence
        self._marker_types: dict[str, None] = {}  # removed from texts
        self._files_of_note: dict[str, list[Path]] = {}  # note -> files
        self._file_of: dict[tuple[Any, ...], find.RawFile] = {}  # (text, onset) of sentences -> file
        self._copies: list[Sequence[find.RawFile]] = []  # pairs with the same sentences at the same times
        self._beyond = ""  # on the first sentence outside its recording
        self._files = find.find_raw(sources, spec.names, spec.task, spec.channels)
        self._texts = Texts(Path(at_hand(spec.texts)), spec.text) if spec.texts else None
        self._of_tables: dict[Path, Found] = {}
        for file in self._files:
            if table := find.events_table(file):
                columns, events = find.read_events(table)
                self._of_tables[file.path] = self._readings(file, events, columns)
        first = self._first(sources)
        self.channels, self.types, self.rate = first.channels, first.types, spec.resample or first.rate
        self.features_are, about = described(first.raw.info, self.channels, self.types, self.rate, spec)
        self._numbers = SentenceNumbers()
        self.provenance: dict[str, Any] = {"source": "raw", **dataclasses.asdict(spec), "files": [], **about}
        self.provenance["bands"] = [tuple(map(float, band)) for band in spec.bands]
        if not spec.is_waves:
            del self.provenance["features"]

    def _readings(self, file: find.RawFile, events: Sequence[find.Event], columns: Sequence[str]) -> Found:
        """Return the sentences that events define, and drops by reason; `columns` of a table, if any."""
        sentences, dropped = readings(file, events, columns, self._spec, self._texts)
        texts = dict.fromkeys(reading.text for reading in sentences)
        for event in events if self._texts is None else ():
            marker, text = find.split_type(event.columns.get(self._spec.text, ""))
            if marker and " ".join(text.split()) in texts:
                self._marker_types[repr(marker)] = None
        if not (columns or self._spec.begin or self._texts) and are_codes(texts):
            raise UserError(
                f"{file.path}: its annotations are no texts but look like codes ({', '.join([*texts][:3])}, ...); give "
                "data.raw.begin, the code that begins a sentence ('*': any), and data.raw.texts, a table of texts by "
                "`code` or `trial`."
            )
        if not sentences and not dropped:
            self._unmatched.append(no_sentence(file, events, self._spec))
        return sentences, dropped

    def _first(self, sources: Sequence[str]) -> Recording:
        errors = []
        for file in self._files:
            try:
                if file.here:
                    return open_recording(file, self._spec)
            except UnreadableRecording as error:
                errors.append(error)
        if errors:
            raise errors[0]
        tables = self._of_tables.values()
        raise UserError(
            f"{', '.join(sources)}: none of {len(self._files)} recordings of "
            f"{len({file.subject for file in self._files})} subjects is downloaded, though {len(tables)} tables of "
            f"events are ({sum(len(found) for found, _ in tables)} sentences with a text and an end, "
            f"{sum(dropped.total() for _, dropped in tables)} without); fetch the files, as with `datalad get` or "
            f"`openneuro-py`; the first is {self._files[0].path}."
        )

    def __iter__(self) -> Iterator[Sample]:
        tally = self._tally
        yield from read_recordings(self._files, self._samples, self._spec.strict, tally.notes)
        if absent := sum(not file.here for file in self._files):
            tally.notes.append(f"{absent} of {len(self._files)} recordings are not downloaded and were left out.")
        for note, paths in self._files_of_note.items():
            others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            tally.notes.append(f"{paths[0]}{others}: {note}")
        if self._copies:
            first, second = self._copies[0]
            many = count_of(len(self._copies), "recording has", "recordings have")
            tally.notes.append(
                f"{many} the same sentences at the same times as another one, such as {second.path.name} "
                f"({second.subject}) and {first.path.name} ({first.subject}); if one is a copy of the other, for "
                "example a filtered one, prepare only one of them."
            )
        if self._marker_types:
            tally.notes.append(f"BrainVision's marker type was removed from texts: {', '.join(self._marker_types)}.")
        if odd := [file.subject for file in self._files if not self._spec.names and re.search(r"[_ ]", file.subject)]:
            tally.notes.append(
                f"subjects are named after their files, such as {odd[0]!r}; if file names hold more than the "
                "subject, set data.raw.names, for example '(?P<subject>[^_]+)_(?P<task>[^_.]+)'."
            )
        if self._texts:
            self._texts.check_codes()
            tally.notes += self._texts.notes()
        dropped = [f"all were dropped ({drops}){self._why()}."] if (drops := tally.said_drops()) else []
        tally.refuse_none(*dropped, *self._unmatched)
        tally.notes += self._unmatched
        self.provenance |= {"dropped": tally.drops(), "notes": list(tally.notes)}

    def _why(self) -> str:
        """Return advice on the most frequent reason of drops."""
        drops = self._tally.drops()
        if (most := next(iter(drops))) == BEYOND and self._beyond:
            return (
                f"; {self._beyond}: expected onsets and durations in seconds (not in ms or samples), from the "
                "recording's first sample"
            )
        if most == NO_END:
            current = f" (now {self._spec.end!r})" if self._spec.end else ""
            return f"; give each sentence a duration in seconds, or set data.raw.end{current} to the code that ends one"
        if NO_TEXT not in drops:
            return ""
        if self._texts is None:
            return "; if events are codes, give a table of texts by `trial` or `code` with data.raw.texts"
        return f"; {self._texts.mismatch(self._files)}".removesuffix(".")

    def _samples(self, file: find.RawFile, title: str) -> Iterator[Sample]:
        if not file.here:
            return
        recording = open_recording(file, self._spec)
        self._check_channels(recording)
        self._spec.check_rate(recording.rate, str(file.path))
        if self._spec.is_waves and not self._spec.resample and recording.rate != self.rate:
            raise UserError(
                f"{file.path}: has {recording.rate:g} samples a second, the first recording has {self.rate:g}; waves "
                "need one rate: set data.raw.resample."
            )
        if (found := self._of_tables.get(file.path)) is None:
            events = sorted(find.annotations(recording.raw, self._spec.text), key=lambda event: event.onset)
            found = self._readings(file, events, ())
            # MNE annotates where recordings were concatenated.
            if edges := sum(code == "EDGE boundary" for event in events for code in event.codes):
                self._note(file, f"was concatenated of {edges + 1} parts, which count as one subject, {file.subject}.")
        sentences, dropped = found
        levels: list[np.ndarray] = []
        key = tuple((reading.text, round(reading.begin, 3)) for reading in sentences)
        if (first := self._file_of.setdefault(key, file)) is not file and len(key) >= 3:  # fewer may agree by chance
            self._copies.append((first, file))
        for reason, n in dropped.items():
            self._tally.dropped[file.subject, file.task, reason] += n
        self._note(file, *recording.notes)
        self._tally.notes += recording.warnings
        if not sentences:
            return
        with ProgressLine(f"{title} {file.path.name}", len(sentences)) as progress:
            for reading in sentences:
                features = self._features(recording, reading, levels)
                if isinstance(features, str):
                    self._tally.dropped[file.subject, file.task, features] += 1
                else:
                    index = self._numbers.of(file.task, reading.text)
                    about = (features, reading.text, file.subject, file.task, index)
                    yield Sample(*about, file.name, reading.begin, reading.end - reading.begin)
                progress.advance(1)
        self._note(file, *level_notes(levels, recording.channels, recording.types))
        self.provenance["files"].append({"name": file.path.name, "sha256": _digest(file.path)})

    def _note(self, file: find.RawFile, *notes: str) -> None:
        """Record notes; equal ones on several files become one."""
        for note in notes:
            self._files_of_note.setdefault(note, []).append(file.path)

    def _features(self, recording: Recording, reading: Reading, levels: list[np.ndarray]) -> np.ndarray | str:
        """Return features, float32 `[W, F]`, or the reason to drop the sentence."""
        spec, rate, seconds = self._spec, recording.rate, recording.raw.n_times / recording.rate
        if reading.begin < 0 or reading.end > seconds + 0.5 / rate:
            self._beyond = self._beyond or (
                f"the first goes from {reading.begin:g} to {reading.end:g} s in a recording of {seconds:g} s"
            )
            return BEYOND
        volts, start = recording.volts(reading.begin - spec.margin, reading.end + spec.margin)
        levels.append(volts.std(axis=1))
        order = [recording.channels.index(name) for name in self.channels]
        volts, names, _ = rereference(volts[order], self.channels, self.types, spec, str(recording.file.path))
        try:
            if spec.is_waves:
                features = waves(volts, rate, (reading.begin - start, reading.end - start), spec)
            else:
                spans = reading.words or windows(reading, spec.window, spec.step)
                features = band_power(volts, rate, [(a - start, b - start) for a, b in spans], spec)
        except Flat as flat:
            return f"{FLAT} {names[flat.args[0]]}"
        except Short:
            return SHORT
        return TOO_LARGE if spec.is_waves and np.abs(features).max() > HALF_RANGE else features.astype(np.float32)

    def _check_channels(self, recording: Recording) -> None:
        ours, theirs = (
            {name if kind == "eeg" else f"{name} ({kind})" for name, kind in zip(one.channels, one.types, strict=True)}
            for one in (self, recording)
        )
        if ours != theirs:
            others = {"lacks": ours - theirs, "also has": theirs - ours}
            what = [f"{verb} {', '.join(sorted(names)[:5])}" for verb, names in others.items() if names]
            raise UserError(
                f"{recording.file.path}: {' and '.join(what)}, compared with the {len(ours)} channels of the first "
                "recording; set data.raw.channels to those of all recordings, or leave some out with data.raw.exclude."
            )


def _digest(path: Path) -> str:
    if path.is_file():
        return file_digest(path)
    parts = (part for part in path.rglob("*") if part.is_file())
    return content_digest({str(part.relative_to(path)): file_digest(part) for part in parts})


def described(
    info: Any, channels: Sequence[str], types: Sequence[str], rate: float, spec: find.RawSpec
) -> tuple[str, dict[str, Any]]:
    """Return the meaning of the features of a recording (MNE's `info`), and its channels for the provenance.

    The provenance has types unless all are EEG, and the rate of waves.
    """
    places = electrodes(info, channels, spec.montage)
    _, names, kinds = rereference(np.zeros((len(channels), 0)), channels, types, spec, "the first recording")
    pairs = dict(bipolar_pairs(channels, types, spec))
    if places and pairs:  # in the middle of both contacts
        where = {name: np.array(place) for name, *place in places}
        places = [(name, *np.mean([where[one] for one in pairs.get(name, (name,))], axis=0).round(5)) for name in names]
    about: dict[str, Any] = {"channels": list(names)} | ({"electrodes": places} if places else {})
    about |= {"types": list(kinds)} if set(kinds) != {"eeg"} else {}
    if spec.is_waves:
        spec, about["sfreq"] = dataclasses.replace(spec, resample=rate), rate
    return spec.features_are(names, kinds), about
