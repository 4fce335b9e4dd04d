"""The length side channel: how much of a score comes from the sentence's length, which the attention mask leaks.

The verdict compares sentences within strata of one task and similar length, where the length tells nothing. The side
channel is measured between strata: the score of predictions against other sentences of their stratum, minus their score
against sentences of any stratum of the task.
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
GAP_ALPHA = 0.05  # two-sided level at which side channels differ; claims are then also tested at equal lengths
ALPHA = 0.01  # significance level at which a single side channel exists
SENTENCES, ROWS = 400, 40  # limits: sentences that are measured, and rows of each of them


@dataclasses.dataclass(frozen=True)
class SideChannel:
    """Points of score that task and length alone give in one condition (`worth`), with the permutation p."""

    name: str
    worth: float
    p: float


def measure_side_channel(
    aligned: Aligned, metric: Metric, score: Score, *, resamples: int, rng: np.random.Generator
) -> tuple[list[SideChannel], list[Flag]]:
    """Measure the side channel of each condition; return findings where it differs between conditions.

    Large files are subsampled (whole strata, `ROWS` rows of a sentence), so the time is bounded.
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
    """Measure the side channel of each condition by permuting whole strata within their task.

    Null hypothesis: predictions do not depend on the stratum that a sentence of the task is in. The predictions of a
    stratum (their mean, without those for the reference's own sentence) are then exchangeable between strata. All
    conditions have the same permutations, and each reference keeps its number of rows.

    Args:
      names: of the conditions, EEG first.
      tables: weighted table of each condition, `[C, K]`.
      blocks: the blocks of these tables; here their strata are the tasks.
      strata: the stratum of each sentence, int `[S]`.
      score: summed statistics -> score.
    """
    between = [_between_strata(table, blocks, strata) for table in tables]
    of_strata = blocks_of(np.concatenate([np.full(len(b), i) for i, b in enumerate(between[0])]))
    if not of_strata.groups:
        return [SideChannel(name, 0.0, 1.0) for name in names], []
    cells = [_stratum_cells(found, of_strata) for found in between]
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
    for c in channels[1:]:
        if "length" in c.name and c.p <= ALPHA:
            message = f"the length-only control gains {c.worth:+.2f} from task and length alone ({p_text(c.p)})"
            flags.append(Flag("length_only_scores", "note", message))
    return channels, flags


def _between_strata(table: np.ndarray, blocks: Blocks, strata: np.ndarray) -> list[np.ndarray]:
    """Return for each task a table `[Q, Q, K]`: the mean predictions of stratum a against the references of stratum b.

    The mean leaves out the reference's own sentence, so strata of one sentence are left out.
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


def _stratum_cells(between: Sequence[np.ndarray], of_strata: Blocks) -> np.ndarray:
    """Return the tables of all tasks as the cells `[C, K]` of the blocks of strata."""
    cells = np.empty((of_strata.n_cells, between[0].shape[-1]))
    first = np.cumsum([0, *map(len, between)])
    for members, block in of_strata.views(cells):
        for strata, result in zip(members, block, strict=True):
            result[...] = between[np.searchsorted(first, strata[0], "right") - 1]
    return cells


def _gap_flag(eeg: SideChannel, control: SideChannel, p: float) -> Flag:
    """Return a warning about side channels that differ; `p` is of their difference."""
    both = max(eeg.p, control.p) <= ALPHA
    code, where = (UNEQUAL, "of different size") if both else (ONE_SIDED, "in one condition only")
    message = (
        f"length side channel {where}: task and length alone add {eeg.worth:+.2f} to the score of {eeg.name} and "
        f"{control.worth:+.2f} to that of {control.name} ({p_text(p)}); the part that remains within the strata does "
        "not cancel; give both conditions equally many words (the same attention mask)"
    )
    return Flag(code, "warning", message)
