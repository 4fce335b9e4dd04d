"""A brain encoder and its mirror, without a language model: the model of the stages before the text.

It has the methods that training asks of a model. Its parameters have the names of the whole network, `eeg/snapshot`
and `eeg/series`, so that a later stage finds them; the mirror's are below `mirror`, which no text model has.
"""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.brain.unicorn import Reconstruction, Series, Snapshots
from eeg2text_jax.models.layers import at_padding, drawn
from eeg2text_jax.models.nnx_bridge import Params, PureModel, in_compute_dtype
from eeg2text_jax.models.remat import Keep
from eeg2text_jax.models.spec import EEGSpec

Of = Literal["snapshot", "series"]


class _Half(nnx.Module):
    """The parts of the encoder that a stage trains, under the names that they have in the whole network."""

    def __init__(self, spec: EEGSpec, of: Of, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.snapshot = Snapshots(spec, dtype, rngs)
        if of == "series":
            self.series = Series(spec, dtype, rngs)


class _Network(nnx.Module):
    def __init__(self, spec: EEGSpec, of: Of, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.eeg = _Half(spec, of, dtype, rngs)
        self.mirror = Reconstruction(spec, dtype, rngs)


@dataclasses.dataclass(frozen=True)
class ReconstructionModel(PureModel):
    """The encoder and its mirror as pure functions of their parameters."""

    eeg: EEGSpec  # UniCoRN's description
    of: Of  # snapshots one by one, or the series of them through the transformer
    pad_token: int  # pads the labels of batches, which reconstruction does not read
    hidden_share: float = 0.0  # snapshots of a series hidden from the encoder; the loss is over these alone
    dtype: str = "float32"
    remat: bool = False
    keep: Keep = "products"

    def reconstruct(
        self, params: Params, features: jax.Array, mask: jax.Array, *, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return the reconstruction of recordings `[B, W, ...]`, float32, and which of `[B, W]` enter the loss."""
        network = self._bound(in_compute_dtype(params, jnp.dtype(self.dtype), layers=not self.remat))
        x, judged = network.eeg.snapshot(features, mask), mask
        if self.of == "series":
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, 0)
            if self.hidden_share:
                hidden = self._hidden(mask, dropout_key)
                x, judged = jnp.where(at_padding(hidden, x.ndim), jnp.zeros((), x.dtype), x), hidden
            x = network.eeg.series(x, mask, dropout_key=key, remat=self.keep if self.remat else None)
        return network.mirror(x), judged

    def _hidden(self, mask: jax.Array, key: jax.Array | None) -> jax.Array:
        """Return the snapshots hidden from the encoder, bool `[B, W]`; without a key (on dev) always the same ones."""
        key = jax.random.key(0) if key is None else jax.random.fold_in(key, 1)
        places = drawn(lambda key: jax.random.uniform(key, mask.shape), key)
        lowest = jnp.where(mask, places, 1.0).min(axis=1, keepdims=True)
        return mask & ((places < self.hidden_share) | (places == lowest))

    def _make(self) -> functools.partial:
        return functools.partial(_Network, self.eeg, self.of, jnp.dtype(self.dtype))
