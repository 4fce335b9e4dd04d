"""Pure functions from Flax NNX modules, and the loop over stacked layers.

Only this file calls `nnx.split` and `nnx.merge`; other code sees parameters as a nested dict of arrays.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from eeg2text_jax.base.devices.arms import Divided, divided, joined
from eeg2text_jax.base.devices.mesh import replicate
from eeg2text_jax.models.layers import PRODUCT

Params = dict[str, Any]
Keep = Literal["products", "nothing"]


def scan_keeping(
    layer: Callable[[Any, Any, Array, Any], Array],
    params: Any,
    shared: Any,
    x: Array,
    each: Any,
    keep: Keep,
    cast: Callable[[Any], Any] = lambda params: params,
    whole: Callable[[Any], Any] = replicate,
) -> Array:
    """Apply `layer(params, shared, x, each) -> x` for each index of axis 0 of `params` and `each`, one after the other.

    The result is differentiable by `params`, `shared` and `x`. Each layer's input is stored for the backward pass and,
    with `keep="products"`, values that `layers.product` names; others are recomputed. `cast` is applied to each layer's
    parameters before use. `lax.scan` would first fill the buffers of activations, and of every weight's gradient, with
    zeros: with needless stores, half of BART-large's training step on a TPU by the compiler's estimate.
    """
    policies = jax.checkpoint_policies
    policy = policies.save_only_these_names(PRODUCT) if keep == "products" else policies.nothing_saveable
    # XLA merges no computations of two loops; barriers of prevent_cse would copy every slice of weights and stored
    # values.
    once = jax.checkpoint(layer, policy=policy, prevent_cse=False)
    length = jax.tree.leaves(params)[0].shape[0]
    pullback = _Pullback()

    def one_layer(params: Any, number: Array) -> Any:
        return whole(cast(jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, number, 0, keepdims=False), params)))

    numbers, shapes = jnp.arange(length), jax.eval_shape(cast, jax.tree.map(lambda leaf: leaf[0], params))

    @jax.custom_vjp
    def run(params: Any, shared: Any, x: Array, each: Any) -> Array:
        return lax.scan(lambda x, i: (layer(one_layer(params, i[0]), shared, x, i[1]), None), x, (numbers, each))[0]

    def forward(params: Any, shared: Any, x: Array, each: Any) -> tuple[Array, Any]:
        def step(x: Array, number: Array, each: Any) -> tuple[Array, list[Array]]:
            layer_params = one_layer(params, number)
            y, back = jax.vjp(lambda params, shared, x: once(params, shared, x, each), layer_params, shared, x)
            return y, pullback.take_apart(back, (layer_params, shared, each, x))

        def body(carry: tuple, i: tuple) -> tuple[tuple, None]:
            (x, inputs, buffers), (number, each) = carry, i
            x, values = step(x, number, each)
            return (x, _put(inputs, x, number + 1), _put(buffers, values, number)), None

        # Each layer stores its result as the next input: a TPU then stores it, and the sum before its norm, where it
        # computes the norm (12 layers of BART-large's decoder, batch 32: 0.40 of 28.8 ms by the compiler's estimate).
        _, values = jax.eval_shape(step, x, numbers[0], jax.tree.map(lambda leaf: leaf[0], each))
        inputs = _put(_buffers(x, length + 1), x, 0)
        (x, inputs, buffers), _ = lax.scan(body, (x, inputs, _buffers(values, length)), (numbers, each))
        return x, (params, shared, each, inputs, buffers)

    def backward(residuals: Any, gradient: Array) -> tuple:
        params, shared, each, inputs, buffers = residuals

        def body(carry: tuple, i: tuple) -> tuple[tuple, None]:
            (to_x, to_shared, to_params), (number, each, values) = carry, i
            x = lax.dynamic_index_in_dim(inputs, number, 0, keepdims=False)
            to_layer, more, to_x = pullback.put_together((one_layer(params, number), shared, each, x), values)(to_x)
            return (to_x, jax.tree.map(jnp.add, to_shared, more), _put(to_params, to_layer, number)), None

        start = gradient, jax.tree.map(jnp.zeros_like, shared), _buffers(shapes, length)
        (to_x, to_shared, to_params), _ = lax.scan(body, start, (numbers, each, buffers), reverse=True)
        return jax.tree.map(lambda summed, leaf: summed.astype(leaf.dtype), to_params, params), to_shared, to_x, None

    run.defvjp(forward, backward)
    return run(params, shared, x, each)


def _buffers(shapes: Any, length: int) -> Any:
    """Return uninitialized arrays `[length, *shape]`."""
    return jax.tree.map(lambda shape: lax.empty((length, *shape.shape), shape.dtype), shapes)


def _put(buffers: Any, values: Any, number: Array) -> Any:
    """Write each of `values` into its buffer `[length, ...]` at index `number`."""
    return jax.tree.map(lambda b, v: lax.dynamic_update_index_in_dim(b, v, number, 0), buffers, values)


class _Pullback:
    """Splits a function from `jax.vjp`, to store only those of its arrays that the backward pass does not have."""

    def take_apart(self, back: Any, inputs: Any) -> list[Array]:
        """Return the arrays of `back` that are not among the arrays of `inputs`."""
        leaves, self._structure = jax.tree.flatten(back)
        places = {id(leaf): place for place, leaf in enumerate(jax.tree.leaves(inputs))}
        self._places = [places.get(id(leaf)) for leaf in leaves]
        return [leaf for leaf, place in zip(leaves, self._places, strict=True) if place is None]

    def put_together(self, inputs: Any, values: list[Array]) -> Callable[[Array], tuple]:
        """Rebuild `back` from what `take_apart` returned, and from `inputs`, structured as there."""
        inputs, rest = jax.tree.leaves(inputs), iter(values)
        leaves = [next(rest) if place is None else inputs[place] for place in self._places]
        return jax.tree.unflatten(self._structure, leaves)


def structure_of(make: Callable[[nnx.Rngs], nnx.Module]) -> tuple[nnx.GraphDef, Params]:
    """Return graph definition and parameter shapes of the module that `make` builds; nothing is allocated."""
    structure, shapes = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    return structure, nnx.to_pure_dict(shapes)


def init_params(make: Callable[[nnx.Rngs], nnx.Module], key: Array) -> Params:
    """Return random parameters of the module that `make` builds."""
    return _made(make, key)[1]


def _made(make: Callable[[nnx.Rngs], nnx.Module], key: Array) -> tuple[nnx.GraphDef, Params]:
    structure, state = nnx.split(make(nnx.Rngs(key)))
    return structure, nnx.to_pure_dict(state)


class PureModel:
    """Base class of models that are pure functions of their parameters; subclasses are frozen dataclasses."""

    shared_frozen = False  # see `Seq2SeqModel`

    def _make(self) -> Callable[[nnx.Rngs], nnx.Module]:
        raise NotImplementedError

    @property
    def shapes(self) -> Params:
        """Shapes (`jax.ShapeDtypeStruct`) of all parameters, in new dicts."""
        return jax.tree.map(lambda leaf: leaf, _structure(self)[1])

    def init(self, key: Array) -> Params:
        """Return random parameters, float32 but for kernels in int8."""
        return init_params(self._make(), key)

    def _module(self, params: Params) -> Any:
        return nnx.merge(_structure(self)[0], params)


@functools.lru_cache(maxsize=128)
def _structure(model: PureModel) -> tuple[nnx.GraphDef, Params]:
    return structure_of(model._make())


def stack_layers(make: Callable[[nnx.Rngs], nnx.Module], key: Array, layers: int) -> nnx.Module:
    """Return one module with the stacked parameters `[L, ...]` of L = `layers` modules, for `scan_layers`."""
    structures = []  # of the one layer that vmap traces

    def init(key: Array) -> Params:
        structure, params = _made(make, key)
        structures.append(structure)
        return params

    params = jax.vmap(init)(jax.random.split(key, layers))
    return nnx.merge(structures[0], params)


def separate_layers(stacked: nnx.Module, layers: int) -> list[nnx.Module]:
    """Return a stacked module's layers one by one; slices in each decoding step would be 200 MB for BART-base."""
    structure, params = nnx.split(stacked)
    return [nnx.merge(structure, jax.tree.map(lambda leaf, i=i: leaf[i], params)) for i in range(layers)]


def map_layers(stacked: nnx.Module, change: Callable[[nnx.Module], None]) -> nnx.Module:
    """Return a stacked module with `change`, which modifies a module in place, applied to each layer."""
    structure, params = nnx.split(stacked)

    def changed(params: Any) -> nnx.Module:
        layer = nnx.merge(structure, params)
        change(layer)
        return layer

    return jax.vmap(changed)(params)


def scan_layers(
    stacked: nnx.Module,
    body: Callable[[nnx.Module, Array, Any, Any], Array],
    x: Array,
    each: Any = None,
    shared: Any = None,
    *,
    dtype: jnp.dtype,
    remat: Keep | None = None,
    unroll: bool = False,
    late: bool = False,
    divided_kernels: bool = False,
) -> Array:
    """Apply stacked layers one after the other: `body(layer, x, each, shared) -> x` of the same shape.

    Args:
      each: inputs that differ between layers, with the layer on axis 0; not differentiated.
      shared: inputs that all layers read.
      remat: what is stored for the backward pass, see `scan_keeping`; None: all.
      late: on a TPU, cast kernels where they are used, see `_cast_late`.
    """
    structure, state = nnx.split(stacked)
    params = nnx.to_pure_dict(state)
    whole = _all_but_kernels if divided_kernels else replicate

    def cast(params: Params) -> Params:
        if late and dtype != jnp.float32 and "ffn" in params:
            params = jax.tree.map(functools.partial(_cast_late, unforeseen=params["ffn_norm"]["scale"]), params)
        return in_compute_dtype(params, dtype)

    def layer(params: Params, shared: Any, x: Array, each: Any) -> Array:
        return body(nnx.merge(structure, params), x, each, shared)

    if remat is not None:
        rest, kernels = divided(params, lambda _, leaf: leaf.dtype != jnp.int8)  # int8 has no gradient

        def whole_layer(rest: Params, shared: Any, x: Array, both: tuple[Params, Any]) -> Array:
            return layer(joined(Divided(rest, whole(both[0]))), shared, x, both[1])

        return scan_keeping(whole_layer, rest, shared, x, (kernels, each), remat, cast, whole)
    return lax.scan(lambda x, i: (layer(whole(i[0]), shared, x, i[1]), None), x, (params, each), unroll=unroll)[0]


def _all_but_kernels(params: Params) -> Params:
    """Apply `replicate` to all but kernels, which stay divided over devices, see `divided_weights`."""
    return jax.tree.map_with_path(lambda path, leaf: leaf if path[-1].key == "kernel" else replicate(leaf), params)


def _cast_late(weights: Array, unforeseen: Array) -> Array:
    """Return the weights unchanged, such that a TPU casts them to the compute dtype only where a layer uses them.

    It adds a zero, made from the parameter `unforeseen`, that the compiler cannot foresee. Else the weights of all
    layers would be cast before the loop, to memory and back (feed-forward networks: 6 of 140 ms for T5-large, batch 32,
    by the compiler's estimate). A product of many rows reads its weights several times and casts them as often (12
    feed-forward networks of BART-large with their gradient: 33.0 ms instead of 32.3 at 7168 rows).
    """

    def add_zero(weights: Array, unforeseen: Array) -> Array:
        return weights + jnp.minimum(jnp.abs(unforeseen[0]), 0.0)

    if weights.ndim < 2 or weights.dtype != unforeseen.dtype:  # biases; weights already in the compute dtype
        return weights
    return lax.platform_dependent(weights, unforeseen, tpu=add_zero, default=lambda weights, _: weights)


# First name in a parameter's path -> `jax.named_scope`, by which `preflight.hlo_clock` sums times.
SCOPES = {"eeg": "eeg_encoder", "head": "head_loss", "encoder": "encoder", "decoder": "decoder"}


def in_compute_dtype(
    params: Params, dtype: jnp.dtype, part: str | None = None, *, layers: bool = True, biases: bool = True
) -> Params:
    """Return parameters with kernels and biases of dense layers in the compute dtype, but for int8 kernels and scales.

    `layers` and `biases` include those. A loop over tokens leaves biases float32: a TPU copies a bfloat16 row of a
    stack into the layout of a vector at every use (0.12 of 1.80 ms for 84 biases of BART-large).
    """
    if "kernel" in params:
        uncast = set() if biases else {"bias"}
        if "kernel_scale" in params:
            uncast |= {"kernel", "kernel_scale"}
        with jax.named_scope(part or "other"):
            return {name: leaf if name in uncast else leaf.astype(dtype) for name, leaf in params.items()}
    cast = {name for name, sub in params.items() if isinstance(sub, dict) and (layers or name != "layers")}
    options = {"layers": layers, "biases": biases}
    return {
        name: in_compute_dtype(sub, dtype, part or SCOPES.get(name), **options) if name in cast else sub
        for name, sub in params.items()
    }
