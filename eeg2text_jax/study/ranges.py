"""Valid values of every configuration field, one line per field, and `check_config`, which checks them all.

`check_config` runs whenever a configuration is read, from the command line or from Python, before any work. A test
compares the fields of `configs/default.py` with `RANGES`.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from eeg2text_jax.backbones import BACKBONES, LORA_TARGETS
from eeg2text_jax.conditions import CONDITIONS, NEAREST, TRAINING_ONLY
from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.models.brain import ENCODERS
from eeg2text_jax.splits.methods import FROM_FILE, METHODS
from eeg2text_jax.study.data_ranges import DATA_RANGES
from eeg2text_jax.study.kinds import (
    Range,
    buckets,
    channels,
    flag,
    many,
    number,
    one_of,
    pair,
    place,
    settings,
    shares,
    span,
    text,
    tracker,
    whole,
)
from eeg2text_jax.study.metric_names import ENDPOINTS, MEANING, WHICH_SENTENCE
from eeg2text_jax.study.together import TOGETHER

STAGE = {  # of a pretraining stage
    "steps": whole(0),
    "epochs": whole(0),
    "batch_size": whole(1, 1_000_000),
    "lr": number(0, 100, above=True),
    "lr_end": number(0, 100),
    "schedule": one_of("constant", "linear", "cosine", "geometric"),
    "warmup_steps": whole(0),
    "eval_every": whole(1),
    "eval_epochs": whole(0),
    "patience": whole(0),
}

# In the order of configs/default.py.
RANGES: dict[str, Range] = {
    "seed": whole(0),
    "objective": one_of("generate", "contrastive"),
    "compilation_cache": place(local=True),
    **DATA_RANGES,
    "split.method": one_of(*METHODS, FROM_FILE),
    "split.ratio": shares(),
    "split.seed": whole(0),
    "split.path": place(),
    "split.gap": number(0, 1e6),
    "split.unique_subjects": flag(),
    "text.tokenizer": place(),
    "text.vocab_size": whole(260, 1_000_000),  # 256 bytes and four special tokens
    "text.max_tokens": whole(2, 100_000),
    "text.template": text(),
    "text.chat": flag(),
    "batch.buckets": buckets(),
    "batch.size": whole(1, 1_000_000),
    "model.backbone": one_of(*BACKBONES),
    "model.checkpoint": place(),
    "model.dtype": one_of("float32", "bfloat16"),  # float16 would need its loss scaled
    "model.shape": settings(),
    "model.encoder": one_of(*ENCODERS),
    "model.encoder_layers": whole(0, 1000),
    "model.encoder_heads": whole(1, 10_000),
    "model.encoder_ffn": whole(1, 1_000_000),
    "model.encoder_width": whole(0, 1_000_000),
    "model.dropout": number(0, 1, below=True),
    "model.unicorn.channels": channels(),
    "model.unicorn.hidden": whole(1, 1_000_000),
    "model.unicorn.activation": one_of("gelu", "relu"),
    "model.unicorn.positions": one_of("sinusoidal", "none"),
    "model.unicorn.bridge": one_of("linear", "relu"),
    "model.remat": flag(),
    "model.keep": one_of("products", "nothing"),
    "model.prompt": text(),
    "model.lora.rank": whole(1, 100_000),
    "model.lora.alpha": number(0, 1e6, above=True),
    "model.lora.dropout": number(0, 1, below=True),
    "model.lora.targets": many(one_of(*LORA_TARGETS)),
    "model.frozen_dtype": one_of("bfloat16", "float32"),
    "grid.train_conditions": many(one_of(*CONDITIONS)),
    "grid.seeds": many(whole(0)),
    "grid.eval_conditions": many(one_of(*(name for name in (*CONDITIONS, NEAREST) if name not in TRAINING_ONLY))),
    "grid.controls": many(
        one_of(*(name for name in (*CONDITIONS, NEAREST) if name not in TRAINING_ONLY and name != "eeg"))
    ),
    "optim.name": one_of("adamw", "adafactor", "sgd"),
    "optim.trainable": one_of("all", "bridge", "lora", "first"),
    "optim.lr": number(0, 100, above=True),
    "optim.schedule": one_of("constant", "linear", "cosine", "geometric", "step"),
    "optim.lr_end": number(0, 100),
    "optim.decay_every": whole(1),
    "optim.decay_epochs": whole(0),
    "optim.decay_rate": number(0, 1, above=True),
    "optim.warmup_steps": whole(0),
    "optim.weight_decay": number(0, 100),
    "optim.momentum": number(0, 1, below=True),
    "optim.grad_clip": number(0, 1e9),
    "train.steps": whole(1),
    "train.epochs": whole(0),
    "train.eval_every": whole(1),
    "train.eval_epochs": whole(0),
    "train.patience": whole(0),
    "train.save_every": whole(1),
    "train.save_epochs": whole(0),
    "train.log_every": whole(1),
    "train.tracker": tracker(),
    "train.profile": span(),
    "train.label_smoothing": number(0, 1, below=True),
    "train.accumulate": whole(1, 1_000_000),
    "train.rng": one_of("threefry", "rbg"),
    "step_one.steps": whole(0),
    "step_one.epochs": whole(0),
    "step_one.lr": number(0, 100, above=True),
    "pretrain.enabled": flag(),
    "pretrain.loss": one_of("mae", "mse"),
    "pretrain.mask": flag(),
    "pretrain.freeze_snapshot": flag(),
    "pretrain.freeze_encoder": flag(),
    **{f"pretrain.{stage}.{name}": range for stage in ("snapshot", "series") for name, range in STAGE.items()},
    "pretrain.series.hidden": number(0, 1, below=True),
    "contrastive.text": place(),
    "contrastive.layer": whole(-1, 1000),
    "contrastive.hashed": whole(8, 1_000_000),
    "contrastive.width": whole(1, 1_000_000),
    "contrastive.temperature": number(0, 100, above=True),
    "contrastive.learn_temperature": flag(),
    "contrastive.symmetric": flag(),
    "parallel.arms": one_of("auto", "vmap", "map"),
    "parallel.wave": whole(0, 1_000_000),
    "parallel.mesh": pair(whole(0, 1_000_000)),
    "parallel.fsdp": flag(),
    "parallel.hosts": one_of("one", "auto", "env"),
    "parallel.startup": whole(1, 86_400),
    "parallel.heartbeat": whole(2, 3_600),
    "decode.num_beams": whole(1, 1000),
    "decode.max_length": whole(2, 100_000),
    "decode.repetition_penalty": number(0, 1000, above=True),
    "decode.no_repeat_ngram_size": whole(0, 100_000),
    "decode.length_penalty": number(-100, 100),
    "decode.num_return_sequences": whole(1, 1000),
    "decode.do_sample": flag(),
    "decode.temperature": number(0, 1000, above=True),
    "decode.top_k": whole(0, 1_000_000),
    "decode.top_p": number(0, 1, above=True),
    "decode.batch_size": whole(1, 1_000_000),
    "decode.compactions": whole(0, 30),
    "decode.teacher_forced_cut": one_of("reference", "authors"),
    "retrieval.likelihood": flag(),
    "retrieval.endpoint": one_of(*WHICH_SENTENCE),
    "retrieval.margin": number(0, 100),
    "metrics.names": many(one_of(*MEANING), least=0),
    "metrics.encoder": place(),
    "metrics.layer": whole(-1, 1000),
    "metrics.judge": place(),
    "audit.endpoint": one_of(*ENDPOINTS),
    "audit.secondary": many(one_of(*ENDPOINTS), least=0),
    "audit.margin": number(0, 100),
    "audit.resamples": whole(100, 1_000_000),
    "audit.seed": whole(0),
}


# Fields of version 0.1 -> their current names.
RENAMED = {"optim.free": "optim.trainable", "decode.halvings": "decode.compactions"}


def check_config(config: ConfigDict, sections: Collection[str] = (), ranges: Mapping[str, Range] | None = None) -> None:
    """Check every field on its own and in combination; with `sections`, only these top-level sections.

    Pass `ranges` for a configuration that does not derive from `configs/default.py`.

    Raises:
      UserError: a field is missing, unknown, of another type or out of its range; the message names the field, its
        value and what was expected.
    """
    if ranges is not None:
        _check_fields(config, ranges, list(ranges))
        return
    found = dict(fields(config))
    for name in found.keys() & RENAMED.keys():
        raise UserError(f"{name} is called {RENAMED[name]} now; rename it in the configuration.")
    known = [name for name in RANGES if not sections or name.partition(".")[0] in sections]
    _check_fields(config, RANGES, known)
    _check_together(config, sections)


def _check_fields(config: ConfigDict, ranges: Mapping[str, Range], known: Collection[str]) -> None:
    found = dict(fields(config))
    for name in known:
        if name not in found:
            home = "configs/default.py" if ranges is RANGES else "configs/judge.py"
            raise UserError(f"{name} is missing in the configuration; begin yours from {home}.")
        if not ranges[name].holds(found[name]):
            raise refusal(name, found[name], ranges)
    for name in found:
        if name not in ranges and not name.startswith("decode."):
            raise UserError(f"{name}: there is no such field; {did_you_mean(name, ranges)}")


def refusal(name: str, value: Any, ranges: Mapping[str, Range] | None = None) -> UserError:
    """Return the error for a value out of its range."""
    plain = value.to_dict() if isinstance(value, ConfigDict) else value
    return UserError(f"{name} is {shortly(plain)}; expected {(ranges or RANGES)[name].expected}.")


def fields(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and value of every field; `model.shape` is one field."""
    for name, value in config.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, ConfigDict) and dotted not in RANGES:
            yield from fields(value, f"{dotted}.")
        else:
            yield dotted, value


def notes(config: ConfigDict) -> list[str]:
    """Return notes on settings that a run will not follow literally."""
    found = []
    stages = [("optim", "train", config.optim, config.train.steps)]
    stages += [("optim", "step_one", config.optim, config.step_one.steps)]
    if config.pretrain.enabled:
        own = [(f"pretrain.{name}", config.pretrain[name]) for name in ("snapshot", "series")]
        stages += [(name, name, section, section.steps) for name, section in own]
    for section, counted, rates, steps in stages:
        if steps and rates.warmup_steps > steps // 2:
            found.append(
                f"{section}.warmup_steps is {rates.warmup_steps}, more than half of {counted}.steps ({steps}): "
                f"the warm-up is cut to {steps // 2} steps."
            )
    return found


def _check_together(config: ConfigDict, sections: Collection[str]) -> None:
    for name, check in TOGETHER.items():
        if (not sections or name in sections) and (problem := check(config)):
            raise UserError(problem)


def shortly(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
