"""`pytorch_model.bin` files, mapped; PyTorch is imported only for them."""

import pickle
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.pretrained.safetensors_file import not_weights


def open_torch(path: Path) -> dict[str, np.ndarray]:
    """Views on the tensors of a PyTorch state dict, in the file's types, by name; only tensors are unpickled.

    Raises:
      UserError: PyTorch is not installed, the file is not a state dict, or it is cut short.
    """
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"{path}: reading it needs PyTorch, which is not installed; install torch, or save the checkpoint as "
            "model.safetensors."
        ) from error
    with path.open("rb") as file:
        start = file.read(100)
    try:
        # Only the zip layout (PyTorch 1.6 and later) can be mapped.
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=start.startswith(b"PK"))
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, OSError) as error:
        reason = first_line(error)[:120]
        raise not_weights(path, start, "a PyTorch state dict", f"it cannot be read ({reason})") from error
    if not isinstance(state, dict):
        raise UserError(f"{path}: expected a dict of tensors, found {type(state).__name__}.")
    wrong = [str(name) for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if wrong:
        raise UserError(f"{path}: expected a dict of tensors, found other values under {', '.join(wrong[:5])}.")
    return {name: _view(torch, tensor.detach()) for name, tensor in state.items()}


def _view(torch, tensor) -> np.ndarray:
    """The tensor's memory as an array; bfloat16, which `Tensor.numpy` refuses, goes by way of its bits."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(jnp.bfloat16)
    return tensor.numpy()
