"""Attention whose key heads are shared by several query heads, on batches of all sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eeg2text_jax.models.attention import mask_bias
from eeg2text_jax.models.heads import Heads, attend_apart

LENGTH, HEAD_DIM = 13, 16


@pytest.mark.parametrize("batch", [4, 32])
@pytest.mark.parametrize(("heads", "key_heads"), [(2, 1), (3, 1), (4, 2), (2, 2)])
def test_attention_with_shared_key_heads(heads: int, key_heads: int, batch: int) -> None:
    """Of more than 16 sentences with one key head, XLA:CPU forgot the keys while the gradients still saw them."""
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(batch, LENGTH, heads, HEAD_DIM)).astype(np.float32)
    keys, values = rng.normal(size=(2, batch, LENGTH, key_heads, HEAD_DIM)).astype(np.float32)
    seen = np.broadcast_to(np.tril(np.ones((LENGTH, LENGTH), bool)), (batch, LENGTH, LENGTH))
    wide = [np.repeat(part, heads // key_heads, axis=2) for part in (keys, values)]
    scores = np.where(seen[:, None], np.einsum("bqhd,bkhd->bhqk", queries, wide[0]), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(axis=-1, keepdims=True), wide[1])

    @jax.jit
    def ours(*parts: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        rows = [part.reshape(batch * LENGTH, -1) for part in parts]
        bias = mask_bias(jnp.asarray(seen))[None]
        mixed, back = jax.vjp(lambda *rows: attend_apart(Heads(batch, heads, 0.0), *rows, (bias,), None), *rows)
        return mixed, back(mixed)

    mixed, gradients = ours(*map(jnp.asarray, (queries, keys, values)))
    np.testing.assert_allclose(np.asarray(mixed).reshape(expected.shape), expected, atol=1e-5)
    # The gradient of |mixed|^2 / 2 along the queries: the change of the value by a small step.
    step = 1e-3 * np.asarray(gradients[0]).reshape(queries.shape) / np.linalg.norm(gradients[0])
    more, less = (np.square(np.asarray(ours(queries + s, keys, values)[0])).sum() / 2 for s in (step, -step))
    assert (more - less) / 2e-3 == pytest.approx(np.linalg.norm(gradients[0]), rel=2e-2)
