"""Sentence similarity, and the factory of metrics that need a text encoder.

Similarity is the cosine of sentence embeddings, computed as in sentence-transformers (Reimers and Gurevych 2019).
Importing this module loads JAX, so it is imported only for these metrics.
"""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.bertscore import BertScore, read_baseline
from eeg2text_jax.metrics.metric import Metric, check_same_length, ratio
from eeg2text_jax.pretrained.embedding import TextEmbedder
from eeg2text_jax.pretrained.encoders import LoadedEncoder, load_encoder

MODULES = ("Transformer", "Pooling", "Normalize")  # of sentence-transformers, that are known here


@dataclasses.dataclass(frozen=True)
class Pooling:
    """How token vectors are pooled, from the sentence-transformers files beside the weights."""

    mode: str = "mean"  # or "cls"
    max_tokens: int | None = None
    lower_case: bool = False
    stated: bool = False  # whether these files exist


def read_pooling(folder: Path) -> Pooling:
    """Read `modules.json` and the files that it names; without it, pool by the mean over tokens.

    Raises:
      UserError: a file cannot be read, or names an unsupported module or pooling mode.
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
    """100 times the mean cosine over samples; it may be negative. A sample with a blank side counts as 0."""

    name = "similarity"
    columns = ("similarity",)
    statistic_names = ("sum_cosine", "samples")
    least = -math.inf

    def __init__(self, embedder: TextEmbedder):
        self._pooling = read_pooling(embedder.loaded.folder)
        self._embedder = embedder
        self._vectors: dict[str, np.ndarray] = {}
        how = self._pooling.mode if self._pooling.stated else f"{self._pooling.mode},unstated"
        model = embedder.describe(self._pooling.max_tokens)
        self.signature = f"{model}|pooling:{how}|cosine|empty:zero|average:rows"

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
        cased = [text.lower() for text in new] if self._pooling.lower_case else new
        states = self._embedder.states(self._embedder.tokens(cased, self._pooling.max_tokens))
        for text, state in zip(new, states, strict=True):
            # Special tokens count in the mean, as in sentence-transformers.
            vector = state.mean(0, dtype=float) if self._pooling.mode == "mean" else state[0].astype(float)
            self._vectors[text] = vector / max(float(np.linalg.norm(vector)), 1e-12) * bool(text.strip())
        return np.stack([self._vectors[text] for text in texts])


class MeaningMetrics:
    """A factory of BERTScore and sentence similarity for given references; the encoder is loaded once.

    Args:
      names: `bertscore`, `similarity` or both.
      encoder: a checkpoint's folder, its name on the Hugging Face Hub, or `minilm`.
      layer: the layer for BERTScore; None: the recommended one. Similarity uses the last layer.
      idf: weight tokens in BERTScore by inverse document frequency in the references.
      rescale: a baseline file of bert-score.

    Raises:
      UserError: the encoder, layer or baseline does not exist.
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
        self._made: list[Callable[[Sequence[str]], Metric]] = []
        self._embedders: list[TextEmbedder] = []
        self._metrics: list[Metric] = []
        blank: set[tuple[str, str]] = set()
        if "bertscore" in names:
            embedder = self._embedder(load_encoder(encoder, layer))
            baseline = None if rescale is None else read_baseline(rescale, embedder.loaded.encoder.spec.stack.layers)
            self._made.append(
                lambda references: BertScore(
                    embedder, references=references if idf else None, baseline=baseline, blank=blank
                )
            )
        if "similarity" in names:
            shared = [embedder for embedder in self._embedders if embedder.loaded.is_whole]
            similarity = Similarity((shared or [self._embedder(load_encoder(encoder, "last"))])[0])
            self._made.append(lambda _: similarity)

    def __call__(self, references: Sequence[str]) -> list[Metric]:
        """The metrics for these references."""
        self._metrics = [make(references) for make in self._made]
        return self._metrics

    def notes(self) -> list[str]:
        """What a reader of the scores must know."""
        noted = [note for metric in self._metrics for note in metric.notes()]
        if cut := sum(embedder.cut for embedder in self._embedders):
            noted.append(f"{cut} times a text had more tokens than the encoder takes and was cut.")
        return noted

    def _embedder(self, loaded: LoadedEncoder) -> TextEmbedder:
        self._embedders.append(TextEmbedder(loaded))
        return self._embedders[-1]
