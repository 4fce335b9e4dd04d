"""The configuration as frozen dataclasses: `SplitSettings` is the section `split`, and so on.

A field's annotation is type and range, see `kinds.py`; meanings and defaults are in `configs/default.py`.
"""

import dataclasses
import functools
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from ml_collections import ConfigDict

from eeg2text_jax.base import kinds
from eeg2text_jax.base.errors import UserError, did_you_mean, first_line
from eeg2text_jax.base.kinds import ParallelSettings, Range
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
Flag = Annotated[bool, kinds.flag()]
Place = Annotated[str, kinds.place()]
Rate = Annotated[float, kinds.number(0, 100, above=True)]
UpTo100 = Annotated[float, kinds.number(0, 100)]
Layer = Annotated[int, kinds.whole(-1, 1000)]
Seed = Annotated[int, kinds.whole(0)]
Count = Annotated[int, kinds.whole(0)]
Every = Annotated[int, kinds.whole(1)]
Size = Annotated[int, kinds.whole(1, 1_000_000)]


@dataclasses.dataclass(frozen=True)
class SplitSettings:
    method: Annotated[str, kinds.one_of(*METHODS, FROM_FILE)]
    ratio: Annotated[tuple[float, float, float], kinds.shares()]
    seed: Seed
    path: Place
    gap: Annotated[float, kinds.number(0, 1e6)]
    unique_subjects: Flag
    unique_sessions: Flag


@dataclasses.dataclass(frozen=True)
class TextSettings:
    tokenizer: Place
    vocab_size: Annotated[int, kinds.whole(260, 1_000_000)]  # 256 bytes and four special tokens
    max_tokens: Annotated[int, kinds.whole(2, 100_000)]
    template: Annotated[str, kinds.text()]
    chat: Flag


@dataclasses.dataclass(frozen=True)
class BatchSettings:
    buckets: Annotated[tuple[tuple[int, int], ...], kinds.buckets()]
    size: Size


@dataclasses.dataclass(frozen=True)
class GridSettings:
    train_conditions: Annotated[tuple[str, ...], kinds.many(kinds.one_of(*CONDITIONS))]
    seeds: Annotated[tuple[int, ...], kinds.many(kinds.whole(0))]
    eval_conditions: Annotated[tuple[str, ...], kinds.many(kinds.one_of(*EVALUATED))]
    controls: Annotated[tuple[str, ...], kinds.many(kinds.one_of(*(name for name in EVALUATED if name != "eeg")))]

    @property
    def conditions(self) -> frozenset[str]:
        """All conditions of training and evaluation."""
        return frozenset({*self.train_conditions, *self.eval_conditions})


@dataclasses.dataclass(frozen=True)
class OptimSettings:
    name: Annotated[str, kinds.one_of("adamw", "adafactor", "sgd")]
    trainable: Annotated[str, kinds.one_of("all", "bridge", "lora", "first")]
    lr: Rate
    schedule: Annotated[str, kinds.one_of("constant", "linear", "cosine", "geometric", "step")]
    lr_end: UpTo100
    decay_every: Every
    decay_epochs: Count
    decay_rate: Annotated[float, kinds.number(0, 1, above=True)]
    warmup_steps: Count
    weight_decay: UpTo100
    momentum: Annotated[float, kinds.number(0, 1, below=True)]
    grad_clip: Annotated[float, kinds.number(0, 1e9)]


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    steps: Every
    epochs: Count
    eval_every: Every
    eval_epochs: Count
    best_by: Annotated[str, kinds.one_of("tokens", "sentences")]
    patience: Count
    save_every: Every
    save_epochs: Count
    log_every: Every
    tracker: Annotated[str, kinds.tracker()]
    profile: Annotated[str, kinds.span()]
    label_smoothing: Annotated[float, kinds.number(0, 1, below=True)]
    accumulate: Size
    rng: Annotated[str, kinds.one_of("threefry", "rbg")]


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
    batch_size: Size
    lr: Rate
    lr_end: UpTo100
    schedule: Annotated[str, kinds.one_of("constant", "linear", "cosine", "geometric")]
    warmup_steps: Count
    eval_every: Every
    eval_epochs: Count
    patience: Count


@dataclasses.dataclass(frozen=True)
class SeriesSettings(StageSettings):
    """Section `pretrain.series`."""

    hidden: Annotated[float, kinds.number(0, 1, below=True)]


@dataclasses.dataclass(frozen=True)
class PretrainSettings:
    enabled: Flag
    loss: Annotated[str, kinds.one_of("mae", "mse")]
    mask: Flag
    freeze_snapshot: Flag
    freeze_encoder: Flag
    snapshot: StageSettings
    series: SeriesSettings


@dataclasses.dataclass(frozen=True)
class ContrastiveSettings:
    text: Place
    layer: Layer
    hashed: Annotated[int, kinds.whole(8, 1_000_000)]
    width: Size
    temperature: Rate
    learn_temperature: Flag
    symmetric: Flag


@dataclasses.dataclass(frozen=True)
class DecodeSettings:
    """Section `decode`; `others` are fields of `GenerationSpec` that a configuration adds to it."""

    num_beams: Annotated[int, kinds.whole(1, 1000)]
    max_length: Annotated[int, kinds.whole(2, 100_000)]
    repetition_penalty: Annotated[float, kinds.number(0, 1000, above=True)]
    no_repeat_ngram_size: Annotated[int, kinds.whole(0, 100_000)]
    length_penalty: Annotated[float, kinds.number(-100, 100)]
    num_return_sequences: Annotated[int, kinds.whole(1, 1000)]
    do_sample: Flag
    temperature: Annotated[float, kinds.number(0, 1000, above=True)]
    top_k: Annotated[int, kinds.whole(0, 1_000_000)]
    top_p: Annotated[float, kinds.number(0, 1, above=True)]
    cache_dtype: Annotated[str, kinds.one_of(*CACHE_DTYPES)]
    weights_dtype: Annotated[str, kinds.one_of(*WEIGHTS_DTYPES)]
    tensor_parallel: Flag
    batch_size: Size
    compactions: Annotated[int, kinds.whole(0, 30)]
    teacher_forced_cut: Annotated[str, kinds.one_of("reference", "authors")]
    others: Mapping[str, Any]

    def fields(self) -> dict[str, Any]:
        """Return all fields of the section, also those in `others`."""
        values = dataclasses.asdict(self)
        return values.pop("others") | values


@dataclasses.dataclass(frozen=True)
class RetrievalSettings:
    likelihood: Flag
    endpoint: Annotated[str, kinds.one_of(*WHICH_SENTENCE)]
    margin: UpTo100


@dataclasses.dataclass(frozen=True)
class MetricsSettings:
    names: Annotated[tuple[str, ...], kinds.many(kinds.one_of(*MEANING), least=0)]
    encoder: Place
    layer: Layer
    judge: Place


@dataclasses.dataclass(frozen=True)
class AuditSettings:
    endpoint: Annotated[str, kinds.one_of(*ENDPOINTS)]
    secondary: Annotated[tuple[str, ...], kinds.many(kinds.one_of(*ENDPOINTS), least=0)]
    margin: UpTo100


@dataclasses.dataclass(frozen=True)
class Settings:
    """A whole configuration, in the order of `configs/default.py`."""

    seed: Seed
    objective: Annotated[str, kinds.one_of("generate", "contrastive")]
    compilation_cache: Annotated[str, kinds.place(local=True)]
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
        return kinds.plain(self._values())

    def _values(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"decode": self.decode.fields()}

    def changed(self, changes: Mapping[str, Any]) -> "Settings":
        """Return a copy with new values of fields by dotted names, such as `train.steps`."""
        if not changes:
            return self
        config = ConfigDict(self._values())
        config.update_from_flattened_dict(changes)
        return read_settings(config)


def read_settings(config: ConfigDict) -> Settings:
    """Return the settings of a configuration that passed `check_config`."""
    document = config.to_dict()  # a dict's KeyError has the name of the missing key and no other text
    own = {field.name for field in dataclasses.fields(DecodeSettings)}
    others = {name: value for name, value in document["decode"].items() if name not in own}
    return kinds.read_section(Settings, {**document, "decode": {**document["decode"], "others": others}})


Names = Collection[str]
RANGES = kinds.ranges_of(Settings)  # range of each field by its dotted name, in the order of configs/default.py


def check_config(
    config: ConfigDict, sections: Names = (), ranges: Mapping[str, Range] | None = None, given: Names = ()
) -> None:
    """Raise UserError if a field is missing, unknown, out of its range, or contradicts another.

    Of the top-level `sections` (empty: all), and of a judge's configuration, which has the ranges `ranges`, only single
    fields are checked. Steps in `given`, the fields on the command line, are refused if epochs set them.
    """
    values, wanted = dict(fields(config)), RANGES if ranges is None else ranges
    if ranges is None:
        for name in values.keys() & RENAMED.keys():
            raise UserError(f"{name} is called {RENAMED[name]} now; rename it in the configuration.")
        for name in values.keys() & REMOVED.keys():
            raise UserError(f"{name} is gone since version 1.0; {REMOVED[name]}; remove it from the configuration.")
    for name in wanted:
        if sections and name.partition(".")[0] not in sections:
            continue
        if name not in values:
            home = "configs/default.py" if ranges is None else "configs/judge.py"
            raise UserError(f"{name} is missing in the configuration; start your configuration from {home}.")
        if not wanted[name].holds(values[name]):
            raise refusal(name, values[name], wanted)
    for name in values:
        if name not in wanted and not name.startswith("decode."):
            raise UserError(f"{name}: there is no such field; {did_you_mean(name, wanted)}")
    if ranges is not None:
        return
    for problem in _problems(config) if not sections else ():
        raise UserError(problem)
    for name, (steps, _) in epoch_fields(config).items():
        if steps in given:
            raise UserError(
                f"--config.{steps}: is not used, as {name} is {field_at(config, name)} and sets the number of steps; "
                f"give --config.{name}=0 too, or the number of epochs alone."
            )


def checked_settings(config: ConfigDict, given: Names = ()) -> Settings:
    """Check a configuration with `check_config`; return its settings."""
    check_config(config, given=given)
    return read_settings(config)


def refusal(name: str, value: Any, ranges: Mapping[str, Range] = RANGES) -> UserError:
    """Return the error about a field that is out of its range."""
    plain = value.to_dict() if isinstance(value, ConfigDict) else value
    return UserError(f"{name} is {shortly(plain)}; expected {ranges[name].expected}.")


def fields(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted name and value of every field; `model.shape` is one."""
    for name, value in config.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, ConfigDict) and dotted not in RANGES:
            yield from fields(value, f"{dotted}.")
        else:
            yield dotted, value


def notes(config: Settings) -> list[str]:
    """Return messages about warm-ups that are cut, as they are longer than half of a stage."""
    stages = [("optim", "train"), ("optim", "step_one")]
    stages += [(name, name) for name in ("pretrain.snapshot", "pretrain.series") if config.pretrain.enabled]
    messages = []
    for section, counted in stages:
        warmup, steps = field_at(config, f"{section}.warmup_steps"), field_at(config, f"{counted}.steps")
        if steps and warmup > steps // 2:
            messages.append(
                f"{section}.warmup_steps is {warmup}, more than half of {counted}.steps ({steps}): the warm-up is cut "
                f"to {steps // 2} steps."
            )
    return messages


def _problems(c: ConfigDict) -> Iterator[str]:
    if c.split.method == FROM_FILE and not c.split.path:
        yield _wrong(c, "split.path", "a certificate or split file in JSON, as split.method is 'file'")
    if problem := template_problem(c.text.template):
        yield problem
    yield from _model_problems(c)
    yield from _training_problems(c)
    tokens = types.SimpleNamespace(start_token=0, pad_token=1, eos_token=2)  # in place of a model's
    try:
        GenerationSpec.from_fields(c.decode, tokens)
    except TypeError as error:
        yield f"decode has a setting of the wrong type ({first_line(error)}); see GenerationSpec."


def _wrong(config: ConfigDict, names: str, expected: str) -> str:
    """Return a message about the fields `names`, separated by spaces."""
    shown = " and ".join(f"{name} {shortly(field_at(config, name))}" for name in names.split())
    return f"{shown.replace(' ', ' is ', 1)}; expected {expected}."


def _model_problems(c: ConfigDict) -> Iterator[str]:
    wrong, model, alone = functools.partial(_wrong, c), c.model, c.model.backbone in DECODERS
    pretrained, waves = ", ".join(WAVE_ENCODERS[1:]), ", ".join(WAVE_ENCODERS)
    if not alone and (c.text.template or c.text.chat):
        only = f"a decoder-only model ({', '.join(DECODERS)}), or model.prompt in its place"
        yield wrong("text.template model.backbone", only)
    if alone and model.prompt:
        yield wrong("model.prompt", "'' and text.template with a decoder-only model")
    conditions = {*c.grid.train_conditions, *c.grid.eval_conditions}
    if "prompt_only" in conditions and (not alone or c.objective != "generate"):
        yield "grid has the condition prompt_only; expected a decoder-only model, which can read a prompt alone."
    divided = model.encoder in ("transformer", "unicorn") and model.encoder_layers
    if divided and model.encoder_width % model.encoder_heads:
        yield wrong("model.encoder_width", f"a multiple of model.encoder_heads ({model.encoder_heads}), or 0")
    if model.encoder_checkpoint and model.encoder not in WAVE_ENCODERS[1:]:
        yield wrong("model.encoder_checkpoint model.encoder", f"one of {pretrained}, or no checkpoint")
    if model.encoder_train != "all" and not model.encoder_checkpoint:
        yield wrong("model.encoder_train", "'all', as the encoder's weights are random")
    if c.data.raw.features == "waves" and model.encoder not in WAVE_ENCODERS and c.objective == "generate":
        yield wrong("data.raw.features model.encoder", f"an encoder of waves: {waves}")
    if model.backbone == "whisper" and (model.prompt or c.text.template):
        yield wrong("model.prompt", "'' with Whisper, whose prompt is model.decoder_prompt")
    if alone and model.decoder_prompt:
        yield wrong("model.decoder_prompt", "'' with a decoder-only model")


def _training_problems(c: ConfigDict) -> Iterator[str]:
    wrong, pretrain = functools.partial(_wrong, c), c.pretrain
    stages = [f"pretrain.{name}" for name in ("snapshot", "series") if pretrain.enabled]
    for name in ("optim", *stages):
        if field_at(c, f"{name}.schedule") == "geometric" and not field_at(c, f"{name}.lr_end"):
            yield wrong(f"{name}.lr_end", "a number above 0, because geometric decay never reaches 0")
    frozen = c.optim.trainable in ("bridge", "lora")
    if frozen and (c.objective != "generate" or c.step_one.steps or c.step_one.epochs or pretrain.enabled):
        yield wrong("optim.trainable", "'all' if objective=contrastive, step_one or pretrain is set")
    if c.decode.tensor_parallel and not frozen:
        only = "bridge or lora, with which the language model is frozen"
        yield wrong("decode.tensor_parallel optim.trainable", only)
    for name, is_set in (
        ("parallel.tensor_parallel", c.parallel.tensor_parallel),
        ("model.frozen_dtype", c.model.frozen_dtype == "int8"),
    ):
        if is_set and not (frozen and c.model.backbone in DECODERS):
            yield wrong(f"{name} optim.trainable model.backbone", "bridge or lora, and a decoder-only model")
    for size in ("batch.size", *(f"{name}.batch_size" for name in stages)):
        if field_at(c, size) % c.train.accumulate:
            yield wrong("train.accumulate", f"a divisor of {size} ({field_at(c, size)})")
    if c.objective == "contrastive":  # whose loss needs whole batches, and whose model has no backbone
        only = {"train.accumulate": 1, "train.label_smoothing": 0.0, "train.best_by": "tokens"}
        for name, value in (only | {"step_one.steps": 0, "step_one.epochs": 0}).items():
            if field_at(c, name) != value:
                yield wrong(name, f"{value} with objective=contrastive")
        if c.batch.size < 2:
            yield wrong("batch.size", "at least 2 with objective=contrastive")
    if pretrain.enabled and c.model.encoder != "unicorn":
        only = "'unicorn', the only encoder that can reconstruct its input, or pretrain.enabled=False"
        yield wrong("model.encoder", only)
    if pretrain.enabled and pretrain.freeze_snapshot and not (pretrain.snapshot.steps or pretrain.snapshot.epochs):
        yield wrong("pretrain.freeze_snapshot pretrain.snapshot.steps", "steps above 0, else random weights are frozen")


# Field with epochs -> the field with steps that it sets unless it is 0, and the field with the batch size. An epoch has
# every train sample once and pads its last batch: 9,951 samples in batches of 32 are 311 steps, which the workdir's
# `config.json` has.
EPOCHS = {
    "optim.decay_epochs": ("optim.decay_every", "batch.size"),
    "train.epochs": ("train.steps", "batch.size"),
    "train.eval_epochs": ("train.eval_every", "batch.size"),
    "train.save_epochs": ("train.save_every", "batch.size"),
    "step_one.epochs": ("step_one.steps", "batch.size"),
}
for _stage in ("pretrain.snapshot", "pretrain.series"):
    EPOCHS[f"{_stage}.epochs"] = f"{_stage}.steps", f"{_stage}.batch_size"
    EPOCHS[f"{_stage}.eval_epochs"] = f"{_stage}.eval_every", f"{_stage}.batch_size"


def count_batches(samples: int, size: int) -> int:
    """Return the number of batches per epoch, whatever the buckets."""
    return -(-samples // size)


def epoch_fields(config: Any) -> dict[str, tuple[str, str]]:
    """Return the entries of `EPOCHS` that are not 0."""
    return {name: derived for name, derived in EPOCHS.items() if field_at(config, name)}


def with_steps(config: Settings, samples: int) -> Settings:
    """Return the configuration with steps derived from epochs of `samples` train samples."""
    return config.changed({
        steps: field_at(config, name) * count_batches(samples, field_at(config, batch))
        for name, (steps, batch) in epoch_fields(config).items()
    })  # fmt: skip


def length_lines(config: Settings, samples: int) -> list[str]:
    """Return a line for each stage with a length in epochs; steps must be known."""
    shown = []
    for name, (steps, batch) in epoch_fields(config).items():
        training, _, last = name.rpartition(".")
        if last == "epochs" and (config.pretrain.enabled or not name.startswith("pretrain.")):
            batches, total = count_batches(samples, field_at(config, batch)), field_at(config, steps)
            shown.append(f"{training}: {field_at(config, name)} epochs of {batches:,} batches: {total:,} steps")
    return shown


def with_stored_steps(config: Settings, stored: Mapping[str, Any]) -> Settings:
    """Return `config` with the derived steps of `stored`, the content of `config.json`."""
    steps = {name: field_at(stored, name) for name, _ in epoch_fields(config).values()}
    return config.changed({name: value for name, value in steps.items() if type(value) is int and value > 0})


def field_at(tree: Any, name: str) -> Any:
    """Return the field of a dotted name in settings, a ConfigDict or `config.json`; None if absent."""
    for part in name.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else getattr(tree, part, None)
    return tree
