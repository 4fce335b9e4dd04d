"""The predictions file: what is written is read back, and what is wrong is named with its line."""

import dataclasses
import json

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions.file import Prediction, read_predictions, write_predictions
from eeg2text_jax.instrument.predictions.rankings import read_choices
from eeg2text_jax.instrument.predictions.read import describe, read_any

ROW = Prediction("s1/NR/0", "s1", "NR", "t0", 3, "eeg", "noise", 0, "teacher_forced", "ä b c", " ä\n\u2028d")
ROWS = [ROW, dataclasses.replace(ROW, mode="free_running", reference_tokens=[4, 5], nll=1.5, n_tokens=2)]


@pytest.fixture
def path(tmp_path):
    write_predictions(tmp_path / "p.jsonl", {"config": "abc"}, ROWS)
    return tmp_path / "p.jsonl"


def test_round_trip(path):
    read = read_predictions(path)
    assert read.predictions == ROWS
    seeds = [dataclasses.replace(ROW, seed=seed) for seed in (0, 1)]
    write_predictions(path, {"config": "abc"}, seeds)
    assert read_predictions(path).predictions == seeds
    assert (read.header, read.layout) == ({"config": "abc"}, "jsonl")


def test_the_first_hypothesis_is_what_is_read_and_the_others_stand_apart(tmp_path):
    several = [dataclasses.replace(ROWS[1], hypothesis=k, prediction=f"text {k}") for k in (0, 1, 2)]
    write_predictions(tmp_path / "p.jsonl", {}, [ROW, several[1], several[0], several[2]])
    for read in (read_predictions(tmp_path / "p.jsonl"), read_any(tmp_path / "p.jsonl")):
        assert read.predictions == [ROW, several[0]]
        assert read.further == (several[1], several[2])
        assert "2 further hypotheses are neither scored nor audited" in describe(read)
    assert read_any(tmp_path / "p.jsonl", mode="teacher_forced").further == ()
    assert '"hypothesis": 0' in (tmp_path / "p.jsonl").read_text("utf8")
    write_predictions(tmp_path / "twice.jsonl", {}, [several[0], several[1], several[1]])
    with pytest.raises(UserError, match=r"line 4: sample 's1/NR/0' .* is on line 3 already; expected each hypothesis"):
        read_predictions(tmp_path / "twice.jsonl")


def test_a_further_hypothesis_needs_the_first_of_its_own_sample(tmp_path):
    first = dataclasses.replace(ROWS[1], hypothesis=0)
    write_predictions(tmp_path / "p.jsonl", {}, [first, dataclasses.replace(first, sample_id="b", hypothesis=1)])
    with pytest.raises(UserError, match="line 3: is hypothesis 1 of sample 'b', whose first"):
        read_predictions(tmp_path / "p.jsonl")


def test_a_header_after_rows_is_a_second_file(path):
    header, *rows, _ = path.read_text("utf8").split("\n")
    path.write_text("\n".join([*rows, header]), "utf8")
    with pytest.raises(UserError, match="line 3: a second header"):
        read_predictions(path)


def test_line_ends_and_byte_order_mark_do_not_matter(path):
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\n")
    assert read_predictions(path).predictions == ROWS


def test_a_field_that_is_null_is_not_known(path):
    null = path.read_text("utf8").replace('"prediction": ', '"donor": null, "nll": null, "prediction": ', 1)
    path.write_text(null, "utf8")
    assert read_predictions(path).predictions == ROWS


def edited(**changes) -> str:
    row = {name: value for name, value in vars(ROWS[1]).items() if value is not None} | changes
    return json.dumps({name: value for name, value in row.items() if value is not ...})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"sample_id": ', "line 3: not JSON"),
        ("[1]", "line 3: line is .*expected an object"),
        (edited(reference=...), "line 3: the field 'reference' is missing"),
        (edited(refrence="a"), "line 3: unknown field 'refrence'"),
        (edited(seed="0"), 'line 3: seed is "0"; expected a whole number'),
        (edited(n_words=True), "line 3: n_words is true"),
        (edited(n_tokens=1.5), "line 3: n_tokens is 1.5"),
        (edited(prediction=None), "line 3: prediction is null; expected text"),
        (edited(prediction="\ud800"), "line 3: prediction holds the invalid Unicode character '.ud800' at position 1"),
        (edited(prediction_tokens=["a"]), "line 3: prediction_tokens item"),
        (edited(nll=float("nan")), "line 3: nll is nan; expected a finite number"),
        (edited(nll=10**400), "line 3: nll is 10*; expected a finite number"),
        (edited(hypothesis=-1), "line 3: hypothesis is -1; expected 0 for the first"),
        (edited(hypothesis="1"), 'line 3: hypothesis is "1"; expected a whole number'),
        (edited(hypothesis=1), r"line 3: is hypothesis 1 of sample 's1/NR/0', whose first \(hypothesis 0\) is not in"),
        (edited(mode="greedy"), "line 3: mode is 'greedy'"),
        (edited(mode="teacher_forced"), "line 3: sample .* is on line 2 already"),
        ('{"header": {}}', "line 3: a second header"),
    ],
)
def test_a_broken_line_is_named(path, line, message):
    lines = path.read_text("utf8").split("\n")
    path.write_text("\n".join([*lines[:2], line]), "utf8")
    with pytest.raises(UserError, match=message):
        read_predictions(path)


def test_a_file_that_is_no_text_or_has_no_rows_or_is_not_there(path):
    path.write_bytes(path.read_bytes() + b'{"reference": "\xe4"}\n')
    with pytest.raises(UserError, match=r"p.jsonl, line 4: not UTF-8"):
        read_predictions(path)
    path.write_text('{"header": {}}\n\n')
    with pytest.raises(UserError, match="no predictions in the file"):
        read_predictions(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_predictions(path.with_name("missing.jsonl"))


def test_what_rows_have_in_common_is_in_memory_once(path):
    fields = {"reference": "a long reference", "reference_tokens": [70_000, 80_000], "prediction_tokens": [80_000]}
    long = [dataclasses.replace(ROW, sample_id=f"s{i}", subject=f"S{i % 2}", **fields) for i in range(6)]
    write_predictions(path, {}, long)
    read = read_predictions(path).predictions
    assert read == long
    assert len({id(row.reference) for row in read}) == 1
    assert len({id(row.reference_tokens) for row in read}) == 1
    assert len({id(row.subject) for row in read}) == 2
    assert read[0].reference_tokens[1] is read[1].prediction_tokens[0]
    long[3] = dataclasses.replace(long[3], reference_tokens=[70_000])  # another tokenizer's, of the same text
    write_predictions(path, {}, long)
    assert read_predictions(path).predictions == long


def test_an_empty_list_of_choices_is_refused(write):
    path = write("\n \n", "choices.txt")
    with pytest.raises(UserError, match="holds no sentence"):
        read_choices(path)
