"""Data files in memory for the tests of splits: subjects x sentences, with one word of one feature each."""

import dataclasses
from pathlib import Path

import numpy as np

from eeg2text_jax.data.clock import Clock
from eeg2text_jax.data.datafile import DataFile

ZUCO_SUBJECTS = ("ZAB", "ZDM", "ZDN", "ZGW", "ZJM", "ZJN", "ZJS", "ZKB", "ZKH", "ZKW", "ZMG", "ZPH")
ZUCO_SENTENCES = {"SR": 400, "NR": 300, "TSR": 407}


def clock_of(recording, **columns):
    """A clock of recordings and other columns; those that are left out are not known."""
    n = len(recording)
    blank = {"onset": [np.nan] * n, "duration": [np.nan] * n, "order": [-1] * n}
    return Clock.of({"recording": recording, **blank, **columns})


def with_clock(data, **columns):
    """The data file with other columns of its clock."""
    return dataclasses.replace(data, clock=dataclasses.replace(data.clock, **columns))


def data_of(rows, provenance=None, clock=None):
    """A data file of `(subject, task, index, text)` rows."""
    subject, task, index, text = zip(*rows, strict=True)
    n = len(rows)
    clock = clock or clock_of([f"{s}/{t}" for s, t in zip(subject, task, strict=True)], order=index)
    features, offsets = np.ones((n, 1), np.float32), np.arange(n + 1)
    text, subject, task = (np.array(column, object) for column in (text, subject, task))
    about = text, subject, task, np.array(index, np.int64), "nothing", provenance or {}
    return DataFile(Path("grid.h5"), features, offsets, *about, clock=clock)


def are_apart(column, split):
    """Whether no value of the column is in two parts of the split."""
    parts = [set(column[rows].tolist()) for rows in split.parts.values()]
    return sum(map(len, parts)) == len(set.union(*parts))


def grid(subjects=ZUCO_SUBJECTS, sentences=None, texts=None, provenance=None):
    """Every subject reads every sentence; without `texts` (task -> list) every sentence has its own words."""
    sentences = sentences or ZUCO_SENTENCES
    texts = texts or {task: [f"{task} {'x' * (i % 7)} {i}" for i in range(n)] for task, n in sentences.items()}
    return data_of([(s, t, i, text) for s in subjects for t, many in texts.items() for i, text in enumerate(many)])
