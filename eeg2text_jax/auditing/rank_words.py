"""Sentences of the audit of rankings: chance level, findings, and each comparison."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing import verdict
from eeg2text_jax.auditing.align import Aligned
from eeg2text_jax.auditing.contrast import Contrast
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.result import Evidence
from eeg2text_jax.auditing.side_channel import SideChannel
from eeg2text_jax.auditing.verdict import Verdict
from eeg2text_jax.metrics.ranks import Figures, by_length, chance, chance_interval, right_statistics
from eeg2text_jax.predictions.rankings import Ranking


@dataclasses.dataclass(frozen=True)
class RankedCondition:
    """The figures of one condition."""

    name: str
    rows: int
    figures: Figures
    content: Contrast
    derived: dict[str, Contrast]
    side_channel: SideChannel

    @property
    def p(self) -> float:
        """The largest p of the content over all strata."""
        return max(c.p_primary for c in (self.content, *self.derived.values()))


def held_against(eeg: Sequence[Ranking], endpoint: Endpoint, sentences: int) -> dict[str, Any]:
    """Return the number of candidates, the chance level, and the length-only baseline."""
    sizes = [len(row.candidates) for row in eeg]
    fewest, k = min(sizes), (1, 5)[endpoint.column] if endpoint.column < 2 else 0
    lengths = Figures.of(right_statistics(eeg, [by_length(row) for row in eeg]).sum(0))
    if not k:  # the percentile of a rank drawn at random: mean 50, of a uniform distribution
        reach = 1.96 * 100 / np.sqrt(12 * sentences)
        return _chance((fewest, max(sizes)), 50.0, (50 - reach, 50 + reach), lengths)
    by_chance = 100.0 * float(np.mean([chance(size, k) for size in sizes]))
    low, high = chance_interval(fewest, k, sentences)
    return _chance((fewest, max(sizes)), by_chance, (100 * low, 100 * high), lengths)


def _chance(sizes: tuple[int, int], value: float, interval: tuple[float, float], lengths: Figures) -> dict[str, Any]:
    return {"candidates": sizes, "chance": value, "chance_interval": interval, "by_length": lengths}


def chance_flags(
    conditions: Sequence[RankedCondition], evidence: Sequence[Evidence], endpoint: Endpoint, held: dict[str, Any]
) -> list[Flag]:
    """Flag scores above chance without content: chance is not a control, because length alone may exceed it."""
    flags = []
    high, lengths = held["chance_interval"][1], dataclasses.astuple(held["by_length"])[endpoint.column]
    eeg = conditions[0]
    if eeg.content.scores[0] > high and not all(verdict.is_above(found.primary) for found in evidence):
        others = ", ".join(f"{c.name} {c.content.scores[0]:.1f}" for c in conditions[1:]) or "there is no control"
        message = (
            f"{endpoint.label} of {eeg.name}, {eeg.content.scores[0]:.1f} %, is above chance ({held['chance']:.1f} %), "
            f"which shows nothing by itself ({others}; whoever knows the number of words alone has {lengths:.1f} %)"
        )
        flags.append(Flag("above_chance_is_no_content", "warning", message))
    for control in conditions[1:]:
        if "length" in control.name and control.content.scores[0] > high:
            message = (
                f"{control.name} has {control.content.scores[0]:.1f} % {endpoint.label} (chance {held['chance']:.1f} "
                "%): the number of words tells sentences apart, and a score that was held against chance would hold it"
            )
            flags.append(Flag("length_tells", "warning", message))
    return flags


def in_words(found: Evidence, outcome: Verdict, aligned: Aligned, endpoint: Endpoint, held: dict[str, Any]) -> str:
    """Describe one comparison in figures; p is for the direction of the verdict."""
    less, primary = outcome is Verdict.CONTROL_BETTER, found.primary
    fewest, most = held["candidates"]
    among = f"{fewest} sentences" if fewest == most else f"{fewest} to {most} sentences"
    with_control = f" and {primary.scores[1]:.1f} % with {found.control}" if found.control else ""
    beyond = "difference in" if found.control else "content, that is, in"
    seeds = ""
    if primary.p_seeds is not None:
        p_seeds = 1 - primary.p_seeds if less else primary.p_seeds
        seeds = f"; over {len(primary.seed_effects)} seeds {verdict.p_text(p_seeds)}"
    return (
        f"which of {among} was read ({len(aligned.references)} independent sentences, {len(aligned.eeg.rows)} rows): "
        f"{endpoint.label} was {primary.scores[0]:.1f} % with {aligned.eeg.name}{with_control}, by chance "
        f"{held['chance']:.1f} %; the {beyond} how much oftener the sentence that was read is found than others of "
        f"{verdict.exchanged(aligned.task_known)} was {primary.effect:+.1f} points (90 % CI "
        f"{verdict.interval_text(primary.interval_90)}; sentence permutation, one-sided: "
        f"{verdict.p_text(primary.p_less if less else primary.p)}{seeds})"
        f"{verdict.derived_text(found.derived, less)}"
    )
