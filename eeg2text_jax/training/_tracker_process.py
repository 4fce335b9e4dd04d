"""The process that logs JSON lines of `metrics_log.Tracker` with the tracker's package; it loads no JAX."""

import importlib
import json
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any


def feed(lines: Iterable[str]) -> None:
    """Start the runs that the first line names, and log the other lines; ImportError without the package."""
    lines = iter(lines)
    begin = json.loads(next(lines))
    name = begin["package"]
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{error}; pip install 'eeg2text_jax[{name}]' installs it") from error
    runs = {arm: _begin(package, begin, arm, identity) for arm, identity in begin["runs"].items()}
    for line in lines:
        row = json.loads(line)
        for arm, scalars in row["rows"].items():
            if scalars:
                runs[arm].log(scalars, step=row["step"])
    for run in runs.values():
        run.finish()


def _begin(package: ModuleType, begin: dict[str, Any], arm: str, identity: str) -> Any:
    options = {"project": begin["project"], "group": begin["group"], "config": begin["config"] | {"arm": arm}}
    if package.__name__ == "wandb":
        more = {"id": identity, "name": arm, "dir": begin["folder"], "reinit": "create_new"}
        return package.init(**options, **more, resume="allow")
    return package.init(**options, name=identity, resume="allow", embed=False)


if __name__ == "__main__":
    feed(sys.stdin)
