"""Metrics: statistics of each sample, and corpus scores from their sums."""

import abc
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar

import jiwer
import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import LCSseq, Levenshtein
from rouge_score.tokenize import tokenize as rouge_score_tokenize
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.packages import OWN_VERSION, with_version
from eeg2text_jax.instrument.predictions.file import characters_apart

Tokenize = Callable[[str], Sequence[str]]
Tokens = Sequence[Sequence[str]]  # of every text
PIECES = 1 << 17  # cached pieces of text
ROWS_AT_ONCE = 4096  # rows whose tokens are in memory at a time
AT_ONCE = 2**22  # n-gram matches counted at once, which bounds the memory
ORDERS = (1, 2, 3, 4)  # of BLEU
Overlaps = tuple[np.ndarray, np.ndarray, np.ndarray]  # numbers of n-grams: shared, of predictions, of references


class MetricError(UserError):
    """A metric fails on the `side` ("prediction" or "reference") of the row `index`."""

    def __init__(self, metric: str, side: str, index: int, reason: str):
        super().__init__(f"{metric} failed on the {side} of row {index + 1}: {reason}.")
        self.metric, self.side, self.index, self.reason = metric, side, index, reason


class Metric(abc.ABC):
    """A corpus metric with `S` statistics of each sample and `C` named figures in percent."""

    name: str
    columns: tuple[str, ...]  # names of the figures
    statistic_names: tuple[str, ...]
    signature: str  # all that changes the figures: tokenizer, case, smoothing, empty text, versions
    lower_is_better: ClassVar[bool] = False

    def notes(self) -> list[str]:
        """Return notes about the figures computed so far."""
        return []

    @abc.abstractmethod
    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return the statistics of prediction i with reference i, float64 `[N, S]`. Raises MetricError."""

    @abc.abstractmethod
    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return the statistics of every prediction with every reference, float64 `[P, R, S]`. Raises MetricError."""

    @abc.abstractmethod
    def corpus(self, summed: np.ndarray) -> np.ndarray:
        """Return figures, float64 `[..., C]`, from statistics `[..., S]` summed over samples; NaN if undefined."""

    def total(
        self, predictions: Sequence[str], references: Sequence[str], advance: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Return statistics `[S]` summed over rows; `advance` is told the size of each chunk."""
        summed = np.zeros(len(self.statistic_names))
        for chunk in self.in_chunks(predictions, references):
            summed += chunk.sum(0)
            if advance:
                advance(len(chunk))
        return summed

    def in_chunks(self, predictions: Sequence[str], references: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield statistics `[n, S]` of consecutive rows. Raises MetricError with the `index` in the whole."""
        check_same_length(predictions, references)
        for start in range(0, len(predictions), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            try:
                yield self.statistics(predictions[part], references[part])
            except MetricError as error:
                raise MetricError(error.metric, error.side, start + error.index, error.reason) from error

    def score(self, predictions: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """Return figure -> value over a corpus."""
        return self.figures(self.total(predictions, references))

    def figures(self, summed: np.ndarray) -> dict[str, float]:
        """Return figure -> value, from statistics `[S]` summed over samples."""
        return dict(zip(self.columns, self.corpus(summed).tolist(), strict=True))


class OverlapMetric(Metric):
    """A metric whose `table` computes `statistics` and `pairwise`."""

    @abc.abstractmethod
    def table(self, predictions: Sequence[str], references: Sequence[str], *, pairwise: bool) -> np.ndarray:
        """Return `pairwise` or `statistics`."""

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        return self.table(predictions, references, pairwise=False)

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        return self.table(predictions, references, pairwise=True)


def check_same_length(predictions: Sequence[str], references: Sequence[str]) -> None:
    if len(predictions) != len(references):
        raise ValueError(f"{len(predictions)} predictions for {len(references)} references")


def tokenize_sides(
    metric: str,
    predictions: Sequence[str],
    references: Sequence[str],
    tokenize: Tokenize,
    tokenize_reference: Tokenize | None = None,
) -> list[Tokens]:
    """Return the tokens of both sides; equal texts are tokenized once. Raises MetricError."""
    made: list[Tokens] = []
    for side, texts, tokens in (
        ("prediction", predictions, tokenize),
        ("reference", references, tokenize_reference or tokenize),
    ):
        tokens_of: dict[str, Sequence[str]] = {}
        for index, text in enumerate(texts):
            if text not in tokens_of:
                try:
                    tokens_of[text] = tokens(text)
                except (TypeError, ValueError) as error:  # UnicodeError is a ValueError
                    raise MetricError(metric, side, index, f"{error} in {text!r:.80}") from error
        made.append([tokens_of[text] for text in texts])
    return made


def by_pieces(tokenize: Tokenize) -> Callable[[str], list[str]]:
    """Return a tokenizer of texts that tokenizes the pieces between white space, and caches them."""
    cached = functools.lru_cache(PIECES)(lambda piece: tuple(tokenize(piece)))
    return lambda text: [token for piece in text.split() for token in cached(piece)]


def ratio(numerator: np.ndarray, denominator: np.ndarray, undefined: float) -> np.ndarray:
    """Return `numerator / denominator`, or `undefined` where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    return np.divide(numerator, denominator, out=np.full(denominator.shape, undefined), where=denominator != 0)


# Corpus BLEU (Papineni et al. 2002) without smoothing, on words or on a model's tokens.


def overlaps(
    predictions: Tokens, references: Tokens, longest: int, *, pairwise: bool, unique: bool = False
) -> list[Overlaps]:
    """Return for n = 1 to `longest` the numbers of n-grams: shared, of predictions `[P]`, of references `[R]`.

    Shared ones are of all pairs if `pairwise`, `[P, R]`, else of row i with row i, `[N]`; if `unique`, an n-gram counts
    once in a text.
    """
    count = _pairs if pairwise else _clipped
    grams = _ngrams([*predictions, *references], longest)
    return [count(*indices, len(predictions), len(references), unique) for indices in grams]


def _ngrams(texts: Tokens, longest: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield text indices and ids of all n-grams, for each n up to `longest`."""
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
        yield text_of[begins], grams[begins]


def _pairs(text_of: np.ndarray, grams: np.ndarray, predictions: int, references: int, unique: bool) -> Overlaps:
    """Return the overlaps of all pairs by a join; the k-th occurrence of an n-gram is a feature of its own."""
    width = grams.max(initial=0) + 1
    keys, counts = np.unique(text_of * width + grams, return_counts=True)
    text, feature = keys // width, keys % width
    if not unique and counts.max(initial=1) > 1:
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
    """Return 0 to count - 1 for each count, concatenated."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _clipped(text_of: np.ndarray, grams: np.ndarray, rows: int, _: int, unique: bool) -> Overlaps:
    """Return the overlaps of prediction i with reference i; texts with an index below `rows` are predictions."""
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
    """BLEU-1 to BLEU-4 with brevity penalty; 0 from the first order without a match, NaN for empty references.

    `tokenizer` names `tokenize` in the signature. `short_counts_one`: a prediction shorter than n adds 1 to the number
    of n-grams, as in nltk's `corpus_bleu`.
    """

    statistic_names = (
        "prediction_length",
        "reference_length",
        *(f"{of}_{n}" for of in ("matches", "ngrams") for n in ORDERS),
    )

    def __init__(self, name: str, tokenize: Tokenize, tokenizer: str, *, short_counts_one: bool = False):
        self.name, self.tokenize, self.short_counts_one = name, tokenize, short_counts_one
        self.columns = tuple(f"{name}-{n}" for n in ORDERS)
        short = "count-one" if short_counts_one else "no-ngrams"
        self.signature = (
            f"nrefs:1|case:mixed|eff:no|tok:{tokenizer}|smooth:none|empty:{short}|short:{short}|version:{OWN_VERSION}"
        )

    def table(self, predictions: Sequence[str], references: Sequence[str], *, pairwise: bool) -> np.ndarray:
        predicted, reference = tokenize_sides(self.name, predictions, references, self.tokenize)
        matches, ngrams, (length, *_) = zip(
            *overlaps(predicted, reference, len(ORDERS), pairwise=pairwise), strict=True
        )
        counts = [ngrams[0], *(np.maximum(count, float(self.short_counts_one)) for count in ngrams)]
        if pairwise:
            counts = [count[:, None] for count in counts]
        return np.stack(np.broadcast_arrays(counts[0], length, *matches, *counts[1:]), axis=-1)

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        predicted, reference = summed[..., 0], summed[..., 1]
        precisions = ratio(summed[..., 2:6], summed[..., 6:10], 0.0)
        with np.errstate(divide="ignore"):  # exp(log(0)) is 0
            mean_log = np.cumsum(np.log(precisions), axis=-1) / np.array(ORDERS)
        shortfall = np.minimum(0.0, 1.0 - ratio(reference, predicted, np.inf))
        scores = 100.0 * np.exp(shortfall[..., None] + mean_log)
        return np.where((reference > 0)[..., None], scores, np.nan)


def word_bleu() -> Bleu:
    """Return BLEU on words of sacrebleu's tokenizer 13a; Han characters and kana are words of their own."""
    return Bleu("word_bleu", words_13a, f"13a[{with_version('sacrebleu')}]+characters-of-han-and-kana")


_tokenizer_13a = Tokenizer13a()
_words_13a = by_pieces(lambda piece: _tokenizer_13a(characters_apart(piece)).split())


def words_13a(text: str) -> list[str]:
    """Tokenize by sacrebleu's 13a piece by piece, as its rules never cross white space."""
    return _words_13a(text.replace("-\n", ""))


# Word and character error rate, equal to jiwer's.


class ErrorRate(Metric):
    """Edits over units (words or characters) of all references, in percent; NaN if the references are empty."""

    statistic_names = ("substitutions", "deletions", "insertions", "reference_length")
    lower_is_better = True

    def __init__(self, name: str, units: str, tokenize: Tokenize):
        self.name, self.tokenize = name, tokenize
        self.columns = (name, *(f"{name}-{edits}" for edits in self.statistic_names[:3]))
        self.signature = (
            f"unit:{units}|case:mixed|punctuation:kept|average:corpus|empty:all-deleted-or-inserted|"
            f"version:{with_version('jiwer')}"
        )

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        pairs = zip(*tokenize_sides(self.name, predictions, references, self.tokenize), strict=True)
        return np.array([edit_counts(*pair) for pair in pairs], float).reshape(-1, 4)

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        distinct, inverse = np.unique(np.array(predictions, dtype=object), return_inverse=True)
        predicted, reference = tokenize_sides(self.name, distinct.tolist(), references, self.tokenize)
        table = [[edit_counts(p, r) for r in reference] for p in predicted]
        return np.array(table, float).reshape(len(distinct), len(references), 4)[inverse]

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        edits, length = summed[..., :3], summed[..., 3:]
        counts = np.concatenate([edits.sum(-1, keepdims=True), edits], axis=-1)
        return 100.0 * ratio(counts, length, np.nan)


def edit_counts(prediction: Sequence[Hashable], reference: Sequence[Hashable]) -> tuple[int, int, int, int]:
    """Return substitutions, deletions and insertions of one best alignment, and the length of the reference."""
    replaced = deleted = inserted = 0
    blocks: list[Any] = Levenshtein.opcodes(reference, prediction).as_list()
    for tag, start, end, predicted_start, predicted_end in blocks:
        if tag == "replace":
            replaced += end - start
        elif tag == "delete":
            deleted += end - start
        elif tag == "insert":
            inserted += predicted_end - predicted_start
    return replaced, deleted, inserted, len(reference)


def word_error_rate() -> ErrorRate:
    """Return WER; every Han or kana character is a word of its own."""
    return ErrorRate("wer", "word", lambda text: jiwer.wer_default([characters_apart(text)])[0])


def character_error_rate() -> ErrorRate:
    """Return CER; white space between words counts as characters."""
    return ErrorRate("cer", "character", lambda text: jiwer.cer_default([text])[0])


# ROUGE-1, ROUGE-2 and ROUGE-L: precision, recall and F of each sample, averaged over samples.

Sentences = list[list[str]]  # the words of each sentence of a text


class Rouge(OverlapMetric):
    """ROUGE: P, R and F of each kind, averaged over samples; a sample with an empty side has P = R = F = 0.

    By the package rouge-score without stemming or, as the figures of the `paper`, by the PyPI package `rouge` 1.0.1,
    which compares sets of n-grams in place of clipped counts, adds 1e-8 to P + R in F, and compares sentences in
    ROUGE-L.
    """

    name = "rouge"
    columns = tuple(f"rouge-{kind}-{figure}" for kind in "12l" for figure in "prf")
    statistic_names = (*(f"sum_{column}" for column in columns), "samples")

    def __init__(self, paper: bool = False):
        self.paper = paper
        self.tokenizers: tuple[Tokenize, ...] = (rouge_score_words, visible_words)
        package = f"tok:lowercase-a-z0-9|case:lower|stem:no|version:{with_version('rouge-score')}"
        if paper:
            self.tokenizers = (lambda text: list(chain(*dotted_sentences(text))),)
            package = "tok:dots-and-spaces|case:mixed|stem:no|ngrams:unique|f:+1e-8|version:formula-of-rouge-1.0.1"
        self.signature = f"{package}|average:samples|empty:zero"

    def table(self, predictions: Sequence[str], references: Sequence[str], *, pairwise: bool) -> np.ndarray:
        predicted, reference = tokenize_sides(self.name, predictions, references, *self.tokenizers)
        by_kind = overlaps(predicted, reference, 2, pairwise=pairwise, unique=self.paper)
        if self.paper:
            ours, theirs = ([dotted_sentences(text) for text in side] for side in (predictions, references))
            if pairwise:
                longest = np.array([[union_subsequence(p, r) for r in theirs] for p in ours], float)
            else:
                longest = np.array(list(map(union_subsequence, ours, theirs)), float)
        else:
            compare = process.cdist if pairwise else process.cpdist
            longest = compare(predicted, reference, scorer=LCSseq.similarity, dtype=np.int32).astype(float)
        _, *lengths = by_kind[0]  # unigrams are words
        figures = []
        for shared, n_predicted, n_reference in (*by_kind, (longest, *lengths)):
            precision = ratio(shared, n_predicted[:, None] if pairwise else n_predicted, 0.0)
            recall = ratio(shared, n_reference, 0.0)
            f = ratio(2.0 * precision * recall, precision + recall + 1e-8 * self.paper, 0.0)
            figures += [precision, recall, f]
        return np.stack([*figures, np.ones_like(figures[0])], axis=-1)

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        return 100.0 * ratio(summed[..., :-1], summed[..., -1:], np.nan)


def union_subsequence(predicted: Sentences, reference: Sentences) -> int:
    """Return the number of distinct words in common subsequences of all pairs of sentences of two texts.

    It is Lin's (2004) summary-level ROUGE-L as the package `rouge` has it.
    """
    return len(set().union(*(_last_common_words(left, right) for left in reference for right in predicted)))


def _last_common_words(left: list[str], right: list[str]) -> set[str]:
    """Return the words of a longest common subsequence, of several that of the package `rouge`."""
    lengths = [[0] * (len(right) + 1)]
    for word in left:
        above, row = lengths[-1], [0]
        for j, other in enumerate(right):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        lengths.append(row)
    i, j, words = len(left), len(right), set()
    while i and j:
        if left[i - 1] == right[j - 1]:
            i, j = i - 1, j - 1
            words.add(left[i])
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words


rouge_score_words = by_pieces(lambda piece: rouge_score_tokenize(piece, None))  # all but a-z and 0-9 is white space


def visible_words(text: str) -> list[str]:
    """Tokenize a reference. Raises ValueError for other scripts, in which rouge-score finds no word and scores 0."""
    words = rouge_score_words(text)
    if not words and any(character.isalpha() for character in text):
        raise ValueError("rouge-score sees only the letters a-z and finds no word")
    return words


def dotted_sentences(text: str) -> Sentences:
    """Return the words of each sentence; a dot ends one, and one of white space is an empty word."""
    return [" ".join(sentence.split()).split(" ") for sentence in text.split(".") if sentence]
