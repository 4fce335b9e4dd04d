"""Free-running decoding of one batch of recordings. No function here accepts a target."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.cache import reorder_beams, resize
from eeg2text_jax.models.functional import Rounded
from eeg2text_jax.parallel.mesh import compiler_options, default_platform
from eeg2text_jax.search.beam_search import Growth, Hypotheses, beam_search
from eeg2text_jax.search.sample import sample
from eeg2text_jax.search.settings import GenerationSpec

INPUTS = frozenset({"features", "inputs_embeds", "input_ids", "mask", "before", "after"})


class Generated(NamedTuple):
    """Generated sequences; N = B * num_return_sequences rows, those of one sentence adjacent, best first.

    Every sequence begins with the decoder's start token and is padded after its end.
    """

    sequences: jax.Array  # int32 [N, max_length]
    lengths: jax.Array  # int32 [N], start and end token included
    scores: jax.Array  # float32 [N], log-probability; in beam search, divided by (generated tokens ** length_penalty)
    steps: jax.Array  # int32 [N], decoder steps taken for the row's sentence


def generate(
    model: Any,
    params: Any,
    inputs: dict[str, jax.Array],
    spec: GenerationSpec,
    *,
    key: jax.Array | None = None,
    compactions: int = 0,
) -> Generated:
    """Decode a batch without any target, by beam search, greedily or by sampling, according to `spec`.

    One compilation per model, spec and shape of the inputs.

    Args:
      model: a `Seq2SeqModel`.
      params: its parameters. For `spec.weights_dtype` "int8" and several batches, `model.rounded(params)` saves time.
      inputs: `features [B, W, F]`, `inputs_embeds [B, S, D]` or `input_ids [B, S]`; and `mask [B, S]` bool.
      spec: the settings.
      key: for `spec.do_sample`: one PRNG key for the batch, or one per sentence `[B]`, which makes results independent
        of the batch.
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
    if isinstance(params, Rounded) and not spec.weights_dtype:
        raise ValueError("params are rounded to int8, and spec.weights_dtype is ''")
    program = compiled_search(default_platform())
    return program(model, params, inputs, spec, key if spec.do_sample else None, compactions)


def check_request(inputs: dict[str, jax.Array], spec: GenerationSpec, key: jax.Array | None) -> None:
    """Raise if the inputs, spec and key are not valid for `generate`."""
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
    inputs: dict[str, jax.Array],
    spec: GenerationSpec,
    key: jax.Array | None,
    compactions: int = 0,
    *,
    platform: str | None = None,
) -> Generated:
    """Do what `generate` does, as a pure function for use inside other JAX transformations.

    `platform` is where it will run, see `parallel.mesh.platform_of`. On TPUs and CPUs the cache of a beam search grows,
    see `models.cache.lengths_of`.
    """
    if spec.weights_dtype == "int8" and not isinstance(params, Rounded):
        params = model.rounded(params)
    hidden, mask = model.encode(params, inputs)
    batch, returned = hidden.shape[0], spec.num_return_sequences
    beams = spec.num_beams if spec.num_beams > 1 else returned
    cache = model.init_cache(params, hidden, mask, beams, spec.max_length, spec.cache_dtype)
    step = model.decode_step(params)
    keys = None if key is None else _keys_of_sentences(key, batch)
    if spec.num_beams > 1:
        lengths = model.cache_lengths(beams, spec.max_length, platform)
        growth = Growth(lengths, functools.partial(resize, grouped=platform == "tpu")) if len(lengths) > 1 else None
        found = beam_search(
            step, reorder_beams, cache, batch, spec, keys, compactions=compactions, growth=growth, platform=platform
        )
    else:
        found = sample(step, cache, batch, spec, None if keys is None else _keys_of_rows(keys, returned))
    return _flatten(found, returned)


@functools.cache
def compiled_search(platform: str) -> Any:
    """Return the jitted `search` for a platform."""
    static, options = ("model", "spec", "compactions"), compiler_options(platform)
    return jax.jit(functools.partial(search, platform=platform), static_argnames=static, compiler_options=options)


def _keys_of_sentences(key: jax.Array, batch: int) -> jax.Array:
    return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(batch)) if key.ndim == 0 else key


def _keys_of_rows(keys: jax.Array, returned: int) -> jax.Array:
    rows = jax.vmap(lambda key: jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(returned)))(keys)
    return rows.reshape(-1)


def _flatten(found: Hypotheses, returned: int) -> Generated:
    def rows(values: jax.Array) -> jax.Array:
        return values[:, :returned].reshape(-1, *values.shape[2:])

    steps = jnp.repeat(found.steps, returned, axis=0)
    return Generated(rows(found.tokens), rows(found.lengths), rows(found.scores), steps)
