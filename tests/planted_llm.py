"""Planted recordings of short sentences, for runs of a small language model that learns to read them in seconds."""

from pathlib import Path

import numpy as np

WORDS, CLASS_WORDS, FEATURES = 5, 6, 16  # words of a sentence, of a class; features of a word
LETTERS = ("b", "d", "f", "g", "k", "l", "m", "n")


def write_planted(
    path: Path,
    *,
    sentences: int,
    classes: int,
    signal: bool,
    seed: int = 0,
    subjects: int = 2,
    system: int = 0,
    named: bool = False,
) -> str:
    """Write arrays (.npz) of sentences of `WORDS` random words; each class, which is the task, has words of its own.

    Args:
      signal: whether the features tell the word; else they are noise.
      system: of recording; another one mixes the words in another way, over the same sentences.
      named: every sentence begins with the two words of its class, and all others are words of any class.
    """
    rng = np.random.default_rng([seed, 0])
    vocabulary = [a + b for a in LETTERS for b in "aeiou"][: classes * CLASS_WORDS]
    chosen = rng.integers(CLASS_WORDS, size=(sentences, WORDS))
    classes_of = np.arange(sentences) % classes
    if named:
        chosen = rng.integers(2 * classes, len(vocabulary), size=(sentences, WORDS))
        chosen[:, :2] = 2 * classes_of[:, None] + (0, 1)
    else:
        chosen += CLASS_WORDS * classes_of[:, None]
    own = np.random.default_rng([seed, 1, system])
    latent = own.normal(size=(len(vocabulary), FEATURES))
    features = [latent[chosen] * signal + own.normal(size=(sentences, WORDS, FEATURES)) for _ in range(subjects)]
    text = [" ".join(vocabulary[word] for word in row) for row in chosen]
    np.savez(
        path,
        features=np.concatenate(features).astype(np.float32),
        mask=np.ones((subjects * sentences, WORDS), bool),
        sentence=np.array(text * subjects),
        subject=np.repeat([f"S{s}" for s in range(subjects)], sentences),
        task=np.array([f"class {c}" for c in classes_of] * subjects),
    )
    return str(path)
