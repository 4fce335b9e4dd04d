"""Inputs of the controls of time: `clock`, `neighbor` and `nearest_in_time`, chosen by when samples were recorded."""

import dataclasses

import numpy as np

from eeg2text_jax.conditions.donors import clashes
from eeg2text_jax.data.clock import NO_TIME, known_clock
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.splits.neighbors import groups_of_readings
from eeg2text_jax.splits.split import normalize, readings_of
from eeg2text_jax.streams import stream_rng

# Number of sine and cosine waves of the onset. The first period is twice the latest train onset, each further period is
# half of the period before it.
PERIODS = 10
NEEDS_TIME = f"condition {{!r}} cannot be fed, as {NO_TIME}; leave the condition out."
TOLERANCE = 2  # number of words by which the length of a preferred neighbor may differ


def clock_features(data: DataFile, train: np.ndarray, seed: int) -> np.ndarray:
    """Return the features that `clock` feeds at every word of a sample, float32 `[N, F]`; zeros if its time is unknown.

    They hold a one-hot code of the recording and sines and cosines of the onset, both with a mean square of about 1;
    if F is too small, both are projected on F random directions. Only the train part determines the periods and the
    codes; a recording without training samples has the code 0.
    """
    clock = known_clock(data, NEEDS_TIME.format("clock"))
    seen = sorted({name for name in clock.recording[train].tolist() if name})
    begin = np.nan_to_num(clock.spans[:, 0])
    longest = max(float(begin[train].max()), 1.0)
    phases = 2 * np.pi * begin[:, None] / (2 * longest / 2.0 ** np.arange(PERIODS))
    one_hot = clock.recording[:, None] == np.array(seen, object)
    waves = np.concatenate([np.sin(phases), np.cos(phases)], axis=1)
    codes = np.concatenate([np.sqrt(len(seen)) * one_hot, np.sqrt(2) * waves], axis=1)
    codes[~clock.known] = 0
    width = data.n_features
    if codes.shape[1] > width:
        directions = stream_rng(seed, "clock").standard_normal((codes.shape[1], width))
        codes = codes @ directions / np.sqrt(codes.shape[1])
    found = np.zeros((len(data), width), np.float32)
    found[:, : codes.shape[1]] = codes
    return found


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The sample whose recording the condition `neighbor` feeds in place of each sample's own recording."""

    donor: np.ndarray  # int64 [N], rows of the data file; -1 for samples that are in no part
    note: str  # a sentence about the test part, for the user


def neighbor_table(data: DataFile, parts: list[np.ndarray], donors: np.ndarray) -> Neighbors:
    """Return for each sample the nearest sample in time with another sentence, of the same recording and part.

    Samples whose length differs by at most `TOLERANCE` words are preferred, then samples of any length, then the donor
    of `shuffled`. `parts` has the rows of each part, the test part last; `donors [N]` are the donors of `shuffled`.
    """
    clock = known_clock(data, NEEDS_TIME.format("neighbor"))
    text = np.unique([normalize(sentence) for sentence in data.sentence], return_inverse=True)[1]
    clash = clashes(data, text, np.unique(data.task.astype(str), return_inverse=True)[1])
    found, apart = donors.copy(), np.full(len(data), np.inf)
    for part in parts:
        # A neighbor within the tolerance replaces the neighbor of any length.
        for tolerance in (np.inf, TOLERANCE):
            near, distance = clock.nearest(
                part,
                part,
                lambda i, among, most=tolerance: (
                    clash(among, i) | (np.abs(data.n_words[among] - data.n_words[i]) > most)
                ),
            )
            has = near >= 0
            found[part[has]], apart[part[has]] = near[has], distance[has]
    return Neighbors(found, _describe(data, parts[-1], found, apart, clock.unit))


def _describe(data: DataFile, test: np.ndarray, found: np.ndarray, apart: np.ndarray, unit: str) -> str:
    near = np.isfinite(apart[test])
    away = f"a median of {np.median(apart[test][near]):.3g} {unit} away" if near.any() else "so all get donors"
    note = f"neighbor: {near.mean():.1%} of the test samples have a neighbor in their recording, {away}"
    for name, labels in groups_of_readings(readings_of(data)).items():
        differ = np.mean(labels[test] != labels[found[test]])
        note += (
            f"; {differ:.1%} of the pairs are of different groups ({name}): only in these pairs, the comparison with "
            f"neighbor does not exclude what a clock tells about the {name}"
        )
    return f"{note}."


def nearest_texts(data: DataFile, train: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, str]:
    """Return for each sample of `rows` the training row whose text `nearest_in_time` predicts, and a note for users.

    It is the training sample nearest in time in the same recording or, if there is none, the training sample of another
    recording with the nearest onset, because a model of time alone knows the time since the start of each recording.
    """
    clock = known_clock(data, NEEDS_TIME.format("nearest_in_time"))
    near, apart = clock.nearest(rows, train)
    own = near >= 0
    known = train[clock.known[train]]
    begin = clock.spans[:, 0]
    for k in np.flatnonzero(~own):
        since = np.nan_to_num(begin[rows[k]])
        near[k] = known[np.argmin(np.abs(begin[known] - since))]
    away = f", a median of {np.median(apart[own]):.3g} {clock.unit} away" if own.any() else ""
    return near, f"nearest_in_time: {own.mean():.1%} of the test part has a training text in its recording{away}."
