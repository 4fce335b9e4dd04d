"""Attention a few heads at a time, as a TPU computes large batches, against all heads at once; groups of heads."""

import inspect

import equal_steps
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from eeg2text_jax.models import attention
from eeg2text_jax.models._heads import Heads, Parts, Projections, attend, attend_in_parts, gather, heads_at_once, spread
from eeg2text_jax.models.attention import MASK_VALUE, Attention
from eeg2text_jax.models.layers import affine, dropout
from eeg2text_jax.models.spec import StackSpec


def make(heads: int, head_dim: int, bias: bool) -> Attention:
    spec = StackSpec(layers=1, width=48, heads=heads, head_dim=head_dim, ffn=8, activation="relu", bias=bias)
    made = Attention(spec, jnp.float32, nnx.Rngs(0))
    if bias:
        for number, dense in enumerate((made.query, made.key, made.value, made.out)):
            dense.bias[...] = jax.random.normal(jax.random.key(number), dense.bias.shape)
    return made


@pytest.mark.parametrize(
    ("heads", "head_dim", "bias", "at_once"), [(4, 64, True, 2), (6, 32, False, 2), (2, 105, True, 1)]
)
def test_heads_in_parts_equal_heads_at_once(heads, head_dim, bias, at_once, monkeypatch) -> None:
    (structure, params), (batch, queries, keys) = nnx.split(make(heads, head_dim, bias)), (3, 5, 7)
    draw = lambda number, *shape: jax.random.normal(jax.random.key(number), shape)  # noqa: E731
    x, context = draw(1, batch * queries, 48), draw(2, batch * keys, 48)
    hidden = jnp.where(draw(3, 1, batch, queries, keys) > 1, MASK_VALUE, 0.0).at[..., 0].set(0.0)
    of_heads, of_keys = draw(4, heads, 1, queries, keys), draw(5, 1, batch, 1, keys)
    weights, used = draw(6, batch * queries, 48), []

    def gradients():
        def loss(params, x, context, biases):
            return jnp.sum(nnx.merge(structure, params)(x, context, batch, biases, None) * weights)

        return jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))(params, x, context, (hidden, of_heads, of_keys))

    def spied(parts, *arguments):
        used.append(parts.at_once)
        return attend_in_parts(parts, *arguments)

    expected = gradients()
    monkeypatch.setattr(attention, "attend_in_parts", spied)
    monkeypatch.setattr(attention, "heads_at_once", lambda *sizes: at_once)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, **ways: ways.get("tpu", ways["default"])(*args))
    for mine, theirs in zip(jax.tree.leaves(gradients()), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=5e-4)
    assert used == [at_once]


def test_parts_draw_masks_of_their_own_and_the_same_in_both_passes() -> None:
    """Two parts of equal heads give different results; the gradient of values has the mask of the result."""
    parts, rows = Parts(Heads(2, 4, 0.5), 8, 2, 1.0), jnp.tile(jax.random.normal(jax.random.key(0), (6, 16)), 2)
    eye = Projections((jnp.eye(32),) * 4, (None,) * 4)
    keys = jax.random.split(jax.random.key(1))

    def attended(values, key):
        kernels = (jnp.eye(32), jnp.eye(32), values, jnp.eye(32))
        return attend_in_parts(parts, rows, rows, eye._replace(kernels=kernels), (), key)

    attend_jitted = jax.jit(attended)
    mixed, alone = (attend_jitted(jnp.eye(32), key) for key in (jax.random.key(1), keys[1]))
    found = jax.jit(jax.grad(lambda values: jnp.vdot(attended(values, jax.random.key(1)), rows)))(jnp.eye(32))
    expected = jnp.vdot(mixed, rows)
    of_arms = jax.jit(jax.vmap(attended, (None, 0)))(jnp.eye(32), keys)
    np.testing.assert_allclose(of_arms[1], alone, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jnp.trace(found), expected, rtol=1e-5)  # the result is linear in the values
    assert not np.allclose(*jnp.split(mixed, 2, axis=1))


def test_how_many_heads_are_held_at_once() -> None:
    batches = {batch: heads_at_once(16, batch, 56, 56) for batch in (32, 64, 128, 256, 4096)}
    assert batches == {32: 16, 64: 8, 128: 4, 256: 2, 4096: 1}
    assert [heads_at_once(12, 128, 56, 56), heads_at_once(7, 128, 56, 56)] == [4, 1]  # divisors of the heads
    assert [heads_at_once(16, 32, *lengths) for lengths in ((1, 64), (1, 65), (129, 64))] == [16, 8, 8]  # tiles


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
    assert [Heads(1, heads, 0.0).side_by_side(width) for heads, width in shapes] == [2, 1, 1, 1, 1]


@pytest.mark.parametrize(("plain", "ours"), [(equal_steps.plain_attend, attend), (equal_steps.plain_affine, affine)])
def test_what_equal_steps_puts_in_their_place_takes_the_same_arguments(plain, ours):
    assert list(inspect.signature(plain).parameters) == list(inspect.signature(ours).parameters)
