"""Findings that bar a verdict, each with the reason for its threshold.

A finding about EEG or about the sentences bars every comparison; a finding about a control bars the comparison with it.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.collapse import Collapse, measure_collapse, plain_words
from eeg2text_jax.auditing.red_flags import Flag, condition_flags
from eeg2text_jax.auditing.structure import signs
from eeg2text_jax.metrics.error_rates import what_normalizing_changes
from eeg2text_jax.predictions.file import Prediction, sentence_key
from eeg2text_jax.predictions.foreign import UNKNOWN

# Below, one sentence in a stratum of six decides over p, and the bootstrap over so few sentences is too narrow; the
# calibration covers 56 sentences and more.
MIN_JUDGED = 30
# Share of sentences in a training text, and of outputs that are its sentences, from which the score may be memory.
A_POINT = 0.01
MOST = 0.5  # of the test sentences; beyond, what is judged are sentences that the model was trained to say


def unfit(aligned: Aligned) -> list[Flag]:
    """Return findings that bar a verdict on rows of any kind: too few sentences, and modes."""
    return _too_few(aligned) + _modes(aligned)


def _severe(code: str, message: str, *conditions: str) -> Flag:
    """Return a finding that bars the verdict."""
    return Flag(code, "severe", message, conditions)


def _too_few(aligned: Aligned) -> list[Flag]:
    n = len({" ".join(plain_words(text)) or text for text in aligned.references})
    if n >= MIN_JUDGED:
        return []
    if n < len(aligned.references):
        message = (
            f"of {len(aligned.references)} references {n} differ by more than case and punctuation, too few for a "
            f"verdict, {MIN_JUDGED} are needed"
        )
        return [_severe("too_few_sentences", message)]
    return [_severe("too_few_sentences", f"{n} sentences are too few for a verdict, {MIN_JUDGED} are needed")]


def _modes(aligned: Aligned) -> list[Flag]:
    """Return findings on decoding modes: teacher-forced text contains its target, free-running text does not."""
    eeg, flags = aligned.eeg, [flag for condition in aligned.conditions for flag in _teacher_forced(condition)]
    for control in aligned.conditions[1:]:
        if control.mode != eeg.mode:
            remedy = "; state it with --mode" if "unknown" in (control.mode, eeg.mode) else ""
            message = (
                f"the modes differ, {eeg.name} is {_said(eeg.mode)} and {control.name} {_said(control.mode)}{remedy}"
            )
            flags.insert(0, _severe("modes_differ", message, eeg.name, control.name))
    return flags


def _teacher_forced(condition: Condition) -> list[Flag]:
    if condition.mode != "teacher_forced":
        return []
    message = (
        f"{condition.name}: teacher-forced, every token was predicted from the true tokens before it, so the text "
        "holds its target whatever the recording"
    )
    return [_severe("teacher_forced", message, condition.name)]


def _said(mode: str) -> str:
    return "of unknown mode" if mode == "unknown" else mode.replace("_", "-")


def silent(condition: Condition, look: Collapse) -> list[Flag]:
    """Flag a condition whose predictions have no words."""
    if look.said >= min(MIN_JUDGED, look.sentences):
        return []
    message = (
        f"{condition.name}: the predictions say nothing in {look.sentences - look.said} of {look.sentences} sentences "
        f"({look.empty} of {look.rows} rows are empty)"
    )
    return [_severe("silent_side", message, condition.name)]


def training_overlap(aligned: Aligned, training: Iterable[str], *, apart: bool = False) -> list[Flag]:
    """Flag test sentences that occur in the training text (ignoring case and punctuation): the score may be memory.

    `apart`: it is known that the recordings were not trained on (a run's own split), or that the decoder chose from a
    list of known sentences.
    """
    known = {tuple(plain_words(line)) for line in training} - {()}
    found = [text for text in aligned.references if tuple(plain_words(text)) in known]
    n = len(aligned.references)
    if not found:
        return [Flag("training_text", "note", f"none of the {n} test sentences is in the training text")]
    outputs = sum(tuple(plain_words(text)) in known for text in aligned.eeg.texts)
    message = f"{len(found)} of the {n} test sentences are in the training text (first: {found[0]!r:.60})"
    if len(found) > A_POINT * n and outputs > A_POINT * len(aligned.eeg.rows):
        message += (
            f", and {outputs} of {len(aligned.eeg.rows)} predictions are training sentences: remembered, not decoded"
        )
        return [_severe("training_text", message, aligned.eeg.name)]
    if len(found) > MOST * n and not apart:
        message += (
            ": a model that was trained on these very rows would look the same; give sentences that are new to it, or, "
            "if it chooses among known ones, the list with --choices"
        )
        return [_severe("training_text", message, aligned.eeg.name)]
    return [Flag("training_text", "warning", f"{message}: what looks decoded may be remembered")]


def bars(flags: Iterable[Flag], eeg: str, control: str) -> list[str]:
    """Return the messages of findings that bar the comparison with `control` (empty: EEG alone)."""
    concerned = {eeg, control}
    return [f.message for f in flags if f.level == "severe" and (not f.conditions or concerned >= set(f.conditions))]


def normalizing_flags(condition: Condition, references: Sequence[str]) -> list[Flag]:
    """Flag scores to which case and punctuation contribute a large part."""
    change = what_normalizing_changes(condition.texts, [references[i] for i in condition.sentence.tolist()])
    return [Flag("case_and_punctuation", "warning", f"{condition.name}: {change}")] if change else []


def file_flags(name: str, rows: Sequence[Prediction], bleu1: float = float("nan")) -> list[Flag]:
    """Return findings on the rows of one cell and mode without a test, severe ones first; for `eeg2text score`.

    `bleu1` is their word BLEU-1 in percent, NaN if not computed.
    """
    rows = [row for row in rows if row.reference.strip()]
    if not rows:
        return []
    places: dict[str, int] = {}
    sentence = np.array([places.setdefault(sentence_key(row.reference), len(places)) for row in rows])
    known = tuple(dataclasses.replace(row, subject="") if row.subject == UNKNOWN else row for row in rows)
    condition = Condition(name, known, sentence, np.zeros(len(rows), int))
    look = measure_collapse(condition, tuple(places), np.random.default_rng(0))
    flags = _teacher_forced(condition) + silent(condition, look) + signs(condition, tuple(places))
    return flags + condition_flags(condition, look, condition.mode, bleu1) + normalizing_flags(condition, tuple(places))
