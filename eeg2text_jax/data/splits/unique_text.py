"""`unique_text`: a text is in one part only, whoever read it and in whichever task."""

import unicodedata

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.splits.split import PARTS, Split, part_sizes


def normalize(text: str) -> str:
    """Letters and digits of a text, case-folded: what makes two texts the same for a split."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def unique_text(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Shuffles the distinct normalized texts and cuts them at `ratio`; every reading follows its text."""
    texts, group = np.unique([normalize(text) for text in data.sentence], return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(texts))
    bounds = np.cumsum(part_sizes(len(texts), ratio))[:-1]
    parts = {
        name: np.flatnonzero(np.isin(group, chosen))
        for name, chosen in zip(PARTS, np.split(order, bounds), strict=True)
    }
    return Split("unique_text", seed, parts)
