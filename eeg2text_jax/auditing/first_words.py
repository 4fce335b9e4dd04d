"""The first words of the target on both sides: a prompt with true words, or a number or tag of the sentence."""

import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.auditing.plain_rows import MIN_SAME, Found, Rows

MOST_WORDS = 8
# Share of rows that begin as their reference does. The odds of a word to be right among these first words are at least
# `STEP` times those of the next word and of all later ones: at most 3.9 in published decoders and simulated ones.
NEAR_ALL, STEP = 0.95, 20
LEFT = 3  # words that a reference has after its first ones
# Beginnings tell sentences apart: not "a man" of captions, nor the class of a sentence that a decoder may know.
APART, BY_CHANCE = 0.25, 0.5


def same_beginning(rows: Rows) -> Found:
    """Near all rows begin with the same first words as their reference, and the next word is a step down.

    A decoder's errors do not stop at one place of the sentence, however many or few it makes.
    """
    for k in range(MOST_WORDS, 0, -1):
        own = [rows.expected[s] for s in rows.sentence.tolist()]
        eligible = [row for row in range(rows.n) if len(own[row]) >= k + LEFT]
        sentences = {int(rows.sentence[row]): tuple(own[row][:k]) for row in eligible}
        counts = np.unique([" ".join(words) for words in sentences.values()], return_counts=True)[1]
        apart = len(counts) >= APART * len(sentences) and (counts**2).sum() <= BY_CHANCE * len(sentences) ** 2
        held = [row for row in eligible if rows.words[row][:k] == own[row][:k]]
        if len(sentences) < MIN_SAME or not apart or len(held) < max(NEAR_ALL * len(eligible), rows.n / 2):
            continue
        first = ((len(held) + 0.5) / (len(eligible) + 1)) ** (1 / k)
        following = sum(rows.words[row][k : k + 1] == own[row][k : k + 1] for row in held) / len(held)
        later = sum(_right(rows.words[row][k:], own[row][k:]) for row in held) / sum(len(own[row]) - k for row in held)
        if _odds(first) >= STEP * max(_odds(following), _odds(later)):
            figures, after = (sum(_figures(own[row][part]) for row in held) for part in (slice(k), slice(k, k + 1)))
            tagged = figures >= NEAR_ALL * len(held) > 2 * after
            why = (
                "a number or tag of the sentence stands on both sides, and scores count it: remove it from both"
                if tagged
                else "a beginning of the target reached the decoder: leave these words out on both sides"
            )
            yield (
                "target_beginning",
                f"{len(held)} of {len(eligible)} predictions begin with the first {f'{k} words' if k > 1 else 'word'} "
                f"of their reference ({' '.join(own[held[0]][:k])!r:.60}), and the next word is right in "
                f"{following:.0%}: {why}",
            )
            return


def _right(words: list[str], expected: list[str]) -> int:
    """Return how many words of the reference are in the prediction, in its order."""
    equal = (op for op in Levenshtein.opcodes(expected, words) if op.tag == "equal")
    return sum(op.src_end - op.src_start for op in equal)


def _figures(words: list[str]) -> bool:
    return any(map(str.isdigit, "".join(words)))


def _odds(share: float) -> float:
    return share / max(1 - share, 1e-9)
