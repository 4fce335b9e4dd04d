"""What each field of a configuration may be: one line a field, and one place where all of them are checked.

`check_config` is called when a configuration is read, from the command line and from Python, before anything is made.
A field that `configs/default.py` has and `RANGES` lacks, or the other way round, fails a test.
"""

import dataclasses
import math
import numbers
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from eeg2text_jax.backbones import BACKBONES
from eeg2text_jax.conditions import CONDITIONS, TRAINING_ONLY
from eeg2text_jax.data.epochs import is_nested
from eeg2text_jax.data.raw.choices import VOLTS
from eeg2text_jax.data.recordings.features import BANDS, MEASURES
from eeg2text_jax.data.recordings.sources import TASKS
from eeg2text_jax.errors import UserError, did_you_mean, first_line
from eeg2text_jax.search.settings import GenerationSpec
from eeg2text_jax.splits.methods import FROM_FILE, METHODS
from eeg2text_jax.splits.split import check_ratio
from eeg2text_jax.study.metric_names import ENDPOINTS, MEANING

MOST = 2**31 - 1  # of what is counted in int32
BUCKET = re.compile(r"^(?!file:)[a-z][a-z0-9]+://", re.IGNORECASE)  # gs://, s3://, https://


@dataclasses.dataclass(frozen=True)
class Range:
    """What a field may be."""

    holds: Callable[[Any], bool]
    expected: str  # ends the sentence "FIELD is VALUE; expected ..."


def whole(low: int, high: int = MOST) -> Range:
    """A whole number from `low` to `high`."""
    return Range(lambda value: _is_whole(value) and low <= value <= high, f"a whole number from {low} to {high}")


def number(low: float, high: float, *, above: bool = False, below: bool = False) -> Range:
    """A finite number from `low` (or `above` it) to `high` (or `below` it)."""

    def holds(value: Any) -> bool:
        if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value):
            return False
        return (low < value if above else low <= value) and (value < high if below else value <= high)

    return Range(holds, f"a number {'above' if above else 'from'} {low:g} {'and below' if below else 'to'} {high:g}")


def flag() -> Range:
    return Range(lambda value: isinstance(value, bool), "True or False")


def one_of(*names: str) -> Range:
    listed = ", ".join(name or "'' (empty)" for name in names)
    return Range(lambda value: isinstance(value, str) and value in names, f"one of {listed}")


def text(*, empty: bool = True) -> Range:
    """One line of text."""

    def holds(value: Any) -> bool:
        return isinstance(value, str) and value.isprintable() and (empty or bool(value.strip()))

    return Range(holds, "a line of text" + (" or ''" if empty else ", not an empty one"))


def place(*, empty: bool = True) -> Range:
    """A file or folder of this machine, or a name on the Hub."""
    line = text(empty=empty)
    expected = f"a path{' or empty text' if empty else ''}; a bucket (gs://) must be mounted as a folder first"
    return Range(lambda value: line.holds(value) and not BUCKET.match(value), expected)


def many(of: Range, *, least: int = 1, most: int = MOST) -> Range:
    """A sequence of different values, each as `of` says."""

    def holds(value: Any) -> bool:
        if not isinstance(value, tuple | list) or not least <= len(value) <= most:
            return False
        entries = [tuple(entry) if isinstance(entry, list) else entry for entry in value]
        return all(map(of.holds, entries)) and len(set(entries)) == len(entries)

    return Range(holds, f"a tuple of {f'at least {least}' if least else 'any number of'} different entries, "
                 f"each {of.expected}")  # fmt: skip


def pair(of: Range) -> Range:
    def holds(value: Any) -> bool:
        return isinstance(value, tuple | list) and len(value) == 2 and all(map(of.holds, value))

    return Range(holds, f"a tuple of two entries, each {of.expected}")


def buckets() -> Range:
    """Pairs (words, tokens), each at least as large as the one before: what is left over of one moves to the next."""
    one = pair(whole(1, 100_000))

    def holds(value: Any) -> bool:
        if not isinstance(value, tuple | list) or not value or not all(map(one.holds, value)):
            return False
        return is_nested(value)

    return Range(holds, "pairs (EEG positions, target tokens) of whole numbers from 1 to 100000, each pair at least as "
                 "large as the one before it in both, as ((16, 24), (56, 56))")  # fmt: skip


def bands() -> Range:
    """Pairs of frequencies in Hz, the second above the first."""
    one = pair(number(0, 100_000, above=True))

    def holds(value: Any) -> bool:
        whole = isinstance(value, tuple | list) and bool(value) and all(map(one.holds, value))
        return whole and all(low < high for low, high in value)

    return Range(holds, "pairs of frequencies above 0 Hz, the second above the first, as ((4, 8), (8, 13))")


def span() -> Range:
    """`START:END`, the first and the last of some steps, or nothing."""

    def holds(value: Any) -> bool:
        found = re.fullmatch(r"([1-9]\d{0,8}):([1-9]\d{0,8})", value) if isinstance(value, str) else None
        return value == "" or (found is not None and int(found[1]) <= int(found[2]))

    return Range(holds, "the first and the last step with a colon between, as '10:12', or ''")


def shares() -> Range:
    def holds(value: Any) -> bool:
        try:
            return isinstance(value, tuple | list) and bool(check_ratio(tuple(value)))
        except (UserError, TypeError):
            return False

    return Range(holds, "three shares above 0 (train, dev, test) that add up to 1, as (0.8, 0.1, 0.1)")


def settings() -> Range:
    """Fields that another library knows: names and plain values."""

    def holds(value: Any) -> bool:
        if not isinstance(value, ConfigDict | dict):
            return False
        return all(isinstance(name, str) and _is_plain(entry) for name, entry in value.items())

    return Range(holds, "names with plain finite values, fields of the backbone's Hugging Face configuration")


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


# In the order of configs/default.py.
RANGES: dict[str, Range] = {
    "seed": whole(0),
    "compilation_cache": place(),
    "data.source": place(empty=False),
    "data.max_words": whole(1, 100_000),
    "data.standardize": flag(),
    "data.synthetic.signal": number(0, 1),
    "data.synthetic.sentences": whole(1, 10_000_000),
    "data.synthetic.subjects": whole(1, 100_000),
    "data.synthetic.tasks": whole(1, 100_000),
    "data.synthetic.features": whole(1, 1_000_000),
    "data.synthetic.vocabulary": whole(20, 100_000),  # two or three syllables make 347,900 words
    "data.synthetic.seed": whole(0),
    "data.columns.features": text(empty=False),
    "data.columns.sentence": text(empty=False),
    "data.columns.subject": text(empty=False),
    "data.columns.task": text(empty=False),
    "data.columns.sentence_index": text(empty=False),
    "data.columns.word": text(empty=False),
    "data.columns.mask": text(empty=False),
    "data.columns.features_are": text(),
    "data.table.word_column": whole(0, 100_000),
    "data.table.feature_columns": many(whole(0, 100_000), least=0),
    "data.table.features_are": text(),
    "data.recordings.measure": one_of(*MEASURES),
    "data.recordings.bands": many(one_of(*BANDS)),
    "data.recordings.non_words": one_of("keep", "skip"),
    "data.recordings.zscore": flag(),
    "data.recordings.compat": one_of("", "wang-ji"),
    "data.recordings.exclude": many(text(empty=False), least=0),
    "data.recordings.task": one_of("", *TASKS),
    "data.recordings.strict": flag(),
    "data.raw.begin": text(),
    "data.raw.end": text(),
    "data.raw.text": text(empty=False),
    "data.raw.texts": place(),
    "data.raw.word": text(),
    "data.raw.names": text(),
    "data.raw.task": text(),
    "data.raw.channels": many(text(empty=False), least=0),
    "data.raw.exclude": many(text(empty=False), least=0),
    "data.raw.units": one_of("", *VOLTS),
    "data.raw.reference": text(),
    "data.raw.highpass": number(0, 100_000),
    "data.raw.lowpass": number(0, 100_000),
    "data.raw.notch": number(0, 100_000),
    "data.raw.resample": number(0, 100_000),
    "data.raw.bands": bands(),
    "data.raw.log": flag(),
    "data.raw.window": number(0, 1000, above=True),
    "data.raw.step": number(0, 1000, above=True),
    "data.raw.margin": number(0, 1000),
    "data.raw.strict": flag(),
    "split.method": one_of(*METHODS, FROM_FILE),
    "split.ratio": shares(),
    "split.seed": whole(0),
    "split.path": place(),
    "text.tokenizer": place(),
    "text.vocab_size": whole(260, 1_000_000),  # 256 bytes and four special tokens
    "text.max_tokens": whole(2, 100_000),
    "batch.buckets": buckets(),
    "batch.size": whole(1, 1_000_000),
    "model.backbone": one_of(*BACKBONES),
    "model.checkpoint": place(),
    "model.dtype": one_of("float32", "bfloat16"),  # float16 would need its loss scaled
    "model.shape": settings(),
    "model.encoder_layers": whole(0, 1000),
    "model.encoder_heads": whole(1, 10_000),
    "model.encoder_ffn": whole(1, 1_000_000),
    "model.encoder_width": whole(0, 1_000_000),
    "model.dropout": number(0, 1, below=True),
    "model.remat": flag(),
    "model.keep": one_of("products", "nothing"),
    "model.prompt": text(),
    "grid.train_conditions": many(one_of(*CONDITIONS)),
    "grid.seeds": many(whole(0)),
    "grid.eval_conditions": many(one_of(*(name for name in CONDITIONS if name not in TRAINING_ONLY))),
    "optim.name": one_of("adamw", "adafactor", "sgd"),
    "optim.trainable": one_of("all", "first"),
    "optim.lr": number(0, 100, above=True),
    "optim.schedule": one_of("constant", "linear", "cosine", "step"),
    "optim.decay_every": whole(1),
    "optim.decay_rate": number(0, 1, above=True),
    "optim.warmup_steps": whole(0),
    "optim.weight_decay": number(0, 100),
    "optim.momentum": number(0, 1, below=True),
    "optim.grad_clip": number(0, 1e9),
    "train.steps": whole(1),
    "train.eval_every": whole(1),
    "train.save_every": whole(1),
    "train.log_every": whole(1),
    "train.profile": span(),
    "train.label_smoothing": number(0, 1, below=True),
    "train.accumulate": whole(1, 1_000_000),
    "train.rng": one_of("threefry", "rbg"),
    "step_one.steps": whole(0),
    "step_one.lr": number(0, 100, above=True),
    "parallel.arms": one_of("auto", "vmap", "map"),
    "parallel.wave": whole(0, 1_000_000),
    "parallel.mesh": pair(whole(0, 1_000_000)),
    "parallel.fsdp": flag(),
    "parallel.hosts": one_of("one", "auto", "env"),
    "decode.num_beams": whole(1, 1000),
    "decode.max_length": whole(2, 100_000),
    "decode.repetition_penalty": number(0, 1000, above=True),
    "decode.no_repeat_ngram_size": whole(0, 100_000),
    "decode.length_penalty": number(-100, 100),
    "decode.batch_size": whole(1, 1_000_000),
    "decode.compactions": whole(0, 30),
    "decode.teacher_forced_cut": one_of("reference", "authors"),
    "metrics.names": many(one_of(*MEANING), least=0),
    "metrics.encoder": place(),
    "metrics.layer": whole(-1, 1000),
    "metrics.judge": place(),
    "audit.endpoint": one_of(*ENDPOINTS),
    "audit.secondary": many(one_of(*ENDPOINTS), least=0),
    "audit.margin": number(0, 100),
    "audit.resamples": whole(100, 10_000_000),
    "audit.seed": whole(0),
}


# Fields of version 0.1 and what they are called now.
RENAMED = {"optim.free": "optim.trainable", "decode.halvings": "decode.compactions"}


def check_config(config: ConfigDict, sections: Collection[str] = (), ranges: Mapping[str, Range] | None = None) -> None:
    """Checks every field, and those that must fit together; of the top-level `sections` alone, if there are any.

    `ranges` are those of another kind of configuration than `configs/default.py` is of.

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
    """The sentence about a value out of its range."""
    plain = value.to_dict() if isinstance(value, ConfigDict) else value
    return UserError(f"{name} is {shortly(plain)}; expected {(ranges or RANGES)[name].expected}.")


def fields(config: ConfigDict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and value of every field; `model.shape` is one field."""
    for name, value in config.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, ConfigDict) and dotted not in RANGES:
            yield from fields(value, f"{dotted}.")
        else:
            yield dotted, value


def notes(config: ConfigDict) -> list[str]:
    """Sentences on what a run will not do as the configuration reads."""
    found = []
    for section, steps in (("train", config.train.steps), ("step_one", config.step_one.steps)):
        if steps and config.optim.warmup_steps > steps // 2:
            found.append(
                f"optim.warmup_steps is {config.optim.warmup_steps}, more than half of {section}.steps ({steps}): "
                f"the warm-up is cut to {steps // 2} steps."
            )
    return found


def _check_together(config: ConfigDict, sections: Collection[str]) -> None:
    for name, check in _TOGETHER.items():
        if (not sections or name in sections) and (problem := check(config)):
            raise UserError(problem)


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
    if config.model.encoder_layers and width % heads:
        return f"model.encoder_width is {width}; expected a multiple of model.encoder_heads ({heads}), or 0."
    return ""


def _microbatches(config: ConfigDict) -> str:
    size, accumulate = config.batch.size, config.train.accumulate
    if size % accumulate:
        return f"train.accumulate is {accumulate}; expected a divisor of batch.size ({size})."
    return ""


class _AnyTokens:
    """Token ids of no model in particular, with which settings of decoding can be checked."""

    start_token, pad_token, eos_token = 0, 1, 2


def _decoding(config: ConfigDict) -> str:
    try:
        GenerationSpec.from_fields(config.decode, _AnyTokens())
    except TypeError as error:
        return f"decode has a setting of the wrong type ({first_line(error)}); see GenerationSpec."
    return ""


_TOGETHER: dict[str, Callable[[ConfigDict], str]] = {
    "data": _recordings,
    "split": _split,
    "model": _encoder,
    "train": _microbatches,
    "decode": _decoding,
}


def shortly(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
