"""The version of this package, its citation, and versions of installed packages."""

__version__ = "0.2.0"
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
    """Return the version of a distribution; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


COMPILERS = {  # platform -> the packages on whose versions a compiled program depends
    "tpu": ("jax", "jaxlib", "libtpu"),
    "cuda": ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12"),
    "cpu": ("jax", "jaxlib"),
}


def compiler_versions(platform: str) -> dict[str, str]:
    """Return package -> version of what compiles programs for a platform, a key of `COMPILERS`."""
    return {name: version for name in COMPILERS[platform] if (version := installed_version(name))}


def in_words(versions: dict[str, str]) -> str:
    """Return versions as text, such as `jax 0.10.2, libtpu 0.0.42.1`."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def with_version(package: str) -> str:
    """Return `NAME-VERSION` of an installed distribution, for signatures."""
    from importlib.metadata import version  # 25 ms, for which `eeg2text --help` need not wait

    return f"{package}-{version(package)}"
