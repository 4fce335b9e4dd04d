"""What a TPU does in place of scattering penalties and bans, against the scatter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from eeg2text_jax.search.processors import look_back, look_back_by_products, process
from eeg2text_jax.search.settings import GenerationSpec


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


@pytest.mark.parametrize(("size", "banned"), [(2, 1), (5, 0), (6, 0), (7, 0), (40, 0)])
def test_ngrams_longer_than_the_text_ban_nothing(size: int, banned: int) -> None:
    spec = GenerationSpec(0, 0, (1,), max_length=5, no_repeat_ngram_size=size)
    scores = process(jnp.zeros((1, 8)), jnp.asarray([[2, 3, 4, 2, 0]]), jnp.int32(4), spec)
    assert int(jnp.isinf(scores).sum()) == banned
