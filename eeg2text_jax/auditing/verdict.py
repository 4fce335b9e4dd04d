"""The verdict of an audit: one value with its qualifiers, from which text, color and exit status are made."""

import dataclasses
import enum
from collections.abc import Iterable

from eeg2text_jax.auditing.contrast import Carrier, Contrast

RULE_OF_THREE = 3.0  # of S sentences that were not decoded, a share of up to 3 / S could have been, at 95 %


class Verdict(enum.StrEnum):
    """What one comparison, or the whole audit, says."""

    USES_EEG = "uses EEG"
    CONTENT = "content above its null"
    BELOW_MARGIN = "detectable but below the margin"
    UNDERPOWERED = "underpowered"
    EQUIVALENT = "equivalent to control"
    CONTROL_BETTER = "control better"
    NO_CONTENT = "no content found above its null"
    UNPROVEN = "content of unproven origin"
    NOT_JUDGEABLE = "not judgeable"

    def named(self, recording: str) -> str:
        """Return the verdict with the name of the recordings, EEG or another."""
        return self.value.replace("EEG", recording)


class Level(enum.StrEnum):
    """What content is about."""

    SENTENCE = "of the sentence"
    KIND = "of its kind"
    UNKNOWN = "of the sentence or of its kind: not known"


class Time(enum.StrEnum):
    """Whether content goes beyond what the time of the recording tells."""

    BEYOND = "beyond its time"
    NOT_BEYOND = "not beyond its time"
    UNKNOWN = "beyond its time: not known"


FOUND = (Verdict.USES_EEG, Verdict.BELOW_MARGIN, Verdict.CONTENT, Verdict.UNPROVEN)  # verdicts on content that is there
# Statuses 1 and 2 have other meanings: Python crashed, and a user error.
EXIT_STATUS: dict[str, int] = {
    Verdict.USES_EEG: 0,
    Verdict.CONTENT: 0,
    Verdict.BELOW_MARGIN: 3,
    Verdict.UNDERPOWERED: 4,
    Verdict.EQUIVALENT: 5,
    Verdict.CONTROL_BETTER: 6,
    Verdict.NO_CONTENT: 7,
    Verdict.NOT_JUDGEABLE: 8,
    Verdict.UNPROVEN: 9,
    Time.NOT_BEYOND: 10,  # a claim of content with this qualifier
    Level.KIND: 11,  # likewise
}
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


@dataclasses.dataclass(frozen=True)
class Ruling:
    """The verdict of the audit with its qualifiers; those of a claim are empty where nothing is claimed.

    Attributes:
      base: the verdict without qualifiers.
      level: what the content is about.
      time: whether the content goes beyond the time of the recording.
      carriers: the readers, groups or few sentences without which the effect goes.
      recording: name of the recordings in sentences, EEG or fMRI.
      unseen: share of the sentences that may be decoded whole without being in the test; of *equivalent* alone.
      reason: why nothing is judged; of *not judgeable* alone.
    """

    base: Verdict
    level: Level | None = None
    time: Time | None = None
    carriers: tuple[Carrier, ...] = ()
    recording: str = "EEG"
    unseen: float | None = None
    reason: str = ""

    @property
    def restrictions(self) -> list[str]:
        """The qualifiers that restrict a claim."""
        found = [str(self.time)] if self.time is Time.NOT_BEYOND else []
        found += [str(self.level)] if self.level is Level.KIND else []
        return found + [f"carried by {carrier.name}" for carrier in self.carriers]

    @property
    def value(self) -> str:
        """The verdict with the qualifiers that restrict it, as JSON and Python have it."""
        name = self.base.named(self.recording)
        return f"{name}: {', '.join(self.restrictions)}" if self.restrictions else name

    @property
    def headline(self) -> str:
        """The verdict with all qualifiers that are known, and whether the content is about the sentence."""
        good = [str(q) for q in (self.time, self.level) if q in (Time.BEYOND, Level.SENTENCE)]
        said = [*good, *self.restrictions, *filter(None, [self.reason])]
        open_end = f" ({self.level})" if self.level is Level.UNKNOWN else ""
        if self.unseen is not None:
            open_end = f" (on average; decoding of up to {self.unseen:.1%} of all sentences could go unseen)"
        return self.base.named(self.recording) + (f": {', '.join(said)}" if said else "") + open_end

    @property
    def color(self) -> str:
        """The class of the report's box: good for a claim that nothing restricts, bad, or open."""
        if self.base is Verdict.USES_EEG:
            return "open" if self.restrictions else "good"
        return "open" if self.base in (Verdict.CONTENT, Verdict.UNPROVEN, Verdict.UNDERPOWERED) else "bad"

    @property
    def exit_status(self) -> int:
        status = EXIT_STATUS[self.base]
        restricting = [q for q in (self.time, self.level) if q in EXIT_STATUS]
        return EXIT_STATUS[restricting[0]] if status == 0 and restricting else status

    def __str__(self) -> str:
        return self.headline


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The comparison of EEG with one control, or with its own null, with its verdict."""

    contrast: Contrast
    verdict: Verdict
    question: str = ""  # what a control that does not decide asks; "" if the control decides

    @property
    def control(self) -> str:
        return self.contrast.control


def judge(found: Contrast, own: Contrast, margin: float, *, identical: bool = False) -> Verdict:
    """Return the verdict of EEG against one control; `own` is EEG against its own null.

    More content needs a p of at most 5 % and a 90 % interval above 0, also against EEG's own null: a control that fits
    other sentences better than its own makes any predictions look better. Equivalence needs a 90 % interval inside the
    margin: two one-sided tests at 5 %.

    Args:
      identical: whether EEG and control have the same predictions; they are equivalent then.
    """
    if identical:
        return Verdict.EQUIVALENT
    if not own.varies:
        return Verdict.UNDERPOWERED
    inside = found.reach < margin
    if found.above:
        if not own.above:
            return Verdict.NO_CONTENT if own.interval()[1] < margin else Verdict.UNDERPOWERED
        return Verdict.BELOW_MARGIN if inside else Verdict.USES_EEG
    if inside:
        return Verdict.EQUIVALENT
    return Verdict.CONTROL_BETTER if found.below else Verdict.UNDERPOWERED


def judge_alone(own: Contrast, margin: float) -> Verdict:
    """Return the verdict of EEG without a control."""
    if not own.above:
        return Verdict.NO_CONTENT
    return Verdict.BELOW_MARGIN if own.reach < margin else Verdict.CONTENT


def deciding_one(comparisons: Iterable[Comparison]) -> Comparison:
    """Return the comparison that gives the overall verdict.

    If several comparisons have this verdict, the one least in favor of EEG is returned: with the smallest difference
    or, for *equivalent to control*, with the widest margin.
    """

    def rank(c: Comparison) -> tuple[int, float, str]:
        favor = -c.contrast.reach if c.verdict is Verdict.EQUIVALENT else c.contrast.effect
        return PRECEDENCE.index(c.verdict), favor, c.control

    return min((c for c in comparisons if not c.question), key=rank)


def in_words(main: Comparison, own: Contrast, mde: float, margin: float, signal: str) -> str:
    """Return the verdict in a sentence that a lay reader understands; `signal` is EEG, fMRI or MEG."""
    against = f"with {main.control}" if main.control else "against other sentences"
    figures = figures_text(main.contrast)
    match main.verdict:
        case Verdict.USES_EEG | Verdict.BELOW_MARGIN if main.control:
            less = f", but by less than the margin of {margin:g}" if main.verdict is Verdict.BELOW_MARGIN else ""
            return f"The outputs fit their own sentences better with {signal} than {against}: {figures}{less}."
        case Verdict.CONTENT | Verdict.BELOW_MARGIN:
            return f"The outputs fit their own sentences better than others: {figures}. Only a control could say why."
        case Verdict.NOT_JUDGEABLE:
            return "There is no verdict, and nothing follows from the figures."
        case Verdict.UNPROVEN:
            better = f"better with {signal} than {against}" if main.control else "better than others"
            return (
                f"The outputs fit their own sentences {better}: {figures}. A decoder that was given the true text with "
                f"{signal} would look the same."
            )
        case Verdict.EQUIVALENT if not main.contrast.varies:
            return f"The outputs with {signal} and {against} are the same."
        case Verdict.EQUIVALENT:
            less = f"less than {margin:g} point{'s' * (margin != 1)}"
            return f"On average over the sentences, content differs by {less} from the control's: {figures}."
        case Verdict.CONTROL_BETTER:
            return f"The outputs fit their own sentences less well with {signal} than {against}: {figures}."
        case Verdict.UNDERPOWERED | Verdict.NO_CONTENT if not own.varies:
            return "The outputs score the same against every sentence, so nothing can be found in them."
        case Verdict.UNDERPOWERED:
            power = f"an effect of {mde:.2f} would have been found in 90 % of such studies"
            if main.control and main.contrast.above:
                return (
                    f"Too few sentences to tell: the outputs fit their own sentences better than {main.control}'s do "
                    f"({figures}), but were not found to fit them better than others ({figures_text(own)}); {power}."
                )
            return f"Too few sentences to tell: with {signal} minus {against}, {figures}; {power}."
        case Verdict.NO_CONTENT if main.control and main.contrast.above:
            return (
                f"The outputs fit their own sentences no better than others ({figures_text(own)}); the "
                f"difference from {main.control} says only that its outputs fit other sentences better than their own."
            )
        case _:
            return (
                f"Nothing shows that the outputs fit their own sentences better than others: {figures}; an effect of "
                f"{mde:.2f} would have been found in 90 % of such studies."
            )


def figures_text(found: Contrast) -> str:
    """Return effect, interval and p in words; p is for less content where EEG has less."""
    p, word = (found.decisive_p, "") if found.effect >= 0 or not found.below else (found.p_less, " for less")
    return f"{found.effect:+.2f} points (90 % CI {interval_text(found.interval())}; {p_text(p)}{word})"


def p_cell(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def p_text(p: float) -> str:
    return f"p {'= ' if p >= 0.001 else ''}{p_cell(p)}"


def interval_text(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.2f} to {interval[1]:+.2f}"
