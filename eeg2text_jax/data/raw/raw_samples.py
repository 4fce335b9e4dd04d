"""Turn raw recordings into samples with one sentence in memory at a time."""

import collections
import dataclasses
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.data.datafile import Sample
from eeg2text_jax.data.raw.choices import RawSpec
from eeg2text_jax.data.raw.electrodes import Place, electrodes
from eeg2text_jax.data.raw.events import Event, annotations, events_table, read_events, split_type
from eeg2text_jax.data.raw.find import RawFile, find_raw
from eeg2text_jax.data.raw.power import Flat, Levels, band_power
from eeg2text_jax.data.raw.recording import Recording, open_recording
from eeg2text_jax.data.raw.sentences import (
    NO_END,
    NO_TEXT,
    Reading,
    SameTimes,
    no_sentence,
    readings,
    refuse_codes,
    windows,
)
from eeg2text_jax.data.raw.texts import Texts
from eeg2text_jax.data.recordings.features import UnreadableRecording
from eeg2text_jax.data.rows import SentenceNumbers
from eeg2text_jax.data.source import Source
from eeg2text_jax.data.tally import Tally
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.stores.copying import at_hand

BEYOND = "beyond the recording"
FLAT = "flat channel"
EDGE = "EDGE boundary"  # MNE's annotation of concatenated recordings
Found = tuple[list[Reading], collections.Counter[str]]  # sentences, and drops by reason


def open_raw(sources: Sequence[str], spec: RawSpec, tally: Tally) -> Source:
    """Open recordings as a source. Raises UserError if there is none, or tables do not define sentences."""
    recordings = RawRecordings(sources, spec, tally)
    return Source(recordings, recordings.provenance, spec.features_are(recordings.channels))


class RawRecordings:
    """The samples of raw recordings, read lazily; `tally` and `provenance` are filled during iteration.

    Tables of events are read first, so that their faults are reported before any signal is read.

    Raises:
      UserError: from the constructor for wrong sources; during iteration if channels differ between recordings, or if
        strict and a file is unreadable.
    """

    def __init__(self, sources: Sequence[str], spec: RawSpec, tally: Tally):
        self._spec, self._tally = spec, tally
        self._unmatched: list[str] = []  # messages on recordings without a sentence
        self._marker_types: dict[str, None] = {}  # removed from texts
        self._of_channels: dict[str, list[Path]] = {}  # note -> its files
        self._same_times, self._beyond = SameTimes(), ""
        self._files = find_raw(sources, spec.names, spec.task)
        self._texts = Texts(Path(at_hand(spec.texts)), spec.text) if spec.texts else None
        self._read = {file.path: self._from_table(file) for file in self._files}
        _refuse_absent(sources, self._files, [found for found in self._read.values() if found])
        self.channels, self._places = self._first_channels()
        self._numbers = SentenceNumbers()
        self.provenance: dict[str, Any] = {"source": "raw", **dataclasses.asdict(spec), "files": []}

    def _from_table(self, file: RawFile) -> Found | None:
        if (table := events_table(file)) is None:
            return None
        columns, events = read_events(table)
        return self._readings(file, events, columns)

    def _readings(self, file: RawFile, events: Sequence[Event], columns: Sequence[str]) -> Found:
        found, dropped = readings(file, events, columns, self._spec, self._texts)
        if self._texts is None:
            self._note_marker_types(events, {reading.text for reading in found})
        if not (columns or self._spec.begin or self._texts):
            refuse_codes(file, [reading.text for reading in found])
        if not found and not dropped:
            self._unmatched.append(no_sentence(file, events, self._spec))
        return found, dropped

    def _note_marker_types(self, events: Sequence[Event], texts: set[str]) -> None:
        for event in events:
            marker, text = split_type(event.columns.get(self._spec.text, ""))
            if marker and " ".join(text.split()) in texts:
                self._marker_types[repr(marker)] = None

    def _first_channels(self) -> tuple[tuple[str, ...], list[Place]]:
        """Return the channels of the first readable recording, which all must have, and its electrodes' positions."""
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
        absent = sum(not file.here for file in self._files)
        if absent:
            self._tally.notes.append(f"{absent} of {len(self._files)} recordings are not downloaded and were left out.")
        for note, paths in self._of_channels.items():
            others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            self._tally.notes.append(f"{paths[0]}{others}: {note}")
        self._tally.notes += self._same_times.notes()
        if self._marker_types:
            self._tally.notes.append(
                f"BrainVision's marker type was removed from texts: {', '.join(self._marker_types)}."
            )
        named = [file.subject for file in self._files if not self._spec.names and re.search(r"[_ ]", file.subject)]
        if named:
            self._tally.notes.append(
                f"subjects are called as their files, such as {named[0]!r}; where names hold more than the subject, "
                "set data.raw.names, as '(?P<subject>[^_]+)_(?P<task>[^_.]+)'."
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
        self.provenance["channels"] = list(self.channels)
        self.provenance |= {"electrodes": self._places} if self._places else {}
        self.provenance["dropped"] = self._tally.drops()
        self.provenance["notes"] = list(self._tally.notes)

    def _why(self) -> str:
        """Return the end of a sentence on why all were dropped, for the most frequent reason."""
        most = next(iter(self._tally.drops()))
        if most == BEYOND and self._beyond:
            return (
                f"; {self._beyond}: expected onsets and durations in seconds (not in ms or samples), from the "
                "recording's first sample"
            )
        if most == NO_END:
            given = f", which is {self._spec.end!r}" if self._spec.end else ""
            return f"; give each a duration in seconds, or name the code that ends a sentence with data.raw.end{given}"
        if NO_TEXT not in self._tally.drops():
            return ""
        if self._texts is None:
            return "; where events are codes, data.raw.texts names a table of texts by `trial` or `code`"
        return f"; {self._texts.mismatch(self._files)}".removesuffix(".")

    def _samples(self, file: RawFile, title: str) -> Iterator[Sample]:
        recording = open_recording(file, self._spec)
        self._check_channels(recording)
        self._spec.check_rate(recording.rate, str(file.path))
        found = self._read[file.path]
        if found is None:
            events = sorted(annotations(recording.raw, self._spec.text), key=lambda event: event.onset)
            found = self._readings(file, events, ())
            if edges := sum(code == EDGE for event in events for code in event.codes):
                self._note(file, f"was concatenated of {edges + 1} parts, which count as one subject, {file.subject}.")
        sentences, dropped = found
        levels = Levels(recording.channels)
        self._same_times.add(file, sentences)
        for reason, n in dropped.items():
            self._tally.dropped[file.subject, file.task, reason] += n
        self._note(file, *recording.notes)
        if recording.warning:
            self._tally.notes.append(recording.warning)
        if recording.bad:
            self._tally.notes.append(f"{file.path}: calls channels bad that are kept: {', '.join(recording.bad)}.")
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
        for note in notes:
            self._of_channels.setdefault(note, []).append(file.path)

    def _features(self, recording: Recording, reading: Reading, levels: Levels) -> np.ndarray | None:
        """Return features float32 `[W, F]`; None for a dropped sentence, which is counted."""
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
        volts = referenced(volts[order], self.channels, spec, str(file.path))
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
            what += [f"has {', '.join(sorted(theirs - ours)[:5])} more"] if theirs - ours else []
            raise UserError(
                f"{recording.file.path}: {' and '.join(what)}, compared with the {len(ours)} channels of the first "
                "recording; name the channels that all recordings have with data.raw.channels, or leave some out with "
                "data.raw.exclude."
            )


def referenced(volts: np.ndarray, channels: Sequence[str], spec: RawSpec, where: str) -> np.ndarray:
    """Re-reference voltages to the average of all or of the named channels; `""` leaves them unchanged."""
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
    """Raise UserError if no recording is downloaded; the message says what the tables of events hold."""
    if any(file.here for file in files):
        return
    sentences, dropped = sum(len(found) for found, _ in read), sum(sum(drops.values()) for _, drops in read)
    raise UserError(
        f"{', '.join(sources)}: none of {len(files)} recordings of {len({file.subject for file in files})} subjects is "
        f"downloaded, though {len(read)} tables of events are ({sentences} sentences with a text and an end, {dropped} "
        f"without); fetch the files, as with `datalad get` or `openneuro-py`; the first is {files[0].path}."
    )
