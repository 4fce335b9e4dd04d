"""From rows of text to tables of sufficient statistics: predictions of a sentence against references of its stratum."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import sparse

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.donor_cells import donor_places, places_within, without_donors
from eeg2text_jax.auditing.statistics import Resampled, block_shares, keep_row_counts, resample
from eeg2text_jax.auditing.strata import Blocks, blocks_of
from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.metric import Metric
from eeg2text_jax.progress import ProgressLine

CHUNK = 4096  # texts against a reference at once: bounds the memory of [distinct predictions, m, K]
LARGEST_TABLE = 2**30  # bytes
PROGRESS_ROWS = 50_000  # from here on the work takes long enough to be shown


@dataclasses.dataclass(frozen=True)
class RowTable:
    """Statistics of single rows, `[N, K]`: against the own reference, and the row's share of its reader's null.

    A reader's null is the content null of that subject's rows alone: sentences are exchanged among those that it read.
    Rows whose reader read no other sentence of the stratum have no null (NaN); so have all where subjects are unknown.
    """

    own: np.ndarray
    null: np.ndarray


@dataclasses.dataclass(frozen=True)
class ContentTable:
    """One condition under one metric: `sampled` is what `contrast` takes; `rows` only where they were asked for."""

    sampled: Resampled
    rows: RowTable | None


def content_tables(
    aligned: Aligned,
    strata: np.ndarray,
    metric: Metric,
    *,
    resamples: int,
    rng: np.random.Generator,
    with_rows: bool = False,
) -> list[ContentTable]:
    """The table of every condition within any strata, int `[S]`: the alignment's own, or others to test again with.

    Sentences alone in their stratum are left out. Memory goes with rows (`with_rows`) and with the sum of the squares
    of the strata's sizes; time with rows times size.

    Raises:
      UserError: strata so large that their table would not fit, or none with two sentences.
      MetricError: a text that the metric cannot score.
    """
    blocks = blocks_of(strata)
    size = len(metric.statistic_names)
    _check_size(blocks, size * len(aligned.seeds) * len(aligned.conditions))
    filled = [_fill(condition, aligned, blocks, metric, size, with_rows) for condition in aligned.conditions]
    counts = [_counts(condition, aligned) for condition in aligned.conditions]
    sampled = resample([sums for sums, _ in filled], counts, blocks, resamples=resamples, rng=rng)
    return [ContentTable(found, rows) for found, (_, rows) in zip(sampled, filled, strict=True)]


def weighted_tables(aligned: Aligned, strata: np.ndarray, metric: Metric) -> tuple[Blocks, list[np.ndarray]]:
    """The strata's blocks, and for each condition the weighted table over all seeds together, `[C, K]`."""
    blocks = blocks_of(strata)
    size = len(metric.statistic_names)
    tables = []
    for condition in aligned.conditions:
        sums, _ = _fill(condition, aligned, blocks, metric, size, with_rows=False)
        tables.append(keep_row_counts(sums, _counts(condition, aligned), blocks).sum(0))
    return blocks, tables


def _check_size(blocks: Blocks, values_a_cell: int) -> None:
    if not blocks.groups:
        raise UserError("every sentence is alone in its stratum; there is nothing to hold predictions against.")
    needed = blocks.n_cells * values_a_cell * 8
    if needed > LARGEST_TABLE:
        largest = max(members.shape[1] for members in blocks.groups)
        raise UserError(
            f"the strata are too large: the largest has {largest} sentences, and the table of every prediction against "
            f"every reference of its stratum would take {needed / 2**30:.1f} GiB; give a smaller --stratum-size."
        )


def _counts(condition: Condition, aligned: Aligned) -> np.ndarray:
    """Rows of each sentence by seed, int `[G, S]`."""
    counts = np.zeros((len(aligned.seeds), len(aligned.references)), int)
    np.add.at(counts, (condition.seed, condition.sentence), 1)
    return counts


def _fill(
    condition: Condition, aligned: Aligned, blocks: Blocks, metric: Metric, size: int, with_rows: bool
) -> tuple[np.ndarray, RowTable | None]:
    """Statistics of each cell summed over rows, `[G, C, K]`, and of single rows where asked for."""
    sums = np.zeros((len(aligned.seeds), blocks.n_cells, size))
    order = np.argsort(condition.sentence, kind="stable")
    first = np.searchsorted(condition.sentence[order], np.arange(len(aligned.references) + 1))
    names = [row.subject for row in condition.rows]
    subjects = np.unique(names, return_inverse=True)[1] if with_rows and all(names) else None
    rows = RowTable(*np.full((2, len(condition.rows), size), np.nan)) if with_rows else None
    donors = donor_places(condition, aligned)
    strata = [
        (m, b) for members, block in blocks.views(sums) for m, b in zip(members, np.moveaxis(block, 1, 0), strict=True)
    ]
    for members, result in _shown(strata, f"{condition.name}: {metric.name}", len(condition.rows)):
        mine = np.concatenate([order[first[s] : first[s + 1]] for s in members])
        place = np.repeat(np.arange(len(members)), first[members + 1] - first[members])
        references = [aligned.references[s] for s in members]
        donor = None if donors is None else places_within(donors[mine], members)
        _fill_stratum(condition, mine, place, donor, references, metric, result, rows, subjects)
    return sums, rows


def _shown(strata: Sequence[tuple], title: str, n_rows: int) -> Iterator[tuple]:
    """The strata, with progress where the rows are many."""
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
    rows: RowTable | None,
    subjects: np.ndarray | None,
) -> None:
    """Fills `result [G, m, m, K]`, and the rows `mine` of `rows`.

    `place` is their sentence within the stratum, `donor` that of their recording, see `donor_cells`. Each distinct
    prediction is held against the references once, however many rows have it.
    """
    n_seeds, m, _, size = result.shape
    which: dict[str, int] = {}
    text = np.array([which.setdefault(condition.rows[r].prediction, len(which)) for r in mine])
    readers, reader = np.unique(subjects[mine], return_inverse=True) if subjects is not None else (np.zeros(0), None)
    # Sums over rows are products with a matrix that counts how often a text occurs: by seed, then by reader.
    by_seed, by_reader = condition.seed[mine] * m + place, [] if reader is None else n_seeds * m + reader * m + place
    target, source = np.concatenate([by_seed, by_reader]).astype(int), np.tile(text, 1 if reader is None else 2)
    shape = ((n_seeds + len(readers)) * m, len(which))
    occurs = sparse.csc_array((np.ones(len(target)), (target, source)), shape=shape)
    sums = np.zeros((shape[0], m * size))
    lent = np.zeros((len(mine), size))
    texts = list(which)
    for start in range(0, len(texts), CHUNK):
        found = metric.pairwise(texts[start : start + CHUNK], references)  # [distinct, m, K]
        sums += occurs[:, start : start + CHUNK] @ found.reshape(len(found), -1)
        here = (text >= start) & (text < start + CHUNK)
        if rows is not None:
            rows.own[mine[here]] = found[text[here] - start, place[here]]
        if donor is not None:
            lent[here] = found[text[here] - start, donor[here]]
    sums = sums.reshape(-1, m, m, size)
    if donor is not None:
        times = len(target) // len(mine)
        sums = without_donors(
            sums, target // m, *(np.tile(each, times) for each in (place, donor)), np.tile(lent, (times, 1))
        )
    result[...] = sums[:n_seeds]
    if rows is not None and reader is not None:
        counts = np.zeros((len(readers), m))
        np.add.at(counts, (reader, place), 1)
        rows.null[mine] = reader_null(sums[n_seeds:], counts)[reader, place]


def reader_null(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """A row's share of its reader's null, `[U, m, K]`, from sums over rows, `[U, m, m, K]`, and rows, `[U, m]`."""
    present = counts > 0
    n = np.maximum(counts, 1)
    weighted = sums / n[:, :, None, None] * counts[:, None, :, None]
    shares = block_shares(weighted, present) / n[..., None]
    shares[present.sum(1) < 2] = np.nan
    return shares
