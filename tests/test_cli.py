"""The command line's own part: how commands end."""

import gc
import signal
import sys
import time

import pytest

from eeg2text_jax import cli


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
