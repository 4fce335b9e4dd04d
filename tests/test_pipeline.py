"""One run from end to end, and what must not change it."""

import dataclasses
import itertools
import json
import shutil
from collections import defaultdict

import jax
import numpy as np
import pytest
from tiny_run import study_in, tiny_settings
from transformers import AutoModelForSeq2SeqLM

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands import cli
from eeg2text_jax.commands.audit import stated_by
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.source import Sample
from eeg2text_jax.data.splits.certificate import certify_data
from eeg2text_jax.data.splits.split import read_split_file, write_split_file
from eeg2text_jax.instrument.predictions.file import read_predictions
from eeg2text_jax.instrument.predictions.read import read_any
from eeg2text_jax.instrument.workdir import is_of_its_run
from eeg2text_jax.models.pretrained.load import load_pretrained
from eeg2text_jax.runs import pipeline
from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.loop import make_initial_state, train_arms, trained_params
from eeg2text_jax.training.step import GridProgram
from eeg2text_jax.training.study import init_keys


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A workdir with a finished run."""
    root = tmp_path_factory.mktemp("runs") / "whole"
    pipeline.run(tiny_settings(), str(root))
    return root


def test_every_file_is_there_and_every_cell_is_scored(finished):
    results = json.loads((finished / "results.json").read_text())
    cells = {(c["train_condition"], c["eval_condition"], c["mode"]) for c in results["cells"]}
    conditions, modes = ("eeg", "noise"), ("free_running", "teacher_forced")
    assert cells == {(t, e, m) for t in conditions for e in conditions for m in modes}
    assert all(metric["signature"] for cell in results["cells"] for metric in cell["metrics"].values())
    for name in ("config.json", "results.md", "results.tex", "report.html", "audit.json", "loss.png", "metrics.jsonl"):
        assert (finished / name).stat().st_size > 0, name
    assert not [path.name for path in finished.iterdir() if "partial" in path.name]
    assert not (finished / "channels.json").exists()  # where electrodes are is not known
    assert "Which channels count" not in (finished / "report.html").read_text()


def test_predictions_have_one_row_for_each_test_sample_cell_and_mode(finished):
    found = read_predictions(finished / "predictions.jsonl")
    split = json.loads((finished / "split.json").read_text())
    assert found.header["split"] == split["digest"]
    test = sorted(split["parts"]["test"]["ids"])
    samples = defaultdict(list)
    for p in found.predictions:
        samples[p.train_condition, p.eval_condition, p.mode].append(p.sample_id)
    for cell in itertools.product(("eeg", "noise"), ("eeg", "noise"), ("free_running", "teacher_forced")):
        assert sorted(samples[cell]) == test
    assert all((p.nll is not None) == (p.mode == "teacher_forced") for p in found.predictions)


def test_rewriting_every_sentence_leaves_free_running_predictions_as_they_are(finished, tmp_path):
    root = copy_of(finished, tmp_path)
    data = read_datafile(root / "data.h5")
    with DataWriter(root / "data.h5", data.n_features, data.features_are) as writer:
        for i in range(len(data)):
            text = " ".join(reversed(str(data.sentence[i]).upper().split())) + " and something else entirely"
            where = (str(data.subject[i]), str(data.task[i]), int(data.sentence_index[i]))
            writer.add(Sample(data.words(i), text, *where))
        writer.provenance = data.provenance
    (root / "predictions.jsonl").unlink()
    other = read_datafile(root / "data.h5")
    found = read_split_file(root / "split.json").resolve(data)
    write_split_file(root / "split.json", certify_data(other, found, (0.8, 0.1, 0.1)))
    study = study_in(root, tiny_settings())
    pipeline.decode(study)
    before, after = (free_running(folder / "predictions.jsonl") for folder in (finished, root))
    assert [p.reference for p in before] != [p.reference for p in after]
    for field in ("sample_id", "prediction", "prediction_tokens"):
        assert [getattr(p, field) for p in before] == [getattr(p, field) for p in after]


def free_running(path):
    return [p for p in read_predictions(path).predictions if p.mode == "free_running"]


def test_arms_of_a_seed_begin_alike_and_differ_only_by_condition(tmp_path):
    grid = {"grid__train_conditions": ("noise", "zero"), "grid__seeds": (0, 1)}
    config = tiny_settings(**grid, train__steps=1)
    study = study_in(tmp_path / "run", config)
    program = make_program(study.config, study.model, study.arms)
    state = jax.jit(program.initial_state)(init_keys(study.arms, config.seed))
    for leaf in jax.tree.leaves(state.params):
        values = np.asarray(leaf)
        np.testing.assert_array_equal(values[0], values[1])
        np.testing.assert_array_equal(values[2], values[3])
    assert any((np.asarray(leaf)[0] != np.asarray(leaf)[2]).any() for leaf in jax.tree.leaves(state.params))


def test_one_trace_for_each_bucket(tmp_path, monkeypatch):
    """What is traced anew follows from what the steps are called with; so the loss is one that compiles quickly."""
    shapes = []

    def counted(self, params, rows, key):
        if key is not None:
            shapes.append((rows["features"].shape, rows["labels"].shape))
        weights = sum(leaf.sum() for leaf in jax.tree.leaves(params))
        return weights * rows["features"].mean(), (rows["labels"] != self.model.pad_token).sum().astype(np.float32)

    monkeypatch.setattr(GridProgram, "_loss", counted)
    config = tiny_settings(train__steps=14, model__encoder_layers=0, batch__buckets=((12, 36), (20, 56)))
    study = study_in(tmp_path / "run", config)
    train_arms(study)
    assert len(set(shapes)) == len(config.batch.buckets)
    assert len(shapes) == len(set(shapes)), "a bucket was traced twice"
    train_arms(study_in(tmp_path / "again", config))
    assert len(shapes) == len(set(shapes)), "a run of the same settings was traced again"


@pytest.fixture(scope="module")
def exported(finished):
    """The finished run's EEG arm as a checkpoint folder."""
    out = finished.parent / "exported"
    assert cli.main(["export", f"--workdir={finished}", f"--out={out}"]) == 0
    return out


def test_export_holds_the_best_parameters_for_us_and_for_pytorch(finished, exported):
    study = study_in(finished, tiny_settings())
    model, params = load_pretrained(exported)
    assert model == study.model
    jax.tree.map(lambda ours, best: np.testing.assert_array_equal(ours, best[0]), params, trained_params(study))
    reference = AutoModelForSeq2SeqLM.from_pretrained(exported)
    table = reference.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(table, params["backbone"]["shared"]["embedding"])
    card = (exported / "README.md").read_text()
    assert study.split.digest() in card
    assert "| eeg | free_running |" in card


def test_a_run_is_scored_and_decided_by_meaning_where_it_is_asked_for(finished, exported, tmp_path):
    """With the exported model's own encoder; what was trained and decoded before stays."""
    root = copy_of(finished, tmp_path)
    asked = {"metrics__names": ("bertscore", "similarity"), "metrics__encoder": str(exported)}
    pipeline.run(tiny_settings(**asked, audit__endpoint="similarity", audit__secondary=("bertscore-f",)), str(root))
    results, verdict = (json.loads((root / name).read_text()) for name in ("results.json", "audit.json"))
    scored = [cell for cell in results["cells"] if "unscored" not in cell]
    assert len(scored) >= 4
    for cell in scored:
        assert cell["metrics"].keys() >= {"word_bleu-1", "bertscore-f", "similarity"}
        assert cell["metrics"]["bertscore-f"]["signature"].startswith("model:exported[sha256:")
    assert (verdict["metric"], verdict["margin"]) == ("similarity", 1.0)
    assert {figure["label"] for figure in verdict["secondary"]} == {"BERTScore F"}
    assert {"BLEU-1", "WER"} <= {figure["label"] for figure in verdict["reported"]}
    assert "similarity" in (root / "report.html").read_text().lower()
    assert (root / "predictions.jsonl").read_bytes() == (finished / "predictions.jsonl").read_bytes()


def test_export_names_the_arms_there_are(finished, tmp_path, refused):
    said = refused(["export", f"--workdir={finished}", f"--out={tmp_path / 'x'}", "--arm=zero/0"])
    assert "--arm is 'zero/0'; this run has eeg/0, noise/0." in said


def test_training_starts_from_a_checkpoint(exported, tmp_path):
    study = study_in(tmp_path / "run", tiny_settings(model__checkpoint=str(exported)))
    program = make_program(study.config, study.model, study.arms)
    state = make_initial_state(study, program)
    _, params = load_pretrained(exported)
    for arm in range(2):
        jax.tree.map(lambda a, b, arm=arm: np.testing.assert_array_equal(a[arm], b), state.params, params)
    assert program.state_shapes() == jax.eval_shape(lambda: state)


def copy_of(finished, tmp_path, name="copy"):
    return shutil.copytree(finished, tmp_path / name)


def flip_a_token(path):
    path.write_text(path.read_text().replace('"n_tokens": 1', '"n_tokens": 2', 1))


def test_changed_predictions_are_refused_before_anything_is_written(finished, tmp_path):
    root = copy_of(finished, tmp_path)
    flip_a_token(root / "predictions.jsonl")
    before = {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}
    with pytest.raises(UserError, match=r"predictions\.jsonl: is not what this run wrote .* to have it made again"):
        pipeline.run(tiny_settings(), str(root))
    assert {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("command", [["score"], ["audit", "--eeg"]])
def test_changed_predictions_of_a_workdir_are_refused_wherever_they_are_read(finished, tmp_path, refused, command):
    path = copy_of(finished, tmp_path) / "predictions.jsonl"
    flip_a_token(path)
    assert "predictions.jsonl: is not what this run wrote" in refused([*command, str(path)])


def test_predictions_are_of_their_run_by_digests_of_their_workdir_alone(finished, tmp_path):
    """Not where they lie by themselves, where a digest differs, or where no checkpoint is of their split."""
    assert is_of_its_run(read_any(finished / "predictions.jsonl"))
    alone = shutil.copy(finished / "predictions.jsonl", tmp_path / "predictions.jsonl")
    assert not is_of_its_run(read_any(alone))
    both = [read_any(finished / "predictions.jsonl"), read_any(alone)]
    assert [stated_by(sets).split()[1] for sets in (both[:1], both, both[::-1])] == ["workdir,", "file", "file"]
    for number, change in enumerate((flip_a_token, add_to_the_split, forget_the_checkpoints)):
        root = copy_of(finished, tmp_path, str(number))
        change(root / "predictions.jsonl")
        assert not is_of_its_run(read_any(root / "predictions.jsonl"))


def test_the_audit_says_where_it_has_decoded_again(finished, tmp_path, capsys):
    path = finished / "predictions.jsonl"
    command = ["audit", f"--eeg={path}", f"--json={tmp_path / 'a.json'}"]
    for again, level, said in (
        ([], "stated", "the workdir, whose digests agree, states that the predictions ran free"),
        (["--again"], "decoded again", "by this command"),
        (["--again", "--mode=free_running"], "decoded again", "by this command"),
    ):
        assert cli.main([*command, *again]) != 2
        capsys.readouterr()
        origin = json.loads((tmp_path / "a.json").read_text())["provenance"]
        assert origin["level"] == level
        assert origin["statement"].startswith(said)
        assert again == [] or f"and all {len(read_any(path).predictions)} rows are the same" in origin["statement"]


def add_to_the_split(predictions):
    split = predictions.parent / "split.json"
    split.write_text(split.read_text() + " ")


def forget_the_checkpoints(predictions):
    shutil.rmtree(predictions.parent / "checkpoints")


def test_predictions_of_another_run_are_refused(finished, tmp_path):
    """Though nothing recorded says so and the split is the same."""
    root = copy_of(finished, tmp_path)
    (root / "finished.json").unlink()
    header, *rows = (root / "predictions.jsonl").read_text().splitlines(keepends=True)
    other = json.loads(header)
    other["header"]["config"] = "0123456789abcdef"
    (root / "predictions.jsonl").write_text(json.dumps(other) + "\n" + "".join(rows))
    with pytest.raises(UserError, match=r"predictions\.jsonl: is of another run \(configuration 0123456789abcdef"):
        pipeline.run(tiny_settings(), str(root))


def test_curves_of_a_finished_run_are_made_again_and_a_folder_is_refused(finished, tmp_path, capsys, refused):
    root = copy_of(finished, tmp_path)
    (root / "metrics.jsonl").unlink()
    (root / "loss.png").unlink()
    (root / "loss.png").mkdir()
    with pytest.raises(UserError, match=r"loss\.png: is a folder, where a file is to be written; rename it"):
        pipeline.run(tiny_settings(), str(root))
    (root / "loss.png").rmdir()
    pipeline.run(tiny_settings(), str(root))
    assert (root / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()
    assert (root / "loss.png").stat().st_size > 0
    (root / "metrics.jsonl").unlink()
    shutil.rmtree(root / "checkpoints")
    pipeline.run(tiny_settings(), str(root))
    assert "metrics.jsonl: there is no such file, so the report has no curves" in capsys.readouterr().out


def test_the_controls_that_decide_are_a_field_of_the_configuration(finished, tmp_path, capsys):
    """Nothing is decoded again, and a control that is not named asks a question of its own."""
    rows = read_predictions(finished / "predictions.jsonl").predictions
    rows += [dataclasses.replace(row, eval_condition="shuffled") for row in rows if row.eval_condition == "noise"]
    for controls, asked in ((("noise", "shuffled"), []), (("shuffled",), ["noise"])):
        found = pipeline.audit_rows(tiny_settings(grid__controls=controls), rows)
        assert [c.control for c in found.comparisons if c.question] == asked
    root = copy_of(finished, tmp_path)
    pipeline.run(tiny_settings(grid__controls=("shuffled",)), str(root))
    assert (root / "predictions.jsonl").read_bytes() == (finished / "predictions.jsonl").read_bytes()


def test_the_audit_of_a_finished_run_may_change_and_decoding_may_not(finished, tmp_path):
    root = copy_of(finished, tmp_path)
    pipeline.run(tiny_settings(audit__margin=30.0), str(root))
    assert json.loads((root / "audit.json").read_text()) != json.loads((finished / "audit.json").read_text())
    for name in ("predictions.jsonl", "results.json"):
        assert (root / name).read_bytes() == (finished / name).read_bytes()
    with pytest.raises(UserError, match=r"predictions\.jsonl was made with decode\.num_beams \(now 3, there 2\)"):
        pipeline.run(tiny_settings(decode__num_beams=3), str(root))


def test_a_fold_is_audited_and_its_verdict_is_not_printed(finished, tmp_path, capsys):
    root = copy_of(finished, tmp_path)
    for fold, shown in ((True, 0), (False, 1)):
        (root / "audit.json").unlink()
        pipeline.run(tiny_settings(), str(root), fold=fold)
        printed = capsys.readouterr().out
        assert printed.count("VERDICT:") == printed.count("All figures: report.html in the workdir") == shown
        assert "-v" not in printed.split(), "an option of audit, which run does not have"
        assert (root / "audit.json").read_bytes() == (finished / "audit.json").read_bytes()


@pytest.mark.slow
def test_a_finished_run_is_trained_again_where_its_checkpoint_is_damaged_and_ends_the_same(finished, tmp_path, capsys):
    root = copy_of(finished, tmp_path)
    (root / "checkpoints/step_6/digests.json").write_text("")
    study = study_in(root, tiny_settings())
    train_arms(study)
    assert "step_6/digests.json is damaged: the checkpoint is set aside" in capsys.readouterr().out
    (root / "predictions.jsonl").unlink()
    pipeline.run(tiny_settings(), str(root))
    for name in ("predictions.jsonl", "results.json", "audit.json"):
        assert (root / name).read_bytes() == (finished / name).read_bytes()
