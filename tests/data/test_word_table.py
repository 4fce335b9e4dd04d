"""Word-feature tables: what is read, and which line and column a mistake is in."""

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.table_files import table_samples

GOOD = "the\t1\t2.5\tO\ncat\t3\t4\tO\n\nit\t5\t6\tO\n\n\n"


def read(tmp_path, text, columns=(1, 2), name="table.tsv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(table_samples(path, 0, columns))


def test_sentences_words_and_features(tmp_path):
    first, second = read(tmp_path, GOOD)
    assert (first.sentence, second.sentence) == ("the cat", "it")
    assert (first.sentence_index, second.sentence_index) == (0, 1)
    np.testing.assert_array_equal(first.features, np.array([[1, 2.5], [3, 4]], np.float32))


def test_columns_default_to_the_numeric_ones(tmp_path):
    assert read(tmp_path, GOOD, columns=())[0].features.shape == (2, 2)


def test_header_and_csv_with_quotes(tmp_path):
    text = 'word,alpha,beta\n"well, then",1,2\n\n"he said ""no""",3,4\n'
    samples = read(tmp_path, text, name="table.csv")
    assert [s.sentence for s in samples] == ["well, then", 'he said "no"']


def test_quotation_marks_are_words_in_tsv(tmp_path):
    assert read(tmp_path, '"\t1\t2\nyes\t3\t4\n')[0].sentence == '" yes'


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
        (b"caf\xe9\t1\t2\n", "UTF-8"),
        ("the\t1\n", "no column 2"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


def test_a_comma_without_quotes_does_not_shift_the_columns(tmp_path):
    text = "sentence,alpha,beta\na dog,1,2\nwell, 0,3,4\n"
    with pytest.raises(UserError, match="line 3: expected 3 cells as in the first line, got 4"):
        read(tmp_path, text, name="table.csv")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.tsv: there is no such file"):
        list(table_samples(tmp_path / "nowhere.tsv", 0, ()))
