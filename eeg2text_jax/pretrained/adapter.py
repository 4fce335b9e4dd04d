"""Adapters in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`, which `peft` loads in PyTorch.

PEFT keeps A as `[rank, in]` and B as `[out, rank]`, a pair for each layer; here they are `[L, in, rank]` and
`[L, rank, out]`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.backbones import LORA_TARGETS
from eeg2text_jax.backbones.decoder_only import PROJECTIONS
from eeg2text_jax.backbones.mapping import Rule, Source, Table, export, match
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.spec import LoraSpec, StackSpec
from eeg2text_jax.pretrained.tensor_files import open_safetensors, write_safetensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_WITHIN = {"query": "self_attention", "key": "self_attention", "value": "self_attention", "out": "self_attention"}


def write_adapter(folder: Path, stack: StackSpec, params: Params, base: str) -> None:
    """Write the adapters of a decoder-only model for the checkpoint `base`."""
    lora, names = stack.lora, {ours: theirs for theirs, ours in LORA_TARGETS.items()}
    fields = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": [names[target] for target in lora.targets],
        "bias": "none",
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf8")
    tensors = {name: np.asarray(value, np.float32) for name, value in export(_table(stack, lora), params).items()}
    write_safetensors(folder / WEIGHTS, tensors, {"format": "pt"})


def read_lora(folder: Path) -> LoraSpec | None:
    """Return the description of the adapters in a folder; None if there is none.

    Raises:
      UserError: the description cannot be read, or is of another kind of adapter.
    """
    path = folder / CONFIG
    if not path.is_file():
        return None
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
        rank, alpha, dropout = int(fields["r"]), float(fields["lora_alpha"]), float(fields["lora_dropout"])
        targets = tuple(LORA_TARGETS[name] for name in LORA_TARGETS if name in fields["target_modules"])
        complete = len(targets) == len(fields["target_modules"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: does not describe adapters ({first_line(error)}); export the run again.") from error
    if fields.get("peft_type") != "LORA" or fields.get("bias", "none") != "none" or not complete or rank < 1:
        raise UserError(f"{path}: expected LORA without biases on {', '.join(LORA_TARGETS)}; export the run again.")
    return LoraSpec(rank, alpha, dropout, targets)


def adapter_sources(folder: Path, stack: StackSpec, shapes: dict[str, tuple[int, ...]]) -> dict[str, Source]:
    """Return the adapters' parameters by path, views on the mapped file; a UserError if they do not fit the model."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise UserError(f"{path}: is missing beside {CONFIG}; copy the folder again.")
    return match(_table(stack, stack.lora), open_safetensors(path), shapes, str(path))


def _table(stack: StackSpec, lora: LoraSpec) -> Table:
    rules = []
    for target in lora.targets:
        ours = f"backbone/decoder/layers/{_WITHIN.get(target, 'ffn')}/{target}"
        theirs = f"base_model.model.model.layers.{{layer}}.{PROJECTIONS[target]}"
        for part, name in (("lora_a", "lora_A"), ("lora_b", "lora_B")):
            rules.append(Rule(f"{ours}/{part}", f"{theirs}.{name}.weight", stack.layers, transpose=True))
    return Table("LoRA", tuple(rules))
