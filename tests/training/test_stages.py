"""Training before the text: what each stage hands on, where it stops, and that a kill in any of them costs nothing."""

import dataclasses
import json
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from etils import epath
from tiny_run import study_in, tiny_config, tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.workdir import Workdir
from eeg2text_jax.training import loop
from eeg2text_jax.training.grid_program import (
    frozen_paths,
    make_program,
    stage_names,
    stages,
    trivial_losses,
)
from eeg2text_jax.training.loop import (
    a_reconstruction,
    make_initial_state,
    reconstruction_lines,
    train_arms,
    trained_params,
    write_reconstructions,
)
from eeg2text_jax.training.metrics_log import MetricsLog, stale
from eeg2text_jax.training.sections import check_config
from eeg2text_jax.training.step import make_optimizer, make_schedule
from eeg2text_testing.forked_runs import final_checkpoint, logged_metrics

STAGE = {"steps": 4, "batch_size": 8, "eval_every": 2, "lr": 1e-2}
UNICORN = {
    "model__encoder": "unicorn",
    "model__unicorn__hidden": 16,
    "model__dropout": 0.0,
    "pretrain__enabled": True,
    **{f"pretrain__{name}__{field}": value for name in ("snapshot", "series") for field, value in STAGE.items()},
    "train__steps": 4,
    "train__eval_every": 2,
}
FOLDERS = ("snapshot", "series", "")


def open_tiny(root, **changes):
    return study_in(root, tiny_settings(**{**UNICORN, **changes}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study of three stages, trained without a break."""
    study = open_tiny(tmp_path_factory.mktemp("stages") / "whole")
    train_arms(study)
    return study


def begun(study):
    """Parameters before the first step, as numpy."""
    state = make_initial_state(study, make_program(study.config, study.model, study.arms))
    return jax.tree.map(np.asarray, state.params)


def equal(one, other) -> list[bool]:
    return [np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True)]


@pytest.fixture(scope="module")
def text_begun(whole):
    """Parameters that the last stage begins with."""
    return begun(stages(whole)[-1])


def test_each_stage_begins_with_the_best_of_the_one_before(whole, text_begun):
    snapshot, series, _ = stages(whole)
    best = [jax.tree.map(np.asarray, trained_params(stage)) for stage in (snapshot, series)]
    first = begun(series)
    assert all(equal(first["eeg"]["snapshot"], best[0]["eeg"]["snapshot"]) + equal(first["mirror"], best[0]["mirror"]))
    for part in ("snapshot", "series"):
        assert all(equal(text_begun["eeg"][part], best[1]["eeg"][part]))
    assert "mirror" not in text_begun
    kernels = [params["eeg"]["snapshot"]["inner"]["kernel"] for params in (begun(snapshot), text_begun)]
    assert not any(equal(*kernels))


def test_unicorn_star_begins_at_random(text_begun, tmp_path):
    star = open_tiny(tmp_path / "star", pretrain__enabled=False)
    (only,) = stages(star)
    assert only is star
    drawn = begun(star)
    assert not any(equal(drawn["eeg"]["snapshot"]["inner"]["kernel"], text_begun["eeg"]["snapshot"]["inner"]["kernel"]))
    assert all(equal(drawn["eeg"]["bridge"], text_begun["eeg"]["bridge"]))
    assert all(equal(drawn["backbone"], text_begun["backbone"]))


def test_a_checkpoint_gives_what_no_stage_trained(whole, text_begun, monkeypatch):
    """Language model and bridge; the brain encoder is the best of the stage before, whatever the checkpoint has."""
    stored = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 7.0, leaf.dtype), text_begun)
    start = SimpleNamespace(params=stored, summary=lambda: "loaded")
    monkeypatch.setattr(loop, "start_from_checkpoint", lambda *_: start)
    text = stages(whole)[-1]
    found = begun(dataclasses.replace(text, config=text.config.changed({"model.checkpoint": "facebook/bart-large"})))
    for part in ("snapshot", "series"):
        assert all(equal(found["eeg"][part], text_begun["eeg"][part]))
    for leaf in jax.tree.leaves([found["backbone"], found["eeg"]["bridge"]]):
        assert (leaf == 7.0).all()


def test_a_stage_has_settings_of_its_own(whole):
    own = {"steps": 7, "batch_size": 4, "eval_every": 5, "patience": 3, "lr": 0.3, "lr_end": 0.2, "schedule": "cosine",
           "warmup_steps": 6, "hidden": 0.5}  # fmt: skip
    changes = {"pretrain.mask": True, "step_one.steps": 9, "step_one.lr": 0.7}
    changes |= {f"pretrain.series.{name}": value for name, value in own.items()}
    chain = stages(dataclasses.replace(whole, config=whole.config.changed(changes)))
    snapshot, series, one, text = chain
    found, others = series.config, snapshot.config
    assert (found.train.steps, found.batch.size, found.train.eval_every, found.train.patience) == (7, 4, 5, 3)
    optim = found.optim
    assert (optim.lr, optim.lr_end, optim.schedule, optim.warmup_steps) == (0.3, 0.2, "cosine", 6)
    assert (others.train.steps, others.batch.size, others.optim.lr) == (4, 8, 1e-2)
    assert (snapshot.model.hidden_share, series.model.hidden_share) == (0.0, 0.5)
    assert (one.config.train.steps, one.config.optim.lr) == (9, 0.7)
    assert [stage.config.optim.trainable for stage in chain] == ["all", "all", "first", "all"]
    assert [stage.arrays.voxels is None for stage in chain] == [False, False, True, True]
    assert [stage.before for stage in chain] == [None, snapshot, series, one]
    assert [stage_names(stage.config) for stage in chain[:3]] == [[], [], []], "a stage would begin stages of its own"
    assert [stage.workdir.root.name for stage in chain[:3]] == ["snapshot", "series", "step_one"]
    assert text.workdir == whole.workdir
    as_text = {"dtype": "bfloat16", "remat": True, "keep": "nothing"}
    prompted = dataclasses.replace(whole.model, eeg=dataclasses.replace(whole.model.eeg, prompt=(5,)), **as_text)
    for stage in stages(dataclasses.replace(whole, model=prompted))[:2]:
        assert {name: getattr(stage.model, name) for name in as_text} == as_text
        assert stage.model.eeg == whole.model.eeg, "without the prompt"
    squared = series.config.changed({"pretrain.loss": "mse"})
    assert [make_program(config, series.model, whole.arms).error for config in (found, squared)] == ["mae", "mse"]


def test_a_voxel_counts_if_it_varies_over_the_train_part(whole):
    """Within a recording or between recordings; 0 is constant but not zero, 3 varies in the test part alone."""
    recordings = np.zeros((3, 3, 4), np.float32)
    recordings[..., 0] = 5.0
    recordings[0, 2, 1] = recordings[1, :, 2] = recordings[2, :, 3] = 1.0
    own = {"split": SimpleNamespace(parts={"train": np.array([0, 1])}),
           "samples": SimpleNamespace(features=lambda row: recordings[row])}  # fmt: skip
    config = whole.config.changed({"pretrain.mask": True})
    np.testing.assert_array_equal(
        stages(dataclasses.replace(whole, config=config, **own))[0].arrays.voxels, [0, 1, 1, 0]
    )


def test_trivial_losses_are_of_each_arms_input_and_the_judged_voxels(whole):
    """Of 13 training samples, so rows that only fill the second batch of 8 must not enter the mean."""
    study, voxels = stages(whole)[0], np.arange(12) % 3 > 0
    parts = {**study.split.parts, "train": study.split.parts["train"][:13]}
    arrays = study.arrays._replace(voxels=jnp.asarray(voxels, jnp.float32))
    study = dataclasses.replace(study, arrays=arrays, split=dataclasses.replace(study.split, parts=parts))
    program = dataclasses.replace(make_program(study.config, study.model, study.arms), error="mse")
    found = trivial_losses(study, program)
    train, dev = (np.concatenate([study.samples.features(int(i)) for i in parts[name]]) for name in ("train", "dev"))
    assert found["zero"][0] == pytest.approx(np.square(dev[:, voxels]).mean(), rel=1e-4)
    assert found["mean"][0] == pytest.approx(np.square(dev - train.mean(axis=0))[:, voxels].mean(), rel=1e-4)
    assert found["zero"][1] == pytest.approx(1.0, abs=0.15), "the arm `noise` is fed standard normal noise"


def test_the_best_loss_is_compared_with_the_lower_trivial_one(whole, tmp_path):
    stage = dataclasses.replace(stages(whole)[0], workdir=Workdir(epath.Path(tmp_path)))
    rows = [{"step": 0, "zero/eeg/0": 0.5, "mean/eeg/0": 0.8, "zero/noise/0": 0.8, "mean/noise/0": 0.4}]
    rows += [{"step": 2 * n, "dev_loss/eeg/0": loss, "dev_loss/noise/0": 0.1} for n, loss in ((1, 0.2), (2, 0.25))]
    stage.workdir.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    of_eeg, of_noise, _ = reconstruction_lines(stage)
    assert "mae 0.2000 on dev, 40.0% of the best trivial prediction (zero 0.5000, mean over train 0.8000)" in of_eeg
    assert "mae 0.1000 on dev, 25.0% of the best trivial prediction (zero 0.8000, mean over train 0.4000)" in of_noise
    assert reconstruction_lines(whole) == []


def test_the_recording_that_is_drawn_is_the_middle_of_the_first_of_dev_as_the_first_arm_reconstructs_it(whole):
    stage = stages(whole)[1]
    row = int(stage.split.parts["dev"][0])
    features = stage.samples.features(row)
    params = jax.tree.map(lambda leaf: leaf[0], trained_params(stage))
    padded = np.zeros((1, 20, features.shape[1]), np.float32)
    padded[0, : len(features)] = features
    made, _ = jax.jit(stage.model.reconstruct)(params, padded, np.arange(20)[None] < len(features))
    drawn = a_reconstruction(stage)
    np.testing.assert_array_equal(drawn[0], features[len(features) // 2])
    np.testing.assert_allclose(drawn[1], made[0, len(features) // 2], atol=1e-6)


def test_a_run_in_a_folder_with_the_name_of_a_stage_has_no_pictures_of_it(whole, tmp_path):
    workdir = Workdir(epath.Path(tmp_path / "series"))
    workdir.root.mkdir()
    workdir.metrics.write_text("")
    config = whole.config.changed({"pretrain.enabled": False})
    assert write_reconstructions(dataclasses.replace(whole, config=config, workdir=workdir)) == []


def test_a_program_has_the_settings_of_its_configuration(whole):
    """Two arms; the dev loss of a reconstruction is never a mean over sentences."""
    changes = {"train.best_by": "sentences", "train.label_smoothing": 0.3, "train.accumulate": 4}
    changes |= {"parallel.arms": "vmap", "pretrain.freeze_encoder": True, "optim.trainable": "first"}
    chain = stages(dataclasses.replace(whole, config=whole.config.changed(changes)))
    for stage, by_sentence, phase in ((chain[0], False, "all"), (chain[-1], True, "first")):
        program = make_program(stage.config, stage.model, stage.arms)
        assert (program.by_sentence, program.phase, program.arms) == (by_sentence, phase, whole.arms)
        assert (program.label_smoothing, program.accumulate, program.mapping) == (0.3, 4, "vmap")
    assert program.frozen == ("eeg/series", "eeg/snapshot")


@pytest.mark.slow
def test_a_kill_in_each_stage_costs_nothing(whole, tmp_path, monkeypatch):
    """Killed while the losses of step 3 are logged, each stage in turn goes on from its step 2."""
    root = tmp_path / "killed"
    add = MetricsLog.add
    for folder in FOLDERS:

        def add_and_end(self, step, scalars, folder=folder):
            add(self, step, scalars)
            if step == 3 and self._path.parent == root / folder:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(MetricsLog, "add", add_and_end)
            with pytest.raises(KeyboardInterrupt):
                train_arms(open_tiny(root))
    train_arms(open_tiny(root))
    for folder in FOLDERS:
        undisturbed, resumed = whole.workdir.root / folder, root / folder
        (step, expected, _), (last, found, _) = final_checkpoint(undisturbed), final_checkpoint(resumed)
        assert step == last == 4
        assert expected.keys() == found.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(values, found[name], err_msg=f"{folder}: {name}")
        assert logged_metrics(undisturbed) == logged_metrics(resumed)


def test_frozen_parameters_are_not_in_the_optimizer(tmp_path):
    study = open_tiny(tmp_path / "frozen", pretrain__freeze_encoder=True, pretrain__freeze_snapshot=True)
    _, series, text = stages(study)
    assert frozen_paths(series.config, series.model) == ("eeg/snapshot", "mirror")
    for stage, kept in ((series, {"eeg/series"}), (text, {"eeg/bridge", "backbone"})):
        program = make_program(stage.config, stage.model, stage.arms)
        state = program.state_shapes()
        leaves = jax.tree_util.tree_leaves_with_path(state.opt_state)
        paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
        moments = [path for path in paths if "/mu/" in path]
        assert moments
        assert all(any(f"/mu/{name}" in path for name in kept) for path in moments)


def test_frozen_parameters_have_no_gradient(tmp_path, whole, text_begun):
    program = make_program(whole.config, whole.model, whole.arms)
    frozen = make_program(open_tiny(tmp_path / "f", pretrain__freeze_encoder=True).config, whole.model, whole.arms)
    params = jax.tree.map(lambda leaf: leaf[0], text_begun)
    rows = {"features": np.ones((2, 20, 12), np.float32), "mask": np.ones((2, 20), bool)}
    rows |= {"weight": np.ones(2, np.float32), "labels": np.full((2, 56), 5, np.int32)}
    for one, expected in ((program, True), (frozen, False)):
        gradient = jax.jit(lambda params, one=one: one._gradient(params, dict(rows), jax.random.key(0))[1])(params)
        assert any(np.any(leaf) for leaf in jax.tree.leaves(gradient["eeg"]["bridge"]))
        for part in ("snapshot", "series"):
            assert any(np.any(leaf) for leaf in jax.tree.leaves(gradient["eeg"][part])) == expected


def test_a_stage_ends_early_and_stays_ended(tmp_path, capsys):
    """At a learning rate that ruins it, no loss on dev is below the first one."""
    changes = {f"pretrain__snapshot__{name}": value for name, value in
               {"steps": 50, "eval_every": 1, "patience": 2, "lr": 3.0, "lr_end": 3.0}.items()}  # fmt: skip
    study = open_tiny(tmp_path / "early", **changes, pretrain__series__steps=0)
    train_arms(study)
    rows = logged_metrics(study.workdir.root / "snapshot")
    assert rows[-1]["step"] < 20
    assert stale([json.dumps(row) for row in rows]) == 2
    before = final_checkpoint(study.workdir.root / "snapshot")
    capsys.readouterr()
    train_arms(study)
    assert "train:" not in capsys.readouterr().out
    assert final_checkpoint(study.workdir.root / "snapshot")[0] == before[0]


def test_stale_counts_what_no_arm_improved_upon():
    def line(**losses: float) -> str:
        return json.dumps({"step": 1, **{f"dev_loss/{name}/0": value for name, value in losses.items()}})

    assert stale([]) == 0
    assert stale([line(eeg=2.0, noise=1.0), line(eeg=2.1, noise=1.0)]) == 1
    assert stale([line(eeg=2.0, noise=1.0), line(eeg=2.1, noise=1.0), line(eeg=2.0, noise=0.9)]) == 0
    assert stale([line(eeg=2.0), json.dumps({"step": 2, "loss/eeg/0": 1.0}), line(eeg=2.0), line(eeg=3.0)]) == 2
    assert stale([line(eeg=2.0), line(eeg=2.2), line(eeg=2.1)]) == 2, "better than the last one, not than the best"


@pytest.mark.parametrize("schedule", ["linear", "cosine", "geometric"])
def test_the_last_step_has_the_last_rate(schedule):
    config = optim(schedule=schedule, lr=1e-4, lr_end=1e-6, warmup_steps=0)
    rate = make_schedule(config, 101)
    with jax.numpy_dtype_promotion("standard"):
        first, middle, last = (float(rate(step)) for step in (0, 50, 100))
    assert math.isclose(first, 1e-4, rel_tol=1e-5)
    assert math.isclose(last, 1e-6, rel_tol=1e-4)
    if schedule == "geometric":
        assert math.isclose(middle, 1e-5, rel_tol=1e-4)
    of_two = make_schedule(config, 2)
    with jax.numpy_dtype_promotion("standard"):
        assert math.isclose(float(of_two(1)), 1e-6, rel_tol=1e-4)


@pytest.mark.parametrize(
    ("fields", "steps", "expected"),
    [
        ({"schedule": "constant", "warmup_steps": 4}, 20, [0.0, 0.1, 0.2, 0.3, 0.4, 0.4]),
        ({"schedule": "constant", "warmup_steps": 100}, 8, [0.0, 0.1, 0.2, 0.3, 0.4]),  # half of all steps
        ({"schedule": "constant", "warmup_steps": 0}, 8, [0.4, 0.4]),
        ({"schedule": "step", "decay_every": 2, "decay_rate": 0.5}, 20, [0.0, 0.2, 0.4, 0.4, 0.2, 0.2, 0.1]),
    ],
)
def test_rates_by_hand(fields, steps, expected):
    config = optim(lr=0.4, **fields)
    rate, doubled = make_schedule(config, steps), make_schedule(config, steps, 0.8)
    with jax.numpy_dtype_promotion("standard"):
        np.testing.assert_allclose([rate(step) for step in range(len(expected))], expected, atol=1e-6)
        np.testing.assert_allclose([doubled(step) / 2 for step in range(len(expected))], expected, atol=1e-6)


def optim(**fields):
    return tiny_config(**{f"optim__{name}": value for name, value in fields.items()}).optim


def constant(**fields):
    """The optimizer of a constant learning rate."""
    return make_optimizer(optim(schedule="constant", warmup_steps=0, **fields), 10)


@pytest.mark.parametrize(("name", "left"), [("adamw", 0.95), ("sgd", 0.95), ("adafactor", 0.9)])
def test_weight_decay_is_for_every_parameter(name, left):
    """Biases and scales of norms, too, as in PyTorch; adafactor's is not multiplied by the learning rate."""
    rule = constant(name=name, lr=0.5, weight_decay=0.1, grad_clip=0.0)
    params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3), "scale": jnp.ones(3), "embedding": jnp.ones((5, 2))}
    with jax.numpy_dtype_promotion("standard"):
        update, _ = rule.update(jax.tree.map(jnp.zeros_like, params), rule.init(params), params)
    for path, value in optax.apply_updates(params, update).items():
        np.testing.assert_allclose(value, left, rtol=1e-5, err_msg=path)


def test_two_steps_of_sgd_by_hand():
    """Clip to 1, add a tenth of the parameter, then 0.9 of the step before: 1.1, and 0.9 * 1.1 + 0.5 + 0.045."""
    rule = constant(name="sgd", lr=0.5, momentum=0.9, weight_decay=0.1, grad_clip=1.0)
    param, state = jnp.float32(1.0), rule.init(jnp.float32(1.0))
    for gradient, expected in ((3.0, 0.45), (0.5, 0.45 - 0.5 * 1.535)):
        with jax.numpy_dtype_promotion("standard"):
            update, state = rule.update(jnp.float32(gradient), state, param)
        param = optax.apply_updates(param, update)
        assert float(param) == pytest.approx(expected, abs=1e-6)


def test_three_steps_of_adafactor_by_hand():
    """As in prompt tuning: whole second moments of a matrix, too, steps of root mean square 1 at most, whatever the
    size of a parameter, and decay beside the learning rate.
    """
    rule = constant(name="adafactor", lr=0.3, weight_decay=0.01, grad_clip=0.0)
    rng, shape = np.random.default_rng(0), (128, 130)
    found = jnp.asarray(expected := rng.normal(0, 5, shape).astype(np.float32))
    state, power = rule.init(found), 0.0
    with jax.numpy_dtype_promotion("standard"):
        for step in (1, 2, 3):
            gradient = rng.normal(0, step, shape).astype(np.float32)
            update, state = rule.update(jnp.asarray(gradient), state, found)
            found = optax.apply_updates(found, update)
            kept = 1 - step**-0.8
            power = kept * power + (1 - kept) * np.square(gradient)
            moved = gradient / np.sqrt(power)
            moved /= max(1.0, np.sqrt(np.mean(np.square(moved))))
            expected = expected - 0.3 * moved - 0.01 * expected
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model__encoder": "lstm"}, r"model\.encoder is 'lstm'; expected 'unicorn'"),
        (
            {"pretrain__series__schedule": "geometric", "pretrain__series__lr_end": 0.0},
            r"pretrain\.series\.lr_end is 0",
        ),
        ({"optim__schedule": "geometric"}, r"optim\.lr_end is 0"),
        (
            {"train__accumulate": 4, "pretrain__snapshot__batch_size": 6},
            r"divisor of pretrain\.snapshot\.batch_size \(6\)",
        ),
        ({"pretrain__freeze_snapshot": True, "pretrain__snapshot__steps": 0}, r"pretrain\.snapshot\.steps 0"),
    ],
)
def test_what_does_not_fit_is_one_sentence(changes, said):
    with pytest.raises(UserError, match=said):
        check_config(tiny_config(**{**UNICORN, **changes}))
