"""Checks of configuration fields in combination; each returns a message, or "" if the fields are consistent."""

from collections.abc import Callable

from ml_collections import ConfigDict

from eeg2text_jax.backbones import DECODERS
from eeg2text_jax.data.prompt import template_problem
from eeg2text_jax.errors import first_line
from eeg2text_jax.search.settings import GenerationSpec
from eeg2text_jax.splits.methods import FROM_FILE


def _recordings(config: ConfigDict) -> str:
    recordings = config.data.recordings
    if recordings.compat and recordings.measure not in ("GD", "FFD", "TRT"):
        return f"data.recordings.measure is {recordings.measure!r}; expected GD, FFD or TRT with compat=wang-ji."
    return ""


def _split(config: ConfigDict) -> str:
    if config.split.method == FROM_FILE and not config.split.path:
        return "split.path is ''; expected a certificate or split file in JSON, as split.method is 'file'."
    return ""


def _encoder(config: ConfigDict) -> str:
    width, heads = config.model.encoder_width, config.model.encoder_heads
    if config.model.encoder in ("transformer", "unicorn") and config.model.encoder_layers and width % heads:
        return f"model.encoder_width is {width}; expected a multiple of model.encoder_heads ({heads}), or 0."
    return ""


def _microbatches(config: ConfigDict) -> str:
    size, accumulate = config.batch.size, config.train.accumulate
    if size % accumulate:
        return f"train.accumulate is {accumulate}; expected a divisor of batch.size ({size})."
    return _contrastive(config) if config.objective == "contrastive" else ""


def _contrastive(config: ConfigDict) -> str:
    """Refuse settings that the contrastive objective excludes: its loss needs whole batches, and it has no backbone."""
    only = {"train.accumulate": 1, "train.label_smoothing": 0.0, "step_one.steps": 0, "step_one.epochs": 0}
    for name, value in only.items():
        section, field = name.split(".")
        if config[section][field] != value:
            return f"{name} is {config[section][field]}; expected {value} with objective=contrastive."
    if config.batch.size < 2:
        return f"batch.size is {config.batch.size}; expected at least 2 with objective=contrastive."
    return ""


def _prompt(config: ConfigDict) -> str:
    alone, conditions = config.model.backbone in DECODERS, {*config.grid.train_conditions, *config.grid.eval_conditions}
    if problem := template_problem(config.text.template):
        return problem
    if not alone and (config.text.template or config.text.chat):
        return (
            f"text.template is {config.text.template!r} and model.backbone is {config.model.backbone!r}; expected a "
            f"decoder-only model ({', '.join(DECODERS)}), or model.prompt in its place."
        )
    if alone and config.model.prompt:
        return f"model.prompt is {config.model.prompt!r}; expected '' and text.template with a decoder-only model."
    if "prompt_only" in conditions and (not alone or config.objective != "generate"):
        return "grid has the condition prompt_only; expected a decoder-only model, which can read a prompt alone."
    return ""


def _rates(config: ConfigDict) -> str:
    if config.optim.schedule == "geometric" and not config.optim.lr_end:
        return "optim.lr_end is 0.0; expected a number above 0, which a geometric decay never reaches."
    return _frozen(config) if config.optim.trainable in ("bridge", "lora") else ""


def _frozen(config: ConfigDict) -> str:
    name = config.optim.trainable
    if config.objective != "generate" or config.step_one.steps or config.step_one.epochs or config.pretrain.enabled:
        return f"optim.trainable is {name!r}; expected all with objective=contrastive, step_one or pretrain."
    if name == "lora" and config.model.backbone not in DECODERS:
        return f"optim.trainable is 'lora' and model.backbone {config.model.backbone!r}; expected a decoder-only model."
    return ""


def _pretraining(config: ConfigDict) -> str:
    own = config.pretrain
    if not own.enabled:
        return ""
    if config.model.encoder != "unicorn":
        return (
            f"pretrain.enabled is True and model.encoder is {config.model.encoder!r}; expected 'unicorn', the encoder "
            "that has a mirror to reconstruct with, or pretrain.enabled=False."
        )
    for name in ("snapshot", "series"):
        stage = own[name]
        if stage.schedule == "geometric" and not stage.lr_end:
            return f"pretrain.{name}.lr_end is 0.0; expected a number above 0, which a geometric decay never reaches."
        if stage.batch_size % config.train.accumulate:
            return (
                f"train.accumulate is {config.train.accumulate}; expected a divisor of pretrain.{name}.batch_size "
                f"({stage.batch_size})."
            )
    if own.freeze_snapshot and not (own.snapshot.steps or own.snapshot.epochs):
        return (
            "pretrain.freeze_snapshot is True and pretrain.snapshot.steps 0; expected steps above 0, else random "
            "weights are frozen."
        )
    return ""


class _AnyTokens:
    """Placeholder token ids, to check decoding settings before a model exists."""

    start_token, pad_token, eos_token = 0, 1, 2


def _decoding(config: ConfigDict) -> str:
    try:
        GenerationSpec.from_fields(config.decode, _AnyTokens())
    except TypeError as error:
        return f"decode has a setting of the wrong type ({first_line(error)}); see GenerationSpec."
    return ""


TOGETHER: dict[str, Callable[[ConfigDict], str]] = {
    "data": _recordings,
    "split": _split,
    "text": _prompt,
    "model": _encoder,
    "optim": _rates,
    "train": _microbatches,
    "pretrain": _pretraining,
    "decode": _decoding,
}
