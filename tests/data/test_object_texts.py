"""Texts in an `.npz` that NumPy would pickle."""

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.rows import Columns, npz_rows


def test_object_texts_say_how_to_store_them(tmp_path):
    path, texts, features = tmp_path / "a.npz", ["one text", "two"], np.zeros((2, 3))
    columns = Columns()
    np.savez(path, features=features, sentence=np.array(texts, object))
    with pytest.raises(UserError, match=r"a\.npz: sentence is an array of objects.* np.array\(texts, dtype=str\)"):
        list(npz_rows(path, columns))
    np.savez(path, features=features, sentence=np.array(texts, dtype=str))
    assert [row["sentence"] for row in npz_rows(path, columns)] == texts
