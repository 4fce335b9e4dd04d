"""`eeg_encoder.safetensors`: EEG encoder and bridge beside the language model that `transformers` knows.

Tensors have our names (`encoder.layers.ffn.inner.kernel`) and shapes, layers on the first axis; the header's metadata
hold the encoder's description.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.pretrained.mapping import flatten
from eeg2text_jax.pretrained.safetensors_file import open_safetensors, read_metadata, write_safetensors

NAME = "eeg_encoder.safetensors"


def write_eeg(folder: Path, eeg: EEGSpec, params: Params) -> None:
    """Writes the EEG encoder's parameters and description into a folder."""
    tensors = {name.replace("/", "."): np.asarray(array) for name, array in flatten(params).items()}
    write_safetensors(folder / NAME, tensors, {"eeg2text_jax": json.dumps(dataclasses.asdict(eeg))})


def read_eeg(folder: Path) -> tuple[EEGSpec, dict[str, np.ndarray]] | None:
    """Description and tensors by name, views on the mapped file; None where the folder has no such file.

    Raises:
      UserError: the file cannot be read, or was written for another version of the encoder.
    """
    path = folder / NAME
    if not path.exists():
        return None
    tensors = open_safetensors(path)
    try:
        fields = json.loads(read_metadata(path)["eeg2text_jax"])
        eeg = EEGSpec(**{**fields, "prompt": tuple(fields["prompt"])})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: its header does not describe an EEG encoder that this version knows ({error}); export it again."
        ) from error
    return eeg, tensors
