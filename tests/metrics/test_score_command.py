"""`eeg2text score`: what it prints and writes, and one sentence for what cannot be scored."""

import dataclasses
import json
import time

import pytest
from layout_samples import layout_samples
from test_score import grid, with_ids

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands import score
from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.auditing.notices import file_notices
from eeg2text_jax.instrument.metrics.score import by_subject, row_figures
from eeg2text_jax.instrument.predictions.file import read_predictions, write_predictions


@pytest.fixture
def files(tmp_path):
    for sample in layout_samples(tmp_path):
        (tmp_path / sample.name).write_text(sample.text)
    write_predictions(tmp_path / "seed0.jsonl", {"tokenizer": "bpe-600"}, with_ids(grid(seeds=(0,))))
    write_predictions(tmp_path / "seed1.jsonl", {"tokenizer": "bpe-600"}, with_ids(grid(seeds=(1,))))
    return tmp_path


def test_the_layout_is_on_the_first_line_and_everything_in_the_file(files, printed_by):
    out = files / "out.json"
    printed = printed_by(["score", str(files / "A"), "--json", str(out), "--signatures"]).splitlines()
    assert "layout A (labelled lines; reference 'target string', prediction 'predicted string with tf'" in printed[0]
    assert any("unit:word|" in line for line in printed)
    assert any("needs token ids in the file, or --tokenizer" in line for line in printed)
    assert str(files) not in out.read_text("utf8"), "no folder of this machine"
    cells = json.loads(out.read_text("utf8"))["cells"]
    assert {c["file"] for c in cells} == {"A"}
    assert [(c["mode"], c["rows"], c["sentences"]) for c in cells] == [("teacher_forced", 6, 6), ("free_running", 6, 6)]


def test_paper_profile_says_what_is_exchanged(files, printed_by):
    printed = " ".join(printed_by(["score", "--profile=paper", str(files / "seed0.jsonl")]).split())
    assert "columns P and R of the paper's Tables 2-3 are exchanged" in printed
    assert "ROUGE-L" in printed
    assert "tokens N=4" not in printed
    assert "bpe-600" not in printed


def test_seeds_in_several_files_are_averaged_and_foreign_files_are_named(files, printed_by):
    assert "±" in printed_by(["score", str(files / "seed0.jsonl"), str(files / "seed1.jsonl")])
    printed = printed_by(["score", str(files / "A1"), str(files / "C")])
    assert "A1 mode unknown" in printed
    assert "C mode unknown" in printed


def test_runs_of_several_models_are_rows_of_their_own_and_no_seeds(files, printed_by):
    """As bart/predictions.jsonl and t5/predictions.jsonl of the paper's Table 2: the same conditions, seed and mode."""
    out, paths = files / "out.json", []
    for name in ("bart", "pegasus", "t5"):
        (files / name).mkdir()
        paths.append(files / name / "predictions.jsonl")
        rows = [dataclasses.replace(row, prediction=f"{name} {row.prediction}") for row in with_ids(grid(seeds=(0,)))]
        write_predictions(paths[-1], {"tokenizer": "bpe-600"}, rows)
    printed = printed_by(["score", *map(str, paths), "--profile=paper", "--json", str(out)])
    assert "±" not in printed
    assert str(files) not in out.read_text("utf8")
    cells = json.loads(out.read_text("utf8"))["cells"]
    assert {cell["label"] for cell in cells} == {"bart", "pegasus", "t5"}
    assert all(name in printed for name in ("bart free-running", "pegasus free-running", "t5 w/tf"))


def test_details_are_of_the_rows_of_each_file_and_cell(files, printed_by):
    for seed, tokenizer, reader in ((0, "bpe-600", "c"), (1, "bpe-900", "d")):
        rows = [dataclasses.replace(row, subject=reader) if row.subject == "b" else row
                for row in with_ids(grid(seeds=(seed,)))]  # fmt: skip
        write_predictions(files / f"seed{seed}.jsonl", {"tokenizer": tokenizer}, rows)
    out, lines = files / "out.json", files / "rows.jsonl"
    paths = [str(files / f"seed{seed}.jsonl") for seed in (0, 1)]
    printed_by(["score", *paths, "--by=subject", f"--rows={lines}", f"--json={out}", "--profile=paper"])
    written, cells = [json.loads(line) for line in lines.read_text().splitlines()], json.loads(out.read_text())["cells"]
    assert len(cells) == 8
    for cell in cells:
        seed, name = cell["seed"], ("bpe-600", "bpe-900")[cell["seed"]]
        own = [row for row in read_predictions(paths[seed]).predictions
               if (row.eval_condition, row.mode) == (cell["eval_condition"], cell["mode"])]  # fmt: skip
        assert f"{name}" in cell["metrics"]["token_bleu-1"]["signature"]
        expected = by_subject(own, profile="paper", token_source=name)
        assert cell["by_subject"].keys() == expected.keys() == {"a", "cd"[seed]}
        for subject, figures in expected.items():
            assert cell["by_subject"][subject] == pytest.approx(figures)
        expected = list(row_figures(own, profile="paper", token_source=name))
        assert written[: len(own)] == json.loads(json.dumps(expected))
        written = written[len(own) :]
    assert not written


def test_options_of_meaning_reach_the_metrics(files, monkeypatch, refused):
    asked = []

    def makers(*given, **options):
        asked.append((given, options))
        raise UserError("asked")

    monkeypatch.setattr(score, "makers_of", makers)
    options = ["--layer=3", "--idf", "--rescale=r.tsv", "--truncate", "--encoder=e", "--judge=j"]
    for more in (options, []):
        assert refused(["score", str(files / "seed0.jsonl"), "--metrics=wer", *more]).endswith("asked")
    assert asked == [
        ((("wer",), "e", "j"), {"layer": 3, "idf": True, "rescale": "r.tsv", "truncate": True}),
        ((("wer",), None, None), {"layer": None, "idf": False, "rescale": None, "truncate": False}),
    ]


def test_what_cannot_be_scored_is_one_sentence(files, refused):
    empty = files / "empty.txt"
    empty.write_text("target string: a\npredicted string with tf: \npredicted string: \n" + "#" * 20 + "\n")
    twice = [str(files / "seed0.jsonl")] * 2
    (files / "copy.jsonl").write_bytes((files / "seed0.jsonl").read_bytes())
    for argv, message in [
        ([str(empty)], "empty.txt: every prediction of the 1 teacher_forced rows is empty"),
        (twice, "seed0.jsonl: the file is given twice"),
        ([twice[0], str(files / "." / "seed0.jsonl")], "seed0.jsonl: the file is given twice"),
        ([twice[0], str(files / "copy.jsonl")], "eeg → eeg, seed 0, teacher_forced is in"),
        ([str(files / "none")], "none: cannot be read"),
        ([str(files / "A"), "--json", str(files / "none" / "out.json")], "out.json: there is no folder"),
        ([str(files / "A"), "--tokenizer", str(files / "none")], "none: no tokenizer"),
    ]:
        assert message in refused(["score", *argv])


def test_conditions_of_files_that_do_not_say_them(files, refused, printed_by):
    """The four released T5 files name no condition: Table 2 is laid out from what the command line says of them."""
    block = "target string: {}\npredicted string: {}\n" + "#" * 20 + "\n"
    names = [str(files / f"t5_{name}.txt") for name in ("a", "b")]
    for k, name in enumerate(names):
        (files / name).write_text("".join(block.format(f"the dog {i} runs", f"He was {k} dog {i}") for i in range(12)))
    out = files / "out.json"
    printed = printed_by(["score", *names, "--conditions=eeg:eeg,eeg:noise", "--json", str(out)])
    assert "eeg → eeg" in printed
    assert "eeg → noise" in printed
    assert "unknown → unknown" not in printed
    cells = json.loads(out.read_text("utf8"))["cells"]
    assert [(cell["train_condition"], cell["eval_condition"]) for cell in cells] == [("eeg", "eeg"), ("eeg", "noise")]
    printed_by(["score", str(files / "seed0.jsonl"), "--conditions=noise:zero", "--json", str(out)])
    cells = json.loads(out.read_text("utf8"))["cells"]
    found = {(cell["train_condition"], cell["eval_condition"]) for cell in cells}
    assert found == {("eeg", "eeg"), ("eeg", "noise")}, "those that the file states stay"
    for column, kept in (("eval_condition", ("noise", "shuffled")), ("train_condition", ("shuffled", "zero"))):
        rows = [f"the dog {i} runs,He was dog {i},shuffled" for i in range(6)]
        (files / "one.csv").write_text("\n".join([f"truth,pred,{column}", *rows]) + "\n")
        printed_by(["score", str(files / "one.csv"), "--conditions=noise:zero", "--json", str(out)])
        (cell,) = json.loads(out.read_text("utf8"))["cells"]
        assert (cell["train_condition"], cell["eval_condition"]) == kept, "one that is stated stays, the other is said"
    for wrong in ("eeg:eeg", "eeg:eeg,noise", "eeg:eeg,:noise"):
        said = refused(["score", *names, f"--conditions={wrong}"])
        assert f"--conditions={wrong}: expected TRAIN:TEST for each of the 2 files" in said


def test_an_empty_half_is_said_and_the_other_half_is_scored(files, capsys, printed_by):
    """As published: teacher-forced fields that nothing was ever written to, beside free runs."""
    block = "target string: {}\npredicted string with tf: \npredicted string: {}\n" + "#" * 20 + "\n"
    (files / "half.txt").write_text("".join(block.format(f"the dog {i} runs", "He was the dog") for i in range(12)))
    printed = " ".join(printed_by(["score", str(files / "half.txt"), "--json", str(files / "out.json")]).split())
    assert "half.txt: every teacher_forced prediction under unknown → unknown is empty" in printed
    assert "Not scored: unknown → unknown, seed 0: every prediction of the 12 teacher_forced rows is empty" in printed
    assert "severe: every prediction or reference of the teacher_forced rows is empty" in printed
    forced, free = json.loads((files / "out.json").read_text("utf8"))["cells"]
    assert (forced["metrics"], forced["flags"][0]["code"]) == ({}, "empty_half")
    assert free["metrics"]["word_bleu-1"]["value"] == pytest.approx(50.0)
    assert main(["audit", "--eeg", str(files / "half.txt")]) != 2
    assert "half.txt: every teacher_forced prediction" in capsys.readouterr().out


def test_notices_are_printed_with_the_file_that_they_are_about(files, printed_by):
    block = "target string: {}\npredicted string: {}\n" + "#" * 20 + "\n"
    same = "".join(block.format(f"the dog {i} runs home", "He was born in Ulm</s>") for i in range(30))
    (files / "same.txt").write_text(same)
    printed = printed_by(["score", str(files / "same.txt"), "--json", str(files / "out.json")])
    assert "warning: mode unknown: 1 distinct predictions in 30 rows" in " ".join(printed.split())
    codes = [flag["code"] for flag in json.loads((files / "out.json").read_text("utf8"))["cells"][0]["flags"]]
    assert codes == ["collapsed"]
    (files / "same2.txt").write_text(same)
    printed = printed_by(["score", str(files / "same.txt"), str(files / "same2.txt")])
    assert "same2.txt: the file has the same bytes as" in printed
    assert f"warning: {files / 'same2.txt'}: mode unknown: 1 distinct" in printed


def test_notices_take_time_in_proportion_to_the_rows():
    """A sum over all texts stood inside a loop over all texts: a million rows would have taken days."""
    row = grid(modes=["free_running"], sentences=1)[0]
    rows = [
        dataclasses.replace(row, subject=f"S{i % 2}", reference=f"the dog {i // 2}", prediction=f"He was {i}")
        for i in range(60_000)
    ]
    start = time.process_time()
    file_notices("free-running", rows)
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    "pairs", [[("我喜欢看电影。", "我喜欢看书。"), ("今天天气很好", "今天天气不好")], [("ทดสอบ ระบบ", "ทดสอบ คำ")]]
)
def test_a_script_without_latin_letters_has_its_scores_by_default(tmp_path, printed_by, pairs):
    path = tmp_path / "file.csv"
    path.write_text("\n".join(["truth,pred", *map(",".join, pairs)]) + "\n", "utf8")
    said = printed_by(["score", str(path), f"--json={tmp_path / 'out.json'}"])
    assert "ROUGE is left out" in " ".join(said.split())
    metrics = json.loads((tmp_path / "out.json").read_text())["cells"][0]["metrics"]
    assert 0 < metrics["wer"]["value"] < 100
    assert {"word_bleu-1", "cer"} <= metrics.keys()
    path.write_text("truth,pred\na b,c d\n", "utf8")
    assert "ROUGE is left out" not in printed_by(["score", str(path)])
