"""Whole test sets: every sample once, in its place, whatever the batch; the same on one device and on eight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_models import MarkovModel, random_tables
from transformers import BartConfig

from eeg2text_jax import Seq2SeqModel
from eeg2text_jax.base.chips.hlo_text import collectives
from eeg2text_jax.base.devices.mesh import make_mesh
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.decoding.generate import (
    generate,
    generate_arms,
    generate_program,
    prepared_arms,
    teacher_forced_program,
)
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models.backbones import bart
from eeg2text_jax.runs.cells import decode_dataset, plan_slices

MODEL = MarkovModel()
SPEC = GenerationSpec(0, 1, 2, max_length=8, num_beams=3, repetition_penalty=2.0)
WORDS = np.random.default_rng(0).integers(1, 17, size=37)
EDGES = (4, 8, 16)


def test_slices_hold_every_sample_once_in_a_bucket_that_fits():
    slices = plan_slices(WORDS, EDGES, 5)
    real = np.concatenate([part.samples[: part.real] for part in slices])
    assert sorted(real) == list(range(len(WORDS)))
    for part in slices:
        assert len(part.samples) == 5
        assert set(part.samples) == set(part.samples[: part.real])
        smaller = [edge for edge in EDGES if edge < part.words]
        assert (WORDS[part.samples] <= part.words).all()
        assert (WORDS[part.samples] > max(smaller, default=0)).all()
    assert (np.diff([WORDS[i] for i in real]) >= 0).all()


def test_a_sample_longer_than_every_bucket_is_named():
    with pytest.raises(UserError, match="8 words but a test sample has 16"):
        plan_slices(np.array([3, 16]), (4, 8), 2)


def test_results_come_back_in_the_order_of_the_samples():
    def decoded(part):
        return {"index": jnp.asarray(part.samples)[None], "width": jnp.full((1, 5, 2), part.words)}

    found = decode_dataset(plan_slices(WORDS, EDGES, 5), decoded, "test")
    np.testing.assert_array_equal(found["index"], np.arange(len(WORDS))[None])
    np.testing.assert_array_equal(found["width"][0, :, 0], np.array(EDGES)[np.searchsorted(EDGES, WORDS)])


def sentence_inputs(samples):
    return {"features": jnp.asarray(samples, jnp.float32)[:, None, None]}


def test_a_test_set_decodes_as_its_sentences_do_alone_in_few_traces():
    params = random_tables(np.random.default_rng(1), len(WORDS), 10)
    traces = []

    class Counting(MarkovModel):
        def _step(self, *args):
            traces.append(args[1].shape)
            return super()._step(*args)

    model = Counting()
    slices = plan_slices(WORDS, EDGES, 5)

    def decoded(part):
        return jax.tree.map(lambda leaf: leaf[None], generate(model, params, sentence_inputs(part.samples), SPEC))

    found = jax.tree.map(lambda leaf: leaf[0], decode_dataset(slices, decoded, "test"))
    assert len(slices) == 8
    assert set(traces) == {(15,)}
    assert len(traces) <= 2  # a while_loop traces its body at most twice; more batches, no more traces
    for i in (0, 11, 36):
        alone = generate(MODEL, params, sentence_inputs([i]), SPEC)
        np.testing.assert_array_equal(found.sequences[i], alone.sequences[0])
        assert found.lengths[i] == alone.lengths[0]


@pytest.mark.parametrize("sampled", [False, True])
def test_one_device_equals_eight_and_nothing_is_communicated(sampled):
    arms, batch, spec = 2, 8, SPEC.replace(do_sample=sampled)
    tables = [random_tables(np.random.default_rng(seed), batch, 10) for seed in range(arms)]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tables)
    fed = {"features": jnp.broadcast_to(jnp.arange(batch, dtype=jnp.float32)[None, :, None, None], (arms, batch, 1, 1))}
    keys = jax.random.split(jax.random.key(0), batch)
    labels = jnp.full((batch, 4), 3, jnp.int32)
    free, forced = [], []
    for shape in ((1, 1), (2, 4)):
        mesh = make_mesh(*shape, jax.devices()[: shape[0] * shape[1]])
        free.append(generate_arms(MODEL, params, fed, {}, spec, mesh, keys=keys))
        forced.append(teacher_forced_program(MODEL, mesh)(params, fed, ({}, labels)))
    np.testing.assert_array_equal(free[0].sequences, free[1].sequences)
    np.testing.assert_array_equal(free[0].lengths, free[1].lengths)
    np.testing.assert_allclose(free[0].scores, free[1].scores, rtol=1e-6)
    np.testing.assert_allclose(forced[0].nll, forced[1].nll, rtol=1e-6)
    assert (np.asarray(free[0].sequences[0]) != np.asarray(free[0].sequences[1])).any()
    program = generate_program(MODEL, spec, mesh).lower(params, fed, ({}, keys if sampled else None)).compile()
    assert collectives(program.as_text(), mesh) == []


@pytest.mark.parametrize("weights_dtype", ["", pytest.param("int8", marks=pytest.mark.slow)])
def test_arms_whose_weights_are_prepared_once_decode_as_each_does_alone(weights_dtype):
    sizes = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    config = BartConfig(d_model=16, vocab_size=40, encoder_ffn_dim=8, decoder_ffn_dim=8, init_std=0.5, **sizes)
    model = Seq2SeqModel(bart.spec_from_config(config), dtype="bfloat16")
    spec = GenerationSpec.from_fields({"num_beams": 3, "max_length": 7, "weights_dtype": weights_dtype}, model)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
    fed = {"inputs_embeds": jax.random.normal(jax.random.key(1), (2, 4, 5, 16))}
    shared = {"mask": jnp.arange(5)[None] < jnp.array([[5], [3], [4], [1]])}
    prepared = prepared_arms(model, params, spec)
    kernels = [leaf for leaf in jax.tree.leaves(prepared.weights) if min(leaf.shape[-2:]) >= 8]
    assert {leaf.dtype for leaf in kernels} == {jnp.dtype(weights_dtype or "bfloat16")}
    expected = []
    for a in range(2):
        own, mine = (jax.tree.map(lambda leaf, a=a: leaf[a], x) for x in (params, fed))
        expected.append(generate(model, own, {**mine, **shared}, spec).sequences)
    for shape in ((1, 1), (2, 4)):
        mesh = make_mesh(*shape, jax.devices()[: shape[0] * shape[1]])
        found = generate_arms(model, prepared, fed, shared, spec, mesh)
        np.testing.assert_array_equal(found.sequences, jnp.stack(expected))
