"""Two files, outputs and references: tables, JSON and lines with ids are joined, never read as raw lines."""

import json

import pytest
from reading import pairs, refusal, table, texts

from eeg2text_jax.instrument.predictions.read import describe, read_any

REFERENCES = [f"the {a} {b} went, at last, home" for a in ("red", "blue", "old") for b in ("cat", "dog", "man", "cow")]
OUTPUTS = [f"{text.split()[1]} was there, {i}" for i, text in enumerate(REFERENCES)]
PAIRS = sorted(zip(REFERENCES, OUTPUTS, strict=True))


def columns(name, texts, key="id", delimiter=","):
    return table((key, name), *((f"S1_{i}" if key else i, text) for i, text in enumerate(texts)), delimiter=delimiter)


def objects(name, texts):
    return "".join(json.dumps({"id": f"S1_{i}", name: text}) + "\n" for i, text in enumerate(texts))


def lines(texts):
    return "".join(f"{text}\n" for text in texts)


def numbered(texts, form="S1_{} {}"):
    return lines(form.format(i, text) for i, text in enumerate(texts))


JOINED = {  # outputs, references, layout
    "CSV by id": (columns("prediction", OUTPUTS), columns("reference", REFERENCES), "K (CSV, prediction"),
    "TSV by id": (columns("hyp", OUTPUTS, delimiter="\t"), columns("text", REFERENCES), "K (TSV, prediction 'hyp'"),
    "pandas": (columns("0", OUTPUTS, "").replace(",0\n", ",pred\n", 1), columns("sentence", REFERENCES, ""), "K (CSV"),
    "pandas by tab": (columns("pred", OUTPUTS, "", "\t"), columns("gt", REFERENCES, "", "\t"), "K (TSV"),
    "JSON lines": (objects("prediction", OUTPUTS), objects("reference", REFERENCES), "K (JSON lines"),
    "JSON list": (
        json.dumps([{"pred": text} for text in OUTPUTS]),
        json.dumps([{"text": text} for text in REFERENCES]),
        "P (JSON list, prediction 'pred'",
    ),
    "number and tab": (
        *(table(*enumerate(texts), delimiter="\t") for texts in (OUTPUTS, REFERENCES)),
        "K (TSV without header, prediction column 2, id column 1",
    ),
    "ids below a header": ("id text\n" + numbered(OUTPUTS), numbered(REFERENCES), "K (texts by id"),
    "numbered": (numbered(OUTPUTS, "{}. {}"), numbered(REFERENCES, "{}. {}"), "K (texts by id"),
    "one column": (
        *(table([name], *([t] for t in s)) for name, s in (("prediction", OUTPUTS), ("reference", REFERENCES))),
        "P (",
    ),
    "lines beside a column": (lines(OUTPUTS), lines(["sentence", *REFERENCES]), "P (one text per line; references"),
    "rows beside ids": (lines(OUTPUTS), columns("reference", REFERENCES), "P (one text per line"),
}


@pytest.fixture
def write(tmp_path):
    def write(outputs, references):
        for name, text in (("out.txt", outputs), ("ref.txt", references)):
            (tmp_path / name).write_text(text, "utf8")
        return tmp_path / "out.txt", {"reference": tmp_path / "ref.txt"}

    return write


@pytest.mark.parametrize("name", JOINED)
def test_files_of_outputs_and_references_are_joined(write, name):
    outputs, references, said = JOINED[name]
    path, given = write(outputs, references)
    read = read_any(path, **given)
    assert sorted(pairs(read)) == PAIRS
    assert f"layout {said}" in describe(read)


def test_ids_join_in_any_order_and_other_columns_travel(write):
    rows = [("id", "subject", "prediction"), *((f"S1_{i}", f"s{i % 2}", text) for i, text in enumerate(OUTPUTS))]
    path, given = write(table(rows[0], *rows[:0:-1]), columns("reference", REFERENCES))
    read = read_any(path, **given)
    assert sorted(pairs(read)) == PAIRS
    assert {p.subject for p in read.predictions} == {"s0", "s1"}


REFUSED = {
    "another id": (columns("prediction", OUTPUTS), columns("reference", REFERENCES[:5]), "the id 'S1_5' is not in"),
    "ids in one file": (
        numbered(OUTPUTS),
        lines(REFERENCES),
        "has its texts by id, such as 'S1_0', and .*ref.txt has no ids; give",
    ),
    "no name": (
        table(("a", "b"), *PAIRS),
        lines(["x", *REFERENCES]),
        "no column can be recognized as the prediction",
    ),
    "both": (table(("truth", "pred"), *PAIRS), lines(REFERENCES), "has references of its own .truth, pred.; leave"),
    "chat": (
        lines(json.dumps({"reference": r, "messages": [{"role": "assistant", "content": o}]}) for r, o in PAIRS),
        lines(REFERENCES),
        "has references of its own",
    ),
    "blocks": (
        "".join(f"target string: {r}\npredicted string: {o}\n########\n" for r, o in PAIRS),
        lines(REFERENCES),
        "is of layout A1, with references and predictions of its own",
    ),
    "two references": (
        columns("prediction", OUTPUTS),
        columns("reference", REFERENCES).replace("S1_1,", "S1_0,", 1),
        "the id 'S1_0' has several references",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_cannot_be_joined_are_refused(write, name):
    outputs, references, message = REFUSED[name]
    path, given = write(outputs, references)
    refusal(path, message, **given)


def test_columns_and_format_hold_beside_references(write):
    rows = [("key", "what", "draft"), *((i, text, f"no {text}") for i, text in enumerate(OUTPUTS))]
    path, given = write(table(*rows), table(("key", "said"), *enumerate(REFERENCES)))
    read = read_any(path, columns=["said", "what"], **given)
    assert sorted(pairs(read)) == PAIRS
    assert "not used: 'draft'" in describe(read)
    _, second, *_ = read_any(path, layout="P", **given).predictions
    assert second.prediction == f'0,"{rows[1][1]}","{rows[1][2]}"'
    for options, message in (
        ({"columns": ["what"]}, "expected two"),
        ({"columns": ["said", "no"]}, "there is no column 'no'"),
        ({"layout": "A"}, "--format=A: files of this layout hold references"),
        ({"layout": "K"}, "some texts of this file or of"),
        ({"layout": "J"}, "not JSON"),
    ):
        refusal(path, message, **options, **given)
    refusal(path, "the file has only predictions; give their references", layout="P")


@pytest.mark.parametrize(("mine", "theirs"), [("4T0C{}", "4t0c{}"), ("D-{}", "T-{}")])
def test_ids_that_differ_by_case_or_by_fairseqs_letter_are_joined(tmp_path, mine, theirs):
    for name, key, some in (("hyp", mine, OUTPUTS[::-1]), ("ref", theirs, REFERENCES)):
        order = range(len(some)) if name == "ref" else reversed(range(len(some)))
        (tmp_path / name).write_text(lines(f"{key.format(i)} {text}" for i, text in zip(order, some, strict=True)))
    read = read_any(tmp_path / "hyp", reference=tmp_path / "ref").predictions
    assert sorted((row.reference, row.prediction) for row in read) == PAIRS


def test_ids_that_differ_by_case_alone_are_not_confused(tmp_path):
    """In lower case the ids of two outputs would be one."""
    (tmp_path / "hyp").write_text(lines(["A_1 he was", "a_1 she was"]))
    (tmp_path / "ref").write_text(lines(["a_1 it is", "b_2 we are"]))
    refusal(tmp_path / "hyp", "the id 'A_1' is not in", reference=tmp_path / "ref")


def test_rows_of_one_id_go_in_order_and_an_id_may_recur_with_its_reference(tmp_path):
    rows = [("x", "first"), ("x", "second"), ("y", "third")]
    sides = {name: table(("id", name), *((k, f"{text} {name}") for k, text in rows)) for name in ("pred", "truth")}
    for name, text in sides.items():
        (tmp_path / name).write_text(text)
    found = read_any(tmp_path / "pred", reference=tmp_path / "truth").predictions
    assert [(p.reference, p.prediction) for p in found] == [(f"{t} truth", f"{t} pred") for _, t in rows]
    (tmp_path / "truth").write_text(table(("id", "truth"), ("y", "c"), ("x", "a"), ("x", "a")))
    found = read_any(tmp_path / "pred", reference=tmp_path / "truth").predictions
    assert [p.reference for p in found] == ["a", "a", "c"]


def test_first_words_that_recur_are_no_ids(tmp_path):
    sides = {"hyp": ["1990 he was", "1990 she is"], "ref": ["1990 it is", "1991 we are"]}
    for name, some in sides.items():
        (tmp_path / name).write_text(lines(some))
    found = read_any(tmp_path / "hyp", reference=tmp_path / "ref", layout="P").predictions
    assert [p.prediction for p in found] == sides["hyp"]
    refusal(
        tmp_path / "hyp", r"ref: has its texts by id, such as '1990', and .*hyp has no ids", reference=tmp_path / "ref"
    )


def test_an_option_given_twice_is_refused(tmp_path, refused):
    """The first file of references would be dropped without a word."""
    for name in ("out", "one", "two"):
        (tmp_path / f"{name}.txt").write_text(lines(REFERENCES))
    for option in (f"--reference={tmp_path / 'one.txt'}", "--block=1", "--columns=1,2"):
        said = refused(["read", str(tmp_path / "out.txt"), option, option])
        assert f"{option.partition('=')[0]} is given twice; give it once." in said


def test_one_word_above_both_csv_files_of_one_column_is_their_header(tmp_path):
    """Lines of other files may begin with the same greeting."""
    true, said = ([f"{side} {i} of a longer text" for i in range(4)] for side in ("true", "said"))
    for name, rows in (("csv", 4), ("txt", 5)):
        reference, outputs = tmp_path / f"true.{name}", tmp_path / f"said.{name}"
        reference.write_text("\n".join(["report", *true]) + "\n")
        outputs.write_text("\n".join(["report", *said]) + "\n")
        found = read_any(outputs, reference=reference)
        assert pairs(found)[-4:] == [*zip(true, said, strict=True)]
        assert len(found.predictions) == rows
    assert "--columns=report,report would leave them out" in found.notes[0]
    for path in (tmp_path / "true.csv", tmp_path / "said.csv"):  # words alone, whose first one is right
        path.write_text("report\nsaid\nheard\n")
    assert len(read_any(tmp_path / "said.csv", reference=tmp_path / "true.csv").predictions) == 3


def test_objects_without_names_hold_no_texts(tmp_path):
    (tmp_path / "said.json").write_text("[{}]")
    (tmp_path / "true.txt").write_text("a b\n")
    refusal(tmp_path / "said.json", r"said.json: no texts in the file", reference=tmp_path / "true.txt")


def test_a_file_of_lines_is_column_1_beside_a_table_without_header(tmp_path):
    outputs, table = tmp_path / "out.txt", tmp_path / "refs.tsv"
    outputs.write_text("the first output\nand the second\nthe third of all\n")
    table.write_text("".join(f"{i}\tsource {i} of it\ttrue text {i}\n" for i in range(3)))
    read = read_any(outputs, reference=table, columns=["3", "1"])
    assert pairs(read)[2] == ("true text 2", "the third of all")
    refusal(
        outputs, "no column '2', as each line of the file is a text; name it 1", reference=table, columns=["3", "2"]
    )


def test_objects_without_a_text_are_left_out_of_two_files(tmp_path):
    """As of turns that need no answer; those that lack an answer are counted."""
    outputs, references = tmp_path / "out.json", tmp_path / "labels.json"
    asked = [i % 3 != 2 for i in range(9)]
    references.write_text(
        json.dumps([{"asked": a} | ({"response": f"true {i}"} if a else {}) for i, a in enumerate(asked)])
    )
    answered = [a and i != 4 for i, a in enumerate(asked)]
    answered[2] = True
    outputs.write_text(
        json.dumps([{"asked": a} | ({"response": f"said {i}"} if a else {}) for i, a in enumerate(answered)])
    )
    read = read_any(outputs, reference=references)
    assert pairs(read) == [(f"true {i}", f"said {i}") for i in (0, 1, 3, 6, 7)]
    assert (
        "4 objects without both texts are left out; 1 of these have a reference only, 1 a prediction only"
        in describe(read)
    )


def test_names_of_files_in_another_order_are_no_rows_side_by_side(tmp_path):
    outputs, references = tmp_path / "out.csv", tmp_path / "ref.csv"
    outputs.write_text("clip,said\n" + "".join(f"c{i}.wav,it was {i} of them\n" for i in range(4)))
    references.write_text("video,spoken\n" + "".join(f"a/c{i}.MP4,they were {i} of them\n" for i in (2, 0, 1, 3)))
    refusal(outputs, "say --id=video,clip to join by them", reference=references, columns=["spoken", "said"])
    read = read_any(outputs, reference=references, columns=["spoken", "said"], id=["video", "clip"])
    assert all(p.reference[-9:] == p.prediction[-9:] for p in read.predictions)


def test_texts_of_conll_u_are_read(tmp_path):
    outputs, references = tmp_path / "out.txt", tmp_path / "ref.txt"
    outputs.write_text("".join(f"# sent_id = {i}\n# text = the output {i}\n\n" for i in range(3)))
    references.write_text("".join(f"true text {i}\n" for i in range(3)))
    read = read_any(outputs, reference=references)
    assert pairs(read)[2] == ("true text 2", "the output 2")
    refusal(outputs, "--labels=a,b: of one file that holds both", reference=references, labels=["a", "b"])


def test_a_ruler_below_the_header_is_no_row(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("source\treference\tprediction\n" + "=" * 40 + "\na b\tc d\te f\ng h\ti j\tk l\n")
    assert texts(path) == [("c d", "e f"), ("i j", "k l")]


def test_of_three_columns_of_texts_none_is_proposed(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text(
        "image,base_cap,lora_cap,shown_cap\n" + "".join(f"{i}.jpg,a boy {i},a man {i},the dog {i}\n" for i in range(4))
    )
    refusal(path, "name two with --columns=REFERENCE,PREDICTION, by name if line 1 is a header")
