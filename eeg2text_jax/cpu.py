"""What is done for the sake of CPUs alone, each with what it gains there.

JAX is imported where it is used: the process may be started anew before it is needed.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax

HUGE_PAGES = "glibc.malloc.hugetlb=1"


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


def unfused(scores: "jax.Array") -> "jax.Array":
    """The same, computed before what reads it: `top_k` behind a fused producer takes five times as long on a CPU."""
    import jax

    return jax.lax.optimization_barrier(scores)


def fenced(head: "Callable[[jax.Array], jax.Array]", x: "jax.Array", true: "jax.Array") -> "jax.Array":
    """`head(x)`, on a CPU behind a branch that is always taken; `true` is what XLA cannot know to be so.

    XLA:CPU would fuse the product with the softmax that follows and take three times as long over it (BART-base, 160
    rows: 378 ms in place of 126); `optimization_barrier` is gone by then.
    """
    import jax
    import jax.numpy as jnp

    def branch(x):
        nothing = jax.eval_shape(head, x)
        return jax.lax.cond(true, head, lambda _: jnp.zeros(nothing.shape, nothing.dtype), x)

    return jax.lax.platform_dependent(x, cpu=branch, default=head)
