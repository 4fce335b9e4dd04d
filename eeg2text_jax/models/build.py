"""Configuration -> model: which backbone, of what shape, behind which EEG encoder."""

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict
from transformers import PretrainedConfig

from eeg2text_jax import models, pretrained
from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec

# A backbone is a module here together with a table of names of the same name in `pretrained/`.
BACKBONES = tuple(
    sorted(
        {module.name for module in pkgutil.iter_modules(models.__path__)}
        & {module.name for module in pkgutil.iter_modules(pretrained.__path__)}
    )
)
DTYPES = ("float32", "bfloat16", "float16")


def build_model(config: ConfigDict, n_features: int, tokenizer: Any) -> Seq2SeqModel:
    """A model with random weights: backbone of `config.shape` and the tokenizer's vocabulary.

    Args:
      config: the `model` section of the configuration.
      n_features: F, numbers per word.
      tokenizer: of transformers; gives the vocabulary size and special tokens.

    Raises:
      UserError: an unknown backbone, dtype or field of `shape`, or a tokenizer without end or padding token.
    """
    spec = random_spec(config.backbone, config.shape.to_dict(), tokenizer)
    return model_around(spec, config, n_features, tokenizer)


def model_around(spec: Seq2SeqSpec, config: ConfigDict, n_features: int, tokenizer: Any) -> Seq2SeqModel:
    """The model with EEG encoder and bridge that `config` (the `model` section) asks for around a backbone."""
    if config.dtype not in DTYPES:
        raise UserError(f"config.model.dtype is {config.dtype!r}; it must be one of {', '.join(DTYPES)}.")
    prompt = tokenizer(config.prompt, add_special_tokens=False)["input_ids"] if config.prompt else []
    eeg = EEGSpec(
        features=n_features,
        layers=config.encoder_layers,
        heads=config.encoder_heads,
        ffn=config.encoder_ffn,
        width=config.encoder_width,
        dropout=config.dropout,
        prompt=tuple(prompt),
    )
    return Seq2SeqModel(spec, eeg, dtype=config.dtype, remat=config.remat, keep=config.keep)


def backbone_module(name: str) -> ModuleType:
    """The module that describes a backbone; its name is the configuration's.

    Raises:
      UserError: no such backbone.
    """
    if name not in BACKBONES:
        raise UserError(f"config.model.backbone is {name!r}; it must be one of {', '.join(BACKBONES)}.")
    return importlib.import_module(f"eeg2text_jax.models.{name}")


def backbone_of(config: PretrainedConfig) -> str | None:
    """Name of the backbone whose checkpoints have such a configuration; None where there is none."""
    return next((name for name in BACKBONES if config.model_type == backbone_module(name).MODEL_TYPE), None)


def random_spec(backbone: str, shape: dict[str, Any], tokenizer: Any) -> Seq2SeqSpec:
    """Description of a backbone with random weights."""
    return backbone_module(backbone).spec_from_config(random_config(backbone, shape, tokenizer))


def random_config(backbone: str, shape: dict[str, Any], tokenizer: Any) -> PretrainedConfig:
    """Hugging Face configuration of a backbone with random weights.

    Raises:
      UserError: a field that the configuration class does not know.
    """
    module = backbone_module(backbone)
    _check_fields(shape, module.CONFIG, getattr(module, "SIDES", ()))
    bos = _first(tokenizer.bos_token_id, tokenizer.cls_token_id)
    eos = _first(tokenizer.eos_token_id, tokenizer.sep_token_id)
    if eos is None or tokenizer.pad_token_id is None:
        raise UserError("the tokenizer has no end or no padding token; set eos_token and pad_token in its folder.")
    tokens = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": tokenizer.pad_token_id}
    return module.random_config({"vocab_size": len(tokenizer), **tokens, **shape})


def _first(*ids: int | None) -> int | None:
    return next((i for i in ids if i is not None), None)


def _check_fields(shape: dict[str, Any], config_class: type[PretrainedConfig], prefixes: tuple[str, ...]) -> None:
    fields = {*config_class().to_dict(), *config_class.attribute_map}
    known = fields | {prefix + name for prefix in prefixes for name in fields}
    for name in shape:
        if name not in known:
            raise UserError(
                f"config.model.shape has a field {name!r} that {config_class.__name__} does not know; "
                f"{did_you_mean(name, sorted(known))}"
            )
