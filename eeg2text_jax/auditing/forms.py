"""One form for both sides: words without case, punctuation, special tokens and marks of word pieces."""

import functools
import re
import unicodedata

from eeg2text_jax.predictions.file import SPACELESS

SPECIAL = re.compile(
    r"</?s>|<\|[a-z0-9_]+\|>|</?(?:start|end|unk|eos|bos|sos|pad|mask|sep|cls|extra_id_\d+)>"
    r"|\[(?:pad|cls|sep|unk|mask|eos|bos)\]",
    re.IGNORECASE,
)
STARTS = re.compile("[\u2581\u0120]")  # marks of SentencePiece and of GPT-2's tokenizer at the start of a word
CONTINUED = re.compile(r"(?<=\w)@@ | ##(?=\w)")  # marks of BPE and WordPiece within a word
APOSTROPHES = "'\u2019\u02bc`"


class _Plain(dict):
    """Characters of plain text: no punctuation, symbols or controls; characters of spaceless scripts are words."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        plain = "" if letter in APOSTROPHES else " " if unicodedata.category(letter)[0] in "PSZC" else letter
        self[code] = f" {letter} " if plain and SPACELESS.match(letter) and plain != " " else plain
        return self[code]


_PLAIN = _Plain()


def unmarked(text: str) -> str:
    """Return a text in lower case without special tokens and marks of word pieces; punctuation is kept."""
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
