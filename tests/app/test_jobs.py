"""Jobs of the page: read and judged in a process with limits, hostile files one sentence each, nothing left."""

import gzip
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.app import _worker, interface
from eeg2text_jax.instrument.app._worker import titles
from eeg2text_jax.instrument.app.interface import field_page, field_table, visitor_of
from eeg2text_testing.uploads import table, zipped

SIDES = {"eeg": (0.6, 0), "control": (0.0, 0)}  # share of right words, and seed
WORDS = ["river", "stone", "house", "green", "walks", "under", "light", "music", "paper", "winter", "bread", "north"]


def pairs(right: float, seed: int = 0, n: int = 48) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    references = [[rng.choice(WORDS) for _ in range(8)] for _ in range(n)]
    outputs = [[w if rng.random() < right else rng.choice(WORDS) for w in words] for words in references]
    return [(" ".join(r), " ".join(o)) for r, o in zip(references, outputs, strict=True)]


@pytest.fixture
def upload(tmp_path):
    def upload(data: bytes, name: str) -> str:
        (tmp_path / name).write_bytes(data)
        return str(tmp_path / name)

    return upload


def answer(do: str, uploads: dict, seconds: float | None = None, **request) -> interface.Answer:
    *states, last = interface.run(do, uploads, request, seconds)
    assert all(isinstance(state, interface.Progress) for state in states)
    return last


def test_two_files_get_a_verdict_and_a_report_that_names_no_visitor(upload, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    hostile = [(f"{r} <script>alert(1)</script>", f"{p} <img src=x onerror=alert(2)>") for r, p in pairs(0.6)]
    uploads = {
        "eeg": upload(table(hostile), "<b>my secret$(touch x).csv"),
        "control": upload(table([(h[0], c[1]) for h, c in zip(hostile, pairs(0.0, 0), strict=True)]), "noise.csv"),
    }
    found = answer("judge", uploads, mode="free_running")
    assert found.content["verdict"].startswith("uses EEG"), found.content
    assert found.content["color"] == "good"
    shown = interface.verdict(found.content)
    assert "Origin of the outputs: stated: the visitor states" in shown
    assert "<ul>" in shown
    assert "--" not in shown.split("</div>")[0]
    assert interface.OPTIONS not in shown
    unstated = answer("judge", uploads)
    assert unstated.content["verdict"].startswith(interface.UNPROVEN)
    assert f"can be stated above, under <i>{interface.OPTIONS}</i>" in interface.verdict(unstated.content)
    assert found.report.lower().startswith("<!doctype html>")
    assert hashlib.sha256(Path(uploads["eeg"]).read_bytes()).hexdigest() in found.report
    for text in (found.report, interface.verdict(found.content), interface.report(found.report)):
        assert "secret" not in text
        assert str(tmp_path) not in text
        assert not re.search(r"<(script>alert|img src=x)", text)
    assert not any((tmp_path / "temporary").iterdir())


def test_what_was_read_is_shown_and_columns_can_be_chosen(upload):
    rows = [(r, p, f"{p} again") for r, p in pairs(0.5)]
    uploads = {"eeg": upload(table(rows, ("truth", "generated", "output")), "file.csv")}
    refused = answer("look", uploads).content
    assert "several columns may be the prediction (generated, output)" in refused["refused"]
    assert refused["columns"] == ["truth", "generated", "output"]
    found = answer("look", uploads, columns=["truth", "output"]).content
    assert found["rows"] == {"eeg": 48}
    shown, texts = [e[-1] for e in found["examples"]], [row[2] for row in rows]
    assert (shown[:5], shown[-2:], len(shown)) == (texts[:5], texts[-2:], 10)
    page = interface.reading(found)
    assert "Predictions: layout F (CSV; reference &#x27;truth&#x27;, prediction &#x27;output&#x27;" in page
    assert page.count("<tr>") == 11
    assert "<th>condition</th>" not in page  # none is known


def test_the_page_says_what_the_command_says(upload, capsys):
    path = upload(table(pairs(0.5)), "eeg")
    said = answer("look", {"eeg": path}).content["said"]
    assert main(["read", path]) == 0
    printed = capsys.readouterr().out
    for line in said:
        assert line.removeprefix("eeg") in printed
    assert "judged: 'eeg' (48 rows) against other sentences' references" in printed
    assert printed.count("\n") == len(said) + 1 + 10
    for part in ("texts:", "mode: unknown (48); say it with --mode", "time: not known", "groups: none"):
        assert part in printed
    assert "--" not in interface.reading({"said": said, "examples": []}).partition("<div class")[2]


def test_columns_of_a_table_without_names_are_chosen_by_name_or_number(upload):
    uploads = {"eeg": upload(table(pairs(0.5), ("what", "said")), "file.csv")}
    refused = answer("look", uploads).content
    assert refused["columns"] == ["what", "said", "column 1", "column 2"]
    assert "choose the columns under" in interface.refusal(refused)
    assert answer("look", uploads, columns=["what", "said"]).content["rows"] == {"eeg": 48}
    assert answer("look", uploads, columns=["column 1", "column 2"]).content["rows"] == {"eeg": 49}


def test_the_page_judges_as_the_command_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    topics = {name: [(r, p, f"topic {i % 3}") for i, (r, p) in enumerate(pairs(*of))] for name, of in SIDES.items()}
    for name, rows in topics.items():
        (tmp_path / name).write_bytes(table(rows, ("reference", "prediction", "topic")))
        (tmp_path / f"{name}.csv").write_bytes((tmp_path / name).read_bytes())
    proof = "decoded live before anybody knew the sentence"
    files = ["--eeg=eeg.csv", "--control=control.csv"]
    assert main(["audit", *files, "--mode=free_running", f"--proof={proof}", "--json=said.json"]) == 0
    said, found = json.loads(Path("said.json").read_text()), _worker.judge({"mode": "free_running", "proof": proof})
    assert found["verdict"] == said["headline"] == "uses EEG: of the sentence"
    assert found["limits"][0] == f"Origin of the outputs: stated: the authors state: {proof}."
    (heads, *lines), (effects, *comparisons) = found["tables"]
    assert [line[:2] for line in lines] == [("eeg", "48"), ("control", "48")]
    score = f"{said['conditions'][1]['content']['scores'][0]:.2f}"
    assert (heads[2], lines[1][2]) == ("score", score)
    assert comparisons[0][:2] == ("control", f"{said['comparisons'][0]['contrast']['effect']:+.2f}")
    assert effects[1] == "content difference"
    stated = _worker.judge({"mode": "free_running"})["limits"][0]
    assert stated == "Origin of the outputs: stated: the visitor states that the predictions ran free."
    fields = {"subject": "S", "task": "T", "eval_condition": "eeg", "train_condition": "eeg", "mode": "free_running"}
    for name, rows in topics.items():
        about = [{"sample_id": f"{i}", "sentence_id": f"{i}", "n_words": 8, "seed": 0, **fields} for i in range(48)]
        lines = [a | {"reference": r, "prediction": p} for a, (r, p, _) in zip(about, rows, strict=True)]
        lines = [a | {"eval_condition": "noise"} if name == "control" else a for a in lines][
            : 48 - 4 * (name == "control")
        ]
        written = [json.dumps({"header": {"recording": "meg"}}), *map(json.dumps, lines)]
        (tmp_path / name).write_text("\n".join(written))
    looked = _worker.look({})
    assert looked["rows"] == {"eeg": 48, "control": 44}
    assert [example[0] for example in looked["examples"]] == ["eeg"] * 10 + ["control"] * 10
    assert looked["examples"][10][-1] == topics["control"][0][1]
    (tmp_path / "control").unlink()
    assert _worker.judge({})["verdict"].startswith("content above its null")
    assert "MEG" in Path("report.html").read_text("utf8").partition("<details")[0]


def test_a_file_of_as_many_rows_as_the_page_takes_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "eeg").write_bytes(table(pairs(0.5)))
    monkeypatch.setattr(_worker, "ROWS", 48)
    assert _worker.look({})["rows"] == {"eeg": 48}
    monkeypatch.setattr(_worker, "ROWS", 47)
    with pytest.raises(UserError, match="48 rows; this page takes 47 at most"):
        _worker.look({})


def test_references_may_be_a_file_of_their_own(upload):
    references, outputs = (("\n".join(side) + "\n").encode() for side in zip(*pairs(0.5), strict=True))
    uploads = {"eeg": upload(outputs, "a"), "references": upload(references, "b")}
    assert answer("look", uploads).content["rows"] == {"eeg": 48}
    uploads.pop("references")
    assert "give its references" in answer("look", uploads).content["refused"]
    page = interface.refusal(answer("look", uploads).content)
    assert "Predictions, line 2: " in page or "Predictions: " in page
    assert "add its references under" in page


@pytest.mark.parametrize(
    ("said", "shown_as"),
    [
        ("eeg: no column is known; name them with --columns=REFERENCE,PREDICTION.", "choose the columns under"),
        ("eeg: the reference is 'a b'; name it with --columns='a b,PREDICTION'.", "choose the columns under"),
        ("control, line 3: a header; name the columns with --columns=REFERENCE,PREDICTION and say whether this is a "
         "header (--format=F) or a sample (--format=H).", "Control, line 3: a header"),
        ("eeg: has references of its own (a, b); leave --reference out.", "remove the file of references"),
        ("eeg: no column has a known name; the first are 'a | b'; name two with --columns=REFERENCE,PREDICTION, such "
         "as --columns=a,b if line 1 is a header, or --columns=1,2, with --format=H, if line 1 is a sample.",
         "choose the columns under"),
        ("eeg: its 'id' and 'trial' hold the same values in another order; say --id=trial,id to join by them, or "
         "--id=rows to join row by row.", "say with the command `eeg2text audit` how to join them"),
        ("eeg: the pairs stand in several parts of the file (2 blocks: ...); --block=N takes one, "
         "--block=last the last, --block=all all as of one system.", "choose one with the command `eeg2text audit`"),
        ("eeg: several labels may be meant ('a', 'b'); name two with --labels=TRUE,PREDICTED.", "may be meant"),
        ("eeg: ids; give both with ids, or say --format=P if the ids are part of the texts.",
         "Predictions: ids; give both"),
    ],
)  # fmt: skip
def test_refusals_speak_of_the_page(said, shown_as):
    page = interface.on_page(said)
    assert shown_as in page
    assert "--" not in page
    assert page.endswith(".")


HOSTILE = {
    # Made where they are used: packing them takes seconds, and every process of the suite reads this file.
    "gzip bomb": (lambda: gzip.compress(b"a,b\n" + b"a b,c d\n" * 34_000_000, 1), "unpacks to more than 256 MiB"),
    "zip bomb": (lambda: zipped(b"\0" * 270_000_000), "unpacks to more than 256 MiB"),
    "half a gzip": (gzip.compress(table(pairs(0.5)))[:60], "cannot be unpacked"),
    "zip": (zipped(b"a,b", "a.csv", "b.csv"), "a zip archive of 2 files"),
    "rankings": (b'{"header": {"candidates": {"all": []}}}\n', "a file of rankings"),
    "no Excel": (zipped(b"<x>"), "Excel file|needs openpyxl"),
    "random bytes": (random.Random(0).randbytes(5000), "not UTF-8"),
    "deep JSON": (b"[" * 100_000, "not JSON|JSON"),
    "one line": (b"x" * 5_000_000, "at least two columns"),
    "nothing": (b" \n", "the file is empty"),
}


@pytest.mark.quick("rankings", "gzip bomb", "random bytes")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_sentence(upload, name):
    data, message = HOSTILE[name]
    data = data() if callable(data) else data
    found = answer("look", {"eeg": upload(data, "../..".replace("/", "_"))}).content
    assert re.search(message, found["refused"]), found
    assert "\n" not in found["refused"]
    assert "Traceback" not in found["refused"]


def test_limits_of_rows_bytes_and_time_are_sentences(upload, monkeypatch):
    many = {"eeg": upload(table(pairs(0.5)), "many.csv")}
    monkeypatch.setattr(interface, "PATIENCE", 1000)
    more = {"eeg": upload(table(pairs(0.5) * 100), "more.csv")}
    assert "takes more than 1 s" in answer("judge", more, seconds=1).content["refused"]
    monkeypatch.setattr(interface, "PATIENCE", 0)
    assert "takes more than 60 s" in answer("look", many).content["refused"]
    monkeypatch.setattr(interface, "BYTES", 1000)
    assert "this page takes files of" in answer("look", many).content["refused"]
    assert "upload the file again" in answer("look", {"eeg": "/nowhere/at/all"}).content["refused"]
    assert "add one first" in answer("look", {"eeg": None}).content["refused"]


def test_a_visitor_with_many_jobs_waits_for_all_others_after_each(monkeypatch):
    """The jobs of one visitor do not come before those of others who asked later; a third is refused at once."""
    turns, begun = interface.Turns(), []
    monkeypatch.setattr(interface, "_TURNS", turns)
    monkeypatch.setattr(interface, "POLL", 0)

    def work(folder, request, limit):
        begun.append(request["name"])
        yield interface.Progress("", 0)
        yield interface.Answer({"done": request["name"]})

    monkeypatch.setattr(interface, "_work", work)
    order = ("greedy", "greedy", "greedy", "second", "second", "third")
    uploads = {"eeg": __file__}
    asked = [interface.run("look", uploads, {"name": f"{name} {i}"}, visitor=name) for i, name in enumerate(order)]
    answers = {}
    for _ in range(30):
        for i, job in enumerate(asked):
            state = next(job, None)
            if isinstance(state, interface.Answer):
                answers[i] = state.content
    assert begun == ["greedy 0", "second 3", "third 5", "greedy 1", "second 4"]
    assert "2 jobs of yours run or wait already" in answers.pop(2)["refused"]
    assert len(answers) == 5


def test_a_visitor_who_left_holds_no_turn(monkeypatch):
    turns = interface.Turns()
    clock = [0.0]
    monkeypatch.setattr(interface.time, "monotonic", lambda: clock[0])
    stuck, gone, waits = (turns.enter(name) for name in "abc")
    assert turns.begins(stuck, 60)
    clock[0] = interface.GONE + 1  # nobody asked for `gone` since
    assert not turns.begins(waits, 60)
    clock[0] = 60 + interface.GONE - 1
    assert not turns.begins(waits, 60)  # `stuck` still has its time
    clock[0] += 2
    assert turns.begins(waits, 60)
    turns.leave(stuck)
    assert not turns.begins(gone, 60)  # but it may wait again
    turns.leave(waits)
    assert turns.begins(gone, 60)


def test_a_job_that_sleeps_is_killed_though_nobody_asks(monkeypatch):
    """Its processor time is small, and its visitor closed the page: the clock ends it."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
    monkeypatch.setattr(interface, "_start", lambda folder: process)
    job = interface.run("look", {"eeg": __file__}, {}, 1)
    assert isinstance(next(job), interface.Progress)
    assert process.wait(timeout=20) == -9
    *_, last = job
    assert "takes more than 1 s" in last.content["refused"]


def test_a_visitor_is_an_address_or_a_network_of_ipv6():
    def visit(host):
        return SimpleNamespace(client=SimpleNamespace(host=host))

    assert visitor_of(visit("192.0.2.1")) == "192.0.2.1"
    assert visitor_of(visit("2001:db8::1")) == visitor_of(visit("2001:db8::ffff:2")) == "2001:db8::/64"
    assert visitor_of(visit("::ffff:192.0.2.1")) == "192.0.2.1" != visitor_of(visit("::ffff:192.0.2.2"))
    assert visitor_of(visit("testclient")) == visitor_of(SimpleNamespace(client=None)) == ""


def test_a_worker_that_dies_is_one_sentence_and_an_abandoned_one_is_ended(upload, monkeypatch):
    uploads = {"eeg": upload(table(pairs(0.5)), "file.csv")}
    started = []
    start = interface._start
    monkeypatch.setattr(interface, "_start", lambda folder: started.append(start(folder)) or started[-1])
    abandoned = interface.run("look", uploads, {})
    assert isinstance(next(abandoned), interface.Progress)
    abandoned.close()
    assert started[0].returncode is not None
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert "a fault of the program" in answer("look", uploads).content["refused"]


def test_the_names_of_columns_are_told_for_tables_and_json(tmp_path):
    path = tmp_path / "file"
    for text, names in [
        ("Truth;Pred\na;b\n", ["Truth", "Pred"]),
        (json.dumps([{"a": "x", "b": "y"}]), ["a", "b"]),
        ('{"a": "x", "b": "y"}\n' * 2, ["a", "b"]),
        ("target string: a\npredicted string: b\n", []),
        ("[1, 2", []),
    ]:
        path.write_text(text)
        assert titles(path) == names


def test_the_field_table_is_that_of_the_page():
    headings, rows = field_table(field_page().read_text("utf8"))
    assert headings[:2] == ["set", "verdict"]
    assert len(rows) > 50
    assert {type(row[headings.index("content")]) for row in rows} <= {float, type(None)}
    assert field_table("no table") == ([], [])


def test_no_jax_is_imported_by_the_page_or_its_worker(upload):
    code = (
        "import sys, eeg2text_jax.instrument.app._worker as w;"
        "import eeg2text_jax.instrument.app.interface, eeg2text_jax.commands.shell, json;"
        "w.judge({'mode': 'free_running'}); print([m for m in ('jax', 'flax', 'torch') if m in sys.modules])"
    )
    folder = Path(upload(table(pairs(0.5)), "eeg")).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
