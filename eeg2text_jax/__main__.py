"""`python -m eeg2text_jax` is the same as `eeg2text`."""

import sys

from eeg2text_jax.cli import main
from eeg2text_jax.cpu import use_huge_pages

LARGE_ARRAYS = ("run", "train", "decode", "bench")  # commands that have them in the host's memory on a CPU


def start() -> int:
    """The program's entry."""
    if sys.argv[1:2] and sys.argv[1] in LARGE_ARRAYS:
        use_huge_pages()
    return main()


if __name__ == "__main__":
    sys.exit(start())
