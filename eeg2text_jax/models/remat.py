"""A scan over layers that stores selected activations for the backward pass and recomputes the others.

`lax.scan` fills the buffers of activations, and the gradient of every weight, with zeros first. On a TPU these fills,
and needless stores, were half of BART-large's training step by the compiler's estimate; here buffers are uninitialized.
"""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from eeg2text_jax.models.layers import PRODUCT
from eeg2text_jax.parallel.mesh import replicate

Keep = Literal["products", "nothing"]


def scan_keeping(
    layer: Callable[[Any, Any, jax.Array, Any], jax.Array],
    params: Any,
    shared: Any,
    x: jax.Array,
    each: Any,
    keep: Keep,
    cast: Callable[[Any], Any] = lambda params: params,
) -> jax.Array:
    """Apply `layer(params, shared, x, each) -> x` for each index of axis 0 of `params` and `each`, one after the other.

    The result is differentiable by `params`, `shared` and `x`. Each layer's input is stored for the backward pass and,
    with `keep="products"`, values that `layers.product` names. `cast` is applied to each layer's parameters before use.
    """
    policies = jax.checkpoint_policies
    policy = policies.save_only_these_names(PRODUCT) if keep == "products" else policies.nothing_saveable
    # prevent_cse is needless, as XLA cannot merge computations of two loops; its barriers would cost a copy of every
    # slice of weights and of stored values.
    once = jax.checkpoint(layer, policy=policy, prevent_cse=False)
    length = jax.tree.leaves(params)[0].shape[0]
    pullback = _Pullback()

    def one_layer(params: Any, number: jax.Array) -> Any:
        return replicate(
            cast(jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, number, 0, keepdims=False), params))
        )

    numbers, shapes = jnp.arange(length), jax.eval_shape(cast, jax.tree.map(lambda leaf: leaf[0], params))

    @jax.custom_vjp
    def run(params: Any, shared: Any, x: jax.Array, each: Any) -> jax.Array:
        return lax.scan(lambda x, i: (layer(one_layer(params, i[0]), shared, x, i[1]), None), x, (numbers, each))[0]

    def forward(params: Any, shared: Any, x: jax.Array, each: Any) -> tuple[jax.Array, Any]:
        def step(x: jax.Array, number: jax.Array, each: Any) -> tuple[jax.Array, list[jax.Array]]:
            mine = one_layer(params, number)
            x, back = jax.vjp(lambda params, shared, x: once(params, shared, x, each), mine, shared, x)
            return x, pullback.take_apart(back, (mine, shared, each))

        def body(carry: tuple, i: tuple) -> tuple[tuple, None]:
            (x, buffers), (number, each) = carry, i
            x, kept = step(x, number, each)
            return (x, _put(buffers, kept, number)), None

        _, kept = jax.eval_shape(step, x, numbers[0], jax.tree.map(lambda leaf: leaf[0], each))
        (x, buffers), _ = lax.scan(body, (x, _buffers(kept, length)), (numbers, each))
        return x, (params, shared, each, buffers)

    def backward(kept: Any, gradient: jax.Array) -> tuple:
        params, shared, each, buffers = kept

        def body(carry: tuple, i: tuple) -> tuple[tuple, None]:
            (to_x, to_shared, to_params), (number, each, kept) = carry, i
            mine, more, to_x = pullback.put_together((one_layer(params, number), shared, each), kept)(to_x)
            return (to_x, jax.tree.map(jnp.add, to_shared, more), _put(to_params, mine, number)), None

        start = gradient, jax.tree.map(jnp.zeros_like, shared), _buffers(shapes, length)
        (to_x, to_shared, to_params), _ = lax.scan(body, start, (numbers, each, buffers), reverse=True)
        return jax.tree.map(lambda mine, leaf: mine.astype(leaf.dtype), to_params, params), to_shared, to_x, None

    run.defvjp(forward, backward)
    return run(params, shared, x, each)


def _buffers(shapes: Any, length: int) -> Any:
    """Return uninitialized arrays `[length, *shape]`, one for each of `shapes`."""
    return jax.tree.map(lambda shape: lax.empty((length, *shape.shape), shape.dtype), shapes)


def _put(buffers: Any, values: Any, number: jax.Array) -> Any:
    """Write each of `values` into its buffer `[length, ...]` at index `number`."""
    return jax.tree.map(lambda b, v: lax.dynamic_update_index_in_dim(b, v, number, 0), buffers, values)


class _Pullback:
    """Splits a function from `jax.vjp`, to store only those of its arrays that the backward pass does not have."""

    def take_apart(self, back: Any, known: Any) -> list[jax.Array]:
        """Return the arrays of `back`, a function from `jax.vjp`, that are not among the arrays of `known`."""
        leaves, self._structure = jax.tree.flatten(back)
        places = {id(leaf): place for place, leaf in enumerate(jax.tree.leaves(known))}
        self._places = [places.get(id(leaf)) for leaf in leaves]
        return [leaf for leaf, place in zip(leaves, self._places, strict=True) if place is None]

    def put_together(self, known: Any, kept: list[jax.Array]) -> Callable[[jax.Array], tuple]:
        """Rebuild `back` from the result `kept` of `take_apart`, and from `known`, structured as in that call."""
        known, rest = jax.tree.leaves(known), iter(kept)
        leaves = [next(rest) if place is None else known[place] for place in self._places]
        return jax.tree.unflatten(self._structure, leaves)
