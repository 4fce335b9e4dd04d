"""Warnings about scores that mean less, or something else, than they seem to. `fitness` has what bars a verdict."""

import dataclasses
from collections import Counter
from typing import Literal, get_args

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition
from eeg2text_jax.auditing.collapse import Collapse, plain_spaces, sorted_rows
from eeg2text_jax.auditing.statistics import Score, content_difference

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
HALF_EMPTY = 0.25  # share of empty rows from which the score is that of a part of the file
CARRIES_SCORE = 0.2  # share of the score: of 30 rows or more, each is worth 3 % or less where rows are alike
CARRIES_EFFECT = 0.5
FEWEST_ROWS = 10  # fewer rows may have lengths that follow by chance; of two, r is 1 or -1
SHOWN = 0.005  # points of score that two decimals show
GROUPS_APART = "groups of subjects read different sentences"  # part of a note in `Aligned.notes`
SAME_SUBJECTS = 0.9  # share of equal predictions, among sentences that both subjects read, to flag them


@dataclasses.dataclass(frozen=True)
class Flag:
    """One finding. `code` is stable, for scripts.

    `severe` bars the verdict of every comparison with one of the named `conditions`, of all where none is named.
    """

    code: str
    level: Level
    message: str
    conditions: tuple[str, ...] = ()


def condition_flags(condition: Condition, collapse: Collapse, mode: str, bleu1: float) -> list[Flag]:
    """Return findings in one condition alone; `bleu1` is its word BLEU-1 in percent."""
    name = condition.name
    return [
        *_input_flags(name, collapse),
        *_subject_flags(condition),
        *_collapse_flags(name, collapse),
        *_text_flags(name, collapse),
        *_mode_flags(name, collapse, mode, bleu1),
    ]


def _input_flags(name: str, c: Collapse) -> list[Flag]:
    """Flag outputs that do not depend on the recording; if this bars the verdict, `fitness` also reports it."""
    if not c.several_readers or c.input_independent < 0.5 * c.several_readers:
        return []
    message = (
        f"{name}: of the {c.several_readers} sentences with several rows, {c.input_independent} have one and the same "
        "prediction in all of them"
    )
    return [Flag("same_for_all_readers", "warning", message)]


def _collapse_flags(name: str, c: Collapse) -> list[Flag]:
    flags = []
    several = 1.5 / c.rows  # a share of the rows above it is of two rows or more
    if c.distinct <= min(0.1 * c.rows, c.sentences - 1) or c.top_share >= max(0.25, several):
        message = (
            f"{name}: collapsed, {c.distinct} distinct predictions in {c.rows} rows; the most frequent one is "
            f"{c.top_share:.0%} of them ({c.top_text!r:.90})"
        )
        flags.append(Flag("collapsed", "warning", message))
    elif c.top_start_share >= max(0.4, several):
        message = f"{name}: {c.top_start_share:.0%} of the predictions begin {c.top_start!r}"
        flags.append(Flag("same_beginning", "warning", message))
    if c.distinct > 0.5 * c.rows and c.overlap >= max(ONE_LIST, 3 * c.reference_overlap):
        message = (
            f"{name}: predictions look diverse ({c.distinct} of {c.rows} distinct) but are one list of frequent words: "
            f"two of them share {c.overlap:.0%} of their words, two references {c.reference_overlap:.0%}"
        )
        flags.append(Flag("frequency_list", "warning", message))
    if c.frequent_share >= max(FREQUENT_ONLY, 1.3 * c.reference_frequent_share):
        message = (
            f"{name}: frequent words only, {c.frequent_share:.0%} of the words are among the 50 most frequent ones of "
            f"the references ({c.reference_frequent_share:.0%} of their own): they match any sentence a little"
        )
        flags.append(Flag("frequency_only", "warning", message))
    if c.first_vocabulary > LARGE_VOCABULARY * c.reference_vocabulary:
        message = (
            f"{name}: {c.first_vocabulary} distinct words in one prediction a sentence, where the references have "
            f"{c.reference_vocabulary}: words drawn at random, or texts of another kind"
        )
        flags.append(Flag("large_vocabulary", "warning", message))
    if c.repetition >= 0.35:
        message = f"{name}: {c.repetition:.0%} of the words of a prediction have occurred in it before"
        flags.append(Flag("repetition", "warning", message))
    return flags


def _text_flags(name: str, c: Collapse) -> list[Flag]:
    flags = []
    if c.empty >= HALF_EMPTY * c.rows:
        message = (
            f"{name}: {c.empty} of {c.rows} predictions are empty ({c.empty / c.rows:.0%}): a field that was not "
            "filled, or a decoder that ends at once; the score is that of the others, lowered"
        )
        flags.append(Flag("half_empty", "warning", message))
    elif c.empty:
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
    if mode == "unknown":
        message = f"{name}: the file does not say whether predictions ran free or were teacher-forced"
        flags.append(Flag("mode_unknown", "warning", message))
    if mode != "teacher_forced" and c.length_correlation > 0.9 and c.rows >= FEWEST_ROWS:
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
    """Return findings from the comparison of EEG with a control.

    Identical predictions do not bar the verdict: they are equivalent, whatever the reason.
    """
    eeg, flags = aligned.eeg, []
    a, b = sorted_rows(eeg), sorted_rows(control)
    if a == b:
        message = (
            f"{eeg.name} and {control.name} have identical predictions in all {len(a)} rows: the input plays no part, "
            "or one file was given twice"
        )
        flags.append(Flag("identical_conditions", "warning", message))
    elif (share := (Counter(a) & Counter(b)).total() / len(a)) >= 0.5:
        message = f"{eeg.name} and {control.name} have the same prediction in {share:.0%} of the rows"
        flags.append(Flag("nearly_identical_conditions", "warning", message))
    ratio = collapses[eeg.name].mean_words / max(collapses[control.name].mean_words, 1e-9)
    empty = [collapses[c.name].empty / collapses[c.name].rows for c in (eeg, control)]
    if abs(empty[0] - empty[1]) >= HALF_EMPTY:
        message = f"{empty[0]:.0%} of the predictions of {eeg.name} are empty and {empty[1]:.0%} of {control.name}"
        flags.append(Flag("empty_on_one_side", "warning", message))
    if not 0.67 < ratio < 1.5:
        message = (
            f"the predictions of {eeg.name} are {collapses[eeg.name].mean_words:.1f} words long on average and those "
            f"of {control.name} {collapses[control.name].mean_words:.1f}: a difference in style that scores do see"
        )
        flags.append(Flag("style_shift", "warning", message))
    return flags


def alignment_flags(aligned: Aligned, design_effect: float) -> list[Flag]:
    """Flag dependent rows, truncated references, and subjects confounded with sentences."""
    rows, sentences = len(aligned.eeg.rows), len(aligned.references)
    flags = _selection_flags(aligned)
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
        parted = any(GROUPS_APART in note for note in aligned.notes)
        covered = "; strata keep to the sentences of one group" if parted else ", and strata do not cover that"
        message = f"subjects read different sentences: who knows the subject alone narrows down the sentence{covered}"
        flags.append(Flag("subject_tells_sentence", "warning", message))
    if len(aligned.seeds) == 2:
        message = "2 training seeds are pooled; at least 3 are needed to treat seed as a level"
        flags.append(Flag("few_seeds", "note", message))
    return flags


def confounded_subjects(sentence: np.ndarray, subject: np.ndarray) -> bool:
    """Return whether pairs of subjects share less than half of their sentences on average (Jaccard); int `[N]` each."""
    read = np.zeros((subject.max() + 1, sentence.max() + 1))
    read[subject, sentence] = 1
    shared = read @ read.T
    total = read.sum(1)[:, None] + read.sum(1) - shared
    pairs = ~np.eye(len(read), dtype=bool)
    return bool(pairs.any() and (shared / total)[pairs].mean() < 0.5)


def recipe_flags(aligned: Aligned) -> list[Flag]:
    """Flag a separately trained control without enough seeds: it judges the recipe."""
    trained = {condition.rows[0].train_condition for condition in aligned.conditions}
    if len(trained) < 2 or len(aligned.seeds) >= 3:
        return []
    message = (
        "a control was trained separately from the EEG model: it judges the recipe, which needs at least 3 seeds, here "
        f"{len(aligned.seeds)}; feed the control to the same checkpoint to judge this model"
    )
    return [Flag("recipe_without_seeds", "warning", message)]


def _subject_flags(condition: Condition) -> list[Flag]:
    """Flag two subjects with the same predictions: one is a copy, or the recording plays no part."""
    texts: dict[str, dict[int, str]] = {}
    for row, sentence in zip(condition.rows, condition.sentence.tolist(), strict=True):
        if row.subject:
            texts.setdefault(row.subject, {})[sentence] = plain_spaces(row.prediction)
    total = Counter(text for found in texts.values() for text in found.values())
    rows = total.total()
    by_chance = sum((n / rows) ** 2 for n in total.values())
    pairs = [
        (a, b)
        for index, a in enumerate(texts)
        for b in list(texts)[index + 1 :]
        if len(shared := texts[a].keys() & texts[b].keys()) >= 10
        and sum(texts[a][s] == texts[b][s] for s in shared) >= SAME_SUBJECTS * len(shared)
    ]
    if not pairs or by_chance > 0.5:
        return []
    message = (
        f"{condition.name}: subjects {pairs[0][0]} and {pairs[0][1]} have the same predictions"
        f"{f', and {len(pairs) - 1} other pairs' if len(pairs) > 1 else ''}: rows were copied, or the recording plays "
        "no part"
    )
    return [Flag("duplicate_subjects", "warning", message)]


def _selection_flags(aligned: Aligned) -> list[Flag]:
    """Flag rows missing from one condition: they may have been selected by score."""
    return [
        Flag(
            "rows_differ",
            "warning",
            f"{name}: {left} of {rows} rows are not in every condition and were left out; were rows picked by score?",
        )
        for name, left, rows in aligned.left_out
    ]


def row_flags(condition: Condition, own: np.ndarray, score: Score) -> list[Flag]:
    """Flag a row that contributes much of the score; `own [N, K]` are the rows' statistics with their references."""
    total = own.sum(0)
    whole, without = float(score(total)), score(total - own)
    row = int(np.argmax(np.abs(without - whole)))
    if not abs(without[row] - whole) > max(CARRIES_SCORE * abs(whole), SHOWN):
        return []
    message = (
        f"{condition.name}: one row carries the score, which is {without[row]:.2f} without row {row + 1} (sample "
        f"{condition.rows[row].sample_id!r}) and {whole:.2f} with it"
    )
    return [Flag("one_row_carries", "warning", message)]


def sentence_flags(aligned: Aligned, control: str, effect: float, totals: np.ndarray, score: Score) -> list[Flag]:
    """Flag a sentence that contributes half of a found effect.

    `totals [S, J, K]` are own and null statistics of each sentence, as `content_difference` takes them.
    """
    without = content_difference(totals.sum(0) - totals, score)
    sentence = int(np.argmin(without))
    if without[sentence] > CARRIES_EFFECT * effect:
        return []
    message = (
        f"one sentence carries the difference{f' to {control}' if control else ''}: {effect:+.2f} with it and "
        f"{without[sentence]:+.2f} without ({aligned.references[sentence]!r:.60})"
    )
    return [Flag("one_sentence_carries", "warning", message)]
