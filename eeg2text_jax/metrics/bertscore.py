"""BERTScore (Zhang et al. 2020): every token is matched to the most similar one of the other text.

It follows the package bert-score 0.3.13, with these differences: a masked token can never be the best match (there its
similarity counts as 0, so that a row may depend on its batch); RoBERTa's first word has a space before it (there not,
under transformers 5); weights that make a figure 0/0 are an error (there 0); blank text is scored 0 (there an error
under transformers 5). As there, `[CLS]` and `[SEP]` weigh nothing but may be matched by the other side.

Shapes: `N` pairs, `T` tokens, `D` width of the encoder.
"""

import csv
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.embedding import WIDTHS, TextEmbedder
from eeg2text_jax.metrics.metric import Metric, check_same_length, ratio

FIGURES = ("p", "r", "f")
CELLS = 1 << 24  # similarities computed at once: 64 MB


class BertScore(Metric):
    """Mean over samples of precision, recall and F.

    Args:
      embedder: gives tokens and hidden states.
      references: with inverse document frequencies as weights, the texts that they are counted in, duplicates
        included; None: every token weighs the same.
      baseline: P, R and F of unrelated text, from `read_baseline`: figures become (x - b) / (1 - b).

    Raises:
      UserError: with idf, every token of some reference is in all references.
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
    ):
        self._embedder = embedder
        tokenizer = embedder.loaded.tokenizer
        self._unweighted = [i for i in (tokenizer.cls_token_id, tokenizer.sep_token_id) if i is not None]
        self._blank = len(embedder.tokens([""])[0])  # tokens of blank text
        self._idf = None if references is None else self._count(references)
        self._baseline = np.zeros(3) if baseline is None else baseline[0]
        rescaled = "no" if baseline is None else baseline[1]
        self.signature = (
            f"{embedder.describe()}|idf:{'no' if references is None else f'references-{len(references)}'}"
            f"|special:unweighted-matchable|rescale:{rescaled}|empty:zero|average:rows|like:bert-score-0.3.13"
        )

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        known = self._embed([*predictions, *references])
        distinct = {pair: i for i, pair in enumerate(dict.fromkeys(zip(predictions, references, strict=True)))}
        found = np.zeros((len(distinct), 3))
        by_width: dict[int, list[tuple[str, str]]] = {}
        for pair in distinct:
            if not any(known[text].blank for text in pair):
                by_width.setdefault(max(known[text].width for text in pair), []).append(pair)
        for width, pairs in sorted(by_width.items()):
            size = _power_of_two(max(1, CELLS // (width * max(width, known[pairs[0][0]].states.shape[1]))))
            for start in range(0, len(pairs), size):
                part = pairs[start : start + size]
                sides = [_padded([known[pair[side]] for pair in part], width, size) for side in (0, 1)]
                found[[distinct[pair] for pair in part]] = np.asarray(_score_pairs(*sides[0], *sides[1]))[: len(part)]
        rows = found[[distinct[pair] for pair in zip(predictions, references, strict=True)]]
        return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        known = self._embed([*predictions, *references])
        found = np.zeros((len(predictions), len(references), 4))
        found[..., 3] = 1
        rows, columns = (
            [i for i, text in enumerate(texts) if not known[text].blank] for texts in (predictions, references)
        )
        if not rows or not columns:
            return found
        width = max(known[references[j]].width for j in columns)
        n_columns = _power_of_two(len(columns), up=True)
        right = _padded([known[references[j]] for j in columns], width, n_columns)
        for wide in sorted({known[predictions[i]].width for i in rows}):
            these = [i for i in rows if known[predictions[i]].width == wide]
            size = _power_of_two(max(1, CELLS // (n_columns * width * wide)))
            for start in range(0, len(these), size):
                part = these[start : start + size]
                left = _padded([known[predictions[i]] for i in part], wide, size)
                scores = np.asarray(_score_table(*left, *right))[: len(part), : len(columns)]
                found[np.ix_(part, columns, range(3))] = scores
        return found

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        mean = ratio(summed[..., :3], summed[..., 3:], np.nan)
        return 100.0 * (mean - self._baseline) / (1.0 - self._baseline)

    def _count(self, references: Sequence[str]) -> dict[int, float]:
        """Inverse document frequencies, log((M + 1) / (df + 1)), of the tokens of `M` references."""
        texts = dict.fromkeys(references)
        tokens = dict(zip(texts, self._embedder.tokens(list(texts)), strict=True))
        n = len(references)
        df = Counter(token for text in references for token in set(tokens[text].tolist()))
        for text, ids in tokens.items():
            if text.strip() and all(df[token] == n for token in ids.tolist()):
                raise UserError(
                    f"bertscore with --idf: every token of the reference {text!r:.60} is in all {n} references, so "
                    "none has a weight; leave --idf out."
                )
        self._unseen = float(np.log(n + 1))
        return {token: float(np.log((n + 1) / (count + 1))) for token, count in df.items()}

    def _weights(self, ids: np.ndarray) -> np.ndarray:
        if self._idf is not None:
            return np.array([self._idf.get(token, self._unseen) for token in ids.tolist()], np.float32)
        return np.where(np.isin(ids, self._unweighted), 0.0, 1.0).astype(np.float32)

    def _embed(self, texts: Sequence[str]) -> dict[str, "_Embedded"]:
        distinct = list(dict.fromkeys(texts))
        tokens = self._embedder.tokens(distinct)
        found = {}
        for text, ids, states in zip(distinct, tokens, self._embedder.states(tokens), strict=True):
            weights = self._weights(ids)
            blank = not text.strip() or len(ids) <= self._blank or not weights.any()
            unit = states / np.maximum(np.linalg.norm(states, axis=-1, keepdims=True), 1e-12)
            found[text] = _Embedded(unit, weights / max(float(weights.sum()), 1e-38), blank)
        return found


class _Embedded(NamedTuple):
    """One text: unit rows `[T, D]`, weights `[T]` that sum to 1, and whether it says nothing."""

    states: np.ndarray
    weights: np.ndarray
    blank: bool

    @property
    def width(self) -> int:
        """Of the bucket that it is padded to."""
        return WIDTHS[int(np.searchsorted(WIDTHS, len(self.states)))]


def _padded(texts: Sequence[_Embedded], width: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit rows `[size, width, D]`, their weights and a mask of real tokens `[size, width]`."""
    states = np.zeros((size, width, texts[0].states.shape[1]), np.float32)
    weights, mask = np.zeros((size, width), np.float32), np.zeros((size, width), bool)
    for row, text in enumerate(texts):
        n = len(text.states)
        states[row, :n], weights[row, :n], mask[row, :n] = text.states, text.weights, True
    mask[len(texts) :, 0] = True  # rows that only fill the batch: no maximum over nothing
    return states, weights, mask


@jax.jit
def _score_pairs(
    p: jax.Array, p_weights: jax.Array, p_mask: jax.Array, r: jax.Array, r_weights: jax.Array, r_mask: jax.Array
) -> jax.Array:
    """Unit rows `[N, T, D]`, weights that sum to 1 and masks `[N, T]` of both sides -> P, R, F `[N, 3]`."""
    similar = jnp.einsum("ntd,nsd->nts", p, r, precision="highest")
    best_r = jnp.where(r_mask[:, None, :], similar, -jnp.inf).max(2)
    best_p = jnp.where(p_mask[:, :, None], similar, -jnp.inf).max(1)
    return _p_r_f((best_r * p_weights).sum(1), (best_p * r_weights).sum(1))


@jax.jit
def _score_table(
    p: jax.Array, p_weights: jax.Array, p_mask: jax.Array, r: jax.Array, r_weights: jax.Array, r_mask: jax.Array
) -> jax.Array:
    """As `_score_pairs` for every prediction `[N, T, D]` against every reference `[M, S, D]`: `[N, M, 3]`."""
    similar = jnp.einsum("ntd,msd->nmts", p, r, precision="highest")
    best_r = jnp.where(r_mask[None, :, None, :], similar, -jnp.inf).max(3)
    best_p = jnp.where(p_mask[:, None, :, None], similar, -jnp.inf).max(2)
    return _p_r_f((best_r * p_weights[:, None]).sum(2), (best_p * r_weights[None]).sum(2))


def _p_r_f(precision: jax.Array, recall: jax.Array) -> jax.Array:
    total = precision + recall
    f = jnp.where(total == 0, 0.0, 2 * precision * recall / jnp.where(total == 0, 1.0, total))
    return jnp.stack([precision, recall, f], axis=-1)


def _power_of_two(n: int, *, up: bool = False) -> int:
    """The power of two next to `n`, at most `n` unless `up`: few shapes to compile."""
    return 1 << ((n - 1).bit_length() if up else n.bit_length() - 1)


def read_baseline(path: str | os.PathLike[str], layer: int) -> tuple[np.ndarray, str]:
    """P, R and F of a layer from a file of bert-score (`LAYER,P,R,F`), and a name for signatures.

    Raises:
      UserError: the file cannot be read or has no such layer, or a figure is none below 1.
    """
    path = Path(path)
    try:
        rows = list(csv.DictReader(path.read_text("utf8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a baseline of bert-score ({error}); check the path.") from error
    found = next((row for row in rows if row.get("LAYER") == str(layer)), None)
    if found is None:
        raise UserError(
            f"{path}: there is no row for layer {layer}; expected lines LAYER,P,R,F as bert-score has them."
        )
    try:
        figures = np.array([float(found[name]) for name in "PRF"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: layer {layer} has no figures P, R and F; expected lines LAYER,P,R,F.") from error
    if not np.all(figures < 1):
        raise UserError(f"{path}: layer {layer} has the baseline {figures.max()}; it must be below 1.")
    return figures, f"{path.stem},layer-{layer}"
