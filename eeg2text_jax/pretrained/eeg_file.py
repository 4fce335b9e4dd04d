"""Files of an export beside the language model: the EEG encoder, and how the run fed it and decoded.

`eeg_encoder.safetensors` holds EEG encoder and bridge: tensors under our names (`encoder.layers.ffn.inner.kernel`) and
in our shapes, layers on the first axis; the header's metadata hold the encoder's description. `eeg2text.json` holds a
`Feeding`. Generation settings are in `generation_config.json`, as in transformers.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.backbones.mapping import flatten
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.pretrained.tensor_files import open_safetensors, read_metadata, write_safetensors

NAME = "eeg_encoder.safetensors"
FEEDING = "eeg2text.json"


def write_eeg(folder: Path, eeg: EEGSpec, params: Params) -> None:
    """Write the EEG encoder's parameters and description into a folder."""
    tensors = {name.replace("/", "."): np.asarray(array) for name, array in flatten(params).items()}
    write_safetensors(folder / NAME, tensors, {"eeg2text_jax": json.dumps(dataclasses.asdict(eeg))})


def read_eeg(folder: Path) -> tuple[EEGSpec, dict[str, np.ndarray]] | None:
    """Return description and tensors by name, views on the mapped file; None if the folder has no such file.

    Raises:
      UserError: the file cannot be read, or was written for another version of the encoder.
    """
    path = folder / NAME
    if not path.exists():
        return None
    tensors = open_safetensors(path)
    try:
        fields = json.loads(read_metadata(path)["eeg2text_jax"])
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        eeg = EEGSpec(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: its header does not describe an EEG encoder that this version knows ({first_line(error)}); "
            "export it again."
        ) from error
    return eeg, tensors


@dataclasses.dataclass(frozen=True, eq=False)
class Feeding:
    """How a run fed raw features to its EEG encoder, and the shapes of the batches that it decoded.

    Features are cut to `max_words`, minus `mean`, divided by `scale`. Batches have `batch_size` rows and a width in
    `buckets`; equal batches give equal bits.
    """

    mean: np.ndarray  # [F]
    scale: np.ndarray  # [F]
    max_words: int
    buckets: tuple[int, ...]  # EEG positions of a batch
    batch_size: int
    compactions: int  # as in `decode.compactions`
    seed: int  # from which a sample's key is made where decoding draws
    dtype: str  # of the computation
    features_are: str  # meaning of the features
    base: str = ""  # checkpoint of the frozen language model that is not in the folder; empty: it is
    base_dtype: str = "float32"  # in which that was kept
    base_fingerprint: str = ""  # of its weights, see `folder.fingerprint`; empty: not known

    def standardize(self, words: np.ndarray) -> np.ndarray:
        """Raw features `[W, F]` -> float32 `[min(W, max_words), F]`."""
        return (np.asarray(words, np.float32)[: self.max_words] - self.mean) / self.scale


def write_feeding(folder: Path, feeding: Feeding) -> None:
    """Write `eeg2text.json`; numbers in decimal, each of which gives its float32 back."""
    fields = {field.name: getattr(feeding, field.name) for field in dataclasses.fields(Feeding)}
    fields |= {name: np.asarray(fields[name], np.float32).tolist() for name in ("mean", "scale")}
    (folder / FEEDING).write_text(json.dumps(fields, indent=1) + "\n", encoding="utf8")


def read_feeding(folder: Path) -> Feeding:
    """Return what `write_feeding` wrote; raise a UserError if there is no such file, or it is not one."""
    path = folder / FEEDING
    if not path.is_file():
        raise UserError(
            f"{folder}: has no {FEEDING}, so that nobody knows how its features were standardized; "
            "export the run again with `eeg2text export`."
        )
    try:
        return _feeding(json.loads(path.read_text(encoding="utf8")))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: does not say how features are fed ({first_line(error)}); export the run again."
        ) from error


def _feeding(fields: dict[str, Any]) -> Feeding:
    if "halvings" in fields:  # its name in version 0.1
        fields["compactions"] = fields.pop("halvings")
    mean, scale = (np.array(fields.pop(name), np.float32) for name in ("mean", "scale"))
    if mean.ndim != 1 or mean.shape != scale.shape:
        raise ValueError("mean and scale are not two lists of numbers of one length")
    return Feeding(mean, scale, buckets=tuple(fields.pop("buckets")), **fields)
