"""Files as other groups write them: labels nobody told us of, JSON of their own, huge fields, Unicode forms, twins."""

import csv
import json
import subprocess
import sys
import unicodedata

import pytest
from reading import EQUAL, OUTPUTS, REFERENCES, described, refusal, texts

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.predictions.read import check_given_once, describe, read_any

RULE = "#" * 48 + "\n"


def blocks(template: str) -> str:
    return "".join(template.format(r=r, p=p, i=i) + RULE for i, (r, p) in enumerate(EQUAL))


LABELS = ("predicted tokens (truncated)", "predicted string [beam 2]", "target ids", "mean EEG power (uV)", "bleu-1")


@pytest.mark.parametrize("label", LABELS)
def test_an_unknown_label_in_every_block_is_said_and_never_text(write, label):
    """The first of these was appended to 1,407 predictions, which took 22 points of BLEU-1 from them."""
    path = write(blocks("target string: {r}\npredicted string: {p}\n" + label + ": [x ,\ny]\n"))
    assert texts(path) == EQUAL
    assert f"6 lines '{label.lower()}:' are of no known label" in described(path)


def test_an_unknown_label_in_some_blocks_is_an_error_with_its_line(write):
    whole = blocks("target string: {r}\npredicted string: {p}\n")
    tokens = write(whole.replace(OUTPUTS[3] + "\n", OUTPUTS[3] + "\npredicted tokens: [He]\n"))
    assert texts(tokens) == EQUAL
    assert "1 lines 'predicted tokens:' are of no known label" in described(tokens)
    rare = whole.replace(OUTPUTS[3] + "\n", OUTPUTS[3] + "\npredicted sting: x\n")
    said = r"line 12: the label 'predicted sting:' is not in every block; expected 'target string:'"
    refusal(write(rare), said)


def test_a_prediction_may_hold_lines_with_a_colon_and_that_is_said(write):
    text = blocks("target sentence: {r}\npredicted sentence: Sure.\nHere is the sentence:\n{p}\n")
    path = write(text)
    assert texts(path) == [(r, f"Sure.\nHere is the sentence:\n{o}") for r, o in EQUAL]
    assert "read as text of predictions: 'here is the sentence:' (6)" in described(path)


def test_a_number_in_brackets_such_as_a_footnote_mark_is_text(write):
    mark = f"target string: [4]\npredicted string: [5]\n{RULE}"
    path = write(blocks("target string: {r}\npredicted string: {p}\n") + mark)
    assert texts(path) == [*EQUAL, ("[4]", "[5]")]


def test_labels_that_name_the_subject_and_the_task_fill_them(write):
    path = write(blocks("Subject: S{i}\ntask: NR\ntarget string: {r}\npredicted string: {p}\n"))
    assert texts(path) == EQUAL
    assert [(p.subject, p.task) for p in read_any(path).predictions] == [(f"S{i}", "NR") for i in range(6)]


@pytest.mark.parametrize("template", ["Predicted: {p}\nTrue: {r}\n", "True: {r}\nPredicted: {p}\n"])
def test_blocks_closed_by_equals_signs(write, template):
    text = "".join(template.format(r=r, p=p) + "=" * 50 + "\n\n" for r, p in EQUAL)
    path = write(text)
    assert texts(path) == EQUAL
    assert "layout C1 " in described(path)
    assert texts(write("=" * 50 + "\n" + text)) == EQUAL
    refusal(write(text[: text.rindex("=" * 50)]), "line 21: the block that begins here is not closed")


JSON = {
    "lines": "".join(json.dumps({"Reference": r, "prediction": p, "wer": 1.0}) + "\n" for r, p in EQUAL),
    "lines far apart": "".join("\n" + json.dumps({"gt": r, "pred": p}) + "\n \n" for r, p in EQUAL),
    "one line": json.dumps({"gt": REFERENCES[0], "pred": OUTPUTS[0]}),
    "list": json.dumps([{"label": r, "predict": p, "prompt": "decode"} for r, p in EQUAL]),
    "indented list": json.dumps([{"target": [r], "hypothesis": p} for r, p in EQUAL], indent=2),
    "under a name": json.dumps({"bleu": 3, "results": [{"truth": r, "generated_text": p} for r, p in EQUAL]}, indent=1),
    "lists by name": json.dumps({"references": REFERENCES, "predictions": OUTPUTS, "wer": 1.0}),
    "objects by key": json.dumps({f"S{i}": {"truth": r, "pred": p} for i, (r, p) in enumerate(EQUAL)}),
    "indented lists": json.dumps({"targets": REFERENCES, "preds": OUTPUTS}, indent=2),
    "lines with two of our names": "".join(
        json.dumps({"sample_id": r, "mode": "free_running", "gt": r, "pred": p}) + "\n" for r, p in EQUAL
    ),
    "columns with keys in other orders": json.dumps(
        {"truth": dict(enumerate(REFERENCES)), "pred": dict(reversed(list(enumerate(OUTPUTS))))}
    ),
}


@pytest.mark.parametrize("name", JSON)
def test_foreign_json_is_read_without_options(write, name):
    path = write(JSON[name])
    assert texts(path) == (EQUAL[:1] if name == "one line" else EQUAL)
    assert "layout J (JSON" in described(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"gt": "a", "pred": "b"}', "line 1: not JSON .*cut short"),
        ('[{"gt": "a", "pred": "b"}, {"gt": "a"}]', "item 2: has no 'pred', but the first item has it"),
        ('[{"gt": "a", "pred": null}]', "item 1: the prediction 'pred' is null; expected a text"),
        ('[{"gt": ["a", 2], "pred": "c"}]', r"item 1: the reference 'gt' is \[\"a\", 2\]; expected a text"),
        ('{"references":["a"],"predictions":["b","c"]}', "lists of different lengths .references: 1, predictions: 2"),
        ('[{"gt": "a", "pred": "b", "output": "c"}]', r"several columns may be the prediction \(pred, output\)"),
        ('{"gt": "a", "pred": "b"}\n{"gt": "a", "gt": "c", "pred": "b"}\n', "line 2: not JSON .*'gt' is there twice"),
        ('{"gt": "a", "pred": "b"}\n["a", "b"]\n', "line 2: line is .*expected an object"),
        ('{"truth": {"0": "a"}, "pred": {"1": "b"}}', "JSON without predictions"),
        ('{"accuracy": 1.0}', "no column is known as reference and prediction"),
        ("[1, 2]", "JSON without predictions"),
        (
            '{"train": [{"gt": "a", "pred": "b"}], "test": [{"gt": "c", "pred": "d"}]}',
            r"in several parts of the file .2 blocks: 1 is train with 1 row, 2 is test with 1 row",
        ),
        (
            '{\n"train": {"gt": ["a"], "pred": ["b"]},\n"test": {"gt": ["a"], "pred": ["b"]}, "n": 1}',
            r"in several parts of the file .2 blocks: 1 is train with 1 row, 2 is test with 1 row",
        ),
        (
            '[{"gt": [["a"], ["b"]], "pred": "c"}]',
            "item 1: the reference 'gt' is the list of lists .*; a row holds several samples",
        ),
        (
            '[{"gt": "a", "pred": "\\ud800"}]',
            "item 1: 'pred' holds the invalid Unicode character '.ud800' at position 1",
        ),
    ],
)
def test_foreign_json_that_says_nothing_is_refused(write, text, message):
    refusal(write(text), message)


def test_our_own_lines_are_never_taken_for_foreign_ones(write):
    row = {"sample_id": "a", "task": "NR", "sentence_id": "t", "n_words": 1, "train_condition": "eeg"}
    row |= {"eval_condition": "eeg", "seed": 0, "mode": "free_running", "reference": "a b", "prediction": "c"}
    refusal(write(json.dumps(row) + "\n" + json.dumps(row)), "line 1: the field 'subject' is missing")


def test_data_set_and_task_key_tell_the_task_together(write):
    rows = [("ZuCo1", "task1", "ZAB"), ("ZuCo2", "task1", "YAC"), ("ZuCo2", "", "nan")]
    lines = [f"<NR>,{d},{s},{k},{r},{p}" for (d, k, s), (r, p) in zip(rows, EQUAL, strict=False)]
    path = write("Task,Dataset,Subject,Raw Task Key,Input Text,Generated Text\n" + "\n".join(lines) + "\n", "f.csv")
    read = read_any(path)
    assert [p.task for p in read.predictions] == ["<NR>/ZuCo1/task1", "<NR>/ZuCo2/task1", "<NR>/ZuCo2"]
    assert [p.subject for p in read.predictions] == ["ZAB", "YAC", "unknown"]
    assert "task 'Task' and 'Dataset' and 'Raw Task Key'" in describe(read)


def test_columns_of_both_modes_are_two_sets(write):
    header = "Input Text,Generated Text,Generated Text (w/tf),WER (w/tf)"
    for text in (f"{header}\na b,c,d,0.5\n", "target,free_prediction,tf_prediction\na b,c,d\n"):
        found = [(p.mode, p.prediction) for p in read_any(write(text, "f.csv")).predictions]
        assert found == [("free_running", "c"), ("teacher_forced", "d")]
    path = write("truth,pred,pred_tf,pred_teacher_forced\na,b,c,d\n", "g.csv")
    refusal(path, "pred, pred_tf, pred_teacher_forced are predictions of one condition and mode")


def test_fields_of_any_length_are_read(write):
    limit = csv.field_size_limit()
    long = "word " * 60_000  # 300,000 characters; the csv module stops at 131,072
    path = write(f'truth,pred\na b,"{long}"\nc d,e\n', "f.csv")
    assert texts(path) == [("a b", long), ("c d", "e")]
    assert csv.field_size_limit() == limit
    refusal(write(f'truth,pred\na b,"{long}"\n"c d,e\n', "f.csv"), "line 3: not a CSV row")


def test_a_header_among_the_samples_is_no_sample(write):
    rows = "".join(f"{r},{p}\n" for r, p in EQUAL)
    refusal(write(f"truth,pred\n{rows}truth,pred\n{rows}"), "line 8: 'truth, pred' is a header among the samples")
    refusal(
        write(f"{rows}Reference,Prediction\n{rows}"),
        "line 7: 'Reference, Prediction' is a header among the samples",
        columns=["1", "2"],
        layout="H",
    )


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_that_a_spreadsheet_states_is_no_sample(write, delimiter):
    def stated(*rows):
        return write("".join(f"{line}\n" for line in (f"sep={delimiter}", *map(delimiter.join, rows))))

    assert texts(stated(("truth", "pred"), *EQUAL)) == EQUAL
    refusal(stated(("truth", "pred"), "abc"), "line 3: 3 fields where the first line has 2")


def test_a_log_with_a_pair_of_labels_is_no_file_of_pairs(write):
    refusal(write("ref: a b\nhyp: c d\n" + "loss: 3\n" * 20), "neither a known layout")


def test_where_every_prediction_is_empty_there_is_no_rest_to_judge(write):
    some = "truth,pred_eeg,pred_noise\na b,c,\nd e,f,\n"
    assert "under unknown → noise is empty; only the rest" in described(write(some))
    assert "only the rest" not in described(write("truth,pred\na b,\nd e,\n"))


def test_rows_without_a_reference_are_said(write):
    assert "1 row has an empty reference" in described(write("truth,pred\na b,c\n,d\n"))


def test_unicode_forms_are_one_text_and_that_is_said(write, printed_by):
    composed = ["café naïve über", "où est la forêt", "señor piñata"]
    decomposed = [unicodedata.normalize("NFD", text) for text in composed]
    rows = [f"{r},{p}" for r, p in zip(composed + decomposed, decomposed + composed, strict=True)]
    path = write("truth,pred\n" + "\n".join(rows) + "\n", "f.csv")
    read = read_any(path)
    assert [p.reference for p in read.predictions] == composed * 2 == [p.prediction for p in read.predictions]
    assert len({p.sentence_id for p in read.predictions}) == 3
    assert "6 samples have text in another Unicode form than NFC" in describe(read)
    assert "another Unicode form" in printed_by(["score", str(path), "--json", str(path.with_name("out.json"))])
    metrics = json.loads(path.with_name("out.json").read_text())["cells"][0]["metrics"]
    assert metrics["wer"]["value"] == 0


def test_one_file_given_twice_is_refused_and_a_copy_is_said(write, tmp_path):
    a = write("truth,pred\na,b\n", "a.csv")
    b, c = write("truth,pred\na,b\n", "b.csv"), write("truth,pred\na,c\n", "c.csv")
    (tmp_path / "link.csv").symlink_to(a)
    for again in (a, tmp_path / "." / "a.csv", tmp_path / "link.csv"):
        with pytest.raises(UserError, match="the file is given twice"):
            check_given_once([a, again])
    assert check_given_once([a, c]) == []
    assert check_given_once([a, b, c]) == [f"{b}: the file has the same bytes as {a}; one of them may be a copy."]


def test_audit_refuses_one_file_on_both_sides(write, capsys, refused):
    rows = "truth,pred\n" + "".join(f"the {i} cat,He was {i % 5}\n" for i in range(40))
    eeg, copy = write(rows, "eeg.csv"), write(rows, "copy.csv")
    assert "eeg.csv: the file is given twice" in refused(["audit", "--eeg", str(eeg), "--control", str(eeg)])
    assert main(["audit", "--eeg", str(eeg), "--control", str(copy)]) not in (0, 2)
    assert f"{copy}: the file has the same bytes as {eeg}" in capsys.readouterr().out


def test_a_file_appended_to_itself_is_said(write):
    half = "".join(f"the {i} cat,He was {i}\n" for i in range(20))
    assert "second half of the file repeats its first 20 rows" in described(write("truth,pred\n" + half * 2))
    assert "repeats" not in described(write("truth,pred\n" + half + half.replace("He", "She")))


def test_the_missing_field_has_the_same_name_in_every_run(write):
    """Names came out of a set, whose order depends on the seed of the hashes."""
    path = write('{"header": {}}\n{"sample_id": "a", "reference": "b"}\n')
    code = (
        "import sys; from eeg2text_jax.instrument.predictions.read import read_any\n"
        "try: read_any(sys.argv[1])\nexcept Exception as error: print(error)"
    )
    for seed in range(2):
        environment = {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(filter(None, sys.path))}
        said = subprocess.check_output([sys.executable, "-c", code, str(path)], text=True, env=environment)
        assert said == f"{path}, line 2: the field 'subject' is missing.\n"


@pytest.mark.parametrize("column", ["condition", "input", "Modality", "arm"])
def test_a_column_that_names_what_was_fed_parts_the_rows(write, column):
    rows = [f"{r},{o},{fed}" for fed in ("EEG", "noise") for r, o in EQUAL]
    path = write("\n".join([f"target,prediction,{column}", *rows]), "both.csv")
    found = read_any(path)
    assert [p.eval_condition for p in found.predictions] == ["eeg"] * 6 + ["noise"] * 6
    assert "not used" not in found.layout


def test_a_column_of_that_name_with_other_content_parts_nothing(write):
    """An input text a row, or one condition for all rows without EEG among them."""
    some, each = ["eeg", "noise", ""] * 2, ["eeg", *(f"text {n}" for n in range(5))]
    for values in ([f"text {n}" for n in range(6)], ["rest", "task"] * 3, ["eeg"] * 6, some, each):
        rows = [f"{r},{o},{value}" for (r, o), value in zip(EQUAL, values, strict=True)]
        found = read_any(write("\n".join(["target,prediction,input", *rows]), "one.csv"))
        assert {p.eval_condition for p in found.predictions} == {"unknown"}
        assert "not used: 'input'" in found.layout


def test_a_sample_may_recur_under_another_condition(write):
    rows = [f"{i},{r},{o},{fed}" for fed in ("eeg", "noise") for i, (r, o) in enumerate(EQUAL)]
    found = read_any(write("\n".join(["sample_id,target,prediction,condition", *rows]), "both.csv"))
    assert len(found.predictions) == 12


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_column_of_conditions_without_eeg_is_named_as_not_used(write, kind):
    """Nor one beside `eval_condition`, which says it already."""
    for values, more in ((["real recording", "scrambled"], {}), (["eeg", "noise"], {"eval_condition": "eeg"})):
        rows = [{"target": r, "prediction": o, "arm": fed} | more for fed in values for r, o in EQUAL]
        table = "\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)])
        found = read_any(write(table if kind == "csv" else json.dumps(rows), "both.txt"))
        assert "not used: 'arm'" in found.layout
        assert len({p.eval_condition for p in found.predictions}) == 1


def test_rows_that_nothing_parts_are_named(write):
    def said(header, rows):
        return described(write("\n".join([header, *rows]), "rows.csv"))

    twice = [f"A,{r},{o} {fed},{fed}" for fed in ("x", "y") for r, o in EQUAL]
    warning = "rows share their subject and reference with another row"
    assert f"12 {warning}" in said("subject,target,prediction,words", [f"{line}{i}" for i, line in enumerate(twice)])
    for name in ("kind", "condition"):
        assert f"'{name}' is not used, and each of its 2 values" in said(f"subject,target,prediction,{name}", twice)
    assert warning not in said("subject,target,prediction,eval_condition", twice)
    assert warning not in said("subject,target,prediction,task", twice)
    assert warning not in said("subject,target,prediction,kind", twice[:6])
    assert warning not in said("reader,target,prediction,kind", twice)  # several readers, as far as is known
    fed = [line.replace(",x", ",eeg").replace(",y", ",noise") for line in twice]
    assert warning not in said("subject,target,prediction,condition", fed)


def test_half_of_the_texts_of_a_table_without_header_may_be_single_words(write):
    rows = [("a b", "c d", "1"), ("e f", "yes", "2"), ("g h", "i j", "3"), ("k l", "no", "4")]
    path = write("".join(f"{','.join(row)}\n" for row in rows))
    refusal(path, r"name two with --columns=.*, such as .* --columns=1,2 or --columns=2,1, with")
    assert texts(path, columns=["1", "2"], layout="H") == [row[:2] for row in rows]


def test_texts_that_are_all_distinct_do_not_look_exchanged(write):
    rows = "".join(f"a true text {i},another text {i}\n" for i in range(20))
    assert "exchanged?" not in described(write(f"truth,pred\n{rows}"))


def test_the_first_of_two_columns_of_subjects_counts(write):
    assert read_any(write("subject,participant,truth,pred\nA,B,a b,c\n")).predictions[0].subject == "A"


@pytest.mark.parametrize("missing", ["NaN", "None", "N/A", "", "unknown"])
def test_a_reader_without_a_name_is_unknown_however_that_is_written(write, missing):
    path = write(f"truth,pred,subject\na b,a,{missing}\nc d,c,S1\n", "file.csv")
    assert [row.subject for row in read_any(path).predictions] == ["unknown", "S1"]
