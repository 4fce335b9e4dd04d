"""Prompts of decoder-only models: token ids before and after the recording.

transformers is imported for types alone, to check the command line fast.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eeg2text_jax.base.errors import UserError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLACE = "<eeg>"  # the recording in a template
FIELDS = ("subject", "task")  # that a template may have in braces
_FIELD = re.compile(r"\{(\w*)\}")


class Prompt(NamedTuple):
    """Token ids before and after a recording."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def template_problem(template: str) -> str:
    """Return what is wrong with a template, or ""."""
    if template and template.count(PLACE) != 1:
        return f"text.template is {template!r}; expected {PLACE} in it once, where the recording goes."
    unknown = [name for name in _FIELD.findall(template) if name not in FIELDS]
    if unknown:
        return f"text.template has {{{unknown[0]}}}; expected fields of a sample: {{{'}, {'.join(FIELDS)}}}."
    return ""


def has_fields(template: str) -> bool:
    """Return whether prompts differ between samples."""
    return bool(_FIELD.search(template))


def make_prompt(
    tokenizer: "PreTrainedTokenizerBase", template: str, chat: bool, values: Mapping[str, str] | None = None
) -> Prompt:
    """Return the token ids of a template; an empty one is the recording alone.

    `values` fills in its fields (None leaves them, to estimate lengths). With `chat`, it is the user's message in the
    tokenizer's chat template; without, it follows the begin token that the tokenizer adds to texts, if any. Raises
    UserError if there is no chat template, or it drops the recording.
    """
    text = _FIELD.sub(lambda match: match[0] if values is None else values[match[1]], template or PLACE)
    if chat and not tokenizer.chat_template:
        raise UserError(
            "text.chat is True and the tokenizer has no chat template; set text.chat=False, or text.tokenizer to one "
            "with a chat template."
        )
    if chat:
        messages = [{"role": "user", "content": text}]
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template can raise anything
            why = first_line(error)
            raise UserError(f"the tokenizer's chat template cannot be filled in ({why}).") from error
    before, place, after = text.partition(PLACE)
    if not place:
        raise UserError(f"the tokenizer's chat template leaves {PLACE} out; set text.chat=False.")
    ids = [tokenizer(part, add_special_tokens=False)["input_ids"] if part else [] for part in (before, after)]
    begin = [] if chat else tokenizer("")["input_ids"][:1]
    return Prompt((*(begin if begin == [tokenizer.bos_token_id] else []), *ids[0]), tuple(ids[1]))


def make_prompts(
    tokenizer: "PreTrainedTokenizerBase", template: str, chat: bool, subjects: Iterable[str], tasks: Iterable[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids before and after the recording of each sample, int32 `[N, P]`, padded with -1."""
    keys = list(zip(map(str, subjects), map(str, tasks), strict=True))
    made = {key: make_prompt(tokenizer, template, chat, dict(zip(FIELDS, key, strict=True))) for key in set(keys)}
    before, after = zip(*(made[key] for key in keys), strict=True)
    return pad_ids(before, max(map(len, before)), -1), pad_ids(after, max(map(len, after)), -1)


def pad_ids(ids: Sequence[Sequence[int] | np.ndarray], length: int, filler: int) -> np.ndarray:
    """Stack token ids, padded with `filler`: int32 `[len(ids), length]`."""
    padded = np.full((len(ids), length), filler, np.int32)
    for row, tokens in zip(padded, ids, strict=True):
        row[: len(tokens)] = tokens
    return padded
