"""Signs in the outputs that only a target explains: no recording leaves them, however good or poor the decoder is.

None of these rules looks at how good a result is. A decoder makes errors of many sizes; its readings of one sentence
err apart; it places no commas among words that it has wrong. Shown on published decoders of speech, typing and images
that work, and on published teacher-forced sets: tests/audit/test_decoders.py and test_working_decoders.py.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.auditing import forced_words
from eeg2text_jax.auditing.align import Condition
from eeg2text_jax.auditing.collapse import COPY_WORDS, plain_words
from eeg2text_jax.auditing.first_words import same_beginning
from eeg2text_jax.auditing.plain_rows import ALL_ROWS, MIN_SAME, Found, Rows
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.errors import UserError

# Codes of what is found here.
SIGNS = (
    "target_copies",
    "target_edited",
    "target_cut",
    "target_beginning",
    "target_reordered",
    "target_length",
    "looks_teacher_forced",
    "input_independent",
    "target_scores",
)
NEAR, MIDDLE = 0.2, 0.6  # word error rates of a row: nearly its reference; something of it
# Nearly right rows for each that is right in part, in a file with a fifth or more of rows that hold nothing: at most
# 0.9 in a decoder of speech of which two thirds are lost; decoders with 3 to 6 have lost 5 % or less of the rows.
GAP, LOST = 3, 0.2
FORMS, HALF = range(1, 6), 0.5  # numbers of errors; of rows that are right in the greater part
ONE_FORM = 9  # rows with exactly k errors for each with one more or less; 3 in the most uniform decoder published
MIN_ROWS = 30  # of a reader
REORDERED = 0.05
# Readers of a sentence that all err in it, by more than a spelling, err alike in 1 % of sentences typed by three people
# and decoded from MEG; in 67 and 77 % where the target was fed to the model.
SAME_ERRORS, SPELLING = 0.5, 0.25
# Rows that are right in a part: words in one stretch over all right words. In 99 % of such rows the stretch has four
# fifths or more where a stretch of the target was written out; in at most 75 % of published decoders' rows.
ONE_STRETCH, IN_STRETCH, PART, STRETCH_WORDS = 0.9, 0.8, (0.25, 0.85), 8
# A closed vocabulary: of the words that all readers have wrong, at most so many are predicted elsewhere, and of the
# words in their place, at least so many are right elsewhere (0.36 of a decoder's, 0.06 where words were inflected).
UNSAID, KNOWN = 0.1, 0.2


def signs(
    condition: Condition, references: Sequence[str], *, averaged: bool = False, choices: Sequence[str] = ()
) -> list[Flag]:
    """Return severe findings about the rows of one condition; none if the file states that they were teacher-forced.

    A note says where there are too few wrong words for the rule that compares them with the target.

    `averaged`: the authors state that one prediction was made for all readers of a sentence. `choices`: the sentences
    that the decoder chose from, as they state.
    """
    if condition.mode == "teacher_forced":
        return []
    rows = Rows(condition, references, choices)
    found = [_same_column, _one_form, _in_two_parts, _cut_short, _one_stretch, _reordered, same_beginning]
    found += [forced_words.words_follow_the_target]
    found += [] if rows.by_letters() else [forced_words.marks_alone, forced_words.marks_of_target]
    found += [] if averaged else [_same_for_all]
    return [
        Flag(
            code, "note" if code == forced_words.UNSEEN else "severe", f"{condition.name}: {message}", (condition.name,)
        )
        for rule in found
        for code, message in rule(rows)
    ]


def chosen_from(condition: Condition, references: Sequence[str], choices: Sequence[str]) -> list[Flag]:
    """Say from how many sentences a decoder chose, as its authors state.

    Raises:
      UserError: a prediction is none of them.
    """
    known = {tuple(plain_words(text)) for text in choices} - {()}
    others = [text for text in condition.texts if tuple(plain_words(text)) not in known]
    if others:
        raise UserError(
            f"--choices: {len(others)} of {len(condition.texts)} predictions are not among its {len(known)} sentences, "
            f"such as {others[0]!r:.80}; give the whole list that the decoder chose from, one sentence on each line."
        )
    among = sum(tuple(plain_words(text)) in known for text in references)
    message = f"as stated, the decoder chose among {len(known)} sentences, of which {among} are references"
    return [Flag("choices", "note", message, (condition.name,))]


def weighed(flags: Sequence[Flag], verified: str) -> list[Flag]:
    """Return the findings; of a verified file, signs of a target are warnings: a nearly perfect decoder, or memory.

    What a verified file has too few words to show needs no note.
    """
    if not verified:
        return list(flags)
    kept = [flag for flag in flags if flag.code != forced_words.UNSEEN]
    return [dataclasses.replace(flag, level="warning") if flag.code in SIGNS else flag for flag in kept]


def contradictions(flags: Sequence[Flag]) -> list[str]:
    """Return the messages of the severe signs of a target."""
    return [flag.message for flag in flags if flag.code in SIGNS and flag.level == "severe"]


def _same_column(rows: Rows) -> Found:
    """Every row of the file, or of one reader, is its reference; of readers not where the others' rows are sentences
    of the file, too, as of who chooses among them."""
    letters = [" ".join(rows.references[s].split()) for s in rows.sentence.tolist()]
    same = np.array([reference in text for reference, text in zip(letters, rows.texts, strict=True)])
    everyone = np.ones(rows.n, bool)
    groups = [("", everyone)]
    if not rows.listed(~same):
        groups += [(" of one reader", rows.subjects == reader) for reader in np.unique(rows.subjects)]
    for whose, mine in groups:
        long = mine & rows.long
        for found, of, how in ((same & mine, mine, "to the letter"), (rows.whole & mine, long, "word for word")):
            enough = mine.sum() >= MIN_ROWS or not whose
            if enough and 2 * long.sum() > mine.sum() and found.sum() >= ALL_ROWS * of.sum():
                yield (
                    "target_copies",
                    f"{found.sum()} of {of.sum()} predictions{whose} hold their reference {how}: a column was read "
                    "twice, or the targets were written out",
                )
                return


def _one_form(rows: Rows) -> Found:
    """Rows with exactly so many wrong or missing words and none besides: errors of a decoder differ in number."""
    shorter = np.array([len(words) for words in rows.words]) <= np.array(
        [len(rows.expected[s]) for s in rows.sentence.tolist()]
    )
    for errors in FORMS:
        chosen = rows.long & shorter & (rows.errors == errors) & (rows.rates < HALF)
        beside = (rows.long & (abs(rows.errors - errors) == 1)).sum()
        if rows.enough(chosen, MIN_SAME) and chosen.sum() > ONE_FORM * beside:
            yield (
                "target_edited",
                f"{chosen.sum()} of {rows.n} predictions are their reference with exactly {errors} "
                f"{'word' if errors == 1 else 'words'} wrong or missing, and {beside} have one error more or less: "
                "targets were edited",
            )


def _in_two_parts(rows: Rows) -> Found:
    """Few rows that are nearly the reference among many that hold nothing, and none between: of one reader, as another
    may be decoded better. A decoder that chooses among the sentences of the file is right or wrong as a whole."""
    near = rows.whole | (rows.long & (rows.rates <= NEAR))
    middle = rows.long & ~near & (rows.rates <= MIDDLE)
    lost = ~near & (rows.rates > MIDDLE)
    chosen = np.zeros(rows.n, bool)
    for reader in np.unique(rows.subjects):
        mine = rows.subjects == reader
        if (near & mine).sum() > GAP * (middle & mine).sum() and (lost & mine).sum() >= LOST * mine.sum():
            chosen |= near & mine
    if rows.enough(chosen) and not rows.listed(lost):
        yield (
            "target_copies",
            f"{chosen.sum()} of {rows.n} predictions are nearly or wholly their reference (of {COPY_WORDS} words or "
            f"more), {middle.sum()} are right in part and {lost.sum()} hold next to nothing of theirs: targets may "
            "have leaked into some rows; if the decoder chose from a list, give it with --choices",
        )


def _cut_short(rows: Rows) -> Found:
    """Beginnings of references without an error, where no other beginning has one or two.

    Predictions that all stop after the same number of words are left out, unless every row of the file is without an
    error: a decoder may stop there.
    """
    exact, nearly, texts = np.zeros(rows.n, bool), np.zeros(rows.n, bool), set()
    for row, (words, s) in enumerate(zip(rows.words, rows.sentence.tolist(), strict=True)):
        reference = rows.expected[s]
        if len(words) < COPY_WORDS or len(words) >= len(reference):
            continue
        errors = min(Levenshtein.distance(words, reference[: len(words) + more]) for more in (-1, 0, 1))
        exact[row] = words == reference[: len(words)]
        nearly[row] = not exact[row] and errors <= 2
        texts |= {tuple(words)} if exact[row] else set()
    if (exact | rows.whole).sum() < ALL_ROWS * rows.n:
        exact, nearly = exact & ~rows.limited, nearly & ~rows.limited
    sentences = len(set(rows.sentence[exact].tolist()))
    if rows.enough(exact, MIN_SAME) and 2 * len(texts) > sentences and exact.sum() > ONE_FORM * nearly.sum():
        yield (
            "target_cut",
            f"{exact.sum()} of {rows.n} predictions are the beginning of their reference without an error, and "
            f"{nearly.sum()} are one with an error or two: targets were cut",
        )


def _one_stretch(rows: Rows) -> Found:
    """A stretch of each reference that is right in all its words, among words that are all wrong."""
    part, stretch = np.zeros(rows.n, bool), np.zeros(rows.n, bool)
    for row in np.flatnonzero(rows.long & ~rows.limited).tolist():
        reference = rows.expected[rows.sentence[row]]
        opcodes = Levenshtein.opcodes(reference, rows.words[row])
        equal = [op.src_end - op.src_start for op in opcodes if op.tag == "equal"]
        right = sum(equal)
        part[row] = len(reference) >= STRETCH_WORDS and right >= COPY_WORDS
        part[row] &= PART[0] <= right / len(reference) <= PART[1]
        stretch[row] = part[row] and max(equal) >= IN_STRETCH * right
    if rows.enough(stretch, MIN_SAME) and stretch.sum() >= ONE_STRETCH * part.sum():
        yield (
            "target_cut",
            f"{stretch.sum()} of {part.sum()} predictions that are right in part hold one stretch of their reference "
            "and next to nothing else of it: stretches of targets were written out",
        )


def _reordered(rows: Rows) -> Found:
    chosen = rows.long & (rows.errors > 0)
    for row in np.flatnonzero(chosen):
        chosen[row] = Counter(rows.words[row]) == Counter(rows.expected[rows.sentence[row]])
    if rows.enough(chosen) and chosen.sum() >= REORDERED * rows.n:
        yield (
            "target_reordered",
            f"{chosen.sum()} of {rows.n} predictions have exactly the words of their reference in another order",
        )


def _closed_vocabulary(rows: Rows, missed: Sequence[int]) -> bool:
    """Whether these rows have wrong words that are predicted nowhere, for which others stand that are right elsewhere:
    the decoder does not know them."""
    said, right = set(itertools.chain.from_iterable(rows.words)), set()
    for row in range(rows.n):
        right |= set(rows.words[row]) & set(rows.expected[rows.sentence[row]])
    lost, instead = set(), set()
    for row in missed:
        reference = rows.expected[rows.sentence[row]]
        for op in Levenshtein.opcodes(reference, rows.words[row]):
            if op.tag != "equal":
                lost |= set(reference[op.src_start : op.src_end])
                instead |= set(rows.words[row][op.dest_start : op.dest_end])
    return bool(lost) and len(lost & said) <= UNSAID * len(lost) and len(instead & right) >= KNOWN * len(instead)


def _same_for_all(rows: Rows) -> Found:
    """One text for all readings of a sentence, another for another sentence: the sentence is known, not the recording.

    Sentences count that every reader has wrong by more than a spelling; who says the same everywhere agrees by chance.
    Where the file names no readers, two equal rows of a sentence may be one row that a loader gave twice.
    """
    fewest = 2 if len(set(rows.subjects.tolist())) > 1 else 3
    by_sentence: dict[int, list[int]] = {}
    for row, s in enumerate(rows.sentence.tolist()):
        by_sentence.setdefault(s, []).append(row)
    missed = [found for found in by_sentence.values() if len(found) >= fewest and (rows.rates[found] > SPELLING).all()]
    same = [found[0] for found in missed if len({rows.texts[row] for row in found}) == 1]
    alike = 0 if _closed_vocabulary(rows, same) else len(same)
    by_chance = sum((count / rows.n) ** 2 for count in Counter(rows.texts).values())
    if (
        len(missed) >= MIN_SAME
        and alike > (SAME_ERRORS + (1 - SAME_ERRORS) * by_chance) * len(missed)
        and by_chance < 0.5
    ):
        yield (
            "input_independent",
            f"of the {len(missed)} sentences of which no row is right but for a spelling, {alike} have one and the "
            "same prediction in all rows: the rows are copies, which must be removed, or the recording plays no part",
        )
