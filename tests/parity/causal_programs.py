"""Random programs of decoder-only models whose tokens must be those of `transformers.generate` with `inputs_embeds`."""

from functools import partial
from typing import Any

import numpy as np
import torch
from causal_cases import FAMILIES, prompts, random_pair
from generation_cases import (
    SENTENCES,
    Verdict,
    compare,
    random_sampling,
    random_settings,
    their_fields,
    torch_generate,
)
from torch_reference import Pair

from eeg2text_jax.decoding.settings import GenerationSpec


def compare_program(seed: int, sampled: bool | None = None) -> list[Verdict]:
    """One model and one setting on ten prompts of several lengths, padded on the left: a verdict a sentence.

    Args:
      sampled: draw tokens, with the same random numbers on both sides; None: in half of the seeds.
    """
    rng = np.random.default_rng(seed)
    sampled = seed // 3 % 2 == 1 if sampled is None else sampled
    family = tuple(FAMILIES)[(4 * seed + 2) % len(FAMILIES)]
    pair = random_pair(family, seed)
    x, mask = prompts(pair, rng, SENTENCES)
    settings = _settings(rng, pair, seed, sampled)
    spec = GenerationSpec.from_fields(settings, pair.model)
    if spec.repetition_penalty != 1.0:
        # transformers leaves as many new tokens unpenalised as the prompt has padding: with `inputs_embeds` it takes
        # them for the padding.
        mask = np.ones_like(mask)
    search = partial(their_tokens, pair, x, mask, spec)
    return compare(pair, {"inputs_embeds": x, "mask": mask}, spec, seed, search, f"seed {seed} {family} {settings}")


def _settings(rng: np.random.Generator, pair: Pair, seed: int, sampled: bool) -> dict[str, Any]:
    settings = random_settings(rng, pair.model.spec.vocab_size, pair.model.eos_token)
    beams = (3, 1, 2)[seed % 3]
    returned = int(rng.integers(1, beams + 1))
    settings |= {"forced_bos_token_id": None, "num_beams": beams, "num_return_sequences": returned}
    return random_sampling(rng, settings) if sampled else settings


def their_tokens(
    pair: Pair, x: np.ndarray, mask: np.ndarray, spec: GenerationSpec
) -> tuple[np.ndarray, np.ndarray | None]:
    """Tokens `[N, T]` after our start token and, with beams, scores `[N]` of `transformers.generate`."""
    fields = their_fields(spec)
    fields.pop("decoder_start_token_id")
    new = {"max_new_tokens": fields.pop("max_length") - 1, "min_new_tokens": max(fields.pop("min_length") - 1, 0)}
    given = {"inputs_embeds": torch.tensor(x), "attention_mask": torch.tensor(mask).long()}
    tokens, scores = torch_generate(pair.theirs, spec, {**fields, **new}, given)
    return np.insert(tokens, 0, spec.decoder_start_token_id, axis=1), scores
