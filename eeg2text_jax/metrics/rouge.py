"""ROUGE-1, ROUGE-2 and ROUGE-L: precision, recall and F of each sample, averaged over samples."""

import functools
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

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
    """ROUGE: the mean over samples of P, R and F of each variant.

    A sample with an empty prediction or reference has P = R = F = 0, and counts. `unique` compares sets of n-grams
    instead of clipped counts, `epsilon` is added to P + R: the conventions of the PyPI package `rouge`.
    `tokenize_reference` replaces `tokenize` for references, to refuse invisible scripts. `sentences` gives the words of
    each sentence of a text; with it ROUGE-L is that of summaries, see `union_subsequences`.
    """

    def __init__(
        self,
        name: str,
        tokenize: Tokenize,
        signature: str,
        *,
        tokenize_reference: Tokenize | None = None,
        kinds: Sequence[str] = ("1", "2", "l"),
        unique: bool = False,
        epsilon: float = 0.0,
        sentences: Callable[[str], Sentences] | None = None,
    ):
        self.sentences = sentences
        self.name, self.tokenize, self.kinds, self.unique, self.epsilon = name, tokenize, kinds, unique, epsilon
        self.tokenize_reference = tokenize_reference or tokenize
        self.columns = tuple(f"rouge-{kind}-{figure}" for kind in kinds for figure in FIGURES)
        self.statistic_names = (*(f"sum_{column}" for column in self.columns), "samples")
        self.signature = f"{signature}|average:samples|empty:zero"

    def table(self, predictions: Sequence[str], references: Sequence[str], *, pairwise: bool) -> np.ndarray:
        predicted = tokenize_all(self.name, "prediction", self.tokenize, predictions)
        reference = tokenize_all(self.name, "reference", self.tokenize_reference, references)
        orders = [int(kind) for kind in self.kinds if kind != "l"]
        shared_by_kind = overlaps(predicted, reference, orders, pairwise=pairwise, unique=self.unique)
        if "l" in self.kinds:
            texts: Any = predicted, reference
            if self.sentences:
                texts = ([self.sentences(text) for text in side] for side in (predictions, references))
            longest = common_subsequences if self.sentences is None else union_subsequences
            shared_by_kind.insert(self.kinds.index("l"), longest(*texts, pairwise=pairwise))
        figures = []
        for shared, n_predicted, n_reference in shared_by_kind:
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
    """Return longest common subsequence lengths `[N]` or `[P, R]`, and the lengths of both sides, `[P]` and `[R]`."""
    if pairwise:
        shared = process.cdist(predictions, references, scorer=LCSseq.similarity, dtype=np.int32).astype(float)
    else:
        pairs = zip(predictions, references, strict=True)
        shared = np.array([LCSseq.similarity(prediction, reference) for prediction, reference in pairs], float)
    ours, theirs = (np.array([float(len(tokens)) for tokens in texts]) for texts in (predictions, references))
    return shared, ours, theirs


def union_subsequences(
    predictions: Sequence[Sentences], references: Sequence[Sentences], *, pairwise: bool
) -> Overlaps:
    """As `common_subsequences`, but count the distinct words of longest common subsequences of any two sentences.

    This is Lin's (2004) summary-level ROUGE-L as the package `rouge` computes it: sets of words, and of several longest
    subsequences the one that its walk from the end finds.
    """
    ours, theirs = (np.array([float(len(set(chain(*text)))) for text in side]) for side in (predictions, references))
    if pairwise:
        shared = np.array([[_union(p, r) for r in references] for p in predictions], float)
    else:
        shared = np.array([_union(p, r) for p, r in zip(predictions, references, strict=True)], float)
    return shared, ours, theirs


def _union(predicted: Sentences, reference: Sentences) -> int:
    return len(set().union(*(_last_common_words(left, right) for left in reference for right in predicted)))


def _last_common_words(left: list[str], right: list[str]) -> set[str]:
    """Return the words of the longest common subsequence that a walk from the ends of both finds."""
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
    """Tokenize a reference; raise for other scripts, because rouge-score keeps only a-z and 0-9 and would score 0."""
    words = rouge_score_words(text)
    if not words and any(character.isalpha() for character in text):
        raise ValueError("rouge-score sees only the letters a-z and finds no word")
    return words


def paper_rouge() -> Rouge:
    """Return ROUGE-1, 2 and L by the formula of the PyPI package `rouge` 1.0.1, as in the paper's figures."""
    signature = "tok:dots-and-spaces|case:mixed|stem:no|ngrams:unique|f:+1e-8|version:formula-of-rouge-1.0.1"
    return Rouge("rouge", dotless_words, signature, unique=True, epsilon=1e-8, sentences=dotted_sentences)


def dotless_words(text: str) -> list[str]:
    """Return the words between dots and white space; white space alone between two dots is an empty word."""
    return list(chain.from_iterable(dotted_sentences(text)))


def dotted_sentences(text: str) -> Sentences:
    """Return the words of each sentence; a dot ends one."""
    return [" ".join(sentence.split()).split(" ") for sentence in text.split(".") if sentence]
