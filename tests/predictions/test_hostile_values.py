"""Values that no decoder writes: numbers out of range, times that contradict each other, tables of a billion cells."""

import io
import json
import re
import time

import pytest
from reading import jsonl, rows, workbook


def changed(**values) -> str:
    """The rows with other values in the fourth one."""
    found = rows()
    found[3] |= values
    return jsonl(found)


WHOLE = ("n_words", "n_tokens", "order", "seed", "hypothesis")
OUT_OF_RANGE = [(name, value) for name in WHOLE for value in (-1, 2**63)] + [("duration", -2.0)]
OUT_OF_RANGE += [("onset", -float("inf")), ("onset", float("nan")), ("duration", float("inf"))]


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_a_number_out_of_range_is_one_sentence(write, refused, name, value):
    path = write(changed(**{name: value}), "p.jsonl")
    said = refused(["score", str(path)])
    assert said.startswith(f"eeg2text score: {path}, line 4: {name} is {value}"), said
    assert "; expected " in said


def test_numbers_in_range_are_read(write, printed_by):
    text = changed(onset=-2.5, duration=0, n_words=0, n_tokens=0) + jsonl([rows()[3] | {"seed": 2**63 - 1}])
    assert "49 predictions" in printed_by(["score", str(write(text, "p.jsonl"))])


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("onset", "-inf", "a finite number of seconds"),
        ("onset", "inf", "a finite number of seconds"),
        ("onset", "nan", "a finite number of seconds"),
        ("duration", "-1", "a finite number of seconds"),
        ("order", str(2**63), "a whole number from 0"),
        ("order", "9" * 5000, "a whole number from 0"),
        ("n_words", "9" * 5000, "expected a number"),
        ("n_words", str(2**63), "expected a number"),
    ],
)
def test_a_table_of_metadata_states_numbers_in_range(write, refused, name, value, wanted):
    columns = {"reference": "", "n_words": "8", "recording": "r", "onset": "", "duration": "2", "order": ""}
    table = [",".join(columns)]
    for i, row in enumerate(rows()[:24]):
        stated = columns | {"reference": row["reference"], "onset": f"{3 * i}"} | ({name: value} if i == 3 else {})
        table.append(",".join(stated.values()))
    plain = jsonl([{k: v for k, v in row.items() if k not in ("recording", "onset", "order")} for row in rows()])
    meta = write("\n".join(table), "meta.csv")
    said = refused(["audit", f"--eeg={write(plain, 'p.jsonl')}", f"--meta={meta}"], alone=False)
    assert f"{meta}, line 5: {name} is " in said
    assert wanted in said


def test_onsets_and_orders_that_contradict_each_other_are_refused(write, refused):
    found = rows()
    for row in found:
        row["order"] = 24 - row["order"]
    said = refused(["audit", f"--eeg={write(jsonl(found), 'p.jsonl')}"], alone=False)
    assert "recording 'r': onset and order contradict each other (order 1 begins at 69 s, order 2 at 66 s)" in said


def test_the_range_of_onsets_of_each_recording_is_in_what_is_said_and_in_the_report(write, printed_by, tmp_path):
    """Of a foreign file, too: a recorder that counts from 1970, or in milliseconds, or one outlier, is seen there."""
    found = rows()
    for i, row in enumerate(found):
        row.pop("order")
        row |= {"recording": "ab"[i % 2], "onset": row["onset"] + 1.7e9 * (i % 2)}
    found[23]["onset"] = found[47]["onset"] = 1.8e9
    path = write(jsonl(found), "p.jsonl")
    said = printed_by(["read", str(path)])
    assert (
        "known of 48 rows; 2 recordings, from first to last sample in s: a 0 to 66, b 1700000003 to 1800000000" in said
    )
    assert "1 recording has a long break between two onsets: b (from 1700000063 to 1800000000 s" in said
    page, data = tmp_path / "p.html", tmp_path / "p.json"
    printed_by(["audit", f"--eeg={path}", f"--html={page}", f"--json={data}"], status=8)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page.read_text().partition("last sample (s)")[2])
    assert cells[:6] == ["a", "0", "66", "b", "1700000003", "1800000000"]
    assert "a long break between two onsets: b" in page.read_text()
    assert json.loads(data.read_text())["recordings"] == {"a": [0, 66], "b": [1700000003, 1800000000]}


def test_equal_orders_of_trials_with_several_sentences_are_no_contradiction(write, printed_by):
    found = rows()
    for row in found:
        row["order"] //= 2
    printed_by(["audit", f"--eeg={write(jsonl(found), 'p.jsonl')}"], status=8)


def table(*more: str) -> list[tuple[str, ...]]:
    return [("truth", "pred", *more), *((row["reference"], row["prediction"], *more) for row in rows())]


@pytest.mark.parametrize("far", ["XFD1048576", "A1048576", "XFD1"])
def test_a_cell_far_from_the_table_costs_no_minutes(write, printed_by, far):
    path, start = write(workbook(far, one=table()), "far.xlsx"), time.process_time()
    if far.startswith("A"):  # a reference without a prediction
        assert "49 predictions" in printed_by(["score", str(path)])
    else:
        assert "48 predictions" in printed_by(["score", str(path)])
    assert time.process_time() - start < 30  # 300 s or more, if a sheet is as large as its last cell says


def test_a_table_of_too_many_cells_is_refused(write, refused, monkeypatch):
    """The command's bounds are those of a table of a million rows; here both are smaller."""
    path = write(workbook(one=table(*["x"] * 18)), "wide.xlsx")
    monkeypatch.setattr("eeg2text_jax.instrument.predictions.packed.CELLS", 900)
    assert f"{path}: the table has more than 900 cells" in refused(["score", str(path)])
    monkeypatch.undo()
    monkeypatch.setattr("eeg2text_jax.instrument.predictions.packed.SECONDS", 0)
    assert f"{path}: the table takes more than 0 s to read" in refused(["score", str(path)])


@pytest.mark.parametrize(("rows", "dtype", "said"), [
    (10**9, "S20", "more than 50,000,000 cells"), (3 * 10**8, "text", "more than 50,000,000 cells"),
    (9, "S1000000000", "unpacks to more than 2048 MiB"),
])  # fmt: skip
def test_a_small_hdf5_file_of_a_huge_table_is_refused(write, refused, tmp_path, rows, dtype, said):
    """Of a data set that was never written the file holds the shape alone."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "huge.h5", "w") as file:
        kind = h5py.string_dtype() if dtype == "text" else dtype
        file.create_dataset("sentence", (rows,), kind, chunks=(min(rows, 1000),) if rows > 9 else (1,))
    assert (tmp_path / "huge.h5").stat().st_size < 10_000
    asked = ["score", str(write("a b\n" * 9, "out.txt")), f"--reference={tmp_path / 'huge.h5'}"]
    assert f"huge.h5: {'the table has ' * (rows > 9)}{said}" in refused(asked, alone=False)


def test_a_small_parquet_file_of_a_huge_table_is_refused(write, refused):
    """Equal values take no space in a file: 51 million rows of one text are 0.1 MB."""
    pa = pytest.importorskip("pyarrow", reason="pip install 'eeg2text_jax[parquet]'")
    import pyarrow.parquet as pq

    out = io.BytesIO()
    text = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), 51_000_000), ["a b"])
    pq.write_table(pa.table({"truth": text}), out)
    path = write(out.getvalue(), "huge.parquet")
    assert path.stat().st_size < 1_000_000
    assert f"{path}: the table has more than 50,000,000 cells" in refused(["score", str(path)])
