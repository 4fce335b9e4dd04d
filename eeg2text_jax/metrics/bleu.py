"""Corpus BLEU (Papineni et al. 2002) without smoothing, on words or on a model's tokens.

For all pairs of texts, clipped n-gram overlaps are counted by a join: the k-th occurrence of an n-gram in a text is a
feature of its own, so the clipped overlap of two texts is the number of features that both have.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from eeg2text_jax.metrics.metric import PIECES, OverlapMetric, Tokenize, by_pieces, ratio, tokenize_all
from eeg2text_jax.predictions.file import characters_apart
from eeg2text_jax.versions import OWN_VERSION, with_version

AT_ONCE = 2**22  # matches of n-grams that are counted at once, which bounds the memory
ORDERS = (1, 2, 3, 4)
Overlaps = tuple[np.ndarray, np.ndarray, np.ndarray]  # numbers of n-grams: shared, of predictions, of references


def overlaps(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    orders: Sequence[int],
    *,
    pairwise: bool,
    unique: bool = False,
) -> list[Overlaps]:
    """Return for each order the numbers of shared n-grams, of n-grams of predictions `[P]` and of references `[R]`.

    Args:
      pairwise: count shared n-grams of all pairs, `[P, R]`; else of row i with row i, `[N]`.
      unique: count an n-gram once in a text.
    """
    count = _pairs if pairwise else _clipped
    return [
        count(text_of, grams, len(predictions), len(references), unique)
        for n, text_of, grams in _ngrams([*predictions, *references], max(orders))
        if n in orders
    ]


def _ngrams(texts: Sequence[Sequence[str]], longest: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield n, text indices and ids of all n-grams, for each n up to `longest`; equal n-grams have the same id."""
    numbers: dict[str, int] = {}
    tokens = np.array([numbers.setdefault(token, len(numbers)) for text in texts for token in text], np.int64)
    lengths = np.array([len(text) for text in texts])
    text_of = np.repeat(np.arange(len(texts)), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(tokens))  # tokens from here to the end of the text
    grams = tokens
    for n in range(1, longest + 1):
        begins = np.flatnonzero(left >= n)
        if n > 1:
            keys = grams[begins] * max(len(numbers), 1) + tokens[begins + n - 1]  # first n - 1 tokens, then the last
            grams = np.zeros_like(tokens)
            grams[begins] = np.unique(keys, return_inverse=True)[1]
        yield n, text_of[begins], grams[begins]


def _pairs(text_of: np.ndarray, grams: np.ndarray, predictions: int, references: int, unique: bool) -> Overlaps:
    """Return n-gram overlaps of every prediction with every reference, from each n-gram's text index and id."""
    width = grams.max(initial=0) + 1
    keys, counts = np.unique(text_of * width + grams, return_counts=True)
    text, feature = keys // width, keys % width
    if not unique and counts.max(initial=1) > 1:  # the k-th occurrence in a text is a feature of its own
        text, again = np.repeat(text, counts), np.repeat(feature, counts) * counts.max() + _nth(counts)
        feature = np.unique(again, return_inverse=True)[1]
    numbers = np.bincount(text, minlength=predictions + references).astype(float)
    first = int(numbers[:predictions].sum())
    order = np.argsort(feature[first:], kind="stable")
    theirs, reference = feature[first:][order], text[first:][order] - predictions
    begin = np.searchsorted(theirs, feature[:first], "left")
    matches = np.searchsorted(theirs, feature[:first], "right") - begin  # references per feature of predictions
    shared = np.zeros(predictions * references)
    for part in np.split(np.arange(first), np.searchsorted(np.cumsum(matches), range(AT_ONCE, matches.sum(), AT_ONCE))):
        many = matches[part]
        pairs = np.repeat(text[part] * references, many) + reference[np.repeat(begin[part], many) + _nth(many)]
        shared += np.bincount(pairs, minlength=len(shared))
    return shared.reshape(predictions, references), numbers[:predictions], numbers[predictions:]


def _nth(counts: np.ndarray) -> np.ndarray:
    """Return the numbers from 0 to count - 1 for each count, concatenated."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _clipped(text_of: np.ndarray, grams: np.ndarray, rows: int, _: int, unique: bool) -> Overlaps:
    """Return n-gram overlaps of prediction i with reference i; texts with an index below `rows` are predictions."""
    width = grams.max(initial=0) + 1
    sides = []
    for side in (text_of < rows, text_of >= rows):
        keys, counts = np.unique(text_of[side] % rows * width + grams[side], return_counts=True)
        sides.append((keys, np.ones_like(counts) if unique else counts))
    (predicted, p_counts), (reference, r_counts) = sides
    both, p, r = np.intersect1d(predicted, reference, assume_unique=True, return_indices=True)
    shared = np.bincount(both // width, np.minimum(p_counts[p], r_counts[r]), minlength=rows)
    ours, theirs = (np.bincount(keys // width, counts, minlength=rows) for keys, counts in sides)
    return shared, ours, theirs


class Bleu(OverlapMetric):
    """BLEU-1 to BLEU-4 with brevity penalty; if an order has no match, its figure and those of higher orders are 0.

    A corpus of empty predictions scores 0; a corpus of empty references is undefined (NaN).

    Args:
      tokenize: maps a text to tokens; `tokenizer` names it in the signature.
      short_counts_one: a prediction shorter than n adds 1 to the number of n-grams, as in nltk's `corpus_bleu`.
    """

    statistic_names = (
        "prediction_length",
        "reference_length",
        *(f"matches_{n}" for n in ORDERS),
        *(f"ngrams_{n}" for n in ORDERS),
    )

    def __init__(self, name: str, tokenize: Tokenize, tokenizer: str, *, short_counts_one: bool = False):
        self.name = name
        self.columns = tuple(f"{name}-{n}" for n in ORDERS)
        self.tokenize = tokenize
        self.short_counts_one = short_counts_one
        short = "count-one" if short_counts_one else "no-ngrams"
        self.signature = (
            f"nrefs:1|case:mixed|eff:no|tok:{tokenizer}|smooth:none|empty:{short}|short:{short}|version:{OWN_VERSION}"
        )

    def table(self, predictions: Sequence[str], references: Sequence[str], *, pairwise: bool) -> np.ndarray:
        predicted = tokenize_all(self.name, "prediction", self.tokenize, predictions)
        reference = tokenize_all(self.name, "reference", self.tokenize, references)
        matches, ngrams = [], []
        for shared, count, _ in overlaps(predicted, reference, ORDERS, pairwise=pairwise):
            matches.append(shared)
            ngrams.append(np.maximum(count, 1) if self.short_counts_one else count)
        predicted_length, reference_length = (np.array(list(map(len, side)), float) for side in (predicted, reference))
        if pairwise:
            predicted_length, ngrams = predicted_length[:, None], [count[:, None] for count in ngrams]
        return np.stack(np.broadcast_arrays(predicted_length, reference_length, *matches, *ngrams), axis=-1)

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        predicted, reference = summed[..., 0], summed[..., 1]
        precisions = ratio(summed[..., 2:6], summed[..., 6:10], 0.0)
        with np.errstate(divide="ignore"):  # exp(log(0)) is 0, the score for a precision of 0
            mean_log = np.cumsum(np.log(precisions), axis=-1) / np.array(ORDERS)
        shortfall = np.minimum(0.0, 1.0 - ratio(reference, predicted, np.inf))
        scores = 100.0 * np.exp(shortfall[..., None] + mean_log)
        return np.where((reference > 0)[..., None], scores, np.nan)


def word_bleu() -> Bleu:
    """Return BLEU on words of sacrebleu's tokenizer 13a; Han characters and kana are words of their own."""
    return Bleu("word_bleu", words_13a, f"13a[{with_version('sacrebleu')}]+characters-of-han-and-kana")


def words_13a(text: str) -> list[str]:
    """Tokenize a text by sacrebleu's 13a piece by piece, as its rules never cross white space; pieces are cached."""
    return by_pieces(text.replace("-\n", ""), _piece_13a)


_TOKENIZER_13A = Tokenizer13a()


@functools.lru_cache(PIECES)
def _piece_13a(piece: str) -> tuple[str, ...]:
    """Return the 13a tokens of a piece of text that holds no white space."""
    return tuple(_TOKENIZER_13A(characters_apart(piece)).split())
