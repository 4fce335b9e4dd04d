"""Warnings that save a reader: what makes a score mean less, or something else, than it seems to."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from eeg2text_jax.audit.align import Aligned, Condition
from eeg2text_jax.audit.collapse import Collapse

Level = Literal["severe", "warning", "note"]
READING_FROM_EEG = 50.0  # word BLEU-1 (percent) that no published free-running decoder of reading comes near


@dataclasses.dataclass(frozen=True)
class Flag:
    """One warning. `code` is stable, for scripts; `severe` says that the scores cannot mean what they claim."""

    code: str
    level: Level
    message: str


def condition_flags(condition: Condition, collapse: Collapse, mode: str, bleu1: float) -> list[Flag]:
    """What can be seen in one condition alone; `bleu1` is its word BLEU-1 in percent."""
    name = condition.name
    return [
        *_input_flags(name, collapse),
        *_collapse_flags(name, collapse),
        *_text_flags(name, collapse),
        *_mode_flags(name, collapse, mode, bleu1),
    ]


def _input_flags(name: str, c: Collapse) -> list[Flag]:
    if not c.several_readers or c.input_independent < 0.5 * c.several_readers:
        return []
    level: Level = "severe" if c.input_independent == c.several_readers else "warning"
    message = (
        f"{name}: of the {c.several_readers} sentences with several rows, {c.input_independent} have one and the same "
        "prediction in all of them: the signal of the individual recording plays no part"
    )
    return [Flag("input_independent", level, message)]


def _collapse_flags(name: str, c: Collapse) -> list[Flag]:
    flags = []
    if c.distinct <= min(0.1 * c.rows, c.sentences - 1) or c.top_share >= 0.25:
        message = (
            f"{name}: collapsed, {c.distinct} distinct predictions in {c.rows} rows; the most frequent one is "
            f"{c.top_share:.0%} of them ({c.top_text!r:.90})"
        )
        flags.append(Flag("collapsed", "warning", message))
    elif c.top_start_share >= 0.4:
        message = f"{name}: {c.top_start_share:.0%} of the predictions begin {c.top_start!r}"
        flags.append(Flag("same_beginning", "warning", message))
    if c.distinct > 0.5 * c.rows and c.overlap >= max(0.3, 3 * c.reference_overlap):
        message = (
            f"{name}: predictions look diverse ({c.distinct} of {c.rows} distinct) but are one list of frequent words: "
            f"two of them share {c.overlap:.0%} of their words, two references {c.reference_overlap:.0%}"
        )
        flags.append(Flag("frequency_list", "warning", message))
    if c.repetition >= 0.35:
        message = f"{name}: {c.repetition:.0%} of the words of a prediction have occurred in it before"
        flags.append(Flag("repetition", "warning", message))
    return flags


def _text_flags(name: str, c: Collapse) -> list[Flag]:
    flags = []
    if c.empty:
        message = f"{name}: {c.empty} of {c.rows} predictions are empty; they count as they are, with no words"
        flags.append(Flag("empty_predictions", "warning", message))
    if c.residue:
        message = (
            f"{name}: special tokens or unreadable characters are left in {c.residue} of {c.rows} predictions; the way "
            "from tokens to text lost or added something, and every score counts it"
        )
        flags.append(Flag("token_residue", "warning", message))
    if c.stutter >= max(3, 0.02 * c.rows):
        message = (
            f"{name}: {c.stutter} of {c.rows} predictions repeat a word three times or a mark five times in a row: "
            "padding that was left in, or a decoder that was not stopped"
        )
        flags.append(Flag("literal_padding", "warning", message))
    return flags


def _mode_flags(name: str, c: Collapse, mode: str, bleu1: float) -> list[Flag]:
    flags = []
    if mode == "teacher_forced":
        message = f"{name}: teacher-forced, every token was predicted from the true tokens before it; not decoding"
        flags.append(Flag("teacher_forced", "severe", message))
    if mode == "unknown":
        message = f"{name}: the file does not say whether predictions ran free or were teacher-forced"
        flags.append(Flag("mode_unknown", "warning", message))
    if mode != "teacher_forced" and c.length_correlation > 0.9:
        message = (
            f"{name}: the lengths of predictions follow those of the references (r = {c.length_correlation:.2f}): they "
            "are either decoded well or teacher-forced"
        )
        flags.append(Flag("length_follows_reference", "warning", message))
    if mode != "teacher_forced" and bleu1 > READING_FROM_EEG:
        message = (
            f"{name}: word BLEU-1 {bleu1:.1f} is beyond anything published for free-running decoding of reading; make "
            "sure that no target reached the decoder and that test sentences are not in training"
        )
        flags.append(Flag("too_good", "warning", message))
    return flags


def pair_flags(aligned: Aligned, control: Condition, collapses: dict[str, Collapse]) -> list[Flag]:
    """What shows when EEG and a control are laid side by side."""
    eeg, flags = aligned.eeg, []
    a, b = (sorted(zip(c.sentence.tolist(), c.texts, strict=True)) for c in (eeg, control))
    if a == b:
        message = f"{eeg.name} and {control.name} have identical predictions in all {len(a)} rows"
        flags.append(Flag("identical_conditions", "severe", message))
    elif (share := _shared(a, b) / len(a)) >= 0.5:
        message = f"{eeg.name} and {control.name} have the same prediction in {share:.0%} of the rows"
        flags.append(Flag("nearly_identical_conditions", "warning", message))
    ratio = collapses[eeg.name].mean_words / max(collapses[control.name].mean_words, 1e-9)
    if not 0.67 < ratio < 1.5:
        message = (
            f"the predictions of {eeg.name} are {collapses[eeg.name].mean_words:.1f} words long on average and those "
            f"of {control.name} {collapses[control.name].mean_words:.1f}: a difference in style that scores do see"
        )
        flags.append(Flag("style_shift", "warning", message))
    return flags


def _shared(a: Sequence[tuple[int, str]], b: Sequence[tuple[int, str]]) -> int:
    left: dict[tuple[int, str], int] = {}
    for row in b:
        left[row] = left.get(row, 0) + 1
    count = 0
    for row in a:
        if left.get(row, 0):
            left[row] -= 1
            count += 1
    return count


def alignment_flags(aligned: Aligned, design_effect: float) -> list[Flag]:
    """Rows that are not independent, references that were cut, subjects that stand for sentences."""
    rows, sentences = len(aligned.eeg.rows), len(aligned.references)
    flags = []
    if rows > sentences:
        effect = "" if design_effect != design_effect else f", design effect {design_effect:.1f}"
        message = (
            f"{rows} rows are {sentences} independent sentences{effect}: tests that count rows as independent find "
            "effects that are not there"
        )
        flags.append(Flag("rows_not_independent", "note", message))
    if aligned.shortened:
        message = (
            f"{aligned.shortened} references end earlier in one file than in the other; predictions are held against "
            "the shorter one in both"
        )
        flags.append(Flag("references_shortened", "warning", message))
    subjects = np.unique([row.subject for row in aligned.eeg.rows], return_inverse=True)[1]
    if confounded_subjects(aligned.eeg.sentence, subjects):
        message = (
            "subjects read different sentences: a model that knows the subject alone narrows down the sentence, and "
            "strata do not cover that"
        )
        flags.append(Flag("subject_tells_sentence", "warning", message))
    if aligned.conditions[1:] and 1 < len(aligned.seeds) < 3:
        message = f"{len(aligned.seeds)} training seeds are pooled; at least 3 are needed to treat seed as a level"
        flags.append(Flag("few_seeds", "note", message))
    return flags


def confounded_subjects(sentence: np.ndarray, subject: np.ndarray) -> bool:
    """Whether two subjects share less than half of their sentences on average (Jaccard); int `[N]` each."""
    read = np.zeros((subject.max() + 1, sentence.max() + 1))
    read[subject, sentence] = 1
    shared = read @ read.T
    total = read.sum(1)[:, None] + read.sum(1) - shared
    pairs = ~np.eye(len(read), dtype=bool)
    return bool(pairs.any() and (shared / total)[pairs].mean() < 0.5)


def recipe_flags(aligned: Aligned) -> list[Flag]:
    """A control that was trained separately judges the recipe, and needs seeds for it."""
    trained = {condition.rows[0].train_condition for condition in aligned.conditions}
    if len(trained) < 2 or len(aligned.seeds) >= 3:
        return []
    message = (
        "a control was trained separately from the EEG model: it judges the recipe, which needs at least 3 seeds, here "
        f"{len(aligned.seeds)}; feed the control to the same checkpoint to judge this model"
    )
    return [Flag("recipe_without_seeds", "warning", message)]


def training_overlap_flag(references: Iterable[str], training: Iterable[str]) -> Flag:
    """How many test sentences occur in a training text, up to case and punctuation."""
    known = {_plain(line) for line in training} - {""}
    references = list(references)
    found = [text for text in references if _plain(text) in known]
    if not found:
        return Flag("training_text", "note", f"none of the {len(references)} test sentences is in the training text")
    message = (
        f"{len(found)} of the {len(references)} test sentences are in the training text (first: {found[0]!r:.60}): "
        "what looks decoded may be remembered"
    )
    return Flag("training_text", "severe", message)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
