"""`python -m eeg2text_jax` is the same as `eeg2text`."""

import os
import sys

from eeg2text_jax.cli import main

LARGE_ARRAYS = ("run", "train", "decode", "bench")  # commands that have them in the host's memory on a CPU
HUGE_PAGES = "glibc.malloc.hugetlb=1"


def start() -> int:
    """The program's entry."""
    if sys.argv[1:2] and sys.argv[1] in LARGE_ARRAYS:
        use_huge_pages()
    return main()


def use_huge_pages() -> None:
    """Starts the process anew with glibc told to ask the kernel for huge pages, unless it has been.

    XLA's CPU backend allocates what a training step computes with anew at every step. In pages of 4 KiB that is 630,000
    page faults for BART-base and a batch of 32; in huge pages a step takes 0.81 to 0.86 of the time. Elsewhere than on
    Linux with glibc 2.35 or later it does nothing.
    """
    given = os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform == "linux" and "glibc.malloc.hugetlb" not in given:
        tunables = ":".join(filter(None, (given, HUGE_PAGES)))
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "GLIBC_TUNABLES": tunables})


if __name__ == "__main__":
    sys.exit(start())
