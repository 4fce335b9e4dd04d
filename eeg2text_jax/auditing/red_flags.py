"""Warnings about scores that mislead; `fitness` has the findings that bar a verdict."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.collapse import Collapse, plain_spaces, sorted_rows
from eeg2text_jax.auditing.statistics import Score, content_difference
from eeg2text_jax.auditing.verdict import SHOWN

Level = Literal["severe", "warning", "note"]
LEVELS: tuple[Level, ...] = get_args(Level)  # the most severe first
READING_FROM_EEG = 50.0  # word BLEU-1 (percent), far above every published free-running decoder of reading
# Share of predicted words among the 50 most frequent words of the references. It is about 50 % in most published sets
# (references: 40 %), 77 % in a set whose references have 54 %, and at least 88 % if only frequent words are predicted.
FREQUENT_ONLY = 0.8
# Share of words that two predictions for different sentences have in common: at most 30 % in published sets of diverse
# sentences, 53 to 73 % in sets whose predictions are the same list of frequent word pieces in different orders.
ONE_LIST = 0.45
# Ratio of distinct words in predictions (one per sentence) to distinct words in references: at most 1.4 in any
# published set. A language model repeats words as writers do; tokens drawn at random repeat less.
LARGE_VOCABULARY = 2.0
HALF_EMPTY = 0.25  # share of empty predictions from which the score describes only a part of the file
CARRIES_SCORE = 0.2  # warn if one row contributes a larger share of the score; one of 30 equal rows contributes 3 %
CARRIES_EFFECT = 0.5  # warn if a sentence contributes this share of the content difference
FEWEST_ROWS = 10  # with fewer rows, lengths may correlate by chance; with two, r is 1 or -1
SAME_SUBJECTS = 0.9  # share of equal predictions from which two subjects are flagged


@dataclasses.dataclass(frozen=True)
class Flag:
    """One finding of the audit; `code` names its kind and does not change, for scripts.

    A `severe` finding bars the verdict of every comparison with one of `conditions`, and of all comparisons if
    `conditions` is empty.
    """

    code: str
    level: Level
    message: str
    conditions: tuple[str, ...] = ()


def _warnings(messages: Mapping[str, str], prefix: str = "") -> list[Flag]:
    """Return a warning for each entry of `messages`, code -> message, after `prefix`."""
    return [Flag(code, "warning", f"{prefix}{message}") for code, message in messages.items()]


def condition_flags(condition: Condition, collapse: Collapse, mode: str, bleu1: float) -> list[Flag]:
    """Return warnings about the predictions of one condition; `bleu1` is their word BLEU-1 in percent."""
    messages = {
        **_subject_messages(condition, collapse),
        **_collapse_messages(collapse),
        **_text_messages(collapse),
        **_mode_messages(collapse, mode, bleu1),
    }
    return _warnings(messages, f"{condition.name}: ")


def _subject_messages(condition: Condition, c: Collapse) -> dict[str, str]:
    """Return code -> message for predictions that are the same for several readers of a sentence."""
    found = {}
    if c.several_readers and c.input_independent >= 0.5 * c.several_readers:
        found["same_for_all_readers"] = (
            f"of the {c.several_readers} sentences with several rows, {c.input_independent} have one and the same "
            "prediction in all of them"
        )
    texts: dict[str, dict[int, str]] = {}  # subject -> sentence -> prediction
    for row, sentence in zip(condition.rows, condition.sentence.tolist(), strict=True):
        if row.subject:
            texts.setdefault(row.subject, {})[sentence] = plain_spaces(row.prediction)
    counts = Counter(text for predictions in texts.values() for text in predictions.values())
    total = counts.total()
    by_chance = sum((n / total) ** 2 for n in counts.values())
    pairs = [
        (a, b)
        for a, b in itertools.combinations(texts, 2)
        if len(shared := texts[a].keys() & texts[b].keys()) >= 10
        and sum(texts[a][s] == texts[b][s] for s in shared) >= SAME_SUBJECTS * len(shared)
    ]
    if pairs and by_chance <= 0.5:
        found["duplicate_subjects"] = (
            f"subjects {pairs[0][0]} and {pairs[0][1]} have the same predictions"
            f"{f', and {len(pairs) - 1} other pairs' if len(pairs) > 1 else ''}: rows were copied, or the recording "
            "plays no part"
        )
    return found


def _collapse_messages(c: Collapse) -> dict[str, str]:
    """Return code -> message for predictions that are alike, frequent words only, or random words."""
    found = {}
    several = 1.5 / c.rows  # a larger share of the rows is two rows or more
    if c.distinct <= min(0.1 * c.rows, c.sentences - 1) or c.top_share >= max(0.25, several):
        found["collapsed"] = (
            f"collapsed, {c.distinct} distinct predictions in {c.rows} rows; the most frequent one is "
            f"{c.top_share:.0%} of them ({c.top_text!r:.90})"
        )
    elif c.top_start_share >= max(0.4, several):
        found["same_beginning"] = f"{c.top_start_share:.0%} of the predictions begin {c.top_start!r}"
    if c.distinct > 0.5 * c.rows and c.overlap >= max(ONE_LIST, 3 * c.reference_overlap):
        found["frequency_list"] = (
            f"predictions look diverse ({c.distinct} of {c.rows} distinct) but are one list of frequent words: "
            f"two of them share {c.overlap:.0%} of their words, two references {c.reference_overlap:.0%}"
        )
    if c.frequent_share >= max(FREQUENT_ONLY, 1.3 * c.reference_frequent_share):
        found["frequency_only"] = (
            f"frequent words only, {c.frequent_share:.0%} of the words are among the 50 most frequent ones of "
            f"the references (in the references themselves, {c.reference_frequent_share:.0%}): they match any sentence "
            "a little"
        )
    if c.first_vocabulary > LARGE_VOCABULARY * c.reference_vocabulary:
        found["large_vocabulary"] = (
            f"{c.first_vocabulary} distinct words in one prediction per sentence, where the references have "
            f"{c.reference_vocabulary}: words drawn at random, or texts of another kind"
        )
    if c.repetition >= 0.35:
        found["repetition"] = f"{c.repetition:.0%} of the words of a prediction have occurred in it before"
    return found


def _text_messages(c: Collapse) -> dict[str, str]:
    """Return code -> message for empty predictions, special tokens and endless repetition."""
    found = {}
    if c.empty >= HALF_EMPTY * c.rows:
        found["half_empty"] = (
            f"{c.empty} of {c.rows} predictions are empty ({c.empty / c.rows:.0%}): a field that was not "
            "filled, or a decoder that ends at once; empty predictions lower the score"
        )
    elif c.empty:
        found["empty_predictions"] = (
            f"{c.empty} of {c.rows} predictions are empty; they are scored as texts without words"
        )
    if c.residue:
        found["token_residue"] = (
            f"special tokens or unreadable characters are left in {c.residue} of {c.rows} predictions; the way "
            "from tokens to text lost or added something, and every score counts it"
        )
    if c.stutter >= max(3, 0.02 * c.rows):
        found["literal_padding"] = (
            f"{c.stutter} of {c.rows} predictions repeat a word three times or a mark five times in a row: "
            "padding that was left in, or a decoder that was not stopped"
        )
    return found


def _mode_messages(c: Collapse, mode: str, bleu1: float) -> dict[str, str]:
    """Return code -> message for an unknown mode, and for results that suggest teacher forcing."""
    found = {}
    if mode == "unknown":
        found["mode_unknown"] = "the file does not say whether predictions ran free or were teacher-forced"
    if mode != "teacher_forced" and c.length_correlation > 0.9 and c.rows >= FEWEST_ROWS:
        found["length_follows_reference"] = (
            f"the lengths of predictions follow the lengths of references (r = {c.length_correlation:.2f}): the "
            "predictions are either decoded well or teacher-forced"
        )
    if mode != "teacher_forced" and bleu1 > READING_FROM_EEG:
        found["too_good"] = (
            f"word BLEU-1 {bleu1:.1f} is beyond anything published for free-running decoding of reading; make "
            "sure that no target reached the decoder and that test sentences are not in training"
        )
    return found


def pair_flags(aligned: Aligned, control: Condition, collapses: Mapping[str, Collapse]) -> list[Flag]:
    """Return warnings about the predictions of EEG beside those of a control.

    Identical predictions are only a warning: the verdict *equivalent to control* is right, whatever made them equal.
    """
    eeg, found = aligned.eeg, {}
    a, b = sorted_rows(eeg), sorted_rows(control)
    if a == b:
        found["identical_conditions"] = (
            f"{eeg.name} and {control.name} have identical predictions in all {len(a)} rows: the input plays no part, "
            "or one file was given twice"
        )
    elif (share := (Counter(a) & Counter(b)).total() / len(a)) >= 0.5:
        found["nearly_identical_conditions"] = (
            f"{eeg.name} and {control.name} have the same prediction in {share:.0%} of the rows"
        )
    one, other = collapses[eeg.name], collapses[control.name]
    if abs(one.empty / one.rows - other.empty / other.rows) >= HALF_EMPTY:
        found["empty_on_one_side"] = (
            f"{one.empty / one.rows:.0%} of the predictions of {eeg.name} are empty and "
            f"{other.empty / other.rows:.0%} of {control.name}"
        )
    if not 0.67 < one.mean_words / max(other.mean_words, 1e-9) < 1.5:
        found["style_shift"] = (
            f"the predictions of {eeg.name} are {one.mean_words:.1f} words long on average and those of "
            f"{control.name} {other.mean_words:.1f}: a difference in style that changes scores"
        )
    return _warnings(found)


def alignment_flags(aligned: Aligned, design_effect: float) -> list[Flag]:
    """Return findings about rows left out, dependent rows, references cut short, subjects with sentences of their own.

    `design_effect` is NaN if it is not defined.
    """
    rows, sentences = len(aligned.eeg.rows), len(aligned.references)
    flags = [
        Flag(
            "rows_differ",
            "warning",
            f"{name}: {left} of {total} rows are not in every condition and were left out; were rows picked by score?",
        )
        for name, left, total in aligned.left_out
    ]
    if rows > sentences:
        effect = "" if design_effect != design_effect else f", design effect {design_effect:.1f}"
        message = (
            f"{rows} rows are {sentences} independent sentences{effect}: tests that count rows as independent find "
            "effects that are not there"
        )
        flags.append(Flag("rows_not_independent", "note", message))
    found = {}
    if aligned.shortened:
        found["references_shortened"] = (
            f"{aligned.shortened} references end earlier in one file than in the other; predictions are held against "
            "the shorter one in both"
        )
    subjects = np.unique([row.subject for row in aligned.eeg.rows], return_inverse=True)[1]
    if _confounded(aligned.eeg.sentence, subjects):
        parted = aligned.reader_groups > 1
        covered = "; each stratum belongs to one group of subjects" if parted else ", and strata do not separate them"
        found["subject_tells_sentence"] = (
            f"subjects read different sentences: the subject alone narrows down the sentence{covered}"
        )
    return flags + _warnings(found)


def _confounded(sentence: np.ndarray, subject: np.ndarray) -> bool:
    """Return whether two subjects share under half of their sentences on average; arguments are by row, `[N]`."""
    read = np.zeros((subject.max() + 1, sentence.max() + 1))
    read[subject, sentence] = 1
    shared = read @ read.T
    total = read.sum(1)[:, None] + read.sum(1) - shared
    pairs = ~np.eye(len(read), dtype=bool)
    return bool(pairs.any() and (shared / total)[pairs].mean() < 0.5)


def seed_flags(aligned: Aligned) -> list[Flag]:
    """Return findings about too few training seeds, above all if a control was trained separately."""
    seeds, flags = len(aligned.seeds), []
    if seeds == 2:
        message = "2 training seeds are pooled; at least 3 are needed to include the spread between seeds"
        flags.append(Flag("few_seeds", "note", message))
    if seeds < 3 and len({condition.rows[0].train_condition for condition in aligned.conditions}) > 1:
        message = (
            "a control was trained separately from the EEG model: the comparison judges the training recipe and needs "
            f"at least 3 seeds, here {seeds}; to judge this model, feed the control to the same checkpoint"
        )
        flags.append(Flag("recipe_without_seeds", "warning", message))
    return flags


def row_flags(condition: Condition, own: np.ndarray, score: Score) -> list[Flag]:
    """Return a warning if one row contributes much of the score; `own [N, K]`: rows against their references."""
    total = own.sum(0)
    whole, without = float(score(total)), score(total - own)
    row = int(np.argmax(np.abs(without - whole)))
    if not abs(without[row] - whole) > max(CARRIES_SCORE * abs(whole), SHOWN):
        return []
    message = (
        f"{condition.name}: one row carries the score, which is {without[row]:.2f} without row {row + 1} (sample "
        f"{condition.rows[row].sample_id!r}) and {whole:.2f} with it"
    )
    return _warnings({"one_row_carries": message})


def sentence_flags(aligned: Aligned, control: str, effect: float, totals: np.ndarray, score: Score) -> list[Flag]:
    """Return a warning if one sentence contributes half of the content difference `effect` or more.

    `totals [S, J, K]`: own and null statistics of each sentence, as `content_difference` takes them.
    """
    without = content_difference(totals.sum(0) - totals, score)
    sentence = int(np.argmin(without))
    if without[sentence] > CARRIES_EFFECT * effect:
        return []
    message = (
        f"one sentence carries the difference{f' to {control}' if control else ''}: {effect:+.2f} with it and "
        f"{without[sentence]:+.2f} without ({aligned.references[sentence]!r:.60})"
    )
    return _warnings({"one_sentence_carries": message})
