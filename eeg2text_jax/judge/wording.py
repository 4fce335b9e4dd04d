"""What the language model is shown of a pair, and the words that it answers with."""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from eeg2text_jax.errors import UserError

TEMPLATES = {
    "plain": "Ground truth: {reference} Transcription: {hypothesis} "
    "Transcript preserves the meaning of the ground truth:",
    # As the paper prints it. T5 has no braces: they would be unknown tokens, and the word behind one loses its space.
    "figure": "Ground truth: {{reference}}. Transcription: {{hypothesis}}. "
    "Transcript preserves the meaning of the ground truth: {",
}
ENDS = (".", "!", "?")
LONGEST, LONGEST_WITH_EXAMPLES = 512, 2048  # tokens
_PLACES = re.compile(r"\{reference\}|\{hypothesis\}")


@dataclasses.dataclass(frozen=True)
class Wording:
    """A template with `{reference}` and `{hypothesis}`, and the text before it: a question word, or examples."""

    name: str
    template: str
    before: str = ""

    @property
    def longest(self) -> int:
        """Most tokens of a text, the soft prompt included."""
        return LONGEST_WITH_EXAMPLES if self.before else LONGEST

    def text(self, reference: str, hypothesis: str) -> str:
        """Return the text that asks about a pair."""
        reference, hypothesis = reference.strip(), hypothesis.strip()
        if self.name == "plain":
            reference, hypothesis = ended(reference), ended(hypothesis)
        # Not str.format: a template may come from a file, and a format string can look into objects.
        sides = {"{reference}": reference, "{hypothesis}": hypothesis}
        text = _PLACES.sub(lambda found: sides[found[0]], self.template)
        return f"{self.before}{text}".strip()

    def answered(self, reference: str, hypothesis: str, label: str) -> str:
        """Return the text of a pair with its answer."""
        return f"{self.text(reference, hypothesis)}{self.space}{label}{'}' if self.template.endswith('{') else ''}"

    @property
    def full_stop(self) -> str:
        """What `judge.json` says of the marks behind both texts, which the template does not show."""
        ends = " ".join(ENDS)
        return f"added to a text that ends without one of {ends}" if self.name == "plain" else "as in the template"

    @property
    def space(self) -> str:
        """What stands between a text and its answer."""
        return "" if self.template.endswith("{") else " "


def ended(text: str) -> str:
    """The text with a full stop, unless it ends a sentence already."""
    return text if text.endswith(ENDS) else f"{text}."


def choose_wording(name: str, tokenizer: PreTrainedTokenizerBase) -> Wording:
    """The wording of that name; `auto` takes the paper's where the tokenizer knows its braces.

    Raises:
      UserError: there is no such wording.
    """
    if name == "auto":
        name = "figure" if _knows_braces(tokenizer) else "plain"
    if name not in TEMPLATES:
        raise UserError(f"wording is {name!r}; expected auto, {' or '.join(TEMPLATES)}.")
    return Wording(name, TEMPLATES[name])


def _knows_braces(tokenizer: PreTrainedTokenizerBase) -> bool:
    ids = tokenizer("{no}", add_special_tokens=False)["input_ids"]
    return tokenizer.unk_token_id not in ids


@dataclasses.dataclass(frozen=True)
class Labels:
    """The two answers, yes first, and their token ids without special tokens."""

    words: tuple[str, str]
    ids: tuple[tuple[int, ...], tuple[int, ...]]


def label_ids(word: str, tokenizer: PreTrainedTokenizerBase, wording: Wording | None = None) -> tuple[int, ...]:
    """Return the token ids of an answer without special tokens.

    Args:
      wording: of a decoder-only model, whose answer continues the text; None: the answer stands alone, in a decoder.
    """
    if wording is not None:
        asked = wording.template.partition("{hypothesis}")[2]
        texts = asked, f"{asked}{wording.space}{word}"
        before, whole = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts)
        if whole[: len(before)] == before:
            return tuple(whole[len(before) :])
    return tuple(tokenizer(word, add_special_tokens=False)["input_ids"])


def read_labels(words: Sequence[str], tokenizer: PreTrainedTokenizerBase, wording: Wording | None = None) -> Labels:
    """Token ids of the answers; `wording` as for `label_ids`.

    Raises:
      UserError: they are equal, one begins the other, or the tokenizer does not know a piece of one.
    """
    if len(words) != 2 or words[0] == words[1]:
        raise UserError(f"labels are {tuple(words)}; expected two different words, the one for yes first.")
    ids = label_ids(words[0], tokenizer, wording), label_ids(words[1], tokenizer, wording)
    for word, pieces in zip(words, ids, strict=True):
        if not pieces or tokenizer.unk_token_id in pieces:
            raise UserError(f"labels: the tokenizer has no token for {word!r}; choose words that it knows.")
    short, long = sorted(ids, key=len)
    if long[: len(short)] == short:
        raise UserError(
            f"labels: to the tokenizer {words[0]!r} begins {words[1]!r} or the other way round; choose others."
        )
    return Labels((words[0], words[1]), ids)


class Encoder:
    """Texts of pairs -> token ids, cut or refused where they are longer than the model takes.

    Args:
      tokenizer: of the language model; its own settings of truncation and padding are not used.
      wording: what is written.
      max_tokens: at most so many, special tokens included, without the prompt.
      truncate: cut both texts of a longer pair by words, alike, instead of refusing it.
      open_end: leave out the end token, as for a decoder-only model, which goes on with the answer.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        wording: Wording,
        max_tokens: int,
        truncate: bool = False,
        open_end: bool = False,
    ):
        self.tokenizer, self.wording, self.max_tokens = tokenizer, wording, max_tokens
        self.truncate, self.cut, self.open_end = truncate, 0, open_end

    def __call__(self, pairs: Sequence[tuple[str, str]], where: str = "pair") -> list[np.ndarray]:
        """Token ids int32 of every (reference, hypothesis).

        Raises:
          UserError: a pair is too long; `where` and its number from 1 name it.
        """
        if not pairs:
            return []
        found = self._encode([self.wording.text(*pair) for pair in pairs])
        for row, ids in enumerate(found):
            if len(ids) <= self.max_tokens:
                continue
            if not self.truncate:
                raise UserError(
                    f"{where} {row + 1} ({pairs[row][0]!r:.60}) has {len(ids)} tokens, but the model takes at most "
                    f"{self.max_tokens}; shorten its texts, or set --truncate to keep only the first words of such "
                    "pairs."
                )
            found[row] = self._shortened(*pairs[row])
            self.cut += 1
        return found

    def _shortened(self, reference: str, hypothesis: str) -> np.ndarray:
        """The pair with as many of the first words of both texts as fit."""
        sides = reference.split(), hypothesis.split()
        for words in range(max(map(len, sides)) - 1, 0, -1):
            (ids,) = self._encode([self.wording.text(*(" ".join(side[:words]) for side in sides))])
            if len(ids) <= self.max_tokens:
                return ids
        raise UserError(
            f"the wording alone takes more than {self.max_tokens} tokens; take a model that reads longer texts."
        )

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        encoded = self.tokenizer(list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
        end = self.tokenizer.eos_token_id
        cut = [ids[:-1] if self.open_end and ids and ids[-1] == end else ids for ids in encoded]
        return [np.asarray(ids, np.int32) for ids in cut]
