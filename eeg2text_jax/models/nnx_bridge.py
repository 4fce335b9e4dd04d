"""Modules to pure functions and back: the only file with `nnx.split` and `nnx.merge`.

NNX declares what a module is made of. Everything else sees parameters as a plain nested dict of arrays.
"""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax import lax

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
    body: Callable[[nnx.Module, Any, Any], tuple[Any, Any]],
    carry: Any = None,
    xs: Any = None,
    *,
    remat: bool = False,
    unroll: bool = False,
) -> tuple[Any, Any]:
    """`lax.scan` over the layers: `body(layer, carry, x) -> (carry, y)`.

    `remat` keeps only the carry of each layer for the backward pass; `unroll` writes the layers out one by one.
    """
    structure, params = nnx.split(stacked)

    def step(carry: Any, inputs: tuple) -> tuple[Any, Any]:
        layer_params, x = inputs
        return body(nnx.merge(structure, layer_params), carry, x)

    return lax.scan(jax.checkpoint(step) if remat else step, carry, (params, xs), unroll=unroll)
