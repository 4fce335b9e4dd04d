"""Decoder-only models decode what `transformers.generate` does with `inputs_embeds`, token for token."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from causal_cases import FAMILIES, prompts, random_pair
from generation_cases import SENTENCES, Verdict, compare_sentence, random_settings
from transformers import GenerationConfig

from eeg2text_jax.decoding.generate import generate
from eeg2text_jax.errors import UserError
from eeg2text_jax.search.settings import GenerationSpec

# Ten sentences a seed; 29 seeds more with `-m slow`.
SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed != 1 else []) for seed in range(30)]


@pytest.mark.filterwarnings("ignore:Passing .* with `inputs_embeds`:UserWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_same_tokens_as_torch(seed: int) -> None:
    for verdict in compare_program(seed):
        assert verdict.same or verdict.tie, verdict.detail


def compare_program(seed: int) -> list[Verdict]:
    """One model and one setting on ten prompts of several lengths: a verdict a sentence."""
    rng = np.random.default_rng(seed)
    family = FAMILIES[(3 * seed + 2) % len(FAMILIES)]
    pair = random_pair(family, seed)
    x, mask = prompts(pair, rng, SENTENCES)
    settings = random_settings(rng, pair.model.spec.vocab_size, pair.model.eos_token) | {"forced_bos_token_id": None}
    settings["num_beams"] = (3, 1, 2)[seed % 3]
    settings["num_return_sequences"] = 1
    spec = GenerationSpec.from_fields(settings, pair.model)
    if spec.repetition_penalty != 1.0:
        # transformers leaves as many new tokens unpenalised as the prompt has padding: with `inputs_embeds` it takes
        # them for the padding.
        mask = np.ones_like(mask)
    ours = generate(pair.model, pair.params, {"inputs_embeds": jnp.asarray(x), "mask": jnp.asarray(mask)}, spec)
    without_start = ours._replace(sequences=ours.sequences[:, 1:], lengths=ours.lengths - 1)
    theirs, scores = their_tokens(pair, x, mask, spec)
    detail = f"seed {seed} {family} {settings}"
    return [compare_sentence(i, spec, without_start, theirs, scores, detail) for i in range(SENTENCES)]


@torch.no_grad()
def their_tokens(pair, x, mask, spec: GenerationSpec):
    """New tokens `[N, T]` and, with beams, scores `[N]` of `transformers.generate`."""
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(spec).items()}
    new = {"max_new_tokens": fields.pop("max_length") - 1, "min_new_tokens": max(fields.pop("min_length") - 1, 0)}
    drop = {"decoder_start_token_id", "do_sample", "temperature", "top_k", "top_p"}
    drop |= {"length_penalty", "early_stopping"} if spec.num_beams == 1 else set()
    fields = {name: value for name, value in fields.items() if name not in drop and value not in (None, [])}
    pair.theirs.generation_config = GenerationConfig()
    config = GenerationConfig(**fields, **new, return_dict_in_generate=True, output_scores=True)
    out = pair.theirs.generate(
        inputs_embeds=torch.tensor(x), attention_mask=torch.tensor(mask).long(), generation_config=config
    )
    return out.sequences.numpy(), out.sequences_scores.numpy() if spec.num_beams > 1 else None


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
    tokens = [
        np.asarray(
            generate(pair.model, pair.params, {"inputs_embeds": jnp.asarray(a), "mask": jnp.asarray(b)}, spec)[0]
        )
        for a, b in ((x, mask), (moved, gaps))
    ]
    np.testing.assert_array_equal(*tokens)


def test_a_sequence_beyond_the_positions_is_refused() -> None:
    pair = random_pair("llama", 0)
    short = dataclasses.replace(pair.model.spec.decoder, max_positions=4)
    model = dataclasses.replace(pair.model, spec=dataclasses.replace(pair.model.spec, decoder=short))
    x, mask = prompts(pair, np.random.default_rng(0), 2)
    spec = GenerationSpec.from_fields({"max_length": 4}, model)
    with pytest.raises(UserError, match="longer than the backbone's table of 4"):
        generate(model, pair.params, {"inputs_embeds": jnp.asarray(x), "mask": jnp.asarray(mask)}, spec)
