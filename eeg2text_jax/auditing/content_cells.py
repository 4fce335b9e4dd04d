"""Score every prediction of a sentence against every reference of its stratum: tables of sufficient statistics.

Cell (s, t) holds the predictions for sentence s against reference t. The diagonal gives the score; cells off the
diagonal give the content null. A prediction is a text, or a ranking of candidate sentences.

**Donors.** A row of `shuffled` was made from the recording of another sample, its donor. A working decoder writes the
sentence of the donor. A comparison with this sentence would raise the null of the control, and the content difference
would exceed the content of EEG. So such comparisons are left out.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.row_counts import OwnRows
from eeg2text_jax.auditing.statistics import Resampled, block_shares, keep_row_counts, resample
from eeg2text_jax.auditing.strata import Blocks, blocks_of
from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.metric import Metric
from eeg2text_jax.predictions.rankings import Ranking
from eeg2text_jax.progress import ProgressLine

CHUNK = 4096  # predictions scored at once against all m references of a stratum: limits memory
LARGEST_TABLE = 2**30  # limit of the tables of all conditions together, in bytes
PROGRESS_ROWS = 50_000  # number of rows from which progress is shown
SHUFFLED = "shuffled"


@dataclasses.dataclass(frozen=True)
class RowTable:
    """K statistics of each of N rows, `[N, K]`: against the row's reference, and the row's share of its reader's null.

    The shares of all rows of a reader (subject) sum to the reader's null, the content null of these rows alone:
    sentences are exchanged among those that the subject read. A share is NaN if the reader read no other sentence of
    the stratum, or if subjects are unknown.
    """

    own: np.ndarray
    null: np.ndarray


@dataclasses.dataclass(frozen=True)
class ContentTable:
    """Totals of one condition under one metric: observed, permuted and bootstrapped."""

    sampled: Resampled
    rows: RowTable | None  # of single predictions; None unless requested


def content_tables(
    aligned: Aligned,
    strata: np.ndarray,
    metric: Metric,
    *,
    resamples: int,
    rng: np.random.Generator,
    with_rows: bool = False,
) -> list[ContentTable]:
    """Return the table of every condition within the strata `strata`, int `[S]`.

    Sentences alone in their stratum are left out. Memory grows with the sum of the squared sizes of the strata and, if
    `with_rows`, with the number of rows. Time grows with the number of rows times the size of the strata.

    Raises:
      UserError: strata so large that their table would not fit, or no stratum with two sentences.
      MetricError: a text that the metric cannot score.
    """
    blocks = blocks_of(strata)
    _check_size(blocks, len(metric.statistic_names) * len(aligned.seeds) * len(aligned.conditions))
    filled = [_fill(condition, aligned, blocks, metric, with_rows) for condition in aligned.conditions]
    counts = [_counts(condition, aligned) for condition in aligned.conditions]
    single = [_own_rows(c, rows, blocks) for c, (_, rows) in zip(aligned.conditions, filled, strict=True)]
    sampled = resample([sums for sums, _ in filled], counts, blocks, resamples=resamples, rng=rng, rows=single)
    return [ContentTable(found, rows if with_rows else None) for found, (_, rows) in zip(sampled, filled, strict=True)]


def _own_rows(condition: Condition, rows: RowTable, blocks: Blocks) -> OwnRows:
    """Return the rows of sentences that share their stratum with others, sorted by sentence, seed and subject."""
    order = np.lexsort((np.array([row.subject for row in condition.rows]), condition.seed, condition.sentence))
    order = order[np.isin(condition.sentence[order], blocks.sentences)]
    return OwnRows(rows.own[order], condition.sentence[order], condition.seed[order])


def weighted_tables(aligned: Aligned, strata: np.ndarray, metric: Metric) -> tuple[Blocks, list[np.ndarray]]:
    """Return the blocks of the strata, and each condition's table (`keep_row_counts`) summed over seeds, `[C, K]`."""
    blocks = blocks_of(strata)
    tables = []
    for condition in aligned.conditions:
        sums, _ = _fill(condition, aligned, blocks, metric, with_null=False)
        tables.append(keep_row_counts(sums, _counts(condition, aligned), blocks).sum(0))
    return blocks, tables


def _check_size(blocks: Blocks, values_a_cell: int) -> None:
    if not blocks.groups:
        raise UserError("every sentence is alone in its stratum; give more sentences of each task.")
    needed = blocks.n_cells * values_a_cell * 8
    if needed > LARGEST_TABLE:
        largest = max(members.shape[1] for members in blocks.groups)
        raise UserError(
            f"the strata are too large: the largest has {largest} sentences, and the table of every prediction against "
            f"every reference of its stratum would take {needed / 2**30:.1f} GiB; give a smaller --stratum-size."
        )


def _counts(condition: Condition, aligned: Aligned) -> np.ndarray:
    """Count the rows of each seed and sentence, int `[G, S]`."""
    counts = np.zeros((len(aligned.seeds), len(aligned.references)), int)
    np.add.at(counts, (condition.seed, condition.sentence), 1)
    return counts


def _fill(
    condition: Condition, aligned: Aligned, blocks: Blocks, metric: Metric, with_null: bool
) -> tuple[np.ndarray, RowTable]:
    """Sum statistics over the rows of a cell, `[G, C, K]` (seed, cell, statistic); also return those of single rows.

    The null of single rows is NaN unless `with_null`.
    """
    size = len(metric.statistic_names)
    sums = np.zeros((len(aligned.seeds), blocks.n_cells, size))
    order = np.argsort(condition.sentence, kind="stable")
    first = np.searchsorted(condition.sentence[order], np.arange(len(aligned.references) + 1))
    names = [row.subject for row in condition.rows]
    subjects = np.unique(names, return_inverse=True)[1] if with_null and all(names) else None
    rows = RowTable(*np.full((2, len(condition.rows), size), np.nan))
    donors = donor_places(condition, aligned)
    strata = [
        (m, b) for members, block in blocks.views(sums) for m, b in zip(members, np.moveaxis(block, 1, 0), strict=True)
    ]
    for members, result in _with_progress(strata, f"{condition.name}: {metric.name}", len(condition.rows)):
        mine = np.concatenate([order[first[s] : first[s + 1]] for s in members])
        place = np.repeat(np.arange(len(members)), first[members + 1] - first[members])
        references = [aligned.references[s] for s in members]
        donor = None if donors is None else places_within(donors[mine], members)
        _fill_stratum(condition, mine, place, donor, references, metric, result, rows, subjects)
    return sums, rows


def _with_progress(strata: Sequence[tuple], title: str, n_rows: int) -> Iterator[tuple]:
    """Yield the strata, with a progress line for many rows."""
    if n_rows < PROGRESS_ROWS:
        yield from strata
        return
    with ProgressLine(f"{title} of {n_rows} rows, strata", len(strata)) as progress:
        for stratum in strata:
            yield stratum
            progress.advance(1)


def _fill_stratum(
    condition: Condition,
    mine: np.ndarray,
    place: np.ndarray,
    donor: np.ndarray | None,
    references: Sequence[str],
    metric: Metric,
    result: np.ndarray,
    rows: RowTable,
    subjects: np.ndarray | None,
) -> None:
    """Score one stratum: fill `result [G, m, m, K]` (seed, sentence, reference) and the rows `mine` of `rows`.

    `place` is the place of each row's sentence within the stratum, `donor` the place of its donor's sentence, -1 if the
    stratum has none. Each distinct prediction is scored once.
    """
    n_seeds, m, _, size = result.shape
    distinct, which = _distinct([condition.rows[r] for r in mine])
    readers, reader = np.unique(subjects[mine], return_inverse=True) if subjects is not None else (np.zeros(0), None)
    # Sums over rows are products with a matrix that counts how often a prediction occurs: by seed, then by reader.
    by_seed, by_reader = condition.seed[mine] * m + place, [] if reader is None else n_seeds * m + reader * m + place
    target, source = np.concatenate([by_seed, by_reader]).astype(int), np.tile(which, 1 if reader is None else 2)
    shape = ((n_seeds + len(readers)) * m, len(distinct))
    occurs = sparse.csc_array((np.ones(len(target)), (target, source)), shape=shape)
    sums = np.zeros((shape[0], m * size))
    lent = np.empty((len(mine), size))
    for start in range(0, len(distinct), CHUNK):
        found = metric.pairwise(distinct[start : start + CHUNK], references)  # [distinct, m, K]
        sums += occurs[:, start : start + CHUNK] @ found.reshape(len(found), -1)
        here = (which >= start) & (which < start + CHUNK)
        rows.own[mine[here]] = found[which[here] - start, place[here]]
        if donor is not None:
            lent[here] = found[which[here] - start, donor[here]]
    sums = sums.reshape(-1, m, m, size)
    if donor is not None:
        times = len(target) // len(mine)
        places, donors = np.tile(place, times), np.tile(donor, times)
        sums = without_donors(sums, target // m, places, donors, np.tile(lent, (times, 1)))
    result[...] = sums[:n_seeds]
    if reader is not None:
        counts = np.zeros((len(readers), m))
        np.add.at(counts, (reader, place), 1)
        rows.null[mine] = _reader_null(sums[n_seeds:], counts)[reader, place]


def _distinct(rows: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
    """Return the distinct predictions of rows, and the index of each row's prediction; rankings are all distinct."""
    if isinstance(rows[0], Ranking):
        return list(rows), np.arange(len(rows))
    known: dict[str, int] = {}
    which = np.array([known.setdefault(row.prediction, len(known)) for row in rows])
    return list(known), which


def _reader_null(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return one row's share of the null of each of U readers, `[U, m, K]`, from sums `[U, m, m, K]`, rows `[U, m]`."""
    present = counts > 0
    n = np.maximum(counts, 1)
    weighted = sums / n[:, :, None, None] * counts[:, None, :, None]
    shares = block_shares(weighted, present) / n[..., None]
    shares[present.sum(1) < 2] = np.nan
    return shares


def donor_places(condition: Condition, aligned: Aligned) -> np.ndarray | None:
    """Return for each row the other sentence whose recording was its input, int `[N]`; None if no row names a donor.

    -1: the donor is unknown, its sentence is not judged, or it is a recording of the row's own sentence.
    """
    if not any(row.donor for row in condition.rows):
        return None
    places = {
        row.sentence_id: place
        for other in aligned.conditions
        for row, place in zip(other.rows, other.sentence.tolist(), strict=True)
    }
    found = np.array([places.get(row.donor, -1) for row in condition.rows])
    return np.where(found == condition.sentence, -1, found)


def donor_notes(aligned: Aligned) -> list[str]:
    """Return notes on controls that were fed other sentences' recordings."""
    notes = []
    for condition in aligned.conditions[1:]:
        if all(row.eval_condition != SHUFFLED for row in condition.rows):
            continue
        if all(row.donor for row in condition.rows):
            notes.append(f"{condition.name}: no prediction is held against the sentence whose recording was its input.")
        else:
            notes.append(
                f"{condition.name}: the rows do not say whose recording was their input (field donor); if the model "
                "works, the control's null contains hits on the donors' sentences, and the content difference is too "
                "large."
            )
    return notes


def places_within(donors: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Convert donor indices to positions within a stratum with sentences `members`; -1 for donors outside it."""
    place = np.full(max(donors.max(), members.max()) + 2, -1)
    place[members] = np.arange(len(members))
    return place[donors]  # place[-1] is -1


def without_donors(
    sums: np.ndarray, group: np.ndarray, place: np.ndarray, donor: np.ndarray, found: np.ndarray
) -> np.ndarray:
    """Return a stratum's table without comparisons of a row with its donor's sentence.

    A cell becomes the mean of its other rows, times its number of rows. If all its rows have reference t as donor, the
    predictions of the next sentence replace them; a mean over all sentences would vary less than other cells do.

    Args:
      sums: statistics summed over rows, `[Q, m, m, K]`: group (seed or reader), sentence predicted for, reference.
      group, place, donor: group, place of the sentence and of the donor's sentence (-1: none) of each row, int `[r]`.
      found: statistics of each row against its donor's sentence, `[r, K]`; arbitrary for rows without a donor.
    """
    groups, m = sums.shape[:2]
    lent, n, n_lent = np.zeros(sums.shape), np.zeros((groups, m)), np.zeros((groups, m, m))
    np.add.at(n, (group, place), 1)
    at = np.flatnonzero(donor >= 0)
    cells = group[at], place[at], donor[at]
    np.add.at(lent, cells, found[at])
    np.add.at(n_lent, cells, 1)
    left = n[:, :, None] - n_lent
    mean = (sums - lent) / np.maximum(left, 1)[..., None]
    for q, s, t in np.argwhere((left == 0) & (n[:, :, None] > 0)).tolist():
        others = [u % m for u in range(s + 1, s + m) if u % m != t and left[q, u % m, t] > 0 and n[q, u % m] > 0]
        # Without another sentence, use the predictions for reference t itself: their input is another recording, too.
        mean[q, s, t] = mean[q, others[0] if others else t, t]
    return mean * n[:, :, None, None]
