"""Which sentences may stand in for each other: those of one task and nearly one length."""

from collections.abc import Sequence

import numpy as np

STRATUM_SIZE = 6


def length_strata(tasks: Sequence[str], n_words: Sequence[float], size: int = STRATUM_SIZE) -> np.ndarray:
    """Stratum of each sentence, int `[S]`: same task, neighbouring number of words.

    Binning rule: the sentences of a task are sorted by their number of words (ties keep the order given) and cut
    into `floor(n / size)` consecutive groups, at least one, whose sizes differ by at most one. With the default a
    stratum holds 6 to 11 sentences: small enough that a model which knows only the length of a sentence gains
    nothing, large enough that a random permutation moves 5 sentences of 6.
    """
    tasks, n_words = np.asarray(tasks), np.asarray(n_words, float)
    strata = np.empty(len(tasks), int)
    used = 0
    for task in np.unique(tasks):
        members = np.flatnonzero(tasks == task)
        members = members[np.argsort(n_words[members], kind="stable")]
        for group in np.array_split(members, max(1, len(members) // size)):
            strata[group] = used
            used += 1
    return strata


def exchangeable(strata: np.ndarray) -> np.ndarray:
    """Bool `[S]`: sentences that share their stratum with another one; the rest have no content null."""
    return np.bincount(strata)[strata] > 1
