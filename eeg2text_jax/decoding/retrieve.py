"""Sentence retrieval by the contrastive model: score every candidate sentence for each recording.

No text reaches the brain encoder; candidates are embedded separately by `study.text_targets`.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from eeg2text_jax.conditions import NEAREST
from eeg2text_jax.data.batches import make_batch
from eeg2text_jax.decoding.cells import Cell, feed_arms, gather_params, read_inputs, row_fields
from eeg2text_jax.decoding.sharded import Inputs, Slice, decode_dataset, plan_slices
from eeg2text_jax.models.two_towers import ContrastiveModel
from eeg2text_jax.parallel.arms import shard_map_arms
from eeg2text_jax.parallel.mesh import DATA
from eeg2text_jax.parallel.placement import fed_sharding, put, put_batch, replicated
from eeg2text_jax.predictions.rankings import Candidates, Ranking, rounded
from eeg2text_jax.study.study import Study

COSINE = "cosine of the recording's and the sentence's embedding"


def retrieve_grid(study: Study, params: Any, mesh: Mesh, candidates: Candidates) -> Iterator[Ranking]:
    """Score all candidates for the test part under every evaluation condition, all arms at once.

    Args:
      study: a run with the contrastive objective.
      params: each arm's parameters, `[A, ...]`.
      mesh: with axes `("arm", "data")`.
      candidates: distinct sentences, including those of the test part.

    Yields:
      For every condition and arm one row per sample, in the order of the split.
    """
    params = gather_params(params, mesh)
    rows = study.split.parts["test"]
    texts = study.targets.vectors[study.targets.rows(candidates.references)].astype(np.float64)
    texts /= np.maximum(np.linalg.norm(texts, axis=1, keepdims=True), 1e-12)  # --> [N, E]
    program = embed_program(study.model, mesh)
    for condition in study.config.grid.eval_conditions:
        if condition == NEAREST:
            yield from nearest_rankings(study, rows, texts, candidates, "contrastive")
            continue
        embedded = over_slices(study, params, rows, condition, mesh, program, f"retrieve under {condition}")
        for arm, brain in zip(study.arms, embedded, strict=True):
            scores = rounded(brain.astype(np.float64) @ texts.T)
            yield from cell_rankings(study, Cell(arm, condition), rows, scores, candidates, "contrastive")


def nearest_rankings(
    study: Study, rows: np.ndarray, texts: np.ndarray, candidates: Candidates, mode: str
) -> Iterator[Ranking]:
    """Rows of `nearest_in_time`: candidates by how near they are to the training text that is nearest in time.

    Args:
      texts: embeddings of the candidates, float64 `[N, E]`, of length 1.
    """
    near = study.samples.nearest[rows]
    copied = study.targets.vectors[study.targets.rows(study.data.sentence[near].tolist())].astype(np.float64)
    for arm in study.arms:
        yield from cell_rankings(study, Cell(arm, NEAREST), rows, rounded(copied @ texts.T), candidates, mode)


def over_slices(
    study: Study,
    params: Any,
    rows: np.ndarray,
    condition: str,
    mesh: Mesh,
    run: Callable[[Any, Inputs, Inputs], Any],
    title: str,
    labels: np.ndarray | None = None,
) -> Any:
    """Call `run(params, fed, shared)` on slices of similar length; return leaves `[A, N, ...]` in the order of `rows`.

    `fed` has each arm's `features [A, B, W, F]` under the condition, and of `labels [A, N, T]` its own `[A, B, T]`;
    `shared` the `mask [B, W]`.
    """
    arrays = put(study.arrays._replace(texts=None), replicated(mesh))
    edges = [words for words, _ in study.config.batch.buckets]
    size = -(-study.config.decode.batch_size // mesh.shape[DATA]) * mesh.shape[DATA]
    width = study.config.text.max_tokens

    def decode(part: Slice) -> Any:
        batch = put_batch(make_batch(study.samples, rows[part.samples], (part.words, width), len(part.samples)), mesh)
        batch.pop("labels")
        fed = {"features": feed_arms(study.arms, arrays, condition, batch, mesh)}
        if labels is not None:
            fed["labels"] = put(labels[:, part.samples], fed_sharding(mesh))
        return run(params, fed, read_inputs(condition, batch))

    slices = plan_slices(study.samples.n_words()[rows], edges, size)
    return decode_dataset(slices, decode, title, axis=1, sentences=len(study.arms))


@functools.lru_cache(maxsize=16)
def embed_program(model: ContrastiveModel, mesh: Mesh) -> Callable[..., jax.Array]:
    """Return the jitted function `(params, fed, shared) -> embeddings [A, B, E]`."""

    def embed(params: Any, fed: Inputs, shared: Inputs) -> jax.Array:
        return model.embed(params, {**fed, **shared})

    return shard_map_arms(embed, mesh)


def cell_rankings(
    study: Study, cell: Cell, rows: np.ndarray, scores: np.ndarray, candidates: Candidates, mode: str
) -> Iterator[Ranking]:
    """Yield the rows of one cell from scores `[R, N]`."""
    for i, own in zip(rows.tolist(), scores, strict=True):
        yield Ranking(
            **row_fields(study, cell, i, mode),
            prediction=candidates.references[int(np.argmax(own))],
            scores=own,
            candidates=candidates,
        )
