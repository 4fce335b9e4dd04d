"""Signs of teacher forcing: words that follow the true word before them, and marks that stand where the target's do.

Teacher forcing gives the decoder the true words before each one. So its wrong words go with the target's previous word
and not with their own, and its punctuation stands in its place among words that are wrong.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.auditing.collapse import plain_words
from eeg2text_jax.auditing.plain_rows import MIN_SAME, Found, Rows
from eeg2text_jax.predictions.file import characters_apart

TOKENS = re.compile(r"\w+|[^\w\s]")
MARKS_OF = re.compile(r"[^\w\s]")
MANY_ROWS = 3000  # a rule looks at about so many, drawn evenly
# Marks between two wrong words that are right: teacher-forced sets have 13 to 73 % more than against other sentences,
# decoders that ran free at most 2 % more.
MARKS, MIN_MARKS, MARK_SENTENCES = 0.1, 100, 10
# Pairs of wrong words that are the same word, where the true word before them is the same, over pairs where neither
# neighbor is: 2.1 to 2.5 times in four teacher-forced sets and 2.5 to 5.4 in simulated ones, at most 1.4 in 60 decoders
# that ran free. Where their own words before them are the same: 1.0 to 1.6 times in the former, 3 to 50 in the latter.
FOLLOWS, FORCED, MIN_FOLLOWING, MANY_PLACES = 1.7, 2.1, 20, 3000
UNSEEN = "few_wrong_words"  # the code of a note, not of a sign


def words_follow_the_target(rows: Rows) -> Found:
    """Wrong words that go with the true word before them, more than with the decoder's own word there.

    Two wrong words are compared where their sentences and the true words in their place differ, so that no phrase of
    the references makes them alike.
    """
    places = _wrong_after_wrong(rows)
    if len(places) < 2:
        return
    sentence, true, before, own, wrong = (
        np.unique(column, return_inverse=True)[1] for column in zip(*places, strict=True)
    )
    apart = np.triu((sentence[:, None] != sentence) & (true[:, None] != true), 1)
    same_before, same_own, same = (one[:, None] == one for one in (before, own, wrong))

    def alike(chosen: np.ndarray) -> float:
        return float(((chosen & same).sum() + 1) / (chosen.sum() + 1))

    by_chance = alike(apart & ~same_before & ~same_own)
    comparable = apart & same_before & ~same_own
    after_true, after_own = alike(comparable), alike(apart & ~same_before & same_own)
    follow = np.nonzero(comparable & same)[0]
    kinds = len({(int(before[i]), int(wrong[i])) for i in follow.tolist()})
    if comparable.sum() * FORCED * by_chance < MIN_FOLLOWING:
        yield UNSEEN, _unseen(len(places))
    if kinds >= MIN_FOLLOWING and after_true > FOLLOWS * by_chance and after_true > after_own:
        yield (
            "looks_teacher_forced",
            f"looks teacher-forced, two wrong words are the same {after_true / by_chance:.1f} times as often as by "
            "chance where the true words before them are the same, and "
            f"{after_own / by_chance:.1f} times where the predicted ones are: each word was predicted from the target",
        )


def _unseen(places: int) -> str:
    return (
        f"{places} wrong words after another wrong word are too few to tell whether wrong words follow the target, as "
        "they do under teacher forcing: whether it ran free rests on statements alone"
    )


def _wrong_after_wrong(rows: Rows) -> list[tuple[int, str, str, str, str]]:
    """Wrong words whose own previous word is wrong, too: sentence, true word, true and own word before, wrong word."""
    found: dict[tuple, tuple] = {}
    for row in range(0, rows.n, max(1, rows.n // MANY_ROWS)):
        s = int(rows.sentence[row])
        expected, words = rows.expected[s], rows.words[row]
        for op in Levenshtein.opcodes(expected, words):
            if op.tag != "replace":
                continue
            for i, j in zip(range(op.src_start, op.src_end), range(op.dest_start, op.dest_end), strict=False):
                if i and j and expected[i - 1] != words[j - 1]:
                    place = (s, expected[i], expected[i - 1], words[j - 1], words[j])
                    found.setdefault((s, expected[i], expected[i - 1], words[j]), place)
    places = list(found.values())
    return places[:: -(-len(places) // MANY_PLACES)] if places else []


def marks_alone(rows: Rows) -> Found:
    """Commas and the like between two wrong words: of their places a recording of reading or speech knows nothing.

    They count as right beyond what predictions of about the same length have against other sentences, and beyond the
    share of words between two wrong words that are right: a decoder that reads token by token has both right as often.
    """
    order = sorted(range(rows.n), key=lambda row: len(rows.words[row]))
    step = max(1, rows.n // MANY_ROWS)
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
            f"looks teacher-forced, between two wrong words {mark:.0%} of the punctuation marks are right, "
            f"{by_chance:.0%} are against other sentences, and {word:.0%} of the words between two wrong words are: no "
            "recording tells that",
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


def marks_of_target(rows: Rows) -> Found:
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
        f"in {len(fixed)} of {len(several)} sentences whose predictions differ, all of these have equally many "
        "punctuation marks, and other sentences have other numbers: the decoder was given the target's",
    )
