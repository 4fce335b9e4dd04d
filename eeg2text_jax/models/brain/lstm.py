"""A bidirectional LSTM over the words, as in the R1 Translator (Murad et al. 2025, arXiv 2505.13936), then the bridge.

Equal to `torch.nn.LSTM` on packed sequences: the state does not change at padding, so that the backward direction
begins at the last word. Flax's cells keep a random stream among their parameters, which pure functions cannot carry.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from eeg2text_jax.models.layers import as_words, dropout
from eeg2text_jax.models.spec import EEGSpec

DIRECTIONS = ("forward", "backward")


class LSTMEncoder(nnx.Module):
    """`spec.layers` layers of two directions, dropout between them, then `relu(dense)` to the backbone's width."""

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        hidden = hidden_width(spec)
        for number in range(spec.layers):
            width = spec.features if number == 0 else 2 * hidden
            for direction in DIRECTIONS:
                setattr(self, f"{direction}_{number}", Direction(width, hidden, dtype, rngs))
        xavier = jax.nn.initializers.xavier_uniform()
        self.bridge = nnx.Linear(2 * hidden, d_model, dtype=dtype, kernel_init=xavier, rngs=rngs)
        self.spec, self.dtype = spec, dtype

    def __call__(
        self, features: jax.Array, mask: jax.Array, *, dropout_key: jax.Array | None = None, **_: object
    ) -> tuple[jax.Array, jax.Array]:
        """Features `[B, W, F]`, mask `[B, W]` -> `[B, W, D]` and the mask."""
        x = as_words(features, mask, self.dtype)
        for number in range(self.spec.layers):
            if number:
                x = dropout(x, self.spec.dropout, dropout_key, site=number)
            forward, backward = (getattr(self, f"{direction}_{number}") for direction in DIRECTIONS)
            x = jnp.concatenate([forward(x, mask), backward(x, mask, reverse=True)], axis=-1)
        return jax.nn.relu(self.bridge(x)), mask


class Direction(nnx.Module):
    """One direction of one layer; gates in PyTorch's order: input, forget, cell, output."""

    def __init__(self, width: int, hidden: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.uniform(2 * hidden**-0.5)  # PyTorch's, from -1/sqrt(hidden) to 1/sqrt(hidden)

        def centred(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
            return init(key, shape, dtype) - jnp.asarray(hidden**-0.5, dtype)

        gates = {"dtype": dtype, "kernel_init": centred, "rngs": rngs}
        self.input = nnx.Linear(width, 4 * hidden, **gates)
        self.recurrent = nnx.Linear(hidden, 4 * hidden, use_bias=False, **gates)
        self.hidden, self.dtype = hidden, dtype

    def __call__(self, x: jax.Array, mask: jax.Array, *, reverse: bool = False) -> jax.Array:
        """`[B, W, n_in] -> [B, W, hidden]`, 0 at padding; the state is float32."""
        driven = self.input(x).swapaxes(0, 1)  # --> [W, B, 4 hidden], all words at once
        nothing = jnp.zeros((x.shape[0], self.hidden), jnp.float32)

        def step(state: tuple, given: tuple) -> tuple[tuple, jax.Array]:
            (h, c), (gates, real) = state, given
            gates = (gates + self.recurrent(h.astype(self.dtype))).astype(jnp.float32)
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            after = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            out = jax.nn.sigmoid(o) * jnp.tanh(after)
            real = real[:, None]
            return (jnp.where(real, out, h), jnp.where(real, after, c)), jnp.where(real, out, 0.0).astype(self.dtype)

        out = lax.scan(step, (nothing, nothing), (driven, mask.swapaxes(0, 1)), reverse=reverse)[1]
        return out.swapaxes(0, 1)


def hidden_width(spec: EEGSpec) -> int:
    """Units of one direction: the configured width, or F."""
    return spec.width or spec.features
