"""Import optional packages, and libraries without the optional packages that they would import by themselves."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eeg2text_jax.errors import UserError


@contextmanager
def hidden(*packages: str) -> Iterator[None]:
    """Let imports in the block find none of these packages, unless they were imported before."""
    absent = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None: the import fails
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def hide_torch() -> None:
    """Let transformers find no PyTorch, which it would import with the first configuration: 3.5 s of CPU time.

    Commands that import language models call this when their arguments are known to be right. Only `bench` uses models
    of transformers, and other libraries still find PyTorch.
    """
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    with hidden("torch"):
        from transformers.utils import is_torch_available

        is_torch_available()  # transformers caches the answer


def library(name: str, extra: str) -> Any:
    """Import an optional package; if it is missing, raise UserError with the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"this needs {name}, which is not installed; pip install 'eeg2text_jax[{extra}]'.") from error


def parquet_errors() -> tuple[type[Exception], ...]:
    """Return the errors of pyarrow for a damaged Parquet file, and those for texts that are not UTF-8."""
    return library("pyarrow", "parquet").ArrowException, OSError, ValueError
