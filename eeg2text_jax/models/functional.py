"""A brain encoder and a language model as pure functions (`Seq2SeqModel`), the contrastive model, and their FLOPs."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from eeg2text_jax.base.devices.arms import Divided, divided, joined
from eeg2text_jax.models._stack import Layer
from eeg2text_jax.models.attention import Cache, lengths_of, steps_of
from eeg2text_jax.models.brain import (
    ReconstructionModel,
    encoder_width,
    hidden_width,
    make_encoder,
    series_spec,
    snapshot_flops,
    stack_spec,
)
from eeg2text_jax.models.language_model import CausalLM, EncoderDecoder, Int8Table, ReadOut, Step, StepTable, logits_of
from eeg2text_jax.models.nnx_bridge import Keep, Params, PureModel, in_compute_dtype, map_layers
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec, StackSpec
from eeg2text_jax.models.waves import NEIGHBORS, TAPS, count_patches, positions_of, shorter

Inputs = Mapping[str, Array]


class SearchWeights(NamedTuple):
    """A language model's stacked layers `[L, ...]` and output head, in compute dtype or int8."""

    encoder: Layer | None  # None: a decoder-only model
    decoder: Layer
    table: Array | StepTable | Int8Table


class Prepared(NamedTuple):
    """Parameters of a trained model, and what replaces them in a search."""

    params: Params
    weights: SearchWeights

    @property
    def in_int8(self) -> bool:
        return isinstance(self.weights.table, Int8Table)


class EEG2Text(nnx.Module):
    """A language model, `backbone`, behind a brain encoder, `eeg`, unless that is None."""

    def __init__(self, spec: Seq2SeqSpec, eeg: EEGSpec | None, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.backbone = (CausalLM if spec.encoder is None else EncoderDecoder)(spec, dtype, rngs)
        if eeg is not None:
            self.eeg = make_encoder(eeg, spec.d_model, dtype, rngs)
        self.prompt = (eeg.prompt, eeg.prompt_after) if eeg is not None else ((), ())

    def encode(self, inputs: Inputs, dropout_key: Array | None, **options) -> tuple[Array, Array]:
        """Return the encoder output `[B, S, D]` and its mask `[B, S]`; S counts EEG positions and prompt tokens.

        `inputs` has `mask` and one of `features` (words `[B, W, F]` or volumes `[B, W, X, Y, Z]`),
        `inputs_embeds [B, S, D]` or `input_ids [B, S]`; optionally prompts of each sample, `before` and `after`, int32
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

    def _with_prompt(self, x: Array, mask: Array, inputs: Inputs) -> tuple[Array, Array]:
        """Put the embeddings of the prompt's two parts before and after `x [B, W, D]`; return it with its mask."""
        around = []
        for name, constant in zip(("before", "after"), self.prompt, strict=True):
            ids = jnp.broadcast_to(jnp.asarray(constant, jnp.int32)[None], (x.shape[0], len(constant)))
            around.append(inputs.get(name, ids))
        if not any(ids.shape[1] for ids in around):
            return x, mask
        before, after = (self.backbone.embed(ids).astype(x.dtype) for ids in around)
        real = [ids >= 0 for ids in around]
        return jnp.concatenate([before, x, after], axis=1), jnp.concatenate([real[0], mask, real[1]], axis=1)


class _TokenModel(PureModel):
    """A model with the token ids of the language model in `spec`."""

    spec: Seq2SeqSpec

    @property
    def start_token(self) -> int:
        return self.spec.start_token

    @property
    def pad_token(self) -> int:
        return self.spec.pad_token

    @property
    def eos_token(self) -> int:
        return self.spec.eos_token

    @property
    def decoder_prompt(self) -> tuple[int, ...]:
        """Tokens that the decoder is given after its start token."""
        return self.spec.decoder_prompt


@dataclasses.dataclass(frozen=True)
class Seq2SeqModel(_TokenModel):
    """A model as pure functions of its parameters; hashable, so it can be a static argument of `jax.jit`.

    Parameters are a nested dict of arrays, float32 but for frozen ones; axis 0 of a stack is the layer. The functions
    may be jitted, differentiated and mapped over stacked parameters. There is no dropout with `dropout_key=None`.

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
    remat: bool = False  # recompute each layer in the backward pass, do not store its activations
    keep: Keep = "products"  # the activations that remat stores
    unroll: bool = False  # unroll the loop over layers in `forward` and `encode`
    shared_frozen: bool = False  # the language model is frozen, and one copy serves all arms, see `divide`
    divided: bool = False  # `forward` of a decoder-only model multiplies by parts of its weights, see `divided_weights`

    def forward(
        self,
        params: Params,
        inputs: Inputs,
        decoder_input_ids: Array,
        decoder_mask: Array | None = None,
        *,
        dropout_key: Array | None = None,
        read_out: ReadOut = logits_of,
    ) -> Any:
        """Return float32 logits `[B, T, V]` of all target positions at once.

        `inputs` has `mask`, bool, and one of `features [B, W, F]`, `inputs_embeds [B, S, D]` or `input_ids [B, S]`;
        `decoder_input_ids [B, T]` are right-shifted labels. What another `read_out` returns, given the last hidden
        states `[B, T, D]` and the output head's table `[V, D]`, bias `[V]` and cap, replaces the logits.
        """
        encode_key, decode_key = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        network, options = self._bind(params, layers=not self.remat), self._options
        hidden, mask = network.encode(inputs, encode_key, **options)
        options |= {"read_out": read_out, "dropout_key": decode_key} | ({"divided": True} if self.divided else {})
        return network.backbone.decode(decoder_input_ids, decoder_mask, hidden, mask, **options)

    def encode(self, params: Params, inputs: Inputs, *, dropout_key: Array | None = None) -> tuple[Array, Array]:
        """Return the encoder output `[B, S, D]` of `inputs`, see `forward`, and its mask `[B, S]`."""
        return self._bind(params, layers=not self.remat).encode(inputs, dropout_key, **self._options)

    def embed(self, params: Params, ids: Array) -> Array:
        """Return the embeddings `[B, S, D]` of token ids `[B, S]`, which `encode` takes, too."""
        return self._bind(params).backbone.embed(ids)

    def decode(
        self, params: Params, ids: Array, hidden: Array, mask: Array, *, dropout_key: Array | None = None
    ) -> Array:
        """Return float32 logits `[B, T, V]` from decoder inputs `[B, T]` and the output and mask of `encode`."""
        decode = self._bind(params).backbone.decode
        return decode(ids, None, hidden, mask, dropout_key=dropout_key, **self._options)

    def init_cache(
        self, params: Params, hidden: Array, mask: Array, beams: int, max_length: int, dtype: str = ""
    ) -> Cache:
        """Make a KV cache in `dtype` for `B * beams` sequences of `max_length` tokens from what `encode` returned."""
        cache = self._bind(params, biases=False).backbone.decoder.init_cache(hidden, mask, beams, max_length)
        return cache._replace(layers=jax.tree.map(lambda x: x.astype(dtype or x.dtype), cache.layers))

    def cache_lengths(self, beams: int, max_length: int, platform: str | None) -> tuple[int, ...]:
        """Return the successive sizes of the cache in a beam search, in positions, see `lengths_of`."""
        return (max_length,) if self.spec.encoder is None else lengths_of(beams, max_length, platform)

    def decode_step(self, params: Params | Prepared) -> Step:
        """Return the step (tokens int32 `[B*K]`, position, cache) -> (float32 logits `[B*K, V]`, new cache).

        It prepares weights: call it outside of the loop.
        """
        backbone = self._bind(params, biases=False).backbone
        return backbone.decode_step(params.weights.table if isinstance(params, Prepared) else None)

    def prepared(self, params: Params, weights_dtype: str = "") -> Prepared:
        """Cast the language model's weights to the compute dtype, once for many batches.

        `encode`, `init_cache`, `decode_step` and `generate` take the result for `params`. With `weights_dtype="int8"`,
        matrices are rounded to int8, with a scale per output, and so are activations that enter a product, with a scale
        per row; the brain encoder stays as it is.
        """
        return Prepared(params, _search_weights(self, params, weights_dtype))

    def shift_right(self, labels: Array) -> Array:
        """Return decoder inputs `[B, T]`: the start token, then all labels but the last; -100 becomes padding."""
        start = jnp.full_like(labels[:, :1], self.start_token)
        shifted = jnp.concatenate([start, labels[:, :-1]], axis=1)
        return jnp.where(shifted == -100, self.pad_token, shifted)

    @property
    def _options(self) -> dict[str, Any]:
        return {"remat": self.keep if self.remat else None, "unroll": self.unroll}

    def _make(self) -> Callable[[nnx.Rngs], EEG2Text]:
        return functools.partial(EEG2Text, self.spec, self.eeg, jnp.dtype(self.dtype))

    def _bind(self, params: Params | Prepared, *, layers: bool = True, biases: bool = True) -> EEG2Text:
        """Return the network with parameters in the compute dtype, see `in_compute_dtype`."""
        if isinstance(params, Prepared):
            network = self._bind(params.params, layers=layers, biases=biases)
            if params.weights.encoder is not None:
                network.backbone.encoder.layers = params.weights.encoder
            network.backbone.decoder.layers = params.weights.decoder
            return network
        return self._module(in_compute_dtype(joined(params), jnp.dtype(self.dtype), layers=layers, biases=biases))


@functools.partial(jax.jit, static_argnums=(0, 2))
def _search_weights(model: Seq2SeqModel, params: Params, weights_dtype: str) -> SearchWeights:
    int8, encoder = weights_dtype == "int8", None
    backbone = (model._module(joined(params)) if int8 else model._bind(params, biases=False)).backbone
    if int8:
        backbone.decoder.layers = map_layers(backbone.decoder.layers, Layer.round_to_int8)
    if isinstance(backbone, EncoderDecoder):
        layers = (backbone if int8 else model._bind(params).backbone).encoder.layers
        encoder = map_layers(layers, Layer.round_to_int8) if int8 else layers
    return SearchWeights(encoder, backbone.decoder.layers, backbone.step_table(int8=int8))


def divide(params: Params) -> Divided:
    """Return the parameters of brain encoder, bridge and adapters, and those of the language model."""
    return divided(params, lambda path, _: not {"eeg", "lora_a", "lora_b"}.isdisjoint(path))


def frozen_shapes(model: Seq2SeqModel, dtype: str) -> Params:
    """Return shapes and dtypes of the frozen language model, stored as `model.frozen_dtype` says.

    With "int8", kernels of dense layers are int8, their scales float32, other parameters bfloat16.
    """
    floats = jnp.dtype("bfloat16" if dtype == "int8" else dtype)

    def stored(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        if leaf.dtype == jnp.int8 or path[-1].key == "kernel_scale":
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, floats)

    return jax.tree_util.tree_map_with_path(stored, divide(model.shapes)[1])


# The contrastive model: its brain encoder learns a frozen text encoder's embedding of the sentence.

LENGTH_FEATURES = 32  # sines and cosines of the number of words
LONGEST_WAVE = 100.0  # longest wavelength / 2 pi, so wavelengths are from 6 to 600 words
HIGHEST_SCALE = math.log(100.0)  # largest log(1 / temperature) that is learned, as in CLIP (Radford et al. 2021)


class BrainTower(nnx.Module):
    """Brain encoder, mean over words plus features of their number, and a dense layer to the text embeddings' width E.

    Models of EEG and of controls must all know the number of words, or comparing them is unfair. The mean alone does
    not tell it: that of constant features does not depend on it, that of noise only shrinks with it.
    """

    def __init__(self, model: "ContrastiveModel", dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.eeg = make_encoder(model.eeg, model.width, dtype, rngs)
        self.length = nnx.Linear(LENGTH_FEATURES, model.width, dtype=dtype, rngs=rngs)
        self.output = nnx.Linear(model.width, model.outputs, dtype=dtype, rngs=rngs)
        if model.learn_temperature:
            self.log_scale = nnx.Param(jnp.full((1,), -math.log(model.temperature), jnp.float32))

    def __call__(self, inputs: Inputs, dropout_key: Array | None, **options) -> Array:
        """Return unit-norm embeddings, float32 `[B, E]`, of `features [B, W, F]` and `mask [B, W]`."""
        mask = inputs["mask"]
        with jax.named_scope("eeg_encoder"):
            words, mask = self.eeg(inputs["features"], mask, dropout_key=dropout_key, **options)
            words = words.astype(jnp.float32)
        real = mask[..., None].astype(jnp.float32)
        count = jnp.sum(real, axis=1)  # --> [B, 1]
        pooled = jnp.sum(words * real, axis=1) / jnp.maximum(count, 1.0)
        pooled = pooled + self.length(length_features(count)).astype(jnp.float32)
        return unit_length(self.output(pooled).astype(jnp.float32))


def length_features(count: Array) -> Array:
    """Return sines and cosines `[B, LENGTH_FEATURES]` of numbers of words, float32 `[B, 1]`."""
    waves = LENGTH_FEATURES // 2
    rates = LONGEST_WAVE ** (-jnp.arange(waves, dtype=jnp.float32) / (waves - 1))
    angles = count * rates[None]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def unit_length(x: Array) -> Array:
    """Divide vectors `[..., E]` by their length; a zero vector stays zero, with a finite gradient."""
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x, axis=-1, keepdims=True), 1e-12))


@dataclasses.dataclass(frozen=True)
class ContrastiveModel(_TokenModel):
    """The contrastive model as pure functions of its parameters."""

    base: Seq2SeqModel  # generative model of the same configuration; its brain encoder and token ids are used
    width: int  # width of the brain encoder's output
    outputs: int  # E, width of the text embeddings
    temperature: float  # divisor of cosines; its initial value if it is learned
    learn_temperature: bool

    @property
    def spec(self) -> Seq2SeqSpec:  # type: ignore[override]  # it is not assigned
        return self.base.spec

    @property
    def eeg(self) -> EEGSpec:
        return self.base.eeg

    def embed(self, params: Params, inputs: Inputs, *, dropout_key: Array | None = None) -> Array:
        """Return unit-norm embeddings, float32 `[B, E]`, of `features [B, W, F]` and `mask [B, W]`."""
        params = in_compute_dtype(params, jnp.dtype(self.base.dtype), layers=not self.base.remat)
        return self._module(params)(inputs, dropout_key, **self.base._options)

    def scale(self, params: Params) -> Array:
        """Return 1 / temperature, the factor of cosines: a float32 scalar, at most 100 if it is learned."""
        if not self.learn_temperature:
            return jnp.float32(1.0 / self.temperature)
        return jnp.exp(jnp.minimum(params["log_scale"][0], jnp.float32(HIGHEST_SCALE)))

    def _make(self) -> functools.partial:
        return functools.partial(BrainTower, self, jnp.dtype(self.base.dtype))


# Floating-point operations (FLOPs) by a model's description, as XLA miscounts scanned and recomputed layers. Only
# matrix products count: two operations per multiply-add, padding included.

AnyModel = Seq2SeqModel | ContrastiveModel | ReconstructionModel


def training_flops(model: AnyModel, batch: int, words: int, tokens: int) -> float:
    """Return the FLOPs of a training step of one model that its gradient needs.

    A product costs a forward pass, and one for the gradient of each factor; frozen weights have none.
    """
    if isinstance(model, ReconstructionModel):
        series = stack_flops(series_spec(model.eeg), words, words, 0) if model.of == "series" else 0.0
        return 3.0 * batch * (2.0 * words * snapshot_flops(model.eeg) + series)
    if isinstance(model, ContrastiveModel):
        # The encoder sees one recording; then come its cosines with all texts of the batch.
        encoder = brain_flops(model.eeg, words, model.width)
        dense = 2.0 * model.width * (LENGTH_FEATURES + model.outputs)
        return 3.0 * batch * (encoder + dense + 2.0 * batch * model.outputs)
    source, decoder, encoder = source_length(model, words), model.spec.decoder, model.spec.encoder
    length, context = (source + tokens - 1, 0) if decoder.alone else (tokens, source)
    whole = encode_flops(model, words) + stack_flops(decoder, length, length, context) + tokens * head_flops(model)
    if not model.shared_frozen:
        return 3.0 * batch * whole
    trained = brain_flops(model.eeg, words, model.spec.d_model) if model.eeg else 0.0
    for stack, positions, cross in ((decoder, length, context), *([(encoder, source, 0)] if encoder else [])):
        trained += stack.layers * 4.0 * positions * (positions + cross) * stack.inner
        trained += 3.0 * adapter_flops(stack, positions)
    return batch * (2.0 * whole + trained)


def adapter_flops(stack: StackSpec, positions: int) -> float:
    """Return the FLOPs of a stack's adapters, as if cross-attention read the stack's own positions."""
    if stack.lora is None:
        return 0.0
    twice = 2 if stack.decoder and not stack.alone else 1  # cross-attention has adapters of its own
    kv = stack.head_dim * (stack.kv_heads or stack.heads)
    ends = dict.fromkeys(("query", "out"), twice * (stack.width + stack.inner))
    ends |= dict.fromkeys(("key", "value"), twice * (stack.width + kv))
    ends |= dict.fromkeys(("gate", "inner", "outer"), stack.width + stack.ffn)
    each = sum(ends[name] for name in stack.lora.targets if name != "gate" or stack.gated)
    return stack.layers * 2.0 * positions * stack.lora.rank * each


def search_flops(
    model: Seq2SeqModel, batch: int, words: int, length: int, beams: int, sizes: Sequence[int] = ()
) -> float:
    """Return the FLOPs of a beam search by one model that writes `length` tokens for each sentence of a batch.

    Every beam attends to the entries of all beams of its sentence in a cache of the successive `sizes` in positions; by
    default it has `length` from the beginning.
    """
    source, stack = source_length(model, words), model.spec.decoder
    cross = stack.layers * 4.0 * source * stack.width * stack.inner
    if stack.alone:  # a decoder-only model computes whole layers for the prompt
        cross = stack_flops(stack, source, source, 0)
    sizes = sizes or (length,)
    each = zip(steps_of(sizes, None), sizes, strict=True)
    steps = sum(number * step_flops(model, batch, words, size, beams) for number, size in each)
    return batch * (encode_flops(model, words) + cross) + steps


def step_flops(model: Seq2SeqModel, batch: int, words: int, length: int, beams: int) -> float:
    """Return the FLOPs of one step of a beam search: a token for every beam of every sentence."""
    source = source_length(model, words)
    if model.spec.decoder.alone:
        length, source = length + -(-source // beams), 0
    step = stack_flops(model.spec.decoder, 1, length * beams, source, project_context=False) + head_flops(model)
    return batch * beams * step


def encode_flops(model: Seq2SeqModel, words: int) -> float:
    """Return the FLOPs of one sentence through brain encoder, bridge and backbone encoder."""
    source, encoder, total = source_length(model, words), model.spec.encoder, 0.0
    if encoder is not None:
        if model.spec.stem:
            total += 2.0 * source * TAPS * encoder.width**2
        total += stack_flops(encoder, source, source, 0)
        if encoder.width != model.spec.decoder.width:
            total += 2.0 * source * encoder.width * model.spec.decoder.width
    return total if model.eeg is None else total + brain_flops(model.eeg, words, model.spec.d_model)


def brain_flops(eeg: EEGSpec, words: int, d_model: int) -> float:
    """Return the FLOPs of one sentence through brain encoder and bridge."""
    if eeg.kind == "lstm":
        hidden = hidden_width(eeg)
        inputs = eeg.features + max(eeg.layers - 1, 0) * 2 * hidden
        return 16.0 * words * hidden * (inputs + eeg.layers * hidden) + 4.0 * words * hidden * d_model
    if eeg.kind == "unicorn":
        series = stack_flops(series_spec(eeg), words, words, 0)
        return words * (snapshot_flops(eeg) + 2.0 * eeg.width * d_model) + series
    if eeg.waves is not None:
        return wave_flops(eeg, words, d_model)
    width = encoder_width(eeg)
    projection = 2.0 * words * eeg.features * width if eeg.width else 0.0
    return projection + stack_flops(stack_spec(eeg), words, words, 0) + 2.0 * words * width * d_model


def wave_flops(eeg: EEGSpec, samples: int, d_model: int) -> float:
    waves, positions, stack = eeg.waves, positions_of(eeg, samples), eeg.waves.stack
    total = 0.0 if eeg.bridge == "none" else 2.0 * positions * waves.width() * d_model
    if waves.strides:
        n_in, length = eeg.features, samples
        for stride in waves.strides:
            length = shorter(length, (stride,))
            total, n_in = total + 2.0 * length * TAPS * n_in * stack.width, stack.width
        return total + stack_flops(stack, length, length, 0)
    times, channels = count_patches(waves, samples), len(waves.used)
    tokens, n_in, length = times * channels, 1, waves.patch
    for each in waves.convolutions:
        length = (length + 2 * each.padding - each.taps) // each.stride + 1
        total, n_in = total + 2.0 * tokens * length * each.taps * n_in * each.filters, each.filters
    if eeg.kind == "cbramod":
        inner = 2.0 * tokens * stack.width * (2 * stack.width + 2 * stack.ffn + times + channels)
        dense = 2.0 * tokens * stack.width * (waves.patch // 2 + 1 + NEIGHBORS[1] * channels + waves.outputs)
        return total + stack.layers * inner + dense
    if eeg.kind == "reve":
        total += 2.0 * tokens * waves.patch * stack.width
    tokens += eeg.kind == "labram"
    return total + stack_flops(stack, tokens, tokens, 0)


def stack_flops(stack: StackSpec, queries: int, keys: int, context: int, *, project_context: bool = True) -> float:
    """Return the FLOPs of a stack for `queries` positions, which attend to `keys`, in cross-attention to `context`.

    The projections of `context` to keys and values count if `project_context`.
    """
    inner = stack.inner
    shared = (stack.kv_heads or stack.heads) / stack.heads  # heads of keys and values per query head
    self_attention = 4.0 * (1 + shared) * queries * stack.width * inner + 4.0 * queries * keys * inner
    feed_forward = (6.0 if stack.gated else 4.0) * queries * stack.width * stack.ffn
    cross = 0.0
    if stack.decoder and not stack.alone:
        cross = 4.0 * queries * stack.width * inner + 4.0 * queries * context * inner
        if project_context:
            cross += 4.0 * context * stack.width * inner
    return stack.layers * (self_attention + feed_forward + cross)


def head_flops(model: Seq2SeqModel) -> float:
    """Return the FLOPs of the output head for one position."""
    width = model.spec.decoder.width
    return 2.0 * width * (model.spec.vocab_size + (width if model.spec.head_transform else 0))


def source_length(model: Seq2SeqModel, words: int) -> int:
    """Return the length of the encoder's input, after the stem: prompt and positions of `words` words or samples."""
    eeg = model.eeg
    length = positions_of(eeg, words) + len(eeg.prompt) + len(eeg.prompt_after) if eeg else words
    return shorter(length, (2,)) if model.spec.stem else length
