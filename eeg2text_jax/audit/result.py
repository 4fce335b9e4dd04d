"""What an audit found; everything that the report prints."""

import dataclasses
import math
from typing import Any

import numpy as np

from eeg2text_jax.audit.collapse import Collapse
from eeg2text_jax.audit.contrast import Contrast
from eeg2text_jax.audit.likelihood import EegBits
from eeg2text_jax.audit.red_flags import Flag
from eeg2text_jax.audit.retrieval import Retrieval
from eeg2text_jax.audit.side_channel import SideChannel
from eeg2text_jax.audit.subjects import SubjectEffect
from eeg2text_jax.audit.verdict import EXIT_STATUS, Verdict


@dataclasses.dataclass(frozen=True)
class Secondary:
    """A figure that does not decide. Scores are as the metric prints them; in all else, higher is better."""

    label: str
    signature: str
    scores: tuple[float, ...]
    gap_interval: tuple[float, float]
    effect: float
    interval: tuple[float, float]
    p: float
    p_holm: float


@dataclasses.dataclass(frozen=True)
class Evidence:
    """EEG against one control; `control` is empty where there is none.

    `primary` is within the strata that the file gives. `derived` are the same by what strata were derived from, where
    tasks are not known: a claim must hold under all of them.
    """

    control: str
    primary: Contrast
    derived: dict[str, Contrast]
    secondary: list[Secondary]
    subjects: list[SubjectEffect]


@dataclasses.dataclass(frozen=True)
class Comparison(Evidence):
    """What the evidence comes to."""

    verdict: Verdict
    sentence: str


@dataclasses.dataclass(frozen=True)
class ConditionSummary:
    """One condition on its own: its score, what of it is content, and how its text looks."""

    name: str
    content: Contrast
    derived: dict[str, Contrast]  # the content under strata derived in the stead of unknown tasks
    collapse: Collapse
    side_channel: SideChannel

    @property
    def p(self) -> float:
        """Of the content: the largest p, under whichever strata."""
        return max(c.p_primary for c in (self.content, *self.derived.values()))


@dataclasses.dataclass(frozen=True)
class Example:
    """Predictions of every condition for one row of EEG and the row of each control beside it."""

    reference: str
    subject: str
    predictions: tuple[str, ...]
    best: bool  # among the highest-scoring rows; the others were drawn at random


@dataclasses.dataclass(frozen=True)
class AuditResult:
    """Everything the report prints. `to_json` is the same without the arrays."""

    verdict: Verdict
    sentence: str
    metric: str
    signature: str
    mode: str
    margin: float
    resamples: int
    seed: int
    n_rows: int
    n_sentences: int
    n_subjects: int
    n_strata: int
    task_known: bool
    seeds: tuple[int, ...]
    design_effect: float
    conditions: list[ConditionSummary]
    comparisons: list[Comparison]
    bits: list[EegBits]
    retrieval: list[Retrieval]
    flags: list[Flag]
    notes: list[str]
    examples: list[Example]

    @property
    def deciding(self) -> Comparison:
        """The comparison that the overall verdict rests on."""
        return next(c for c in self.comparisons if c.verdict is self.verdict)

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; draws are left out and NaN becomes null."""
        return {**_plain(self), "exit_status": self.exit_status}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _plain(item) for name, item in fields.items() if not isinstance(item, np.ndarray)}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Verdict):
        return value.value
    return None if isinstance(value, float) and not math.isfinite(value) else value
