"""PEGASUS: pre-norm layers, sinusoidal positions, scaled embeddings, a norm after each stack (Zhang et al. 2020)."""

import dataclasses
from typing import Any

import numpy as np
from transformers import PegasusConfig, PretrainedConfig

from eeg2text_jax.models.backbones import bart
from eeg2text_jax.models.backbones.bart import layer_rules, shared_rules
from eeg2text_jax.models.backbones.mapping import Rule, Table, Tensors, norm
from eeg2text_jax.models.layers import sinusoidal_table
from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec

CONFIG = PegasusConfig  # configuration class of models with random weights
MODEL_TYPE = "pegasus"  # in config.json of its checkpoints
ARCHITECTURE = "PegasusForConditionalGeneration"  # the class of transformers that loads them


def spec_from_config(config: PegasusConfig) -> Seq2SeqSpec:
    """Describe a configuration whose fields are named as BART's."""
    spec = bart.spec_from_config(config)
    return dataclasses.replace(
        spec, backbone="pegasus", encoder=_pre_norm(spec.encoder), decoder=_pre_norm(spec.decoder)
    )


def _pre_norm(stack: StackSpec) -> StackSpec:
    positions: dict[str, Any] = {"positions": "sinusoidal", "max_positions": None, "position_offset": 0}
    return dataclasses.replace(stack, pre_norm=True, embedding_norm=False, final_norm=True, **positions)


def random_config(fields: dict) -> PegasusConfig:
    """The decoder begins with the padding token."""
    return CONFIG(**{"decoder_start_token_id": fields["pad_token_id"], **fields})


_SIDES = ("encoder", "decoder")
_CLOSE = 1e-6  # largest difference of two float32 computations of a sine; rounding to float16 changes it by 2e-4


def table(spec: Seq2SeqSpec) -> Table:
    rules = shared_rules()
    for side, stack in zip(_SIDES, (spec.encoder, spec.decoder), strict=True):
        rules += layer_rules(side, stack.layers)
        rules += norm(f"backbone/{side}/final_norm", f"model.{side}.layer_norm")
        if stack.positions == "learned":
            rules.append(Rule(f"backbone/{side}/positions/embedding", f"model.{side}.embed_positions.weight"))
    ignored = (r"(model\.)?(en|de)coder\.embed_positions\.weight",)  # computed here if sinusoidal, see `as_stored`
    return Table("PEGASUS", tuple(rules), ignored, spellings=((r"^model\.", ""),))


def as_stored(spec: Seq2SeqSpec, tensors: Tensors) -> Seq2SeqSpec:
    """Return the description with learned positions for each stack whose table in the file is not sinusoidal.

    transformers uses the table in the file, where half precision rounds sines.
    """
    stacks: dict[str, Any] = {side: _stored_positions(getattr(spec, side), side, tensors) for side in _SIDES}
    return dataclasses.replace(spec, **stacks)


def _stored_positions(stack: StackSpec, side: str, tensors: Tensors) -> StackSpec:
    names = (f"model.{side}.embed_positions.weight", f"{side}.embed_positions.weight")
    stored = next((tensors[name] for name in names if name in tensors), None)
    if stored is None:
        return stack
    computed = sinusoidal_table(len(stored), stack.width)
    if stored.shape == computed.shape and np.allclose(np.asarray(stored, np.float32), computed, rtol=0, atol=_CLOSE):
        return stack
    return dataclasses.replace(stack, positions="learned", max_positions=len(stored), frozen_positions=True)


def only_exported(spec: Seq2SeqSpec, config: PretrainedConfig) -> dict[str, np.ndarray]:
    """Return the sinusoidal tables by tensor name, which transformers expects in a file."""
    return {
        f"model.{side}.embed_positions.weight": sinusoidal_table(config.max_position_embeddings, stack.width)
        for side, stack in zip(_SIDES, (spec.encoder, spec.decoder), strict=True)
        if stack.positions == "sinusoidal"
    }
