"""The rows of one condition as plain words, for the rules that search them for signs of the target."""

from collections.abc import Iterator, Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein

from eeg2text_jax.auditing.align import NOT_LETTERS, Condition
from eeg2text_jax.auditing.collapse import plain_words

# A pattern in a smaller share of the rows, or in fewer sentences, may be chance.
A_POINT, MIN_SENTENCES, MIN_SAME = 0.01, 3, 10
ALL_ROWS = 0.99
COPY_WORDS = 5  # a reference of fewer words may be matched by chance ("selamat datang")
# Ratio of character to word error rate in rows with errors: 0.19 to 0.35 if letters are decoded one by one (typing,
# spelling; a punctuation mark is then a keystroke too), 0.75 to 0.94 if words are, and in teacher-forced sets.
BY_LETTERS = 0.5
# The decoder counts as limited in words if, of the predictions whose reference is longer than every prediction, at
# least this share is as long as the longest prediction.
LIMITED = 0.8

Found = Iterator[tuple[str, str]]  # code and message of each finding of a rule


class Rows:
    """`N` predictions and their references, as plain words.

    Attributes:
      references: the text of each sentence.
      sentence: index of each row's sentence, int `[N]`.
      by_sentence: the rows of each sentence.
      subjects: index of each row's subject, int `[N]`.
      texts: predictions with single spaces.
      words, own: plain words of each prediction, and of its reference.
      choices: the references, and the sentences that the decoder chose from, as plain words.
      errors, rates: word errors of each row, and its word error rate, `[N]`.
      long: whether the reference has too many words to be matched by chance, bool `[N]`.
      whole: whether the prediction contains its reference, apart from spaces and marks, bool `[N]`.
      limited: whether the prediction ends at the decoder's limit of words (see `LIMITED`), bool `[N]`.
    """

    def __init__(self, condition: Condition, references: Sequence[str], choices: Sequence[str] = ()) -> None:
        self.sentence, self.references = condition.sentence, references
        self.by_sentence = condition.by_sentence()
        self.texts = [" ".join(text.split()) for text in condition.texts]
        self.n = len(self.texts)
        self.subjects = np.unique([row.subject for row in condition.rows], return_inverse=True)[1]
        expected = [plain_words(text) for text in references]
        self.words = [plain_words(text) for text in self.texts]
        self.choices = {" ".join(words) for words in [*expected, *map(plain_words, choices)]}
        self.own = [expected[s] for s in self.sentence.tolist()]
        self.long = np.array([len(words) >= COPY_WORDS for words in self.own])
        self.errors = np.array([Levenshtein.distance(a, b) for a, b in zip(self.words, self.own, strict=True)])
        self.rates = self.errors / np.maximum(1, [len(words) for words in self.own])
        letters = [NOT_LETTERS.sub("", text.lower()) for text in references]
        same = [letters[s] in NOT_LETTERS.sub("", t.lower()) for t, s in zip(self.texts, self.sentence, strict=True)]
        same_words = [f" {' '.join(b)} " in f" {' '.join(a)} " for a, b in zip(self.words, self.own, strict=True)]
        self.whole = self.long & (np.array(same) | np.array(same_words))
        lengths = np.array([len(text.split()) for text in self.texts])
        longest = lengths.max(initial=0)
        longer = np.array([len(references[s].split()) for s in self.sentence.tolist()]) > longest
        at_limit = longer & (lengths == longest)
        self.limited = at_limit & (at_limit.sum() >= max(1, LIMITED * longer.sum()))

    def by_letters(self) -> bool:
        """Return whether wrong words differ from the true words in few letters, as in typing or spelling."""
        wrong = np.flatnonzero(self.errors).tolist()
        pairs = [(" ".join(self.words[row]), " ".join(self.own[row])) for row in wrong]
        letters = sum(Levenshtein.distance(*pair) for pair in pairs) / max(1, sum(len(b) for _, b in pairs))
        words = self.errors[wrong].sum() / max(1, sum(len(self.own[row]) for row in wrong))
        return bool(letters < BY_LETTERS * words)

    def listed(self, chosen: np.ndarray) -> bool:
        """Return whether at least half of the chosen rows, bool `[N]`, are sentences in `choices`."""
        places = np.flatnonzero(chosen)
        return bool(len(places)) and 2 * sum(" ".join(self.words[row]) in self.choices for row in places) >= len(places)

    def enough(self, chosen: np.ndarray, sentences: int = MIN_SENTENCES) -> bool:
        """Return whether the chosen rows, bool `[N]`, are too many, of too many sentences, to be chance."""
        return bool(chosen.sum() >= A_POINT * self.n and len(set(self.sentence[chosen].tolist())) >= sentences)


def matches(expected: Sequence[str], words: Sequence[str]) -> list[tuple[int, int]]:
    """Return (start in `expected`, length) of each run of words that an alignment also finds in `words`."""
    blocks = Levenshtein.opcodes(expected, words).as_matching_blocks()
    return [(block.a, block.size) for block in blocks if block.size]
