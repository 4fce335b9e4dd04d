"""Parts of a transformer layer: dropout, norms, dense layers, feed-forward networks, position embeddings."""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint

from eeg2text_jax.base.devices.mesh import (
    data_shards,
    gathered,
    replicate,
    shard_columns,
    shard_rows,
    weights_are_divided,
)
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.spec import LoraSpec, StackSpec

MANY_ROWS = 4096  # positions on a device from which a batch is called large


def row_major(x: Array) -> Array:
    """Give rows `[R, D]` of a large batch the row-major layout on a TPU, which XLA would not choose."""
    if x.shape[0] // data_shards() < MANY_ROWS:
        return x
    layout = Layout(major_to_minor=tuple(range(x.ndim)))
    return jax.lax.platform_dependent(x, tpu=lambda x: with_layout_constraint(x, layout), default=lambda x: x)


def column_sums(x: Array, stored: bool = False) -> Array:
    """Return the sums of `[..., D]` over all but the last axis, float32 `[D]`: the gradient of a bias.

    On GPUs, and on TPUs for small batches or rows that are `stored` before, it is a matrix product with ones,
    accumulated in float32. On a v5e (BART-large, by the compiler's estimate) a product takes 3 us and a reduction 17
    with batch 32; 12 and 107 with batch 128. But with batch 128, XLA fuses a reduction with the computation of rows
    that are not stored: with products alone a step takes 218 ms instead of 212. On an H100, without merged products
    (see `compile_step`), batch 32 takes 30.0 ms instead of 35.3 with reductions, batch 128 75.2 instead of 75.6.
    """

    def product_with_ones(rows: Array) -> Array:
        ones = jnp.ones((8, len(rows)), rows.dtype)  # XLA would turn a product with one row into a reduction
        exact = jax.lax.Precision.HIGHEST if rows.dtype == jnp.float32 else None
        return jnp.matmul(ones, rows, precision=exact, preferred_element_type=jnp.float32)[0]

    def reduction(rows: Array) -> Array:
        return rows.sum(0, dtype=jnp.float32)

    rows = x.reshape(-1, x.shape[-1])
    of_tpu = reduction if len(rows) // data_shards() >= MANY_ROWS and not stored else product_with_ones
    return jax.lax.platform_dependent(rows, tpu=of_tpu, cuda=product_with_ones, default=reduction)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def affine(x: Array, scale: Array | None, shift: Array | None, dtype: jnp.dtype) -> Array:
    """Return `x [..., D] * scale + shift` in `dtype`, without a scale that of `x`; scale and shift `[D]` or None.

    The gradients of scale and shift are `column_sums` of products in `dtype`.
    """
    ones = (1,) * (x.ndim - 1)
    y = x if scale is None else x * scale.reshape(*ones, -1)
    return (y if shift is None else y + shift.reshape(*ones, -1)).astype(dtype)


def _affine_forward(x, scale, shift, dtype):
    return affine(x, scale, shift, dtype), (None if scale is None else x, scale, shift)


def _affine_backward(dtype, residuals, gradient):
    x, scale, shift = residuals
    to_shift = None if shift is None else column_sums(gradient).astype(shift.dtype)
    if scale is None:
        return gradient, None, to_shift
    wide = gradient.astype(x.dtype)
    to_scale = column_sums((wide * x).astype(dtype)).astype(scale.dtype)
    return wide * scale.reshape(*(1,) * (x.ndim - 1), -1), to_scale, to_shift


affine.defvjp(_affine_forward, _affine_backward)


def gelu(x: Array) -> Array:
    """Return GELU by erf, in float32; `jax.nn.gelu` calls erfc, which takes a TPU as long as a matrix product."""
    wide = x.astype(jnp.float32)
    return (0.5 * wide * (1.0 + jax.lax.erf(wide * math.sqrt(0.5)))).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_new": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
    "tanh": jnp.tanh,
}

SITES = 6  # masks that one dropout key draws, each with a number `site`
PRODUCT = "product"  # name under which the remat policy stores results of dense layers


def product(x: Array) -> Array:
    """Name `x`, the result of a dense layer, for the remat policy."""
    return checkpoint_name(x, PRODUCT)


def dropout(x: Array, rate: float, key: Array | None, site: int = 0) -> Array:
    """Zero a fraction `rate` of `x` (in steps of 1/65536) and rescale the rest; `key=None` returns `x`.

    Each `site` draws another mask from one key.
    """
    return drop(x, draw_kept(x.shape, rate, key, site), rate)


def draw_kept(shape: tuple[int, ...], rate: float, key: Array | None, site: int = 0) -> Array | None:
    """Draw the boolean mask of elements that `dropout` keeps; None if it keeps all.

    A TPU compares 16 random bits in place; it would copy 32 to another layout first (0.05 ms for BART-large, batch 32,
    by the compiler's estimate). Without the barrier, XLA may pack the results of the comparison, 32 per word, and
    unpack them where they are used (0.035 ms for an attention of T5-large).
    """
    if key is None or rate == 0.0:
        return None
    least = np.uint16(min(round(rate * 2**16), 2**16 - 1))

    def from_bits(key: Array) -> Array:
        bits = draw_per_key(functools.partial(jax.random.bits, shape=shape, dtype=jnp.uint16), key)
        return (row_major(bits) if len(shape) == 2 else jax.lax.optimization_barrier(bits)) >= least

    def packed(key: Array) -> Array:
        octets = draw_per_key(functools.partial(draw_packed, math.prod(shape), least), key)
        each = octets[None] >> jnp.arange(8, dtype=jnp.uint8)[:, None] & np.uint8(1)
        return each.reshape(-1)[: math.prod(shape)].reshape(shape) != 0

    key = site_key(key, site)
    if "rbg" not in str(jax.random.key_impl(key)):
        return from_bits(key)
    return jax.lax.platform_dependent(key, cuda=packed, default=from_bits)


def site_key(key: Array, site: int) -> Array:
    """Return the key of a site from one key, or from the keys `[SITES]` of all sites."""
    return key[site] if key.ndim else jax.random.fold_in(key, site)


def draw_packed(count: int, least: np.uint16, key: Array) -> Array:
    """Draw 16 bits for each of `count` elements, and return eight results of `bits >= least` per byte.

    Element i is bit `i // n` of byte `i % n` in n bytes. On GPUs with rbg keys, XLA then writes neither the bits, nor
    the four results of a Philox counter side by side, which takes six times as long as computing them.
    """
    words = jax.random.bits(key, (-(-count // 8), 4), jnp.uint32)
    halves = [half.astype(jnp.uint16) for i in range(4) for half in (words[:, i], words[:, i] >> 16)]
    flags = [(half >= least).astype(jnp.uint8) << i for i, half in enumerate(halves)]
    return functools.reduce(jnp.bitwise_or, flags)


def draw_per_key(draw: Callable[[Array], Array], key: Array) -> Array:
    """Return `draw(key)`, under `vmap` once for each key; JAX would draw all from the first of rbg keys."""
    impl = str(jax.random.key_impl(key))
    if "rbg" not in impl:
        return draw(key)

    @jax.custom_batching.custom_vmap
    def of(data: Array) -> Array:
        return draw(jax.random.wrap_key_data(data, impl=impl))

    @of.def_vmap
    def of_each(size: int, _: list[bool], data: Array) -> tuple[Array, bool]:
        return jnp.stack([of(data[i]) for i in range(size)]), True

    return of(jax.random.key_data(key))


def drop(x: Array, keep_mask: Array | None, rate: float) -> Array:
    """Zero `x` where `keep_mask` is False and rescale the rest for the dropout rate; None returns `x`."""
    return x if keep_mask is None else jnp.where(keep_mask, x * (1.0 / (1.0 - rate)), jnp.zeros_like(x))


def at_padding(mask: Array, ndim: int) -> Array:
    """Reshape a mask `[B, W]` to `[B, W, 1, ...]` with `ndim` axes."""
    return mask.reshape(*mask.shape, *(1,) * (ndim - mask.ndim))


def zero_at_padding(features: Array, mask: Array, dtype: jnp.dtype) -> Array:
    """Return features `[B, W, ...]` in `dtype`, with 0 (even for infinities) where the mask `[B, W]` is False."""
    return jnp.where(at_padding(mask, features.ndim), features, 0.0).astype(dtype)


class Norm(nnx.Module):
    """Layer norm or root-mean-square norm, with statistics in float32; `nnx.LayerNorm` promotes dtypes."""

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, width: int = 0) -> None:
        width = width or spec.width
        self.scale = nnx.Param(jnp.full((width,), 1.0 - spec.norm_offset, jnp.float32))
        if spec.norm == "layer":
            self.bias = nnx.Param(jnp.zeros((width,), jnp.float32))
        self.centered, self.eps, self.dtype = spec.norm == "layer", spec.norm_eps, dtype
        self.offset = spec.norm_offset

    def __call__(self, x: Array) -> Array:
        """Normalize the last axis; `product` marks a layer norm's mean and mean square for storage."""
        x = x.astype(jnp.float32)
        power = jnp.square(x).mean(axis=-1)
        if self.centered:  # this way, mean and mean square are computed in one pass over x
            mean, power = product(x.mean(axis=-1)), product(power)
            x, power = x - mean[..., None], jnp.maximum(power - jnp.square(mean), 0.0)
        x = x * jax.lax.rsqrt(power + self.eps)[..., None]
        scale = self.scale[...].astype(jnp.float32)
        shift = self.bias[...].astype(jnp.float32) if self.centered else None
        return affine(x, scale + self.offset if self.offset else scale, shift, self.dtype)


def int8_of(weights: Array, axis: int) -> tuple[Array, Array]:
    """Round weights to int8, the largest of each slice along `axis` to 127.

    Return the values, and their float32 scales, without that axis: `values * scale` are the rounded weights.
    """
    wide = weights.astype(jnp.float32)
    scale = jnp.maximum(jnp.abs(wide).max(axis=axis, keepdims=True), jnp.finfo(jnp.float32).tiny) / 127.0
    return jnp.round(wide / scale).astype(jnp.int8), scale.squeeze(axis)


def int8_product(x: Array, values: Array) -> Array:
    """Return the float32 products `[..., E]` of rows `[..., D]` with each row of int8 values `[E, D]`, not scaled.

    Rows of `x` are rounded to int8, too: products are summed exactly in int32. On CPUs with AMX this is 6 to 10 times
    as fast as float32.
    """
    rows, scale = int8_of(x, axis=-1)
    sums = jnp.einsum("...d,ed->...e", rows, values, preferred_element_type=jnp.int32)
    return sums.astype(jnp.float32) * scale[..., None]


class Dense(nnx.Linear):
    """`nnx.Linear` with an optional low-rank adapter, whose result a remat policy may store, see `product`."""

    kernel: nnx.Param
    lora: LoraSpec | None = None
    quantized = False  # the kernel is int8, with one scale per output
    narrow = False  # the product with an int8 kernel is rounded to the compute dtype before it is scaled
    by_columns = True  # `divided_weights` are divided by columns, the outputs, not by rows
    rounds_rows = False  # rows are rounded to int8, too, and the int8 kernel is stored as `[E, D]`

    def quantize(self) -> None:
        """Round the kernel to int8, unless it is int8 already."""
        if not self.quantized:
            values, scale = int8_of(self.kernel[...], axis=0)
            self.kernel, self.kernel_scale, self.quantized = nnx.Param(values), nnx.Param(scale), True

    def round_rows(self) -> None:
        """Make both sides of the product int8, see `int8_product`.

        XLA:CPU copies a kernel at every use, `[E, D]` faster than `[D, E]` (a decoder step of BART-base, 8 sentences:
        41 instead of 49 ms).
        """
        if not self.rounds_rows:
            self.quantize()
            self.kernel, self.rounds_rows = nnx.Param(self.kernel[...].T), True

    def adapt(self, lora: LoraSpec, rngs: nnx.Rngs) -> None:
        """Add an adapter `A B`, initialized as by PEFT: A like `torch.nn.Linear`, B zero."""
        n_in, n_out = self.kernel.shape
        draw = jax.random.uniform(rngs.params(), (n_in, lora.rank), jnp.float32, -1.0, 1.0)
        self.lora_a, self.lora_b = nnx.Param(draw * n_in**-0.5), nnx.Param(jnp.zeros((lora.rank, n_out), jnp.float32))
        self.lora = lora

    def __call__(self, x: Array, dropout_key: Array | None = None, site: int = 0, whole: Array | None = None) -> Array:
        return product(self.plain(x, dropout_key, site, whole))

    def plain(self, x: Array, dropout_key: Array | None = None, site: int = 0, whole: Array | None = None) -> Array:
        """Apply the layer; `dropout_key` and `site` are for the adapter, `whole` is `gathered(x)`, made once."""
        whole = x if whole is None else whole
        if self.lora is None:
            return self._without_adapter(whole)
        lora, x = self.lora, x.astype(self.dtype)
        low = dropout(x, lora.dropout, dropout_key, site) @ self.lora_a[...].astype(self.dtype)
        if weights_are_divided():
            low = replicate(low) if self.by_columns else shard_rows(low)
        return self._without_adapter(whole) + (low @ self.lora_b[...].astype(self.dtype)) * (lora.alpha / lora.rank)

    def _without_adapter(self, x: Array) -> Array:
        if not weights_are_divided():
            return self._product(x)
        if self.by_columns:
            return shard_columns(self._product(x))
        return shard_rows(self._product(shard_columns(x)))

    def _product(self, x: Array) -> Array:
        x, kernel, bias = x.astype(self.dtype), self.kernel[...], None if self.bias is None else self.bias[...]
        if not self.quantized:
            return product_plus(x, kernel, bias)
        if self.rounds_rows:
            y = int8_product(x, kernel)
        else:
            stored = self.dtype if self.narrow else jnp.float32
            y = jnp.matmul(x, kernel.astype(self.dtype), preferred_element_type=stored)
        ones = (1,) * (y.ndim - 1)
        y = y.astype(jnp.float32) * self.kernel_scale[...].reshape(*ones, -1)
        return (y if bias is None else y + bias.astype(jnp.float32).reshape(*ones, -1)).astype(self.dtype)


def product_plus(x: Array, kernel: Array, bias: Array | None) -> Array:
    """Return `x W + b` in the dtype of `x`; a float32 bias is added before the product is rounded."""
    kernel = kernel.astype(x.dtype)
    if bias is None or bias.dtype == x.dtype:
        y = jnp.matmul(x, kernel)
        return y if bias is None else affine(y, None, bias, x.dtype)
    y = jnp.matmul(x, kernel, preferred_element_type=bias.dtype)
    return (y + bias.reshape(*(1,) * (y.ndim - 1), -1)).astype(x.dtype)


def side_by_side(x: Array, layers: Sequence[Dense]) -> Array:
    """Return the results of plain dense layers of the same rows side by side, as one product.

    Three of BART-large's, 7168 x 1024, take an H200 57 us as one product and 74 as three, their gradient 105 and 153,
    by the compiler's estimate.
    """
    kernels, biases = [layer.kernel[...] for layer in layers], [layer.bias for layer in layers]
    dtype = next((bias[...].dtype for bias in biases if bias is not None), None)
    if dtype is None:
        return product_plus(x, jnp.concatenate(kernels, axis=1), None)
    # Whisper's keys alone have no bias.
    whole = [jnp.zeros(k.shape[1], dtype) if b is None else b[...] for k, b in zip(kernels, biases, strict=True)]
    return product_plus(x, jnp.concatenate(kernels, axis=1), jnp.concatenate(whole))


def make_dense(
    spec: StackSpec, n_in: int, n_out: int, dtype: jnp.dtype, rngs: nnx.Rngs, *, shrink: float = 1.0, name: str = ""
) -> Dense:
    """Make a dense layer whose initial kernel is multiplied by `shrink`; `name` decides on bias and adapter."""
    std = n_in**-0.5 if spec.init_std is None else spec.init_std
    init = jax.nn.initializers.normal(std * shrink)
    bias = spec.bias or name in spec.biases
    dense = Dense(n_in, n_out, use_bias=bias, dtype=dtype, kernel_init=init, rngs=rngs)
    dense.by_columns = name not in ("out", "outer")
    if spec.lora is not None and name in spec.lora.targets:
        dense.adapt(spec.lora, rngs)
    if spec.int8:
        dense.quantize()
        dense.narrow = True  # the gradient of a float32 product is a float32 product, half as fast on a GPU
    return dense


class FeedForward(nnx.Module):
    """Feed-forward network `act(x U) W`, or gated `(act(x U) * (x V)) W`, of rows `[R, D]`."""

    def __init__(self, spec: StackSpec, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        self.inner = make_dense(spec, spec.width, spec.ffn, dtype, rngs, name="inner")
        if spec.gated:
            self.gate = make_dense(spec, spec.width, spec.ffn, dtype, rngs, name="gate")
        self.outer = make_dense(spec, spec.ffn, spec.width, dtype, rngs, name="outer")
        self.spec = spec

    def __call__(self, x: Array, dropout_key: Array | None) -> Array:
        whole = gathered(x)
        act, hidden = ACTIVATIONS[self.spec.activation], self.inner(x, dropout_key, 2, whole)
        hidden = act(self.gate(x, dropout_key, 3, whole)) * hidden if self.spec.gated else act(hidden)
        return self.outer(dropout(hidden, self.spec.activation_dropout, dropout_key), dropout_key, 4)


class LearnedPositions(nnx.Module):
    """Learned position embeddings, from row `spec.position_offset` on."""

    def __init__(self, spec: StackSpec, rngs: nnx.Rngs) -> None:
        init = jax.nn.initializers.normal(spec.init_std or spec.width**-0.5)
        rows = spec.max_positions + spec.position_offset
        table = init(rngs.params(), (rows, spec.width), jnp.float32)
        if spec.frozen_positions:  # Whisper's sines; the table of another model comes from its checkpoint
            rates = 10000.0 ** (-np.arange(spec.width // 2) / max(spec.width // 2 - 1, 1))
            angles = np.arange(rows)[:, None] * rates[None]
            table = table.at[:, : 2 * len(rates)].set(np.concatenate([np.sin(angles), np.cos(angles)], axis=-1))
        self.embedding = nnx.Param(table)
        self.offset, self.frozen = spec.position_offset, spec.frozen_positions

    def __call__(self, positions: Array) -> Array:
        """Return the embeddings `[T, D]` of positions `[T]`."""
        table = self.embedding[...]
        return (jax.lax.stop_gradient(table) if self.frozen else table)[positions + self.offset]


def sinusoidal_table(length: int, width: int) -> np.ndarray:
    """Return sinusoidal position embeddings, float32 `[T, D]`: sines, then cosines (PEGASUS)."""
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)[None]
    return np.concatenate([np.sin(angles), np.cos(angles)[:, : width // 2]], axis=-1).astype(np.float32)


def check_length(spec: StackSpec, length: int) -> None:
    """Raise a UserError if the backbone has no position embeddings for `length` positions."""
    if spec.max_positions is not None and length > spec.max_positions:
        raise UserError(
            f"a sequence of {length} positions is longer than the backbone's table of {spec.max_positions}; "
            "shorten the sequence, or raise max_position_embeddings in config.model.shape."
        )
