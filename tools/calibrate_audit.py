"""Calibrates the audit on prediction sets whose truth is known.

    python tools/calibrate_audit.py --out calibration --sets 1000 --decodes published_decodes

Sets without information: rows of a sentence (as many for all; 8-12 and 10-18, which go with the task, as in released
test parts of ZuCo; one sentence with half of all rows) x tasks known or not, each against three controls: one alike,
one constant sentence, another style. In each cell, how often *uses EEG* or *content above its null* is said (at most 70
of 1,000 allowed). Then power of the verdict, tasks known and not, where another study of the same sentences has the
minimum detectable effect that one without information printed (90 % promised), and how often equivalence is claimed at
an effect on the margin (at most 70). Then outputs that know the length, the task or the subject and nothing else, and
mere frequent words. With --decodes, predictions drawn at random from published outputs,
with the real rows of SR+NR+NRv2, against one constant sentence. Writes calibration.json (as cells finish),
calibration.md and calibration.png; the same command goes on after a stop. About 15 minutes on one idle core.
"""

import argparse
import dataclasses
import itertools
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.pool import Pool
from pathlib import Path

import numpy as np
from scipy import sparse, stats

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.contrast import Contrast, contrast
from eeg2text_jax.auditing.guessed_strata import stand_ins
from eeg2text_jax.auditing.side_channel import GAP_CODES, side_channel
from eeg2text_jax.auditing.statistics import keep_row_counts, resample
from eeg2text_jax.auditing.strata import STRATUM_SIZE, blocks_of, length_strata
from eeg2text_jax.auditing.verdict import Verdict, is_above, judge, judge_alone, verdict_mde
from eeg2text_jax.metrics.bleu import word_bleu
from eeg2text_jax.predictions.read import read_any
from eeg2text_testing.prediction_sets import (
    CONTROLS,
    Dials,
    Simulated,
    as_predictions,
    gather,
    own_rows,
    simulate,
    unigram_score,
    unigram_tables,
)

ROWS = ("equal", "8-12", "10-18", "half")
CLAIMS = (Verdict.USES_EEG, Verdict.BELOW_MARGIN, Verdict.CONTENT)
LEAKS = {
    "length, both sides": Dials(length_leak=0.15),
    "length, EEG only": Dials(eeg_length_leak=0.15),
    "task, tasks known": Dials(eeg_task_leak=0.15, readers="10-18"),
    "task, tasks not known": Dials(eeg_task_leak=0.15, readers="10-18", tasks_known=False),
    "subject": Dials(eeg_subject_leak=0.15),
    "frequent words only": Dials(style_shift=0.95, readers="10-18", tasks_known=False),
}
CURVE = (0.4, 0.7, 1.3)  # effects of the power curve, in units of the minimum detectable effect
PILOT_SETS, PILOT_INFORMATION = 300, 0.15
PIECE = 50  # sets at once

Tables = Sequence[np.ndarray]  # per condition, all sentences against all references: [G, S, S, 3]


@dataclasses.dataclass(frozen=True)
class Job:
    """Sets to draw: one point of one cell. `key` seeds them."""

    dials: Dials
    sets: int
    resamples: int
    margin: float
    key: tuple[int, ...]
    every_stratum: bool = False  # test within other strata even where nothing is found: for the printed MDE
    study: int | None = None  # number of the study of the same sentences; None: sentences and predictions of one draw
    information: tuple[float, ...] = ()  # of each set, in place of the dial


def found_in(
    simulated: Simulated, tables: Tables, strata: np.ndarray, resamples: int, rng: np.random.Generator
) -> list[Contrast]:
    """EEG alone, then against each control."""
    blocks = blocks_of(strata)
    sums = [gather(blocks, table) for table in tables]
    counts, rows = [simulated.counts] * len(sums), own_rows(simulated)
    eeg, *controls = resample(sums, counts, blocks, resamples=resamples, rng=rng, rows=rows)
    return [contrast([eeg], unigram_score), *(contrast([eeg, c], unigram_score) for c in controls)]


def other_strata(simulated: Simulated, tables: Tables, resamples: int, rng: np.random.Generator) -> list[np.ndarray]:
    """What a claim must hold under besides, as in the audit.

    Strata that stand in for unknown tasks; strata of exact lengths where the length leaks on one side.
    """
    names = ("eeg", *map(str, range(1, len(simulated.predictions))))
    blocks = blocks_of(simulated.tasks * simulated.tasks_known)
    weighted = [keep_row_counts(gather(blocks, table), simulated.counts, blocks).sum(0) for table in tables]
    _, flags = side_channel(names, weighted, blocks, simulated.strata, unigram_score, resamples=resamples, rng=rng)
    leaks = any(flag.code in GAP_CODES for flag in flags)
    if simulated.tasks_known and not leaks:
        return []
    alone = dataclasses.replace(simulated, predictions=simulated.predictions[:1])
    aligned = align({"eeg": as_predictions(alone, ("eeg",))[0]})
    return list(stand_ins(aligned, STRATUM_SIZE, length_leaks=leaks).values())


def outcomes(job: Job) -> np.ndarray:
    """Per set: claims of EEG alone and against each control (0 or 1), then of the first control whether it was called
    equivalent, effect, minimum detectable effect; `[sets, 1 + controls + 3]`."""
    rows = []
    for index in range(job.sets):
        simulated, rng = drawn(job, index)
        tables = unigram_tables(simulated)
        found = [found_in(simulated, tables, simulated.strata, job.resamples, rng)]
        if job.every_stratum or any(map(is_above, found[0])):  # else nothing is claimed whatever the others say
            again = other_strata(simulated, tables, job.resamples, rng)
            found += [found_in(simulated, tables, strata, job.resamples, rng) for strata in again]
        alone, *pairs = zip(*found, strict=True)
        verdicts = [judge_alone(alone[0], job.margin, alone[1:])]
        verdicts += [judge(p[0], job.margin, p[1:], scores_vary=alone[0].varies) for p in pairs]
        equivalent = verdicts[1] is Verdict.EQUIVALENT or verdicts[1] is Verdict.BELOW_MARGIN
        first, *others = pairs[0]
        rows.append([*(v in CLAIMS for v in verdicts), equivalent, first.effect, verdict_mde(first, others)])
    return np.array(rows, float)


def drawn(job: Job, index: int) -> tuple[Simulated, np.random.Generator]:
    """Return a set, and the generator of its permutations."""
    rng = np.random.default_rng([*job.key, index])
    if job.study is None:
        return simulate(job.dials, rng), rng
    study = np.random.default_rng([*job.key, index, job.study])
    return simulate(dataclasses.replace(job.dials, information=job.information[index]), rng, study), study


def effects(job: Job) -> np.ndarray:
    """Only the effect of each set, `[sets]`."""
    values = []
    for index in range(job.sets):
        rng = np.random.default_rng([*job.key, index])
        simulated = simulate(job.dials, rng)
        values.append(found_in(simulated, unigram_tables(simulated), simulated.strata, 2, rng)[1].effect)
    return np.array(values)


def run(pool: Pool, work: Callable[[Job], np.ndarray], job: Job) -> np.ndarray:
    """One job in pieces."""
    starts = range(0, job.sets, PIECE)
    shares = [{"sets": min(PIECE, job.sets - s), "information": job.information[s : s + PIECE]} for s in starts]
    pieces = [dataclasses.replace(job, key=(*job.key, s), **share) for s, share in zip(starts, shares, strict=True)]
    return np.concatenate(pool.map(work, pieces, chunksize=1))


def without_information(pool: Pool, number: int, dials: Dials, args: argparse.Namespace) -> dict:
    """How often content is claimed where there is none."""
    found = run(pool, outcomes, Job(dials, args.sets, args.resamples, args.margin, (args.seed, number)))
    claims = found[:, : 1 + len(dials.controls)].sum(0).astype(int).tolist()
    return {"sets": len(found), "claims": dict(zip(("alone", *dials.controls), claims, strict=True))}


def with_information(pool: Pool, number: int, dials: Dials, args: argparse.Namespace) -> dict:
    """Power at the printed minimum detectable effect, and wrong equivalence.

    A study without information prints an effect; another study of the same sentences is given this effect.
    """

    def at(information: float | np.ndarray, sets: int, point: int) -> np.ndarray:
        shares = np.broadcast_to(information, sets).tolist()
        job = Job(dials, sets, args.resamples, args.margin, (args.seed, number), True, point, tuple(shares))
        return run(pool, outcomes, job)

    pilot = dataclasses.replace(dials, information=PILOT_INFORMATION)
    job = Job(pilot, min(PILOT_SETS, 3 * args.sets), 2, args.margin, (args.seed, number, 99))
    per_information = float(run(pool, effects, job).mean()) / PILOT_INFORMATION
    few = max(50, args.sets // 5)
    null = at(0.0, args.sets, 0)
    printed = null[:, -1]
    margin = at(args.margin / per_information, args.sets, 1)
    promised = at(printed / per_information, args.sets, 2)
    curve = [at(x * printed[:few] / per_information, few, 3 + i) for i, x in enumerate(CURVE)]
    parts = zip((0.0, 1.0, *CURVE), (null, promised, *curve), strict=True)
    points = sorted((x, float(part[:, 1].mean())) for x, part in parts)
    return {
        "sets": args.sets,
        "effect_on_margin": float(margin[:, -2].mean()),
        "wrong_equivalence": int(margin[:, -3].sum()),
        "equivalent_when_null": float(null[:, -3].mean()),
        "mde": float(printed.mean()),
        "effect_at_mde": float(promised[:, -2].mean()),
        "power_at_mde": float(promised[:, 1].mean()),
        "effect_at_90_over_mde": effect_at_power(points),
        "power_curve": points,
    }


def effect_at_power(points: Sequence[tuple[float, float]], power: float = 0.9) -> float:
    """Effect, in printed ones, at which a probit line through the power curve reaches `power`."""
    effect, found = np.array([p for p in points if 0.02 < p[1] < 0.999]).T
    slope, intercept = np.polyfit(effect, stats.norm.ppf(found), 1)
    return float((stats.norm.ppf(power) - intercept) / slope)


def published(folder: Path, whole_sentences: bool, args: argparse.Namespace) -> dict:
    """Predictions drawn at random from published outputs, with the rows of SR+NR+NRv2, against one constant sentence.

    They are drawn row by row, or all those of a random sentence together. `release`: how often either test finds
    content where the rows travel with the predictions.
    """
    held = read_any(folder / "bart_sr-nr-nrv2_eeg.txt").predictions
    sources = ("bart_sr-nr-nrv2_eeg", "bart_sr-nr-nrv2_noise", "t5_sr-nr-tsr_eeg-eeg", "t5_sr-nr-tsr_noise-noise")
    pool = [p for name in sources for p in read_any(folder / f"{name}.txt").predictions if p.mode != "teacher_forced"]
    references = list(dict.fromkeys(p.reference for p in held))
    sentence = np.array([references.index(p.reference) for p in held])
    texts = list(dict.fromkeys(p.prediction for p in pool))
    table = word_bleu().pairwise(texts, references)[..., :3]  # words predicted, words of the reference, matches
    number = {text: index for index, text in enumerate(texts)}
    readings = [[number[p.prediction] for p in group] for group in _by_reference(pool)]
    every = np.concatenate(readings)
    blocks = blocks_of(length_strata([""] * len(references), [len(text.split()) for text in references]))
    counts = np.bincount(sentence)
    claims = np.zeros(3, int)  # alone, against the constant sentence, both with rows travelling
    for index in range(args.sets):
        rng = np.random.default_rng([args.seed, 7777, whole_sentences, index])
        drawn = rng.choice(every, len(sentence))
        if whole_sentences:
            drawn = np.concatenate([rng.choice(readings[rng.integers(len(readings))], n) for n in counts])
        places = np.sort(sentence), drawn
        chosen = sparse.csr_array((np.ones(len(drawn)), places), shape=(len(references), len(texts)))
        eeg = gather(blocks, (chosen @ table.reshape(len(texts), -1)).reshape(len(references), -1, 3))
        constant = gather(blocks, counts[:, None, None] * table[rng.choice(every)])
        found = {}
        for name, rows in {"kept": counts, "travel": np.ones_like(counts)}.items():
            options = {"resamples": args.resamples, "rng": np.random.default_rng(index)}
            one, other = resample([eeg[None], constant[None]], [rows[None]] * 2, blocks, **options)
            found[name] = contrast([one], unigram_score), contrast([one, other], unigram_score)
        travel = any(c.p <= 0.05 and c.effect > 0 for c in found["travel"])
        claims += [*map(is_above, found["kept"]), travel]
    return {"sets": args.sets, "claims": dict(zip(("alone", "constant", "release"), claims.tolist(), strict=True))}


def _by_reference(rows: Sequence) -> list[list]:
    groups: dict[str, list] = {}
    for row in rows:
        groups.setdefault(row.reference, []).append(row)
    return list(groups.values())


def table(result: dict) -> str:
    lines = [
        "| no information | sets | content above its null | uses EEG, control alike | constant | another style |",
        "|---|---|---|---|---|---|",
    ]
    for c in result["null"] + result["leaks"] + result["published"]:
        claims = [str(c["claims"].get(name, "–")) for name in ("alone", *CONTROLS)]
        lines.append(f"| {c['cell']} | {c['sets']} | {' | '.join(claims)} |")
    lines += [
        "",
        "| information | sets | wrong equivalence (effect) | equivalent when null | printed MDE | power there (effect) "
        "| effect at 90 % / MDE |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in result["power"]:
        lines.append(
            f"| {c['cell']} | {c['sets']} | {c['wrong_equivalence']} ({c['effect_on_margin']:.2f}) "
            f"| {c['equivalent_when_null']:.0%} | {c['mde']:.2f} | {c['power_at_mde']:.1%} ({c['effect_at_mde']:.2f}) "
            f"| {c['effect_at_90_over_mde']:.2f} |"
        )
    return "\n".join(lines)


def draw(result: dict, path: Path) -> None:
    """Claims where there is nothing, cell by cell, beside the power curves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained", width_ratios=(3, 2))
    cells = result["null"] + result["leaks"] + result["published"]
    marks = {
        "alone": ("o", "#0072B2", "alone: content above its null"),
        "alike": ("s", "#E69F00", "uses EEG, control alike"),
        "constant": ("^", "#009E73", "uses EEG, constant control"),
        "style": ("D", "#CC79A7", "uses EEG, control of another style"),
    }
    for name, (mark, color, label) in marks.items():
        places = [i for i, c in enumerate(cells) if name in c["claims"]]
        shares = [100 * cells[i]["claims"][name] / cells[i]["sets"] for i in places]
        left.plot(shares, places, mark, color=color, ms=5, label=label, ls="")
    left.axvline(5, color="black", lw=1)
    left.axvline(7, color="black", lw=1, ls=":")
    left.set(yticks=range(len(cells)), yticklabels=[c["cell"] for c in cells])
    left.set(xlabel="sets in which content is claimed, % (nominal 5, allowed 7)", xlim=(0, None))
    left.invert_yaxis()
    left.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.3, 1.0), ncols=2)
    colors = itertools.cycle(("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#8A8A8A"))
    for cell, color in zip(result["power"], colors, strict=False):
        effect, power = np.array(cell["power_curve"]).T
        right.plot(effect, power, marker="o", ms=3, color=color, label=f"rows: {cell['cell']}")
    right.axhline(0.9, color="black", lw=1, ls=":")
    right.axvline(1, color="black", lw=1, ls=":")
    right.set(xlabel="true effect / printed detectable effect", ylabel="share called uses EEG", ylim=(0, 1.02))
    right.legend(fontsize=7, loc="lower right")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("calibration"), help="folder for the results")
    parser.add_argument("--sets", type=int, default=1000, help="prediction sets per point")
    parser.add_argument("--resamples", type=int, default=999, help="permutations and bootstrap draws per set")
    parser.add_argument("--margin", type=float, default=1.0, help="equivalence margin, BLEU-1")
    parser.add_argument("--decodes", type=Path, help="folder of published decodes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    path = args.out / "calibration.json"
    settings = {name: getattr(args, name) for name in ("sets", "resamples", "margin", "seed")}
    result: dict = {**settings, "seconds": 0.0, "leaks": [], "published": [], "null": [], "power": []}
    if path.exists() and settings.items() <= (before := json.loads(path.read_text(encoding="utf8"))).items():
        result = before
    begun = start - result["seconds"]

    def cell(kind: str, name: str, work: Callable[[], dict]) -> None:
        if any(known["cell"] == name for known in result[kind]):
            return
        result[kind].append({"cell": name, **work()})
        result["seconds"] = time.monotonic() - begun
        path.write_text(json.dumps(result, indent=1), encoding="utf8")
        print(f"{result['seconds']:.0f} s: {result[kind][-1]}", flush=True)

    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(threads, "1")  # for the workers: parallel over sets, not inside them
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for number, (name, dials) in enumerate(LEAKS.items(), 100):
            cell("leaks", f"leak: {name}", lambda n=number, d=dials: without_information(pool, n, d, args))
        if args.decodes and args.decodes.is_dir():
            for whole, name in enumerate(("single rows", "whole sentences")):
                cell("published", f"published outputs, {name} drawn", lambda w=whole: published(args.decodes, w, args))
        else:
            print("published outputs: no folder of decodes is given (--decodes); these two cells are left out.")
        for number, (rows, known) in enumerate(itertools.product(ROWS, (True, False))):
            name = f"rows {rows}, tasks {'known' if known else 'not known'}"
            dials = Dials(readers=rows, tasks_known=known, controls=CONTROLS)
            cell("null", name, lambda n=number, d=dials: without_information(pool, n, d, args))
        for number, (rows, known) in enumerate(itertools.product(ROWS, (True, False)), 200):
            name = rows if known else f"{rows}, tasks not known"
            dials = Dials(readers=rows, tasks_known=known)
            cell("power", name, lambda n=number, d=dials: with_information(pool, n, d, args))
    (args.out / "calibration.md").write_text(table(result) + "\n", encoding="utf8")
    draw(result, args.out / "calibration.png")
    print(table(result))


if __name__ == "__main__":
    main()
