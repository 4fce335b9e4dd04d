"""Content beyond time: would a model that knows only when a sample was recorded do as well?

Controls of time: `nearest_in_time` copies the training text nearest in time; an arm (one training run) trained on
`clock` is given only the recording session and the time in it; `neighbor` feeds a recording of the same minute. The
content difference against each of them decides. Null hypothesis: EEG has no more content than the control. Content is
how much better predictions fit their own sentences than other sentences of equal task and length.

`neighbor` alone does not suffice. If groups of sentences are shown in blocks, some neighbors are of another group, and
a model that knows only the time has content above this control. A model trained on EEG cannot read the input of
`clock`. So `nearest_in_time` or an arm trained on `clock` must be among the controls of time, and EEG must beat all of
these.

Exchanging predictions within stretches of time is no test by itself: if a stretch crosses a change of group, a model
that knows only the time seems to have content. So stretches are cut at the changes of a known group, and test content
within the group.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.strata import STRATUM_SIZE
from eeg2text_jax.auditing.verdict import FOUND, Comparison, Verdict, detectable, is_above, p_text
from eeg2text_jax.data.clock import clock_of_rows
from eeg2text_jax.predictions.foreign import UNKNOWN

TIME_CONTROLS = ("clock", "nearest_in_time", "neighbor")
BEYOND, NOT_BEYOND, NOT_EXCLUDED = "beyond its time", "not beyond its time", "time: not excluded"
QUESTION = "does content go beyond the time of the recording?"
SAID_BEHIND = (*FOUND, Verdict.UNPROVEN)  # verdicts followed by a statement on time
NOT_BEYOND_STATUS = 10  # exit status of content that the recording time explains


@dataclasses.dataclass(frozen=True)
class BeyondTime:
    """Whether content goes beyond the recording time, by the controls of time."""

    status: str  # BEYOND, NOT_BEYOND or NOT_EXCLUDED
    controls: tuple[str, ...]  # names of the controls of time
    sentence: str  # the status with its figures, for the report


def is_of_time(condition: Condition) -> bool:
    """Return whether a condition is in `TIME_CONTROLS`, by its name or by the evaluation condition of its rows."""
    return condition.name in TIME_CONTROLS or condition.rows[0].eval_condition in TIME_CONTROLS


def beyond_time(aligned: Aligned, comparisons: Sequence[Comparison]) -> BeyondTime:
    """Return whether content goes beyond time: EEG must beat all controls of time, within all strata."""
    names = [condition.name for condition in aligned.conditions[1:] if is_of_time(condition)]
    judged = [c for c in comparisons if c.control in names and c.verdict is not Verdict.NOT_JUDGEABLE]
    if not judged:
        known = clock_of_rows(aligned.eeg.rows).known.any()
        why = "there is no control of time" if not names else "no control of time can be judged"
        also = "" if known else ", and the rows do not say when they were recorded"
        told = f"Time: not excluded, as {why} ({', '.join(TIME_CONTROLS)}){also}"
        return BeyondTime(NOT_EXCLUDED, tuple(names), f"{told}.")
    figures = ", ".join(map(_figures, judged))
    if not all(all(map(is_above, c.contrasts)) for c in judged):
        told = "a model that knew only when a sample was recorded would do as well, as far as these controls can tell"
        return BeyondTime(NOT_BEYOND, tuple(names), f"Time: content is not shown to go beyond it, {figures}: {told}.")
    strong = {condition.name for condition in aligned.conditions[1:] if _knows_all(condition)}
    if strong & {c.control for c in judged}:
        return BeyondTime(BEYOND, tuple(names), f"Time: content goes beyond it, {figures}.")
    told = "these controls keep less than a clock could know; add nearest_in_time, or an arm trained on clock"
    return BeyondTime(NOT_EXCLUDED, tuple(names), f"Time: not excluded, {figures}: {told}.")


def time_lines(verdict: Verdict, time: BeyondTime) -> list[str]:
    """Return [whether content goes beyond the recording time] for a verdict that claims content; else []."""
    return [time.sentence] if verdict in SAID_BEHIND else []


def _knows_all(condition: Condition) -> bool:
    """Return whether a control uses all that time can tell: nearest training texts, or an arm trained on `clock`."""
    row = condition.rows[0]
    nearest = "nearest_in_time" in (condition.name, row.eval_condition)
    return nearest or row.train_condition == "clock" or (condition.name == "clock" and row.train_condition == UNKNOWN)


def _figures(found: Comparison) -> str:
    p = max(contrast.p_primary for contrast in found.contrasts)
    least = detectable(found.primary, found.derived.values())
    return f"{found.primary.effect:+.2f} against {found.control} ({p_text(p)}; {least})"


def stretches(aligned: Aligned, labels: np.ndarray, size: int = STRATUM_SIZE) -> np.ndarray | None:
    """Return strata, int `[S]`, each of one group's sentences read close in time; None if a row has no known time.

    A stretch has at most `size` consecutive sentences, which every reader read in one run of the group, without another
    group in between. Null hypothesis: within its group and stretch, a prediction fits its own sentence no better than
    neighboring sentences.

    Args:
      labels: group of each sentence, int `[S]`.
    """
    clock, sentence = clock_of_rows(aligned.eeg.rows), aligned.eeg.sentence
    if not clock.known.all():
        return None
    # For each sentence: recording -> number of the run (of one group) in which the sentence was read.
    runs: list[dict[str, int]] = [{} for _ in labels]
    order: dict[int, None] = {}
    for name, rows in clock.recordings().items():
        rows = rows[np.argsort(clock.spans[rows, 0], kind="stable")]
        changes = np.cumsum(np.diff(labels[sentence[rows]], prepend=labels[sentence[rows[0]]]) != 0)
        for s, run in zip(sentence[rows].tolist(), changes.tolist(), strict=True):
            order.setdefault(s)
            if runs[s].setdefault(name, run) != run:
                runs[s][name] = -1 - s  # read again in another run: shares no stretch
    strata = np.empty(len(labels), int)
    held: dict[str, int] = {}
    used, members = -1, size
    for s in order:
        same = all(held.get(name, run) == run for name, run in runs[s].items()) and held.keys() & runs[s].keys()
        if not same or members >= size:
            used, held, members = used + 1, {}, 0
        held, members = held | runs[s], members + 1
        strata[s] = used
    return strata
