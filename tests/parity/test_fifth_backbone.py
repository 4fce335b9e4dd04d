"""What a fifth backbone costs: a description and a table of names, here of mBART."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch_reference
from test_backbones import BART, LOGITS
from torch_reference import Case, make_batch, make_pair, our_logits
from transformers import MBartConfig, MBartForConditionalGeneration

from eeg2text_jax.models.backbones import bart
from eeg2text_jax.models.backbones.mapping import norm


def spec_from_config(config: MBartConfig):
    """mBART is BART with pre-norm layers and a norm after each stack."""
    spec = bart.spec_from_config(config)
    stacks = (dataclasses.replace(stack, pre_norm=True, final_norm=True) for stack in (spec.encoder, spec.decoder))
    return dataclasses.replace(spec, **dict(zip(("encoder", "decoder"), stacks, strict=True)))


def table(spec):
    """BART's names and those of the two norms."""
    norms = [
        rule
        for side in ("encoder", "decoder")
        for rule in norm(f"backbone/{side}/final_norm", f"model.{side}.layer_norm")
    ]
    names = bart.table(spec)
    return dataclasses.replace(names, architecture="mBART", rules=(*names.rules, *norms))


def test_mbart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = types.SimpleNamespace(
        spec_from_config=spec_from_config,
        random_config=lambda fields: MBartConfig(**fields, decoder_start_token_id=2),
        table=table,
    )
    monkeypatch.setattr(torch_reference, "backbone_module", {"mbart": model}.__getitem__)
    monkeypatch.setitem(torch_reference.CLASSES, "mbart", MBartForConditionalGeneration)
    pair = make_pair(Case("mbart", BART))
    batch = make_batch(pair.model)
    ids = np.asarray(pair.model.shift_right(jnp.asarray(batch.labels)))  # mBART itself would begin with the last token
    with torch.no_grad():
        expected = pair.theirs(
            input_ids=torch.tensor(batch.input_ids),
            attention_mask=torch.tensor(batch.mask).long(),
            decoder_input_ids=torch.tensor(ids),
            decoder_attention_mask=torch.tensor(batch.decoder_mask).long(),
        ).logits.numpy()
    logits = jax.jit(lambda params: our_logits(pair.model, params, batch, "input_ids"))(pair.params)
    assert np.abs(np.asarray(logits) - expected)[batch.decoder_mask].max() < LOGITS
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(pair.params))
