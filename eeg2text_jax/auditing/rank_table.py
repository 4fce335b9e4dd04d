"""Turn candidate scores into tables of sufficient statistics for the audit of rankings.

Cell (s, t) of a table is, for example, how often sentence t is among the top five for recordings of sentence s. The
diagonal gives top-5 accuracy. Off-diagonal cells within a stratum (sentences of the same task and similar length) give
the content null: how often another sentence of similar length is found. Ranks are among all candidates.
"""

import dataclasses

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.donor_cells import donor_places, places_within, without_donors
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.side_channel import SENTENCES, SideChannel, side_channel
from eeg2text_jax.auditing.statistics import Resampled, Score, keep_row_counts, resample
from eeg2text_jax.auditing.strata import Blocks, blocks_of
from eeg2text_jax.auditing.table import ContentTable, RowTable, reader_null
from eeg2text_jax.metrics.ranks import STATISTICS, statistics
from eeg2text_jax.study.metric_names import WHICH_SENTENCE

SIZE = len(STATISTICS)


@dataclasses.dataclass(frozen=True)
class RankEndpoint:
    """An endpoint of the retrieval audit, in percent; higher is better."""

    label: str
    column: int
    margin: float

    def score(self, totals: np.ndarray) -> np.ndarray:
        """Return percent `[...]` from summed statistics `[..., 4]`; a negative share of the null becomes 0."""
        return 100.0 * np.maximum(totals[..., self.column], 0.0) / np.maximum(totals[..., -1], 1e-12)


def rank_endpoint(name: str) -> RankEndpoint:
    """Return the endpoint named by `retrieval.endpoint`."""
    column = {"top-1": 0, "top-5": 1, "rank": 2}[name]
    return RankEndpoint(WHICH_SENTENCE[name].label, column, WHICH_SENTENCE[name].margin)


def rank_tables(
    aligned: Aligned, strata: np.ndarray, *, resamples: int, rng: np.random.Generator, with_rows: bool = False
) -> list[ContentTable]:
    """Return the table of every condition within strata, int `[S]`; rows are `Ranking`s.

    All conditions and endpoints share the same permutations and bootstrap draws.
    """
    blocks = blocks_of(strata)
    filled = [_fill(condition, aligned, blocks, with_rows) for condition in aligned.conditions]
    counts = [_counts(condition, aligned) for condition in aligned.conditions]
    sampled: list[Resampled] = resample([sums for sums, _ in filled], counts, blocks, resamples=resamples, rng=rng)
    return [ContentTable(found, rows) for found, (_, rows) in zip(sampled, filled, strict=True)]


def _counts(condition: Condition, aligned: Aligned) -> np.ndarray:
    """Count the rows of each sentence by seed, int `[G, S]`."""
    counts = np.zeros((len(aligned.seeds), len(aligned.references)), int)
    np.add.at(counts, (condition.seed, condition.sentence), 1)
    return counts


def _fill(
    condition: Condition, aligned: Aligned, blocks: Blocks, with_rows: bool = False
) -> tuple[np.ndarray, RowTable | None]:
    """Sum the statistics of each cell over rows, `[G, C, 4]`; optionally fill those of single rows, `[N, 4]`."""
    sums = np.zeros((len(aligned.seeds), blocks.n_cells, SIZE))
    n_rows = len(condition.rows)
    rows = RowTable(*np.full((2, n_rows, SIZE), np.nan)) if with_rows else None
    if rows is not None:  # sentences that are alone in their stratum count in no table, but were read
        rows.own[:] = [statistics(r.scores[None], np.array([r.right]))[0, 0] for r in condition.rows]
    names = np.unique([row.subject for row in condition.rows], return_inverse=True)
    known, donors = all(names[0]), donor_places(condition, aligned)
    order = np.argsort(condition.sentence, kind="stable")
    first = np.searchsorted(condition.sentence[order], np.arange(len(aligned.references) + 1))
    for members, block in blocks.views(sums):
        for stratum, result in zip(members, np.moveaxis(block, 1, 0), strict=True):
            mine = np.concatenate([order[first[s] : first[s + 1]] for s in stratum])
            place = np.repeat(np.arange(len(stratum)), first[stratum + 1] - first[stratum])
            found = _against([condition.rows[r] for r in mine], [aligned.references[s] for s in stratum])
            donor = None if donors is None else places_within(donors[mine], stratum)
            result[...] = _sums(found, condition.seed[mine], place, donor, result.shape)
            if rows is not None and known:
                rows.null[mine] = _null_of_readers(found, names[1][mine], place, len(stratum), donor)
    return sums, rows


def _against(rows: list, references: list[str]) -> np.ndarray:
    """Return every row's statistics for every reference of the stratum, `[r, m, 4]`; candidate lists may differ."""
    found = np.empty((len(rows), len(references), SIZE))
    lists: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        lists.setdefault(id(row.candidates), []).append(number)
    for numbers in lists.values():
        candidates = rows[numbers[0]].candidates
        chosen = np.array([candidates.place(text) for text in references])
        found[numbers] = statistics(np.stack([rows[number].scores for number in numbers]), chosen)
    return found


def _sums(
    found: np.ndarray, group: np.ndarray, place: np.ndarray, donor: np.ndarray | None, shape: tuple[int, ...]
) -> np.ndarray:
    """Sum statistics of rows, `[r, m, 4]`, by group and sentence, `[Q, m, m, 4]`, without the rows' donors."""
    sums = np.zeros(shape)
    np.add.at(sums, (group, place), found)
    if donor is None:
        return sums
    return without_donors(sums, group, place, donor, found[np.arange(len(found)), donor])


def _null_of_readers(
    found: np.ndarray, subject: np.ndarray, place: np.ndarray, size: int, donor: np.ndarray | None
) -> np.ndarray:
    """Return each row's share of its reader's null, `[r, 4]`."""
    readers, reader = np.unique(subject, return_inverse=True)
    counts = np.zeros((len(readers), size))
    sums = _sums(found, reader, place, donor, (len(readers), size, size, SIZE))
    np.add.at(counts, (reader, place), 1)
    return reader_null(sums, counts)[reader, place]


def rank_side_channel(
    aligned: Aligned, score: Score, *, resamples: int, rng: np.random.Generator
) -> tuple[list[SideChannel], list[Flag]]:
    """Measure what task and length alone give in each condition; see `side_channel.measure_side_channel`."""
    tasks = np.unique(np.array(aligned.tasks), return_inverse=True)[1]
    drawn = rng.permutation(aligned.strata.max() + 1)
    filled = np.cumsum(np.bincount(aligned.strata)[drawn])
    chosen = np.isin(aligned.strata, drawn[: max(2, np.searchsorted(filled, SENTENCES, "right"))])
    blocks = blocks_of(np.where(chosen, tasks, tasks.max() + 1 + np.arange(len(tasks))))
    tables = []
    for condition in aligned.conditions:
        sums, _ = _fill(condition, aligned, blocks)
        tables.append(keep_row_counts(sums, _counts(condition, aligned), blocks).sum(0))
    names = [condition.name for condition in aligned.conditions]
    return side_channel(names, tables, blocks, aligned.strata, score, resamples=resamples, rng=rng)
