"""Cosine of sentence embeddings, computed as sentence-transformers does (Reimers and Gurevych 2019)."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.embedding import TextEmbedder
from eeg2text_jax.metrics.statistics import Metric, check_same_length, ratio
from eeg2text_jax.pretrained.encoders import LoadedEncoder

MODULES = ("Transformer", "Pooling", "Normalize")  # of sentence-transformers, that are known here


@dataclasses.dataclass(frozen=True)
class Pooling:
    """How token vectors become one: what the files of sentence-transformers beside the weights say."""

    mode: str = "mean"  # or "cls"
    max_tokens: int | None = None
    lower_case: bool = False
    stated: bool = False  # whether there were such files


def read_pooling(folder: Path) -> Pooling:
    """Reads `modules.json` and what it names; without it, the mean over tokens.

    Raises:
      UserError: a file cannot be read, or names a module or a pooling that is not known here.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return Pooling()
    settings, mode = {}, "mean"
    for module in _read_json(path, list):
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise UserError(f"{path}: expected a list of objects with `type` and `path`.")
        kind = module["type"].rpartition(".")[2]
        if kind not in MODULES:
            raise UserError(f"{path}: the module {module['type']!r} is not known; only {', '.join(MODULES)} are.")
        if kind == "Pooling":
            mode = _pooling_mode(folder / str(module.get("path", "")) / "config.json")
    if (beside := folder / "sentence_bert_config.json").is_file():
        settings = _read_json(beside, dict)
    return Pooling(mode, settings.get("max_seq_length"), bool(settings.get("do_lower_case")), stated=True)


def _pooling_mode(path: Path) -> str:
    settings = _read_json(path, dict)
    chosen = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
    names = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(chosen) != 1 or chosen[0] not in names:
        raise UserError(
            f"{path}: asks for {', '.join(chosen) or 'no pooling'}; only the mean or the CLS token is known."
        )
    return names[chosen[0]]


def _read_json(path: Path, kind: type) -> Any:
    try:
        value = json.loads(path.read_text("utf8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON; copy the checkpoint again.") from error
    if not isinstance(value, kind):
        raise UserError(f"{path}: expected a JSON {kind.__name__}.")
    return value


class Similarity(Metric):
    """100 times the mean cosine over samples; it may be negative. A sample with a blank side has 0, and counts."""

    name = "similarity"
    columns = ("similarity",)
    statistic_names = ("sum_cosine", "samples")

    def __init__(self, loaded: LoadedEncoder):
        pooling = read_pooling(loaded.folder)
        self._embedder = TextEmbedder(loaded, max_tokens=pooling.max_tokens, lower_case=pooling.lower_case)
        self._pool = _mean if pooling.mode == "mean" else _cls
        self._vectors: dict[str, np.ndarray] = {}
        how = pooling.mode if pooling.stated else f"{pooling.mode},unstated"
        self.signature = f"{self._embedder.describe()}|pooling:{how}|cosine|empty:zero|average:rows"

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
        """Embeddings of length 1, float64 `[N, D]`; of length 0 where a text is blank."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        ids = self._embedder.tokens(new) if new else []
        for places, vectors in self._embedder.map_hidden(ids, self._pool):
            for place, vector in zip(places, vectors, strict=True):
                text = new[place]
                self._vectors[text] = np.asarray(vector, float) if text.strip() else np.zeros(len(vector))
        return np.stack([self._vectors[text] for text in texts])


def _mean(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    """`[N, T, D]`, `[N, T]` -> unit vectors `[N, D]`: the mean over real tokens, special ones included."""
    real = mask[..., None].astype(hidden.dtype)
    return _unit((hidden * real).sum(1) / jnp.maximum(real.sum(1), 1e-9))


def _cls(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    return _unit(hidden[:, 0])


def _unit(vectors: jax.Array) -> jax.Array:
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
