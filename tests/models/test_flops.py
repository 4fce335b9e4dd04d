"""Analytic operations against the matrix products in the traced programs, counted one by one."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers
from jax.interpreters.partial_eval import dce_jaxpr
from jaxprs import called

from eeg2text_jax.base.devices.arms import Divided, joined
from eeg2text_jax.decoding.generate import search
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models import attention
from eeg2text_jax.models.backbones import bart, decoder_only, t5
from eeg2text_jax.models.functional import (
    LENGTH_FEATURES,
    ContrastiveModel,
    Seq2SeqModel,
    brain_flops,
    divide,
    search_flops,
    step_flops,
    training_flops,
)
from eeg2text_jax.models.spec import EEGSpec, LoraSpec
from eeg2text_jax.training.grid_program import clip_loss
from eeg2text_jax.training.step import summed_loss

WORDS, TOKENS, BATCH = 9, 7, 3
LAYERS = {f"{side}_{field}": n for side in ("encoder", "decoder") for field, n in (("layers", 2), ("ffn_dim", 80))}
HEADS = {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
BART = transformers.BartConfig(d_model=48, vocab_size=300, **LAYERS, **HEADS)
GATED = transformers.T5Config(
    d_model=48, d_kv=16, d_ff=80, num_layers=2, num_heads=4, vocab_size=300, feed_forward_proj="gated-gelu"
)
MODELS = {
    "bart": Seq2SeqModel(bart.spec_from_config(BART), EEGSpec(features=30, layers=2, heads=4, ffn=40)),
    "gated T5 with a prompt": Seq2SeqModel(
        t5.spec_from_config(GATED), EEGSpec(features=30, layers=1, heads=4, ffn=40, width=32, prompt=(5, 6))
    ),
}


def products(jaxpr: Any, turns: Iterator[int], platform: str = "cpu") -> float:
    """Two operations for every multiply-add of every `dot_general`; each while loop takes the next of `turns`."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            ((contracted, _), _), left = equation.params["dimension_numbers"], equation.invars[0].aval.shape
            total += 2.0 * np.prod(equation.outvars[0].aval.shape) * np.prod([left[axis] for axis in contracted])
            continue
        if equation.primitive.name == "cond":  # of its branches one runs
            branches = taken(equation.params, platform)
            total += max(products(branch.jaxpr, turns, platform) for branch in branches)
            continue
        times = next(turns) if equation.primitive.name == "while" else equation.params.get("length", 1)
        total += times * sum(products(inner, turns, platform) for inner in called(equation))
    return total


def taken(params: dict[str, Any], platform: str) -> list[Any]:
    """The branches of a condition, or the one that a platform takes."""
    branches, platforms = params["branches"], params.get("branches_platforms")
    if platforms is None:
        return list(branches)
    return [b for b, names in zip(branches, platforms, strict=True) if names is None or platform in names][:1]


def inputs(model: Seq2SeqModel) -> dict[str, jax.Array]:
    return {"features": jnp.ones((BATCH, WORDS, model.eeg.features)), "mask": jnp.ones((BATCH, WORDS), bool)}


@pytest.mark.parametrize("name", MODELS)
def test_training(name):
    """Three times the forward pass, less the gradient of the features, which nobody asks for.

    Layers that are computed again to save memory do not count.
    """
    model = MODELS[name]
    labels = jnp.full((BATCH, TOKENS), 7)

    def loss(params: Any) -> jax.Array:
        logits = model.forward(params, inputs(model), model.shift_right(labels), dropout_key=jax.random.key(0))
        return summed_loss(logits, labels, jnp.ones(BATCH), model.pad_token)[0]

    params = model.shapes
    counted = products(jax.make_jaxpr(jax.grad(loss))(params).jaxpr, iter(()))
    expected = training_flops(dataclasses.replace(model, remat=True), BATCH, WORDS, TOKENS)
    assert expected * 0.97 < counted <= expected


@pytest.mark.parametrize("name", MODELS)
def test_contrastive_training(name):
    """Each recording with every text of the batch; nobody asks for the gradients of what is fed and of the texts."""
    model = ContrastiveModel(MODELS[name], width=16, outputs=20, temperature=0.1, learn_temperature=True)

    def loss(params: Any) -> jax.Array:
        brain = model.embed(params, inputs(model), dropout_key=jax.random.key(0))
        text, ids = jnp.ones((BATCH, model.outputs)), jnp.arange(BATCH, dtype=jnp.int32)
        return clip_loss(brain, text, ids, jnp.ones(BATCH), model.scale(params), True)

    counted = products(jax.make_jaxpr(jax.grad(loss))(model.shapes).jaxpr, iter(()))
    unasked = LENGTH_FEATURES * model.width + BATCH * model.outputs + WORDS * model.eeg.features * model.eeg.width
    assert counted == training_flops(model, BATCH, WORDS, TOKENS) - 2 * BATCH * unasked


@pytest.mark.parametrize(("layers", "width"), [(1, 0), (3, 20)])
def test_an_lstm_encoder(layers, width):
    eeg = EEGSpec(features=30, layers=layers, width=width, kind="lstm")
    model = dataclasses.replace(MODELS["bart"], eeg=eeg)
    given = inputs(model)
    traced = jax.make_jaxpr(lambda params: model._bind(params).eeg(given["features"], given["mask"]))(model.shapes)
    assert products(traced.jaxpr, iter(())) == BATCH * brain_flops(eeg, WORDS, model.spec.d_model)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("name", MODELS)
def test_beam_search(name, platform):
    model, length, beams = MODELS[name], 6, 3
    spec = GenerationSpec.from_fields({"num_beams": beams, "max_length": length}, model)
    params = model.shapes
    traced = jax.make_jaxpr(lambda p: search(model, p, inputs(model), spec, None))(params)
    # Further loops, for sentences that are left when others are done, take no turn: all take the full length.
    turns = attention.steps_of((length,), platform)
    counted = products(traced.jaxpr, itertools.chain(turns, itertools.repeat(0)), platform)
    assert counted == pytest.approx(search_flops(model, BATCH, WORDS, length, beams), rel=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_search_whose_cache_grows(name, monkeypatch):
    model, length, beams = MODELS[name], 6, 3
    monkeypatch.setattr(attention, "LANES", 6)
    sizes = model.cache_lengths(beams, length, "tpu")
    assert sizes == ((6,) if model.spec.encoder is None else (2, 4, 6))
    spec = GenerationSpec.from_fields({"num_beams": beams, "max_length": length}, model)
    traced = jax.make_jaxpr(lambda p: search(model, p, inputs(model), spec, None, platform="tpu"))(model.shapes)
    counted = products(traced.jaxpr, iter(attention.steps_of(sizes, "tpu")), "tpu")
    expected = search_flops(model, BATCH, WORDS, length, beams, sizes)
    if len(sizes) > 1:  # the first of all steps has two rows and one position, in place of the last size's
        expected -= step_flops(model, BATCH, WORDS, length, beams) - step_flops(model, BATCH, WORDS, 1, 2)
    assert counted == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("targets", [(), ("query", "value", "outer")])
def test_a_frozen_language_model_needs_no_gradient_of_its_weights(targets):
    """Counted in a gradient by the trained parameters alone: two passes of frozen weights, not three."""
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=300,
    )  # fmt: skip
    spec = decoder_only.MODELS["llama"].spec_from_config(config)
    lora = LoraSpec(rank=4, alpha=8.0, dropout=0.0, targets=targets) if targets else None
    spec = dataclasses.replace(spec, decoder=dataclasses.replace(spec.decoder, lora=lora))
    eeg = EEGSpec(features=30, layers=1, heads=4, ffn=40, width=32, prompt=(5, 6))
    model = Seq2SeqModel(spec, eeg, shared_frozen=True)
    labels = jnp.full((BATCH, TOKENS), 7)

    def loss(trained: Any, frozen: Any) -> jax.Array:
        params = joined(Divided(trained, frozen))
        logits = model.forward(params, inputs(model), model.shift_right(labels), dropout_key=jax.random.key(0))
        return summed_loss(logits, labels, jnp.ones(BATCH), model.pad_token)[0]

    traced = jax.make_jaxpr(jax.grad(loss))(*divide(model.shapes)).jaxpr
    used, _ = dce_jaxpr(traced, [True] * len(traced.outvars))  # XLA drops the head's unused gradient, too
    counted, expected = products(used, iter(())), training_flops(model, BATCH, WORDS, TOKENS)
    assert expected * 0.97 < counted <= expected
    whole = dataclasses.replace(model, shared_frozen=False)
    assert training_flops(whole, BATCH, WORDS, TOKENS) > 1.2 * expected
