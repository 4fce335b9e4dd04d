"""The calls for a notebook: a run made by the lines of the docstring, and what it gives."""

import doctest
import gc
import inspect
import json
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import eeg2text_jax
from eeg2text_jax import data
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.runs import notebook
from eeg2text_jax.runs.notebook import Run, changed, fit, load
from eeg2text_jax.training.configuration import load_config

ROOT = Path(__file__).parents[1]


def on_one_device(name):
    """The suite simulates eight devices; a notebook has one, or those that there are. Dropout is in one place."""
    config = changed(load_config(name), {"parallel.mesh": (1, 1)})
    with config.unlocked():
        config.model.shape = {**config.model.shape, "dropout": 0.0}
    return config


def documented() -> dict[str, object]:
    """What the reference page shows, by its place, in the page's order."""
    places = re.findall(r"^::: (\S+)$", (ROOT / "docs/reference.md").read_text(encoding="utf8"), re.MULTILINE)
    return {place: pkgutil.resolve_name(place) for place in places}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Every example of the reference page, run from top to bottom in one folder; by place its names and complaints."""
    ran = {}
    runner, parser = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), doctest.DocTestParser()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        patch.setattr(notebook, "load_config", on_one_device)
        for place, shown in documented().items():
            test, said = parser.get_doctest(inspect.getdoc(shown), {}, place, None, 0), []
            runner.run(test, clear_globs=False, out=said.append)
            ran[place] = test, "".join(said)
        yield ran


@pytest.fixture(scope="module")
def run(examples):
    """The run of `fit`'s example: a data file to a verdict in ten lines."""
    test, said = examples["eeg2text_jax.runs.notebook.fit"]
    assert not said, said
    assert len(test.examples) <= 10
    return test.globs["run"]


def test_every_public_name_is_on_the_page_with_an_example_that_runs(examples):
    shown = documented()
    public = [data.write, *(inspect.unwrap(getattr(eeg2text_jax, name)) for name in eeg2text_jax.__all__)]
    for place in (place for place, what in shown.items() if any(what is named for named in public)):
        test, said = examples[place]
        assert test.examples, f"{place} has no example"
        assert not said, said
    assert not [named for named in public if not any(named is what for what in shown.values())]


def test_a_run_knows_what_it_did(run):
    assert isinstance(run, Run)
    assert run.arms == ["eeg/0", "noise/0"]
    assert sum(map(len, run.split.values())) == len(run.data) == 64
    assert {row.mode for row in run.predictions} == {"teacher_forced", "free_running"}
    assert json.loads((run.workdir / "audit.json").read_text())["verdict"] == run.verdict.to_json()["verdict"]
    assert "free-running" in run.table()
    assert run.verdict.sentence in repr(run)
    assert (run.workdir / "results.md").read_text("utf8").startswith("# Verdict\n\n**")
    assert run.verdict.sentence in (run.workdir / "results.md").read_text("utf8")
    assert run.plot_losses().axes[0].get_xlabel() == "step"
    assert run.plot_losses()._repr_png_().startswith(b"\x89PNG")  # Jupyter draws it without pyplot
    with pytest.raises(UserError, match="the electrode positions are unknown"):
        run.plot_channels()
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
    assert run.verdict.sentence in (folder / "README.md").read_text("utf8")
    assert load(folder).decode(raw[:3]) == run.decode(raw[:3])
    again = load(run.workdir)
    assert again.decode(raw[:3]) == run.decode(raw[:3])
    assert again.scores == run.scores


def test_what_cannot_be_decoded_is_one_sentence(run):
    width = run.data.n_features
    for features, message in (
        ([np.zeros((3, width + 1))], rf"features\[0\] has shape \[3, {width + 1}\]; expected \[words, {width}\]"),
        (np.zeros((1, 3, width)), r"need mask \[N, W\]"),
        ([np.full((3, width), "x")], "features are text; expected numbers"),
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
    own = read_datafile(run.data.path)
    split = make_split(own, "unique_text", (0.5, 0.25, 0.25), 3)
    seen = {}
    monkeypatch.setattr(notebook.pipeline, "run", lambda config, root: seen.update(config=config, root=root))
    monkeypatch.setattr(notebook, "finished_study", lambda root: run.study)
    fit(own, split=split, workdir=tmp_path / "run")
    assert seen["config"].split.method == "file"
    found = json.loads(Path(seen["config"].split.path).read_text())
    assert len(found["parts"]["dev"]["ids"]) == len(split.parts["dev"])
    assert seen["config"].data.source == str(own.path)


def test_without_a_workdir_the_folder_goes_with_the_run(run, monkeypatch):
    made = []
    monkeypatch.setattr(notebook.pipeline, "run", lambda config, root: made.append(Path(root).parent))
    monkeypatch.setattr(notebook, "finished_study", lambda root: run.study)
    own = fit(run.data)
    assert own.study is run.study
    assert made[0].is_dir()
    del own
    gc.collect()
    assert not made[0].exists()
