"""The calls for a notebook: a run made by the lines of the docstring, and what it gives."""

import doctest
import json
from pathlib import Path

import numpy as np
import pytest

from eeg2text_jax import notebook
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.errors import UserError
from eeg2text_jax.notebook import Run, changed, fit, load
from eeg2text_jax.splits.methods import make_split
from eeg2text_jax.study.configuration import load_config


def on_one_device(name):
    """The suite simulates eight devices; a notebook has one, or those that there are."""
    return changed(load_config(name), {"parallel.mesh": (1, 1)})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run of `fit`'s docstring, which must say what it says there."""
    test = doctest.DocTestParser().get_doctest(fit.__doc__, {}, "fit", notebook.__file__, 0)
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        patch.setattr(notebook, "load_config", on_one_device)
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False, out=said.append)
        assert not said, "".join(said)
        assert sum(bool(example.source) for example in test.examples) <= 10
        yield test.globs["run"]


def test_a_run_knows_what_it_did(run):
    assert isinstance(run, Run)
    assert run.arms == ["eeg/0", "noise/0"]
    assert sum(map(len, run.split.values())) == len(run.data) == 64
    assert {row.mode for row in run.predictions} == {"teacher_forced", "free_running"}
    assert json.loads((run.workdir / "audit.json").read_text())["verdict"] == run.verdict.to_json()["verdict"]
    assert "free-running" in run.table()
    assert run.plot_losses().axes[0].get_xlabel() == "step"
    assert run.plot_effects()._repr_svg_().startswith("<")
    assert "test; arms eeg/0, noise/0" in repr(run)


def test_decoding_gives_what_the_run_gave(run, tmp_path):
    raw = [run.data.words(i) for i in run.split["test"]]
    for arm in run.arms:
        condition = arm.partition("/")[0]
        texts = [row.prediction for row in run.predictions if row.mode == "free_running"
                 and (row.train_condition, row.eval_condition) == (condition, "eeg")]  # fmt: skip
        assert run.decode(raw, arm=arm) == texts
    folder = run.export(tmp_path / "export")
    assert load(folder).decode(raw[:3]) == run.decode(raw[:3])
    again = load(run.workdir)
    assert again.decode(raw[:3]) == run.decode(raw[:3])
    assert again.scores == run.scores


def test_what_cannot_be_decoded_is_one_sentence(run):
    width = run.data.n_features
    for features, message in (
        ([np.zeros((3, width + 1))], rf"features\[0\] has shape \[3, {width + 1}\]; expected \[words, {width}\]"),
        (np.zeros((1, 3, width)), r"need mask \[N, W\]"),
        ([np.full((3, width), "x")], "is of type <U1; expected numbers"),
    ):
        with pytest.raises(UserError, match=message):
            run.decode(features)
    with pytest.raises(UserError, match="this run has eeg/0, noise/0"):
        run.decode([np.zeros((3, width))], arm="zero/0")


def test_fields_that_are_not_there_or_wrong():
    config = load_config("own")
    assert changed(config, {"train.steps": 7, "grid.seeds": [0, 1]}).grid.seeds == (0, 1)
    assert config.train.steps != 7
    with pytest.raises(UserError, match=r"there is no such field of a configuration; did you mean 'train\.steps'"):
        changed(config, {"train.stpes": 3})
    with pytest.raises(UserError, match=r"train\.steps is 'many'; expected a whole number"):
        changed(config, {"train.steps": "many"})
    with pytest.raises(UserError, match="there is no such field"):
        fit("nowhere.h5", train__stpes=3)


def test_a_split_of_ones_own_is_the_runs(run, tmp_path, monkeypatch):
    data = read_datafile(run.data.path)
    split = make_split(data, "unique_text", (0.5, 0.25, 0.25), 3)
    seen = {}
    monkeypatch.setattr(notebook.pipeline, "run", lambda config, root: seen.update(config=config, root=root))
    monkeypatch.setattr(notebook, "finished_study", lambda root: run.study)
    fit(data, split=split, workdir=tmp_path / "run")
    assert seen["config"].split.method == "file"
    found = json.loads(Path(seen["config"].split.path).read_text())
    assert len(found["parts"]["dev"]["ids"]) == len(split.parts["dev"])
    assert seen["config"].data.source == str(data.path)
