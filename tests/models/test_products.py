"""The product of dense layers: value and gradients are those of XLA's own, also under the transformations we use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eeg2text_jax.models.products import dense_product


def dimensions(x: jax.Array) -> tuple:
    return (((x.ndim - 1,), (0,)), ((), ()))


def arrays(*leading: int, dtype=jnp.float32) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.normal(size=shape), dtype) for shape in ((*leading, 5), (5, 7)))


def gradients(product, x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.grad(lambda x, k: jnp.sin(product(x, k, dimensions(x))).astype(jnp.float32).sum(), (0, 1))(x, kernel)


@pytest.mark.parametrize("leading", [(3,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-6), (jnp.bfloat16, 2e-2)])
def test_gradients(leading, dtype, tolerance):
    x, kernel = arrays(*leading, dtype=dtype)
    np.testing.assert_array_equal(dense_product(x, kernel, dimensions(x)), lax.dot_general(x, kernel, dimensions(x)))
    for ours, theirs in zip(gradients(dense_product, x, kernel), gradients(lax.dot_general, x, kernel), strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(
            ours.astype(jnp.float32), theirs.astype(jnp.float32), rtol=tolerance, atol=10 * tolerance
        )


def test_gradients_of_arms_and_of_layers():
    """`vmap` over arms around a checkpointed `scan` over layers, as in training."""
    rng = np.random.default_rng(0)
    x, kernels = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((2, 4, 6, 5), (2, 3, 5, 5)))

    def losses(product):
        def layer(x, kernel):
            return jnp.tanh(product(x, kernel, dimensions(x))), None

        def loss(kernels, x):
            return lax.scan(jax.checkpoint(layer), x, kernels)[0].sum()

        return jax.jit(jax.vmap(jax.value_and_grad(loss), spmd_axis_name="arm"))(kernels, x)

    ours, theirs = losses(dense_product), losses(lax.dot_general)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, theirs)


def test_other_contractions_are_refused():
    x, kernel = arrays(3)
    with pytest.raises(ValueError, match="contracts the last axis with the first"):
        dense_product(kernel, x, (((0,), (1,)), ((), ())))
    with pytest.raises(ValueError, match="contracts the last axis"):
        dense_product(x, kernel, dimensions(x), precision="highest")
