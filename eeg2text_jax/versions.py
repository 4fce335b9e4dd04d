"""Versions of this package and of the packages that figures depend on."""

__version__ = "0.2.0"
OWN_VERSION = f"eeg2text_jax-{__version__}"  # as signatures name it


def with_version(package: str) -> str:
    """Return `NAME-VERSION` of an installed distribution, for signatures."""
    from importlib.metadata import version  # 25 ms, for which `eeg2text --help` need not wait

    return f"{package}-{version(package)}"
