"""Random weights of a backbone have the spread that PyTorch's have."""

import jax
import numpy as np
import pytest
import torch
from test_backbones import TOKENS
from torch_reference import CLASSES, to_params

from eeg2text_jax.models.backbones.build import backbone_module
from eeg2text_jax.models.backbones.mapping import flatten
from eeg2text_jax.models.functional import Seq2SeqModel

SIDES = ("encoder", "decoder")
BART = {f"{side}_{name}": n for side in SIDES for name, n in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 200))}
CASES = {
    "bart": {"d_model": 64, "max_position_embeddings": 100, "init_std": 0.05, **BART},
    "t5": {"d_model": 64, "d_kv": 8, "d_ff": 200, "num_layers": 1, "num_heads": 4,
           "relative_attention_num_buckets": 300},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_parameter_is_drawn_as_in_pytorch(name: str) -> None:
    """Also where the spread is of the inputs, as of T5's queries, whose scores are not divided by anything."""
    backbone = backbone_module(name)
    config = backbone.random_config({**TOKENS, "vocab_size": 400, **CASES[name]})
    torch.manual_seed(0)
    tensors = {name: tensor.detach().numpy() for name, tensor in CLASSES[name](config).state_dict().items()}
    model = Seq2SeqModel(backbone.spec_from_config(config))
    expected, found = flatten(to_params(backbone.table(model.spec), tensors, model)), model.init(jax.random.key(0))
    for path, ours in flatten(found).items():
        assert float(np.std(ours)) == pytest.approx(float(np.std(expected[path])), rel=0.1, abs=1e-6), path
        assert float(np.mean(ours)) == pytest.approx(float(np.mean(expected[path])), abs=0.05), path
