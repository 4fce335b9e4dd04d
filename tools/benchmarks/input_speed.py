"""How many samples a second the input of 1 to 64 simulated hosts makes: each builds its own rows of a batch.

    python tools/benchmarks/input_speed.py [--batch 8192] [--seeds 1] [--batches 8]

Recordings have ZuCo's sentence lengths and 840 features a word. This process builds the rows of the first and of the
last host, one after the other; hosts work at the same time, so a batch takes as long as the slower of the two.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from eeg2text_jax.commands.bench import sentence_lengths
from eeg2text_jax.data.batches import Samples, training_batches
from eeg2text_jax.data.datafile import DataFile

HOSTS = (1, 2, 4, 8, 16, 32, 64)
BUCKETS = ((56, 56),)
SAMPLES, FEATURES = 10_000, 840  # 0.7 GB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8192, help="samples of a batch over all hosts")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the grid, each with batches of its own")
    parser.add_argument("--batches", type=int, default=8, help="batches that are timed, of which the median counts")
    given = parser.parse_args()
    samples = make_samples()
    for hosts in HOSTS:
        slower = max(seconds_of_host(samples, given, hosts, host) for host in {0, hosts - 1})
        print(f"{hosts:>2} hosts: {given.batch / slower:>10,.0f} samples/s", flush=True)
    return 0


def make_samples() -> Samples:
    """Return random samples in memory."""
    rng, lengths = np.random.default_rng(0), sentence_lengths(SAMPLES)
    names = np.array(["made-up"] * SAMPLES, object)
    data = DataFile(
        path=Path("made-up"),
        features=rng.standard_normal((int(lengths.sum()), FEATURES), np.float32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        sentence=names,
        subject=names,
        task=names,
        sentence_index=np.arange(SAMPLES),
        features_are="random",
        provenance={},
    )
    targets = [rng.integers(4, 50000, n + 1).astype(np.int32)[:56] for n in lengths]
    zeros, ones = np.zeros(FEATURES, np.float32), np.ones(FEATURES, np.float32)
    return Samples(data, targets, zeros, ones, max_words=56, pad_token=1)


def seconds_of_host(samples: Samples, given: argparse.Namespace, hosts: int, host: int) -> float:
    """Return the median seconds in which a host builds its rows of a batch, without prefetching."""
    own = np.arange(given.batch).reshape(hosts, -1)[host]
    rows, seeds = np.arange(SAMPLES), tuple(range(given.seeds))
    made = training_batches(samples, rows, BUCKETS, given.batch, 0, given.batches + 1, seeds, own)
    spent, stream = [], iter(made)
    next(stream)
    for _ in range(given.batches):
        begun = time.perf_counter()
        next(stream)
        spent.append(time.perf_counter() - begun)
    return float(np.median(spent))


if __name__ == "__main__":
    raise SystemExit(main())
