"""Decoder-only models in bfloat16 deviate from float32 as much as PyTorch does, to two units in the last place."""

import copy
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from causal_cases import cases, prompts, random_pair, their_logits
from test_causal import SIZE, TARGET, cached

UNITS = 2


class Deviation(NamedTuple):
    """Largest and root-mean-square deviation of logits from float32, in units in the last place of bfloat16."""

    ours: tuple[float, float]
    pytorchs: tuple[float, float]


@pytest.mark.parametrize(("family", "seed"), cases(("qwen3", "gemma2")))
def test_half_precision_is_as_near_as_pytorchs(family: str, seed: int) -> None:
    for ours, pytorchs in deviations(family, seed):
        assert ours[0] <= pytorchs[0] + UNITS
        assert ours[1] <= 1.25 * pytorchs[1]


def deviations(family: str, seed: int) -> list[Deviation]:
    """Of one pass and of cached steps. The same bfloat16 weights and prompts in float32 and in bfloat16 on both sides.

    The unit is that of the largest logit.
    """
    pair = random_pair(family, seed)
    rng = np.random.default_rng(seed)
    x, mask = prompts(pair, rng, SIZE)
    ids = rng.integers(3, pair.model.spec.vocab_size, (SIZE, TARGET))
    inputs = {"inputs_embeds": jnp.asarray(x).astype(jnp.bfloat16), "mask": jnp.asarray(mask)}
    x = np.array(inputs["inputs_embeds"].astype(jnp.float32))
    half = pair._replace(theirs=copy.deepcopy(pair.theirs).bfloat16())
    with torch.no_grad():
        for name, tensor in half.theirs.state_dict().items():
            pair.theirs.state_dict()[name].copy_(tensor.float())
        exact = their_logits(pair, x, mask, ids).numpy()
        theirs = their_logits(half, torch.tensor(x).bfloat16(), mask, ids).float().numpy()
    model = dataclasses.replace(pair.model, dtype="bfloat16")
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), pair.params)

    @jax.jit
    def ours(params, inputs):
        logits = model.forward(params, inputs, model.shift_right(jnp.asarray(ids)))
        return logits, cached(model, params, inputs, ids)[:, ::2].swapaxes(0, 1)  # one of two equal beams

    unit = 2.0 ** (np.floor(np.log2(np.abs(exact).max())) - 7)

    def off(logits: np.ndarray) -> tuple[float, float]:
        apart = np.abs(np.asarray(logits) - exact) / unit
        return float(apart.max()), float(np.sqrt(np.square(apart).mean()))

    return [Deviation(off(logits), off(theirs)) for logits in ours(params, inputs)]
