"""Sampling draws from the distributions that PyTorch draws from, and is reproducible from its key."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from table_model import generate_by_torch
from toy_models import MarkovModel, random_tables

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.decoding.generate import generate
from eeg2text_jax.decoding.settings import GenerationSpec

MODEL = MarkovModel()
DRAWS = 2000
SETTINGS = [
    {"num_beams": 1, "top_k": 0},
    {"num_beams": 1, "top_k": 4, "temperature": 0.7, "repetition_penalty": 1.5},
    {"num_beams": 1, "top_k": 0, "top_p": 0.8, "no_repeat_ngram_size": 2},
    {"num_beams": 1, "top_k": 3, "num_return_sequences": 3, "min_length": 3},
    {"num_beams": 3, "top_k": 0},
    {"num_beams": 2, "top_k": 5, "temperature": 1.3, "repetition_penalty": 5.0, "no_repeat_ngram_size": 2},
    {"num_beams": 2, "top_k": 0, "top_p": 0.7, "renormalize_logits": True},
]


def spec(**settings):
    return GenerationSpec(0, 1, 2, max_length=4, do_sample=True, **settings)


def ours(table, settings, key):
    inputs = {"features": jnp.zeros((DRAWS, 1, 1))}
    out = generate(MODEL, {"table": jnp.asarray(table)}, inputs, spec(**settings), key=key)
    return [tuple(row[:n].tolist()) for row, n in zip(np.asarray(out.sequences), out.lengths.tolist(), strict=True)]


def torchs(table, settings):
    torch.manual_seed(0)
    rows, _ = generate_by_torch(np.repeat(table, DRAWS, axis=0), max_length=4, do_sample=True, **settings)
    return [tuple(row[: row.index(2) + 1] if 2 in row else row) for row in rows.tolist()]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_same_distribution_as_torch(settings):
    table = np.asarray(random_tables(np.random.default_rng(1), 1, 6, spread=1.0)["table"])
    counts = [Counter(ours(table, settings, jax.random.key(0))), Counter(torchs(table, settings))]
    common = [s for s in counts[0] | counts[1] if counts[0][s] + counts[1][s] >= 20]
    assert len(common) >= 5
    rare = [sum(c.values()) - sum(c[s] for s in common) for c in counts]
    observed = np.array([[c[s] for s in common] + [r] for c, r in zip(counts, rare, strict=True)])
    observed = observed[:, observed.sum(axis=0) > 0]
    assert chi2_contingency(observed).pvalue > 1e-3


@pytest.mark.parametrize("settings", [{"num_beams": 1, "top_k": 0}, {"num_beams": 3, "top_k": 0}], ids=str)
def test_reproducible_from_the_key_whatever_the_batch(settings):
    params = random_tables(np.random.default_rng(2), 1, 8, spread=1.0)
    inputs = {"features": jnp.zeros((5, 1, 1))}
    keys = jax.random.split(jax.random.key(3), 5)
    first = generate(MODEL, params, inputs, spec(**settings), key=keys)
    again = generate(MODEL, params, inputs, spec(**settings), key=keys[::-1])
    np.testing.assert_array_equal(first.sequences, again.sequences[::-1])
    other = generate(MODEL, params, inputs, spec(**settings), key=jax.random.key(4))
    assert (np.asarray(first.sequences) != np.asarray(other.sequences)).any()


def test_sampling_without_a_key_is_refused():
    params = random_tables(np.random.default_rng(2), 1, 8)
    with pytest.raises(ValueError, match="key"):
        generate(MODEL, params, {"features": jnp.zeros((1, 1, 1))}, spec())


def test_targets_are_refused():
    params = random_tables(np.random.default_rng(2), 1, 8)
    inputs = {"features": jnp.zeros((1, 1, 1)), "labels": jnp.zeros((1, 3), jnp.int32)}
    with pytest.raises(UserError, match="labels"):
        generate(MODEL, params, inputs, GenerationSpec(0, 1, 2))
    prompted = {"features": inputs["features"], "decoder_input_ids": jnp.zeros((1, 2), jnp.int32)}
    with pytest.raises(UserError, match="not decoder_input_ids, as it begins with the start token alone"):
        generate(MODEL, params, prompted, GenerationSpec(0, 1, 2))
