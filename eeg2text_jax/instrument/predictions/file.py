"""The predictions file, which `decode` writes and `score` and `audit` read; a normal form of sentences.

JSON lines: a header (`{"header": {...}}`: config hash, split hash, tokenizer, decode settings), then one prediction a
line, of one sample in one cell (training condition, evaluation condition and seed) and mode.
"""

import dataclasses
import json
import os
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import replacing, utf8
from eeg2text_jax.data.clock import MOST_WHOLE, parse_span
from eeg2text_jax.instrument.predictions.packed import Lines

UNKNOWN = "unknown"  # a value that a file does not state
MODES = ("teacher_forced", "free_running")
OWN_NAMES = ("sample_id", "sentence_id", "train_condition", "eval_condition", "mode")  # most are in our rows
SURROGATE = re.compile("[\ud800-\udfff]")
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Han, kana and bopomofo, with radicals, strokes and full-width punctuation
SPACELESS = re.compile(f"[{HAN}\u2e80-\u2fdf\u3000-\u312f\u31a0-\u31ff\uff00-\uffef]")


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One decoded sample under one training and evaluation condition; what is not known is None.

    `reference_tokens` and `prediction_tokens` are token ids without special tokens. `nll` is the summed negative
    log-likelihood of the reference in nats over `n_tokens` tokens (teacher-forced rows only). Of several texts
    (`decode.num_return_sequences`), `hypothesis` is the number, 0 for the best. `recording`, `onset`, `duration`
    (seconds) and `order` say when the sample was recorded. Under `shuffled`, `donor` is the `sentence_id` whose
    recording the encoder got. `story_time` is the start and end of a window of a scan, in seconds of the stimulus.
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
    """Write a predictions file atomically."""
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(utf8(json.dumps({"header": header}, sort_keys=True, ensure_ascii=False) + "\n"))
        for prediction in predictions:
            row = {name: value for name, value in vars(prediction).items() if value is not None}
            file.write(utf8(json.dumps(row, ensure_ascii=False) + "\n"))


@dataclasses.dataclass(frozen=True)
class PredictionSet:
    """The content of one predictions file.

    `predictions` has the first hypothesis of every sample, which is scored and audited, `further` the others. `notes`
    are for the user. `groups`: column of labels -> `sentence_key` -> number of rows with each label. `digest` is the
    file's SHA-256. `seeds_stated`: the file has seeds.
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
    """Read a file of `write_predictions`. Raises UserError for an invalid or repeated prediction."""
    return parse_predictions(Lines(path))


def is_own(lines: Lines) -> bool:
    """Return whether the first line is our header or a row with most of our names."""
    first = next((line for line in lines if line.strip()), "")
    try:
        row = DECODER.decode(first) if first.lstrip().startswith("{") else []
    except (ValueError, RecursionError):
        return False
    return {*row} == {"header"} or 2 * sum(name in row for name in OWN_NAMES) > len(OWN_NAMES)


class Shared:
    """A cache through which rows share equal texts, token ids and lists: a million rows fit in a gigabyte.

    It is freed after the file is read; strings of `sys.intern` never are on Python 3.12.
    """

    def __init__(self) -> None:
        self._seen: dict[Any, Any] = {}
        self._lists: dict[str, list[int]] = {}

    def text(self, text: str) -> str:
        return self._seen.setdefault(text, text)

    def ids(self, ids: list[int]) -> list[int]:
        return [self._seen.setdefault(i, i) for i in ids]

    def reference_ids(self, reference: str, ids: list[int]) -> list[int]:
        earlier = self._lists.get(reference)
        if earlier != ids:
            earlier = self._lists[reference] = self.ids(ids)
        return earlier


def parse_predictions(lines: Lines) -> PredictionSet:
    """Return the content of a file in our format."""
    header: dict[str, Any] = {}
    first: list[Prediction] = []
    further: list[Prediction] = []
    places: dict[tuple, dict[str, int]] = {}  # cell and hypothesis -> sample -> number of its line
    shared = Shared()
    for number, where, row in objects_of(lines):
        if set(row) == {"header"}:
            if header or first or further:
                raise UserError(f"{where}: a second header; give each file to the command on its own.")
            header = _typed("header", row["header"], dict, where)
            continue
        prediction = own_row(row, where, shared)
        *cell, sample = row_key(prediction)
        previous = places.setdefault((*cell, prediction.hypothesis or 0), {}).setdefault(sample, number)
        if previous != number:
            said = f"sample {prediction.sample_id!r} ({prediction.mode}) is on line {previous} already"
            wanted = "expected each hypothesis once with these conditions, seed and mode"
            raise UserError(f"{where}: {said}; {wanted}; remove one.")
        (further if prediction.hypothesis else first).append(prediction)
    for p in further:
        *cell, sample = row_key(p)
        if sample not in places.get((*cell, 0), {}):
            said = f"is hypothesis {p.hypothesis} of sample {p.sample_id!r}"
            said += ", whose first (hypothesis 0) is not in the file"
            where = f"{lines.path}, line {places[*cell, p.hypothesis][sample]}"
            raise UserError(f"{where}: {said}; decode again, or number hypotheses from 0.")
    if not first:
        raise UserError(f"{lines.path}: no predictions in the file; `eeg2text decode` writes one JSON object a line.")
    notes = (f"{len(further)} further hypotheses are neither scored nor audited",) if further else ()
    return PredictionSet(first, header, "jsonl", lines.path, notes, tuple(further), digest=lines.digest)


def row_key(prediction: Prediction) -> tuple:
    """Return what hypotheses of one sample have in common: conditions, seed, mode and sample id."""
    p = prediction
    return p.train_condition, p.eval_condition, p.seed, p.mode, p.sample_id


def normalize(name: str) -> str:
    """Return a name in lower case with `_` for spaces and hyphens."""
    return re.sub(r"[\s\-_]+", "_", name.strip().lower())


def sentence_key(text: str) -> str:
    """Return a key of a sentence that ignores kinds of white space and the Unicode form."""
    return unicodedata.normalize("NFC", " ".join(text.split()))


def count_labels(pairs: Iterable[tuple[str, str]]) -> dict[str, Counter]:
    """Return `sentence_key` -> label -> number of pairs (reference, label)."""
    counts: dict[str, Counter] = defaultdict(Counter)
    for reference, label in pairs:
        counts[sentence_key(reference)][label.strip()] += 1
    return counts


def characters_apart(text: str) -> str:
    """Put spaces around Han and kana, each of which counts as a word, as in sacrebleu's tokenizer `zh`."""
    return text if text.isascii() else SPACELESS.sub(r" \g<0> ", text)


def refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return names and values as a dict. Raises ValueError if a name occurs twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return values


DECODER = json.JSONDecoder(object_pairs_hook=refuse_repeated_names)


def parse_object(line: str, where: str) -> dict[str, Any]:
    """Return the JSON object on a line; `where` begins messages. Raises UserError if it is no object."""
    try:
        row = DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", str(error))
        raise UserError(f"{where}: not JSON ({reason}); expected one object a line.") from error
    return _typed("line", row, dict, where)


def objects_of(lines: Lines) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield number, place for messages, and JSON object of each line with content."""
    path = str(lines.path)  # of a bucket, this takes time
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, f"{path}, line {number}", parse_object(line, f"{path}, line {number}")


FIELDS = {field.name: field for field in dataclasses.fields(Prediction)}
LARGEST = sys.float_info.max  # math.isfinite would raise for a larger integer
# Field -> type, least and largest value, what is expected.
NUMBERS: dict[str, tuple[Any, float, float, str]] = {
    **dict.fromkeys(("n_words", "seed", "n_tokens", "order"), (int, 0, MOST_WHOLE, "a whole number, 0 to 2^63 - 1")),
    "hypothesis": (int, 0, MOST_WHOLE, "0 for the first, 1 for the next"),
    **dict.fromkeys(("nll", "onset"), ((int, float), -LARGEST, LARGEST, "a finite number")),
    "duration": ((int, float), 0, LARGEST, "seconds, 0 or more"),
}
SHARED_TEXT = ("subject", "task", "sentence_id", "train_condition", "eval_condition", "mode", "reference", "recording")


def own_row(row: dict[str, Any], where: str, shared: Shared, modes: Sequence[str] = MODES) -> Prediction:
    """Return a JSON object as a prediction. Raises UserError if a field is missing, unknown or invalid."""
    if missing := [name for name, f in FIELDS.items() if name not in row and f.default is dataclasses.MISSING]:
        raise UserError(f"{where}: the field {missing[0]!r} is missing.")
    if unknown := [name for name in row if name not in FIELDS]:
        raise UserError(f"{where}: unknown field {unknown[0]!r}; the fields are {', '.join(FIELDS)}.")
    values = {name: _value(name, value, where) for name, value in row.items()}
    if values["mode"] not in modes:
        raise UserError(f"{where}: mode is {values['mode']!r}; expected one of {', '.join(modes)}.")
    for name in SHARED_TEXT:
        if values.get(name) is not None:
            values[name] = shared.text(values[name])
    if values.get("prediction_tokens") is not None:
        values["prediction_tokens"] = shared.ids(values["prediction_tokens"])
    if values.get("reference_tokens") is not None:
        values["reference_tokens"] = shared.reference_ids(values["reference"], values["reference_tokens"])
    return Prediction(**values)


def _value(name: str, value: Any, where: str) -> Any:
    if value is None and FIELDS[name].default is None:
        return None
    if name == "story_time":
        return parse_span(value, where)
    if name in NUMBERS:
        kind, least, most, wanted = NUMBERS[name]
        if not least <= _typed(name, value, kind, where) <= most:
            raise UserError(f"{where}: {name} is {value!r:.40}; expected {wanted}.")
        return value
    if name not in ("reference_tokens", "prediction_tokens"):
        return _typed(name, value, str, where)
    for token in _typed(name, value, list, where):
        if type(token) is not int:
            _typed(f"{name} item", token, int, where)
    return value


def _typed(name: str, value: Any, kind: type | tuple[type, ...], where: str) -> Any:
    """Return `value`. Raises UserError for a boolean, another kind, or a broken character."""
    if not isinstance(value, kind) or isinstance(value, bool):
        names: dict[Any, str] = {dict: "an object", list: "a list", int: "a whole number", str: "text"}
        raise UserError(f"{where}: {name} is {json.dumps(value)[:60]}; expected {names.get(kind, 'a number')}.")
    if isinstance(value, str) and not value.isascii():
        refuse_surrogates(value, f"{where}: {name}")
    return value


def refuse_surrogates(text: str, what: str) -> None:
    """Raise UserError for half of a UTF-16 surrogate pair; `what` begins the message."""
    if broken := SURROGATE.search(text):
        said = f"the invalid Unicode character {broken[0]!a} at position {broken.start() + 1}"
        raise UserError(f"{what} holds {said}; correct or remove the character.")


FORCED = {"teacher_forced", "teacher_forcing", "with_teacher_forcing", "forced"}
FORCED |= {"tf", "with_tf", "w_tf", "w/_tf", "w/tf"}
FREE = {"free_running", "autoregressive", "ar", "generate", "generated", "no_tf", "without_tf", "w/o_tf"}


def mode_name(text: str) -> str:
    """Return the mode that a text such as "with TF" means, or the text itself."""
    word = normalize(text)
    return "teacher_forced" if word in FORCED else "free_running" if word in FREE else text
