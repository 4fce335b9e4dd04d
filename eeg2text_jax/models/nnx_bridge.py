"""Modules to pure functions and back: the only file with `nnx.split` and `nnx.merge`.

NNX declares what a module is made of. Everything else sees parameters as a plain nested dict of arrays.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from eeg2text_jax.models.remat import Keep, scan_keeping

Params = dict[str, Any]


def structure_of(make: Callable[[nnx.Rngs], nnx.Module]) -> tuple[nnx.GraphDef, Params]:
    """What `make` builds without its parameters, and their shapes; nothing is allocated."""
    structure, shapes = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    return structure, nnx.to_pure_dict(shapes)


def init_params(make: Callable[[nnx.Rngs], nnx.Module], key: jax.Array) -> Params:
    """Random parameters of what `make` builds."""
    return nnx.to_pure_dict(nnx.split(make(nnx.Rngs(key)))[1])


def bind(structure: nnx.GraphDef, params: Params) -> nnx.Module:
    """The module with these parameters."""
    return nnx.merge(structure, params)


def stack_layers(make: Callable[[nnx.Rngs], nnx.Module], key: jax.Array, layers: int) -> nnx.Module:
    """`layers` modules as one whose parameters have a leading axis; only `scan_layers` may call it."""
    params = jax.vmap(lambda k: init_params(make, k))(jax.random.split(key, layers))
    return bind(structure_of(make)[0], params)


def separate_layers(stacked: nnx.Module, layers: int) -> list[nnx.Module]:
    """The layers one by one, each with parameters of its own.

    For a loop around them, which must not slice the stack anew every time: BART-base's decoder would copy 200 MB.
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
) -> jax.Array:
    """The layers one after the other: `body(layer, x, each, shared) -> x` of the same shape.

    Args:
      dtype: of the computation.
      each: what each layer has of its own, its number on axis 0; nothing is differentiated by it.
      shared: what all layers see.
      remat: what is kept for the backward pass, see `remat.scan_keeping`; None: all that a layer computes.
      unroll: write the layers out one by one.
    """
    structure, state = nnx.split(stacked)
    params = nnx.to_pure_dict(state)

    def cast(params: Params) -> Params:
        return in_compute_dtype(params, dtype)

    def layer(params: Params, shared: Any, x: jax.Array, each: Any) -> jax.Array:
        return body(nnx.merge(structure, params), x, each, shared)

    if remat is not None:
        return scan_keeping(layer, params, shared, x, each, remat, cast)
    return lax.scan(lambda x, i: (layer(i[0], shared, x, i[1]), None), x, (params, each), unroll=unroll)[0]


# Parts of the model, as the compiler's clock names them, of the parameters by the first name that they have in a model.
SCOPES = {"eeg": "eeg_encoder", "head": "head_loss", "encoder": "encoder", "decoder": "decoder"}


def in_compute_dtype(params: Params, dtype: jnp.dtype, part: str | None = None, *, layers: bool = True) -> Params:
    """Kernels and biases of dense layers in the dtype that these compute in, everything else as it is.

    Here, and not where a layer uses them: a loop over tokens then reads half of the bytes.

    Args:
      layers: also those of stacked layers.
    """
    if "kernel" in params:
        with jax.named_scope(part or "other"):
            return {name: leaf.astype(dtype) for name, leaf in params.items()}
    return {
        name: in_compute_dtype(sub, dtype, part or SCOPES.get(name), layers=layers)
        if isinstance(sub, dict) and (layers or name != "layers")
        else sub
        for name, sub in params.items()
    }
