"""The command line's own part: how commands end."""

import contextlib
import gc
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from eeg2text_jax.__main__ import HUGE_PAGES
from eeg2text_jax.base.packages import hidden
from eeg2text_jax.commands import cli


def at_once() -> None:
    signal.raise_signal(signal.SIGTERM)


def while_collecting_garbage() -> None:
    """Where an exception is printed and forgotten."""

    def callback(*_: object) -> None:
        gc.callbacks.remove(callback)
        signal.raise_signal(signal.SIGTERM)

    gc.callbacks.append(callback)
    while callback in gc.callbacks:  # `collect` does nothing while another thread collects
        gc.collect()


def where_it_is_discarded() -> None:
    with contextlib.suppress(BaseException):
        at_once()


@pytest.mark.parametrize("told", [at_once, while_collecting_garbage, where_it_is_discarded])
def test_sigterm_ends_a_command_wherever_it_comes(told, monkeypatch, printed_by):
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]
    done = []

    def command(_: list[str]) -> int:
        told()
        time.sleep(5)
        done.append("everything")
        return 0

    monkeypatch.setattr("eeg2text_jax.commands.score.main", command)
    monkeypatch.setattr("eeg2text_jax.commands.run.train", command)
    said = printed_by(["score"], 143, to="err")
    assert said == "eeg2text score: ended by SIGTERM; start the same command again.\n"
    said = printed_by(["train"], 143, to="err")
    assert said == "eeg2text train: ended by SIGTERM; the same command resumes from what is finished.\n"
    assert done == []
    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]


@pytest.mark.parametrize(("told", "after"), [(at_once, []), (lambda: None, ["Event loop is closed"])])
def test_what_threads_read_after_sigterm_is_no_error(told, after, monkeypatch, printed_by):
    """tensorstore's callbacks find the event loop closed; other errors in them are printed as ever."""
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: seen.append(str(lost.exc_value)))

    def command(_: list[str]) -> int:
        told()
        return 0

    monkeypatch.setattr("eeg2text_jax.commands.score.main", command)
    printed_by(["score"], 0 if after else 143, to="err")
    for error in (RuntimeError("Event loop is closed"), RuntimeError("another"), ValueError("Event loop is closed")):
        sys.unraisablehook(types.SimpleNamespace(exc_value=error))
    assert seen == [*after, "another", "Event loop is closed"]


ANEW = """
import os, sys
from eeg2text_jax.__main__ import use_huge_pages
use_huge_pages()
print(os.environ["GLIBC_TUNABLES"], os.getpid(), sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's tunables")
@pytest.mark.parametrize("given", ["", "glibc.malloc.arena_max=2", "glibc.malloc.hugetlb=0"])
def test_huge_pages_are_asked_for_unless_the_user_chose(given):
    """In the same process, with its arguments."""
    command = [sys.executable, "-c", ANEW, "run", "--config=a b.py"]
    environment = {**os.environ, "GLIBC_TUNABLES": given}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    said, _ = process.communicate(timeout=60)
    expected = {"": HUGE_PAGES, "glibc.malloc.hugetlb=0": given}.get(given, f"{given}:{HUGE_PAGES}")
    assert said == f"{expected} {process.pid} ['run', '--config=a b.py']\n"


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_printed(flag, printed_by):
    assert printed_by([flag]) == f"eeg2text {cli.__version__}\n"


@pytest.mark.slow
def test_a_name_that_is_not_ascii_needs_no_locale(tmp_path):
    """As in a bare container; the message has the name as it was given."""
    command = [sys.executable, "-m", "eeg2text_jax", "export", f"--workdir={tmp_path}/日本é", f"--out={tmp_path}/out"]
    environment = {"LC_ALL": "C", "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[1])}
    ended = subprocess.run(command, env=environment, capture_output=True, cwd=tmp_path)
    assert ended.returncode == 2
    (said,) = ended.stderr.decode().splitlines()
    assert f"{tmp_path}/日本é" in said


def test_a_misspelt_command_gets_the_nearest_one(refused):
    assert "did you mean 'score'?" in refused(["scrore"])
    assert "there are run, prepare" in refused(["xyzzy"])


def test_what_is_deprecated_works_with_a_warning_and_what_is_gone_says_what_to_do(monkeypatch, refused, capsys):
    for written, advice in cli.RETIRED.items():
        name, option = written.split()
        assert refused([name, f"{option}=1"]) == f"eeg2text {name}: {option}: is gone since version 1.0; {advice}."
        assert not re.search(rf"^ *{option}\b", printed_help(name, capsys), re.MULTILINE), written
    for old, new in cli.DEPRECATED.items():
        assert old not in cli.COMMANDS
        monkeypatch.setattr(cli, "command", {new: lambda given: 0 if given == ["runs/a"] else 1}.get)
        assert cli.main([old, "runs/a"]) == 0
        warning = f"eeg2text {old}: is deprecated and goes with version 2.0; write `eeg2text {new}`.\n"
        assert capsys.readouterr().err == warning


def printed_help(name, capsys) -> str:
    with contextlib.suppress(SystemExit):
        cli.command(name)(["--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run", "the same command resumes from what is finished.\n"),
        ("run --dry-run", "start the same command again.\n"),  # has made nothing
        ("score", "start the same command again.\n"),
    ],
)
def test_an_interruption_says_what_the_same_command_does(line, said, monkeypatch, printed_by):
    def interrupted(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "command", lambda _: interrupted)
    name = line.partition(" ")[0]
    assert printed_by(line.split(), 130, to="err") == f"eeg2text {name}: interrupted; {said}"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("run --config=demo --workdir=", "--workdir= is empty"),
        ("run --config=demo --workdir=a --workdir=b", "--workdir is given twice"),
        ("run --config=demo --workdir a --workdir b", "--workdir is given twice"),
        ("run --config=demo --workdir=new --folds=1", "--folds is '1'"),
        ("run --config=demo --workdir=new --folds=0", "--folds is '0'"),
        ("export --workdir= --out=new", "--workdir= is empty"),
        ("run --config=demo --workdir=new --folds=", "--folds= is empty"),
        ("score number.py --metrics=", "--metrics= is empty"),
        ("audit --eeg=number.py --deciding=", "--deciding= is empty"),
        ("audit --eeg=number.py --write-plan=no/plan.toml", "there is no folder no; make it first"),
        ("run --config=leaves.py --workdir=new --config.data.source=", "leaves.py: cannot be loaded"),
        ("train --config=nothing.py --workdir=new", "nothing.py: has no function get_config"),
        ("split . --method=a", ".: is a folder; expected a data file"),
        ("split data.h5 --seed=-1", "--seed=-1: expected"),
        ("split data.h5 --ratio=a,b,c", "--ratio=a,b,c: expected"),
        ("export-data number.py --out=new.csv", "--out=new.csv: the output is a Parquet file"),
        ("records . --out=new --metric=wer", "--metric=wer: names the score for --dataset"),
        ("train --config=number.py --workdir=new", "returns 3 (int); expected a ConfigDict"),
        ("train --config=leaves.py --workdir=new", "cannot be loaded (SystemExit: 3)"),
    ],
)
def test_refused_before_anything_is_left(line, why, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing.py").write_text("x = 1\n")
    (tmp_path / "number.py").write_text("def get_config():\n    return 3\n")
    (tmp_path / "leaves.py").write_text("import sys\n\n\ndef get_config():\n    sys.exit(3)\n")
    said = refused(line.split())
    assert why in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["leaves.py", "nothing.py", "number.py"]


@pytest.mark.parametrize("line", [["score", ""], ["score", "a.jsonl", "--metrics", ""], ["run", "--workdir", ""]])
def test_an_empty_argument_is_refused(line, refused):
    assert "is empty; give it a value, or leave it out." in refused(line)


COMPILES = """
import sys, threading, time
from eeg2text_jax.commands import cli
begun = threading.Event()
namespace = {"time": time, "begun": begun}
source = "def compiles(): begun.wait(); print('compiling', flush=True); time.sleep(600)"
exec(compile(source, "jax/_src/compiler.py", "exec"), namespace)
def work(argv):
    compiler = threading.Thread(target=namespace["compiles"])
    compiler.start()
    try:
        begun.set()
        while True:  # a signal that comes just before a long sleep would not be handled until its end
            time.sleep(0.05)
    finally:
        WAITS
cli.command, cli.COMPILING = lambda name: work, SECONDS
sys.exit(cli.main(["COMMAND"]))
"""
WHILE_COMPILING = "eeg2text {}: ended by SIGTERM while compiling; {}\n"
RESUMES, AGAIN = "the same command resumes from what is finished.", "start the same command again."


@pytest.mark.parametrize(
    ("name", "waits", "seconds", "says"),
    [
        ("run", "compiler.join()", 0.5, WHILE_COMPILING.format("run", RESUMES)),
        ("run", "pass", 6.0, f"eeg2text run: ended by SIGTERM; {RESUMES}\n"),  # as outside of tests
        ("preflight", "compiler.join()", 0.5, WHILE_COMPILING.format("preflight", AGAIN)),
        ("preflight", "compiler.join()", 0.5, None),  # nobody reads its messages
    ],
)
def test_sigterm_ends_a_compilation(name, waits, seconds, says):
    """With one sentence, whether the command waits for the compiler or Python does after the command's end."""
    code = COMPILES.replace("WAITS", waits).replace("SECONDS", str(seconds)).replace("COMMAND", name)
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True) as run:
        assert run.stdout.readline() == "compiling\n"
        if says is None:
            run.stderr.close()
        run.terminate()
        try:
            assert run.wait(60) == 143
        finally:
            run.kill()
        assert says is None or run.stderr.read() == says


def test_commands_that_train_import_nothing_that_they_do_not_use():
    """PyTorch, S3's client and SciPy's signal processing took half of the time until a run began."""
    code = """
import sys
from eeg2text_jax.base.packages import hide_torch
hide_torch()
import eeg2text_jax.commands.run, eeg2text_jax.training.loop
print(sorted({"torch", "boto3", "scipy.signal"} & set(sys.modules)))
import boto3, torch
from transformers import BartConfig
print(BartConfig().d_model)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n1024\n", 0), done.stderr
    assert "PyTorch was not found" not in done.stderr


def test_a_hidden_package_is_found_again_and_one_that_is_loaded_stays(monkeypatch):
    loaded, name = types.ModuleType("loaded"), "wave"
    monkeypatch.setitem(sys.modules, "loaded", loaded)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with hidden(name, "loaded"):
        assert importlib.util.find_spec(name) is None
        assert importlib.import_module("loaded") is loaded
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
    assert importlib.import_module(name).__name__ == name
