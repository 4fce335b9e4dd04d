"""What several tests of raw recordings hold: a recording of MNE, events, and the sentences that they define."""

from pathlib import Path

import mne
import numpy as np
import pandas
from tiny_run import data_spec

from eeg2text_jax.data.raw.find import Event, RawFile, RawSpec
from eeg2text_jax.data.raw.sentences import readings

RATE, SECONDS, TEXTS = 128.0, 4.0, ["the dog saw it", "a cat ran off", "no hen was there"]
NAMES = ["Fz", "Cz", "Pz", "Oz"]
FILE = RawFile(Path("S1.edf"), "S1", "NR")


def recording(seed=0, scale=1e-5):
    """Thirty seconds of noise with three sentences."""
    signal = np.random.default_rng(seed).normal(size=(4, int(RATE * 30))) * scale
    raw = mne.io.RawArray(signal, mne.create_info(NAMES, RATE, "eeg"), verbose="error")
    return raw.set_annotations(mne.Annotations([3.0, 11.0, 20.0], [SECONDS] * 3, TEXTS))


def epochs_of(raw, tmin=0.0, tmax=SECONDS - 1 / RATE, **metadata):
    """An epoch for each of the three sentences."""
    events = np.array([[int(t * RATE), 0, 1] for t in (3.0, 11.0, 20.0)])
    about = pandas.DataFrame({"text": TEXTS, **metadata})
    return mne.Epochs(raw, events, tmin=tmin, tmax=tmax, baseline=None, metadata=about, verbose="error")


def event(onset, code="", duration=0.0, **columns):
    return Event(onset, duration, (code,) if code else (), columns)


def sentences_of(events, columns=(), texts=None, file=FILE, **fields):
    """Sentences and dropped ones of events, with fields of `config.data.raw`."""
    return readings(file, events, columns, data_spec(RawSpec, "raw", **fields), texts)
