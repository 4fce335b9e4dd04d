"""One form for both sides: plain words of a text, and whether predictions and references are in the same form.

The verdict compares words without case, punctuation, special tokens and marks of word pieces. Scores as published are
computed from the raw texts.
"""

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from eeg2text_jax.predictions.file import SPACELESS

RULE = "Unicode NFKC, no case, no punctuation, no special tokens, word pieces joined"
SPECIAL = re.compile(
    r"</?s>|<\|[a-z0-9_]+\|>|</?(?:start|end|unk|eos|bos|sos|pad|mask|sep|cls|extra_id_\d+)>"
    r"|\[(?:pad|cls|sep|unk|mask|eos|bos)\]",
    re.IGNORECASE,
)
STARTS = re.compile("[\u2581\u0120]")  # marks of SentencePiece and of GPT-2's tokenizer at the start of a word
CONTINUED = re.compile(r"(?<=\w)@@ | ##(?=\w)")  # marks of BPE and WordPiece within a word
APOSTROPHES = "'\u2019\u02bc`"
FEW_SHARED = 0.05  # smallest share of the predicted words that are somewhere in the references, in the same form
MIN_WORDS = 30  # fewest predicted words that tell the form
UNLIKE = 1.5  # ratio of mean lengths from which on words are other units, such as phonemes; misspelt words are not


class _Plain(dict):
    """Characters of plain text: no punctuation, symbols or controls; characters of spaceless scripts are words."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        plain = "" if letter in APOSTROPHES else " " if unicodedata.category(letter)[0] in "PSZC" else letter
        self[code] = f" {letter} " if plain and SPACELESS.match(letter) and plain != " " else plain
        return self[code]


_PLAIN = _Plain()


def unmarked(text: str) -> str:
    """Return the text in Unicode NFKC and without case and special tokens, with word pieces joined."""
    text = SPECIAL.sub(" ", text)
    if "</w>" in text:
        text = text.replace(" ", "").replace("</w>", " ")
    elif 2 * len(STARTS.findall(text)) >= len(text.split()) - 1 and STARTS.search(text):
        text = STARTS.sub(" ", text.replace(" ", ""))
    return unicodedata.normalize("NFKC", CONTINUED.sub("", text)).casefold()


@functools.lru_cache(1 << 20)
def words(text: str) -> tuple[str, ...]:
    """Return the plain words of a text; characters of scripts without spaces count as words."""
    return tuple(unmarked(text).translate(_PLAIN).split())


def key(text: str) -> str:
    """Return the text by which a sentence is known: its plain words, or the stripped text if it has none."""
    return " ".join(words(text)) or unicodedata.normalize("NFKC", text.strip())


def other_form(predictions: Iterable[str], references: Sequence[str]) -> str:
    """Return why the two sides are not in the same form, such as phonemes beside words; "" if they are."""
    known = Counter(word for text in references for word in words(text))
    written = Counter(word for text in predictions for word in words(text))
    shared = sum(count for word, count in written.items() if word in known)
    if written.total() < MIN_WORDS or shared >= FEW_SHARED * written.total():
        return ""
    scripts, lengths = (_script(written), _script(known)), (_mean_length(written), _mean_length(known))
    if scripts[0] == scripts[1] and max(lengths) < UNLIKE * min(lengths):
        return ""
    different = f" ({scripts[0]} and {scripts[1]} letters)" if scripts[0] != scripts[1] else ""
    return (
        f"{shared / written.total():.0%} of the predicted words are in any reference{different}; most frequent words: "
        f"{_frequent(written)} in the predictions, {_frequent(known)} in the references"
    )


def _frequent(counts: Counter[str]) -> str:
    return ", ".join(sorted(counts, key=lambda word: (-counts[word], word))[:4])


def _mean_length(counts: Counter[str]) -> float:
    return sum(len(word) * count for word, count in counts.items()) / max(counts.total(), 1)


def _script(counts: Counter[str]) -> str:
    """Return the script of most words, as the first word of a letter's Unicode name, such as LATIN."""
    names: Counter[str] = Counter()
    for word, count in counts.items():
        names[unicodedata.name(word[0], "unnamed").split()[0].split("-")[0]] += count
    return min(names, key=lambda name: (-names[name], name)).capitalize() if names else ""
