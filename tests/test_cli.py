"""The command line's own part: how commands end."""

import gc
import os
import signal
import subprocess
import sys
import time

import pytest

from eeg2text_jax import cli
from eeg2text_jax.cpu import HUGE_PAGES


def at_once() -> None:
    signal.raise_signal(signal.SIGTERM)


def while_collecting_garbage() -> None:
    """Where an exception is printed and forgotten."""

    def callback(*_: object) -> None:
        gc.callbacks.remove(callback)
        signal.raise_signal(signal.SIGTERM)

    gc.callbacks.append(callback)
    gc.collect()


@pytest.mark.parametrize("told", [at_once, while_collecting_garbage])
def test_sigterm_ends_a_command_wherever_it_comes(told, monkeypatch, capsys):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)], sys.unraisablehook
    done = []

    def command(_: list[str]) -> int:
        told()
        time.sleep(5)
        done.append("everything")
        return 0

    monkeypatch.setattr("eeg2text_jax.commands.score.main", command)
    assert cli.main(["score"]) == 143
    assert done == []
    assert capsys.readouterr().err == (
        "eeg2text score: ended by SIGTERM; the same command goes on from what is finished.\n"
    )
    after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)], sys.unraisablehook
    assert before == after


ANEW = """
import os, sys
from eeg2text_jax.cpu import use_huge_pages
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
