"""A scan over layers that keeps what it is told to: values and gradients of `lax.scan`, and nothing kept twice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eeg2text_jax.models import nnx_bridge
from eeg2text_jax.models.layers import dropout, product
from eeg2text_jax.models.nnx_bridge import scan_keeping

LAYERS, ROWS, WIDTH = 3, 4, 5


def layer(params, shared, x, key):
    h = product(jnp.tanh(x) @ params["kernel"]) + params["bias"][None] + shared["bias"][None]
    return x + dropout(jnp.sin(h) * shared["scale"], 0.5, key)


def scanned(params, shared, x, keys):
    return lax.scan(lambda x, i: (layer(i[0], shared, x, i[1]), None), x, (params, keys))[0]


@pytest.fixture(scope="module")
def arguments():
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    params = {"kernel": draw(LAYERS, WIDTH, WIDTH), "bias": draw(LAYERS, WIDTH)}
    return (
        params,
        {"bias": draw(WIDTH), "scale": draw()},
        draw(ROWS, WIDTH),
        jax.random.split(jax.random.key(0), LAYERS),
    )


def value_and_gradient(run, params, shared, x, keys):
    def total(params, shared, x):
        return jnp.sum(jnp.cos(run(params, shared, x, keys)))

    return jax.value_and_grad(total, argnums=(0, 1, 2))(params, shared, x)


def assert_same(found, expected):
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keep", ["products", "nothing"])
def test_a_scan_and_its_gradient(arguments, keep):
    expected = jax.jit(lambda *a: value_and_gradient(scanned, *a))(*arguments)
    found = jax.jit(lambda *a: value_and_gradient(lambda *b: scan_keeping(layer, *b, keep), *a))(*arguments)
    assert_same(found, expected)


def test_mapped_over_arms(arguments):
    params, shared, x, keys = arguments
    arms = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)

    def mapped(run):
        return jax.jit(jax.vmap(lambda params: value_and_gradient(run, params, shared, x, keys)))(arms)

    assert_same(mapped(lambda *a: scan_keeping(layer, *a, "products")), mapped(scanned))


def test_only_products_are_kept_beside_inputs(arguments, monkeypatch):
    """Parameters, what layers share, keys and inputs are known in the backward pass; to keep them would copy them."""
    kept = []
    take_apart = nnx_bridge._Pullback.take_apart

    def watch(self, back, known):
        kept.append(take_apart(self, back, known))
        return kept[-1]

    monkeypatch.setattr(nnx_bridge._Pullback, "take_apart", watch)
    for keep, count in (("nothing", 0), ("products", 1)):
        kept.clear()
        jax.eval_shape(lambda *a, k=keep: value_and_gradient(lambda *b: scan_keeping(layer, *b, k), *a), *arguments)
        assert [leaf.shape for leaf in kept[-1]] == [(ROWS, WIDTH)] * count
