"""The process that reads and judges a visitor's files in the folder of a job, where their names are their roles.

The request is JSON on stdin, the answer JSON in a file; lines on stdout are progress.
"""

import dataclasses
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eeg2text_jax.base.errors import UserError, named
from eeg2text_jax.instrument.predictions import packed
from eeg2text_jax.instrument.predictions._names import built_in
from eeg2text_jax.instrument.predictions.file import Prediction, PredictionSet
from eeg2text_jax.instrument.predictions.packed import Lines
from eeg2text_jax.instrument.predictions.rankings import is_rankings
from eeg2text_jax.instrument.predictions.read import read_any, table_of_file
from eeg2text_jax.instrument.predictions.selection import LIKELY, account, read_conditions, ten_rows

MEMORY = 4 * 2**30  # bytes of address space
UNPACKED = 256 * 2**20  # largest size of a decompressed file, in bytes
ROWS = 200_000  # most rows of a file
COLUMNS = 40  # most column names that the page offers
ROLES = ("eeg", "control")
REFERENCES = "references"
NUMBERED = "column "  # begins the names by number of a table without known names
ANSWER = "answer.json"

Request = dict[str, Any]  # "columns": (reference, prediction) or None; "mode": decoding mode or None; "proof": text


def main() -> None:
    """Answer or refuse the request, with limits of memory and CPU time."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    packed.LARGEST = UNPACKED
    request = json.load(sys.stdin)
    seconds = request.pop("seconds")
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    try:
        answer: dict[str, Any] = {"look": look, "judge": judge}[request.pop("do")](request)
    except UserError as error:
        answer = {"refused": str(error)}
    except MemoryError:
        most = f"{MEMORY // 2**30} GiB"
        answer = {"refused": f"the files need more than {most} of memory; judge them with `eeg2text audit`."}
    if "refused" in answer:
        answer["columns"] = titles(Path(ROLES[0]))
    Path(ANSWER).write_text(json.dumps(answer), encoding="utf8")


def files() -> list[Path]:
    return [Path(role) for role in ROLES if Path(role).is_file()]


def read(path: Path, request: Request) -> PredictionSet:
    """Read a file of predictions. Raises UserError if it cannot be read or has more than `ROWS` rows."""
    print(f"reading {path}", flush=True)
    if is_rankings(path):
        what = "is a file of rankings, and this page takes decoded text"
        raise UserError(f"{path}: {what}; judge it with `eeg2text audit`.")
    reference = Path(REFERENCES) if Path(REFERENCES).is_file() else None
    columns = request.get("columns") or []
    numbers = [name.removeprefix(NUMBERED) for name in columns if name.startswith(NUMBERED)]
    stated = {"columns": columns or None, "layout": None}
    if numbers and len(numbers) == len(columns):  # columns by number: the first line is a sample
        stated = {"columns": numbers, "layout": None if reference else "H"}
    made = read_any(path, mode=request.get("mode"), groups=LIKELY, reference=reference, **stated)
    if (rows := len(made.predictions)) > ROWS:
        what = f"{rows} rows; this page takes {ROWS} at most"
        raise UserError(f"{path}: {what}; judge the file with `eeg2text audit` on your machine.")
    return made


def look(request: Request) -> dict[str, Any]:
    """Return notes on how the files were read, numbers of rows, some rows, and names of columns."""
    sets = [read(path, request) for path in files()]
    return {
        "said": [line for one in sets for line in account(one)],
        "rows": {str(one.path): len(one.predictions) for one in sets},
        "examples": [(str(one.path), *row) for one in sets for row in ten_rows(one)],
        "columns": titles(sets[0].path),
    }


def judge(request: Request) -> dict[str, Any]:
    """Judge the files like `eeg2text audit`; write `report.html`, return verdict, limits and tables."""
    from eeg2text_jax.instrument.auditing.audit import audit_files
    from eeg2text_jax.instrument.auditing.notices import checked_proof
    from eeg2text_jax.instrument.auditing.report import write_report
    from eeg2text_jax.instrument.auditing.result import condition_table, effect_table
    from eeg2text_jax.instrument.predictions.selection import groups_of, likely_groups

    sets: list[PredictionSet] = []

    def rows_of(path: Path) -> Sequence[Prediction]:
        sets.append(read(path, request))
        return sets[-1].predictions

    proof = checked_proof(request.get("proof") or "")
    eeg, *controls = files()
    conditions = read_conditions(eeg, controls, rows_of)
    print("judging", flush=True)
    labels, notes = groups_of(sets[0], likely_groups(sets[0]))
    mode = request.get("mode")
    stated_by = "the visitor states" if mode else "the file states"
    result = audit_files(sets, conditions, labels, mode=mode, proof=proof, stated_by=stated_by)
    result = dataclasses.replace(result, judged=result.judged.dated(["eeg2text", "app"]))
    print("writing the report", flush=True)
    write_report(result, Path("report.html"))
    return {
        "verdict": result.verdict.headline,
        "color": result.verdict.color,
        "sentence": result.sentence,
        "limits": [*dict.fromkeys([*result.limits, result.provenance.sentence, *(f"{note}." for note in notes)])],
        "tables": [condition_table(result), effect_table(result)],
        "said": [line for file in result.judged.files for line in file.read],
    }


def titles(path: Path) -> list[str]:
    """Return the names of a table's columns, also by number if none is known; [] for other layouts."""
    try:
        table = table_of_file(Lines(path), None, built_in())
    except (UserError, MemoryError):
        return []
    names = table.titles
    if names is None:
        names = [*map(str, table.rows[0]), *(f"{NUMBERED}{i}" for i in range(1, table.width + 1))]
    return names[:COLUMNS] if len(names) > 1 and table.layout in ("F", "H", "J") else []


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(named(error), file=sys.stderr)
        sys.exit(1)
