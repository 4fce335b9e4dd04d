"""Whether the predictions can be judged at all: findings that change the verdict, each with the reason for its bounds.

A finding about EEG or about the sentences bars every comparison; one about a control bars the comparison with it.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.collapse import COPY_WORDS, Collapse, measure_collapse, plain_words
from eeg2text_jax.auditing.red_flags import Flag, condition_flags
from eeg2text_jax.auditing.result import Evidence
from eeg2text_jax.auditing.verdict import ALPHA
from eeg2text_jax.predictions.file import Prediction, sentence_key
from eeg2text_jax.predictions.foreign import UNKNOWN

# Below, one sentence in a stratum of six decides over p, and the bootstrap over so few sentences is too narrow; the
# calibration covers 56 sentences and more.
MIN_JUDGED = 30
# The rest may be right by chance, or differ by a decoder that samples.
SAME_FOR_ALL = 0.9
# Free-running decoders stop where they like: in every published free-running set |r| < 0.2; teacher-forced ones have
# one output for each token of the target, and r > 0.9. Who decodes the length that well gets the words right, too.
TEACHER_FORCED_R, TEACHER_FORCED_WER = 0.9, 50.0
# Points of BLEU-1 by which no published free-running decoder of reading is ahead of its control.
UNHEARD_OF_GAIN = 5.0
# Share of rows or sentences that, right by copying, add a point of BLEU-1: the default margin.
A_POINT = 0.01
# Copies of fewer sentences may be one text that is always said.
MIN_COPIED = 3
# Fewer sentences with several rows may agree by chance.
MIN_SAME = 10
# Of the sentences that no reader has right, those that all have wrong in the same words: 1 % in typing that was decoded
# from MEG with a quarter of the words wrong; 67 and 77 % in the two published sets whose model was fed the target.
SAME_ERRORS = 0.5

DECODED_HERE = "decoded by eeg2text, whose free-running decoder takes no target"


def unfit(aligned: Aligned, looks: Sequence[Collapse], proof: str = "") -> list[Flag]:
    """What bars a verdict before anything is tested; `looks` are of the conditions, EEG's first.

    `proof` says how it is known that no target reached the decoder; with it, what looks like a target that leaked is
    no more than a warning.
    """
    flags = too_few(aligned) + _modes(aligned, looks, proof)
    for condition, look in zip(aligned.conditions, looks, strict=True):
        is_eeg = condition is aligned.eeg
        flags += _silent(condition, look)
        flags += _ignores_recording(condition, look) if is_eeg else []
        flags += _looks_teacher_forced(condition, look, proof)
    for control, look in zip(aligned.conditions[1:], looks[1:], strict=True):
        flags += _copies(aligned, looks[0], control, look, proof)
    return flags if aligned.conditions[1:] else flags + _copies_alone(aligned, looks[0], proof)


def _severe(code: str, message: str, *conditions: str, proof: str = "") -> Flag:
    """A finding that bars the verdict, or a warning where there is proof against what it looks like."""
    return Flag(code, "warning" if proof else "severe", f"{message} ({proof})" if proof else message, conditions)


def too_few(aligned: Aligned) -> list[Flag]:
    n = len(aligned.references)
    if n >= MIN_JUDGED:
        return []
    return [_severe("too_few_sentences", f"{n} sentences are too few for a verdict, {MIN_JUDGED} are needed")]


def _modes(aligned: Aligned, looks: Sequence[Collapse], proof: str) -> list[Flag]:
    """Text predicted from its own target holds the target; text that ran free does not."""
    eeg, flags = aligned.eeg, [flag for condition in aligned.conditions for flag in _teacher_forced(condition)]
    for control in aligned.conditions[1:]:
        if control.mode != eeg.mode:
            remedy = "; state it with --mode" if "unknown" in (control.mode, eeg.mode) else ""
            message = (
                f"the modes differ, {eeg.name} is {_said(eeg.mode)} and {control.name} {_said(control.mode)}{remedy}"
            )
            flags.insert(0, _severe("modes_differ", message, eeg.name, control.name))
    for control, look in zip(aligned.conditions[1:], looks[1:], strict=True):
        forced = {eeg.name: _follows(eeg, looks[0]), control.name: _follows(control, look)}
        if control.mode == eeg.mode and len(set(forced.values())) == 2:
            looking, other = sorted(forced, key=forced.get, reverse=True)
            message = f"the modes differ, {looking} looks teacher-forced and {other} does not"
            flags.append(_severe("modes_differ", message, eeg.name, control.name, proof=proof))
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


def _silent(condition: Condition, look: Collapse) -> list[Flag]:
    if look.said >= min(MIN_JUDGED, look.sentences):
        return []
    message = (
        f"{condition.name}: the predictions say nothing in {look.sentences - look.said} of {look.sentences} sentences "
        f"({look.empty} of {look.rows} rows are empty)"
    )
    return [_severe("silent_side", message, condition.name)]


def _ignores_recording(condition: Condition, look: Collapse) -> list[Flag]:
    """One text for all readings of a sentence, another for another sentence: the sentence is known, not the EEG.

    Texts that are nearly right may agree, and a decoder that has collapsed says the same everywhere: neither counts.
    """
    if look.several_readers < MIN_SAME or look.input_independent < SAME_FOR_ALL * look.several_readers:
        return []
    if look.same_by_chance > 0.5 or look.word_errors < TEACHER_FORCED_WER:
        return []
    message = (
        f"{condition.name}: of the {look.several_readers} sentences with several rows, {look.input_independent} have "
        "one and the same prediction in all of them: the signal of the individual recording plays no part"
    )
    return [_severe("input_independent", message, condition.name)]


def _looks_teacher_forced(condition: Condition, look: Collapse, proof: str) -> list[Flag]:
    if not _follows(condition, look):
        return []
    message = (
        f"{condition.name}: looks teacher-forced, the lengths of predictions follow those of the references (r = "
        f"{look.length_correlation:.2f}) while {look.word_errors:.0f} % of the words are wrong"
    )
    return [_severe("looks_teacher_forced", message, condition.name, proof=proof)]


def _follows(condition: Condition, look: Collapse) -> bool:
    """Whether lengths follow the references and words do not, where free running is claimed or nothing.

    A control that is given the length of the sentence and nothing else may do so.
    """
    told = "length_only" in (condition.name, condition.rows[0].eval_condition)
    follows = look.length_correlation > TEACHER_FORCED_R and look.word_errors > TEACHER_FORCED_WER
    return follows and not told and condition.mode != "teacher_forced"


def _copies(aligned: Aligned, look: Collapse, control: Condition, other: Collapse, proof: str) -> list[Flag]:
    """References that come out whole, with EEG more often than with the control."""
    if aligned.eeg.mode == "teacher_forced" or _few_copies(look, other.copies):
        return []
    message = (
        f"{aligned.eeg.name}: {look.copies} of {look.rows} predictions contain their whole reference (of {COPY_WORDS} "
        f"words or more), {other.copies} of {control.name}: targets may have leaked"
    )
    return [_severe("target_copies", message, aligned.eeg.name, control.name, proof=proof)]


def _few_copies(look: Collapse, of_control: int) -> bool:
    """Too few to matter, or of so few sentences that one text said again and again may be their reference."""
    return look.copied_sentences < MIN_COPIED or look.copies - of_control < A_POINT * look.rows


def _copies_alone(aligned: Aligned, look: Collapse, proof: str) -> list[Flag]:
    """The same without a control: whoever decodes some sentences whole misses many others by a few words."""
    if aligned.eeg.mode == "teacher_forced" or _few_copies(look, 0) or look.near_misses >= look.copies:
        return []
    message = (
        f"{aligned.eeg.name}: {look.copies} of {look.rows} predictions contain their whole reference (of {COPY_WORDS} "
        f"words or more) and {look.near_misses} come near theirs: targets may have leaked"
    )
    return [_severe("target_copies", message, aligned.eeg.name, proof=proof)]


def unheard_of_gain(aligned: Aligned, comparison: Evidence, look: Collapse, proof: str) -> list[Flag]:
    """Content that no decoder of reading was ever seen to have, in a file that does not say where it is from.

    Without a control, a file whose words are mostly right passes: it claims no more than that content is there. It
    does not where readers of a sentence make the same errors: two recordings are not alike, a target is.
    """
    found = comparison.primary
    alike = look.missed >= MIN_SAME and look.missed_alike >= SAME_ERRORS * look.missed
    decoded_alone = not comparison.control and look.word_errors <= TEACHER_FORCED_WER and not alike
    least = min(c.effect for c in (found, *comparison.derived.values()))
    unclear = least <= UNHEARD_OF_GAIN or found.p_primary > ALPHA
    if aligned.eeg.mode == "teacher_forced" or unclear or decoded_alone:
        return []
    ahead = f" more than {comparison.control}" if comparison.control else ""
    message = (
        f"{aligned.eeg.name} has {least:.1f} points of BLEU-1 in content{ahead}, beyond anything published for "
        f"free-running decoding of reading ({UNHEARD_OF_GAIN:g}): that no target reached the decoder needs proof"
    )
    if alike:
        message += f"; of {look.missed} sentences that no reader has right, {look.missed_alike} have the same errors"
    concerned = filter(None, (aligned.eeg.name, comparison.control))
    return [_severe("needs_proof", message, *concerned, proof=proof)]


def training_overlap(aligned: Aligned, training: Iterable[str]) -> list[Flag]:
    """Test sentences in a training text, up to case and punctuation; beside outputs that are training sentences, the
    score may be memory."""
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
    return [Flag("training_text", "warning", f"{message}: what looks decoded may be remembered")]


def bars(flags: Iterable[Flag], eeg: str, control: str) -> list[str]:
    """Why the comparison with `control` (empty: EEG alone) has no verdict: messages of the findings that bar it."""
    concerned = {eeg, control}
    return [f.message for f in flags if f.level == "severe" and (not f.conditions or concerned >= set(f.conditions))]


def file_flags(name: str, rows: Sequence[Prediction], bleu1: float = float("nan")) -> list[Flag]:
    """What can be said of the rows of one cell and mode without a test, severe findings first: for `eeg2text score`.

    `bleu1` is their word BLEU-1 in percent, NaN where it was not computed.
    """
    rows = [row for row in rows if row.reference.strip()]
    if not rows:
        return []
    places: dict[str, int] = {}
    sentence = np.array([places.setdefault(sentence_key(row.reference), len(places)) for row in rows])
    known = tuple(dataclasses.replace(row, subject="") if row.subject == UNKNOWN else row for row in rows)
    condition = Condition(name, known, sentence, np.zeros(len(rows), int))
    look = measure_collapse(condition, tuple(places), np.random.default_rng(0))
    flags = _teacher_forced(condition) + _silent(condition, look) + _looks_teacher_forced(condition, look, "")
    flags += _ignores_recording(condition, look) if condition.mode != "teacher_forced" else []
    return flags + condition_flags(condition, look, condition.mode, bleu1)
