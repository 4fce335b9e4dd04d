"""Write the data file of a BIDS folder of story listening, with at most a few runs in memory."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import operator
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from eeg2text_jax.data.clock import STORY_TIME
from eeg2text_jax.data.data_writer import VolumeWriter
from eeg2text_jax.data.fmri.image import Run, read_run
from eeg2text_jax.data.fmri.scans import FmriSpec, Scan, Selection, find_scans, not_here, select, window_starts
from eeg2text_jax.data.fmri.stories import (
    FILE,
    Story,
    Transcript,
    align_stories,
    correct_onsets,
    frame_texts,
    read_transcript,
)
from eeg2text_jax.data.tally import Tally
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.stores.copying import at_hand
from eeg2text_jax.versions import __version__

READERS = min(4, os.cpu_count() or 1)  # scans read at the same time; each takes up to 0.2 GB
NO_WORDS, BEYOND = "no words", "beyond the end of the scan"


def prepare_scans(root: Path, spec: FmriSpec, out: Path, tally: Tally) -> None:
    """Write the data file of the scans below `root`, and count its windows in `tally`.

    Raises UserError if no scan is usable, or, with `spec.strict`, if any scan is unusable.
    """
    selection = select(root, find_scans(root), spec)
    work = _Work(root, spec, tally, selection)
    usable = work.usable()
    with (
        VolumeWriter(out, spec.grid, spec.dtype, spec.features_are()) as writer,
        ProgressLine("read scans", len(usable)) as progress,
    ):
        for scan, run in zip(usable, work.runs(usable), strict=True):
            work.add(scan, run, writer)
            progress.advance(1, scan.stem)
        work.note()
        if not tally.kept:
            raise UserError(f"{root}: no window is left; {' '.join(tally.notes)}")
        writer.provenance = {**work.provenance(), "reader": f"eeg2text_jax {__version__}",
                             "samples": sum(tally.kept.values())}  # fmt: skip


class _Work:
    """State of writing the data file: transcripts, unusable scans and notes so far."""

    def __init__(self, root: Path, spec: FmriSpec, tally: Tally, selection: Selection):
        self._root, self._spec, self._tally, self._selection = root, spec, tally, selection
        self._transcripts_at = Path(at_hand(spec.transcripts)) if spec.transcripts else root / "stimuli" / "gentle"
        self._transcripts: dict[str, Transcript | UserError] = {}
        self._corrected: dict[str, Transcript] = {}  # stimulus -> transcript with corrected onsets
        self._problems: dict[str, list[tuple[Scan, str]]] = collections.defaultdict(list)  # kind -> (scan, message)
        self._files: list[dict[str, Any]] = []
        self._story_time: list[tuple[int, float, float]] = []  # (frame, its time in the audio, TR), see `clock.py`
        self._usual_tr: dict[str, float] = {}  # stimulus -> TR in seconds, see `usual_tr`
        self._oddities: list[str] = []  # notes

    def usable(self) -> list[Scan]:
        """Return the selected scans that have an image, a story and its transcript; count all others as dropped.

        Raises UserError if there is no such scan, or with `strict` if one selected scan is unusable.
        """
        for reason, scans in self._selection.left_out.items():
            for scan in scans:
                self._drop(scan, reason)
        found = []
        for scan in self._selection.wanted:
            problem = scan.problem or not_here(scan.image) or self._transcript_problem(scan)
            if problem:
                self._refuse(scan, problem)
            else:
                found.append(scan)
        if not found:
            self.note()
            raise UserError(
                f"{self._root}: none of the {len(self._selection.wanted)} selected scans can be used, for these "
                f"reasons: {' '.join(self._tally.notes)}"
            )
        self._note_missing_stories(found)
        self._usual_tr = usual_tr(found)
        placed = align_stories([scan.stories for scan in found])
        return [dataclasses.replace(scan, stories=own) for scan, own in zip(found, placed, strict=True)]

    def _note_missing_stories(self, scans: list[Scan]) -> None:
        """Add a note on each scan whose table of events has fewer stories of an audio file than another table."""
        counts = [(scan, collections.Counter(story.stimulus for story in scan.stories)) for scan in scans]
        most = functools.reduce(operator.or_, (own for _, own in counts))  # audio file -> largest number in one scan
        for scan, own in counts:
            for name, n in own.items():
                if n < most[name]:
                    self._oddities.append(f"{scan.stem}: its events have {n} of the {most[name]} stories of {name}.")

    def _transcript_problem(self, scan: Scan) -> str:
        """Read the transcripts of a scan's stories; return the problem (`KIND|SENTENCE`) of a faulty one, or ""."""
        for name in [story.stimulus for story in scan.stories]:
            if name not in self._transcripts:
                try:
                    self._transcripts[name] = read_transcript(self._transcripts_at / name / FILE)
                except UserError as error:
                    self._transcripts[name] = error
            if isinstance(found := self._transcripts[name], UserError):
                return str(found)
        return ""

    def runs(self, scans: Sequence[Scan]) -> Iterator[Run | UserError]:
        """Yield the image of each scan or its error, in order; background threads read the next images."""
        with concurrent.futures.ThreadPoolExecutor(READERS) as readers:
            left = iter(scans)
            waiting = collections.deque(readers.submit(self._read, scan) for scan in itertools.islice(left, READERS))
            try:
                while waiting:
                    found = waiting.popleft().result()
                    waiting.extend(readers.submit(self._read, scan) for scan in itertools.islice(left, 1))
                    yield found
            finally:  # also if the caller stops before the last scan
                for unread in waiting:
                    if isinstance(run := unread.result(), Run):
                        run.close()

    def _read(self, scan: Scan) -> Run | UserError:
        try:
            return read_run(scan.image, self._spec, scan.tr)
        except UserError as error:
            if "|" not in str(error):
                raise
            return error

    def add(self, scan: Scan, run: Run | UserError, writer: VolumeWriter) -> None:
        """Write the windows of a scan; leave it out if its image is damaged."""
        if isinstance(run, UserError):
            self._refuse(scan, str(run))
            return
        with contextlib.closing(run):
            for story in scan.stories:
                self._add_story(scan, story, run, writer)
            self._files.append({"name": scan.image.name, "bytes": scan.image.stat().st_size, "tr": scan.tr,
                                "frames": run.length})  # fmt: skip

    def _add_story(self, scan: Scan, story: Story, run: Run, writer: VolumeWriter) -> None:
        spec, tally, frames = self._spec, self._tally, story.frames(scan.tr)
        segments = frame_texts(self._transcript(scan, story), story, scan.tr)
        first, last = frames.start + spec.lag_tr, min(frames.stop + spec.lag_tr, run.length)
        blocks = run.frames(first, last) if last - first >= spec.window else ()
        block_starts = [writer.add_frames(block) for block in blocks]
        story_start = frames.start * scan.tr - story.audio_start  # time in the audio at which the first frame begins
        if block_starts:
            self._story_time.append((block_starts[0], round(story_start, 6), scan.tr))
        key = scan.subject, story.stimulus
        slot = self._usual_tr[story.stimulus]
        for start in window_starts(frames, spec.window, spec.stride):
            place = start - frames.start
            text = " ".join(filter(None, segments[place : place + spec.window]))
            if start + spec.lag_tr + spec.window > run.length:
                tally.dropped[(*key, BEYOND)] += 1
            elif not text:
                tally.dropped[(*key, NO_WORDS)] += 1
            else:
                writer.add_window(
                    block_starts[0] + place, spec.window, sentence=text, subject=scan.subject, task=story.stimulus,
                    sentence_index=round((story_start + place * scan.tr) / slot),
                    text_group=spec.group_of(story.stimulus),
                    recording=scan.stem, onset=(start + spec.lag_tr) * scan.tr, duration=spec.window * scan.tr,
                )  # fmt: skip
                tally.kept[key] += 1
        if run.length < frames.stop + spec.lag_tr:
            self._oddities.append(
                f"{scan.image.name} has {run.length} frames and its events go to frame {frames.stop + spec.lag_tr}: "
                "windows beyond the end are dropped."
            )

    def _transcript(self, scan: Scan, story: Story) -> Transcript:
        """Return the transcript of a story, corrected and checked at first use."""
        name = story.stimulus
        if story.moved:
            self._oddities.append(
                f"{scan.stem}: in its table of events the story's place in the audio differs by {story.moved:+g} s "
                "from most other tables; the onset of the story in its table is used."
            )
        if name not in self._corrected:
            transcript = cast(Transcript, self._transcripts[name])
            transcript, note = correct_onsets(transcript, name, story.onset - story.audio_start, scan.tr)
            self._oddities += [note] if note else []
            self._corrected[name] = transcript
            known = transcript.starts[np.isfinite(transcript.starts)]
            if n := int((np.diff(known) < 0).sum()):
                self._oddities.append(f"the transcript of {name} has {n} words that begin before the preceding word.")
        return self._corrected[name]

    def _refuse(self, scan: Scan, problem: str) -> None:
        kind, _, sentence = problem.partition("|")
        if self._spec.strict:
            raise UserError(
                f"{scan.image}: {sentence}; repair the scan, or set data.fmri.strict=False to leave such scans out."
            )
        self._problems[kind].append((scan, sentence))
        self._drop(scan, kind)

    def _drop(self, scan: Scan, reason: str) -> None:
        spec = self._spec
        for story in scan.stories:
            lost = len(window_starts(story.frames(scan.tr), spec.window, spec.stride))
            self._tally.dropped[scan.subject, story.stimulus, reason] += lost
        if not scan.stories:
            self._tally.dropped[scan.subject, scan.task, reason] += 1

    def note(self) -> None:
        """Add to the tally one note for each kind of problem, and every oddity as a note."""
        advice = {
            "not downloaded": f"; `datalad get` in {self._root} fetches images: sub-*/func/*_bold.nii.gz",
            "transcript not downloaded": "; `datalad get stimuli/gentle` fetches them",
            "no transcript": (
                "; the OpenNeuro edition has no transcripts, they come with the DataLad one (stimuli/gentle): name "
                "their folder in data.fmri.transcripts"
            ),
        }
        for kind, cases in self._problems.items():
            (first, sentence), n = cases[0], len(cases)
            scans = f"{n} scans are" if n > 1 else "1 scan is"
            self._tally.notes.append(
                f"{scans} left out ({kind}), {'the first of them' if n > 1 else 'namely'} {first.stem}: {sentence}"
                f"{advice.get(kind, '')}."
            )
        if self._transcripts_at.is_dir():
            played = {story.stimulus for scan in self._selection.wanted for story in scan.stories}
            if unused := sorted({path.parent.name for path in self._transcripts_at.glob(f"*/{FILE}")} - played):
                self._tally.notes.append(
                    f"{len(unused)} transcripts are of audio that no selected scan played: {', '.join(unused)}."
                )
        self._tally.notes += dict.fromkeys(self._oddities)

    def provenance(self) -> dict[str, Any]:
        """Return the provenance of the data file: sources and settings."""
        paths = {name: self._transcripts_at / name / FILE for name in sorted(self._transcripts)}
        return {
            "source": self._root.name,
            "fmri": {name: value for name, value in dataclasses.asdict(self._spec).items() if name != "transcripts"},
            "scans": self._files,
            STORY_TIME: self._story_time,
            "transcripts": {name: file_digest(path) for name, path in paths.items() if path.exists()},
        }


def usual_tr(scans: Sequence[Scan]) -> dict[str, float]:
    """Return stimulus -> repetition time (TR, seconds) that most of its scans have; in a tie, the shortest."""
    found: dict[str, list[float]] = collections.defaultdict(list)
    for scan in scans:
        for name in {story.stimulus for story in scan.stories}:
            found[name].append(scan.tr)
    return {name: min(statistics.multimode(trs)) for name, trs in found.items()}
