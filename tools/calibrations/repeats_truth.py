"""How often `eeg2text check --repeats` errs, on simulated recordings whose truth is known.

    python tools/calibrations/repeats_truth.py --sets 1000

prints for each design how often something is claimed, and the mean effect; then how often planted words are found at
the minimum detectable effect that is printed without them. p comes from 500 random pairings, not 10,000. Recordings
have a drift that all share (as after a lead-in of the same length), a random walk of their own, noise of variance 1,
and, where said, words: a fixed pattern for each sentence.
"""

import argparse
import dataclasses

import numpy as np

from eeg2text_jax.instrument.auditing import verdict
from eeg2text_jax.runs.repeats import OVER, WITHIN, compare, gathered


@dataclasses.dataclass(frozen=True)
class Design:
    sentences: int = 252
    recordings: int = 4
    subjects: int = 1
    features: int = 32
    fixed: bool = True  # the same order in all recordings
    drift: float = 0.0  # standard deviation of the shared drift
    places: float = 126.0  # half a period of its fastest part, in places
    walk: float = 0.1  # standard deviation of a step of a recording's own random walk
    words: float = 0.0  # standard deviation of a sentence's pattern
    length: float = 0.0  # standard deviation of a pattern of each length
    differ: float = 0.0  # standard deviation of what differs between subjects: an offset and a scale of each feature


NULLS = {
    "noise": Design(fixed=False),
    "noise, fixed order": Design(),
    "drift of half a run, fixed order": Design(drift=1.0),
    "drift of 60 places, fixed order": Design(drift=1.0, places=60),
    "drift of 20 places, fixed order": Design(drift=1.0, places=20),
    "drift of 8 places, fixed order": Design(drift=1.0, places=8),
    "drift of half a run, random order": Design(fixed=False, drift=1.0),
    "length alone": Design(fixed=False, length=1.0),
    "length alone, fixed order": Design(length=1.0),
    "subjects who differ": Design(fixed=False, subjects=4, differ=1.0),
}
PLANTED = {"words, random order": Design(fixed=False), "words, fixed order": Design(drift=1.0)}


def slow(places: np.ndarray, design: Design, rng: np.random.Generator) -> np.ndarray:
    """A smooth random function of the place for each feature, [n, F], of variance 1."""
    waves = 8
    turns = rng.uniform(0.25, 1, (waves, design.features)) * np.pi / design.places
    phase = rng.uniform(0, 2 * np.pi, (waves, design.features))
    return np.cos(places[:, None, None] * turns + phase).sum(1) * np.sqrt(2 / waves)


def made(design: Design, rng: np.random.Generator, scope: str = WITHIN) -> tuple[list, str, float]:
    """The recordings of a set, standardized; the scope; the order likeness of the design."""
    n, runs, width = design.sentences, design.recordings, design.features
    length = rng.integers(4, 16, n)
    words, lengths = rng.normal(size=(n, width)), rng.normal(size=(16, width))
    turns = rng.integers(2**32)
    values, places = [], []
    offset, scale = (rng.normal(size=(design.subjects, width)) for _ in range(2))
    for r in range(runs):
        place = np.arange(n) if design.fixed else rng.permutation(n)
        own = design.words * words + design.length * lengths[length] + rng.normal(size=(n, width))
        own += design.drift * slow(place, design, np.random.default_rng(turns))
        own += design.walk * np.cumsum(rng.normal(size=(n, width)), 0)[place]
        s = r % design.subjects
        values.append(own * np.exp(design.differ * scale[s]) + design.differ * offset[s])
        places.append(place)
    sentence, recording = np.tile(np.arange(n), runs), np.repeat(np.arange(runs), n)
    subjects, names = [f"S{r % design.subjects}" for r in range(runs)], [f"r{r}" for r in range(runs)]
    group = gathered(np.concatenate(values), sentence, recording, np.tile(length, runs), np.concatenate(places),
                     subjects, names)  # fmt: skip
    return [group], scope, float(design.fixed)


def answers(design: Design, sets: int, likeness: str = "correlation", seed: int = 0) -> list:
    scope = WITHIN if design.subjects == 1 else OVER
    rng = np.random.default_rng(seed)
    return [compare(*made(design, rng, scope), likeness) for _ in range(sets)]


def sized(design: Design, mde: float, sets: int, likeness: str) -> Design:
    """The design with words whose mean content is `mde`: what they add to sets of the same noise without words."""

    def mean_effect(of: Design) -> float:
        return float(np.mean([found.contrast.effect for found in answers(of, sets, likeness, 2)]))

    without, size = mean_effect(design), 0.2
    for _ in range(4):
        gain = mean_effect(dataclasses.replace(design, words=size)) - without
        size *= float(np.sqrt(mde / gain))  # content grows with the square of the size
    return dataclasses.replace(design, words=size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--likeness", default="correlation")
    parser.add_argument("--only", default="", help="designs whose names begin so")
    flags = parser.parse_args()
    verdict.PAIRINGS = 500
    print("| design | claims | above, without the test of the distance | content |\n| --- | --- | --- | --- |")
    for name, design in NULLS.items():
        if name.startswith(flags.only):
            found = answers(design, flags.sets, flags.likeness)
            claims, above = (np.mean([f.claim for f in found]), np.mean([f.contrast.above for f in found]))
            print(
                f"| {name} | {claims:.1%} | {above:.1%} | {np.mean([f.contrast.effect for f in found]):+.2f} |",
                flush=True,
            )
    print("\n| planted at the printed MDE | MDE | content | found |\n| --- | --- | --- | --- |")
    for name, design in PLANTED.items():
        if not name.startswith(flags.only):
            continue
        mde = float(np.mean([f.contrast.mde for f in answers(design, 50, flags.likeness, 1)]))
        found = answers(sized(design, mde, 50, flags.likeness), flags.sets, flags.likeness, 3)
        claims, effect = np.mean([f.claim for f in found]), np.mean([f.contrast.effect for f in found])
        print(f"| {name} | {mde:.2f} | {effect:+.2f} | {claims:.1%} |", flush=True)


if __name__ == "__main__":
    main()
