"""The endpoints of the audit: scores of predictions, of which one decides the verdict."""

import dataclasses

import numpy as np

from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.metrics.bleu import word_bleu
from eeg2text_jax.metrics.error_rates import word_error_rate
from eeg2text_jax.metrics.metric import Metric
from eeg2text_jax.metrics.ranks import RankMetric
from eeg2text_jax.metrics.rouge import rouge
from eeg2text_jax.study.metric_names import BLEU_1, ENDPOINTS, WHICH_SENTENCE, Named


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """One column of a metric as a score; higher is better."""

    label: str
    metric: Metric
    column: int  # index in `metric.columns`
    margin: float = 1.0  # default of the smallest difference that matters, in points

    @property
    def sign(self) -> int:
        return -1 if self.metric.lower_is_better else 1

    @property
    def is_words(self) -> bool:
        """Whether this is word BLEU-1, the endpoint of warnings and of the side channel."""
        return self.label == ENDPOINTS[BLEU_1].label

    def score(self, totals: np.ndarray) -> np.ndarray:
        """Return the score `[...]` of summed statistics `[..., K]`.

        Resampled sums of the null may be slightly below the least value of a statistic; they are set to this value.
        """
        return self.sign * self.metric.corpus(np.maximum(totals, self.metric.least))[..., self.column]


def named(name: str, what: str = "--endpoint") -> Named:
    """Return label, metric, column and margin of the text endpoint `name`; `what` is the flag in the error message.

    Raises:
      UserError: the endpoint does not exist.
    """
    if name not in ENDPOINTS:
        raise UserError(f"{what}={name}: there is no such endpoint; {did_you_mean(name, ENDPOINTS)}")
    return ENDPOINTS[name]


def endpoint_of(name: str, metric: Metric) -> Endpoint:
    """Return the text endpoint `name` as a column of `metric`, which computes it."""
    found = named(name)
    return Endpoint(found.label, metric, metric.columns.index(found.figure), found.margin)


def primary_endpoint() -> Endpoint:
    """Return word BLEU-1, the default endpoint of texts."""
    return endpoint_of(BLEU_1, word_bleu())


def rank_endpoints(name: str) -> list[Endpoint]:
    """Return all endpoints of rankings, `name` first.

    Raises:
      UserError: the endpoint does not exist.
    """
    if name not in WHICH_SENTENCE:
        names = ", ".join(WHICH_SENTENCE)
        raise UserError(
            f"--endpoint={name}: for rankings, expected one of {names}; {did_you_mean(name, WHICH_SENTENCE)}"
        )
    metric = RankMetric()
    ordered = [name, *(other for other in WHICH_SENTENCE if other != name)]
    found = [(WHICH_SENTENCE[key], metric.columns.index(key)) for key in ordered]
    return [Endpoint(ranked.label, metric, column, ranked.margin) for ranked, column in found]


def secondary_endpoints(words: Endpoint) -> list[Endpoint]:
    """Return BLEU-4, WER, ROUGE-1 and ROUGE-L, which every audit of texts computes; `words` is word BLEU-1."""
    errors, summaries = word_error_rate(), rouge()
    columns = {"ROUGE-1 F": "rouge-1-f", "ROUGE-L F": "rouge-l-f"}
    overlaps = [Endpoint(label, summaries, summaries.columns.index(name)) for label, name in columns.items()]
    return [Endpoint("BLEU-4", words.metric, 3), Endpoint("WER", errors, 0), *overlaps]
