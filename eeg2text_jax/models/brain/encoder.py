"""The paper's transformer encoder and an LSTM encoder of recordings, and `make_encoder` for these and UniCoRN's.

An encoder is made from `(spec, d_model, dtype, rngs)`. It is called with recordings, word features `[B, W, F]` or
volumes `[B, W, X, Y, Z]` with W positions in time, and their mask `[B, W]`. It returns embeddings `[B, S, D]` in the
width of the language model and their mask `[B, S]`. Further keyword arguments are those of `Stack`.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.brain import ENCODERS
from eeg2text_jax.models.brain.unicorn import UnicornEncoder
from eeg2text_jax.models.layers import dropout, zero_at_padding
from eeg2text_jax.models.spec import EEGSpec, StackSpec
from eeg2text_jax.models.stack import Stack

XAVIER = jax.nn.initializers.xavier_uniform()
DIRECTIONS = ("forward", "backward")


def make_encoder(spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> nnx.Module:
    """Return the brain encoder that `spec` describes, for a language model of width `d_model`."""
    # "none" is the transformer without layers: the bridge alone, the authors' naive model.
    classes = {
        "unicorn": UnicornEncoder,
        "lstm": LSTMEncoder,
        **dict.fromkeys(("transformer", "none"), TransformerEncoder),
    }
    if spec.kind not in classes:
        raise UserError(f"config.model.encoder is {spec.kind!r}; expected one of {', '.join(ENCODERS)}.")
    return classes[spec.kind](spec, d_model, dtype, rngs)


def flat_features(features: jax.Array, mask: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Return words `[B, W, F]`, or volumes `[B, W, X, Y, Z]` flattened, as `[B, W, F]` with 0 at padding."""
    return zero_at_padding(features, mask, dtype).reshape(*mask.shape, -1)


class TransformerEncoder(nnx.Module):
    """Post-norm transformer over the words, then the bridge, `relu(dense)` to the language model's width.

    As in the paper (section 2) and the authors' code, the transformer has no position embeddings; the language model
    adds its own. With `spec.layers == 0` there is only the bridge.
    """

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        width = encoder_width(spec)
        if spec.width:
            self.project = nnx.Linear(spec.features, width, dtype=dtype, kernel_init=XAVIER, rngs=rngs)
        if spec.layers:
            self.encoder = Stack(stack_spec(spec), dtype, rngs)
        self.bridge = nnx.Linear(width, d_model, dtype=dtype, kernel_init=XAVIER, rngs=rngs)
        self.spec, self.dtype, self.padding = spec, dtype, width - spec.features

    def __call__(self, features: jax.Array, mask: jax.Array, **options) -> tuple[jax.Array, jax.Array]:
        """Return embeddings `[B, W, D]` and the mask `[B, W]` of recordings; `options` are those of `Stack`."""
        x = flat_features(features, mask, self.dtype)
        if self.spec.width:
            x = self.project(x)
        elif self.padding:
            x = jnp.pad(x, ((0, 0), (0, 0), (0, self.padding)))
        if self.spec.layers:
            x = self.encoder(x, mask, **options)
        return jax.nn.relu(self.bridge(x)), mask


def encoder_width(spec: EEGSpec) -> int:
    """Return the transformer's width: as configured, or F rounded up to a multiple of the heads."""
    if not spec.layers:
        return spec.width or spec.features
    if spec.width and spec.width % spec.heads:
        raise UserError(
            f"config.model.encoder_width is {spec.width}, no multiple of encoder_heads = {spec.heads}; "
            f"choose a multiple of {spec.heads}, or 0 to pad the features."
        )
    return spec.width or -(-spec.features // spec.heads) * spec.heads


def stack_spec(spec: EEGSpec) -> StackSpec:
    """Return the description of the transformer's layers, which compute what `torch.nn.TransformerEncoder` computes."""
    return spec.stack(encoder_width(spec), activation="relu")


class LSTMEncoder(nnx.Module):
    """Bidirectional LSTM over the words, as in the R1 Translator (Murad et al. 2025, arXiv 2505.13936).

    Dropout is between the layers; the bridge comes last. The layers equal `torch.nn.LSTM` on packed sequences: padding
    does not change the state, so the backward direction begins at the last word. Flax's LSTM cells are not used: they
    keep a random stream among their parameters, which pure functions cannot carry.
    """

    def __init__(self, spec: EEGSpec, d_model: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        hidden = hidden_width(spec)
        for number in range(spec.layers):
            width = spec.features if number == 0 else 2 * hidden
            for direction in DIRECTIONS:
                setattr(self, f"{direction}_{number}", Direction(width, hidden, dtype, rngs))
        self.bridge = nnx.Linear(2 * hidden, d_model, dtype=dtype, kernel_init=XAVIER, rngs=rngs)
        self.spec, self.dtype = spec, dtype

    def __call__(
        self, features: jax.Array, mask: jax.Array, *, dropout_key: jax.Array | None = None, **_: object
    ) -> tuple[jax.Array, jax.Array]:
        """Return embeddings `[B, W, D]` and the mask `[B, W]` of recordings."""
        x = flat_features(features, mask, self.dtype)
        for number in range(self.spec.layers):
            if number:
                x = dropout(x, self.spec.dropout, dropout_key, site=number)
            forward, backward = (getattr(self, f"{direction}_{number}") for direction in DIRECTIONS)
            x = jnp.concatenate([forward(x, mask), backward(x, mask, reverse=True)], axis=-1)
        return jax.nn.relu(self.bridge(x)), mask


class Direction(nnx.Module):
    """One direction of one LSTM layer; gates in PyTorch's order: input, forget, cell, output."""

    def __init__(self, width: int, hidden: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.uniform(2 * hidden**-0.5)

        def centred(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
            """Draw from -1/sqrt(hidden) to 1/sqrt(hidden), as PyTorch does."""
            return init(key, shape, dtype) - jnp.asarray(hidden**-0.5, dtype)

        gates = {"dtype": dtype, "kernel_init": centred, "rngs": rngs}
        self.input = nnx.Linear(width, 4 * hidden, **gates)
        self.recurrent = nnx.Linear(hidden, 4 * hidden, use_bias=False, **gates)
        self.hidden, self.dtype = hidden, dtype

    def __call__(self, x: jax.Array, mask: jax.Array, *, reverse: bool = False) -> jax.Array:
        """Return the outputs `[B, W, hidden]` of inputs `[B, W, n_in]`, 0 at padding; the state is float32."""
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
    """Return the number of LSTM units in one direction: the configured width, or F."""
    return spec.width or spec.features
