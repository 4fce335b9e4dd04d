"""The predictions file: written by `decode`, read by `score` and `audit`.

JSON lines. The first line is a header (`{"header": {...}}`: config hash, split hash, tokenizer, decode settings),
every other line one prediction of one sample in one cell and mode.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import replacing
from eeg2text_jax.predictions.interning import Shared
from eeg2text_jax.predictions.packed import as_text, conversion
from eeg2text_jax.predictions.span import parse_span

MODES = ("teacher_forced", "free_running")
OWN_NAMES = ("sample_id", "sentence_id", "train_condition", "eval_condition", "mode")  # no other layout has these
HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One decoded sample.

    `reference_tokens` and `prediction_tokens` are the model's token ids without special tokens, or None where a
    file carries strings only. `nll` is the summed negative log-likelihood of the reference in nats over `n_tokens`
    tokens (teacher-forced rows only). `hypothesis` numbers several texts of one sample
    (`decode.num_return_sequences`), best first, from 0. `recording`, `onset`, `duration` (seconds) and `order` say when
    the sample was recorded, if known. `donor` is the `sentence_id` of the sentence whose recording replaced
    the own one under `shuffled`. `story_time` is the start and end, in seconds of the stimulus, of a window of a scan.
    """

    sample_id: str
    subject: str
    task: str
    sentence_id: str
    n_words: int
    train_condition: str
    eval_condition: str
    seed: int
    mode: str
    reference: str
    prediction: str
    reference_tokens: Sequence[int] | None = None
    prediction_tokens: Sequence[int] | None = None
    nll: float | None = None
    n_tokens: int | None = None
    hypothesis: int | None = None
    recording: str | None = None
    onset: float | None = None
    duration: float | None = None
    order: int | None = None
    donor: str | None = None
    story_time: Sequence[float] | None = None


def write_predictions(path: str | os.PathLike[str], header: dict[str, Any], predictions: Iterable[Prediction]) -> None:
    """Writes a predictions file; it is whole or not there."""
    with replacing(path) as partial, partial.open("w", encoding="utf8") as file:
        print(json.dumps({"header": header}, sort_keys=True, ensure_ascii=False), file=file)
        for prediction in predictions:
            row = {name: value for name, value in vars(prediction).items() if value is not None}
            print(json.dumps(row, ensure_ascii=False), file=file)


@dataclasses.dataclass(frozen=True)
class PredictionSet:
    """The rows of one predictions file.

    `predictions` has the first hypothesis of every sample, which is scored and audited; `further` the others. `notes`
    say what a reader of its figures must know. `groups` are the columns asked for: by `sentence_key` of a reference,
    how often it has each label. `digest` is the SHA-256 of the bytes; where seeds are not stated, they are 0.
    """

    predictions: list[Prediction]
    header: dict[str, Any]
    layout: str
    path: epath.Path
    notes: tuple[str, ...] = ()
    further: tuple[Prediction, ...] = ()
    groups: dict[str, dict[str, Counter]] = dataclasses.field(default_factory=dict)
    digest: str = ""
    seeds_stated: bool = True


def read_predictions(path: str | os.PathLike[str]) -> PredictionSet:
    """Reads the file that `write_predictions` wrote.

    Raises:
      UserError: the file cannot be read, a line is not a JSON object, a field is missing, unknown or of the wrong
        type, two lines hold the same hypothesis of a sample, cell and mode, or a sample's first hypothesis is missing.
    """
    return parse_predictions(Lines(path))


def is_own(lines: "Lines") -> bool:
    """Whether a file is in our own format: two JSON lines or more, first a header or a row with most of our names.

    Raises:
      UserError: the first of lines that look like JSON cannot be read as such.
    """
    first, filled, braces = (0, ""), 0, 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            first = first if filled else (number, line)
            filled += 1
            braces += line.startswith("{")
    number, line = first
    if filled < 2 or 2 * braces < filled or not line.lstrip().startswith("{"):
        return False
    row = parse_object(line, lines.path, number)
    return set(row) == {"header"} or 2 * sum(name in row for name in OWN_NAMES) > len(OWN_NAMES)


def parse_predictions(lines: "Lines") -> PredictionSet:
    """The rows of a file in our own format; see `read_predictions`."""
    path = lines.path
    header: dict[str, Any] = {}
    predictions: list[Prediction] = []
    further: list[Prediction] = []
    first_line: dict[tuple, dict[str, int]] = {}
    shared = Shared()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = parse_object(line, path, number)
        if set(row) == {"header"}:
            if header or predictions or further:
                raise UserError(f"{path}, line {number}: a second header; give each file to the command on its own.")
            header = _typed("header", row["header"], dict, path, number)
            continue
        prediction = own_row(row, path, number, shared)
        *cell, sample = row_key(prediction)
        previous = first_line.setdefault((*cell, prediction.hypothesis or 0), {}).setdefault(sample, number)
        if previous != number:
            raise UserError(
                f"{path}, line {number}: sample {prediction.sample_id!r} ({prediction.mode}) is on line {previous} "
                "already; each hypothesis of a sample may occur once in a cell and mode."
            )
        (further if prediction.hypothesis else predictions).append(prediction)
    for p in further:
        *cell, sample = row_key(p)
        if sample not in first_line.get((*cell, 0), {}):
            number = first_line[*cell, p.hypothesis][sample]
            raise UserError(
                f"{path}, line {number}: is hypothesis {p.hypothesis} of sample {p.sample_id!r}, whose first "
                "(hypothesis 0) is not in the file; decode again, or number hypotheses from 0."
            )
    if not predictions:
        raise UserError(f"{path}: no predictions in the file; `eeg2text decode` writes one JSON object a line.")
    notes = (f"{len(further)} further hypotheses are neither scored nor audited",) if further else ()
    return PredictionSet(predictions, header, "jsonl", path, notes, tuple(further), digest=lines.digest)


def row_key(prediction: Prediction) -> tuple:
    """What may occur once in a file, but for further hypotheses: a sample in a cell and mode."""
    p = prediction
    return p.train_condition, p.eval_condition, p.seed, p.mode, p.sample_id


def sentence_key(text: str) -> str:
    """Texts that differ in white space or in their Unicode form (é as one character or two) only are one sentence."""
    return unicodedata.normalize("NFC", " ".join(text.split()))


class Lines:
    """The lines of a UTF-8 file without their ends (`\\n`, `\\r\\n` or `\\r`); a byte order mark is dropped.

    A `.gz` is unpacked, UTF-16 decoded, a Parquet or Excel table becomes lines of CSV; `kind` says which.
    The file is read once (it may be a pipe) and kept as bytes: each pass over the lines decodes one at a time, so a
    large file is never in memory as text. Raises UserError where it cannot be read, and at a line that is not UTF-8.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = epath.Path(path)
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); check the path.") from error
        self.digest = hashlib.sha256(data).hexdigest()
        data, self.kind = as_text(data, self.path)
        if data.startswith(b"\xef\xbb\xbf"):
            data = data[3:]
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self.data = data

    def __iter__(self) -> Iterator[str]:
        start, number = 0, 1
        while start <= len(self.data):
            end = self.data.find(b"\n", start)
            end = len(self.data) if end < 0 else end
            try:
                yield self.data[start:end].decode()
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{self.path}, line {number}: not UTF-8 text ({error.reason}); convert the file to UTF-8"
                    f"{conversion(self.data, self.path)}."
                ) from error
            start, number = end + 1, number + 1


def read_text(path: str | os.PathLike[str]) -> str:
    """A UTF-8 text file with its line ends made `\\n`; a byte order mark is dropped."""
    return "\n".join(Lines(path))


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object of (name, value) pairs, for `object_pairs_hook`. Raises ValueError where a name is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


DECODER = json.JSONDecoder(object_pairs_hook=once)


def parse_object(line: str, path: epath.Path, number: int) -> dict[str, Any]:
    """The JSON object on a line. Raises UserError where it is none."""
    try:
        row = DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", str(error))
        raise UserError(f"{path}, line {number}: not JSON ({reason}); expected one object a line.") from error
    return _typed("line", row, dict, path, number)


FIELDS = {field.name: field for field in dataclasses.fields(Prediction)}
SHARED_TEXT = ("subject", "task", "sentence_id", "train_condition", "eval_condition", "mode", "reference", "recording")


def own_row(row: dict[str, Any], path: epath.Path, number: int, shared: Shared) -> Prediction:
    """A row of our own format from its values by field. Raises UserError where one is missing, unknown or wrong."""
    for name, field in FIELDS.items():
        if name not in row and field.default is dataclasses.MISSING:
            raise UserError(f"{path}, line {number}: the field {name!r} is missing.")
    if unknown := [name for name in row if name not in FIELDS]:
        raise UserError(f"{path}, line {number}: unknown field {unknown[0]!r}; the fields are {', '.join(FIELDS)}.")
    values = {name: _value(name, value, path, number) for name, value in row.items()}
    if values["mode"] not in MODES:
        raise UserError(f"{path}, line {number}: mode is {values['mode']!r}; expected one of {', '.join(MODES)}.")
    for name in SHARED_TEXT:
        if values.get(name) is not None:
            values[name] = shared.text(values[name])
    if values.get("prediction_tokens") is not None:
        values["prediction_tokens"] = shared.ids(values["prediction_tokens"])
    if values.get("reference_tokens") is not None:
        values["reference_tokens"] = shared.reference_ids(values["reference"], values["reference_tokens"])
    return Prediction(**values)


def _value(name: str, value: Any, path: epath.Path, number: int) -> Any:
    if name in ("reference_tokens", "prediction_tokens"):
        if value is not None:
            wrong = [token for token in _typed(name, value, list, path, number) if type(token) is not int]
            for token in wrong:
                _typed(f"{name} item", token, int, path, number)
        return value
    if name == "story_time":
        return None if value is None else parse_span(value, f"{path}, line {number}")
    if name in ("nll", "onset", "duration"):
        if value is not None and not math.isfinite(_typed(name, value, (int, float), path, number)):
            raise UserError(f"{path}, line {number}: {name} is {value}; expected a finite number.")
        return value
    if name in ("n_tokens", "hypothesis", "order", "recording") and value is None:
        return None
    if name in ("n_words", "seed", "n_tokens", "hypothesis", "order"):
        if _typed(name, value, int, path, number) < 0 and name == "hypothesis":
            raise UserError(f"{path}, line {number}: hypothesis is {value}; expected 0 for the first, 1 for the next.")
        return value
    return _typed(name, value, str, path, number)


def _typed(name: str, value: Any, kind: type | tuple[type, ...], path: epath.Path, number: int) -> Any:
    """`value` where it is of a JSON kind; booleans are not numbers."""
    if not isinstance(value, kind) or isinstance(value, bool):
        names: dict[Any, str] = {dict: "an object", list: "a list", int: "a whole number", str: "text"}
        wanted = names.get(kind, "a number")
        raise UserError(f"{path}, line {number}: {name} is {json.dumps(value)[:60]}; expected {wanted}.")
    if isinstance(value, str) and not value.isascii() and HALF_PAIR.search(value):
        raise UserError(f"{path}, line {number}: {name} holds half of a surrogate pair; expected valid Unicode.")
    return value
