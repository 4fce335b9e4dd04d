"""Convert NNX modules to pure functions and back: the only file with `nnx.split` and `nnx.merge`.

NNX declares the modules. All other code sees parameters as a plain nested dict of arrays.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from eeg2text_jax.models.remat import Keep, scan_keeping
from eeg2text_jax.parallel.mesh import replicate

Params = dict[str, Any]


def structure_of(make: Callable[[nnx.Rngs], nnx.Module]) -> tuple[nnx.GraphDef, Params]:
    """Return the graph definition and the parameter shapes of the module that `make` builds, without allocation."""
    structure, shapes = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    return structure, nnx.to_pure_dict(shapes)


def init_params(make: Callable[[nnx.Rngs], nnx.Module], key: jax.Array) -> Params:
    """Return random parameters of the module that `make` builds."""
    return nnx.to_pure_dict(nnx.split(make(nnx.Rngs(key)))[1])


def bind(structure: nnx.GraphDef, params: Params) -> nnx.Module:
    """Merge a graph definition with parameters."""
    return nnx.merge(structure, params)


def stack_layers(make: Callable[[nnx.Rngs], nnx.Module], key: jax.Array, layers: int) -> nnx.Module:
    """Make `layers` modules as one module whose parameters have a leading axis; only `scan_layers` may call it."""
    params = jax.vmap(lambda k: init_params(make, k))(jax.random.split(key, layers))
    return bind(structure_of(make)[0], params)


def separate_layers(stacked: nnx.Module, layers: int) -> list[nnx.Module]:
    """Split a stacked module into its layers, each with its own parameters.

    For use inside a decoding loop: slicing the stack in every iteration would copy 200 MB for BART-base's decoder.
    """
    structure, params = nnx.split(stacked)
    return [bind(structure, jax.tree.map(lambda leaf, i=i: leaf[i], params)) for i in range(layers)]


def scan_layers(
    stacked: nnx.Module,
    body: Callable[[nnx.Module, jax.Array, Any, Any], jax.Array],
    x: jax.Array,
    each: Any = None,
    shared: Any = None,
    *,
    dtype: jnp.dtype,
    remat: Keep | None = None,
    unroll: bool = False,
    late: bool = False,
) -> jax.Array:
    """The layers one after the other: `body(layer, x, each, shared) -> x` of the same shape.

    Args:
      dtype: of the computation.
      each: what each layer has of its own, its number on axis 0; nothing is differentiated by it.
      shared: what all layers see.
      remat: what is kept for the backward pass, see `remat.scan_keeping`; None: all that a layer computes.
      unroll: write the layers out one by one.
      late: on a TPU, cast some weights where they are used, for small batches, see `_some_late`.
    """
    structure, state = nnx.split(stacked)
    params = nnx.to_pure_dict(state)

    def cast(params: Params) -> Params:
        return in_compute_dtype(_some_late(params) if late and dtype != jnp.float32 else params, dtype)

    def layer(params: Params, shared: Any, x: jax.Array, each: Any) -> jax.Array:
        return body(nnx.merge(structure, params), x, each, shared)

    if remat is not None:
        return scan_keeping(layer, params, shared, x, each, remat, cast)
    return lax.scan(lambda x, i: (layer(replicate(i[0]), shared, x, i[1]), None), x, (params, each), unroll=unroll)[0]


def _some_late(params: Params) -> Params:
    """A layer's parameters, those of its feed-forward network and of what self-attention ends with to be cast late.

    The latter's, cast before the loop, would take 50 of the 128 MiB near the chip's cores, and the feed-forward network
    of T5-large have none for what is between its products (1.2 ms, by the compiler's estimate).
    """
    if "ffn" not in params:
        return params
    late = partial(jax.tree.map, partial(_cast_late, unforeseen=params["ffn_norm"]["scale"]))
    attention = params["self_attention"]
    return {**params, "ffn": late(params["ffn"]), "self_attention": {**attention, "out": late(attention["out"])}}


def _cast_late(weights: jax.Array, unforeseen: jax.Array) -> jax.Array:
    """The same; on a TPU, with a zero added that its compiler cannot foresee, made of another parameter of the layer.

    They are then cast in passing, where a layer uses them; the compiler would cast those of all layers before the loop,
    to memory and back (feed-forward networks: 6 of 140 ms for T5-large, batch 32, by its estimate). A product
    of many rows reads its weights several times, and would cast them as often: 12 feed-forward networks of BART-large
    with their gradient take 33.0 ms in place of 32.3 at 7168 rows.
    """

    def add_zero(weights: jax.Array, unforeseen: jax.Array) -> jax.Array:
        return weights + jnp.minimum(jnp.abs(unforeseen[0]), 0.0)

    if weights.ndim < 2 or weights.dtype != unforeseen.dtype:  # biases; weights that are kept in the compute dtype
        return weights
    return lax.platform_dependent(weights, unforeseen, tpu=add_zero, default=lambda weights, _: weights)


# Parts of the model, as the compiler's clock names them, of the parameters by the first name that they have in a model.
SCOPES = {"eeg": "eeg_encoder", "head": "head_loss", "encoder": "encoder", "decoder": "decoder"}


def in_compute_dtype(
    params: Params, dtype: jnp.dtype, part: str | None = None, *, layers: bool = True, biases: bool = True
) -> Params:
    """Kernels and biases of dense layers in the dtype that these compute in, everything else as it is.

    Here, and not where a layer uses them: a loop over tokens then reads half of the bytes.

    Args:
      layers: also those of stacked layers.
      biases: or else kernels alone. In a loop over tokens a TPU copies one bfloat16 row of a stack into the layout of a
        vector whenever it adds it, and float32 it adds as it lies (0.12 of 1.80 ms for 84 biases of BART-large).
    """
    if "kernel" in params:
        with jax.named_scope(part or "other"):
            return {name: leaf.astype(dtype) if biases or name != "bias" else leaf for name, leaf in params.items()}
    return {
        name: in_compute_dtype(sub, dtype, part or SCOPES.get(name), layers=layers, biases=biases)
        if isinstance(sub, dict) and (layers or name != "layers")
        else sub
        for name, sub in params.items()
    }
