"""Versions of this package and of those that figures depend on."""

from importlib.metadata import version

__version__ = "0.1.0"
OWN_VERSION = f"eeg2text_jax-{__version__}"  # as signatures name it


def with_version(package: str) -> str:
    """`NAME-VERSION` of an installed distribution, as signatures name it."""
    return f"{package}-{version(package)}"
