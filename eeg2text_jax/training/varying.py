"""What of a recording varies at all: where a reconstruction is judged if `pretrain.mask` asks for it."""

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.study.study import Study

LOOKED_AT = 200  # samples of the train part, evenly spread


def varying_voxels(study: Study) -> jax.Array:
    """float32 of a snapshot's shape: 1 at the voxels, or features, of more than one value over the train part.

    Outside of a brain mask a recording has one value, whatever was done to it. Looked at are 200 samples.
    """
    train = study.split.parts["train"]
    rows = train[np.linspace(0, len(train) - 1, min(len(train), LOOKED_AT)).astype(int)]
    least = most = study.samples.features(int(rows[0]))[0]
    for row in rows:
        snapshots = study.samples.features(int(row))
        least, most = np.minimum(least, snapshots.min(axis=0)), np.maximum(most, snapshots.max(axis=0))
    return jnp.asarray(least < most, jnp.float32)
