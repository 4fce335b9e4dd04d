"""How often decoders of the clock are called *beyond its time*, and how often decoders of words are.

`python tools/calibrate_time.py --sets 1000` prints a table, a line a cell: block length, order of the subjects, split,
readers, how exactly the clock is known, and the share of sets in which each and all of the controls `clock`,
`nearest_in_time` and `neighbor` are beaten. With `--words` the decoder also names words of the sentence, and the share
is that of hits.
"""

import argparse
import itertools
import time

import numpy as np

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.beyond_time import stretches
from eeg2text_jax.auditing.content_cells import content_tables
from eeg2text_jax.auditing.contrast import contrast
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.levels import labels_of
from eeg2text_jax.auditing.strata import MIN_SENTENCES, exchangeable, length_strata
from eeg2text_jax.auditing.verdict import is_above
from eeg2text_testing.clock_decoders import Clocked, made

CONTROLS = ("clock", "nearest_in_time", "neighbor")
MINUTE = 15.0  # sentences of four seconds


def cells(words: float, full: bool, sentences: int) -> list[Clocked]:
    """Cells of the calibration: all combinations, or a few of them."""
    lengths, readers, clocks = (
        ((1, 2, 5, 12, 25, 50), (1, 6, 18), (0.0, MINUTE)) if full else ((1, 12, 50), (6,), (0.0,))
    )
    found = itertools.product(lengths, (False, True), (False, True), readers, clocks)
    return [Clocked(sentences, 12, s, b, same, blocked, e, words) for b, same, blocked, s, e in found]


def beyond(spec: Clocked, seed: int, resamples: int) -> dict[str, bool]:
    """What one set comes to: each control beaten, all of them (`beyond`), content within stretches, and with groups."""
    rows, classes = made(spec, seed)
    aligned = align({name: rows[name] for name in ("eeg", *CONTROLS)})
    endpoint, rng = primary_endpoint(), np.random.default_rng(seed)
    strata = length_strata(aligned.tasks, aligned.n_words)
    tables = content_tables(aligned, strata, endpoint.metric, resamples=resamples, rng=rng)
    found = {
        name: is_above(contrast([tables[0].sampled, tables[i].sampled], endpoint.score))
        for i, name in enumerate(CONTROLS, 1)
    }
    found["beyond"] = all(found.values())
    alone = align({"eeg": rows["eeg"]})
    for name, labels in (
        ("stretches", np.zeros(len(alone.references), int)),
        ("groups", labels_of(alone, classes, "c")),
    ):
        within = stretches(alone, labels)
        if exchangeable(within).sum() < MIN_SENTENCES:
            found[name] = False
            continue
        held = content_tables(alone, within, endpoint.metric, resamples=resamples, rng=rng)
        found[name] = is_above(contrast([held[0].sampled], endpoint.score))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--words", type=float, default=0.0, help="chance that the decoder names a word of the sentence")
    parser.add_argument("--full", action="store_true", help="all combinations of block length, readers and clocks")
    parser.add_argument("--sentences", type=int, default=300, help="of which one of five is tested")
    flags = parser.parse_args()
    names = ("clock beaten", "nearest", "neighbor", "beyond", "stretches", "and groups")
    print(f"| block | order | split | readers | clock | {' | '.join(names)} |")
    print("| --- " * 11 + "|")
    for spec in cells(flags.words, flags.full, flags.sentences):
        begun = time.monotonic()
        found = [beyond(spec, seed, flags.resamples) for seed in range(flags.sets)]
        shares = " | ".join(f"{sum(one[name] for one in found)}/{flags.sets}" for name in found[0])
        order, split = "same" if spec.same_order else "own", "blocked" if spec.blocked else "interleaved"
        exact = f"{spec.exact * 4:.0f} s" if spec.exact else "exact"
        took = f"{(time.monotonic() - begun) / flags.sets:.2f} s a set"
        print(
            f"| {spec.block} | {order} | {split} | {spec.subjects} | {exact} | {shares} | <!-- {took} -->", flush=True
        )


if __name__ == "__main__":
    main()
