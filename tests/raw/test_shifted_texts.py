"""Texts that would go to the wrong trials are refused, not written."""

import re
from pathlib import Path

import pytest
from tiny_run import data_spec

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.raw.find import Event, RawFile, RawSpec
from eeg2text_jax.data.raw.sentences import Texts, readings

FILE = RawFile(Path("S1.edf"), "S1", "NR")


def read(path, table, begins, *, begin="101", file=FILE):
    path.write_text(table)
    texts = Texts(path, "text")
    marks = [(float(i), code) for i, code in enumerate(begins)] + [(i + 0.5, "102") for i in range(len(begins))]
    events = [Event(onset, 0.0, (code,), {}) for onset, code in sorted(marks)]
    found, _ = readings(file, events, (), data_spec(RawSpec, "raw", begin=begin, end="102"), texts)
    texts.check_codes()
    return [reading.text for reading in found]


def table(column, numbers):
    return f"{column}\ttext\n" + "".join(f"{number}\ttext {place}\n" for place, number in enumerate(numbers))


def test_trials_that_fit_are_read(tmp_path):
    path = tmp_path / "texts.tsv"
    assert read(path, table("trial", [1, 2, 3]), ["101"] * 3) == ["text 0", "text 1", "text 2"]
    for nothing in ("n/a", "", "  ", "N/A", "NaN"):  # as of practice: no text, and yet a trial
        rows = f"1\t{nothing}\n2\tone\n3\ttwo\n4\t{nothing}\n5\tthree\n"
        assert read(path, f"trial\ttext\n{rows}", ["101"] * 5) == ["one", "two", "three"]
    assert read(path, table("code", [7, 8, 9]), ["S  8", "S  7"], begin="S*") == ["text 1", "text 0"]
    assert read(path, table("code", [7, 8, 9]), ["S  9", "S  8"], begin="S*") == ["text 2", "text 1"]
    assert read(path, table("code", [7, 8, 9]), ["S 10", "S  8", "S  9", "S 11"], begin="S*") == ["text 1", "text 2"]


@pytest.mark.parametrize(
    ("numbers", "trials", "message"),
    [
        ([0, 1, 2], 3, "has a trial 0, but trials count from 1 in each recording"),
        ([1, 2, 3], 6, "has 3 texts for S1.edf, in which 6 events begin a sentence.*n/a.*data.raw.skip"),
        ([1, 2, 3, 4, 5, 6], 3, "has 6 texts for S1.edf, in which 3 .*columns `subject` and `run`"),
    ],
)
def test_trials_that_differ_are_refused(numbers, trials, message, tmp_path):
    with pytest.raises(UserError) as error:
        read(tmp_path / "texts.tsv", table("trial", numbers), ["101"] * trials)
    assert re.search(message, str(error.value))


def test_codes_that_count_from_elsewhere_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"codes 0 to 2, and the events have 1 to 3: texts would be shifted by 1"):
        read(tmp_path / "texts.tsv", table("code", [0, 1, 2]), ["S  1", "S  3", "S  2"], begin="S*")


def test_every_code_of_an_event_may_count_from_elsewhere(tmp_path):
    """As the column `value` of a table of events, which stands behind `trial_type`."""
    (tmp_path / "texts.tsv").write_text(table("code", [0, 1, 2]))
    texts = Texts(tmp_path / "texts.tsv", "text")
    found = [texts.find(FILE, trial, ("sentence", str(trial))) for trial in (1, 2, 3)]
    assert found == ["text 1", "text 2", ""]
    with pytest.raises(UserError, match=r"codes 0 to 2, and the events have 1 to 3: texts would be shifted by 1"):
        texts.check_codes()
