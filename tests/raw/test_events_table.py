"""A table that is not there is said to be missing, not badly encoded."""

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.raw.find import read_table


def test_a_missing_table_is_said_to_be_missing(tmp_path):
    with pytest.raises(UserError, match="there is no such file") as error:
        read_table(tmp_path / "texts.tsv")
    assert "Errno" not in str(error.value)
    assert "UTF-8" not in str(error.value)
