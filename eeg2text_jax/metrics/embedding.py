"""Texts -> hidden states of a text encoder, each distinct text once, in batches of a few widths.

Shapes: `N` texts or pairs, `T` tokens, `D` width of the encoder.
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from eeg2text_jax.models.text_encoder import TextEncoder
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.pretrained.encoders import LoadedEncoder

WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # tokens; a compilation for each that occurs
TOKENS = {"cpu": 4096, "gpu": 32768, "tpu": 32768}  # of one batch, padding included
Reduce = Callable[[jax.Array, jax.Array], jax.Array]  # hidden states [N, T, D], mask [N, T] -> [N, ...]
LONGEST = 512  # tokens, where neither tokenizer nor positions set a limit


class TextEmbedder:
    """Token ids and hidden states of texts.

    Args:
      loaded: encoder, parameters, tokenizer.
      max_tokens: longer texts are cut to so many tokens, special ones included; None: what the model can take.
      lower_case: texts are lower-cased first (sentence-transformers' `do_lower_case`).
    """

    def __init__(self, loaded: LoadedEncoder, *, max_tokens: int | None = None, lower_case: bool = False):
        self.loaded = loaded
        positions = loaded.encoder.spec.stack.max_positions
        known = [limit for limit in (max_tokens, loaded.tokenizer.model_max_length, positions) if limit]
        self.max_tokens = int(min(*known, LONGEST)) if known else LONGEST
        self.cut = 0  # distinct texts that were longer than `max_tokens`
        self._lower_case = lower_case
        devices = jax.local_devices()
        self._mesh = Mesh(np.array(devices), ("data",))
        self._params = jax.device_put(loaded.params, NamedSharding(self._mesh, P()))

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of every text with special tokens, int32 `[T]`; outer white space does not count.

        The tokenizer's own settings of truncation and padding, which some files carry, are not used.
        """
        tokenizer = self.loaded.tokenizer
        stripped = [text.strip().lower() if self._lower_case else text.strip() for text in texts]
        encoded = tokenizer(stripped, truncation=True, max_length=self.max_tokens, padding=False)["input_ids"]
        full = tokenizer(stripped, truncation=False, padding=False, verbose=False)["input_ids"]
        self.cut += sum(len(whole) > len(ids) for whole, ids in zip(full, encoded, strict=True))
        return [np.asarray(ids, np.int32) for ids in encoded]

    def special_tokens(self, text: str = "") -> np.ndarray:
        """Token ids of a blank text."""
        return self.tokens([text])[0]

    def map_hidden(self, ids: Sequence[np.ndarray], reduce: Reduce) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Batches of texts: their places in `ids`, and `reduce(hidden [N, T, D], mask [N, T])` as NumPy.

        The next batch is dispatched before the last one is read, so that the device does not wait. `reduce` must be
        one and the same function for all calls of a kind, since it is compiled with the encoder.
        """
        run = functools.partial(_encode, self.loaded.encoder, reduce)
        rows, replicated = NamedSharding(self._mesh, P("data")), self._params
        pending = None
        for places, width, size in plan_batches([len(i) for i in ids], len(jax.local_devices())):
            block = np.full((size, width), self.loaded.encoder.spec.pad_token, np.int32)
            lengths = np.zeros(size, np.int32)
            for row, place in enumerate(places):
                block[row, : len(ids[place])] = ids[place]
                lengths[row] = len(ids[place])
            dispatched = places, run(replicated, jax.device_put(block, rows), jax.device_put(lengths, rows))
            if pending is not None:
                yield pending[0], to_host(pending[1])[: len(pending[0])]
            pending = dispatched
        if pending is not None:
            yield pending[0], to_host(pending[1])[: len(pending[0])]

    def hidden(self, ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Hidden states of every text, each row of length 1: float32 `[T, D]`, padding cut off."""
        found: list[np.ndarray] = [np.empty(0, np.float32)] * len(ids)
        for places, states in self.map_hidden(ids, _unit_rows):
            for place, state in zip(places, states, strict=True):
                found[place] = state[: len(ids[place])].copy()
        return found

    def describe(self) -> str:
        """The part of a signature that says whose hidden states these are."""
        loaded = self.loaded
        layer = f"{loaded.encoder.spec.stack.layers}{'' if loaded.tuned_layer else ',untuned'}"
        space = {"roberta": "yes"}.get(loaded.encoder.spec.model_type, "-")
        return (
            f"model:{loaded.name}[sha256:{loaded.digest[:12]}]|layer:{layer}|max:{self.max_tokens}|prefix-space:{space}"
        )


def plan_batches(lengths: Sequence[int], devices: int) -> Iterator[tuple[np.ndarray, int, int]]:
    """(places, width, rows) of every batch: like lengths together, rows a multiple of the devices."""
    lengths = np.asarray(lengths, int)
    budget = TOKENS.get(jax.default_backend(), TOKENS["gpu"])
    bucket = np.searchsorted(WIDTHS, lengths)
    for number, width in enumerate(WIDTHS):
        inside = np.flatnonzero(bucket == number)
        size = max(budget // width // devices, 1) * devices
        for start in range(0, len(inside), size):
            yield inside[start : start + size], width, size


@functools.partial(jax.jit, static_argnums=(0, 1))
def _encode(
    encoder: TextEncoder,
    reduce: Callable[[jax.Array, jax.Array], jax.Array],
    params: dict,
    ids: jax.Array,
    n: jax.Array,
) -> jax.Array:
    # A row that only fills the batch sees its first position: a mean over nothing is no number.
    mask = jnp.arange(ids.shape[1])[None] < jnp.maximum(n, 1)[:, None]
    return reduce(encoder.hidden(params, ids, mask).astype(jnp.float32), mask)


def _unit_rows(hidden: jax.Array, mask: jax.Array) -> jax.Array:
    return hidden / jnp.maximum(jnp.linalg.norm(hidden, axis=-1, keepdims=True), 1e-12)
