"""Beam search for any model with a decoder step `tokens -> logits` and a KV cache: one `lax.while_loop`, static shapes.

Semantics are those of transformers 5. Processors change log-probabilities, not logits. Of the 2K best continuations
only the first K may finish a hypothesis. The score of a finished hypothesis is its summed log-probability divided by
(generated tokens ** length_penalty). Each sentence ends on its own, so no result depends on the rest of the batch.

Shapes: B sentences, K beams, T = max_length, V vocabulary, C = 2K candidates (more with several end tokens).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.cpu import log_softmax, top_k
from eeg2text_jax.search.processors import process
from eeg2text_jax.search.settings import GenerationSpec

Cache = Any
Step = Callable[[jax.Array, jax.Array, Cache], tuple[jax.Array, Cache]]  # (tokens [B*K], index, cache) -> logits, cache
Reorder = Callable[[Cache, jax.Array], Cache]  # (cache, parents int32 [B, K]) -> cache
Resize = Callable[[Cache, int], Cache]  # (cache, positions) -> cache

IMPOSSIBLE = -1e9  # finite, so that sums with it can be compared; as in transformers


class Growth(NamedTuple):
    """How the cache grows during a search."""

    lengths: tuple[int, ...]  # successive sizes of the cache, in positions; the last is max_length
    resize: Resize


class BeamState(NamedTuple):
    """The loop state of the search."""

    length: jax.Array  # int32 [], tokens written so far, including the start token
    tokens: jax.Array  # int32 [B, K, T], live hypotheses, best first
    scores: jax.Array  # float32 [B, K], summed log-probabilities of the live hypotheses
    done_tokens: jax.Array  # int32 [B, K, T], finished hypotheses, best first
    done_scores: jax.Array  # float32 [B, K], with the length penalty
    done_lengths: jax.Array  # int32 [B, K], tokens including start and end token
    done: jax.Array  # bool [B, K], which slots hold a finished hypothesis
    improvable: jax.Array  # bool [B], a live hypothesis may still beat the worst finished one; once False, stays False
    cache: Cache


class Candidates(NamedTuple):
    """Continuations of live hypotheses, `[B, C]` each, in order of preference."""

    scores: jax.Array  # float32
    parents: jax.Array  # int32, the beam that the candidate continues
    tokens: jax.Array  # int32, the token that the candidate appends
    ends: jax.Array  # bool, the token is an end token or at the last position
    sequences: jax.Array  # int32 [B, C, T], all tokens of the continued hypothesis


class Hypotheses(NamedTuple):
    """The best finished hypotheses of each sentence, best first."""

    tokens: jax.Array  # int32 [B, K, T], padded
    lengths: jax.Array  # int32 [B, K], tokens including start and end token
    scores: jax.Array  # float32 [B, K], with the length penalty
    steps: jax.Array  # int32 [B], decoder steps taken for the sentence


def beam_search(
    step: Step,
    reorder: Reorder,
    cache: Cache,
    batch: int,
    spec: GenerationSpec,
    keys: jax.Array | None = None,
    *,
    compactions: int = 0,
    growth: Growth | None = None,
    platform: str | None = None,
) -> Hypotheses:
    """Search for the most probable continuations of the start token.

    Args:
      step: the model's decoder step; `index` is the position of its input tokens.
      reorder: permutes the cache so that row k of every sentence continues beam `parents[:, k]`.
      cache: the model's KV cache for B * K rows; the first axis of every array in it is B.
      batch: B, the number of sentences.
      spec: the settings; with `do_sample`, candidates are drawn without replacement instead of taken from the top.
      keys: PRNG keys `[B]`, one per sentence, for `do_sample`.
      compactions: how many times the search drops half of its sentences, as soon as this many are finished, and
        continues with the other half. Each adds one loop to compile; results do not change.
      growth: the cache begins small and grows; each size adds one loop to compile, results do not change.
      platform: where the search will run: `cpu`, `tpu` or `cuda`; None traces the loops of all platforms, which takes
        longer (BART-base with a compaction: 1.6 s instead of 1.3).
    """

    decode = jax.jit(partial(run_step, step), inline=True)  # traced once for the loops of all platforms
    Carry = tuple[jax.Array | None, BeamState]
    all_at_once = Growth((spec.max_length,), lambda cache, length: cache)
    sizes = growth or all_at_once

    def finish(
        logits: jax.Array | None,
        state: BeamState,
        keys: jax.Array | None,
        compactions: int,
        growth: Growth = all_at_once,
    ) -> Hypotheses:
        """Run the search from a state and its next logits; if `logits` is None, iterations begin with the decoder step.

        The cache of `state` has the first size of `growth`. After a compaction, the cache has the last size.
        """

        def iterate(carry: Carry) -> Carry:
            if logits is None:
                return None, choose(*decode(carry[1]), reorder, spec, keys)
            return decode(choose(*carry, reorder, spec, keys))

        size = state.improvable.shape[0]
        half = size // 2 if compactions else 0
        after = logits
        for i, length in enumerate(growth.lengths):
            if i:
                state = state._replace(cache=growth.resize(state.cache, length))

            def goes_on(carry: Carry, length: int = length) -> jax.Array:
                return (unfinished(carry[1], spec).sum() > half) & (carry[1].length < length)

            after, state = jax.lax.while_loop(goes_on, iterate, (after, state))
        steps = jnp.broadcast_to(state.length - 1, size)
        found = Hypotheses(state.done_tokens, state.done_lengths, state.done_scores, steps)
        if not half:
            return found
        rest = jnp.argsort(~unfinished(state, spec))[:half]  # unfinished sentences first
        state = jax.tree.map(lambda leaf: leaf[rest] if leaf.ndim else leaf, state)
        if after is not None:
            after = after.reshape(size, -1, after.shape[1])[rest].reshape(-1, after.shape[1])
        later = finish(after, state, None if keys is None else keys[rest], compactions - 1)
        return jax.tree.map(lambda all_, some: all_.at[rest].set(some), found, later)

    def choose_first(state: BeamState, keys: jax.Array | None) -> Hypotheses:
        # XLA for TPUs prefetches weights and caches within an iteration only. If the iteration begins with the choice,
        # the first layers' weights are prefetched meanwhile (BART-large, 32 sentences by 5 beams: 1.50 instead of
        # 1.94 ms by the compiler's estimate). The decoder step of the last iteration is discarded.
        logits, after = decode(state)
        return finish(logits, after, keys, compactions, sizes)

    decode_first = partial(finish, None, compactions=compactions, growth=sizes)
    begun = start(sizes.resize(cache, sizes.lengths[0]), batch, spec)
    if platform is not None:
        return (choose_first if platform == "tpu" else decode_first)(begun, keys)
    return jax.lax.platform_dependent(begun, keys, tpu=choose_first, default=decode_first)


def start(cache: Cache, batch: int, spec: GenerationSpec) -> BeamState:
    """Return the initial state: every beam holds the start token, and only the first beam has a finite score."""
    shape = (batch, spec.num_beams)
    tokens = jnp.full((*shape, spec.max_length), spec.pad_token_id, jnp.int32)
    tokens = tokens.at[:, :, 0].set(spec.decoder_start_token_id)
    return BeamState(
        length=jnp.int32(1),
        tokens=tokens,
        scores=jnp.full(shape, IMPOSSIBLE, jnp.float32).at[:, 0].set(0.0),
        done_tokens=tokens,
        done_scores=jnp.full(shape, IMPOSSIBLE, jnp.float32),
        done_lengths=jnp.ones(shape, jnp.int32),
        done=jnp.zeros(shape, bool),
        improvable=jnp.ones(batch, bool),
        cache=cache,
    )


def unfinished(state: BeamState, spec: GenerationSpec) -> jax.Array:
    """Return which sentences still need steps, bool `[B]`."""
    open_ = state.improvable & (state.length < spec.max_length)
    return open_ & ~state.done.all(axis=1) if spec.early_stopping is True else open_


@jax.named_scope("search")
def run_step(step: Step, state: BeamState) -> tuple[jax.Array, BeamState]:
    """Run one decoder step; return next-token logits `[B*K, V]` of the live hypotheses, and the updated state."""
    last = jax.lax.dynamic_index_in_dim(_rows(state.tokens), state.length - 1, axis=1, keepdims=False)
    logits, cache = step(last, state.length - 1, state.cache)
    return logits, state._replace(cache=cache)


@jax.named_scope("search")
def choose(
    logits: jax.Array, state: BeamState, reorder: Reorder, spec: GenerationSpec, keys: jax.Array | None
) -> BeamState:
    """Append one token to every live hypothesis, chosen by its logits `[B*K, V]`, and collect finished hypotheses."""
    scores = process(log_softmax(logits.astype(jnp.float32)), _rows(state.tokens), state.length, spec)
    candidates = choose_candidates(scores + state.scores.reshape(-1, 1), state, spec, keys)
    tokens, live_scores, parents = continue_live(candidates, spec.num_beams)
    state = keep_finished(candidates, state, spec)
    cache = reorder(state.cache, parents)
    state = state._replace(length=state.length + 1, tokens=tokens, scores=live_scores, cache=cache)
    return state._replace(improvable=state.improvable & can_improve(state, spec))


def choose_candidates(
    scores: jax.Array, state: BeamState, spec: GenerationSpec, keys: jax.Array | None = None
) -> Candidates:
    """Return the C best of the K x V continuations with these scores `[B*K, V]`, or C draws without replacement.

    C is so large that at least K candidates do not end.
    """
    (batch, beams), vocabulary = state.scores.shape, scores.shape[1]
    count = min(max(2, 1 + len(spec.eos_token_id)) * beams, beams * vocabulary)
    if spec.do_sample:
        flat = scores.reshape(batch, -1)
        chosen = _draw(flat, count, keys, state.length)
        best = jnp.take_along_axis(flat, chosen, axis=1)
        parents, tokens = chosen // vocabulary, chosen % vocabulary
    else:
        # Taking the top C of each beam, and then the top C of these, gives the top C of all, with ties in the same
        # order. On a TPU, reshaping the scores to [B, K*V] would take as long as all other work on them.
        each = min(count, vocabulary)
        best, tokens = top_k(scores, each)
        best, chosen = jax.lax.top_k(best.reshape(batch, -1), count)
        parents, tokens = chosen // each, jnp.take_along_axis(tokens.reshape(batch, -1), chosen, axis=1)
    tokens = tokens.astype(jnp.int32)
    sequences = jax.lax.dynamic_update_index_in_dim(_beams(state.tokens, parents), tokens, state.length, axis=2)
    ends = jnp.isin(tokens, jnp.asarray(spec.eos_token_id)) | (state.length + 1 >= spec.max_length)
    return Candidates(best, parents, tokens, ends, sequences)


def _draw(scores: jax.Array, count: int, keys: jax.Array, length: jax.Array) -> jax.Array:
    """Draw indices `[B, count]` from softmax(scores) without replacement (Gumbel top-k), in the order of the draws."""
    shape, dtype = scores.shape[1:], scores.dtype
    noise = jax.vmap(lambda key: jax.random.gumbel(jax.random.fold_in(key, length), shape, dtype))(keys)
    return jax.lax.top_k(scores + noise, count)[1]


def continue_live(candidates: Candidates, beams: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the best K candidates that do not end: tokens `[B, K, T]`, scores `[B, K]`, parents `[B, K]`."""
    scores, chosen = jax.lax.top_k(candidates.scores + jnp.where(candidates.ends, IMPOSSIBLE, 0.0), beams)
    return _beams(candidates.sequences, chosen), scores, _beams(candidates.parents, chosen)


def keep_finished(candidates: Candidates, state: BeamState, spec: GenerationSpec) -> BeamState:
    """Merge candidates that just ended into the K best finished hypotheses.

    Only the first K candidates may finish; the other candidates keep K hypotheses alive. A finished hypothesis is
    better than an empty slot even if its score is IMPOSSIBLE, as for all beams but one after a forced token.
    """
    ended = candidates.ends & (jnp.arange(candidates.ends.shape[1]) < spec.num_beams)[None, :]
    closed = ~state.improvable
    if spec.early_stopping is True:
        closed |= state.done.all(axis=1)
    scores = candidates.scores / length_divisors(spec)[state.length]
    scores += jnp.where(closed, IMPOSSIBLE, 0.0)[:, None] + jnp.where(ended, 0.0, IMPOSSIBLE)
    lengths = jnp.broadcast_to(state.length + 1, ended.shape)
    merged = jnp.concatenate([state.done_scores, scores], axis=1)  # [B, K + C]
    filled = jnp.concatenate([state.done, ended & ~closed[:, None]], axis=1)
    chosen = jax.lax.top_k(jnp.where(filled, merged, merged + IMPOSSIBLE), spec.num_beams)[1]

    def merge(old: jax.Array, new: jax.Array) -> jax.Array:
        return _beams(jnp.concatenate([old, new], axis=1), chosen)

    return state._replace(
        done_scores=merge(state.done_scores, scores),
        done_tokens=merge(state.done_tokens, candidates.sequences),
        done_lengths=merge(state.done_lengths, lengths),
        done=merge(state.done, ended),
    )


def can_improve(state: BeamState, spec: GenerationSpec) -> jax.Array:
    """Return whether the best live hypothesis may still beat the worst finished one, bool `[B]`.

    The live hypothesis is scored as if it ended now, a heuristic; or with `early_stopping="never"` and a positive
    length penalty, as if it ended at the maximum length.
    """
    longest = spec.early_stopping == "never" and spec.length_penalty > 0
    generated = spec.max_length - 1 if longest else state.length - 1
    hope = state.scores[:, 0] / length_divisors(spec)[generated]
    worst = jnp.where(state.done, state.done_scores.min(axis=1, keepdims=True), IMPOSSIBLE)  # [B, K]
    return (hope[:, None] > worst).any(axis=1)


def length_divisors(spec: GenerationSpec) -> jax.Array:
    """Return `generated ** length_penalty` for 0 to T generated tokens, float32 `[T + 1]`; rounded from float64."""
    generated = np.maximum(np.arange(spec.max_length + 1, dtype=np.float64), 1)
    return jnp.asarray((generated**spec.length_penalty).astype(np.float32))


def _rows(tokens: jax.Array) -> jax.Array:
    """Reshape tokens `[B, K, T]` to `[B*K, T]`."""
    return tokens.reshape(-1, tokens.shape[2])


def _beams(values: jax.Array, chosen: jax.Array) -> jax.Array:
    """Return `values[b, chosen[b, k]]` for values `[B, C, ...]` and chosen `[B, K]`."""
    return jax.vmap(lambda row, index: row[index])(values, chosen)
