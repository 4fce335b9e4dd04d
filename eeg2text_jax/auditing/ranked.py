"""Rankings in the audit: does the recording tell which sentence was read?

For the endpoint top-5, cell (s, t) is how often sentence t is among the five best candidates for recordings of sentence
s. The null is how often another sentence of the same stratum is among them.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.signs import Sign, Weight
from eeg2text_jax.auditing.table import Scorer
from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.metrics.ranks import TOP, Figures, RankMetric, by_length, chance, chance_interval, right_statistics
from eeg2text_jax.predictions.rankings import Ranking
from eeg2text_jax.study.metric_names import WHICH_SENTENCE

MIN_CANDIDATES = 4  # scores of fewer candidates may tie by chance
ALL_ROWS = 0.99
MIN_SENTENCES, SAME = 10, 0.5  # sentences with several readings, and the share of them whose scores are all the same


@dataclasses.dataclass(frozen=True)
class RankFigures:
    """What is printed of rankings: the numbers of candidates, chance, and a baseline that knows only lengths."""

    candidates: tuple[int, int]  # fewest and most candidates of a recording
    chance: float  # score by chance, in percent
    chance_interval: tuple[float, float]  # holds 95 % of scores by chance, in percent
    by_length: Figures  # scores of a baseline that knows only the number of words


def rank_endpoint(aligned: Aligned, name: object) -> tuple[Endpoint, int]:
    """Return the endpoint `name` of `WHICH_SENTENCE`, and its column in `RankMetric`.

    Raises:
      UserError: the endpoint does not exist, or a control has texts instead of rankings.
    """
    if not isinstance(name, str) or name not in WHICH_SENTENCE:
        names = ", ".join(WHICH_SENTENCE)
        raise UserError(
            f"--endpoint={name}: for rankings, expected one of {names}; {did_you_mean(str(name), WHICH_SENTENCE)}"
        )
    for condition in aligned.conditions:
        if not all(isinstance(row, Ranking) for row in condition.rows):
            raise UserError(
                f"{condition.name}: holds no rankings, but {aligned.eeg.name} does; give rankings only, or decoded "
                "text only."
            )
    metric, found = RankMetric(), WHICH_SENTENCE[name]
    return Endpoint(found.label, lambda _: _no_texts, found.margin, metric.signature), metric.columns.index(name)


def _no_texts(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    raise UserError("rankings hold no texts to score.")


def rank_scorer(column: int) -> Scorer:
    """Return a scorer of rankings: column `column` of `RankMetric` in percent, for each candidate sentence."""
    metric = RankMetric()

    def scores(condition: Condition, rows: np.ndarray, references: Sequence[str]) -> np.ndarray:
        return metric.corpus(metric.pairwise([condition.rows[row] for row in rows.tolist()], references))[..., column]

    return scores


def _rows(condition: Condition) -> list[Ranking]:
    return [row for row in condition.rows if isinstance(row, Ranking)]


def figures_of(condition: Condition) -> Figures:
    """Return top-1, top-5 and mean percentile rank of a condition's rows."""
    rows = _rows(condition)
    return Figures.of(right_statistics(rows, [row.scores for row in rows]).sum(0))


def rank_figures(aligned: Aligned, column: int) -> RankFigures:
    """Return chance level and baseline of the endpoint in column `column` of `RankMetric`."""
    rows = _rows(aligned.eeg)
    sizes = [len(row.candidates) for row in rows]
    level, interval = _chance(sizes, column, len(aligned.references))
    lengths = Figures.of(right_statistics(rows, [by_length(row) for row in rows]).sum(0))
    return RankFigures((min(sizes), max(sizes)), level, interval, lengths)


def _chance(sizes: Sequence[int], column: int, sentences: int) -> tuple[float, tuple[float, float]]:
    """Return the chance level in percent, and the 95 % interval of a score by chance on `sentences` sentences."""
    if column >= len(TOP):  # the endpoint "rank": the percentile of a random rank is uniform, with mean 50
        reach = 1.96 * 100 / np.sqrt(12 * sentences)
        return 50.0, (50 - reach, 50 + reach)
    level = chance(sizes, TOP[column])
    low, high = chance_interval(level, sentences)
    return 100 * level, (100 * low, 100 * high)


def rank_signs(eeg: Condition, *, averaged: bool) -> list[Sign]:
    """Return signs that scores hold the answer, or (unless they are `averaged`) not of the individual recording."""
    return [*_answer_alone(eeg), *([] if averaged else _same_for_all(eeg))]


def _answer_alone(condition: Condition) -> list[Sign]:
    """Return a sign if all candidates except the right one have equal scores."""
    rows = [row for row in _rows(condition) if len(row.scores) >= MIN_CANDIDATES]
    others = [np.delete(row.scores, row.right) for row in rows]
    marked = sum(o.min() == o.max() < row.scores[row.right] for o, row in zip(others, rows, strict=True))
    if not rows or marked < ALL_ROWS * len(rows):
        return []
    message = f"in {marked} of {len(rows)} rows all candidates but the right one have the same score"
    return [Sign("target_scores", Weight.CONTRADICTED, message, ())]


def _same_for_all(condition: Condition) -> list[Sign]:
    """Return a sign if all recordings of a sentence have the same scores: the recording plays no part."""
    by_sentence: dict[int, list[bytes]] = {}
    for s, row in zip(condition.sentence.tolist(), _rows(condition), strict=True):
        by_sentence.setdefault(s, []).append(row.scores.tobytes())
    several = [set(scores) for scores in by_sentence.values() if len(scores) > 1]
    alike = sum(len(scores) == 1 for scores in several)
    distinct = len(set().union(*several))
    if len(several) < MIN_SENTENCES or alike <= SAME * len(several) or distinct <= SAME * alike:
        return []
    message = f"in {alike} of the {len(several)} sentences with several readings all readings have the same scores"
    return [Sign("input_independent", Weight.CONTRADICTED, message, ())]
