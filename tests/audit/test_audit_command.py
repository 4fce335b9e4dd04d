"""`eeg2text audit`: exit status, files written, one sentence for bad input, and damaged files."""

import csv
import datetime
import hashlib
import html
import json
import random

import pytest
from rows import row, simulated_rows

from eeg2text_jax.cli import main
from eeg2text_jax.predictions.file import read_predictions, write_predictions
from eeg2text_jax.versions import __version__


@pytest.fixture
def files(tmp_path):
    eeg, noise = simulated_rows(information=0.3, sentences=36)
    write_predictions(tmp_path / "eeg.jsonl", {}, eeg)
    write_predictions(tmp_path / "noise.jsonl", {}, noise)
    write_predictions(tmp_path / "both.jsonl", {}, [*eeg, *noise])
    return tmp_path


def command(*arguments):
    return ["audit", "--resamples", "200", "--proof", "the test planted all of it", *map(str, arguments)]


def run(*arguments):
    return main(command(*arguments))


def test_pair_of_files(files, printed_by):
    given = ("--eeg", files / "eeg.jsonl", "--control", files / "noise.jsonl")
    said = printed_by(command(*given, "--json", files / "a.json", "--html", files / "a.html"))
    assert said.rstrip().endswith("VERDICT: uses EEG")
    assert json.loads((files / "a.json").read_text())["verdict"] == "uses EEG"
    assert (files / "a.html").read_text().startswith("<!doctype html>")


def test_the_report_says_what_was_judged(files):
    """Names, digests, rows, date, command and version; seeds only where the file states them."""
    given = ("--eeg", files / "eeg.jsonl", "--control", files / "noise.jsonl")
    assert run(*given, "--json", files / "a.json", "--html", files / "a.html") == 0
    judged = json.loads((files / "a.json").read_text())["judged"]
    page = (files / "a.html").read_text()
    for name, found in zip(("eeg", "noise"), judged["files"], strict=True):
        digest = hashlib.sha256((files / f"{name}.jsonl").read_bytes()).hexdigest()
        read = found.pop("read")
        assert found == {"name": f"{name}.jsonl", "sha256": digest, "rows": 108}
        assert "layout jsonl; 108 predictions of" in read[0]
        assert html.escape(read[0]) in page
        assert digest in page
    assert judged["version"] == __version__
    assert judged["command"].startswith("eeg2text audit --resamples 200 --proof 'the test planted")
    assert datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d") in judged["date"]
    assert judged["date"] in page
    assert str(files) not in page + json.dumps(judged), "no folder of the machine is published"
    assert "<b>1</b><span>training seeds" in page


def test_seeds_that_nobody_stated_are_unknown(files):
    for name in ("eeg", "noise"):
        rows = read_predictions(files / f"{name}.jsonl").predictions
        with (files / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("reference", "prediction"), *((r.reference, r.prediction) for r in rows)])
    run("--eeg", files / "eeg.csv", "--control", files / "noise.csv", "--mode=free_running", "--html", files / "a.html")
    assert "<b>unknown</b><span>training seeds" in (files / "a.html").read_text()


def test_one_file_with_both_cells_is_the_same_audit(files):
    run("--eeg", files / "eeg.jsonl", "--control", files / "noise.jsonl", "--json", files / "a.json")
    run("--eeg", files / "both.jsonl", "--json", files / "b.json")
    a, b = (json.loads((files / name).read_text()) for name in ("a.json", "b.json"))
    assert [file["rows"] for file in a.pop("judged")["files"]] == [108, 108]
    assert [file["rows"] for file in b.pop("judged")["files"]] == [216]
    assert a == b


def test_exit_status_of_other_verdicts(files):
    assert run("--eeg", files / "noise.jsonl", "--control", files / "eeg.jsonl") == 6
    (files / "copy.jsonl").write_bytes((files / "eeg.jsonl").read_bytes())
    assert run("--eeg", files / "eeg.jsonl", "--control", files / "copy.jsonl") == 5
    assert run("--eeg", files / "noise.jsonl") == 7


def test_training_text_and_metadata(files, capsys):
    eeg, _ = simulated_rows(information=0.3, sentences=36)
    (files / "train.txt").write_text(f"{eeg[0].reference}\n")
    lines = {r.reference: f"{r.reference},TSR" for r in eeg}
    (files / "meta.csv").write_text("\n".join(["reference,task", *lines.values()]))
    run("--eeg", files / "eeg.jsonl", "--train-text", files / "train.txt", "--meta", files / "meta.csv")
    assert "1 of the 36 test sentences are in the training text" in capsys.readouterr().out


BAD = {
    "broken JSON": ('{"header": {}}\n{"sample_id": "a", \n', "bad.jsonl, line 2: not JSON"),
    "missing field": ('{"header": {}}\n{"sample_id": "a"}\n', "bad.jsonl, line 2: the field"),
    "empty": ("", "bad.jsonl: the file is empty"),
    "encoding": (b"\xff\xfe\x00", "bad.jsonl, line 1: not UTF-8"),
    "neither": ("what is this\n", "bad.jsonl: neither a known layout"),
    "two samples": ("reference,prediction\na b c,x\nb c d,y\n", "at least 5"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(files, refused, case):
    content, message = BAD[case]
    path = files / "bad.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refused(command("--eeg", path))


def test_bad_pairs_are_one_sentence(files, refused):
    rows = [row(i) for i in range(8)]
    cases = {
        "share no reference": [row(i) for i in range(50, 58)],
        "the references differ": [*rows[:7], row(30)],
        "eeg has 8 rows and noise 7": None,
    }
    write_predictions(files / "x_eeg.jsonl", {}, rows)
    for message, control in cases.items():
        twice = [row(0, sample_id="twice"), *rows[1:7], row(7)]
        write_predictions(files / "x_noise.jsonl", {}, control or [*twice, row(0, sample_id="third")])
        error = refused(command("--eeg", files / "x_eeg.jsonl", "--control", files / "x_noise.jsonl"))
        assert message in error or (control is None and "rows and noise 9" in error)


@pytest.mark.parametrize(
    "flags",
    [["--html", "no/folder/a.html"], ["--margin", "0"], ["--margin", "nan"], ["--resamples", "5"],
     ["--stratum-size", "1"]],
)  # fmt: skip
def test_bad_flags(files, flags):
    assert run("--eeg", files / "eeg.jsonl", *flags) == 2


MUTATIONS = 60  # 500 were run once


def damaged(text, rng):
    """One random mutation of a file: lines dropped, doubled, cut or swapped, characters changed."""
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(6)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[other])
    elif kind == 2:
        lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    elif kind == 3:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 4:
        place = rng.randrange(len(lines[at]) + 1)
        lines[at] = lines[at][:place] + rng.choice('"\\{}[],:\x00é 0') + lines[at][place + 1 :]
    else:
        return text[: rng.randrange(len(text))]
    return "\n".join(lines)


def test_damaged_files_are_refused_or_judged_whole(tmp_path, capsys):
    """Never a traceback; whatever is judged are exactly the rows that the file holds."""
    eeg, noise = simulated_rows(sentences=10, subjects=2)
    write_predictions(tmp_path / "noise.jsonl", {}, noise)
    write_predictions(tmp_path / "eeg.jsonl", {}, eeg)
    text = (tmp_path / "eeg.jsonl").read_text(encoding="utf8")
    rng, outcomes = random.Random(0), {"refused": 0, "judged": 0}
    for number in range(MUTATIONS):
        (tmp_path / "eeg.jsonl").write_text(damaged(text, rng), encoding="utf8")
        controls = [f"--control={tmp_path / 'noise.jsonl'}"] if number % 2 else []
        outputs = [f"--json={tmp_path / 'out.json'}", "--resamples=100"]
        status = main(["audit", f"--eeg={tmp_path / 'eeg.jsonl'}", *outputs, *controls])
        error = capsys.readouterr().err
        if status == 2:
            outcomes["refused"] += 1
            assert error.count("\n") == 1
        else:
            outcomes["judged"] += 1
            found = json.loads((tmp_path / "out.json").read_text())
            lines = (tmp_path / "eeg.jsonl").read_text(encoding="utf8").split("\n")
            assert found["n_rows"] == sum('"sample_id"' in line for line in lines)
    assert min(outcomes.values()) > MUTATIONS // 20
