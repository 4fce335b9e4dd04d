"""The table of rankings: does the recording tell which sentence was read? Its findings, and its figures in words.

For the endpoint top-5, cell (s, t) is how often sentence t is among the five best candidates for recordings of sentence
s. The null is how often another sentence of the same task and similar length is among them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.content_cells import ContentTable
from eeg2text_jax.auditing.contrast import Evidence
from eeg2text_jax.auditing.endpoints import rank_endpoints
from eeg2text_jax.auditing.plain_rows import ALL_ROWS, MIN_SAME
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.structure import SAME_ERRORS
from eeg2text_jax.auditing.table import ConditionSummary, Table
from eeg2text_jax.auditing.verdict import Verdict, both_p, derived_text, exchanged, interval_text, is_above
from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.ranks import TOP, Figures, by_length, chance, chance_interval, right_statistics
from eeg2text_jax.predictions.rankings import Ranking

MIN_CANDIDATES = 4  # scores of fewer candidates may tie by chance
FOUND_FROM_EEG = 50.0  # percent of recordings whose sentence is ranked first: more than is published for reading


def rank_table(aligned: Aligned, endpoint: str = "top-5") -> "RankTable":
    """Return the rankings, and how they are scored, for an audit; `endpoint` is a name in `WHICH_SENTENCE`.

    Raises:
      UserError: the endpoint does not exist, or a control has texts instead of rankings.
    """
    for condition in aligned.conditions:
        if not all(isinstance(row, Ranking) for row in condition.rows):
            raise UserError(
                f"{condition.name}: holds no rankings, but {aligned.eeg.name} does; give rankings only, or decoded "
                "text only."
            )
    chosen, *others = rank_endpoints(endpoint)
    rows = [row for row in aligned.eeg.rows if isinstance(row, Ranking)]
    sizes = [len(row.candidates) for row in rows]
    level, interval = _chance(sizes, chosen.column, len(aligned.references))
    lengths = Figures.of(right_statistics(rows, [by_length(row) for row in rows]).sum(0))
    return RankTable(aligned, chosen, chosen, tuple(others), (min(sizes), max(sizes)), level, interval, lengths)


def _chance(sizes: Sequence[int], column: int, sentences: int) -> tuple[float, tuple[float, float]]:
    """Return the chance level in percent, and the 95 % interval of a score by chance on `sentences` sentences.

    `sizes` are numbers of candidates; `column` is the endpoint's column in `RankMetric`.
    """
    if column >= len(TOP):  # the endpoint "rank": the percentile of a random rank is uniform, with mean 50
        reach = 1.96 * 100 / np.sqrt(12 * sentences)
        return 50.0, (50 - reach, 50 + reach)
    level = chance(sizes, TOP[column])
    low, high = chance_interval(level, sentences)
    return 100 * level, (100 * low, 100 * high)


@dataclasses.dataclass(frozen=True)
class RankTable(Table):
    """Rankings of candidate sentences, scored by the rank of the sentence that was read."""

    candidates: tuple[int, int]  # fewest and most candidates of a recording
    chance: float  # score by chance, in percent
    chance_interval: tuple[float, float]  # holds 95 % of scores by chance, in percent
    by_length: Figures  # scores of a baseline that knows only the number of words

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("candidates", "chance", "chance_interval", "by_length")}

    def describe(self, condition: Condition, cells: ContentTable, rng: np.random.Generator) -> dict[str, Any]:
        return {"figures": Figures.of(cells.rows.own.sum(0))}

    def signs(
        self, conditions: Sequence[ConditionSummary], *, averaged: bool, choices: Sequence[str] = ()
    ) -> list[Flag]:
        return _answer_alone(self.aligned.eeg) + ([] if averaged else _same_for_all(self.aligned.eeg))

    def warnings(
        self, conditions: Sequence[ConditionSummary], cells: Sequence[ContentTable], evidence: Sequence[Evidence]
    ) -> list[Flag]:
        """Return warnings about scores above chance without content, and about scores that are too good."""
        flags = []
        label, high = self.endpoint.label, self.chance_interval[1]
        lengths = dataclasses.astuple(self.by_length)[self.endpoint.column]
        eeg, *controls = conditions
        scores = [condition.content.scores[0] for condition in conditions]
        if scores[0] > high and not all(is_above(found.primary) for found in evidence):
            others = ", ".join(f"{c.name} {c.content.scores[0]:.1f}" for c in controls) or "there is no control"
            message = (
                f"{label} of {eeg.name}, {scores[0]:.1f} %, is above chance ({self.chance:.1f} %), which shows nothing "
                f"by itself ({others}; a baseline that knows only the number of words has {lengths:.1f} %)"
            )
            flags.append(Flag("above_chance_is_no_content", "warning", message))
        for control, score in zip(controls, scores[1:], strict=True):
            if "length" in control.name and score > high:
                message = (
                    f"{control.name} has {score:.1f} % {label} (chance {self.chance:.1f} %): the number of words tells "
                    "sentences apart, so a score above chance may come from it alone"
                )
                flags.append(Flag("length_tells", "warning", message))
        if eeg.figures.top1 > FOUND_FROM_EEG:
            message = (
                f"{eeg.name}: the right sentence is first in {eeg.figures.top1:.1f} % of the rows, beyond anything "
                "published for reading; make sure that no answer reached the scores and that test sentences are not in "
                "training"
            )
            flags.append(Flag("too_good", "warning", message))
        return flags

    def in_figures(self, found: Evidence, outcome: Verdict) -> str:
        aligned, primary = self.aligned, found.primary
        less = outcome is Verdict.CONTROL_BETTER
        among = " to ".join(map(str, dict.fromkeys(self.candidates)))
        with_control = f" and {primary.scores[1]:.1f} % with {found.control}" if found.control else ""
        beyond = "content difference (content: " if found.control else "content ("
        return (
            f"which of {among} sentences was read ({len(aligned.references)} independent sentences, "
            f"{len(aligned.eeg.rows)} rows): {self.endpoint.label} was {primary.scores[0]:.1f} % with "
            f"{aligned.eeg.name}{with_control}, by chance {self.chance:.1f} %; the {beyond}how much more often the "
            f"sentence that was read is found than others of {exchanged(aligned.task_known)}) was "
            f"{primary.effect:+.1f} points (90 % CI {interval_text(primary.interval_90)}; sentence permutation, "
            f"one-sided: {both_p(primary, less)}){derived_text(found.derived, less)}"
        )


def _answer_alone(condition: Condition) -> list[Flag]:
    """Return a finding if all candidates except the right one have equal scores."""
    rows = [row for row in condition.rows if isinstance(row, Ranking) and len(row.scores) >= MIN_CANDIDATES]
    others = [np.delete(row.scores, row.right) for row in rows]
    marked = sum(o.min() == o.max() < row.scores[row.right] for o, row in zip(others, rows, strict=True))
    if not rows or marked < ALL_ROWS * len(rows):
        return []
    message = (
        f"{condition.name}: in {marked} of {len(rows)} rows all candidates but the right one have the same score: the "
        "scores hold the answer and no ranking"
    )
    return [Flag("target_scores", "severe", message, (condition.name,))]


def _same_for_all(condition: Condition) -> list[Flag]:
    """Return a finding if all recordings of a sentence have the same scores: the recording plays no part."""
    scores = [row.scores.tobytes() for row in condition.rows if isinstance(row, Ranking)]
    several = [{scores[row] for row in rows} for rows in condition.by_sentence() if len(rows) > 1]
    alike = sum(len(found) == 1 for found in several)
    distinct = len(set().union(*several))
    if len(several) < MIN_SAME or alike <= SAME_ERRORS * len(several) or distinct <= SAME_ERRORS * alike:
        return []
    message = (
        f"{condition.name}: in {alike} of the {len(several)} sentences with several readings the scores are "
        "the same in all of them: the individual recording plays no part"
    )
    return [Flag("input_independent", "severe", message, (condition.name,))]
