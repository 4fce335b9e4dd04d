"""Word and character error rate, equal to jiwer's, and a warning if case and punctuation change the scores much."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import jiwer
import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.metrics.metric import Metric, Tokenize, check_same_length, ratio, tokenize_all
from eeg2text_jax.predictions.file import characters_apart
from eeg2text_jax.versions import with_version


class ErrorRate(Metric):
    """Edits of all predictions divided by units (words or characters) of all references, in percent; may exceed 100.

    With an empty prediction all units of the reference are deleted, with an empty reference all units of the prediction
    are inserted. A corpus of empty references is undefined (NaN).
    """

    statistic_names = ("substitutions", "deletions", "insertions", "reference_length")
    lower_is_better = True

    def __init__(self, name: str, units: str, tokenize: Tokenize):
        self.name = name
        self.tokenize = tokenize
        self.columns = (name, f"{name}-substitutions", f"{name}-deletions", f"{name}-insertions")
        self.signature = (
            f"unit:{units}|case:mixed|punctuation:kept|average:corpus|empty:all-deleted-or-inserted|"
            f"version:{with_version('jiwer')}"
        )

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        pairs = list(zip(*self._numbered(predictions, references), strict=True))
        return np.array([edit_counts(*pair) for pair in pairs], float).reshape(len(pairs), 4)

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        distinct, inverse = np.unique(np.array(predictions, dtype=object), return_inverse=True)
        predicted, reference = self._numbered(distinct.tolist(), references)
        table = [[edit_counts(p, r) for r in reference] for p in predicted]
        return np.array(table, float).reshape(len(distinct), len(references), 4)[inverse]

    def _numbered(self, predictions: Sequence[str], references: Sequence[str]) -> tuple[list, list]:
        """Return the units of both sides as lists of integers, one integer for each distinct unit."""
        numbers: defaultdict[Hashable, int] = defaultdict(lambda: len(numbers))
        predicted, reference = (
            [[numbers[unit] for unit in units] for units in tokenize_all(self.name, side, self.tokenize, texts)]
            for side, texts in (("prediction", predictions), ("reference", references))
        )
        return predicted, reference

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        edits, length = summed[..., :3], summed[..., 3:]
        counts = np.concatenate([edits.sum(-1, keepdims=True), edits], axis=-1)
        return 100.0 * ratio(counts, length, np.nan)


def edit_counts(prediction: Sequence[Hashable], reference: Sequence[Hashable]) -> tuple[int, int, int, int]:
    """Return substitutions, deletions and insertions of one best alignment, and the length of the reference."""
    replaced = deleted = inserted = 0
    blocks: list[Any] = Levenshtein.opcodes(reference, prediction).as_list()
    for tag, start, end, predicted_start, predicted_end in blocks:
        if tag == "replace":
            replaced += end - start
        elif tag == "delete":
            deleted += end - start
        elif tag == "insert":
            inserted += predicted_end - predicted_start
    return replaced, deleted, inserted, len(reference)


def word_error_rate() -> ErrorRate:
    """Return the metric word error rate; every Han or kana character is a word of its own."""
    return ErrorRate("wer", "word", lambda text: jiwer.wer_default([characters_apart(text)])[0])


def character_error_rate() -> ErrorRate:
    """Return the metric character error rate; white space between words counts as characters."""
    return ErrorRate("cer", "character", lambda text: jiwer.cer_default([text])[0])
