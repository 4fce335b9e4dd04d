"""Rates in the curves, and profiles of single steps."""

import json
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from etils import epath
from jax.profiler import ProfileData
from tiny_run import tiny_settings

from eeg2text_jax.base.devices.mesh import make_mesh
from eeg2text_jax.commands.preflight.programs import make_outline
from eeg2text_jax.models.functional import training_flops
from eeg2text_jax.runs.opening import open_run
from eeg2text_jax.training.loop import train_arms
from eeg2text_jax.training.metrics_log import BatchWork, Pace, Pending, StepProfile

PAD = 1
BATCH = {
    "features": np.zeros((3, 7, 12), np.float32),
    "labels": np.array([[5, 6, 2, PAD], [5, 2, PAD, PAD], [5, 6, 2, PAD]]),  # the last row only fills the batch
    "weight": np.array([1, 1, 0], np.float32),
}
BATCH = {name: array[None] for name, array in BATCH.items()}  # of one seed


@pytest.fixture(scope="module")
def model():
    return make_outline(tiny_settings()).model


def ticking(monkeypatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


def test_rates_of_real_rows_and_tokens(monkeypatch, model):
    clock = ticking(monkeypatch)
    pace = Pace(model, 2, make_mesh(1, 1))
    work = BatchWork.of(BATCH, PAD)
    assert work == (2, 5, 7, 4, 3)
    pace.done(work)
    pace.done(work)
    pace.waited(1.0)
    clock.now += 4.0
    assert pace.rates() == {"samples_per_s": 1.0, "tokens_per_s": 2.5, "input_wait": 0.25}  # a CPU has no peak
    pace.restart()
    clock.now += 1.0
    assert pace.rates() == {"samples_per_s": 0.0, "tokens_per_s": 0.0, "input_wait": 0.0}


def test_mfu_where_the_peak_is_known(monkeypatch, model):
    """All arms' products, padding included, over the peak of all devices."""
    clock = ticking(monkeypatch)
    chips = SimpleNamespace(devices=np.array([[SimpleNamespace(device_kind="TPU v5 lite")] * 4]), size=4)
    pace = Pace(model, 2, chips)
    pace.done(BatchWork.of(BATCH, PAD))
    clock.now += 2.0
    expected = 2 * training_flops(model, 3, 7, 4) / 2.0 / (4 * 197e12)
    assert pace.rates()["mfu"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("ready", "share"), [(True, 0.75), (False, 0.0)])
def test_a_batch_is_waited_for_only_where_the_devices_are_done(monkeypatch, model, ready, share):
    clock = ticking(monkeypatch)
    pace = Pace(model, 1, make_mesh(1, 1))
    study = SimpleNamespace(arms=(), config=tiny_settings(), model=model)
    pending = Pending(study, None, None, pace)
    pending._unread = [(1, BatchWork.of(BATCH, PAD), {"loss": SimpleNamespace(is_ready=lambda: ready)})]

    def slow():
        clock.now += 3.0
        yield BATCH

    assert pending.next_batch(slow()) is BATCH
    clock.now += 1.0
    assert pace.rates()["input_wait"] == share


def test_a_run_logs_its_pace_and_profiles_the_steps_asked_for(tmp_path, capsys):
    changes = {"model__encoder_layers": 0, "train__steps": 4, "grid__train_conditions": ("eeg",), "optim__name": "sgd"}
    config = tiny_settings(**changes, train__profile="2:3")
    with open_run(config, str(tmp_path / "run")) as study:
        train_arms(study)
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    logged = [row for row in rows if "samples_per_s" in row]
    assert [row["step"] for row in logged] == [1, 2, 3, 4]
    assert all(0 < row["samples_per_s"] < row["tokens_per_s"] and 0 <= row["input_wait"] <= 1 for row in logged)
    assert not any("mfu" in row for row in rows)
    assert "profile of steps 2 to 3" in capsys.readouterr().out
    (written,) = (tmp_path / "run/profile/plugins/profile").glob("*/*.xplane.pb")
    planes = ProfileData.from_file(str(written)).planes
    events = [event for plane in planes for line in plane.lines for event in line.events]
    steps = {dict(event.stats)["step_num"] for event in events if event.name == "train"}
    assert steps == {2, 3}
    assert any(dict(event.stats).get("hlo_module") == "jit_train_step" for event in events)


def test_a_profile_ends_with_a_training_that_fails(tmp_path):
    def train() -> None:
        with StepProfile("1:9", epath.Path(tmp_path)) as profile, profile.step(1):
            jax.block_until_ready(jax.numpy.ones(3) + 1)
            raise ValueError("bad batch")

    with pytest.raises(ValueError, match="bad batch"):
        train()
    assert list(tmp_path.glob("profile/plugins/profile/*/*.xplane.pb"))
    jax.profiler.start_trace(str(tmp_path / "another"))  # which fails while one is running
    jax.profiler.stop_trace()


def test_a_profile_waits_for_the_devices_once_after_its_last_step(tmp_path):
    waited = []
    with StepProfile("1:2", epath.Path(tmp_path)) as profile:
        for number in range(1, 5):
            with profile.step(number):
                jax.block_until_ready(jax.numpy.ones(3) + 1)
            profile.after(number, lambda number=number: waited.append(number))
    assert waited == [2]
