"""Dropout where PyTorch's models have it: at the same places, of the same rates, each with a key of its own."""

import dataclasses
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from test_backbones import BART, BERT, TOKENS, V11, ZERO_PAD
from torch_reference import CLASSES

from eeg2text_jax.models import _heads, layers
from eeg2text_jax.models.backbones.build import backbone_module
from eeg2text_jax.models.brain import ReconstructionModel
from eeg2text_jax.models.functional import ContrastiveModel, Seq2SeqModel
from eeg2text_jax.models.spec import EEGSpec, LoraSpec

RATES = {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3}
BERT_RATES = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
LLAMA = {**TOKENS, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 32, "attention_dropout": 0.2}  # fmt: skip
CASES = {
    "bart": {**BART, **RATES},
    "pegasus": {**BART, **ZERO_PAD, **RATES},
    "t5": {**V11, "dropout_rate": 0.15, "num_decoder_layers": 1},
    "bert2bert": {**BERT, **BERT_RATES, "decoder_num_hidden_layers": 1, "encoder_hidden_dropout_prob": 0.4},
    "llama": LLAMA,
}
BATCH, SOURCE, TARGET = 3, 7, 5  # sizes of what is dropped tell where it is
INPUTS = {"inputs_embeds": jnp.ones((BATCH, SOURCE, 24)), "mask": jnp.ones((BATCH, SOURCE), bool)}
IDS = jnp.ones((BATCH, TARGET), jnp.int32)


@pytest.fixture
def drawn(monkeypatch):
    """Masks that our models draw: their number of elements, rate and key."""
    draw_kept, seen = layers.draw_kept, []

    def recorded(shape, rate, key, site=0):
        if key is not None and rate:
            data = np.asarray(jax.random.key_data(layers.site_key(key, site))).tolist()
            seen.append((int(np.prod(shape)), rate, tuple(data)))
        return draw_kept(shape, rate, key, site)

    for module in (layers, _heads):
        monkeypatch.setattr(module, "draw_kept", recorded)
    return seen


def places(seen: list[tuple]) -> Counter:
    assert len({key for *_, key in seen}) == len(seen), "two masks have one key"
    return Counter((size, rate) for size, rate, _ in seen)


def of_torch(monkeypatch, run: Any) -> Counter:
    """Number of elements and rate of each dropout in PyTorch."""
    dropout, seen = torch.nn.functional.dropout, Counter()

    def recorded(x, p=0.5, training=True, inplace=False):
        if training and p:
            seen[x.numel(), p] += 1
        return dropout(x, p, training, inplace)

    monkeypatch.setattr(torch.nn.functional, "dropout", recorded)
    run()
    return seen


def tensors(model: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.1, leaf.dtype), model.shapes)


@pytest.mark.parametrize("name", CASES)
def test_dropout_is_where_pytorch_has_it(name, drawn, monkeypatch) -> None:
    backbone = backbone_module(name)
    config = backbone.random_config(CASES[name])
    config._attn_implementation = "eager"
    theirs = CLASSES[name](config).train()
    embeds = torch.ones(BATCH, SOURCE, 24)

    def run() -> None:
        if name == "llama":  # one sequence: the start token is the last position of the prompt
            theirs(inputs_embeds=torch.ones(BATCH, SOURCE + TARGET - 1, 24))
        else:
            theirs(inputs_embeds=embeds, decoder_input_ids=torch.ones(BATCH, TARGET).long())

    model = Seq2SeqModel(backbone.spec_from_config(config), unroll=True)
    with jax.disable_jit():
        model.forward(tensors(model), INPUTS, IDS, dropout_key=jax.random.key(0))
        assert places(drawn) == of_torch(monkeypatch, run)
        drawn.clear()
        model.forward(tensors(model), INPUTS, IDS)
    assert not drawn, "without a key"


WIDE, HIDDEN, FFN = 12, 16, 20
BRAINS = {
    "transformer": (EEGSpec(WIDE, layers=2, heads=4, ffn=FFN, dropout=0.3), WIDE),
    "unicorn": (EEGSpec(WIDE, layers=2, heads=4, ffn=FFN, dropout=0.3, kind="unicorn", width=16, hidden=9), HIDDEN),
    "lstm": (EEGSpec(WIDE, layers=3, dropout=0.3, kind="lstm", width=8), 2 * 8),
}


@pytest.mark.parametrize("kind", BRAINS)
def test_brain_encoders_drop_beside_the_language_model_and_in_other_objectives(kind, drawn) -> None:
    """Attention, both sublayers, and the feed-forward network inside; an LSTM between its layers."""
    eeg, width = BRAINS[kind]
    positions = BATCH * SOURCE
    expected = Counter({(positions * width, 0.3): 2})  # between three layers of an LSTM
    if kind != "lstm":
        sizes = {(positions * SOURCE * eeg.heads, 0.3): 2, (positions * width, 0.3): 4, (positions * FFN, 0.3): 2}
        expected = Counter(sizes)
    spec = backbone_module("bart").spec_from_config(backbone_module("bart").random_config({**BART, "dropout": 0.1}))
    stacks = {
        side: dataclasses.replace(getattr(spec, side), layers=1, dropout=0.0, embedding_dropout=rate)
        for side, rate in (("encoder", 0.1), ("decoder", 0.2))
    }
    model = Seq2SeqModel(dataclasses.replace(spec, **stacks), eeg)
    inputs = {"features": jnp.ones((BATCH, SOURCE, WIDE)), "mask": INPUTS["mask"]}
    contrastive = ContrastiveModel(model, width=6, outputs=5, temperature=0.1, learn_temperature=False)
    with jax.disable_jit():
        model.forward(tensors(model), inputs, IDS, dropout_key=jax.random.key(0))
        both = {(positions * 24, 0.1): 1, (BATCH * TARGET * 24, 0.2): 1}
        assert places(drawn) == expected + Counter(both)
        drawn.clear()
        contrastive.embed(tensors(contrastive), inputs, dropout_key=jax.random.key(0))
        assert places(drawn) == expected
        drawn.clear()
        if kind == "unicorn":
            series = ReconstructionModel(eeg, "series", pad_token=1, hidden_share=0.5)
            series.reconstruct(tensors(series), inputs["features"], inputs["mask"], dropout_key=jax.random.key(0))
            assert places(drawn) == expected


def test_adapters_drop_their_input(drawn) -> None:
    """Each has a mask of its own, of the rate of adapters."""
    backbone = backbone_module("llama")
    spec = backbone.spec_from_config(backbone.random_config({**LLAMA, "attention_dropout": 0.0}))
    lora = LoraSpec(2, 4.0, 0.25, ("query", "key", "value", "out", "gate", "inner", "outer"))
    model = Seq2SeqModel(dataclasses.replace(spec, decoder=dataclasses.replace(spec.decoder, lora=lora)))
    with jax.disable_jit():
        model.forward(tensors(model), INPUTS, IDS, dropout_key=jax.random.key(0))
    rows = BATCH * (SOURCE + TARGET - 1)
    assert places(drawn) == Counter({(rows * 24, 0.25): 2 * 6, (rows * 32, 0.25): 2})
