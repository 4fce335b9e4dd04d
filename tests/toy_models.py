"""Small models: one for training steps, and models whose next-token table is written down.

Decoding by such a table can be checked by hand, or by a slow reference.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.models.attention import own_position
from eeg2text_jax.models.language_model import logits_of
from eeg2text_jax.models.layers import dropout, zero_at_padding


class Shifted:
    """A model whose decoder inputs are the labels after a start token."""

    shared_frozen = False

    def shift_right(self, labels):
        return jnp.concatenate([jnp.full_like(labels[:, :1], self.start_token), labels[:, :-1]], axis=1)


@dataclasses.dataclass(frozen=True)
class SummedWords(Shifted):
    """Logits from the last token and the sum of the words' features, with dropout: a step compiles in half a second."""

    features: int
    vocabulary: int
    dropout: float
    width: int = 8
    start_token: int = 0
    pad_token: int = 1

    @property
    def shapes(self):
        sizes = {"mix": (self.features, self.width), "table": (self.vocabulary, self.width)}
        return {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}

    def forward(self, params, inputs, ids, *, dropout_key=None, read_out=logits_of):
        x = dropout(zero_at_padding(inputs["features"], inputs["mask"], jnp.float32), self.dropout, dropout_key)
        hidden = jnp.tanh(params["table"][ids] + (x.sum(axis=1) @ params["mix"])[:, None])
        return read_out(hidden, params["table"], None, 0.0)


class History(NamedTuple):
    """A cache that holds the tokens themselves, so that a wrong reordering shows."""

    tokens: jax.Array  # int32 [B, max_length, K], what each row was fed
    ancestors: jax.Array  # int32 [B, K, max_length], as in the real cache
    sentence: jax.Array  # int32 [B, 1]


@dataclasses.dataclass(frozen=True, eq=False)
class MarkovModel(Shifted):
    """Logits depend on the last two tokens read back from the cache and on the sentence: `table [B, V, V, V]`.

    `inputs["features"] [B, 1, 1]` holds the number of the sentence.
    """

    start_token: int = 0
    pad_token: int = 1
    eos_token: int = 2
    bos_token: int | None = None

    def encode(self, params, inputs):
        return inputs["features"], jnp.ones(inputs["features"].shape[:2], bool)

    def init_cache(self, params, hidden, mask, beams, max_length, dtype=""):
        batch = hidden.shape[0]
        return History(
            jnp.zeros((batch, max_length, beams), jnp.int32),
            jnp.zeros((batch, beams, max_length), jnp.int32),
            hidden[:, 0, :].astype(jnp.int32),
        )

    def cache_lengths(self, beams, max_length, platform):
        return (max_length,)

    def decode_step(self, params):
        return functools.partial(self._step, params)

    def _step(self, params, tokens, index, cache):
        batch, beams, _ = cache.ancestors.shape
        fed = cache.tokens.at[:, index].set(tokens.reshape(batch, beams))
        cache = cache._replace(tokens=fed, ancestors=own_position(cache.ancestors, index))
        last = self._at(cache, index)
        before = jnp.where(index > 0, self._at(cache, index - 1), 0)
        return params["table"][cache.sentence, before, last].reshape(batch * beams, -1), cache

    def _at(self, cache, index):
        """The token at a position of each row's history, [B, K]."""
        return jnp.take_along_axis(cache.tokens[:, index], cache.ancestors[:, :, index], axis=1)

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
