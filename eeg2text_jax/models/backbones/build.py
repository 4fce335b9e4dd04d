"""Models from the section `model` of the configuration: language model (backbone) and brain encoder."""

import dataclasses
import importlib
import math
from collections.abc import Sequence
from typing import Any

from transformers import PretrainedConfig

from eeg2text_jax.base.errors import UserError, did_you_mean, first_line, one_line
from eeg2text_jax.models.backbones import BACKBONES, DECODERS, ENCODER_DECODERS, ModelSettings, decoder_only
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.layers import ACTIVATIONS
from eeg2text_jax.models.pretrained.wave_folder import wave_spec
from eeg2text_jax.models.spec import WAVE_ENCODERS, Channels, EEGSpec, Seq2SeqSpec, StackSpec

Shape = int | Sequence[int]  # F, the numbers per word, or the (X, Y, Z) of volumes
UNKNOWN = Channels()
MOST_LAYERS = 1000  # the deepest language models have 126


def build_model(
    config: ModelSettings, feature_shape: Shape, tokenizer: Any, channels: Channels = UNKNOWN
) -> Seq2SeqModel:
    """Return a model with random weights, whose backbone has the fields `config.shape` and the tokenizer's vocabulary.

    Encoders of waves need the `channels`. Raises UserError for an unknown backbone or field of `shape`, or a tokenizer
    without end or padding token.
    """
    spec = random_spec(config.backbone, dict(config.shape), tokenizer)
    return model_around(spec, config, feature_shape, tokenizer, channels)


def model_around(
    spec: Seq2SeqSpec, config: ModelSettings, feature_shape: Shape, tokenizer: Any, channels: Channels = UNKNOWN
) -> Seq2SeqModel:
    """Return a model of the backbone `spec` with the brain encoder and bridge of the section `model`."""
    prompt = tokenizer(config.prompt, add_special_tokens=False)["input_ids"] if config.prompt else []
    if prompt and max(prompt) >= (spec.encoder_vocab_size or spec.vocab_size):
        raise UserError(
            f"config.model.prompt has token {max(prompt)}, which the encoder's vocabulary lacks; change the prompt."
        )
    eeg = brain_spec(config, feature_shape, tuple(prompt), spec.d_model, channels)
    if spec.stem and config.encoder == "conv" and not config.encoder_layers:
        eeg = dataclasses.replace(eeg, bridge="none")  # the language model's own convolution comes next
    if config.decoder_prompt:
        spec = dataclasses.replace(spec, decoder_prompt=special_tokens(tokenizer, config.decoder_prompt))
    return Seq2SeqModel(spec, eeg, dtype=config.dtype, remat=config.remat, keep=config.keep)


def special_tokens(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Return the ids of a text of special tokens alone, such as `<|en|><|transcribe|>`; else raise a UserError."""
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    if not {*tokenizer.get_added_vocab().values(), *getattr(tokenizer, "all_special_ids", ())}.issuperset(ids):
        raise UserError(
            f"config.model.decoder_prompt is {text!r}, which has other tokens than the tokenizer's special ones; "
            "expected tokens such as <|en|>, or '' for none."
        )
    return ids


def brain_spec(
    config: ModelSettings, shape: Shape, prompt: tuple[int, ...] = (), d_model: int = 0, channels: Channels = UNKNOWN
) -> EEGSpec:
    """Return the description of the section's brain encoder.

    `d_model` is the language model's width, and UniCoRN's if `encoder_width` is 0. Raises UserError if `encoder_width`
    is 0 for volumes, or no multiple of the heads; or see `wave_spec`.
    """
    shape = (shape,) if isinstance(shape, int) else tuple(map(int, shape))
    if config.encoder in WAVE_ENCODERS:
        if len(shape) > 1:
            raise UserError(f"config.model.encoder is {config.encoder!r}, which reads waves; the data has volumes.")
        waves = wave_spec(config, math.prod(shape), channels, d_model)
        return EEGSpec(math.prod(shape), prompt=prompt, kind=config.encoder, bridge="linear", waves=waves)
    unicorn, volume = config.encoder == "unicorn", shape if len(shape) > 1 else ()
    if volume and not unicorn and not config.encoder_width:
        raise UserError(
            f"config.model.encoder_width is 0, but a volume of {math.prod(shape):,} voxels must be projected to a "
            "smaller width; set encoder_width, for example to 256."
        )
    width = config.encoder_width or (d_model if unicorn else 0)
    if unicorn and width % config.encoder_heads:
        raise UserError(
            f"config.model.encoder_heads is {config.encoder_heads}, which does not divide the width {width}; change "
            "one of them."
        )
    details: dict[str, Any] = {name: getattr(config.unicorn, name) for name in ("activation", "positions", "bridge")}
    details |= {"channels": tuple(config.unicorn.channels)} if volume else {"hidden": config.unicorn.hidden}
    return EEGSpec(
        features=math.prod(shape), layers=0 if config.encoder == "none" else config.encoder_layers,
        heads=config.encoder_heads, ffn=config.encoder_ffn, width=width, dropout=config.dropout, prompt=prompt,
        kind=config.encoder, volume=volume, **(details if unicorn else {}),
    )  # fmt: skip


def backbone_module(name: str) -> Any:
    """Return a backbone's module, or for a decoder-only model an object with the same interface.

    Each has `spec_from_config` (Hugging Face configuration -> description), `random_config` (fields -> configuration of
    random weights) and `table` (of the tensor names in checkpoints), some `as_stored` or `only_exported`. Raises
    UserError if there is no such backbone.
    """
    if name not in BACKBONES:
        raise UserError(f"config.model.backbone is {name!r}; it must be one of {', '.join(BACKBONES)}.")
    if name in DECODERS:
        return decoder_only.MODELS[name]
    return importlib.import_module(f"eeg2text_jax.models.backbones.{name}")


def backbone_of(config: PretrainedConfig) -> str | None:
    """Return the name of a Hugging Face configuration's backbone; None if it is not supported."""
    return next((name for name in BACKBONES if config.model_type == backbone_module(name).MODEL_TYPE), None)


def check_depth(fields: Any, where: str) -> None:
    """Raise UserError if fields ask for so many layers that building the model would never end."""
    for name, value in fields.items() if isinstance(fields, dict) else ():
        check_depth(value, f"{where}: {name}")
        if name.endswith("layers") and isinstance(value, int | float) and value > MOST_LAYERS:
            raise UserError(f"{where}: {name} is {value}; expected at most {MOST_LAYERS}.")


def random_spec(backbone: str, shape: dict[str, Any], tokenizer: Any) -> Seq2SeqSpec:
    """Return the description of a backbone with random weights; raise UserError if its vocabulary is too small."""
    check_depth(shape, "config.model.shape")
    spec = describe(random_config(backbone, shape, tokenizer), backbone, "config.model.shape")
    if len(tokenizer) > spec.vocab_size:  # for a larger token id, JAX would silently read the last row of the table
        raise UserError(
            f"config.model.shape: vocab_size is {spec.vocab_size}, but the tokenizer has {len(tokenizer)} tokens; "
            "leave vocab_size out."
        )
    return spec


def describe(config: PretrainedConfig, backbone: str, where: str) -> Seq2SeqSpec:
    """Return the description of a backbone from its Hugging Face configuration, which messages call `where`.

    Raises UserError for an unknown activation, a size below 1, an invalid dropout rate or token id.
    """
    try:
        spec = backbone_module(backbone).spec_from_config(config)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise UserError(f"{where}: describes no {backbone} model ({first_line(error)}).") from error
    for stack in filter(None, (spec.encoder, spec.decoder)):
        _check_stack(stack, where)
    tokens = {"pad": spec.pad_token, "eos": spec.eos_token, "decoder_start": spec.start_token}
    if spec.encoder is None:
        tokens = {"eos": spec.eos_token}
    elif spec.pad_token == spec.vocab_size and config.pad_token_id == config.eos_token_id:  # see `whisper`
        tokens.pop("pad")
    for name, token in tokens.items():
        if not _whole(token) or not 0 <= token < spec.vocab_size:
            raise UserError(
                f"{where}: {name}_token_id is {token!r}; expected one token id below vocab_size, {spec.vocab_size} "
                "(several end tokens for decoding go into generation_config.json)."
            )
    return spec


def _check_stack(stack: StackSpec, where: str) -> None:
    if stack.activation not in ACTIVATIONS:
        names = ", ".join(sorted(ACTIVATIONS))
        raise UserError(f"{where}: there is no activation {stack.activation!r} here; expected one of {names}.")
    sizes = {"layers": stack.layers, "heads": stack.heads, "width": stack.width, "feed-forward width": stack.ffn}
    for name, size in sizes.items():
        if not _whole(size) or size < 1:
            raise UserError(f"{where}: its {name} is {size!r}; expected a whole number, at least 1.")
    if stack.kv_heads and stack.heads % stack.kv_heads:
        raise UserError(
            f"{where}: its {stack.heads} heads cannot share {stack.kv_heads} heads of keys equally; change one number."
        )
    for rate in (stack.dropout, stack.attention_dropout, stack.activation_dropout, stack.embedding_dropout):
        if not 0 <= rate < 1:
            raise UserError(f"{where}: a rate of dropout is {rate!r}; expected a number from 0 to below 1.")


def random_config(backbone: str, shape: dict[str, Any], tokenizer: Any) -> PretrainedConfig:
    """Return the Hugging Face configuration of random weights; raise UserError for unknown fields."""
    module = backbone_module(backbone)
    _check_fields(shape, module.CONFIG, getattr(module, "SIDES", ()))
    bos = first_known(tokenizer.bos_token_id, tokenizer.cls_token_id)
    eos = first_known(tokenizer.eos_token_id, tokenizer.sep_token_id)
    if eos is None or (tokenizer.pad_token_id is None and backbone in ENCODER_DECODERS):
        raise UserError("the tokenizer has no end or no padding token; set eos_token and pad_token in its folder.")
    tokens = {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": tokenizer.pad_token_id}
    try:
        return module.random_config({"vocab_size": len(tokenizer), **tokens, **shape})
    except Exception as error:  # transformers checks some values, and raises many kinds of exceptions
        raise UserError(f"config.model.shape makes no {module.CONFIG.__name__} ({one_line(error)}).") from error


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def first_known(*ids: int | None) -> int | None:
    return next((i for i in ids if i is not None), None)


def _check_fields(shape: dict[str, Any], config_class: type[PretrainedConfig], prefixes: tuple[str, ...]) -> None:
    fields = {*config_class().to_dict(), *config_class.attribute_map}
    allowed = fields | {prefix + name for prefix in prefixes for name in fields}
    for name in shape:
        if name not in allowed:
            raise UserError(
                f"config.model.shape has a field {name!r} that {config_class.__name__} does not know; "
                f"{did_you_mean(name, sorted(allowed))}"
            )
