"""Compute hidden states of texts with a text encoder, once per distinct text, in batches of fixed widths in tokens.

Shapes: `N` texts or pairs, `T` tokens, `D` width of the encoder.
"""

import functools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.pretrained.encoders import LoadedEncoder, TextEncoder

# Widths of batches in tokens; each width in use is compiled once.
WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
# Tokens of a batch, padding included. A CPU is as fast with 1024 as with 4096, and the last batch has fewer empty rows.
TOKENS = {"cpu": 1024, "gpu": 32768, "tpu": 32768}
KEPT = 1 << 30  # largest size of the cache of hidden states, bytes
LONGEST = 512  # limit in tokens if neither tokenizer nor position embeddings set one


class TextEmbedder:
    """Token ids and hidden states of texts, for all metrics that use one encoder.

    Up to `KEPT` bytes of states are cached, because texts recur (references, texts that several metrics read).
    """

    def __init__(self, loaded: LoadedEncoder):
        self.loaded = loaded
        limits = (loaded.tokenizer.model_max_length, loaded.encoder.spec.stack.max_positions)
        self.max_tokens = int(min([LONGEST, *filter(None, limits)]))
        self.cut = 0  # number of texts so far that were longer than their limit
        self._mesh = Mesh(np.array(jax.local_devices()), ("data",))
        self._params = jax.device_put(loaded.params, NamedSharding(self._mesh, P()))
        self._states: dict[bytes, np.ndarray] = {}
        self._bytes = 0

    def tokens(self, texts: Sequence[str], max_tokens: int | None = None) -> list[np.ndarray]:
        """Return the token ids of every text with special tokens, int32 `[T]`, cut to `max_tokens`; texts are stripped.

        Truncation and padding settings in the tokenizer's file are ignored.
        """
        tokenizer, limit = self.loaded.tokenizer, min(max_tokens or self.max_tokens, self.max_tokens)
        if not texts:  # transformers fails on an empty list
            return []
        stripped = [text.strip() for text in texts]
        encoded = tokenizer(stripped, truncation=False, padding=False, verbose=False)["input_ids"]
        if long := [row for row, ids in enumerate(encoded) if len(ids) > limit]:
            self.cut += len(long)
            short = tokenizer([stripped[row] for row in long], truncation=True, max_length=limit, padding=False)
            for row, ids in zip(long, short["input_ids"], strict=True):
                encoded[row] = ids
        return [np.asarray(ids, np.int32) for ids in encoded]

    def states(self, ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the hidden states of every sequence of tokens, float32 `[T, D]`; distinct ones are computed once."""
        keys = [one.tobytes() for one in ids]
        new = {key: one for key, one in zip(keys, ids, strict=True) if key not in self._states}
        found = dict(zip(new, self._compute(list(new.values())), strict=True))
        found |= {key: self._states[key] for key in keys if key not in found}
        for key in new:
            self._states[key] = found[key]
            self._bytes += found[key].nbytes
        while self._bytes > KEPT:
            self._bytes -= self._states.pop(next(iter(self._states))).nbytes
        return [found[key] for key in keys]

    def forget(self) -> None:
        """Clear the cache of states."""
        self._states.clear()
        self._bytes = 0

    def _compute(self, ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Compute the states `[T, D]` of each sequence; a batch is read after the next is dispatched, to save time."""
        found: list[np.ndarray] = [np.empty(0, np.float32)] * len(ids)
        rows, pending = NamedSharding(self._mesh, P("data")), None
        for places, width, size in plan_batches([len(one) for one in ids], len(jax.local_devices())):
            block = np.full((size, width), self.loaded.encoder.spec.pad_token, np.int32)
            lengths = np.ones(size, np.int32)  # padding rows have length 1
            for row, place in enumerate(places):
                block[row, : len(ids[place])], lengths[row] = ids[place], len(ids[place])
            arrays = jax.device_put(block, rows), jax.device_put(lengths, rows)
            dispatched = places, _encode(self.loaded.encoder, self._params, *arrays)
            self._read(pending, ids, found)
            pending = dispatched
        self._read(pending, ids, found)
        return found

    def _read(self, batch: tuple[np.ndarray, jax.Array] | None, ids: Sequence[np.ndarray], found: list) -> None:
        if batch is not None:
            for place, state in zip(batch[0], to_host(batch[1]), strict=False):
                found[place] = state[: len(ids[place])].copy()

    def describe(self, max_tokens: int | None = None) -> str:
        """Return the part of a metric's signature (how scores are computed) that names the encoder and its layer."""
        loaded, limit = self.loaded, min(max_tokens or self.max_tokens, self.max_tokens)
        layer = f"{loaded.encoder.spec.stack.layers}{'' if loaded.tuned_layer else ',untuned'}"
        space = "yes" if loaded.encoder.spec.model_type == "roberta" else "-"
        return f"model:{loaded.name}[sha256:{loaded.digest[:12]}]|layer:{layer}|max:{limit}|prefix-space:{space}"


def plan_batches(lengths: Sequence[int], devices: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield (indices of texts, width in tokens, number of rows) of every batch of texts of similar length.

    The number of rows is a multiple of the number of devices. Texts that do not fill a batch move to the next larger
    width in use, if they take fewer positions there: 479 texts of 23 tokens on average then take 14,000 positions
    instead of 29,000.
    """
    lengths = np.asarray(lengths, int)
    budget = TOKENS.get(jax.default_backend(), TOKENS["gpu"])
    bucket = np.searchsorted(WIDTHS, lengths)
    used = np.unique(bucket).tolist()
    left = np.zeros(0, int)
    for number, wider in zip(used, [*used, None][1:], strict=True):
        width = WIDTHS[number]
        inside = np.concatenate([left, np.flatnonzero(bucket == number)])
        size = max(budget // width // devices, 1) * devices
        whole = len(inside) // size * size
        carried = wider is not None and (len(inside) - whole) * WIDTHS[wider] < size * width
        left, inside = (inside[whole:], inside[:whole]) if carried else (inside[:0], inside)
        for start in range(0, len(inside), size):
            yield inside[start : start + size], width, size


@functools.partial(jax.jit, static_argnums=0)
def _encode(encoder: TextEncoder, params: Params, ids: jax.Array, lengths: jax.Array) -> jax.Array:
    """Map ids `[N, T]`, of which the first `lengths [N]` are real, to hidden states `[N, T, D]`, float32."""
    mask = jnp.arange(ids.shape[1])[None] < lengths[:, None]
    return encoder.hidden(params, ids, mask).astype(jnp.float32)
