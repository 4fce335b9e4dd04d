"""Models whose next-token table is written down: decoding can be checked by hand, or by a slow reference."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class History(NamedTuple):
    """A cache that holds the tokens themselves, so that a wrong reordering shows."""

    self_keys: jax.Array  # float32 [1, B*K, max_length], tokens fed so far
    self_values: jax.Array  # float32 [1, B*K, 1], the sentence of the row


@dataclasses.dataclass(frozen=True, eq=False)
class MarkovModel:
    """Logits depend on the last two tokens read back from the cache and on the sentence: `table [B, V, V, V]`.

    `inputs["features"] [B, 1, 1]` holds the number of the sentence.
    """

    start_token: int = 0
    pad_token: int = 1
    eos_token: int = 2
    bos_token: int | None = None

    def encode(self, params, inputs):
        return inputs["features"], jnp.ones(inputs["features"].shape[:2], bool)

    def init_cache(self, params, hidden, mask, beams, max_length):
        sentences = jnp.repeat(hidden[:, 0, :], beams, axis=0)
        return History(jnp.zeros((1, sentences.shape[0], max_length)), sentences[None])

    def decode_step(self, params, tokens, index, cache):
        keys = cache.self_keys.at[:, :, index].set(tokens.astype(jnp.float32)[None])
        last = keys[0, :, index].astype(jnp.int32)
        before = jnp.where(index > 0, keys[0, :, index - 1], 0.0).astype(jnp.int32)
        return params["table"][cache.self_values[0, :, 0].astype(jnp.int32), before, last], cache._replace(
            self_keys=keys
        )

    def shift_right(self, labels):
        return jnp.concatenate([jnp.full_like(labels[:, :1], self.start_token), labels[:, :-1]], axis=1)

    def forward(self, params, inputs, decoder_input_ids, decoder_mask=None, *, dropout_key=None):
        before = jnp.pad(decoder_input_ids[:, :-1], ((0, 0), (1, 0)))
        sentence = inputs["features"][:, 0, 0].astype(jnp.int32)[:, None]
        return params["table"][sentence, before, decoder_input_ids]


def first_order(edges: dict[int, dict[int, float]], vocabulary: int) -> dict[str, jax.Array]:
    """Parameters of one sentence whose transitions have these probabilities, and (almost) none otherwise."""
    table = np.full((vocabulary, vocabulary), 1e-30)
    for source, targets in edges.items():
        for target, probability in targets.items():
            table[source, target] = probability
    log = np.log(table).astype(np.float32)
    return {"table": jnp.asarray(np.broadcast_to(log, (1, vocabulary, vocabulary, vocabulary)))}


def random_tables(rng: np.random.Generator, batch: int, vocabulary: int, spread: float = 2.0) -> dict[str, jax.Array]:
    table = rng.normal(size=(batch, vocabulary, vocabulary, vocabulary)) * spread
    return {"table": jnp.asarray(table, jnp.float32)}


def sentences(batch: int) -> dict[str, jax.Array]:
    return {"features": jnp.arange(batch, dtype=jnp.float32)[:, None, None]}
