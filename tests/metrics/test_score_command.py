"""`eeg2text score`: what it prints and writes, and one sentence for what cannot be scored."""

import json

import pytest
from layout_samples import layout_samples
from test_score import grid, with_ids

from eeg2text_jax.cli import main
from eeg2text_jax.predictions.file import write_predictions


@pytest.fixture
def files(tmp_path):
    for sample in layout_samples(tmp_path):
        (tmp_path / sample.name).write_text(sample.text)
    write_predictions(tmp_path / "seed0.jsonl", {"tokenizer": "bpe-600"}, with_ids(grid(seeds=(0,))))
    write_predictions(tmp_path / "seed1.jsonl", {"tokenizer": "bpe-600"}, with_ids(grid(seeds=(1,))))
    return tmp_path


def test_the_layout_is_on_the_first_line_and_everything_in_the_file(files, capsys):
    out = files / "out.json"
    assert main(["score", str(files / "A"), "--json", str(out), "--signatures"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "layout A (target string / predicted string with tf" in printed[0]
    assert any("unit:word|" in line for line in printed)
    assert any("needs token ids in the file, or --tokenizer" in line for line in printed)
    cells = json.loads(out.read_text("utf8"))["cells"]
    assert [(c["mode"], c["rows"], c["sentences"]) for c in cells] == [("teacher_forced", 6, 6), ("free_running", 6, 6)]


def test_paper_profile_says_what_is_exchanged(files, capsys):
    assert main(["score", "--profile=paper", str(files / "seed0.jsonl")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "columns P and R of the paper's Tables 2-3 are exchanged" in printed
    assert "tokens N=4" not in printed
    assert "bpe-600" not in printed


def test_seeds_in_several_files_are_averaged_and_foreign_files_are_named(files, capsys):
    assert main(["score", str(files / "seed0.jsonl"), str(files / "seed1.jsonl")]) == 0
    assert "±" in capsys.readouterr().out
    assert main(["score", str(files / "A1"), str(files / "C")]) == 0
    printed = capsys.readouterr().out
    assert "A1 mode unknown" in printed
    assert "C mode unknown" in printed


def test_what_cannot_be_scored_is_one_sentence(files, capsys):
    empty = files / "empty.txt"
    empty.write_text("target string: a\npredicted string with tf: \npredicted string: b\n" + "#" * 20 + "\n")
    twice = [str(files / "seed0.jsonl")] * 2
    for argv, message in [
        ([str(empty)], "empty.txt: every prediction of the 1 teacher_forced rows is empty"),
        (twice, "eeg → eeg, seed 0, teacher_forced is in"),
        ([str(files / "none")], "none: cannot be read"),
        ([str(files / "A"), "--json", str(files / "none" / "out.json")], "out.json: cannot be written"),
        ([str(files / "A"), "--tokenizer", str(files / "none")], "none: no tokenizer"),
    ]:
        assert main(["score", *argv]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    assert main(["score", str(empty), "--mode=free_running"]) == 0
