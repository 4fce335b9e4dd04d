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

from eeg2text_jax import cli, pipeline
from eeg2text_jax.decoding.retrieve import padded_labels
from eeg2text_jax.decoding.teacher_forced import teacher_forced
from eeg2text_jax.errors import UserError
from eeg2text_jax.finished_run import exported
from eeg2text_jax.metrics.ranks import score_rankings
from eeg2text_jax.predictions.file import FIELDS, Prediction, write_predictions
from eeg2text_jax.predictions.rankings import read_rankings, write_rankings
from eeg2text_jax.preflight.programs import make_outline
from eeg2text_jax.rank_run import NO_AUDIT, candidates_of, judge_ranked_folds, rank, read_ranked
from eeg2text_jax.study.workdir import Workdir
from eeg2text_jax.training.checkpoint import Checkpoints
from eeg2text_jax.training.resume import trained_params
from eeg2text_jax.training.waves import train_arms

CHANGES = {
    "model__encoder_layers": 0,
    "data__synthetic__sentences": 90,
    "split__ratio": (0.5, 0.1, 0.4),
    "contrastive__hashed": 32,
    "contrastive__width": 16,
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
        patch.setattr("eeg2text_jax.rank_run.write_rankings", lambda *_: (_ for _ in ()).throw(Killed))
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
    begins = "Which of 36 sentences was read (36 independent sentences, 72 rows): top-5 was "
    assert audit["sentence"].startswith(begins)


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
    status = cli.main(["audit", f"--eeg={path}", "--resamples=200", f"--json={tmp_path / 'audit.json'}"])
    ours, run = (json.loads((folder / "audit.json").read_text()) for folder in (tmp_path, whole))
    assert status == ours["exit_status"]
    said, noted = ours.pop("judged"), run.pop("judged")
    assert said["files"][0].pop("name") == str(path)
    assert noted["files"][0].pop("name") == "rankings.jsonl"
    assert said["files"] == noted["files"]
    assert said["command"].startswith("eeg2text audit --eeg=")
    assert not noted["command"] + noted["date"]  # equal runs give equal files
    levels = [found.pop("provenance")["level"] for found in (ours, run)]
    assert levels == ["stated", "verified"], "digests tie a file to the workdir in which it lies"
    assert {**ours, "flags": 0} == {**run, "flags": 0}, "the run looks at its training text, too"
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


def test_likelihoods_rank_what_teacher_forcing_scores(tmp_path):
    """Evidence is the NLL that `teacher_forced` gives, less nothing but a constant of each candidate."""
    config = tiny_settings(
        retrieval__likelihood=True, model__encoder_layers=0, split__ratio=(0.4, 0.1, 0.5), train__steps=2,
        train__eval_every=2, grid__train_conditions=("eeg",), optim__name="sgd",
    )  # fmt: skip
    study = study_in(tmp_path / "run", config)
    train_arms(study)
    rank(study)
    rows = [row for row in read_ranked(study) if row.eval_condition == "eeg"]
    params = jax.tree.map(lambda leaf: leaf[0], trained_params(study))
    labels = padded_labels(study, candidates_of(study).references)
    names = {study.split.names[i]: i for i in study.split.parts["test"]}
    prior = None
    for row in rows[:3]:
        features = study.samples.features(names[row.sample_id])[None]
        inputs = {"features": jnp.asarray(features), "mask": jnp.ones(features.shape[:2], bool)}
        repeated = {name: jnp.repeat(leaf, len(labels), axis=0) for name, leaf in inputs.items()}
        nll = np.asarray(teacher_forced(study.model, params, repeated, jnp.asarray(labels)).nll, np.float64)
        prior = row.scores + nll if prior is None else prior
        np.testing.assert_allclose(row.scores + nll, prior, rtol=1e-5, atol=1e-3)


def test_likelihoods_stand_beside_what_was_written(whole, tmp_path):
    """Tables and audits of both, of rankings that stand for likelihoods and predictions that repeat the first."""
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
    """A field of no stage: what is decoded stays, the rankings are added."""
    assert pipeline.decoded_files(tiny_settings()) == ["predictions.jsonl"]
    assert pipeline.decoded_files(tiny_settings(retrieval__likelihood=True)) == ["rankings.jsonl", "predictions.jsonl"]
    assert pipeline.decoded_files(contrastive()) == ["rankings.jsonl"]


def test_folds_have_candidates_of_their_own_and_one_verdict(whole, tmp_path):
    found = read_rankings(whole / "rankings.jsonl").rows
    texts = list(dict.fromkeys(row.reference for row in found))
    folds = [[row for row in found if texts.index(row.reference) % 2 == k] for k in (0, 1)]
    verdict = judge_ranked_folds(contrastive(), tmp_path, folds, {"splits": ["a", "b"]})
    again = read_rankings(tmp_path / "rankings.jsonl")
    assert set(again.header["candidates"]) == {"fold 1", "fold 2"}
    assert {(row.task[-6:], row.candidates.name) for row in again.rows} == {("fold 1",) * 2, ("fold 2",) * 2}
    assert verdict.n_sentences == len(texts)
    assert json.loads((tmp_path / "audit.json").read_text())["verdict"] == verdict.verdict.value
