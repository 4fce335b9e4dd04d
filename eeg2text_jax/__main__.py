"""`python -m eeg2text_jax` is the same as `eeg2text`."""

import os
import sys

HUGE_PAGES = "glibc.malloc.hugetlb=1"
LARGE_ARRAYS = ("run", "train", "decode", "bench")  # commands whose arrays are in host memory on a CPU


def use_huge_pages() -> None:
    """Restart the process once with glibc's huge pages enabled.

    XLA's CPU backend allocates its buffers anew at every step: 630,000 page faults of 4 KiB pages for BART-base and a
    batch of 32. With huge pages a step takes 0.81 to 0.86 of the time. No effect without Linux and glibc 2.35 or later.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform == "linux" and "glibc.malloc.hugetlb" not in tunables:
        tunables = ":".join(filter(None, (tunables, HUGE_PAGES)))
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "GLIBC_TUNABLES": tunables})


def start() -> int:
    """Run the command line and return its exit status."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command in LARGE_ARRAYS and not {"-h", "--help"} & set(sys.argv):
        use_huge_pages()
    from eeg2text_jax.commands.cli import main  # imported here, because a restart would discard the import (50 ms)

    return main()


if __name__ == "__main__":
    sys.exit(start())
