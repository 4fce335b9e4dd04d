"""Lines of progress where there is no terminal."""

import re

import pytest

from eeg2text_jax.base.progress import ProgressLine


def test_the_forecast_leaves_out_the_first_units_which_compile(monkeypatch, capsys):
    """100 s of compilation, then a second a unit."""
    now = iter([0.0, 100.0, 100.0, *(t for unit in range(1, 60) for t in [100.0 + unit])])
    monkeypatch.setattr("eeg2text_jax.base.progress.time.monotonic", lambda: next(now))
    with ProgressLine("training", 60) as progress:
        for _ in range(60):
            progress.advance(1)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "training: 1/60  "
    assert said[1] == "training: 16/60  44 s left"
    assert said[-1] == "training: 60/60  took 159 s"


@pytest.mark.parametrize(("note", "said"), [("", "took 0 s"), ("loss 2.1", "loss 2.1, took 0 s")])
def test_the_last_line_reads_as_a_sentence_with_and_without_a_note(note, said, capsys):
    with ProgressLine("decoding", 60) as progress:
        progress.advance(60, note)
    assert re.fullmatch(rf"decoding: 60/60  {said}\n", capsys.readouterr().out)
