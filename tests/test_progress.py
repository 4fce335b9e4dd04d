"""Lines of progress where there is no terminal."""

import re

import pytest

from eeg2text_jax.progress import ProgressLine


@pytest.mark.parametrize(("note", "said"), [("", "took 0 s"), ("loss 2.1", "loss 2.1, took 0 s")])
def test_the_last_line_reads_as_a_sentence_with_and_without_a_note(note, said, capsys):
    with ProgressLine("decoding", 60) as progress:
        progress.advance(60, note)
    assert re.fullmatch(rf"decoding: 60/60  {said}\n", capsys.readouterr().out)
