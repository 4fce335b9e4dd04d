"""What a data file is called and consists of, and the hashes of its parts."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

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
    """`DataFile.digests`; `features` is the running hash of their bytes, of volumes that of their own hash."""
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
    """SHA-256 of lines, in hexadecimal."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
