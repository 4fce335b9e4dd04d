"""From rows of text to the [sentence, sentence] table of sufficient statistics."""

import dataclasses

import numpy as np

from eeg2text_jax.audit.align import Condition
from eeg2text_jax.metrics.statistics import Metric

CHUNK = 256  # distinct predictions at once: bounds the memory of [CHUNK, S, K]


@dataclasses.dataclass(frozen=True)
class ContentTable:
    """Statistics of one condition.

    `pairs [G, S, S, K]`: predictions for a sentence, summed over rows, against each reference of its group, per seed;
    zero between groups. `own [N, K]`: each row against its own reference. `null [N, K]`: each row against the other
    references of its stratum, averaged.
    """

    pairs: np.ndarray
    own: np.ndarray
    null: np.ndarray


def content_table(
    condition: Condition,
    references: tuple[str, ...],
    strata: np.ndarray,
    groups: np.ndarray,
    n_seeds: int,
    metric: Metric,
) -> ContentTable:
    """Computes the table within `groups` (int `[S]`, each a union of strata), every distinct text once a group."""
    n_sentences, n_rows = len(references), len(condition.rows)
    size = metric.pairwise(["a"], ["a"]).shape[-1]
    pairs = np.zeros((n_seeds, n_sentences, n_sentences, size))
    own, null = np.zeros((n_rows, size)), np.zeros((n_rows, size))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        texts = [references[m] for m in members]
        rows = np.flatnonzero(groups[condition.sentence] == group)
        rows = rows[np.argsort(np.array([condition.rows[r].prediction for r in rows], object), kind="stable")]
        for chunk in np.array_split(rows, max(1, len(rows) // CHUNK)):
            predictions = [condition.rows[r].prediction for r in chunk]
            distinct = {text: index for index, text in enumerate(dict.fromkeys(predictions))}
            found = metric.pairwise(list(distinct), texts)[[distinct[text] for text in predictions]]  # [chunk, M, K]
            sentence = condition.sentence[chunk]
            place = np.searchsorted(members, sentence)
            own[chunk] = found[np.arange(len(chunk)), place]
            others = (strata[members] == strata[sentence][:, None]) & (members != sentence[:, None])
            null[chunk] = np.einsum("rmk,rm->rk", found, others / np.maximum(others.sum(1, keepdims=True), 1))
            np.add.at(pairs, (condition.seed[chunk][:, None], sentence[:, None], members), found)
    return ContentTable(pairs, own, null)
