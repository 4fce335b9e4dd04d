"""Cells of text that hold a list: one text in brackets, tokens of a text, or several texts of a sample."""

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

FIRST_OF_SEVERAL = "hold several texts; the first of them counts"
JOINED = "are lists of tokens; they are joined by spaces"


def listed(cell: str) -> list | None:
    """The list that a cell writes as JSON, Python or NumPy do; None where the cell is text."""
    text = cell.strip()
    if not (text[:1] == "[" and text[-1:] == "]"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:  # NumPy leaves out the commas, and Python would join the texts
        return ast.literal_eval(re.sub(r"(?<=['\"])\s+(?=['\"])", ", ", text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def one_text(items: Sequence[Any]) -> tuple[str | None, str]:
    """The text that a list stands for, and what was done to have it; None where it holds anything but texts.

    Of several texts (references of a caption, hypotheses of a beam) the first counts, chosen before any score is
    known: content is then the score against one text of the sentence minus that against one text of another.
    """
    if any(not isinstance(item, str) for item in items):
        return None, ""
    texts = list(dict.fromkeys(item.strip() for item in items))
    if len(texts) < 2:
        return (items[0] if items else ""), ""
    if any(" " in text for text in texts):
        return items[0], FIRST_OF_SEVERAL
    return " ".join(items), JOINED
