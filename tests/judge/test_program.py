"""Tuning and scoring as programs: against PyTorch, against NumPy, and what a frozen copy has to be."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict
from tiny_judge import tiny_batch, tiny_config, tiny_frozen, tiny_labels

from eeg2text_jax.base.chips.hlo_text import collectives
from eeg2text_jax.base.devices.mesh import make_mesh, put_batch
from eeg2text_jax.judge import frozen as module
from eeg2text_jax.judge.frozen import (
    Asker,
    TuneProgram,
    keep_best,
    label_scores,
    stored_as,
    weights_shardings,
    with_dropout,
)
from eeg2text_jax.judge.toy import toy_pairs, toy_wording
from eeg2text_jax.judge.tune import Tuned, make_program, tune_mesh
from eeg2text_jax.models.pretrained.encoders import plan_batches
from eeg2text_jax.training.step import make_optimizer


def optimizer(rate=0.3):
    config = {"name": "adafactor", "lr": rate, "schedule": "constant", "warmup_steps": 0, "weight_decay": 1e-5}
    return lambda lr: make_optimizer(ConfigDict({**config, "grad_clip": 0.0}), 100, lr)


def test_an_adafactor_step_by_hand():
    rng = np.random.default_rng(0)
    prompt, gradient = rng.normal(size=(5, 16)), rng.normal(size=(5, 16))
    rule = optimizer()(jnp.float32(0.3))
    state = rule.init(jnp.asarray(prompt, jnp.float32))
    expected, v = prompt.copy(), np.zeros_like(prompt)
    found = jnp.asarray(prompt, jnp.float32)
    for step in range(1, 4):
        with jax.numpy_dtype_promotion("standard"):
            updates, state = rule.update(jnp.asarray(gradient, jnp.float32), state, found)
        found = optax.apply_updates(found, updates)
        decay = 1 - step**-0.8
        v = decay * v + (1 - decay) * (gradient**2 + 1e-30)
        u = gradient / np.sqrt(v)
        u /= max(1.0, np.sqrt((u**2).mean()))
        expected = expected - (0.3 * u + 1e-5 * expected)
        gradient = gradient * 1.5 - 0.1
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-6)


def state_and_program(frozen, mapping="vmap", mesh=None, rates=(0.3, 0.3, 0.03)):
    program = TuneProgram(frozen.model, tiny_labels(frozen).ids, rates, optimizer(), mapping, mesh)
    prompt = np.random.default_rng(0).normal(size=(len(rates), 5, 32)).astype(np.float32)
    return program.initial_state(jnp.asarray(prompt)), program


KEYS = functools.partial(jax.vmap(jax.random.key), jnp.arange(3, dtype=jnp.uint32))


@pytest.fixture(scope="module")
def frozen():
    return tiny_frozen()


@pytest.fixture
def batch(frozen):
    return tiny_batch(frozen)


def test_the_loss_of_a_batch_falls_and_the_frozen_copy_stays_as_it_is(frozen, batch):
    before = jax.tree.map(np.array, frozen.params)
    state, program = state_and_program(frozen)
    step = jax.jit(program.tune_step, donate_argnums=0)
    losses = []
    for _ in range(40):
        state, metrics = step(state, batch, frozen.params, KEYS())
        losses.append(np.asarray(metrics["loss"]))
    assert (losses[-1] < 0.9 * losses[0]).all()
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: np.array_equal(a, np.array(b)), before, frozen.params)))
    assert step._cache_size() == 1
    assert int(state.step) == 40


def test_frozen_weights_are_there_once_and_have_no_gradient():
    frozen = tiny_frozen(d_ff=72)
    state, program = state_and_program(frozen)
    lowered = jax.jit(program.tune_step, donate_argnums=0).lower(state, tiny_batch(frozen), frozen.params, KEYS())
    text = lowered.as_text()
    (entry,) = re.findall(r"func\.func public @main\((.*?)\)\s*->", text, re.DOTALL)
    assert entry.count("tensor<2x32x72xf32>") == 2  # the inner kernels of encoder and decoder, without an axis of arms
    assert "tensor<3x2x32x72xf32>" not in text
    # A gradient of the kernels would be a product of this shape, or a stack of them that a loop fills.
    compiled = lowered.compile().as_text()
    made = re.findall(r"= f32\[(?:2,)?(?:32,72|72,32)\]\S* (dot|dynamic-update-slice)\(", compiled)
    assert not made, made


@pytest.mark.quick("map")
@pytest.mark.parametrize("mapping", ["vmap", "map"])
def test_arms_on_eight_devices_are_those_on_one(mapping, frozen, batch):
    state, program = state_and_program(frozen, "map", rates=(0.3, 0.3, 0.03, 0.1))
    keys = jax.vmap(jax.random.key)(jnp.arange(4, dtype=jnp.uint32))
    one, _ = jax.jit(program.tune_step)(state, batch, frozen.params, keys)
    mesh = make_mesh(4, 2) if mapping == "vmap" else make_mesh(1, 8)
    wide = dataclasses.replace(program, mapping=mapping, mesh=mesh)
    many, _ = jax.jit(wide.tune_step)(state, batch, frozen.params, keys)
    np.testing.assert_allclose(np.asarray(one.prompt), np.asarray(many.prompt), atol=2e-5)


def test_a_batch_in_pieces_is_the_whole_batch(frozen, batch):
    batch["weight"] = np.array([1, 1, 1, 1, 1, 0, 0, 0], np.float32)  # the last of an epoch
    state, program = state_and_program(frozen)
    assert program.pieces(8, 24) == 1
    parted = dataclasses.replace(program, at_once=3 * 2 * 24)  # three arms, two rows
    assert parted.pieces(8, 24) == 4
    assert dataclasses.replace(parted, mapping="map").pieces(8, 24) == 2
    whole, metrics = jax.jit(program.tune_step)(state, batch, frozen.params, KEYS())
    pieces, again = jax.jit(parted.tune_step)(state, batch, frozen.params, KEYS())
    np.testing.assert_allclose(np.asarray(again["loss"]), np.asarray(metrics["loss"]), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(again["grad_norm"]), np.asarray(metrics["grad_norm"]), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(pieces.prompt), np.asarray(whole.prompt), atol=2e-4)
    mesh = make_mesh(1, 8)
    assert dataclasses.replace(parted, mesh=mesh).pieces(16, 500) == 2  # no finer than the devices along the batch
    wide = dataclasses.replace(parted, mesh=make_mesh(1, 2), at_once=3 * 24)
    assert wide.pieces(8, 24) == 4
    apart, _ = jax.jit(wide.tune_step)(state, batch, frozen.params, KEYS())
    np.testing.assert_allclose(np.asarray(apart.prompt), np.asarray(whole.prompt), atol=2e-4)


def test_padding_and_the_company_of_others_move_no_score(frozen, batch):
    labels, prompt = tiny_labels(frozen).ids, jnp.asarray(np.random.default_rng(2).normal(size=(5, 32)), jnp.float32)
    ask = jax.jit(functools.partial(label_scores, frozen.model, frozen.params, prompt, labels=labels))
    whole = np.asarray(ask(batch=batch))
    wide = {**batch, "ids": np.pad(batch["ids"], ((0, 0), (0, 16)))}
    np.testing.assert_allclose(np.asarray(ask(batch=wide)), whole, atol=1e-6)
    turned = {name: value[::-1][:3] for name, value in batch.items()}
    np.testing.assert_allclose(np.asarray(ask(batch=turned)), whole[::-1][:3], atol=1e-6)


def test_a_judge_compiles_once_a_bucket_and_answers_alike_on_one_device_and_eight(monkeypatch, frozen):
    prompt = np.random.default_rng(3).normal(size=(5, 32))
    pairs = [(pair.reference, " ".join([pair.hypothesis] * times)) for pair in toy_pairs(20, 5) for times in (1, 3, 9)]
    judge = Asker(frozen, prompt, toy_wording(), tiny_labels(frozen))
    used = {(width, rows) for _, width, rows in plan_batches(list(map(len, judge.encoder(pairs, "row"))), 8)}
    before = module._ask._cache_size()
    many = judge.scores(pairs)
    assert module._ask._cache_size() - before == len(used) == len({width for width, _ in used}) > 1
    judge.scores(pairs[::-1])
    assert module._ask._cache_size() - before == len(used)
    np.testing.assert_allclose(judge.scores([pairs[7], pairs[0], pairs[7]]), many[[7, 0, 7]], atol=1e-6)
    monkeypatch.setattr(jax, "local_devices", lambda: jax.devices()[:1])
    one = Asker(frozen, prompt, toy_wording(), tiny_labels(frozen)).scores(pairs[::-1])[::-1]
    np.testing.assert_allclose(one, many, atol=1e-6)


def test_the_best_prompt_is_kept_ties_by_auc_then_by_time(frozen):
    state, _ = state_and_program(frozen)
    state = state._replace(step=jnp.int32(10))
    state = keep_best(state, jnp.asarray([[0.7, 0.8], [0.7, 0.8], [0.7, 0.8]]))
    later = state._replace(step=jnp.int32(20), prompt=state.prompt + 1)
    later = keep_best(later, jnp.asarray([[0.7, 0.8], [0.7, 0.81], [0.6, 0.9]]))
    assert later.best_step.tolist() == [10, 20, 10]
    np.testing.assert_array_equal(later.best_prompt[1], state.prompt[1] + 1)
    np.testing.assert_array_equal(later.best_prompt[2], state.prompt[2])


def test_the_best_arm_on_dev_is_chosen_ties_by_time_then_by_place():
    best = np.array([[0.8, 0.9], [0.8, 0.9], [0.8, 0.9], [0.7, 1.0], [0.8, 0.8]])
    nothing = np.zeros((5, 1, 1))
    for steps, chosen in (([4, 2, 2, 1, 1], 1), ([2, 2, 2, 2, 2], 0)):
        assert Tuned([(n, 0.3) for n in range(5)], nothing, nothing, best, np.array(steps)).chosen == chosen


def test_bfloat16_weights_score_nearly_alike(frozen, batch):
    low = stored_as(frozen.params, "bfloat16")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(low)} == {"bfloat16", "float32"}
    model = dataclasses.replace(frozen.model, dtype="bfloat16")
    prompt, labels = jnp.zeros((5, 32)), tiny_labels(frozen).ids
    scores_of = jax.jit(label_scores, static_argnums=(0, 4))
    full = np.asarray(scores_of(frozen.model, frozen.params, prompt, batch, labels))
    np.testing.assert_allclose(np.asarray(scores_of(model, low, prompt, batch, labels)), full, atol=0.15)


def test_dropout_in_the_frozen_layers_differs_by_step_and_arm(frozen, batch):
    state, program = state_and_program(frozen, rates=(0.3, 0.3))
    state = state._replace(prompt=jnp.broadcast_to(state.prompt[:1], state.prompt.shape))
    program = dataclasses.replace(program, model=with_dropout(program.model, 0.2))
    keys = jax.vmap(jax.random.key)(jnp.arange(2, dtype=jnp.uint32))
    step = jax.jit(program.tune_step)
    _, first = step(state, batch, frozen.params, keys)
    _, second = step(state._replace(step=jnp.int32(1)), batch, frozen.params, keys)
    assert len({*np.asarray(first["loss"]).tolist(), *np.asarray(second["loss"]).tolist()}) == 4


def test_arms_are_seeds_times_learning_rates(frozen):
    config = tiny_config(optim__lr=(0.1, 0.3))
    assert make_program(config, frozen.model, tiny_labels(frozen)).rates == (0.1, 0.1, 0.3, 0.3)


@pytest.mark.parametrize(("fields", "shape"), [({}, (2, 4)), ({"parallel__fsdp": True}, (1, 8))])
def test_devices_go_to_the_arms_first_or_to_the_weights(fields, shape):
    config = tiny_config(parallel__arms="vmap", batch__size=8, **fields)
    assert tune_mesh(config, 8, 2) == shape
    assert tune_mesh(tiny_config(parallel__arms="map", batch__size=8), 8, 2) == (1, 8)


@pytest.mark.quick("shape1")
@pytest.mark.parametrize("shape", [(1, 8), (2, 4)])
def test_weights_divided_over_eight_devices_tune_as_on_one(shape, monkeypatch, frozen, batch):
    monkeypatch.setattr("eeg2text_jax.base.devices.mesh.FSDP_MIN_SIZE", 1)
    frozen = frozen._replace(model=dataclasses.replace(frozen.model, remat=True))
    state, program = state_and_program(frozen, rates=(0.3, 0.03))
    keys = jax.vmap(jax.random.key)(jnp.arange(2, dtype=jnp.uint32))
    one, metrics = jax.jit(program.tune_step)(state, batch, frozen.params, keys)
    mesh = make_mesh(*shape)
    weights = jax.device_put(frozen.params, weights_shardings(frozen.params, mesh, True))
    kernel = weights["backbone"]["encoder"]["layers"]["ffn"]["inner"]["kernel"]
    assert kernel.addressable_shards[0].data.size * shape[1] == kernel.size
    wide = dataclasses.replace(program, mesh=mesh)
    step = jax.jit(wide.tune_step).lower(state, put_batch(batch, mesh), weights, keys).compile()
    many, again = step(state, put_batch(batch, mesh), weights, keys)
    np.testing.assert_allclose(np.asarray(again["loss"]), np.asarray(metrics["loss"]), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(many.prompt), np.asarray(one.prompt), atol=2e-5)
    assert {axis for c in collectives(step.as_text(), mesh) for axis in c.axes} == {"data"}
