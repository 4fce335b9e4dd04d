"""What limits an audit: reasons why there is no verdict, and facts about the outputs that a reader needs beside it."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing.align import SHUFFLED, Aligned, Condition, without_unknown
from eeg2text_jax.auditing.forms import key, other_form, words
from eeg2text_jax.auditing.signs import Sign, Weight, signs_of
from eeg2text_jax.metrics.bleu import word_bleu
from eeg2text_jax.metrics.error_rates import word_error_rate
from eeg2text_jax.predictions.file import Prediction

# Fewest sentences for a verdict. With fewer, a single one in a stratum of six decides the p. The calibration covers 30
# sentences and more.
MIN_JUDGED = 30
A_POINT = 0.01  # of the test sentences, and of the predictions: more in the training text may be memory
MOST = 0.5  # of the test sentences in the training text: memory alone may explain the score
COLLAPSED = 0.1  # of the rows that are distinct predictions
CHOSEN = 0.9  # of the predictions are test sentences: the decoder chose from a list


@dataclasses.dataclass(frozen=True)
class Notice:
    """A fact that limits the verdict.

    Attributes:
      code: its name in JSON.
      message: a sentence without its full stop.
      bars: the conditions that it makes not judgeable; `ALL` for the whole audit.
      rows: (reference, prediction) pairs that show it.
    """

    code: str
    message: str
    bars: tuple[str, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()


ALL = ("",)
REASONS = {  # code of a notice that bars a verdict -> the reason in the headline; of a sign of a target: TARGET
    "other_form": "the two columns are not in the same form",
    "too_few_sentences": "too few sentences",
    "modes_differ": "the decoding modes differ",
    "teacher_forced": "teacher-forced",
    "training_text": "remembered, not decoded",
}
TARGET = "a target reached the decoder"


@dataclasses.dataclass(frozen=True)
class Look:
    """What the outputs of a condition look like; numbers of rows unless stated otherwise."""

    rows: int
    distinct: int
    empty: int
    top_text: str  # the most frequent prediction
    top: int  # rows with it
    mean_words: float

    several: int  # sentences with at least two rows
    alike: int  # of these, sentences whose rows all have the same prediction


def look_of(condition: Condition) -> Look:
    """Describe the predicted texts of a condition by their plain words."""
    texts = [" ".join(words(text)) for text in condition.texts]
    counts = Counter(texts)
    top_text, top = min(counts.items(), key=lambda item: (-item[1], item[0]))
    by_sentence: dict[int, list[str]] = {}
    for s, text in zip(condition.sentence.tolist(), texts, strict=True):
        by_sentence.setdefault(s, []).append(text)
    several = [rows for rows in by_sentence.values() if len(rows) > 1]
    return Look(
        rows=len(texts),
        distinct=len(counts),
        empty=counts[""],
        top_text=top_text,
        top=top,
        mean_words=float(np.mean([len(text.split()) for text in texts])),
        several=len(several),
        alike=sum(len(set(rows)) == 1 for rows in several),
    )


def unfit(aligned: Aligned) -> list[Notice]:
    """Return why nothing can be judged, whatever the rows hold: too few sentences, or two decoding modes."""
    eeg, found = aligned.eeg, []
    if len(aligned.references) < MIN_JUDGED:
        message = f"{len(aligned.references)} sentences are too few for a verdict, {MIN_JUDGED} are needed"
        found.append(Notice("too_few_sentences", message, ALL))
    for control in aligned.conditions[1:]:
        if control.mode != eeg.mode:
            modes = [c.mode.replace("_", "-") if c.mode != "unknown" else "of unknown mode" for c in (eeg, control)]
            remedy = "; state it with --mode" if "unknown" in (control.mode, eeg.mode) else ""
            message = f"the modes differ, {eeg.name} is {modes[0]} and {control.name} {modes[1]}{remedy}"
            found.append(Notice("modes_differ", message, (control.name,)))
    return found


def of_texts(aligned: Aligned, looks: Sequence[Look], *, of_words: bool) -> list[Notice]:
    """Return notices about predicted texts: their form, silence and collapse."""
    found, known = [], set(map(key, aligned.references))
    if of_words and (why := other_form(aligned.eeg.texts, aligned.references)):
        found.append(Notice("other_form", f"{REASONS['other_form']}: {why}", ALL, _two(aligned)))
    for condition, look in zip(aligned.conditions, looks, strict=True):
        if look.empty:
            found.append(Notice("empty", f"{condition.name}: {look.empty} of {look.rows} predictions are empty"))
        if look.distinct <= max(1, COLLAPSED * look.rows):
            message = f"{condition.name}: {look.distinct} distinct predictions in {look.rows} rows"
            found.append(Notice("collapsed", f"{message}; {look.top} are {look.top_text!r:.60}"))
        listed = sum(text in known for text in map(key, condition.texts))
        if listed >= CHOSEN * look.rows and look.distinct > 1:
            message = f"{condition.name}: {listed} of {look.rows} predictions are test sentences"
            found.append(Notice("chosen", f"{message}: the decoder chose from a list of them, or wrote targets"))
    return found


def _two(aligned: Aligned) -> tuple[tuple[str, str], ...]:
    rows = zip(aligned.eeg.sentence.tolist()[:2], aligned.eeg.texts[:2], strict=True)
    return tuple((aligned.references[s], text) for s, text in rows)


def _lacks_donors(control: Condition) -> bool:
    shuffled = any(row.eval_condition == SHUFFLED for row in control.rows)
    return shuffled and not all(row.donor for row in control.rows)


def _donors(control: Condition) -> Notice:
    message = (
        f"{control.name}: the rows do not say whose recording was their input (field donor); if the model works, the "
        "control's null contains hits on the donors' sentences, and the content difference is too large"
    )
    return Notice("donors", message)


def of_design(aligned: Aligned) -> list[Notice]:
    """Return notices about rows that were left out, unknown donors, and too few training seeds."""
    found = [
        Notice("rows_left_out", f"{name}: {left} of {total} rows are not in every condition and were left out")
        for name, left, total in aligned.left_out
    ]
    found += [_donors(control) for control in aligned.conditions[1:] if _lacks_donors(control)]
    trained = {condition.rows[0].train_condition for condition in aligned.conditions}
    if len(aligned.seeds) < 3 and len(trained) > 1:
        message = (
            "a control was trained separately: the comparison judges the training recipe and needs at least 3 seeds, "
            f"here {len(aligned.seeds)}; to judge this model, feed the control to the same checkpoint"
        )
        found.append(Notice("few_seeds", message))
    return found


def of_training_text(aligned: Aligned, training: Iterable[str], *, apart: bool) -> list[Notice]:
    """Return a notice if test sentences are in the training text: the score may be memory.

    `apart` says that these recordings are known not to be in training, or that the decoder chose from a known list.
    """
    known = {key(line) for line in training} - {""}
    shared = [text for text in aligned.references if key(text) in known]
    n, rows = len(aligned.references), len(aligned.eeg.rows)
    if not shared:
        return []
    message = f"{len(shared)} of the {n} test sentences are in the training text (such as {shared[0]!r:.60})"
    outputs = sum(key(text) in known for text in aligned.eeg.texts)
    if len(shared) > A_POINT * n and outputs > A_POINT * rows:
        message += f", and {outputs} of {rows} predictions are training sentences: remembered, not decoded"
        return [Notice("training_text", message, ALL)]
    return [Notice("training_text", message, ALL if len(shared) > MOST * n and not apart else ())]


def of_signs(signs: Sequence[Sign], name: str, *, known_free: bool) -> list[Notice]:
    """Return signs of a target as notices; contradictions bar the verdict unless rows are `known_free` of targets."""
    return [
        Notice(
            s.code, f"{name}: {s.message}", ALL if s.weight is Weight.CONTRADICTED and not known_free else (), s.rows
        )
        for s in signs
    ]


def what_form_changes(predictions: Sequence[str], references: Sequence[str]) -> str:
    """Return a warning if WER or BLEU-1 changes by more than 5 points in plain words, else "".

    If there are more than 20,000 rows, only evenly spaced rows are compared.
    """
    step = -(-len(predictions) // 20_000) or 1
    texts = [list(side[::step]) for side in (predictions, references)]
    plain = [[key(text) for text in side] for side in texts]
    found = []
    for name, metric in (("WER", word_error_rate()), ("BLEU-1", word_bleu())):
        before, after = (float(metric.corpus(metric.statistics(*side).sum(0))[0]) for side in (texts, plain))
        if abs(before - after) > 5:
            found.append(f"{name} from {before:.2f} to {after:.2f}")
    if not found:
        return ""
    return (
        f"case, punctuation and special tokens count: without them, scores change ({' and '.join(found)}); write "
        "predictions and references alike, or say whether the reported scores count them"
    )


def file_notices(name: str, rows: Sequence[Prediction]) -> list[Notice]:
    """Return notices about rows of one condition and mode that need no test: signs of a target, silence, collapse."""
    rows = [without_unknown(row) for row in rows if row.reference.strip()]
    if not rows:
        return []
    places = {text: index for index, text in enumerate(sorted({key(row.reference) for row in rows}))}
    sentence = np.array([places[key(row.reference)] for row in rows])
    texts: dict[int, str] = {}
    for s, row in sorted(zip(sentence.tolist(), rows, strict=True), key=lambda pair: (pair[0], pair[1].reference)):
        texts.setdefault(s, row.reference)
    references = [texts[s] for s in range(len(places))]
    none = np.zeros(len(rows), int)
    condition = Condition(name, tuple(rows), sentence, none, none - 1)
    found: list[Notice] = []
    if condition.mode != "teacher_forced":
        found += of_signs(signs_of(condition.texts, references, sentence, condition.subjects), name, known_free=False)
    look = look_of(condition)
    alone: Any = Aligned(tuple(references), (), none, none, none, (0,), (condition,), (), ())
    found += of_texts(alone, [look], of_words=True)
    change = what_form_changes(condition.texts, [row.reference for row in rows])
    return found + ([Notice("case_and_punctuation", f"{name}: {change}")] if change else [])
