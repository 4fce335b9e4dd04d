"""The predictions file: written by `decode`, read by `score` and `audit`.

JSON lines. The first line is a header (`{"header": {...}}`: config hash, split hash, tokenizer, decode settings),
every other line one prediction of one sample in one cell and mode.
"""

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import replacing

MODES = ("teacher_forced", "free_running")


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One decoded sample.

    `reference_tokens` and `prediction_tokens` are the model's token ids without special tokens, or None where a
    file carries strings only. `nll` is the summed negative log-likelihood of the reference in nats over `n_tokens`
    tokens (teacher-forced rows only).
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

    `layout` names how the file was laid out.
    """

    predictions: list[Prediction]
    header: dict[str, Any]
    layout: str
    path: epath.Path


def read_predictions(path: str | os.PathLike[str]) -> PredictionSet:
    """Reads the file that `write_predictions` wrote.

    Raises:
      UserError: the file cannot be read, a line is not a JSON object, a field is missing, unknown or of the wrong
        type, or two lines hold the same sample, cell and mode.
    """
    path = epath.Path(path)
    header: dict[str, Any] = {}
    predictions: list[Prediction] = []
    first_line: dict[tuple, int] = {}
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        row = _parse(line, path, number)
        if set(row) == {"header"}:
            if header or predictions:
                raise UserError(f"{path}, line {number}: a second header; give each file to the command on its own.")
            header = _typed("header", row["header"], dict, path, number)
            continue
        prediction = _prediction(row, path, number)
        previous = first_line.setdefault(row_key(prediction), number)
        if previous != number:
            raise UserError(
                f"{path}, line {number}: sample {prediction.sample_id!r} ({prediction.mode}) is on line {previous} "
                "already; each sample may occur once in a cell and mode."
            )
        predictions.append(prediction)
    if not predictions:
        raise UserError(f"{path}: no predictions in the file; `eeg2text decode` writes one JSON object a line.")
    return PredictionSet(predictions, header, "jsonl", path)


def row_key(prediction: Prediction) -> tuple:
    """What may occur once in a file: a sample in a cell and mode."""
    p = prediction
    return p.train_condition, p.eval_condition, p.seed, p.mode, p.sample_id


def sentence_key(text: str) -> str:
    """Texts that differ in white space only are one sentence."""
    return " ".join(text.split())


def read_text(path: epath.Path) -> str:
    """A UTF-8 text file with its line ends made `\\n`; a byte order mark is dropped."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: not UTF-8 text ({error.reason}); convert the file to UTF-8.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parse(line: str, path: epath.Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", str(error))
        raise UserError(f"{path}, line {number}: not JSON ({reason}); expected one object a line.") from error
    return _typed("line", row, dict, path, number)


def _prediction(row: dict[str, Any], path: epath.Path, number: int) -> Prediction:
    fields = {field.name: field for field in dataclasses.fields(Prediction)}
    for name in fields.keys() - row.keys():
        if fields[name].default is dataclasses.MISSING:
            raise UserError(f"{path}, line {number}: the field {name!r} is missing.")
    if unknown := sorted(row.keys() - fields.keys()):
        raise UserError(f"{path}, line {number}: unknown field {unknown[0]!r}; the fields are {', '.join(fields)}.")
    values = {name: _value(name, value, path, number) for name, value in row.items()}
    if values["mode"] not in MODES:
        raise UserError(f"{path}, line {number}: mode is {values['mode']!r}; expected one of {', '.join(MODES)}.")
    return Prediction(**values)


def _value(name: str, value: Any, path: epath.Path, number: int) -> Any:
    if name in ("reference_tokens", "prediction_tokens"):
        if value is not None:
            for token in _typed(name, value, list, path, number):
                _typed(f"{name} item", token, int, path, number)
        return value
    if name == "nll":
        if value is not None and not math.isfinite(_typed(name, value, (int, float), path, number)):
            raise UserError(f"{path}, line {number}: nll is {value}; expected a finite number.")
        return value
    if name in ("n_words", "seed") or (name == "n_tokens" and value is not None):
        return _typed(name, value, int, path, number)
    return value if name == "n_tokens" else _typed(name, value, str, path, number)


def _typed(name: str, value: Any, kind: type | tuple[type, ...], path: epath.Path, number: int) -> Any:
    """`value` where it is of a JSON kind; booleans are not numbers."""
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = {dict: "an object", list: "a list", int: "a whole number", str: "text"}.get(kind, "a number")
        raise UserError(f"{path}, line {number}: {name} is {json.dumps(value)[:60]}; expected {wanted}.")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f"{path}, line {number}: {name} holds half of a surrogate pair; expected valid Unicode.")
    return value
