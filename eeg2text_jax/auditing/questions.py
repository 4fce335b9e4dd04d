"""Questions about content that was found: about the sentence or its kind, and beyond the time of the recording or not.

Each is answered by the same contrasts as the verdict. Between groups, whole groups are exchanged: predictions are
compared with the references of another group, and never with their own reference. Within groups, sentences of one
group, task and similar length are exchanged.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.contrast import Contrast, Strata, contrast
from eeg2text_jax.auditing.forms import key
from eeg2text_jax.auditing.strata import MIN_SENTENCES, divided, exchangeable, hashes, length_strata
from eeg2text_jax.auditing.table import Cells, Scorer, fill, strata_members
from eeg2text_jax.auditing.verdict import Comparison, Level, Time, Verdict, figures_text
from eeg2text_jax.data.clock import ALIKE, clock_of_rows, order_likeness
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.foreign import UNKNOWN

# Control that keeps the features of the words -> question that it answers; such controls do not decide the verdict.
QUESTIONS = {
    "time_reversed": "does the order of the recording matter?",
    "phase_randomized": "does the time course of the recording matter, beyond its spectrum?",
}
TIME_CONTROLS = ("clock", "nearest_in_time", "same_place", "neighbor")
OF_TIME = "does content go beyond the time of the recording?"
MOST_COMPARED = 2000  # sentences whose predictions are held against all references for content between groups


@dataclasses.dataclass(frozen=True)
class GroupAnswer:
    """Content between and within the groups of one column, against one control or EEG's null."""

    column: str
    control: str
    groups: int
    between: Contrast | None  # None: fewer than `MIN_SENTENCES` groups of two sentences or more
    within: Contrast | None  # None: too few sentences share their group, task and length with another

    @property
    def level(self) -> Level:
        if self.within is not None and self.within.above:
            return Level.SENTENCE
        if self.within is not None and self.between is not None and self.between.above:
            return Level.KIND
        return Level.UNKNOWN

    @property
    def text(self) -> str:
        between, within = ("too few to tell" if c is None else figures_text(c) for c in (self.between, self.within))
        against = f" against {self.control}" if self.control else ""
        return f"by {self.column} ({self.groups} groups){against}: between groups {between}; within groups {within}"


def labels_of(aligned: Aligned, groups: Mapping[str, str], column: str) -> np.ndarray:
    """Return the label of each sentence's group, `[S]`; `groups` maps reference texts to labels.

    Raises:
      UserError: a reference has no label, or all have the same label.
    """
    known = {key(text): label.strip() for text, label in groups.items()}
    missing = [text for text in aligned.references if not known.get(key(text))]
    if missing:
        raise UserError(
            f"--groups={column}: {len(missing)} references have no label, such as {missing[0]!r:.60}; give each one a "
            "label."
        )
    labels = np.array([known[key(text)] for text in aligned.references])
    if len(set(labels.tolist())) < 2:
        raise UserError(f"--groups={column}: all references have the same label; expected two groups or more.")
    return labels


def answer_groups(
    aligned: Aligned, labels: np.ndarray, column: str, pairs: Sequence[tuple[Condition, ...]], scores: Scorer
) -> list[GroupAnswer]:
    """Measure content between and within the groups `labels` `[S]` for each pair (EEG and a control, or EEG alone)."""
    kinds = [f"{g}\n{t}\n{r}" for g, t, r in zip(labels, aligned.tasks, aligned.readers, strict=True)]
    inside = next((s for s in (length_strata(k, aligned.n_words) for k in (kinds, labels)) if _enough(s)), None)
    within = Strata(strata_members(divided(inside, aligned.references)) if inside is not None else [])
    names, group = np.unique(labels, return_inverse=True)
    conditions = list({c.name: c for pair in pairs for c in pair}.values())
    cells = {c.name: fill(c, aligned.references, within.members, scores) for c in conditions} if len(within) else {}
    between = {c.name: _group_cells(c, group, scores, aligned.references) for c in conditions}
    found = []
    for pair in pairs:
        apart = [between[c.name] for c in pair]
        whole = None if apart[0] is None else _contrast(Strata([np.arange(len(apart[0].blocks[0]))]), apart, pair)
        inner = _contrast(within, [cells[c.name] for c in pair], pair) if cells else None
        found.append(GroupAnswer(column, pair[1].name if len(pair) > 1 else "", len(names), whole, inner))
    return found


def _enough(strata: np.ndarray) -> bool:
    return bool(exchangeable(strata).sum() >= MIN_SENTENCES)


def _contrast(strata: Strata, cells: Sequence[Cells], pair: Sequence[Condition]) -> Contrast:
    return contrast(strata, *cells, name=pair[1].name if len(pair) > 1 else "")


def _group_cells(condition: Condition, group: np.ndarray, scores: Scorer, references: Sequence[str]) -> Cells | None:
    """Return a table of groups: the mean of the predictions of a group against another's references; never its own.

    None if there are fewer than `MIN_SENTENCES` groups of two sentences or more. `group` is int `[S]`.
    """
    sizes = np.bincount(group)
    members = np.flatnonzero(sizes[group] > 1)
    if len(members) > MOST_COMPARED:
        members = np.sort(members[np.argsort(hashes(references)[members])[:MOST_COMPARED]])
    names, of = np.unique(group[members], return_inverse=True)
    if len(names) < MIN_SENTENCES:
        return None
    (table,) = fill(condition, references, [members], scores).blocks
    member = (of == np.arange(len(names))[:, None]).astype(float)  # [groups, S']
    apart = 1 - np.eye(len(of))
    block = (member @ (table * apart) @ member.T) / np.maximum(member @ apart @ member.T, 1)
    rows = np.zeros(len(names))
    return Cells((block,), rows, rows)


def is_of_time(condition: Condition) -> bool:
    """Return whether a condition is in `TIME_CONTROLS`, by its name or by the evaluation condition of its rows."""
    return condition.name in TIME_CONTROLS or condition.rows[0].eval_condition in TIME_CONTROLS


def questions(aligned: Aligned, deciding: Collection[str] | None) -> dict[str, str]:
    """Return control -> its question, for the controls that do not decide the verdict.

    `deciding` names the controls that decide; None: all but those of `QUESTIONS` and of time. If no control would
    decide, all do.
    """
    asked = {}
    for control in aligned.conditions[1:]:
        kind = control.rows[0].eval_condition  # `name` may differ: an arm trained on a control has its own name
        if deciding is not None and {control.name, kind} & set(deciding):
            continue
        question = QUESTIONS.get(kind if deciding is None else control.name, "")
        question = OF_TIME if is_of_time(control) else question
        if question or deciding is not None:
            asked[control.name] = question or "does EEG differ from this control?"
    return asked if len(asked) < len(aligned.conditions) - 1 else {}


def answer_time(aligned: Aligned, comparisons: Sequence[Comparison], *, known: bool) -> tuple[Time, str]:
    """Return whether content goes beyond the time of the recording, with a sentence: EEG must beat all time controls.

    `nearest_in_time` copies the training text nearest in time, and `same_place` the one at the same place of another
    recording. If recordings have the same order of sentences, the first does not suffice without the second. An arm
    trained on `clock` is given only the recording session and the time in it. `neighbor` feeds a recording of the same
    minute. `neighbor` alone does not suffice: if
    groups of sentences are shown in blocks, some neighbors are of another group. A model trained on EEG cannot read
    the input of `clock`. `known`: whether any row says when it was recorded.
    """
    controls = {c.name: c for c in aligned.conditions[1:] if is_of_time(c)}
    judged = [c for c in comparisons if c.control in controls and c.verdict is not Verdict.NOT_JUDGEABLE]
    if not judged:
        why = (
            "no control of time can be judged"
            if controls
            else f"there is no control of time ({', '.join(TIME_CONTROLS)})"
        )
        return (
            Time.UNKNOWN,
            f"Time is not excluded: {why}{'' if known else ', and the rows do not say when they were recorded'}.",
        )
    figures = ", ".join(f"{figures_text(c.contrast)} against {c.control}" for c in judged)
    if not all(c.contrast.above for c in judged):
        return Time.NOT_BEYOND, f"Content is not shown to go beyond the time of the recording: {figures}."
    alike = order_likeness(clock_of_rows(aligned.eeg.rows), np.array([key(r.reference) for r in aligned.eeg.rows]))
    if any(_knows_all(controls[c.control], alike >= ALIKE) for c in judged):
        return Time.BEYOND, f"Content goes beyond the time of the recording: {figures}."
    needed = "same_place" if alike >= ALIKE else "nearest_in_time"
    told = f"these controls keep less than a clock could know; add {needed}, or an arm trained on clock"
    told += ", as recordings have the same order of sentences" if alike >= ALIKE else ""
    return Time.UNKNOWN, f"Time is not excluded: {figures}; {told}."


def _knows_all(condition: Condition, alike: bool) -> bool:
    """Return whether a control uses all that time can tell: texts of training samples, or an arm trained on `clock`.

    `alike`: whether recordings have the same order, so that the own recording is not all that tells the time.
    """
    row = condition.rows[0]
    copies = {condition.name, row.eval_condition} & ({"same_place"} if alike else {"nearest_in_time", "same_place"})
    trained = row.train_condition == "clock" or (condition.name == "clock" and row.train_condition == UNKNOWN)
    return bool(copies) or trained
