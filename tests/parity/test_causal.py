"""Decoder-only language models against PyTorch with the same random weights: logits, gradients, cached steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from causal_cases import FAMILIES, prompts, random_pair, their_logits
from test_backbones import check_gradient
from torch_reference import cross_entropy

from eeg2text_jax.models.functional import Seq2SeqModel

LOGITS = 5e-5
SIZE, TARGET, BEAMS = 3, 6, 2
# One configuration of each family; nine more with `-m slow`.
CASES = [pytest.param(name, seed, marks=[pytest.mark.slow] if seed else []) for name in FAMILIES for seed in range(10)]


@pytest.mark.parametrize(("backbone", "seed"), CASES)
def test_logits_gradients_and_steps(backbone: str, seed: int) -> None:
    pair = random_pair(backbone, seed)
    rng = np.random.default_rng(seed)
    x, mask = prompts(pair, rng, SIZE)
    ids = rng.integers(3, pair.model.spec.vocab_size, (SIZE, TARGET))
    labels = np.where(np.arange(TARGET)[None] < rng.integers(2, TARGET + 1, SIZE)[:, None], ids, -100)
    theirs = their_logits(pair, x, mask, ids)
    torch.nn.functional.cross_entropy(theirs.flatten(0, 1), torch.tensor(labels).flatten()).backward()
    model = dataclasses.replace(pair.model, remat=bool(seed % 2))
    inputs = {"inputs_embeds": jnp.asarray(x), "mask": jnp.asarray(mask)}

    @jax.jit
    def ours(params):
        def loss(params):
            logits = model.forward(params, inputs, model.shift_right(jnp.asarray(ids)))
            return cross_entropy(logits, jnp.asarray(labels)), logits

        return *jax.grad(loss, has_aux=True)(params), cached(model, params, inputs, ids)

    gradient, logits, steps = ours(pair.params)
    expected = theirs.detach().numpy()
    np.testing.assert_allclose(logits, expected, atol=LOGITS, rtol=0)
    np.testing.assert_allclose(steps, np.repeat(expected, BEAMS, axis=0).swapaxes(0, 1), atol=LOGITS, rtol=0)
    check_gradient(pair, gradient)


def cached(model: Seq2SeqModel, params: dict, inputs: dict, ids: np.ndarray) -> jax.Array:
    """Logits `[T, B * BEAMS, V]` of cached steps, of beams that hold the same."""
    cache, step = model.init_cache(params, *model.encode(params, inputs), BEAMS, TARGET), model.decode_step(params)
    before = jnp.asarray(np.repeat(np.roll(ids, 1, axis=1), BEAMS, axis=0).T, jnp.int32)
    places = jnp.arange(TARGET, dtype=jnp.int32)
    return jax.lax.scan(lambda cache, x: step(*x, cache)[::-1], cache, (before, places))[1]
