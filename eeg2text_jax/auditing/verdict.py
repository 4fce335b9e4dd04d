"""The verdict of an audit: rules, explanation in words, and exit status for scripts."""

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence

from eeg2text_jax.auditing.contrast import Contrast, Evidence
from eeg2text_jax.auditing.guessed_strata import EQUAL_LENGTHS

ALPHA = 0.05  # significance level of one-sided tests
SHOWN = 0.005  # smallest score (in points) that is not printed as 0.00


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


# Statuses 1 and 2 have other meanings: Python crashed, and a user error.
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

FOUND = (Verdict.USES_EEG, Verdict.BELOW_MARGIN, Verdict.CONTENT)  # verdicts that claim content

# With several controls EEG must beat all of them: the overall verdict is the first of these that any comparison has.
PRECEDENCE = (
    Verdict.NOT_JUDGEABLE,
    Verdict.UNDERPOWERED,
    Verdict.NO_CONTENT,
    Verdict.CONTROL_BETTER,
    Verdict.EQUIVALENT,
    Verdict.UNPROVEN,
    Verdict.BELOW_MARGIN,
    Verdict.USES_EEG,
    Verdict.CONTENT,  # only without a control
)


def judge(
    contrast: Contrast,
    margin: float,
    derived: Sequence[Contrast] = (),
    *,
    scores_vary: bool = True,
    identical: bool = False,
) -> Verdict:
    """Return the verdict of EEG against one control.

    A difference needs a permutation p of at most 5 % and a 90 % interval on one side of 0; both, so that the printed
    figures agree with the verdict. Equivalence needs a 90 % interval inside the margin: two one-sided tests at 5 %.

    Args:
      contrast: the comparison within the strata of the alignment.
      margin: the smallest difference that matters, in points.
      derived: the comparison within other strata; a claim must hold in these, too.
      scores_vary: whether other references would have changed EEG's score; if not, nothing can be concluded.
      identical: whether EEG and control have the same predictions; they are equivalent then.
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
    """Return the verdict of EEG without a control; content below the margin in all strata is `BELOW_MARGIN`."""
    found = [contrast, *derived]
    if not all(map(is_above, found)):
        return Verdict.NO_CONTENT
    return Verdict.BELOW_MARGIN if all(c.smallest_margin < margin for c in found) else Verdict.CONTENT


def is_above(contrast: Contrast) -> bool:
    """Return whether EEG has significantly more content, by the permutation p and by the 90 % interval."""
    return contrast.p_primary <= ALPHA and contrast.effect >= SHOWN and contrast.interval_90[0] > 0


def _is_below(contrast: Contrast) -> bool:
    return contrast.p_less_primary <= ALPHA and contrast.effect < 0 and contrast.interval_90[1] < 0


@dataclasses.dataclass(frozen=True)
class Comparison(Evidence):
    """The comparison of EEG with one control, with its verdict."""

    verdict: Verdict
    sentence: str  # the figures in words, then the reading
    question: str = ""  # what a control that does not decide asks; "" if the control decides
    reading: str = ""  # the conclusion that the verdict permits

    @property
    def mde(self) -> float:
        return verdict_mde(self.primary, self.derived.values())


def deciding_one(comparisons: Iterable[Comparison]) -> Comparison:
    """Return the comparison that gives the overall verdict.

    If several comparisons have this verdict, the one least in favor of EEG is returned: with the smallest difference
    or, for *equivalent to control*, with the widest margin.
    """

    def rank(c: Comparison) -> tuple[int, float]:
        favor = -c.primary.smallest_margin if c.verdict is Verdict.EQUIVALENT else c.primary.effect
        return PRECEDENCE.index(c.verdict), favor

    return min((c for c in comparisons if not c.question), key=rank)


def p_cell(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def p_text(p: float) -> str:
    return f"p {'= ' if p >= 0.001 else ''}{p_cell(p)}"


def interval_text(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.2f} to {interval[1]:+.2f}"


def verdict_mde(contrast: Contrast, derived: Iterable[Contrast] = ()) -> float:
    """Return the largest minimum detectable effect of all strata, as a claim must hold in all of them."""
    return max(c.mde for c in (contrast, *derived))


def detectable(contrast: Contrast, derived: Iterable[Contrast] = ()) -> str:
    """Return the minimum detectable effect in words, also if it is infinite."""
    least = verdict_mde(contrast, derived)
    return f"minimum detectable effect {least:.2f}" if least < float("inf") else "no effect was detectable"


def uncountable(contrast: Contrast) -> str:
    """Return why no effect is detectable, however many sentences there are; "" if an effect is detectable."""
    if contrast.mde < float("inf"):
        return ""
    if max(map(abs, contrast.scores)) < SHOWN:
        return "no words can be counted here: every score is 0, also against other sentences"
    return "the outputs do not depend on the sentence: they score the same against any other sentence"


def exchanged(task_known: bool) -> str:
    """Describe what the sentences of a stratum have in common."""
    return "equal task and length" if task_known else "equal length"


def both_p(contrast: Contrast, less: bool) -> str:
    """Return in words the p for more (or `less`) content: of the permutation and, if there is one, of the seeds."""
    p = p_text(contrast.p_less if less else contrast.p)
    if contrast.p_seeds is None:
        return p
    p_seeds = 1 - contrast.p_seeds if less else contrast.p_seeds
    return f"{p}; over {len(contrast.seed_effects)} seeds {p_text(p_seeds)}"


def derived_text(derived: Mapping[str, Contrast], less: bool = False) -> str:
    """Return in words the difference if strata are formed in other ways, and why they are; "" if `derived` is empty."""
    if not derived:
        return ""
    found = " and ".join(
        f"{c.effect:+.2f} by {source} ({p_text(c.p_less_primary if less else c.p_primary)})"
        for source, c in derived.items()
    )
    return f"; {because(derived)}, and within other strata it was {found}"


def because(derived: Mapping[str, Contrast]) -> str:
    """Return why the test was repeated within other strata, by the names of these strata."""
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
    """Return the conclusion of one comparison in words, for any verdict but *not judgeable*.

    `own` is EEG's content above its own null; `p_control` is the p of the control's content above its null.
    """
    if verdict is Verdict.USES_EEG:
        return f"the model uses the EEG, as measured against {control}"
    if verdict is Verdict.BELOW_MARGIN:
        return f"more content than with {control}, but by less than the margin of {margin:g}"
    widest = abs(max(c.smallest_margin for c in (contrast, *derived)))
    smallest = f"smallest margin that would have passed{' in all strata' if derived else ''} {widest:.2f}"
    if verdict is Verdict.EQUIVALENT and widest == float("inf"):
        return f"equivalent to {control} within ±{margin:g}, as the outputs of both are the same"
    if verdict is Verdict.EQUIVALENT:
        return (
            f"equivalent to {control} within ±{margin:g}{_small_p(contrast, derived)} ({smallest}; "
            f"{detectable(contrast, derived)})"
        )
    if verdict is Verdict.CONTROL_BETTER:
        has_content = p_control <= ALPHA
        return (
            f"less content with {eeg} than with {control}, which speaks against {eeg} and not for {control}; "
            f"on its own {control} has {'content' if has_content else 'none'} above its null ({p_text(p_control)}), "
            f"{'look for its source' if has_content else 'one comparison in twenty ends like this by chance'}"
        )
    own_why = uncountable(own) if own else ""
    if why := uncountable(contrast) or (f"{eeg}: {own_why}" if own_why else ""):
        return f"{why}; neither a difference nor equivalence within ±{margin:g} can be claimed"
    return (
        f"underpowered, neither a difference nor equivalence within ±{margin:g} can be claimed"
        f"{_small_p(contrast, derived)} ({detectable(contrast, derived)}; {smallest})"
    )


def not_its_own(content: Contrast, p: float, eeg: str, control: str) -> str:
    """Return the conclusion if EEG has more content than the control, but none (`content`, `p`) above its own null."""
    return (
        f"no content found: {eeg} has none above its own null ({content.effect:+.2f}, {p_text(p)}; "
        f"{detectable(content)}), so the difference only says that {control} fits other sentences better than its own"
    )


def _small_p(contrast: Contrast, derived: Sequence[Contrast]) -> str:
    """Explain a small p beside a verdict that claims no difference; "" if p is large."""
    if min(contrast.p_primary, contrast.p_less_primary) > ALPHA:
        return ""
    if all(map(_is_below, (contrast, *derived))):
        return ", with less content by a detectable difference that does not matter"
    if is_above(contrast) or _is_below(contrast):
        return "; the difference within equal length does not hold within all strata and is not claimed"
    return "; p alone shows a difference, but the interval includes 0, so none is claimed"


def alone_reading(verdict: Verdict, contrast: Contrast, derived: Sequence[Contrast], margin: float) -> str:
    """Return in words the conclusion about EEG if there is no control."""
    if verdict is Verdict.BELOW_MARGIN:
        return f"more content than with other sentences, but by less than the margin of {margin:g}"
    if verdict is Verdict.CONTENT:
        return (
            "the file holds content about the sentences; whether it comes from the EEG or from something that goes "
            "with the sentence (length, recording, subject, memory of training text), only a control can tell"
        )
    if contrast.p_primary <= ALPHA:
        return f"the file shows no content that can be claimed{_small_p(contrast, derived)}"
    if why := uncountable(contrast):
        return f"the file shows no content: {why}"
    return f"the file shows no content ({detectable(contrast, derived)}: a smaller effect would not have been found)"
