"""Arms in waves: the same results, and as many at once as fit."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from tiny_run import study_in, tiny_settings

from eeg2text_jax.base.devices.arms import Divided
from eeg2text_jax.base.devices.mesh import arms_mapping
from eeg2text_jax.instrument.predictions.file import read_predictions
from eeg2text_jax.instrument.workdir import Workdir
from eeg2text_jax.runs import pipeline
from eeg2text_jax.training import loop
from eeg2text_testing.forked_runs import logged_metrics

CHANGES = {"model__encoder_layers": 0, "train__steps": 4, "decode__max_length": 6}


def open_run(root, **changes):
    return study_in(root, tiny_settings(**CHANGES, **changes))


def results(study):
    loop.train_arms(study)
    pipeline.decode(study)
    lines = [(row["step"], *pair) for row in logged_metrics(study.workdir.root) for pair in row.items()]
    losses = {(step, name): v for step, name, v in lines if name.startswith(("loss/", "dev_loss/"))}
    predictions = read_predictions(study.workdir.predictions).predictions
    tokens = {(p.sample_id, p.train_condition, p.eval_condition, p.mode): p.prediction_tokens for p in predictions}
    return losses, tokens


def test_waves_give_what_one_wave_gives(tmp_path, capsys):
    losses, tokens = results(open_run(tmp_path / "one", optim__name="sgd"))
    capsys.readouterr()
    study = open_run(tmp_path / "two", parallel__wave=1, optim__name="sgd")
    in_waves, tokens_in_waves = results(study)
    said = capsys.readouterr().out
    assert said.index("wave 1 of 2") < said.index("training 1 arms (eeg/0)") < said.index("training 1 arms (noise/0)")
    assert losses.keys() == in_waves.keys()
    np.testing.assert_allclose([in_waves[key] for key in losses], [*losses.values()], rtol=1e-5)
    assert tokens == tokens_in_waves
    ours = loop.trained_arm(study, 1)
    assert ours["backbone"]["shared"]["embedding"].ndim == 2
    lines = study.workdir.metrics.read_text()
    study.workdir.metrics.unlink()
    loop.restore_log(study)
    assert study.workdir.metrics.read_text() == lines, "a deleted log is that of all waves"
    study.workdir.metrics.unlink()
    shutil.rmtree(study.workdir.root / "wave_2/checkpoints")
    loop.restore_log(study)
    assert not study.workdir.metrics.exists(), "a log of some waves is none"


@pytest.fixture(scope="module")
def six_arms(tmp_path_factory):
    study = open_run(tmp_path_factory.mktemp("waves") / "run", grid__seeds=(0, 1, 2))
    assert len(study.arms) == 6
    return study


@pytest.mark.parametrize(("room", "expected"), [(10.0, 6), (5.9, 3), (2.5, 2), (1.5, 1), (0.5, 1)])
def test_as_many_arms_as_fit(six_arms, tmp_path, monkeypatch, capsys, room, expected):
    study = dataclasses.replace(six_arms, workdir=Workdir(epath.Path(tmp_path)))
    monkeypatch.setattr(loop, "device_memory", lambda: room * loop.bytes_of_an_arm(study) / loop.STATE_SHARE)
    parts = loop.arms_together(study)
    assert [len(part.arms) for part in parts] == [expected] * (6 // expected)
    assert [arm for part in parts for arm in part.arms] == list(study.arms)
    keys = [jax.random.key_data(part.arrays.dropout) for part in parts]
    np.testing.assert_array_equal(np.concatenate(keys), jax.random.key_data(study.arrays.dropout))
    assert ("arms are trained at the same time" in capsys.readouterr().out) == (room < 6)
    monkeypatch.setattr(loop, "device_memory", lambda: 1e15)  # a run that goes on elsewhere keeps its waves
    assert [part.arms for part in loop.arms_together(study)] == [part.arms for part in parts]


def test_each_arm_has_its_own_parameters_in_whatever_wave_it_is(six_arms, tmp_path, monkeypatch):
    """Two waves of three arms; each arm's parameters are its number in the run."""
    study = dataclasses.replace(six_arms, workdir=Workdir(epath.Path(tmp_path)))
    study = dataclasses.replace(study, config=study.config.changed({"parallel.wave": 4}))
    assert [len(part.arms) for part in loop.arms_together(study)] == [3, 3]

    def numbers(part):
        return {"x": jnp.array([study.arms.index(arm) for arm in part.arms])}

    monkeypatch.setattr(loop, "trained_params", numbers)
    assert [int(loop.trained_arm(study, number)["x"]) for number in range(6)] == list(range(6))
    shared = {"y": jnp.arange(6)}
    monkeypatch.setattr(loop, "trained_params", lambda part: Divided(numbers(part), shared))
    own, frozen = loop.trained_arm(study, 4)
    assert (int(own["x"]), frozen["y"].shape) == (4, (6,)), "the frozen model has no axis of arms"


@pytest.mark.parametrize("folder", ["checkpoints", "step_one"])
def test_a_run_that_began_in_one_wave_stays_in_one(six_arms, tmp_path, monkeypatch, folder):
    """Another machine with less memory must not begin it again in folders of waves."""
    config = six_arms.config.changed({"step_one.steps": 2})
    study = dataclasses.replace(six_arms, config=config, workdir=Workdir(epath.Path(tmp_path)))
    (tmp_path / folder).mkdir()
    monkeypatch.setattr(loop, "device_memory", lambda: 1.0)
    (part,) = loop.arms_together(study)
    assert part is study


def test_bytes_of_an_arm_by_hand(six_arms):
    """Parameters, the best ones, Adam's two moments and the gradient, four bytes each; and a few counters."""
    numbers = sum(leaf.size for leaf in jax.tree.leaves(six_arms.model.shapes))
    assert 0 <= loop.bytes_of_an_arm(six_arms) - 5 * 4 * numbers < 100


def test_devices_of_the_batch_divide_the_state_only_with_fsdp(six_arms, tmp_path, monkeypatch):
    """A device of two along `arm` has three of six arms, or one of two; three arms fit no such mesh."""
    waves = []
    for fsdp, room in ((False, 2.9), (False, 3.1), (True, 0.7), (True, 0.8)):
        monkeypatch.setattr(
            loop, "device_memory", lambda room=room: room * loop.bytes_of_an_arm(six_arms) / loop.STATE_SHARE
        )
        config = six_arms.config.changed({"parallel.mesh": (2, 4), "parallel.fsdp": fsdp})
        study = dataclasses.replace(six_arms, config=config, workdir=Workdir(epath.Path(tmp_path / f"{room}")))
        study.workdir.root.mkdir()
        waves.append([len(part.arms) for part in loop.arms_together(study)])
    assert waves == [[2, 2, 2], [6], [2, 2, 2], [6]]


def test_arms_are_mapped_on_a_single_cpu_device():
    settings = {mesh: tiny_settings(parallel__arms="auto", parallel__mesh=mesh) for mesh in ((1, 1), (0, 0), (2, 4))}
    found = {mesh: arms_mapping(of_mesh.parallel) for mesh, of_mesh in settings.items()}
    assert found == {(1, 1): "map", (0, 0): "vmap", (2, 4): "vmap"}
