"""Turn a BIDS folder of story listening into a data file of volumes, with at most a few runs in memory."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from eeg2text_jax.data.clock import STORY_TIME
from eeg2text_jax.data.fmri.image import Run, read_run
from eeg2text_jax.data.fmri.scans import FmriSpec, Scan, Selection, find_scans, not_here, select, starts_of
from eeg2text_jax.data.fmri.stories import FILE, Story, Transcript, aligned, mended, read_transcript, texts
from eeg2text_jax.data.tally import Tally
from eeg2text_jax.data.volume_file import VolumeWriter
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.stores.copying import at_hand
from eeg2text_jax.versions import __version__

READERS = min(4, os.cpu_count() or 1)  # scans read at the same time; each takes up to 0.2 GB
NO_WORDS, BEYOND = "no words", "beyond the end of the scan"


def prepare_scans(root: Path, spec: FmriSpec, out: Path, tally: Tally) -> None:
    """Write the data file and count windows in `tally`. Raises UserError if no scan (if `strict`, one) is usable."""
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
    """The state of reading all scans one after the other."""

    def __init__(self, root: Path, spec: FmriSpec, tally: Tally, selection: Selection):
        self._root, self._spec, self._tally, self._selection = root, spec, tally, selection
        self._transcripts_at = Path(at_hand(spec.transcripts)) if spec.transcripts else root / "stimuli" / "gentle"
        self._transcripts: dict[str, Transcript | UserError] = {}
        self._used: dict[str, Transcript] = {}  # after repairs
        self._problems: dict[str, list[tuple[Scan, str]]] = collections.defaultdict(list)  # by kind
        self._files: list[dict[str, Any]] = []
        self._story_time: list[tuple[int, float, float]] = []  # see `data.story_time`
        self._usual_tr: dict[str, float] = {}  # TR of the scans of a stimulus
        self._odd: dict[str, None] = {}  # messages on transcripts and shifts, without duplicates

    def usable(self) -> list[Scan]:
        """Return the scans that have an image, a story and its transcript, with stories aligned to their audio.

        Raises:
          UserError: there is no such scan, or `strict` is set and one scan is unusable.
        """
        for reason, scans in self._selection.left_out.items():
            for scan in scans:
                self._drop(scan, reason)
        found = []
        for scan in self._selection.wanted:
            problem = scan.problem or not_here(scan.image) or self._lacks_text(scan)
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
        self._miss_stories(found)
        self._usual_tr = usual_tr(found)
        placed = aligned([scan.stories for scan in found])
        return [dataclasses.replace(scan, stories=own) for scan, own in zip(found, placed, strict=True)]

    def _miss_stories(self, scans: list[Scan]) -> None:
        """Record scans with fewer stories of an audio than other scans have."""
        counts = [(scan, collections.Counter(story.stimulus for story in scan.stories)) for scan in scans]
        most: collections.Counter[Any] = collections.Counter()
        for _, own in counts:
            most |= own
        for scan, own in counts:
            for name, n in own.items():
                if n < most[name]:
                    self._odd[f"{scan.stem}: its events have {n} of the {most[name]} stories of {name}."] = None

    def _lacks_text(self, scan: Scan) -> str:
        for story in scan.stories:
            if story.stimulus not in self._transcripts:
                self._transcripts[story.stimulus] = self._read_transcript(story.stimulus)
            if isinstance(found := self._transcripts[story.stimulus], UserError):
                return str(found)
        return ""

    def _read_transcript(self, stimulus: str) -> Transcript | UserError:
        path = self._transcripts_at / stimulus / FILE
        if path.is_symlink() and not path.exists():
            return UserError(f"transcript not downloaded|{path} is a link to what is not downloaded")
        if not path.exists():
            return UserError(f"no transcript|{path} is not there")
        try:
            return read_transcript(path)
        except UserError as error:
            return error

    def runs(self, scans: Sequence[Scan]) -> Iterator[Run | UserError]:
        """Yield each scan's image or its error, in order; the next images are read in the background."""
        with concurrent.futures.ThreadPoolExecutor(READERS) as readers:
            left = iter(scans)
            waiting = collections.deque(readers.submit(self._read, scan) for scan in itertools.islice(left, READERS))
            try:
                while waiting:
                    found = waiting.popleft().result()
                    waiting.extend(readers.submit(self._read, scan) for scan in itertools.islice(left, 1))
                    yield found
            finally:  # also if the caller stops early
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
        """Append a scan's windows; a damaged image leaves the file unchanged."""
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
        segments = texts(self._transcript(scan, story), story, scan.tr)
        first, last = frames.start + spec.lag_tr, min(frames.stop + spec.lag_tr, run.length)
        begin = -1
        for block in run.frames(first, last) if last - first >= spec.window else ():
            at = writer.add_frames(block)
            begin = at if begin < 0 else begin
        story_start = frames.start * scan.tr - story.audio_start  # of the first frame, seconds of the audio
        if begin >= 0:
            self._story_time.append((begin, round(story_start, 6), scan.tr))
        key = scan.subject, story.stimulus
        slot = self._usual_tr[story.stimulus]
        for start in starts_of(frames, spec.window, spec.stride):
            place = start - frames.start
            text = " ".join(filter(None, segments[place : place + spec.window]))
            if start + spec.lag_tr + spec.window > run.length:
                tally.dropped[(*key, BEYOND)] += 1
            elif not text:
                tally.dropped[(*key, NO_WORDS)] += 1
            else:
                writer.add_window(
                    begin + place, spec.window, sentence=text, subject=scan.subject, task=story.stimulus,
                    sentence_index=round((story_start + place * scan.tr) / slot),
                    text_group=spec.group_of(story.stimulus),
                    recording=scan.stem, onset=(start + spec.lag_tr) * scan.tr, duration=spec.window * scan.tr,
                )  # fmt: skip
                tally.kept[key] += 1
        if run.length < frames.stop + spec.lag_tr:
            self._odd[f"{scan.image.name} has {run.length} frames and its events go to frame "
                      f"{frames.stop + spec.lag_tr}: windows beyond the end are dropped."] = None  # fmt: skip

    def _transcript(self, scan: Scan, story: Story) -> Transcript:
        """Return the transcript of a story, repaired at first use."""
        name = story.stimulus
        if story.moved:
            self._odd[
                f"{scan.stem}: its story lies {story.moved:+g} s from its place in the audio of the other scans; the "
                "onset in its table of events is used."
            ] = None
        if name not in self._used:
            transcript = cast(Transcript, self._transcripts[name])
            self._used[name], odd = mended(transcript, name, story.onset - story.audio_start, scan.tr)
            if odd:
                self._odd[odd] = None
            known = self._used[name].starts[np.isfinite(self._used[name].starts)]
            if n := int((np.diff(known) < 0).sum()):
                self._odd[f"the transcript of {name} has {n} words that begin before the one before them."] = None
        return self._used[name]

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
            lost = len(starts_of(story.frames(scan.tr), spec.window, spec.stride))
            self._tally.dropped[scan.subject, story.stimulus, reason] += lost
        if not scan.stories:
            self._tally.dropped[scan.subject, scan.task, reason] += 1

    def note(self) -> None:
        """Add one message per kind of problem and per oddity to the tally."""
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
            named = {story.stimulus for scan in self._selection.wanted for story in scan.stories}
            unused = sorted(path.parent.name for path in self._transcripts_at.glob(f"*/{FILE}"))
            unused = [name for name in unused if name not in named]
            if unused:
                self._tally.notes.append(
                    f"{len(unused)} transcripts are of audio that no selected scan played: {', '.join(unused)}."
                )
        self._tally.notes += self._odd

    def provenance(self) -> dict[str, Any]:
        """Return the sources and settings for the file's provenance."""
        paths = {name: self._transcripts_at / name / FILE for name in sorted(self._transcripts)}
        return {
            "source": self._root.name,
            "fmri": {name: value for name, value in dataclasses.asdict(self._spec).items() if name != "transcripts"},
            "scans": self._files,
            STORY_TIME: self._story_time,
            "transcripts": {name: file_digest(path) for name, path in paths.items() if path.exists()},
        }


def usual_tr(scans: Sequence[Scan]) -> dict[str, float]:
    """Return the repetition time of most scans of each stimulus; in a tie, the shortest."""
    found: dict[str, collections.Counter[float]] = {}
    for scan in scans:
        for name in {story.stimulus for story in scan.stories}:
            found.setdefault(name, collections.Counter())[scan.tr] += 1
    return {name: max(counts, key=lambda tr: (counts[tr], -tr)) for name, counts in found.items()}
