"""Decoder-only language models against PyTorch with the same random weights: logits, gradients, cached steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from causal_cases import cases, prompts, random_pair, their_logits
from test_backbones import check_gradient
from torch_reference import cross_entropy
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.backbones.decoder_only import frequencies
from eeg2text_jax.models.functional import Seq2SeqModel

LOGITS = 5e-5
SIZE, TARGET, BEAMS = 3, 6, 2
QUICK = ("llama3", "mistral", "qwen2.5", "qwen3", "gemma2", "gemma3")  # between them every part of a decoder


@pytest.mark.parametrize(("backbone", "seed"), cases(QUICK))
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


LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPES = {
    "default": {"rope_type": "default", "rope_theta": 1e4},
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0},
    "Llama 3.1": {**LLAMA3, "original_max_position_embeddings": 8192},
    "other bounds": {
        **LLAMA3,
        "low_freq_factor": 2.0,
        "high_freq_factor": 5.0,
        "original_max_position_embeddings": 512,
    },
}


@pytest.mark.parametrize("rope", ROPES.values(), ids=ROPES)
def test_rotary_frequencies_are_those_of_pytorch(rope: dict) -> None:
    """At the size of a published head, so that some frequencies are kept, some divided and some blended."""
    config = LlamaConfig(hidden_size=256, num_attention_heads=2, max_position_embeddings=16384, rope_parameters=rope)
    theirs = LlamaRotaryEmbedding(config).inv_freq.numpy()
    found = frequencies(rope, 128)
    np.testing.assert_allclose(found, theirs, rtol=1e-6)
    plain = 1.0 / rope["rope_theta"] ** (np.arange(0, 128, 2) / 128)
    kinds = {"default": {1.0}, "linear": {3.0}}.get(rope["rope_type"], {1.0, 8.0})
    assert kinds <= set(np.round(plain / found, 3).tolist())


def test_a_rotary_scaling_that_is_not_implemented_is_named() -> None:
    for name in ("yarn", "dynamic", "longrope"):
        with pytest.raises(UserError, match=f"rope_type is '{name}'; expected default, linear or llama3"):
            frequencies({"rope_type": name, "rope_theta": 1e4, "factor": 2.0}, 8)
    np.testing.assert_allclose(frequencies({"rope_theta": 1e4}, 4), [1.0, 0.01], rtol=1e-6)
