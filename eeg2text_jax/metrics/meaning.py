"""The metrics that need an encoder, by name: importing this loads JAX, so that only what asks for one waits for it."""

import os
from collections.abc import Callable, Sequence

from eeg2text_jax.metrics.bertscore import BertScore, read_baseline
from eeg2text_jax.metrics.embedding import TextEmbedder
from eeg2text_jax.metrics.score import Meaning
from eeg2text_jax.metrics.similarity import Similarity
from eeg2text_jax.metrics.statistics import Metric
from eeg2text_jax.pretrained.encoders import LAST, load_encoder


def meaning_metrics(
    names: Sequence[str],
    encoder: str,
    *,
    layer: int | None = None,
    idf: bool = False,
    rescale: str | os.PathLike[str] | None = None,
) -> Meaning:
    """What makes BERTScore and sentence similarity for the references of some rows; the encoder is loaded once.

    Args:
      names: of the metrics, `bertscore` or `similarity`.
      encoder: a checkpoint's folder, its name on the Hugging Face Hub, or `minilm`.
      layer: whose output BERTScore compares; None: the best one known. Similarity takes the last one.
      idf: BERTScore weighs tokens by how rare they are in the references.
      rescale: a baseline file of bert-score.

    Raises:
      UserError: there is no such encoder, layer or baseline.
    """
    made: list[Callable[[Sequence[str]], Metric]] = []
    embedder = None
    if "bertscore" in names:
        embedder = TextEmbedder(load_encoder(encoder, layer))
        baseline = None if rescale is None else read_baseline(rescale, embedder.loaded.encoder.spec.stack.layers)
        made.append(lambda references: BertScore(embedder, references=references if idf else None, baseline=baseline))
    if "similarity" in names:
        shared = embedder is not None and embedder.loaded.is_whole  # one computation serves both
        similarity = Similarity(embedder if shared else TextEmbedder(load_encoder(encoder, LAST)))
        made.append(lambda _: similarity)
    return lambda references: [make(references) for make in made]
