"""Text files in which a sample is a block of labelled lines: layouts A, A1, A2, B, C, C1, D, and E with a line a word.

A   `target string: R`, `predicted string with tf: P`, `predicted string: P`, a line of `#`
A1  the same without the line `with tf`;  A2  with more lines of tokens, which are passed over
B   `Target string: R`, `Predicted string: P`, a line of `-`
C   `start####`, `Predicted: P`, `True: R`, `end####`
C1  `Predicted: P`, `True: R`, a line of `=`
D   `target sentence: R`, `predicted sentence: P` over several lines, a line of `#`
C2  `REF: R`, `HYP: P`, or other usual names, with nothing between the pairs but empty lines and further labels
E   `target word: R<TAB>pred word: P`
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.column_names import ABOUT_NAMES, normalised
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow
from eeg2text_jax.predictions.packed import Lines

REFERENCE = "reference"
TOKENS = re.compile(r"(target|predicted|prediction|pred)[\w ]*\b(tokens?|ids)\b")
RULE = re.compile(r"([#\-=])\1{7,}\s*")
# A possible label: words and brackets before a colon; no text begins with one of LABEL_WORDS.
LABEL = re.compile(r"([A-Za-z][\w ()\[\]/.+-]{0,48}?)\s*:")
LABEL_WORDS = re.compile(
    r"(targets?|predicted|predictions?|preds?|true|truth|references?|ground truth|generated|decoded)\b"
)


@dataclasses.dataclass(frozen=True)
class BlockLayout:
    """Labels of a block with their contents (the reference, or a prediction in a mode), and the lines around it."""

    labels: dict[str, str]
    closing: re.Pattern
    opening: re.Pattern | None = None

    def expected(self) -> str:
        return ", ".join(f"'{label}:'" for label in self.labels)


HASHES = re.compile(r"#{8,}\s*")
STRINGS = {"target string": REFERENCE, "predicted string with tf": "teacher_forced", "predicted string": "free_running"}
WITHOUT_TF = {"target string": REFERENCE, "predicted string": UNKNOWN}
SENTENCES = {"target sentence": REFERENCE, "predicted sentence": UNKNOWN}
TRUE = {"predicted": UNKNOWN, "true": REFERENCE}
LAYOUTS = {
    "A": BlockLayout(STRINGS, HASHES),
    "A1": BlockLayout(WITHOUT_TF, HASHES),
    "A2": BlockLayout(STRINGS, HASHES),
    "B": BlockLayout(WITHOUT_TF, re.compile(r"-{8,}\s*")),
    "C": BlockLayout(TRUE, re.compile(r"end#{4,}\s*"), opening=re.compile(r"start#{4,}\s*")),
    "C1": BlockLayout(TRUE, re.compile(r"={8,}\s*")),
    "D": BlockLayout(SENTENCES, HASHES),
}
# Labels of pairs in the order of preference, where no other layout fits.
REFS = ("ref", "reference", "gt", "ground truth", "groundtruth", "target", "truth", "true", "gold", "original")
HYPS = ("hyp", "hypothesis", "pred", "prediction", "predicted", "generated", "decoded", "output", "model output")
WORD_PAIR = re.compile(r"target word: ?([^\t]*)\tpred word: ?([^\t]*)", re.IGNORECASE)


@dataclasses.dataclass
class Survey:
    """One pass over the beginnings of lines, which tells the layout and every label in the file."""

    filled: int = 0
    braces: int = 0  # lines that begin an object
    first: str = ""  # the first character
    openings: int = 0
    heads: Counter = dataclasses.field(default_factory=Counter)
    valued: Counter = dataclasses.field(default_factory=Counter)  # of these, how often something follows the colon
    rules: Counter = dataclasses.field(default_factory=Counter)

    def layout(self) -> str | None:
        """Return the layout whose labels begin lines of the file, or None."""
        heads = self.heads
        if "true" in heads and self.openings:
            return "C"
        if "target string" in heads:
            if self.rules["-"] > self.rules["#"]:
                return "B"
            if "predicted string with tf" not in heads:
                return "A1"
            return "A2" if any(TOKENS.match(head) for head in heads) else "A"
        if "true" in heads and "predicted" in heads and self.rules["="]:
            return "C1"
        if "target sentence" in heads:
            return "D"
        if "target word" in heads:
            return "E"
        return "C2" if self.pair() else None

    def pair(self) -> tuple[str, str] | None:
        """Return the two labels that begin equally many lines, at least a quarter of all, or None."""
        sides = [[name for name in names if self.heads[name]] for names in (REFS, HYPS)]
        counts = {self.heads[name] for side in sides for name in side}
        alone = all(len(side) == 1 for side in sides) and len(counts) == 1
        return (sides[0][0], sides[1][0]) if alone and 4 * min(counts) >= self.filled else None


def survey(lines: Lines) -> Survey:
    found = Survey()
    for line in lines:
        if not line.strip():
            continue
        found.filled += 1
        found.first = found.first or line.lstrip()[0]
        found.braces += line.startswith("{")
        if rule := RULE.fullmatch(line):
            found.rules[rule[1]] += 1
        elif LAYOUTS["C"].opening.fullmatch(line):
            found.openings += 1
        elif head := head_of(line):
            found.heads[head] += 1
            found.valued[head] += bool(line.partition(":")[2].strip())
    return found


def head_of(line: str) -> str | None:
    """Return the text before the colon of a line that may be labelled, in lower case, or None."""
    if ":" not in line:
        return None
    label = LABEL.match(line)
    return label[1].lower() if label else None


@dataclasses.dataclass(frozen=True)
class Labels:
    """The heads of lines in one file: labels of the layout, fields of a sample, and labels to ignore."""

    layout: BlockLayout
    used: tuple[str, ...]
    about: dict[str, str]
    passed: frozenset[str]

    def kind(self, line: str) -> tuple[str | None, bool]:
        """Return the label that a line begins with, and whether its text is wanted."""
        head = head_of(line)
        if head is None:
            return None, False
        if head in self.layout.labels or head in self.about:
            return head, True
        return (head, False) if head in self.passed or LABEL_WORDS.match(head) else (None, False)


def labels_of(layout: BlockLayout, found: Survey) -> tuple[Labels, list[str]]:
    """Return the labels of a file, and notes on them.

    An unknown head is a label if nine of ten blocks have it with a value; a head that begins as labels do, if half of
    the blocks have it. Such labels are ignored, with a note. A rarer head is text, or an error if it begins as labels
    do.
    """
    used = tuple(label for label in layout.labels if found.heads[label])
    blocks = max((found.heads[label] for label in used), default=0)
    about: dict[str, Any] = {}
    passed, notes, texts = [], [], []
    for head, count in found.heads.items():
        if head in layout.labels or (count < 3 and not TOKENS.match(head)):
            continue
        field = ABOUT_NAMES.get(normalised([head])[0])
        labelled = 2 * count >= blocks if LABEL_WORDS.match(head) else 10 * found.valued[head] >= 9 * blocks
        labelled = labelled or bool(TOKENS.match(head))
        if labelled and field and count == blocks and field not in about.values():
            about[head] = field
        elif labelled:
            passed.append(head)
            notes.append(
                f"{count} lines '{head}:' are of no known label; they, and lines that follow them, are not used"
            )
        elif count >= 0.01 * blocks:
            texts.append(f"'{head}:' ({count})")
    if texts:
        notes.append(f"lines that begin as a label might were read as text of predictions: {', '.join(texts[:5])}")
    return Labels(layout, used, about, frozenset(passed)), notes


def read_blocks(lines: Lines, layout_name: str, found: Survey) -> tuple[Iterator[ForeignRow], list[str]]:
    """Return one row per block, and notes on labels. Raises UserError with the line of an incomplete block."""
    layout = LAYOUTS[layout_name]
    labels, notes = labels_of(layout, found)
    if REFERENCE not in {layout.labels[label] for label in labels.used} or len(labels.used) < 2:
        for _ in split_blocks(lines, labels):  # a damaged line is the better message
            pass
        raise UserError(
            f"{lines.path}: no block of layout {layout_name} in the file; expected lines {layout.expected()}."
        )
    return rows_of(lines, labels), notes


def rows_of(lines: Lines, labels: Labels) -> Iterator[ForeignRow]:
    for line, fields in split_blocks(lines, labels):
        if missing := [label for label in (*labels.used, *labels.about) if label not in fields]:
            raise UserError(f"{lines.path}, line {line}: this block has no '{missing[0]}:'; repair the block.")
        texts = {labels.layout.labels[label]: fields[label] for label in labels.used}
        reference = texts.pop(REFERENCE)
        outputs = {(UNKNOWN, mode): text for mode, text in texts.items()}
        yield ForeignRow(line, reference, outputs, {field: fields[head] for head, field in labels.about.items()})


def split_blocks(lines: Lines, labels: Labels) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the first line and the labelled texts of every block; a prediction may span several lines."""
    layout, path = labels.layout, lines.path
    fields: dict[str, list[str]] = {}
    current: str | None = None
    begin = blocks = 0
    for number, line in enumerate(lines, 1):
        if layout.opening and layout.opening.fullmatch(line):
            if begin:
                raise UserError(f"{path}, line {number}: the block of line {begin} is not closed above; repair it.")
            begin = number
            continue
        if layout.closing.fullmatch(line):
            if not fields and not blocks and layout is LAYOUTS["C1"]:
                continue  # a rule above the first block
            blocks += 1
            if not fields:
                raise UserError(f"{path}, line {number}: the block closed here has no {layout.expected()}; repair it.")
            yield begin, {name: "\n".join(parts).rstrip("\n") for name, parts in fields.items()}
            fields, current, begin = {}, None, 0
            continue
        label, wanted = labels.kind(line)
        if label and wanted and label not in fields and (begin or not layout.opening):
            begin = begin or number
            current = label
            fields[label] = [line.partition(":")[2].removeprefix(" ")]
        elif label and wanted:
            reason = f"a second '{label}:' in the block of line {begin}" if begin else f"'{label}:' outside a block"
            raise UserError(f"{path}, line {number}: {reason}; restore the missing or damaged line between two blocks.")
        elif label in labels.passed:
            current = ""
        elif label:
            raise UserError(
                f"{path}, line {number}: the label '{label}:' is not in every block; expected {layout.expected()}; "
                "remove the line if it is not part of the text, or correct the label."
            )
        elif current == "":
            continue  # goes on what was passed over
        elif current and layout.labels.get(current, REFERENCE) != REFERENCE:
            fields[current].append(line)
        elif line.strip():
            raise UserError(f"{path}, line {number}: expected one of {layout.expected()}, found {line!r:.60}.")
    if begin:
        raise UserError(f"{path}, line {begin}: the block that begins here is not closed; repair or remove it.")


def read_pairs(lines: Lines, found: Survey) -> Iterator[ForeignRow]:
    """Yield a row for each pair of lines (C2). Raises UserError if labels do not alternate or a line has none."""
    reference, prediction = found.pair()
    fields: dict[str, str] = {}
    begin = 0
    for number, line in enumerate(lines, 1):
        head = head_of(line)
        if head in fields:
            raise UserError(f"{lines.path}, line {number}: a second {head!r} in the pair of line {begin}; repair it.")
        if head in (reference, prediction):
            begin = begin if fields else number
            fields[head] = line.partition(":")[2].strip()
        elif line.strip() and not RULE.fullmatch(line) and 2 * found.heads[head or ""] < found.heads[reference]:
            raise UserError(
                f"{lines.path}, line {number}: expected a line {reference!r} or {prediction!r} with a colon, found "
                f"{line!r:.60}; write each text on one line."
            )
        if len(fields) == 2:
            yield ForeignRow(begin, fields[reference], {(UNKNOWN, UNKNOWN): fields[prediction]})
            fields = {}
    if fields:
        raise UserError(f"{lines.path}, line {begin}: the pair that begins here is incomplete; repair or remove it.")


def read_words(lines: Lines) -> Iterator[ForeignRow]:
    """Yield one row per word (layout E)."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        pair = WORD_PAIR.fullmatch(line)
        if pair is None:
            raise UserError(
                f"{lines.path}, line {number}: expected 'target word: ...<TAB>pred word: ...', found {line!r:.60}."
            )
        yield ForeignRow(number, pair[1], {(UNKNOWN, UNKNOWN): pair[2]})
