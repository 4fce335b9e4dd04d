"""Tables whose header names subjects, tasks and sentences."""

import re

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.rows import Columns
from eeg2text_jax.data.source import Tally
from eeg2text_jax.data.table_files import table_samples

IDS = "sentence_id,word,a,b\n1,the,1,2\n1,cat,3,4\n2,it,5,6\n"


def read(tmp_path, text, tally=None, **columns):
    path = tmp_path / "table.csv"
    path.write_text(text)
    return list(table_samples(path, 0, (), Columns(**columns), tally))


def test_sentence_ids_without_blank_lines_tell_sentences_apart(tmp_path):
    first, second = read(tmp_path, IDS)
    assert (first.sentence, second.sentence) == ("the cat", "it")
    assert (first.sentence_index, second.sentence_index) == (1, 2)
    np.testing.assert_array_equal(first.features, np.array([[1, 2], [3, 4]], np.float32))


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
