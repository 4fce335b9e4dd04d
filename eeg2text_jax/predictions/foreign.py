"""Samples of foreign files, and their completion to predictions."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import MODES, Prediction, Shared, row_key, sentence_key
from eeg2text_jax.predictions.script import characters_apart

UNKNOWN = "unknown"
EEG_NAMES = {"real_eeg": "eeg", "real": "eeg", "true_eeg": "eeg", "shuffled_eeg": "shuffled", "noise_eeg": "noise"}
CONTROLS = ("noise", "random", "random_noise", "gaussian_noise", "shuffled", "random_eeg", "zero", "zero_eeg", "zeros")
RECORDINGS = {"meg", "fmri", "ecog", "seeg", "ieeg", "fnirs", "nirs", "emg", "lfp"}  # no controls of EEG
MODE_FIELDS = ("mode", "forced", "decoding")
FORCED = {
    "teacher_forced",
    "teacher_forcing",
    "tf",
    "with_tf",
    "w_tf",
    "w/_tf",
    "w/tf",
    "forced",
    "with_teacher_forcing",
}
FREE = {
    "free_running",
    "autoregressive",
    "ar",
    "generate",
    "generated",
    "no_tf",
    "without_tf",
    "w/o_tf",
}
YES, NO = {"true", "1", "1.0", "yes", "y", "t"}, {"false", "0", "0.0", "no", "n", "f"}
MOST_CONDITIONS = 12  # most values of a column of conditions
MISSING = {"", "nan", "none", "null", "n/a", "na", UNKNOWN}  # notations of a missing value


@dataclasses.dataclass(frozen=True)
class ForeignRow:
    """One sample of a file: its line, its reference, and its outputs by (evaluation condition, mode).

    `about` holds further values under the names of the fields of `Prediction`. `unit` is what `line` counts. `read_as`
    notes conversions of texts that were not plain text.
    """

    line: int
    reference: str
    outputs: Mapping[tuple[str, str], str]
    about: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unit: str = "line"
    read_as: tuple[str, ...] = ()


def sentence_id(reference: str) -> str:
    """Return an id of a text, independent of white space and Unicode form."""
    digest = hashlib.sha256(sentence_key(reference).encode()).hexdigest()
    return f"text-{digest[:12]}"


def complete(rows: Iterable[ForeignRow], path: epath.Path) -> list[Prediction]:
    """Return the predictions of all rows and outputs; missing values are "unknown", a missing seed 0.

    Raises UserError if a seed or mode is invalid, or a stated sample id occurs twice in a cell.
    """
    predictions, fed = [], []
    first_line: dict[tuple, int] = {}
    shared = Shared()
    known: dict[str, tuple[str, int]] = {}  # of each distinct reference its id and number of words
    for number, row in enumerate(rows, 1):
        reference = shared.text(row.reference)
        if reference not in known:
            known[reference] = sentence_id(reference), len(characters_apart(reference).split())
        own_id, n_words = known[reference]
        for (condition, mode), text in row.outputs.items():
            prediction = Prediction(
                sample_id=row.about.get("sample_id", f"row-{number}"),
                subject=_stated(row, "subject", shared),
                task=_stated(row, "task", shared),
                sentence_id=shared.text(row.about.get("sentence_id", own_id)),
                n_words=n_words,
                train_condition=shared.text(row.about.get("train_condition", UNKNOWN)),
                eval_condition=shared.text(row.about.get("eval_condition", condition)),
                seed=_seed(row, path),
                mode=_mode(row, mode, path),
                reference=reference,
                prediction=text,
            )
            if "sample_id" in row.about:
                previous = first_line.setdefault((*row_key(prediction), _fed(row, condition)), row.line)
                if previous != row.line:
                    raise UserError(
                        f"{path}, {row.unit} {row.line}: sample {prediction.sample_id!r} is on {row.unit} {previous} "
                        "already; expected each sample once in a cell and mode; remove one of the two."
                    )
            predictions.append(prediction)
            fed.append(_fed(row, condition))
    if (other := RECORDINGS & set(fed)) and "eeg" in fed:
        raise UserError(
            f"{path}: the column of conditions holds eeg and {', '.join(sorted(other))}, which is another recording "
            "and no control; give the rows of one recording, or name what was fed in a column eval_condition."
        )
    return _with_conditions(predictions, fed)


def _fed(row: ForeignRow, condition: str) -> str:
    """Return the value of a column that may name the encoder's input; "" if the file names it otherwise."""
    if condition != UNKNOWN or "eval_condition" in row.about:
        return ""
    return condition_name(row)


def condition_name(row: ForeignRow) -> str:
    """Return our name for a row's value in a column of conditions, or ""."""
    value = joined_words(row.about.get("condition", ""))
    return EEG_NAMES.get(value, value)


def joined_words(text: str) -> str:
    return "_".join(text.lower().replace("-", " ").split())


def fed_word(value: str) -> str:
    """Return the encoder's input if a cell names it unambiguously, else ""."""
    word = joined_words(value) if len(value) < 20 else ""
    word = EEG_NAMES.get(word, word)
    return word if word == "eeg" or word in CONTROLS else ""


def _with_conditions(predictions: list[Prediction], fed: list[str]) -> list[Prediction]:
    """Set the conditions that a column names, if EEG and a few others alternate in it."""
    distinct = set(fed)
    if "" in distinct or "eeg" not in distinct or not 2 <= len(distinct) <= min(MOST_CONDITIONS, len(fed) // 2):
        return predictions
    return [dataclasses.replace(row, eval_condition=name) for row, name in zip(predictions, fed, strict=True)]


def _stated(row: ForeignRow, name: str, shared: Shared) -> str:
    value = row.about.get(name, UNKNOWN).strip()
    return UNKNOWN if value.lower() in MISSING else shared.text(value)


def _seed(row: ForeignRow, path: epath.Path) -> int:
    stated = row.about.get("seed", "0")
    if not (stated.isascii() and stated.isdigit() and len(stated) < 19):
        raise UserError(f"{path}, {row.unit} {row.line}: seed is {stated!r:.40}; expected a whole number.")
    return int(stated)


def _mode(row: ForeignRow, mode: str, path: epath.Path) -> str:
    stated = mode_name(row.about.get("mode", mode)) or UNKNOWN
    if stated not in (*MODES, UNKNOWN):
        raise UserError(f"{path}, {row.unit} {row.line}: mode is {stated!r:.40}; expected one of {', '.join(MODES)}.")
    if stated == UNKNOWN and "decoding" in row.about:  # which may say how it was searched
        stated = mode_name(row.about["decoding"])
        stated = stated if stated in MODES else UNKNOWN
    if stated == UNKNOWN and "forced" in row.about:
        forced = row.about["forced"].strip().lower()
        stated = "teacher_forced" if forced in YES else "free_running" if forced in NO else mode_name(forced)
        stated = stated if stated in MODES else UNKNOWN
    return stated


def mode_name(text: str) -> str:
    """Return the mode that a text means, or the text itself."""
    word = joined_words(text)
    return "teacher_forced" if word in FORCED else "free_running" if word in FREE else text
