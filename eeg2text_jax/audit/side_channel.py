"""How far predictions know the length of the sentence: the leak that an attention mask carries.

Within a stratum (one task, nearly one length) the length tells nothing, so the verdict does not see this leak. What
it is worth is measured here between strata: the score against other sentences of the same stratum, minus the score
against sentences of any stratum of the task.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.audit import statistics
from eeg2text_jax.audit.red_flags import Flag
from eeg2text_jax.audit.statistics import Score
from eeg2text_jax.audit.verdict import p_text

ALPHA = 0.01  # of the warning, both sides


@dataclasses.dataclass(frozen=True)
class SideChannel:
    """Points of score that knowing task and length is worth in one condition, with its permutation p."""

    name: str
    worth: float
    p: float


def measure_side_channel(
    names: Sequence[str],
    tables: Sequence[np.ndarray],
    strata: np.ndarray,
    groups: np.ndarray,
    score: Score,
    *,
    resamples: int,
    rng: np.random.Generator,
) -> tuple[list[SideChannel], list[Flag]]:
    """Measures each condition; flags a channel that is open in EEG or in a control only.

    `tables` are `[S, S, K]` per condition, EEG first, filled within `groups` (the task of each stratum's sentences).
    The p-values permute whole strata within their group, the same permutation for every condition.
    """
    group_of_stratum = np.array([groups[np.argmax(strata == s)] for s in range(strata.max() + 1)])
    blocks = [_between_strata(pairs, strata, group_of_stratum) for pairs in tables]
    permuted = statistics.permutations(group_of_stratum, resamples, rng)
    draws = np.stack([score(statistics.permuted_totals(block, permuted)) for block in blocks])  # [conditions, B]
    observed = np.array([score(np.einsum("aak->k", block)) for block in blocks])
    worths = observed - draws.mean(1)
    channels = [
        SideChannel(name, float(worth), statistics.p_value(value, null))
        for name, worth, value, null in zip(names, worths, observed, draws, strict=True)
    ]
    flags = []
    for index, channel in enumerate(channels[1:], 1):
        gap, null = observed[0] - observed[index], draws[0] - draws[index]
        p = 2 * min(statistics.p_value(gap, null), statistics.p_value(-gap, -null))
        if p <= ALPHA:
            flags.append(_gap_flag(channels[0], channel, p))
    return channels, flags + _length_only_flags(channels)


def _between_strata(pairs: np.ndarray, strata: np.ndarray, group_of_stratum: np.ndarray) -> np.ndarray:
    """`[Q, Q, K]`: predictions of stratum a against the mean other sentence of stratum b, summed over a."""
    membership = (strata[:, None] == np.arange(len(group_of_stratum))).astype(float)  # [S, Q]
    others = pairs.copy()
    others[np.arange(len(strata)), np.arange(len(strata))] = 0
    sums = np.einsum("sa,stk,tb->abk", membership, others, membership, optimize=True)
    sizes = membership.sum(0)
    partners = np.broadcast_to(sizes, (len(sizes), len(sizes))) - np.eye(len(sizes))
    return sums / partners[..., None]


def _gap_flag(eeg: SideChannel, control: SideChannel, p: float) -> Flag:
    message = (
        f"length side channel in one condition only: knowing task and length is worth {eeg.worth:+.2f} with {eeg.name} "
        f"and {control.worth:+.2f} with {control.name} ({p_text(p)}); what is left of it inside the strata does not "
        "cancel, give both the same mask"
    )
    return Flag("side_channel_in_one_condition", "warning", message)


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
