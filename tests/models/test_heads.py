"""Attention with heads side by side, as a TPU computes it, against heads on an axis of their own."""

import inspect

import equal_steps
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eeg2text_jax.models.affine import affine
from eeg2text_jax.models.attention import MASK_VALUE, Attention
from eeg2text_jax.models.heads import Heads, attend, gather, spread
from eeg2text_jax.models.layers import dropout
from eeg2text_jax.models.spec import StackSpec


def make(heads: int, head_dim: int, bias: bool) -> Attention:
    from flax import nnx

    spec = StackSpec(layers=1, width=48, heads=heads, head_dim=head_dim, ffn=8, activation="relu", bias=bias)
    attention = Attention(spec, jnp.float32, nnx.Rngs(0))
    if bias:
        for number, dense in enumerate((attention.query, attention.key, attention.value, attention.out)):
            dense.bias[...] = jax.random.normal(jax.random.key(number), dense.bias.shape)
    return attention


@pytest.mark.parametrize(("heads", "head_dim", "bias"), [(4, 64, True), (4, 32, False), (2, 105, True)])
def test_side_by_side_equals_apart(heads: int, head_dim: int, bias: bool) -> None:
    attention, (batch, queries, keys) = make(heads, head_dim, bias), (3, 5, 7)
    draw = lambda number, *shape: jax.random.normal(jax.random.key(number), shape)  # noqa: E731
    x, context = draw(1, batch * queries, 48), draw(2, batch * keys, 48)
    hidden = jnp.where(draw(3, 1, batch, queries, keys) > 1, MASK_VALUE, 0.0).at[..., 0].set(0.0)
    of_heads, of_keys = draw(4, heads, 1, queries, keys), draw(5, 1, batch, 1, keys)
    weights = draw(6, batch * queries, 48)
    shape = Heads(batch, heads, 0.0)
    together = lambda *a: attention._together(shape, *a, None)  # noqa: E731
    apart = lambda *a: attention._apart(shape, *a, None)  # noqa: E731

    def gradients(function):
        loss = lambda *a: jnp.sum(function(*a) * weights)  # noqa: E731
        return jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(x, context, (hidden, of_heads, of_keys))

    for found, expected in zip(jax.tree.leaves(gradients(together)), jax.tree.leaves(gradients(apart)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_gradients_are_those_of_autodiff(rate: float) -> None:
    """By queries, keys, values and biases of all shapes, as one arm and mapped over two."""
    shapes = [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), (1, 3, 1, 7), (2, 1, 5, 7), (1, 1, 5, 7)]
    numbers = [jax.random.normal(jax.random.key(i), (2, *shape)) for i, shape in enumerate(shapes)]
    key = jax.random.key(9)

    def plain(queries, keys, values, *biases):
        weights = jax.nn.softmax(jnp.einsum("xyqd,xykd->xyqk", queries, keys) + sum(biases), axis=-1)
        return jnp.einsum("xyqk,xykd->xyqd", dropout(weights, rate, key), values)

    def ours(queries, keys, values, *biases):
        return attend(queries, keys, values, biases, rate, key)

    def gradients(function):
        loss = lambda *a: jnp.sum(jnp.sin(function(*a)))  # noqa: E731
        return jax.jit(jax.vmap(jax.value_and_grad(loss, tuple(range(6)))))(*numbers)

    for found, expected in zip(jax.tree.leaves(gradients(ours)), jax.tree.leaves(gradients(plain)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_gather_is_the_transpose_of_spread() -> None:
    x, y = jax.random.normal(jax.random.key(0), (2, 3, 5, 128)), jax.random.normal(jax.random.key(1), (2, 3, 20, 128))
    np.testing.assert_allclose(jnp.vdot(spread(x, 4), y), jnp.vdot(x, gather(y, 4)), rtol=1e-5)
    np.testing.assert_array_equal(gather(spread(x, 4), 4), x)


def test_which_heads_share_a_group() -> None:
    shapes = ((16, 64), (8, 105), (3, 128), (3, 64), (4, 48))
    assert [Heads(1, heads, 0.0).side_by_side(width) for heads, width in shapes] == [2, 1, 1, 0, 0]


@pytest.mark.parametrize(("plain", "ours"), [(equal_steps.plain_attend, attend), (equal_steps.plain_affine, affine)])
def test_what_equal_steps_puts_in_their_place_takes_the_same_arguments(plain, ours):
    assert list(inspect.signature(plain).parameters) == list(inspect.signature(ours).parameters)
