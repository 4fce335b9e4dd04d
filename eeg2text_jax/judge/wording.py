"""The text that asks a language model about a pair, its token ids, and the two answers."""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from eeg2text_jax.base.errors import UserError

TEMPLATES = {
    "plain": "Ground truth: {reference} Transcription: {hypothesis} "
    "Transcript preserves the meaning of the ground truth:",
    # The paper's wording. T5's tokenizer lacks braces: they become unknown tokens, and the next word loses its space.
    "figure": "Ground truth: {{reference}}. Transcription: {{hypothesis}}. "
    "Transcript preserves the meaning of the ground truth: {",
}
ENDS = (".", "!", "?")


@dataclasses.dataclass(frozen=True)
class Wording:
    """A template with `{reference}` and `{hypothesis}` that asks about a pair, and the text before it."""

    name: str
    template: str
    before: str = ""  # a question word, or examples

    @property
    def longest(self) -> int:
        """The most tokens of the text with a pair and the soft prompt."""
        return 2048 if self.before else 512

    def text(self, reference: str, hypothesis: str) -> str:
        """Return the text that asks about a pair."""
        reference, hypothesis = reference.strip(), hypothesis.strip()
        if self.name == "plain":
            reference, hypothesis = (t if t.endswith(ENDS) else f"{t}." for t in (reference, hypothesis))
        # Not str.format, which can read attributes of objects: a template may come from a file.
        sides = {"{reference}": reference, "{hypothesis}": hypothesis}
        text = re.sub(r"\{reference\}|\{hypothesis\}", lambda match: sides[match[0]], self.template)
        return f"{self.before}{text}".strip()

    def answered(self, reference: str, hypothesis: str, label: str) -> str:
        """Return the text of a pair with the answer `label`."""
        return f"{self.text(reference, hypothesis)}{self.space}{label}{'}' if self.template.endswith('{') else ''}"

    @property
    def full_stop(self) -> str:
        """A phrase for `judge.json`: whether texts get full stops."""
        ends = " ".join(ENDS)
        return f"added to a text that ends without one of {ends}" if self.name == "plain" else "as in the template"

    @property
    def space(self) -> str:
        """The space between a text and its answer, if any."""
        return "" if self.template.endswith("{") else " "


def choose_wording(name: str, tokenizer: PreTrainedTokenizerBase) -> Wording:
    """Return the wording `name` of `TEMPLATES`; `auto` is `figure` if the tokenizer has braces, else `plain`."""
    if name == "auto":
        braces = tokenizer("{no}", add_special_tokens=False)["input_ids"]
        name = "plain" if tokenizer.unk_token_id in braces else "figure"
    return Wording(name, TEMPLATES[name])


@dataclasses.dataclass(frozen=True)
class Labels:
    """The two answers, yes first, and their token ids without special tokens."""

    words: tuple[str, str]
    ids: tuple[tuple[int, ...], tuple[int, ...]]


def label_ids(word: str, tokenizer: PreTrainedTokenizerBase, wording: Wording | None = None) -> tuple[int, ...]:
    """Return the token ids of an answer without special tokens, as they continue the text of `wording`, if any."""
    if wording is not None:
        asked = wording.template.partition("{hypothesis}")[2]
        texts = asked, f"{asked}{wording.space}{word}"
        before, whole = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
        if whole[: len(before)] == before:
            return tuple(whole[len(before) :])
    return tuple(tokenizer(word, add_special_tokens=False)["input_ids"])


def read_labels(words: Sequence[str], tokenizer: PreTrainedTokenizerBase, wording: Wording | None = None) -> Labels:
    """Return the answers with their `label_ids`; UserError if the model cannot say or tell them apart."""
    if len(words) != 2 or words[0] == words[1]:
        raise UserError(f"labels are {tuple(words)}; expected two different words, the one for yes first.")
    yes, no = ids = tuple(label_ids(word, tokenizer, wording) for word in words)
    for word, tokens in zip(words, ids, strict=True):
        if not tokens or tokenizer.unk_token_id in tokens:
            raise UserError(f"labels: the tokenizer has no token for {word!r}; choose words that it knows.")
    if yes[: len(no)] == no[: len(yes)]:
        raise UserError(
            f"labels: of {words[0]!r} and {words[1]!r}, one begins with the tokens of the other; choose others."
        )
    return Labels((words[0], words[1]), (yes, no))


@dataclasses.dataclass
class Encoder:
    """A tokenizer of pairs, which cuts or refuses pairs that are too long."""

    tokenizer: PreTrainedTokenizerBase
    wording: Wording
    max_tokens: int  # most tokens of a pair, special tokens included, without the soft prompt
    truncate: bool = False  # cut both texts of a longer pair to equally many first words, else refuse it
    open_end: bool = False  # leave out the end token: a decoder-only model continues with the answer
    limit: str = "the model takes"  # what sets `max_tokens`, for the message
    flag: str = "--truncate"  # what sets `truncate`
    cut: int = dataclasses.field(default=0, init=False)  # pairs that were cut so far

    def __call__(self, pairs: Sequence[tuple[str, str]], where: str = "pair") -> list[np.ndarray]:
        """Return each pair's token ids, int32 `[S]`; a message names a pair by `where` and its number from 1."""
        if not pairs:
            return []
        encoded = self._encode([self.wording.text(*pair) for pair in pairs])
        for row, ids in enumerate(encoded):
            if len(ids) <= self.max_tokens:
                continue
            if not self.truncate:
                raise UserError(
                    f"{where} {row + 1} ({pairs[row][0]!r:.60}) has {len(ids)} tokens, but {self.limit} at most "
                    f"{self.max_tokens}; shorten it, or set {self.flag} to keep only the first words of such pairs."
                )
            encoded[row] = self._shortened(*pairs[row])
            self.cut += 1
        return encoded

    def _shortened(self, reference: str, hypothesis: str) -> np.ndarray:
        """Return the token ids of as many first words of both texts as fit."""
        sides = reference.split(), hypothesis.split()
        for words in range(max(map(len, sides)) - 1, 0, -1):
            (ids,) = self._encode([self.wording.text(*(" ".join(side[:words]) for side in sides))])
            if len(ids) <= self.max_tokens:
                return ids
        raise UserError(f"the wording alone takes more than {self.max_tokens} tokens; take a model that reads more.")

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        encoded = self.tokenizer(list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
        end = self.tokenizer.eos_token_id
        return [np.array(ids[:-1] if self.open_end and ids[-1:] == [end] else ids, np.int32) for ids in encoded]
