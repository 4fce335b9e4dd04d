"""What a TPU does in place of scattering penalties and bans, against the scatter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from eeg2text_jax.decoding.beam_search import look_back, look_back_by_products, process, warp
from eeg2text_jax.decoding.settings import GenerationSpec


@pytest.mark.parametrize(("penalty", "size"), [(5.0, 2), (1.0, 3), (0.5, 0), (2.0, 1)])
def test_products_equal_scattering(penalty: float, size: int) -> None:
    scores = jax.random.normal(jax.random.key(0), (40, 11)).at[:, 3].set(-jnp.inf)
    tokens = jax.random.randint(jax.random.key(1), (40, 14), 0, 11)
    ways = [jax.jit(way, static_argnums=(3, 4)) for way in (look_back, look_back_by_products)]
    banned = 0
    for length in (1, 2, 5, 14):
        expected, found = (way(scores, tokens, jnp.int32(length), penalty, size) for way in ways)
        np.testing.assert_array_equal(found, expected)
        banned += int(jnp.isinf(expected).sum()) - 40
    assert bool(banned) == bool(size)


@pytest.mark.parametrize(("size", "banned"), [(2, 1), (5, 0), (6, 0), (7, 0), (40, 0)])
def test_ngrams_longer_than_the_text_ban_nothing(size: int, banned: int) -> None:
    spec = GenerationSpec(0, 0, (1,), max_length=5, no_repeat_ngram_size=size)
    scores = process(jnp.zeros((1, 8)), jnp.asarray([[2, 3, 4, 2, 0]]), jnp.int32(4), spec)
    assert int(jnp.isinf(scores).sum()) == banned


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(("heat", "top_k", "top_p"), [(1.0, 1, 1.0), (1.0, 0, 0.5), (2.0, 3, 0.6), (0.5, 90, 0.01)])
def test_warpers_keep_what_those_of_transformers_keep(beams: int, heat: float, top_k: int, top_p: float) -> None:
    """In their order; with beams and two end tokens at least three tokens stay. The first row has a tie at the mass."""
    rng = np.random.default_rng(0)
    scores = np.stack([np.log([0.5, 0.25, 0.125, 0.0625, 0.0625]), *rng.normal(size=(20, 5))]).astype(np.float32)
    spec = GenerationSpec(0, 0, (1, 2), num_beams=beams, do_sample=True, temperature=heat, top_k=top_k, top_p=top_p)
    found, expected = warp(jnp.asarray(scores), spec), torch.tensor(scores)
    least = {"min_tokens_to_keep": 1 if beams == 1 else 3}
    chain = [TemperatureLogitsWarper(heat)]
    chain += [TopKLogitsWarper(top_k, **least)] if top_k else []
    chain += [TopPLogitsWarper(top_p, **least)] if top_p < 1.0 else []
    for warper in chain:
        expected = warper(None, expected)
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected.numpy()))
    kept = np.isfinite(found)
    np.testing.assert_allclose(np.asarray(found)[kept], expected.numpy()[kept], rtol=1e-6)
    assert not kept.all()
