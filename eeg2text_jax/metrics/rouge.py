"""ROUGE-1, ROUGE-2 and ROUGE-L: precision, recall and F of each sample, averaged over samples."""

import functools
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import LCSseq
from rouge_score.tokenize import tokenize as rouge_score_tokenize

from eeg2text_jax.metrics.bleu import Overlaps, overlaps
from eeg2text_jax.metrics.metric import PIECES, OverlapMetric, Tokenize, by_pieces, ratio, tokenize_all
from eeg2text_jax.versions import with_version

FIGURES = ("p", "r", "f")
Sentences = list[list[str]]  # the words of each sentence of a text


class Rouge(OverlapMetric):
    """ROUGE: P, R and F of each kind, averaged over samples; a sample with an empty side has P = R = F = 0.

    Args:
      tokenize_reference: tokenizes references, and may raise ValueError for a text; None: `tokenize`.
      unique: compare sets of n-grams instead of clipped counts, as the PyPI package `rouge` does.
      epsilon: a number added to P + R in F, as the PyPI package `rouge` does.
      sentences: splits a text into sentences of words; ROUGE-L then becomes ROUGE-Lsum, see `union_subsequences`.
    """

    def __init__(
        self,
        name: str,
        tokenize: Tokenize,
        signature: str,
        *,
        tokenize_reference: Tokenize | None = None,
        unique: bool = False,
        epsilon: float = 0.0,
        sentences: Callable[[str], Sentences] | None = None,
    ):
        self.name, self.tokenize, self.sentences, self.unique, self.epsilon = name, tokenize, sentences, unique, epsilon
        self.tokenize_reference = tokenize_reference or tokenize
        self.columns = tuple(f"rouge-{kind}-{figure}" for kind in ("1", "2", "l") for figure in FIGURES)
        self.statistic_names = (*(f"sum_{column}" for column in self.columns), "samples")
        self.signature = f"{signature}|average:samples|empty:zero"

    def table(self, predictions: Sequence[str], references: Sequence[str], *, pairwise: bool) -> np.ndarray:
        predicted = tokenize_all(self.name, "prediction", self.tokenize, predictions)
        reference = tokenize_all(self.name, "reference", self.tokenize_reference, references)
        by_kind = overlaps(predicted, reference, (1, 2), pairwise=pairwise, unique=self.unique)
        if self.sentences is None:
            by_kind.append(common_subsequences(predicted, reference, pairwise=pairwise))
        else:
            sides = ([self.sentences(text) for text in side] for side in (predictions, references))
            by_kind.append(union_subsequences(*sides, pairwise=pairwise))
        figures = []
        for shared, n_predicted, n_reference in by_kind:
            precision = ratio(shared, n_predicted[:, None] if pairwise else n_predicted, 0.0)
            recall = ratio(shared, n_reference, 0.0)
            f = ratio(2.0 * precision * recall, precision + recall + self.epsilon, 0.0)
            figures += [precision, recall, f]
        return np.stack([*figures, np.ones_like(figures[0])], axis=-1)

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        return 100.0 * ratio(summed[..., :-1], summed[..., -1:], np.nan)


def common_subsequences(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], *, pairwise: bool
) -> Overlaps:
    """Return numbers of words: in longest common subsequences, in predictions `[P]`, and in references `[R]`.

    Common subsequences are of prediction i and reference i, `[N]`, or of all pairs, `[P, R]`.
    """
    compare = process.cdist if pairwise else process.cpdist
    shared = compare(predictions, references, scorer=LCSseq.similarity, dtype=np.int32).astype(float)
    ours, theirs = (np.array([float(len(tokens)) for tokens in texts]) for texts in (predictions, references))
    return shared, ours, theirs


def union_subsequences(
    predictions: Sequence[Sentences], references: Sequence[Sentences], *, pairwise: bool
) -> Overlaps:
    """Return numbers of distinct words: in common subsequences of all sentence pairs, in predictions, in references.

    This is Lin's (2004) summary-level ROUGE-L as the PyPI package `rouge` computes it: it counts sets of words. The
    result has the layout of `common_subsequences`.
    """
    ours, theirs = (np.array([float(len(set(chain(*text)))) for text in side]) for side in (predictions, references))
    if pairwise:
        shared = np.array([[_union(p, r) for r in references] for p in predictions], float)
    else:
        shared = np.array([_union(p, r) for p, r in zip(predictions, references, strict=True)], float)
    return shared, ours, theirs


def _union(predicted: Sentences, reference: Sentences) -> int:
    """Return the number of distinct words in the longest common subsequences of all sentence pairs of two texts."""
    return len(set().union(*(_last_common_words(left, right) for left in reference for right in predicted)))


def _last_common_words(left: list[str], right: list[str]) -> set[str]:
    """Return the words of a longest common subsequence; of several, the one that the package `rouge` finds."""
    lengths = [[0] * (len(right) + 1)]
    for word in left:
        above, row = lengths[-1], [0]
        for j, other in enumerate(right):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        lengths.append(row)
    i, j, found = len(left), len(right), set()
    while i and j:
        if left[i - 1] == right[j - 1]:
            i, j = i - 1, j - 1
            found.add(left[i])
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found


def rouge() -> Rouge:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L of the package rouge-score, without stemming."""
    signature = f"tok:lowercase-a-z0-9|case:lower|stem:no|version:{with_version('rouge-score')}"
    return Rouge("rouge", rouge_score_words, signature, tokenize_reference=visible_words)


def rouge_score_words(text: str) -> list[str]:
    """Tokenize a text as rouge-score does: every character but a-z and 0-9 is white space."""
    return by_pieces(text, _rouge_score_piece)


@functools.lru_cache(PIECES)
def _rouge_score_piece(piece: str) -> tuple[str, ...]:
    return tuple(rouge_score_tokenize(piece, None))


def visible_words(text: str) -> list[str]:
    """Tokenize a reference; raise ValueError for other scripts, in which rouge-score sees no word and would score 0."""
    words = rouge_score_words(text)
    if not words and any(character.isalpha() for character in text):
        raise ValueError("rouge-score sees only the letters a-z and finds no word")
    return words


def paper_rouge() -> Rouge:
    """Return ROUGE-1, 2 and L by the formula of the PyPI package `rouge` 1.0.1, as in the paper's figures."""
    signature = "tok:dots-and-spaces|case:mixed|stem:no|ngrams:unique|f:+1e-8|version:formula-of-rouge-1.0.1"

    def words(text: str) -> list[str]:
        return list(chain(*dotted_sentences(text)))

    return Rouge("rouge", words, signature, unique=True, epsilon=1e-8, sentences=dotted_sentences)


def dotted_sentences(text: str) -> Sentences:
    """Return the words of each sentence; a dot ends a sentence, and a sentence of white space is one empty word."""
    return [" ".join(sentence.split()).split(" ") for sentence in text.split(".") if sentence]
