"""Modules of sentence-transformers after a text encoder: pooling, dense layers and normalization.

A folder with `modules.json` is a chain: the encoder, then modules with a folder each. SentenceT5 (Ni et al. 2021) is a
T5 encoder, the mean over tokens, a dense layer without bias, and normalization.

Shapes: `T` tokens, `D` width of the encoder, `E` width of the embedding.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import parse_json
from eeg2text_jax.pretrained.encoders import weights_digest
from eeg2text_jax.pretrained.folder import read_tensors

# Hidden states `[T, D]` of a text -> vector `[D]`; special tokens count, as in sentence-transformers. Several poolings
# that are selected by flags are concatenated in this order.
POOLINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls": lambda states: states[0],
    "max": lambda states: states.max(0),
    "mean": lambda states: states.mean(0),
    "mean_sqrt_len_tokens": lambda states: states.sum(0) / np.sqrt(len(states)),
    "weightedmean": lambda states: np.arange(1, len(states) + 1) @ states / (len(states) * (len(states) + 1) / 2),
    "lasttoken": lambda states: states[-1],
}
FLAGS = {  # flag in files of older versions of sentence-transformers -> name in POOLINGS
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": special.expit,
    "GELU": lambda x: x * special.ndtr(x),
    "SiLU": lambda x: x * special.expit(x),
}


class Module(NamedTuple):
    """A step after the encoder: its name in a metric's signature, and a function of a float64 array."""

    name: str
    apply: Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class SentenceModules:
    """The modules after the encoder, and how texts are prepared before it."""

    modules: tuple[Module, ...] = (Module("mean", POOLINGS["mean"]),)
    max_tokens: int | None = None  # limit of the text's length; None: no limit
    lower_case: bool = False  # whether texts are lower-cased first
    stated: bool = False  # whether the modules come from the folder's `modules.json`

    @property
    def name(self) -> str:
        """Names of the modules for a metric's signature, without a final normalization, which changes no cosine."""
        names = [module.name for module in self.modules]
        return "+".join(names[:-1] if names[-1] == "normalize" else names) + ("" if self.stated else ",unstated")

    def embed(self, states: np.ndarray) -> np.ndarray:
        """Map hidden states of one text, `[T, D]`, to its embedding, float64 `[E]`."""
        value = states.astype(np.float64)
        for module in self.modules:
            value = module.apply(value)
        return value


def read_modules(folder: Path) -> SentenceModules:
    """Read `modules.json` and the files that it names; a folder without `modules.json` gives the mean over tokens.

    Raises UserError if a file cannot be read, does not fit, or names an unknown module.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return SentenceModules()
    found: list[Module] = []
    for module in _read_json(path, list):
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise UserError(f"{path}: expected a list of objects with `type` and `path`; copy the checkpoint again.")
        kind = module["type"].rpartition(".")[2]
        if kind not in _READERS:
            raise UserError(
                f"{path}: the sentence encoder has a stage {module['type']!r}, which is not supported; expected "
                f"{', '.join(_READERS)}; choose another encoder."
            )
        found += _READERS[kind](folder / str(module.get("path", "")))
    if not found or found[0].name == "normalize" or found[0].name.startswith("dense"):
        raise UserError(
            f"{path}: no Pooling comes after the encoder, so a sentence has no single vector; choose another encoder."
        )
    beside = folder / "sentence_bert_config.json"
    settings = _read_json(beside, dict) if beside.is_file() else {}
    return SentenceModules(
        tuple(found), settings.get("max_seq_length"), bool(settings.get("do_lower_case")), stated=True
    )


def _pooling(folder: Path) -> list[Module]:
    path = folder / "config.json"
    settings = _read_json(path, dict)
    modes = settings.get("pooling_mode")
    if modes is None:
        flags = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
        modes = sorted(flags, key=lambda name: [*FLAGS, name].index(name))
    chosen = [FLAGS.get(str(name), str(name)) for name in ([modes] if isinstance(modes, str) else modes)]
    if not chosen or not {*chosen} <= POOLINGS.keys():
        raise UserError(
            f"{path}: asks for {', '.join(chosen) or 'no pooling'}; expected {', '.join(POOLINGS)}; choose another "
            "encoder."
        )
    return [Module(",".join(chosen), lambda states: np.concatenate([POOLINGS[name](states) for name in chosen]))]


def _dense(folder: Path) -> list[Module]:
    path = folder / "config.json"
    settings = _read_json(path, dict)
    name = str(settings.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise UserError(
            f"{path}: the activation is {name}; expected {' or '.join(ACTIVATIONS)}; choose another encoder."
        )
    if settings.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise UserError(
            f"{path}: is a dense layer of {settings['module_input_name']}; expected sentence_embedding; choose another "
            "encoder."
        )
    tensors = read_tensors(folder)
    weight = np.asarray(tensors["linear.weight"], np.float64) if "linear.weight" in tensors else np.zeros(0)
    bias = np.asarray(tensors["linear.bias"], np.float64) if "linear.bias" in tensors else None
    shape = settings.get("out_features"), settings.get("in_features")
    if weight.shape != shape or (bias is not None) != bool(settings.get("bias", True)):
        raise UserError(
            f"{folder}: linear.weight is {list(weight.shape)}, {'with' if bias is not None else 'without'} a bias; "
            f"config.json has {list(shape)} and bias {settings.get('bias', True)}; copy the checkpoint again."
        )
    shift = 0.0 if bias is None else bias
    return [
        Module(f"dense[{name},sha256:{weights_digest(folder)[:12]}]", lambda x: ACTIVATIONS[name](weight @ x + shift))
    ]


def normalize(vector: np.ndarray) -> np.ndarray:
    """Return the vector scaled to length 1; a zero vector stays zero."""
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


_READERS: dict[str, Callable[[Path], list[Module]]] = {
    "Transformer": lambda folder: [],
    "Pooling": _pooling,
    "Dense": _dense,
    "Normalize": lambda folder: [Module("normalize", normalize)],
}


def _read_json(path: Path, kind: type) -> Any:
    try:
        value = parse_json(path.read_text("utf8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON; copy the checkpoint again.") from error
    if not isinstance(value, kind):
        raise UserError(f"{path}: expected a JSON {kind.__name__}, found {type(value).__name__}; copy it again.")
    return value
