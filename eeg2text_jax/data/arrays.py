"""Read NumPy archives (`.npz`) as rows: one array per column, all of the same N samples.

`features` is one of: `[N, W, F]` with a `mask` `[N, W]` (True at real words, which come first) or `n_words` `[N]`;
`[sum W, F]`, the words of all samples in sequence, with `n_words` or `offsets` `[N + 1]`; `[N, F]`, one position a
sample. `sentence`, `subject`, `task` and `recording` `[N]` are texts, `sentence_index` and `order` whole numbers,
`onset` and `duration` seconds.
"""

import math
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.data.rows import Columns, check_named, note_unused, source_of_rows
from eeg2text_jax.data.source import Source, files_of
from eeg2text_jax.data.tally import Tally
from eeg2text_jax.errors import UserError, first_line

RATIO = 100  # largest plausible compression ratio
PLAUSIBLE = 1 << 28  # bytes; up to this size the ratio is not checked


def open_arrays(paths: list[Path], columns: Columns, tally: Tally) -> Source:
    """Open `.npz` archives as one source. Raises UserError for a missing file; reading raises it for a damaged one."""
    provenance = {"source": "arrays", "files": files_of(paths)}
    note_unused(_names(paths[0]), columns, paths[0].name, tally, ("n_words", "offsets"))
    rows = (row for path in paths for row in npz_rows(path, columns))
    return source_of_rows(rows, columns, ", ".join(path.name for path in paths), paths[0].name, provenance, tally)


def npz_rows(path: Path, columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield each sample as column name -> value. Raises UserError if unreadable, or if arrays do not fit together."""
    arrays = _load(path)
    check_named(arrays, columns, str(path), "array")
    features, n = arrays[columns.features], len(arrays[columns.sentence])
    starts, stops = _spans(path, arrays, columns, n)
    others = [name for name in columns.of_samples if name in arrays]
    for name in others:
        if arrays[name].shape != (n,):
            raise UserError(
                f"{path}: {name} has shape {list(arrays[name].shape)}; expected [{n}], one value for each sentence."
            )
    for i in range(n):
        row = {name: arrays[name][i].item() for name in others}
        own = features[i, : stops[i]] if features.ndim == 3 else features[starts[i] : stops[i]]
        yield {**row, columns.features: own}


def _names(path: Path) -> list[str]:
    """Return the names of an archive's arrays; empty if the file is no archive (`npz_rows` raises then)."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile):
        return []


def _load(path: Path) -> dict[str, np.ndarray]:
    name = ""
    arrays = {}
    try:
        _check_sizes(path)
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                arrays[name] = archive[name]
        return arrays
    except UserError:
        raise
    except Exception as error:  # NumPy evaluates an array's header as a Python literal: a damaged one raises anything
        header = isinstance(error, SyntaxError | RecursionError | MemoryError)
        header |= any(words in str(error) for words in ("malformed node", "parse header", "Header info length"))
        if "pickle" in str(error) and not header:
            raise UserError(
                f"{path}: {name or 'the file'} is an array of objects (a pickle), which is not read; store texts as "
                "np.array(texts, dtype=str), and ragged features one after the other, with n_words."
            ) from error
        reason = "the header of an array is damaged" if header else first_line(error)[:120]
        raise UserError(
            f"{path}: cannot be read as a NumPy archive ({reason}); write it again with np.savez."
        ) from error


def _check_sizes(path: Path) -> None:
    """Raise UserError if an array's shape contradicts its size, or if the archive unpacks to an implausible size."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
                declared = file.tell() + math.prod(shape) * dtype.itemsize
            if declared != member.file_size and not dtype.hasobject:
                raise UserError(
                    f"{path}: {member.filename} declares {declared:,} bytes by its shape {list(shape)} and has "
                    f"{member.file_size:,}; it is damaged. Write the archive again."
                )
            total += member.file_size
    free, packed = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), max(path.stat().st_size, 1)
    if total > free:
        raise UserError(
            f"{path}: unpacks to {total / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB of memory are free; divide it "
            "into several archives, which are read one after the other."
        )
    if total > PLAUSIBLE and total > RATIO * packed:
        raise UserError(
            f"{path}: {packed / 2**20:,.1f} MiB unpack to {total / 2**30:,.2f} GiB, {total // packed} to 1; recordings "
            f"do not shrink more than {RATIO} to 1. Write the archive again, without constant data."
        )


def _spans(path: Path, arrays: dict[str, np.ndarray], columns: Columns, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end (exclusive) of each sample's words, int `[N]` each: among all words or in its padded row."""
    features = arrays[columns.features]
    if features.ndim == 3 and len(features) == n:
        return np.zeros(n, int), _lengths(path, arrays, columns, features.shape[:2])
    if features.ndim == 2 and ("n_words" in arrays or "offsets" in arrays):
        ends = arrays["offsets"][1:] if "offsets" in arrays else np.cumsum(arrays["n_words"])
        starts = np.concatenate([[0], ends[:-1]])
        if len(ends) != n or ends[-1] != len(features) or (np.diff([0, *ends]) < 1).any():
            raise UserError(
                f"{path}: {len(features)} words and {n} sentences do not fit n_words or offsets; expected at least one "
                f"word for each sentence, and {len(features)} words in all."
            )
        return starts.astype(int), ends.astype(int)
    if features.ndim == 2 and len(features) == n:
        return np.arange(n), np.arange(n) + 1
    raise UserError(
        f"{path}: {columns.features} has shape {list(features.shape)} for {n} sentences; expected [sentences, words, "
        "features] with mask or n_words, [words of all sentences, features] with n_words, or [sentences, features]."
    )


def _lengths(path: Path, arrays: dict[str, np.ndarray], columns: Columns, shape: tuple[int, int]) -> np.ndarray:
    if "n_words" in arrays:
        lengths = arrays["n_words"]
        whole = lengths.shape == shape[:1] and lengths.dtype.kind in "iu"
        if not whole or not ((lengths > 0) & (lengths <= shape[1])).all():
            raise UserError(f"{path}: n_words must be [{shape[0]}] whole numbers from 1 to {shape[1]}.")
        return lengths
    if columns.mask not in arrays:
        raise UserError(
            f"{path}: {columns.features} [N, W, F] is padded, and the file does not say where; add {columns.mask} [N, "
            "W], True at words and False at padding, or n_words [N]."
        )
    mask = arrays[columns.mask].astype(bool)
    if mask.shape != shape or not (mask == (np.arange(shape[1]) < mask.sum(1, keepdims=True))).all():
        raise UserError(
            f"{path}: {columns.mask} has shape {list(mask.shape)}; expected {list(shape)} with each recording's real "
            "words (True) first."
        )
    return mask.sum(1)
