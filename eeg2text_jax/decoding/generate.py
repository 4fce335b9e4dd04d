"""Free-running decoding of one batch of recordings. No function here accepts a target."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from eeg2text_jax.base.devices.arms import Divided, shard_map_arms, tensor_parallel_arms
from eeg2text_jax.base.devices.mesh import compiler_options, default_platform, platform_of
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.decoding.beam_search import Growth, Hypotheses, beam_search, sample
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.decoding.teacher_forced import TeacherForced, score_reference
from eeg2text_jax.models.attention import reorder_beams, resize
from eeg2text_jax.models.functional import Inputs, Prepared, SearchWeights, Seq2SeqModel

INPUTS = frozenset({"features", "inputs_embeds", "input_ids", "mask", "before", "after"})


class Generated(NamedTuple):
    """N = B * num_return_sequences generated sequences, those of one sentence adjacent, best first.

    Each begins with the decoder's start token and is padded after its end.
    """

    sequences: Array  # int32 [N, max_length]
    lengths: Array  # int32 [N], start and end token included
    scores: Array  # float32 [N], log-probability; in beam search, divided by (generated tokens ** length_penalty)
    steps: Array  # int32 [N], decoder steps taken for the row's sentence


def generate(
    model: Any,
    params: Any,
    inputs: dict[str, Array],
    spec: GenerationSpec,
    *,
    key: Array | None = None,
    compactions: int = 0,
) -> Generated:
    """Decode a batch without any target, by beam search, greedily or by sampling, according to `spec`.

    It compiles once per model, spec and shape of the inputs.

    Args:
      model: a `Seq2SeqModel`.
      params: its parameters; for several batches, `model.prepared(params, spec.weights_dtype)` saves time.
      inputs: `features [B, W, F]`, `inputs_embeds [B, S, D]` or `input_ids [B, S]`; and `mask [B, S]` bool.
      spec: the settings.
      key: for `spec.do_sample`: a PRNG key, or one per sentence `[B]`, so that results do not depend on the batch.
      compactions: see `beam_search`; does not change results.

    Raises:
      UserError: an input is not an encoder input (labels or a decoder prompt, for example).
      ValueError: `spec.do_sample` is set without a key; or params are rounded, and `spec.weights_dtype` is "".

    Examples:
      >>> import jax.numpy as jnp
      >>> from eeg2text_jax import GenerationSpec, generate, load_pretrained
      >>> model, params = load_pretrained("export")
      >>> recordings = {"features": jnp.zeros((2, 4, 6)), "mask": jnp.ones((2, 4), bool)}
      >>> found = generate(model, params, recordings, GenerationSpec.from_fields({"max_length": 8}, model))
      >>> found.sequences.shape
      (2, 8)
    """
    check_request(inputs, spec, key)
    if isinstance(params, Prepared) and params.in_int8 and not spec.weights_dtype:
        raise ValueError("params are rounded to int8, and spec.weights_dtype is ''")
    program = compiled_search(default_platform())
    return program(model, params, inputs, spec, key if spec.do_sample else None, compactions)


def check_request(inputs: Inputs, spec: GenerationSpec, key: Array | None) -> None:
    """Raise if inputs, spec and key are not valid for `generate`."""
    if strangers := set(inputs) - INPUTS:
        raise UserError(
            f"free-running decoding takes {', '.join(sorted(INPUTS))}, not {', '.join(sorted(strangers))}, as it "
            "begins with the start token alone; leave out labels and a decoder's prompt."
        )
    if spec.do_sample and key is None:
        raise ValueError("spec.do_sample needs a PRNG key")


def search(
    model: Any,
    params: Any,
    inputs: Inputs,
    spec: GenerationSpec,
    key: Array | None,
    compactions: int = 0,
    *,
    platform: str | None = None,
) -> Generated:
    """Do what `generate` does, as a pure function for other JAX transformations; `platform`: see `mesh.platform_of`."""
    if spec.weights_dtype == "int8" and not (isinstance(params, Prepared) and params.in_int8):
        params = model.prepared(params.params if isinstance(params, Prepared) else params, "int8")
    hidden, mask = model.encode(params, inputs)
    batch, returned = hidden.shape[0], spec.num_return_sequences
    beams = spec.num_beams if spec.num_beams > 1 else returned
    cache = model.init_cache(params, hidden, mask, beams, spec.max_length, spec.cache_dtype)
    step = model.decode_step(params)
    keys = key if key is None or key.ndim else _folded(key, batch)
    if spec.num_beams > 1:
        lengths = model.cache_lengths(beams, spec.max_length, platform)
        growth = Growth(lengths, functools.partial(resize, on_tpu=platform == "tpu")) if len(lengths) > 1 else None
        hypotheses = beam_search(
            step, reorder_beams, cache, batch, spec, keys, compactions=compactions, growth=growth, platform=platform
        )
    else:
        of_rows = None if keys is None else jax.vmap(lambda key: _folded(key, returned))(keys).reshape(-1)
        hypotheses = sample(step, cache, batch, spec, of_rows)
    return _flatten(hypotheses, returned, len(spec.decoder_prompt))


@functools.cache
def compiled_search(platform: str) -> Any:
    static, options = ("model", "spec", "compactions"), compiler_options(platform)
    return jax.jit(functools.partial(search, platform=platform), static_argnames=static, compiler_options=options)


def _folded(key: Array, count: int) -> Array:
    """Return `count` different keys made from one, `[count]`."""
    return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(count))


def _flatten(hypotheses: Hypotheses, returned: int, prompt: int) -> Generated:
    """Return the first `returned` hypotheses of each sentence, without the `prompt` tokens after the start token."""

    def rows(values: Array) -> Array:
        return values[:, :returned].reshape(-1, *values.shape[2:])

    steps = jnp.repeat(hypotheses.steps, returned, axis=0)
    tokens = rows(hypotheses.tokens)
    if prompt:
        tokens = jnp.concatenate([tokens[:, :1], tokens[:, 1 + prompt :]], axis=1)
    return Generated(tokens, rows(hypotheses.lengths) - prompt, rows(hypotheses.scores), steps)


# All arms, the trained models of a run, on a mesh. Each device searches for its arms and rows without collectives,
# unless a frozen model is divided over devices; a `while_loop` under `vmap`, or partitioned by XLA, would need an
# all-reduce per step for its stop condition.


def generate_arms(
    model: Seq2SeqModel,
    params: Any,
    fed: Inputs,
    shared: Inputs,
    spec: GenerationSpec,
    mesh: Mesh,
    *,
    keys: Array | None = None,
    compactions: int = 0,
    tensor_parallel: bool = False,
) -> Generated:
    """Run `generate` for A arms (trained models) at once; leaves of the result are `[A, N, ...]`.

    `params` are those of every arm, `[A, ...]`, or the result of `prepared_arms`; the mesh's `arm` axis divides A.
    Inputs that differ between arms are in `fed`, `[A, B, ...]`, others in `shared`, `[B, ...]`; the `data` axis divides
    B. `keys` are PRNG keys `[B]` for `spec.do_sample`. With `tensor_parallel`, the frozen model of `params` is divided
    over `data`, see `tensor_parallel_arms`.
    """
    check_request({**fed, **shared}, spec, keys)
    program = generate_program(model, spec, mesh, compactions, tensor_parallel)
    return program(params, fed, (shared, keys if spec.do_sample else None))


def prepared_arms(model: Seq2SeqModel, params: Any, spec: GenerationSpec) -> Any:
    """Return the parameters for `generate_arms`, prepared once, but for a frozen model, whose copy might not fit."""
    if isinstance(params, Divided):
        return params
    return Prepared(params, _prepare_weights(model, params, spec.weights_dtype))


@functools.partial(jax.jit, static_argnums=(0, 2))
def _prepare_weights(model: Seq2SeqModel, params: Any, weights_dtype: str) -> SearchWeights:
    return jax.vmap(lambda params: model.prepared(params, weights_dtype).weights)(params)


@functools.lru_cache(maxsize=64)
def generate_program(
    model: Seq2SeqModel, spec: GenerationSpec, mesh: Mesh, compactions: int = 0, tensor_parallel: bool = False
) -> Callable[..., Generated]:
    """Return the jitted function `(params, fed, (shared, keys)) -> Generated` of `generate_arms`."""

    def decode(params: Any, fed: Inputs, shared: tuple[Inputs, Array | None]) -> Generated:
        inputs, keys = shared
        return search(model, params, {**fed, **inputs}, spec, keys, compactions, platform=platform_of(mesh))

    return program_of_arms(decode, mesh, tensor_parallel)


@functools.lru_cache(maxsize=64)
def teacher_forced_program(
    model: Seq2SeqModel, mesh: Mesh, tensor_parallel: bool = False
) -> Callable[..., TeacherForced]:
    """Return the jitted function `(params, fed, (shared, labels [B, T])) -> TeacherForced`, see `generate_arms`."""

    def decode(params: Any, fed: Inputs, shared: tuple[Inputs, Array]) -> TeacherForced:
        inputs, labels = shared
        return score_reference(model, params, {**fed, **inputs}, labels, with_logits=False)

    return program_of_arms(decode, mesh, tensor_parallel)


def program_of_arms(function: Callable[..., Any], mesh: Mesh, tensor_parallel: bool) -> Callable[..., Any]:
    """Return the jitted function that applies `function`, of one trained model, to all arms of a mesh."""
    return (tensor_parallel_arms if tensor_parallel else shard_map_arms)(function, mesh)
