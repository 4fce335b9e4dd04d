"""Convert raw recordings to samples, with the voltages of one sentence in memory at a time."""

import collections
import dataclasses
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.data.raw.electrodes import Place, electrodes
from eeg2text_jax.data.raw.events import Event, annotations, events_table, read_events, split_type
from eeg2text_jax.data.raw.find import RawFile, RawSpec, find_raw
from eeg2text_jax.data.raw.power import Flat, Levels, band_power
from eeg2text_jax.data.raw.recording import Recording, open_recording
from eeg2text_jax.data.raw.sentences import NO_END, NO_TEXT, Reading, no_sentence, readings, refuse_codes, windows
from eeg2text_jax.data.raw.texts import Texts
from eeg2text_jax.data.recordings.features import UnreadableRecording
from eeg2text_jax.data.rows import SentenceNumbers
from eeg2text_jax.data.source import Sample, Source
from eeg2text_jax.data.tally import Tally
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.stores.copying import at_hand

BEYOND = "beyond the recording"
FLAT = "flat channel"
Found = tuple[list[Reading], collections.Counter[str]]  # sentences, and reason -> number of dropped ones


def open_raw(sources: Sequence[str], spec: RawSpec, tally: Tally) -> Source:
    """Open recordings as a source. Raises UserError if there is none, or their tables of events are faulty."""
    recordings = RawRecordings(sources, spec, tally)
    return Source(recordings, recordings.provenance, spec.features_are(recordings.channels))


class RawRecordings:
    """The samples of raw recordings; iterating reads them and completes `tally` and `provenance`.

    The constructor reads all tables of events, so that their faults are reported before any signal is read. Iterating
    raises UserError if channels differ between recordings, or if `spec.strict` and a file is unreadable.
    """

    def __init__(self, sources: Sequence[str], spec: RawSpec, tally: Tally):
        self._spec, self._tally = spec, tally
        self._unmatched: list[str] = []  # messages on recordings without a sentence
        self._marker_types: dict[str, None] = {}  # marker types that were removed from texts
        self._files_of_note: dict[str, list[Path]] = {}  # note -> files that it is about
        self._file_of: dict[tuple[tuple[str, float], ...], RawFile] = {}  # (text, onset) of its sentences -> file
        self._copies: list[tuple[RawFile, RawFile]] = []  # two files with the same sentences at the same times
        self._beyond = ""  # message on the first sentence that lies outside its recording
        self._files = find_raw(sources, spec.names, spec.task)
        self._texts = Texts(Path(at_hand(spec.texts)), spec.text) if spec.texts else None
        self._of_tables: dict[Path, Found] = {}
        for file in self._files:
            if table := events_table(file):
                columns, events = read_events(table)
                self._of_tables[file.path] = self._readings(file, events, columns)
        _refuse_absent(sources, self._files, list(self._of_tables.values()))
        self.channels, self._places = self._first_channels()
        self._numbers = SentenceNumbers()
        self.provenance: dict[str, Any] = {"source": "raw", **dataclasses.asdict(spec), "files": []}

    def _readings(self, file: RawFile, events: Sequence[Event], columns: Sequence[str]) -> Found:
        """Return the sentences that events define, and drops by reason; `columns`: of the events' table, if any."""
        found, dropped = readings(file, events, columns, self._spec, self._texts)
        if self._texts is None:
            texts = {reading.text for reading in found}
            for event in events:
                marker, text = split_type(event.columns.get(self._spec.text, ""))
                if marker and " ".join(text.split()) in texts:
                    self._marker_types[repr(marker)] = None
        if not (columns or self._spec.begin or self._texts):
            refuse_codes(file, [reading.text for reading in found])
        if not found and not dropped:
            self._unmatched.append(no_sentence(file, events, self._spec))
        return found, dropped

    def _first_channels(self) -> tuple[tuple[str, ...], list[Place]]:
        """Return the channels of the first readable recording, which all others must have, and their positions."""
        errors = []
        for file in self._files:
            if file.here:
                try:
                    recording = open_recording(file, self._spec)
                    return recording.channels, electrodes(recording.raw.info, recording.channels, self._spec.montage)
                except UnreadableRecording as error:
                    errors.append(error)
        raise errors[0]

    def __iter__(self) -> Iterator[Sample]:
        problems = []
        for number, file in enumerate(self._files, 1):
            if not file.here:
                continue
            try:
                yield from self._samples(file, f"[{number}/{len(self._files)}] {file.path.name}")
            except UnreadableRecording as error:
                if self._spec.strict:
                    raise
                problems.append(str(error))
                self._tally.notes.append(f"LEFT OUT: {error}")
                print(f"[{number}/{len(self._files)}] {file.path}: LEFT OUT, see below", file=sys.stderr)
        if absent := sum(not file.here for file in self._files):
            self._tally.notes.append(f"{absent} of {len(self._files)} recordings are not downloaded and were left out.")
        for note, paths in self._files_of_note.items():
            others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            self._tally.notes.append(f"{paths[0]}{others}: {note}")
        if self._copies:
            first, second = self._copies[0]
            self._tally.notes.append(
                f"{len(self._copies)} recordings have the same sentences at the same times as another one, such as "
                f"{second.path.name} ({second.subject}) and {first.path.name} ({first.subject}); if one is a copy "
                "of the other, for example a filtered one, prepare only one of them."
            )
        if self._marker_types:
            self._tally.notes.append(
                f"BrainVision's marker type was removed from texts: {', '.join(self._marker_types)}."
            )
        odd = [file.subject for file in self._files if not self._spec.names and re.search(r"[_ ]", file.subject)]
        if odd:
            self._tally.notes.append(
                f"subjects are named after their files, such as {odd[0]!r}; if file names hold more than the "
                "subject, set data.raw.names, for example '(?P<subject>[^_]+)_(?P<task>[^_.]+)'."
            )
        if self._texts:
            self._texts.check_codes()
            self._tally.notes += self._texts.notes()
        if not self._tally.kept:
            drops = ", ".join(f"{reason} {n}" for reason, n in self._tally.drops().items())
            dropped = [f"all were dropped ({drops}){self._why()}."] if drops else []
            reasons = [*problems, *dropped, *self._unmatched]
            raise UserError(f"no sample to write: {reasons[0]}")
        self._tally.notes += self._unmatched
        self.provenance |= {"electrodes": self._places} if self._places else {}
        self.provenance |= {"channels": list(self.channels), "dropped": self._tally.drops()}
        self.provenance["notes"] = list(self._tally.notes)

    def _why(self) -> str:
        """Return advice for the most frequent reason of drops, to append to the message that all were dropped."""
        most = next(iter(self._tally.drops()))
        if most == BEYOND and self._beyond:
            return (
                f"; {self._beyond}: expected onsets and durations in seconds (not in ms or samples), from the "
                "recording's first sample"
            )
        if most == NO_END:
            given = f" (now {self._spec.end!r})" if self._spec.end else ""
            return f"; give each sentence a duration in seconds, or set data.raw.end{given} to the code that ends one"
        if NO_TEXT not in self._tally.drops():
            return ""
        if self._texts is None:
            return "; if events are codes, give a table of texts by `trial` or `code` with data.raw.texts"
        return f"; {self._texts.mismatch(self._files)}".removesuffix(".")

    def _samples(self, file: RawFile, title: str) -> Iterator[Sample]:
        recording = open_recording(file, self._spec)
        self._check_channels(recording)
        self._spec.check_rate(recording.rate, str(file.path))
        found = self._of_tables.get(file.path)
        if found is None:
            events = sorted(annotations(recording.raw, self._spec.text), key=lambda event: event.onset)
            found = self._readings(file, events, ())
            # MNE annotates the places where recordings were concatenated
            if edges := sum(code == "EDGE boundary" for event in events for code in event.codes):
                self._note(file, f"was concatenated of {edges + 1} parts, which count as one subject, {file.subject}.")
        sentences, dropped = found
        levels = Levels(recording.channels)
        key = tuple((reading.text, round(reading.begin, 3)) for reading in sentences)
        if (first := self._file_of.setdefault(key, file)) is not file and len(key) >= 3:  # fewer may agree by chance
            self._copies.append((first, file))
        for reason, n in dropped.items():
            self._tally.dropped[file.subject, file.task, reason] += n
        self._note(file, *recording.notes)
        self._tally.notes += recording.warnings
        if not sentences:
            return
        with ProgressLine(title, len(sentences)) as progress:
            for reading in sentences:
                features = self._features(recording, reading, levels)
                if features is not None:
                    index = self._numbers.of(file.task, reading.text)
                    about = (features, reading.text, file.subject, file.task, index)
                    yield Sample(*about, file.name, reading.begin, reading.end - reading.begin)
                progress.advance(1)
        self._note(file, *levels.notes())
        self.provenance["files"].append({"name": file.path.name, "sha256": file_digest(file.path)})

    def _note(self, file: RawFile, *notes: str) -> None:
        """Record notes on a file; equal notes on several files become one."""
        for note in notes:
            self._files_of_note.setdefault(note, []).append(file.path)

    def _features(self, recording: Recording, reading: Reading, levels: Levels) -> np.ndarray | None:
        """Return the features of a sentence, float32 `[W, F]`; count it as dropped and return None if it has none."""
        file, spec = recording.file, self._spec
        if reading.begin < 0 or reading.end > recording.seconds + 0.5 / recording.rate:
            self._tally.dropped[file.subject, file.task, BEYOND] += 1
            self._beyond = self._beyond or (
                f"the first goes from {reading.begin:g} to {reading.end:g} s in a recording of {recording.seconds:g} s"
            )
            return None
        volts, start = recording.volts(reading.begin - spec.margin, reading.end + spec.margin)
        levels.add(volts)
        order = [recording.channels.index(name) for name in self.channels]
        volts = rereference(volts[order], self.channels, spec, str(file.path))
        spans = reading.words or windows(reading, spec.window, spec.step)
        try:
            power = band_power(volts, recording.rate, [(a - start, b - start) for a, b in spans], spec)
        except Flat as flat:
            self._tally.dropped[file.subject, file.task, f"{FLAT} {self.channels[flat.args[0]]}"] += 1
            return None
        return power.astype(np.float32)

    def _check_channels(self, recording: Recording) -> None:
        ours, theirs = set(self.channels), set(recording.channels)
        if ours != theirs:
            what = [f"lacks {', '.join(sorted(ours - theirs)[:5])}"] if ours - theirs else []
            what += [f"also has {', '.join(sorted(theirs - ours)[:5])}"] if theirs - ours else []
            raise UserError(
                f"{recording.file.path}: {' and '.join(what)}, compared with the {len(ours)} channels of the first "
                "recording; set data.raw.channels to the channels that all recordings have, or leave some out with "
                "data.raw.exclude."
            )


def rereference(volts: np.ndarray, channels: Sequence[str], spec: RawSpec, where: str) -> np.ndarray:
    """Subtract the reference of `spec` from voltages `[channels, samples]`: the mean of all or of named channels."""
    if not spec.reference:
        return volts
    if spec.reference == "average":
        return volts - volts.mean(axis=0)
    names = [name.strip() for name in spec.reference.split(",")]
    missing = [name for name in names if name not in channels]
    if missing:
        raise UserError(
            f"{where}: has no channel {missing[0]!r}, which data.raw.reference names; set data.raw.reference to "
            "channels of the recording, 'average' or ''."
        )
    return volts - volts[[channels.index(name) for name in names]].mean(axis=0)


def _refuse_absent(sources: Sequence[str], files: list[RawFile], read: list[Found]) -> None:
    """Raise UserError if no recording is downloaded; the message counts the sentences in their tables of events."""
    if any(file.here for file in files):
        return
    sentences, dropped = sum(len(found) for found, _ in read), sum(sum(drops.values()) for _, drops in read)
    raise UserError(
        f"{', '.join(sources)}: none of {len(files)} recordings of {len({file.subject for file in files})} subjects is "
        f"downloaded, though {len(read)} tables of events are ({sentences} sentences with a text and an end, {dropped} "
        f"without); fetch the files, as with `datalad get` or `openneuro-py`; the first is {files[0].path}."
    )
