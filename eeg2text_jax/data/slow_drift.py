"""Slow drift of made-up recordings, and the order in which sentences are shown."""

import numpy as np

ORDERS = ("random", "blocks", "same_for_all")  # values of data.synthetic.order
WORD_SECONDS, PAUSE = 0.4, 1.6  # of a word; between sentences
SLOWEST = 0.05  # Hz, above which there is no drift
SOURCES = 6  # slow components that all features mix
POPS_PER_MINUTE, POP_SIZE, POP_SECONDS = 0.5, 3.0, 60.0  # electrode pops: how often, how large, how long
REFERENCE = 0.5  # standard deviation of a recording's constant shift, as after a new reference


def shown_in(order: str, group: np.ndarray, seed: list[int]) -> np.ndarray:
    """Sentences of a recording in the order in which they are shown, int `[n]`.

    Args:
      order: one of `ORDERS`: groups in blocks, in an order of each recording; or all sentences in random order, of
        each recording or the same for all.
      group: of each sentence, int `[n]`.
      seed: of the recording; `same_for_all` takes its first two numbers.
    """
    rng = np.random.default_rng(seed[:2] if order == "same_for_all" else seed)
    shown = rng.permutation(len(group))
    if order == "blocks":
        rank = rng.permutation(group.max() + 1)
        shown = shown[np.argsort(rank[group[shown]], kind="stable")]
    return shown


def onsets_of(words: np.ndarray, shown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Onset and duration in seconds of each sentence, float64 `[n]`, from its number of words."""
    duration = WORD_SECONDS * words.astype(float)
    onset = np.empty(len(words))
    onset[shown] = np.concatenate([[0.0], np.cumsum(duration[shown] + PAUSE)[:-1]])
    return onset, duration


def drift(times: np.ndarray, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Drift of a recording at some times in seconds, float64 `[T, F]`, of variance about 1 but for pops.

    Sources have a power of 1/f below `SLOWEST` and none above; features mix them. Pops are jumps of one feature in ten
    that decay; the reference shifts the whole recording.
    """
    seconds = float(times.max()) + 1
    frequency = np.arange(1, max(2, int(SLOWEST * 2 * seconds))) / (2 * seconds)
    size = 1 / np.sqrt(frequency)
    phase = rng.uniform(0, 2 * np.pi, (SOURCES, len(frequency)))
    angle = 2 * np.pi * frequency * times[:, None, None] + phase
    sources = (np.cos(angle) * size).sum(2) * np.sqrt(2 / np.sum(size**2))  # --> [T, SOURCES]
    found = sources @ rng.standard_normal((SOURCES, n_features)) / np.sqrt(SOURCES)
    for begin in rng.uniform(0, seconds, rng.poisson(POPS_PER_MINUTE * seconds / 60)):
        after = np.where(times >= begin, np.exp(-np.maximum(times - begin, 0) / POP_SECONDS), 0)
        found += POP_SIZE * after[:, None] * (rng.random(n_features) < 0.1) * rng.standard_normal(n_features)
    return found + REFERENCE * rng.standard_normal(n_features)
