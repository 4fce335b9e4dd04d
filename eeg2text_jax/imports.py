"""Imports of libraries without what they would import besides, if it is installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden(*packages: str) -> Iterator[None]:
    """Let imports in the block find none of these packages, unless they were imported before."""
    absent = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None marks what cannot be imported
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
