"""Whisper against PyTorch with the same random weights: waves in, logits, gradients and sentences out."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from generation_cases import (
    SENTENCES,
    compare,
    random_sampling,
    random_settings,
    their_fields,
    torch_generate,
)
from torch_reference import Pair, cross_entropy, to_params
from transformers import WhisperForConditionalGeneration

from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models.backbones import whisper
from eeg2text_jax.models.backbones.mapping import dense, flatten
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.spec import EEGSpec, StackSpec, WaveSpec

LOGITS, GRADIENT = 1e-5, 1e-4


def make_pair(seed: int, **changes: Any) -> Pair:
    """A PyTorch model whose every parameter is random, and ours; the first convolution reads channels, not bands."""
    rng = np.random.default_rng(seed)
    heads = int(rng.choice([2, 4]))
    fields = {
        "vocab_size": int(rng.integers(60, 140)), "d_model": 32, "num_mel_bins": int(rng.integers(3, 9)),
        "encoder_layers": int(rng.integers(1, 4)), "decoder_layers": int(rng.integers(1, 4)),
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 40, "max_source_positions": 12, "max_target_positions": 40, "pad_token_id": 1,
        "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 4, **changes,
    }  # fmt: skip
    config = whisper.random_config(fields)
    torch.manual_seed(seed)
    theirs = WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for tensor in theirs.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.1)
    spec = whisper.spec_from_config(config)
    waves = WaveSpec(StackSpec(layers=0, width=32, heads=1, head_dim=32, ffn=1, activation="gelu"), strides=(1,))
    model = Seq2SeqModel(spec, EEGSpec(config.num_mel_bins, kind="conv", bridge="none", waves=waves))
    table = whisper.table(spec)
    table = dataclasses.replace(
        table, rules=(*table.rules, *dense("eeg/conv_0/convolution", "model.encoder.conv1")), ignored=()
    )
    tensors = {name: tensor.detach().numpy() for name, tensor in theirs.state_dict().items()}
    return Pair(theirs, model, to_params(table, tensors, model), table)


def recordings(pair: Pair, seed: int, size: int = 3) -> np.ndarray:
    length = 2 * pair.model.spec.encoder.max_positions
    return np.random.default_rng(seed).normal(size=(size, length, pair.model.eeg.features)).astype(np.float32)


def inputs_of(samples: np.ndarray) -> dict[str, jax.Array]:
    return {"features": jnp.asarray(samples), "mask": jnp.ones(samples.shape[:2], bool)}


@pytest.mark.quick("0")
@pytest.mark.parametrize("seed", range(10))
def test_logits_and_gradients(seed: int) -> None:
    pair = make_pair(seed)
    samples, labels = recordings(pair, seed), np.random.default_rng(seed).integers(5, 60, (3, 6))
    labels[0, 4:] = -100
    ids = np.asarray(pair.model.shift_right(jnp.asarray(labels)))
    found = pair.theirs(input_features=torch.tensor(samples.swapaxes(1, 2)), decoder_input_ids=torch.tensor(ids))
    logits = torch.nn.functional.cross_entropy(found.logits.flatten(0, 1), torch.tensor(labels).flatten())
    logits.backward()

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        logits = pair.model.forward(params, inputs_of(samples), jnp.asarray(ids))
        return cross_entropy(logits, labels), logits

    gradient, ours = jax.jit(jax.grad(loss, has_aux=True))(pair.params)
    expected = found.logits.detach().numpy()
    assert np.abs(np.asarray(ours) - expected).max() < LOGITS * max(1.0, np.abs(expected).max())
    named = {name: tensor.grad for name, tensor in pair.theirs.named_parameters()}
    tensors = {name: np.zeros(pair.theirs.get_parameter(name).shape, np.float32) if grad is None else grad.numpy()
               for name, grad in named.items()}  # fmt: skip
    for path, theirs in flatten(to_params(pair.table, tensors, pair.model)).items():
        if path != "backbone/encoder/positions/embedding":  # PyTorch does not train it, and neither do we
            assert np.abs(np.asarray(flatten(gradient)[path]) - np.asarray(theirs)).max() < GRADIENT, path
    assert not np.asarray(gradient["backbone"]["encoder"]["positions"]["embedding"]).any()


@pytest.mark.quick("search-1", "search-2", "search-3", "sampled-5")
@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("sampled", [False, True], ids=["search", "sampled"])
def test_sentences(seed: int, sampled: bool) -> None:
    """300 sentences with a prompt of the decoder of 0 to 3 tokens, under all settings of the search."""
    for verdict in compare_program(seed, sampled):
        assert verdict.same or verdict.tie, verdict.detail


def compare_program(seed: int, sampled: bool) -> list[Any]:
    rng = np.random.default_rng(seed + 1000)
    pair = make_pair(seed)
    settings = random_settings(rng, pair.model.spec.vocab_size, pair.model.eos_token)
    settings = random_sampling(rng, settings) if sampled else settings
    prompt = tuple(int(t) for t in rng.integers(5, 60, seed % 4) if t not in settings["eos_token_id"])
    spec = GenerationSpec.from_fields({**settings, "decoder_prompt": prompt}, pair.model)
    spec = spec.replace(max_length=spec.max_length + len(prompt))
    samples = recordings(pair, seed, SENTENCES)

    def search() -> tuple[np.ndarray, np.ndarray | None]:
        fields = {name: value for name, value in their_fields(spec).items() if name != "decoder_prompt"}
        begun = torch.tensor([[spec.decoder_start_token_id, *prompt]] * SENTENCES)
        given = {"inputs": torch.tensor(samples.swapaxes(1, 2)), "decoder_input_ids": begun}
        tokens, scores = torch_generate(pair.theirs, spec, fields, given)
        return np.delete(tokens, np.arange(1, 1 + len(prompt)), axis=1), scores  # our results lack the prompt

    return compare(pair, inputs_of(samples), spec, seed, search, f"seed {seed} {settings} {prompt}")


@pytest.mark.parametrize("pad", [1, 2])
def test_labels_are_padded_with_no_token_of_a_text(pad):
    """Published checkpoints pad with their end token, which a target must keep."""
    tokens = {"pad_token_id": pad, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 4}
    spec = whisper.spec_from_config(whisper.random_config({"vocab_size": 60, **tokens}))
    assert (spec.eos_token, spec.pad_token) == (2, 60 if pad == 2 else pad)
