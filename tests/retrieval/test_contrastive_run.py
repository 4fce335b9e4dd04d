"""A contrastive run from end to end, killed and begun again; and a generative one that ranks by likelihood."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from tiny_run import study_in, tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands import audit as audit_command
from eeg2text_jax.commands import cli
from eeg2text_jax.commands.preflight.programs import make_outline
from eeg2text_jax.decoding.teacher_forced import teacher_forced
from eeg2text_jax.instrument.metrics.score import score_rankings
from eeg2text_jax.instrument.predictions.file import FIELDS, Prediction, sentence_key, write_predictions
from eeg2text_jax.instrument.predictions.rankings import read_rankings, write_rankings
from eeg2text_jax.instrument.workdir import Workdir
from eeg2text_jax.runs import cells, pipeline
from eeg2text_jax.runs.cells import padded_labels, retrieve_grid
from eeg2text_jax.runs.exported import exported
from eeg2text_jax.runs.pipeline import NO_AUDIT, candidates_of, header_of, judge_ranked_folds, rank, read_ranked
from eeg2text_jax.training.checkpoint import Checkpoints
from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.loop import train_arms, trained_params
from eeg2text_jax.training.study import _contrastive

CHANGES = {
    "model__encoder_layers": 0,
    "data__synthetic__sentences": 90,
    "split__ratio": (0.5, 0.1, 0.4),
    "contrastive__hashed": 32,
    "contrastive__width": 16,
    "optim__name": "sgd",
    "optim__lr": 5e-3,
    "train__steps": 6,
    "grid__train_conditions": ("eeg", "length_only"),
    "grid__eval_conditions": ("eeg", "noise", "length_only"),
}


def contrastive(**more):
    return tiny_settings(objective="contrastive", **{**CHANGES, **more})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("contrastive") / "whole"
    pipeline.run(contrastive(), str(root))
    return root


def test_a_run_without_an_eeg_arm_names_no_audit(tmp_path, capsys):
    pipeline.run(contrastive(grid__train_conditions=("noise",), train__steps=2), str(tmp_path / "run"))
    said = capsys.readouterr().out
    assert not (tmp_path / "run/audit.json").exists()
    assert NO_AUDIT in said
    assert "everything is in" not in said


class Killed(BaseException):
    """Ends a run where a kill would."""


@pytest.mark.slow
def test_killed_twice_it_ends_with_the_same_bytes(whole, tmp_path, monkeypatch):
    root, save = tmp_path / "killed", Checkpoints.save

    def save_and_die(self, step, *rest):
        save(self, step, *rest)
        self.wait()
        if step == 4:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save_and_die)
        with pytest.raises(Killed):
            pipeline.run(contrastive(), str(root))
    assert (root / "checkpoints/step_4").is_dir()
    with monkeypatch.context() as patch:
        patch.setattr("eeg2text_jax.runs.pipeline.write_rankings", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            pipeline.run(contrastive(), str(root))
    assert not (root / "rankings.jsonl").exists()
    pipeline.run(contrastive(), str(root))
    for name in ("rankings.jsonl", "results.json", "audit.json", "results.md"):
        assert (root / name).read_bytes() == (whole / name).read_bytes(), name


def test_every_file_is_there_and_every_cell_is_scored(whole):
    assert not (whole / "predictions.jsonl").exists()
    results, audit = (json.loads((whole / name).read_text()) for name in ("results.json", "audit.json"))
    cells = {(c["train_condition"], c["eval_condition"], c["mode"]) for c in results["cells"]}
    tested = ("eeg", "noise", "length_only")
    assert cells == {(t, e, "contrastive") for t in ("eeg", "length_only") for e in tested}
    names = [condition["name"] for condition in audit["conditions"]]
    assert names == ["eeg", "noise", "length_only", "the arm trained on length_only"]
    assert [comparison["control"] for comparison in audit["comparisons"]] == names[1:]
    page = (whole / "report.html").read_text()
    assert "Does the recording tell which sentence was read?" in page
    assert (audit["metric"], audit["n_sentences"], audit["n_rows"], audit["candidates"]) == ("top-5", 36, 72, [36, 36])
    assert f"{min(c['contrast']['effect'] for c in audit['comparisons']):+.2f} points (90 % CI" in audit["sentence"]


def test_embeddings_of_a_length_are_one_where_nothing_else_is_known(whole):
    """The arm that is fed a constant ranks all recordings of one length alike, and those of different lengths not."""
    found = read_rankings(whole / "rankings.jsonl").rows
    rows = [r for r in found if (r.train_condition, r.eval_condition) == ("length_only", "length_only")]
    by_length = {}
    for row in rows:
        by_length.setdefault(row.n_words, []).append(row.scores)
    for scores in by_length.values():
        np.testing.assert_allclose(scores, np.broadcast_to(scores[0], np.shape(scores)), atol=1e-5)
    firsts = [scores[0] for scores in by_length.values()]
    assert len(firsts) > 3
    assert np.abs(np.diff(firsts, axis=0)).max(1).min() > 1e-3


def test_score_and_audit_read_the_file(whole, tmp_path, refused):
    path = shutil.copy(whole / "rankings.jsonl", tmp_path / "rankings.jsonl")
    assert cli.main(["score", str(path), f"--json={tmp_path / 'scores.json'}"]) == 0
    cells = json.loads((tmp_path / "scores.json").read_text())["cells"]
    assert metrics_by_cell(cells) == metrics_by_cell(score_rankings(read_rankings(path).rows))
    status = cli.main(["audit", f"--eeg={path}", f"--json={tmp_path / 'audit.json'}"])
    ours, run = (json.loads((folder / "audit.json").read_text()) for folder in (tmp_path, whole))
    assert status == ours["exit_status"]
    said, noted = ours.pop("judged"), run.pop("judged")
    assert said["files"][0].pop("name") == path.name, "no folder of the machine"
    assert noted["files"][0].pop("name") == "rankings.jsonl"
    assert said["files"] == noted["files"]
    assert said["command"].startswith("eeg2text audit --eeg=")
    assert not noted["command"] + noted["date"]  # equal runs give equal files
    levels = [found.pop("provenance")["level"] for found in (ours, run)]
    assert levels == ["stated", "decoded here"], "digests tie a file to the workdir in which it lies"
    seen = {"notices": 0, "limits": 0}  # the run looks at its training text and times, too
    assert {**ours, **seen} == {**run, **seen}
    assert {n["code"] for n in run["notices"]} - {n["code"] for n in ours["notices"]} <= {"training_text", "time"}
    said = refused(["audit", f"--eeg={path}", "--endpoint=wer"], alone=False)
    assert "--endpoint=wer: for rankings, expected one of top-1, top-5, rank" in said


def metrics_by_cell(cells):
    return {(cell["train_condition"], cell["eval_condition"]): cell["metrics"] for cell in cells}


def test_what_a_contrastive_run_cannot_do_is_one_sentence(whole):
    config = contrastive()
    study = study_in(whole, config)
    with pytest.raises(UserError, match=r"is a run of objective=contrastive, whose model writes no text"):
        exported(study, {})
    with pytest.raises(UserError, match="preflight compiles training and decoding of objective=generate"):
        make_outline(config)
    other = contrastive(contrastive__hashed=64)
    with pytest.raises(UserError, match=r"targets.npz was made with contrastive.hashed \(now 64, there 32\)"):
        pipeline.run(other, str(whole))


def test_arms_of_a_seed_differ_only_by_condition(whole):
    """Fed the same, two arms of one seed are trained to the same parameters, bit for bit."""
    changes = {"grid__train_conditions": ("zero", "length_only"), "train__steps": 2}
    study = study_in(whole.parent / "paired", contrastive(**changes))
    train_arms(study)
    for leaf in jax.tree.leaves(trained_params(study)):
        np.testing.assert_array_equal(np.asarray(leaf)[0], np.asarray(leaf)[1])


def one_recording(study, i):
    """The inputs of a model for a sample alone, padded to the width of the only bucket."""
    words = study.samples.features(i)
    features = np.zeros((1, 20, words.shape[1]), np.float32)
    features[0, : len(words)] = words
    return {"features": jnp.asarray(features), "mask": jnp.arange(20)[None] < len(words)}


def test_scores_are_cosines_of_embeddings_and_the_best_candidate_is_the_prediction(whole):
    study = study_in(whole, contrastive())
    rows = [row for row in read_ranked(study) if (row.train_condition, row.eval_condition) == ("length_only", "eeg")]
    params = jax.tree.map(lambda leaf: leaf[1], trained_params(study))
    embed = jax.jit(study.model.embed)
    names = {study.split.names[i]: int(i) for i in study.split.parts["test"]}
    for row in rows[:4]:
        texts = [study.targets.sentences.index(sentence_key(text)) for text in row.candidates.references]
        of_text = study.targets.vectors[texts].astype(np.float64)
        of_brain = np.asarray(embed(params, one_recording(study, names[row.sample_id]))[0], np.float64)
        cosines = of_text @ of_brain / (np.linalg.norm(of_text, axis=1) * np.linalg.norm(of_brain))
        np.testing.assert_allclose(row.scores, cosines, atol=1e-5)
        assert row.prediction == row.candidates.references[int(np.argmax(cosines))]


def test_a_text_copied_from_the_nearest_in_time_is_ranked_first(whole):
    study = study_in(whole, contrastive())
    rows, near = study.split.parts["test"], np.full(len(study.data), -1)
    near[rows] = np.roll(rows, 1)
    config = study.config.changed({"grid.eval_conditions": ("nearest_in_time",)})
    study = dataclasses.replace(
        study, config=config, samples=dataclasses.replace(study.samples, copies={"nearest_in_time": near})
    )
    found = list(retrieve_grid(study, trained_params(study), study.placement.mesh, candidates_of(study)))
    assert [row.sample_id for row in found] == [study.split.names[i] for i in rows] * 2
    assert [row.prediction for row in found] == [study.data.sentence[i] for i in np.roll(rows, 1)] * 2
    np.testing.assert_allclose([row.scores.max() for row in found], 1.0, atol=1e-5)


@pytest.mark.parametrize("symmetric", [True, False])
def test_which_loss_a_run_has_is_in_its_configuration(whole, symmetric):
    study = study_in(whole, contrastive())
    config = study.config.changed({"contrastive.symmetric": symmetric})
    assert make_program(config, study.model, study.arms).symmetric == symmetric
    own = {"contrastive.width": 24, "contrastive.temperature": 0.3, "contrastive.learn_temperature": symmetric}
    model = _contrastive(dataclasses.replace(study, config=config.changed(own), model=study.model.base)).model
    assert (model.width, model.outputs) == (24, 32)
    assert (model.temperature, model.learn_temperature) == (0.3, symmetric)


def test_likelihoods_rank_what_teacher_forcing_scores(tmp_path, monkeypatch):
    """Evidence is the NLL that `teacher_forced` gives, from its mean over some recordings of dev, fed the same way."""
    monkeypatch.setattr(cells, "PRIOR_ROWS", 4)  # as if dev were large: evenly spaced ones
    config = tiny_settings(
        retrieval__likelihood=True, model__encoder_layers=0, split__ratio=(0.4, 0.1, 0.5), train__steps=2,
        train__eval_every=2, grid__train_conditions=("eeg",), grid__eval_conditions=("eeg", "zero"), optim__name="sgd",
        shape={"init_std": 0.5},
    )  # fmt: skip
    study = study_in(tmp_path / "run", config)
    train_arms(study)
    rank(study)
    params = jax.tree.map(lambda leaf: leaf[0], trained_params(study))
    labels = padded_labels(study, candidates_of(study).references)
    names = {study.split.names[i]: i for i in study.split.parts["test"]}

    def nll(i, condition):
        """Of every candidate, given one recording, or zeros at as many words."""
        repeated = {name: jnp.repeat(leaf, len(labels), axis=0) for name, leaf in one_recording(study, i).items()}
        repeated["features"] *= float(condition == "eeg")
        return np.asarray(teacher_forced(study.model, params, repeated, jnp.asarray(labels)).nll, np.float64)

    for condition in ("eeg", "zero"):
        dev = study.split.parts["dev"]
        assert len(dev) == 12
        usual = np.mean([nll(int(i), condition) for i in dev[[0, 4, 7, 11]]], axis=0)
        rows = [row for row in read_ranked(study) if row.eval_condition == condition]
        for row in rows[:3]:
            expected = usual - nll(names[row.sample_id], condition)
            assert np.ptp(expected) > 1, "so large that the tolerance is small"
            np.testing.assert_allclose(row.scores, expected, rtol=1e-5, atol=1e-3)


def test_likelihoods_stand_beside_what_was_written(whole, tmp_path):
    study = study_in(whole, config := contrastive())
    rows = [dataclasses.replace(row, mode="likelihood") for row in read_ranked(study)]
    config = config.changed({"objective": "generate", "retrieval.likelihood": True})
    study = dataclasses.replace(study, config=config, workdir=Workdir(epath.Path(tmp_path)))
    header = {"split": study.split.digest(), "data": study.data.digest(), "config": study.config_digest}
    write_rankings(study.workdir.rankings, header, rows)
    plain = [{name: getattr(row, name) for name in FIELDS} for row in rows]
    written = [Prediction(**{**fields, "mode": "free_running"}) for fields in plain]
    write_predictions(study.workdir.predictions, header, written)
    results = pipeline.score(study)
    assert {cell["mode"] for cell in results["cells"]} == {"free_running", "likelihood"}
    pipeline.judge(study, results)
    for name in ("audit.json", "audit_likelihood.json", "report.html", "report_likelihood.html"):
        assert (tmp_path / name).stat().st_size > 0


def test_ranking_may_be_asked_for_of_a_finished_run():
    assert pipeline.decoded_files(tiny_settings()) == ["predictions.jsonl"]
    assert pipeline.decoded_files(tiny_settings(retrieval__likelihood=True)) == ["rankings.jsonl", "predictions.jsonl"]
    assert pipeline.decoded_files(contrastive()) == ["rankings.jsonl"]


def test_every_audit_of_rankings_knows_the_kind_of_recording(whole, tmp_path, monkeypatch):
    """Windows of scans overlap, and only an audit that knows that they are scans leaves some out."""
    study = study_in(whole, contrastive())
    scans = dataclasses.replace(study, data=dataclasses.replace(study.data, recording="fmri"))
    assert "recording" not in header_of(study)
    assert header_of(scans)["recording"] == "fmri"
    heard = []
    monkeypatch.setattr(pipeline, "audit_ranked", lambda config, rows, **facts: heard.append(facts))
    pipeline.judge(scans, {}, show=False)
    pipeline.verdict_of(scans)
    rows = read_rankings(whole / "rankings.jsonl").rows
    judge_ranked_folds(contrastive(), tmp_path, [rows], {}, {"recording": "fmri", "training_text": ["leaked"]})
    assert [facts["recording"] for facts in heard] == ["fmri", "fmri", "fmri"]
    trained_on = [str(text) for text in study.data.sentence[study.split.parts["train"]]]
    assert [facts["training_text"] for facts in heard] == [trained_on, trained_on, ["leaked"]]
    for header, recording in (({"recording": "fmri"}, "fmri"), ({}, "eeg")):
        write_rankings(epath.Path(tmp_path / f"{recording}.jsonl"), header, rows)
        monkeypatch.setattr(audit_command, "audit", lambda *rows, **facts: heard.append(facts) or {}["asked"])
        with pytest.raises(KeyError, match="asked"):
            cli.main(["audit", "--eeg", str(tmp_path / f"{recording}.jsonl")])
        assert heard[-1]["recording"] == recording


def test_folds_have_candidates_of_their_own_and_one_verdict(whole, tmp_path):
    found = read_rankings(whole / "rankings.jsonl").rows
    texts = list(dict.fromkeys(row.reference for row in found))
    folds = [[row for row in found if texts.index(row.reference) % 2 == k] for k in (0, 1)]
    verdict = judge_ranked_folds(contrastive(), tmp_path, folds, {"splits": ["a", "b"]}, {})
    again = read_rankings(tmp_path / "rankings.jsonl")
    assert set(again.header["candidates"]) == {"fold 1", "fold 2"}
    assert {(row.task[-6:], row.candidates.name) for row in again.rows} == {("fold 1",) * 2, ("fold 2",) * 2}
    assert verdict.n_sentences == len(texts)
    assert json.loads((tmp_path / "audit.json").read_text())["verdict"] == verdict.verdict.value
