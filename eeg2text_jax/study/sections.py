"""The configuration of a run as a tree of frozen dataclasses, made from the ConfigDict that users write.

`SplitSettings` is the section `split` of a configuration, and so on. The annotation of a field is its type and its
range, see `kinds.py`; meanings and defaults are in `configs/default.py`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from ml_collections import ConfigDict

from eeg2text_jax.backbones import ModelSettings
from eeg2text_jax.conditions import CONDITIONS, COPIES, TRAINING_ONLY
from eeg2text_jax.data.data_settings import DataSettings
from eeg2text_jax.kinds import (
    buckets,
    flag,
    many,
    number,
    one_of,
    place,
    read_section,
    shares,
    span,
    text,
    tracker,
    whole,
)
from eeg2text_jax.parallel import ParallelSettings
from eeg2text_jax.search.settings import CACHE_DTYPES, WEIGHTS_DTYPES
from eeg2text_jax.splits.methods import FROM_FILE, METHODS
from eeg2text_jax.study.metric_names import ENDPOINTS, MEANING, WHICH_SENTENCE

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
        found = dataclasses.asdict(self)
        return found.pop("others") | found


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
        """The configuration as nested dicts, with the names that users write and `config.json` has."""
        return dataclasses.asdict(self) | {"decode": self.decode.fields()}

    def changed(self, changes: Mapping[str, Any]) -> "Settings":
        """Return a copy with new values of some fields; `changes` maps dotted names such as `train.steps` to values."""
        if not changes:
            return self
        config = ConfigDict(self.document)
        config.update_from_flattened_dict(changes)
        return read_settings(config)


def read_settings(config: ConfigDict) -> Settings:
    """Return the settings of a configuration, which must have passed `ranges.check_config`."""
    document = config.to_dict()  # a dict's KeyError has the name of the missing key and no other text
    known = {field.name for field in dataclasses.fields(DecodeSettings)}
    others = {name: value for name, value in document["decode"].items() if name not in known}
    return read_section(Settings, {**document, "decode": {**document["decode"], "others": others}})
