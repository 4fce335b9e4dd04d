"""What a TPU does in place of scattering penalties and bans, against the scatter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eeg2text_jax.search.processors import look_back, look_back_by_products


@pytest.mark.parametrize(("penalty", "size"), [(5.0, 2), (1.0, 3), (0.5, 0), (2.0, 1)])
def test_products_equal_scattering(penalty: float, size: int) -> None:
    scores = jax.random.normal(jax.random.key(0), (40, 11)).at[:, 3].set(-jnp.inf)
    tokens = jax.random.randint(jax.random.key(1), (40, 14), 0, 11)
    banned = 0
    for length in (1, 2, 5, 14):
        expected = look_back(scores, tokens, jnp.int32(length), penalty, size)
        found = look_back_by_products(scores, tokens, jnp.int32(length), penalty, size)
        np.testing.assert_array_equal(found, expected)
        banned += int(jnp.isinf(expected).sum()) - 40
    assert bool(banned) == bool(size)
