"""Texts beside their references, packed files, tables of Parquet and Excel, lists in cells, scripts without spaces."""

import io
import json
import re
from pathlib import Path

import pytest
from reading import EQUAL, OUTPUTS, REFERENCES, described, pairs, refusal, table, texts, workbook
from sacrebleu.tokenizers.tokenizer_zh import TokenizerZh

from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.metrics.metric import character_error_rate, word_error_rate, words_13a
from eeg2text_jax.instrument.predictions._names import built_in
from eeg2text_jax.instrument.predictions.packed import Lines, read_text
from eeg2text_jax.instrument.predictions.read import describe, read_any

CAPTIONS = {str(i): [text, f"another view of {i}", "a third text"] for i, text in enumerate(REFERENCES)}


def lines(items, end: str = "\n") -> str:
    return "\n".join(items) + end


def kaldi(items, step: int = 1) -> str:
    return lines([f"utt{i} {text}" for i, text in enumerate(items)][::step])


BESIDE = {  # outputs, references, layout
    "lines": (lines(OUTPUTS), lines(REFERENCES), "P"),
    "no end": (lines(OUTPUTS, ""), lines(REFERENCES, "\n\n"), "P"),
    "JSON lists": (json.dumps(OUTPUTS), json.dumps(REFERENCES), "P"),
    "list beside lines": (json.dumps(OUTPUTS), lines(REFERENCES), "P"),
    "ids of Kaldi": (kaldi(OUTPUTS, -1), kaldi(REFERENCES), "K"),
    "ids of trn": (*(lines(f"{text} (s1_{i})" for i, text in enumerate(s)) for s in (OUTPUTS, REFERENCES)), "K"),
    "by id": (*(json.dumps({str(i): text for i, text in enumerate(s)}) for s in (OUTPUTS, REFERENCES)), "K"),
    "several references": (json.dumps({i: [OUTPUTS[int(i)]] for i in CAPTIONS}), json.dumps(CAPTIONS), "K"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_texts_are_read_beside_their_references(write, name):
    outputs, references, layout = BESIDE[name]
    path, reference = write(outputs), write(references, "ref.txt")
    assert sorted(texts(path, reference=reference)) == sorted(EQUAL)
    said = described(path, reference=reference)
    assert f"layout {layout} (" in said
    if layout == "K":
        assert sorted(texts(path, reference=reference, layout="K")) == sorted(EQUAL)
    assert str(reference) in said
    assert ("in 6 rows references hold several texts; the first of them counts" in said) == (name[:3] == "sev")


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_empty_line_is_an_empty_output(write, place, end):
    outputs, references = ["a b", "c d", "e f", "g h"], ["i j", "k l", "m n", "o p"]
    outputs[place] = ""
    path, reference = write(end.join([*outputs, ""])), write(end.join([*references, ""]), "ref.txt")
    assert texts(path, reference=reference) == list(zip(references, outputs, strict=True))


@pytest.mark.parametrize("text", ["", "a", "a\n", "\n", "\n\n", "\n\na b\n\nc\n\n", "a\u2028b\vc\n\n d"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_file_has_a_line_before_and_after_each_line_end_and_at_no_other_mark(write, text, end):
    path = write(text.replace("\n", end))
    assert list(Lines(path)) == text.split("\n")
    assert read_text(path) == text


@pytest.mark.parametrize(
    ("outputs", "references", "message"),
    [
        (lines(OUTPUTS[:5]), lines(REFERENCES), "5 texts, and 6 references in .*ref.txt; expected as many"),
        (lines(OUTPUTS), lines(REFERENCES[:5]), "6 texts, and 5 references"),
        (
            '{"0": "a b", "9": "c"}',
            json.dumps(CAPTIONS),
            "the id '9' is not in .*ref.txt, whose first id is '0' .1 of 2 ids are missing there",
        ),
        ('{"0": {"text": "a"}}', json.dumps(CAPTIONS), "id '0': the prediction .*expected a text or a list of texts"),
        ('{"0": [1, 2]}', json.dumps(CAPTIONS), "id '0': .* is .1, 2.; expected a text or a list of texts"),
        (
            lines(OUTPUTS),
            json.dumps(CAPTIONS),
            "has its texts by id, such as '0', and .* has no ids; give both in the same form",
        ),
        ("\n", lines(REFERENCES), "the file is empty"),
    ],
)
def test_files_that_do_not_lie_side_by_side_are_refused(write, outputs, references, message):
    path, reference = write(outputs), write(references, "ref.txt")
    refusal(path, message, reference=reference)


def test_score_and_audit_take_references_of_their_own_file(write, tmp_path, capsys, refused):
    words = ["red", "blue", "green", "old", "new", "cold", "warm", "loud", "tall", "small"]
    many = [f"the {a} {b} thing number {i}" for i, a in enumerate(words) for b in words[:4]]
    eeg, control = write(lines(many), "eeg.txt"), write(lines(many[1:] + many[:1]), "shuffled.txt")
    reference = write(lines(many), "ref.txt")
    assert main(["score", str(eeg), f"--reference={reference}", f"--json={tmp_path / 's.json'}"]) == 0
    (cell,) = json.loads((tmp_path / "s.json").read_text())["cells"]
    assert cell["metrics"]["wer"]["value"] == 0
    command = ["audit", f"--eeg={eeg}", f"--control={control}", f"--reference={reference}"]
    assert main([*command, "--mode=free_running"]) in (0, 4, 8)
    assert "layout P (one text per line" in capsys.readouterr().out
    assert "given twice" in refused(["audit", f"--eeg={eeg}", f"--reference={eeg}"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lines(OUTPUTS), "give its references with --reference=FILE"),
        (json.dumps({str(i): text for i, text in enumerate(OUTPUTS)}), "texts by id without references; give their"),
        (json.dumps({str(i): [f"is {i}"] for i in range(4)}), "texts by id without references; give their"),
        (json.dumps({str(i): ["a b"] * 2 for i in range(60)}), "texts by id without references; give their"),
        (json.dumps({str(i): ["a b"] * (i % 2 + 1) for i in range(4)}), "if these are references, give the file of"),
        (json.dumps({str(i): t for i, t in enumerate(OUTPUTS)}, indent=1), "texts by id without references; give"),
    ],
)
def test_texts_alone_ask_for_their_references_once(write, text, message):
    assert refusal(write(text), message).count("give its references") < 2


def test_an_object_with_other_columns_and_data_is_no_table_of_pandas(write):
    refusal(write(json.dumps({"columns": 2, "data": [["a", "b"]]}, indent=1)), "JSON without predictions")


def test_parquet_is_read(write):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    columns = {"truth": [[r] for r in REFERENCES], "pred": [*OUTPUTS[:5], None], "subject": [1, 1, 1, 2, 2, 2]}
    pq.write_table(pa.table(columns), out)
    read = read_any(write(out.getvalue(), "file.parquet"))
    assert pairs(read) == [*EQUAL[:5], (REFERENCES[5], "")]
    assert {p.subject for p in read.predictions} == {"1", "2"}
    assert "layout F (Parquet; reference 'truth', prediction 'pred'" in describe(read)
    refusal(write(out.getvalue()[:50], "cut.parquet"), "cannot be read as Parquet")
    plain = io.BytesIO()
    pq.write_table(pa.table({"truth": ["a cat"], "pred": ["a dog"]}), plain, compression="none", use_dictionary=False)
    refusal(
        write(plain.getvalue().replace(b"\5\0\0\0a cat", b"\5\0\0\0a \xffat"), "damaged.parquet"),
        r"damaged\.parquet: cannot be read as Parquet",
    )


def test_an_excel_table_is_read(write):
    rows = [(*pair, 3) for pair in EQUAL]
    read = read_any(write(workbook(one=[("Truth", "Pred", "seed"), *rows[:3], (), *rows[3:]]), "file.xlsx"))
    assert pairs(read) == EQUAL
    assert {p.seed for p in read.predictions} == {3}
    assert "layout F (Excel, first sheet; reference 'Truth'" in describe(read)


def test_sheets_that_are_not_read_are_named(write):
    rows = [("truth", "pred"), *EQUAL]
    book = workbook(Info=[["Table S3"]], Decodes=[["Decoded sentences"], [], *rows])
    found = read_any(write(book, "file.xlsx"))
    assert pairs(found) == EQUAL
    assert "(Excel, sheet 'Decodes', not read: 'Info'; reference" in describe(found)
    refusal(write(workbook(eeg=rows, noise=rows)), "the sheets 'eeg', 'noise' hold tables of the same columns")


@pytest.mark.parametrize(
    ("cell", "outcome", "note"),
    [
        ("['a b']", "a b", ""),
        ('["a b", "a b"]', "a b", ""),
        ('["He said \\"no\\"", "She"]', 'He said "no"', "hold several texts"),
        ("['a b' 'c d']", "a b", "hold several texts"),  # as NumPy writes them
        ("['HH', 'AH', 'L', 'OW']", "HH AH L OW", "are lists of tokens"),
        ("[]", "", ""),
        ("[laughs]", "[laughs]", ""),
        ("[a] b [c]", "[a] b [c]", ""),
    ],
)
def test_a_list_in_a_cell_is_seen(write, cell, outcome, note):
    for side, text in ((0, table(("truth", "pred"), (cell, "x y"))), (1, table(("truth", "pred"), ("x y", cell)))):
        read = read_any(write(text))
        (row,) = read.predictions
        assert (row.reference, row.prediction)[side] == outcome
        assert (note in describe(read)) if note else not read.notes
    (row,) = read_any(write(json.dumps([{"truth": cell, "pred": "x y"}]))).predictions
    assert row.reference == outcome


@pytest.mark.parametrize(
    ("items", "outcome", "note"),
    [
        (["a b", "c d"], "a b", "in 1 row {}s hold several texts; the first of them counts"),
        (['Il dit "là"', "yes"], 'Il dit "là"', "in 1 row {}s hold several texts"),
        (["HH", "AH", "L"], "HH AH L", "in 1 row {}s are lists of tokens"),
        (["a b"], "a b", ""),
        ([], "", ""),
    ],
)
def test_a_list_in_json_is_seen(write, items, outcome, note):
    for side, row in (("reference", {"gt": items, "pred": "x y"}), ("prediction", {"gt": "x y", "pred": items})):
        for text in (json.dumps(row), json.dumps([row], indent=1)):
            read = read_any(write(text))
            assert getattr(read.predictions[0], side) == outcome
            assert (note.format(side) in describe(read)) if note else not read.notes


def test_a_list_of_numbers_in_a_cell_is_no_text(write):
    message = "no column can be recognized as the reference among truth"
    refusal(write(table(("truth", "pred"), ("[12, 7]", "x y"))), message)
    for cell, message in (
        ("[['a b'], ['c d']]", "is the list of lists .*; a row holds several samples"),
        ("[12, 7]", "is .12, 7.; expected a text or a list of texts"),
    ):
        path = write(table(("truth", "pred"), (cell, "x y"), ("a b", "c d")))
        refusal(path, f"line 2: the reference 'truth' {message}")


@pytest.mark.parametrize("columns", [None, ["assistant", "user"]])
def test_a_chat_alone_says_to_write_rows(write, columns):
    path = write(lines(json.dumps({"id": r, "messages": chat(r)}) for r, _ in EQUAL))
    refusal(path, r"line 1: no turn of the chat 'messages' .*; write one row of reference and", columns=columns)


def chat(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "decode"}, {"role": "assistant", "content": content}]


JSON = {
    "chat holds the reference": lines(json.dumps({"messages": chat(r), "response": p}) for r, p in EQUAL),
    "chat holds the output": lines(json.dumps({"messages": chat(p), "reference": r}) for r, p in EQUAL),
    "labels beside a chat": lines(
        json.dumps({"response": p, "labels": r, "messages": chat(p), "logprobs": None}) for r, p in EQUAL
    ),
    "several turns": lines(json.dumps({"messages": [*chat("a draft"), *chat(p)], "reference": r}) for r, p in EQUAL),
    "parts": lines(json.dumps({"messages": chat([{"type": "text", "text": p}])[1:], "truth": r}) for r, p in EQUAL),
    "sharegpt": json.dumps([{"conversations": [{"from": "gpt", "value": r}], "prediction": p} for r, p in EQUAL]),
    "pandas split": json.dumps({"columns": ["truth", "pred"], "index": [*range(6)], "data": [list(p) for p in EQUAL]}),
    "phonemes": lines(json.dumps({"true_phonemes": r.split(), "pred_phonemes": p}) for r, p in EQUAL),
}


@pytest.mark.parametrize("name", JSON)
def test_more_forms_of_json_are_read(write, name):
    assert texts(write(JSON[name])) == EQUAL


def test_phonemes_are_read_where_there_is_no_text(write):
    header = ("true_phonemes", "predicted_phonemes")
    assert texts(write(table(header, *EQUAL))) == EQUAL
    both = table(("truth", "pred", *header), *((*pair, "HH", "AH") for pair in EQUAL))
    assert texts(write(both)) == EQUAL


def test_columns_that_look_exchanged_are_asked_about(write):
    pairs = [(f"{output} {reader}", text) for output, text in EQUAL for reader in "abcdef"]
    pairs += [(f"{output} more {reader}", f"{text} again") for output, text in EQUAL for reader in "abcdef"]
    wrong, right = table(("truth", "pred"), *pairs), table(("pred", "truth"), *pairs)
    asked = "are reference and prediction exchanged? 12 predictions recur about 6 times"
    assert asked in described(write(wrong))
    assert "exchanged?" not in described(write(right))
    marked = table(("truth", "pred"), *((f"{p}</s><pad>", r) for r, p in EQUAL))
    assert "exchanged? 100% of the references hold special tokens" in described(write(marked))


def test_curly_quotes_of_one_side_are_named(write):
    rows = [("truth", "pred"), ("it’s “good”", "it's good"), ("a b", "c d")]
    said = "1 reference has curly quotes or apostrophes and the predictions straight ones"
    assert said in described(write(table(*rows)))
    assert "curly quotes" not in described(write(table(*rows, ("e f", "it’s"))))
    said = "1 prediction has curly quotes or apostrophes and the references straight ones"
    assert said in described(write(table(("pred", "truth"), *rows[1:])))
    for header in (("truth", "pred"), ("pred", "truth")):
        assert "curly quotes" not in described(write(table(header, ("it’s “good”", "it is good"))))


def test_every_fault_of_a_file_is_said(write):
    """One is no reason to say nothing of the others."""
    rows = [(f"“他们在学校 {n}”", f'"at school {n}"', "") for n in range(10)]
    said = described(write(table(("truth", "pred_eeg", "pred_noise"), *rows, *rows)))
    for fault in (
        "under unknown → noise is empty",
        "the second half of the file repeats its first 20 rows",
        "40 references have curly quotes",
        "each Han or kana character counts as a word",
    ):
        assert fault in said


HAN = [("我喜欢看电影。", "我喜欢看书。"), ("今天天气很好", "今天天气不好"), ("他们在学校学习English", "她在学校")]


def test_a_script_without_spaces_is_scored_by_characters_and_that_is_said(write):
    read = read_any(write(table(("truth", "pred"), *HAN)))
    assert [p.n_words for p in read.predictions] == [7, 6, 8]
    assert "each Han or kana character counts as a word" in describe(read)
    tokenizer = TokenizerZh()
    for text in (*(side for pair in HAN for side in pair), "ABC，是 2.5 元！", "plain English, of course."):
        assert words_13a(text) == tokenizer(text).split(), text
    references, outputs = (list(side) for side in zip(*HAN, strict=True))
    found = {m.name: m.figures(m.total(outputs, references)) for m in (word_error_rate(), character_error_rate())}
    assert found["wer"]["wer"] == pytest.approx(100 * 8 / 21)  # by hand; `cer` counts each letter of English
    assert found["cer"]["cer"] == pytest.approx(100 * 14 / 27)


def test_texts_without_spaces_in_another_script_are_named(write):
    rows = [("truth", "pred"), *((f"สวัสดีครับเพื่อน{i}", "สวัสดี") for i in range(12))]
    assert "12 of 12 references have no space: each counts as one word" in described(write(table(*rows)))


def test_score_says_what_case_and_punctuation_cost(write, printed_by):
    rows = [("truth", "pred"), *((f"{r.title()}, yes.", f"{r}, yes") for r in REFERENCES * 3)]
    said = " ".join(printed_by(["score", str(write(table(*rows)))]).split())
    assert "special tokens count: without them, scores change (WER from 100.00 to 0.00 and BLEU-1 from" in said
    assert "case and punctuation" not in printed_by(["score", str(write(table(("truth", "pred"), *EQUAL)))])


def test_the_page_lists_every_known_name():
    page = (Path(__file__).parents[2] / "docs/layouts.md").read_text("utf8").partition("## Names that are known")[2]
    listed = dict(re.findall(r"^\| (\w+) \| (.+) \|$", page.partition("\n## ")[0], re.MULTILINE))
    known = built_in()
    told = {field: {name for name, of in known.fields.items() if of == field} for field in ("subject", "task")}
    modes = {name for name, of in known.fields.items() if of in ("mode", "forced", "decoding")}
    sides = {side: {*known.sections[side]["names"]} for side in ("reference", "prediction")}
    sides |= {f"{side}_mark": {*known.sections[side]["marks"]} for side in ("reference", "prediction")}
    sides |= {form: {*nouns} for form, nouns in known.sections["nouns"].items()} | {"maybe": {*known.maybe}}
    for side, names in {**sides, **told, "mode": modes}.items():
        assert names <= set(re.findall(r"`([^`]+)`", listed[side])), side


def test_a_table_of_pandas_with_its_schema_is_read(write):
    fields = [{"name": "ref", "type": "string"}, {"name": "hyp", "type": "string"}]
    schema = {"fields": fields, "primaryKey": ["index"], "pandas_version": "1.4.0"}
    rows = [{"index": i, "ref": f"a b {i}", "hyp": "c"} for i in range(3)]
    found = read_any(write(json.dumps({"schema": schema, "data": rows})))
    assert [p.reference for p in found.predictions] == ["a b 0", "a b 1", "a b 2"]


def test_a_column_of_numbers_is_no_text(write):
    """Labels of a class were read as references."""
    path = write("label,said,Reconstructed\n0,a b,a c\n2,d e,d f\n")
    refusal(path, r"the prediction is 'Reconstructed'; no column .* as the reference")
    assert [p.reference for p in read_any(path, columns=["said", "Reconstructed"]).predictions] == ["a b", "d e"]


def test_a_markdown_table_has_no_column_outside_of_its_bars(write):
    path = write("| pred | wer |\n| --- | --- |\n| a b | 1 |\n| c d | 0 |\n")
    for reference in ("a x\nc y\n", "| true |\n| --- |\n| a x |\n| c y |\n"):
        found = read_any(path, reference=write(reference, "ref.txt"))
        assert pairs(found) == [("a x", "a b"), ("c y", "c d")]


def test_a_sheet_of_one_column_beside_its_index_has_a_header(join):
    book = workbook(one=([], [], [None, "pred"], [0, "a b"], [1, "c d"]))
    assert pairs(join(book, "a x\nc y\n", "xlsx", "txt")) == [("a x", "a b"), ("c y", "c d")]


def test_a_few_rows_under_several_conditions_are_not_taken_as_one(write):
    path = write("truth,pred,condition\na b,c,eeg\nd e,f,noise\ng h,i,shuffled\n")
    refusal(path, r"the column 'condition' says what was fed .eeg, noise, shuffled")


@pytest.mark.parametrize("printed", [repr, json.dumps])
def test_lists_on_lines_are_rows_without_marks_in_their_texts(write, printed):
    """The brackets and quotes of printed tuples became parts of words."""
    rows = [(f"it's a sentence {i}", f'a "quoted" one, {i}') for i in range(5)]
    path = write("".join(f"{printed(row)}\n" for row in rows))
    refusal(path, r"no column has a known name; .* --columns=1,2 or --columns=2,1")
    assert texts(path, columns=["1", "2"]) == rows


def test_rows_below_an_empty_row_are_a_footer(write):
    rows = [["id", "pred", "truth"], *([f"u{i}", p, r] for i, (r, p) in enumerate(EQUAL)), ["", "", ""]]
    found = read_any(write(table(*rows, ["errors", 3, ""], ["rate", "", "0.5"])))
    assert pairs(found) == EQUAL
    assert "line 8 is empty and ends the table; left out as a footer: 2 rows from 'errors' on" in describe(found)
    assert "line 8 is empty and ends the table." in described(write(table(*rows)))
    for more in (["u7", "a b", "c d"], rows[-1]):  # a sample below, or empty texts with an id, which are no samples
        last = [["u8", "", "c d"], ["u9", "a b", ""]]
        part = [row if row != rows[-1] or more[0] else ["u6", "", ""] for row in [*rows, more, *last]]
        found = read_any(write(table(*part)))
        assert len(found.predictions) == (9 if more[0] else 8)
        assert f"{1 if more[0] else 2} row" in found.notes[0]
