"""Decoding all arms of a grid on a mesh: every device searches for its own arms and rows, and none waits for another.

A search inside `vmap`, or one left to XLA's partitioner, stops when all arms have stopped and asks them at every
step, which is an all-reduce over the mesh; here each shard runs a loop of its own and the program has no collective.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from eeg2text_jax.decoding.generate import Generated, check_request, search
from eeg2text_jax.decoding.spec import GenerationSpec
from eeg2text_jax.decoding.teacher_forced import TeacherForced, score_reference
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.arms import compile_apart

Inputs = dict[str, jax.Array]


def generate_arms(
    model: Seq2SeqModel,
    params: Any,
    fed: Inputs,
    shared: Inputs,
    spec: GenerationSpec,
    mesh: Mesh,
    *,
    keys: jax.Array | None = None,
    halvings: int = 0,
) -> Generated:
    """`generate` for stacked arms; takes no target.

    Args:
      model: a `Seq2SeqModel`.
      params: of every arm, `[A, ...]`; A is a multiple of the mesh's `arm` axis.
      fed: inputs that differ between arms, `[A, B, ...]`; B is a multiple of the mesh's `data` axis.
      shared: inputs that arms share, `[B, ...]`, such as `mask`.
      spec: the settings.
      mesh: with axes `("arm", "data")`.
      keys: PRNG keys `[B]`, one a sentence, for `spec.do_sample`.
      halvings: see `beam_search`; changes no result.

    Returns:
      `Generated` with all leaves `[A, N, ...]`.
    """
    check_request({**fed, **shared}, spec, keys)
    return generate_program(model, spec, mesh, halvings)(params, fed, (shared, keys if spec.do_sample else None))


def teacher_forced_arms(
    model: Seq2SeqModel, params: Any, fed: Inputs, shared: Inputs, labels: jax.Array, mesh: Mesh
) -> TeacherForced:
    """`teacher_forced` for stacked arms: labels `[B, T]`, all leaves of the result `[A, B, ...]`."""
    return teacher_forced_program(model, mesh)(params, fed, (shared, labels))


@functools.lru_cache(maxsize=64)
def generate_program(
    model: Seq2SeqModel, spec: GenerationSpec, mesh: Mesh, halvings: int = 0
) -> Callable[..., Generated]:
    """The jitted `(params, fed, (shared, keys)) -> Generated`; one compilation per shape of the inputs."""

    def decode(params: Any, fed: Inputs, shared: tuple[Inputs, jax.Array | None]) -> Generated:
        inputs, keys = shared
        return search(model, params, {**fed, **inputs}, spec, keys, halvings)

    return compile_apart(decode, mesh)


@functools.lru_cache(maxsize=64)
def teacher_forced_program(model: Seq2SeqModel, mesh: Mesh) -> Callable[..., TeacherForced]:
    """The jitted `(params, fed, (shared, labels)) -> TeacherForced`."""

    def decode(params: Any, fed: Inputs, shared: tuple[Inputs, jax.Array]) -> TeacherForced:
        inputs, labels = shared
        return score_reference(model, params, {**fed, **inputs}, labels, with_logits=False)

    return compile_apart(decode, mesh)
