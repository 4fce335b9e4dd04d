"""The training step: however a batch is cut, padded or recomputed, the same loss and gradient."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_grid
import torch
from tiny_run import tiny_settings
from toy_models import SummedWords

from eeg2text_jax.base.devices.mesh import REPLICATED, make_mesh
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.brain import ReconstructionModel
from eeg2text_jax.models.language_model import logits_of
from eeg2text_jax.models.layers import dropout
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.training import step as objectives
from eeg2text_jax.training.grid_program import ReconstructionProgram
from eeg2text_jax.training.step import init_state, logits_of_rows, summed_loss, summed_loss_by_blocks, token_losses
from eeg2text_jax.training.study import Arm, dropout_keys, placement_of

ARMS = (Arm("eeg", 0), Arm("noise", 0))
TOLERANCE = 1e-5
LAYERS = np.arange(2)


def loss_and_gradient(model=None, **options):
    """Losses `[A]` and gradient `[A, ...]` of a batch, by an optimizer that only remembers the gradient."""
    program = tiny_grid.make_program(ARMS, model or tiny_grid.make_model(dropout=0.0), **options)
    program = dataclasses.replace(program, optimizer=optax.trace(0.0))
    mesh = make_mesh(1, 1, jax.devices()[:1])
    state, _ = tiny_grid.make_state(program, mesh, REPLICATED)
    step, study = jax.jit(program.train_step), tiny_grid.study_arrays(program, mesh)

    def of(batch):
        after, metrics = step(state, tiny_grid.of_all(batch), study)
        return metrics["loss"], after.opt_state.trace

    return of


def assert_same(found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=TOLERANCE)
    # Some gradients are 0 but for rounding (of the keys' biases, say): those are held against the largest one.
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected[1]))
    for ours, theirs in zip(jax.tree.leaves(found[1]), jax.tree.leaves(expected[1]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=0.1 * TOLERANCE * largest)


@pytest.fixture(scope="module")
def batch():
    return tiny_grid.make_batch(0)


@pytest.fixture(scope="module")
def of_plain():
    """Of a batch: what the plain step gives; compiled once a shape."""
    return loss_and_gradient()


@pytest.fixture(scope="module")
def plain(of_plain, batch):
    found = of_plain(batch)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(found[1]["backbone"]["decoder"]["layers"]["ffn"]))
    return found


def test_accumulation_over_four_microbatches_is_the_large_batch(batch, plain):
    """Weighted by tokens: the microbatches have different numbers of them, and rows of weight 0."""
    tokens = ((batch["labels"] != 1) * batch["weight"][:, None]).reshape(-1, 4, tiny_grid.T).sum(axis=(0, 2))
    assert len(set(tokens)) > 1
    assert_same(loss_and_gradient(accumulate=4)(batch), plain)


def test_recomputing_layers_changes_nothing(batch, plain):
    assert_same(loss_and_gradient(tiny_grid.make_model(dropout=0.0, remat=True))(batch), plain)


def test_padding_to_56_changes_nothing(batch, of_plain, plain):
    """As a bucket of fitting size against the one size of the authors; noise, drawn on the device, is the same, too."""
    padded = {
        **batch,
        "features": np.pad(batch["features"], ((0, 0), (0, 56 - tiny_grid.W), (0, 0)), constant_values=np.nan),
        "mask": np.pad(batch["mask"], ((0, 0), (0, 56 - tiny_grid.W))),
        "labels": np.pad(batch["labels"], ((0, 0), (0, 56 - tiny_grid.T)), constant_values=1),
    }
    assert_same(of_plain(padded), plain)


@pytest.mark.parametrize("of_tpu", [False, True])
@pytest.mark.parametrize(("largest", "smoothing"), [(4.0, 0.0), (4.0, 0.1), (1e4, 0.1)])
def test_the_loss_and_its_gradient_are_pytorchs(of_tpu, largest, smoothing, monkeypatch):
    """With the sum of exponentials as TPUs compute it, too; logits that differ by 1e4 overflow nothing."""
    if of_tpu:
        monkeypatch.setattr(jax.lax, "platform_dependent", lambda logits, tpu, default: tpu(logits))
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(3, 5, 11)).astype(np.float32) * largest, rng.integers(0, 11, (3, 5))
    factors = np.arange(15, dtype=np.float32)

    def weighed(logits):
        losses = token_losses(logits, jnp.asarray(labels, jnp.int32), smoothing).reshape(-1)
        return jnp.sum(losses * factors), losses

    gradient, found = jax.grad(weighed, has_aux=True)(jnp.asarray(logits))
    theirs = torch.tensor(logits, requires_grad=True)
    given = theirs.reshape(15, 11), torch.tensor(labels).reshape(15)
    expected = torch.nn.functional.cross_entropy(*given, reduction="none", label_smoothing=smoothing)
    (expected * torch.tensor(factors)).sum().backward()
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, theirs.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.quick("False-0.0-12", "True-3.0-7")
@pytest.mark.parametrize("length", [12, 7])
@pytest.mark.parametrize(("with_bias", "cap"), [(True, 3.0), (False, 0.0)])
def test_the_loss_by_blocks_is_that_of_whole_logits(length, with_bias, cap, monkeypatch):
    """Value and gradient, of padded labels, rows that count nothing and another factor; no logits of all positions."""
    batch, width, vocab, smoothing = 4, 6, 33, 0.1
    monkeypatch.setattr(objectives, "BLOCK", 4 * 4 * batch * vocab)  # four positions
    keys = jax.random.split(jax.random.key(0), 4)
    sizes = {"x": (batch, length, width), "table": (vocab, width)}
    head = {name: jax.random.normal(key, size) for key, (name, size) in zip(keys[:2], sizes.items(), strict=True)}
    if with_bias:
        head["bias"] = jax.random.normal(keys[2], (vocab,))
    labels = jax.random.randint(keys[3], (batch, length), 0, vocab).at[1, 3:].set(1)
    judged = {"labels": labels, "weight": jnp.array([1.0, 1, 0, 1]), "pad_token": 1, "label_smoothing": smoothing}

    def whole(head):
        summed, count = summed_loss(logits_of(head["x"], head["table"], head.get("bias"), cap), **judged)
        return 3 * summed / count

    def in_rows(head):
        logits = logits_of_rows(head["x"], head["table"], head.get("bias"), cap)
        summed, count = summed_loss(logits, **judged)
        return 3 * summed / count

    def by_blocks(head):
        summed, count = summed_loss_by_blocks(head["x"], head["table"], head.get("bias"), cap, **judged)
        return 3 * summed / count

    expected, found = (jax.jit(jax.value_and_grad(function))(head) for function in (whole, by_blocks))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)
    alone = [jax.jit(function)(head) for function in (by_blocks, in_rows)]
    np.testing.assert_allclose(alone, [expected[0]] * 2, rtol=1e-6)
    text = [str(jax.make_jaxpr(jax.value_and_grad(function))(head)) for function in (whole, by_blocks)]
    assert [f"f32[{batch},{length},{vocab}]" in one for one in text] == [True, False]
    assert [f"f32[{batch * length},{vocab}]" in one for one in text] == [False, False]


@pytest.mark.parametrize("rng", ["threefry", "rbg"])
def test_arms_of_a_seed_drop_the_same_units_and_seeds_drop_others(rng):
    """Under `vmap`, with the keys that the step gives them: as each arm does alone, at every layer of a scan."""
    arms = (Arm("eeg", 0), Arm("noise", 0), Arm("eeg", 1), Arm("noise", 1))
    keys = dropout_keys(arms, 0, rng)

    def two_layers(key):
        return jax.lax.scan(lambda x, site: (x, dropout(x, 0.5, jax.random.fold_in(key, site))), jnp.ones(64), LAYERS)

    masks = np.asarray(jax.jit(jax.vmap(two_layers))(keys)[1])  # --> [A, layers, 64]
    np.testing.assert_array_equal(masks[::2], masks[1::2])
    assert abs(np.mean(masks[0] != masks[2]) - 0.5) < 0.25
    assert abs(np.mean(masks[0, 0] != masks[0, 1]) - 0.5) < 0.25
    for a, arm in enumerate(arms):
        np.testing.assert_array_equal(masks[a], two_layers(dropout_keys((arm,), 0, rng)[0])[1])


def test_snapshots_are_hidden_by_seed_too():
    arms = (Arm("eeg", 0), Arm("noise", 0), Arm("eeg", 1))
    eeg = EEGSpec(features=4, kind="unicorn", hidden=8)
    model = ReconstructionModel(eeg, "series", pad_token=1, hidden_share=0.5, dtype="float32", remat=False, keep="none")
    hidden = jax.vmap(lambda key: model._hidden(jnp.ones((4, 16), bool), key))(dropout_keys(arms, 0, "rbg"))
    np.testing.assert_array_equal(hidden[0], hidden[1])
    assert (np.asarray(hidden[0]) != np.asarray(hidden[2])).any()


@pytest.mark.parametrize("share", [0.3, 1e-9])
def test_the_wanted_share_of_the_real_snapshots_is_hidden_and_at_least_one(share):
    lengths = np.array([400, 200, 1])
    mask = np.arange(400) < lengths[:, None]
    eeg = EEGSpec(features=4, kind="unicorn", hidden=8)
    hidden = np.asarray(ReconstructionModel(eeg, "series", 1, hidden_share=share)._hidden(jnp.asarray(mask), None))
    assert not hidden[~mask].any()
    counts = hidden.sum(axis=1)
    np.testing.assert_allclose(counts, np.maximum(share * lengths, 1), atol=0 if share < 0.1 else 35)
    assert counts[2] == 1


class Scaled:
    """Reconstructs a multiple of what it is given; with `hidden_share`, a draw from its key says what is judged."""

    def __init__(self, hidden_share):
        self.hidden_share = hidden_share

    def reconstruct(self, factor, features, mask, *, dropout_key):
        if self.hidden_share:
            mask &= jax.random.bernoulli(dropout_key, self.hidden_share, mask.shape)
        return factor * features, mask


@pytest.mark.parametrize("hidden_share", [0.0, 0.5])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_reconstruction_step_takes_the_mean_over_judged_snapshots(hidden_share, accumulate):
    """Half of the input leaves a quarter of its square: loss, and its slope in the factor. Micro-batches have unequal
    numbers of snapshots; each that hides its own counts alike.
    """
    rng = np.random.default_rng(0)
    features, voxels = rng.normal(size=(6, 5, 4)).astype(np.float32), np.array([1, 0, 1, 1], np.float32)
    rows = {"features": features, "mask": np.arange(5) < np.array([[5], [1], [4], [2], [3], [1]]), "voxels": voxels}
    rows["weight"] = np.array([1, 1, 1, 1, 1, 0], np.float32)
    program = ReconstructionProgram(Scaled(hidden_share), ARMS[:1], None, 0.0, "vmap", accumulate, error="mse")
    key, means = jax.random.key(3), []
    for n in range(accumulate if hidden_share else 1):
        part = slice(n, None, accumulate if hidden_share else 1)
        judged = rows["mask"][part] & (rows["weight"][part] > 0)[:, None]
        if hidden_share:
            own_key = key if accumulate == 1 else jax.random.fold_in(key, n)
            judged &= np.asarray(jax.random.bernoulli(own_key, hidden_share, judged.shape))
        means.append(np.square(features[part][judged][:, voxels > 0]).mean())
    value, slope = program._gradient(jnp.float32(0.5), jax.tree.map(jnp.asarray, rows), key)
    np.testing.assert_allclose([value, slope], [np.mean(means) / 4, -np.mean(means)], rtol=1e-5)


def test_only_the_judged_voxels_of_a_study_are_trained_on_and_evaluated(batch):
    """Two arms that reconstruct different multiples of the input; what is in the other voxels is far off."""
    voxels, left = np.arange(tiny_grid.F) % 3 > 0, np.array([0.5, 0.25], np.float32)
    real = batch["mask"] & (batch["weight"] > 0)[:, None]
    size = np.abs(batch["features"])[real][:, voxels].mean()  # the loss of predicting 0
    arms = (Arm("eeg", 0), Arm("time_reversed", 0))
    program = tiny_grid.make_program(arms, Scaled(0.0), ReconstructionProgram)
    study = tiny_grid.study_arrays(program, make_mesh(1, 1, jax.devices()[:1]))
    study = study._replace(voxels=jnp.asarray(voxels, jnp.float32))
    given = {**batch, "features": np.where(voxels, batch["features"], 99.0).astype(np.float32)}
    sums, counts = jax.jit(program.eval_step)(jnp.asarray(1 - left), given, study)
    np.testing.assert_allclose(sums / counts, left * size, rtol=1e-5)
    np.testing.assert_array_equal(counts, [real.sum()] * 2)
    state = init_state(jnp.asarray(1 - left), program.optimizer)
    state, metrics = jax.jit(program.train_step)(state, tiny_grid.of_all(given), study)
    np.testing.assert_allclose(metrics["loss"], left * size, rtol=1e-5)
    np.testing.assert_allclose(state.params, 1 - left + 0.1 * size, rtol=1e-5)  # the slope is -size, the rate 0.1


@pytest.mark.quick("rbg")
@pytest.mark.parametrize("rng", ["threefry", "rbg"])
def test_a_step_of_all_arms_drops_what_a_step_of_each_seed_does(rng, batch):
    """With dropout on, side by side under `vmap`."""
    arms = tuple(Arm(condition, seed) for seed in (0, 1) for condition in ("eeg", "noise_redrawn"))
    together = updated(arms, tiny_grid.of_all(batch), rng)
    alone = [updated(arms[own], tiny_grid.of_all(batch), rng)[0] for own in (slice(0, 2), slice(2, 4))]
    np.testing.assert_allclose(together[0], np.concatenate(alone), rtol=TOLERANCE)


def summed_words(dropout=0.1):
    return SummedWords(tiny_grid.F, tiny_grid.VOCABULARY, dropout)


def one_arm(condition="eeg", dropout=0.5, accumulate=1):
    """The program of one arm, its state and what is constant."""
    options = {"accumulate": accumulate, "label_smoothing": 0.0}
    program = tiny_grid.make_program((Arm(condition, 0),), summed_words(dropout), **options)
    program = dataclasses.replace(program, optimizer=optax.trace(0.0))
    mesh = make_mesh(1, 1, jax.devices()[:1])
    state, _ = tiny_grid.make_state(program, mesh, REPLICATED)
    return program, state, tiny_grid.study_arrays(program, mesh)


@pytest.mark.parametrize(
    ("condition", "dropout", "differs"),
    [("eeg", 0.5, True), ("eeg", 0.0, False), ("noise", 0.0, False), ("noise_redrawn", 0.0, True)],
)
def test_each_step_drops_other_units_and_redraws_only_what_is_redrawn(batch, condition, dropout, differs):
    """The same parameters and batch at two steps: dropout has a key, and `noise_redrawn` a draw, for each."""
    program, state, study = one_arm(condition, dropout)
    step = jax.jit(lambda state: program.train_step(state, tiny_grid.of_all(batch), study)[1]["loss"])
    first, second = (float(step(state._replace(step=jnp.int32(number)))[0]) for number in (3, 4))
    assert first == float(step(state._replace(step=jnp.int32(3)))[0])
    assert (abs(first - second) > 1e-4) == differs


def test_each_microbatch_has_a_dropout_key_of_its_own():
    """By a loss that is a draw from its key."""
    program = one_arm(accumulate=3)[0]
    key, rows = jax.random.key(1), {"mask": jnp.ones((6, 2))}
    found, _ = program._accumulated(lambda x, _, key: jax.random.uniform(key) * x, jnp.float32(1.0), rows, key)
    drawn = [float(jax.random.uniform(jax.random.fold_in(key, number))) for number in range(3)]
    np.testing.assert_allclose(found, sum(drawn), rtol=1e-6)
    assert len(set(drawn)) == 3


def test_nothing_is_dropped_or_smoothed_in_evaluation(batch):
    """A model with dropout and smoothing has on dev the loss of one without, at its parameters."""
    program = tiny_grid.make_program(ARMS[:1], tiny_grid.make_model(dropout=0.0), label_smoothing=0.0)
    mesh = make_mesh(1, 1, jax.devices()[:1])
    state, study = tiny_grid.make_state(program, mesh, REPLICATED)[0], tiny_grid.study_arrays(program, mesh)
    expected = jax.jit(program.eval_step)(state.params, batch, study)
    dropped = dataclasses.replace(program, model=tiny_grid.make_model(dropout=0.5), label_smoothing=0.3)
    np.testing.assert_allclose(jax.jit(dropped.eval_step)(state.params, batch, study), expected, rtol=1e-6)


def test_each_arm_is_fed_its_own_labels_and_mask_and_every_arm_the_prompts(batch):
    """Exchanged texts under `label_shuffle` alone, and no recording under `prompt_only`."""
    program = tiny_grid.make_program(tuple(Arm(name, 0) for name in ("eeg", "label_shuffle", "prompt_only")))
    other, ids = tiny_grid.make_batch(9)["labels"], np.arange(tiny_grid.B, dtype=np.int32)[:, None]
    given = {**batch, "shuffled_labels": other, "before": ids, "after": ids + 100}
    fed = program.fed(given, tiny_grid.study_arrays(program, make_mesh(1, 1, jax.devices()[:1])))
    np.testing.assert_array_equal(fed["labels"], [batch["labels"], other, batch["labels"]])
    np.testing.assert_array_equal(fed["mask"], [batch["mask"], batch["mask"], np.zeros_like(batch["mask"])])
    np.testing.assert_array_equal(fed["features"][1], fed["features"][0])
    np.testing.assert_array_equal(fed["before"], [ids] * 3)
    np.testing.assert_array_equal(fed["after"], [ids + 100] * 3)


def test_rows_that_fill_a_batch_train_nothing(batch, of_plain, plain):
    """Whatever is in them: other words, other labels, other noise."""
    assert (batch["weight"] == 0).any()
    filler, other = batch["weight"] == 0, tiny_grid.make_batch(9)
    filled = {name: filler.reshape(-1, *[1] * (leaf.ndim - 1)) for name, leaf in batch.items()}
    changed = {name: np.where(filled[name], other[name], leaf) for name, leaf in batch.items()}
    assert_same(of_plain({**changed, "weight": batch["weight"]}), plain)


def test_settings_that_cannot_be_are_said():
    kinds = [str(jax.random.key_impl(dropout_keys(ARMS, 0, rng))) for rng in ("threefry", "rbg")]
    assert kinds == ["threefry2x32", "rbg"]
    settings = tiny_settings(parallel__mesh=(2, 4), batch__size=24, train__accumulate=4)
    with pytest.raises(UserError, match=r"train.accumulate = 4 .* must be a multiple of 16"):
        placement_of(settings, 2)


def test_arms_of_a_seed_share_its_batch_and_seeds_have_their_own():
    """Three seeds in one program against each seed alone: losses, and what one update made of the parameters."""
    arms = tuple(Arm(condition, seed) for seed in (0, 3, 1) for condition in ("eeg", "noise"))
    batches = [tiny_grid.make_batch(i) for i in range(3)]
    together = updated(arms, {name: np.stack([batch[name] for batch in batches]) for name in batches[0]})
    for place, batch in enumerate(batches):
        own = slice(2 * place, 2 * place + 2)
        alone = updated(arms[own], tiny_grid.of_all(batch))
        np.testing.assert_allclose(together[0][own], alone[0], rtol=TOLERANCE)
        for ours, theirs in zip(jax.tree.leaves(together[1]), jax.tree.leaves(alone[1]), strict=True):
            np.testing.assert_allclose(ours[own], theirs, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="2 batches for arms of 3 seeds"):
        updated(arms, {name: np.stack([batch[name] for batch in batches[:2]]) for name in batches[0]})


def updated(arms, batch, rng="threefry"):
    """Losses `[A]` and parameters after one step of plain descent."""
    program = dataclasses.replace(tiny_grid.make_program(arms, summed_words()), optimizer=optax.sgd(0.1))
    mesh = make_mesh(1, 1, jax.devices()[:1])
    state, _ = tiny_grid.make_state(program, mesh, REPLICATED)
    state, metrics = jax.jit(program.train_step)(state, batch, tiny_grid.study_arrays(program, mesh, rng))
    return np.asarray(metrics["loss"]), jax.device_get(state.params)
