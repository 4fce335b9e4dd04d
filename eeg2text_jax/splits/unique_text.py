"""`unique_text`: a text is in one part only, whoever read it and in whichever task or release."""

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.splits.normalize import normalize
from eeg2text_jax.splits.shuffled import deal
from eeg2text_jax.splits.split import Split


def unique_text(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Shuffles the distinct normalized texts and cuts them at `ratio`; every reading follows its text."""
    texts = np.array([normalize(text) for text in data.sentence])
    return Split.of(data, "unique_text", seed, deal(texts, ratio, np.random.default_rng(seed)))
