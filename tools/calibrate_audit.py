"""Calibrates the audit on prediction sets whose truth is known.

    python tools/calibrate_audit.py --out calibration --sets 1000

For every cell of a grid (style shift x length leak x number of sentences): how often *uses EEG* is said where there
is nothing (at most 70 of 1,000 allowed), how often equivalence is claimed at an effect on the margin (at most 70),
and whether the power at the printed minimum detectable effect is the 90 % that it promises. Then: leaks in one
condition only, and how often their warning fires. Writes calibration.json, calibration.md and calibration.png.
About 15 minutes on two idle cores.
"""

import argparse
import dataclasses
import itertools
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.pool import Pool
from pathlib import Path

import numpy as np
from scipy import stats

from eeg2text_jax.audit import statistics
from eeg2text_jax.audit.contrast import contrast
from eeg2text_jax.audit.red_flags import confounded_subjects
from eeg2text_jax.audit.side_channel import measure_side_channel
from eeg2text_jax.audit.simulate import Dials, simulate, unigram_score, unigram_tables
from eeg2text_jax.audit.verdict import ALPHA

STYLE_SHIFTS, LENGTH_LEAKS, SENTENCES = (0.0, 0.2), (0.0, 0.15), (56, 112)
CURVE = (0.4, 0.7, 1.3)  # effects of the power curve, in units of the minimum detectable effect
PILOT_SETS, PILOT_INFORMATION = 300, 0.04


@dataclasses.dataclass(frozen=True)
class Job:
    """Sets to draw: one point of one cell. `key` seeds them."""

    dials: Dials
    sets: int
    resamples: int
    key: tuple[int, ...]


def outcomes(job: Job) -> np.ndarray:
    """Per set: detected (0 or 1), smallest margin, effect, minimum detectable effect; `[sets, 4]`."""
    rows = []
    for index in range(job.sets):
        rng = np.random.default_rng([*job.key, index])
        simulated = simulate(job.dials, rng)
        tables = unigram_tables(simulated)
        found = contrast(tables, simulated.strata, unigram_score, resamples=job.resamples, rng=rng)
        detected = found.p_primary <= ALPHA and found.effect > 0
        rows.append((detected, found.smallest_margin, found.effect, found.mde))
    return np.array(rows, float)


def effects(job: Job) -> np.ndarray:
    """Only the effect of each set, `[sets]`: no resampling."""
    values = []
    for index in range(job.sets):
        simulated = simulate(job.dials, np.random.default_rng([*job.key, index]))
        tables = [table.sum(0) for table in unigram_tables(simulated)]
        own = [np.einsum("ssk->k", table) for table in tables]
        null = [statistics.row_null(table, simulated.strata).sum(0) for table in tables]
        values.append(statistics.content_difference(np.stack([*own, *null]), unigram_score))
    return np.array(values)


def leak_warnings(job: Job) -> np.ndarray:
    """Per set: detected, warned; `[sets, 2]`."""
    rows = []
    for index in range(job.sets):
        rng = np.random.default_rng([*job.key, index])
        simulated = simulate(job.dials, rng)
        tables = unigram_tables(simulated, simulated.tasks)
        found = contrast(tables, simulated.strata, unigram_score, resamples=job.resamples, rng=rng)
        pooled = [table.sum(0) for table in tables]
        options = {"resamples": job.resamples, "rng": rng}
        _, flags = measure_side_channel(
            ("eeg", "noise"), pooled, simulated.strata, simulated.tasks, unigram_score, **options
        )
        sentence, subject = np.nonzero(simulated.read)
        warned = bool(flags) or confounded_subjects(sentence, subject)
        rows.append((found.p_primary <= ALPHA and found.effect > 0, warned))
    return np.array(rows, float)


def run(pool: Pool, work: Callable[[Job], np.ndarray], job: Job) -> np.ndarray:
    """One job in pieces of 50 sets."""
    starts = range(0, job.sets, 50)
    pieces = [dataclasses.replace(job, sets=min(50, job.sets - start), key=(*job.key, start)) for start in starts]
    return np.concatenate(pool.map(work, pieces, chunksize=1))


def calibrate_cell(pool: Pool, cell: int, dials: Dials, args: argparse.Namespace) -> dict:
    """False positives, wrong equivalence and power of one cell."""

    def at(information: float, sets: int, point: int) -> np.ndarray:
        planted = dataclasses.replace(dials, information=information)
        return run(pool, outcomes, Job(planted, sets, args.resamples, (args.seed, cell, point)))

    pilot = Job(dataclasses.replace(dials, information=PILOT_INFORMATION), PILOT_SETS, 0, (args.seed, cell, 99))
    per_information = float(run(pool, effects, pilot).mean()) / PILOT_INFORMATION
    null = at(0.0, args.sets, 0)
    mde = float(null[:, 3].mean())
    margin = at(args.margin / per_information, args.sets, 1)
    promised = at(mde / per_information, args.sets, 2)
    curve = [at(x * mde / per_information, max(50, args.sets // 4), 3 + i) for i, x in enumerate(CURVE)]
    points = sorted((float(p[:, 2].mean()), float(p[:, 0].mean())) for p in [null, promised, *curve])
    reached = effect_at_power(points)
    return {
        **{name: getattr(dials, name) for name in ("style_shift", "length_leak", "sentences", "seeds")},
        "sets": args.sets,
        "false_positives": int(null[:, 0].sum()),
        "effect_on_margin": float(margin[:, 2].mean()),
        "wrong_equivalence": int((margin[:, 1] < args.margin).sum()),
        "equivalence_when_null": int((null[:, 1] < args.margin).sum()),
        "mde": mde,
        "effect_at_mde": float(promised[:, 2].mean()),
        "power_at_mde": float(promised[:, 0].mean()),
        "effect_at_90": reached,
        "mde_over_effect_at_90": mde / reached,
        "power_curve": points,
    }


def effect_at_power(points: list[tuple[float, float]], power: float = 0.9) -> float:
    """Effect at which a probit line through the power curve reaches `power`."""
    effect, found = np.array([p for p in points if 0.02 < p[1] < 0.999]).T
    slope, intercept = np.polyfit(effect, stats.norm.ppf(found), 1)
    return float((stats.norm.ppf(power) - intercept) / slope)


def table(cells: list[dict], leaks: list[dict]) -> str:
    lines = [
        "| style shift | length leak | sentences | seeds | false positives | wrong equivalence (effect) | equivalent "
        "when null | printed MDE | power there (effect) | MDE / effect at 90 % |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in cells:
        lines.append(
            f"| {c['style_shift']:g} | {c['length_leak']:g} | {c['sentences']} | {c['seeds']} "
            f"| {c['false_positives']} / {c['sets']} "
            f"| {c['wrong_equivalence']} / {c['sets']} ({c['effect_on_margin']:.2f}) "
            f"| {c['equivalence_when_null']} / {c['sets']} | {c['mde']:.2f} "
            f"| {c['power_at_mde']:.1%} ({c['effect_at_mde']:.2f}) | {c['mde_over_effect_at_90']:.2f} |"
        )
    lines += ["", "| leak in the EEG condition only | sets | called uses EEG | warned |", "|---|---|---|---|"]
    lines += [f"| {k['leak']} | {k['sets']} | {k['detected']} | {k['warned']} |" for k in leaks]
    return "\n".join(lines)


def draw(cells: list[dict], path: Path) -> None:
    """False positives of every cell beside the power curves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    names = [f"style {c['style_shift']:g}, leak {c['length_leak']:g},\n{c['sentences']} sentences" for c in cells]
    sets, place = cells[0]["sets"], np.arange(len(cells))
    left.barh(
        place - 0.2,
        [c["false_positives"] / sets for c in cells],
        0.4,
        color="#0072B2",
        label="uses EEG, no information",
    )
    left.barh(
        place + 0.2,
        [c["wrong_equivalence"] / sets for c in cells],
        0.4,
        color="#E69F00",
        label="equivalent, effect on the margin",
    )
    left.axvline(0.05, color="black", lw=1)
    left.axvline(0.07, color="black", lw=1, ls=":")
    left.set(yticks=place, yticklabels=names, xlabel="share of sets (nominal 5 %; allowed 7 %)", xlim=(0, 0.1))
    left.invert_yaxis()
    left.legend(fontsize=8, loc="lower right")
    styles = itertools.product(("-", "--"), ("#0072B2", "#E69F00", "#009E73", "#CC79A7"))
    for cell, name, (line, color) in zip(cells, names, styles, strict=False):
        effect, power = np.array(cell["power_curve"]).T
        right.plot(effect / cell["mde"], power, line, marker="o", ms=3, color=color, label=name.replace("\n", " "))
    right.axhline(0.9, color="black", lw=1, ls=":")
    right.axvline(1, color="black", lw=1, ls=":")
    right.set(xlabel="true effect / printed minimum detectable effect", ylabel="share called uses EEG", ylim=(0, 1.02))
    right.legend(fontsize=7)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("calibration"), help="folder for the results")
    parser.add_argument("--sets", type=int, default=1000, help="prediction sets per point")
    parser.add_argument("--resamples", type=int, default=999, help="permutations and bootstrap draws per set")
    parser.add_argument("--margin", type=float, default=1.0, help="equivalence margin, BLEU-1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    grid = [
        Dials(style_shift=style, length_leak=leak, sentences=size)
        for style, leak, size in itertools.product(STYLE_SHIFTS, LENGTH_LEAKS, SENTENCES)
    ]
    cells, leaks = [], []
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(threads, "1")  # for the workers: parallel over sets, not inside them
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for number, dials in enumerate(grid):
            cells.append(calibrate_cell(pool, number, dials, args))
            print(f"{number + 1} of {len(grid)} cells, {time.monotonic() - start:.0f} s: {cells[-1]}", flush=True)
        for number, (name, dials) in enumerate(
            {"length": Dials(eeg_length_leak=0.15), "subject": Dials(eeg_subject_leak=0.15)}.items()
        ):
            found = run(
                pool, leak_warnings, Job(dials, max(50, args.sets // 5), args.resamples, (args.seed, 1000 + number))
            )
            detected, warned = found.sum(0).astype(int).tolist()
            leaks.append({"leak": name, "sets": len(found), "detected": detected, "warned": warned})
    result = {"seconds": time.monotonic() - start, "resamples": args.resamples, "cells": cells, "leaks": leaks}
    (args.out / "calibration.json").write_text(json.dumps(result, indent=1), encoding="utf8")
    (args.out / "calibration.md").write_text(table(cells, leaks) + "\n", encoding="utf8")
    draw(cells, args.out / "calibration.png")
    print(table(cells, leaks))


if __name__ == "__main__":
    main()
