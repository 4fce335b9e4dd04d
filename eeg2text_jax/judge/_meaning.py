"""Metrics of a text encoder: BERTScore and sentence similarity (Reimers and Gurevych 2019). It loads JAX."""

import csv
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.metrics.metric import Metric, check_same_length, ratio
from eeg2text_jax.models.pretrained.encoders import TextEmbedder, load_encoder, normalize, read_modules

# BERTScore (Zhang et al. 2020): match every token to the most similar token of the other text.
#
# It equals the package bert-score 0.3.13, but: A padding token is never the best match (package: similarity 0, so a row
# may depend on its batch). RoBERTa's first word has a space before it (package: none under transformers 5). Weights
# that make a figure 0/0 raise an error (package: 0). Blank text scores 0 (package: an error under transformers 5). As
# there, `[CLS]` and `[SEP]` have weight 0, but tokens may match them. Shapes: `N` pairs, `T` tokens, `D` width.

FIGURES = ("p", "r", "f")
SIMILARITIES = 1 << 24  # number of similarities computed at once: 64 MB
CACHE_BYTES = 1 << 29  # size of the cache of unit vectors


class BertScore(Metric):
    """BERTScore's precision, recall and F in percent, averaged over samples.

    Args:
      embedder: provides tokens and hidden states.
      references: texts to count inverse document frequencies in, with duplicates; None: equal weights.
      baseline: P, R and F of unrelated texts, from `read_baseline`; a figure x becomes (x - b) / (1 - b).
      blank: the set, perhaps shared, of pairs (prediction, reference) with a blank side.

    Raises UserError if, with such frequencies, all tokens of some reference are in every reference.
    """

    name = "bertscore"
    columns = tuple(f"bertscore-{figure}" for figure in FIGURES)
    statistic_names = (*(f"sum_{figure}" for figure in FIGURES), "samples")

    def __init__(
        self,
        embedder: TextEmbedder,
        *,
        references: Sequence[str] | None = None,
        baseline: tuple[np.ndarray, str] | None = None,
        blank: set[tuple[str, str]] | None = None,
    ):
        self._embedder = embedder
        tokenizer = embedder.loaded.tokenizer
        special = {int(i): 0.0 for i in (tokenizer.cls_token_id, tokenizer.sep_token_id) if i is not None}
        self._blank = len(embedder.tokens([""])[0])  # number of tokens of a blank text, all special
        # weights of tokens, and of all others
        self._weights, self._other = (special, 1.0) if references is None else self._idf(references)
        self._known: dict[str, Embedded] = {}
        self._blank_pairs = set() if blank is None else blank
        self._bytes = 0
        self._baseline = np.zeros(3) if baseline is None else baseline[0]
        rescaled, before = ("no", "") if baseline is None else (baseline[1], "-before-rescaling")
        self.signature = (
            f"{embedder.describe()}|idf:{'no' if references is None else f'references-{len(references)}'}"
            f"|special:unweighted-matchable|rescale:{rescaled}|empty:zero{before}|average:rows|like:bert-score-0.3.13"
        )

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        embedded = self._embed([*predictions, *references])
        matches = dict.fromkeys(zip(predictions, references, strict=True), np.zeros(3))
        for prediction, reference in matches:
            sides = embedded[prediction], embedded[reference]
            if any(side.blank for side in sides):
                self._blank_pairs.add((prediction, reference))
            else:
                matches[prediction, reference] = match_tables([sides[0]], [sides[1]])[0, 0]
        rows = [[*matches[pair], 1.0] for pair in zip(predictions, references, strict=True)]
        return np.array(rows).reshape(len(rows), 4)

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        embedded = self._embed([*predictions, *references])
        tables = np.zeros((len(predictions), len(references), 4))
        tables[..., 3] = 1
        rows, columns = (
            [i for i, text in enumerate(texts) if not embedded[text].blank] for texts in (predictions, references)
        )
        if not rows or not columns:
            return tables
        right = [embedded[references[j]] for j in columns]
        longest = max(len(embedded[predictions[i]].states) for i in rows)
        size = max(1, SIMILARITIES // (longest * sum(len(text.states) for text in right)))
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            tables[np.ix_(part, columns, range(3))] = match_tables([embedded[predictions[i]] for i in part], right)
        return tables

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        mean = ratio(summed[..., :3], summed[..., 3:], np.nan)
        return 100.0 * (mean - self._baseline) / (1.0 - self._baseline)

    def notes(self) -> list[str]:
        if not self._blank_pairs or not self._baseline.any():
            return []
        blank = self.corpus(np.array([0.0, 0.0, 0.0, 1.0]))
        each = ", ".join(f"{name.upper()} {x:.1f}" for name, x in zip(FIGURES, blank, strict=True))
        return [
            f"bertscore: {len(self._blank_pairs)} distinct pairs have a blank side; they score 0, which --rescale "
            f"turns into {each}. Look at the figures without --rescale, too."
        ]

    def _idf(self, references: Sequence[str]) -> tuple[dict[int, float], float]:
        """Return the weights log((M + 1) / (df + 1)) of tokens in `df` of `M` references, and of all others."""
        texts = dict.fromkeys(references)
        tokens = dict(zip(texts, self._embedder.tokens(list(texts)), strict=True))
        n = len(references)
        df = Counter(token for text in references for token in set(tokens[text].tolist()))
        for text, ids in tokens.items():
            if text.strip() and all(df[token] == n for token in ids.tolist()):
                raise UserError(f"every token of the reference {text!r:.60} is in all {n} references; leave --idf out.")
        return {token: float(np.log((n + 1) / (count + 1))) for token, count in df.items()}, float(np.log(n + 1))

    def _embed(self, texts: Sequence[str]) -> dict[str, "Embedded"]:
        """Return text -> its embedding; up to `CACHE_BYTES` are cached."""
        embedded = {text: self._known.get(text) for text in texts}
        new = [text for text, cached in embedded.items() if cached is None]
        tokens = self._embedder.tokens(new)
        for text, ids, states in zip(new, tokens, self._embedder.states(tokens), strict=True):
            weights = np.array([self._weights.get(token, self._other) for token in ids.tolist()], np.float32)
            blank = not text.strip() or len(ids) <= self._blank or not weights.any()
            unit = states / np.maximum(np.linalg.norm(states, axis=-1, keepdims=True), 1e-12)
            embedded[text] = self._known[text] = Embedded(unit, weights / max(float(weights.sum()), 1e-38), blank)
            self._bytes += unit.nbytes
        while self._bytes > CACHE_BYTES:
            self._bytes -= self._known.pop(next(iter(self._known))).states.nbytes
        return embedded


class Embedded(NamedTuple):
    """The embedding of one text."""

    states: np.ndarray  # unit vectors of the tokens, [T, D]
    weights: np.ndarray  # of the tokens, sum 1, [T]
    blank: bool = False  # no token has a weight above 0


def match_tables(predictions: Sequence[Embedded], references: Sequence[Embedded]) -> np.ndarray:
    """Return P, R and F of `N` predictions against `M` references, `[N, M, 3]`."""
    starts = [np.cumsum([0, *(len(text.states) for text in side[:-1])]) for side in (predictions, references)]
    states, weights = (
        [np.concatenate([getattr(text, what) for text in side]) for side in (predictions, references)]
        for what in ("states", "weights")
    )
    similar = states[0] @ states[1].T
    best_reference = np.maximum.reduceat(similar, starts[1], axis=1)  # per token of all predictions, [tokens, M]
    best_prediction = np.maximum.reduceat(similar, starts[0], axis=0)  # per token of all references, [N, tokens]
    precision = np.add.reduceat(best_reference * weights[0][:, None], starts[0], axis=0)
    recall = np.add.reduceat(best_prediction * weights[1], starts[1], axis=1)
    return np.stack([precision, recall, ratio(2 * precision * recall, precision + recall, 0.0)], axis=-1)


def read_baseline(path: str | os.PathLike[str], layer: int) -> tuple[np.ndarray, str]:
    """Return P, R and F of a layer in a baseline file of bert-score (lines `LAYER,P,R,F`), and its signature."""
    path = Path(path)
    try:
        rows = list(csv.DictReader(path.read_text("utf8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a baseline of bert-score ({error}); check the path.") from error
    line = next((row for row in rows if row.get("LAYER") == str(layer)), None)
    if line is None:
        raise UserError(f"{path}: there is no row for layer {layer}; expected lines LAYER,P,R,F of bert-score.")
    try:
        figures = np.array([float(line[name]) for name in "PRF"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: layer {layer} has no figures P, R and F; expected lines LAYER,P,R,F.") from error
    if not np.all(figures < 1):
        raise UserError(f"{path}: layer {layer} has the baseline {figures.max()}; it must be below 1.")
    return figures, f"{path.stem},layer-{layer}"


class Similarity(Metric):
    """Mean cosine of sentence embeddings in percent, as in sentence-transformers; 0 if a side is blank."""

    name = "similarity"
    columns = ("similarity",)
    statistic_names = ("sum_cosine", "samples")

    def __init__(self, embedder: TextEmbedder):
        self._modules = read_modules(embedder.loaded.folder)
        self._embedder = embedder
        self._vectors: dict[str, np.ndarray] = {}
        model = embedder.describe(self._modules.max_tokens)
        self.signature = f"{model}|pooling:{self._modules.name}|cosine|empty:zero|average:rows"

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        cosines = np.einsum("nd,nd->n", self.vectors(predictions), self.vectors(references))
        return np.stack([cosines, np.ones_like(cosines)], axis=-1)

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        cosines = self.vectors(predictions) @ self.vectors(references).T
        return np.stack([cosines, np.ones_like(cosines)], axis=-1)

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        return 100.0 * ratio(summed[..., :1], summed[..., 1:], np.nan)

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit-norm embeddings, float64 `[N, D]`; zeros for blank texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        cased = [text.lower() for text in new] if self._modules.lower_case else new
        states = self._embedder.states(self._embedder.tokens(cased, self._modules.max_tokens))
        for text, state in zip(new, states, strict=True):
            self._vectors[text] = normalize(self._modules.embed(state)) * bool(text.strip())
        return np.stack([self._vectors[text] for text in texts])


class MeaningMetrics:
    """A maker of BERTScore and sentence similarity for references; the encoder is loaded once.

    `names` are `bertscore`, `similarity` or both; `encoder` is a checkpoint's folder, its name on the Hub, or `minilm`.
    Of BERTScore are `layer` (None: that which bert-score recommends), `idf` (weights by inverse document frequency in
    the references), and `rescale` (a baseline file of bert-score). Raises UserError if encoder, layer or baseline does
    not exist.
    """

    def __init__(
        self,
        names: Sequence[str],
        encoder: str,
        *,
        layer: int | None = None,
        idf: bool = False,
        rescale: str | os.PathLike[str] | None = None,
    ):
        made: list[Callable[[Sequence[str]], Metric]] = []
        embedders: list[TextEmbedder] = []
        if "bertscore" in names:
            embedder, blank = TextEmbedder(load_encoder(encoder, layer)), set[tuple[str, str]]()
            baseline = None if rescale is None else read_baseline(rescale, embedder.loaded.encoder.spec.stack.layers)
            embedders.append(embedder)
            made.append(
                lambda references: BertScore(
                    embedder, references=references if idf else None, baseline=baseline, blank=blank
                )
            )
        if "similarity" in names:
            if not any(embedder.loaded.is_whole for embedder in embedders):
                embedders.append(TextEmbedder(load_encoder(encoder, "last")))
            similarity = Similarity(embedders[-1])
            made.append(lambda _: similarity)
        self._made, self._embedders = made, embedders
        self._metrics: list[Metric] = []

    def __call__(self, references: Sequence[str]) -> list[Metric]:
        self._metrics = [make(references) for make in self._made]
        return self._metrics

    def notes(self) -> list[str]:
        noted = [note for metric in self._metrics for note in metric.notes()]
        if cut := sum(embedder.cut for embedder in self._embedders):
            noted.append(f"{cut} times a text had more tokens than the encoder takes and was cut.")
        return noted
