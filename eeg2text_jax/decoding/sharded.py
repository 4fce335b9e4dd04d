"""Decode whole test sets on a mesh for all arms, the trained models of a run: one per training condition and seed.

Each device runs the search on its arms and rows without collectives, unless a frozen model is divided over devices. A
`while_loop` under `vmap`, or partitioned by XLA, would need an all-reduce per step for its stop condition; with
`shard_map`, each shard runs its own loop.

Batches have one shape per length bucket; results come in the order of the samples. A sample's batch depends only on the
samples' numbers of EEG positions, so the reference texts in the data file cannot change the predictions.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from eeg2text_jax.decoding.generate import Generated, check_request, search
from eeg2text_jax.decoding.teacher_forced import TeacherForced, score_reference
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.functional import Rounded, Seq2SeqModel
from eeg2text_jax.parallel.arms import Divided, shard_map_arms, tensor_parallel_arms
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.parallel.mesh import platform_of
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.search.settings import GenerationSpec


class Slice(NamedTuple):
    """Samples that are decoded in one batch."""

    samples: np.ndarray  # int64 [size], positions in the test set; entries from `real` on repeat the first
    real: int  # number of samples before the repeats
    words: int  # EEG positions of the bucket, W


def plan_slices(n_words: np.ndarray, edges: Sequence[int], size: int) -> list[Slice]:
    """Cut a test set into slices of `size`, shortest first, so that similar lengths share a slice.

    Args:
      n_words: EEG positions of every sample, `[N]`.
      edges: the widths of the buckets; each is one compilation.
      size: samples per slice; the last slice of a bucket is padded.

    Raises:
      UserError: a sample has more words than the widest bucket.
    """
    edges = np.unique(np.asarray(edges, int))
    if len(n_words) and n_words.max() > edges[-1]:
        raise UserError(
            f"batch.buckets: the widest has {edges[-1]} words but a test sample has {n_words.max()}; add a wider "
            "bucket or lower data.max_words."
        )
    bucket = np.searchsorted(edges, n_words)
    slices = []
    for b, width in enumerate(edges):
        inside = np.flatnonzero(bucket == b)
        inside = inside[np.argsort(n_words[inside], kind="stable")]
        for start in range(0, len(inside), size):
            real = inside[start : start + size]
            samples = np.concatenate([real, np.repeat(real[:1], size - len(real))])
            slices.append(Slice(samples, len(real), int(width)))
    return slices


def decode_dataset(
    slices: Sequence[Slice], decode: Callable[[Slice], Any], title: str, *, axis: int = 0, sentences: int = 1
) -> Any:
    """Run `decode` on every slice; return the results as NumPy arrays, without padding, in the order of the samples.

    The next slice is dispatched before the results of the previous one are read, so the device does not wait.

    Args:
      slices: from `plan_slices`.
      decode: maps a slice to a pytree of device arrays with the slice's samples on axis `axis`; all other axes must
        have the same size in every slice.
      title: the label of the progress display, which also shows sentences/s.
      axis: the axis of samples in the results.
      sentences: decoded sentences per sample (arms times modes, for example), for the rate.
    """
    total = sum(part.real for part in slices)
    start, parts, done = time.monotonic(), [], 0
    before = (slice(None),) * axis
    with ProgressLine(title, total) as progress:
        for part, result in _one_ahead(slices, decode):
            parts.append(jax.tree.map(lambda leaf, n=part.real: leaf[(*before, slice(n))], to_host(result)))
            done += part.real
            rate = done * sentences / (time.monotonic() - start)
            progress.advance(part.real, f"{part.words} words, {rate:.1f} sentences/s")
    order = np.concatenate([part.samples[: part.real] for part in slices])
    if not np.array_equal(np.sort(order), np.arange(total)):
        raise AssertionError("every sample must be decoded exactly once")
    place = np.argsort(order)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis).take(place, axis), *parts)


def _one_ahead(slices: Sequence[Slice], decode: Callable[[Slice], Any]) -> Iterator[tuple[Slice, Any]]:
    """Yield each slice and its result, after `decode` of the next slice is dispatched."""
    pending = None
    for part in slices:
        dispatched = part, decode(part)
        if pending is not None:
            yield pending
        pending = dispatched
    if pending is not None:
        yield pending


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
    compactions: int = 0,
    tensor_parallel: bool = False,
) -> Generated:
    """Run `generate` for A arms (trained models) at once; takes no target. Leaves of the result are `[A, N, ...]`.

    Args:
      params: parameters of every arm, `[A, ...]`, or the result of `rounded_arms`; A is a multiple of the mesh's `arm`
        axis.
      fed: inputs that differ between arms, `[A, B, ...]`; B is a multiple of the mesh's `data` axis.
      shared: inputs common to all arms, `[B, ...]`, such as `mask`.
      keys: PRNG keys `[B]`, one per sentence, for `spec.do_sample`.
      compactions: see `beam_search`; does not change results.
      tensor_parallel: the frozen model of `params` is divided over `data`, see `tensor_parallel_arms`.
    """
    check_request({**fed, **shared}, spec, keys)
    program = generate_program(model, spec, mesh, compactions, tensor_parallel)
    return program(params, fed, (shared, keys if spec.do_sample else None))


def rounded_arms(model: Seq2SeqModel, params: Any, spec: GenerationSpec) -> Any:
    """Return the parameters for `generate_arms`: with `spec.weights_dtype` "int8", rounded once for all batches.

    Parameters with a frozen model that all arms share are returned as they are: `generate_arms` rounds that model for
    each batch.
    """
    if spec.weights_dtype != "int8" or isinstance(params, Divided):
        return params
    return Rounded(params, jax.jit(jax.vmap(lambda params: model.rounded(params).weights))(params))


@functools.lru_cache(maxsize=64)
def generate_program(
    model: Seq2SeqModel, spec: GenerationSpec, mesh: Mesh, compactions: int = 0, tensor_parallel: bool = False
) -> Callable[..., Generated]:
    """Return the jitted function `(params, fed, (shared, keys)) -> Generated` of `generate_arms`."""

    def decode(params: Any, fed: Inputs, shared: tuple[Inputs, jax.Array | None]) -> Generated:
        inputs, keys = shared
        return search(model, params, {**fed, **inputs}, spec, keys, compactions, platform=platform_of(mesh))

    return program_of_arms(decode, mesh, tensor_parallel)


@functools.lru_cache(maxsize=64)
def teacher_forced_program(
    model: Seq2SeqModel, mesh: Mesh, tensor_parallel: bool = False
) -> Callable[..., TeacherForced]:
    """Return the jitted function `(params, fed, (shared, labels [B, T])) -> TeacherForced`, leaves `[A, B, ...]`.

    Its arguments `params`, `fed` and `shared` are those of `generate_arms`.
    """

    def decode(params: Any, fed: Inputs, shared: tuple[Inputs, jax.Array]) -> TeacherForced:
        inputs, labels = shared
        return score_reference(model, params, {**fed, **inputs}, labels, with_logits=False)

    return program_of_arms(decode, mesh, tensor_parallel)


def program_of_arms(function: Callable[..., Any], mesh: Mesh, tensor_parallel: bool) -> Callable[..., Any]:
    """Return the jitted function that applies `function`, written for one trained model, to all arms of a mesh."""
    return (tensor_parallel_arms if tensor_parallel else shard_map_arms)(function, mesh)
