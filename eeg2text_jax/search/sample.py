"""Greedy decoding and ancestral sampling."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from eeg2text_jax.search.beam_search import Cache, Hypotheses, Step
from eeg2text_jax.search.processors import process
from eeg2text_jax.search.settings import GenerationSpec


class SampleState(NamedTuple):
    """The loop state of N = B * num_return_sequences rows."""

    length: jax.Array  # int32 [], tokens written so far, including the start token
    tokens: jax.Array  # int32 [N, T]
    lengths: jax.Array  # int32 [N], tokens including start and end token
    scores: jax.Array  # float32 [N], summed log-probability of the tokens
    open: jax.Array  # bool [N], whether the row has no end token yet
    cache: Cache


def sample(step: Step, cache: Cache, batch: int, spec: GenerationSpec, keys: jax.Array | None = None) -> Hypotheses:
    """Append the most probable token to every row, or one drawn at random, until every row has ended.

    Scores are summed log-probabilities after all processors. As in transformers, processors here work on logits; in
    beam search they work on log-probabilities. Arguments are those of `beam_search`, for N = B * num_return_sequences
    rows; with `keys` `[N]` tokens are drawn at random.
    """

    def advance(state: SampleState) -> SampleState:
        last = jax.lax.dynamic_index_in_dim(state.tokens, state.length - 1, axis=1, keepdims=False)
        logits, cache = step(last, state.length - 1, state.cache)
        scores = process(logits.astype(jnp.float32), state.tokens, state.length, spec)
        token = _pick(scores, state.length, keys)
        gained = jnp.take_along_axis(jax.nn.log_softmax(scores), token[:, None], axis=1)[:, 0]
        token = jnp.where(state.open, token, spec.pad_token_id)
        return SampleState(
            length=state.length + 1,
            tokens=jax.lax.dynamic_update_index_in_dim(state.tokens, token, state.length, axis=1),
            lengths=state.lengths + state.open.astype(jnp.int32),
            scores=state.scores + jnp.where(state.open, gained, 0.0),
            open=state.open & ~jnp.isin(token, jnp.asarray(spec.eos_token_id)),
            cache=cache,
        )

    rows = batch * spec.num_return_sequences
    tokens = jnp.full((rows, spec.max_length), spec.pad_token_id, jnp.int32)
    state = SampleState(
        length=jnp.int32(1),
        tokens=tokens.at[:, 0].set(spec.decoder_start_token_id),
        lengths=jnp.ones(rows, jnp.int32),
        scores=jnp.zeros(rows, jnp.float32),
        open=jnp.ones(rows, bool),
        cache=cache,
    )
    state = jax.lax.while_loop(lambda s: (s.length < spec.max_length) & s.open.any(), advance, state)
    shape = (batch, spec.num_return_sequences)
    steps = jnp.broadcast_to(state.length - 1, batch)
    return Hypotheses(
        state.tokens.reshape(*shape, -1), state.lengths.reshape(shape), state.scores.reshape(shape), steps
    )


def _pick(scores: jax.Array, length: jax.Array, keys: jax.Array | None) -> jax.Array:
    """Return the next token of every row, int32 `[N]`: drawn at random with `keys`, else the most probable."""
    if keys is None:
        return jnp.argmax(scores, axis=-1).astype(jnp.int32)
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, length)
    return jax.vmap(jax.random.categorical)(keys, scores).astype(jnp.int32)
