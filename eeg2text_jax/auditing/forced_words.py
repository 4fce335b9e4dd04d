"""Signs that the decoder was given true words: first words, wrong words and punctuation marks that follow the target.

A teacher-forced decoder sees the true words before each word. So its wrong words depend on the true previous word and
not on the predicted previous word, and its punctuation marks are in the right places among wrong words.
"""

import re
from collections import Counter

import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.auditing.collapse import plain_words
from eeg2text_jax.auditing.plain_rows import MIN_SAME, Found, Rows, matches
from eeg2text_jax.predictions.file import characters_apart

MOST_WORDS = 8  # largest number of first words of a reference to look for in predictions
# NEAR_ALL: share of rows with the same first words as their reference. STEP: ratio of the odds that such a word is
# right to the odds for the next word, and for all later words; at most 3.9 in published and simulated decoders.
NEAR_ALL, STEP = 0.95, 20
LEFT = 3  # fewest words that a reference must have after its first words
# The first words must tell sentences apart: at least APART distinct beginnings per sentence, and a probability of
# at most BY_CHANCE that two sentences begin alike. This excludes "a man" of captions, and a sentence's class, which a
# decoder may know.
APART, BY_CHANCE = 0.25, 0.5
TOKENS = re.compile(r"\w+|[^\w\s]")
MARKS_OF = re.compile(r"[^\w\s]")
MANY_ROWS = 3000  # a rule looks at every k-th row, so that it sees this many rows or up to twice as many
NEIGHBORS = 60  # number of next longer predictions in which one for another sentence is looked for
# Of the punctuation marks whose two neighbor words are wrong, the share that is right, minus the same share in
# predictions for other sentences: 13 to 73 % in teacher-forced sets, at most 2 % in free-running decoders.
MARKS, MIN_MARKS, MARK_SENTENCES = 0.1, 100, 10
# Of pairs of wrong words in two sentences, the share of pairs with the same wrong word. This share among pairs whose
# previous words in the references are the same, divided by the share among pairs whose previous words differ in
# references and predictions, is 2.1 (`FORCED`) to 5.4 in teacher-forced sets, and at most 1.4 in 60 free-running
# decoders; above `FOLLOWS` it is a finding. Among pairs whose previous words in the predictions are the same, the ratio
# is 1.0 to 1.6 in teacher-forced sets and 3 to 50 in free-running decoders.
FOLLOWS, FORCED, MIN_FOLLOWING, MANY_PLACES = 1.7, 2.1, 20, 3000
UNSEEN = "few_wrong_words"  # code of the note that there are too few wrong words to compare with the target


def same_beginning(rows: Rows) -> Found:
    """Find predictions that nearly all begin with the first words of their reference, and then are mostly wrong.

    A decoder's errors do not begin at the same word of every sentence.
    """
    for k in range(MOST_WORDS, 0, -1):
        eligible = [row for row in range(rows.n) if len(rows.own[row]) >= k + LEFT]
        sentences = {int(rows.sentence[row]): tuple(rows.own[row][:k]) for row in eligible}
        counts = np.array(list(Counter(sentences.values()).values()))
        apart = len(counts) >= APART * len(sentences) and (counts**2).sum() <= BY_CHANCE * len(sentences) ** 2
        found = [row for row in eligible if rows.words[row][:k] == rows.own[row][:k]]
        if len(sentences) < MIN_SAME or not apart or len(found) < max(NEAR_ALL * len(eligible), rows.n / 2):
            continue
        pairs = [(rows.own[row], rows.words[row]) for row in found]
        first = ((len(found) + 0.5) / (len(eligible) + 1)) ** (1 / k)
        following = sum(words[k : k + 1] == own[k : k + 1] for own, words in pairs) / len(found)
        right = sum(length for own, words in pairs for _, length in matches(own[k:], words[k:]))
        later = right / sum(len(own) - k for own, _ in pairs)
        if _odds(first) >= STEP * max(_odds(following), _odds(later)):
            # A number or tag of the sentence has digits; the word after it rarely does.
            digits, after = (
                sum(any(map(str.isdigit, "".join(own[part]))) for own, _ in pairs)
                for part in (slice(k), slice(k, k + 1))
            )
            why = (
                "predictions and references begin with a number or tag of the sentence, which scores count: remove it"
                if digits >= NEAR_ALL * len(found) > 2 * after
                else "a beginning of the target reached the decoder: remove these words from predictions and references"
            )
            yield (
                "target_beginning",
                f"{len(found)} of {len(eligible)} predictions begin with the first {f'{k} words' if k > 1 else 'word'} "
                f"of their reference ({' '.join(pairs[0][0][:k])!r:.60}), and the next word is right in "
                f"{following:.0%}: {why}",
            )
            return


def _odds(share: float) -> float:
    return share / max(1 - share, 1e-9)


def words_follow_the_target(rows: Rows) -> Found:
    """Find wrong words that depend on the true word before them, more than on the predicted word before them.

    Two wrong words are compared only if their sentences and the true words in their place differ, so that no phrase of
    the references makes them equal.
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
        yield (
            UNSEEN,
            f"{len(places)} wrong words after another wrong word are too few to tell whether wrong words follow the "
            "target, as they do under teacher forcing: whether the decoder ran free rests on statements alone",
        )
    if kinds >= MIN_FOLLOWING and after_true > FOLLOWS * by_chance and after_true > after_own:
        yield (
            "looks_teacher_forced",
            "looks teacher-forced: after the same true word, two wrong words are equal "
            f"{after_true / by_chance:.1f} times as often as by chance, and after the same predicted word "
            f"{after_own / by_chance:.1f} times, so each word was predicted from the target",
        )


def _wrong_after_wrong(rows: Rows) -> list[tuple[int, str, str, str, str]]:
    """Return wrong predicted words that follow a wrong word directly, at most `MANY_PLACES`.

    Each entry: sentence, true word in this place, true and predicted word before it, and the wrong word itself.
    """
    found: dict[tuple, tuple] = {}
    for row in range(0, rows.n, max(1, rows.n // MANY_ROWS)):
        s, expected, words = int(rows.sentence[row]), rows.own[row], rows.words[row]
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
    """Find punctuation marks that are right where both neighbor words are wrong: no recording tells such marks.

    There is a finding if the share of right marks is larger than two other shares: of marks that would be right by
    chance, in predictions of similar length for other sentences, and of single words that are right where both
    neighbors are wrong. (A decoder that decodes the recording token by token gets marks and words right equally often.)
    """
    order = sorted(range(rows.n), key=lambda row: len(rows.words[row]))
    own, other = np.zeros(4, int), np.zeros(4, int)
    sentences = set()
    for place in range(0, rows.n, max(1, rows.n // MANY_ROWS)):
        row = order[place]
        reference = rows.references[rows.sentence[row]]
        found = _islands(reference, rows.texts[row])
        around = (order[(place + distance) % rows.n] for distance in range(1, min(NEIGHBORS, rows.n)))
        stranger = next((near for near in around if rows.sentence[near] != rows.sentence[row]), None)
        if stranger is not None and found[1]:
            sentences.add(int(rows.sentence[row]))
            own += found
            other += _islands(reference, rows.texts[stranger])
    mark, by_chance, word = (a / max(1, b) for a, b in (own[:2], other[:2], own[2:]))
    enough = min(own[1], other[1]) >= MIN_MARKS and len(sentences) >= MARK_SENTENCES
    if enough and mark - by_chance > MARKS and mark > word:
        yield (
            "looks_teacher_forced",
            f"looks teacher-forced: of the punctuation marks between two wrong words {mark:.0%} are right "
            f"({by_chance:.0%} if compared with other sentences), of the words between two wrong words {word:.0%}, and "
            "no recording tells where marks are",
        )


def _islands(reference: str, text: str) -> np.ndarray:
    """Count single tokens whose two neighbor words are wrong, int `[4]`: right marks, marks, right words, words."""
    tokens = TOKENS.findall(characters_apart(reference.lower()))
    right = np.zeros(len(tokens), bool)
    for start, length in matches(tokens, TOKENS.findall(characters_apart(text.lower()))):
        right[start : start + length] = True
    counts = np.zeros(4, int)
    for i in range(1, len(tokens) - 1):
        if tokens[i - 1].isalnum() and tokens[i + 1].isalnum() and not (right[i - 1] or right[i + 1]):
            counts[2 * tokens[i].isalnum() : 2 * tokens[i].isalnum() + 2] += (right[i], 1)
    return counts


def marks_of_target(rows: Rows) -> Found:
    """Find sentences whose predictions differ in their words, but all have the same number of punctuation marks."""
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
        f"in {len(fixed)} of {len(several)} sentences whose predictions differ, all predictions have equally many "
        "punctuation marks, and other sentences have other numbers: the decoder was given the marks of the target",
    )
