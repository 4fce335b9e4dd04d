"""Signs of the target in the predictions: patterns that no decoder of recordings leaves, however good or poor.

No rule looks at how good a result is. A decoder makes errors of many sizes, its errors differ between the readers of a
sentence, and it places no commas among wrong words. tests/audit/test_decoders.py and test_working_decoders.py test the
rules on published decoders of speech, typing and images, and on published teacher-forced sets.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.auditing import forced_words
from eeg2text_jax.auditing.align import Condition
from eeg2text_jax.auditing.collapse import plain_words
from eeg2text_jax.auditing.plain_rows import ALL_ROWS, COPY_WORDS, MIN_SAME, Found, Rows, matches
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.errors import UserError

# Codes of the findings that are signs of a target.
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
NEAR, MIDDLE = 0.2, 0.6  # word error rates up to which a prediction is nearly, or partly, its reference
# Ratio of nearly right to partly right rows, in a file where a share of at least LOST of the rows is wrong throughout.
# The ratio is at most 0.9 in a speech decoder that loses two thirds of its rows; decoders with a ratio of 3 to 6 lose
# at most 5 % of their rows.
GAP, LOST = 3, 0.2
FORMS, HALF = range(1, 6), 0.5  # numbers of word errors to look for, in rows with a word error rate below HALF
ONE_FORM = 9  # rows with exactly k errors for each row with k - 1 or k + 1; at most 3 in published decoders
MIN_ROWS = 30  # fewest rows of a reader who is searched alone
REORDERED = 0.05  # least share of rows with reordered words for a finding
# Of the sentences whose predictions are wrong for all readers (word error rate above SPELLING), the share in which
# these predictions are the same: 1 % for three people who typed during MEG; 67 and 77 % where the target was fed to the
# model.
SAME_ERRORS, SPELLING = 0.5, 0.25
# A finding: of the rows whose share of right words is within PART (in references of STRETCH_WORDS words or more), at
# least ONE_STRETCH have at least IN_STRETCH of their right words in one stretch. 99 % of the rows do if a stretch of
# the target was written out, and at most 75 % in published decoders.
ONE_STRETCH, IN_STRETCH, PART, STRETCH_WORDS = 0.9, 0.8, (0.25, 0.85), 8
# A closed vocabulary: a share of at most UNSAID of the words that all readers miss is predicted elsewhere, and a share
# of at least KNOWN of the words in their place is right elsewhere (0.36 in a decoder, 0.06 where words were inflected).
UNSAID, KNOWN = 0.1, 0.2


def signs(
    condition: Condition, references: Sequence[str], *, averaged: bool = False, choices: Sequence[str] = ()
) -> list[Flag]:
    """Return a severe finding for each sign of the target in one condition; none if it is stated to be teacher-forced.

    A finding that is only a note says that wrong words are too few to compare them with the target.

    Args:
      averaged: whether, as the authors state, one prediction was made for all readers of a sentence.
      choices: the sentences that the decoder chose from, as the authors state.
    """
    if condition.mode == "teacher_forced":
        return []
    rows = Rows(condition, references, choices)
    rules = [_same_column, _one_form, _in_two_parts, _cut_short, _one_stretch, _reordered]
    rules += [forced_words.same_beginning, forced_words.words_follow_the_target]
    rules += [] if rows.by_letters() else [forced_words.marks_alone, forced_words.marks_of_target]
    rules += [] if averaged else [_same_for_all]
    return [
        Flag(code, "severe" if code in SIGNS else "note", f"{condition.name}: {message}", (condition.name,))
        for rule in rules
        for code, message in rule(rows)
    ]


def chosen_from(condition: Condition, references: Sequence[str], choices: Sequence[str]) -> list[Flag]:
    """Return a note on how many sentences the decoder chose from, as its authors state.

    Raises:
      UserError: a prediction is not one of these sentences.
    """
    known = {tuple(plain_words(text)) for text in choices} - {()}
    others = [text for text in condition.texts if tuple(plain_words(text)) not in known]
    if others:
        raise UserError(
            f"--choices: {len(others)} of {len(condition.texts)} predictions, such as {others[0]!r:.80}, are not among "
            f"its {len(known)} sentences; give the whole list that the decoder chose from, one sentence on each line."
        )
    among = sum(tuple(plain_words(text)) in known for text in references)
    message = f"as stated, the decoder chose among {len(known)} sentences, of which {among} are references"
    return [Flag("choices", "note", message, (condition.name,))]


def weighed(flags: Sequence[Flag]) -> list[Flag]:
    """Return the findings for predictions that eeg2text decoded: signs of the target become warnings.

    Such a decoder is nearly perfect, or remembers the text. The note on too few wrong words is dropped.
    """
    kept = [flag for flag in flags if flag.code != forced_words.UNSEEN]
    return [dataclasses.replace(flag, level="warning") if flag.code in SIGNS else flag for flag in kept]


def contradictions(flags: Sequence[Flag]) -> list[str]:
    """Return the messages of the severe signs of the target."""
    return [flag.message for flag in flags if flag.code in SIGNS and flag.level == "severe"]


def _same_column(rows: Rows) -> Found:
    """Find whether nearly all predictions, of the file or of one reader, contain their reference.

    Single readers are not searched if at least half of the rows without their reference are sentences of the file or
    of `choices`: the decoder chooses among these.
    """
    references = [" ".join(rows.references[s].split()) for s in rows.sentence.tolist()]
    same = np.array([reference in text for reference, text in zip(references, rows.texts, strict=True)])
    groups = [("", np.ones(rows.n, bool))]
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
    """Find many rows with the same small number of wrong or missing words; a decoder's errors differ in number."""
    shorter = np.array([len(words) <= len(own) for words, own in zip(rows.words, rows.own, strict=True)])
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
    """Find rows of one reader that are nearly right among many that are wrong throughout, with few in between.

    A decoder that chooses among the sentences of the file is excepted: it is right or wrong as a whole.
    """
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
    """Find rows that are exactly the beginning of their reference, if few are such a beginning with an error or two.

    Rows at the decoder's limit of words do not count, unless every row of the file is without an error.
    """
    exact, nearly, texts = np.zeros(rows.n, bool), np.zeros(rows.n, bool), set()
    for row, (words, reference) in enumerate(zip(rows.words, rows.own, strict=True)):
        if COPY_WORDS <= len(words) < len(reference):
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
            f"{nearly.sum()} are such a beginning with an error or two: targets were cut",
        )


def _one_stretch(rows: Rows) -> Found:
    """Find rows whose right words are nearly all in one run of consecutive words of their reference."""
    part, stretch = np.zeros(rows.n, bool), np.zeros(rows.n, bool)
    for row in np.flatnonzero(rows.long & ~rows.limited).tolist():
        reference = rows.own[row]
        equal = [length for _, length in matches(reference, rows.words[row])]
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
    """Find rows with exactly the words of their reference in another order."""
    same = np.array([sorted(words) == sorted(own) for words, own in zip(rows.words, rows.own, strict=True)])
    chosen = rows.long & (rows.errors > 0) & same
    if rows.enough(chosen) and chosen.sum() >= REORDERED * rows.n:
        yield (
            "target_reordered",
            f"{chosen.sum()} of {rows.n} predictions have exactly the words of their reference in another order",
        )


def _closed_vocabulary(rows: Rows, missed: Sequence[int]) -> bool:
    """Return whether the decoder does not know the words that are wrong in the rows `missed`.

    It predicts these words nowhere, and replaces them by words that are right in other places.
    """
    said = set(itertools.chain.from_iterable(rows.words))
    right = set().union(*(set(words) & set(own) for words, own in zip(rows.words, rows.own, strict=True)))
    lost, instead = set(), set()
    for row in missed:
        for op in Levenshtein.opcodes(rows.own[row], rows.words[row]):
            if op.tag != "equal":
                lost |= set(rows.own[row][op.src_start : op.src_end])
                instead |= set(rows.words[row][op.dest_start : op.dest_end])
    return bool(lost) and len(lost & said) <= UNSAID * len(lost) and len(instead & right) >= KNOWN * len(instead)


def _same_for_all(rows: Rows) -> Found:
    """Find sentences that all readers have wrong with the same text: the sentence is known, not the recording.

    Errors of spelling do not count. If the file names no readers, three rows are needed: two equal ones may be one row
    that a loader gave twice.
    """
    fewest = 2 if rows.subjects.any() else 3
    missed = [found for found in rows.by_sentence if len(found) >= fewest and (rows.rates[found] > SPELLING).all()]
    same = [found[0] for found in missed if len({rows.texts[row] for row in found}) == 1]
    alike = 0 if _closed_vocabulary(rows, same) else len(same)
    by_chance = sum((count / rows.n) ** 2 for count in Counter(rows.texts).values())
    most = (SAME_ERRORS + (1 - SAME_ERRORS) * by_chance) * len(missed)
    if len(missed) >= MIN_SAME and alike > most and by_chance < 0.5:
        yield (
            "input_independent",
            f"of the {len(missed)} sentences of which every row is wrong by more than its spelling, {alike} have one "
            "and the same prediction in all rows: the rows are copies, which must be removed, or the recording plays "
            "no part",
        )
