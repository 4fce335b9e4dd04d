"""Token for token what `transformers.generate` gives: 60 sentences here, 600 by `tools/generation_parity.py`."""

import jax.numpy as jnp
import numpy as np
import pytest
from generation_cases import compare_program
from table_model import generate_by_torch
from toy_models import MarkovModel, random_tables

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.decoding.generate import generate
from eeg2text_jax.decoding.settings import GenerationSpec

SEEDS = [0, 6, 7, pytest.param(12, marks=pytest.mark.slow), 13, 19]  # ten sentences each; between them every backbone


@pytest.mark.parametrize("seed", SEEDS)
def test_same_tokens_as_torch(seed):
    for verdict in compare_program(seed):
        assert verdict.same or verdict.tie, verdict.detail


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("settings", [
    {"suppress_tokens": [-1]}, {"suppress_tokens": [-1, 3, 99]}, {"begin_suppress_tokens": [-1]},
    {"eos_token_id": -1, "min_length": 4}, {"eos_token_id": [2, -1], "min_length": 4},
], ids=str)  # fmt: skip
def test_ids_that_are_no_token_are_ignored(settings, beams):
    """The last token, 5, is the most probable one after each other; -1 must not stand for it."""
    rng = np.random.default_rng(3)
    table = np.asarray(random_tables(rng, 4, 6, spread=1.0)["table"]) + np.float32([0, 0, 0, 0, 0, 2])
    chosen = {"num_beams": beams, "max_length": 6, "length_penalty": 1.0, "early_stopping": False, **settings}
    spec = GenerationSpec.from_fields(chosen, MarkovModel())
    out = generate(MarkovModel(), {"table": jnp.asarray(table)}, {"features": jnp.arange(4.0)[:, None, None]}, spec)
    expected, _ = generate_by_torch(table, **chosen)
    found = np.asarray(out.sequences)[:, : expected.shape[1]]
    np.testing.assert_array_equal(found, expected)
    assert (found == 5).sum() > 4


@pytest.mark.parametrize("name", ["forced_bos_token_id", "forced_eos_token_id"])
def test_a_forced_token_that_the_model_lacks_is_refused(name):
    """transformers ends in an IndexError; a score of 0 nowhere would leave padding as the only token."""
    spec = GenerationSpec.from_fields({name: 99, "num_beams": 2, "max_length": 4}, MarkovModel())
    tables = random_tables(np.random.default_rng(0), 2, 6, spread=1.0)
    with pytest.raises(UserError, match="force the token 99; expected one of the model's 6"):
        generate(MarkovModel(), tables, {"features": jnp.arange(2.0)[:, None, None]}, spec)
