"""Logits processors: pure functions that change the scores `[N, V]` before the next token is chosen.

Order and arithmetic are those of transformers 5 (`_get_logits_processor`): repetition penalty and repeated n-grams,
length and forced tokens, suppressed tokens, and for sampling temperature, top-k and top-p. `tokens` is int32 `[N, T]`;
its first `length` columns are written, the start token included. `length` is a traced int32 scalar.
"""

from functools import partial

import jax
import jax.numpy as jnp

from eeg2text_jax.search.settings import GenerationSpec

LANES = 128  # elements in a row of a TPU's registers
FEW_SCORES = 2**23  # N * V up to which `look_back_by_products` sums in float32
LONGEST = 128  # largest T for which `look_back_by_products` is used on TPUs


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
    """Penalize tokens already written (unless `penalty` is 1), and ban repeated n-grams (unless `size` is 0).

    Negative scores are multiplied by the penalty, positive ones divided by it (Keskar 2019). A token that would repeat
    an n-gram of the row gets -inf. Both steps read and write T scores of a row, not V.
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


def look_back_by_products(
    scores: jax.Array, tokens: jax.Array, length: jax.Array, penalty: float, size: int
) -> jax.Array:
    """Do the same as `look_back`, faster on TPUs: a matrix product of one-hot tokens marks the scores to change.

    On a TPU, a scatter copies all scores to another layout and back, which takes several times as long. Comparing each
    score with 56 tokens takes 0.24 ms on the vector units (BART-large, 160 rows); the matrix products take 0.19 ms.
    Sums in float32 instead of bfloat16 save 0.07 ms of a search's step for 160 rows, as their layout changes faster.
    They cost 0.4 ms for 640 rows and 0.14 ms for PEGASUS's vocabulary, where they do not fit near the matrix units.
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
    found = jnp.einsum("ntr,ntc->nrc", rows, columns, preferred_element_type=sums)  # rank of every token
    found = found.reshape(scores.shape[0], -1)[:, :vocabulary]
    if penalty != 1.0:
        scores = jnp.where(found > 0, jnp.where(scores < 0, scores * penalty, scores / penalty), scores)
    return jnp.where(found > 1, -jnp.inf, scores)


def _banned(tokens: jax.Array, length: jax.Array, size: int) -> jax.Array:
    """Return which tokens of a row must not be written next, as they would repeat an n-gram, bool `[N, T - size + 1]`.

    Column i is for the token at position `i + size - 1`, the last of the n-gram that begins at position i.
    """
    total = tokens.shape[1]
    suffix = jax.lax.dynamic_slice_in_dim(tokens, length - (size - 1), size - 1, axis=1)  # [N, size - 1]
    ends = jnp.arange(size - 1, total)  # last position of each window
    repeats = jnp.broadcast_to((ends < length)[None, :], (tokens.shape[0], ends.size))
    for offset in range(size - 1):
        window = tokens[:, offset : offset + ends.size]
        repeats &= window == suffix[:, offset, None]
    return repeats


def _written(tokens: jax.Array, length: jax.Array, vocabulary: int) -> jax.Array:
    """Return `tokens` with the index `vocabulary`, which is out of range, at positions that are not written yet."""
    return jnp.where(jnp.arange(tokens.shape[1])[None, :] < length, tokens, vocabulary)


def suppress(scores: jax.Array, banned: tuple[int, ...]) -> jax.Array:
    """Set the scores of `banned` tokens to -inf; ids that are no token, such as -1 for "never", are ignored."""
    tokens = jnp.asarray([token for token in banned if token >= 0], jnp.int32)  # an index of -1 is the last token
    return scores.at[:, tokens].set(-jnp.inf, mode="drop")


def force(scores: jax.Array, token: int) -> jax.Array:
    """Set the score of one token to 0 and all others to -inf."""
    return jnp.full_like(scores, -jnp.inf).at[:, token].set(0.0)


def warp(scores: jax.Array, spec: GenerationSpec) -> jax.Array:
    """Apply temperature, top-k and top-p, in this order; the scores of excluded tokens become -inf.

    With several beams, at least one token stays that does not end the sentence.
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
    """Exclude all but the most probable tokens with total probability `mass` (top-p); at least `least` tokens stay."""
    order = jnp.argsort(scores, axis=-1)
    ascending = jnp.take_along_axis(scores, order, axis=-1)
    below = jnp.cumsum(jax.nn.softmax(ascending, axis=-1), axis=-1) <= 1 - mass
    below = below.at[:, -least:].set(False)
    rows = jnp.arange(scores.shape[0])[:, None]
    return jnp.where(jnp.zeros_like(below).at[rows, order].set(below), -jnp.inf, scores)
