"""The random streams of a run: what is drawn for one purpose has no key in common with what is drawn for another.

`jax.random.split(key, n)[i]` is `fold_in(key, i)`, so keys that are told apart by small numbers alone (seeds, steps,
samples) coincide as soon as two purposes count from the same key. Each purpose therefore begins with a constant of its
own, and NumPy's generators likewise (`default_rng(s)` and `default_rng([s, 0])` are the same stream).
"""

import jax
import numpy as np

# Purposes, each with a number that no step, sample, seed or epoch reaches. Never change one: results would change.
STREAMS = {
    "init": 0xA3C59AC3,  # initial parameters, by seed of the arm
    "dropout": 0xB7E15163,  # by seed of the arm, then by step
    "condition": 0xC6EF3720,  # noise and its like, by seed of the arm, then by condition and sample
    "sampling": 0xD1310BA6,  # tokens drawn while decoding, by sample
    "donors": 0xE19B01AA,  # who lends EEG to whom
    "label_rows": 0xF39CC060,  # who lends text to whom
}


def stream_key(seed: int | jax.Array, name: str, impl: str | None = None) -> jax.Array:
    """The key at the root of the stream `name` of a configuration's `seed`, a scalar; `impl` names its generator."""
    return jax.random.fold_in(jax.random.key(seed, impl=impl), np.uint32(STREAMS[name]))


def stream_rng(seed: int, name: str) -> np.random.Generator:
    """NumPy's generator at the root of the stream `name` of a configuration's `seed`."""
    return np.random.default_rng([STREAMS[name], seed])
