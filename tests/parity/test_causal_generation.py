"""Decoder-only models decode what `transformers.generate` does with `inputs_embeds`, token for token."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from causal_cases import prompts, random_pair
from causal_programs import compare_program

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.decoding.generate import generate
from eeg2text_jax.decoding.settings import GenerationSpec

# Ten sentences a seed, of beams (seed 0 with grouped heads), greedy and sampled in turn; 57 seeds more with `-m slow`.
SEEDS = [pytest.param(seed, marks=[] if seed in (0, 1, 3) else [pytest.mark.slow]) for seed in range(60)]


@pytest.mark.filterwarnings("ignore:Passing .* with `inputs_embeds`:UserWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_same_tokens_as_torch(seed: int) -> None:
    for verdict in compare_program(seed):
        assert verdict.same or verdict.tie, verdict.detail


def test_where_the_padding_is_changes_no_token() -> None:
    """A prompt with gaps, as a short recording leaves them, is the same prompt padded on the left."""
    rng = np.random.default_rng(5)
    pair = random_pair("gemma3", 0)
    x, mask = prompts(pair, rng, 3)
    spec = GenerationSpec.from_fields({"num_beams": 2, "max_length": 6}, pair.model)
    order = rng.permuted(np.tile(np.arange(x.shape[1]), (3, 1)), axis=1)
    gaps = np.take_along_axis(mask, order, axis=1)
    moved = np.zeros_like(x)
    for row in range(3):
        moved[row, gaps[row]] = x[row, mask[row]]
    fed = [{"inputs_embeds": jnp.asarray(a), "mask": jnp.asarray(b)} for a, b in ((x, mask), (moved, gaps))]
    tokens = [np.asarray(generate(pair.model, pair.params, inputs, spec)[0]) for inputs in fed]
    np.testing.assert_array_equal(*tokens)


def test_a_sequence_beyond_the_positions_is_refused() -> None:
    pair = random_pair("llama3", 0)
    short = dataclasses.replace(pair.model.spec.decoder, max_positions=4)
    model = dataclasses.replace(pair.model, spec=dataclasses.replace(pair.model.spec, decoder=short))
    x, mask = prompts(pair, np.random.default_rng(0), 2)
    spec = GenerationSpec.from_fields({"max_length": 4}, model)
    with pytest.raises(UserError, match="longer than the backbone's table of 4"):
        generate(model, pair.params, {"inputs_embeds": jnp.asarray(x), "mask": jnp.asarray(mask)}, spec)
