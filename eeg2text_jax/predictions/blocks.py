"""Text files in which a sample is a block of labelled lines: layouts A, A1, A2, B, C, D, and E with a line a word.

A   `target string: R`, `predicted string with tf: P`, `predicted string: P`, a line of `#`
A1  the same without the line `with tf`;  A2  with more lines of tokens, which are passed over
B   `Target string: R`, `Predicted string: P`, a line of `-`
C   `start####`, `Predicted: P`, `True: R`, `end####`
D   `target sentence: R`, `predicted sentence: P` over several lines, a line of `#`
E   `target word: R<TAB>pred word: P`
"""

import dataclasses
import re
from collections.abc import Iterator

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow

REFERENCE = "reference"
TOKEN_LINE = re.compile(r"(target|predicted|prediction|pred)[\w ]*\b(tokens?|ids)\b[\w ]*:", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class BlockLayout:
    """Labels of a block with what they hold (the reference, or a prediction in a mode), and the lines around it."""

    labels: dict[str, str]
    closing: re.Pattern
    opening: re.Pattern | None = None

    def label_of(self, line: str) -> str | None:
        """The label that a line begins with."""
        head = line.partition(":")[0].strip().lower()
        return head if head in self.labels and ":" in line else None

    def expected(self) -> str:
        return ", ".join(f"'{label}:'" for label in self.labels)


HASHES = re.compile(r"#{8,}\s*")
STRINGS = {"target string": REFERENCE, "predicted string with tf": "teacher_forced", "predicted string": "free_running"}
WITHOUT_TF = {"target string": REFERENCE, "predicted string": UNKNOWN}
SENTENCES = {"target sentence": REFERENCE, "predicted sentence": UNKNOWN}
LAYOUTS = {
    "A": BlockLayout(STRINGS, HASHES),
    "A1": BlockLayout(WITHOUT_TF, HASHES),
    "B": BlockLayout(WITHOUT_TF, re.compile(r"-{8,}\s*")),
    "C": BlockLayout(
        {"predicted": UNKNOWN, "true": REFERENCE}, re.compile(r"end#{4,}\s*"), opening=re.compile(r"start#{4,}\s*")
    ),
    "D": BlockLayout(SENTENCES, HASHES),
}
WORD_PAIR = re.compile(r"target word: ?([^\t]*)\tpred word: ?([^\t]*)", re.IGNORECASE)


def recognise_blocks(lines: list[str]) -> str | None:
    """The layout whose labels begin lines of the file; None where none does."""
    heads = [line.partition(":")[0].strip().lower() for line in lines if ":" in line]
    if any(LAYOUTS["C"].opening.fullmatch(line) for line in lines) and "true" in heads:
        return "C"
    if "target string" in heads:
        closed_by_dashes = sum(bool(LAYOUTS["B"].closing.fullmatch(line)) for line in lines)
        if closed_by_dashes > sum(bool(HASHES.fullmatch(line)) for line in lines):
            return "B"
        if "predicted string with tf" not in heads:
            return "A1"
        return "A2" if any(TOKEN_LINE.match(line) for line in lines) else "A"
    if "target sentence" in heads:
        return "D"
    return "E" if "target word" in heads else None


def read_blocks(lines: list[str], layout_name: str, path: epath.Path) -> list[ForeignRow]:
    """One row a block. Raises UserError with the line of a block that is not whole."""
    layout = LAYOUTS["A" if layout_name == "A2" else layout_name]
    blocks = list(split_blocks(lines, layout, path))
    used = {label for _, fields in blocks for label in fields}
    if REFERENCE not in {layout.labels[label] for label in used} or len(used) < 2:
        raise UserError(f"{path}: no block of layout {layout_name} in the file; expected lines {layout.expected()}.")
    rows = []
    for line, fields in blocks:
        if missing := [label for label in layout.labels if label in used and label not in fields]:
            raise UserError(f"{path}, line {line}: the block that begins here has no line '{missing[0]}:'.")
        texts = {layout.labels[label]: text for label, text in fields.items()}
        reference = texts.pop(REFERENCE)
        rows.append(ForeignRow(line, reference, {(UNKNOWN, mode): text for mode, text in texts.items()}))
    return rows


def split_blocks(lines: list[str], layout: BlockLayout, path: epath.Path) -> Iterator[tuple[int, dict[str, str]]]:
    """First line and labelled texts of every block; a prediction may go on over further lines."""
    fields: dict[str, list[str]] = {}
    current: str | None = None
    begin = 0
    for number, line in enumerate(lines, 1):
        label = layout.label_of(line)
        if layout.opening and layout.opening.fullmatch(line):
            if begin:
                raise UserError(f"{path}, line {number}: a block begins before that of line {begin} is closed.")
            begin = number
        elif layout.closing.fullmatch(line):
            if not fields:
                raise UserError(f"{path}, line {number}: this line closes a block without {layout.expected()}.")
            yield begin, {name: "\n".join(parts).rstrip("\n") for name, parts in fields.items()}
            fields, current, begin = {}, None, 0
        elif label and label not in fields and (begin or not layout.opening):
            begin = begin or number
            current = label
            fields[label] = [line.partition(":")[2].removeprefix(" ")]
        elif label:
            reason = f"a second '{label}:' in the block of line {begin}" if begin else "a label outside of a block"
            raise UserError(f"{path}, line {number}: {reason}; a line between two blocks is missing or damaged.")
        elif TOKEN_LINE.match(line):
            current = None
        elif current and layout.labels[current] != REFERENCE:
            fields[current].append(line)
        elif line.strip():
            raise UserError(f"{path}, line {number}: expected one of {layout.expected()}, came {line!r:.60}.")
    if begin:
        raise UserError(f"{path}, line {begin}: the block that begins here is not closed; the file may be cut short.")


def read_words(lines: list[str], path: epath.Path) -> list[ForeignRow]:
    """Layout E: one row a word."""
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        pair = WORD_PAIR.fullmatch(line)
        if pair is None:
            raise UserError(
                f"{path}, line {number}: expected 'target word: ...<TAB>pred word: ...', came {line!r:.60}."
            )
        rows.append(ForeignRow(number, pair[1], {(UNKNOWN, UNKNOWN): pair[2]}))
    return rows
