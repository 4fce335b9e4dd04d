"""What is read of a file, how it is refused, and the files that several tests write."""

import csv
import io
import json
import random

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions.file import PredictionSet
from eeg2text_jax.instrument.predictions.read import describe, read_any

REFERENCES = [f"the {animal} sat on the {place}" for animal in ("cat", "dog", "emu") for place in ("mat", "hat")]
OUTPUTS = [f"He was {n} times the mayor" for n in range(6)]
EQUAL = list(zip(REFERENCES, OUTPUTS, strict=True))
WORDS = ["river", "stone", "house", "green", "walks", "under", "light", "music", "paper", "winter", "bread", "north"]


def pairs(found: PredictionSet) -> list[tuple[str, str]]:
    return [(row.reference, row.prediction) for row in found.predictions]


def texts(path, **options) -> list[tuple[str, str]]:
    return pairs(read_any(path, **options))


def described(path, **options) -> str:
    return describe(read_any(path, **options))


def refusal(path, message: str | None = None, **options) -> str:
    """Return the sentence with which a file is refused, and in which the pattern `message` stands."""
    with pytest.raises(UserError, match=message) as refused:
        read_any(path, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def table(*rows, delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


def notebook(*outputs) -> str:
    """Return a notebook with a cell of these outputs: printed texts, or data by MIME type."""
    shown = [{"output_type": "stream", "text": o} if isinstance(o, str) else {"data": o} for o in outputs]
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "outputs": shown}]})


def workbook(far: str = "", **sheets) -> bytes:
    """Return an Excel file with these sheets: title -> rows; `far`: a cell of the first with a text."""
    openpyxl = pytest.importorskip("openpyxl", reason="pip install 'eeg2text_jax[xlsx]'")
    book, out = openpyxl.Workbook(), io.BytesIO()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    if far:
        book.worksheets[0][far] = "x"
    book.save(out)
    return out.getvalue()


def rows(n: int = 24) -> list[dict]:
    """Rows in our format under EEG and noise, of one recording, three seconds apart."""
    rng = random.Random(0)
    found = []
    for fed in ("eeg", "noise"):
        for i in range(n):
            words = " ".join(WORDS[(i + k * k) % 12] for k in range(8))
            found.append({
                "sample_id": f"s{i}", "subject": "S", "task": "T", "sentence_id": f"t{i}", "n_words": 8,
                "train_condition": "eeg", "eval_condition": fed, "seed": 0, "mode": "free_running",
                "reference": f"{words} {i}", "prediction": " ".join(rng.choices(WORDS, k=8)), "recording": "r",
                "onset": 3.0 * i, "duration": 2.0, "order": i, "n_tokens": 8,
            })  # fmt: skip
    return found


def jsonl(found: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in found)
