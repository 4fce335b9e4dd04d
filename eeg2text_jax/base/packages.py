"""The version of this package, its citation, and versions of installed packages."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eeg2text_jax.base.errors import UserError

__version__ = "1.0.0"
OWN_VERSION = f"eeg2text_jax-{__version__}"  # the package in signatures of metrics
BIBTEX = f"""\
@software{{eeg2text_jax,
  title = {{eeg2text\\_jax: train, decode and judge EEG-to-text models in JAX}},
  author = {{{{eeg2text\\_jax contributors}}}},
  version = {{{__version__}}}
}}
@article{{jo2024eegtotext,
  title = {{Are {{EEG}}-to-Text Models Working?}},
  author = {{Jo, Hyejeong and Yang, Yiqian and Han, Juhyeok and Duan, Yiqun and Xiong, Hui and Lee, Won Hee}},
  journal = {{arXiv preprint arXiv:2405.06459}},
  year = {{2024}},
  url = {{https://arxiv.org/abs/2405.06459}}
}}
"""


def installed_version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


COMPILERS = {  # platform -> packages on whose versions a compiled program depends
    "tpu": ("jax", "jaxlib", "libtpu"),
    "cuda": ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12"),
    "cpu": ("jax", "jaxlib"),
}


def compiler_versions(platform: str) -> dict[str, str]:
    """Return the versions of a platform's `COMPILERS`."""
    return {name: version for name in COMPILERS[platform] if (version := installed_version(name))}


def in_words(versions: dict[str, str]) -> str:
    """Return versions as text: `jax 0.10.2, libtpu 0.0.42.1`."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def with_version(package: str) -> str:
    """Return `NAME-VERSION` of an installed package, for signatures."""
    from importlib.metadata import version  # 25 ms, for which `eeg2text --help` need not wait

    return f"{package}-{version(package)}"


@contextmanager
def hidden(*packages: str) -> Iterator[None]:
    """Let imports in the block find none of these packages, unless imported before."""
    absent = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # None: the import fails
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def hide_torch() -> None:
    """Let transformers, and it alone, find no PyTorch, which it would import in 3.5 s of CPU time.

    Commands that import language models call this, but for `bench`.
    """
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    with hidden("torch"):
        from transformers.utils import is_torch_available

        is_torch_available()  # transformers caches the answer


def library(name: str, extra: str) -> Any:
    """Import an optional package; if it is missing, UserError names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"this needs {name}, which is not installed; pip install 'eeg2text_jax[{extra}]'.") from error


def parquet_errors() -> tuple[type[Exception], ...]:
    """Return pyarrow's errors for a damaged file or texts that are not UTF-8."""
    return library("pyarrow", "parquet").ArrowException, OSError, ValueError
