"""The table that an audit judges: aligned rows, and how each is scored against the references of its stratum.

A new kind of evidence is a subclass of `Table` and a function that makes it: `text_table` and `rank_table` do so.
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
    """One condition: its score, how much of it is content, and a description of its predictions.

    `derived` is the content within strata that replace unknown tasks. `collapse` describes texts, `figures` rankings.
    """

    name: str
    rows: int
    content: Contrast
    derived: dict[str, Contrast]
    side_channel: SideChannel
    collapse: Collapse | None = None
    figures: Figures | None = None

    @property
    def p(self) -> float:
        """The largest p of the content over all strata."""
        return max(c.p_primary for c in (self.content, *self.derived.values()))


@dataclasses.dataclass(frozen=True)
class Example:
    """Predictions of every condition for one row of EEG and the row of each control beside it."""

    reference: str
    subject: str
    predictions: tuple[str, ...]
    best: bool  # among the highest-scoring rows; the others were drawn at random


@dataclasses.dataclass(frozen=True)
class Table(abc.ABC):
    """Sentences with their strata, subjects and rows (`aligned`), and the endpoints that score them.

    `endpoint` decides. `plain` is the endpoint of warnings and of the length side channel. `secondary` endpoints are
    computed, too, and do not decide.
    """

    aligned: Aligned
    endpoint: Endpoint
    plain: Endpoint
    secondary: tuple[Endpoint, ...]

    @abc.abstractmethod
    def describe(self, condition: Condition, cells: ContentTable, rng: np.random.Generator) -> dict[str, Any]:
        """Return the fields of `ConditionSummary` that describe predictions of this kind."""

    @abc.abstractmethod
    def signs(
        self, conditions: Sequence[ConditionSummary], *, averaged: bool, choices: Sequence[str] = ()
    ) -> list[Flag]:
        """Return findings that bar a verdict.

        `averaged`: one prediction was made for all readers of a sentence. `choices`: the sentences that a decoder of
        texts chose from, as its authors state.
        """

    @abc.abstractmethod
    def warnings(
        self, conditions: Sequence[ConditionSummary], cells: Sequence[ContentTable], evidence: Sequence[Evidence]
    ) -> list[Flag]:
        """Return findings of this kind that do not change the verdict; `cells` are by `plain`."""

    @abc.abstractmethod
    def in_figures(self, found: Evidence, outcome: Verdict) -> str:
        """Describe one comparison in figures; p is for the direction of the verdict."""

    def same_predictions(self, control: str) -> bool:
        """Return whether a control has exactly the predictions of EEG."""
        return False

    def content_is_about(self, levels: Sequence[Level], control: str) -> str:
        """Return what the content is about (sentence or group); "" if this kind cannot tell."""
        return ""

    def examples(self, rows: RowTable, rng: np.random.Generator) -> list[Example]:
        return []

    def fields(self) -> dict[str, Any]:
        """Return further fields of `AuditResult`."""
        return {}
