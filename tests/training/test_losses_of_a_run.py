"""What training does with losses: read late, read together, and never passed over where they are not finite."""

import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.training import metrics_log
from eeg2text_jax.training.checkpoint import Checkpoints
from eeg2text_jax.training.metrics_log import Pending
from eeg2text_jax.training.step import init_state, keep_best
from eeg2text_jax.training.study import Arm

ARMS = (Arm("eeg", 0), Arm("noise", 0))
BATCH = {"weight": np.ones((1, 3)), "labels": np.zeros((1, 3, 2), int), "features": np.zeros((1, 3, 4, 5))}
PACE = SimpleNamespace(done=lambda _: None, restart=lambda: None, rates=lambda: {"samples_per_s": 1.0})


class Log:
    def __init__(self):
        self.rows = {}

    def add(self, step, scalars):
        self.rows.setdefault(step, {}).update(scalars)


@pytest.fixture
def pending(monkeypatch):
    """Makes what holds the metrics for one host or several, and counts the readings."""
    readings = []
    monkeypatch.setattr(metrics_log, "to_host", lambda tree: readings.append(1) or jax.tree.map(np.asarray, tree))

    def make(hosts: int, log_every: int = 4):
        monkeypatch.setattr(jax, "process_count", lambda: hosts)
        config = SimpleNamespace(train=SimpleNamespace(log_every=log_every))
        study = SimpleNamespace(arms=ARMS, config=config, model=SimpleNamespace(pad_token=1))
        log = Log()
        return Pending(study, log, SimpleNamespace(advance=lambda *_: None), PACE), log, readings

    return make


def metrics(step: int, second: float | None = None) -> dict[str, jax.Array]:
    return {"loss": jnp.array([step, step + 0.5 if second is None else second]), "grad_norm": jnp.ones(2) * step}


def test_several_hosts_gather_once_a_log_interval_and_log_the_same(pending):
    logs = []
    for hosts, expected in ((1, 12), (3, 3)):
        held, log, readings = pending(hosts)
        readings.clear()
        for step in range(1, 13):
            held.swap(step, BATCH, metrics(step))
        held.flush()
        assert len(readings) == expected
        logs.append({step: {k: v for k, v in row.items() if "samples" not in k} for step, row in log.rows.items()})
    assert logs[0] == logs[1]
    assert sorted(logs[0]) == [4, 8, 12]
    assert logs[0][8]["loss/noise/0"] == 8.5


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_ends_the_run_with_its_step(pending, hosts, value):
    held, _, _ = pending(hosts)

    def steps() -> None:
        for step in range(1, 10):
            held.swap(step, BATCH, metrics(step, value if step == 6 else None))

    with pytest.raises(UserError, match=r"the loss of arm noise/0 is not finite at step 6 \(it was finite at step 5\)"):
        steps()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_on_dev_that_is_not_finite_ends_the_run(pending, value):
    held, log, _ = pending(1)
    held.dev(3, np.array([1.0, 2.0]))
    assert log.rows[3]["dev_loss/noise/0"] == 2.0
    with pytest.raises(UserError, match=r"the loss of arm eeg/0 on dev is not finite after step 6"):
        held.dev(6, np.array([value, 2.0]))


def test_training_losses_before_a_dev_loss_are_looked_at_first(pending):
    """So that they stand before it in the curves, and are blamed where both are not finite."""
    held, log, _ = pending(1, log_every=1)
    held.swap(1, BATCH, metrics(1))
    held.dev(1, np.array([1.0, 2.0]))
    names = [name for name in log.rows[1] if "loss" in name]
    assert names == ["loss/eeg/0", "loss/noise/0", "dev_loss/eeg/0", "dev_loss/noise/0"]
    held.swap(2, BATCH, metrics(2, np.nan))
    with pytest.raises(UserError, match=r"the loss of arm noise/0 is not finite at step 2 \(it was finite at step 1\)"):
        held.dev(2, np.array([np.nan, 2.0]))


def test_a_checkpoint_has_what_was_there_when_it_was_saved(tmp_path, monkeypatch):
    """Losses, position in the data and parameters, though the thread that writes them is slow and training goes on."""
    write = ocp.JsonCheckpointHandler._save_fn

    async def late(self, info, directory):
        time.sleep(0.2)
        await write(self, info, directory)

    monkeypatch.setattr(ocp.JsonCheckpointHandler, "_save_fn", late)
    lines, iterator = ["first"], {"next_index": 1, "inner": {"epoch": [0]}}
    state = {"params": jnp.arange(4.0)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, {"log": lines, "iterator": iterator})
        lines.append("second")
        iterator["inner"]["epoch"].append(1)
        state = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)(state)
        checkpoints.wait()
        _, found, info = checkpoints.restore(jax.tree.map(ocp.utils.to_shape_dtype_struct, state))
    assert info == {"log": ["first"], "iterator": {"next_index": 1, "inner": {"epoch": [0]}}}
    np.testing.assert_array_equal(found["params"], np.arange(4.0))


def test_the_best_parameters_of_each_arm_are_those_of_its_lowest_loss():
    """Better than the last one is not enough, nor is as good as the best; what is no number is never the best."""
    losses = np.array([[2.0, 1.0, 3.0, np.nan], [3.0, 0.5, 3.0, 4.0], [2.5, 0.7, 1.0, np.nan]], np.float32)
    params = {"scalar": jnp.zeros(4), "kernel": jnp.zeros((4, 2, 3))}
    state = init_state(params, optax.identity())
    for number, loss in enumerate(losses):
        after = jax.tree.map(lambda leaf, number=number: jnp.full_like(leaf, number), params)
        state = keep_best(state._replace(params=after), jnp.asarray(loss))
    best = [0, 1, 2, 1]
    np.testing.assert_array_equal(state.best_params["scalar"], best)
    np.testing.assert_array_equal(state.best_params["kernel"], np.broadcast_to(np.reshape(best, (4, 1, 1)), (4, 2, 3)))
    np.testing.assert_array_equal(state.best_loss, np.float32([2.0, 0.5, 1.0, 4.0]))
