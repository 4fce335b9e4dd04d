"""Texts are bound to trials by number, code or how long characters are shown; a table that does not fit is refused."""

import dataclasses
import re
import tarfile
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from held import FILE, event, sentences_of

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.raw.find import RawFile, read_events
from eeg2text_jax.data.raw.sentences import Texts
from eeg2text_jax.training.configuration import load_config

SHARED = Path(__file__).parents[3] / "shared/data/chisco2_ds006317_metadata.tar.xz"
RUN = RawFile(Path("sub-01_run-01.edf"), "01", "para1", "01", "01")


def book(path, texts, head=()):
    workbook = openpyxl.Workbook()
    for row in [*([head] if head else []), *([n, text] for n, text in enumerate(texts, 1))]:
        workbook.active.append(row)
    workbook.save(path)
    return path


def read(path, lengths, extra=0, column="text"):
    begin = np.cumsum([0.0, *[0.4 * n + 3 for n in lengths[:-1]]])
    events = []
    for b, n in zip(begin, lengths, strict=True):
        events += [event(b, "1"), event(b + 0.4 * (n + extra) + 0.02, "2")]
    fields = {"begin": "1", "end": "2", "seconds_per_character": 0.4, "text": column}
    return [r.text for r in sentences_of(events, ("onset",), Texts(path, column), RUN, **fields)[0]]


@pytest.fixture
def lengths():
    return np.random.default_rng(0).integers(4, 16, 60).tolist()


@pytest.mark.parametrize("extra", [0, 1, 2])
def test_texts_that_fit_are_taken_row_by_row(tmp_path, lengths, extra):
    texts = ["字" * n for n in lengths]
    assert read(book(tmp_path / "text1-1.xlsx", texts), lengths, extra) == texts
    assert read(book(tmp_path / "named.xlsx", texts, ("n", "句子")), lengths, extra, "句子") == texts
    book(tmp_path / "text1-2.xlsx", texts[::-1])
    assert read(tmp_path / "text1-{run}.xlsx", lengths, extra) == texts


@pytest.mark.parametrize("by", [1, -2])
def test_a_shifted_table_is_refused_by_name(tmp_path, lengths, by):
    path = book(tmp_path / "texts.xlsx", ["字" * n for n in np.roll(lengths, by)])
    with pytest.raises(UserError, match=re.escape(f"shifted by {-by:+d} rows")):
        read(path, lengths)


def test_the_table_of_another_run_is_refused(tmp_path, lengths):
    other = np.random.default_rng(1).permutation(lengths)
    with pytest.raises(UserError, match="is it the table of another run"):
        read(book(tmp_path / "texts.xlsx", ["字" * n for n in other]), lengths)
    texts = ["字" * n for n in other[:9]]
    assert read(book(tmp_path / "few.xlsx", texts), lengths[:9]) == texts, "nine may differ by chance"
    with pytest.raises(UserError, match="is it the table of another run"):
        read(book(tmp_path / "ten.xlsx", ["字" * n for n in other[:10]]), lengths[:10])


def test_tables_without_texts_are_refused(tmp_path, lengths):
    (tmp_path / "bad.xlsx").write_bytes(b"no workbook")
    for path, message in (
        (tmp_path / "bad.xlsx", "cannot be read as an Excel file"),
        (book(tmp_path / "empty.xlsx", []), "expected a text in each row"),
        (tmp_path / "none-{run}.xlsx", "there is no such file"),
    ):
        with pytest.raises(UserError, match=message):
            read(path, lengths)


@pytest.mark.skipif(not SHARED.exists(), reason="the public event files are not here")
@pytest.mark.parametrize("phase", ["reading", "inner"])
def test_the_events_of_all_recordings_of_cofett_fit_invented_texts(tmp_path, phase):
    with tarfile.open(SHARED) as archive:
        members = [m for m in archive.getmembers() if m.name.endswith("_events.tsv")]
        archive.extractall(tmp_path, members, filter="data")
    paths, trials, shown = sorted(tmp_path.rglob("*_events.tsv")), 0, {}
    specs = {task: load_config(f"cofett:phase={phase},task={task}").data.raw for task in ("para1", "para2")}
    files = {}
    for path in paths:
        name = path.name.removesuffix("_events.tsv")
        subject, session, task, run = (part.partition("-")[2] for part in name.split("_"))
        files[path] = RawFile(path.with_name(f"{name}.edf"), subject, task, session, run)
        onsets = {code: [e.onset for e in read_events(path)[1] if code in e.codes] for code in ("65329", "65379")}
        key = f"text1-{int(run)}.xlsx" if task == "para1" else "text2.xlsx"
        shown.setdefault(key, []).append(np.rint(np.subtract(onsets["65379"], onsets["65329"]) / 0.4))
    for key, counts in shown.items():
        book(tmp_path / key, ["字" * int(n) for n in np.median(counts, axis=0)])
    tables = {"para1": Texts(tmp_path / "text1-{run}.xlsx", "text"), "para2": Texts(tmp_path / "text2.xlsx", "text")}
    for path, file in files.items():
        columns, events = read_events(path)
        fields = {k: specs[file.task][k] for k in ("begin", "end", "seconds_per_character")}
        trials += len(sentences_of(events, columns, tables[file.task], file, **fields)[0])
        if path == paths[0]:
            wrong = dataclasses.replace(file, run="02")
            with pytest.raises(UserError, match="another run"):
                sentences_of(events, columns, tables[file.task], wrong, **fields)
    assert (len(paths), trials) == (64, 17056)


def read_trials(path, table, begins, *, begin="101"):
    path.write_text(table)
    texts = Texts(path, "text")
    marks = [(float(i), code) for i, code in enumerate(begins)] + [(i + 0.5, "102") for i in range(len(begins))]
    found, _ = sentences_of([event(*mark) for mark in sorted(marks)], texts=texts, begin=begin, end="102")
    texts.check_codes()
    return [reading.text for reading in found]


def table(column, numbers):
    return f"{column}\ttext\n" + "".join(f"{number}\ttext {place}\n" for place, number in enumerate(numbers))


def test_trials_that_fit_are_read(tmp_path):
    path = tmp_path / "texts.tsv"
    assert read_trials(path, table("trial", [1, 2, 3]), ["101"] * 3) == ["text 0", "text 1", "text 2"]
    for nothing in ("n/a", "", "  ", "N/A", "NaN"):  # as of practice: no text, and yet a trial
        rows = f"1\t{nothing}\n2\tone\n3\ttwo\n4\t{nothing}\n5\tthree\n"
        assert read_trials(path, f"trial\ttext\n{rows}", ["101"] * 5) == ["one", "two", "three"]
    assert read_trials(path, table("code", [7, 8, 9]), ["S  8", "S  7"], begin="S*") == ["text 1", "text 0"]
    assert read_trials(path, table("code", [7, 8, 9]), ["S  9", "S  8"], begin="S*") == ["text 2", "text 1"]
    assert read_trials(path, table("code", [7, 8, 9]), ["S 10", "S  8", "S  9", "S 11"], begin="S*") == [
        "text 1",
        "text 2",
    ]


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
        read_trials(tmp_path / "texts.tsv", table("trial", numbers), ["101"] * trials)
    assert re.search(message, str(error.value))


def test_codes_that_count_from_elsewhere_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"codes 0 to 2, and the events have 1 to 3: texts would be shifted by 1"):
        read_trials(tmp_path / "texts.tsv", table("code", [0, 1, 2]), ["S  1", "S  3", "S  2"], begin="S*")


def test_every_code_of_an_event_may_count_from_elsewhere(tmp_path):
    """As the column `value` of a table of events, which stands behind `trial_type`."""
    (tmp_path / "texts.tsv").write_text(table("code", [0, 1, 2]))
    texts = Texts(tmp_path / "texts.tsv", "text")
    found = [texts.find(FILE, trial, ("sentence", str(trial))) for trial in (1, 2, 3)]
    assert found == ["text 1", "text 2", ""]
    with pytest.raises(UserError, match=r"codes 0 to 2, and the events have 1 to 3: texts would be shifted by 1"):
        texts.check_codes()
