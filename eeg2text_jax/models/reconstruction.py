"""A brain encoder and its mirror, without a language model: what is trained before the text.

It has the functions that training asks of a model (`Seq2SeqModel` has the same ones). Its parameters have the names
that the whole network gives them, `eeg/snapshot` and `eeg/series`, so that a later stage finds them; the mirror's are
below `mirror`, which no text model has.
"""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.brain.inputs import at_padding
from eeg2text_jax.models.brain.unicorn import Reconstruction, Series, Snapshots
from eeg2text_jax.models.layers import drawn
from eeg2text_jax.models.nnx_bridge import Params, bind, in_compute_dtype, init_params, structure_of
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
class ReconstructionModel:
    """Functions of one model; hashable and without parameters, as `Seq2SeqModel` is.

    Args:
      eeg: UniCoRN's description.
      of: snapshots one by one, or the series of them through the transformer.
      pad_token: what fills the labels of batches, which reconstruction does not look at.
      hidden_share: of the snapshots of a series, hidden from the encoder; these alone are then reconstructed.
    """

    eeg: EEGSpec
    of: Of
    pad_token: int
    hidden_share: float = 0.0
    dtype: str = "float32"
    remat: bool = False
    keep: Keep = "products"

    @property
    def shapes(self) -> Params:
        """`jax.ShapeDtypeStruct` of every parameter, in dicts of the caller's own."""
        return jax.tree.map(lambda leaf: leaf, _structure(self)[1])

    def init(self, key: jax.Array) -> Params:
        """Random parameters, float32."""
        return init_params(self._make(), key)

    def reconstruct(
        self, params: Params, features: jax.Array, mask: jax.Array, *, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Recordings `[B, W, ...]` as the mirror gives them back, float32, and which of `[B, W]` it is judged by."""
        network = bind(_structure(self)[0], in_compute_dtype(params, jnp.dtype(self.dtype), layers=not self.remat))
        x, judged = network.eeg.snapshot(features, mask), mask
        if self.of == "series":
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, 0)
            if self.hidden_share:
                hidden = self._hidden(mask, dropout_key)
                x, judged = jnp.where(at_padding(hidden, x.ndim), jnp.zeros((), x.dtype), x), hidden
            x = network.eeg.series(x, mask, dropout_key=key, remat=self.keep if self.remat else None)
        return network.mirror(x), judged

    def _hidden(self, mask: jax.Array, key: jax.Array | None) -> jax.Array:
        """Snapshots hidden from the encoder, bool `[B, W]`; without a key (on dev) always the same ones."""
        key = jax.random.key(0) if key is None else jax.random.fold_in(key, 1)
        places = drawn(lambda key: jax.random.uniform(key, mask.shape), key)
        lowest = jnp.where(mask, places, 1.0).min(axis=1, keepdims=True)
        return mask & ((places < self.hidden_share) | (places == lowest))

    def _make(self) -> functools.partial:
        return functools.partial(_Network, self.eeg, self.of, jnp.dtype(self.dtype))


@functools.lru_cache(maxsize=32)
def _structure(model: ReconstructionModel) -> tuple[nnx.GraphDef, Params]:
    return structure_of(model._make())
