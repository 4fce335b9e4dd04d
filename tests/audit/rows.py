"""Rows to audit: simulated sets as predictions, and small hand-made ones."""

import dataclasses
import random

import numpy as np

from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_testing.prediction_sets import Dials, as_predictions, simulate


def simulated_rows(seed=0, **dials):
    """EEG's and the control's rows; 48 sentences read by three subjects unless said otherwise."""
    dials = {"sentences": 48, "subjects": 3, **dials}
    return as_predictions(simulate(Dials(**dials), np.random.default_rng(seed)))


def row(number=0, **fields):
    about = (f"sample {number}", "A", "NR", f"s{number}", 6, "eeg", "eeg", 0, "free_running")
    texts = f"the sentence called number {number} here", f"some words and {number}"
    return dataclasses.replace(Prediction(*about, *texts), **fields)


def changed(rows, **fields):
    """The rows with other fields; a function makes its field from each row."""
    return [dataclasses.replace(r, **{n: v(r) if callable(v) else v for n, v in fields.items()}) for r in rows]


def edited(rows, text, share=1.0, seed=0):
    """The rows with `text(row, rng)` as prediction, in a share of them."""
    rng = random.Random(seed)
    return [dataclasses.replace(r, prediction=text(r, rng)) if rng.random() < share else r for r in rows]
