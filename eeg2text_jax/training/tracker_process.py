"""The process in which a tracker's package works: reads what `tracker.Tracker` sends, a JSON object a line."""

import importlib
import json
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any


def feed(lines: Iterable[str]) -> None:
    """Begins the runs that the first line names, logs what the others say, and ends the runs.

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
    """A run; one of the same identity is gone on with."""
    options = {"project": begin["project"], "group": begin["group"], "config": begin["config"] | {"arm": arm}}
    if package.__name__ == "wandb":
        more = {"id": identity, "name": arm, "dir": begin["folder"], "reinit": "create_new"}
        return package.init(**options, **more, resume="allow")
    return package.init(**options, name=identity, resume="allow", embed=False)


if __name__ == "__main__":
    feed(sys.stdin)
