"""Decide the verdict of each comparison, and which comparison gives the overall verdict."""

from collections.abc import Collection, Mapping, Sequence

from eeg2text_jax.auditing import verdict
from eeg2text_jax.auditing.align import Aligned
from eeg2text_jax.auditing.beyond_time import QUESTION, is_of_time
from eeg2text_jax.auditing.contrast import Evidence
from eeg2text_jax.auditing.levels import Level
from eeg2text_jax.auditing.provenance import FOUND, Provenance, joined
from eeg2text_jax.auditing.table import ConditionSummary, Table
from eeg2text_jax.auditing.verdict import Comparison, Verdict, strictest
from eeg2text_jax.errors import UserError

# Controls that keep the words' features and remove something else; they do not decide.
QUESTIONS = {
    "time_reversed": "does the order of the recording matter?",
    "phase_randomized": "does it matter how the recording runs, beyond its spectrum?",
}


def deciding_one(comparisons: Sequence[Comparison], *, alone: bool) -> Comparison:
    """Return the comparison that gives the overall verdict: the weakest answer; among equals the strictest."""
    deciding = [c for c in comparisons if not c.question]
    decided = deciding[0].verdict if alone else verdict.overall([c.verdict for c in deciding])
    return strictest([c for c in deciding if c.verdict is decided])


def questions(aligned: Aligned, deciding: Collection[str] | None) -> dict[str, str]:
    """Return controls that do not decide, with the question that each asks. If none would decide, all do."""
    asked = {}
    for control in aligned.conditions[1:]:
        kind = control.rows[0].eval_condition  # an arm trained on a control has a name of its own
        if deciding is not None and {control.name, kind} & set(deciding):
            continue
        question = QUESTIONS.get(kind if deciding is None else control.name, "")
        question = QUESTION if is_of_time(control) else question
        if question or deciding is not None:
            asked[control.name] = question or "does it differ from this one?"
    return asked if len(asked) < len(aligned.conditions) - 1 else {}


def deciding_of(names: str, controls: Collection[str]) -> list[str] | None:
    """Return the controls named by `--deciding`; None if it is not given.

    Raises:
      UserError: a name is not a control of the files.
    """
    found = [name.strip() for name in names.split(",")] if names else None
    for name in found or ():
        if name not in controls:
            raise UserError(
                f"--deciding={names}: {name!r} is not a control of these files; expected some of {', '.join(controls)}."
            )
    return found


def decide(
    found: Evidence,
    reasons: Sequence[str],
    table: Table,
    conditions: Sequence[ConditionSummary],
    margin: float,
    origin: Provenance,
    asked: Mapping[str, str],
    levels: Sequence[Level] = (),
) -> Comparison:
    """Return the verdict of one comparison and its sentence; `reasons` bar a verdict and come first."""
    derived = tuple(found.derived.values())
    if found.control:
        outcome = verdict.judge(
            found.primary,
            margin,
            derived,
            scores_vary=conditions[0].content.varies,
            identical=table.same_predictions(found.control),
        )
        reading = verdict.paired_reading(
            outcome,
            found.primary,
            derived,
            eeg=conditions[0].name,
            control=found.control,
            p_control=next(c.p for c in conditions if c.name == found.control),
            margin=margin,
            own=conditions[0].content,
        )
    else:
        outcome = verdict.judge_alone(found.primary, margin, derived)
        reading = verdict.alone_reading(outcome, found.primary, derived, margin)
    if found.control and outcome in FOUND and not _has_content(conditions[0]):
        outcome = Verdict.NO_CONTENT
        reading = verdict.not_its_own(conditions[0].content, conditions[0].p, conditions[0].name, found.control)
    figures = table.in_figures(found, outcome)
    question = asked.get(found.control, "")
    if reasons:
        sentence = verdict.unfit_sentence(reasons, figures)
        reading = "; ".join(reasons)
        barred = Verdict.NOT_JUDGEABLE
        return Comparison(**vars(found), verdict=barred, sentence=sentence, question=question, reading=reading)
    outcome, reading = joined(outcome, reading, origin)
    content = table.content_is_about(levels, found.control)
    if content and (outcome is Verdict.USES_EEG or (levels and outcome in FOUND)):
        reading = f"{reading}; {content}"
    sentence = f"{figures[0].upper()}{figures[1:]}: {reading}."
    if question:
        sentence = f"A question of its own, which does not decide ({question}): {sentence}"
    return Comparison(**vars(found), verdict=outcome, sentence=sentence, question=question, reading=reading)


def _has_content(own: ConditionSummary) -> bool:
    """Return whether EEG beats its own null; a control below its null would make any output look better."""
    return all(map(verdict.is_above, (own.content, *own.derived.values())))
