"""Folds: every text is tested once, by a model that has not seen it."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from reading_grids import are_apart, grid

from eeg2text_jax import data
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.splits.methods import fold_parts, make_folds
from eeg2text_jax.data.splits.split import read_split_file
from eeg2text_jax.instrument.predictions.file import Prediction, read_predictions
from eeg2text_jax.runs import pipeline as running
from eeg2text_jax.runs.pipeline import judge_folds, leaked_text, run_folds
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.sections import read_settings

RATIO = (0.8, 0.1, 0.1)


def data_of(n_subjects, n_sentences=12):
    return grid(subjects=[f"S{i}" for i in range(n_subjects)], sentences={"SR": n_sentences})


@pytest.mark.parametrize(("method", "folds"), [("unique_text", 5), ("f", 4), ("f", "subjects"), ("a", "subjects")])
def test_texts_are_tested_once_and_nothing_leaks_that_should_not(method, folds):
    data = data_of(6)
    tested = []
    found = make_folds(data, method, folds, RATIO, 3)
    assert len(found) == (6 if folds == "subjects" else folds)
    for split in found:
        tested += split.parts["test"].tolist()
        assert method == "a" or are_apart(data.sentence, split)
        assert method == "unique_text" or are_apart(data.subject, split)
    assert len(tested) == len(set(tested))
    assert set(data.sentence[tested]) == set(data.sentence)
    if method != "f":
        assert len(tested) == len(data)
    again, other = (make_folds(data, method, folds, RATIO, seed) for seed in (3, 4))
    assert [split.digest() for split in again] == [split.digest() for split in found]
    assert [split.parts["test"].tolist() for split in other] != [split.parts["test"].tolist() for split in found]


def test_dev_has_its_share_of_what_is_not_tested():
    part = fold_parts(np.array_split(np.arange(12), 3), 1, 0.25, np.random.default_rng(0))
    assert np.flatnonzero(part == 2).tolist() == [4, 5, 6, 7]
    assert [int(np.sum(part == k)) for k in (0, 1)] == [6, 2]
    others = [np.flatnonzero(fold_parts(np.array_split(np.arange(12), 3), 1, 0.25, np.random.default_rng(seed)) == 1)
              for seed in range(4)]  # fmt: skip
    assert len({tuple(dev) for dev in others}) > 2, "at random"
    for split in make_folds(data_of(3), "unique_text", 3, (0.6, 0.3, 0.1), 0):
        assert [len(split.parts[name]) // 3 for name in ("train", "dev", "test")] == [5, 3, 4]


def test_what_cannot_be_divided_is_said():
    for n, method, folds, message in (
        (2, "f", 2, "need at least one subject or text each"),
        (4, "f", 5, "--folds is 5; expected from 2 to 4, because there are 4 subjects"),
        (4, "unique_text", 1, "--folds is 1; expected from 2 to 12, because there are 12 texts"),
        (4, "unique_sent", 3, "expected unique_text, f, a, sessions or blocks"),
        (4, "unique_text", "subjects", "which divides texts"),
    ):
        with pytest.raises(UserError, match=message):
            make_folds(data_of(n), method, folds, RATIO, 0)


def rows_of(data, split, informed, rng):
    """Predictions of a made-up model: the reference's words in part where it is told, else those of other sentences."""
    rows = []
    for i in split.parts["test"]:
        for condition in ("eeg", "noise"):
            words = data.sentence[i].split()
            if not (informed and condition == "eeg"):
                words = data.sentence[int(rng.choice(split.parts["train"]))].split()
            rows.append(Prediction(f"{data.subject[i]}/{data.sentence_id[i]}", str(data.subject[i]), "SR",
                                   str(data.sentence_id[i]), 1, "eeg", condition, 0, "free_running",
                                   str(data.sentence[i]), " ".join(words), (1,), (2,)))  # fmt: skip
    return rows


@pytest.mark.parametrize("informed", [True, False])
def test_one_verdict_over_all_folds(informed, tmp_path):
    rng = np.random.default_rng(0)
    vocabulary = [f"w{i}" for i in range(60)]
    data = data_of(3, 60)
    texts = np.array([" ".join(rng.choice(vocabulary, 6)) for _ in range(60)], object)
    data = dataclasses.replace(data, sentence=texts[data.sentence_index])
    config = read_settings(load_config("own"))
    splits = make_folds(data, "unique_text", 3, RATIO, 0)
    rows = [rows_of(data, split, informed, rng) for split in splits]
    verdict = judge_folds(config, tmp_path, rows, {"splits": [split.digest() for split in splits]}, {})
    assert verdict.n_sentences == 60
    assert (verdict.verdict.value == "uses EEG") == informed
    written = read_predictions(tmp_path / "predictions.jsonl").predictions
    assert {row.task for row in written} == {"SR"}
    assert {row.reference_tokens for row in written} == {None}
    assert (tmp_path / "report.html").exists()


def test_what_a_fold_says_of_all_its_sentences_is_no_content(tmp_path):
    """Each fold's model says the word that all sentences of its test part have: exchanges stay within a fold."""
    rows = [[], [], []]
    for n in range(60):
        fold = n % 3
        for condition, said in (("eeg", f"topic{fold} is"), ("noise", "a b")):
            rows[fold].append(Prediction(f"S/t:{n}", "S", "t", f"t:{n}", 3, "eeg", condition, 0, "free_running",
                                         f"topic{fold} is w{n}", said))  # fmt: skip
    verdict = judge_folds(read_settings(load_config("own")), tmp_path, rows, {"splits": ["a", "b", "c"]}, {})
    assert verdict.verdict.value != "uses EEG"
    assert verdict.comparisons[0].contrast.effect == pytest.approx(0, abs=1e-9)


def test_windows_are_thinned_over_all_folds_and_leaks_of_a_fold_are_named(tmp_path):
    """Windows 0, 1, ... of ten segments, every other one in each fold."""
    config = read_settings(load_config("own"))
    rows = []
    for fold in range(2):
        rows.append([])
        for first in range(fold, 60, 2):
            for condition in ("eeg", "noise"):
                rows[fold].append(Prediction(f"S/t:{first}", "S", "t", f"t:{first}", 10, "eeg", condition, 0,
                                             "free_running", f"w{first} w{first + 1}", "a", (1,), (2,)))  # fmt: skip
    header = {"splits": ["a", "b"], "recording": "fmri"}
    facts = {"recording": "fmri", "training_text": ["w0 w1"], "warnings": ["fold 2: the nearest sample tells it"]}
    verdict = judge_folds(config, tmp_path, rows, header, facts)
    assert verdict.n_sentences == 6
    assert any("6 of 60 rows share no segment" in note for note in verdict.notes)
    assert any("1 of the 6 test sentences are in the training text" in notice.message for notice in verdict.notices)
    assert "fold 2: the nearest sample tells it" in [notice.message for notice in verdict.notices]
    assert read_predictions(tmp_path / "predictions.jsonl").header["recording"] == "fmri"


def test_leaked_text_is_of_the_same_fold_alone():
    data = data_of(3, 12)
    splits = make_folds(data, "unique_text", 3, RATIO, 0)
    assert leaked_text(data, splits) == []
    parts = {**splits[0].parts, "train": np.concatenate([splits[0].parts["train"], splits[0].parts["test"][:1]])}
    leaking = dataclasses.replace(splits[0], parts=parts)
    assert leaked_text(data, [leaking, *splits[1:]]) == [str(data.sentence[splits[0].parts["test"][0]])]


def test_the_section_on_data_counts_subjects_and_texts_and_states_what_was_dropped():
    found = grid(subjects=["A", "B", "C"], sentences={"SR": 12, "NR": 5})
    found = dataclasses.replace(found, provenance={"dropped": {"short": 3, "no text": 2}, "notes": ["a note"]})
    section = running.data_section(found)
    texts = len({*found.sentence})
    assert len(found) != texts != 3
    first, features, note = section.markdown.split("\n\n")[:3]
    assert first == f"{len(found)} samples of 3 subjects and {texts} different texts; dropped: short 3, no text 2."
    assert features == f"Features: {found.features_are}."
    assert note == "a note"


@pytest.mark.parametrize("stored", [True, False])
def test_an_audit_is_told_training_text_kind_of_recording_and_neighbors_in_time(stored, tmp_path, monkeypatch):
    found = dataclasses.replace(data_of(3), recording="fmri")
    (split, *_) = make_folds(found, "unique_text", 3, RATIO, 0)
    if stored:
        (tmp_path / "split.json").write_text("{}")
    monkeypatch.setattr(running, "read_split_file", lambda path: SimpleNamespace(record={"time": path.name}))
    monkeypatch.setattr(running, "high_neighbors", lambda time: (time,))
    study = SimpleNamespace(data=found, split=split, workdir=SimpleNamespace(split=tmp_path / "split.json"))
    facts = running.facts_of(study)
    assert facts["training_text"] == found.sentence[split.parts["train"]].tolist()
    assert (facts["recording"], facts["warnings"]) == ("fmri", ("split.json" if stored else None,))


def test_folds_run_one_after_the_other_and_go_on(tmp_path, monkeypatch):
    data = dataclasses.replace(data_of(4), recording="fmri")
    config = read_settings(load_config("own"))
    monkeypatch.setattr(running, "open_data", lambda config, workdir: data)
    monkeypatch.setattr(running, "leaked_text", lambda found, splits: ["leaked"] * len(splits))
    begun, rng = [], np.random.default_rng(0)
    splits = make_folds(data, "unique_text", 3, config.split.ratio, 0)

    def run(config, root, fold):
        assert fold
        begun.append(root)
        if len(begun) == 2:
            raise UserError("stopped")

    def predictions(path):
        fold = int(path.parent.name.rpartition("_")[2])
        return type("Read", (), {"predictions": rows_of(data, splits[fold - 1], False, rng)})

    monkeypatch.setattr(running, "run", run)
    monkeypatch.setattr(running, "read_predictions", predictions)
    near = iter([[], ["a neighbor in time"], []])
    monkeypatch.setattr(running, "high_neighbors", lambda time: next(near))
    monkeypatch.setattr(running, "judge_folds", lambda _, place, rows, header, facts: (len(rows), header, facts))
    with pytest.raises(UserError, match="stopped"):
        run_folds(config, str(tmp_path / "all"), "3")
    header = {"splits": [split.digest() for split in splits], "recording": "fmri"}
    facts = {"training_text": ["leaked"] * 3, "recording": "fmri", "warnings": ["fold 2: a neighbor in time"]}
    assert run_folds(config, str(tmp_path / "all"), "3") == (3, header, facts)
    assert [root.rpartition("/")[2] for root in begun[2:]] == ["fold_1", "fold_2", "fold_3"]
    with pytest.raises(UserError, match=r"has folds of another configuration: folds \(now '4', there '3'\)"):
        run_folds(config, str(tmp_path / "all"), "4")
    with pytest.raises(UserError, match="--folds is 'many'"):
        run_folds(config, str(tmp_path / "other"), "many")


def test_the_command_writes_a_certificate_for_each_fold(tmp_path, printed_by, refused):
    data.write(tmp_path / "data.h5", [
        {"features": [1.0, i], "sentence": f"text {i}", "subject": s, "recording": s, "order": i}
        for s in "ABC" for i in range(9)])  # fmt: skip
    command = ["split", str(tmp_path / "data.h5"), "--method=f", "--folds=subjects", f"--json={tmp_path / 'fold.json'}"]
    assert "f, fold 3 of 3" in printed_by(command)
    found = read_datafile(tmp_path / "data.h5")
    tested = [read_split_file(tmp_path / f"fold_{k}.json").resolve(found).parts["test"] for k in (1, 2, 3)]
    assert len(set(found.sentence[np.concatenate(tested)])) == 9
    groups = tmp_path / "fold_2.json"  # the derived name of the second fold
    groups.write_text("".join(["reference,group\n", *(f"text {i},{i % 3}\n" for i in range(9))]))
    before = groups.read_bytes()
    printed = printed_by(
        ["split", str(tmp_path / "data.h5"), "--folds=3", f"--groups={groups}", f"--json={tmp_path / 'g.json'}"]
    )
    assert printed.count("the nearest training sample in time tells the group of ") == 2 * 3, (
        "dev and test of each fold"
    )
    for k in (1, 2, 3):
        assert "group" in json.loads((tmp_path / f"g_{k}.json").read_text())["time"]["groups"]
    (tmp_path / "fold_1.json").unlink()
    assert "is an input of the same command" in refused([*command, f"--groups={groups}"])
    assert groups.read_bytes() == before
    assert not (tmp_path / "fold_1.json").exists()
    assert main(["split", str(tmp_path / "data.h5"), "--folds=some"]) == 2
