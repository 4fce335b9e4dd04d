"""Trackers that work, fail and hang: training never waits for one, and never ends by it."""

import json
import time

import pytest

from eeg2text_jax.study.configuration import fields_digest, load_config
from eeg2text_jax.study.ranges import check_config
from eeg2text_jax.training import tracker
from eeg2text_jax.training.tracker import Tracker

ARMS = ("eeg/0", "noise/0")
WRITES = """
import json, pathlib
class Run:
    def __init__(self, **options):
        self.options, self.rows = options, []
    def log(self, scalars, step):
        self.rows.append([step, scalars])
    def finish(self):
        place = pathlib.Path(__file__).parent / (self.options["name"] + ".json")
        place.write_text(json.dumps({**self.options, "rows": self.rows}))
init = Run
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes a module of a tracker's name with a content, for the process that imports it."""

    def make(content: str, name: str = "trackio") -> None:
        (tmp_path / f"{name}.py").write_text(content)

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tracker, "PATIENCE", 10.0)
    return make


def track(tmp_path, wanted: str = "trackio:reading", rows: int = 3) -> float:
    """Seconds that logging some steps took."""
    begun = time.monotonic()
    with Tracker(wanted, "s3://bucket/runs/one", str(tmp_path), ARMS, {"seed": 0}) as found:
        for step in range(1, rows + 1):
            found.add(step, {"loss/eeg/0": step / 2, "loss/noise/0": 3.0, "samples_per_s": 9.0})
    return time.monotonic() - begun


def test_arms_are_runs_of_one_group(package, tmp_path, capsys):
    package(WRITES)
    for _ in range(2):  # the same run, begun again, is the same runs there
        track(tmp_path)
    assert not capsys.readouterr().out
    eeg, noise = (json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json")))
    assert eeg["group"] == noise["group"]
    assert eeg["group"].startswith("one-")
    assert (eeg["project"], eeg["config"]) == ("reading", {"seed": 0, "arm": "eeg/0"})
    assert eeg["rows"] == [[step, {"loss": step / 2, "samples_per_s": 9.0}] for step in (1, 2, 3)]
    assert noise["rows"][-1] == [3, {"loss": 3.0, "samples_per_s": 9.0}]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("raise OSError('no route to host')", "ended with an error (OSError: no route to host)"),
        (WRITES + "\nRun.log = lambda *a, **k: 1 / 0", "ended with an error (ZeroDivisionError: division by zero)"),
        ("raise ImportError('no module')", "pip install 'eeg2text_jax[trackio]'"),
        ("import os; os._exit(3)", "ended with an error (status 3)"),
    ],
)
def test_one_that_fails_is_one_sentence(content, sentence, package, tmp_path, capsys):
    package(content)
    track(tmp_path, rows=300)
    (said,) = capsys.readouterr().out.splitlines()
    assert sentence in said
    assert said.endswith("training goes on, metrics.jsonl and TensorBoard have every line.")


@pytest.mark.parametrize("content", ["import time; time.sleep(600)", WRITES + "\nimport time\nRun.finish = time.sleep"])
def test_one_that_hangs_holds_nothing_up(content, package, tmp_path, monkeypatch, capsys):
    """Neither while its queue is full, nor at the end."""
    package(content.replace("Run.finish = time.sleep", "Run.finish = lambda self: time.sleep(600)"))
    monkeypatch.setattr(tracker, "PATIENCE", 0.5)
    monkeypatch.setattr(tracker, "MOST_WAITING", 100)
    assert track(tmp_path, rows=5000) < 5.0
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("trackio: d")


def test_none_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tracker.subprocess, "Popen", None)
    track(tmp_path, wanted="")


def test_a_tracker_changes_nothing_of_a_run():
    """A run may be resumed with another one, or none: no digest depends on it."""
    config = load_config("default")
    other = config.copy_and_resolve_references()
    other.train.tracker = "wandb:reading"
    check_config(other)
    assert fields_digest(config, "training") == fields_digest(other, "training")
