"""Signs in rankings that only the right answer explains, and a warning for implausibly good rankings.

As in `structure`, no rule that bars a verdict depends on how often the right sentence is first.
"""

from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing.align import Condition
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.structure import ALL_ROWS, MIN_SAME, SAME_ERRORS

MIN_CANDIDATES = 4  # of fewer, scores tie by chance
FOUND_FROM_EEG = 50.0  # percent of recordings whose sentence is first: beyond what is published for reading


def rank_signs(condition: Condition, top1: float, *, averaged: bool = False) -> list[Flag]:
    """Return findings about the scores of one condition; `top1` is in percent.

    `averaged`: the authors state that one recording was averaged over all readers of a sentence.
    """
    found = _answer_alone(condition) + ([] if averaged else _same_for_all(condition))
    if top1 > FOUND_FROM_EEG:
        message = (
            f"{condition.name}: the right sentence is first in {top1:.1f} % of the rows, beyond anything published for "
            "reading; make sure that no answer reached the scores and that test sentences are not in training"
        )
        found.append(Flag("too_good", "warning", message))
    return found


def _answer_alone(condition: Condition) -> list[Flag]:
    """Flag scores that are equal for all candidates except the right one."""
    rows = [row for row in condition.rows if len(row.scores) >= MIN_CANDIDATES]
    marked = sum(_marks_the_answer(row.scores, row.right) for row in rows)
    if not rows or marked < ALL_ROWS * len(rows):
        return []
    message = (
        f"{condition.name}: in {marked} of {len(rows)} rows all candidates but the right one have the same score: the "
        "scores hold the answer and no ranking"
    )
    return [Flag("target_scores", "severe", message, (condition.name,))]


def _marks_the_answer(scores: np.ndarray, right: int) -> bool:
    others = np.delete(scores, right)
    return bool(others.min() == others.max() < scores[right])


def _same_for_all(condition: Condition) -> list[Flag]:
    """Flag identical score lists for all readings of a sentence: the recording plays no part."""
    readings: dict[int, list[bytes]] = {}
    for row, sentence in zip(condition.rows, condition.sentence.tolist(), strict=True):
        readings.setdefault(sentence, []).append(row.scores.tobytes())
    several = [scores for scores in readings.values() if len(scores) > 1]
    alike = sum(len(set(scores)) == 1 for scores in several)
    if len(several) < MIN_SAME or alike <= SAME_ERRORS * len(several) or _distinct(several) <= SAME_ERRORS * alike:
        return []
    message = (
        f"{condition.name}: in {alike} of the {len(several)} sentences with several readings the scores are "
        "the same in all of them: the individual recording plays no part"
    )
    return [Flag("input_independent", "severe", message, (condition.name,))]


def _distinct(several: Sequence[Sequence[bytes]]) -> int:
    return len({scores for found in several for scores in found})
