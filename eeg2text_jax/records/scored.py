"""Read `results.json` of a run or of `eeg2text score`, and check the fields that other formats need."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eeg2text_jax.errors import UserError

CELL = {"train_condition": str, "eval_condition": str, "seed": int, "mode": str, "rows": int, "metrics": dict}
METRIC = {"value": (int, float), "signature": str, "lower_is_better": bool}


def read_results(path: Path) -> dict[str, Any]:
    """Return the content of a results file.

    Raises:
      UserError: the file does not exist, or a field is missing or wrong; the message names the field.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: there is no such file; `eeg2text run` or `eeg2text score --json` makes one."
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not JSON; score again.") from error
    if not isinstance(content, dict) or content.get("format") != 1 or not isinstance(content.get("cells"), list):
        raise UserError(f"{path}: expected results of format 1 with a list of cells; score again.")
    for number, cell in enumerate(content["cells"], 1):
        _check(cell, CELL, f"{path}: cell {number}")
        for name, metric in cell["metrics"].items():
            _check(metric, METRIC, f"{path}: cell {number}, {name}")
            if not math.isfinite(metric["value"]):
                raise UserError(f"{path}: cell {number}, {name}: its value is not finite; score again.")
    if not any(cell["metrics"] for cell in content["cells"]):
        raise UserError(f"{path}: no cell has a score, so there is nothing to record.")
    return content


def _check(found: Any, wanted: Mapping[str, Any], where: str) -> None:
    if not isinstance(found, dict):
        raise UserError(f"{where}: expected an object, found {type(found).__name__}; score again.")
    for name, kind in wanted.items():
        value = found.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            expected = getattr(kind, "__name__", "number")
            raise UserError(f"{where}: {name} is {str(value)[:40]!r}, expected {expected}; score again.")
