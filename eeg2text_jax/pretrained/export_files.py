"""Files of an export besides the language model: brain encoder, low-rank adapters, and preparation of recordings.

- `eeg_encoder.safetensors`: brain encoder and bridge, under our names (`encoder.layers.ffn.inner.kernel`) and in our
  shapes, layers on the first axis; the metadata in its header hold the `EEGSpec`.
- `adapter_config.json` and `adapter_model.safetensors`: low-rank adapters in PEFT's format, which has A as
  `[rank, in]` and B as `[out, rank]` for each layer; here they are `[L, in, rank]` and `[L, rank, out]`.
- `eeg2text.json`: a `Feeding`.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.backbones import LORA_TARGETS
from eeg2text_jax.backbones.decoder_only import PROJECTIONS
from eeg2text_jax.backbones.mapping import Rule, Source, Table, export, flatten, match
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import parse_json
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.spec import EEGSpec, LoraSpec, StackSpec
from eeg2text_jax.pretrained.tensor_files import open_safetensors, read_metadata, write_safetensors

EEG_ENCODER = "eeg_encoder.safetensors"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FEEDING = "eeg2text.json"


def write_eeg(folder: Path, eeg: EEGSpec, params: Params) -> None:
    """Write the brain encoder's parameters and description into a folder."""
    tensors = {name.replace("/", "."): np.asarray(array) for name, array in flatten(params).items()}
    write_safetensors(folder / EEG_ENCODER, tensors, {"eeg2text_jax": json.dumps(dataclasses.asdict(eeg))})


def read_eeg(folder: Path) -> tuple[EEGSpec, dict[str, np.ndarray]] | None:
    """Return the brain encoder's description, and its tensors by name as views on the mapped file; None without a file.

    Raises UserError if the file cannot be read, or was written for another version of the encoder.
    """
    path = folder / EEG_ENCODER
    if not path.exists():
        return None
    tensors = open_safetensors(path)
    try:
        fields = parse_json(read_metadata(path)["eeg2text_jax"])
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return EEGSpec(**values), tensors
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: its header does not describe an EEG encoder that this version knows ({first_line(error)}); "
            "export it again."
        ) from error


def write_adapter(folder: Path, stack: StackSpec, params: Params, base: str) -> None:
    """Write the low-rank adapters of a decoder-only model into a folder; `base` is the language model's checkpoint."""
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
    (folder / ADAPTER_CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf8")
    tensors = {name: np.asarray(value, np.float32) for name, value in export(_adapter_table(stack), params).items()}
    write_safetensors(folder / ADAPTER_WEIGHTS, tensors, {"format": "pt"})


def read_lora(folder: Path) -> LoraSpec | None:
    """Return the description of the low-rank adapters in a folder; None if it has none.

    Raises UserError if the description cannot be read, or is of another kind of adapter.
    """
    path = folder / ADAPTER_CONFIG
    if not path.is_file():
        return None
    try:
        fields: dict[str, Any] = parse_json(path.read_text(encoding="utf8"))
        rank, alpha, dropout = int(fields["r"]), float(fields["lora_alpha"]), float(fields["lora_dropout"])
        targets = tuple(LORA_TARGETS[name] for name in LORA_TARGETS if name in fields["target_modules"])
        complete = len(targets) == len(fields["target_modules"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: does not describe adapters ({first_line(error)}); export the run again.") from error
    if fields.get("peft_type") != "LORA" or fields.get("bias", "none") != "none" or not complete or rank < 1:
        raise UserError(f"{path}: expected LORA without biases on {', '.join(LORA_TARGETS)}; export the run again.")
    return LoraSpec(rank, alpha, dropout, targets)


def adapter_sources(folder: Path, stack: StackSpec, shapes: dict[str, tuple[int, ...]]) -> dict[str, Source]:
    """Return where the adapters' parameters are stored, by path; `shapes` has the shape of every parameter by path.

    Raises UserError if the file is missing or does not fit the model.
    """
    path = folder / ADAPTER_WEIGHTS
    if not path.is_file():
        raise UserError(f"{path}: is missing beside {ADAPTER_CONFIG}; copy the folder again.")
    return match(_adapter_table(stack), open_safetensors(path), shapes, str(path))


def _adapter_table(stack: StackSpec) -> Table:
    """Return the table that maps the adapters' parameters to the tensor names in PEFT's file."""
    rules = []
    for target in stack.lora.targets:
        sublayer = "self_attention" if target in ("query", "key", "value", "out") else "ffn"
        ours = f"backbone/decoder/layers/{sublayer}/{target}"
        theirs = f"base_model.model.model.layers.{{layer}}.{PROJECTIONS[target]}"
        for part, name in (("lora_a", "lora_A"), ("lora_b", "lora_B")):
            rules.append(Rule(f"{ours}/{part}", f"{theirs}.{name}.weight", stack.layers, transpose=True))
    return Table("LoRA", tuple(rules))


@dataclasses.dataclass(frozen=True, eq=False)
class Feeding:
    """How a run prepared recordings for its brain encoder, and the shapes of the batches that it decoded.

    Features are cut to `max_words`, minus `mean`, divided by `scale`. Batches have `batch_size` rows and a width in
    `buckets`; equal batches give equal bits.
    """

    mean: np.ndarray  # [F]
    scale: np.ndarray  # [F]
    max_words: int
    buckets: tuple[int, ...]  # allowed widths of a batch, in EEG positions
    batch_size: int
    compactions: int  # `decode.compactions` of the run, see `beam_search`
    seed: int  # of the PRNG keys for sampling, one per recording
    dtype: str  # compute dtype
    features_are: str  # description of the features in words
    # Checkpoint of a frozen language model outside of the folder, a path relative to it begins with a dot; empty: it is
    # in the folder
    base: str = ""
    base_dtype: str = "float32"  # dtype of that language model's weights
    base_fingerprint: str = ""  # `folder.fingerprint` of these weights; empty: not known

    def standardize(self, words: np.ndarray) -> np.ndarray:
        """Return raw features `[W, F]` cut and standardized, float32 `[min(W, max_words), F]`."""
        return (np.asarray(words, np.float32)[: self.max_words] - self.mean) / self.scale


def write_feeding(folder: Path, feeding: Feeding) -> None:
    """Write `eeg2text.json`; its decimal numbers are exact float32 values."""
    fields = {field.name: getattr(feeding, field.name) for field in dataclasses.fields(Feeding)}
    fields |= {name: np.asarray(fields[name], np.float32).tolist() for name in ("mean", "scale")}
    (folder / FEEDING).write_text(json.dumps(fields, indent=1) + "\n", encoding="utf8")


def read_feeding(folder: Path) -> Feeding:
    """Read `eeg2text.json`; raise a UserError if the file is missing or has other content."""
    path = folder / FEEDING
    if not path.is_file():
        raise UserError(
            f"{folder}: has no {FEEDING}, which says how features were standardized; export the run again with "
            "`eeg2text export`."
        )
    try:
        fields: dict[str, Any] = parse_json(path.read_text(encoding="utf8"))
        if "halvings" in fields:  # name of `compactions` in version 0.1
            fields["compactions"] = fields.pop("halvings")
        mean, scale = (np.array(fields.pop(name), np.float32) for name in ("mean", "scale"))
        if mean.ndim != 1 or mean.shape != scale.shape:
            raise ValueError("mean and scale are not two lists of numbers of one length")
        return Feeding(mean, scale, buckets=tuple(fields.pop("buckets")), **fields)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: does not describe how recordings are prepared ({first_line(error)}); export the run again."
        ) from error
