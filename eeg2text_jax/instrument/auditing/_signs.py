"""Signs of a target in predictions: few, and each sure.

Words are compared without case, special tokens, marks of word pieces and final punctuation. No rule looks at how good
a result is, or at the order of the rows.

Measured on 148 sets of published predictions (`tools/field.py` prints their findings) and on simulated decoders. Not
told apart from a leak: a recording that tells of punctuation and hardly of words, and perfect choices from a list that
is not given and that no control shows.
"""

import dataclasses
import enum
import functools
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.instrument.auditing.strata import unmarked, words
from eeg2text_jax.instrument.predictions.file import characters_apart

MANY, SOME = 20_000, 3000  # rows that are looked at, in whole sentences; rows or words that are compared in pairs
FEW_ROWS, FEW_SENTENCES = 20, 10  # fewest rows of a file or reader, and fewest sentences, that show a sign
LONG = 5  # a reference of fewer words may be matched by chance
# After the same true word two wrong words are equal FOLLOWS times as often as their sentences explain, as after the
# same predicted word, and as before the same true word; by SURE standard errors, in KINDS different pairs of words:
# 1.4 to 3.4 times in 20 of 43 published teacher-forced sets; at most 1.2 in free-running sets and decoders that work,
# 1.3 in simulated ones that know the class of a sentence or word. Where words before the same true word are equal
# FOLLOWS times as often, too, the square counts: up to 1.2 in decoders that write words of like meaning, 1.3 to 5 in
# teacher-forced text of templates.
FOLLOWS, KINDS, SURE = 1.4, 15, 3.0
# Of the marks between two wrong words, the share that is right, less that in predictions for a similar sentence: .09 to
# .43 (3.5 to 13 standard errors) in 37 of 43 published teacher-forced sets (four others are empty), at most .03 (1.9)
# in free-running sets and decoders that work, .05 (2.6) in simulated ones.
MARKS, MIN_MARKS, MARK_SENTENCES, SURE_MARKS, NEIGHBORS, STRANGERS = 0.06, 100, 20, 3.3, 60, 5
# Ratio of character to word error rate in rows with errors: 0.2 to 0.35 in typing, where marks are keys like others;
# 0.6 to 0.95 in published sets.
BY_LETTERS = 0.5
ALL_ROWS, PRINTED = 0.99, 0.2  # share of rows that hold their reference; least share of references with inner marks
NEAR, MIDDLE, GAP, LOST, A_FEW = 0.2, 0.6, 3, 0.2, 0.01  # word error rates; ratio of and shares of rows
SAME_ERRORS, SPELLING = 0.5, 0.25  # share of sentences with one wrong text for all; word error rate of misspelt rows
MOST_WORDS, LEFT, NEAR_ALL, HALF = 8, 3, 0.95, 0.5  # first words; words after them; shares of rows

TOKENS = re.compile(r"\w+|[^\w\s]")
Places = list[tuple[int, str, str, str, str, int]]


class Weight(enum.StrEnum):
    """`CONTRADICTED` (teacher forcing, copied references) bars a verdict; `ODD` rows may be of an honest decoder."""

    CONTRADICTED = "contradicted"
    ODD = "odd"


@dataclasses.dataclass(frozen=True)
class Sign:
    code: str  # its kind, for scripts
    weight: Weight
    message: str
    rows: tuple[tuple[str, str], ...]  # two (reference, prediction) that show it


def signs_of(
    texts: Sequence[str],
    references: Sequence[str],
    sentence: np.ndarray,
    subjects: Sequence[str],
    *,
    averaged: bool = False,
    choices: Sequence[str] = (),
) -> list[Sign]:
    """Return the signs of a target in the predictions of one condition.

    Args:
      texts: the predictions, `[N]`.
      references: the distinct reference texts, `[S]`.
      sentence: index of each row's reference, int `[N]`.
      subjects: the reader of each row, `[N]`; "" if not known.
      averaged: one prediction was made for all readers of a sentence, as the authors state.
      choices: sentences that the decoder chose from, as the authors or its outputs under controls say.
    """
    rows = _Rows(texts, references, sentence, subjects, choices)
    if rows.n < FEW_ROWS:
        return []
    rules = [_words_follow_the_target, _marks_of_the_target, _copies, _whole_or_lost, _given_beginning]
    rules += [] if averaged else [_same_for_all]
    return [sign for rule in rules if (sign := rule(rows)) is not None]


def others_chosen(texts: Sequence[str], references: Sequence[str], sentence: np.ndarray) -> list[str]:
    """Return the predictions that are another long sentence of the file, if they are not few: the decoder chooses."""
    place = {words(text): s for s, text in enumerate(references) if len(words(text)) >= LONG}
    others = [text for text, s in zip(texts, sentence.tolist(), strict=True) if place.get(words(text), s) != s]
    return others if len(others) > max(1, A_FEW * len(texts)) else []


class _Rows:
    """`n` rows as plain words, in the order of a hash; `[n]` all but `choices` and `readers`."""

    def __init__(
        self,
        texts: Sequence[str],
        references: Sequence[str],
        sentence: np.ndarray,
        subjects: Sequence[str],
        choices: Sequence[str],
    ) -> None:
        truths = [words(text) for text in references]
        numbers = {key: number for number, key in enumerate(sorted(set(truths) - {()}, key=_hash))}
        rows = [(numbers[truths[s]], i) for i, s in enumerate(np.asarray(sentence).tolist()) if truths[s]]
        sizes = np.bincount([s for s, _ in rows], minlength=len(numbers))
        looked = max(1, int((np.cumsum(sizes) <= MANY).sum()))  # whole sentences
        rows = sorted((_hash(words(texts[i])), s, _tokens(texts[i]), texts[i], i) for s, i in rows if s < looked)
        self.n = len(rows)
        self.sentence = np.array([s for _, s, *_ in rows], int)  # among references that differ in their words
        self.pairs = [(references[int(sentence[i])], said) for *_, said, i in rows]  # reference and prediction
        self.words = [words(said) for _, said in self.pairs]
        self.true = [words(true) for true, _ in self.pairs]
        self.tokens = [(_tokens(said), _tokens(true)) for true, said in self.pairs]
        self.choices = {words(text) for text in choices}
        # Whether a prediction is a sentence of the file or of the decoder's list.
        self.listed = np.array([said in numbers or said in self.choices for said in self.words], bool)
        self.errors = np.array([Levenshtein.distance(a, b) for a, b in zip(self.words, self.true, strict=True)])
        self.lengths = np.array([len(key) for key in self.true])
        self.rates = self.errors / self.lengths  # word error rates
        # Whether a prediction holds its reference word for word.
        self.held = np.array([_holds(said, true) for said, true in zip(self.words, self.true, strict=True)], bool)
        names = np.unique([subjects[i] for *_, i in rows], return_inverse=True)[1]
        self.readers = sorted((np.flatnonzero(names == reader) for reader in np.unique(names)), key=list)

    def shown(self, rows: Sequence[int] | np.ndarray) -> tuple[tuple[str, str], ...]:
        """Return two of these rows, of two sentences if they can be had."""
        firsts: dict[int, tuple[str, str]] = {}
        for row in rows:
            firsts.setdefault(self.sentence[row], self.pairs[row])
        return tuple([*firsts.values(), *(self.pairs[row] for row in rows[1:])][:2])


def _hash(key: Sequence[str]) -> tuple[int, Sequence[str]]:
    """Return a key for an order that is not the file's."""
    return zlib.crc32("\x1f".join(key).encode()), key


@functools.lru_cache(MANY)
def _tokens(text: str) -> tuple[str, ...]:
    """Return the words and marks of a text, less final marks."""
    tokens = TOKENS.findall(characters_apart(unmarked(text)))
    while tokens and not tokens[-1][0].isalnum():
        tokens.pop()
    return tuple(tokens)


def _right(expected: Sequence[str], said: Sequence[str]) -> np.ndarray:
    """Return which tokens of `expected` an alignment finds in `said`."""
    right = np.zeros(len(expected), bool)
    for block in Levenshtein.opcodes(expected, said).as_matching_blocks():
        right[block.a : block.a + block.size] = True
    return right


def _words_follow_the_target(rows: _Rows) -> Sign | None:
    """Find wrong words that depend on the true word before them, as under teacher forcing.

    What a recording tells (kind of the sentence, class or length of its words) is told of the words on both sides, and
    what a language model adds follows the predicted word.
    """
    before, predicted = _equal_words(places := _wrong_after_wrong(rows))
    after, _ = _equal_words(_wrong_after_wrong(rows, backwards=True))
    # Words on both sides tell of a place with a class, or of a phrase with words exchanged, but not equally well.
    both_sides = after.ratio if after.ratio < FOLLOWS else after.ratio**2
    usual = max(1.0, predicted.ratio, both_sides)
    bound = usual * before.expected
    if before.kinds < KINDS or before.ratio < FOLLOWS * usual or before.equal < bound + SURE * bound**0.5:
        return None
    a, b = (places[i] for i in before.shown)
    return Sign(
        "looks_teacher_forced",
        Weight.CONTRADICTED,
        f"wrong words follow the true word before them: after the same true word two are equal {before.ratio:.1f} "
        f"times as often as their sentences explain ({predicted.ratio:.1f} times after the same predicted word, "
        f"{after.ratio:.1f} before the same true word), as in {a[4]!r} after a true {a[2]!r}; so each word was "
        "predicted from the target (teacher forcing)",
        (rows.pairs[a[5]], rows.pairs[b[5]]),
    )


def _wrong_after_wrong(rows: _Rows, *, backwards: bool = False) -> Places:
    """Return wrong words after a wrong word (`backwards`: before it), one for each sentence, place and word.

    Each: sentence, true word, true and predicted word before it, the wrong word, its row.
    """
    places: dict[tuple, tuple] = {}
    step = -1 if backwards else 1
    for row in range(min(rows.n, 2 * SOME)):
        true, said = rows.true[row][::step], rows.words[row][::step]
        for op in Levenshtein.opcodes(true, said):
            if op.tag != "replace":
                continue
            for i, j in zip(range(op.src_start, op.src_end), range(op.dest_start, op.dest_end), strict=False):
                if i and j and true[i - 1] != said[j - 1]:
                    place = (int(rows.sentence[row]), true[i], true[i - 1], said[j - 1], said[j], row)
                    places.setdefault((*place[:3], said[j]), place)
    return sorted(sorted(places.values(), key=lambda place: _hash(place[1:5]))[:SOME])


class _Pairs(NamedTuple):
    """How many pairs of wrong words are equal, how many their sentences explain; kinds of pairs; places of one pair."""

    equal: int = 0
    expected: float = 0.0
    kinds: int = 0
    shown: tuple[int, int] = (0, 0)

    @property
    def ratio(self) -> float:
        return (self.equal + 1) / (self.expected + 1)


def _equal_words(places: Places) -> tuple[_Pairs, _Pairs]:
    """Compare wrong words after the same true word, and after the same predicted word, with others of both sentences.

    Sentences and true words differ, so that no phrase of the references makes wrong words equal.
    """
    if len(places) < KINDS:
        return _Pairs(), _Pairs()
    columns = [*zip(*places, strict=True)][:5]
    sentence, true, before, said, wrong = (np.unique(column, return_inverse=True)[1] for column in columns)
    same_before, same_said, same = (one[:, None] == one for one in (before, said, wrong))
    apart = (sentence[:, None] != sentence) & (true[:, None] != true)
    plain = apart & ~same_before & ~same_said
    # Among the words of each sentence: how many are compared with a word, and how many equal it, [place, sentence].
    starts = np.flatnonzero(np.diff(sentence, prepend=-1))
    compared, equal = (np.add.reduceat(one.astype(np.float32), starts, axis=1) for one in (plain, plain & same))

    def pairs(mask: np.ndarray) -> _Pairs:
        a, b = np.nonzero(np.triu(mask, 1))
        others = compared[a, sentence[b]] + compared[b, sentence[a]]
        a, b, others = (one[others > 0] for one in (a, b, others))
        expected = (equal[a, sentence[b]] + equal[b, sentence[a]]) / others
        hits = np.flatnonzero(same[a, b])
        kinds = set(zip(before[a[hits]].tolist(), wrong[a[hits]].tolist(), strict=True))
        shown = (int(a[hits[0]]), int(b[hits[0]])) if len(hits) else (0, 0)
        return _Pairs(len(hits), float(expected.sum()), len(kinds), shown)

    return pairs(apart & same_before & ~same_said), pairs(apart & ~same_before & same_said)


def _marks_of_the_target(rows: _Rows) -> Sign | None:
    """Find punctuation marks that are right where both neighbor words are wrong.

    They are compared with the same marks under predictions of similar length for the most similar reference, as a
    decoder may know how such sentences are punctuated; and with single words, which a decoder that reads token by token
    has right as often.
    """
    order = sorted(range(min(rows.n, SOME)), key=lambda row: (len(rows.tokens[row][0]), row))
    if _by_letters(rows):
        return None
    kinds = [set(reference) for _, reference in rows.tokens]
    # Of each sentence: `_islands` in its own predictions, and in those for a similar sentence.
    by_sentence: dict[int, np.ndarray] = defaultdict(lambda: np.zeros((2, 4)))
    right: list[int] = []
    for place, row in enumerate(order):
        said, reference = rows.tokens[row]
        counts = _islands(reference, said)
        near = order[max(0, place - NEIGHBORS // 2) : place + NEIGHBORS // 2 + 1]
        near = [i for i in near if rows.sentence[i] != rows.sentence[row]]
        if not counts[1] or not near:
            continue
        alike = max(near, key=lambda i: (len(kinds[row] & kinds[i]) / len(kinds[row] | kinds[i]), -i))
        strangers = [i for i in near if rows.sentence[i] == rows.sentence[alike]][:STRANGERS]
        theirs = np.mean([_islands(reference, rows.tokens[i][0]) for i in strangers], axis=0)
        by_sentence[rows.sentence[row]] += (counts, theirs)
        right += [row] if counts[0] else []
    if len(by_sentence) < MARK_SENTENCES:
        return None
    of_targets, theirs = np.stack([*by_sentence.values()], axis=1)
    mark, by_chance, error = _shares(of_targets, theirs)
    word = of_targets[:, 2].sum() / max(1, of_targets[:, 3].sum())
    if of_targets[:, 1].sum() < MIN_MARKS or mark <= word or mark - by_chance < max(MARKS, SURE_MARKS * error):
        return None
    return Sign(
        "looks_teacher_forced",
        Weight.CONTRADICTED,
        f"punctuation follows the target: of the marks between two wrong words {mark:.0%} are right, {by_chance:.0%} "
        f"under predictions for a similar sentence, and of single words between two wrong ones {word:.0%}; so marks "
        "were predicted from the target (teacher forcing), or the input itself carries them, as a text to translate",
        rows.shown(sorted(right)),
    )


def _shares(*counts: np.ndarray) -> tuple[float, float, float]:
    """Return two shares of right marks and the standard error of their difference, from counts `[sentence, 4]`."""
    shares = [float(one[:, 0].sum() / max(1, one[:, 1].sum())) for one in counts]
    a, b = ((c[:, 0] - share * c[:, 1]) / max(1, c[:, 1].sum()) for c, share in zip(counts, shares, strict=True))
    return shares[0], shares[1], float(((a - b) ** 2).sum() ** 0.5)


def _islands(reference: Sequence[str], said: Sequence[str]) -> np.ndarray:
    """Count single tokens whose two neighbor words are wrong, `[4]`: right marks, marks, right words, words."""
    right = _right(reference, said)
    counts = np.zeros(4)
    for i in range(1, len(reference) - 1):
        if reference[i - 1][0].isalnum() and reference[i + 1][0].isalnum() and not (right[i - 1] or right[i + 1]):
            kind = 2 * reference[i][0].isalnum()
            counts[kind : kind + 2] += (right[i], 1)
    return counts


def _by_letters(rows: _Rows) -> bool:
    """Return whether wrong words differ from the true ones in few letters, as in typing or spelling."""
    wrong = np.flatnonzero(rows.errors)[:SOME].tolist()
    pairs = [(" ".join(rows.words[row]), " ".join(rows.true[row])) for row in wrong]
    letters = sum(Levenshtein.distance(*pair) for pair in pairs) / max(1, sum(len(true) for _, true in pairs))
    return bool(letters < BY_LETTERS * rows.errors[wrong].sum() / max(1, rows.lengths[wrong].sum()))


def _copies(rows: _Rows) -> Sign | None:
    """Find a file, or rows of one reader, of which nearly all predictions contain their reference.

    The sign contradicts free-running decoding if the predictions also have the punctuation inside of the references,
    which no recording tells. It is only odd if the decoder chooses from a list (as stated, or as wrong predictions are
    other sentences of the file), or if the references have no such marks: an honest decoder without errors looks the
    same.
    """
    long = rows.lengths >= LONG
    for whose, indices in [("", np.arange(rows.n)), *((" of one reader", indices) for indices in rows.readers)]:
        indices = indices[long[indices]]
        enough = len(indices) >= FEW_ROWS and np.unique(rows.sentence[indices]).size >= FEW_SENTENCES
        if enough and rows.held[indices].sum() >= ALL_ROWS * len(indices):
            return _copied(rows, indices, whose)
    return None


def _copied(rows: _Rows, indices: np.ndarray, whose: str) -> Sign | None:
    others = rows.listed[~rows.held]
    if whose and 2 * others.sum() >= len(others):
        return None  # one good reader, where all choose among the sentences of the file
    from_list = bool(rows.choices) or bool(others.any())
    letter = np.array([_holds(*rows.tokens[row]) for row in indices.tolist()])
    inner = np.array([any(not token[0].isalnum() for token in rows.tokens[row][1]) for row in indices.tolist()])
    sure = not whose and not from_list and letter.sum() >= ALL_ROWS * len(indices) and inner.mean() >= PRINTED
    return Sign(
        "target_copies",
        Weight.CONTRADICTED if sure else Weight.ODD,
        f"{rows.held[indices].sum()} of {len(indices)} predictions{whose} hold their reference "
        + (
            "to the letter, punctuation included: a column was read twice, or the targets were written out; if the "
            "decoder chose from a list, give it with --choices"
            if sure
            else "word for word: a column was read twice, the targets were written out, or the decoder makes no errors"
        ),
        rows.shown(indices[rows.held[indices]]),
    )


def _holds(said: Sequence[str], true: Sequence[str]) -> bool:
    return f" {' '.join(true)} " in f" {' '.join(said)} "


def _whole_or_lost(rows: _Rows) -> Sign | None:
    """Find readers with rows that are nearly right among many that are wrong throughout, and few in between.

    A leak into some rows does it, a reader who attends or not, and a choice from a list, which is excepted.
    """
    long = rows.lengths >= LONG
    near = long & (rows.held | (rows.rates <= NEAR))
    middle, lost = long & ~near & (rows.rates <= MIDDLE), long & ~near & (rows.rates > MIDDLE)
    whole = np.zeros(rows.n, bool)
    for of_reader in rows.readers:
        if near[of_reader].sum() > GAP * middle[of_reader].sum() and lost[of_reader].sum() >= LOST * len(of_reader):
            whole[of_reader] = near[of_reader]
    enough = whole.sum() >= A_FEW * rows.n and np.unique(rows.sentence[whole]).size >= FEW_SENTENCES
    if not enough or 2 * (rows.listed & lost).sum() >= lost.sum():
        return None
    return Sign(
        "whole_or_lost",
        Weight.ODD,
        f"{whole.sum()} of {rows.n} predictions are nearly or wholly right, {middle.sum()} right in part, and "
        f"{lost.sum()} hold next to nothing of their reference: targets in some rows, or readers who attended or not; "
        "if the decoder chose from a list, give it with --choices",
        rows.shown([*np.flatnonzero(whole)[:1], *np.flatnonzero(lost)[:1]]),
    )


def _same_for_all(rows: _Rows) -> Sign | None:
    """Find sentences that all readers have wrong with the same text: the sentence is known, not the recording.

    A decoder of few words does it, too. Without readers three rows are needed: a loader may give one row twice.
    """
    fewest = 2 if len(rows.readers) > 1 else 3
    by_sentence = defaultdict(list)
    for row, s in enumerate(rows.sentence.tolist()):
        by_sentence[s].append(row)
    missed = [of for of in by_sentence.values() if len(of) >= fewest and (rows.rates[of] > SPELLING).all()]
    same = [of for of in missed if len({rows.words[row] for row in of}) == 1]
    by_chance = sum((count / rows.n) ** 2 for count in Counter(rows.words).values())
    most = (SAME_ERRORS + (1 - SAME_ERRORS) * by_chance) * len(missed)
    if len(missed) < FEW_SENTENCES or len(same) <= most or by_chance >= 0.5:
        return None
    return Sign(
        "input_independent",
        Weight.ODD,
        f"of the {len(missed)} sentences of which every row is wrong by more than its spelling, {len(same)} have one "
        "and the same prediction in all rows: rows are copies, or what tells the sentence is not the individual "
        "recording",
        tuple(rows.pairs[of[0]] for of in same[:2]),
    )


def _given_beginning(rows: _Rows) -> Sign | None:
    """Find predictions that nearly all begin with the first words of their reference, and then are mostly wrong.

    Beginnings of half of the sentences, such as "a man" of captions, tell nothing.
    """
    for k in range(MOST_WORDS, 0, -1):
        able = [row for row in range(rows.n) if len(rows.true[row]) >= k + LEFT]
        begun = [row for row in able if rows.words[row][:k] == rows.true[row][:k]]
        if len(able) < FEW_ROWS or len(begun) < max(NEAR_ALL * len(able), rows.n / 2):
            continue
        beginnings = Counter({int(rows.sentence[row]): rows.true[row][:k] for row in able}.values())
        if max(beginnings.values()) > HALF * beginnings.total() or len(beginnings) < FEW_SENTENCES:
            continue
        rest = [_right(rows.true[row][k:], rows.words[row][k:]) for row in begun]
        following, later = float(np.mean([right[0] for right in rest])), float(np.concatenate(rest).mean())
        if max(following, later) <= HALF:
            return Sign(
                "target_beginning",
                Weight.ODD,
                f"{len(begun)} of {len(able)} predictions begin with the first {f'{k} words' if k > 1 else 'word'} of "
                f"their reference, and of the words that follow {later:.0%} are right: a tag or number of the sentence "
                "stands on both sides, or the decoder was given these words",
                rows.shown(begun),
            )
    return None
