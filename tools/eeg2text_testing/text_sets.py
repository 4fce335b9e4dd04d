"""Prediction sets of real or template text whose truth is known: what is drawn at random, and words planted in it.

Shapes: `S` references, `R` rows.
"""

import collections
import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eeg2text_jax.judge.templates import SLOTS, TOY_SENTENCE, sentences
from eeg2text_jax.predictions.read import read_any

POOL = ("t5_sr-nr-tsr_eeg-eeg", "t5_sr-nr-tsr_noise-noise")
STYLE = ("bart_sr-nr-nrv2_noise",)
CONTROLS = ("alike", "constant", "style")


@dataclasses.dataclass(frozen=True)
class World:
    """What predictions are drawn from, and the rows `R` that they are drawn for; `S` references."""

    references: list[str]
    sentence: np.ndarray  # int [R]
    readings: list[list[str]]  # of each sentence of the pool
    style: list[str]  # texts of another style
    shares: tuple[float, ...]  # of places that get a word of the own reference
    in_place: bool  # that word is the one at the same place, or any

    def planted(self, text: str, reference: str, share: float, rng: np.random.Generator) -> str:
        """The text with words of the reference in a share of its places."""
        own = reference.split()
        words = [
            (own[min(i, len(own) - 1)] if self.in_place else own[rng.integers(len(own))])
            if rng.random() < share
            else word
            for i, word in enumerate(text.split())
        ]
        return " ".join(words)


def released(folder: Path) -> World:
    """The texts and rows of released outputs."""

    def read(names: Sequence[str]) -> list:
        rows = [row for name in names for row in read_any(folder / f"{name}.txt").predictions]
        return [row for row in rows if row.mode != "teacher_forced" and row.prediction.strip()]

    held, groups = read(POOL[:1]), collections.defaultdict(list)
    for row in read(POOL):
        groups[row.reference].append(row.prediction)
    references = list(dict.fromkeys(row.reference for row in held))
    sentence = np.array([references.index(row.reference) for row in held])
    style = list(dict.fromkeys(row.prediction for row in read(STYLE)))
    return World(references, np.sort(sentence), list(groups.values()), style, (0.01, 0.02, 0.03, 0.1), False)


def templates(n: int = 112, seed: int = 0) -> World:
    """Template sentences: predictions share slots with other sentences by chance, as they are few."""
    rng = np.random.default_rng(seed)
    drawn = random.Random(seed)

    def sentence_at_random() -> str:
        return TOY_SENTENCE.format(**{name: drawn.choice(words) for name, words in SLOTS.items()})

    references = list(dict.fromkeys(sentence_at_random() for _ in range(4 * n)))[:n]
    sentence = np.repeat(np.arange(n), rng.integers(4, 19, n))
    pool = [[sentence_at_random() for _ in range(12)] for _ in range(n)]
    style = list(sentences(n, seed))
    return World(references, sentence, pool, style, (0.02, 0.05, 0.1, 0.2, 0.3), True)


class Pool:
    """The texts of a world by number, and how they are drawn."""

    def __init__(self, world: World):
        self.world = world
        self.texts = list(dict.fromkeys([*(text for group in world.readings for text in group), *world.style]))
        number = {text: i for i, text in enumerate(self.texts)}
        self.readings = [np.array([number[text] for text in group]) for group in world.readings]
        self.every = np.concatenate(self.readings)
        self.style = np.array([number[text] for text in world.style])

    def drawn(self, whole: bool, rng: np.random.Generator) -> np.ndarray:
        """A text for every row: one by one, or those of one random sentence for all rows of a sentence."""
        rows = self.world.sentence
        if not whole:
            return rng.choice(self.every, len(rows))
        parts = [rng.choice(self.readings[rng.integers(len(self.readings))], n) for n in np.bincount(rows)]
        return np.concatenate(parts)

    def control(self, name: str, whole: bool, rng: np.random.Generator) -> np.ndarray:
        """A text for every row, of one of CONTROLS."""
        n = len(self.world.sentence)
        if name == "alike":
            return self.drawn(whole, rng)
        return np.full(n, rng.choice(self.every)) if name == "constant" else rng.choice(self.style, n)
