"""Pieces of layers that are written differently from what JAX has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from eeg2text_jax.models.layers import dropout, gelu


def test_gelu_is_that_of_pytorch():
    x = np.linspace(-12, 12, 4801, dtype=np.float32)
    theirs = torch.tensor(x, requires_grad=True)
    value = torch.nn.functional.gelu(theirs)
    value.sum().backward()
    np.testing.assert_allclose(gelu(jnp.asarray(x)), value.detach(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(gelu))(jnp.asarray(x)), theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("rng", ["threefry2x32", "rbg"])
def test_dropout_keeps_its_share_and_the_mean(rate, rng):
    ones = jnp.ones((1000, 1000), jnp.float32)
    dropped = np.asarray(dropout(ones, rate, jax.random.key(0, impl=rng)))
    np.testing.assert_allclose(np.unique(dropped), [0.0, 1 / (1 - rate)], rtol=1e-6)
    error = 5 * np.sqrt(rate * (1 - rate) / ones.size)
    assert abs((dropped == 0).mean() - rate) < error
    other = np.asarray(dropout(ones, rate, jax.random.key(0, impl=rng), site=1))
    assert abs(((dropped == 0) & (other == 0)).mean() - rate * rate) < error


def test_a_rate_next_to_one_drops_nearly_all():
    assert (dropout(jnp.ones(10000), 1 - 1e-9, jax.random.key(0)) == 0).mean() > 0.99
