"""The input side alone: how fast batches arrive when no model computes."""

import time

import jax
import numpy as np

from eeg2text_jax.bench.train_work import Work
from eeg2text_jax.data.batches import training_batches
from eeg2text_jax.parallel.mesh import make_mesh
from eeg2text_jax.parallel.partition import put_training_batch

BATCHES = 64


def input_rate(work: Work) -> dict[str, float]:
    """Batches a second from the training stream onto the device, after the first one."""
    rows, mesh = np.arange(len(work.samples.data)), make_mesh(1, 1, jax.devices()[:1])
    stream = iter(training_batches(work.samples, rows, work.buckets, work.size, seed=0, steps=BATCHES + 1))
    jax.block_until_ready(put_training_batch(next(stream), mesh))
    begun = time.perf_counter()
    for batch in stream:
        jax.block_until_ready(put_training_batch(batch, mesh))
    return {"batches_per_second": BATCHES / (time.perf_counter() - begun)}
