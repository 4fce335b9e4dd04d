"""Two files, outputs and references: tables, JSON and lines with ids are joined, never read as raw lines."""

import json

import pytest
from reading import pairs, refusal, table, texts

from eeg2text_jax.instrument.predictions.read import describe

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


@pytest.mark.parametrize("name", JOINED)
def test_files_of_outputs_and_references_are_joined(join, name):
    outputs, references, said = JOINED[name]
    read = join(outputs, references)
    assert sorted(pairs(read)) == PAIRS
    assert f"layout {said}" in describe(read)


ALONE = lines(REFERENCES)
REFUSED = {
    "another id": (columns("prediction", OUTPUTS), columns("reference", REFERENCES[:5]), "the id 'S1_5' is not in"),
    "ids in one file": (
        numbered(OUTPUTS),
        ALONE,
        "has its texts by id, such as 'S1_0', and .*ref.txt has no ids; give",
    ),
    "no name": (table(("a", "b"), *PAIRS), lines(["x", *REFERENCES]), "no column can be recognized as the prediction"),
    "both": (table(("truth", "pred"), *PAIRS), ALONE, "has references of its own .truth, pred.; leave"),
    "chat": (
        lines(json.dumps({"reference": r, "messages": [{"role": "assistant", "content": o}]}) for r, o in PAIRS),
        ALONE,
        "has references of its own",
    ),
    "blocks": (
        "".join(f"target string: {r}\npredicted string: {o}\n########\n" for r, o in PAIRS),
        ALONE,
        "is of layout A1, with references and predictions of its own",
    ),
    "two references": (
        columns("prediction", OUTPUTS),
        columns("reference", REFERENCES).replace("S1_1,", "S1_0,", 1),
        "the id 'S1_0' has several references",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_cannot_be_joined_are_refused(join_refused, name):
    outputs, references, message = REFUSED[name]
    join_refused(message, outputs, references)


def test_columns_and_format_hold_beside_references(write, join, join_refused):
    rows = [(i, text, f"no {text}") for i, text in enumerate(OUTPUTS)]
    files = table(("key", "what", "draft"), *rows), table(("key", "said"), *enumerate(REFERENCES))
    read = join(*files, columns=["said", "what"])
    assert sorted(pairs(read)) == PAIRS
    assert "not used: 'draft'" in describe(read)
    assert join(*files, layout="P").predictions[1].prediction == f'0,"{rows[0][1]}","{rows[0][2]}"'
    for options, message in (
        ({"columns": ["what"]}, "expected two"),
        ({"columns": ["said", "no"]}, "there is no column 'no'"),
        ({"layout": "A"}, "--format=A: files of this layout hold references"),
        ({"layout": "K"}, "some texts of this file or of"),
        ({"layout": "J"}, "not JSON"),
    ):
        join_refused(message, *files, **options)
    refusal(write(files[0]), "the file has only predictions; give their references", layout="P")


@pytest.mark.parametrize(("mine", "theirs"), [("4T0C{} {}", "4t0c{} {}"), ("D-{} {}", "T-{} {}")])
def test_ids_that_differ_by_case_or_by_fairseqs_letter_are_joined(join, mine, theirs):
    outputs = lines(mine.format(i, text) for i, text in reversed([*enumerate(OUTPUTS)]))
    assert sorted(pairs(join(outputs, numbered(REFERENCES, theirs)))) == PAIRS


def test_ids_that_differ_by_case_alone_are_not_confused(join_refused):
    """In lower case the ids of two outputs would be one."""
    join_refused("the id 'A_1' is not in", "A_1 he was\na_1 she was\n", "a_1 it is\nb_2 we are\n")


def test_rows_of_one_id_go_in_order_and_an_id_may_recur_with_its_reference(join):
    rows = [("x", "first"), ("x", "second"), ("y", "third")]
    outputs, references = (table(("id", name), *((k, f"{t} {name}") for k, t in rows)) for name in ("pred", "truth"))
    assert pairs(join(outputs, references)) == [(f"{t} truth", f"{t} pred") for _, t in rows]
    found = join(outputs, "id,truth\ny,c\nx,a\nx,a\n").predictions
    assert [p.reference for p in found] == ["a", "a", "c"]


def test_first_words_that_recur_are_no_ids(join, join_refused):
    files = "1990 he was\n1990 she is\n", "1990 it is\n1991 we are\n"
    assert [p.prediction for p in join(*files, layout="P").predictions] == files[0].splitlines()
    # Those of the references are ids.
    join_refused(r"ref.txt: has its texts by id, such as '1990', and .*out.txt has no ids", *files)


def test_an_option_given_twice_is_refused(write, refused):
    """The first file of references would be dropped without a word."""
    out, one = (write(lines(REFERENCES), f"{name}.txt") for name in ("out", "one"))
    for option in (f"--reference={one}", "--block=1", "--columns=1,2"):
        said = refused(["read", str(out), option, option])
        assert f"{option.partition('=')[0]} is given twice; give it once." in said


def test_one_word_above_both_csv_files_of_one_column_is_their_header(join):
    """Lines of other files may begin with the same greeting."""
    true, said = ([f"{side} {i} of a longer text" for i in range(4)] for side in ("true", "said"))
    for kind, rows in (("csv", 4), ("txt", 5)):
        found = join(lines(["report", *said]), lines(["report", *true]), kind)
        assert pairs(found)[-4:] == [*zip(true, said, strict=True)]
        assert len(found.predictions) == rows
    assert "--columns=report,report would leave them out" in found.notes[0]
    words = "report\nsaid\nheard\n"  # alone, and the first one is right
    assert len(join(words, words, "csv").predictions) == 3


def test_objects_without_names_hold_no_texts(join_refused):
    join_refused(r"out.json: no texts in the file", "[{}]", "a b\n", "json", "txt")


def test_a_file_of_lines_is_column_1_beside_a_table_without_header(join, join_refused):
    files = (
        "the first output\nand the second\nthe third of all\n",
        lines(f"{i}\tsource {i}\ttrue {i}" for i in range(3)),
    )
    assert pairs(join(*files, "txt", "tsv", columns=["3", "1"]))[2] == ("true 2", "the third of all")
    message = "no column '2', as each line of the file is a text; name it 1"
    join_refused(message, *files, "txt", "tsv", columns=["3", "2"])


def test_objects_without_a_text_are_left_out_of_two_files(join):
    """As of turns that need no answer; those that lack an answer are counted."""
    asked = [i % 3 != 2 for i in range(9)]
    answered = [a and i != 4 for i, a in enumerate(asked)]
    answered[2] = True
    outputs, references = (
        json.dumps([{"asked": a} | ({"response": f"{side} {i}"} if a else {}) for i, a in enumerate(some)])
        for side, some in (("said", answered), ("true", asked))
    )
    read = join(outputs, references, "json")
    assert pairs(read) == [(f"true {i}", f"said {i}") for i in (0, 1, 3, 6, 7)]
    left_out = "4 objects without both texts are left out; 1 of these have a reference only, 1 a prediction only"
    assert left_out in describe(read)


def test_names_of_files_in_another_order_are_no_rows_side_by_side(join, join_refused):
    outputs = "clip,said\n" + "".join(f"c{i}.wav,it was {i} of them\n" for i in range(4))
    references = "video,spoken\n" + "".join(f"a/c{i}.MP4,they were {i} of them\n" for i in (2, 0, 1, 3))
    named = {"columns": ["spoken", "said"]}
    join_refused("say --id=video,clip to join by them", outputs, references, "csv", **named)
    read = join(outputs, references, "csv", id=["video", "clip"], **named)
    assert all(p.reference[-9:] == p.prediction[-9:] for p in read.predictions)


def test_texts_of_conll_u_are_read(join, join_refused):
    files = (
        "".join(f"# sent_id = {i}\n# text = the output {i}\n\n" for i in range(3)),
        lines(f"true text {i}" for i in range(3)),
    )
    assert pairs(join(*files))[2] == ("true text 2", "the output 2")
    join_refused("--labels=a,b: of one file that holds both", *files, labels=["a", "b"])


def test_a_ruler_below_the_header_is_no_row(write):
    path = write("source\treference\tprediction\n" + "=" * 40 + "\na b\tc d\te f\ng h\ti j\tk l\n")
    assert texts(path) == [("c d", "e f"), ("i j", "k l")]


def test_of_three_columns_of_texts_none_is_proposed(write):
    rows = lines(f"{i}.jpg,a boy {i},a man {i},the dog {i}" for i in range(4))
    path = write("image,base_cap,lora_cap,shown_cap\n" + rows)
    refusal(path, "name two with --columns=REFERENCE,PREDICTION, by name if line 1 is a header")
