"""Data files from Python, arrays, Parquet and data sets: the same samples whichever way they come."""

import itertools
import json
import re

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest
from prepared import prepare

from eeg2text_jax import data
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.data import table_files
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.rows import Columns
from eeg2text_jax.data.source import Sample
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.sections import check_config

F = 4


def rows(n=9, **changes):
    rng = np.random.default_rng(0)
    return [
        {"features": rng.normal(size=(1 + i % 3, F)).astype(np.float32), "sentence": f"sätze {i % 5} ja",
         "subject": f"S{i // 5}", "task": "NR", **changes}
        for i in range(n)
    ]  # fmt: skip


def same(one, other):
    assert one.digest() == other.digest()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return read_datafile(data.write(tmp_path_factory.mktemp("rows") / "data.h5", iter(rows()), features_are="four"))


def test_sentences_are_numbered_by_their_text(expected):
    assert expected.sentence_id.tolist() == [f"NR:{i % 5}" for i in range(9)]
    assert expected.features_are == "four"
    np.testing.assert_array_equal(expected.words(2), rows()[2]["features"])


def test_each_task_numbers_its_sentences_by_their_words(tmp_path):
    given = [("NR", "a b"), ("SR", "c"), ("NR", " a  b"), ("SR", "a b"), ("NR", "d")]
    rows = [{"features": [1.0], "sentence": text, "task": task} for task, text in given]
    found = read_datafile(data.write(tmp_path / "a.h5", rows))
    assert found.sentence_index.tolist() == [0, 0, 0, 1, 1]
    assert found.sentence.tolist() == ["a b", "c", "a b", "a b", "d"]


def test_samples_lists_pandas_and_other_names_give_the_same(tmp_path, expected):
    samples = [Sample(r["features"], r["sentence"], r["subject"], r["task"], i % 5) for i, r in enumerate(rows())]
    named = [{"eeg": r.pop("features").tolist(), "text": r.pop("sentence"), **r} for r in rows()]
    table = pandas.DataFrame(rows())
    same(expected, read_datafile(data.write(tmp_path / "a.h5", samples)))
    same(expected, read_datafile(data.write(tmp_path / "b.h5", named, columns={"features": "eeg", "sentence": "text"})))
    same(expected, read_datafile(data.write(tmp_path / "c.h5", table)))


def test_the_origin_of_samples_is_what_the_caller_says(tmp_path, expected):
    said = {"source": "our laboratory", "license": "CC0"}
    found = read_datafile(data.write(tmp_path / "a.h5", rows(), features_are="four", provenance=said))
    assert found.provenance == {**said, "notes": []}
    assert expected.provenance == {"source": "python", "notes": []}
    same(expected, found)


def test_one_vector_is_a_recording_of_one_position(tmp_path):
    found = read_datafile(data.write(tmp_path / "a.h5", [{"features": [1, 2, 3], "sentence": "a"}]))
    assert found.features.tolist() == [[1, 2, 3]]
    assert (found.subject[0], found.task[0], found.sentence_index[0]) == ("all", "all", 0)


def test_names_of_columns_that_are_numbers_are_no_text(tmp_path):
    with pytest.raises(UserError, match="there is no column '0', there are 0, 1"):
        data.write(tmp_path / "a.h5", [{0: [1.0], 1: "x"}], columns={"features": "0", "sentence": "1"})


BAD = [
    ([], "there is no sample"),
    ([{"features": [1.0], "text": "x"}], r"row 0: there is no column 'sentence', there are features, text"),
    ([*rows(2), {**rows(1)[0], "features": np.ones((2, 3))}], r"row 2: has 3 features a word, .* before have 4"),
    ([{"features": [[1, 2], [1]], "sentence": "x"}], "unequal numbers of features"),
    ([{"features": [["a", "b"]], "sentence": "x"}], "the features are text"),
    ([{"features": np.zeros((0, 3)), "sentence": "x"}], r"shape \[0, 3\]"),
    ([{"features": [np.nan], "sentence": "x"}], "NaN or infinity"),
    ([{"features": [1e300], "sentence": "x"}], "NaN or infinity"),
    ([{"features": [1.0], "sentence": "  "}], "expected a text with something in it"),
    ([{"features": [1.0], "sentence": 3}], "the sentence is 3"),
    ([{"features": [1.0], "sentence": "x", "subject": None}], "subject is None"),
    ([{"features": [1.0], "sentence": "x", "sentence_index": -1}], "sentence_index is -1"),
    ([{"features": [1.0], "sentence": "x", "sentence_index": 1.5}], "sentence_index is 1.5"),
    ([3], "is a int; expected a Sample"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_what_is_wrong_with_a_row_is_said_and_nothing_is_left(given, message, tmp_path):
    with pytest.raises(UserError, match=message) as refused:
        data.write(tmp_path / "a.h5", given)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_column_is_said(tmp_path):
    with pytest.raises(UserError, match="did you mean 'sentence'"):
        data.write(tmp_path / "a.h5", rows(), columns={"sentense": "text"})


def test_a_number_with_two_texts_is_noted(tmp_path):
    """In one task, whoever reads it; the first text is the first row's."""
    given = [("A", "NR", 0, "x"), ("A", "SR", 0, "y"), ("B", "NR", 0, "x"), ("B", "NR", 1, "z"), ("B", "SR", 0, "x"),
             ("C", "SR", 0, "w"), ("C", "NR", 1, "z")]  # fmt: skip
    rows = [dict(zip(("subject", "task", "sentence_index", "sentence"), row, strict=True)) for row in given]
    found = read_datafile(data.write(tmp_path / "a.h5", ({**row, "features": [1.0]} for row in rows)))
    (note,) = found.provenance["notes"]
    assert "2 rows have another text than" in note
    assert "(number 0 of SR is both 'y' and 'x')" in note


def test_defaults_are_those_of_the_configuration():
    config = load_config("default")
    assert Columns(**config.data.columns) == Columns()
    check_config(config)


def packed():
    found = rows()
    columns = {name: np.array([row[name] for row in found]) for name in ("sentence", "subject", "task")}
    words = [row["features"] for row in found]
    return columns, words, np.array([len(own) for own in words])


def test_arrays_in_every_layout(tmp_path, expected, capsys):
    columns, words, n_words = packed()
    padded = np.full((9, 5, F), np.nan, np.float32)
    for row, own in zip(padded, words, strict=True):
        row[: len(own)] = own
    mask = np.arange(5) < n_words[:, None]
    together = np.concatenate(words)
    offsets = np.concatenate([[0], np.cumsum(n_words)])
    layouts = [{"features": padded, "mask": mask}, {"features": padded[:, :3], "n_words": n_words, "mask": mask[:, :3]},
               {"features": together, "n_words": n_words}, {"features": together, "offsets": offsets}]  # fmt: skip
    for layout in layouts:
        np.savez(tmp_path / "a.npz", **layout, **columns)
        same(expected, prepare(tmp_path, tmp_path / "a.npz"))
    first, last = ({name: values[part] for name, values in columns.items()} for part in (slice(4), slice(4, None)))
    np.savez(tmp_path / "b.npz", features=padded[:4], n_words=n_words[:4], **first)
    np.savez(tmp_path / "a.npz", features=together[offsets[4] :], offsets=offsets[4:] - offsets[4], **last)
    files = tmp_path / "b.npz", tmp_path / "a.npz"
    both = prepare(tmp_path, *files)
    same(expected, both)
    assert [file["name"] for file in both.provenance["files"]] == ["b.npz", "a.npz"]
    np.savez(tmp_path / "a.npz", features=together[:9], **columns)
    single = prepare(tmp_path, tmp_path / "a.npz")
    assert single.n_words.tolist() == [1] * 9
    np.testing.assert_array_equal(single.features, together[:9])
    renamed = {"text": columns.pop("sentence"), "eeg": padded, "real": mask, **columns}
    np.savez(tmp_path / "a.npz", **renamed)
    names = [f"--config.data.columns.{ours}={theirs}" for ours, theirs in
             (("sentence", "text"), ("features", "eeg"), ("mask", "real"))]  # fmt: skip
    same(expected, prepare(tmp_path, tmp_path / "a.npz", *names))
    assert "S1" in capsys.readouterr().out


def test_arrays_that_do_not_fit(tmp_path, capsys, refused):
    columns, words, n_words = packed()
    padded = np.zeros((9, 5, F))
    together, offsets = np.concatenate(words), np.concatenate([[0], np.cumsum(n_words)])
    mask, none, other = np.arange(5) < n_words[:, None], n_words * (np.arange(9) != 2), np.roll(n_words, 1)
    cases = [
        ({"features": padded, **columns}, r"is padded, and the file does not say where; add mask \[N, W\]"),
        ({"features": padded, "mask": np.ones((9, 4)), **columns}, r"mask has shape \[9, 4\]"),
        ({"features": padded, "mask": np.arange(5) >= 5 - n_words[:, None], **columns}, r"real words \(True\) first"),
        ({"features": padded, "mask": mask & (none > 0)[:, None], **columns}, r"real words \(True\) first"),
        ({"features": padded, "mask": mask, "n_words": other, **columns}, "n_words and mask contradict each other"),
        ({"features": padded, "n_words": n_words + 9, **columns}, "n_words must be"),
        ({"features": padded, "n_words": none, **columns}, "n_words must be"),
        ({"features": padded, "n_words": n_words * 1.0, **columns}, r"n_words must be \[9\] .* found float64 \[9\]"),
        ({"features": together, "n_words": n_words + 1, **columns}, "do not fit n_words"),
        ({"features": together, "n_words": none + (np.arange(9) == 8) * n_words[2], **columns}, "do not fit n_words"),
        ({"features": together, "n_words": n_words.astype(str), **columns}, r"n_words must be \[9\] whole numbers"),
        ({"features": together, "offsets": offsets[:, None], **columns}, r"offsets must be \[10\] whole .* \[10, 1\]"),
        ({"features": together, "offsets": offsets[1:], **columns}, r"offsets must be \[10\] whole numbers, the first"),
        ({"features": together, "offsets": offsets + 0.5, **columns}, r"offsets must be \[10\] whole numbers"),
        ({"features": together, "offsets": offsets + (offsets == 0), **columns}, r"the first of them 0, .* from 1\."),
        ({"features": together, "offsets": offsets, "n_words": other, **columns}, "n_words and offsets contradict"),
        ({"features": padded[:3], **columns}, r"shape \[3, 5, 4\] for 9 sentences"),
        ({"features": padded[:, 0], "sentence": np.array("a text")}, r"sentence has shape \[\]|for 1 sentences"),
        ({"eeg": padded, **columns}, r"there is no array 'features', there are eeg, sentence"),
        ({}, r"there is no array 'features', there are none;"),
        ({"features": np.array([*words, None], object)[:-1], **columns}, "with n_words"),
        ({"features": padded[:, 0], **columns, "subject": columns["subject"][:3]}, r"subject has shape \[3\]"),
    ]
    for arrays, message in cases:
        np.savez(tmp_path / "a.npz", **arrays)
        error = refused(["prepare", str(tmp_path / "a.npz"), f"--out={tmp_path / 'out.h5'}"])
        assert re.search(message, error), error
        assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    (tmp_path / "b.npz").mkdir()
    error = refused(["prepare", str(tmp_path / "b.npz"), f"--out={tmp_path / 'out.h5'}"])
    assert "b.npz: is a folder; expected a file" in error
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    refused(["prepare", str(tmp_path / "a.npz"), f"--out={tmp_path / 'out.h5'}"])


def test_parquet_there_and_back(tmp_path, expected, capsys):
    out = tmp_path / "data.parquet"
    assert main(["export-data", str(expected.path), f"--out={out}"]) == 0
    back = prepare(tmp_path, out)
    same(expected, back)
    assert back.features_are == "four"
    assert back.provenance["exported"] == json.loads(json.dumps(expected.provenance))
    table = pandas.read_parquet(out)
    assert table.sentence.tolist() == expected.sentence.tolist()
    np.testing.assert_array_equal(np.stack(table.features[2]), expected.words(2))
    folder = tmp_path / "shards"
    folder.mkdir()
    whole = pyarrow.parquet.read_table(out)
    for i, start in enumerate((0, 4)):  # slices, whose lists begin elsewhere than at 0
        pyarrow.parquet.write_table(whole.slice(start, 4 if i == 0 else None), folder / f"{i}.parquet")
    same(expected, prepare(tmp_path, folder))


def test_blocks_of_a_parquet_file_have_their_own_samples_and_times(tmp_path, monkeypatch):
    """Onsets go from -3 to 5 s in two recordings, of which the second one has no durations."""
    times = [{"recording": f"r{i // 5}", "onset": float(i - 3)} | ({"duration": i + 0.5} if i < 5 else {})
             for i in range(9)]  # fmt: skip
    given = [{**row, **time, "sentence_index": 20 - k} for k, (row, time) in enumerate(zip(rows(), times, strict=True))]
    written = read_datafile(data.write(tmp_path / "a.h5", given, columns={"features_are": "four"}))
    assert (written.features_are, written.clock.onset.tolist()) == ("four", list(range(-3, 6)))
    monkeypatch.setattr(table_files, "ROWS", 4)
    table_files.write_parquet(written, tmp_path / "a.parquet")
    same(written, prepare(tmp_path, tmp_path / "a.parquet"))
    other = prepare(tmp_path, tmp_path / "a.parquet", "--config.data.columns.features_are=other")
    assert (other.features_are, other.clock.duration[:5].tolist()) == ("other", [0.5, 1.5, 2.5, 3.5, 4.5])


@pytest.mark.parametrize(("right", "wrong"), [(b"a cat", b"a \xffat"), (b"\5\0\0\0a cat", b"\xff\0\0\0a cat")])
def test_a_parquet_file_whose_texts_are_damaged_is_refused(right, wrong, tmp_path, refused):
    """In the encoding "plain" a text is its length in four bytes and its own bytes."""
    path = tmp_path / "a.parquet"
    table = pa.table({"features": [[1.0], [2.0]], "sentence": ["the dog", "a cat"]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    whole = path.read_bytes()
    assert whole.count(right) == 1
    path.write_bytes(whole.replace(right, wrong))
    said = refused(["prepare", str(path), f"--out={tmp_path / 'out.h5'}"])
    assert "a.parquet: is damaged or cut short" in said
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]


def test_damage_in_any_block_of_an_exported_file_is_noticed(tmp_path, expected, monkeypatch, refused):
    """A bit of features or texts, or the header of a page."""
    monkeypatch.setattr(table_files, "ROWS", 4)
    path = tmp_path / "a.parquet"
    table_files.write_parquet(expected, path)
    whole, metadata = path.read_bytes(), pq.ParquetFile(path).metadata
    assert len(list(table_files.parquet_rows(path, Columns()))) == len(expected)
    for block, number in itertools.product((0, 2), range(3)):
        column = metadata.row_group(block).column(number)
        last = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
        for place in (last, last - 2):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(UserError, match=r"a.parquet: is damaged or cut short .*; copy it again"):
                list(table_files.parquet_rows(path, Columns()))
    for block in (0, 2):
        place = metadata.row_group(block).column(0).data_page_offset
        path.write_bytes(whole[:place] + bytes(20) + whole[place + 20 :])
        said = refused(["prepare", str(path), f"--out={tmp_path / 'out.h5'}"])
        assert "a.parquet: is damaged or cut short" in said
        assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]


def test_a_parquet_of_something_else(tmp_path, refused):
    n = {"sentence": ["a b", "c"]}
    cases = [
        ({"features": ["1 2", "3 4"], **n}, "column 'features' is of type string; expected lists of numbers"),
        ({"features": [["1"], ["2"]], **n}, "of type list"),
        ({"features": [[[1.0, 2.0], [1.0]], [[1.0, 2.0]]], **n}, "different numbers of features"),
        ({"features": [[1.0], None], **n}, "empty cell"),
        ({"features": [[1.0], [None]], **n}, "NaN"),
        ({"features": [[1.0], [2.0]]}, "there is no column 'sentence'"),
    ]
    for columns, message in cases:
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        error = refused(["prepare", str(tmp_path / "a.parquet"), f"--out={tmp_path / 'out.h5'}"])
        assert re.search(message, error), error
        assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing")
    refused(["prepare", str(tmp_path / "a.parquet"), f"--out={tmp_path / 'out.h5'}"])


@pytest.mark.filterwarnings("ignore")  # of datasets
def test_data_sets_of_hugging_face(tmp_path, expected):
    datasets = pytest.importorskip("datasets", reason="pip install 'eeg2text_jax[datasets]'")
    lists = [{**row, "features": row["features"].tolist()} for row in rows()]
    one = datasets.Dataset.from_list(lists)
    one.save_to_disk(tmp_path / "one")
    same(expected, prepare(tmp_path, tmp_path / "one"))
    same(expected, read_datafile(data.write(tmp_path / "written.h5", one)))
    parts = datasets.DatasetDict({"train": one.select(range(6)), "test": one.select(range(6, 9))})
    parts.save_to_disk(tmp_path / "parts")
    same(expected, prepare(tmp_path, tmp_path / "parts"))
    fixed = datasets.Features({"features": datasets.Array2D((2, F), "float32"), "sentence": datasets.Value("string")})
    square = [{"features": np.arange(2 * F).reshape(2, F) + i, "sentence": f"s {i}"} for i in range(3)]
    datasets.Dataset.from_list(square, features=fixed).save_to_disk(tmp_path / "square")
    assert prepare(tmp_path, tmp_path / "square").words(1).tolist() == (np.arange(2 * F).reshape(2, F) + 1).tolist()
