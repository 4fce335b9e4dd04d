"""Sentence similarity (Reimers and Gurevych 2019), and the factory of metrics that need a text encoder.

Importing this module loads JAX, so it is imported only for these metrics.
"""

import math
import os
from collections.abc import Callable, Sequence

import numpy as np

from eeg2text_jax.metrics.bertscore import BertScore, read_baseline
from eeg2text_jax.metrics.metric import Metric, check_same_length, ratio
from eeg2text_jax.pretrained.embedding import TextEmbedder
from eeg2text_jax.pretrained.encoders import LoadedEncoder, load_encoder
from eeg2text_jax.pretrained.sentence_modules import normalize, read_modules


class Similarity(Metric):
    """Mean cosine of sentence embeddings in percent, as in sentence-transformers; 0 for a sample with a blank side."""

    name = "similarity"
    columns = ("similarity",)
    statistic_names = ("sum_cosine", "samples")
    least = -math.inf

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
    """A factory of BERTScore and sentence similarity that loads the encoder once; call it with the references.

    Args:
      names: `bertscore`, `similarity` or both.
      encoder: a checkpoint's folder, its name on the Hugging Face Hub, or `minilm`.
      layer: the layer for BERTScore; None: the one that bert-score recommends. Similarity uses the last layer.
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
        """Return the metrics for these references."""
        self._metrics = [make(references) for make in self._made]
        return self._metrics

    def notes(self) -> list[str]:
        """Return notes for readers of the scores."""
        noted = [note for metric in self._metrics for note in metric.notes()]
        if cut := sum(embedder.cut for embedder in self._embedders):
            noted.append(f"{cut} times a text had more tokens than the encoder takes and was cut.")
        return noted

    def _embedder(self, loaded: LoadedEncoder) -> TextEmbedder:
        """Return an embedder with this encoder; `notes` counts the texts that it cuts."""
        self._embedders.append(TextEmbedder(loaded))
        return self._embedders[-1]
