"""Two files whose rows are not parallel, or look as if they were: joined by ids, asked about, or said."""

import pytest
from reading import pairs, texts

from eeg2text_jax.instrument.predictions.read import describe


@pytest.mark.parametrize("mark", ["\t", " "])
@pytest.mark.parametrize("table", [False, True])
def test_ids_that_repeat_join_by_id(join, mark, table):
    """One text is missing and another is there twice, so that there are as many rows."""
    outputs = f"s0{mark}a one\ns0{mark}a one again\ns2{mark}c one\n"
    references = "".join(f"{'s{},' if table else 's{}' + mark}{{}} two\n".format(i, t) for i, t in enumerate("ABC"))
    found = pairs(join(outputs, "id,ref\n" * table + references, "txt", "csv" * table))
    assert found == [("A two", "a one"), ("A two", "a one again"), ("C two", "c one")]


@pytest.mark.parametrize(
    ("outputs", "references"),
    [
        ("clip,hyp\nu0,a one\nu1,b one\n", "clip,ref\nu1,B two\nu0,A two\n"),  # of two rows
        ("clip,hyp\nu0,a one\nu0,a 1\nu2,c one\n", "clip,ref\nu0,A two\nu1,B two\nu2,C two\n"),
        ("clip,hyp\nu0.mp3,a one\nu1.mp3,b one\nu2.mp3,c\n", "id,ref\nu2,C two\nu0,A two\nu1,B two\n"),
        ("session\tclip\thypothesis\n1\t0\ta\n1\t1\tb\n2\t2\tc\n", "2,C two\n1,B two\n0,A two\n"),
    ],
)
def test_columns_of_the_same_values_in_other_rows_are_asked_about(join_refused, outputs, references):
    join_refused(r"hold the same values in another order, .*; (say --id=|write a header)", outputs, references, "csv")


def test_columns_that_join_differently_are_asked_about(join_refused):
    """Onsets that begin anew in each file, and an index of another order."""
    outputs = ",onset,hyp\n1000,0.0,a\n1001,1.5,b\n1002,3.0,c\n"
    references = ",onset,ref\n1002,0.0,C two\n1000,1.5,A two\n1001,3.0,B two\n"
    join_refused(r"'onset' and .* join the files differently", outputs, references, "csv")


def test_an_empty_text_at_the_end_is_said_or_cut(join, join_refused):
    read = join("Satz\na b c\nd e f\n", "A b c\nD e f\n\n", "csv", "txt")
    said = describe(read)
    assert len(read.predictions) == 3
    assert "ref.txt, the last text is empty, and counts; if line 1 of" in said
    assert "'Satz', is used as a text; if it is a header" in said
    assert pairs(join("a b c\nd e f\n\n", "A b c\nD e f\n\n")) == [("A b c", "a b c"), ("D e f", "d e f")]
    join_refused("4 texts, and 3 references", "n,hyp\n1,a b\n2,c d\n3,e f\n4,\n", "m,ref\n5,A b\n6,C d\n7,E f\n", "csv")


@pytest.mark.parametrize("row", ['"{0}","{1} two"', '"{1} two";"{0}"'])
def test_quoted_fields_without_known_names_are_no_texts(join_refused, row):
    rows = [row.format("clip", "Satz"), *(row.format(i, t) for i, t in enumerate("ABC")), ""]
    message = r"quoted fields without known names, such as .* name the columns of texts"
    join_refused(message, "a\nb\nc\nd\n", "\n".join(rows))


def test_words_with_a_digit_are_no_ids(join):
    assert pairs(join("ok83\nno10\n", "A two\nB two\n")) == [("A two", "ok83"), ("B two", "no10")]


def test_a_header_below_a_comment_is_a_header(join):
    read = join("# made by model 3\noutput\na one\nb one\n", "A two\nB two\n", "csv", "txt")
    assert pairs(read) == [("A two", "a one"), ("B two", "b one")]


@pytest.mark.parametrize("code", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_refused(join_refused, code):
    join_refused("UTF-16 text without a mark; convert it with `iconv", "a one\nb one\n".encode(code), "A two\nB two\n")


def test_an_empty_file_of_references_is_refused(join_refused):
    join_refused(r"ref.txt: the file is empty", "a one\n", "\n")


def test_json_columns_whose_one_sentence_is_a_note_are_asked_about(join_refused):
    rows = '{"notes": "noisy channel here", "human says": "yes"}\n{"notes": "clean one", "human says": "no"}\n'
    message = "no column can be recognized as the reference among notes, human says"
    join_refused(message, "a one\nb one\n", rows, "txt", "jsonl")


def test_a_table_with_bars_between_alone_has_no_ruler_among_its_rows(write):
    path = write("ref | hyp\n--- | ---\nA two | a one\nB two | b one\nC two | c one\n", "table.txt")
    assert texts(path)[:1] == [("A two", "a one")]


@pytest.mark.parametrize("form", ["s001: {}", "a1b {}", "s_1,{}", "{} (s001)"])
def test_ids_that_recur_in_lines_of_both_files_are_asked_about(join, join_refused, form):
    other = form.replace("01", "02").replace("1b", "2b").replace("_1", "_2")
    outputs, references = (
        "".join(f"{f.format(f'{side} words {i}')}\n" for i, f in enumerate((form, form, other, other)))
        for side in ("some", "true")
    )
    join_refused(r"each line has what may be an id, such as .*, and some recur; say --format=K", outputs, references)
    assert pairs(join(outputs, references, layout="K")) == [(f"true words {i}", f"some words {i}") for i in range(4)]


@pytest.mark.parametrize("form", ["{} (trial {})", "Trial {1}: {0}", "trial {1},{0}", "trial {1} {0}"])
def test_ids_of_a_word_and_a_number_join_by_id(join, form):
    outputs = "".join(form.format(f"some words {i}", i) + "\n" for i in (2, 1))
    references = "".join(form.format(f"true words {i}", i) + "\n" for i in (1, 2))
    assert pairs(join(outputs, references)) == [("true words 2", "some words 2"), ("true words 1", "some words 1")]


def test_columns_that_are_a_key_together_are_asked_about(join_refused):
    outputs, references = (
        "reader,item,text\n" + "".join(f"{r},{i},{r.lower()} read {i}\n" for r in readers for i in (1, 2))
        for readers in (("YAC", "ZAB"), ("ZAB", "YAC"))
    )
    join_refused(r"'reader' and 'item' .* say --id=reader,item to join by them", outputs, references, "csv")


def test_ids_with_leading_zeros_are_the_same_ids(join_refused):
    outputs, references = ",clip,prediction\n0,002,b\n1,001,a\n", ",clip,reference\n0,1,A\n1,2,B\n"
    join_refused(r"its 'clip' and 'clip' .* hold the same values in another order", outputs, references, "csv")


def test_a_csv_of_one_column_is_parsed(join):
    read = join('e h\n""\n"a, c"\n', 'e g\ni k\n"a, b"\n', "csv")
    assert pairs(read) == [("e g", "e h"), ("i k", ""), ("a, b", "a, c")]
    assert pairs(join('1,"a, c"\n2,e h\n2,e i\n', '1,"a, b"\n2,e g\n'))[0] == ("a, b", "a, c")
    first = join("0,hello\n1,the old dog ran\n2,a man saw it\n", "0,hello\n1,the old dog\n2,a man saw\n", "csv")
    assert pairs(first)[0] == ("hello", "hello")


def test_blanks_behind_delimiters_and_names_above_lists(write):
    path = write('reference, prediction\n"a b c", "a b d"\n"e f g", "e f h"\n', "data.csv")
    assert texts(path) == [("a b c", "a b d"), ("e f g", "e f h")]
    path = write('["reference", "prediction"]\n["a b c", "a b d"]\n["e f g", "e f h"]\n', "data.jsonl")
    assert texts(path) == [("a b c", "a b d"), ("e f g", "e f h")]


def test_a_column_of_one_name_in_both_files_joins_them(join):
    """Whatever other column holds the same values."""
    outputs = "TestID,Run1,Run2\n" + "".join(f"u{i},u{i},the text {i}\n" for i in (2, 0, 1, 3))
    references = "TestID,Run1,Run2\n" + "".join(f"u{i},{i},a true text {i}\n" for i in range(4))
    read = join(outputs, references, "csv", columns=["Run2", "Run2"])
    assert pairs(read) == [(f"a true text {i}", f"the text {i}") for i in (2, 0, 1, 3)]


def test_numbers_of_rows_are_no_key_beside_other_ids(join_refused):
    outputs, references = (
        f"n,{name},text\n" + "".join(f"{row},{i},text {i} of it\n" for row, i in enumerate(order))
        for name, order in (("nr", ("u2", "u0", "u1")), ("filename", ("u0", "u1", "u2")))
    )
    join_refused(r"'nr' and 'filename' .* hold the same values in another order", outputs, references, "csv")


@pytest.mark.parametrize(
    "form",
    ['<seg id="s{0}.wav">{1} {0} of it</seg>', "# sent_id = u{0}\n# text = {1} {0} of it\n1\t{1}" + 8 * "\t_" + "\n"],
)
def test_ids_of_segments_and_of_conll_u_join_the_files(join, form):
    outputs, references = (
        "".join(form.format(i, side) + "\n" for i in order)
        for side, order in (("said", (2, 0, 1)), ("wrote", (0, 1, 2)))
    )
    assert pairs(join(outputs, references)) == [(f"wrote {i} of it", f"said {i} of it") for i in (2, 0, 1)]


def test_lines_of_json_strings_are_texts_without_escapes(join):
    read = join('"\\u0925 fa\\u00e7on"\n"\\"Yes,\\" he said"\n', "one of it\ntwo of it\n", "jsonl", "txt")
    assert [said for _, said in pairs(read)] == ["\u0925 fa\u00e7on", '"Yes," he said']


def test_a_file_of_one_subtitle_has_one_text(join):
    one = "1\n00:00:00,000 --> 00:00:01,500\n{} there\n"
    assert pairs(join(one.format("hello"), one.format("hallo"))) == [("hallo there", "hello there")]
    head = "WEBVTT\nKind: captions\n\n00:00:00.000 --> 00:00:01.500 align:start\n{} there\n"
    assert pairs(join(head.format("hello"), one.format("hallo"))) == [("hallo there", "hello there")]


def test_an_index_and_a_column_that_join_differently_are_asked_about(join_refused):
    outputs, references = (
        f",index,{name}\n" + "".join(f"{row},{i},{name} {i} of it\n" for row, i in enumerate(order))
        for name, order in (("said", (0, 1, 2)), ("true", (2, 0, 1)))
    )
    join_refused("join the files differently", outputs, references, "csv", columns=["true", "said"])


def test_numbers_of_one_name_that_lack_some_are_asked_about(join_refused):
    outputs, references = (
        f"item,{name}\n" + "".join(f"{i},{name} {i} of it\n" for i in order)
        for name, order in (("said", (2, 3, 4, 6)), ("true", (6, 5, 4, 3)))
    )
    join_refused(
        r"'item' and 'item' .* hold the same values in another order",
        outputs,
        references,
        "csv",
        columns=["true", "said"],
    )


def test_quotes_around_one_text_before_an_id_are_of_the_text(join):
    outputs, references = ('"a one" (s1)\nb one (s2)\n', "A two (s1)\nB two (s2)\n")
    assert pairs(join(outputs, references)) == [("A two", '"a one"'), ("B two", "b one")]


def test_references_in_both_files_are_said(join):
    rows = "".join(f'{{"id": {i}, "ModelOutput": "b {i}", "Sentence": "A {i} of it"}}\n' for i in range(3))
    said = describe(join(rows, rows.replace("ModelOutput", "other"), "jsonl"))
    assert "every prediction is its reference; if both are the references, name the column of the outputs" in said


@pytest.mark.parametrize("mark", ["<seg>x</seg>", "<seg id='1'>x</seg>"])
def test_one_segment_within_a_text_is_no_file_of_segments(join, mark):
    outputs, references = (
        f"{side} {mark} of it\n" + "".join(f"{side} {i} of it\n" for i in range(3)) for side in ("said", "wrote")
    )
    assert len(pairs(join(outputs, references))) == 4


def test_many_ids_of_conll_u_without_a_text_are_read_at_once(join):
    """The search took 19 s for 20,000 lines."""
    assert len(pairs(join("# sent_id = 5\n" * 20_000, "# sent_id = 5\n" * 20_000))) == 20_000


def test_words_of_the_references_are_no_ids_of_lines_without_texts(join):
    words = [f"w_{i}" for i in range(10)]
    references = "id,reference\n" + "".join(f"u{i},{word}\n" for i, word in enumerate(words))
    said = [*words[:7], "tree", "dog", "cat"]
    assert pairs(join("\n".join(said) + "\n", references, "txt", "csv")) == list(zip(words, said, strict=True))
