"""The prompt of a decoder-only model: a template with a place for the recording -> token ids before and after it.

transformers is imported for types only, because the template is checked with the command line.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eeg2text_jax.errors import UserError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLACE = "<eeg>"
FIELDS = ("subject", "task")  # of a sample, in braces in the template
NOTHING = -1  # padding of shorter prompts

_FIELD = re.compile(r"\{(\w*)\}")


class Prompt(NamedTuple):
    """Token ids around a recording."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def template_problem(template: str) -> str:
    """Return the error in `text.template`, or ""."""
    if template and template.count(PLACE) != 1:
        return f"text.template is {template!r}; expected {PLACE} in it once, where the recording goes."
    unknown = [name for name in _FIELD.findall(template) if name not in FIELDS]
    if unknown:
        return f"text.template has {{{unknown[0]}}}; expected fields of a sample: {{{'}, {'.join(FIELDS)}}}."
    return ""


def has_fields(template: str) -> bool:
    """Return whether the prompt differs between samples."""
    return bool(_FIELD.search(template))


def make_prompt(
    tokenizer: "PreTrainedTokenizerBase", template: str, chat: bool, values: Mapping[str, str] | None = None
) -> Prompt:
    """Return the token ids of a template; an empty one is the recording alone.

    Args:
      tokenizer: its begin token comes first, if it adds one to a text.
      template: contains `PLACE` once, see `template_problem`.
      chat: insert the template as the user's message into the tokenizer's chat template.
      values: of the fields; None keeps their names, for estimates.

    Raises:
      UserError: the tokenizer has no chat template, or its chat template drops the recording.
    """
    text = _FIELD.sub(lambda found: found[0] if values is None else values[found[1]], template or PLACE)
    if chat:
        text = _in_chat(tokenizer, text)
    before, place, after = text.partition(PLACE)
    if not place:
        raise UserError(f"the tokenizer's chat template leaves {PLACE} out; set text.chat=False.")
    return Prompt((*([] if chat else _begin(tokenizer)), *_ids(tokenizer, before)), tuple(_ids(tokenizer, after)))


def make_prompts(
    tokenizer: "PreTrainedTokenizerBase", template: str, chat: bool, rows: Sequence[Mapping[str, str]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids before and after the recording for samples with these values, int32 `[N, P]` each."""
    keys = [tuple(sorted(row.items())) for row in rows]
    made = {key: make_prompt(tokenizer, template, chat, dict(key)) for key in dict.fromkeys(keys)}
    before, after = (_padded([made[key][part] for key in keys]) for part in (0, 1))
    return before, after


def _padded(ids: Sequence[tuple[int, ...]]) -> np.ndarray:
    out = np.full((len(ids), max(map(len, ids))), NOTHING, np.int32)
    for row, own in zip(out, ids, strict=True):
        row[: len(own)] = own
    return out


def _ids(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"] if text else []


def _begin(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    own = tokenizer("")["input_ids"]
    return own[:1] if own and own[0] == tokenizer.bos_token_id else []


def _in_chat(tokenizer: "PreTrainedTokenizerBase", text: str) -> str:
    if not tokenizer.chat_template:
        raise UserError(
            "text.chat is True and the tokenizer has no chat template; set text.chat=False, or text.tokenizer to one "
            "with a chat template."
        )
    try:
        said = [{"role": "user", "content": text}]
        return tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template can raise anything
        raise UserError(f"the tokenizer's chat template cannot be filled in ({first_line(error)}).") from error
