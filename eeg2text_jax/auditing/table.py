"""The table of an audit: the mean score of the predictions made for a sentence against every reference of its stratum.

Cell (s, t) of a block is the mean over the rows of sentence s of their scores against reference t. So every sentence
weighs the same, however many rows it has. The diagonal holds the scores, the other cells what the scores are worth.

A row of the control `shuffled` was made from the recording of another sentence, its donor. A working decoder writes the
donor's sentence there, so the score against this sentence is replaced by the row's mean over other sentences.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy import sparse

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.endpoints import Endpoint, checked_points
from eeg2text_jax.progress import ProgressLine

PROGRESS_ROWS = 50_000  # number of rows from which progress is shown
Scorer = Callable[[Condition, np.ndarray, Sequence[str]], np.ndarray]  # rows, references -> scores [rows, references]


@dataclasses.dataclass(frozen=True)
class Cells:
    """Scores of one condition, in points; higher is better.

    Attributes:
      blocks: for each stratum the cells `[n, n]`.
      own: each row's score against its own reference, `[N]`.
      others: each row's mean score against the other sentences of its stratum, `[N]`.
    """

    blocks: tuple[np.ndarray, ...]
    own: np.ndarray
    others: np.ndarray

    @property
    def content(self) -> np.ndarray:
        """Content of each row: its score minus its score against other sentences, `[N]`."""
        return self.own - self.others


def strata_members(strata: np.ndarray) -> list[np.ndarray]:
    """Return the sentences of each stratum with two sentences or more, from strata int `[S]`."""
    order = np.argsort(strata, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(strata))[:-1])
    return [members for members in parts if len(members) > 1]


def text_scorer(aligned: Aligned, endpoint: Endpoint) -> Scorer:
    """Return a scorer of texts; equal texts are scored once."""
    points = endpoint.fit(aligned.references)

    def scores(condition: Condition, rows: np.ndarray, references: Sequence[str]) -> np.ndarray:
        texts: dict[str, int] = {}
        which = [texts.setdefault(condition.rows[row].prediction, len(texts)) for row in rows.tolist()]
        found = points(list(texts), references)
        return checked_points(found, len(texts), len(references), endpoint.label)[which]

    return scores


def fill(condition: Condition, references: Sequence[str], strata: Sequence[np.ndarray], scores: Scorer) -> Cells:
    """Score the rows of a condition against all references of their strata (`strata_members`)."""
    n = len(condition.rows)
    own, others, blocks = np.full(n, np.nan), np.full(n, np.nan), []
    starts = np.searchsorted(condition.sentence, np.arange(condition.sentence.max() + 2))
    for members in _with_progress(condition, strata):
        rows = np.concatenate([np.arange(starts[s], starts[s + 1]) for s in members.tolist()])
        sizes = (starts[members + 1] - starts[members]).tolist()
        place = np.repeat(np.arange(len(members)), sizes)
        found = scores(condition, rows, [references[s] for s in members.tolist()])
        own[rows] = found[np.arange(len(rows)), place]
        _replace_donors(found, place, condition.donor[rows], members)
        others[rows] = (found.sum(1) - own[rows]) / (len(members) - 1)
        share = 1 / np.repeat(sizes, sizes)
        mean = sparse.csr_array((share, (place, np.arange(len(rows)))), shape=(len(members), len(rows)))
        blocks.append(mean @ found)
    return Cells(tuple(blocks), own, others)


def _replace_donors(found: np.ndarray, place: np.ndarray, donor: np.ndarray, members: np.ndarray) -> None:
    """Replace the scores of rows against their donors' sentences, in place; `donor` `[rows]` has -1 for none."""
    where = {s: index for index, s in enumerate(members.tolist())}
    for row in np.flatnonzero(donor >= 0).tolist():
        if (column := where.get(int(donor[row]))) is not None and len(members) > 2:
            rest = found[row].sum() - found[row, column] - found[row, place[row]]
            found[row, column] = rest / (len(members) - 2)


def _with_progress(condition: Condition, strata: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    if len(condition.rows) < PROGRESS_ROWS:
        yield from strata
        return
    with ProgressLine(f"scoring {condition.name}", len(strata)) as line:
        for members in strata:
            yield members
            line.advance(1)
