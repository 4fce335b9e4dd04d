"""Beam search for any model with a decoder step `tokens -> logits` and a KV cache: one `lax.while_loop`, static shapes.

Semantics are those of transformers 5. Processors change log-probabilities, not logits. Of the 2K best continuations
only the first K may finish a hypothesis, whose score is its summed log-probability divided by (generated tokens **
length_penalty). Each sentence ends on its own, so no result depends on the rest of the batch.

Shapes: B sentences, K beams, T = max_length, V vocabulary, C = 2K candidates (more with several end tokens).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from eeg2text_jax.base.cpu import log_softmax, top_k
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.decoding.settings import GenerationSpec

# Processors change the scores `[N, V]` before a token is chosen, in the order and with the arithmetic of transformers 5
# (`_get_logits_processor`). Of `tokens` int32 `[N, T]`, the first `length` (traced) columns are written, the start
# token included.

LANES = 128  # elements in a row of a TPU's registers
FEW_SCORES = 2**23  # N * V up to which `look_back_by_products` sums in float32
LONGEST = 128  # largest T for which a TPU uses it


def process(scores: Array, tokens: Array, length: Array, spec: GenerationSpec) -> Array:
    """Apply the processors that `spec` enables to `scores` float32 `[N, V]`."""
    penalty, size = spec.repetition_penalty, spec.no_repeat_ngram_size
    size = size if size < tokens.shape[1] else 0  # a longer n-gram cannot occur twice
    if penalty != 1.0 or size:
        arguments = scores, tokens, length
        default = partial(look_back, penalty=penalty, size=size)
        if tokens.shape[1] > LONGEST:
            scores = default(*arguments)
        else:
            by_products = partial(look_back_by_products, penalty=penalty, size=size)
            scores = jax.lax.platform_dependent(*arguments, tpu=by_products, default=default)
    if spec.min_length:
        scores = jnp.where(length < spec.min_length, suppress(scores, spec.eos_token_id), scores)
    if spec.forced_bos_token_id is not None and not spec.decoder_prompt:
        scores = jnp.where(length == 1, force(scores, spec.forced_bos_token_id), scores)
    if spec.forced_eos_token_id is not None:
        scores = jnp.where(length == spec.max_length - 1, force(scores, spec.forced_eos_token_id), scores)
    if spec.suppress_tokens:
        scores = suppress(scores, spec.suppress_tokens)
    prompt = len(spec.decoder_prompt)
    if spec.begin_suppress_tokens:
        begin = 1 + prompt + (1 if spec.forced_bos_token_id is not None and not prompt else 0)
        scores = jnp.where(length == begin, suppress(scores, spec.begin_suppress_tokens), scores)
    if spec.do_sample:
        scores = warp(scores, spec)
    if spec.renormalize_logits:
        scores = jax.nn.log_softmax(scores, axis=-1)
    for place, token in enumerate(spec.decoder_prompt, 1):
        scores = jnp.where(length == place, force(scores, token), scores)
    return scores


def look_back(scores: Array, tokens: Array, length: Array, penalty: float, size: int) -> Array:
    """Penalize tokens already written (unless `penalty` is 1), and ban repeated n-grams (unless `size` is 0).

    Negative scores are multiplied by the penalty, positive ones divided by it (Keskar 2019). Both steps read and write
    T scores of a row, not V.
    """
    rows, vocabulary = jnp.arange(tokens.shape[0])[:, None], scores.shape[1]
    if penalty != 1.0:
        seen = jnp.take_along_axis(scores, tokens, axis=1)  # [N, T]
        seen = jnp.where(seen < 0, seen * penalty, seen / penalty)
        scores = scores.at[rows, _written(tokens, length, vocabulary)].set(seen, mode="drop")
    if size:
        banned = jnp.where(_banned(tokens, length, size), tokens[:, size - 1 :], vocabulary)
        scores = scores.at[rows, banned].set(-jnp.inf, mode="drop")
    return scores


def look_back_by_products(scores: Array, tokens: Array, length: Array, penalty: float, size: int) -> Array:
    """Do the same as `look_back`, faster on TPUs: a matrix product of one-hot tokens marks the scores to change.

    A scatter would copy all scores to another layout and back, several times as long. Comparing each score with 56
    tokens takes 0.24 ms on the vector units (BART-large, 160 rows), the products 0.19 ms. Sums in float32 instead of
    bfloat16 save 0.07 ms of a step for 160 rows, as their layout changes faster, but cost 0.4 ms for 640 rows and 0.14
    ms for PEGASUS's vocabulary, where they do not fit near the matrix units.
    """
    total, vocabulary = tokens.shape[1], scores.shape[1]
    written = _written(tokens, length, vocabulary)  # [N, T]
    rank = jnp.ones(tokens.shape, jnp.int32)  # 1: penalize; 2: penalize and ban
    if size:
        banned = _banned(tokens, length, size)
        rank += jnp.pad(banned, ((0, 0), (size - 1, 0))).astype(jnp.int32)
    same = written[:, :, None] == written[:, None, :]  # [N, T, T]
    rank = jnp.max(jnp.where(same, rank[:, None, :], 0), axis=2)  # each position gets its token's maximum
    first = jnp.argmax(same, axis=2) == jnp.arange(total)[None, :]
    rank = jnp.where(first & (written < vocabulary), rank, 0)  # else 0, so that a token's sum below is its rank
    rows = jax.nn.one_hot(written // LANES, -(-vocabulary // LANES), dtype=jnp.bfloat16)
    columns = jax.nn.one_hot(written % LANES, LANES, dtype=jnp.bfloat16)
    sums = jnp.float32 if scores.size <= FEW_SCORES else jnp.bfloat16
    rows *= rank[:, :, None].astype(jnp.bfloat16)
    ranks = jnp.einsum("ntr,ntc->nrc", rows, columns, preferred_element_type=sums)  # rank of every token
    ranks = ranks.reshape(scores.shape[0], -1)[:, :vocabulary]
    if penalty != 1.0:
        scores = jnp.where(ranks > 0, jnp.where(scores < 0, scores * penalty, scores / penalty), scores)
    return jnp.where(ranks > 1, -jnp.inf, scores)


def _banned(tokens: Array, length: Array, size: int) -> Array:
    """Return whether the last token of the n-gram at position i would now repeat it, bool `[N, T - size + 1]`."""
    total = tokens.shape[1]
    suffix = jax.lax.dynamic_slice_in_dim(tokens, length - (size - 1), size - 1, axis=1)  # [N, size - 1]
    ends = jnp.arange(size - 1, total)  # last position of each window
    repeats = jnp.broadcast_to((ends < length)[None, :], (tokens.shape[0], ends.size))
    for offset in range(size - 1):
        window = tokens[:, offset : offset + ends.size]
        repeats &= window == suffix[:, offset, None]
    return repeats


def _written(tokens: Array, length: Array, vocabulary: int) -> Array:
    """Return `tokens` with the index `vocabulary`, out of range, at positions not written yet."""
    return jnp.where(jnp.arange(tokens.shape[1])[None, :] < length, tokens, vocabulary)


def suppress(scores: Array, banned: tuple[int, ...]) -> Array:
    """Set the scores of `banned` tokens to -inf; ids that are no token, such as -1, are ignored."""
    tokens = jnp.asarray([token for token in banned if token >= 0], jnp.int32)  # an index of -1 is the last token
    return scores.at[:, tokens].set(-jnp.inf, mode="drop")


def force(scores: Array, token: int) -> Array:
    """Set one token's score to 0 and all others to -inf; raise a UserError if there is no such token."""
    if token >= scores.shape[1]:
        raise UserError(f"generation settings force the token {token}; expected one of the model's {scores.shape[1]}.")
    return jnp.full_like(scores, -jnp.inf).at[:, token].set(0.0)


def warp(scores: Array, spec: GenerationSpec) -> Array:
    """Apply temperature, top-k and top-p, in this order; excluded tokens get -inf."""
    least = 1 if spec.num_beams == 1 else len(spec.eos_token_id) + 1  # at least one token is left that is no end token
    if spec.temperature != 1.0:
        scores = scores / spec.temperature
    if spec.top_k:
        count = min(max(spec.top_k, least), scores.shape[1])
        scores = jnp.where(scores < jax.lax.top_k(scores, count)[0][:, -1:], -jnp.inf, scores)
    if spec.top_p < 1.0:
        scores = _keep_nucleus(scores, spec.top_p, least)
    return scores


def _keep_nucleus(scores: Array, mass: float, least: int) -> Array:
    """Exclude all but the most probable tokens that have together at least the probability `mass` (top-p).

    At least `least` tokens are left.
    """
    order = jnp.argsort(scores, axis=-1)
    ascending = jnp.take_along_axis(scores, order, axis=-1)
    below = jnp.cumsum(jax.nn.softmax(ascending, axis=-1), axis=-1) <= 1 - mass
    below = below.at[:, -least:].set(False)
    rows = jnp.arange(scores.shape[0])[:, None]
    return jnp.where(jnp.zeros_like(below).at[rows, order].set(below), -jnp.inf, scores)


Cache = Any
Step = Callable[[Array, Array, Cache], tuple[Array, Cache]]  # (tokens [B*K], index, cache) -> logits, cache
Reorder = Callable[[Cache, Array], Cache]  # (cache, parents int32 [B, K]) -> cache
Resize = Callable[[Cache, int, int], Cache]  # (cache, beams, positions) -> cache

IMPOSSIBLE = -1e9  # finite, so that sums with it can be compared; as in transformers


class Growth(NamedTuple):
    """How the cache grows during a search."""

    lengths: tuple[int, ...]  # successive sizes of the cache, in positions; the last is max_length
    resize: Resize


class BeamState(NamedTuple):
    length: Array  # int32 [], tokens written so far, including the start token
    tokens: Array  # int32 [B, K, T], live hypotheses, best first
    scores: Array  # float32 [B, K], summed log-probabilities of the live hypotheses
    done_tokens: Array  # int32 [B, K, T], finished hypotheses, best first
    done_scores: Array  # float32 [B, K], with the length penalty
    done_lengths: Array  # int32 [B, K], tokens including start and end token
    done: Array  # bool [B, K], which slots hold a finished hypothesis
    improvable: Array  # bool [B], a live hypothesis may still beat the worst finished one; once False, stays False
    cache: Cache


class Logits(NamedTuple):
    """Logits of the next token of each live hypothesis."""

    values: Array  # float32 [B*K, V]
    largest: Array | None  # float32 [B*K, 1], the maximum of each row; None: `choose` computes it


class Candidates(NamedTuple):
    """Continuations of live hypotheses, `[B, C]` each, in order of preference."""

    scores: Array  # float32
    parents: Array  # int32, the beam that the candidate continues
    tokens: Array  # int32, the token that the candidate appends
    ends: Array  # bool, the token is an end token or at the last position
    sequences: Array  # int32 [B, C, T], all tokens of the continued hypothesis


class Hypotheses(NamedTuple):
    """The finished hypotheses of each sentence, best first."""

    tokens: Array  # int32 [B, K, T], padded
    lengths: Array  # int32 [B, K], tokens including start and end token
    scores: Array  # float32 [B, K], with the length penalty
    steps: Array  # int32 [B], decoder steps taken for the sentence


def beam_search(
    step: Step,
    reorder: Reorder,
    cache: Cache,
    batch: int,
    spec: GenerationSpec,
    keys: Array | None = None,
    *,
    compactions: int = 0,
    growth: Growth | None = None,
    platform: str | None = None,
) -> Hypotheses:
    """Search for the most probable continuations of the start token.

    Args:
      step: the model's decoder step; `index` is the position of its input tokens.
      reorder: permutes the cache so that row k of every sentence continues beam `parents[:, k]`.
      cache: the model's KV cache for B * K rows; the first axis of its arrays is B.
      batch: B, the number of sentences.
      spec: the settings; with `do_sample`, candidates are drawn without replacement.
      keys: PRNG keys `[B]`, for `do_sample`.
      compactions: how many times the search drops half of its sentences, as soon as this many are finished. Each adds a
        loop to compile; results do not change.
      growth: the cache begins small and grows; each size adds a loop to compile, results do not change.
      platform: `cpu`, `tpu` or `cuda`; None traces the loops of all, which takes longer (BART-base with a compaction:
        1.6 s instead of 1.3).
    """

    decode = jax.jit(partial(run_step, step), inline=True)  # traced once for the loops of all platforms
    Carry = tuple[Logits | None, BeamState]
    all_at_once = Growth((spec.max_length,), lambda cache, beams, length: cache)
    sizes = growth or all_at_once

    def finish(
        logits: Logits | None, state: BeamState, keys: Array | None, compactions: int, growth: Growth = all_at_once
    ) -> Hypotheses:
        """Run the search from a state and its next logits; if `logits` is None, iterations begin with the decoder step.

        Else they end with it, and the choice of the last tokens follows the loops. The cache of `state` has the first
        size of `growth`; after a compaction, it has the last.
        """

        def iterate(carry: Carry) -> Carry:
            if carry[0] is None:
                return None, choose(*decode(carry[1]), reorder, spec, keys)
            after, state = decode(choose(*carry, reorder, spec, keys))
            return (after if carry[0].largest is not None else without_largest(after)), state

        size = state.improvable.shape[0]
        half = size // 2 if compactions else 0
        after = without_largest(logits)
        for i, length in enumerate(growth.lengths):
            if i:  # from the second size on, memory traffic bounds a step, see `without_largest`
                after = with_largest(after)
                state = state._replace(cache=growth.resize(state.cache, spec.num_beams, length))
            if logits is not None:  # the last choice needs no decoder step after it
                length = min(length, spec.max_length - 1)

            def goes_on(carry: Carry, length: int = length) -> Array:
                return (unfinished(carry[1], spec).sum() > half) & (carry[1].length < length)

            after, state = jax.lax.while_loop(goes_on, iterate, (after, state))
        if after is not None:
            state = choose_last(goes_on((after, state), spec.max_length), after, state, spec, keys)
        steps = jnp.broadcast_to(state.length - 1, size)
        finished = Hypotheses(state.done_tokens, state.done_lengths, state.done_scores, steps)
        if not half:
            return finished
        rest = jnp.argsort(~unfinished(state, spec))[:half]  # unfinished sentences first
        state = jax.tree.map(lambda leaf: leaf[rest] if leaf.ndim else leaf, state)
        if after is not None:
            after = jax.tree.map(lambda x: x.reshape(size, -1, x.shape[1])[rest].reshape(-1, x.shape[1]), after)
        later = finish(after, state, None if keys is None else keys[rest], compactions - 1)
        return jax.tree.map(lambda all_, some: all_.at[rest].set(some), finished, later)

    def choose_first(state: BeamState, keys: Array | None) -> Hypotheses:
        # XLA for TPUs prefetches weights and caches within an iteration only: those of the first layers during the
        # choice, if it comes first (BART-large, 32 sentences by 5 beams: 1.50 instead of 1.94 ms by its estimate).
        logits, cache = decode_start(decode, state, growth)
        return finish(logits, state._replace(cache=cache), keys, compactions, sizes)

    def decode_first(state: BeamState, keys: Array | None) -> Hypotheses:
        cache = sizes.resize(state.cache, spec.num_beams, sizes.lengths[0])
        return finish(None, state._replace(cache=cache), keys, compactions, sizes)

    begun = start(cache, batch, spec)
    if platform is not None:
        return (choose_first if platform == "tpu" else decode_first)(begun, keys)
    return jax.lax.platform_dependent(begun, keys, tpu=choose_first, default=decode_first)


def start(cache: Cache, batch: int, spec: GenerationSpec) -> BeamState:
    """Return the initial state: every beam holds the start token, only the first has a finite score."""
    shape = (batch, spec.num_beams)
    tokens = jnp.full((*shape, spec.max_length), spec.pad_token_id, jnp.int32)
    tokens = tokens.at[:, :, 0].set(spec.decoder_start_token_id)
    return BeamState(
        length=jnp.int32(1), tokens=tokens, scores=jnp.full(shape, IMPOSSIBLE, jnp.float32).at[:, 0].set(0.0),
        done_tokens=tokens, done_scores=jnp.full(shape, IMPOSSIBLE, jnp.float32),
        done_lengths=jnp.ones(shape, jnp.int32), done=jnp.zeros(shape, bool), improvable=jnp.ones(batch, bool),
        cache=cache,
    )  # fmt: skip


def unfinished(state: BeamState, spec: GenerationSpec) -> Array:
    """Return which sentences need further steps, bool `[B]`."""
    open_ = state.improvable & (state.length < spec.max_length)
    return open_ & ~state.done.all(axis=1) if spec.early_stopping is True else open_


@jax.named_scope("search")
def run_step(step: Step, state: BeamState) -> tuple[Logits, BeamState]:
    """Run a decoder step; return next-token logits of the live hypotheses, and the updated state."""
    last = jax.lax.dynamic_index_in_dim(_rows(state.tokens), state.length - 1, axis=1, keepdims=False)
    logits, cache = step(last, state.length - 1, state.cache)
    logits = logits.astype(jnp.float32)
    return with_largest(Logits(logits, None)), state._replace(cache=cache)


def decode_start(
    decode: Callable[[BeamState], tuple[Logits, BeamState]], state: BeamState, growth: Growth | None
) -> tuple[Logits, Cache]:
    """Return the logits of the first step, and the cache after it, of the first size of `growth`."""
    if growth is None:
        logits, after = decode(state)
        return logits, after.cache
    # All rows of a sentence begin alike, so two suffice. With one, XLA would not use the matrix units in attention.
    tokens, beams = state.tokens[:, :2], state.tokens.shape[1]
    logits, after = decode(state._replace(tokens=tokens, cache=growth.resize(state.cache, tokens.shape[1], 1)))
    logits = jax.tree.map(lambda x: jnp.repeat(x[:: tokens.shape[1]], beams, axis=0), logits)
    return logits, growth.resize(after.cache, beams, growth.lengths[0])


def with_largest(logits: Logits | None) -> Logits | None:
    """Return the logits, unless None, with the maximum of each row."""
    return logits and Logits(logits.values, logits.values.max(axis=-1, keepdims=True))


def without_largest(logits: Logits | None) -> Logits | None:
    """Return the logits, unless None, without the maximum of each row.

    XLA for TPUs then computes it before the loop, in 0.17 ms, and carries it by itself. With BART-large's smallest
    cache this leaves more room for weights: a step takes 1.34 instead of 1.37 ms by the compiler's estimate.
    """
    return logits and logits._replace(largest=None)


@jax.named_scope("search")
def choose(logits: Logits, state: BeamState, reorder: Reorder, spec: GenerationSpec, keys: Array | None) -> BeamState:
    """Append a token to every live hypothesis, chosen by its logits, and collect finished hypotheses."""
    values, largest = logits if logits.largest is not None else with_largest(logits)
    scores = process(log_softmax(values, largest), _rows(state.tokens), state.length, spec)
    candidates = choose_candidates(scores + state.scores.reshape(-1, 1), state, spec, keys)
    tokens, live_scores, parents = continue_live(candidates, spec.num_beams)
    state = keep_finished(candidates, state, spec)
    cache = reorder(state.cache, parents)
    state = state._replace(length=state.length + 1, tokens=tokens, scores=live_scores, cache=cache)
    return state._replace(improvable=state.improvable & can_improve(state, spec))


def choose_last(wanted: Array, logits: Logits, state: BeamState, spec: GenerationSpec, keys: Array | None) -> BeamState:
    """Return the state after a choice that no decoder step follows, or unchanged if it is not `wanted`."""
    last = partial(choose, logits, reorder=lambda cache, parents: cache, spec=spec, keys=keys)
    return jax.lax.cond(wanted, last, lambda s: s, state._replace(cache=()))._replace(cache=state.cache)


def choose_candidates(scores: Array, state: BeamState, spec: GenerationSpec, keys: Array | None = None) -> Candidates:
    """Return the C best of the K x V continuations with these scores `[B*K, V]`, or C draws without replacement."""
    (batch, beams), vocabulary = state.scores.shape, scores.shape[1]
    count = min(max(2, 1 + len(spec.eos_token_id)) * beams, beams * vocabulary)  # at least K candidates do not end
    if spec.do_sample:
        flat, drawn = scores.reshape(batch, -1), jax.vmap(jax.random.fold_in, (0, None))(keys, state.length)
        # The order of scores with Gumbel noise is that of draws from softmax(scores) without replacement.
        noise = jax.vmap(lambda key: jax.random.gumbel(key, flat.shape[1:], flat.dtype))(drawn)
        places = jax.lax.top_k(flat + noise, count)[1]
        best = jnp.take_along_axis(flat, places, axis=1)
        parents, tokens = places // vocabulary, places % vocabulary
    else:
        # The top C of each beam's top C are the top C of all, with ties in the same order. On a TPU, reshaping the
        # scores to [B, K*V] would take as long as all other work on them.
        each = min(count, vocabulary)
        best, tokens = top_k(scores, each)
        best, places = jax.lax.top_k(best.reshape(batch, -1), count)
        parents, tokens = places // each, jnp.take_along_axis(tokens.reshape(batch, -1), places, axis=1)
    tokens = tokens.astype(jnp.int32)
    sequences = jax.lax.dynamic_update_index_in_dim(_beams(state.tokens, parents), tokens, state.length, axis=2)
    ends = jnp.isin(tokens, jnp.asarray(spec.eos_token_id)) | (state.length + 1 >= spec.max_length)
    return Candidates(best, parents, tokens, ends, sequences)


def continue_live(candidates: Candidates, beams: int) -> tuple[Array, Array, Array]:
    """Return the best K candidates that do not end: tokens `[B, K, T]`, scores `[B, K]`, parents `[B, K]`."""
    scores, places = jax.lax.top_k(candidates.scores + jnp.where(candidates.ends, IMPOSSIBLE, 0.0), beams)
    return _beams(candidates.sequences, places), scores, _beams(candidates.parents, places)


def keep_finished(candidates: Candidates, state: BeamState, spec: GenerationSpec) -> BeamState:
    """Merge those of the first K candidates that just ended into the K best finished hypotheses.

    They beat an empty slot even if their score is IMPOSSIBLE, as for all beams but one after a forced token.
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
    places = jax.lax.top_k(jnp.where(filled, merged, merged + IMPOSSIBLE), spec.num_beams)[1]

    def merge(old: Array, new: Array) -> Array:
        return _beams(jnp.concatenate([old, new], axis=1), places)

    return state._replace(
        done_scores=merge(state.done_scores, scores),
        done_tokens=merge(state.done_tokens, candidates.sequences),
        done_lengths=merge(state.done_lengths, lengths),
        done=merge(state.done, ended),
    )


def can_improve(state: BeamState, spec: GenerationSpec) -> Array:
    """Return whether the best live hypothesis may still beat the worst finished one, bool `[B]`.

    It is scored as if it ended now, a heuristic; or with `early_stopping="never"` and a positive length penalty, as if
    it ended at the maximum length.
    """
    longest = spec.early_stopping == "never" and spec.length_penalty > 0
    generated = spec.max_length - 1 if longest else state.length - 1
    hope = state.scores[:, 0] / length_divisors(spec)[generated]
    worst = jnp.where(state.done, state.done_scores.min(axis=1, keepdims=True), IMPOSSIBLE)  # [B, K]
    return (hope[:, None] > worst).any(axis=1)


def length_divisors(spec: GenerationSpec) -> Array:
    """Return `generated ** length_penalty` for 0 to T tokens, float32 `[T + 1]`, rounded from float64.

    Tokens of `decoder_prompt` do not count.
    """
    generated = np.maximum(np.arange(spec.max_length + 1, dtype=np.float64) - len(spec.decoder_prompt), 1)
    return jnp.asarray((generated**spec.length_penalty).astype(np.float32))


def _rows(tokens: Array) -> Array:
    return tokens.reshape(-1, tokens.shape[2])


def _beams(values: Array, places: Array) -> Array:
    """Return `values[b, chosen[b, k]]` for values `[B, C, ...]` and chosen `[B, K]`."""
    return jax.vmap(lambda row, index: row[index])(values, places)


class SampleState(NamedTuple):
    """The loop state of N = B * num_return_sequences rows."""

    length: Array  # int32 [], tokens written so far, including the start token
    tokens: Array  # int32 [N, T]
    lengths: Array  # int32 [N], tokens including start and end token
    scores: Array  # float32 [N], summed log-probability of the tokens
    open: Array  # bool [N], whether the row has no end token yet
    cache: Cache


def sample(step: Step, cache: Cache, batch: int, spec: GenerationSpec, keys: Array | None = None) -> Hypotheses:
    """Append the most probable token, or one drawn with `keys [N]`, to N = B * num_return_sequences rows until all end.

    Scores are summed log-probabilities after all processors, which here work on logits, as in transformers.
    """

    def advance(state: SampleState) -> SampleState:
        last = jax.lax.dynamic_index_in_dim(state.tokens, state.length - 1, axis=1, keepdims=False)
        logits, cache = step(last, state.length - 1, state.cache)
        scores = process(logits.astype(jnp.float32), state.tokens, state.length, spec)
        token = _pick(scores, state.length, keys)
        gained = jnp.take_along_axis(jax.nn.log_softmax(scores), token[:, None], axis=1)[:, 0]
        token = jnp.where(state.open, token, spec.pad_token_id)
        return SampleState(
            length=state.length + 1,
            tokens=jax.lax.dynamic_update_index_in_dim(state.tokens, token, state.length, axis=1),
            lengths=state.lengths + state.open.astype(jnp.int32),
            scores=state.scores + jnp.where(state.open, gained, 0.0),
            open=state.open & ~jnp.isin(token, jnp.asarray(spec.eos_token_id)), cache=cache,
        )  # fmt: skip

    rows = batch * spec.num_return_sequences
    tokens = jnp.full((rows, spec.max_length), spec.pad_token_id, jnp.int32)
    state = SampleState(
        length=jnp.int32(1), tokens=tokens.at[:, 0].set(spec.decoder_start_token_id), lengths=jnp.ones(rows, jnp.int32),
        scores=jnp.zeros(rows, jnp.float32), open=jnp.ones(rows, bool), cache=cache,
    )  # fmt: skip
    state = jax.lax.while_loop(lambda s: (s.length < spec.max_length) & s.open.any(), advance, state)
    shape = (batch, spec.num_return_sequences)
    steps = jnp.broadcast_to(state.length - 1, batch)
    return Hypotheses(
        state.tokens.reshape(*shape, -1), state.lengths.reshape(shape), state.scores.reshape(shape), steps
    )


def _pick(scores: Array, length: Array, keys: Array | None) -> Array:
    if keys is None:
        return jnp.argmax(scores, axis=-1).astype(jnp.int32)
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, length)
    return jax.vmap(jax.random.categorical)(keys, scores).astype(jnp.int32)
