"""Texts are bound to trials by how long their characters are shown; a shifted table, or another run's, is refused."""

import dataclasses
import re
import tarfile
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from tiny_run import data_spec

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.raw.find import Event, RawFile, RawSpec, read_events
from eeg2text_jax.data.raw.sentences import Texts, readings
from eeg2text_jax.training.configuration import load_config

SHARED = Path(__file__).parents[3] / "shared/data/chisco2_ds006317_metadata.tar.xz"
FILE = RawFile(Path("sub-01_run-01.edf"), "01", "para1", "01", "01")


def book(path, texts, head=()):
    workbook = openpyxl.Workbook()
    for row in [*([head] if head else []), *([n, text] for n, text in enumerate(texts, 1))]:
        workbook.active.append(row)
    workbook.save(path)
    return path


def read(path, lengths, extra=0, column="text", file=FILE):
    spec = data_spec(RawSpec, "raw", begin="1", end="2", seconds_per_character=0.4, text=column)
    begin = np.cumsum([0.0, *[0.4 * n + 3 for n in lengths[:-1]]])
    events = [event for b, n in zip(begin, lengths, strict=True)
              for event in (Event(b, 0, ("1",), {}), Event(b + 0.4 * (n + extra) + 0.02, 0, ("2",), {}))]  # fmt: skip
    return [r.text for r in readings(file, events, ("onset",), spec, Texts(path, column))[0]]


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
        spec = data_spec(RawSpec, "raw", **{k: specs[file.task][k] for k in ("begin", "end", "seconds_per_character")})
        trials += len(readings(file, events, columns, spec, tables[file.task])[0])
        if path == paths[0]:
            wrong = dataclasses.replace(file, run="02")
            with pytest.raises(UserError, match="another run"):
                readings(wrong, events, columns, spec, tables[file.task])
    assert (len(paths), trials) == (64, 17056)
