"""LATTEScore as a metric: the percentage of samples whose meaning is kept, according to a tuned judge.

A prediction that equals its reference after `normalize` counts as kept, or is left out (`exact` of the judge).
`lattescore-mean` is 100 times the mean score; the audit uses it, because it varies even if the percentage is 0.
"""

import os
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.judge.frozen import Asker, Frozen
from eeg2text_jax.judge.judge_folder import Judge, load_judged
from eeg2text_jax.judge.pairs import normalize
from eeg2text_jax.metrics.metric import Metric, check_same_length, ratio

REMEMBERED = 1 << 20  # cache size in pairs


class LatteScore(Metric):
    """LATTEScore by a judge and its language model; a pair with a blank side counts as lost.

    Args:
      truncate: cut pairs that are longer than the model takes, instead of refusing them.
    """

    name = "lattescore"
    columns = ("lattescore", "lattescore-mean")
    statistic_names = ("preserved", "sum_score", "samples")

    def __init__(self, judge: Judge, frozen: Frozen, truncate: bool = False):
        self.signature = judge.signature(frozen.name)
        self.source = judge.source
        self._judge = judge
        self._asker = Asker(frozen, judge.prompt, judge.wording, judge.labels, truncate)
        self._known: dict[tuple[str, str], np.ndarray] = {}
        self._blank: set[tuple[str, str]] = set()

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        return self._rows(list(zip(references, predictions, strict=True)))

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        rows = self._rows([(reference, prediction) for prediction in predictions for reference in references])
        return rows.reshape(len(predictions), len(references), 3)

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        return 100.0 * ratio(summed[..., :2], summed[..., 2:], np.nan)

    def notes(self) -> list[str]:
        """Return notes for the reader of the scores."""
        found = []
        if self.source != "human labels":
            found.append(f"lattescore: the judge was tuned on {self.source}, not on people's ratings.")
        if self._blank:
            found.append(f"lattescore: {len(self._blank)} pairs with a blank side count as meaning lost.")
        if self._asker.encoder.cut:
            found.append(f"lattescore: {self._asker.encoder.cut} pairs were longer than the model takes and were cut.")
        return found

    def _rows(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return (preserved, score, 1) of every (reference, prediction), `[N, 3]`; equal pairs are judged once."""
        if len(self._known) > REMEMBERED:
            self._known.clear()
        asked = []
        for pair in dict.fromkeys(pairs):
            if pair in self._known:
                continue
            reference, prediction = map(normalize, pair)
            if not reference or not prediction:
                self._known[pair] = np.array([0.0, 0.0, 1.0])
                self._blank.add(pair)
            elif reference == prediction:
                self._known[pair] = np.array([1.0, 1.0, 1.0]) * (self._judge.exact != "exclude")
            else:
                asked.append(pair)
        scores = self._asker.scores(asked) if asked else ()
        for pair, score in zip(asked, scores, strict=True):
            self._known[pair] = np.array([float(score >= self._judge.threshold), score, 1.0])
        return np.array([self._known[pair] for pair in pairs]).reshape(len(pairs), 3)


class JudgeMetrics:
    """A factory of LATTEScore that loads the judge in a folder once, with the interface of `MeaningMetrics`.

    Raises UserError if the judge's files cannot be read, or do not fit the checkpoint that it was tuned from.
    """

    def __init__(self, folder: str | os.PathLike[str], truncate: bool = False):
        self._metric = LatteScore(*load_judged(folder), truncate)

    def __call__(self, references: Sequence[str]) -> list[Metric]:
        """Return the metric; all calls share one instance and its cache of judged pairs."""
        return [self._metric]

    def notes(self) -> list[str]:
        """Return notes for the reader of the scores."""
        return self._metric.notes()
