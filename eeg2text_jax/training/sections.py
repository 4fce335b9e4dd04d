"""The configuration of a run as a tree of frozen dataclasses, made from the ConfigDict that users write.

`SplitSettings` is the section `split` of a configuration, and so on. The annotation of a field is its type and its
range, see `kinds.py`; meanings and defaults are in `configs/default.py`.
"""

import dataclasses
import operator
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from ml_collections import ConfigDict

from eeg2text_jax.base.errors import UserError, did_you_mean, first_line
from eeg2text_jax.base.kinds import (
    ParallelSettings,
    Range,
    buckets,
    flag,
    many,
    number,
    one_of,
    place,
    plain,
    ranges_of,
    read_section,
    shares,
    span,
    text,
    tracker,
    whole,
)
from eeg2text_jax.data.prompt import template_problem
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_jax.data.splits.methods import FROM_FILE, METHODS
from eeg2text_jax.decoding.settings import CACHE_DTYPES, WEIGHTS_DTYPES, GenerationSpec
from eeg2text_jax.instrument.metrics.metric_names import ENDPOINTS, MEANING, WHICH_SENTENCE
from eeg2text_jax.instrument.workdir import REMOVED, RENAMED, shortly
from eeg2text_jax.models.backbones import DECODERS, ModelSettings
from eeg2text_jax.models.spec import WAVE_ENCODERS
from eeg2text_jax.training.conditions import CONDITIONS, COPIES, TRAINING_ONLY

EVALUATED = tuple(name for name in (*CONDITIONS, *COPIES) if name not in TRAINING_ONLY)
Rate = Annotated[float, number(0, 100, above=True)]
Seed = Annotated[int, whole(0)]
Count = Annotated[int, whole(0)]
Every = Annotated[int, whole(1)]


@dataclasses.dataclass(frozen=True)
class SplitSettings:
    method: Annotated[str, one_of(*METHODS, FROM_FILE)]
    ratio: Annotated[tuple[float, float, float], shares()]
    seed: Seed
    path: Annotated[str, place()]
    gap: Annotated[float, number(0, 1e6)]
    unique_subjects: Annotated[bool, flag()]
    unique_sessions: Annotated[bool, flag()]


@dataclasses.dataclass(frozen=True)
class TextSettings:
    tokenizer: Annotated[str, place()]
    vocab_size: Annotated[int, whole(260, 1_000_000)]  # 256 bytes and four special tokens
    max_tokens: Annotated[int, whole(2, 100_000)]
    template: Annotated[str, text()]
    chat: Annotated[bool, flag()]


@dataclasses.dataclass(frozen=True)
class BatchSettings:
    buckets: Annotated[tuple[tuple[int, int], ...], buckets()]
    size: Annotated[int, whole(1, 1_000_000)]


@dataclasses.dataclass(frozen=True)
class GridSettings:
    train_conditions: Annotated[tuple[str, ...], many(one_of(*CONDITIONS))]
    seeds: Annotated[tuple[int, ...], many(whole(0))]
    eval_conditions: Annotated[tuple[str, ...], many(one_of(*EVALUATED))]
    controls: Annotated[tuple[str, ...], many(one_of(*(name for name in EVALUATED if name != "eeg")))]

    @property
    def conditions(self) -> frozenset[str]:
        """All conditions of training and evaluation."""
        return frozenset({*self.train_conditions, *self.eval_conditions})


@dataclasses.dataclass(frozen=True)
class OptimSettings:
    name: Annotated[str, one_of("adamw", "adafactor", "sgd")]
    trainable: Annotated[str, one_of("all", "bridge", "lora", "first")]
    lr: Rate
    schedule: Annotated[str, one_of("constant", "linear", "cosine", "geometric", "step")]
    lr_end: Annotated[float, number(0, 100)]
    decay_every: Every
    decay_epochs: Count
    decay_rate: Annotated[float, number(0, 1, above=True)]
    warmup_steps: Count
    weight_decay: Annotated[float, number(0, 100)]
    momentum: Annotated[float, number(0, 1, below=True)]
    grad_clip: Annotated[float, number(0, 1e9)]


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    steps: Every
    epochs: Count
    eval_every: Every
    eval_epochs: Count
    best_by: Annotated[str, one_of("tokens", "sentences")]
    patience: Count
    save_every: Every
    save_epochs: Count
    log_every: Every
    tracker: Annotated[str, tracker()]
    profile: Annotated[str, span()]
    label_smoothing: Annotated[float, number(0, 1, below=True)]
    accumulate: Annotated[int, whole(1, 1_000_000)]
    rng: Annotated[str, one_of("threefry", "rbg")]


@dataclasses.dataclass(frozen=True)
class StepOneSettings:
    steps: Count
    epochs: Count
    lr: Rate


@dataclasses.dataclass(frozen=True)
class StageSettings:
    """Section `pretrain.snapshot`, and the fields that `pretrain.series` shares with it."""

    steps: Count
    epochs: Count
    batch_size: Annotated[int, whole(1, 1_000_000)]
    lr: Rate
    lr_end: Annotated[float, number(0, 100)]
    schedule: Annotated[str, one_of("constant", "linear", "cosine", "geometric")]
    warmup_steps: Count
    eval_every: Every
    eval_epochs: Count
    patience: Count


@dataclasses.dataclass(frozen=True)
class SeriesSettings(StageSettings):
    """Section `pretrain.series`."""

    hidden: Annotated[float, number(0, 1, below=True)]


@dataclasses.dataclass(frozen=True)
class PretrainSettings:
    enabled: Annotated[bool, flag()]
    loss: Annotated[str, one_of("mae", "mse")]
    mask: Annotated[bool, flag()]
    freeze_snapshot: Annotated[bool, flag()]
    freeze_encoder: Annotated[bool, flag()]
    snapshot: StageSettings
    series: SeriesSettings


@dataclasses.dataclass(frozen=True)
class ContrastiveSettings:
    text: Annotated[str, place()]
    layer: Annotated[int, whole(-1, 1000)]
    hashed: Annotated[int, whole(8, 1_000_000)]
    width: Annotated[int, whole(1, 1_000_000)]
    temperature: Rate
    learn_temperature: Annotated[bool, flag()]
    symmetric: Annotated[bool, flag()]


@dataclasses.dataclass(frozen=True)
class DecodeSettings:
    """Section `decode`; `others` has the fields of `GenerationSpec` that a configuration adds to the section."""

    num_beams: Annotated[int, whole(1, 1000)]
    max_length: Annotated[int, whole(2, 100_000)]
    repetition_penalty: Annotated[float, number(0, 1000, above=True)]
    no_repeat_ngram_size: Annotated[int, whole(0, 100_000)]
    length_penalty: Annotated[float, number(-100, 100)]
    num_return_sequences: Annotated[int, whole(1, 1000)]
    do_sample: Annotated[bool, flag()]
    temperature: Annotated[float, number(0, 1000, above=True)]
    top_k: Annotated[int, whole(0, 1_000_000)]
    top_p: Annotated[float, number(0, 1, above=True)]
    cache_dtype: Annotated[str, one_of(*CACHE_DTYPES)]
    weights_dtype: Annotated[str, one_of(*WEIGHTS_DTYPES)]
    tensor_parallel: Annotated[bool, flag()]
    batch_size: Annotated[int, whole(1, 1_000_000)]
    compactions: Annotated[int, whole(0, 30)]
    teacher_forced_cut: Annotated[str, one_of("reference", "authors")]
    others: Mapping[str, Any]

    def fields(self) -> dict[str, Any]:
        """Return all fields of the section by name, with the entries of `others` as fields."""
        values = dataclasses.asdict(self)
        return values.pop("others") | values


@dataclasses.dataclass(frozen=True)
class RetrievalSettings:
    likelihood: Annotated[bool, flag()]
    endpoint: Annotated[str, one_of(*WHICH_SENTENCE)]
    margin: Annotated[float, number(0, 100)]


@dataclasses.dataclass(frozen=True)
class MetricsSettings:
    names: Annotated[tuple[str, ...], many(one_of(*MEANING), least=0)]
    encoder: Annotated[str, place()]
    layer: Annotated[int, whole(-1, 1000)]
    judge: Annotated[str, place()]


@dataclasses.dataclass(frozen=True)
class AuditSettings:
    endpoint: Annotated[str, one_of(*ENDPOINTS)]
    secondary: Annotated[tuple[str, ...], many(one_of(*ENDPOINTS), least=0)]
    margin: Annotated[float, number(0, 100)]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A whole configuration; sections and fields have the order of `configs/default.py`."""

    seed: Seed
    objective: Annotated[str, one_of("generate", "contrastive")]
    compilation_cache: Annotated[str, place(local=True)]
    data: DataSettings
    split: SplitSettings
    text: TextSettings
    batch: BatchSettings
    model: ModelSettings
    grid: GridSettings
    optim: OptimSettings
    train: TrainSettings
    step_one: StepOneSettings
    pretrain: PretrainSettings
    contrastive: ContrastiveSettings
    parallel: ParallelSettings
    decode: DecodeSettings
    retrieval: RetrievalSettings
    metrics: MetricsSettings
    audit: AuditSettings

    @property
    def document(self) -> dict[str, Any]:
        """The configuration as `config.json` has it."""
        return plain(self._values())

    def _values(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"decode": self.decode.fields()}

    def changed(self, changes: Mapping[str, Any]) -> "Settings":
        """Return a copy with new values of some fields; `changes` maps dotted names such as `train.steps` to values."""
        if not changes:
            return self
        config = ConfigDict(self._values())
        config.update_from_flattened_dict(changes)
        return read_settings(config)


def read_settings(config: ConfigDict) -> Settings:
    """Return the settings of a configuration, which must have passed `check_config`."""
    document = config.to_dict()  # a dict's KeyError has the name of the missing key and no other text
    decode_fields = {field.name for field in dataclasses.fields(DecodeSettings)}
    others = {name: value for name, value in document["decode"].items() if name not in decode_fields}
    return read_section(Settings, {**document, "decode": {**document["decode"], "others": others}})


# Check the fields of a configuration, alone and in combination, before any work.
#
# `check_config` runs whenever a configuration is read, from the command line or from Python.

RANGES = ranges_of(Settings)  # range of each field by its dotted name, in the order of configs/default.py


def check_config(
    config: ConfigDict,
    sections: Collection[str] = (),
    ranges: Mapping[str, Range] | None = None,
    given: Collection[str] = (),
) -> None:
    """Raise UserError if a field is missing, unknown, out of its range, or contradicts another field.

    Only the top-level `sections` are checked; empty: all. `ranges` are those of a judge's configuration, which is then
    checked field by field. Numbers of steps in `given`, the fields on the command line, are refused if a number of
    epochs would override them.
    """
    if ranges is not None:
        _check_fields(config, ranges, list(ranges))
        return
    for name in dict(fields(config)).keys() & RENAMED.keys():
        raise UserError(f"{name} is called {RENAMED[name]} now; rename it in the configuration.")
    for name in dict(fields(config)).keys() & REMOVED.keys():
        raise UserError(f"{name} is gone since version 1.0; {REMOVED[name]}; remove it from the configuration.")
    names = [name for name in RANGES if not sections or name.partition(".")[0] in sections]
    _check_fields(config, RANGES, names)
    for name, problems in _PROBLEMS.items():
        if not sections or name in sections:
            for problem in problems(config):
                raise UserError(problem)
    for name, (steps, _) in epoch_fields(config).items():
        if steps in given:
            raise UserError(
                f"--config.{steps}: is not used, as {name} is {field_at(config, name)} and sets the number of steps; "
                f"give --config.{name}=0 too, or the number of epochs alone."
            )


def checked_settings(config: ConfigDict, given: Collection[str] = ()) -> Settings:
    """Check all of a configuration with `check_config`; return its settings."""
    check_config(config, given=given)
    return read_settings(config)


def _check_fields(config: ConfigDict, ranges: Mapping[str, Range], names: Collection[str]) -> None:
    """Raise UserError if a field of `names` is missing or out of its range, or the configuration has unknown fields."""
    values = dict(fields(config))
    for name in names:
        if name not in values:
            home = "configs/default.py" if ranges is RANGES else "configs/judge.py"
            raise UserError(f"{name} is missing in the configuration; start your configuration from {home}.")
        if not ranges[name].holds(values[name]):
            raise refusal(name, values[name], ranges)
    for name in values:
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
    messages = []
    stages = [("optim", "train"), ("optim", "step_one")]
    stages += [(name, name) for name in ("pretrain.snapshot", "pretrain.series") if config.pretrain.enabled]
    for section, counted in stages:
        warmup, steps = (operator.attrgetter(name)(config) for name in (f"{section}.warmup_steps", f"{counted}.steps"))
        if steps and warmup > steps // 2:
            messages.append(
                f"{section}.warmup_steps is {warmup}, more than half of {counted}.steps ({steps}): the warm-up is cut "
                f"to {steps // 2} steps."
            )
    return messages


def _split_problems(config: ConfigDict) -> Iterator[str]:
    if config.split.method == FROM_FILE and not config.split.path:
        yield "split.path is ''; expected a certificate or split file in JSON, as split.method is 'file'."


def _model_problems(config: ConfigDict) -> Iterator[str]:
    width, heads = config.model.encoder_width, config.model.encoder_heads
    if config.model.encoder in ("transformer", "unicorn") and config.model.encoder_layers and width % heads:
        yield f"model.encoder_width is {width}; expected a multiple of model.encoder_heads ({heads}), or 0."
    name, model = config.model.encoder, config.model
    if model.encoder_checkpoint and name not in WAVE_ENCODERS[1:]:
        yield (
            f"model.encoder_checkpoint is {model.encoder_checkpoint!r} and model.encoder {name!r}; expected one of "
            f"{', '.join(WAVE_ENCODERS[1:])}, or no checkpoint."
        )
    if model.encoder_train != "all" and not model.encoder_checkpoint:
        yield f"model.encoder_train is {model.encoder_train!r}; expected 'all', as the encoder's weights are random."
    if config.data.raw.features == "waves" and name not in WAVE_ENCODERS and config.objective == "generate":
        yield (
            f"data.raw.features is 'waves' and model.encoder {name!r}, which reads words; expected one of "
            f"{', '.join(WAVE_ENCODERS)}."
        )
    if model.backbone == "whisper" and (model.prompt or config.text.template):
        yield f"model.prompt is {model.prompt!r}; expected '' with Whisper, whose prompt is model.decoder_prompt."
    if model.backbone in DECODERS and model.decoder_prompt:
        yield f"model.decoder_prompt is {model.decoder_prompt!r}; expected '' with a decoder-only model."


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
    if config.parallel.tensor_parallel and (name not in ("bridge", "lora") or config.model.backbone not in DECODERS):
        yield (
            f"parallel.tensor_parallel is True with optim.trainable {name!r} and model.backbone "
            f"{config.model.backbone!r}; expected bridge or lora, and a decoder-only model."
        )
    if config.model.frozen_dtype == "int8" and (
        name not in ("bridge", "lora") or config.model.backbone not in DECODERS
    ):
        yield (
            f"model.frozen_dtype is 'int8' with optim.trainable {name!r} and model.backbone {config.model.backbone!r}; "
            "expected bridge or lora, and a decoder-only model."
        )


def _pretrain_problems(config: ConfigDict) -> Iterator[str]:
    pretrain = config.pretrain
    if not pretrain.enabled:
        return
    if config.model.encoder != "unicorn":
        yield (
            f"pretrain.enabled is True and model.encoder is {config.model.encoder!r}; expected 'unicorn', the only "
            "encoder that can reconstruct its input, or pretrain.enabled=False."
        )
    for name in ("snapshot", "series"):
        stage = pretrain[name]
        if stage.schedule == "geometric" and not stage.lr_end:
            yield f"pretrain.{name}.lr_end is 0.0; expected a number above 0, because geometric decay never reaches 0."
        if stage.batch_size % config.train.accumulate:
            yield (
                f"train.accumulate is {config.train.accumulate}; expected a divisor of pretrain.{name}.batch_size "
                f"({stage.batch_size})."
            )
    if pretrain.freeze_snapshot and not (pretrain.snapshot.steps or pretrain.snapshot.epochs):
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
    "split": _split_problems,
    "text": _text_problems,
    "model": _model_problems,
    "optim": _optim_problems,
    "train": _train_problems,
    "pretrain": _pretrain_problems,
    "decode": _decode_problems,
}


# Derive numbers of steps from numbers of epochs, once the split is known.
#
# An epoch field, such as `train.epochs`, replaces a step field, such as `train.steps`, unless the epoch field is 0. An
# epoch trains every sample of the train part once and pads its last batch: 9,951 samples in batches of 32 are 311
# steps. The derived steps are stored in the workdir's `config.json`.


class Derived(NamedTuple):
    """Names of the two fields that belong to an epoch field such as `train.epochs`."""

    steps: str  # the step field that the epoch field replaces, such as `train.steps`
    batch: str  # the field with the batch size, which gives the steps of an epoch


TEXT = "batch.size"
EPOCHS = {
    "optim.decay_epochs": Derived("optim.decay_every", TEXT),
    "train.epochs": Derived("train.steps", TEXT),
    "train.eval_epochs": Derived("train.eval_every", TEXT),
    "train.save_epochs": Derived("train.save_every", TEXT),
    "step_one.epochs": Derived("step_one.steps", TEXT),
}
for _stage in ("pretrain.snapshot", "pretrain.series"):
    EPOCHS[f"{_stage}.epochs"] = Derived(f"{_stage}.steps", f"{_stage}.batch_size")
    EPOCHS[f"{_stage}.eval_epochs"] = Derived(f"{_stage}.eval_every", f"{_stage}.batch_size")


def count_batches(samples: int, size: int) -> int:
    """Return the number of batches per epoch, of which one may be partial; the buckets do not change the number."""
    return -(-samples // size)


def epoch_fields(config: Any) -> dict[str, Derived]:
    """Return the epoch fields that are not 0: name -> names of the step field and the batch-size field."""
    return {name: derived for name, derived in EPOCHS.items() if field_at(config, name)}


def with_steps(config: Settings, samples: int) -> Settings:
    """Return the configuration with steps derived from epochs, for a train part of `samples` samples."""
    changes = {}
    for name, (steps, batch) in epoch_fields(config).items():
        changes[steps] = field_at(config, name) * count_batches(samples, field_at(config, batch))
    return config.changed(changes)


def length_lines(config: Settings, samples: int) -> list[str]:
    """Return a line for each training stage whose length is given in epochs; steps must be known."""
    shown = []
    for name, (steps, batch) in epoch_fields(config).items():
        training, _, last = name.rpartition(".")
        if last == "epochs" and (config.pretrain.enabled or not name.startswith("pretrain.")):
            batches, total = count_batches(samples, field_at(config, batch)), field_at(config, steps)
            shown.append(f"{training}: {field_at(config, name)} epochs of {batches:,} batches: {total:,} steps")
    return shown


def with_stored_steps(config: Settings, stored: Mapping[str, Any]) -> Settings:
    """Return `config` with its derived steps taken from `stored`, the content of a workdir's `config.json`."""
    stored_steps = {steps: field_at(stored, steps) for steps, _ in epoch_fields(config).values()}
    return config.changed({name: steps for name, steps in stored_steps.items() if type(steps) is int and steps > 0})


def field_at(tree: Any, name: str) -> Any:
    """Return the field with this dotted name in settings, a ConfigDict or `config.json`; None if it is absent."""
    for part in name.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else getattr(tree, part, None)
    return tree
