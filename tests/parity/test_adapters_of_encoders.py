"""Low-rank adapters of encoder-decoders: their folder loads in PEFT and gives the same logits, and loads here again."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from test_backbones import CASES
from torch_reference import Case, make_batch, make_pair, our_logits

from eeg2text_jax.models.backbones import bart
from eeg2text_jax.models.functional import adapter_flops, divide
from eeg2text_jax.models.pretrained.folder import adapter_sources, with_adapters, write_adapter
from eeg2text_jax.models.pretrained.load import assemble, backbone_table, tensor_shapes
from eeg2text_jax.models.spec import LoraSpec

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
TARGETS = ("query", "value", "inner", "outer")


@pytest.mark.parametrize("stacks", [("encoder", "decoder"), ("encoder",), ("decoder",)], ids="-".join)
@pytest.mark.parametrize("name", ["bart", "t5"])
def test_adapters_load_in_peft(name: str, stacks: tuple[str, ...], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    pair = make_pair(Case(name, CASES[name].fields))
    lora = LoraSpec(3, 6.0, 0.0, TARGETS)
    sides = {side: dataclasses.replace(getattr(pair.model.spec, side), lora=lora) for side in stacks}
    plain, names = pair.model.spec, backbone_table(pair.model.spec)
    model = dataclasses.replace(pair.model, spec=dataclasses.replace(plain, **sides))
    leaves, structure = jax.tree.flatten_with_path(model.shapes)
    rng = np.random.default_rng(0)
    params = jax.tree.unflatten(
        structure, [jnp.asarray(rng.normal(0, 0.3, leaf.shape), jnp.float32) for _, leaf in leaves]
    )
    own = divide(params)[0]
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf if path[-1].key.startswith("lora_") else _at(pair.params, path), params
    )
    folder = tmp_path / "adapters"
    folder.mkdir()
    write_adapter(folder, model.spec, names, params, "base")
    theirs = peft.PeftModel.from_pretrained(pair.theirs, str(folder)).eval()
    batch = make_batch(model)
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(batch.input_ids),
            attention_mask=torch.tensor(batch.mask).long(),
            labels=torch.tensor(batch.labels),
            decoder_attention_mask=torch.tensor(batch.decoder_mask).long(),
        ).logits.numpy()
    ours = jax.jit(lambda params: our_logits(model, params, batch, "input_ids"))(params)
    assert np.abs(np.asarray(ours) - expected)[batch.decoder_mask].max() < 1e-4 * max(1.0, np.abs(expected).max())
    assert with_adapters(folder, plain, names) == model.spec
    again = assemble(adapter_sources(folder, model.spec, names, tensor_shapes(model.shapes)), model.shapes)
    jax.tree.map(np.testing.assert_array_equal, again, own)
    trained = sum(leaf.size for leaf in jax.tree.leaves(own))
    counted = sum(adapter_flops(getattr(model.spec, side), 1) for side in stacks)
    assert counted == 2.0 * trained


def _at(params: dict, path: tuple) -> jax.Array:
    for key in path:
        params = params[key.key]
    return params


def test_a_backbone_without_adapters_has_none() -> None:
    assert bart.spec_from_config(bart.random_config(CASES["bart"].fields)).adapters is None
