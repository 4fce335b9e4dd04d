"""Data files in memory for the tests of splits: subjects x sentences, with one word of one feature each."""

from pathlib import Path

import numpy as np

from eeg2text_jax.data.clock import Clock
from eeg2text_jax.data.datafile import DataFile

ZUCO_SUBJECTS = ("ZAB", "ZDM", "ZDN", "ZGW", "ZJM", "ZJN", "ZJS", "ZKB", "ZKH", "ZKW", "ZMG", "ZPH")
ZUCO_SENTENCES = {"SR": 400, "NR": 300, "TSR": 407}


def data_of(rows, provenance=None):
    """A data file of `(subject, task, index, text)` rows."""
    subject, task, index, text = zip(*rows, strict=True)
    n = len(rows)
    recording = [f"{s}/{t}" for s, t in zip(subject, task, strict=True)]
    clock = Clock.of({"recording": recording, "onset": [np.nan] * n, "duration": [np.nan] * n, "order": index})
    features, offsets = np.ones((n, 1), np.float32), np.arange(n + 1)
    text, subject, task = (np.array(column, object) for column in (text, subject, task))
    about = text, subject, task, np.array(index, np.int64), "nothing", provenance or {}
    return DataFile(Path("grid.h5"), features, offsets, *about, clock=clock)


def grid(subjects=ZUCO_SUBJECTS, sentences=None, texts=None, provenance=None):
    """Every subject reads every sentence; without `texts` (task -> list) every sentence has its own words."""
    sentences = sentences or ZUCO_SENTENCES
    texts = texts or {task: [f"{task} {'x' * (i % 7)} {i}" for i in range(n)] for task, n in sentences.items()}
    return data_of([(s, t, i, text) for s in subjects for t, many in texts.items() for i, text in enumerate(many)])
