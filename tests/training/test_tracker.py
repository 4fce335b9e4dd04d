"""Trackers that work, fail and hang: training never waits for one, and never ends by it."""

import json
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest
from etils import epath
from tiny_run import tiny_settings

from eeg2text_jax.base.kinds import plain
from eeg2text_jax.instrument.workdir import Workdir, fields_digest
from eeg2text_jax.training import metrics_log
from eeg2text_jax.training._tracker_process import feed
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.metrics_log import Tracker, tracker_of
from eeg2text_jax.training.sections import check_config
from eeg2text_jax.training.study import Arm

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
    monkeypatch.setattr(metrics_log, "PATIENCE", 10.0)
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


def test_runs_of_wandb_are_continued_by_their_ids(monkeypatch):
    """Arms with equal names in another workdir are other runs; files are written into the folder of the run alone."""
    runs = []

    class Run:
        def __init__(self, **options):
            self.options, self.rows, self.has_ended = options, [], False
            runs.append(self)

        def log(self, scalars, step):
            self.rows.append((step, scalars))

        def finish(self):
            self.has_ended = True

    wandb = ModuleType("wandb")
    wandb.init = Run
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    begin = {"package": "wandb", "project": "reading", "group": "one", "config": {"seed": 0}, "folder": "/runs/one"}
    begin["runs"] = {arm: f"id of {arm}" for arm in ARMS}
    third, fourth = {"eeg/0": {"loss": 1.0}, "noise/0": {}}, {"noise/0": {"loss": 2.0}}
    feed(map(json.dumps, [begin, {"step": 3, "rows": third}, {"step": 4, "rows": fourth}]))
    eeg, noise = runs
    expected = {"project": "reading", "group": "one", "id": "id of eeg/0", "name": "eeg/0", "dir": "/runs/one"}
    assert eeg.options.items() >= expected.items()
    assert (eeg.options["config"], eeg.options["resume"]) == ({"seed": 0, "arm": "eeg/0"}, "allow")
    assert (eeg.rows, noise.rows) == ([(3, {"loss": 1.0})], [(4, {"loss": 2.0})])
    assert eeg.has_ended
    assert noise.has_ended


def test_a_run_tells_its_tracker_arms_and_configuration_from_the_first_host_alone(tmp_path, monkeypatch):
    settings = tiny_settings(train__tracker="trackio:reading")
    workdir = Workdir(epath.Path(tmp_path / "one"))
    study = SimpleNamespace(workdir=workdir, config=settings, arms=(Arm("eeg", 0), Arm("noise", 1)))
    begin = tracker_of(study)._begin
    assert (begin["package"], begin["project"], begin["folder"]) == ("trackio", "reading", str(tmp_path / "one"))
    assert begin["group"].startswith("one-")
    assert list(begin["runs"]) == ["eeg/0", "noise/1"]
    assert begin["config"]["train"]["steps"] == 6
    monkeypatch.setattr(metrics_log, "is_main", lambda: False)
    assert not tracker_of(study)._begin["package"]


def test_a_run_is_known_by_workdir_and_configuration(tmp_path):
    def ids(place: str, seed: int) -> set[str]:
        return set(Tracker("wandb", place, str(tmp_path), ARMS, {"seed": seed})._begin["runs"].values())

    assert ids("s3://bucket/one", 0) == ids("s3://bucket/one", 0)
    assert len(ids("s3://bucket/one", 0) | ids("s3://bucket/two", 0) | ids("s3://bucket/one", 1)) == 3 * len(ARMS)


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
    assert said.endswith("training is not affected; metrics.jsonl and TensorBoard have every line.")


@pytest.mark.parametrize("content", ["import time; time.sleep(600)", WRITES + "\nimport time\nRun.finish = time.sleep"])
def test_one_that_hangs_holds_nothing_up(content, package, tmp_path, monkeypatch, capsys):
    """Neither while its queue is full, nor at the end."""
    package(content.replace("Run.finish = time.sleep", "Run.finish = lambda self: time.sleep(600)"))
    monkeypatch.setattr(metrics_log, "PATIENCE", 0.5)
    monkeypatch.setattr(metrics_log, "MOST_WAITING", 100)
    assert track(tmp_path, rows=5000) < 5.0
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("trackio: d")


@pytest.mark.parametrize("problem", [OSError("Cannot allocate memory"), ValueError("embedded null byte")], ids=repr)
def test_a_process_that_cannot_be_started_is_one_sentence(problem, tmp_path, monkeypatch, capsys):
    def refuse(*_, **__):
        raise problem

    monkeypatch.setattr(metrics_log.subprocess, "Popen", refuse)
    track(tmp_path)
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith(f"trackio: could not be started ({problem}); training is not affected")


def test_none_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_log.subprocess, "Popen", None)
    track(tmp_path, wanted="")


def test_a_tracker_changes_nothing_of_a_run():
    """A run may be resumed with another one, or none: no digest depends on it."""
    config = load_config("default")
    other = config.copy_and_resolve_references()
    other.train.tracker = "wandb:reading"
    check_config(other)
    assert fields_digest(plain(config), "training") == fields_digest(plain(other), "training")
