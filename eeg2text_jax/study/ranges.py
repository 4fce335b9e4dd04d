"""Check the fields of a configuration, alone and in combination, before any work.

`check_config` runs whenever a configuration is read, from the command line or from Python.
"""

import operator
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from eeg2text_jax.backbones import DECODERS
from eeg2text_jax.data.prompt import template_problem
from eeg2text_jax.errors import UserError, did_you_mean, first_line
from eeg2text_jax.kinds import Range, ranges_of
from eeg2text_jax.search.settings import GenerationSpec
from eeg2text_jax.splits.methods import FROM_FILE
from eeg2text_jax.study.places import RENAMED
from eeg2text_jax.study.sections import Settings, read_settings

RANGES = ranges_of(Settings)  # range of each field by its dotted name, in the order of configs/default.py


def check_config(config: ConfigDict, sections: Collection[str] = (), ranges: Mapping[str, Range] | None = None) -> None:
    """Raise UserError if a field is missing, unknown, out of its range, or contradicts another field.

    Args:
      config: the configuration.
      sections: top-level sections to check; empty: all.
      ranges: ranges of all fields of a judge's configuration, which is then checked field by field; None: `RANGES`.
    """
    if ranges is not None:
        _check_fields(config, ranges, list(ranges))
        return
    for name in dict(fields(config)).keys() & RENAMED.keys():
        raise UserError(f"{name} is called {RENAMED[name]} now; rename it in the configuration.")
    known = [name for name in RANGES if not sections or name.partition(".")[0] in sections]
    _check_fields(config, RANGES, known)
    for name, problems in _PROBLEMS.items():
        if not sections or name in sections:
            for problem in problems(config):
                raise UserError(problem)


def checked_settings(config: ConfigDict) -> Settings:
    """Check all of a configuration with `check_config`; return its settings."""
    check_config(config)
    return read_settings(config)


def _check_fields(config: ConfigDict, ranges: Mapping[str, Range], known: Collection[str]) -> None:
    """Raise UserError if a field of `known` is missing or out of its range, or the configuration has unknown fields."""
    found = dict(fields(config))
    for name in known:
        if name not in found:
            home = "configs/default.py" if ranges is RANGES else "configs/judge.py"
            raise UserError(f"{name} is missing in the configuration; start your configuration from {home}.")
        if not ranges[name].holds(found[name]):
            raise refusal(name, found[name], ranges)
    for name in found:
        if name not in ranges and not name.startswith("decode."):
            raise UserError(f"{name}: there is no such field; {did_you_mean(name, ranges)}")


def refusal(name: str, value: Any, ranges: Mapping[str, Range] = RANGES) -> UserError:
    """Return the error about the value of field `name`, which is out of its range."""
    plain = value.to_dict() if isinstance(value, ConfigDict) else value
    return UserError(f"{name} is {shortly(plain)}; expected {ranges[name].expected}.")


def fields(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every field; the dict `model.shape` is one field."""
    for name, value in config.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, ConfigDict) and dotted not in RANGES:
            yield from fields(value, f"{dotted}.")
        else:
            yield dotted, value


def notes(config: Settings) -> list[str]:
    """Return messages about a warm-up that a training stage will cut because it is longer than half of the stage."""
    found = []
    stages = [("optim", "train"), ("optim", "step_one")]
    stages += [(name, name) for name in ("pretrain.snapshot", "pretrain.series") if config.pretrain.enabled]
    for section, counted in stages:
        warmup, steps = (operator.attrgetter(name)(config) for name in (f"{section}.warmup_steps", f"{counted}.steps"))
        if steps and warmup > steps // 2:
            found.append(
                f"{section}.warmup_steps is {warmup}, more than half of {counted}.steps ({steps}): the warm-up is cut "
                f"to {steps // 2} steps."
            )
    return found


def shortly(value: Any) -> str:
    """Return the `repr` of a value, cut to 80 characters."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def _data_problems(config: ConfigDict) -> Iterator[str]:
    recordings = config.data.recordings
    if recordings.compat and recordings.measure not in ("GD", "FFD", "TRT"):
        yield f"data.recordings.measure is {recordings.measure!r}; expected GD, FFD or TRT with compat=wang-ji."


def _split_problems(config: ConfigDict) -> Iterator[str]:
    if config.split.method == FROM_FILE and not config.split.path:
        yield "split.path is ''; expected a certificate or split file in JSON, as split.method is 'file'."


def _model_problems(config: ConfigDict) -> Iterator[str]:
    width, heads = config.model.encoder_width, config.model.encoder_heads
    if config.model.encoder in ("transformer", "unicorn") and config.model.encoder_layers and width % heads:
        yield f"model.encoder_width is {width}; expected a multiple of model.encoder_heads ({heads}), or 0."


def _train_problems(config: ConfigDict) -> Iterator[str]:
    size, accumulate = config.batch.size, config.train.accumulate
    if size % accumulate:
        yield f"train.accumulate is {accumulate}; expected a divisor of batch.size ({size})."
    if config.objective != "contrastive":
        return
    # The contrastive loss needs whole batches, and the model has no backbone.
    only = {"train.accumulate": 1, "train.label_smoothing": 0.0, "train.best_by": "tokens", "step_one.steps": 0}
    only["step_one.epochs"] = 0
    for name, value in only.items():
        section, field = name.split(".")
        if config[section][field] != value:
            yield f"{name} is {config[section][field]}; expected {value} with objective=contrastive."
    if config.batch.size < 2:
        yield f"batch.size is {config.batch.size}; expected at least 2 with objective=contrastive."


def _text_problems(config: ConfigDict) -> Iterator[str]:
    alone, conditions = config.model.backbone in DECODERS, {*config.grid.train_conditions, *config.grid.eval_conditions}
    if problem := template_problem(config.text.template):
        yield problem
    if not alone and (config.text.template or config.text.chat):
        yield (
            f"text.template is {config.text.template!r} and model.backbone is {config.model.backbone!r}; expected a "
            f"decoder-only model ({', '.join(DECODERS)}), or model.prompt in its place."
        )
    if alone and config.model.prompt:
        yield f"model.prompt is {config.model.prompt!r}; expected '' and text.template with a decoder-only model."
    if "prompt_only" in conditions and (not alone or config.objective != "generate"):
        yield "grid has the condition prompt_only; expected a decoder-only model, which can read a prompt alone."


def _optim_problems(config: ConfigDict) -> Iterator[str]:
    name = config.optim.trainable
    if config.optim.schedule == "geometric" and not config.optim.lr_end:
        yield "optim.lr_end is 0.0; expected a number above 0, because geometric decay never reaches 0."
    other_stages = config.step_one.steps or config.step_one.epochs or config.pretrain.enabled
    if name in ("bridge", "lora") and (config.objective != "generate" or other_stages):
        yield f"optim.trainable is {name!r}; expected 'all' if objective=contrastive, step_one or pretrain is set."
    if config.decode.tensor_parallel and name not in ("bridge", "lora"):
        yield (
            f"decode.tensor_parallel is True and optim.trainable is {name!r}; expected bridge or lora, with which the "
            "language model is frozen."
        )
    if config.model.frozen_dtype == "int8" and (
        name not in ("bridge", "lora") or config.model.backbone not in DECODERS
    ):
        yield (
            f"model.frozen_dtype is 'int8' with optim.trainable {name!r} and model.backbone {config.model.backbone!r}; "
            "expected bridge or lora, and a decoder-only model."
        )
    if name == "lora" and config.model.backbone not in DECODERS:
        yield f"optim.trainable is 'lora' and model.backbone {config.model.backbone!r}; expected a decoder-only model."


def _pretrain_problems(config: ConfigDict) -> Iterator[str]:
    own = config.pretrain
    if not own.enabled:
        return
    if config.model.encoder != "unicorn":
        yield (
            f"pretrain.enabled is True and model.encoder is {config.model.encoder!r}; expected 'unicorn', the only "
            "encoder that can reconstruct its input, or pretrain.enabled=False."
        )
    for name in ("snapshot", "series"):
        stage = own[name]
        if stage.schedule == "geometric" and not stage.lr_end:
            yield f"pretrain.{name}.lr_end is 0.0; expected a number above 0, because geometric decay never reaches 0."
        if stage.batch_size % config.train.accumulate:
            yield (
                f"train.accumulate is {config.train.accumulate}; expected a divisor of pretrain.{name}.batch_size "
                f"({stage.batch_size})."
            )
    if own.freeze_snapshot and not (own.snapshot.steps or own.snapshot.epochs):
        yield (
            "pretrain.freeze_snapshot is True and pretrain.snapshot.steps 0; expected steps above 0, else random "
            "weights are frozen."
        )


def _decode_problems(config: ConfigDict) -> Iterator[str]:
    tokens = types.SimpleNamespace(start_token=0, pad_token=1, eos_token=2)  # in place of a model's
    try:
        GenerationSpec.from_fields(config.decode, tokens)
    except TypeError as error:
        yield f"decode has a setting of the wrong type ({first_line(error)}); see GenerationSpec."


# Section -> a function that yields a message for each contradiction between fields.
_PROBLEMS: dict[str, Callable[[ConfigDict], Iterator[str]]] = {
    "data": _data_problems,
    "split": _split_problems,
    "text": _text_problems,
    "model": _model_problems,
    "optim": _optim_problems,
    "train": _train_problems,
    "pretrain": _pretrain_problems,
    "decode": _decode_problems,
}
