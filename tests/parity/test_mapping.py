"""The engine that matches names: exact both ways, and nothing but an exact match is taken."""

import jax
import numpy as np
import pytest
from torch_reference import Case, make_pair

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.backbones.mapping import Rule, Table, export, flatten, match, unflatten

FIELDS = {
    "bart": {"d_model": 8, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 9},
    "t5": {"d_model": 8, "d_kv": 3, "d_ff": 8, "num_layers": 1, "num_heads": 2, "tie_word_embeddings": False,
           "feed_forward_proj": "gated-gelu"},
    "bert2bert": {"hidden_size": 8, "encoder_hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
                  "intermediate_size": 8, "max_position_embeddings": 9},
}  # fmt: skip
FIELDS["pegasus"] = FIELDS["bart"]
TOKENS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "vocab_size": 11}


def shapes_of(params: dict) -> dict[str, tuple[int, ...]]:
    return {path: leaf.shape for path, leaf in flatten(params).items()}


@pytest.fixture(scope="module")
def bart():
    pair = make_pair(Case("bart", {**TOKENS, **FIELDS["bart"]}))
    return pair.table, export(pair.table, pair.params), shapes_of(pair.params)


@pytest.mark.parametrize("backbone", sorted(FIELDS))
def test_export_is_the_exact_inverse(backbone: str) -> None:
    pair = make_pair(Case(backbone, {**TOKENS, **FIELDS[backbone]}))
    tensors = export(pair.table, pair.params)
    state = {name: tensor.numpy() for name, tensor in pair.theirs.state_dict().items()}
    assert set(tensors) <= set(state)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, state[name], err_msg=name)
    again = match(pair.table, tensors, shapes_of(pair.params), "export")
    for path, leaf in flatten(pair.params).items():
        pieces = again[path].pieces
        np.testing.assert_array_equal(np.stack(pieces) if again[path].stacked else pieces[0], leaf, err_msg=path)
    # PyTorch takes the export, tying what it leaves out.
    unset = set(pair.theirs.load_state_dict({k: _torch(v) for k, v in tensors.items()}, strict=False).missing_keys)
    tied = {name for rule in pair.table.rules for name in rule.tied}
    assert all(name in tied or "pooler" in name or "embed_positions" in name for name in unset), unset


def _torch(array: np.ndarray):
    import torch

    return torch.tensor(np.array(array))


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
    assert found["backbone/head/bias"].pieces[0].shape == (11,)
    only_head = {**tensors, "lm_head.weight": tensors["model.shared.weight"]}
    del only_head["model.shared.weight"]
    assert found.keys() == match(table, only_head, shapes, "file").keys()


def test_refusals_name_the_tensors(bart) -> None:
    table, tensors, shapes = bart
    name = "model.decoder.layers.1.fc2.bias"

    def refused(changed: dict) -> str:
        with pytest.raises(UserError) as error:
            match(table, changed, shapes, "some/folder")
        assert str(error.value).startswith("some/folder: ")
        return str(error.value)

    without = {key: tensor for key, tensor in tensors.items() if key != name}
    assert f"lacks {name}." in refused(without)
    assert "these tensors of the file: extra.weight." in refused({**tensors, "extra.weight": tensors[name]})
    renamed = refused({**without, "model.decoder.layers.1.fc3.bias": tensors[name]})
    assert name in renamed
    assert "model.decoder.layers.1.fc3.bias" in renamed
    assert f"{name} [7] instead of [8]" in refused({**tensors, name: tensors[name][:7]})
    untied = refused({**tensors, "lm_head.weight": tensors["model.shared.weight"] + 1})
    assert "lm_head.weight and model.shared.weight" in untied


def test_square_matrices_are_transposed_by_rule_not_by_shape() -> None:
    table = Table("toy", (Rule("a/kernel", "a.weight", transpose=True), Rule("b", "b.weight")))
    square = np.arange(4.0, dtype=np.float32).reshape(2, 2)
    found = match(table, {"a.weight": square, "b.weight": square}, {"a/kernel": (2, 2), "b": (2, 2)}, "file")
    np.testing.assert_array_equal(found["a/kernel"].pieces[0], square.T)
    np.testing.assert_array_equal(found["b"].pieces[0], square)


def test_paths() -> None:
    nested = {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert flatten(nested) == {"a/b": 1, "a/c/d": 2, "e": 3}
    assert unflatten(flatten(nested)) == nested
    assert jax.tree.structure(unflatten(flatten(nested))) == jax.tree.structure(nested)
