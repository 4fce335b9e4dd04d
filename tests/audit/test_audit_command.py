"""`eeg2text audit`: what it prints and writes, exit statuses, plans, one sentence for bad input, and damaged files."""

import csv
import datetime
import hashlib
import json
import random
import re
from types import SimpleNamespace

import pytest
from rows import changed, simulated_rows

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.packages import __version__
from eeg2text_jax.commands import audit as audit_command
from eeg2text_jax.commands.audit import make_parser
from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.predictions.file import read_predictions, write_predictions


@pytest.fixture
def files(tmp_path):
    eeg, noise = simulated_rows(information=0.3, sentences=36)
    for name, rows in (("eeg", eeg), ("noise", noise)):
        write_predictions(tmp_path / f"{name}.jsonl", {}, rows)
    return tmp_path


def command(*arguments):
    return ["audit", *map(str, arguments)]


def pair(files):
    return "--eeg", files / "eeg.jsonl", "--control", files / "noise.jsonl"


def of(files, *more):
    """The status of a pair of files, and its JSON."""
    status = main(command(*pair(files), "--json", files / "a.json", *more))
    return status, json.loads((files / "a.json").read_text())


def test_the_console_is_short_and_says_all_that_matters(files, printed_by):
    out = printed_by(command(*pair(files), "--html", files / "a.html"))
    lines = out.rstrip().splitlines()
    assert len([line for line in lines if line]) <= 15
    assert lines[-1].startswith("VERDICT: uses EEG")
    assert any(line.startswith("eeg    ") for line in lines)
    assert f"All figures: -v; the report, with every row: {files / 'a.html'}" in lines
    plain = printed_by(command(*pair(files)))
    assert "All figures: -v; the report, with every row: --html=report.html" in plain.splitlines()
    assert (files / "a.html").read_text().startswith("<!doctype html>")
    more = printed_by(command(*pair(files), "-v"))
    for figure in ("The verdict's minimum detectable effect", "BLEU-1", "WER", "ROUGE-L F", "Time is not excluded"):
        assert figure in more
    assert "BLEU-1" not in out
    assert more.splitlines()[-1] == lines[-1]


def test_the_json_has_every_figure_of_the_verdict(files):
    status, found = of(files, "--endpoint=words,rouge-1")
    assert status == 0
    assert (found["verdict"], found["exit_status"], found["metric"]) == ("uses EEG", 0, "words")
    assert (found["n_rows"], found["n_sentences"], found["n_subjects"], found["mode"]) == (108, 36, 3, "free_running")
    (one,) = found["comparisons"]
    assert (one["verdict"], one["question"]) == ("uses EEG", "")
    low, high = one["contrast"]["interval_90"]
    assert low < one["contrast"]["effect"] < high
    assert one["contrast"]["interval"][0] < low
    assert {"p", "p_less", "mde", "scores", "nulls", "se", "sd"} <= one["contrast"].keys()
    assert found["secondary"][0]["label"] == "ROUGE-1 F"
    assert found["secondary"][0]["adjusted"] >= found["secondary"][0]["contrast"]["p"]
    assert found["adjusted_p"] >= one["contrast"]["p"]
    assert [c["name"] for c in found["conditions"]] == ["eeg", "noise"]
    assert found["conditions"][0]["look"]["distinct"] > 50
    assert found["provenance"]["level"] == "stated"
    assert found["qualifiers"]["level"] == "of the sentence or of its kind: not known"
    assert found["mde"] >= one["contrast"]["mde"]
    assert "rows" not in found


def test_the_files_that_were_judged_are_named(files):
    _, found = of(files, "--html", files / "a.html")
    judged = found["judged"]
    page = (files / "a.html").read_text()
    for name, one in zip(("eeg", "noise"), judged["files"], strict=True):
        digest = hashlib.sha256((files / f"{name}.jsonl").read_bytes()).hexdigest()
        assert (one["name"], one["sha256"], one["rows"]) == (f"{name}.jsonl", digest, 108)
        assert "108 predictions of" in " ".join(one["read"])
        assert digest in page
    assert judged["version"] == __version__
    assert judged["command"].startswith("eeg2text audit --eeg ")
    assert datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d") in judged["date"]
    assert str(files) not in page + json.dumps(judged), "no folder of the machine is published"


def test_seeds_that_nobody_stated_are_unknown(files):
    for name in ("eeg", "noise"):
        rows = read_predictions(files / f"{name}.jsonl").predictions
        with (files / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("reference", "prediction"), *((r.reference, r.prediction) for r in rows)])
    for eeg, noise in (("eeg.csv", "noise.csv"), ("eeg.jsonl", "noise.csv")):
        given = ("--eeg", files / eeg, "--control", files / noise, "--mode=free_running")
        assert main(command(*given, "--json", files / "a.json")) == 0
        assert json.loads((files / "a.json").read_text())["seeds_stated"] is False
    assert of(files)[1]["seeds_stated"] is True


def test_what_the_command_line_says_of_the_rows_is_in_the_result(files, refused):
    eeg = read_predictions(files / "eeg.jsonl").predictions
    write_predictions(files / "fewer.jsonl", {}, read_predictions(files / "noise.jsonl").predictions[3:])
    fewer = ["--eeg", files / "eeg.jsonl", "--control", files / "fewer.jsonl", "--json", files / "a.json"]
    assert "or judge what they share with --common (in Python common=True)" in refused(command(*fewer))
    assert main(command(*fewer, "--common")) != 2
    assert json.loads((files / "a.json").read_text())["n_rows"] == len(eeg) - 3
    texts = sorted({row.reference for row in eeg})
    with (files / "chosen.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("reference", "prediction"), *((t, texts[i - i % 2]) for i, t in enumerate(texts))])
    (files / "list.txt").write_text("\n".join([*texts, "one more"]))
    given = [
        "--eeg",
        files / "chosen.csv",
        "--mode=free_running",
        "--choices",
        files / "list.txt",
        "--json",
        files / "a.json",
    ]
    assert main(command(*given)) != 2
    found = json.loads((files / "a.json").read_text())
    assert found["provenance"]["statement"] == "--mode says that the predictions ran free"
    assert f"as stated, the decoder chose among {len(texts) + 1} sentences" in found["choices"]


def test_what_is_given_reaches_the_audit(files, monkeypatch, refused):
    asked = {}

    def recorded(rows, controls, **facts):
        asked.update(facts, rows=rows, controls=controls)
        raise UserError("asked")

    monkeypatch.setattr("eeg2text_jax.instrument.auditing.audit.audit", recorded)
    monkeypatch.setattr(audit_command, "neighbors_of_run", lambda one: one.path.name)
    monkeypatch.setattr(audit_command, "high_neighbors", lambda of: (f"neighbors of {of}",))
    eeg, noise = (read_predictions(files / f"{name}.jsonl").predictions for name in ("eeg", "noise"))
    write_predictions(files / "eeg.jsonl", {"recording": "fmri"}, eeg)
    write_predictions(files / "zero.jsonl", {}, changed(noise, eval_condition="zero"))
    texts = sorted({row.reference for row in eeg})
    for name, lines in (("train.txt", ["one text", "two"]), ("list.txt", texts)):
        (files / name).write_text("\n".join(lines))
    topics = [f"{text},SR,k{i % 3}" for i, text in enumerate(texts)]
    (files / "meta.csv").write_text("\n".join(["reference,task,kind", *topics]))
    proof = "no target text is given to it"
    given = ["--endpoint=rouge-1,words", "--margin=2.5", "--common", f"--proof={proof}", "--deciding=zero,noise",
             "--mode=free_running", "--groups=kind"]  # fmt: skip
    given += [f"--{name}={files / file}" for name, file in (
        ("train-text", "train.txt"), ("choices", "list.txt"), ("meta", "meta.csv"))]  # fmt: skip
    assert refused(command(*pair(files), files / "zero.jsonl", *given), alone=False).endswith("asked")
    options = SimpleNamespace(**asked)
    assert (options.name, options.margin, options.common, options.recording) == ("eeg", 2.5, True, "fmri")
    assert (options.training_text, options.proof) == (["one text", "two"], proof)
    assert [*options.deciding] == ["zero", "noise"]
    assert asked["endpoint"].label == "ROUGE-1 F"
    assert [one.label for one in asked["secondary"]] == ["words"]
    assert [*asked["choices"]] == texts
    assert asked["stated_by"] == "--mode says"
    assert asked["warnings"] == ("neighbors of eeg.jsonl",)
    assert asked["controls"].keys() == {"noise", "zero"}
    for rows in (asked["rows"], *asked["controls"].values()):
        assert {row.task for row in rows} == {"SR"}, "of every file"
    assert asked["groups"].keys() == {"kind"}


def test_a_plan_fixes_choices_beforehand_and_the_verdict_says_so(files, printed_by, refused):
    plan = files / "plan.toml"
    said = printed_by(command(*pair(files), "--endpoint=rouge-1", "--margin=2", f"--write-plan={plan}"))
    assert said == f"wrote {plan}; audit with --plan={plan}\n"
    assert "VERDICT" not in said, "a plan is written before results are looked at"
    out = printed_by(command(*pair(files), f"--plan={plan}", "--json", files / "a.json"))
    digest = hashlib.sha256(plan.read_bytes()).hexdigest()[:12]
    today = datetime.date.today()
    assert f"fixed by plan.toml of {today} (SHA-256 {digest}); endpoint ROUGE-1 F; margin 2 (default 1)" in out
    found = json.loads((files / "a.json").read_text())
    assert (found["metric"], found["margin"]) == ("ROUGE-1 F", 2)
    assert printed_by(command(*pair(files), f"--plan={plan}", "--margin=2")).splitlines()[-1] == out.splitlines()[-1]
    message = refused(command(*pair(files), f"--plan={plan}", "--margin=3"), alone=False)
    assert f"--margin=3.0: the plan {plan} has 2.0; leave --margin out" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("written = 2026-01-01\nmargins = 1\n", "has 'margins'; expected written, endpoint, margin"),
        ("margin = ", "cannot be read as a plan"),
        ("margin = -1\n", "--margin=-1: expected a number above 0"),
        ('margin = "much"\n', "margin is 'much'; expected a number above 0"),
        ('endpoint = "bleu-2"\n', "--endpoint=bleu-2: there is no such endpoint"),
        ("endpoint = 3\n", "endpoint is 3; expected text"),
        ('common = "yes"\n', "common is 'yes'; expected true or false"),
        ('mode = "forced"\n', "mode is 'forced'; expected text, one of teacher_forced, free_running"),
        (None, "cannot be read as a plan"),
    ],
)
def test_a_bad_plan_is_refused(files, refused, text, message):
    plan = files / "plan.toml"
    if text is not None:
        plan.write_text(text)
    said = refused(command(*pair(files), f"--plan={plan}", "--json", files / "a.json"), alone=False)
    assert message in said
    assert not (files / "a.json").exists()


def test_help_groups_its_options():
    shown = make_parser().format_help()
    groups = ["what is judged", "what is known of it", "how it is decided", "what is written"]
    places = [shown.index(f"\n{group}:") for group in groups]
    assert places == sorted(places)
    options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE)) - {"--help"}
    assert len(options) <= 20
    assert {"--eeg", "--control", "--endpoint", "--margin", "--plan", "--verbose"} <= options


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--html", "no/folder/a.html"], "there is no folder no/folder; make it first"),
        (["--margin", "0"], "expected a number above 0"),
        (["--margin", "nan"], "expected a number above 0"),
        (["--deciding", "noisy"], "'noisy' is not a control of these files; expected some of noise"),
    ],
)
def test_bad_flags_are_refused(files, refused, flags, message):
    assert message in refused(command(*pair(files), *flags), alone=False)


@pytest.mark.parametrize(
    "flag", ["--resamples=300", "--stratum-size=6", "--seed=1", "--candidates=x", "--secondary=wer"]
)
def test_options_that_are_gone_are_refused(files, refused, flag):
    option = flag.partition("=")[0]
    assert f"{option}: is gone since version 1.0; " in refused(command(*pair(files), flag), alone=False)


MUTATIONS = 60  # 500 were run once


def damaged(text, rng):
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
        status = main(command(f"--eeg={tmp_path / 'eeg.jsonl'}", f"--json={tmp_path / 'out.json'}", *controls))
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
