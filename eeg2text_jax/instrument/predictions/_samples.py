"""Make predictions of a table whose columns are known; what it does not state is "unknown"."""

import contextlib
import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from eeg2text_jax.base.errors import UserError, count_of
from eeg2text_jax.data.clock import parse_time
from eeg2text_jax.instrument.predictions._containers import ABSENT, Columns, FirstText, Table, literal
from eeg2text_jax.instrument.predictions._names import built_in, normalize, normalize_names
from eeg2text_jax.instrument.predictions.file import (
    MODES,
    UNKNOWN,
    Prediction,
    Shared,
    characters_apart,
    mode_name,
    refuse_surrogates,
    row_key,
    sentence_key,
)

FIRST_OF_SEVERAL = "hold several texts; the first of them counts"
SEVERAL = "a row holds several samples; write one sample per row"
JOINED = "are lists of tokens; they are joined by spaces"
SAMPLED = 200  # rows whose texts tell phonemes from words
# Marks that are no words, and a note on them.
BAR = re.compile(r"\|"), "'|' stands between the phonemes of words; it is no phoneme and is left out"
PADDING = re.compile(r"\*+"), "asterisks alone ('***') stand for words of the other text; they are left out"
ALONE = re.compile(r"(?<!\S)\*\*+(?!\S)")
SEPARATORS = ("<>", "||", " | ")  # between several references in a cell
FEWEST_WITH_MARKS = 4  # rows; fewer may have them by chance
EEG_NAMES = {"real_eeg": "eeg", "real": "eeg", "true_eeg": "eeg", "shuffled_eeg": "shuffled", "noise_eeg": "noise"}
CONTROLS = ("noise", "random", "random_noise", "gaussian_noise", "shuffled", "random_eeg", "zero", "zero_eeg", "zeros")
RECORDINGS = {"meg", "fmri", "ecog", "seeg", "ieeg", "fnirs", "nirs", "emg", "lfp"}  # other than EEG
MOST_CONDITIONS = 12  # a column with more values is not read as conditions
MISSING = {"", "nan", "none", "null", "n/a", "na", UNKNOWN}
YES, NO = {"true", "1", "1.0", "yes", "y", "t"}, {"false", "0", "0.0", "no", "n", "f"}
Changed = dict[str, set[int]]  # note on converted texts -> rows


def parse_list(cell: str) -> list | None:
    """Return the list that a cell holds in JSON, Python or NumPy; None if it holds text."""
    text = cell.strip()
    if not (text[:1] == "[" and text[-1:] == "]") or text[1:-1].strip().isdecimal():  # "[4]" marks a footnote
        return None
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    # NumPy prints no commas; Python would join the strings.
    items = literal(re.sub(r"(?<=['\"])\s+(?=b?['\"])", ", ", text))
    return items and [item.decode("utf8", "replace") if isinstance(item, bytes) else item for item in items]


def candidate_text(item: Any) -> Any:
    """Return a candidate's text, perhaps of an object with a score; None without one text."""
    if not isinstance(item, dict):
        return item
    usual = [item[name] for name in ("text", "sentence", "hypothesis", "caption") if isinstance(item.get(name), str)]
    texts = usual[:1] or [value for value in item.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else None


def text_of(value: Any, what: str, where: str) -> tuple[str, str]:
    """Return a cell as one text, and a note on its conversion.

    Texts without spaces are tokens and are joined. Of others (references, hypotheses of a beam) the first counts: the
    audit compares scores against one text of a sentence.
    """
    if isinstance(value, FirstText):
        return str(value), FIRST_OF_SEVERAL
    items = parse_list(value) if isinstance(value, str) else value if isinstance(value, list) else None
    if items is None and isinstance(value, str):
        return value, ""
    texts = [*map(candidate_text, items or ())]
    if items is None or not all(isinstance(text, str) for text in texts):
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        if items and sum(isinstance(item, list) for item in items) > 1:
            raise UserError(f"{where}: the {what} is the list of lists {shown:.60}; {SEVERAL}.")
        raise UserError(f"{where}: the {what} is {shown:.60}; expected a text or a list of texts.")
    spaced = any(" " in text.strip() for text in texts)
    if len(texts) < 2 or (spaced and len({*map(str.strip, texts)}) < 2):
        return texts[0] if texts else "", ""
    return (texts[0], FIRST_OF_SEVERAL) if spaced else (" ".join(texts), JOINED)


def texts(table: Table, index: int, side: str, changed: Changed, rows: Sequence[int] | None = None) -> list[str]:
    """Return the texts of a column, or of some rows."""
    whole, column = table.layout in ("P", "K"), []  # a line in brackets is a text
    place = f"{table.path}, {table.unit}"  # of a bucket, this takes time
    what = f"{side} {table.shown(index)}"
    for row in range(len(table.rows)) if rows is None else rows:
        text, how = table.rows[row][index], ""
        if not (whole and isinstance(text, str)):
            where = f"{place} {table.numbers[row]}" + (f", id {table.rows[row][0]!r:.60}" if table.coded else "")
            text, how = text_of(text, what, where)
            refuse_surrogates(text, f"{where}: {table.shown(index)}")
        if how:
            changed.setdefault(f"{side}s {how}", set()).add(row)
        column.append(text)
    return column


def conversions(changed: Changed) -> list[str]:
    return [f"in {count_of(len(rows), 'row')} {note}" for note, rows in changed.items()]


def is_spelled(cells: Sequence[Any]) -> bool:
    """Return whether texts are phonemes or letters: nearly all parts between spaces are short."""
    texts = (" ".join(map(str, c)) if isinstance(c, list) else str(c) for c in cells[:SAMPLED])
    texts = [unicodedata.normalize("NFD", text) for text in texts]  # a syllable of Hangul has several letters
    parts = [re.sub(r"[\d\W]", "", part) for text in texts for part in text.split()]
    return len(parts) >= 8 * min(len(texts), 3) and 10 * sum(len(part) <= 2 for part in parts) >= 9 * len(parts)


def padded(one: str, other: str) -> bool:
    """Return whether two texts have as many words, and asterisks only where the other has a word."""
    pairs = [*zip(one.split(), other.split(), strict=False)]
    alone = [(a.strip("*"), b.strip("*")) for a, b in pairs]
    return len(one.split()) == len(other.split()) and all(map(any, alone))


def without_marks(references: list[str], outputs: Sequence[list[str]], changed: Changed) -> None:
    """Leave out marks that are no words, and all references of a cell but the first.

    Asterisks are padding if they are so in each row that has some.
    """
    sides, spelled = [references, *outputs], is_spelled(references)
    rows = [row for side in sides for row, text in enumerate(side) if "**" in text and ALONE.search(text)]
    aligned = bool(rows) and all(padded(references[row], output[row]) for output in outputs for row in rows)
    for mark, note in [BAR] * all(map(is_spelled, sides)) + [PADDING] * aligned:
        for side in sides:
            for row, words in enumerate(map(str.split, side)):
                kept = [word for word in words if not mark.fullmatch(word)]
                side[row] = " ".join(kept)
                if len(kept) < len(words):
                    changed.setdefault(note, set()).add(row)
    for mark in () if spelled else SEPARATORS:
        held = [row for row, text in enumerate(references) if mark in text]
        spoken = sum(mark in text for side in outputs for text in side)
        least = 0.5 * len(references) if mark == "<>" else max(FEWEST_WITH_MARKS, 0.9 * len(references))
        if held and len(held) >= least and 20 * spoken <= len(references) * len(outputs):
            for row in held:
                references[row] = next(filter(None, map(str.strip, references[row].split(mark))), "")
            changed.setdefault(f"references {FIRST_OF_SEVERAL}", set()).update(held)


def values_of(table: Table, places: Sequence[int]) -> list[str]:
    """Return the values of a field, those of several columns joined by `/` without missing ones; [] without columns."""
    columns = [["" if c is None or c is ABSENT else str(c) for c in table.column(i)] for i in places]
    rows = zip(*columns, strict=True)
    return ["/".join(c for c in row if c.strip().lower() not in MISSING) or row[0] for row in rows]


def stated(table: Table, about: Mapping[str, Sequence[int]]) -> dict[str, list[str]]:
    """Return field -> its values."""
    return {name: values_of(table, places) for name, places in about.items()}


def condition_name(value: str) -> str:
    """Return our name of a condition, "eeg" for "Real EEG", or the value in the form of `normalize`."""
    word = normalize(value)
    return EEG_NAMES.get(word, word)


def fed_word(value: str) -> str:
    """Return the condition if a value surely names EEG or a control, else ""."""
    word = condition_name(value) if len(value) < 20 else ""
    return word if word == "eeg" or word in CONTROLS else ""


def conditions_of(table: Table, columns: Columns) -> tuple[list[str], bool]:
    """Return what a column such as `input` says was fed, and whether these are a few, EEG among them."""
    if columns.named or "condition" not in columns.about:
        return [], False
    fed = [*map(condition_name, values_of(table, columns.about["condition"]))]
    few = 2 <= len({*fed}) <= min(MOST_CONDITIONS, len(fed) * len(columns.predictions) // 2)
    return fed, few and "eeg" in fed and "" not in fed


def refuse_rows(table: Table, columns: Columns) -> None:
    """Raise UserError for an object that lacks a column or a header among the rows."""
    for index in sorted(columns.used()):
        if ABSENT in table.column(index):
            said = f"has no {table.titles[index]!r}, but the first {table.unit} has it"
            row = table.column(index).index(ABSENT)
            raise table.error(f"{said}; add the name, or remove the {table.unit}", row)
    places = [columns.reference, *columns.predictions.values()]
    head = [table.names[i] for i in places] if table.names else []
    for i, row in enumerate(table.rows if table.layout in ("F", "H") else ()):
        cells = normalize_names(row[k] for k in places) if len(str(row[places[0]])) < 60 else []
        if cells and (cells == head or (not head and len({*filter(built_in().is_usual, cells)}) > 1)):
            shown = ", ".join(str(row[k]) for k in places)
            said = f"{shown!r:.80} is a header among the samples, as if two files were joined"
            raise table.error(f"{said}; give each file to the command separately, with its header first", i)


def predictions_of(table: Table, columns: Columns, changed: Changed) -> list[Prediction]:
    """Return a prediction for each predicted text of each row; a missing value is "unknown", a seed 0."""
    refuse_rows(table, columns)
    references = texts(table, columns.reference, "reference", changed)
    outputs = {key: texts(table, index, "prediction", changed) for key, index in columns.predictions.items()}
    without_marks(references, [*outputs.values()], changed)
    fed, counts = conditions_of(table, columns)
    if (other := RECORDINGS & {*fed}) and "eeg" in fed:
        said = f"the column of conditions holds eeg and {', '.join(sorted(other))}, which is another recording"
        how = "give the rows of one recording, or name what was fed in a column eval_condition"
        raise table.error(f"{said} and no control; {how}")
    values, shared = stated(table, columns.about), Shared()
    place = f"{table.path}, {table.unit}"  # of a bucket, this takes time
    sentences: dict[str, tuple[str, int]] = {}  # distinct reference -> sentence id, number of words
    predictions: list[Prediction] = []
    seen: dict[Any, int] = {}
    for row, reference in enumerate(map(shared.text, references)):
        if reference not in sentences:
            digest = hashlib.sha256(sentence_key(reference).encode()).hexdigest()
            sentences[reference] = f"text-{digest[:12]}", len(characters_apart(reference).split())
        about, where = {name: column[row] for name, column in values.items()}, f"{place} {table.numbers[row]}"
        fields = fields_of(about, row, where, sentences[reference], shared)
        for (condition, mode), column in outputs.items():
            condition = shared.text(about.get("eval_condition", fed[row] if counts else condition))
            mode = mode_of(about, mode, where)
            prediction = Prediction(
                **fields, eval_condition=condition, mode=mode, reference=reference, prediction=column[row]
            )
            key = (*row_key(prediction), fed[row] if fed else "") if "sample_id" in about else row
            if (first := seen.setdefault(key, row)) != row:
                said = f"sample {prediction.sample_id!r} is on {table.unit} {table.numbers[first]} already"
                raise table.error(f"{said}; expected it once with these conditions, seed and mode; remove one", row)
            predictions.append(prediction)
    return predictions


def fields_of(
    about: Mapping[str, str], row: int, where: str, sentence: tuple[str, int], shared: Shared
) -> dict[str, Any]:
    """Return the fields that predictions of a row have in common, but the reference."""
    seed = about.get("seed", "0")
    if not (seed.isascii() and seed.isdigit() and len(seed) < 19):
        raise UserError(f"{where}: seed is {seed!r:.40}; expected a whole number.")
    subject, task = (
        UNKNOWN if about.get(name, "").strip().lower() in MISSING else shared.text(about[name].strip())
        for name in ("subject", "task")
    )
    timed = "onset" in about or "order" in about
    return {
        "sample_id": about.get("sample_id", f"row-{row + 1}"),
        "subject": subject,
        "task": task,
        "sentence_id": shared.text(about.get("sentence_id", sentence[0])),
        "n_words": sentence[1],
        "train_condition": shared.text(about.get("train_condition", UNKNOWN)),
        "seed": int(seed),
        **(parse_time(about, where, default=f"{subject}/{task}") if timed else {}),
    }


def mode_of(about: Mapping[str, str], mode: str, where: str) -> str:
    """Return the mode that a row's fields or else `mode` state, or "unknown". Raises UserError for another mode."""
    stated = mode_name(about.get("mode", mode)) or UNKNOWN
    if stated not in (*MODES, UNKNOWN):
        raise UserError(f"{where}: mode is {stated!r:.40}; expected one of {', '.join(MODES)}.")
    if stated == UNKNOWN and "decoding" in about:  # which may name a search instead
        stated = mode_name(about["decoding"])
    if stated not in MODES and "forced" in about:
        forced = about["forced"].strip().lower()
        stated = "teacher_forced" if forced in YES else "free_running" if forced in NO else mode_name(forced)
    return stated if stated in MODES else UNKNOWN
