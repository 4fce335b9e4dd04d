"""Tables: what is read, with and without a header, and which line and column a mistake is in."""

import re

import numpy as np
import pytest
from prepared import prepare

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import file_digest
from eeg2text_jax.data.rows import Columns
from eeg2text_jax.data.source import Tally
from eeg2text_jax.data.table_files import table_samples

GOOD = "the\t1\t2.5\tO\ncat\t3\t4\tO\n\nit\t5\t6\tO\n\n\n"
IDS = "sentence_id,word,a,b\n1,the,1,2\n1,cat,3,4\n2,it,5,6\n"


def read(tmp_path, text, tally=None, word_column=0, features=(), name="table.csv", **columns):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(table_samples(path, word_column, features, Columns(**columns), tally))


def read_tsv(tmp_path, text, features=(1, 2)):
    return read(tmp_path, text, features=features, name="table.tsv")


def test_sentences_words_and_features(tmp_path):
    first, second = read_tsv(tmp_path, GOOD)
    assert (first.sentence, second.sentence) == ("the cat", "it")
    assert (first.sentence_index, second.sentence_index) == (0, 1)
    for found in (first, read_tsv(tmp_path, GOOD, features=())[0]):  # by default the numeric columns
        np.testing.assert_array_equal(found.features, np.array([[1, 2.5], [3, 4]], np.float32))


def test_header_and_csv_with_quotes(tmp_path):
    text = 'word,alpha,beta\n"well, then",1,2\n\n"he said ""no""",3,4\n'
    samples = read(tmp_path, text, features=(1, 2))
    assert [s.sentence for s in samples] == ["well, then", 'he said "no"']


def test_quotation_marks_are_words_in_tsv(tmp_path):
    assert read_tsv(tmp_path, '"\t1\t2\nyes\t3\t4\n')[0].sentence == '" yes'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the\t1\t2\ncat\t3\n", "line 2: expected 3 cells.*got 2"),
        ("the\t1\t2\n\ncat\t3\t4\t5\n", "line 3: expected 3 cells.*got 4"),
        ("word\talpha\tbeta\nthe\t1\t2\ncat\t7\t3\t4\n", "line 3: expected 3 cells.*got 4"),
        ("the\t1\t2\ncat\tx\t4\n", "line 2, column 1: expected a number, got 'x'"),
        ("the\t1\t2\n\ncat\t3\tnan\n", "line 3, column 2: expected a finite number, got 'nan'"),
        ("the\t1\t1e39\n", "line 1, column 2: expected a finite"),
        ("the\t1\tinf\n", "line 1, column 2: expected a finite"),
        ("the\t1\t2\n\t3\t4\n", "line 2: the word .* is empty"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("word\talpha\tbeta\n", "a header but no words"),
        (b"caf\xe9\t1\t2\n", "save it as CSV UTF-8"),
        ("the\t1\n", "no column 2"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_tsv(tmp_path, text)


def test_a_comma_without_quotes_does_not_shift_the_columns(tmp_path):
    text = "sentence,alpha,beta\na dog,1,2\nwell, 0,3,4\n"
    with pytest.raises(UserError, match="line 3: expected 3 cells as in the first line, got 4"):
        read(tmp_path, text)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.tsv: there is no such file"):
        list(table_samples(tmp_path / "nowhere.tsv", 0, ()))


def test_sentence_ids_without_blank_lines_tell_sentences_apart(tmp_path):
    first, second = read(tmp_path, IDS)
    assert (first.sentence, second.sentence) == ("the cat", "it")
    assert (first.sentence_index, second.sentence_index) == (1, 2)
    np.testing.assert_array_equal(first.features, np.array([[1, 2], [3, 4]], np.float32))


def test_every_column_may_have_another_name_and_place(tmp_path):
    """Two readers of two sentences in two tasks; a word comes twice, and a cell has two lines."""
    lines = ["", "b,Who,run,Start,Lasts,item,sentence_id,w,What,a"]
    expected = {}
    for k, (who, what, item) in enumerate((w, t, i) for w in ("S2", "S1") for t in ("SR", "NR") for i in (7, 3)):
        words = ["the", f"{what.lower()}{item}", "the", '"two\nlines"'][: 2 + k % 3]
        for n, word in enumerate(words):
            lines.append(f"{k}.5,{who},r{who},{10 * (k % 4) + n},{2 + k},{item},{99 - item},{word},{what},{-n}")
        expected[who, what, item] = words, [[-n, k + 0.5] for n in range(len(words))], 10 * (k % 4), 2 + k
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    named = {"word": "w", "subject": "who", "task": "what", "sentence_index": "item", "recording": "run",
             "onset": "start", "duration": "lasts"}  # fmt: skip
    fields = [f"--config.data.columns.{field}={name}" for field, name in named.items()]
    fields += ["--config.data.table.features_are=two columns", "--config.data.columns.features_are=of arrays"]
    found = prepare(tmp_path, tmp_path / "table.csv", *fields, "--config.data.table.feature_columns=(9, 0)")
    assert found.features_are == "two columns"
    assert list(zip(found.subject, found.task, found.sentence_index.tolist(), strict=True)) == list(expected)
    about = found.provenance
    assert (about["source"], about["columns"], about["samples"]) == ("table.csv", [9, 0], len(expected))
    assert (about["not_used"], about["sha256"]) == (["sentence_id"], file_digest(tmp_path / "table.csv"))
    for i, (words, features, onset, duration) in enumerate(expected.values()):
        assert found.sentence[i] == " ".join(words).replace('"', "").replace("\n", " ")
        assert found.words(i).tolist() == features
        assert (found.clock.onset[i], found.clock.duration[i]) == (onset, duration)
        assert found.clock.recording[i] == f"r{found.subject[i]}"
    (tmp_path / "table.csv").write_text("\n".join(lines[:-1]) + "\nx,1\n")
    with pytest.raises(UserError, match=f"line {len(lines) + 2}: expected 10 cells"):  # two cells end a line later
        list(table_samples(tmp_path / "table.csv", 0, (), Columns(**named)))
    (found,) = read(tmp_path, "lemma,form,a\nbe,is,1\nbe,was,2\n", word_column=1)
    assert found.sentence == "is was"


def test_subjects_tasks_and_blank_lines(tmp_path):
    text = "Subject,Task,sentence_id,word,a\nS1,NR,x,the,1\n\nS1,NR,x,cat,2\nS2,NR,x,the,3\nS2,SR,x,a,4\n"
    with pytest.raises(UserError, match=r"line 4: sentence 'x' begins again after it ended on line 2"):
        read(tmp_path, text)
    found = read(tmp_path, text.replace("\n\n", "\n"))
    assert [(s.subject, s.task, s.sentence, s.sentence_index) for s in found] == [
        ("S1", "NR", "the cat", 0), ("S2", "NR", "the", 1), ("S2", "SR", "a", 0)]  # fmt: skip


def test_a_line_a_sentence_and_a_line_a_window(tmp_path):
    found = read(tmp_path, "subject,sentence,a,b\nS1,the cat,1,2\nS1,it is,3,4\nS2,the cat,5,6\n")
    assert [(s.subject, s.sentence, s.sentence_index, s.features.shape) for s in found] == [
        ("S1", "the cat", 0, (1, 2)), ("S1", "it is", 1, (1, 2)), ("S2", "the cat", 0, (1, 2))]  # fmt: skip
    tally = Tally()
    found = read(tmp_path, "text,a\nthe cat,1\nthe cat,2\nit is,3\n", tally, sentence="text")
    assert [s.features.tolist() for s in found] == [[[1], [2]], [[3]]]
    assert any("3 lines make 2 recordings" in note for note in tally.notes)


def test_readings_of_one_sentence_stay_apart_by_their_numbers(tmp_path):
    found = read(tmp_path, "sentence_id,sentence,a\n3,the cat,1\n3,the cat,2\n4,the cat,3\n5,it is,4\n")
    assert [(s.sentence, s.sentence_index, s.features.tolist()) for s in found] == [
        ("the cat", 3, [[1], [2]]), ("the cat", 4, [[3]]), ("it is", 5, [[4]])]  # fmt: skip


def test_the_sentence_as_written_goes_before_its_words(tmp_path):
    (found,) = read(tmp_path, 'sentence_id,sentence,word,a\n7,"The cat.",The,1\n7,"The cat.",cat,2\n')
    assert (found.sentence, found.sentence_index, len(found.features)) == ("The cat.", 7, 2)
    first, second = read(tmp_path, "sentence,word,a\ns1,the,1\ns1,cat,2\ns2,it,3\n")  # a name of one word is no text
    assert (first.sentence, second.sentence) == ("the cat", "it")


def test_what_would_become_one_sentence_is_said(tmp_path, printed_by, refused):
    path = tmp_path / "table.csv"
    for text in ("id,w,a\n1,the,1\n1,cat,2\n2,it,3\n", "1,the,1\n1,cat,2\n2,it,3\n"):
        path.write_text(text)
        error = refused(["prepare", str(path), f"--out={tmp_path / 'out.h5'}"])
        assert re.search(r"column 0, taken for the words, holds numbers \('1'\); name the column", error), error
        assert not (tmp_path / "out.h5").exists()
    path.write_text("word,a\nthe,1\ncat,2\nit,3\n")
    said = printed_by(["prepare", str(path), f"--out={tmp_path / 'out.h5'}"], to="err")
    assert "the whole table is one sentence of 3 words" in said


def test_features_that_were_chosen_by_being_numbers_are_named(tmp_path):
    tally = Tally()
    read(tmp_path, IDS, tally)
    assert any("features are its 2 numeric columns without another role: a, b" in note for note in tally.notes)


def test_an_empty_subject_is_said(tmp_path):
    with pytest.raises(UserError, match=r"line 3: the subject \(column 0\) is empty"):
        read(tmp_path, "subject,sentence,a\nS1,x y,1\n,x z,2\n")


def test_a_duration_or_an_order_alone_is_a_feature(tmp_path):
    (found,) = read(tmp_path, "sentence_id,word,duration,order,a\n1,the,5,1,2\n1,cat,6,2,3\n")
    assert found.features.tolist() == [[5, 1, 2], [6, 2, 3]]
    assert found.recording == ""
    (found,) = read(tmp_path, "sentence_id,word,onset,duration,a\n1,the,0.5,5,2\n1,cat,0.5,5,3\n")
    assert found.features.tolist() == [[2], [3]]
    assert (found.recording, found.onset, found.duration) == ("all/table", 0.5, 5.0)
