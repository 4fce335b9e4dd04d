"""The settings of free-running decoding, `GenerationSpec`.

Names and meanings are those of transformers' `GenerationConfig`, so a checkpoint's `generation_config.json` can be
read. A field that is not implemented is an error unless its value has no effect.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

from eeg2text_jax.base.errors import UserError, first_line, nearest
from eeg2text_jax.base.files import parse_json

# Fields that change no token: of a generation_config.json; of Whisper's, about languages, tasks and timestamps, whose
# tokens are in `decoder_prompt`; and of `config.decode`, about the loop over the test set.
_IGNORED = {
    "_commit_hash", "_from_model_config", "bos_token_id", "cache_implementation", "disable_compile", "max_cache_len",
    "low_memory", "output_attentions", "output_hidden_states", "output_logits", "output_scores",
    "return_dict_in_generate", "transformers_version", "use_cache",
    "alignment_heads", "is_multilingual", "lang_to_id", "language", "max_initial_timestamp_index",
    "median_filter_width", "no_timestamps_token_id", "prev_sot_token_id", "return_timestamps", "task", "task_to_id",
    "batch_size", "compactions", "teacher_forced_cut", "tensor_parallel",
}  # fmt: skip

# Fields that are not implemented, with their value without effect.
_NEUTRAL = {
    "diversity_penalty": 0.0, "encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "guidance_scale": 1.0, "is_assistant": False, "num_beam_groups": 1,
    "remove_invalid_values": False, "token_healing": False, "typical_p": 1.0, "use_mtp": False,
    "num_assistant_tokens": 20, "num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0.4,
    "assistant_lookbehind": 10, "target_lookbehind": 10,
}  # fmt: skip

CACHE_DTYPES = ("", "bfloat16", "float32")
WEIGHTS_DTYPES = ("", "int8")

_TUPLES = ("eos_token_id", "suppress_tokens", "begin_suppress_tokens", "decoder_prompt")


@dataclasses.dataclass(frozen=True)
class GenerationSpec:
    """Settings of free-running decoding; lengths count the decoder's start token, as in transformers.

    Raises:
      UserError: a value is out of range, or two values contradict each other.

    Examples:
      >>> from eeg2text_jax import GenerationSpec, load_pretrained
      >>> model, _ = load_pretrained("export")
      >>> spec = GenerationSpec.from_fields({"num_beams": 5, "max_length": 24}, model)
      >>> spec.replace(num_beams=1, do_sample=True, top_p=0.9).num_beams
      1
    """

    decoder_start_token_id: int
    pad_token_id: int
    eos_token_id: tuple[int, ...]  # any of them ends a hypothesis
    max_length: int = 21  # the start token and at most 20 more
    min_length: int = 0  # no end token before this length
    num_beams: int = 1
    num_return_sequences: int = 1  # number of hypotheses, or of samples, that are returned for each sentence
    length_penalty: float = 1.0  # finished hypotheses are ranked by log-probability / (generated tokens ** penalty)
    # End of a sentence. True: num_beams finished hypotheses; False: by a heuristic; "never": if none better can come.
    early_stopping: bool | Literal["never"] = False
    repetition_penalty: float = 1.0  # scores of tokens already written are divided (positive) or multiplied (negative)
    no_repeat_ngram_size: int = 0  # no n-gram of this size occurs twice; 0: off
    forced_bos_token_id: int | None = None  # first token after the start token
    forced_eos_token_id: int | None = None  # last token when max_length is reached
    suppress_tokens: tuple[int, ...] = ()  # never written
    begin_suppress_tokens: tuple[int, ...] = ()  # never written first
    do_sample: bool = False
    temperature: float = 1.0  # used with do_sample only, like top_k and top_p
    top_k: int = 50  # 0: all
    top_p: float = 1.0
    # Tokens after the start token that are given, not chosen (Whisper: language, task, no timestamps). They count for
    # max_length, as in transformers, and results lack them.
    decoder_prompt: tuple[int, ...] = ()
    renormalize_logits: bool = False  # log-softmax again after all processing
    cache_dtype: str = ""  # dtype of the KV cache: "bfloat16" or "float32"; "": the model's dtype
    weights_dtype: str = ""  # "int8": the language model multiplies int8 weights and activations; "": model.dtype

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            fits, expected = _TYPES.get(field.type, (lambda value: True, ""))
            if not fits(value := getattr(self, field.name)):
                raise UserError(f"generation setting {field.name}: expected {expected}, got {value!r}.")
        for name in _TUPLES:
            object.__setattr__(self, name, _as_tuple(getattr(self, name)))
        for name, good, expected in _checks(self):
            if not good:
                raise UserError(f"generation setting {name}: expected {expected}, got {getattr(self, name)!r}.")

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], model: Any) -> "GenerationSpec":
        """Return a spec with these settings (such as `config.decode`); token ids default to the model's.

        Fields of the loop over the test set (such as `batch_size`) are ignored.

        Raises:
          UserError: a field is unknown or not implemented; the message names the nearest known one.
        """
        tokens: dict[str, Any] = {"decoder_start_token_id": model.start_token, "pad_token_id": model.pad_token}
        tokens |= {"eos_token_id": model.eos_token, "decoder_prompt": getattr(model, "decoder_prompt", ())}
        return cls(**(tokens | _known(fields, "decode")))

    @classmethod
    def from_checkpoint(
        cls, folder: str | os.PathLike[str], model: Any, overrides: Mapping[str, Any] | None = None
    ) -> "GenerationSpec":
        """Return a spec with the settings of a checkpoint's `generation_config.json`; `folder` may be the file itself.

        `model` has the token ids that the file lacks; settings in `overrides`, such as `config.decode`, win.
        """
        path = Path(folder)
        path = path if path.suffix == ".json" else path / "generation_config.json"
        try:
            stored = parse_json(path.read_text(encoding="utf8"))
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error}).") from error
        except ValueError as error:
            raise UserError(f"{path}: is not JSON ({first_line(error)}); restore the file, or remove it.") from error
        if not isinstance(stored, dict):
            raise UserError(f"{path}: contains {stored!r:.60}; expected a JSON object of settings.")
        return cls.from_fields(_known(stored, str(path)) | _known(overrides or {}, "decode"), model)

    def to_fields(self) -> dict[str, Any]:
        """Return the settings as fields of `generation_config.json`, for `from_checkpoint`."""
        fields = dataclasses.asdict(self)
        if not self.do_sample:  # without effect then, and transformers warns of them
            fields = {name: value for name, value in fields.items() if name not in ("temperature", "top_k", "top_p")}
        fields |= {name: list(fields[name]) for name in _TUPLES}
        if prompt := fields.pop("decoder_prompt"):
            fields["forced_decoder_ids"] = [[place, token] for place, token in enumerate(prompt, 1)]
        if len(self.eos_token_id) == 1:
            fields["eos_token_id"] = self.eos_token_id[0]
        return {name: value for name, value in fields.items() if value not in (None, [], "")}

    def to_new_tokens(self) -> dict[str, Any]:
        """Return arguments for transformers' `generate` with `inputs_embeds`; there, lengths count new tokens only."""
        fields = self.to_fields()
        fields.pop("decoder_start_token_id")
        new = {f"{name}_new_tokens": max(fields.pop(f"{name}_length", 1) - 1, 0) for name in ("max", "min")}
        return {**fields, **new}

    def replace(self, **changes: Any) -> "GenerationSpec":
        """Return a copy with some settings changed."""
        return dataclasses.replace(self, **changes)


def search_name(num_beams: int, do_sample: bool) -> str:
    """Return the search's name for the header of a predictions file."""
    if num_beams > 1:
        return "beam search that samples" if do_sample else "beam search"
    return "sampling" if do_sample else "greedy"


def unlike(stored: Mapping[str, Any], spec: GenerationSpec) -> list[str]:
    """Return the settings of a `generation_config.json` that differ from the spec, with both values."""
    phrases = []
    for name, theirs in stored.items():
        drawn = name in ("temperature", "top_k", "top_p") and not spec.do_sample
        if theirs is None or name in _IGNORED or drawn:
            continue
        if name == "forced_decoder_ids":
            name, theirs = "decoder_prompt", [token for _, token in theirs if token is not None]
        if name in ("max_new_tokens", "min_new_tokens"):
            ours = getattr(spec, name.replace("_new_tokens", "_length")) - 1
        else:
            ours = getattr(spec, name, _NEUTRAL.get(name))
        if name in _TUPLES:
            ours, theirs = list(_as_tuple(ours)), list(_as_tuple(theirs))
        if ours != theirs:
            phrases.append(f"{name} (file: {theirs}, config.decode: {ours})")
    return phrases


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _ids(value: Any) -> bool:
    many = isinstance(value, Sequence) and not isinstance(value, str)
    return value is None or all(map(_whole, value if many else [value]))


# Type of a field -> whether it takes a value, and what it expects.
_TYPES: dict[Any, tuple[Callable[[Any], bool], str]] = {
    int: (_whole, "a whole number"),
    int | None: (lambda value: value is None or _whole(value), "a token id or None"),
    float: (_finite, "a finite number"),
    bool: (lambda value: isinstance(value, bool), "True or False"),
    tuple[int, ...]: (_ids, "a token id or a list of token ids"),
}


def _as_tuple(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(int(token) for token in value)


def _known(fields: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the fields that have an effect, by their names in `GenerationSpec`; messages call them `source`."""
    names = {field.name for field in dataclasses.fields(GenerationSpec)}
    effective: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None or name in _IGNORED:
            continue
        if name == "forced_decoder_ids":
            effective.setdefault("decoder_prompt", tuple(token for _, token in value if token is not None))
            continue
        if name in ("max_new_tokens", "min_new_tokens"):  # lengths without the start token, which override max_length
            if not _whole(value):
                raise UserError(f"{source}: generation setting {name}: expected a whole number, got {value!r}.")
            effective[name.replace("_new_tokens", "_length")] = value + 1
        elif name in names:
            effective.setdefault(name, value)
        elif name not in _NEUTRAL or value != _NEUTRAL[name]:
            raise UserError(
                f"{source}: generation setting {name!r} (= {value!r}) is not implemented; the nearest one is "
                f"{nearest(name, sorted(names))!r}."
            )
    return effective


def _checks(spec: GenerationSpec) -> list[tuple[str, bool, str]]:
    """Return checks as (field, whether the value is valid, what was expected)."""
    searches, least, ends = spec.num_beams > 1, 2 + len(spec.decoder_prompt), ", ".join(map(str, spec.eos_token_id))
    returned, most = spec.num_return_sequences, spec.num_beams if searches else math.inf
    one = "1, as greedy decoding has one result (set num_beams or do_sample)"
    single = ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id")  # each of them is written
    return [
        *((name, (getattr(spec, name) or 0) >= 0, "a token id, or None for none") for name in single),
        ("eos_token_id", bool(spec.eos_token_id), "at least one token id"),
        ("max_length", spec.max_length >= least, f"at least {least} (the start token, decoder_prompt and one more)"),
        ("decoder_prompt", not {*spec.decoder_prompt} & {*spec.eos_token_id}, f"no end token ({ends}) in it"),
        ("min_length", 0 <= spec.min_length <= spec.max_length, f"between 0 and max_length ({spec.max_length})"),
        ("num_beams", spec.num_beams >= 1, "at least 1"),
        ("num_return_sequences", 1 <= returned <= most, f"between 1 and num_beams ({spec.num_beams})"),
        ("num_return_sequences", returned == 1 or searches or spec.do_sample, one),
        ("early_stopping", spec.early_stopping in (True, False, "never"), 'True, False or "never"'),
        ("repetition_penalty", spec.repetition_penalty > 0, "a positive number (1.0 is off)"),
        ("no_repeat_ngram_size", spec.no_repeat_ngram_size >= 0, "0 (off) or a size of n-grams"),
        ("temperature", spec.temperature > 0, "a positive number"),
        ("top_k", spec.top_k >= 0, "0 (all tokens) or a number of tokens"),
        ("top_p", 0 < spec.top_p <= 1, "a probability above 0"),
        ("cache_dtype", spec.cache_dtype in CACHE_DTYPES, '"bfloat16", "float32" or "" (the dtype of the model)'),
        ("weights_dtype", spec.weights_dtype in WEIGHTS_DTYPES, '"int8" or "" (the dtype of the model)'),
    ]
