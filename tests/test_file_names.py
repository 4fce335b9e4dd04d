"""File names that are not UTF-8, which a shell passes on and Python keeps as lone surrogates."""

import json

import pytest

from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.instrument.predictions.file import Prediction, read_predictions, write_predictions
from tests.predictions.reading import jsonl, rows

ODD = "caf\udce9"  # the Latin-1 bytes of "café"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_score_of_a_name_in_latin_1(place, printed_by):
    (place / f"{ODD}.jsonl").write_text(jsonl(rows()))
    printed_by(["score", f"{ODD}.jsonl", "--json=scores.json"])
    assert json.loads((place / "scores.json").read_bytes())["cells"]


def test_audit_of_a_name_in_latin_1(place, printed_by):
    (place / f"{ODD}.jsonl").write_text(jsonl(rows()))
    said = printed_by(["audit", f"--eeg={ODD}.jsonl", "--json=audit.json", "--html=audit.html"], status=8)
    assert json.loads((place / "audit.json").read_bytes())["verdict"]
    assert "<html" in (place / "audit.html").read_text("utf8")
    said.encode("utf8")


@pytest.mark.parametrize("name", [f"{ODD}.json", "café.json"])
def test_an_output_may_have_any_name(place, printed_by, name):
    (place / "rows.jsonl").write_text(jsonl(rows()))
    printed_by(["score", "rows.jsonl", f"--json={name}"])
    assert (place / name).exists()


def test_recordings_and_parquet_of_a_name_in_latin_1(place, printed_by):
    pytest.importorskip("pyarrow", reason="of the extra `parquet`")
    table = ["sentence,f1,f2", *(f"text {i} is here,{i},{i % 3}" for i in range(4))]
    (place / f"{ODD}.csv").write_text("\n".join(table))
    printed_by(["prepare", f"{ODD}.csv", f"--out={ODD}.h5"])
    printed_by(["export-data", f"{ODD}.h5", f"--out={ODD}.parquet"])
    printed_by(["prepare", f"{ODD}.parquet", f"--out={ODD}2.h5"])
    texts = [read_datafile(place / f"{ODD}{n}.h5").sentence.tolist() for n in ("", "2")]
    assert texts[0] == texts[1] == [f"text {i} is here" for i in range(4)]


@pytest.mark.parametrize("command", ["run --config=demo --workdir", "judge --config=judge:checkpoint=toy --workdir",
                                     "export --workdir=x --out", "run --config=demo --folds=2 --workdir"])  # fmt: skip
def test_a_folder_of_checkpoints_has_a_name_in_utf_8(place, refused, command):
    """Tokenizers wrote into no other, after the data were made, and tensorstore would not have."""
    said = refused(f"{command}={ODD}/run".split())
    assert "run: the path of this folder is not UTF-8" in said
    assert not [*place.iterdir()]


def test_predictions_may_name_their_data(place):
    made = [Prediction(**row) for row in rows()]
    write_predictions(place / "p.jsonl", {"data": f"{ODD}.h5"}, made)
    assert read_predictions(place / "p.jsonl").predictions == made
