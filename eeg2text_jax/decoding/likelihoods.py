"""Sentence retrieval by a generative model: rank candidates by how much the recording raises their likelihood.

The plain likelihood would favour short sentences. So a candidate's score is its log-likelihood given the recording
minus its mean log-likelihood given recordings of the dev part under the same condition: an estimate of pointwise mutual
information, in nats. No other test recording enters a score.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from eeg2text_jax.conditions import NEAREST
from eeg2text_jax.data.text import encode_targets
from eeg2text_jax.decoding.cells import Cell, gather_params
from eeg2text_jax.decoding.retrieve import cell_rankings, over_slices
from eeg2text_jax.decoding.sharded import Inputs
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.arms import shard_map_arms
from eeg2text_jax.predictions.rankings import Candidates, Ranking, rounded
from eeg2text_jax.study.study import Study

PRIOR_ROWS = 64  # dev recordings over which a candidate's mean likelihood is taken
EVIDENCE = f"log-likelihood less its mean over up to {PRIOR_ROWS} recordings of dev under the same condition, nats"


def rank_by_likelihood(study: Study, params: Any, mesh: Mesh, candidates: Candidates) -> Iterator[Ranking]:
    """`retrieve.retrieve_grid` for the generative objective; time grows with recordings times candidates."""
    params = gather_params(params, mesh)
    dev, test = study.split.parts["dev"], study.split.parts["test"]
    prior = dev[np.unique(np.linspace(0, len(dev) - 1, min(PRIOR_ROWS, len(dev))).round().astype(int))]
    labels = padded_labels(study, candidates.references)
    program = likelihood_program(study.model, mesh)

    def run(params: Any, fed: Inputs, shared: Inputs) -> jax.Array:
        # Rows come first because arrays are sharded along `data` by their first axis; each device has all texts.
        texts = jnp.broadcast_to(labels[None], (len(shared["mask"]), *labels.shape))
        return program(params, fed, (shared, texts))

    for condition in study.config.grid.eval_conditions:
        if condition == NEAREST:  # a text without a model has no likelihood
            continue
        title = f"likelihoods under {condition}"
        usual = over_slices(study, params, prior, condition, mesh, run, f"{title}, dev")
        found = over_slices(study, params, test, condition, mesh, run, title)
        evidence = usual.mean(axis=1, dtype=np.float64, keepdims=True) - found  # --> [A, R, N]
        for arm, scores in zip(study.arms, evidence, strict=True):
            yield from cell_rankings(study, Cell(arm, condition), test, rounded(scores), candidates, "likelihood")


def padded_labels(study: Study, texts: Sequence[str]) -> np.ndarray:
    """Return the padded token ids of every text, int32 `[N, T]`."""
    most, alone = study.config.text.max_tokens, study.model.spec.encoder is None
    ids = encode_targets(study.tokenizer, texts, most, alone)
    labels = np.full((len(ids), max(map(len, ids))), study.model.pad_token, np.int32)
    for row, one in enumerate(ids):
        labels[row, : len(one)] = one
    return labels


@functools.lru_cache(maxsize=16)
def likelihood_program(model: Seq2SeqModel, mesh: Mesh) -> Callable[..., jax.Array]:
    """Return the jitted function `(params, fed, (shared, labels [B, N, T])) -> summed NLL [A, B, N]`, nats, float32.

    Each recording is encoded once; candidates are then scored one after the other by teacher forcing.
    """

    def score(params: Any, fed: Inputs, rest: tuple[Inputs, jax.Array]) -> jax.Array:
        shared, texts = rest
        hidden, mask = model.encode(params, {**fed, **shared})

        of_one = functools.partial(summed_nll, model, params, hidden, mask)
        return jax.lax.map(of_one, texts.swapaxes(0, 1)).swapaxes(0, 1)

    return shard_map_arms(score, mesh)


def summed_nll(model: Seq2SeqModel, params: Any, hidden: jax.Array, mask: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the negative log-likelihood of each text `labels [B, T]` given its encoded recording, nats `[B]`."""
    logits = model.decode(params, model.shift_right(labels), hidden, mask).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[:, :, None], axis=2)[:, :, 0]
    losses = jax.nn.logsumexp(logits, axis=2) - picked
    return jnp.sum(jnp.where(labels != model.pad_token, losses, 0.0), axis=1)
