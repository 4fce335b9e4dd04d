"""Signs in the outputs that only a target explains: no recording leaves them, however good or poor the decoder is.

None of these rules looks at how good a result is. A decoder makes errors of many sizes; its readings of one sentence
err apart; it places no commas among words that it has wrong. Shown on published decoders of speech, typing and images
that work, and on published teacher-forced sets: tests/audit/test_decoders.py and test_working_decoders.py.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.auditing.align import Condition
from eeg2text_jax.auditing.collapse import COPY_WORDS, plain_words
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.predictions.script import characters_apart

# Codes of what is found here.
SIGNS = (
    "target_copies",
    "target_edited",
    "target_cut",
    "target_reordered",
    "target_length",
    "looks_teacher_forced",
    "input_independent",
    "target_scores",
)
TOKENS = re.compile(r"\w+|[^\w\s]")
MARKS_OF = re.compile(r"[^\w\s]")
# Share of rows, and number of sentences, below which a pattern may be chance.
A_POINT, MIN_SENTENCES = 0.01, 3
NEAR, MIDDLE = 0.2, 0.6  # word error rates of a row: nearly its reference; something of it
# Nearly right rows for each that is right in part, in a file with a fifth or more of rows that hold nothing: at most
# 0.9 in a decoder of speech of which two thirds are lost; decoders with 3 to 6 have lost 5 % or less of the rows.
GAP, LOST = 3, 0.2
FORMS, HALF = range(1, 6), 0.5  # numbers of errors; of rows that are right in the greater part
ONE_FORM = 9  # rows with exactly k errors for each with one more or less; 3 in the most uniform decoder published
ALL_ROWS, MIN_ROWS = 0.99, 30
REORDERED = 0.05
# Marks between two wrong words that are right: teacher-forced sets have 13 to 73 % more than against other sentences,
# decoders that ran free at most 2 % more.
MARKS, MIN_MARKS, MARK_ROWS, MARK_SENTENCES = 0.1, 100, 3000, 10
# Readers of a sentence that all err in it, by more than a spelling, err alike in 1 % of sentences typed by three people
# and decoded from MEG; in 67 and 77 % where the target was fed to the model.
SAME_ERRORS, MIN_SAME, SPELLING = 0.5, 10, 0.25
# Character error rate over word error rate of wrong rows: 0.19 to 0.35 where letters are decoded one by one (typing,
# spelling; a mark is then a keystroke like any other), 0.75 to 0.94 where words are, and in teacher-forced sets.
BY_LETTERS = 0.5


def signs(condition: Condition, references: Sequence[str], *, averaged: bool = False) -> list[Flag]:
    """Return severe findings about the rows of one condition; none if the file states that they were teacher-forced.

    `averaged`: the authors state that one prediction was made for all readers of a sentence.
    """
    if condition.mode == "teacher_forced":
        return []
    rows = _Rows(condition, references)
    found = [_same_column, _one_form, _in_two_parts, _cut_short, _reordered]
    found += [] if rows.by_letters() else [_marks_alone, _marks_of_target]
    found += [] if averaged else [_same_for_all]
    return [
        Flag(code, "severe", f"{condition.name}: {message}", (condition.name,))
        for rule in found
        for code, message in rule(rows)
    ]


def weighed(flags: Sequence[Flag], verified: str) -> list[Flag]:
    """Return the findings; of a verified file, signs of a target are warnings: a nearly perfect decoder, or memory."""
    if not verified:
        return list(flags)
    return [dataclasses.replace(flag, level="warning") if flag.code in SIGNS else flag for flag in flags]


def contradictions(flags: Sequence[Flag]) -> list[str]:
    """Return the messages of the severe signs of a target."""
    return [flag.message for flag in flags if flag.code in SIGNS and flag.level == "severe"]


Found = Iterator[tuple[str, str]]


class _Rows:
    """Rows against their references, as plain words."""

    def __init__(self, condition: Condition, references: Sequence[str]) -> None:
        self.sentence, self.references = condition.sentence, references
        self.texts = [" ".join(text.split()) for text in condition.texts]
        self.n = len(self.texts)
        self.subjects = np.unique([row.subject for row in condition.rows], return_inverse=True)[1]
        self.expected = [plain_words(text) for text in references]
        self.words = [plain_words(text) for text in self.texts]
        own = [self.expected[s] for s in self.sentence.tolist()]
        self.long = np.array([len(words) >= COPY_WORDS for words in own])
        self.errors = np.array([Levenshtein.distance(a, b) for a, b in zip(self.words, own, strict=True)])
        self.rates = self.errors / np.maximum(1, [len(words) for words in own])
        self.whole = self.long & np.array(
            [f" {' '.join(b)} " in f" {' '.join(a)} " for a, b in zip(self.words, own, strict=True)]
        )

    def by_letters(self) -> bool:
        """Whether wrong words are near misses by letters, as of who types or spells."""
        wrong = np.flatnonzero(self.errors).tolist()
        pairs = [(" ".join(self.words[row]), " ".join(self.expected[self.sentence[row]])) for row in wrong]
        letters = sum(Levenshtein.distance(*pair) for pair in pairs) / max(1, sum(len(b) for _, b in pairs))
        words = self.errors[wrong].sum() / max(1, sum(len(b.split()) for _, b in pairs))
        return bool(letters < BY_LETTERS * words)

    def listed(self, chosen: np.ndarray) -> bool:
        """Return whether half of the chosen rows or more are sentences of the file, as of a decoder that chooses."""
        known = {" ".join(words) for words in self.expected}
        places = np.flatnonzero(chosen)
        return bool(len(places)) and 2 * sum(" ".join(self.words[row]) in known for row in places) >= len(places)

    def enough(self, chosen: np.ndarray, sentences: int = MIN_SENTENCES) -> bool:
        return chosen.sum() >= A_POINT * self.n and len(set(self.sentence[chosen].tolist())) >= sentences


def _same_column(rows: _Rows) -> Found:
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


def _one_form(rows: _Rows) -> Found:
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


def _in_two_parts(rows: _Rows) -> Found:
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
            "have leaked into some rows",
        )


def _cut_short(rows: _Rows) -> Found:
    """Beginnings of references without an error, where no other beginning has one or two."""
    exact, nearly, texts = np.zeros(rows.n, bool), 0, set()
    for row, (words, s) in enumerate(zip(rows.words, rows.sentence.tolist(), strict=True)):
        reference = rows.expected[s]
        if len(words) < COPY_WORDS or len(words) >= len(reference):
            continue
        errors = sum(a != b for a, b in zip(words, reference, strict=False))
        exact[row] = errors == 0
        nearly += 0 < errors <= 2
        texts |= {tuple(words)} if errors == 0 else set()
    sentences = len(set(rows.sentence[exact].tolist()))
    if rows.enough(exact, MIN_SAME) and 2 * len(texts) > sentences and exact.sum() > ONE_FORM * nearly:
        yield (
            "target_cut",
            f"{exact.sum()} of {rows.n} predictions are the beginning of their reference without an error, and "
            f"{nearly} are one with an error or two: targets were cut",
        )


def _reordered(rows: _Rows) -> Found:
    chosen = rows.long & (rows.errors > 0)
    for row in np.flatnonzero(chosen):
        chosen[row] = Counter(rows.words[row]) == Counter(rows.expected[rows.sentence[row]])
    if rows.enough(chosen) and chosen.sum() >= REORDERED * rows.n:
        yield (
            "target_reordered",
            f"{chosen.sum()} of {rows.n} predictions have exactly the words of their reference in another order",
        )


def _marks_alone(rows: _Rows) -> Found:
    """Commas and the like between two wrong words: of their places a recording of reading or speech knows nothing.

    They count as right beyond what predictions of about the same length have against other sentences, and beyond what
    words in such places have: who reads token by token has marks right as often as words.
    """
    order = sorted(range(rows.n), key=lambda row: len(rows.words[row]))
    step = max(1, rows.n // MARK_ROWS)
    own, other = np.zeros(4, int), np.zeros(4, int)
    sentences = set()
    for place in range(0, rows.n, step):
        row = order[place]
        found = _islands(rows.references[rows.sentence[row]], rows.texts[row])
        stranger = next((r for r in _around(order, place) if rows.sentence[r] != rows.sentence[row]), None)
        if stranger is not None and found[1]:
            sentences.add(int(rows.sentence[row]))
            own += found
            other += _islands(rows.references[rows.sentence[row]], rows.texts[stranger])
    mark, by_chance, word = (a / max(1, b) for a, b in (own[:2], other[:2], own[2:]))
    enough = min(own[1], other[1]) >= MIN_MARKS and len(sentences) >= MARK_SENTENCES
    if enough and mark - by_chance > MARKS and mark > word:
        yield (
            "looks_teacher_forced",
            f"looks teacher-forced, {mark:.0%} of the punctuation between two wrong words stands in its place, where "
            f"that of other sentences has {by_chance:.0%} and words in such places {word:.0%}: no recording tells that",
        )


def _around(order: Sequence[int], place: int) -> Iterator[int]:
    for distance in range(1, min(60, len(order))):
        yield order[(place + distance) % len(order)]


def _islands(reference: str, text: str) -> np.ndarray:
    """Tokens between two wrong words: marks that are right, marks, words that are right, words."""
    tokens = TOKENS.findall(characters_apart(reference.lower()))
    right = np.zeros(len(tokens), bool)
    for op in Levenshtein.opcodes(tokens, TOKENS.findall(characters_apart(text.lower()))):
        if op.tag == "equal":
            right[op.src_start : op.src_end] = True
    counts = np.zeros(4, int)
    for i in range(1, len(tokens) - 1):
        if tokens[i - 1].isalnum() and tokens[i + 1].isalnum() and not (right[i - 1] or right[i + 1]):
            counts[2 * tokens[i].isalnum() : 2 * tokens[i].isalnum() + 2] += (right[i], 1)
    return counts


def _marks_of_target(rows: _Rows) -> Found:
    """Outputs of a reference that differ in words and never in the number of their marks, as those of others do."""
    outputs: dict[int, set[str]] = {}
    for text, s, rate in zip(rows.texts, rows.sentence.tolist(), rows.rates.tolist(), strict=True):
        if rate > 0:
            outputs.setdefault(s, set()).add(text)
    several = [texts for texts in outputs.values() if len({tuple(plain_words(text)) for text in texts}) > 1]
    marks = [{len(MARKS_OF.findall(text)) for text in texts} for texts in several]
    fixed = [next(iter(found)) for found in marks if len(found) == 1]
    usual = Counter(fixed).most_common(1)[0][1] if fixed else 0
    if len(several) < MIN_SAME or len(fixed) < 0.95 * len(several) or usual > 0.8 * len(fixed):
        return
    yield (
        "target_length",
        f"in {len(fixed)} of {len(several)} sentences whose predictions differ, all have the same number of marks, "
        "which is another in other sentences: the target's length in tokens was given",
    )


def _same_for_all(rows: _Rows) -> Found:
    """One text for all readings of a sentence, another for another sentence: the sentence is known, not the recording.

    Sentences count that every reader has wrong by more than a spelling; who says the same everywhere agrees by chance.
    """
    by_sentence: dict[int, list[int]] = {}
    for row, s in enumerate(rows.sentence.tolist()):
        by_sentence.setdefault(s, []).append(row)
    missed = [found for found in by_sentence.values() if len(found) > 1 and (rows.rates[found] > SPELLING).all()]
    alike = sum(len({rows.texts[row] for row in found}) == 1 for found in missed)
    by_chance = sum((count / rows.n) ** 2 for count in Counter(rows.texts).values())
    if (
        len(missed) >= MIN_SAME
        and alike > (SAME_ERRORS + (1 - SAME_ERRORS) * by_chance) * len(missed)
        and by_chance < 0.5
    ):
        yield (
            "input_independent",
            f"of the {len(missed)} sentences that every reader has wrong, {alike} have one and the same prediction in "
            "all rows: the individual recording plays no part",
        )
