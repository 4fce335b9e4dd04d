"""How often decoders of the clock are called *beyond its time*, and how often decoders of words are.

    python tools/calibrations/calibrate_time.py --sets 1000

prints a table, a line a cell: block length, order of the subjects, split, readers, how exactly the clock is known, and
in how many sets each and all of the controls `clock`, `nearest_in_time` and `neighbor` are beaten. With `--words` the
decoder also names words of the sentence, and the counts are hits; `--power` chooses their number in each cell so that
the mean difference in content against the hardest control is the mean of its printed minimum detectable effect, and
prints both.
"""

import argparse
import dataclasses
import itertools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

import numpy as np

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.beyond_time import stretches
from eeg2text_jax.auditing.content_cells import content_tables
from eeg2text_jax.auditing.contrast import Contrast, contrast
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.levels import labels_of, sampled_groups
from eeg2text_jax.auditing.statistics import resample
from eeg2text_jax.auditing.strata import MIN_SENTENCES, blocks_of, exchangeable
from eeg2text_jax.auditing.verdict import is_above
from eeg2text_testing.clock_decoders import Clocked, made, readings, simulated
from eeg2text_testing.prediction_sets import gather, unigram_score, unigram_tables

CONTROLS = ("clock", "nearest_in_time", "neighbor")
MINUTE = 15.0  # sentences of four seconds
GRID = (0.0, 0.25, 0.5, 1.0, 2.0)  # words between which an effect is its MDE, as few sets show
FEW, ROUNDS, CLOSE = 40, 4, 0.01  # sets for that; times that all sets are drawn; how near effect and MDE come


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
    sums = [gather(blocks, table) for table in unigram_tables(sets)]
    eeg, *controls = resample(sums, [sets.counts] * len(sums), blocks, resamples=resamples, rng=rng)
    labels, known = drawn.label[np.unique(drawn.sentence)], {str(k): str(c) for k, c in enumerate(drawn.label)}
    groups = sampled_groups({"class": labels}, {"class": known})
    return {name: contrast([eeg, one], unigram_score, groups) for name, one in zip(CONTROLS, controls, strict=True)}


def beyond(found: dict[str, Contrast]) -> dict[str, bool]:
    """What one set comes to: each control beaten, and all of them (`beyond`)."""
    beaten = {name: is_above(one) for name, one in found.items()}
    return beaten | {"beyond": all(beaten.values())}


@dataclasses.dataclass(frozen=True)
class Planted:
    """A cell with words, and the sets that are counted. Means over them, of the control that leaves the least:

    `effect`, the difference in content; `mde`, its minimum detectable effect as printed.
    """

    spec: Clocked
    found: list[dict[str, Contrast]]
    hardest: str
    effect: float
    mde: float

    @property
    def gap(self) -> float:
        return self.effect - self.mde


def planted(spec: Clocked, words: float, sets: int, resamples: int) -> Planted:
    """Draws the sets of a cell with words."""
    spec = dataclasses.replace(spec, words=float(words))
    found = [against(spec, seed, resamples) for seed in range(sets)]
    means = {name: np.mean([(one[name].effect, one[name].mde) for one in found], axis=0) for name in CONTROLS}
    hardest = min(means, key=lambda name: means[name] @ (1, -1))
    return Planted(spec, found, hardest, *map(float, means[hardest]))


def at_its_mde(spec: Clocked, sets: int, resamples: int) -> Planted:
    """As many words as make the effect against the hardest control its minimum detectable effect, within `CLOSE`.

    Both are means over the sets that are counted, which differ in their words alone: the effect grows with the words,
    the MDE less. Few sets show about where they meet, then all sets are drawn until they do.
    """
    few = [planted(spec, words, min(sets, FEW), resamples).gap for words in GRID]
    after = int(np.searchsorted(few, 0))
    if after in (0, len(GRID)):
        raise ValueError(f"{spec}: no share of words makes the effect the MDE; the gaps are {few}")
    slope = (few[after] - few[after - 1]) / (GRID[after] - GRID[after - 1])
    words = GRID[after - 1] - few[after - 1] / slope
    for _ in range(ROUNDS):
        made = planted(spec, words, sets, resamples)
        if abs(made.gap) <= CLOSE * made.mde:
            break
        words -= made.gap / slope
    return made


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


def line(spec: Clocked, flags: argparse.Namespace) -> str:
    """One cell as a line of the table."""
    begun, sets = time.process_time(), flags.sets
    figures = []
    if flags.power:
        made = at_its_mde(spec, sets, flags.resamples)
        spec, contrasts = made.spec, made.found
        figures = [made.hardest, f"{made.effect:.2f}", f"{made.mde:.2f}"]
    else:
        contrasts = [against(spec, seed, flags.resamples) for seed in range(sets)]
    found = list(map(beyond, contrasts))
    if flags.within:
        found = [one | in_stretches(spec, seed, flags.resamples) for seed, one in enumerate(found)]
    order, split = "same" if spec.same_order else "own", "blocked" if spec.blocked else "interleaved"
    exact = f"{spec.exact * 4:.0f} s" if spec.exact else "exact"
    about = [spec.block, order, split, spec.subjects, exact, f"{spec.words:.3f}", *figures]
    shares = [sum(one[name] for one in found) for name in found[0]]
    took = f"<!-- {1e3 * (time.process_time() - begun) / sets:.0f} ms a set -->"
    return f"| {' | '.join(map(str, (*about, *shares)))} | {took}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--words", type=float, default=0.0, help="own words of the sentence that are named on average")
    parser.add_argument("--power", action="store_true", help="as many words as are detectable")
    parser.add_argument("--full", action="store_true", help="all combinations of block length, readers and clocks")
    parser.add_argument("--within", action="store_true", help="besides, content within stretches of time")
    parser.add_argument("--sentences", type=int, default=300, help="of which one of five is tested")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cells, from 0 in the order of the table")
    flags = parser.parse_args()
    figures = ("hardest", "effect", "MDE") if flags.power else ()
    names = ("block", "order", "split", "readers", "clock", "words", *figures, *CONTROLS, "beyond")
    names += ("stretches", "and groups") if flags.within else ()
    chosen = cells(flags.words, flags.full, flags.sentences)
    print(f"| {' | '.join(names)} |\n{'| --- ' * len(names)}|")
    for spec in [chosen[k] for k in flags.only or range(len(chosen))]:
        print(line(spec, flags), flush=True)


if __name__ == "__main__":
    main()
