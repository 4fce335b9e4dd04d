"""What is done for the sake of CPUs alone, each with what it gains there.

JAX is imported where it is used: the process may be started anew before it is needed.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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


def summed_by_blocks(
    function: "Callable[[Any, jax.Array, Any], jax.Array]", shared: Any, x: "jax.Array", fixed: Any, blocks: int
) -> "jax.Array":
    """`function(shared, x, fixed)`, a scalar that is a sum over axis 1 of `x` and `fixed`, in that many blocks of it.

    Differentiable by `shared` and `x`: each block's gradient is computed with its value, so that what lies between is
    that of one block. Logits of a batch are memory that nobody has touched, and on a CPU each page of it is a fault: a
    training step of BART-base, 32 texts of 40 tokens, takes 8.4 s in blocks and 9.2 s without.
    """
    import jax
    import jax.numpy as jnp
    from jax import lax

    def cut(rows: jax.Array) -> jax.Array:
        return jnp.moveaxis(rows.reshape(len(rows), blocks, -1, *rows.shape[2:]), 1, 0)

    @jax.custom_vjp
    def run(shared: Any, x: jax.Array, fixed: Any) -> jax.Array:
        return lax.map(lambda part: function(shared, *part), jax.tree.map(cut, (x, fixed))).sum()

    def forward(shared: Any, x: jax.Array, fixed: Any) -> tuple[jax.Array, Any]:
        def add(sums: Any, part: Any) -> tuple[Any, jax.Array]:
            value, (to_shared, to_x) = jax.value_and_grad(function, argnums=(0, 1))(shared, *part)
            return jax.tree.map(lambda a, b: a + b.astype(a.dtype), sums, (value, to_shared)), to_x

        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), (jnp.zeros(()), shared))
        (value, to_shared), to_x = lax.scan(add, zeros, jax.tree.map(cut, (x, fixed)))
        return value, (to_shared, jnp.moveaxis(to_x, 0, 1).reshape(x.shape))

    def backward(kept: Any, gradient: jax.Array) -> tuple[Any, jax.Array, None]:
        to_shared, to_x = kept
        to_shared = jax.tree.map(lambda mine, leaf: (mine * gradient).astype(leaf.dtype), to_shared, shared)
        return to_shared, to_x * gradient.astype(to_x.dtype), None

    run.defvjp(forward, backward)
    return run(shared, x, fixed)


def convolve(x: "jax.Array", kernel: "jax.Array") -> "jax.Array":
    """A convolution of volumes `[N, X, Y, Z, C]`, stride 2, padding 1, kernel `[3, 3, 3, C, D]`, as one matrix product.

    XLA:CPU computes three-dimensional convolutions one number at a time: forward and backward of 32 volumes of
    64 x 64 x 27 through four of them and four transposed ones took 122 s, in this form 1.6 s.
    """
    return patches(x) @ kernel.reshape(-1, kernel.shape[-1])


def convolve_back(x: "jax.Array", kernel: "jax.Array", shape: tuple[int, ...]) -> "jax.Array":
    """The transposed convolution: `[N, x, y, z, D]`, kernel `[3, 3, 3, C, D]` -> `[N, *shape, C]`; see `convolve`."""
    return add_patches(x @ kernel.reshape(-1, kernel.shape[-1]).T, shape)


def patches(x: "jax.Array") -> "jax.Array":
    """`[N, X, Y, Z, C] -> [N, x, y, z, 27 C]`, x = ceil(X / 2): the 3 x 3 x 3 voxels around every other one.

    One axis after the other, and by slices of the two halves of an axis: gathers, and slices with a stride, are slow.
    """
    import jax.numpy as jnp

    for axis in (3, 2, 1):
        even, odd = _halves(x, axis)
        x = jnp.concatenate([_moved(odd, axis, 1), even, odd], axis=-1)
    return x


def add_patches(x: "jax.Array", shape: tuple[int, ...]) -> "jax.Array":
    """The transpose of `patches`: `[N, x, y, z, 27 C] -> [N, *shape, C]`."""
    import jax
    import jax.numpy as jnp

    for axis in (1, 2, 3):
        before, at, after = jnp.split(x, 3, axis=-1)
        both = jnp.stack([at, after + _moved(before, axis, -1)], axis=axis + 1)
        both = both.reshape(*x.shape[:axis], -1, *at.shape[axis + 1 :])
        x = jax.lax.slice_in_dim(both, 0, shape[axis - 1], axis=axis)
    return x


def _halves(x: "jax.Array", axis: int) -> "tuple[jax.Array, jax.Array]":
    """Entries 0, 2, 4, ... and 1, 3, 5, ... of an axis, 0 where there is none."""
    import jax
    import jax.numpy as jnp

    if x.shape[axis] % 2:
        x = jnp.pad(x, [(0, int(number == axis)) for number in range(x.ndim)])
    x = x.reshape(*x.shape[:axis], -1, 2, *x.shape[axis + 1 :])
    return tuple(jax.lax.index_in_dim(x, half, axis + 1, keepdims=False) for half in (0, 1))


def _moved(x: "jax.Array", axis: int, by: int) -> "jax.Array":
    """Entries one place further on (`by` 1) or back (-1) along an axis, with 0 where nothing comes from."""
    import jax
    import jax.numpy as jnp

    edge = (1, -1, 0) if by > 0 else (-1, 1, 0)
    return jax.lax.pad(x, jnp.zeros((), x.dtype), [edge if number == axis else (0, 0, 0) for number in range(x.ndim)])
