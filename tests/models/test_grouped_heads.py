"""Attention whose key heads are shared by several query heads, on batches of all sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eeg2text_jax.models._heads import Heads, attend_apart
from eeg2text_jax.models.attention import mask_bias

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

    rows = [jnp.asarray(part.reshape(batch * LENGTH, -1)) for part in (queries, keys, values)]
    bias = mask_bias(jnp.asarray(seen))[None]

    def attend(*rows: jax.Array) -> jax.Array:
        return attend_apart(Heads(batch, heads, 0.0), *rows, (bias,), None)

    np.testing.assert_allclose(np.asarray(jax.jit(attend)(*rows)).reshape(expected.shape), expected, atol=1e-5)
    # Along the gradient in queries and keys, the value changes by the gradient's norm.
    value = jax.jit(jax.value_and_grad(lambda *rows: jnp.square(attend(*rows)).sum() / 2, argnums=(0, 1)))
    gradients = [np.asarray(part) for part in value(*rows)[1]]
    size = np.sqrt(sum(np.square(part).sum() for part in gradients))
    moved = [[x + sign * 1e-2 * g / size for x, g in zip(rows, gradients, strict=False)] for sign in (1, -1)]
    more, less = (float(value(*some, rows[2])[0]) for some in moved)
    assert (more - less) / 2e-2 == pytest.approx(size, rel=2e-2)
