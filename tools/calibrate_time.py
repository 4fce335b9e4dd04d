"""How often decoders of the clock are called *beyond its time*, and how often decoders of words are.

`python tools/calibrate_time.py --sets 1000` prints a table, a line a cell: block length, order of the subjects, split,
readers, how exactly the clock is known, and in how many sets each and all of the controls `clock`, `nearest_in_time`
and `neighbor` are beaten. With `--words` the decoder also names words of the sentence, and the counts are hits;
`--power` chooses that chance in each cell so that the hardest control is beaten by its minimum detectable effect.
"""

import argparse
import dataclasses
import itertools
import time

import numpy as np

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.beyond_time import stretches
from eeg2text_jax.auditing.content_cells import content_tables
from eeg2text_jax.auditing.contrast import Contrast, contrast
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.levels import labels_of
from eeg2text_jax.auditing.statistics import resample
from eeg2text_jax.auditing.strata import MIN_SENTENCES, blocks_of, exchangeable
from eeg2text_jax.auditing.verdict import is_above
from eeg2text_testing.clock_decoders import Clocked, made, readings, simulated
from eeg2text_testing.prediction_sets import unigram_score, unigram_tables

CONTROLS = ("clock", "nearest_in_time", "neighbor")
MINUTE = 15.0  # sentences of four seconds


def cells(words: float, full: bool, sentences: int) -> list[Clocked]:
    """Cells of the calibration: all combinations, or a few of them."""
    lengths, readers, clocks = ((1, 12, 50), (1, 6, 18), (0.0, MINUTE)) if full else ((1, 12, 50), (6,), (0.0,))
    found = itertools.product(lengths, (False, True), (False, True), readers, clocks)
    return [Clocked(sentences, 12, s, b, same, blocked, e, words) for b, same, blocked, s, e in found]


def against(spec: Clocked, seed: int, resamples: int) -> dict[str, Contrast]:
    """The comparison of one set with each control."""
    drawn = readings(spec, seed)
    sets = simulated(drawn, ("eeg", *CONTROLS))
    rng, blocks = np.random.default_rng(seed), blocks_of(sets.strata)
    sums = [blocks.gather(table) for table in unigram_tables(sets)]
    eeg, *controls = resample(sums, [sets.counts] * len(sums), blocks, resamples=resamples, rng=rng)
    return {name: contrast([eeg, one], unigram_score) for name, one in zip(CONTROLS, controls, strict=True)}


def beyond(spec: Clocked, seed: int, resamples: int, within: bool) -> dict[str, bool]:
    """What one set comes to: each control beaten, and all of them (`beyond`)."""
    found = {name: is_above(one) for name, one in against(spec, seed, resamples).items()}
    found["beyond"] = all(found.values())
    return found | (in_stretches(spec, seed, resamples) if within else {})


def at_its_mde(spec: Clocked, sets: int, resamples: int) -> Clocked:
    """The cell with as many words as make the effect against the hardest control its minimum detectable effect."""
    key = 10**6  # other sets than those that are counted
    pilots = [
        [against(dataclasses.replace(spec, words=words), key + seed, resamples) for seed in range(sets)]
        for words in (0.0, 0.5)
    ]
    needed = []
    for name in CONTROLS:
        none, half = (np.mean([one[name].effect for one in pilot]) for pilot in pilots)
        mde = np.mean([one[name].mde for one in pilots[1]])
        needed.append(0.5 * (mde - none) / (half - none))
    return dataclasses.replace(spec, words=float(max(needed)))


def in_stretches(spec: Clocked, seed: int, resamples: int) -> dict[str, bool]:
    """Content within stretches of time alone, and within groups and stretches."""
    rows, classes = made(spec, seed)
    alone, endpoint = align({"eeg": rows["eeg"]}), primary_endpoint()
    rng, found = np.random.default_rng(seed), {}
    nothing, groups = np.zeros(len(alone.references), int), labels_of(alone, classes, "c")
    for name, labels in (("stretches", nothing), ("and groups", groups)):
        strata = stretches(alone, labels)
        if strata is None or exchangeable(strata).sum() < MIN_SENTENCES:
            found[name] = False
            continue
        held = content_tables(alone, strata, endpoint.metric, resamples=resamples, rng=rng)
        found[name] = is_above(contrast([held[0].sampled], endpoint.score))
    return found


def line(spec: Clocked, sets: int, resamples: int, within: bool) -> str:
    """One cell as a line of the table."""
    begun = time.process_time()
    found = [beyond(spec, seed, resamples, within) for seed in range(sets)]
    order, split = "same" if spec.same_order else "own", "blocked" if spec.blocked else "interleaved"
    exact = f"{spec.exact * 4:.0f} s" if spec.exact else "exact"
    about = [spec.block, order, split, spec.subjects, exact]
    shares = [sum(one[name] for one in found) for name in found[0]]
    took = f"<!-- {1e3 * (time.process_time() - begun) / sets:.0f} ms a set -->"
    return f"| {' | '.join(map(str, (*about, f'{spec.words:.2f}', *shares)))} | {took}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--words", type=float, default=0.0, help="chance that the decoder names a word of the sentence")
    parser.add_argument("--power", action="store_true", help="as many words as are detectable")
    parser.add_argument("--full", action="store_true", help="all combinations of block length, readers and clocks")
    parser.add_argument("--within", action="store_true", help="besides, content within stretches of time")
    parser.add_argument("--sentences", type=int, default=300, help="of which one of five is tested")
    flags = parser.parse_args()
    names = ("block", "order", "split", "readers", "clock", "words", *CONTROLS, "beyond")
    names += ("stretches", "and groups") if flags.within else ()
    print(f"| {' | '.join(names)} |\n{'| --- ' * len(names)}|")
    for spec in cells(flags.words, flags.full, flags.sentences):
        spec = at_its_mde(spec, flags.sets // 4, flags.resamples) if flags.power else spec
        print(line(spec, flags.sets, flags.resamples, flags.within), flush=True)


if __name__ == "__main__":
    main()
