"""Sentence retrieval: score every candidate sentence for each recording, by the contrastive or the generative model.

No text reaches the brain encoder; the contrastive model embeds candidates separately, by `study.text_targets`.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from eeg2text_jax.conditions import COPIES
from eeg2text_jax.data.prompt import pad_ids
from eeg2text_jax.data.text import encode_targets
from eeg2text_jax.decoding.cells import Cell, over_slices, place_params, row_fields
from eeg2text_jax.decoding.sharded import Inputs, program_of_arms
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.two_towers import ContrastiveModel
from eeg2text_jax.parallel.arms import shard_map_arms
from eeg2text_jax.predictions.rankings import Candidates, Ranking, rounded
from eeg2text_jax.study.study import Study

COSINE = "cosine of the recording's and the sentence's embedding"


def retrieve_grid(study: Study, params: Any, mesh: Mesh, candidates: Candidates) -> Iterator[Ranking]:
    """Score all candidates for the test part under every evaluation condition, all arms at once.

    Candidates are distinct sentences, including the sentences of the test part. Yields for every condition and arm one
    row per sample, in the order of the split. A candidate's score is the cosine of its embedding with the model's
    embedding of the recording; under `nearest_in_time` and `same_place`, with the embedding of the copied text.
    """
    params = place_params(study, params, mesh)
    rows = study.split.parts["test"]
    texts = _unit_vectors(study, candidates.references)  # --> [N, E]
    program = embed_program(study.model, mesh)

    def embed(fed: Inputs, shared: Inputs, _: Inputs) -> jax.Array:
        return program(params, fed, shared)

    for condition in study.config.grid.eval_conditions:
        if condition in COPIES:
            copied = study.data.sentence[study.samples.copies[condition][rows]].tolist()
            embedded = [_unit_vectors(study, copied)] * len(study.arms)
        else:
            embedded = over_slices(study, rows, condition, mesh, embed, f"retrieve under {condition}")
        for arm, vectors in zip(study.arms, embedded, strict=True):
            scores = rounded(vectors.astype(np.float64) @ texts.T)
            yield from cell_rankings(study, Cell(arm, condition), rows, scores, candidates, "contrastive")


def _unit_vectors(study: Study, texts: Sequence[str]) -> np.ndarray:
    """Return the embedding of each text, scaled to norm 1, float64 `[N, E]`."""
    vectors = study.targets.vectors[study.targets.rows(texts)].astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


@functools.lru_cache(maxsize=16)
def embed_program(model: ContrastiveModel, mesh: Mesh) -> Callable[..., jax.Array]:
    """Return the jitted function `(params, fed, shared) -> embeddings of recordings, [A, B, E]`."""

    def embed(params: Any, fed: Inputs, shared: Inputs) -> jax.Array:
        return model.embed(params, {**fed, **shared})

    return shard_map_arms(embed, mesh)


def cell_rankings(
    study: Study, cell: Cell, rows: np.ndarray, scores: np.ndarray, candidates: Candidates, mode: str
) -> Iterator[Ranking]:
    """Yield one arm's rankings under one condition, from scores `[R, N]` of N candidates for the R samples `rows`."""
    for i, own in zip(rows.tolist(), scores, strict=True):
        yield Ranking(
            **row_fields(study, cell, i, mode),
            prediction=candidates.references[int(np.argmax(own))],
            scores=own,
            candidates=candidates,
        )


PRIOR_ROWS = 64  # largest number of dev recordings for a candidate's mean log-likelihood
EVIDENCE = f"log-likelihood less its mean over up to {PRIOR_ROWS} recordings of dev under the same condition, nats"


def rank_by_likelihood(study: Study, params: Any, mesh: Mesh, candidates: Candidates) -> Iterator[Ranking]:
    """Rank candidates by how much the recording raises their likelihood under a generative model.

    The plain likelihood would favour short sentences. So a candidate's score is its log-likelihood given the recording
    minus its mean log-likelihood given recordings of the dev part under the same condition: an estimate of pointwise
    mutual information, in nats. No other test recording enters a score. Time grows with recordings times candidates.
    """
    params = place_params(study, params, mesh)
    dev, test = study.split.parts["dev"], study.split.parts["test"]
    prior = dev[np.unique(np.linspace(0, len(dev) - 1, min(PRIOR_ROWS, len(dev))).round().astype(int))]
    labels = padded_labels(study, candidates.references)
    program = likelihood_program(study.model, mesh, study.config.decode.tensor_parallel)

    def run(fed: Inputs, shared: Inputs, _: Inputs) -> jax.Array:
        # Rows come first because arrays are sharded along `data` by their first axis; each device has all texts.
        texts = jnp.broadcast_to(labels[None], (len(shared["mask"]), *labels.shape))
        return program(params, fed, (shared, texts))

    for condition in study.config.grid.eval_conditions:
        if condition in COPIES:  # its texts come from no model, so no likelihood is defined
            continue
        title = f"likelihoods under {condition}"
        usual = over_slices(study, prior, condition, mesh, run, f"{title}, dev")
        found = over_slices(study, test, condition, mesh, run, title)
        evidence = usual.mean(axis=1, dtype=np.float64, keepdims=True) - found  # --> [A, R, N]
        for arm, scores in zip(study.arms, evidence, strict=True):
            yield from cell_rankings(study, Cell(arm, condition), test, rounded(scores), candidates, "likelihood")


def padded_labels(study: Study, texts: Sequence[str]) -> np.ndarray:
    """Return the padded token ids of every text, int32 `[N, T]`."""
    most, alone = study.config.text.max_tokens, study.model.spec.encoder is None
    ids = encode_targets(study.tokenizer, texts, most, alone)
    return pad_ids(ids, max(map(len, ids)), study.model.pad_token)


@functools.lru_cache(maxsize=16)
def likelihood_program(model: Seq2SeqModel, mesh: Mesh, tensor_parallel: bool = False) -> Callable[..., jax.Array]:
    """Return the jitted function `(params, fed, (shared, labels [B, N, T])) -> summed NLL [A, B, N]`, nats, float32.

    Each recording is encoded once; candidates are then scored one after the other by teacher forcing.
    """

    def score(params: Any, fed: Inputs, rest: tuple[Inputs, jax.Array]) -> jax.Array:
        shared, texts = rest
        hidden, mask = model.encode(params, {**fed, **shared})
        of_one = functools.partial(summed_nll, model, params, hidden, mask)
        return jax.lax.map(of_one, texts.swapaxes(0, 1)).swapaxes(0, 1)

    return program_of_arms(score, mesh, tensor_parallel)


def summed_nll(model: Seq2SeqModel, params: Any, hidden: jax.Array, mask: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the negative log-likelihood of each text `labels [B, T]` given its encoded recording, nats `[B]`."""
    logits = model.decode(params, model.shift_right(labels), hidden, mask).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[:, :, None], axis=2)[:, :, 0]
    losses = jax.nn.logsumexp(logits, axis=2) - picked
    return jnp.sum(jnp.where(labels != model.pad_token, losses, 0.0), axis=1)
