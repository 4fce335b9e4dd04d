"""Run a function for all arms (training runs of the grid) on a mesh."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import traverse_util
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from eeg2text_jax.base.devices import mesh as meshes
from eeg2text_jax.base.devices.mesh import ARM, DATA, arm_sharding, platform_of, replicated, seeds_sharding


class Divided(NamedTuple):
    """Parameters that each arm trains, and a frozen model that all arms share."""

    own: Any  # nested dict, each leaf `[A, ...]`, or without axis A for one arm
    frozen: Any  # nested dict without axis A: all arms use one copy in memory


def divided(params: dict[str, Any], is_own: Callable[[tuple[str, ...], Any], bool]) -> Divided:
    """Divide nested parameters by `is_own(path, leaf)`; `joined` is the inverse."""
    flat = traverse_util.flatten_dict(params)
    per_arm = {path: leaf for path, leaf in flat.items() if is_own(path, leaf)}
    frozen = {path: leaf for path, leaf in flat.items() if path not in per_arm}
    return Divided(traverse_util.unflatten_dict(per_arm), traverse_util.unflatten_dict(frozen))


def joined(params: Any) -> Any:
    """Return one arm's parameters, perhaps `Divided`, as one nested dict."""
    return _merged(params.own, params.frozen) if isinstance(params, Divided) else params


def _merged(per_arm: Any, frozen: Any) -> Any:
    both = {name: _merged(per_arm[name], frozen[name]) for name in per_arm.keys() & frozen.keys()}
    return {**frozen, **per_arm, **both}


def jit_once(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return `jax.jit(function, **options)`, the same for equal arguments.

    Folds, and runs that resume in one process, then compile a program once. Methods are equal if their objects are; a
    `functools.partial` or a local function only to itself.
    """
    leaves, structure = jax.tree.flatten(options)
    return _jitted(function, structure, tuple(leaves))


@functools.lru_cache(maxsize=16)  # UniCoRN's three stages have 15 programs
def _jitted(function: Callable[..., Any], structure: Any, leaves: tuple[Any, ...]) -> Callable[..., Any]:
    return jax.jit(function, **jax.tree.unflatten(structure, leaves))


_STEP_OPTIONS = {"cuda": {"xla_gpu_dot_merger_threshold_mb": 0}, "tpu": {"xla_tpu_scoped_vmem_limit_kib": 32 * 1024}}


def compile_step(
    step: Callable[..., Any], mesh: Mesh | AbstractMesh, state_formats: Any, study_shardings: Any = None
) -> Callable[..., Any]:
    """Jit `step(state, batch, study) -> (state, metrics)` for a mesh, see `jit_once`; the state is donated.

    The batch `[S, B, ...]` is sharded along `data`, the metrics `[A]` along `arm`. The state has the layouts
    `state_formats` of `Placement.formats`, `study` has `study_shardings`; None: replicated.

    On GPUs, XLA would merge products with a common operand, and copy the rows of all sums of `layers.column_sums` into
    one array: 1.3 of 31.3 ms on an H100 (BART-large, batch 32, bfloat16).

    On TPUs, an operation may use 32 MiB of vector memory instead of 16 (a v4 ignores what it lacks). By the compiler's
    estimate for a v5e, BART-large took 71.8 instead of 74.5 ms with batch 32 (24 MiB: 72.8, 48 MiB: 74.1); with batch
    128, 24 MiB takes 2 ms longer than 32. A search would take 119 instead of 118 ms.
    """
    platform = platform_of(mesh)
    return jit_once(
        step,
        donate_argnums=0,
        in_shardings=(state_formats, seeds_sharding(mesh), study_shardings or replicated(mesh)),
        out_shardings=(state_formats, arm_sharding(mesh)),
        compiler_options=meshes.compiler_options(platform) | _STEP_OPTIONS.get(platform, {}),
    )


def each_arm(
    function: Callable[..., Any], mesh: Mesh | AbstractMesh | None, mapping: str, arguments: Any, shared: Any
) -> Any:
    """Return `function(*arguments, shared)` of every arm; arguments and result are `[A, ...]`, sharded along `arm`.

    A device computes its own arms, so arms cannot communicate; along `data` XLA partitions `function`. Several arms are
    computed in parallel (`mapping="vmap"`) or in sequence (`"map"`), a single one without an arm axis, which costs a
    TPU copies: 15 of 180 ms of BART-large's training step by the compiler's estimate.
    """

    def local(arguments: Any, shared: Any) -> Any:
        return _each_local(lambda slices: function(*slices, shared), arguments, mapping)

    if mesh is None or mesh.shape[ARM] == 1:
        return meshes.with_mesh(local, mesh)(arguments, shared)
    arms, everywhere = PartitionSpec(ARM), PartitionSpec()
    return jax.shard_map(
        local, mesh=mesh, in_specs=(arms, everywhere), out_specs=arms, axis_names={ARM}, check_vma=False
    )(arguments, shared)


def _each_local(function: Callable[..., Any], arguments: Any, mapping: str) -> Any:
    if jax.tree.leaves(arguments)[0].shape[0] == 1:
        return jax.tree.map(lambda leaf: leaf[None], function(jax.tree.map(lambda leaf: leaf[0], arguments)))
    return jax.lax.map(function, arguments) if mapping == "map" else jax.vmap(function)(arguments)


def choose_by_arm(values: Sequence[jax.Array], which: Sequence[int]) -> jax.Array:
    """Return `stack([values[i] for i in which])`, `[A, ...]`, by elementwise `where`.

    If every device has all `values`, nothing is exchanged; a stack would need an all-to-all across arms.
    """
    number = jnp.asarray(which, jnp.int32).reshape(-1, *[1] * values[0].ndim)
    stacked = jnp.broadcast_to(values[0][None], (len(which), *values[0].shape))
    for i, value in enumerate(values[1:], start=1):
        stacked = jnp.where(number == i, value[None], stacked)
    return stacked


def shard_map_arms(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Jit a function of one arm so that every device runs it alone, on its arms and its rows of the batch.

    A `while_loop` under `vmap`, or partitioned by XLA, would run until all arms stop, and communicate in every turn.
    Here arms on one device run in sequence, each as long as it needs.

    `function` computes one arm's `(params, fed, shared) -> result`: `fed` are the inputs of this arm, `shared` those of
    all arms. The first axis of both is the batch or a multiple of it. The function that is returned computes all arms:
    its `params` are `[A, ...]` or `Divided`, `fed` and the result `[A, B, ...]`, and `shared` `[B, ...]`.
    """
    arms, fed_rows, rows = PartitionSpec(ARM), PartitionSpec(ARM, DATA), PartitionSpec(DATA)

    def local(params: Any, fed: Any, shared: Any) -> Any:
        if not isinstance(params, Divided):
            return _each_local(lambda arm: function(*arm, shared), (params, fed), "map")
        return _each_local(
            lambda arm: function(Divided(arm[0], params.frozen), arm[1], shared), (params.own, fed), "map"
        )

    def apart(params: Any, fed: Any, shared: Any) -> Any:
        of_params = Divided(arms, PartitionSpec()) if isinstance(params, Divided) else arms
        # check_vma refuses a loop whose carry is a constant at first and differs between shards later.
        return jax.shard_map(
            local, mesh=mesh, in_specs=(of_params, fed_rows, rows), out_specs=fed_rows, check_vma=False
        )(params, fed, shared)

    return jax.jit(apart, compiler_options=meshes.compiler_options(platform_of(mesh)))


def tensor_parallel_arms(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Return the function of all arms, as `shard_map_arms`, for a frozen model with weights sharded along `data`.

    The devices of an arm decode the whole batch together: each multiplies by its part of every weight matrix, and they
    exchange the activations of one position (small) instead of all weights at every step.
    """

    def local(per_arm: Any, fed: Any, rest: tuple[Any, Any]) -> Any:
        frozen, shared = rest
        with meshes.whole_batch():
            return function(Divided(per_arm, frozen), fed, shared)

    def together(params: Divided, fed: Any, shared: Any) -> Any:
        fed = jax.lax.with_sharding_constraint(fed, arm_sharding(mesh))
        rest = (params.frozen, jax.lax.with_sharding_constraint(shared, replicated(mesh)))
        result = each_arm(local, mesh, "map", (params.own, fed), rest)
        return jax.lax.with_sharding_constraint(result, arm_sharding(mesh))

    return jax.jit(together, compiler_options=meshes.compiler_options(platform_of(mesh)))
