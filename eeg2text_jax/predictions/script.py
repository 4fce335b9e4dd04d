"""Scripts without spaces between words: Han and kana are scored by characters."""

import re

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = re.compile(f"[{_HAN}\u3005-\u3007\u3040-\u30ff\u3105-\u312f]")  # with kana and bopomofo
# with radicals, strokes, and the full-width punctuation between them
_CHARACTER = re.compile(f"[{_HAN}\u2e80-\u2fdf\u3000-\u312f\u31a0-\u31ff\uff00-\uffef]")


def characters_apart(text: str) -> str:
    """A text whose Han and kana characters are words of their own, as in sacrebleu's tokenizer `zh`."""
    return text if text.isascii() else _CHARACTER.sub(r" \g<0> ", text)


def is_spaceless(text: str) -> bool:
    """Whether half of the letters of a text are Han or kana."""
    return not text.isascii() and 2 * len(_LETTER.findall(text)) >= max(1, sum(map(str.isalpha, text)))
