"""LATTEScore by speaker, decisions that follow from it, and how it goes with human judgement (the paper's Table 5)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from eeg2text_jax.judge.thresholds import DRAWS, members_of

# A model is accepted for a speaker from these on: word accuracy, meaning preserved by people's ratings and by the
# judge's (Tomanek et al. 2023, section 5).
BARS = {"word_accuracy": 80.0, "human": 70.0, "latte": 70.0}


@dataclasses.dataclass(frozen=True)
class Utterances:
    """What is known of some utterances, each `[N]`; exact ones count as preserved."""

    speaker: Sequence[str]
    sentence: Sequence[str]  # what the bootstrap draws
    edits: np.ndarray  # words replaced, deleted and inserted
    words: np.ndarray  # of the ground truth
    preserved: np.ndarray | None  # by people; None where nobody said
    score: np.ndarray  # s of the judge, 1 where nothing was transcribed wrongly
    threshold: float


class Speaker(NamedTuple):
    """One line of the table; percentages."""

    name: str
    n: int
    word_accuracy: float
    human: float | None
    latte: float
    latte_mean: float

    def decisions(self) -> dict[str, bool | None]:
        """Whether the model would be accepted for this speaker, by each figure."""
        found = {"word_accuracy": self.word_accuracy, "human": self.human, "latte": self.latte}
        return {name: None if value is None else value >= BARS[name] for name, value in found.items()}


def decided(figures: Mapping[str, float]) -> dict[str, bool]:
    """Decisions from figures of a score by name: `wer` and `lattescore`, where they are there."""
    known = {}
    if "wer" in figures:
        known["word_accuracy"] = 100.0 - min(100.0, figures["wer"])
    if "lattescore" in figures:
        known["latte"] = figures["lattescore"]
    return {name: value >= BARS[name] for name, value in known.items()}


def by_speaker(found: Utterances) -> list[Speaker]:
    """One line for each speaker, in order of first appearance."""
    names = list(dict.fromkeys(found.speaker))
    return [_speaker(name, found, rows) for name, rows in zip(names, members_of(found.speaker), strict=True)]


def _speaker(name: str, found: Utterances, rows: np.ndarray) -> Speaker:
    human = None if found.preserved is None else 100.0 * float(found.preserved[rows].mean())
    score = found.score[rows]
    return Speaker(
        name,
        len(rows),
        word_accuracy(found.edits[rows], found.words[rows]),
        human,
        100.0 * float((score >= found.threshold).mean()),
        100.0 * float(score.mean()),
    )


def word_accuracy(edits: np.ndarray, words: np.ndarray) -> float:
    """100 minus the word error rate of some utterances together, 0 at the least."""
    return 100.0 - min(100.0, 100.0 * float(edits.sum()) / max(float(words.sum()), 1.0))


class Agreement(NamedTuple):
    """How a figure goes with human ratings over speakers; None where it is undefined."""

    pearson: float | None
    spearman: float | None
    mean_gap: float
    same_decisions: int
    speakers: int


def agreement(figures: Sequence[float], human: Sequence[float], bar: float, human_bar: float) -> Agreement:
    """Correlations, the mean absolute gap in points, and on how many speakers both decide alike."""
    a, b = np.asarray(figures, float), np.asarray(human, float)
    alike = int(((a >= bar) == (b >= human_bar)).sum())
    if len(a) < 3 or a.std() == 0 or b.std() == 0:
        return Agreement(None, None, float(np.abs(a - b).mean()), alike, len(a))
    pearson, spearman = (float(of(a, b).statistic) for of in (stats.pearsonr, stats.spearmanr))
    return Agreement(pearson, spearman, float(np.abs(a - b).mean()), alike, len(a))


def agreements(table: Sequence[Speaker]) -> dict[str, Agreement]:
    """How LATTEScore and word accuracy go with human ratings; empty where there are none."""
    rated = [line for line in table if line.human is not None]
    if not rated:
        return {}
    human = [line.human for line in rated]
    return {
        name: agreement([getattr(line, name) for line in rated], human, BARS[name], BARS["human"])
        for name in ("latte", "word_accuracy")
    }


def intervals(found: Utterances) -> Mapping[str, tuple[float, float]]:
    """95 % interval of each speaker's LATTEScore, from a bootstrap over the sentences of that speaker."""
    rng, limits = np.random.default_rng(0), {}
    for name, rows in zip(dict.fromkeys(found.speaker), members_of(found.speaker), strict=True):
        groups = members_of([found.sentence[row] for row in rows])
        yes = (found.score[rows] >= found.threshold).astype(float)
        sums, counts = np.array([yes[g].sum() for g in groups]), np.array([len(g) for g in groups])
        drawn = rng.integers(len(groups), size=(DRAWS, len(groups)))
        low, high = np.quantile(100.0 * sums[drawn].sum(1) / counts[drawn].sum(1), [0.025, 0.975])
        limits[name] = float(low), float(high)
    return limits
