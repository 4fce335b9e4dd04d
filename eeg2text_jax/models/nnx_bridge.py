"""Pure functions from Flax NNX modules, and the loop over stacked layers.

Only this file calls `nnx.split` and `nnx.merge`; all other code sees parameters as a plain nested dict of arrays.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from eeg2text_jax.models.remat import Keep, scan_keeping
from eeg2text_jax.parallel.arms import Divided, divided, joined
from eeg2text_jax.parallel.mesh import replicate

Params = dict[str, Any]


def structure_of(make: Callable[[nnx.Rngs], nnx.Module]) -> tuple[nnx.GraphDef, Params]:
    """Return the graph definition and parameter shapes of the module that `make` builds, without allocating arrays."""
    structure, shapes = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    return structure, nnx.to_pure_dict(shapes)


def init_params(make: Callable[[nnx.Rngs], nnx.Module], key: jax.Array) -> Params:
    """Return random parameters of the module that `make` builds."""
    return _made(make, key)[1]


def _made(make: Callable[[nnx.Rngs], nnx.Module], key: jax.Array) -> tuple[nnx.GraphDef, Params]:
    structure, state = nnx.split(make(nnx.Rngs(key)))
    return structure, nnx.to_pure_dict(state)


class PureModel:
    """Base class of models that are pure functions of their parameters; subclasses are frozen dataclasses."""

    def _make(self) -> Callable[[nnx.Rngs], nnx.Module]:
        """Return the function that builds the module."""
        raise NotImplementedError

    @property
    def shapes(self) -> Params:
        """Shapes (`jax.ShapeDtypeStruct`) of all parameters; the dicts are copies."""
        return jax.tree.map(lambda leaf: leaf, _structure(self)[1])

    def init(self, key: jax.Array) -> Params:
        """Return random parameters, float32 but for kernels in int8."""
        return init_params(self._make(), key)

    def _module(self, params: Params) -> Any:
        """Return the module with these parameters."""
        return nnx.merge(_structure(self)[0], params)


@functools.lru_cache(maxsize=128)
def _structure(model: PureModel) -> tuple[nnx.GraphDef, Params]:
    return structure_of(model._make())


def stack_layers(make: Callable[[nnx.Rngs], nnx.Module], key: jax.Array, layers: int) -> nnx.Module:
    """Return one module with the stacked parameters `[L, ...]` of L = `layers` modules; `scan_layers` applies it."""
    structures = []  # of the one layer that vmap traces

    def init(key: jax.Array) -> Params:
        structure, params = _made(make, key)
        structures.append(structure)
        return params

    params = jax.vmap(init)(jax.random.split(key, layers))
    return nnx.merge(structures[0], params)


def separate_layers(stacked: nnx.Module, layers: int) -> list[nnx.Module]:
    """Return the layers of a stacked module one by one, each with its own parameters.

    Decoding loops use them: slicing the stack in every iteration would copy 200 MB for BART-base's decoder.
    """
    structure, params = nnx.split(stacked)
    return [nnx.merge(structure, jax.tree.map(lambda leaf, i=i: leaf[i], params)) for i in range(layers)]


def map_layers(stacked: nnx.Module, change: Callable[[nnx.Module], None]) -> nnx.Module:
    """Return a stacked module with `change`, which modifies a module in place, applied to each of its layers."""
    structure, params = nnx.split(stacked)

    def changed(params: Any) -> nnx.Module:
        layer = nnx.merge(structure, params)
        change(layer)
        return layer

    return jax.vmap(changed)(params)


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
    """Apply stacked layers one after the other: `body(layer, x, each, shared) -> x` of the same shape.

    Args:
      each: inputs that differ between layers, with the layer on axis 0; not differentiated.
      shared: inputs that all layers read.
      remat: the activations that are stored for the backward pass, see `remat.scan_keeping`; None: all.
      late: on a TPU, cast some weights where they are used, for small batches, see `_some_late`.
    """
    structure, state = nnx.split(stacked)
    params = nnx.to_pure_dict(state)

    def cast(params: Params) -> Params:
        return in_compute_dtype(_some_late(params) if late and dtype != jnp.float32 else params, dtype)

    def layer(params: Params, shared: Any, x: jax.Array, each: Any) -> jax.Array:
        return body(nnx.merge(structure, params), x, each, shared)

    if remat is not None:
        rest, kernels = divided(params, lambda _, leaf: leaf.dtype != jnp.int8)  # int8 has no gradient

        def whole_layer(rest: Params, shared: Any, x: jax.Array, both: tuple[Params, Any]) -> jax.Array:
            return layer(joined(Divided(rest, replicate(both[0]))), shared, x, both[1])

        return scan_keeping(whole_layer, rest, shared, x, (kernels, each), remat, cast)
    return lax.scan(lambda x, i: (layer(replicate(i[0]), shared, x, i[1]), None), x, (params, each), unroll=unroll)[0]


def _some_late(params: Params) -> Params:
    """Apply `_cast_late` to a layer's weights of the feed-forward network and of self-attention's output layer.

    If the output layers' weights were cast before the loop, they would take 50 of 128 MiB on the chip, which the
    intermediate results of T5-large's feed-forward network need (1.2 ms, by the compiler's estimate).
    """
    if "ffn" not in params:
        return params
    late = functools.partial(jax.tree.map, functools.partial(_cast_late, unforeseen=params["ffn_norm"]["scale"]))
    attention = params["self_attention"]
    return {**params, "ffn": late(params["ffn"]), "self_attention": {**attention, "out": late(attention["out"])}}


def _cast_late(weights: jax.Array, unforeseen: jax.Array) -> jax.Array:
    """Return the weights unchanged, such that a TPU casts them to the compute dtype only where a layer uses them.

    On a TPU this adds a zero, made from the parameter `unforeseen`, that the compiler cannot foresee. Without it, the
    compiler would cast the weights of all layers before the loop, to memory and back (feed-forward networks: 6 of 140
    ms for T5-large, batch 32, by its estimate). Use this for small batches: a product of many rows reads its weights
    several times and casts them as often (12 feed-forward networks of BART-large with their gradient take 33.0 ms
    instead of 32.3 at 7168 rows).
    """

    def add_zero(weights: jax.Array, unforeseen: jax.Array) -> jax.Array:
        return weights + jnp.minimum(jnp.abs(unforeseen[0]), 0.0)

    if weights.ndim < 2 or weights.dtype != unforeseen.dtype:  # biases; weights already in the compute dtype
        return weights
    return lax.platform_dependent(weights, unforeseen, tpu=add_zero, default=lambda weights, _: weights)


# First name in a parameter's path -> `jax.named_scope` of its computation; `preflight.hlo_clock` sums times by scope.
SCOPES = {"eeg": "eeg_encoder", "head": "head_loss", "encoder": "encoder", "decoder": "decoder"}


def in_compute_dtype(
    params: Params, dtype: jnp.dtype, part: str | None = None, *, layers: bool = True, biases: bool = True
) -> Params:
    """Return parameters with kernels and biases of dense layers in the compute dtype.

    In bfloat16, a loop over tokens reads half of the bytes. Kernels in int8 and their scales stay as they are.

    Args:
      layers: whether to cast stacked layers, too.
      biases: whether to cast biases, too. A loop over tokens leaves them float32: a TPU copies a bfloat16 row of a
        stack into the layout of a vector at every use (0.12 of 1.80 ms for 84 biases of BART-large).
    """
    if "kernel" in params:
        kept = set() if biases else {"bias"}
        if "kernel_scale" in params:
            kept |= {"kernel", "kernel_scale"}
        with jax.named_scope(part or "other"):
            return {name: leaf if name in kept else leaf.astype(dtype) for name, leaf in params.items()}
    return {
        name: in_compute_dtype(sub, dtype, part or SCOPES.get(name), layers=layers, biases=biases)
        if isinstance(sub, dict) and (layers or name != "layers")
        else sub
        for name, sub in params.items()
    }
