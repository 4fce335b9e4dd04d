"""Rows to look at: some at random, some of the best, each beside its controls."""

import numpy as np

from eeg2text_jax.audit.align import Aligned
from eeg2text_jax.audit.endpoints import Endpoint
from eeg2text_jax.audit.result import Example
from eeg2text_jax.audit.table import RowTable


def pick_examples(
    aligned: Aligned, table: RowTable, endpoint: Endpoint, rng: np.random.Generator, count: int = 4
) -> list[Example]:
    """Some rows at random and the rows with the highest score, each beside the controls' rows of the same sentence."""
    scores = np.nan_to_num(endpoint.score(table.own))
    best = np.argsort(-scores, kind="stable")[:count].tolist()
    drawn = rng.choice(len(scores), size=min(count, len(scores)), replace=False).tolist()
    return [_example(aligned, row, False) for row in drawn] + [_example(aligned, row, True) for row in best]


def _example(aligned: Aligned, row: int, best: bool) -> Example:
    eeg = aligned.eeg
    mine, sentence = eeg.rows[row], eeg.sentence[row]
    place = np.flatnonzero(eeg.sentence == sentence).tolist().index(row)
    texts = []
    for condition in aligned.conditions:
        rows = [condition.rows[i] for i in np.flatnonzero(condition.sentence == sentence)]
        same = [r for r in rows if mine.subject and (r.subject, r.seed) == (mine.subject, mine.seed)]
        texts.append((same or rows[place : place + 1] or rows)[0].prediction)
    texts[0] = mine.prediction
    return Example(aligned.references[sentence], mine.subject, tuple(texts), best)
