"""Rows of one condition against their references, in plain words: what the rules of structure look at."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.auditing.align import Condition
from eeg2text_jax.auditing.collapse import COPY_WORDS, plain_words

# Share of rows, and number of sentences, below which a pattern may be chance.
A_POINT, MIN_SENTENCES, MIN_SAME = 0.01, 3, 10
ALL_ROWS = 0.99
# Character error rate over word error rate of wrong rows: 0.19 to 0.35 where letters are decoded one by one (typing,
# spelling; a mark is then a keystroke like any other), 0.75 to 0.94 where words are, and in teacher-forced sets.
BY_LETTERS = 0.5
LIMITED = 0.8  # of predictions of longer references, those that have exactly as many words as the longest prediction
NOT_LETTERS = re.compile(r"[\W_]+")

Found = Iterator[tuple[str, str]]  # code and message of each finding of a rule


class Rows:
    """Rows against their references, as plain words.

    Attributes:
      sentence: [N], index of each row's reference.
      words, expected: plain words of each row, and of each reference.
      errors, rates: [N], word errors of each row, and these over the words of its reference.
      long: [N], whether the reference has so many words that chance does not match it.
      whole: [N], whether a row holds its whole reference, spaces and marks aside.
      limited: [N], whether a row has as many words as a decoder that stops after a fixed number gives.
    """

    def __init__(self, condition: Condition, references: Sequence[str], choices: Sequence[str] = ()) -> None:
        self.sentence, self.references = condition.sentence, references
        self.texts = [" ".join(text.split()) for text in condition.texts]
        self.n = len(self.texts)
        self.subjects = np.unique([row.subject for row in condition.rows], return_inverse=True)[1]
        self.expected = [plain_words(text) for text in references]
        self.words = [plain_words(text) for text in self.texts]
        self.choices = {" ".join(words) for words in [*self.expected, *map(plain_words, choices)]}
        own = [self.expected[s] for s in self.sentence.tolist()]
        self.long = np.array([len(words) >= COPY_WORDS for words in own])
        self.errors = np.array([Levenshtein.distance(a, b) for a, b in zip(self.words, own, strict=True)])
        self.rates = self.errors / np.maximum(1, [len(words) for words in own])
        letters = [NOT_LETTERS.sub("", text.lower()) for text in references]
        held = [letters[s] in NOT_LETTERS.sub("", t.lower()) for t, s in zip(self.texts, self.sentence, strict=True)]
        held_words = [f" {' '.join(b)} " in f" {' '.join(a)} " for a, b in zip(self.words, own, strict=True)]
        self.whole = self.long & (np.array(held) | np.array(held_words))
        said = np.array([len(text.split()) for text in self.texts])
        beyond = np.array([len(references[s].split()) for s in self.sentence.tolist()]) > said.max(initial=0)
        at_limit = beyond & (said == said.max(initial=0))
        self.limited = at_limit if at_limit.sum() >= max(1, LIMITED * beyond.sum()) else np.zeros(self.n, bool)

    def by_letters(self) -> bool:
        """Whether wrong words are near misses by letters, as of who types or spells."""
        wrong = np.flatnonzero(self.errors).tolist()
        pairs = [(" ".join(self.words[row]), " ".join(self.expected[self.sentence[row]])) for row in wrong]
        letters = sum(Levenshtein.distance(*pair) for pair in pairs) / max(1, sum(len(b) for _, b in pairs))
        words = self.errors[wrong].sum() / max(1, sum(len(b.split()) for _, b in pairs))
        return bool(letters < BY_LETTERS * words)

    def listed(self, chosen: np.ndarray) -> bool:
        """Whether half of the chosen rows or more are sentences of the file or of the list that is decoded from."""
        places = np.flatnonzero(chosen)
        return bool(len(places)) and 2 * sum(" ".join(self.words[row]) in self.choices for row in places) >= len(places)

    def enough(self, chosen: np.ndarray, sentences: int = MIN_SENTENCES) -> bool:
        """Whether the chosen rows are more than chance gives."""
        return bool(chosen.sum() >= A_POINT * self.n and len(set(self.sentence[chosen].tolist())) >= sentences)
