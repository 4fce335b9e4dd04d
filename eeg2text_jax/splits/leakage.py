"""How much of a part was seen in another: the leakage rates of `papers/003`, section 4.2.

The rates are printed there with a set that is empty if read literally (a sample is never in both parts). What is meant,
and what the published numbers are, is a count: how many of subject i's samples test, over how many of them train.
"""

import dataclasses

import numpy as np

from eeg2text_jax.splits.normalize import NORMALIZATIONS
from eeg2text_jax.splits.readings import Readings

PAIRS = (("train", "test"), ("train", "dev"), ("dev", "test"))
SENTENCE_ID = "sentence-id"  # texts compared by task and index alone


def leakage_rate(train: np.ndarray, test: np.ndarray, n_units: int | None = None) -> float:
    """Brain signal leakage rate (equation 8) or, for EEG, text stimuli leakage rate (equation 9), from 0 to 1.

    The mean over units (subjects or texts) of `min(1, n_test / n_train)`, 0 for a unit that is not in both parts.

    Args:
      train, test: the unit of every sample, `[N_train]` and `[N_test]`.
      n_units: how many units to average over; None: those that occur in `test`, as the text of the paper says.
        Row (b) of its Table 1 fits the number of all units instead.
    """
    n_train = dict(zip(*np.unique(train, return_counts=True), strict=True))
    units, n_test = np.unique(test, return_counts=True)
    if not len(units):
        return 0.0
    terms = [min(1.0, n / n_train[unit]) for unit, n in zip(units, n_test, strict=True) if unit in n_train]
    return float(sum(terms) / (len(units) if n_units is None else n_units))


def segment_leakage_rate(train: np.ndarray, test: np.ndarray) -> float:
    """Text stimuli leakage rate of windows (equations 10 and 11), from 0 to 1.

    `sum_j min(n_test(j), n_train(j)) / sum_j n_test(j)` over text segments j: an overlap clipped like BLEU's counts.
    The printed factor 1/M must go, or method (a) could never reach the 100% that Table 1 shows.

    Args:
      train, test: the segments of all windows, one after the other (L a window), `[N_train * L]` and `[N_test * L]`.
    """
    if not len(test):
        return 0.0
    segments, n_test = np.unique(test, return_counts=True)
    known, n_train = np.unique(train, return_counts=True)
    counts = dict(zip(known.tolist(), n_train.tolist(), strict=True))
    hits = sum(min(n, counts.get(j, 0)) for j, n in zip(segments.tolist(), n_test.tolist(), strict=True))
    return hits / len(test)


@dataclasses.dataclass(frozen=True)
class Leakage:
    """What of part `seen` (say train) is in part `judged` (say test); the rates are from 0 to 1.

    `bslr_over_test` averages over the subjects of the judged part, `bslr_over_all` over all subjects. `tslr` and
    `shared_texts` have one entry per way of comparing texts, named by it.
    """

    seen: str
    judged: str
    shared_subjects: list[str]
    bslr_over_test: float
    bslr_over_all: float
    shared_texts: dict[str, int]
    tslr: dict[str, float]


def text_keys(readings: Readings) -> dict[str, np.ndarray]:
    """What makes two samples the same text, by the name of the comparison; object arrays `[N]`."""
    keys = {SENTENCE_ID: readings.sentence_id}
    if readings.text is not None:
        for name, function in NORMALIZATIONS.items():
            known = {text: function(text) for text in set(readings.text.tolist())}
            keys[name] = np.array([known[text] for text in readings.text], object)
    return keys


def assess_leakage(readings: Readings, parts: dict[str, np.ndarray]) -> list[Leakage]:
    """Every pair of `PAIRS`: shared subjects and texts, and both rates."""
    keys = text_keys(readings)
    n_subjects = len(set(readings.subject))
    found = []
    for seen, judged in PAIRS:
        a, b = parts[seen], parts[judged]
        subjects = readings.subject
        found.append(
            Leakage(
                seen=seen,
                judged=judged,
                shared_subjects=sorted(set(subjects[a]) & set(subjects[b])),
                bslr_over_test=leakage_rate(subjects[a], subjects[b]),
                bslr_over_all=leakage_rate(subjects[a], subjects[b], n_subjects),
                shared_texts={name: len(set(key[a]) & set(key[b])) for name, key in keys.items()},
                tslr={name: leakage_rate(key[a], key[b]) for name, key in keys.items()},
            )
        )
    return found
