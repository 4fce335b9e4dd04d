"""Readers of text files with labelled lines, by layout (R is the reference, P a prediction).

A   `target string: R`, `predicted string with tf: P`, `predicted string: P`, a line of `#`
A1  A without the line `with tf`;  A2  A with lines of token ids, which are ignored
B   `Target string: R`, `Predicted string: P`, a line of `-`
C   `start####`, `Predicted: P`, `True: R`, `end####`
C1  `Predicted: P`, `True: R`, a line of `=`
D   `target sentence: R`, `predicted sentence: P` over several lines, a line of `#`
C2  `REF: R`, `HYP: P`, or other usual names; only empty lines and other labels stand between the pairs
E   `target word: R<TAB>pred word: P`, one line per word
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.column_names import ABOUT_NAMES, normalize_names
from eeg2text_jax.predictions.foreign import UNKNOWN, ForeignRow
from eeg2text_jax.predictions.packed import Lines

REFERENCE = "reference"
TOKENS = re.compile(r"(target|predicted|prediction|pred)[\w ]*\b(tokens?|ids)\b")
RULE = re.compile(r"([#\-=])\1{7,}\s*")
# A possible label: words and brackets before a colon. It is surely a label if it begins with LABEL_WORDS.
LABEL = re.compile(r"([A-Za-z][\w ()\[\]/.+-]{0,48}?)\s*:")
LABEL_WORDS = re.compile(
    r"(targets?|predicted|predictions?|preds?|true|truth|references?|ground truth|generated|decoded)\b"
)


@dataclasses.dataclass(frozen=True)
class BlockLayout:
    """The labels and the boundary lines of a layout in which each sample is a block of lines."""

    labels: dict[str, str]  # text before the colon -> `REFERENCE`, or for a prediction its mode
    closing: re.Pattern  # matches the last line of a block
    opening: re.Pattern | None = None  # matches the first line; None: a block begins at its first label

    def expected(self) -> str:
        return ", ".join(f"'{label}:'" for label in self.labels)


HASHES = re.compile(r"#{8,}\s*")
STRINGS = {"target string": REFERENCE, "predicted string with tf": "teacher_forced", "predicted string": "free_running"}
WITHOUT_TF = {"target string": REFERENCE, "predicted string": UNKNOWN}
TRUE = {"predicted": UNKNOWN, "true": REFERENCE}
LAYOUTS = {
    "A": BlockLayout(STRINGS, HASHES),
    "A1": BlockLayout(WITHOUT_TF, HASHES),
    "A2": BlockLayout(STRINGS, HASHES),
    "B": BlockLayout(WITHOUT_TF, re.compile(r"-{8,}\s*")),
    "C": BlockLayout(TRUE, re.compile(r"end#{4,}\s*"), opening=re.compile(r"start#{4,}\s*")),
    "C1": BlockLayout(TRUE, re.compile(r"={8,}\s*")),
    "D": BlockLayout({"target sentence": REFERENCE, "predicted sentence": UNKNOWN}, HASHES),
}
# Usual labels of reference and prediction in layout C2.
REFS = ("ref", "reference", "gt", "ground truth", "groundtruth", "target", "truth", "true", "gold", "original")
HYPS = ("hyp", "hypothesis", "pred", "prediction", "predicted", "generated", "decoded", "output", "model output")
WORD_PAIR = re.compile(r"target word: ?([^\t]*)\tpred word: ?([^\t]*)", re.IGNORECASE)


@dataclasses.dataclass
class Survey:
    """Counts of how the lines of a file begin; the layout is inferred from them."""

    filled: int = 0  # lines that are not blank
    braces: int = 0  # lines that begin with "{"
    first: str = ""  # first character that is not white space
    openings: int = 0  # lines `start####`
    heads: Counter = dataclasses.field(default_factory=Counter)  # possible label, see `head_of` -> number of lines
    valued: Counter = dataclasses.field(default_factory=Counter)  # label -> lines with text after the colon
    rules: Counter = dataclasses.field(default_factory=Counter)  # "#", "-" or "=" -> lines that only repeat it

    def layout(self) -> str | None:
        """Return the name of the block layout that fits the labels (A to E), or None."""
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
        """Return the labels of references and of predictions (layout C2), or None.

        As many lines must begin with one label as with the other, and each label must be on at least 25 % of the lines
        that are not blank.
        """
        sides = [[name for name in names if self.heads[name]] for names in (REFS, HYPS)]
        counts = {self.heads[name] for side in sides for name in side}
        alone = all(len(side) == 1 for side in sides) and len(counts) == 1
        return (sides[0][0], sides[1][0]) if alone and 4 * min(counts) >= self.filled else None


def survey(lines: Lines) -> Survey:
    """Count in one pass how the lines of a file begin."""
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
    """Return the possible label of a line, the text before its first colon in lower case, or None."""
    label = LABEL.match(line) if ":" in line else None
    return label[1].lower() if label else None


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels (words before a colon) in a file: of references and predictions, of other fields, and ignored ones."""

    layout: BlockLayout
    used: tuple[str, ...]  # labels of the layout that the file has
    about: dict[str, str]  # label -> field of `Prediction`, such as the subject
    ignored: frozenset[str]

    def kind(self, line: str) -> tuple[str | None, bool]:
        """Return the label of a line (None if it has none), and whether the text after this label is used."""
        head = head_of(line)
        if head is None:
            return None, False
        if head in self.layout.labels or head in self.about:
            return head, True
        return (head, False) if head in self.ignored or LABEL_WORDS.match(head) else (None, False)


def labels_of(layout: BlockLayout, found: Survey) -> tuple[Labels, list[str]]:
    """Return the labels of a file, from the counts `found` of words before colons, and notes on doubtful cases.

    Words that the layout does not know are a label if they match `TOKENS`, or if at least nine of ten blocks have them
    with a value; half of the blocks suffice if the words begin with one of `LABEL_WORDS`. Such a label names a field of
    `ABOUT_NAMES`, or is ignored. Rarer words are part of a prediction, or an error if they begin with `LABEL_WORDS`.
    """
    used = tuple(label for label in layout.labels if found.heads[label])
    blocks = max((found.heads[label] for label in used), default=0)
    about: dict[str, Any] = {}
    ignored, notes, texts = [], [], []
    for head, count in found.heads.items():
        if head in layout.labels or (count < 3 and not TOKENS.match(head)):
            continue
        field = ABOUT_NAMES.get(normalize_names([head])[0])
        labelled = 2 * count >= blocks if LABEL_WORDS.match(head) else 10 * found.valued[head] >= 9 * blocks
        labelled = labelled or bool(TOKENS.match(head))
        if labelled and field and count == blocks and field not in about.values():
            about[head] = field
        elif labelled:
            ignored.append(head)
            notes.append(
                f"{count} lines '{head}:' are of no known label; these lines, and lines that follow them, are not used"
            )
        elif count >= 0.01 * blocks:
            texts.append(f"'{head}:' ({count})")
    if texts:
        notes.append(f"lines that look like labels were read as text of predictions: {', '.join(texts[:5])}")
    return Labels(layout, used, about, frozenset(ignored)), notes


def read_blocks(lines: Lines, layout_name: str, found: Survey) -> tuple[Iterator[ForeignRow], list[str]]:
    """Return the samples, one per block, and notes on labels. Raises UserError with the line of an incomplete block."""
    layout = LAYOUTS[layout_name]
    labels, notes = labels_of(layout, found)
    if REFERENCE not in {layout.labels[label] for label in labels.used} or len(labels.used) < 2:
        list(split_blocks(lines, labels))  # raises for a damaged line, a better message than below
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
    """Yield for each block the number of its first line and its texts by label; a prediction may span lines."""
    layout, path = labels.layout, lines.path
    fields: dict[str, list[str]] = {}
    current: str | None = None
    begin = blocks = 0
    for number, line in enumerate(lines, 1):
        if layout.opening and layout.opening.fullmatch(line):
            if begin:
                raise UserError(
                    f"{path}, line {number}: begins a new block, but the block of line {begin} is not complete; repair "
                    "the file."
                )
            begin = number
            continue
        if layout.closing.fullmatch(line):
            if not fields and not blocks and layout is LAYOUTS["C1"]:
                continue  # a line of "=" above the first block
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
        elif label in labels.ignored:
            current = ""  # the lines below belong to the ignored label
        elif label:
            raise UserError(
                f"{path}, line {number}: the label '{label}:' is not in every block; expected {layout.expected()}; "
                "remove the line if it is not part of the text, or correct the label."
            )
        elif current and layout.labels.get(current, REFERENCE) != REFERENCE:
            fields[current].append(line)
        elif current != "" and line.strip():
            raise UserError(f"{path}, line {number}: expected one of {layout.expected()}, found {line!r:.60}.")
    if begin:
        raise UserError(f"{path}, line {begin}: the block that begins here is not closed; repair or remove it.")


def read_pairs(lines: Lines, found: Survey) -> Iterator[ForeignRow]:
    """Yield a sample per pair of lines (C2). Raises UserError if a pair lacks a label or has one twice."""
    if not found.pair():
        raise UserError(
            f"{lines.path}: --format=C2: expected as many lines of references (REF:) as of predictions (HYP:)."
        )
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
    """Yield a sample per word (layout E). Raises UserError for a line of another form."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        pair = WORD_PAIR.fullmatch(line)
        if pair is None:
            raise UserError(
                f"{lines.path}, line {number}: expected 'target word: ...<TAB>pred word: ...', found {line!r:.60}."
            )
        yield ForeignRow(number, pair[1], {(UNKNOWN, UNKNOWN): pair[2]})
