"""Read printed text with labels (`True sentence: ...`, of the dictionary or of `--labels`) as a table.

In `BLOCKS` a rule closes each sample; A2 is A with token ids. C2 has labels on one line or two, alone or in a log; E is
`target word: R<TAB>pred word: P`, one line per word.
"""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence

from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions._containers import FIRST_TWO, Table, unquoted, untagged
from eeg2text_jax.instrument.predictions._names import SIDES, Names, join_names, normalize
from eeg2text_jax.instrument.predictions._printed import (
    FEWEST,
    HEAD,
    MARKED,
    NUMBER,
    WHICH,
    Text,
    heading,
    recurring_heads,
    table_with,
    tables_among,
)
from eeg2text_jax.instrument.predictions._samples import parse_list
from eeg2text_jax.instrument.predictions.columns import NUMBERS

BLOCKS = {  # layout -> its labels and what closes a block
    "A": ({"target_string", "predicted_string_with_tf", "predicted_string"}, "#"),
    "A1": ({"target_string", "predicted_string"}, "#"),
    "B": ({"target_string", "predicted_string"}, "-"),
    "C": ({"predicted", "true"}, "end"),
    "C1": ({"predicted", "true"}, "="),
    "D": ({"target_sentence", "predicted_sentence"}, "#"),
}
LAYOUTS = (*BLOCKS, "A2", "C2", "E")
RULE = re.compile(r"([#\-=])\1{7,}\s*|(start|end)#{4,}\s*")
TOKENS = re.compile(r"(target|predicted|prediction|pred)[\w ]*\b(tokens?|ids)\b")
# What begins so is surely a label.
LABEL_WORDS = re.compile(
    r"(targets?|predicted|predictions?|preds?|true|truth|references?|ground truth|generated|decoded)\b"
)
WORD_PAIR = re.compile(r"target word: ?([^\t]*)\tpred word: ?([^\t]*)", re.IGNORECASE)
TOOLS = re.compile(r"(?:([TH])-(\d+)\t(?:-?[\d.]+(?:e-?\d+)?\t)?|([^\s-]\S*) +(ref|hyp)(?: |$))(.*)")  # fairseq, Kaldi
OF_SPEECHBRAIN = re.compile(r"(\S+), %WER .*\[.*\]")
COLON = re.compile(r"[:\uff1a](?!:|//)(?:=(?!=))?\**|\s=(?=\s)|=(?=[\['\"])|\s[-=]>|[<>](?=\s)")
BEFORE_COLON = re.compile(r"([A-Za-z][\w/.-]*(?:[ ]+[\w/.()-]+){0,3})\s*\**$")
# Words before a label in a log, beside times, brackets, numbers and marks.
BEFORE = {"info", "debug", "warning", "root", "sample", "samples", "example", "examples", "trial", "trials", "epoch"}
BEFORE |= {"epochs", "step", "batch", "idx", "id", "no", "utt"}
# Times, names of figures and marks that texts hardly have.
LOG_LINE = re.compile(
    r"\d:\d\d|\d{4}-\d\d|\b(?:epochs?|steps?|loss|batch|iter\w*|wer|cer|per|bleu|rouge|lr|acc\w*|val|train\w*|info|debug"
    r"|sav(?:ed?|ing)|load\w*|traceback)\b|[=|%]|\w\(|^\W*\[|^\s*`{3}|\d/\d|^[\s\d.,+-]+$|^\s*#|\b(?:sample|example)\b\W{0,3}\d",
    re.IGNORECASE,
)
Rows = list[dict[str, str]]
Pairs = tuple[Rows, list[int], list[str]]  # label -> text, number of the first line, notes


@dataclasses.dataclass(frozen=True)
class Label:
    """A label in a line: its normal name, as it is written, where it and its text begin."""

    name: str
    title: str
    start: int
    text: int


@dataclasses.dataclass
class Printed:
    """The lines of a text, their labels, and what these are."""

    path: epath.Path
    lines: list[str]
    marks: list[list[Label]]  # of each line, if the first stands at its begin or behind a prefix
    rules: list[str]  # what each line repeats ("#", "-", "="), "start" or "end", "" for other lines
    log: bool = False  # lines that are no samples are surely no texts
    reference: str = ""
    predictions: Sequence[str] = ()
    about: Sequence[str] = ()  # fields such as the subject
    closing: str = ""  # the rule below each sample

    @property
    def core(self) -> list[str]:
        return [self.reference, *self.predictions]

    @functools.cached_property
    def titles(self) -> dict[str, str]:
        """Label -> as it is written first."""
        return {label.name: label.title for labels in reversed(self.marks) for label in labels}

    def head(self, i: int) -> str:
        """Return the words before the first colon of a line in lower case."""
        mark = HEAD.match(self.lines[i])
        return mark[1].lower() if mark else ""

    def error(self, i: int, what: str) -> UserError:
        return UserError(f"{self.path}, line {i + 1}: {what}")

    def several(self, labels: Sequence[str]) -> UserError:
        said = f"several labels may be meant ({', '.join(map(repr, labels))})"
        return UserError(f"{self.path}: {said}; name two with --labels=TRUE,PREDICTED.")

    def unused(self, places: Sequence[int], what: str, example: Sequence[int] = ()) -> list[str]:
        """Return a note on lines that are not used, if any, with an example."""
        shown = [*example, *places][:1]
        return [f"{len(places)} {what}, such as line {i + 1}: {self.lines[i].strip()!r:.60}" for i in shown]


def labelled_table(
    printed: Text, names: Names, labels: Sequence[str] | None = None, wanted: Sequence[str] = ()
) -> Table | None:
    """Return the samples behind two `labels` or known names, or in a table; None without any."""
    if labels is None and any(WORD_PAIR.fullmatch(line) for line in printed.lines[:9]):
        return word_table(printed.path, printed.lines)
    tables = iter(()) if labels else tables_among(printed, names, wanted)  # looked for once, if needed
    table = None if labels else systems_of(printed) or tool_table(printed.path, printed.lines)
    table = table or (None if printed.kind else table_with(tables, names, wanted))
    table = table or (None if wanted else labelled_lines(printed, names, labels) or tutorial_lines(printed, names))
    return table or table_with(tables, names, wanted)  # in a notebook, such a table may be the head of a longer one


def labelled_lines(printed: Text, names: Names, labels: Sequence[str] | None) -> Table | None:
    """Return the samples behind labels."""
    path, lines = printed.path, [*printed.lines]
    find = finder(names) if labels is None else stated_finder(labels, lines)
    marks = [find(line) for line in lines]
    rows = [line[:1] == "|" and line.count("|") > 2 for line in lines]  # of tables, such as alignments word by word
    marks = [
        m if m and not row and (is_prefix(line[: m[0].start]) or (labels and len(m) > 1)) else []
        for m, row, line in zip(marks, rows, lines, strict=True)
    ]
    marks = marks if labels else without_figures(marks, lines)
    ruled = ((line[:1] in "#-=se" and line and RULE.fullmatch(line)) or None for line in lines)
    rules = [(rule[1] or rule[2]) if rule else "" for rule in ruled]
    text = Printed(path, lines, marks, rules, log=bool(printed.kind))
    on_one_line = choose(text, names, labels)
    if not text.reference:
        return None
    rows, numbers, notes = on_one(text) if on_one_line else blocks(text) if text.closing else pairs(text)
    if not rows:
        return None
    used = [*text.core, *(name for name in text.about if all(name in row for row in rows))]
    single, (rows, numbers) = len(rows), batches(rows, text.core, numbers)
    if len(rows) > single:
        notes.append(f"lists of one length on both sides are batches: {single} pairs of labels hold {len(rows)} texts")
    used_lines = {i for i, (m, line) in enumerate(zip(marks, lines, strict=True), 1) if m or not line}
    parts = printed.parts(numbers, used_lines, headed=not text.closing)
    if on_one_line and not parts:
        before = (lines[n - 1][: marks[n - 1][0].start].strip() for n in numbers)
        parts = appended([key if is_prefix(key) else "" for key in before])
    columns = [[row.get(name, "") for row in rows] for name in used]
    columns = [unquoted(column) if name in text.core else column for name, column in zip(used, columns, strict=True)]
    aligned = {*text.core} == {"ref", "hyp"}  # with more spaces between words
    cells = [[" ".join(c.split()) for c in row] if aligned else [*row] for row in zip(*columns, strict=True)]
    layout = next((name for name, block in BLOCKS.items() if block == ({*text.core}, text.closing)), "C2")
    layout = "A2" if layout == "A" and any(map(TOKENS.match, map(text.head, range(len(lines))))) else layout
    kind, heads = f"{printed.kind}labelled lines", [text.titles[name] for name in used]
    roles = FIRST_TWO if labels else None
    return Table(path, layout, kind, heads, cells, numbers, notes=tuple(notes), roles=roles, blocks=parts)


def appended(keys: Sequence[str]) -> list[str]:
    """Return the run of each line; a key before the labels, as of a file, that recurs begins a run."""
    runs: list[dict[str, None]] = [{}]
    numbers = []
    for key in keys:
        runs += [{}] if key in runs[-1] else []
        runs[-1][key] = None
        numbers.append(f"run {len(runs)}")
    return numbers if all(keys) and 1 < len(runs) <= len(keys) / 2 else []


def tutorial_lines(printed: Text, names: Names) -> Table | None:
    """Return the samples of lines with `>`, `=` and `<` in turn, as in a tutorial of PyTorch."""
    marks = "".join(mark[1] for line in printed.lines if (mark := re.match(r"([>=<])(?: |$)", line)))
    if len(marks) < 3 * FEWEST or marks != ">=<" * (len(marks) // 3):
        return None
    table = labelled_lines(printed, names, "=<")
    note = "lines of '>' are taken as sources, of '=' as targets, and of '<' as outputs"
    return table and dataclasses.replace(table, notes=(note, *table.notes))


def without_figures(marks: list[list[Label]], lines: Sequence[str]) -> list[list[Label]]:
    """Leave out labels that have numbers alone on all lines: these are figures."""
    texts: dict[tuple[str, ...], list[str]] = {}
    for labels, line in zip(marks, lines, strict=True):
        ends = [*(label.start for label in labels[1:]), None]
        of_line = texts.setdefault(tuple(label.name for label in labels), [])
        of_line += [line[label.text : end].strip(" ,;|") for label, end in zip(labels, ends, strict=False)]
    figures = {names for names, of in texts.items() if of and all(map(NUMBERS.fullmatch, of))}
    return [[] if tuple(label.name for label in labels) in figures else labels for labels in marks]


def batches(rows: Rows, core: Sequence[str], numbers: Sequence[int]) -> tuple[Rows, list[int]]:
    """Return a row for each text of lists of one length on both sides, as of batches."""
    out: list[tuple[dict[str, str], int]] = []
    for row, number in zip(rows, numbers, strict=True):
        lists = [parse_list(row[name]) or [] for name in core]
        several = len({*map(len, lists)}) == 1 and any(" " in str(text) for text in lists[0][1:])
        texts = [*zip(*lists, strict=True)] if several else [[row[name] for name in core]]
        out += [({**row, **dict(zip(core, map(str, one), strict=True))}, number) for one in texts]
    return [row for row, _ in out], [number for _, number in out]


def is_prefix(text: str) -> bool:
    """Return whether a text may stand before a label.

    Its parts have brackets, words with digits, marks and words of `BEFORE`; each but the last may be any single word,
    such as the name of a logger.
    """
    *names, last = re.split(r"\s[-|]\s|\t|:(?=\S|$)", re.sub(r"\[[^\]]*\]", " ", text)) if len(text) < 200 else [text]
    words = [word for part in names if len(part.split()) > 1 for word in part.split()]
    return all(
        re.search(r"\d", word) or not re.search(r"[^\W_]", word) or re.sub(r"\W", "", word).lower() in BEFORE
        for word in [*words, *last.replace(":", " ").split()]
    )


def word_table(path: epath.Path, lines: Sequence[str]) -> Table:
    """Return a row per word (layout E). Raises UserError for a line of another form."""
    rows = {number: WORD_PAIR.fullmatch(line) for number, line in enumerate(lines, 1) if line.strip()}
    if number := next((number for number, pair in rows.items() if pair is None), 0):
        what = f"expected 'target word: ...<TAB>pred word: ...', found {lines[number - 1]!r:.60}."
        raise UserError(f"{path}, line {number}: {what}")
    cells = [pair.groups() for pair in rows.values()]
    return Table(path, "E", "one line per word", ["target word", "pred word"], cells, [*rows], roles=FIRST_TWO)


def tool_table(path: epath.Path, lines: Sequence[str]) -> Table | None:
    """Return pairs of fairseq (`T-ID<TAB>R`, `H-ID<TAB>SCORE<TAB>P`), Kaldi (`ID ref R`, `ID hyp P`) or SpeechBrain.

    SpeechBrain prints below `ID, %WER ...` the reference's words, a line of marks, the prediction's words.
    """
    sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    first: dict[str, int] = {}
    for number, found in enumerate(map(TOOLS.fullmatch, lines), 1):
        if found:  # of several hypotheses, the first is the best
            letter, key, coded, word, text = found.groups()
            sides[(letter or word) in ("H", "hyp")].setdefault(key or coded, text if letter else " ".join(text.split()))
            first.setdefault(key or coded, number)
    for i, found in enumerate(map(OF_SPEECHBRAIN.fullmatch, lines[:-3])):
        if found:
            for side, line in zip(sides, (lines[i + 1], lines[i + 3]), strict=True):
                side[found[1]] = " ".join(word for word in map(str.strip, line.split(" ; ")) if word != "<eps>")
            first[found[1]] = i + 1
    if not first or sides[0].keys() != sides[1].keys():
        return None
    kind, heads = "lines of fairseq, Kaldi or SpeechBrain, the first hypothesis each", ["reference", "hypothesis"]
    rows = [[side[key] for side in sides] for key in first]
    return Table(path, "C2", kind, heads, rows, [*first.values()], roles=FIRST_TWO)


def systems_of(printed: Text) -> Table | None:
    """Return the segments of references and systems of WMT (XML); None for other texts."""
    if not any("<hyp" in line for line in printed.lines):
        return None
    sides: dict[str, dict[str, dict[tuple[int, str], str]]] = {"ref": {}, "hyp": {}}
    for number, doc in enumerate(re.split(r"<doc\b", "\n".join(printed.lines))):
        for kind, about, body in re.findall(r"(?s)<(ref|hyp)\b([^>]*)>(.*?)</\1>", doc):
            named = re.search(r"(?:system|translator)=[\"']([^\"']*)", about)
            of = sides[kind].setdefault(named[1] if named else kind, {})
            for key, text in re.findall(r"(?s)<seg\b[^>]*\bid=[\"']([^\"']*)[^>]*>(.*?)</seg>", body):
                of[number, key] = untagged(text)
    true = next(iter(sides["ref"].values()), {})
    rows = [(name, true[key], text) for name, of in sides["hyp"].items() for key, text in of.items() if key in true]
    if not rows:
        return None
    lost = sum(map(len, sides["hyp"].values())) - len(rows)
    notes = [f"the first of {len(sides['ref'])} references counts"] * (len(sides["ref"]) > 1)
    notes += [f"{lost} segments without a reference are not used"] * bool(lost)
    cells, blocks = [row[1:] for row in rows], [name for name, *_ in rows] if len(sides["hyp"]) > 1 else ()
    table = Table(printed.path, "C2", "segments of WMT", ["reference", "hypothesis"], cells, unit="segment")
    return dataclasses.replace(table, notes=(*notes,), roles=FIRST_TWO, blocks=blocks)


def finder(names: Names) -> Callable[[str], list[Label]]:
    """Return a function that finds the longest known name before each colon of a line."""

    @functools.cache
    def is_known(name: str) -> bool:
        return names.is_text(name) or name in names.fields or bool(names.condition(names.split_mode(name)[0]))

    def find(line: str) -> list[Label]:
        labels: list[Label] = []
        if not COLON.search(line):
            return labels
        for colon in COLON.finditer(line):
            begin = max(labels[-1].text if labels else 0, colon.start() - 80)
            tail = BEFORE_COLON.search(line, begin, colon.start())
            for word in re.finditer(r"\S+", tail[1]) if tail else ():
                title = tail[1][word.start() :]
                if is_known(normalize(title)):
                    labels.append(Label(normalize(title), title, tail.start(1) + word.start(), colon.end()))
                    break
        return labels

    return find


def stated_finder(labels: Sequence[str], lines: Sequence[str]) -> Callable[[str], list[Label]]:
    """Return a function that finds the labels of `--labels`, with or without a colon.

    A number between label and colon (`Truth 0: ...`), or in a label of one line only, is of the sample.
    """
    names = [normalize(label.strip(" :")) for label in labels]
    if len({*names}) != 2 or len(labels) != 2:
        raise UserError(f"--labels={','.join(labels)}: expected two labels, of references and of predictions.")
    words = [[*map(re.escape, label.strip(" :").split())] for label in labels]
    forms = [r"\s+".join(of) for of in words]
    for i, of in enumerate(words):
        if sum(bool(re.search(rf"(?<!\w){forms[i]}(?!\w)", line, re.IGNORECASE)) for line in lines) < FEWEST:
            forms[i] = r"\s+".join(NUMBER.sub(r"\\d+", word) for word in of)
    either = "|".join(f"({form})" for form in forms)
    # No names of columns, as of pandas, and no begin of a longer label (`PRED SCORE:`).
    bare = rf"(?!\s*(?:[\\|]|(?:{'|'.join(forms)})(?!\w)|\w+(?: \w+)?\s*:))"
    number, mark = r"(?:\s*#?\d+(?=\s*[:\uff1a]))?\s*", r"(?:[:=\uff1a<>]|->|=>)+|-(?=\s)"
    pattern = re.compile(
        rf"(?<!\w)(?:{either})(?:(?!\w){number}(?:{mark})|(?<=[\])\u3011])|[\])\u3011]|(?!\w){number}{bare})\s*",
        re.IGNORECASE,
    )
    return lambda line: [
        Label(names[m[1] is None], labels[m[1] is None].strip(" :"), m.start(), m.end()) for m in pattern.finditer(line)
    ]


def choose(text: Printed, names: Names, labels: Sequence[str] | None) -> bool:
    """Set the labels of `text`, if any, and its closing rule; return whether both are on one line."""

    def side(name: str) -> str:
        if labels:
            return "reference" if name == normalize(labels[0].strip(" :")) else "prediction"
        base = names.split_mode(name)[0]
        if names.form("prediction", base) or names.condition(base):
            return "prediction"
        return "reference" if names.form("reference", name) else "maybe" if name in names.maybe else ""

    sided = [[label.name for label in marks if side(label.name)] for marks in text.marks]
    first = Counter(marks[0].name for marks in text.marks if marks)
    begins, both = Counter(of[0] for of in sided if of), Counter((of[0], of[1]) for of in sided if len(of) > 1)
    enough = 1 if labels else FEWEST
    for (left, right), count in both.most_common(1):
        one_line = {side(left), side(right)} in ({"reference", "prediction"}, {"maybe", "prediction"})
        if one_line and 10 * count >= 9 * begins[left] and 10 * begins[right] <= count and count >= enough:
            text.reference, *text.predictions = (right, left) if side(left) == "prediction" else (left, right)
            return True
    by_side = {of: {n: times for n, times in first.items() if side(n) == of} for of in (*SIDES, "maybe")}
    references, predicted = by_side["reference"] or by_side["maybe"], by_side["prediction"]
    if not references or not predicted:
        return False
    reference, count = max(references.items(), key=lambda item: (item[1] in predicted.values(), item[1]))
    rules = Counter(filter(None, text.rules))
    closing, closed = max(rules.items(), key=lambda item: (item[1], item[0] == "end"), default=("", 0))
    closing = "end" if closing == "start" else closing
    most = max(count, *predicted.values())
    alike = [name for name, n in predicted.items() if 2 * n >= closed]
    if ({reference, *alike}, closing) in BLOCKS.values() and most <= 2 * closed <= 3 * most + 2:
        text.closing = closing
    else:
        alike = [name for name, n in predicted.items() if n == count]
        alike = alike or [min(predicted, key=lambda name: abs(predicted[name] - count))]
        if count < enough and 4 * count < sum(bool(line.strip()) for line in text.lines):
            return False
    equal = [name for name, n in references.items() if n == count]
    meant = {names.split_mode(name)[1] + names.condition(names.split_mode(name)[0]) for name in alike}
    if len(equal) > 1 or len(meant) < len(alike):
        raise text.several(equal if len(equal) > 1 else alike)
    text.reference, text.predictions = reference, alike
    text.about = [n for n, times in first.items() if n in names.fields and times == count and n not in text.core]
    return False


def other_heads(text: Printed) -> tuple[set[str], list[str]]:
    """Return labels of no use, and notes on these and on doubtful ones.

    Words before a colon are a label if they match `TOKENS`, if nine of ten blocks have them with a value, or half of
    the blocks if they begin with `LABEL_WORDS`. Other words are part of a prediction.
    """
    count = sum(bool(marks) and marks[0].name == text.reference for marks in text.marks)
    used = {*text.core, *text.about}
    places = [i for i, marks in enumerate(text.marks) if not text.rules[i] and not (marks and marks[0].name in used)]
    heads = Counter(filter(None, map(text.head, places)))
    valued = Counter(text.head(i) for i in places if text.lines[i].partition(":")[2].strip())
    unused, doubtful = {}, []
    for head, n in heads.items():
        certain = 2 * n >= count if LABEL_WORDS.match(head) else 10 * valued[head] >= 9 * count
        if TOKENS.match(head) or (n >= 3 and certain):
            unused[head] = f"{n} lines '{head}:' are of no known label; they and the lines below are not used"
        elif n >= max(3, 0.01 * count):
            doubtful.append(f"'{head}:' ({n})")
    said = f"lines that look like labels were read as text of predictions: {', '.join(doubtful[:5])}"
    return {*unused}, [*unused.values(), *[said][: len(doubtful)]]


def blocks(text: Printed) -> Pairs:
    """Return the samples that a rule closes; a prediction may span lines."""
    unused, notes = other_heads(text)
    used, closing = (*text.core, *text.about), ("start", "end") if text.closing == "end" else (text.closing,)
    expected = ", ".join(f"'{text.titles[name].lower()}:'" for name in text.core)
    rows: Rows = []
    numbers: list[int] = []
    strays: list[int] = []
    fields: dict[str, list[str]] = {}
    current, begin = "", 0
    for i, line in enumerate(text.lines):
        label, head = (text.marks[i] or [None])[0], text.head(i)
        if text.rules[i] in closing:
            if missing := [name for name in used if fields and name not in fields]:
                what = f"this block has no '{text.titles[missing[0]].lower()}:'; repair the block."
                raise text.error(begin, what)
            if fields:
                rows.append({name: "\n".join(parts).rstrip("\n") for name, parts in fields.items()})
                numbers.append(begin + 1)
            elif rows and len(closing) == 1:
                raise text.error(i, f"the block closed here has no {expected}; repair it.")
            fields, current = {}, ""
        elif label and label.name in used and not line[: label.start].strip():
            current, begin = label.name, begin if fields else i
            if current in fields:
                what = f"a second '{text.titles[current].lower()}:' in the block of line {begin + 1}"
                raise text.error(i, f"{what}; restore the missing or damaged line between two blocks.")
            fields[current] = [line[label.text :].removeprefix(" ")]
        elif head in unused:
            current = "?"  # lines below are of a label that is not used
        elif head and LABEL_WORDS.match(head):
            what = f"the label '{head}:' is not in every block; expected {expected}"
            raise text.error(i, f"{what}; remove the line if it is not part of the text, or correct the label.")
        elif current in text.predictions:
            fields[current].append(line)
        elif not current and line.strip() and LOG_LINE.search(line):
            strays.append(i)
        elif current != "?" and line.strip():
            raise text.error(i, f"expected one of {expected}, found {line!r:.60}.")
    if fields:
        raise text.error(begin, "the block that begins here is not closed; repair or remove it.")
    return rows, numbers, [*notes, *text.unused(strays, "other lines are not used")]


def pairs(text: Printed) -> Pairs:
    """Return the samples with a label on each line; each begins with the first label of the file."""
    with_texts_below(text)
    order = [marks[0].name for marks in text.marks if marks and marks[0].name in (*text.core, *text.about)]
    used = {*text.core, *(text.about if order[0] in text.about else ())}
    strays = [i for i, marks in enumerate(text.marks) if not marks and text.lines[i].strip() and not text.rules[i]]
    begins = {i: mark[1] or mark[2] or mark[3] for i in strays if (mark := MARKED.match(text.lines[i].strip()))}
    heads = {head for head, n in Counter(begins.values()).items() if 2 * n * len(text.core) >= len(order)}
    # Of `fMRI pred:` and `Dinov2 pred:`, one is a known name behind a possible prefix.
    for name in text.core:
        if alike := [head for head in heads if normalize(head).endswith(f"_{name}")]:
            i = next(i for i, marks in enumerate(text.marks) if marks and marks[0].name == name)
            raise text.several([text.lines[i][: text.marks[i][0].text].strip(" :"), *alike])
    strays = [i for i in strays if begins.get(i) not in heads]
    log = text.log or any(LOG_LINE.search(text.lines[i]) for i in strays)
    below = [i for i in strays if i and text.marks[i - 1] and not LOG_LINE.search(text.lines[i])]  # may go on there
    if strange := [i for i in below if not (log or heading(text.lines, i))]:
        what = f"expected a line {' or '.join(map(repr, text.core))} with a colon, found {text.lines[strange[0]]!r:.60}"
        raise text.error(strange[0], f"{what}; write each text on one line.")
    rows, numbers, lost = [], [], []
    row: dict[str, str] = {}
    begin = 0
    for i, marks in enumerate(text.marks):
        if not marks or (name := marks[0].name) not in used:
            continue
        if name in row or (not row and name != order[0]):
            lost.append(begin if row else i)
            row = {}
            if name != order[0]:
                continue
        begin = begin if row else i
        row[name] = text.lines[i][marks[0].text :].strip()
        if used == row.keys():
            rows.append(row)
            numbers.append(begin + 1)
            row = {}
    lost += [begin] if row else []
    if len(lost) > len(rows) or (row and not log):  # of an odd last one, any may lack its partner
        at = begin if row else lost[0]
        heads = join_names([*map(repr, recurring_heads(text.lines)[1])], 5)
        how = f"repair the pairs, or name two labels ({heads}) with --labels=TRUE,PREDICTED{WHICH * text.log}"
        raise text.error(at, f"{text.lines[at].strip()!r:.60} has no partner; {how}.")
    said = f", {len(below)} of them directly below a text, which may go on there" * bool(below)
    notes = text.unused(strays, f"other lines are not used{said}", below)
    return rows, numbers, [*notes, *text.unused(lost, "labels without a partner are not used")]


def with_texts_below(text: Printed) -> None:
    """Move texts below their labels to these lines, if all references stand so."""
    places = {i: marks[0] for i, marks in enumerate(text.marks) if marks and marks[0].name in text.core}
    bare = [i for i, label in places.items() if not text.lines[i][label.text :].strip()]
    if any(label.name == text.reference and i not in bare for i, label in places.items()):
        return
    for i in bare:
        below = next((k for k in range(i + 1, len(text.lines)) if text.lines[k].strip()), None)
        if below is not None and not text.marks[below]:
            text.lines[i], text.lines[below] = text.lines[i] + text.lines[below].strip(), ""


def on_one(text: Printed) -> Pairs:
    """Return the samples with both labels on one line.

    Left out are a ruler behind them, one mark between all of them, and what follows this mark again: other fields.
    """
    rows, places = [], []
    for i, marks in enumerate(text.marks):
        ends = [*(label.start for label in marks[1:]), None]
        row: dict[str, str] = {}
        for label, end in zip(marks, ends, strict=False):
            if label.name in text.core and label.name not in row:
                whole = text.lines[i][label.text : end].strip()
                bare = whole.rstrip("=-#*_")
                row[label.name] = (bare if len(whole) - len(bare) > 2 else whole).strip()
        if len(row) == len(text.core):
            rows.append(row)
            places.append(i)
    twice = [i for i in places if sum(mark.name in text.core for mark in text.marks[i]) > len(text.core)]
    if 2 * len(twice) > len(places):  # `A pred: ... B pred: ...`
        said = f"each line has a label several times, such as {text.lines[twice[0]].strip()!r:.160}"
        raise text.error(twice[0], f"{said}; name two with --labels=TRUE,PREDICTED.")
    left, right = rows[0]
    for mark in ("->", "<", "**", "|", ";", ",", "/"):
        if all(next(iter(row)) == left and row[left].endswith(mark) for row in rows):
            more = mark in "|;" and all(f" {mark} " in row[right] for row in rows)
            for row in rows:
                row[left] = row[left].removesuffix(mark).rstrip()
                row[right] = row[right].partition(f" {mark} ")[0] if more else row[right]
    lost = [i for i in sorted({*range(len(text.lines))} - {*places}) if text.lines[i].strip() and not text.rules[i]]
    return rows, [i + 1 for i in places], text.unused(lost, "other lines are not used")
