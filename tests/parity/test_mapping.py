"""The engine that matches names: views on the file, other spellings, and tensors that a file may lack."""

import numpy as np
import pytest
from test_backbones import BART
from torch_reference import Case, make_pair

from eeg2text_jax.models.backbones.mapping import export, match
from eeg2text_jax.models.pretrained.load import tensor_shapes


@pytest.fixture(scope="module")
def bart():
    pair = make_pair(Case("bart", BART))
    return pair.table, export(pair.table, pair.params), tensor_shapes(pair.params)


def test_nothing_is_copied(bart) -> None:
    table, tensors, shapes = bart
    found = match(table, tensors, shapes, "file")
    kernel = found["backbone/encoder/layers/ffn/inner/kernel"].pieces[0]
    assert np.shares_memory(kernel, tensors["model.encoder.layers.0.fc1.weight"])


def test_other_spellings_and_left_out_names(bart) -> None:
    table, tensors, shapes = bart
    bare = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name != "final_logits_bias"}
    found = match(table, bare, shapes, "file")
    assert not found["backbone/head/bias"].pieces[0].any()
    assert found["backbone/head/bias"].pieces[0].shape == (40,)
    only_head = {**tensors, "lm_head.weight": tensors["model.shared.weight"]}
    del only_head["model.shared.weight"]
    assert found.keys() == match(table, only_head, shapes, "file").keys()
