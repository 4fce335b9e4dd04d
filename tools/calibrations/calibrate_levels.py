"""Calibrates levels of content, and the audit of one-word references and of Chinese, on sets whose truth is known.

    python tools/calibrations/calibrate_levels.py --out calibration --sets 200

A decoder that knows the class of a sentence and nothing else: how often content *within* classes is claimed (at most
7 %). A decoder of words: power of *within* at its printed MDE (85 to 95 % promised). References of one word, and
references of Chinese characters without spaces, with predictions that know nothing: how often content is claimed (at
most 7 %), and of one word the power of the verdict at its MDE. Writes calibration_levels.json. Ten minutes on one core.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

import numpy as np
from calibrate_audit import CLAIMS, Job, outcomes

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.levels import Level, measure_levels
from eeg2text_jax.auditing.verdict import is_above
from eeg2text_jax.predictions.file import Prediction
from eeg2text_testing.prediction_sets import Dials, as_predictions, simulate

CLASSES = 12
KNOWS_THE_CLASS = Dials(sentences=96, subjects=2, tasks=CLASSES, tasks_known=False, eeg_task_leak=0.2)
ONE_WORD = Dials(sentences=112, subjects=4, tasks=1, reference_words=(1, 2), prediction_words=(1, 2))
CHINESE = Dials(sentences=60, subjects=2, tasks=1)
PILOT = 0.15  # of words copied, from which the effect of a share is known


def level_of(dials: Dials, resamples: int, key: list[int]) -> Level:
    """Content between and within classes of one set, EEG against a control alike."""
    rng = np.random.default_rng(key)
    simulated = simulate(dials, rng)
    eeg, control = as_predictions(simulated)
    aligned = align({"eeg": eeg, "noise": control})
    labels = simulated.tasks[[int(row.sentence_id[1:]) for row in _first_rows(eeg)]]
    return measure_levels(aligned, labels, "class", primary_endpoint(), resamples=resamples, rng=rng)[0]


def _first_rows(rows: list[Prediction]) -> list[Prediction]:
    """One row of each distinct reference, in the order of the alignment."""
    return list({row.reference: row for row in reversed(rows)}.values())[::-1]


def classes(args: argparse.Namespace) -> dict:
    """The decoder of the class; then one of words beside it, at the MDE of *within*."""
    knows = [level_of(KNOWS_THE_CLASS, args.resamples, [args.seed, 1, i]) for i in range(args.sets)]
    mde = float(np.mean([level.within.mde for level in knows]))
    pilot = dataclasses.replace(KNOWS_THE_CLASS, information=PILOT)
    pilots = [level_of(pilot, 2, [args.seed, 2, i]).within.effect for i in range(args.sets)]
    planted = dataclasses.replace(KNOWS_THE_CLASS, information=PILOT * mde / float(np.mean(pilots)))
    words = [level_of(planted, args.resamples, [args.seed, 3, i]) for i in range(args.sets)]
    return {
        "sets": args.sets,
        "within_claimed_of_the_class": sum(is_above(level.within) for level in knows),
        "between_claimed_of_the_class": sum(is_above(level.between) for level in knows),
        "mde_within": mde,
        "effect_at_mde": float(np.mean([level.within.effect for level in words])),
        "power_within_at_mde": float(np.mean([is_above(level.within) for level in words])),
    }


def one_word(args: argparse.Namespace) -> dict:
    """References and predictions of one word."""

    def at(information: float, key: int) -> np.ndarray:
        dials = dataclasses.replace(ONE_WORD, information=information)
        return outcomes(Job(dials, args.sets, args.resamples, 1.0, (args.seed, key), True))

    null, pilot = at(0.0, 4), at(PILOT, 5)
    mde = float(null[:, -1].mean())
    planted = at(PILOT * mde / float(pilot[:, -2].mean()), 6)
    return {
        "sets": args.sets,
        "claims_alone": int(null[:, 0].sum()),
        "claims_paired": int(null[:, 1].sum()),
        "mde": mde,
        "effect_at_mde": float(planted[:, -2].mean()),
        "power_at_mde": float(planted[:, 1].mean()),
    }


def chinese(args: argparse.Namespace) -> dict:
    """Characters without spaces, through the audit itself: nothing known, then two of ten characters."""
    found = {}
    for name, information in (("nothing", 0.0), ("two_of_ten", 0.2)):
        verdicts = []
        for i in range(args.sets // 2):
            rng = np.random.default_rng([args.seed, 7, i])
            eeg, control = as_predictions(simulate(dataclasses.replace(CHINESE, information=information), rng))
            result = audit(list(map(written, eeg)), {"noise": list(map(written, control))}, resamples=args.resamples)
            verdicts.append(result.verdict in CLAIMS)
        found[name] = sum(verdicts)
    return {"sets": args.sets // 2, **found}


def written(row: Prediction) -> Prediction:
    """Words `w17` as characters, with nothing between them."""

    def characters(text: str) -> str:
        return "".join(chr(0x4E00 + int(word[1:])) for word in text.split())

    return dataclasses.replace(row, reference=characters(row.reference), prediction=characters(row.prediction))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("calibration"), metavar="DIR")
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=299)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict] = {}
    for work in (classes, one_word, chinese):
        start = time.monotonic()
        found[work.__name__] = work(args)
        print(f"{time.monotonic() - start:.0f} s, {work.__name__}: {found[work.__name__]}", flush=True)
        (args.out / "calibration_levels.json").write_text(json.dumps(found, indent=1), encoding="utf8")


if __name__ == "__main__":
    main()
