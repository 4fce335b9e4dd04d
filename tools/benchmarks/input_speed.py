"""How many samples a second the input of 1 to 64 simulated hosts makes: each builds its own rows of a batch.

    python tools/benchmarks/input_speed.py [--batch 8192] [--seeds 1] [--batches 8]
    python tools/benchmarks/input_speed.py --waves 50 --batch 32

Recordings have ZuCo's sentence lengths and 840 features a word. This process builds the rows of the first and of the
last host, one after the other; hosts work at the same time, so a batch takes as long as the slower of the two.
With `--waves HOURS`, a data file of waves of 128 channels at 200 samples a second (0.18 GB an hour) is written below
`--folder` and removed again; the figures are of one host.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from eeg2text_jax.commands.bench import sentence_lengths
from eeg2text_jax.data.batches import Samples, feature_scale, training_batches
from eeg2text_jax.data.data_writer import WaveWriter
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.source import Sample

HOSTS = (1, 2, 4, 8, 16, 32, 64)
BUCKETS = ((56, 56),)
SAMPLES, FEATURES = 10_000, 840  # 0.7 GB
CHANNELS, RATE = 128, 200
WAVE_BUCKETS = ((800, 56), (1400, 56))  # 4 and 7 seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8192, help="samples of a batch over all hosts")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the grid, each with batches of its own")
    parser.add_argument("--batches", type=int, default=8, help="batches that are timed, of which the median counts")
    parser.add_argument("--waves", type=float, default=0.0, help="hours of waves in a data file; 0: words in memory")
    parser.add_argument("--folder", help="folder of that file; default: the system's for temporary files")
    given = parser.parse_args()
    if given.waves:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            time_waves(given, Path(folder) / "waves.h5")
        return 0
    samples = make_samples()
    for hosts in HOSTS:
        slower = max(seconds_of_host(samples, given, hosts, host) for host in {0, hosts - 1})
        print(f"{hosts:>2} hosts: {given.batch / slower:>10,.0f} samples/s", flush=True)
    return 0


def make_samples() -> Samples:
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


def time_waves(given: argparse.Namespace, path: Path) -> None:
    """Write sentences of 3 to 7 seconds, and print the seconds of writing, opening and standardizing, and samples/s."""
    rng, noise = np.random.default_rng(0), np.random.default_rng(1).standard_normal((20 * RATE, CHANNELS), np.float32)
    begun, written, rows = time.perf_counter(), 0, 0
    with WaveWriter(path, CHANNELS, "random waves") as writer:
        while written < given.waves * 3600 * RATE:
            length, start = int(rng.integers(3 * RATE, 7 * RATE)), int(rng.integers(12 * RATE))
            writer.add(Sample(noise[start : start + length], f"text {rows}", "made-up", "made-up", rows))
            written, rows = written + length, rows + 1
        writer.provenance = {"sfreq": float(RATE)}
    print(f"{rows} samples, {path.stat().st_size / 1e9:.2f} GB, written in {time.perf_counter() - begun:.0f} s")
    begun = time.perf_counter()
    data = read_datafile(path)
    print(f"opened in {time.perf_counter() - begun:.2f} s")
    begun = time.perf_counter()
    scale = feature_scale(data, np.arange(rows), True)
    print(f"standardized over all in {time.perf_counter() - begun:.0f} s")
    targets = [rng.integers(4, 50000, 20).astype(np.int32)] * rows
    samples = Samples(data, targets, scale.mean, scale.scale, 7 * RATE, pad_token=1)
    seconds = seconds_of_host(samples, given, 1, 0)
    print(f"a batch of {given.batch} in {seconds:.3f} s: {given.batch / seconds:,.0f} samples/s")


def seconds_of_host(samples: Samples, given: argparse.Namespace, hosts: int, host: int) -> float:
    """Return the median seconds in which a host builds its rows of a batch, without prefetching."""
    own = np.arange(given.batch).reshape(hosts, -1)[host]
    rows, seeds = np.arange(len(samples.data)), tuple(range(given.seeds))
    buckets = WAVE_BUCKETS if samples.data.is_waves else BUCKETS
    made = training_batches(samples, rows, buckets, given.batch, 0, given.batches + 1, seeds, own)
    spent, stream = [], iter(made)
    next(stream)
    for _ in range(given.batches):
        begun = time.perf_counter()
        next(stream)
        spent.append(time.perf_counter() - begun)
    return float(np.median(spent))


if __name__ == "__main__":
    raise SystemExit(main())
