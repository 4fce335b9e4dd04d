"""The predictions file, which `decode` writes and `score` and `audit` read; a normal form to compare sentences.

JSON lines. The first line is a header (`{"header": {...}}`: config hash, split hash, tokenizer, decode settings),
each further line one prediction of one sample in one cell (training condition, evaluation condition and seed) and mode.
"""

import dataclasses
import hashlib
import json
import os
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import replacing, utf8
from eeg2text_jax.data.clock import MOST_WHOLE, parse_span, parse_time
from eeg2text_jax.instrument.predictions.packed import Lines

UNKNOWN = "unknown"  # a value that a file does not state
MODES = ("teacher_forced", "free_running")
OWN_NAMES = ("sample_id", "sentence_id", "train_condition", "eval_condition", "mode")  # our rows have most of these
SURROGATE = re.compile("[\ud800-\udfff]")
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Han, kana and bopomofo, with radicals, strokes, and the full-width punctuation between them
SPACELESS = re.compile(f"[{HAN}\u2e80-\u2fdf\u3000-\u312f\u31a0-\u31ff\uff00-\uffef]")


@dataclasses.dataclass(frozen=True)
class Prediction:
    """One decoded sample under one training and evaluation condition; a field is None if its value is not known.

    `reference_tokens` and `prediction_tokens` are the model's token ids without special tokens. `nll` is the summed
    negative log-likelihood of the reference in nats over `n_tokens` tokens (teacher-forced rows only). If a sample has
    several texts (`decode.num_return_sequences`), `hypothesis` is the number of the text, from 0 for the best.
    `recording`, `onset`, `duration` (seconds) and `order` say when the sample was recorded. Under `shuffled`, `donor`
    is the `sentence_id` of the sentence whose recording the encoder got. `story_time` is the start and end of a window
    of a scan, in seconds of the stimulus.
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

    `predictions` has the first hypothesis of every sample, which is scored and audited, `further` has later hypotheses.
    `notes` are sentences on the file for the user. `groups` maps a column of labels and a `sentence_key` to
    the number of rows with each label. `digest` is the file's SHA-256. `seeds_stated`: whether the file has seeds.
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
    """Read a file of `write_predictions`. Raises UserError with the line of an invalid or repeated prediction."""
    return parse_predictions(Lines(path))


def is_own(lines: Lines) -> bool:
    """Return whether a file is in our format: its first line is a header or a row with most of our names, in JSON."""
    first = next((line for line in lines if line.strip()), "")
    try:
        row = DECODER.decode(first) if first.lstrip().startswith("{") else []
    except (ValueError, RecursionError):
        return False
    return {*row} == {"header"} or 2 * sum(name in row for name in OWN_NAMES) > len(OWN_NAMES)


class Shared:
    """A cache through which rows share equal texts, token ids and lists of ids; a million rows then fit in a gigabyte.

    The cache is freed after the file is read; on Python 3.12, strings of `sys.intern` would never be freed.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._ids: dict[int, int] = {}
        self._lists: dict[str, list[int]] = {}

    def text(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def ids(self, ids: list[int]) -> list[int]:
        return [self._ids.setdefault(i, i) for i in ids]

    def reference_ids(self, reference: str, ids: list[int]) -> list[int]:
        earlier = self._lists.get(reference)
        if earlier != ids:
            earlier = self._lists[reference] = self.ids(ids)
        return earlier


def parse_predictions(lines: Lines) -> PredictionSet:
    """Return the content of a file in our format; see `read_predictions`."""
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
                "already; expected each hypothesis once with these conditions, seed and mode; remove one."
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
    """Return conditions, seed, mode and sample id, which all hypotheses of one sample have in common."""
    p = prediction
    return p.train_condition, p.eval_condition, p.seed, p.mode, p.sample_id


def normalize(name: str) -> str:
    """Return a name in lower case with `_` for spaces and hyphens."""
    return re.sub(r"[\s\-_]+", "_", name.strip().lower())


def sentence_key(text: str) -> str:
    """Return a key of a sentence that ignores white space and the Unicode form (é as one character or two)."""
    return unicodedata.normalize("NFC", " ".join(text.split()))


def count_labels(pairs: Iterable[tuple[str, str]]) -> dict[str, Counter]:
    """Return `sentence_key` of a reference -> label -> number of pairs, from pairs (reference, label)."""
    counts: dict[str, Counter] = defaultdict(Counter)
    for reference, label in pairs:
        counts[sentence_key(reference)][label.strip()] += 1
    return counts


def characters_apart(text: str) -> str:
    """Put spaces around Han and kana characters, so that each counts as a word, as with sacrebleu's tokenizer `zh`."""
    return text if text.isascii() else SPACELESS.sub(r" \g<0> ", text)


def refuse_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the names and values of a JSON object as a dict. Raises ValueError if a name occurs twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return values


DECODER = json.JSONDecoder(object_pairs_hook=refuse_repeated_names)


def parse_object(line: str, path: epath.Path, number: int) -> dict[str, Any]:
    """Return the JSON object on a line; messages state the line's `number`. Raises UserError if it is no object."""
    try:
        row = DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", str(error))
        raise UserError(f"{path}, line {number}: not JSON ({reason}); expected one object a line.") from error
    return _typed("line", row, dict, path, number)


FIELDS = {field.name: field for field in dataclasses.fields(Prediction)}
SHARED_TEXT = ("subject", "task", "sentence_id", "train_condition", "eval_condition", "mode", "reference", "recording")


def own_row(
    row: dict[str, Any], path: epath.Path, number: int, shared: Shared, modes: Sequence[str] = MODES
) -> Prediction:
    """Return a line's JSON object as a prediction. Raises UserError if a field is missing, unknown or invalid."""
    if missing := [name for name, f in FIELDS.items() if name not in row and f.default is dataclasses.MISSING]:
        raise UserError(f"{path}, line {number}: the field {missing[0]!r} is missing.")
    if unknown := [name for name in row if name not in FIELDS]:
        raise UserError(f"{path}, line {number}: unknown field {unknown[0]!r}; the fields are {', '.join(FIELDS)}.")
    values = {name: _value(name, value, path, number) for name, value in row.items()}
    if values["mode"] not in modes:
        raise UserError(f"{path}, line {number}: mode is {values['mode']!r}; expected one of {', '.join(modes)}.")
    for name in SHARED_TEXT:
        if values.get(name) is not None:
            values[name] = shared.text(values[name])
    if values.get("prediction_tokens") is not None:
        values["prediction_tokens"] = shared.ids(values["prediction_tokens"])
    if values.get("reference_tokens") is not None:
        values["reference_tokens"] = shared.reference_ids(values["reference"], values["reference_tokens"])
    return Prediction(**values)


def _value(name: str, value: Any, path: epath.Path, number: int) -> Any:
    """Return the value of the field `name`. Raises UserError if its type is wrong or it is out of range."""
    if value is None and FIELDS[name].default is None:
        return None
    if name in ("reference_tokens", "prediction_tokens"):
        for token in _typed(name, value, list, path, number):
            if type(token) is not int:
                _typed(f"{name} item", token, int, path, number)
        return value
    if name == "story_time":
        return parse_span(value, f"{path}, line {number}")
    if name in ("nll", "onset", "duration"):
        largest = sys.float_info.max  # an integer may exceed it; math.isfinite would raise for such an integer
        if not abs(_typed(name, value, (int, float), path, number)) <= largest:
            raise UserError(f"{path}, line {number}: {name} is {value!r:.40}; expected a finite number.")
        if value < 0 and name == "duration":
            raise UserError(f"{path}, line {number}: duration is {value!r:.40}; expected seconds, 0 or more.")
        return value
    if name in ("n_words", "seed", "n_tokens", "hypothesis", "order"):
        if not 0 <= _typed(name, value, int, path, number) <= MOST_WHOLE:
            wanted = {"hypothesis": "0 for the first, 1 for the next"}.get(name, "a whole number from 0 to 2^63 - 1")
            raise UserError(f"{path}, line {number}: {name} is {value!r:.40}; expected {wanted}.")
        return value
    return _typed(name, value, str, path, number)


def _typed(name: str, value: Any, kind: type | tuple[type, ...], path: epath.Path, number: int) -> Any:
    """Return `value` unchanged. Raises UserError if it is not of `kind`, is a boolean, or has a broken character."""
    if not isinstance(value, kind) or isinstance(value, bool):
        names: dict[Any, str] = {dict: "an object", list: "a list", int: "a whole number", str: "text"}
        wanted = names.get(kind, "a number")
        raise UserError(f"{path}, line {number}: {name} is {json.dumps(value)[:60]}; expected {wanted}.")
    if isinstance(value, str) and not value.isascii():
        refuse_surrogates(value, f"{path}, line {number}: {name}")
    return value


def refuse_surrogates(text: str, what: str) -> None:
    """Raise UserError if a text has half of a UTF-16 surrogate pair (no valid character); `what` begins the message."""
    if broken := SURROGATE.search(text):
        raise UserError(
            f"{what} holds the invalid Unicode character {broken[0]!a} at position {broken.start() + 1}; correct or "
            "remove the character."
        )


# Samples in other layouts than ours as predictions; what their columns say of condition, mode and split.

EEG_NAMES = {"real_eeg": "eeg", "real": "eeg", "true_eeg": "eeg", "shuffled_eeg": "shuffled", "noise_eeg": "noise"}
CONTROLS = ("noise", "random", "random_noise", "gaussian_noise", "shuffled", "random_eeg", "zero", "zero_eeg", "zeros")
RECORDINGS = {"meg", "fmri", "ecog", "seeg", "ieeg", "fnirs", "nirs", "emg", "lfp"}  # signals other than EEG
MODE_FIELDS = ("mode", "forced", "decoding")  # fields that state whether a prediction is teacher-forced
FORCED = {"teacher_forced", "teacher_forcing", "with_teacher_forcing", "forced"}
FORCED |= {"tf", "with_tf", "w_tf", "w/_tf", "w/tf"}
FREE = {"free_running", "autoregressive", "ar", "generate", "generated", "no_tf", "without_tf", "w/o_tf"}
YES, NO = {"true", "1", "1.0", "yes", "y", "t"}, {"false", "0", "0.0", "no", "n", "f"}
MOST_CONDITIONS = 12  # a column with more distinct values is not read as conditions
MISSING = {"", "nan", "none", "null", "n/a", "na", UNKNOWN}  # notations of a missing value


@dataclasses.dataclass(frozen=True)
class Samples:
    """The samples of a file, column by column; `numbers` has the number of each sample's `unit` in the file."""

    path: epath.Path
    references: Sequence[str]
    outputs: Mapping[tuple[str, str], Sequence[str]]  # (evaluation condition, mode) -> predicted texts
    about: Mapping[str, Sequence[str]]  # field, such as "subject" -> values
    numbers: Sequence[int]
    unit: str

    def where(self, row: int) -> str:
        return f"{self.path}, {self.unit} {self.numbers[row]}"

    def groups(self) -> dict[str, dict[str, Counter]]:
        """Return column of labels -> `sentence_key` of a reference -> number of its samples with each label."""
        columns = {name.removeprefix("group "): v for name, v in self.about.items() if name.startswith("group ")}
        return {name: count_labels(zip(self.references, labels, strict=True)) for name, labels in columns.items()}

    @property
    def named(self) -> bool:
        """Whether a column `eval_condition`, or names of columns, say what the encoder was fed."""
        return "eval_condition" in self.about or any(condition != UNKNOWN for condition, _ in self.outputs)

    def fed(self) -> list[str]:
        """Return what a column such as `input` says that the encoder was fed; [] where other columns say it."""
        return [] if self.named else [*map(condition_name, self.about.get("condition", ()))]

    def conditions(self) -> list[str]:
        """Return the values of `fed` if they are a few conditions, EEG among them; else []."""
        fed = self.fed()
        few = 2 <= len({*fed}) <= min(MOST_CONDITIONS, len(fed) * len(self.outputs) // 2)
        return fed if few and "eeg" in fed and "" not in fed else []


def complete(samples: Samples) -> list[Prediction]:
    """Return a prediction for each predicted text of each sample; missing values become "unknown", a missing seed 0.

    Raises UserError if a seed or mode is invalid, or a stated sample id occurs twice with one condition, seed and mode.
    """
    fed, conditions = samples.fed(), samples.conditions()
    if (other := RECORDINGS & {*fed}) and "eeg" in fed:
        raise UserError(
            f"{samples.path}: the column of conditions holds eeg and {', '.join(sorted(other))}, which is another "
            "recording and no control; give the rows of one recording, or name what was fed in a column eval_condition."
        )
    predictions: list[Prediction] = []
    seen: dict[tuple, int] = {}
    shared = Shared()
    sentences: dict[str, tuple[str, int]] = {}  # distinct reference -> sentence id, number of words
    for number, reference in enumerate(map(shared.text, samples.references)):
        if reference not in sentences:
            digest = hashlib.sha256(sentence_key(reference).encode()).hexdigest()
            sentences[reference] = f"text-{digest[:12]}", len(characters_apart(reference).split())
        about = {name: values[number] for name, values in samples.about.items()}
        subject, task = (
            UNKNOWN if about.get(name, "").strip().lower() in MISSING else shared.text(about[name].strip())
            for name in ("subject", "task")
        )
        timed = "onset" in about or "order" in about
        fields = {
            "sample_id": about.get("sample_id", f"row-{number + 1}"),
            "subject": subject,
            "task": task,
            "sentence_id": shared.text(about.get("sentence_id", sentences[reference][0])),
            "n_words": sentences[reference][1],
            "train_condition": shared.text(about.get("train_condition", UNKNOWN)),
            "seed": _seed(about, samples, number),
            "reference": reference,
            **(parse_time(about, samples.where(number), default=f"{subject}/{task}") if timed else {}),
        }
        for (condition, mode), texts in samples.outputs.items():
            condition = shared.text(about.get("eval_condition", conditions[number] if conditions else condition))
            mode = _mode(about, mode, samples, number)
            prediction = Prediction(**fields, eval_condition=condition, mode=mode, prediction=texts[number])
            if "sample_id" in about:
                key = (*row_key(prediction), fed[number] if fed else "")
                if (first := seen.setdefault(key, number)) != number:
                    raise UserError(
                        f"{samples.where(number)}: sample {prediction.sample_id!r} is on "
                        f"{samples.where(first).rpartition(', ')[2]} already; expected it once with these conditions, "
                        "seed and mode; remove one."
                    )
            predictions.append(prediction)
    return predictions


def _seed(about: Mapping[str, str], samples: Samples, row: int) -> int:
    stated = about.get("seed", "0")
    if not (stated.isascii() and stated.isdigit() and len(stated) < 19):
        raise UserError(f"{samples.where(row)}: seed is {stated!r:.40}; expected a whole number.")
    return int(stated)


def _mode(about: Mapping[str, str], mode: str, samples: Samples, row: int) -> str:
    """Return the mode that a sample's fields or else `mode` state, or "unknown". Raises UserError for another mode."""
    stated = mode_name(about.get("mode", mode)) or UNKNOWN
    if stated not in (*MODES, UNKNOWN):
        raise UserError(f"{samples.where(row)}: mode is {stated!r:.40}; expected one of {', '.join(MODES)}.")
    if stated == UNKNOWN and "decoding" in about:  # this field may name a search instead of a mode
        stated = mode_name(about["decoding"])
    if stated not in MODES and "forced" in about:
        forced = about["forced"].strip().lower()
        stated = "teacher_forced" if forced in YES else "free_running" if forced in NO else mode_name(forced)
    return stated if stated in MODES else UNKNOWN


def mode_name(text: str) -> str:
    """Return the mode that a text such as "with TF" means, or the text itself if it is no known name."""
    word = normalize(text)
    return "teacher_forced" if word in FORCED else "free_running" if word in FREE else text


def condition_name(value: str) -> str:
    """Return our name of a condition, such as "eeg" for "Real EEG"; other values become lower case with `_`."""
    word = normalize(value)
    return EEG_NAMES.get(word, word)


def fed_word(value: str) -> str:
    """Return the condition if a value is surely the name of EEG or a control, else ""."""
    word = condition_name(value) if len(value) < 20 else ""
    return word if word == "eeg" or word in CONTROLS else ""
