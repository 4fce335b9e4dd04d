"""The verdict of an audit: its rules, its explanation in words, and its exit status for scripts."""

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence

from eeg2text_jax.auditing.contrast import Contrast, Evidence
from eeg2text_jax.auditing.guessed_strata import EQUAL_LENGTHS

ALPHA = 0.05  # one-sided
SHOWN = 0.005  # points of score that two decimals show


class Verdict(enum.StrEnum):
    USES_EEG = "uses EEG"
    BELOW_MARGIN = "detectable but below the margin"
    UNDERPOWERED = "underpowered"
    EQUIVALENT = "equivalent to control"
    CONTROL_BETTER = "control better"
    CONTENT = "content above its null"
    NO_CONTENT = "no content found above its null"
    UNPROVEN = "content of unproven origin"
    NOT_JUDGEABLE = "not judgeable"


# 0 and 1 are not used for bad news: 1 is what Python exits with when it crashes, 2 is a user's mistake.
EXIT_STATUS = {
    Verdict.USES_EEG: 0,
    Verdict.CONTENT: 0,
    Verdict.BELOW_MARGIN: 3,
    Verdict.UNDERPOWERED: 4,
    Verdict.EQUIVALENT: 5,
    Verdict.CONTROL_BETTER: 6,
    Verdict.NO_CONTENT: 7,
    Verdict.NOT_JUDGEABLE: 8,
    Verdict.UNPROVEN: 9,
}

# With several controls all must be beaten, and the weakest answer decides: the first of these that any control earns.
PRECEDENCE = (
    Verdict.NOT_JUDGEABLE,
    Verdict.UNDERPOWERED,
    Verdict.NO_CONTENT,
    Verdict.CONTROL_BETTER,
    Verdict.EQUIVALENT,
    Verdict.UNPROVEN,
    Verdict.BELOW_MARGIN,
    Verdict.USES_EEG,
)


def judge(
    contrast: Contrast,
    margin: float,
    derived: Sequence[Contrast] = (),
    *,
    scores_vary: bool = True,
    identical: bool = False,
) -> Verdict:
    """Judge EEG against one control. A claim is made only if it holds under `contrast` and each of `derived`.

    A claimed difference counts as smaller than the margin only if it is so under each of them.

    A difference is claimed where the permutation p is at most 5 % and the 90 % interval lies on the same side of 0 (two
    looks at one thing, so that the figures printed beside the verdict never speak against it); equivalence where the
    90 % interval is inside the margin, which is two one-sided tests at 5 %.

    `scores_vary` is false where other references would not have changed EEG's own score (all scores are 0, say): then
    nothing could be found and nothing is excluded. `identical` outputs are equivalent, whatever they are.
    """
    found = [contrast, *derived]
    if identical:
        return Verdict.EQUIVALENT
    if not scores_vary:
        return Verdict.UNDERPOWERED
    inside = all(c.smallest_margin < margin for c in found)
    if all(map(is_above, found)):
        return Verdict.BELOW_MARGIN if inside else Verdict.USES_EEG
    if inside:
        return Verdict.EQUIVALENT
    if all(map(_is_below, found)):
        return Verdict.CONTROL_BETTER
    return Verdict.UNDERPOWERED


def judge_alone(contrast: Contrast, margin: float, derived: Sequence[Contrast] = ()) -> Verdict:
    """Judge one file without a control. Content that is smaller than the margin in all strata is `BELOW_MARGIN`."""
    found = [contrast, *derived]
    if not all(map(is_above, found)):
        return Verdict.NO_CONTENT
    return Verdict.BELOW_MARGIN if all(c.smallest_margin < margin for c in found) else Verdict.CONTENT


def is_above(contrast: Contrast) -> bool:
    """Return whether EEG has more content, by the permutation and by the interval."""
    return contrast.p_primary <= ALPHA and contrast.effect >= SHOWN and contrast.interval_90[0] > 0


def _is_below(contrast: Contrast) -> bool:
    return contrast.p_less_primary <= ALPHA and contrast.effect < 0 and contrast.interval_90[1] < 0


@dataclasses.dataclass(frozen=True)
class Comparison(Evidence):
    """Evidence with its verdict. `question` is the question of a control that does not decide; "" if it decides.

    `sentence` has the figures and then the `reading`, which is what may be said.
    """

    verdict: Verdict
    sentence: str
    question: str = ""
    reading: str = ""

    @property
    def mde(self) -> float:
        return verdict_mde(self.primary, self.derived.values())


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    return min(verdicts, key=PRECEDENCE.index)


def strictest(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the comparison that leaves EEG the least: the smallest difference, or the widest margin of equivalents."""

    def left_to_eeg(comparison: Comparison) -> float:
        found = comparison.primary
        return -found.smallest_margin if comparison.verdict is Verdict.EQUIVALENT else found.effect

    return min(comparisons, key=left_to_eeg)


def p_cell(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def p_text(p: float) -> str:
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def interval_text(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.2f} to {interval[1]:+.2f}"


def verdict_mde(contrast: Contrast, derived: Iterable[Contrast] = ()) -> float:
    """Return the minimum detectable effect of a verdict: the largest of all strata, as a claim must pass under each."""
    return max(c.mde for c in (contrast, *derived))


def detectable(contrast: Contrast, derived: Iterable[Contrast] = ()) -> str:
    """Return the minimum detectable effect in words; it is infinite if no permutation changes the score."""
    least = verdict_mde(contrast, derived)
    return f"minimum detectable effect {least:.2f}" if least < float("inf") else "no effect was detectable"


def uncountable(contrast: Contrast) -> str:
    """Return why no number of sentences would show an effect; "" if an effect is detectable."""
    if contrast.mde < float("inf"):
        return ""
    if max(map(abs, contrast.scores)) < SHOWN:
        return "no words can be counted here: every score is 0, against whichever sentence"
    return "the outputs do not depend on the sentence: against any other one they score the same"


def exchanged(task_known: bool) -> str:
    """Describe what the sentences of a stratum have in common."""
    return "equal task and length" if task_known else "equal length"


def unfit_sentence(reasons: Sequence[str], figures: str) -> str:
    """Return the sentence of *not judgeable*: the reasons, then the figures."""
    return f"Not judgeable: {'; '.join(reasons)}. The figures, which show nothing: {figures}."


def both_p(contrast: Contrast, less: bool) -> str:
    """Return the p of the permutation, and of the test over seeds if seeds are a level; `less`: for less content."""
    p = p_text(contrast.p_less if less else contrast.p)
    if contrast.p_seeds is None:
        return p
    p_seeds = 1 - contrast.p_seeds if less else contrast.p_seeds
    return f"{p}; over {len(contrast.seed_effects)} seeds {p_text(p_seeds)}"


def derived_text(derived: Mapping[str, Contrast], less: bool = False) -> str:
    """Return the difference within other strata in words."""
    if not derived:
        return ""
    found = " and ".join(
        f"{c.effect:+.2f} by {source} ({p_text(c.p_less_primary if less else c.p_primary)})"
        for source, c in derived.items()
    )
    return f"; {because(derived)}, and within other strata it was {found}"


def because(derived: Mapping[str, Contrast]) -> str:
    """Return why the test was repeated within other strata."""
    unknown = ["the tasks are not known"] if derived.keys() - {EQUAL_LENGTHS} else []
    leaks = ["the number of words leaks in one condition only"] if EQUAL_LENGTHS in derived else []
    return " and ".join(unknown + leaks)


def paired_reading(
    verdict: Verdict,
    contrast: Contrast,
    derived: Sequence[Contrast],
    *,
    eeg: str,
    control: str,
    p_control: float,
    margin: float,
    own: Contrast | None = None,
) -> str:
    """Return the reading of one comparison, for any verdict but *not judgeable*.

    `own` is EEG's content above its own null; `p_control` is the p of the control's.
    """
    if verdict is Verdict.USES_EEG:
        return f"the model uses the EEG, as measured against {control}"
    if verdict is Verdict.BELOW_MARGIN:
        return f"more content than with {control}, but by less than the margin of {margin:g}"
    widest = abs(max(c.smallest_margin for c in (contrast, *derived)))
    if verdict is Verdict.EQUIVALENT and widest == float("inf"):
        return f"equivalent to {control} within ±{margin:g}, as the outputs of both are the same"
    if verdict is Verdict.EQUIVALENT:
        return (
            f"equivalent to {control} within ±{margin:g}{_untold(contrast, derived)} ({_smallest(widest, derived)}; "
            f"{detectable(contrast, derived)})"
        )
    if verdict is Verdict.CONTROL_BETTER:
        held = "content" if p_control <= ALPHA else "none"
        alone = f"on its own {control} has {held} above its null ({p_text(p_control)})"
        chance = "look for what reaches it" if p_control <= ALPHA else "one comparison in twenty ends so by chance"
        return (
            f"less content with {eeg} than with {control}, which speaks against {eeg} and not for {control}; {alone}, "
            f"{chance}"
        )
    own_why = uncountable(own) if own else ""
    if why := uncountable(contrast) or (f"{eeg}: {own_why}" if own_why else ""):
        return f"{why}; neither a difference nor equivalence within ±{margin:g} can be claimed"
    return (
        f"underpowered, neither a difference nor equivalence within ±{margin:g} can be claimed"
        f"{_untold(contrast, derived)} ({detectable(contrast, derived)}; "
        f"{_smallest(widest, derived)})"
    )


def _smallest(margin: float, derived: Sequence[Contrast]) -> str:
    return f"smallest margin that would have passed{' in all strata' if derived else ''} {margin:.2f}"


def not_its_own(content: Contrast, p: float, eeg: str, control: str) -> str:
    """What a difference says where EEG's outputs have no content above their own null."""
    return (
        f"no content found: {eeg} has none above its own null ({content.effect:+.2f}, {p_text(p)}; "
        f"{detectable(content)}), so the difference only says that {control} fits other sentences better than its own"
    )


def _untold(contrast: Contrast, derived: Sequence[Contrast]) -> str:
    """Explain a small p beside a verdict that claims no difference; "" if p is large."""
    if min(contrast.p_primary, contrast.p_less_primary) > ALPHA:
        return ""
    if all(map(_is_below, (contrast, *derived))):
        return ", with less content by a detectable difference that does not matter"
    if is_above(contrast) or _is_below(contrast):
        return "; the difference within equal length does not hold within all strata and is not claimed"
    return "; p alone would be a difference, but the interval reaches across 0 and none is claimed"


def alone_reading(verdict: Verdict, contrast: Contrast, derived: Sequence[Contrast], margin: float) -> str:
    """Return the reading of EEG alone, with what cannot be told without a control."""
    if verdict is Verdict.BELOW_MARGIN:
        return f"more content than with other sentences, but by less than the margin of {margin:g}"
    if verdict is Verdict.CONTENT:
        return (
            "the file holds content about the sentences; whether it comes from the EEG or from something that goes "
            "with the sentence (length, recording, subject, memory of training text), only a control can tell"
        )
    if contrast.p_primary <= ALPHA:
        return f"the file shows no content that would hold{_untold(contrast, derived)}"
    if why := uncountable(contrast):
        return f"the file shows no content: {why}"
    return f"the file shows no content ({detectable(contrast, derived)}: what is less would not have been found)"
