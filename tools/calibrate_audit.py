"""Measures how often the audit is wrong, on made-up prediction sets whose truth is known.

    python tools/calibrate_audit.py --sets 1000 --jobs 2 --out calibration.md

Errors: every kind of null in calibrations/null_zoo.py: how often content is claimed against a control, and of the EEG
outputs alone (at most 70 of 1,000; content of a hidden genre alone is counted apart). Power: a set without content
prints its minimum detectable effect, and another set of the same sentences gets right words worth this effect; the
verdict must find it in 85 to 95 % of the sets, with 1, 3 and 5 controls, 1 to 18 readers and 30 to 400 sentences.
Equivalence: content that is spread and worth the margin is called equivalent in at most 70 of 1,000 sets. 100 sets take
about 25 minutes on one core.
"""

import argparse
import itertools
import multiprocessing
import random
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.pool import Pool
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "calibrations"))

from null_zoo import GENRES_ALONE, NULLS, draw_null

from eeg2text_jax.instrument.auditing.align import align
from eeg2text_jax.instrument.auditing.audit import Audit, Options
from eeg2text_jax.instrument.auditing.verdict import Contrast, Verdict, judge
from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_testing.scenes import Scene, predictions, scene_of

CLAIMS = (Verdict.USES_EEG, Verdict.BELOW_MARGIN)
SENTENCES, READERS, CONTROLS = (30, 60, 112, 400), (1, 4, 18), (1, 3, 5)
PILOT, PILOT_SHARE = 8, 0.1  # sets, and share of right words, that tell what a share is worth in points


class Cell(NamedTuple):
    sentences: int
    readers: int
    controls: int

    def __str__(self) -> str:
        return f"{self.sentences} sentences x {self.readers} readers, {self.controls} controls"


class Outcome(NamedTuple):
    """Contrasts against the controls, the printed minimum detectable effect, and the verdicts."""

    pairs: list[Contrast]
    own: Contrast
    mde: float
    verdicts: list[Verdict]

    @property
    def claimed(self) -> bool:
        return all(verdict in CLAIMS for verdict in self.verdicts)


def audited(eeg: Sequence[Prediction], controls: dict[str, Sequence[Prediction]]) -> Outcome:
    audit = Audit(align({"eeg": eeg, **controls}), Options())
    own, pairs = audit.contrasts()
    verdicts = [judge(pair, own[0], audit.margin) for pair in pairs]
    return Outcome(pairs, own[0], audit.mde(pairs, own[0]), verdicts)


def planted(scene: Scene, share: float, name: str, rng: random.Random) -> list[Prediction]:
    """Return babble in which a share of the words are words of the sentence."""
    texts = []
    for row in scene.rows():
        words = scene.model.babble(max(1, round(12 * rng.uniform(0.7, 1.3))), rng)
        texts.append(" ".join(rng.choice(row.words) if rng.random() < share else word for word in words))
    return predictions(scene, texts, name)


def study(cell: Cell, seed: int, share: float, name: str) -> Outcome:
    scene, rng = scene_of("english", 2 * seed, cell.sentences, cell.readers), random.Random(f"{seed} {name}")
    controls = {f"noise{k}": planted(scene, 0.0, f"noise{k}", rng) for k in range(cell.controls)}
    return audited(planted(scene, share, "eeg", rng), controls)


def null(job: tuple[str, int]) -> tuple[str, bool, bool]:
    kind, seed = job
    found = draw_null(kind, seed)
    outcome = audited(found.eeg, found.controls)
    return kind, outcome.claimed, outcome.own.above


def powered(job: tuple[Cell, int, float]) -> tuple[Cell, float, float, bool, bool]:
    """Return the printed effect, the effect of another study that has it, whether it is found; a wrong equivalence."""
    cell, seed, per_share = job
    printed = study(cell, seed, 0.0, "empty").mde
    found = study(cell, seed, min(1.0, printed / per_share), "planted")
    at_margin = study(cell, seed, 1.0 / per_share, "margin").verdicts[0]
    wrong = at_margin in (Verdict.EQUIVALENT, Verdict.BELOW_MARGIN)
    return cell, printed, float(np.mean([pair.effect for pair in found.pairs])), found.claimed, wrong


def worth(cell: Cell) -> float:
    """Return the points of content that right words add, per share of the words."""
    pilot = [study(cell._replace(controls=1), 1000 + seed, PILOT_SHARE, "pilot") for seed in range(PILOT)]
    return float(np.mean([outcome.pairs[0].effect for outcome in pilot])) / PILOT_SHARE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--parts", nargs="+", default=["errors", "power"], choices=["errors", "power"])
    parser.add_argument("--out", type=Path)
    flags = parser.parse_args()
    lines: list[str] = []
    with multiprocessing.get_context("spawn").Pool(flags.jobs) as pool:
        for part in flags.parts:
            for line in (errors if part == "errors" else power)(pool, flags.sets):
                print(line, flush=True)
                lines.append(line)
                if flags.out:
                    flags.out.write_text("\n".join(lines) + "\n", encoding="utf8")


def errors(pool: Pool, sets: int) -> Iterator[str]:
    yield from (
        "",
        f"| no content, {sets} sets each | claimed against the control | of the EEG alone |",
        "|---|---|---|",
    )
    jobs = itertools.product(NULLS, range(sets))
    for kind, found in itertools.groupby(pool.imap(null, jobs), lambda one: one[0]):
        claims, alone = np.sum([one[1:] for one in found], axis=0).tolist()
        yield f"| {kind}{' (content of the genre)' if kind in GENRES_ALONE else ''} | {claims} | {alone} |"


def power(pool: Pool, sets: int) -> Iterator[str]:
    """Yield lines of a table of power at the printed effect, and of wrong equivalence at the margin."""
    head = "| right words, sets each " + f"{sets} | printed MDE | effect there | found | wrong equivalence |"
    yield from ("", head, "|---|---|---|---|---|")
    cells = [Cell(*of) for of in itertools.product(SENTENCES, READERS, CONTROLS) if of[0] * of[1] <= 2100]
    values = dict(zip(cells, pool.map(worth, cells), strict=True))
    jobs = [(cell, seed, values[cell]) for cell in cells for seed in range(sets)]
    for cell, found in itertools.groupby(pool.imap(powered, jobs), lambda one: one[0]):
        printed, effect, hits, wrong = np.mean([one[1:] for one in found], axis=0)
        yield f"| {cell} | {printed:.2f} | {effect:.2f} | {hits:.1%} | {wrong:.1%} |"


if __name__ == "__main__":
    main()
