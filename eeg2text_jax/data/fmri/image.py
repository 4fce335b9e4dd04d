"""Read the NIfTI image of one run in two passes: fit trend and deviation of every voxel, then standardize the frames.

A compressed image can only be read sequentially, and a run may be large (2,200 volumes: 0.5 GB). The first pass
therefore copies the frames to a temporary file for the second one. Random access to the compressed file did not help,
because every frame is read anyway.
"""

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from eeg2text_jax.data.fmri.scans import FmriSpec
from eeg2text_jax.data.frames import to_half
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.imports import library

BLOCK = 8  # frames per block: 3.5 MB of float32 on the usual grid, which fits the processor's cache
ROUNDING = 1e-6  # relative to a voxel's mean; smaller deviations are float32 rounding of a constant
TOLERANCE = 0.05  # largest difference in seconds between the TR of header and sidecar


@dataclasses.dataclass
class Run:
    """An fMRI run after the first pass: trend and scale of every voxel, a copy of the frames. Close it after use."""

    spec: FmriSpec
    length: int  # frames
    basis: np.ndarray  # float32 [length, degree + 1], polynomials
    trend: np.ndarray  # float32 [degree + 1, voxels], coefficients of `basis` for each voxel
    scale: np.ndarray  # float32 [voxels], 1 / standard deviation around the trend; 0 for a constant or masked voxel
    _copy: Any  # temporary file with the frames as the image stores them
    _header: "_Header"

    def frames(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Yield standardized frames in blocks `[<= BLOCK, X, Y, Z]` of `spec.dtype`; each is valid until the next."""
        room, out = self._header.room(), np.empty((BLOCK, *self._header.shape[:3]), self.spec.dtype)
        for first in range(start, stop, BLOCK):
            last = min(first + BLOCK, stop)
            self._copy.seek(first * self._header.frame_bytes)
            values = self._header.values(self._copy.read((last - first) * self._header.frame_bytes), room)
            for curve, size in zip(self.basis[first:last].T, self.trend, strict=True):
                values -= curve[:, None] * size  # a matrix product is slower: too narrow for several threads
            values *= self.scale
            np.clip(values, -self.spec.clip, self.spec.clip, out=values)
            if self._header.dtype.kind == "f":  # voxels of float images may be NaN
                np.nan_to_num(values, copy=False, nan=0.0)
            for frame, place in zip(values, out, strict=False):
                _set_upright(place, to_half(frame) if self.spec.dtype == "float16" else frame)
            yield out[: len(values)]

    def close(self) -> None:
        """Delete the temporary file."""
        self._copy.close()


@dataclasses.dataclass(frozen=True)
class _Header:
    """Shape, dtype and scaling of the voxels, and the offset of the first one in the uncompressed file."""

    shape: tuple[int, int, int, int]
    dtype: np.dtype
    offset: int
    slope: float
    inter: float

    @property
    def frame_bytes(self) -> int:
        return int(np.prod(self.shape[:3])) * self.dtype.itemsize

    def room(self) -> np.ndarray:
        """Allocate a buffer for `values`; new memory for each block costs 20 % of the time in page faults."""
        return np.empty((BLOCK, int(np.prod(self.shape[:3]))), np.float32)

    def values(self, raw: bytes, room: np.ndarray) -> np.ndarray:
        """Convert stored bytes to float32 `[frames, voxels]` (X fastest), in the first rows of the buffer `room`."""
        found = np.frombuffer(raw, self.dtype).reshape(-1, room.shape[1])
        values = room[: len(found)]
        np.copyto(values, found, casting="unsafe")
        if (self.slope, self.inter) != (1.0, 0.0):
            values *= np.float32(self.slope)
            values += np.float32(self.inter)
        return values


def _set_upright(place: np.ndarray, frame: np.ndarray) -> None:
    """Copy a frame in file order to `[X, Y, Z]`, layer by layer: half the time of a single transposition."""
    for z, layer in enumerate(frame.reshape(place.shape[::-1])):
        place[:, :, z] = layer.T


def read_run(path: Path, spec: FmriSpec, tr: float) -> Run:
    """Make the first pass over a NIfTI image, compressed or not; `tr` is the repetition time in its sidecar.

    Raises UserError with a message `KIND|SENTENCE` if the image is not NIfTI, has another grid or TR, is truncated or
    damaged, or no voxel varies; the caller then leaves out this scan.
    """
    header = _read_header(path, spec, tr)
    copy = tempfile.SpooledTemporaryFile(max_size=1 << 27)  # noqa: SIM115 - in memory up to 128 MiB
    try:
        sums, room = _Sums(header, spec.detrend), header.room()
        with library("nibabel", "fmri").openers.ImageOpener(str(path)) as file:
            file.read(header.offset)
            for raw in _blocks(file, header):
                copy.write(raw)
                sums.add(header.values(raw, room))
            if file.read(1):
                raise ValueError("it has more bytes than its header says")
        trend, scale = sums.finish(spec.mask)
        if not scale.any():
            raise UserError("constant image|has no voxel that varies")
        return Run(spec, header.shape[3], sums.basis, trend, scale, copy, header)
    except Exception as error:  # zlib, gzip and nibabel raise errors of their own
        copy.close()
        if isinstance(error, UserError):
            raise
        raise UserError(f"damaged image|cannot be read to its end ({first_line(error)})") from error


def _read_header(path: Path, spec: FmriSpec, tr: float) -> _Header:
    nibabel = library("nibabel", "fmri")
    try:
        image = nibabel.load(path)
        found = image.dataobj
        shape: Any = tuple(map(int, image.shape))
        header = _Header(shape, np.dtype(found.dtype), int(found.offset), float(found.slope), float(found.inter))
        zooms, unit = image.header.get_zooms(), image.header.get_xyzt_units()[1]
    except Exception as error:
        raise UserError(f"damaged image|is no NIfTI image ({first_line(error)})") from error
    if len(shape) != 4 or shape[:3] != spec.grid:
        raise UserError(
            f"another grid|has {' x '.join(map(str, shape))} voxels, but its sidecar's slices and data.fmri.grid say "
            f"{' x '.join(map(str, spec.grid))} voxels in each frame"
        )
    if header.dtype.kind not in "iuf" or not np.isfinite([header.slope, header.inter]).all() or not header.slope:
        raise UserError(
            f"damaged image|has voxels of type {header.dtype} with scale {header.slope:g} and offset {header.inter:g}; "
            "expected numbers, a finite scale other than 0, and a finite offset"
        )
    seconds = float(zooms[3]) * {"msec": 1e-3, "usec": 1e-6}.get(unit, 1.0)
    if unit in ("sec", "msec", "usec") and seconds > 0 and abs(seconds - tr) > TOLERANCE:
        raise UserError(f"contradictory TR|has a TR of {seconds:g} s by its header and of {tr:g} s by its sidecar")
    return header


def _blocks(file: BinaryIO, header: _Header) -> Iterator[bytes]:
    """Yield the bytes of all frames in blocks. Raises EOFError if the file is too short."""
    for left in range(header.shape[3], 0, -BLOCK):
        size = min(left, BLOCK) * header.frame_bytes
        raw = file.read(size)
        if len(raw) != size:
            raise EOFError(f"it ends {left * header.frame_bytes - len(raw)} bytes early")
        yield raw


class _Sums:
    """The sums of a one-pass polynomial fit of every voxel's time course, and of its residuals."""

    def __init__(self, header: _Header, degree: int):
        n, voxels = header.shape[3], int(np.prod(header.shape[:3]))
        places = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        self.basis = np.linalg.qr(np.polynomial.legendre.legvander(places, min(degree, n - 1)))[0].astype(np.float32)
        self._done, self._first = 0, np.zeros(voxels, np.float32)
        self._products = np.zeros((self.basis.shape[1], voxels))
        self._squares = np.zeros(voxels)

    def add(self, values: np.ndarray) -> None:
        """Add the next frames `[n, voxels]`; sums are relative to the first frame, because means are large."""
        if not self._done:
            self._first = values[0].copy()
        values -= self._first
        own = self.basis[self._done : self._done + len(values)]
        self._products += np.einsum("tk,tv->kv", own, values)
        self._squares += np.einsum("tv,tv->v", values, values)
        self._done += len(values)

    def finish(self, mask: float) -> tuple[np.ndarray, np.ndarray]:
        """Return trend and scale (see `Run`); the scale is 0 where the mean is below `mask` x its 98th percentile."""
        # The basis is orthonormal, so the products are the coefficients.
        constant = self.basis.sum(axis=0, dtype=np.float64)  # coefficients of a constant voxel of value 1
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            mean = self._first + constant @ self._products / self._done
            deviation = np.sqrt(np.maximum(self._squares - (self._products**2).sum(axis=0), 0) / self._done)
            varies = np.isfinite(mean) & np.isfinite(deviation) & (deviation > ROUNDING * np.abs(mean))
            scale = np.where(varies, 1 / deviation, 0.0)
            if mask and varies.any():
                scale[mean < mask * np.percentile(mean[varies], 98)] = 0.0
            trend = self._products + constant[:, None] * self._first
        return np.nan_to_num(trend).astype(np.float32), scale.astype(np.float32)
