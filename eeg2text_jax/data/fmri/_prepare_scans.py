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
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from eeg2text_jax.base.errors import UserError, count_of, first_line
from eeg2text_jax.base.files import file_digest
from eeg2text_jax.base.packages import __version__, library
from eeg2text_jax.base.progress import ProgressLine
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.data.clock import STORY_TIME
from eeg2text_jax.data.data_writer import VolumeWriter
from eeg2text_jax.data.datafile import to_half
from eeg2text_jax.data.fmri import _scans
from eeg2text_jax.data.source import Tally

BLOCK = 8  # frames: 3.5 MB of float32 on the usual grid, which fit the processor's cache
ROUNDING = 1e-6  # of a voxel's mean; smaller deviations are float32 rounding
TOLERANCE = 0.05  # seconds by which the TR of header and sidecar may differ
READERS = min(4, os.cpu_count() or 1)  # scans read at once; each takes up to 0.2 GB


class Run:
    """The NIfTI image of a run, `tr` seconds a frame, read in two passes. Close it after use.

    The first pass fits trend and deviation of each voxel, and copies the frames to a temporary file for `frames`, as a
    compressed image can only be read in order, and a run may be large (2,200 volumes: 0.5 GB).

    Raises UserError `KIND|SENTENCE` if the image is damaged or not NIfTI, has another grid or TR, or no voxel varies.
    """

    def __init__(self, path: Path, spec: _scans.FmriSpec, tr: float):
        self._spec, self._voxels = spec, int(np.prod(spec.grid))
        offset = self._read_header(path, tr)
        self._frame_bytes = self._voxels * self._dtype.itemsize
        # New memory for each block would cost 20 % of the time.
        self._room = np.empty((BLOCK, self._voxels), np.float32)
        self._copy = tempfile.SpooledTemporaryFile(max_size=1 << 27)  # noqa: SIM115 - in memory up to 128 MiB
        try:
            with library("nibabel", "fmri").openers.ImageOpener(str(path)) as file:
                file.read(offset)
                self._fit(file)
        except Exception as error:  # zlib, gzip and nibabel raise errors of their own
            self.close()
            if isinstance(error, UserError):
                raise
            raise UserError(f"damaged image|cannot be read to its end ({first_line(error)})") from error

    def _read_header(self, path: Path, tr: float) -> int:
        """Set length, dtype and scaling; return the offset of the first voxel."""
        nibabel = library("nibabel", "fmri")
        try:
            image = nibabel.load(path)
            proxy, shape = image.dataobj, tuple(map(int, image.shape))
            self._dtype, self._slope, self._inter = np.dtype(proxy.dtype), float(proxy.slope), float(proxy.inter)
            zooms, unit = image.header.get_zooms(), image.header.get_xyzt_units()[1]
        except Exception as error:
            raise UserError(f"damaged image|is no NIfTI image ({first_line(error)})") from error
        if len(shape) != 4 or shape[:3] != self._spec.grid:
            raise UserError(
                f"another grid|has {' x '.join(map(str, shape))} voxels, but its sidecar's slices and data.fmri.grid "
                f"say {' x '.join(map(str, self._spec.grid))} voxels in each frame"
            )
        if self._dtype.kind not in "iuf" or not np.isfinite([self._slope, self._inter]).all() or not self._slope:
            raise UserError(
                f"damaged image|has voxels of type {self._dtype} with scale {self._slope:g} and offset "
                f"{self._inter:g}; expected numbers, a finite scale other than 0, and a finite offset"
            )
        seconds = float(zooms[3]) * {"msec": 1e-3, "usec": 1e-6}.get(unit, 1.0)
        if unit in ("sec", "msec", "usec") and seconds > 0 and abs(seconds - tr) > TOLERANCE:
            raise UserError(f"contradictory TR|has a TR of {seconds:g} s by its header and of {tr:g} s by its sidecar")
        self.length = shape[3]
        return int(proxy.offset)

    def _values(self, raw: bytes) -> np.ndarray:
        """Convert bytes to float32 `[frames, voxels]` (X fastest), valid until the next call."""
        stored = np.frombuffer(raw, self._dtype).reshape(-1, self._voxels)
        values = self._room[: len(stored)]
        np.copyto(values, stored, casting="unsafe")
        if (self._slope, self._inter) != (1.0, 0.0):
            values *= np.float32(self._slope)
            values += np.float32(self._inter)
        return values

    def _fit(self, file: BinaryIO) -> None:
        """Copy all frames, and fit polynomials to each voxel's time course."""
        n = self.length
        places = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        legendre = np.polynomial.legendre.legvander(places, min(self._spec.detrend, n - 1))
        self._basis = np.linalg.qr(legendre)[0].astype(np.float32)  # [length, degree + 1]
        products, squares = np.zeros((self._basis.shape[1], self._voxels)), np.zeros(self._voxels)
        first = np.zeros(self._voxels, np.float32)  # sums are relative to it, as means are large
        for start in range(0, n, BLOCK):
            size = min(n - start, BLOCK) * self._frame_bytes
            raw = file.read(size)
            if len(raw) != size:
                raise EOFError(f"it ends {(n - start) * self._frame_bytes - len(raw)} bytes early")
            self._copy.write(raw)
            values = self._values(raw)
            first = first if start else values[0].copy()
            values -= first
            products += np.einsum("tk,tv->kv", self._basis[start : start + len(values)], values)
            squares += np.einsum("tv,tv->v", values, values)
        if file.read(1):
            raise ValueError("it has more bytes than its header says")
        # The basis is orthonormal, so products are coefficients.
        constant = self._basis.sum(axis=0, dtype=np.float64)  # coefficients of a constant 1
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            mean = first + constant @ products / n
            deviation = np.sqrt(np.maximum(squares - (products**2).sum(axis=0), 0) / n)
            varies = np.isfinite(mean) & np.isfinite(deviation) & (deviation > ROUNDING * np.abs(mean))
            scale = np.where(varies, 1 / deviation, 0.0)
            if self._spec.mask and varies.any():
                scale[mean < self._spec.mask * np.percentile(mean[varies], 98)] = 0.0
            trend = products + constant[:, None] * first
        # [degree + 1, voxels]; [voxels], 0 for a constant or masked voxel
        self._trend, self._scale = np.nan_to_num(trend).astype(np.float32), scale.astype(np.float32)
        if not self._scale.any():
            raise UserError("constant image|has no voxel that varies")

    def frames(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Yield standardized frames in blocks `[<= BLOCK, X, Y, Z]`; each is valid until the next."""
        spec, out = self._spec, np.empty((BLOCK, *self._spec.grid), self._spec.dtype)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            self._copy.seek(first * self._frame_bytes)
            values = self._values(self._copy.read((last - first) * self._frame_bytes))
            for curve, size in zip(self._basis[first:last].T, self._trend, strict=True):
                values -= curve[:, None] * size  # a matrix product is slower
            values *= self._scale
            np.clip(values, -spec.clip, spec.clip, out=values)
            if self._dtype.kind == "f":  # may be NaN
                np.nan_to_num(values, copy=False, nan=0.0)
            for frame, place in zip(values, out, strict=False):
                stored = to_half(frame) if spec.dtype == "float16" else frame
                for z, layer in enumerate(stored.reshape(spec.grid[::-1])):  # half the time of one transposition
                    place[:, :, z] = layer.T
            yield out[: len(values)]

    def close(self) -> None:
        self._copy.close()


def prepare_scans(root: Path, spec: _scans.FmriSpec, out: Path, tally: Tally) -> None:
    """Write the data file of the scans below `root`, and count its windows.

    Raises UserError if no scan is usable, or, with `spec.strict`, if one is not.
    """
    work = _Work(root, spec, tally)
    usable = work.usable()
    with (
        VolumeWriter(out, spec.grid, spec.dtype, spec.features_are()) as writer,
        ProgressLine("read scans", len(usable)) as progress,
    ):
        for scan, run in zip(usable, work.runs(usable), strict=True):
            work.add(scan, run, writer)
            progress.advance(1, scan.stem)
        work.note()
        if not tally.n_kept:
            raise UserError(f"{root}: no window is left; {' '.join(tally.notes)}")
        writer.provenance = work.provenance()


class _Work:
    """State of writing the data file."""

    def __init__(self, root: Path, spec: _scans.FmriSpec, tally: Tally):
        self._root, self._spec, self._tally = root, spec, tally
        self._wanted, self._left_out = _scans.select(root, _scans.find_scans(root), spec)
        self._transcripts_at = Path(at_hand(spec.transcripts)) if spec.transcripts else root / "stimuli" / "gentle"
        self._transcripts: dict[str, _scans.Transcript | UserError] = {}
        self._corrected: dict[str, _scans.Transcript] = {}  # stimulus -> transcript with corrected onsets
        # kind -> (scan, message)
        self._problems: dict[str, list[tuple[_scans.Scan, str]]] = collections.defaultdict(list)
        self._files: list[dict[str, Any]] = []
        self._story_time: list[tuple[int, float, float]] = []  # see `clock.py`
        self._usual_tr: dict[str, float] = {}
        self._oddities: list[str] = []  # notes

    def usable(self) -> list[_scans.Scan]:
        """Return the selected scans that have an image, a story and its transcript; count others as dropped.

        Raises UserError if there is none, or with `strict` if one is unusable.
        """
        for reason, scans in self._left_out.items():
            for scan in scans:
                self._drop(scan, reason)
        usable = []
        for scan in self._wanted:
            if problem := scan.problem or _scans.not_here(scan.image) or self._transcript_problem(scan):
                self._refuse(scan, problem)
            else:
                usable.append(scan)
        if not usable:
            self.note()
            raise UserError(
                f"{self._root}: none of the {len(self._wanted)} selected scans can be used, for these "
                f"reasons: {' '.join(self._tally.notes)}"
            )
        counts = {scan.stem: collections.Counter(story.stimulus for story in scan.stories) for scan in usable}
        most = functools.reduce(operator.or_, counts.values())  # stimulus -> most stories in a scan
        self._oddities += [
            f"{stem}: its events have {n} of the {most[name]} stories of {name}."
            for stem, times in counts.items()
            for name, n in times.items()
            if n < most[name]
        ]
        self._usual_tr = usual_tr(usable)
        placed = _scans.align_stories([scan.stories for scan in usable])
        return [dataclasses.replace(scan, stories=stories) for scan, stories in zip(usable, placed, strict=True)]

    def _transcript_problem(self, scan: _scans.Scan) -> str:
        """Read the transcripts of a scan's stories; return the first problem (`KIND|SENTENCE`), or ""."""
        for name in (story.stimulus for story in scan.stories):
            if name not in self._transcripts:
                try:
                    self._transcripts[name] = _scans.read_transcript(self._transcripts_at / name / _scans.FILE)
                except UserError as error:
                    self._transcripts[name] = error
            if isinstance(transcript := self._transcripts[name], UserError):
                return str(transcript)
        return ""

    def runs(self, scans: Sequence[_scans.Scan]) -> Iterator[Run | UserError]:
        """Yield each scan's image or its error; threads read the next ones."""
        with concurrent.futures.ThreadPoolExecutor(READERS) as readers:
            left = iter(scans)
            waiting = collections.deque(readers.submit(self._read, scan) for scan in itertools.islice(left, READERS))
            try:
                while waiting:
                    image = waiting.popleft().result()
                    waiting.extend(readers.submit(self._read, scan) for scan in itertools.islice(left, 1))
                    yield image
            finally:  # also if the caller stops before the last scan
                for unread in waiting:
                    if isinstance(run := unread.result(), Run):
                        run.close()

    def _read(self, scan: _scans.Scan) -> Run | UserError:
        try:
            return Run(scan.image, self._spec, scan.tr)
        except UserError as error:
            if "|" not in str(error):
                raise
            return error

    def add(self, scan: _scans.Scan, run: Run | UserError, writer: VolumeWriter) -> None:
        """Write a scan's windows; leave it out if its image is damaged."""
        if isinstance(run, UserError):
            self._refuse(scan, str(run))
            return
        with contextlib.closing(run):
            for story in scan.stories:
                self._add_story(scan, story, run, writer)
            size = scan.image.stat().st_size
            self._files.append({"name": scan.image.name, "bytes": size, "tr": scan.tr, "frames": run.length})

    def _add_story(self, scan: _scans.Scan, story: _scans.Story, run: Run, writer: VolumeWriter) -> None:
        spec, tally, frames = self._spec, self._tally, story.frames(scan.tr)
        segments = _scans.frame_texts(self._transcript(scan, story), story, scan.tr)
        first, last = frames.start + spec.lag_tr, min(frames.stop + spec.lag_tr, run.length)
        blocks = run.frames(first, last) if last - first >= spec.window else ()
        block_starts = [writer.add_frames(block) for block in blocks]
        story_start = frames.start * scan.tr - story.audio_start  # time in the audio at which the first frame begins
        if block_starts:
            self._story_time.append((block_starts[0], round(story_start, 6), scan.tr))
        key, stop = (scan.subject, story.stimulus), frames.stop + spec.lag_tr
        for start in _scans.window_starts(frames, spec.window, spec.stride):
            place = start - frames.start
            text = " ".join(filter(None, segments[place : place + spec.window]))
            if start + spec.lag_tr + spec.window > run.length:
                tally.dropped[*key, "beyond the end of the scan"] += 1
            elif not text:
                tally.dropped[*key, "no words"] += 1
            else:
                writer.add_window(
                    block_starts[0] + place, spec.window, sentence=text, subject=scan.subject, task=story.stimulus,
                    sentence_index=round((story_start + place * scan.tr) / self._usual_tr[story.stimulus]),
                    text_group=spec.group_of(story.stimulus),
                    recording=scan.stem, onset=(start + spec.lag_tr) * scan.tr, duration=spec.window * scan.tr,
                )  # fmt: skip
                tally.n_kept[key] += 1
        if run.length < stop:
            self._oddities.append(
                f"{scan.image.name} has {run.length} frames and its events go to frame {stop}: windows beyond the end "
                "are dropped."
            )

    def _transcript(self, scan: _scans.Scan, story: _scans.Story) -> _scans.Transcript:
        """Return a story's transcript, corrected and checked at first use."""
        name = story.stimulus
        if story.moved:
            self._oddities.append(
                f"{scan.stem}: in its table of events the story's place in the audio differs by {story.moved:+g} s "
                "from most other tables; the onset of the story in its table is used."
            )
        if name not in self._corrected:
            transcript = cast(_scans.Transcript, self._transcripts[name])
            transcript, note = _scans.correct_onsets(transcript, name, story.onset - story.audio_start, scan.tr)
            self._oddities += [note] if note else []
            self._corrected[name] = transcript
            starts = transcript.starts[np.isfinite(transcript.starts)]
            if n := int((np.diff(starts) < 0).sum()):
                self._oddities.append(f"the transcript of {name} has {n} words that begin before the preceding word.")
        return self._corrected[name]

    def _refuse(self, scan: _scans.Scan, problem: str) -> None:
        kind, _, sentence = problem.partition("|")
        if self._spec.strict:
            raise UserError(f"{scan.image}: {sentence}; repair it, or set data.fmri.strict=False to leave it out.")
        self._problems[kind].append((scan, sentence))
        self._drop(scan, kind)

    def _drop(self, scan: _scans.Scan, reason: str) -> None:
        spec = self._spec
        for story in scan.stories:
            lost = len(_scans.window_starts(story.frames(scan.tr), spec.window, spec.stride))
            self._tally.dropped[scan.subject, story.stimulus, reason] += lost
        if not scan.stories:
            self._tally.dropped[scan.subject, scan.task, reason] += 1

    def note(self) -> None:
        """Add a note for each kind of problem, and for each oddity."""
        get = f"; `datalad get` in {self._root} fetches"
        advice = {
            "not downloaded": f"{get} images: sub-*/func/*_bold.nii.gz",
            "sidecar not downloaded": f"{get} them: sub-*/func/*_bold.json",
            "events not downloaded": f"{get} them: sub-*/func/*_events.tsv",
            "transcript not downloaded": "; `datalad get stimuli/gentle` fetches them",
            "no transcript": (
                "; the OpenNeuro edition has no transcripts, they come with the DataLad one (stimuli/gentle): name "
                "their folder in data.fmri.transcripts"
            ),
        }
        for kind, cases in self._problems.items():
            first, sentence = cases[0]
            self._tally.notes.append(
                f"{count_of(len(cases), 'scan is', 'scans are')} left out ({kind}), "
                f"{'the first of them' if len(cases) > 1 else 'namely'} {first.stem}: {sentence}{advice.get(kind, '')}."
            )
        if self._transcripts_at.is_dir():
            played = {story.stimulus for scan in self._wanted for story in scan.stories}
            if unused := sorted({path.parent.name for path in self._transcripts_at.glob(f"*/{_scans.FILE}")} - played):
                what = "transcripts are of audio that no selected scan played"
                self._tally.notes.append(f"{len(unused)} {what}: {', '.join(unused)}.")
        self._tally.notes += dict.fromkeys(self._oddities)

    def provenance(self) -> dict[str, Any]:
        paths = {name: self._transcripts_at / name / _scans.FILE for name in sorted(self._transcripts)}
        return {
            "source": self._root.name,
            "fmri": {name: value for name, value in dataclasses.asdict(self._spec).items() if name != "transcripts"},
            "scans": self._files,
            STORY_TIME: self._story_time,
            "transcripts": {name: file_digest(path) for name, path in paths.items() if path.exists()},
            "reader": f"eeg2text_jax {__version__}",
            "samples": self._tally.n_kept.total(),
        }


def usual_tr(scans: Sequence[_scans.Scan]) -> dict[str, float]:
    """Return stimulus -> the TR (seconds) of most of its scans; in a tie, the shortest."""
    trs_of: dict[str, list[float]] = collections.defaultdict(list)
    for scan in scans:
        for name in {story.stimulus for story in scan.stories}:
            trs_of[name].append(scan.tr)
    return {name: min(statistics.multimode(trs)) for name, trs in trs_of.items()}
