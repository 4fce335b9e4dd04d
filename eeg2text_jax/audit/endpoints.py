"""Which figures the audit judges by: one named beforehand, the rest secondary."""

import dataclasses

import numpy as np

from eeg2text_jax.metrics.bleu import word_bleu
from eeg2text_jax.metrics.error_rates import word_error_rate
from eeg2text_jax.metrics.rouge import rouge
from eeg2text_jax.metrics.statistics import Metric


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """One column of a metric, turned so that higher is better."""

    label: str
    metric: Metric
    column: int

    @property
    def sign(self) -> int:
        return -1 if self.metric.lower_is_better else 1

    def score(self, totals: np.ndarray) -> np.ndarray:
        """Score `[...]` of summed statistics `[..., K]`.

        A resampled share of the null may lie a little below 0 where next to nothing matches; it counts as 0.
        """
        return self.sign * self.metric.corpus(np.maximum(totals, 0))[..., self.column]


def primary_endpoint() -> Endpoint:
    """Word BLEU-1: the margin is in its points."""
    return Endpoint("BLEU-1", word_bleu(), 0)


def secondary_metrics() -> list[tuple[Metric, dict[str, int]]]:
    """Metrics computed apart from the primary one, with the columns judged."""
    summaries, errors = rouge(), word_error_rate()
    columns = {"ROUGE-1 F": "rouge-1-f", "ROUGE-L F": "rouge-l-f"}
    return [(errors, {"WER": 0}), (summaries, {label: summaries.columns.index(c) for label, c in columns.items()})]
