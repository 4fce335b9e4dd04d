"""Logits processors: pure functions `[N, V] -> [N, V]` that change the scores before the next token is chosen.

Order and arithmetic are those of transformers 5 (`_get_logits_processor`): history first, then length and forced
tokens, then suppressed tokens, then, when sampling, temperature, top-k and top-p. `tokens` is int32 `[N, T]`, of which
the first `length` columns are written (the start token among them); `length` is a traced int32 scalar.
"""

from functools import partial

import jax
import jax.numpy as jnp

from eeg2text_jax.search.settings import GenerationSpec

LANES = 128  # elements in a row of a TPU's registers
LONGEST = 128  # longest history for which the TPU version uses matrix products


def process(scores: jax.Array, tokens: jax.Array, length: jax.Array, spec: GenerationSpec) -> jax.Array:
    """Apply all processors that `spec` enables to `scores` float32 `[N, V]`."""
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
    if spec.forced_bos_token_id is not None:
        scores = jnp.where(length == 1, force(scores, spec.forced_bos_token_id), scores)
    if spec.forced_eos_token_id is not None:
        scores = jnp.where(length == spec.max_length - 1, force(scores, spec.forced_eos_token_id), scores)
    if spec.suppress_tokens:
        scores = suppress(scores, spec.suppress_tokens)
    if spec.begin_suppress_tokens:
        begin = 1 if spec.forced_bos_token_id is None else 2
        scores = jnp.where(length == begin, suppress(scores, spec.begin_suppress_tokens), scores)
    if spec.do_sample:
        scores = warp(scores, spec)
    if spec.renormalize_logits:
        scores = jax.nn.log_softmax(scores, axis=-1)
    return scores


def look_back(scores: jax.Array, tokens: jax.Array, length: jax.Array, penalty: float, size: int) -> jax.Array:
    """Apply the repetition penalty (unless it is 1), then the ban of repeated n-grams (unless `size` is 0)."""
    if penalty != 1.0:
        scores = penalize_repetition(scores, tokens, length, penalty)
    return ban_repeated_ngrams(scores, tokens, length, size) if size else scores


def look_back_by_products(
    scores: jax.Array, tokens: jax.Array, length: jax.Array, penalty: float, size: int
) -> jax.Array:
    """`look_back` for TPUs: a matrix product of one-hot tokens marks the scores to change.

    A scatter on a TPU changes the layout of all scores and back, which takes several times as long. Comparing each
    score with 56 tokens takes 0.24 ms on the vector units (BART-large, 160 rows); the matrix products take 0.19 ms.
    Float32 sums would save 0.05 ms for 160 rows, and cost 0.4 ms for 640 rows and 0.14 ms for PEGASUS's vocabulary.
    """
    total, vocabulary = tokens.shape[1], scores.shape[1]
    written = _written(tokens, length, vocabulary)  # [N, T]
    rank = jnp.ones(tokens.shape, jnp.int32)  # 1: penalized, 2: banned, too
    if size:
        banned = _banned(tokens, length, size)
        rank += jnp.pad(banned, ((0, 0), (size - 1, 0))).astype(jnp.int32)
    same = written[:, :, None] == written[:, None, :]  # [N, T, T]
    rank = jnp.max(jnp.where(same, rank[:, None, :], 0), axis=2)  # of a token, wherever it stands
    first = jnp.argmax(same, axis=2) == jnp.arange(total)[None, :]
    rank = jnp.where(first & (written < vocabulary), rank, 0)  # each token counts once, so that sums are ranks
    rows = jax.nn.one_hot(written // LANES, -(-vocabulary // LANES), dtype=jnp.bfloat16)
    columns = jax.nn.one_hot(written % LANES, LANES, dtype=jnp.bfloat16)
    found = jnp.einsum("ntr,ntc->nrc", rows * rank[:, :, None].astype(jnp.bfloat16), columns)  # 0, 1 or 2
    found = found.reshape(scores.shape[0], -1)[:, :vocabulary]
    if penalty != 1.0:
        scores = jnp.where(found > 0, jnp.where(scores < 0, scores * penalty, scores / penalty), scores)
    return jnp.where(found > 1, -jnp.inf, scores)


def penalize_repetition(scores: jax.Array, tokens: jax.Array, length: jax.Array, penalty: float) -> jax.Array:
    """Penalize tokens already written: negative scores times `penalty`, positive ones divided by it (Keskar 2019).

    A gather and a scatter of T entries per row, not V. Repeated tokens write the same value twice.
    """
    rows = jnp.arange(tokens.shape[0])[:, None]
    seen = jnp.take_along_axis(scores, tokens, axis=1)  # [N, T]
    seen = jnp.where(seen < 0, seen * penalty, seen / penalty)
    return scores.at[rows, _written(tokens, length, scores.shape[1])].set(seen, mode="drop")


def ban_repeated_ngrams(scores: jax.Array, tokens: jax.Array, length: jax.Array, size: int) -> jax.Array:
    """Set to -inf every token that would repeat an n-gram of the row."""
    rows = jnp.arange(tokens.shape[0])[:, None]
    banned = jnp.where(_banned(tokens, length, size), tokens[:, size - 1 :], scores.shape[1])
    return scores.at[rows, banned].set(-jnp.inf, mode="drop")


def _banned(tokens: jax.Array, length: jax.Array, size: int) -> jax.Array:
    """Return which tokens from position `size - 1` on would repeat an n-gram as the next token, `[N, T - size + 1]`."""
    total = tokens.shape[1]
    suffix = jax.lax.dynamic_slice_in_dim(tokens, length - (size - 1), size - 1, axis=1)  # [N, size - 1]
    ends = jnp.arange(size - 1, total)  # last position of each window
    repeats = jnp.broadcast_to((ends < length)[None, :], (tokens.shape[0], ends.size))
    for offset in range(size - 1):
        window = tokens[:, offset : offset + ends.size]
        repeats &= window == suffix[:, offset, None]
    return repeats


def _written(tokens: jax.Array, length: jax.Array, vocabulary: int) -> jax.Array:
    """Return `tokens` with an out-of-range index at positions that are not written yet."""
    return jnp.where(jnp.arange(tokens.shape[1])[None, :] < length, tokens, vocabulary)


def suppress(scores: jax.Array, banned: tuple[int, ...]) -> jax.Array:
    """Set the scores of `banned` tokens to -inf."""
    return scores.at[:, jnp.asarray(banned)].set(-jnp.inf, mode="drop")


def force(scores: jax.Array, token: int) -> jax.Array:
    """Set the score of one token to 0 and all others to -inf."""
    return jnp.full_like(scores, -jnp.inf).at[:, token].set(0.0)


def warp(scores: jax.Array, spec: GenerationSpec) -> jax.Array:
    """Apply temperature, top-k and top-p, in this order; excluded tokens become -inf.

    With beams, at least one token that does not end the sentence is kept.
    """
    least = 1 if spec.num_beams == 1 else len(spec.eos_token_id) + 1
    if spec.temperature != 1.0:
        scores = scores / spec.temperature
    if spec.top_k:
        count = min(max(spec.top_k, least), scores.shape[1])
        scores = jnp.where(scores < jax.lax.top_k(scores, count)[0][:, -1:], -jnp.inf, scores)
    if spec.top_p < 1.0:
        scores = _keep_nucleus(scores, spec.top_p, least)
    return scores


def _keep_nucleus(scores: jax.Array, mass: float, least: int) -> jax.Array:
    """Keep the most probable tokens with total probability `mass`, at least `least` of them (Holtzman et al. 2020)."""
    order = jnp.argsort(scores, axis=-1)
    ascending = jnp.take_along_axis(scores, order, axis=-1)
    below = jnp.cumsum(jax.nn.softmax(ascending, axis=-1), axis=-1) <= 1 - mass
    below = below.at[:, -least:].set(False)
    rows = jnp.arange(scores.shape[0])[:, None]
    return jnp.where(jnp.zeros_like(below).at[rows, order].set(below), -jnp.inf, scores)
