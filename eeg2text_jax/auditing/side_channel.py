"""Measure how much predictions know of the sentence's length, which the attention mask leaks.

Within a stratum (one task, similar length) the length gives no information, so this leak does not affect the verdict.
It is measured between strata: the score against other sentences of the same stratum, minus the score against sentences
of any stratum of the task.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing import statistics
from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.content_cells import weighted_tables
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.statistics import Score
from eeg2text_jax.auditing.strata import Blocks, blocks_of
from eeg2text_jax.auditing.verdict import p_text
from eeg2text_jax.metrics.metric import Metric

ONE_SIDED, UNEQUAL = "side_channel_in_one_condition", "side_channels_differ"
GAP_CODES = (ONE_SIDED, UNEQUAL)
GAP_ALPHA = 0.05  # of the warning that channels differ, two-sided; a claim is then tested once more
ALPHA = 0.01  # of a channel that is open on both sides, and of the note on what the length-only control gains
SENTENCES, ROWS = 400, 40  # at most so many sentences, and rows of each


@dataclasses.dataclass(frozen=True)
class SideChannel:
    """Points of score that task and length alone give in one condition, with the permutation p."""

    name: str
    worth: float
    p: float


def measure_side_channel(
    aligned: Aligned, metric: Metric, score: Score, *, resamples: int, rng: np.random.Generator
) -> tuple[list[SideChannel], list[Flag]]:
    """Measure each condition within tasks; flag a leak that exists in one condition only, or differs between them.

    Large files are subsampled (whole strata, a few rows per sentence), so the time is bounded.
    """
    tasks = np.unique(np.array(aligned.tasks), return_inverse=True)[1]
    drawn = rng.permutation(aligned.strata.max() + 1)
    filled = np.cumsum(np.bincount(aligned.strata)[drawn])
    chosen = np.isin(aligned.strata, drawn[: max(2, np.searchsorted(filled, SENTENCES, "right"))])
    apart = tasks.max() + 1 + np.arange(len(tasks))  # sentences that are not drawn, each on its own: left out
    thinned = dataclasses.replace(aligned, conditions=tuple(map(_thinned, aligned.conditions)))
    blocks, tables = weighted_tables(thinned, np.where(chosen, tasks, apart), metric)
    names = [condition.name for condition in aligned.conditions]
    return side_channel(names, tables, blocks, aligned.strata, score, resamples=resamples, rng=rng)


def _thinned(condition: Condition) -> Condition:
    """Keep the first `ROWS` rows of each sentence."""
    order = np.argsort(condition.sentence, kind="stable")
    sentences = condition.sentence[order]
    keep = np.sort(order[np.arange(len(order)) - np.searchsorted(sentences, sentences) < ROWS])
    if len(keep) == len(order):
        return condition
    rows = tuple(condition.rows[r] for r in keep)
    return dataclasses.replace(condition, rows=rows, sentence=condition.sentence[keep], seed=condition.seed[keep])


def side_channel(
    names: Sequence[str],
    tables: Sequence[np.ndarray],
    blocks: Blocks,
    strata: np.ndarray,
    score: Score,
    *,
    resamples: int,
    rng: np.random.Generator,
) -> tuple[list[SideChannel], list[Flag]]:
    """The same from weighted tables `[C, K]` per condition, EEG first, whose `blocks` are the tasks.

    The hypothesis is that predictions do not depend on the stratum, of those of its task, that the sentence is in:
    then the strata's predictions (a mean over their sentences, never the own one) are exchangeable between strata, and
    each reference keeps its number of rows. The p-values permute whole strata within their task, the same permutation
    for every condition.
    """
    between = [_between_strata(table, blocks, strata) for table in tables]
    of_strata = blocks_of(np.concatenate([np.full(len(b), i) for i, b in enumerate(between[0])]))
    if not of_strata.groups:
        return [SideChannel(name, 0.0, 1.0) for name in names], []
    cells = [_cells(found, of_strata) for found in between]
    draws = np.stack([score(totals) for totals in statistics.permuted_totals(cells, of_strata, resamples, rng)])
    observed = np.array([score(table[of_strata.own].sum(0)) for table in cells])
    worths = observed - draws.mean(1)
    channels = [
        SideChannel(name, float(worth), statistics.p_value(value, null))
        for name, worth, value, null in zip(names, worths, observed, draws, strict=True)
    ]
    flags = []
    for index, channel in enumerate(channels[1:], 1):
        gap, null = observed[0] - observed[index], draws[0] - draws[index]
        p = 2 * min(statistics.p_value(gap, null), statistics.p_value(-gap, -null))
        if p <= GAP_ALPHA:
            flags.append(_gap_flag(channels[0], channel, p))
    return channels, flags + _length_only_flags(channels)


def _between_strata(table: np.ndarray, blocks: Blocks, strata: np.ndarray) -> list[np.ndarray]:
    """`[Q, Q, K]` of each task: the references of stratum b against the mean of the predictions for stratum a.

    A reference's own sentence is left out of the mean; a stratum of one sentence has nothing else and is left out.
    """
    found = []
    for members, block in blocks.views(table):
        for sentences, pairs in zip(members, block, strict=True):
            labels, place, sizes = np.unique(strata[sentences], return_inverse=True, return_counts=True)
            member = (place[:, None] == np.arange(len(labels))).astype(float)[:, sizes > 1]  # [m, Q]
            others = member[:, None, :] * ~np.eye(len(sentences), dtype=bool)[..., None]  # [s, t, Q]
            share = others / np.maximum(others.sum(0), 1)
            found.append(np.einsum("sta,stk,tb->abk", share, pairs, member, optimize=True))
    return found


def _cells(between: Sequence[np.ndarray], of_strata: Blocks) -> np.ndarray:
    """The blocks of all tasks as the cells `[C, K]` of `of_strata`."""
    cells = np.empty((of_strata.n_cells, between[0].shape[-1]))
    first = np.cumsum([0, *map(len, between)])
    for members, block in of_strata.views(cells):
        for strata, result in zip(members, block, strict=True):
            result[...] = between[np.searchsorted(first, strata[0], "right") - 1]
    return cells


def _gap_flag(eeg: SideChannel, control: SideChannel, p: float) -> Flag:
    both = max(eeg.p, control.p) <= ALPHA
    code, where = (UNEQUAL, "of different size") if both else (ONE_SIDED, "in one condition only")
    message = (
        f"length side channel {where}: task and length alone add {eeg.worth:+.2f} to the score of {eeg.name} and "
        f"{control.worth:+.2f} to that of {control.name} ({p_text(p)}); the part that remains within the strata does "
        "not cancel; give both conditions equally many words (the same attention mask)"
    )
    return Flag(code, "warning", message)


def _length_only_flags(channels: Sequence[SideChannel]) -> list[Flag]:
    return [
        Flag(
            "length_only_scores",
            "note",
            f"the length-only control gains {c.worth:+.2f} from task and length alone ({p_text(c.p)})",
        )
        for c in channels[1:]
        if "length" in c.name and c.p <= ALPHA
    ]
