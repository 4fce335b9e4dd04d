"""Corpus BLEU (Papineni et al., 2002) without smoothing, on words or on a model's tokens."""

import functools
from collections.abc import Sequence

import numpy as np
import sacrebleu
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from eeg2text_jax import __version__
from eeg2text_jax.metrics.ngrams import overlaps
from eeg2text_jax.metrics.statistics import (
    PIECES,
    Metric,
    Tokenize,
    by_pieces,
    check_same_length,
    ratio,
    tokenize_all,
)

ORDERS = (1, 2, 3, 4)


class Bleu(Metric):
    """BLEU-1..4 with brevity penalty; one order without a match makes that and the higher figures 0.

    An empty prediction has no n-grams and lengthens nothing; a corpus of empty predictions scores 0; a corpus of
    empty references is undefined (NaN). `short_counts_one` follows nltk's `corpus_bleu`, in which a prediction
    shorter than n still adds 1 to the number of n-grams.
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
            f"nrefs:1|case:mixed|eff:no|tok:{tokenizer}|smooth:none|empty:{short}|short:{short}|"
            f"version:eeg2text_jax-{__version__}"
        )

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        return self._table(predictions, references, pairwise=False)

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        return self._table(predictions, references, pairwise=True)

    def _table(self, predictions: Sequence[str], references: Sequence[str], *, pairwise: bool) -> np.ndarray:
        predicted = tokenize_all(self.name, "prediction", self.tokenize, predictions)
        reference = tokenize_all(self.name, "reference", self.tokenize, references)
        matches, ngrams = [], []
        for shared, count, _ in overlaps(predicted, reference, ORDERS, pairwise=pairwise):
            matches.append(shared)
            ngrams.append(np.maximum(count, 1) if self.short_counts_one else count)
        predicted_length = np.array([len(tokens) for tokens in predicted], float)
        reference_length = np.array([len(tokens) for tokens in reference], float)
        if pairwise:
            predicted_length, ngrams = predicted_length[:, None], [count[:, None] for count in ngrams]
        columns = np.broadcast_arrays(predicted_length, reference_length, *matches, *ngrams)
        return np.stack(columns, axis=-1)

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        predicted, reference = summed[..., 0], summed[..., 1]
        precisions = ratio(summed[..., 2:6], summed[..., 6:10], 0.0)
        with np.errstate(divide="ignore"):  # a precision of 0 is a score of 0, by way of log 0
            mean_log = np.cumsum(np.log(precisions), axis=-1) / np.array(ORDERS)
        shortfall = np.minimum(0.0, 1.0 - ratio(reference, predicted, np.inf))
        scores = 100.0 * np.exp(shortfall[..., None] + mean_log)
        return np.where((reference > 0)[..., None], scores, np.nan)


def word_bleu() -> Bleu:
    """BLEU on words as sacrebleu's default tokenizer, 13a, sees them; case is kept."""
    return Bleu("word_bleu", words_13a, f"13a[sacrebleu-{sacrebleu.__version__}]")


def words_13a(text: str) -> list[str]:
    """Tokens of a text. 13a looks no further than to white space, so each piece between two is tokenized once."""
    return by_pieces(text.replace("-\n", ""), _piece_13a)


_TOKENIZER_13A = Tokenizer13a()


@functools.lru_cache(PIECES)
def _piece_13a(piece: str) -> tuple[str, ...]:
    return tuple(_TOKENIZER_13A(piece).split())


def token_bleu(tokenize: Tokenize, tokenizer: str, *, short_counts_one: bool = False) -> Bleu:
    """BLEU on a model's tokens; `tokenizer` goes into the signature and names the tokenizer and its hash."""
    return Bleu("token_bleu", tokenize, tokenizer, short_counts_one=short_counts_one)
