"""The metric interface: statistics of each sample, and corpus scores from the sum of these statistics.

A bootstrap or permutation test sums rows of statistics again, and does not process texts again.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np

from eeg2text_jax.errors import UserError

Tokenize = Callable[[str], Sequence[str]]
PIECES = 1 << 17  # cache size: distinct whitespace-separated pieces of text
ROWS_AT_ONCE = 4096  # rows whose tokens are in memory at a time


class MetricError(UserError):
    """The error of a metric on a text: the row `index` of the `side` "prediction" or "reference"."""

    def __init__(self, metric: str, side: str, index: int, reason: str):
        super().__init__(f"{metric} failed on the {side} of row {index + 1}: {reason}.")
        self.metric, self.side, self.index, self.reason = metric, side, index, reason


class Metric(abc.ABC):
    """A corpus metric with `S` statistics of each sample and `C` named figures in percent."""

    name: str
    columns: tuple[str, ...]  # names of the figures
    statistic_names: tuple[str, ...]
    signature: str  # all that changes the figures: tokenizer, case, smoothing, treatment of empty text, versions
    lower_is_better: ClassVar[bool] = False
    least: ClassVar[float] = 0.0  # lower bound of every statistic

    def notes(self) -> list[str]:
        """Return notes for the reader about the figures computed so far."""
        return []

    @abc.abstractmethod
    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return the statistics of prediction i with reference i, float64 `[N, S]`. Raises MetricError."""

    @abc.abstractmethod
    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return the statistics of every prediction with every reference, float64 `[P, R, S]`. Raises MetricError."""

    @abc.abstractmethod
    def corpus(self, summed: np.ndarray) -> np.ndarray:
        """Return figures, float64 `[..., C]`, from statistics `[..., S]` summed over samples; NaN if undefined."""

    def total(
        self, predictions: Sequence[str], references: Sequence[str], advance: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return statistics `[S]` summed over rows; `advance` is called with the number of rows of each chunk."""
        summed = np.zeros(len(self.statistic_names))
        for found in self.in_chunks(predictions, references):
            summed += found.sum(0)
            if advance:
                advance(len(found))
        return summed

    def in_chunks(self, predictions: Sequence[str], references: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield statistics `[n, S]` of consecutive rows. Raises MetricError; its `index` counts from the first row."""
        check_same_length(predictions, references)
        for start in range(0, len(predictions), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            try:
                yield self.statistics(predictions[part], references[part])
            except MetricError as error:
                raise MetricError(error.metric, error.side, start + error.index, error.reason) from error

    def score(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return name of a figure -> its value over a corpus of predictions and references."""
        return self.figures(self.total(predictions, references))

    def figures(self, summed: np.ndarray) -> dict[str, float]:
        """Return name of a figure -> its value, from statistics `[S]` summed over samples."""
        return dict(zip(self.columns, self.corpus(summed).tolist(), strict=True))


class OverlapMetric(Metric):
    """A metric whose method `table` computes statistics of prediction i with reference i, or of all pairs."""

    @abc.abstractmethod
    def table(self, predictions: Sequence[str], references: Sequence[str], *, pairwise: bool) -> np.ndarray:
        """Return statistics of prediction i with reference i, `[N, S]`, or of all pairs if `pairwise`, `[P, R, S]`."""

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        return self.table(predictions, references, pairwise=False)

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        return self.table(predictions, references, pairwise=True)


def check_same_length(predictions: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError unless there is one reference for each prediction."""
    if len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} predictions for {len(references)} references")


def tokenize_all(metric: str, side: str, tokenize: Tokenize, texts: Sequence[str]) -> list[Sequence[str]]:
    """Return the tokens of every text; distinct texts are tokenized once. Raises MetricError, which names the text."""
    known: dict[str, Sequence[str]] = {}
    for index, text in enumerate(texts):
        if text not in known:
            try:
                known[text] = tokenize(text)
            except (TypeError, ValueError) as error:  # UnicodeError is a ValueError
                raise MetricError(metric, side, index, f"{error} in {text!r:.80}") from error
    return [known[text] for text in texts]


def by_pieces(text: str, tokens_of: Callable[[str], Sequence[str]]) -> list[str]:
    """Return the tokens of a text; the pieces between white space are tokenized one by one."""
    return [token for piece in text.split() for token in tokens_of(piece)]


def ratio(numerator: np.ndarray, denominator: np.ndarray, undefined: float) -> np.ndarray:
    """Return `numerator / denominator`, or `undefined` where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    return np.divide(numerator, denominator, out=np.full(denominator.shape, undefined), where=denominator != 0)
