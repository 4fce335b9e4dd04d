"""A judge's configuration, a class for each section, with types and ranges; defaults are in `configs/judge.py`."""

import dataclasses
from typing import Annotated, Literal

from eeg2text_jax.base.kinds import (
    DevicesSettings,
    Range,
    flag,
    many,
    number,
    one_of,
    pair,
    place,
    ranges_of,
    shares,
    text,
    whole,
)
from eeg2text_jax.instrument.workdir import place_names

Count = Annotated[int, whole(0)]
Every = Annotated[int, whole(1)]
Dtype = Annotated[str, one_of("float32", "bfloat16")]


@dataclasses.dataclass(frozen=True)
class PromptSettings:
    length: Annotated[int, whole(1, 256)]
    init: Annotated[str, one_of("vocabulary", "labels", "uniform")]
    population: Every
    dropout: Annotated[float, number(0, 1, below=True)]


@dataclasses.dataclass(frozen=True)
class RatesSettings:
    name: Annotated[str, one_of("adamw", "adafactor", "sgd")]
    lr: Annotated[tuple[float, ...], many(number(0, 1000, above=True))]  # one prompt is tuned for each value and seed
    schedule: Annotated[str, one_of("constant", "linear", "cosine", "step")]
    warmup_steps: Count
    decay_every: Every
    decay_rate: Annotated[float, number(0, 1, above=True)]
    weight_decay: Annotated[float, number(0, 100)]
    momentum: Annotated[float, number(0, 1, below=True)]
    grad_clip: Annotated[float, number(0, 1e9)]


@dataclasses.dataclass(frozen=True)
class PairBatchSettings:
    size: Annotated[int, whole(1, 100_000)]
    widths: Annotated[tuple[int, ...], many(whole(8, 512))]
    at_once: Count


@dataclasses.dataclass(frozen=True)
class TuneSettings:
    steps: Every
    eval_every: Every
    save_every: Every


@dataclasses.dataclass(frozen=True)
class MemorySettings:
    remat: Annotated[bool, flag()]
    keep: Annotated[Literal["products", "nothing"], one_of("products", "nothing")]


@dataclasses.dataclass(frozen=True)
class PartsSettings:
    ratio: Annotated[tuple[float, float, float], shares()]
    seed: Count


@dataclasses.dataclass(frozen=True)
class ThresholdSettings:
    precision: Annotated[float, number(0, 1, above=True)]


@dataclasses.dataclass(frozen=True)
class EditsSettings:
    per_sentence: Annotated[int, whole(1, 1000)]
    preserved: Annotated[float, number(0, 1, above=True, below=True)]
    speakers: Annotated[int, whole(0, 1000)]
    seed: Count


@dataclasses.dataclass(frozen=True)
class ToySettings:
    width: Annotated[int, whole(16, 4096)]
    layers: Annotated[int, whole(1, 100)]
    steps: Every
    batch_size: Annotated[int, whole(1, 100_000)]
    lr: Annotated[float, number(0, 100, above=True)]
    pairs: Annotated[int, whole(50, 10_000_000)]
    seed: Count


@dataclasses.dataclass(frozen=True)
class JudgeSettings:
    """Every field of a judge's configuration."""

    compilation_cache: Annotated[str, place(local=True)]
    checkpoint: Annotated[str, place(empty=False)]
    dtype: Dtype
    param_dtype: Dtype
    pairs: Annotated[str, place(empty=False)]
    test: Annotated[str, place()]
    sentences: Annotated[str, place()]
    wording: Annotated[str, one_of("auto", "plain", "figure")]
    labels: Annotated[tuple[str, str], pair(text(empty=False))]
    exact: Annotated[str, one_of("preserved", "exclude")]
    truncate: Annotated[bool, flag()]
    encoder: Annotated[str, place()]
    bertscore_encoder: Annotated[str, place()]
    seeds: Annotated[tuple[int, ...], many(whole(0, 2**31 - 1))]
    shots: Annotated[int, whole(0, 64)]
    prompt: PromptSettings
    optim: RatesSettings
    batch: PairBatchSettings
    train: TuneSettings
    model: MemorySettings
    split: PartsSettings
    threshold: ThresholdSettings
    edits: EditsSettings
    toy: ToySettings
    parallel: DevicesSettings


RANGES: dict[str, Range] = ranges_of(JudgeSettings)
PLACES = place_names(RANGES)  # fields that hold paths
# Fields that may differ when a run resumes after its prompts were tuned.
LATER = ("compilation_cache", "threshold.precision", "exact", "encoder", "bertscore_encoder", "train.save_every")
