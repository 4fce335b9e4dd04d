"""Token for token what `transformers.generate` gives: 60 sentences here, 600 by `tools/generation_parity.py`."""

import jax.numpy as jnp
import numpy as np
import pytest
from generation_cases import compare_program, random_case
from torch_reference import make_pair

from eeg2text_jax.decoding.generate import generate
from eeg2text_jax.search.settings import GenerationSpec

SEEDS = [0, 6, 7, pytest.param(12, marks=pytest.mark.slow), 13, 19]  # ten sentences each; between them every backbone


@pytest.mark.parametrize("seed", SEEDS)
def test_same_tokens_as_torch(seed):
    for verdict in compare_program(seed):
        assert verdict.same or verdict.tie, verdict.detail


def test_padding_neighbours_and_order_change_no_token():
    rng = np.random.default_rng(0)
    pair = make_pair(random_case(rng, "bart"))
    spec = GenerationSpec.from_fields({"num_beams": 2, "max_length": 8, "repetition_penalty": 2.0}, pair.model)
    features = rng.normal(size=(3, 8, pair.model.spec.d_model)).astype(np.float32)

    def tokens(rows, width):
        """Sentences of 5 words, with whatever lies behind them up to `width`."""
        mask = np.broadcast_to(np.arange(width) < 5, (len(rows), width))
        inputs = {"inputs_embeds": jnp.asarray(features[rows, :width]), "mask": jnp.asarray(mask)}
        return np.asarray(generate(pair.model, pair.params, inputs, spec).sequences)

    expected = tokens([0, 1, 2], 5)
    np.testing.assert_array_equal(tokens([0, 1, 2], 8), expected)
    np.testing.assert_array_equal(tokens([2, 0, 1], 8), expected[[2, 0, 1]])
    np.testing.assert_array_equal(tokens([1, 1, 1], 8), expected[[1, 1, 1]])
