"""How a command begins on a workdir, and what it leaves where it cannot."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_run import as_flag, tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands import cli
from eeg2text_jax.runs import opening
from eeg2text_jax.training import loop
from eeg2text_jax.training.checkpoint import Checkpoints
from eeg2text_jax.training.loop import DevLoss, trained_params
from eeg2text_jax.training.study import Arm

QUICK = {"model__encoder_layers": 0, "train__steps": 2, "grid__train_conditions": ("eeg",), "optim__name": "sgd"}


def digest_of(root) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else b"" for p in sorted(root.rglob("*"))}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A workdir in which training is finished."""
    root = tmp_path_factory.mktemp("opening") / "run"
    assert cli.main(["train", as_flag(**QUICK), f"--workdir={root}"]) == 0
    return root


@pytest.mark.parametrize("command", ["run", "train"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decode__num_beams": 0}, "num_beams"),
        ({"shape": {"d_modle": 3}}, "d_modle"),
        ({"parallel__mesh": (3, 3)}, "parallel.mesh"),
        ({"data__source": "nowhere.h5"}, "nowhere.h5"),
    ],
)
def test_a_refused_run_leaves_nothing(tmp_path, refused, command, changes, message):
    sentence = refused([command, as_flag(**{**QUICK, **changes}), f"--workdir={tmp_path / 'runs/x'}"])
    assert message in sentence
    assert list(tmp_path.iterdir()) == []


def test_a_run_prints_where_its_decoding_differs_from_the_checkpoints(trained, monkeypatch, printed_by):
    monkeypatch.setattr(opening, "generation_note", lambda checkpoint, spec: f"unlike {checkpoint!r}: {spec.num_beams}")
    assert "unlike '': 2\n" in printed_by(["train", as_flag(**QUICK), f"--workdir={trained}"])


@pytest.mark.parametrize("command", ["decode", "export"])
def test_a_mistyped_workdir_stays_empty(tmp_path, refused, command):
    arguments = {"decode": [as_flag(**QUICK)], "export": [f"--out={tmp_path / 'out'}"]}[command]
    (tmp_path / "there").mkdir()
    for name in ("there", "nowhere"):
        assert "holds no run of eeg2text" in refused([command, *arguments, f"--workdir={tmp_path / name}"])
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("missing", ["data.h5", "split.json", "tokenizer", "checkpoints"])
@pytest.mark.parametrize("command", ["decode", "export"])
def test_what_is_missing_is_not_made_to_decode(trained, tmp_path, refused, command, missing):
    root = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(root / missing) if (root / missing).is_dir() else (root / missing).unlink()
    before = digest_of(root)
    arguments = {"decode": [as_flag(**QUICK)], "export": [f"--out={tmp_path / 'out'}"]}[command]
    sentence = refused([command, *arguments, f"--workdir={root}"])
    assert missing.removesuffix("s") in sentence
    assert digest_of(root) == before


@pytest.mark.parametrize("command", ["decode", "export"])
def test_decoding_and_exporting_leave_damaged_checkpoints_where_they_are(trained, tmp_path, refused, command):
    root = shutil.copytree(trained, tmp_path / "run")
    (root / "checkpoints/step_2/info/metadata").write_text("{}")
    before = digest_of(root)
    arguments = {"decode": [as_flag(**QUICK)], "export": [f"--out={tmp_path / 'out'}"]}[command]
    said = refused([command, *arguments, f"--workdir={root}"])
    assert "step_2/info/metadata is damaged; `eeg2text train` sets the checkpoint aside" in said
    assert digest_of(root) == before
    assert not (tmp_path / "out").exists()


def test_a_run_in_use_is_left_to_its_process(trained, tmp_path, refused):
    before = digest_of(trained)
    with opening.lock_workdir(str(trained)):
        assert "is in use by process" in refused(["run", as_flag(**QUICK), f"--workdir={trained}"])
    assert digest_of(trained) == before


def test_changed_curves_are_refused_by_what_does_not_write_them_again(trained, tmp_path, refused):
    root = shutil.copytree(trained, tmp_path / "run")
    (root / "metrics.jsonl").write_bytes((root / "metrics.jsonl").read_bytes().replace(b"1", b"2", 1))
    assert "metrics.jsonl: is not what this run wrote" in refused(["decode", as_flag(**QUICK), f"--workdir={root}"])


@pytest.mark.parametrize("name", ["split.json", "tokenizer/tokenizer.json"])
def test_a_changed_file_is_refused_by_every_command(trained, tmp_path, refused, name):
    root = shutil.copytree(trained, tmp_path / "run")
    content = (root / name).read_bytes()
    (root / name).write_bytes(content.replace(b"0", b"1", 1))
    for command in (["train", as_flag(**QUICK)], ["decode", as_flag(**QUICK)], ["export", f"--out={tmp_path / 'out'}"]):
        assert f"{name}: is not what this run wrote" in refused([*command, f"--workdir={root}"])


def test_a_checkpoint_of_another_configuration_is_refused(trained, tmp_path, refused):
    """All of its folder, so that it is whole in itself."""
    other = {**QUICK, "optim__lr": 0.01}
    root = shutil.copytree(trained, tmp_path / "run")
    (root / "config.json").write_text((root / "config.json").read_text().replace('"lr": 0.001', '"lr": 0.01', 1))
    assert '"lr": 0.01,' in (root / "config.json").read_text()
    assert "checkpoints: the checkpoint is of another run" in refused(["train", as_flag(**other), f"--workdir={root}"])


def test_decoding_reads_the_best_parameters_alone(trained, monkeypatch):
    config = tiny_settings(**{**QUICK})
    study = opening.open_finished(config, str(trained))
    asked = []
    restore = Checkpoints.restore
    monkeypatch.setattr(Checkpoints, "restore", lambda self, tree: asked.append(tree) or restore(self, tree))
    best = trained_params(study)
    parts = {name: jax.tree.leaves(part) for name, part in asked[0]._asdict().items()}
    sizes = {name: sum(leaf is not ... for leaf in leaves) for name, leaves in parts.items()}
    assert sizes["params"] == sizes["opt_state"] == 0
    assert sizes["best_params"] == len(jax.tree.leaves(best))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(best))


def test_neither_an_unfinished_run_nor_another_one_is_decoded(trained):
    study = opening.open_finished(tiny_settings(**QUICK), str(trained))
    for changes, said in (
        ({"train.steps": 3}, r"training stands at step 2 of 3; finish it"),
        ({"optim.lr": 0.5}, r"checkpoints: the checkpoint is of another run"),
    ):
        with pytest.raises(UserError, match=said):
            trained_params(dataclasses.replace(study, config=study.config.changed(changes)))
    with pytest.raises(UserError, match=r"another run \(arms eeg/0"):
        trained_params(dataclasses.replace(study, arms=(Arm("noise", 0),)))


def test_a_loss_on_dev_that_is_never_finite_publishes_nothing(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(DevLoss, "__call__", lambda self, params: jnp.full(1, jnp.nan, jnp.float32))
    root = tmp_path / "run"
    said = refused(["run", as_flag(**QUICK), f"--workdir={root}"], alone=False)
    assert "the loss of arm eeg/0 on dev is not finite after step 2" in said
    assert not (root / "predictions.jsonl").exists()
    assert not list((root / "checkpoints").glob("step_*"))


def test_initial_parameters_are_never_the_best(trained, monkeypatch):
    """Such a checkpoint was written by whoever logged such losses as null."""
    study = opening.open_finished(tiny_settings(**QUICK), str(trained))
    monkeypatch.setattr(loop, "to_host", lambda best: np.full(best.shape, np.inf))
    with pytest.raises(UserError, match=r"the loss of arm eeg/0 on dev was never finite"):
        trained_params(study)


def test_deleted_and_changed_curves_come_back_from_the_checkpoint(trained, tmp_path):
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 2]
    for content in (None, "", "{}\n"):
        root = shutil.copytree(trained, tmp_path / f"run{content}".strip())
        (root / "metrics.jsonl").unlink() if content is None else (root / "metrics.jsonl").write_text(content)
        assert cli.main(["train", as_flag(**QUICK), f"--workdir={root}"]) == 0
        assert (root / "metrics.jsonl").read_bytes() == (trained / "metrics.jsonl").read_bytes()
