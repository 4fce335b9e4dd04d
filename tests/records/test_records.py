"""Records, held against readers of others: huggingface_hub, pandas, datasets, mlcroissant, their own validator."""

import copy
import dataclasses
import hashlib
import itertools
import json
import math
import os
import random
import resource
from pathlib import Path

import numpy as np
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from eeg2text_jax.commands import cli
from eeg2text_jax.data import write
from eeg2text_jax.instrument.predictions.file import Prediction, read_predictions, write_predictions

SCORED = {"value": 12.5, "signature": "nrefs:1", "lower_is_better": False}
CELL = {"train_condition": "eeg", "eval_condition": "eeg", "seed": 0, "mode": "free_running"}
CELL |= {"rows": 12, "sentences": 6}
RESULTS = {
    "format": 1,
    "profile": "standard",
    "cells": [
        CELL | {"metrics": {"word_bleu-1": SCORED, "wer": SCORED | {"value": 112.0, "lower_is_better": True}}},
        CELL | {"eval_condition": "noise", "metrics": {"word_bleu-1": SCORED | {"value": 3.0}}},
        CELL | {"mode": "teacher_forced", "metrics": {}, "unscored": "every prediction is empty"},
        CELL | {"train_condition": "noise", "seed": 1, "metrics": {"bertscore-f": SCORED | {"value": -3.0}}},
    ],
}
ROW = Prediction("s/t/0", "s", "t", "t/0", 4, "eeg", "eeg", 0, "free_running", "a b", "a c", (3, 4), (3, 5))


@pytest.fixture
def workdir(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/results.json").write_text(json.dumps(RESULTS))
    (tmp_path / "run/config.json").write_text(json.dumps({"data": {"source": "gs://lab/zuco.h5"}}))
    (tmp_path / "run/audit.json").write_text(json.dumps({"verdict": "uses EEG", "sentence": "It does."}))
    return tmp_path / "run"


def written(workdir: Path, *flags: str) -> dict[str, dict]:
    out = workdir.parent / "out"
    assert cli.main(["records", str(workdir), f"--out={out}", *flags]) == 0
    return {path.relative_to(out).as_posix(): json.loads(path.read_text()) for path in out.rglob("*.json")}


def test_each_arm_has_a_record_with_its_figures(workdir):
    made = written(workdir, "--model=lab/reader")
    eeg, noise = sorted(made.values(), key=lambda record: record["model_info"]["id"])
    assert eeg["model_info"]["id"] == "lab/reader-eeg-seed0"
    found = {entry["evaluation_result_id"]: entry for entry in eeg["evaluation_results"]}
    assert found.keys() == {"eeg/free_running/word_bleu-1", "eeg/free_running/wer", "noise/free_running/word_bleu-1"}
    assert noise["evaluation_results"][0]["metric_config"]["min_score"] == "-Infinity"
    assert eeg["source_metadata"]["additional_details"]["verdict"] == "uses EEG"
    assert [entry["metric_config"]["lower_is_better"] for entry in found.values()] == ["wer" in name for name in found]


def test_a_record_states_who_reports_it_and_its_split_and_its_name_is_of_its_content(workdir, monkeypatch):
    (workdir / "results.json").write_text(json.dumps(RESULTS | {"split": "abc123"}))
    about = ["--organization=Lab of Reading", "--relationship=third_party", "--dataset-name=own words"]
    names = []
    for day in (0, 86400):
        monkeypatch.setattr("time.time", lambda day=day: 1.7e9 + day)
        made = written(workdir, *about)
        names.append(made.keys())
    assert names[0] == names[1], "on another day"
    for path, record in made.items():
        source = record["source_metadata"]
        who = source["source_organization_name"], source["evaluator_relationship"]
        assert who == ("Lab of Reading", "third_party")
        assert source["additional_details"]["split"] == "abc123"
        assert record["retrieved_timestamp"] == "1700086400"
        assert path.startswith("data/own-words/local/run-")


def test_each_figure_stands_in_the_record_and_the_file_of_its_arm_condition_and_mode(workdir):
    """Two conditions and seeds, trained and fed, in both modes; every count, value and signature is another one."""
    arms = [(trained, seed) for trained in ("eeg", "noise") for seed in (0, 1)]
    fed = [(condition, mode) for condition in ("eeg", "zero") for mode in ("free_running", "teacher_forced")]
    cells = []
    for number, ((condition, mode), (trained, seed)) in enumerate(itertools.product(fed, arms)):
        about = {"train_condition": trained, "seed": seed, "eval_condition": condition, "mode": mode}
        metrics = {
            name: {"value": 5.0 * number + k, "signature": f"{name} of {number}", "lower_is_better": name == "wer"}
            for k, name in enumerate(("word_bleu-1", "wer"))
        }
        cells.append({**about, "rows": 100 + number, "sentences": 50 + number, "metrics": metrics})
    (workdir / "results.json").write_text(json.dumps(RESULTS | {"cells": cells}))
    os.utime(workdir / "results.json", (1.6e9, 1.6e9))
    made = written(workdir, "--dataset=lab/zuco", "--metric=wer", "--model=lab/x")
    by_arm = {}
    for record in made.values():
        arm = record["model_info"]["additional_details"]
        by_arm[arm["train_condition"], arm["seed"]] = record
    assert by_arm.keys() == {(trained, str(seed)) for trained, seed in arms}
    files = {path.name: path.read_text() for path in (workdir.parent / "out/.eval_results").iterdir()}
    assert len(files) == len(cells)
    for cell in cells:
        record = by_arm[cell["train_condition"], str(cell["seed"])]
        assert record["evaluation_timestamp"] == "1600000000"
        condition, mode = cell["eval_condition"], cell["mode"]
        entries = {entry["evaluation_result_id"]: entry for entry in record["evaluation_results"]}
        assert len(entries) == 2 * len(fed)
        for name, metric in cell["metrics"].items():
            entry = entries[f"{condition}/{mode}/{name}"]
            assert entry["evaluation_name"].endswith(f"evaluated on {condition}, {mode}")
            assert entry["source_data"]["additional_details"] == {"eval_condition": condition, "mode": mode}
            config = entry["metric_config"]
            assert (config["metric_id"], config["additional_details"]["signature"]) == (name, metric["signature"])
            assert (config["min_score"], config["max_score"]) == (0, "Infinity" if name == "wer" else 100)
            counts = {"rows": str(cell["rows"]), "sentences": str(cell["sentences"])}
            assert entry["score_details"] == {"score": metric["value"], "details": counts}
        text = files[f"{cell['train_condition']}_seed{cell['seed']}_{condition}_{mode}.yaml"]
        (entry,) = parse_eval_result_entries(yaml.safe_load(text))
        assert (entry.task_id, entry.value) == (f"{condition}_{mode}", cell["metrics"]["wer"]["value"])
        assert str(entry.date).startswith("2020-09-13")
        trained = f"trained on {cell['train_condition']}, seed {cell['seed']}"
        signature = cell["metrics"]["wer"]["signature"]
        assert entry.notes == f"wer; {trained}; evaluated on {condition}, {mode}; {signature}"


def test_their_own_validator_takes_the_records(workdir):
    """Their package is for Python 3.12; where it is installed it is asked."""
    validation = pytest.importorskip("every_eval_ever.eval_types", reason="every_eval_ever is not installed")
    for record in written(workdir).values():
        validation.EvaluationLog.model_validate(record)


def test_the_hub_reads_its_files(workdir):
    written(workdir, "--dataset=lab/zuco")
    paths = sorted((workdir.parent / "out/.eval_results").iterdir())
    assert [path.name for path in paths] == ["eeg_seed0_eeg_free_running.yaml", "eeg_seed0_noise_free_running.yaml"]
    (entry,) = parse_eval_result_entries(yaml.safe_load(paths[0].read_text()))
    assert (entry.dataset_id, entry.value, entry.notes.partition(";")[0]) == ("lab/zuco", 12.5, "word_bleu-1")


def full_after(size: int) -> None:
    """No file of this process may become larger: as on a full disk, what is small is still written."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.parametrize("before", [False, True])
def test_a_full_disk_leaves_nothing_in_part(workdir, tmp_path, before, capfd):
    pytest.importorskip("pyarrow", reason="of the extra `parquet`")
    out = tmp_path / "out"
    rows = [dataclasses.replace(ROW, sample_id=random.Random(i).randbytes(50).hex()) for i in range(200)]
    write_predictions(workdir / "predictions.jsonl", {}, rows)
    if before:
        out.mkdir()
        (out / "citation.bib").write_text("mine")
    full_after(12_000)
    try:
        assert cli.main(["records", str(workdir), f"--out={out}"]) == 2
    finally:
        full_after(resource.RLIM_INFINITY)
    (line,) = capfd.readouterr().err.splitlines()
    assert "File too large; free some space" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == (["out", "run"] if before else ["run"])
    assert [path.read_text() for path in out.rglob("*")] == ["mine"] * before
    assert cli.main(["records", str(workdir), f"--out={out}"]) == 0
    assert {"citation.bib", "predictions.parquet", "data"} == {path.name for path in out.iterdir()}


def test_predictions_open_in_pandas_and_datasets(workdir, tmp_path):
    pandas = pytest.importorskip("pandas")
    pq = pytest.importorskip("pyarrow.parquet", reason="of the extra `parquet`")
    rows = [ROW, Prediction(*list(vars(ROW).values())[:8], "teacher_forced", "a b", "a", nll=2.5, n_tokens=2)]
    when = {"recording": "r1", "onset": 2.5, "duration": 1.25, "order": 3}
    rows += [dataclasses.replace(ROW, prediction="a d", hypothesis=1, donor="t/7", story_time=(1.5, 3.0), **when)]
    write_predictions(workdir / "predictions.jsonl", {"config": "1"}, rows)
    assert cli.main(["records", str(workdir), f"--out={tmp_path / 'out'}"]) == 0
    table = pandas.read_parquet(tmp_path / "out/predictions.parquet")
    assert table.prediction.tolist() == ["a c", "a", "a d"]
    last = table.iloc[2].to_dict()
    told = {name: list(value) if hasattr(value, "tolist") and np.ndim(value) else value for name, value in last.items()}
    expected = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(rows[2]).items()}
    for name in ("nll", "n_tokens"):  # null in the file
        assert expected.pop(name) is None
        assert math.isnan(told.pop(name))
    assert told == expected
    stated = pq.read_schema(tmp_path / "out/predictions.parquet").metadata[b"eeg2text"]
    assert json.loads(stated)["config"] == "1"
    assert table.prediction_tokens[0].tolist() == [3, 5]
    assert math.isnan(table.nll[0])
    read = read_predictions(workdir / "predictions.jsonl")
    assert len(table) == len(read.predictions) + len(read.further)
    datasets = pytest.importorskip("datasets")
    options = {"data_files": str(tmp_path / "out/predictions.parquet"), "cache_dir": str(tmp_path / "cache")}
    assert datasets.load_dataset("parquet", split="train", **options)[1]["nll"] == 2.5


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    pytest.importorskip("pyarrow", reason="of the extra `parquet`")
    path = tmp_path_factory.mktemp("data") / "data.h5"
    fields = ["--config.data.synthetic.sentences=20", "--config.data.synthetic.features=4"]
    assert cli.main(["prepare", "synthetic", f"--out={path}", *fields]) == 0
    return path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib's, in mlcroissant
def test_croissant_describes_exported_data(data, tmp_path):
    out, about = tmp_path / "data.parquet", tmp_path / "croissant.json"
    options = [f"--croissant={about}", "--licence=CC0-1.0", "--cite=Us"]
    assert cli.main(["export-data", str(data), f"--out={out}", *options]) == 0
    croissant = json.loads(about.read_text())
    assert croissant["distribution"][0]["contentUrl"] == "data.parquet"
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    dataset = mlcroissant.Dataset(str(about))
    assert not dataset.metadata.ctx.issues.errors
    assert not dataset.metadata.ctx.issues.warnings
    assert next(iter(dataset.records("samples")))["samples/subject"] == b"S01"


@pytest.mark.parametrize("timed", [False, True])
def test_croissant_names_every_column_but_the_features(tmp_path, timed):
    pq = pytest.importorskip("pyarrow.parquet", reason="of the extra `parquet`")
    rows: list[dict] = [{"features": [[1.0, i, 2.0]], "sentence": f"text {i}"} for i in range(5)]
    rows = [{**row, "recording": "r", "onset": 2.0 * i} for i, row in enumerate(rows)] if timed else rows
    write(str(tmp_path / "own.h5"), rows, features_are="three numbers")
    out, about = tmp_path / "data.parquet", tmp_path / "croissant.json"
    command = ["export-data", str(tmp_path / "own.h5"), f"--out={out}", f"--croissant={about}"]
    for name in ("", "of ours"):
        assert cli.main([*command, *([f"--name={name}"] if name else [])]) == 0
        stated = json.loads(about.read_text())
        assert stated["name"] == (name or "data")
    (fields,) = (each["field"] for each in stated["recordSet"])
    columns = pq.read_schema(out)
    named = {field["source"]["extract"]["column"]: field["dataType"] for field in fields}
    assert named.keys() <= {*columns.names}
    assert {"sentence", "subject", "task", "sentence_index"} <= named.keys()
    assert ("recording" in named, "onset" in named) == (timed, timed)
    kinds = {"sc:Text": "string", "sc:Integer": "int64", "sc:Float": "double"}
    for name, kind in named.items():
        assert str(columns.field(name).type) == kinds[kind]
    (file,) = stated["distribution"]
    assert file["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert file["contentSize"] == f"{out.stat().st_size} B"
    assert "5 samples" in stated["description"]
    assert "list of 3 numbers for every word: three numbers" in stated["description"]


def test_croissant_states_a_licence_and_a_citation_where_they_are_given(data, tmp_path):
    out, about = tmp_path / "data.parquet", tmp_path / "croissant.json"
    given = {"license": ("--licence", "CC0-1.0"), "citeAs": ("--cite", "Us")}
    for names in ([], ["license"], ["citeAs"], ["license", "citeAs"]):
        options = ["=".join(given[name]) for name in names]
        assert cli.main(["export-data", str(data), f"--out={out}", f"--croissant={about}", *options]) == 0
        stated = json.loads(about.read_text())
        assert {name: stated[name] for name in given if name in stated} == {name: given[name][1] for name in names}


def broken(change) -> dict:
    results = copy.deepcopy(RESULTS)
    change(results)
    return results


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not JSON"),
        ([], "expected results of format 1"),
        (broken(lambda r: r.update(cells={})), "with a list of cells"),
        (broken(lambda r: r["cells"][1].pop("seed")), "cell 2: seed is 'None', expected a whole number"),
        (broken(lambda r: r["cells"][1].update(rows=True)), "cell 2: rows is 'True', expected a whole number"),
        (broken(lambda r: r["cells"].insert(0, 3)), "cell 1: expected an object, found 3"),
        (
            broken(lambda r: r["cells"][0]["metrics"]["wer"].update(value="high")),
            "cell 1, wer: value is 'high', expected a number",
        ),
        (
            broken(lambda r: r["cells"][0]["metrics"]["wer"].update(value=math.nan)),
            "cell 1, wer: the value is not finite",
        ),
        (broken(lambda r: r.update(cells=r["cells"][2:3])), "no cell has a score"),
    ],
)
def test_a_results_file_that_breaks_its_schema_is_one_sentence(content, sentence, workdir, refused):
    (workdir / "results.json").write_text(content if isinstance(content, str) else json.dumps(content))
    said = refused(["records", str(workdir), f"--out={workdir.parent / 'out'}"])
    assert "results.json" in said
    assert sentence in said
    assert not (workdir.parent / "out").exists()


def test_names_are_fit_for_paths(workdir):
    (workdir / "results.json").write_text(json.dumps(RESULTS).replace('"noise"', '"a b/c"'))
    made = written(workdir.rename(workdir.with_name("my run")), "--dataset-name=../zu co")
    arms = sorted(path.rpartition("/")[0] for path in made)
    assert arms == ["data/zu-co/local/my-run-a-b-c-seed1", "data/zu-co/local/my-run-eeg-seed0"]
