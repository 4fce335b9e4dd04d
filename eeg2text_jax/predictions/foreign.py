"""What a foreign file gives of a sample, and its completion to predictions."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import MODES, Prediction, row_key

UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class ForeignRow:
    """One sample of a file: where it stands, its reference, and its outputs by (evaluation condition, mode).

    `about` holds what else the file says, under the names of the fields of `Prediction`.
    """

    line: int
    reference: str
    outputs: Mapping[tuple[str, str], str]
    about: Mapping[str, str] = dataclasses.field(default_factory=dict)


def sentence_id(reference: str) -> str:
    """An id of a text, the same wherever the text stands; white space does not count."""
    digest = hashlib.sha256(" ".join(reference.split()).encode()).hexdigest()
    return f"text-{digest[:12]}"


def complete(rows: Iterable[ForeignRow], path: epath.Path) -> list[Prediction]:
    """Predictions of all rows and outputs; what a file does not say is "unknown", a seed 0.

    Raises UserError where a seed or mode is none, or a stated sample id is twice in a cell.
    """
    predictions = []
    first_line: dict[tuple, int] = {}
    for number, row in enumerate(rows, 1):
        for (condition, mode), text in row.outputs.items():
            prediction = Prediction(
                sample_id=row.about.get("sample_id", f"row-{number}"),
                subject=row.about.get("subject", UNKNOWN),
                task=row.about.get("task", UNKNOWN),
                sentence_id=row.about.get("sentence_id", sentence_id(row.reference)),
                n_words=len(row.reference.split()),
                train_condition=row.about.get("train_condition", UNKNOWN),
                eval_condition=row.about.get("eval_condition", condition),
                seed=_seed(row, path),
                mode=_mode(row, mode, path),
                reference=row.reference,
                prediction=text,
            )
            previous = first_line.setdefault(row_key(prediction), row.line)
            if previous != row.line:
                raise UserError(
                    f"{path}, line {row.line}: sample {prediction.sample_id!r} is on line {previous} already; each "
                    "sample may occur once in a cell and mode."
                )
            predictions.append(prediction)
    return predictions


def _seed(row: ForeignRow, path: epath.Path) -> int:
    stated = row.about.get("seed", "0")
    if not (stated.isascii() and stated.isdigit() and len(stated) < 19):
        raise UserError(f"{path}, line {row.line}: seed is {stated!r:.40}; expected a whole number.")
    return int(stated)


def _mode(row: ForeignRow, mode: str, path: epath.Path) -> str:
    stated = row.about.get("mode", mode)
    if stated not in (*MODES, UNKNOWN):
        raise UserError(f"{path}, line {row.line}: mode is {stated!r:.40}; expected one of {', '.join(MODES)}.")
    return stated
