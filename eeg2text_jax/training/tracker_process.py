"""The tracker's process: read JSON lines from `tracker.Tracker` and log them with the tracker's package."""

import importlib
import json
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any


def feed(lines: Iterable[str]) -> None:
    """Start the runs named in the first line, log the scalars of all further lines, and finish the runs.

    Raises:
      ImportError: the tracker's package is not installed; the message says how to install it.
    """
    lines = iter(lines)
    begin = json.loads(next(lines))
    name = begin["package"]
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{error}; pip install 'eeg2text_jax[{name}]' installs it") from error
    runs = {arm: _begin(package, begin, arm, identity) for arm, identity in begin["runs"].items()}
    for line in lines:
        said = json.loads(line)
        for arm, scalars in said["rows"].items():
            if scalars:
                runs[arm].log(scalars, step=said["step"])
    for run in runs.values():
        run.finish()


def _begin(package: ModuleType, begin: dict[str, Any], arm: str, identity: str) -> Any:
    """Start a run, or continue the one with the same identity."""
    options = {"project": begin["project"], "group": begin["group"], "config": begin["config"] | {"arm": arm}}
    if package.__name__ == "wandb":
        more = {"id": identity, "name": arm, "dir": begin["folder"], "reinit": "create_new"}
        return package.init(**options, **more, resume="allow")
    return package.init(**options, name=identity, resume="allow", embed=False)


if __name__ == "__main__":
    feed(sys.stdin)
