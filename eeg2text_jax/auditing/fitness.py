"""Findings that bar a verdict.

A finding about EEG or the sentences bars every comparison; a finding about a control bars the comparison with it.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition, without_unknown
from eeg2text_jax.auditing.collapse import Collapse, measure_collapse, plain_words
from eeg2text_jax.auditing.red_flags import Flag, condition_flags
from eeg2text_jax.auditing.structure import signs
from eeg2text_jax.metrics.error_rates import what_normalizing_changes
from eeg2text_jax.predictions.file import Prediction, sentence_key

# Fewest sentences for a verdict. With fewer, a single one in a stratum of six decides the p, and bootstrap intervals
# are too narrow. The calibration covers 56 sentences and more.
MIN_JUDGED = 30
# The score may be memory if more than this share of the test sentences are in the training text, and more than this
# share of the predictions are training sentences.
A_POINT = 0.01
MOST = 0.5  # above this share of test sentences in the training text, memory alone may explain the score


def unfit(aligned: Aligned) -> list[Flag]:
    """Return a finding for each: too few sentences, teacher-forced rows, a control with another decoding mode."""
    eeg, flags = aligned.eeg, []
    n = len({" ".join(plain_words(text)) or text for text in aligned.references})
    if n < MIN_JUDGED:
        message = f"{n} sentences are too few for a verdict, {MIN_JUDGED} are needed"
        if n < len(aligned.references):
            message = (
                f"without case and punctuation, the {len(aligned.references)} references are only {n} different "
                f"sentences, too few for a verdict, {MIN_JUDGED} are needed"
            )
        flags.append(Flag("too_few_sentences", "severe", message))
    for control in reversed(aligned.conditions[1:]):
        if control.mode != eeg.mode:
            remedy = "; state it with --mode" if "unknown" in (control.mode, eeg.mode) else ""
            eeg_mode, mode = (
                "of unknown mode" if c.mode == "unknown" else c.mode.replace("_", "-") for c in (eeg, control)
            )
            message = f"the modes differ, {eeg.name} is {eeg_mode} and {control.name} {mode}{remedy}"
            flags.append(Flag("modes_differ", "severe", message, (eeg.name, control.name)))
    return flags + [flag for condition in aligned.conditions for flag in _teacher_forced(condition)]


def _teacher_forced(condition: Condition) -> list[Flag]:
    if condition.mode != "teacher_forced":
        return []
    message = (
        f"{condition.name}: teacher-forced, every token was predicted from the true tokens before it, so the text "
        "follows its target, whatever was recorded"
    )
    return [Flag("teacher_forced", "severe", message, (condition.name,))]


def silent(condition: Condition, look: Collapse) -> list[Flag]:
    """Return a finding if too many predictions of a condition have no words; `look` describes the predictions."""
    if look.said >= min(MIN_JUDGED, look.sentences):
        return []
    message = (
        f"{condition.name}: the predictions say nothing in {look.sentences - look.said} of {look.sentences} sentences "
        f"({look.empty} of {look.rows} rows are empty)"
    )
    return [Flag("silent_side", "severe", message, (condition.name,))]


def training_overlap(aligned: Aligned, training: Iterable[str], *, apart: bool = False) -> list[Flag]:
    """Return a finding about test sentences in the training text: the score may be memory.

    Case and punctuation are ignored. `apart` says that these recordings are known not to be in training, or that the
    decoder chose from a list of known sentences. Then many test sentences in the training text are no severe finding.
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
        return [Flag("training_text", "severe", message, (aligned.eeg.name,))]
    if len(found) > MOST * n and not apart:
        message += (
            ": a model that was trained on these very rows would look the same; judge sentences that are new to the "
            "model or, if it chooses from a list, give the list with --choices"
        )
        return [Flag("training_text", "severe", message, (aligned.eeg.name,))]
    return [Flag("training_text", "warning", f"{message}: what looks decoded may be remembered")]


def bars(flags: Iterable[Flag], eeg: str, control: str) -> list[str]:
    """Return the messages of findings that bar the comparison of `eeg` with `control` ("": of EEG alone)."""
    concerned = {eeg, control}
    return [f.message for f in flags if f.level == "severe" and (not f.conditions or concerned >= set(f.conditions))]


def normalizing_flags(condition: Condition, references: Sequence[str]) -> list[Flag]:
    """Return a warning if case and punctuation contribute much of the score."""
    change = what_normalizing_changes(condition.texts, [references[i] for i in condition.sentence.tolist()])
    return [Flag("case_and_punctuation", "warning", f"{condition.name}: {change}")] if change else []


def file_flags(name: str, rows: Sequence[Prediction], bleu1: float = float("nan")) -> list[Flag]:
    """Return findings about rows of one condition and mode that need no statistical test, severe ones first.

    `name` is the condition in messages; `bleu1` is the word BLEU-1 of the rows in percent, NaN if not computed.
    """
    rows = [row for row in rows if row.reference.strip()]
    if not rows:
        return []
    places: dict[str, int] = {}
    sentence = np.array([places.setdefault(sentence_key(row.reference), len(places)) for row in rows])
    condition = Condition(name, tuple(map(without_unknown, rows)), sentence, np.zeros(len(rows), int))
    look = measure_collapse(condition, tuple(places), np.random.default_rng(0))
    flags = _teacher_forced(condition) + silent(condition, look) + signs(condition, tuple(places))
    return flags + condition_flags(condition, look, condition.mode, bleu1) + normalizing_flags(condition, tuple(places))
