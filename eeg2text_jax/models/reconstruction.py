"""The model of the pretraining stages: UniCoRN's encoder and the decoder that reconstructs its input.

The encoder's parameters have the same names as in the whole network, `eeg/snapshot` and `eeg/series`, so that a later
stage loads them; the decoder's are under `mirror`, which the whole network lacks.
"""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.brain.unicorn import Reconstruction, Series, Snapshots
from eeg2text_jax.models.layers import at_padding, draw_per_key
from eeg2text_jax.models.nnx_bridge import Params, PureModel, in_compute_dtype
from eeg2text_jax.models.remat import Keep
from eeg2text_jax.models.spec import EEGSpec

Of = Literal["snapshot", "series"]


class _Encoder(nnx.Module):
    """The parts of UniCoRN's encoder that a stage trains: `Snapshots`, and `Series` in the stage "series"."""

    def __init__(self, spec: EEGSpec, of: Of, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.snapshot = Snapshots(spec, dtype, rngs)
        if of == "series":
            self.series = Series(spec, dtype, rngs)


class _Network(nnx.Module):
    """Encoder, and the decoder that reconstructs its input, of a pretraining stage."""

    def __init__(self, spec: EEGSpec, of: Of, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.eeg = _Encoder(spec, of, dtype, rngs)
        self.mirror = Reconstruction(spec, dtype, rngs)


@dataclasses.dataclass(frozen=True)
class ReconstructionModel(PureModel):
    """Encoder and decoder of a pretraining stage as pure functions of their parameters."""

    eeg: EEGSpec
    of: Of  # "snapshot" reconstructs snapshots one by one, "series" passes them through the transformer first
    pad_token: int  # pads the labels of batches, which reconstruction does not read
    hidden_share: float = 0.0  # "series": share of snapshots that are zeroed, and alone enter the loss; 0: all enter it
    dtype: str = "float32"
    remat: bool = False
    keep: Keep = "products"

    def reconstruct(
        self, params: Params, features: jax.Array, mask: jax.Array, *, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return reconstructed recordings, float32 `[B, W, ...]`, and the mask `[B, W]` of snapshots in the loss."""
        network = self._module(in_compute_dtype(params, jnp.dtype(self.dtype), layers=not self.remat))
        x, judged = network.eeg.snapshot(features, mask), mask
        if self.of == "series":
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, 0)
            if self.hidden_share:
                hidden = self._hidden(mask, dropout_key)
                x, judged = jnp.where(at_padding(hidden, x.ndim), jnp.zeros((), x.dtype), x), hidden
            x = network.eeg.series(x, mask, dropout_key=key, remat=self.keep if self.remat else None)
        return network.mirror(x), judged

    def _hidden(self, mask: jax.Array, key: jax.Array | None) -> jax.Array:
        """Draw a mask `[B, W]` of snapshots to hide, at least one per recording; without a key (dev), a fixed one."""
        key = jax.random.key(0) if key is None else jax.random.fold_in(key, 1)
        places = draw_per_key(lambda key: jax.random.uniform(key, mask.shape), key)
        lowest = jnp.where(mask, places, 1.0).min(axis=1, keepdims=True)
        return mask & ((places < self.hidden_share) | (places == lowest))

    def _make(self) -> functools.partial:
        return functools.partial(_Network, self.eeg, self.of, jnp.dtype(self.dtype))
