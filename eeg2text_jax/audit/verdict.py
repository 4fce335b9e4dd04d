"""The verdict, the sentence that a paper could print, and the exit status for scripts."""

import enum
from collections.abc import Sequence

from eeg2text_jax.audit.contrast import Contrast

ALPHA = 0.05  # one-sided


class Verdict(enum.StrEnum):
    USES_EEG = "uses EEG"
    BELOW_MARGIN = "detectable but below the margin"
    UNDERPOWERED = "underpowered"
    EQUIVALENT = "equivalent to control"
    CONTROL_BETTER = "control better"
    CONTENT = "content above its null"
    NO_CONTENT = "no content found above its null"


# 0 and 1 are not used for bad news: 1 is what Python exits with when it crashes, 2 is a user's mistake.
EXIT_STATUS = {
    Verdict.USES_EEG: 0,
    Verdict.CONTENT: 0,
    Verdict.BELOW_MARGIN: 3,
    Verdict.UNDERPOWERED: 4,
    Verdict.EQUIVALENT: 5,
    Verdict.CONTROL_BETTER: 6,
    Verdict.NO_CONTENT: 7,
}

# With several controls all must be beaten: the first of these that any control earns is the verdict.
PRECEDENCE = (
    Verdict.CONTROL_BETTER,
    Verdict.EQUIVALENT,
    Verdict.UNDERPOWERED,
    Verdict.BELOW_MARGIN,
    Verdict.USES_EEG,
)


def judge(contrast: Contrast, margin: float) -> Verdict:
    """EEG against one control: significance by permutation, equivalence by the 90 % interval inside the margin."""
    inside = contrast.smallest_margin < margin
    if contrast.p_primary <= ALPHA and contrast.effect > 0:
        return Verdict.BELOW_MARGIN if inside else Verdict.USES_EEG
    if inside:
        return Verdict.EQUIVALENT
    if contrast.p_less_primary <= ALPHA and contrast.effect < 0:
        return Verdict.CONTROL_BETTER
    return Verdict.UNDERPOWERED


def judge_alone(contrast: Contrast) -> Verdict:
    """One file without a control."""
    return Verdict.CONTENT if contrast.p_primary <= ALPHA and contrast.effect > 0 else Verdict.NO_CONTENT


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    return min(verdicts, key=PRECEDENCE.index)


def p_cell(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def p_text(p: float) -> str:
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def interval_text(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.2f} to {interval[1]:+.2f}"


def paired_sentence(
    verdict: Verdict,
    contrast: Contrast,
    *,
    eeg: str,
    control: str,
    metric: str,
    margin: float,
    n_sentences: int,
    n_rows: int,
) -> str:
    """One comparison in words and figures."""
    seeds = "" if contrast.p_seeds is None else f"; over {len(contrast.seed_effects)} seeds {p_text(contrast.p_seeds)}"
    return (
        f"On {n_sentences} sentences ({n_rows} rows), {metric} was {contrast.scores[0]:.2f} with {eeg} and "
        f"{contrast.scores[1]:.2f} with {control}; in content, the score above that of the same predictions held "
        f"against other sentences of equal task and length, the difference was {contrast.effect:+.2f} (95 % CI "
        f"{interval_text(contrast.interval)}; sentence permutation {p_text(contrast.p)}{seeds}): "
        f"{_reading(verdict, contrast, control, margin)}."
    )


def _reading(verdict: Verdict, contrast: Contrast, control: str, margin: float) -> str:
    if verdict is Verdict.USES_EEG:
        return f"the model uses the EEG, as measured against {control}"
    if verdict is Verdict.BELOW_MARGIN:
        return f"more content than with {control}, but by less than the margin of {margin:g}"
    if verdict is Verdict.EQUIVALENT:
        return (
            f"equivalent to {control} within ±{margin:g} (smallest margin that would have passed "
            f"{contrast.smallest_margin:.2f}; minimum detectable effect {contrast.mde:.2f})"
        )
    if verdict is Verdict.CONTROL_BETTER:
        return f"less content than with {control} ({p_text(contrast.p_less_primary)})"
    return (
        f"underpowered, neither a difference nor equivalence within ±{margin:g} can be claimed (minimum detectable "
        f"effect {contrast.mde:.2f}; smallest margin that would have passed {contrast.smallest_margin:.2f})"
    )


def alone_sentence(verdict: Verdict, contrast: Contrast, *, metric: str, n_sentences: int, n_rows: int) -> str:
    """One file in words and figures, with what it cannot tell."""
    found = "holds content about the sentences" if verdict is Verdict.CONTENT else "shows no content"
    cannot = (
        "whether it comes from the EEG or from something that goes with the sentence (length, recording, subject, "
        "memory of training text), only a control can tell"
        if verdict is Verdict.CONTENT
        else f"content of less than {contrast.mde:.2f} (minimum detectable effect) would not have been found"
    )
    return (
        f"On {n_sentences} sentences ({n_rows} rows), {metric} was {contrast.scores[0]:.2f} against "
        f"{contrast.nulls[0]:.2f} when the same predictions are held against other sentences of equal task and length, "
        f"a difference of {contrast.effect:+.2f} (95 % CI {interval_text(contrast.interval)}; sentence permutation "
        f"{p_text(contrast.p)}): the file {found}; {cannot}."
    )
