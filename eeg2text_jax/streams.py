"""The random streams of a run: one per purpose, with no key in common.

`jax.random.split(key, n)[i]` equals `fold_in(key, i)`, so keys that differ by small numbers (seeds, steps, samples)
coincide if two purposes start from the same key. Each purpose therefore folds in its own constant first; NumPy's
generators likewise (`default_rng(s)` and `default_rng([s, 0])` are the same stream).
"""

import jax
import numpy as np

# Purpose -> a constant larger than any step, sample, seed or epoch. Changing one changes results.
STREAMS = {
    "init": 0xA3C59AC3,  # initial parameters, by seed of the arm
    "dropout": 0xB7E15163,  # by seed of the arm, then by step
    "condition": 0xC6EF3720,  # noise and random phases, by seed of the arm, then by condition and sample
    "sampling": 0xD1310BA6,  # tokens drawn while decoding, by sample
    "clock": 0x5D7A3C41,  # the random projection of recording and time to features
    "donors": 0xE19B01AA,  # choice of donors: under `shuffled`, a donor's EEG replaces a sample's own
    "label_rows": 0xF39CC060,  # choice of the texts that replace the samples' own under `label_shuffle`
}


def stream_key(seed: int | jax.Array, name: str, impl: str | None = None) -> jax.Array:
    """Return the root key of the stream `name` for a configuration's `seed`; `impl` names the PRNG."""
    return jax.random.fold_in(jax.random.key(seed, impl=impl), np.uint32(STREAMS[name]))


def stream_rng(seed: int, name: str) -> np.random.Generator:
    """Return NumPy's generator of the stream `name` for a configuration's `seed`."""
    return np.random.default_rng([STREAMS[name], seed])
