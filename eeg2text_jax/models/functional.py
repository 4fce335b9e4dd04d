"""The whole network, a brain encoder and a language model, and `Seq2SeqModel`: the network as pure functions."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from eeg2text_jax.models.brain.encoder import make_encoder
from eeg2text_jax.models.cache import Cache, lengths_of
from eeg2text_jax.models.causal import CausalLM
from eeg2text_jax.models.encoder_decoder import EncoderDecoder, Int8Table, ReadOut, Step, logits_of
from eeg2text_jax.models.nnx_bridge import Params, PureModel, in_compute_dtype
from eeg2text_jax.models.remat import Keep
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec
from eeg2text_jax.models.stack import Layer
from eeg2text_jax.parallel.arms import Divided, divided, joined

Inputs = Mapping[str, jax.Array]


class Int8Weights(NamedTuple):
    """A language model's layers, with stacked parameters `[L, ...]`, and its output head; all matrices are int8."""

    encoder: Layer | None  # None: a decoder-only model
    decoder: Layer
    table: Int8Table


class Rounded(NamedTuple):
    """Parameters of a trained model, and the int8 layers and head that replace its own, see `Seq2SeqModel.rounded`."""

    params: Params
    weights: Int8Weights


class EEG2Text(nnx.Module):
    """A language model, `backbone`, and in front of it a brain encoder, `eeg`, unless the argument `eeg` is None."""

    def __init__(self, spec: Seq2SeqSpec, eeg: EEGSpec | None, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.backbone = (CausalLM if spec.encoder is None else EncoderDecoder)(spec, dtype, rngs)
        if eeg is not None:
            self.eeg = make_encoder(eeg, spec.d_model, dtype, rngs)
        self.prompt = (eeg.prompt, eeg.prompt_after) if eeg is not None else ((), ())

    def encode(self, inputs: Inputs, dropout_key: jax.Array | None, **options) -> tuple[jax.Array, jax.Array]:
        """Return the encoder output `[B, S, D]` and its mask `[B, S]`; S counts EEG positions and prompt tokens.

        `inputs` has one of `features` (words `[B, W, F]` or volumes `[B, W, X, Y, Z]`), `inputs_embeds [B, S, D]` or
        `input_ids [B, S]`, and `mask` of the same length; optionally per-sample prompts `before` and `after`, int32
        `[B, P]`, -1 at padding.
        """
        eeg_key, text_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        mask = inputs["mask"]
        if "features" in inputs:
            with jax.named_scope("eeg_encoder"):
                x, mask = self.eeg(inputs["features"], mask, dropout_key=eeg_key, **options)
            x, mask = self._with_prompt(x, mask, inputs)
        elif "inputs_embeds" in inputs:
            x = inputs["inputs_embeds"]
        else:
            x = self.backbone.embed(inputs["input_ids"])
        return self.backbone.encode(x, mask, dropout_key=text_key, **options)

    def _with_prompt(self, x: jax.Array, mask: jax.Array, inputs: Inputs) -> tuple[jax.Array, jax.Array]:
        """Return `x [B, W, D]` with the embeddings of the prompt's two parts before and after it, and the new mask."""
        around = []
        for name, constant in zip(("before", "after"), self.prompt, strict=True):
            ids = jnp.broadcast_to(jnp.asarray(constant, jnp.int32)[None], (x.shape[0], len(constant)))
            around.append(inputs.get(name, ids))
        if not any(ids.shape[1] for ids in around):
            return x, mask
        before, after = (self.backbone.embed(ids).astype(x.dtype) for ids in around)
        real = [ids >= 0 for ids in around]
        return jnp.concatenate([before, x, after], axis=1), jnp.concatenate([real[0], mask, real[1]], axis=1)


@dataclasses.dataclass(frozen=True)
class Seq2SeqModel(PureModel):
    """A model as pure functions of its parameters; hashable, so it can be a static argument of `jax.jit`.

    Parameters are a nested dict of arrays (float32, except frozen ones); in a stack, axis 0 is the layer. The functions
    may be jitted, differentiated and mapped over stacked parameters. With `dropout_key=None` there is no dropout.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from eeg2text_jax import Seq2SeqModel, load_pretrained
      >>> stored, _ = load_pretrained("export")
      >>> model = Seq2SeqModel(stored.spec, stored.eeg, dtype="bfloat16")
      >>> params = model.init(jax.random.key(0))
      >>> recordings = {"features": jnp.zeros((2, 4, 6)), "mask": jnp.ones((2, 4), bool)}
      >>> hidden, mask = model.encode(params, recordings)
      >>> hidden.shape[:2], mask.shape
      ((2, 4), (2, 4))
    """

    spec: Seq2SeqSpec
    eeg: EEGSpec | None = None  # None: a text model, fed `input_ids` or `inputs_embeds`
    dtype: str = "float32"  # compute dtype
    remat: bool = False  # recompute each layer in the backward pass instead of storing its activations
    keep: Keep = "products"  # remat policy: the activations that are stored
    unroll: bool = False  # unroll the loop over layers in `forward` and `encode`
    shared_frozen: bool = False  # the language model is frozen, and one copy serves all arms, see `divide`

    @property
    def start_token(self) -> int:
        """The decoder's first input token."""
        return self.spec.start_token

    @property
    def pad_token(self) -> int:
        """The padding token of labels."""
        return self.spec.pad_token

    @property
    def eos_token(self) -> int:
        """The token that ends a target."""
        return self.spec.eos_token

    def forward(
        self,
        params: Params,
        inputs: Inputs,
        decoder_input_ids: jax.Array,
        decoder_mask: jax.Array | None = None,
        *,
        dropout_key: jax.Array | None = None,
        read_out: ReadOut = logits_of,
    ) -> Any:
        """Return float32 logits `[B, T, V]` of all target positions at once.

        `inputs` has one of `features [B, W, F]`, `inputs_embeds [B, S, D]` or `input_ids [B, S]`, and `mask` bool;
        `decoder_input_ids [B, T]` are the right-shifted labels. A custom `read_out` gets the last hidden states
        `[B, T, D]` and the output head's table `[V, D]`, bias `[V]` and cap; its result is returned instead of logits.
        """
        encode_key, decode_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        network, options = self._bind(params, layers=not self.remat), self._options
        hidden, mask = network.encode(inputs, encode_key, **options)
        options |= {"read_out": read_out, "dropout_key": decode_key}
        return network.backbone.decode(decoder_input_ids, decoder_mask, hidden, mask, **options)

    def encode(
        self, params: Params, inputs: Inputs, *, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Return the encoder output `[B, S, D]` and its mask `[B, S]`; S counts EEG positions and prompt tokens."""
        return self._bind(params, layers=not self.remat).encode(inputs, dropout_key, **self._options)

    def embed(self, params: Params, ids: jax.Array) -> jax.Array:
        """Return the embeddings `[B, S, D]` of token ids `[B, S]`; `encode` takes them in place of the ids."""
        return self._bind(params).backbone.embed(ids)

    def decode(
        self,
        params: Params,
        ids: jax.Array,
        hidden: jax.Array,
        mask: jax.Array,
        *,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Return float32 logits `[B, T, V]` from decoder inputs `[B, T]` and the output and mask of `encode`."""
        decode = self._bind(params).backbone.decode
        return decode(ids, None, hidden, mask, dropout_key=dropout_key, **self._options)

    def init_cache(
        self, params: Params, hidden: jax.Array, mask: jax.Array, beams: int, max_length: int, dtype: str = ""
    ) -> Cache:
        """Make a KV cache for `B * beams` sequences of at most `max_length` tokens, from the output of `encode`.

        Keys and values are stored in `dtype`, by default the compute dtype.
        """
        cache = self._bind(params, biases=False).backbone.decoder.init_cache(hidden, mask, beams, max_length)
        return cache._replace(layers=jax.tree.map(lambda x: x.astype(dtype or x.dtype), cache.layers))

    def cache_lengths(self, beams: int, max_length: int, platform: str | None) -> tuple[int, ...]:
        """Return the successive sizes of the cache, in positions, during a beam search on a platform.

        A decoder-only model's cache has room for all positions from the beginning.
        """
        return (max_length,) if self.spec.encoder is None else lengths_of(beams, max_length, platform)

    def decode_step(self, params: Params | Rounded) -> Step:
        """Return the decoder step (tokens int32 `[B*K]`, position, cache) -> (float32 logits `[B*K, V]`, new cache).

        Call this outside of the decoding loop: it prepares the weights for all steps.
        """
        backbone = self._bind(params, biases=False).backbone
        return backbone.decode_step(params.weights.table if isinstance(params, Rounded) else None)

    def rounded(self, params: Params) -> Rounded:
        """Round the matrices of the language model to int8, with one scale per output, once for many batches.

        Pass the result in place of `params` to `encode`, `init_cache` and `decode_step`: they then also round the
        activations that enter a product, with one scale per row. Or pass it to `generate` with `weights_dtype="int8"`,
        which otherwise rounds the matrices again for each batch. The brain encoder is not rounded.
        """
        return Rounded(params, _rounded_weights(self, params))

    def shift_right(self, labels: jax.Array) -> jax.Array:
        """Return decoder inputs `[B, T]`: the start token, then all labels but the last one; -100 becomes padding."""
        start = jnp.full_like(labels[:, :1], self.start_token)
        shifted = jnp.concatenate([start, labels[:, :-1]], axis=1)
        return jnp.where(shifted == -100, self.pad_token, shifted)

    @property
    def _options(self) -> dict[str, Any]:
        return {"remat": self.keep if self.remat else None, "unroll": self.unroll}

    def _make(self) -> Callable[[nnx.Rngs], EEG2Text]:
        return functools.partial(EEG2Text, self.spec, self.eeg, jnp.dtype(self.dtype))

    def _bind(self, params: Params | Rounded, *, layers: bool = True, biases: bool = True) -> EEG2Text:
        """Return the network with parameters in the compute dtype, see `in_compute_dtype`.

        With `remat`, layers are cast when they are computed, so `forward` and `encode` leave them as they are.
        """
        if isinstance(params, Rounded):
            network = self._bind(params.params, layers=layers, biases=biases)
            if params.weights.encoder is not None:
                network.backbone.encoder.layers = params.weights.encoder
            network.backbone.decoder.layers = params.weights.decoder
            return network
        return self._module(in_compute_dtype(joined(params), jnp.dtype(self.dtype), layers=layers, biases=biases))


@functools.partial(jax.jit, static_argnums=0)
def _rounded_weights(model: Seq2SeqModel, params: Params) -> Int8Weights:
    backbone = model._module(joined(params)).backbone
    encoder = backbone.encoder.rounded_layers() if isinstance(backbone, EncoderDecoder) else None
    return Int8Weights(encoder, backbone.decoder.rounded_layers(), backbone.int8_table())


def divide(params: Params) -> Divided:
    """Return parameters in two parts: those of brain encoder, bridge and adapters, and those of the language model."""
    return divided(params, lambda path, _: not {"eeg", "lora_a", "lora_b"}.isdisjoint(path))


def frozen_shapes(model: Seq2SeqModel, dtype: str) -> Params:
    """Return the shapes and dtypes in which the parameters of the frozen language model are stored.

    `dtype` is `model.frozen_dtype`. With "int8", only kernels of dense layers are int8; their scales are float32, and
    the other parameters bfloat16.
    """
    floats = jnp.dtype("bfloat16" if dtype == "int8" else dtype)

    def stored(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        if leaf.dtype == jnp.int8 or path[-1].key == "kernel_scale":
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, floats)

    return jax.tree_util.tree_map_with_path(stored, divide(model.shapes)[1])
