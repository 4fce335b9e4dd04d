"""The table that an audit judges: aligned rows, and how a row is scored against the references of its stratum.

A new kind of evidence is a subclass of `Table` and a function that makes it, as in `text_table` and `rank_table`.
"""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.collapse import Collapse
from eeg2text_jax.auditing.content_cells import ContentTable, RowTable
from eeg2text_jax.auditing.contrast import Contrast, Evidence
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.levels import Level
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.side_channel import SideChannel
from eeg2text_jax.auditing.verdict import Verdict
from eeg2text_jax.metrics.ranks import Figures


@dataclasses.dataclass(frozen=True)
class ConditionSummary:
    """The score of one condition, how much of it is content, and a description of its predictions."""

    name: str
    rows: int
    content: Contrast
    derived: dict[str, Contrast]  # the source of other strata -> content within them
    side_channel: SideChannel
    collapse: Collapse | None = None  # description of predicted texts
    figures: Figures | None = None  # scores of rankings

    @property
    def p(self) -> float:
        """The largest p of the content: of the strata of the alignment and all other strata."""
        return max(c.p_primary for c in (self.content, *self.derived.values()))


@dataclasses.dataclass(frozen=True)
class Example:
    """A reference and what each condition predicted for it, shown in the report."""

    reference: str
    subject: str
    predictions: tuple[str, ...]  # EEG first
    best: bool  # whether the row has one of the highest scores; otherwise it was drawn at random


@dataclasses.dataclass(frozen=True)
class Table(abc.ABC):
    """Aligned conditions, and the endpoints that score their rows."""

    aligned: Aligned
    endpoint: Endpoint  # decides the verdict
    plain: Endpoint  # scores rows for warnings and for the length side channel
    secondary: tuple[Endpoint, ...]  # computed, but do not decide

    @abc.abstractmethod
    def describe(self, condition: Condition, cells: ContentTable, rng: np.random.Generator) -> dict[str, Any]:
        """Return the fields of `ConditionSummary` that only this kind of predictions has."""

    @abc.abstractmethod
    def signs(
        self, conditions: Sequence[ConditionSummary], *, averaged: bool, choices: Sequence[str] = ()
    ) -> list[Flag]:
        """Return findings that bar a verdict, such as signs of the target in the predictions.

        Args:
          conditions: summaries of the conditions, EEG first.
          averaged: whether, as the authors state, one prediction was made for all readers of a sentence.
          choices: the sentences that the decoder chose from, as the authors state.
        """

    @abc.abstractmethod
    def warnings(
        self, conditions: Sequence[ConditionSummary], cells: Sequence[ContentTable], evidence: Sequence[Evidence]
    ) -> list[Flag]:
        """Return findings that do not change the verdict; `cells` has each condition under the endpoint `plain`."""

    @abc.abstractmethod
    def in_figures(self, found: Evidence, outcome: Verdict) -> str:
        """Return the scores, difference and p of a comparison in words; p is for less content if *control better*."""

    def same_predictions(self, control: str) -> bool:
        """Return whether a control has exactly the predictions of EEG."""
        return False

    def content_is_about(self, levels: Sequence[Level], control: str) -> str:
        """Return in words whether the content beyond a control tells sentences or groups; "" if not measured."""
        return ""

    def examples(self, rows: RowTable, rng: np.random.Generator) -> list[Example]:
        """Return rows to show in the report; `rows` are the scores of EEG's rows."""
        return []

    def fields(self) -> dict[str, Any]:
        """Return fields of `AuditResult` that only this kind of table has."""
        return {}
