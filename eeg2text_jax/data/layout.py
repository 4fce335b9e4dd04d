"""Formats and columns of data files, hashes of their parts, and checks that the parts fit together."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError

FORMAT = "eeg2text-data-3"
VOLUMES = "eeg2text-volumes-2"  # see volume_file.py
# Formats that earlier versions wrote.
WITHOUT_CHECKSUMS = "eeg2text-data-1"
WITHOUT_TIME = (WITHOUT_CHECKSUMS, "eeg2text-data-2", "eeg2text-volumes-1")

STRINGS = ("sentence", "subject", "task")
WINDOW_COLUMNS = ("starts", "text_group")  # of volumes, besides
NUMBERS = ("offsets", "sentence_index", "starts", "order")  # columns of int64
REALS = ("onset", "duration")  # columns of float64; the others are UTF-8


def digests_of(features: Any, columns: Mapping[str, Any]) -> dict[str, str]:
    """Return `DataFile.digests`. `features` is a hash object fed with the features, or with the digest of frames."""
    features = features.copy()
    for name in ("offsets", "starts"):
        if name in columns:
            features.update(np.ascontiguousarray(columns[name]).data)
    index = np.asarray(columns["sentence_index"]).tolist()
    groups = [list(columns["text_group"])] if "text_group" in columns else []
    samples = json.dumps([list(columns["subject"]), list(columns["task"]), index, *groups])
    found = {
        "features": features.hexdigest(),
        "samples": digest_of([samples]),
        "sentences": digest_of([json.dumps(list(columns["sentence"]))]),
    }
    if "recording" in columns:
        times = [np.ascontiguousarray(columns[name]).tobytes().hex() for name in ("onset", "duration", "order")]
        found["clock"] = digest_of([json.dumps(list(columns["recording"])), *times])
    return found


def digest_of(texts: Iterable[str]) -> str:
    """Return the SHA-256 of lines, in hexadecimal."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def check_sums(data: Any, stated: dict[str, str] | None, found: Mapping[str, str]) -> None:
    """Raise UserError if checksums that a `DataFile` states differ from those found; the oldest format states None."""
    if stated is None:
        return
    pairs = {name: (stated.get(name), digest) for name, digest in found.items()}
    pairs["clock"] = stated.get("clock"), found.get("clock")
    pairs["description"] = stated.get("about"), stated["about now"]
    for name, (expected, digest) in pairs.items():
        if expected != digest:
            raise UserError(
                f"{data.path}: its {name} do not have the checksum that the file states, so it is damaged or was "
                "edited; make it again with `eeg2text prepare`."
            )


def check_columns(data: Any) -> None:
    """Raise UserError if columns differ in length, or a sample has no words, no text or non-finite features."""
    n, offsets = len(data.sentence), data.offsets
    if not n:
        raise UserError(f"{data.path}: holds no samples.")
    lengths = {len(data.subject), len(data.task), len(data.sentence_index), len(offsets) - 1}
    if lengths != {n} or offsets[0] != 0 or not _covers_features(data):
        raise UserError(f"{data.path}: its columns disagree in length; make it again with `eeg2text prepare`.")
    if data.clock is not None and any(len(column) != n for column in data.clock.columns().values()):
        raise UserError(f"{data.path}: its columns of time disagree in length; make it again with `eeg2text prepare`.")
    wrong = {"has no words": np.flatnonzero(data.n_words < 1)}
    if isinstance(data.features, np.ndarray):
        words = np.flatnonzero(~np.isfinite(data.features).all(axis=1))
        wrong["has NaN or infinity"] = np.searchsorted(offsets, words, side="right") - 1
    wrong["has a sentence that is empty"] = np.array(
        [i for i, text in enumerate(data.sentence) if not text.strip()], int
    )
    for problem, rows in wrong.items():
        if len(rows):
            row = int(rows[0])
            raise UserError(
                f"{data.path}: sample {row} ({data.subject[row]}, {data.sentence_id[row]}) {problem}; make the file "
                "again with `eeg2text prepare`."
            )


def _covers_features(data: Any) -> bool:
    """Return whether the samples cover all words of the features, or windows lie inside the frames."""
    if data.starts is None:
        return data.offsets[-1] == len(data.features)
    same = len(data.starts) == len(data.text_group) == len(data)
    return same and data.starts.min() >= 0 and (data.starts + data.n_words).max() <= len(data.features)
