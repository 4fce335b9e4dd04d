"""Audits the zoo: no honest decoder may be accused; leaks that pass and nulls that are claimed are counted.

    python tools/calibrations/run_zoo.py --sets=10 --jobs=2
    python tools/calibrations/run_zoo.py --kinds bursts german --sets=3 --qualities 0.2 1
    python tools/calibrations/run_zoo.py --kinds nulls --sets=100

One line a kind and quality with the counts of verdicts. Below: honest decoders that were accused (not judgeable, or of
unproven origin although the file states that it ran free), kinds whose verdict gets weaker as quality grows, honest
decoders of quality 1 in which nothing was found, nulls of which content was claimed; and a table of leaks of quality
above 0: sets that pass as *uses EEG* (without a control, as *content above its null*), of these those with an odd sign
beside the verdict, claims with a qualifier that restricts them, sets that are barred, and sets in which nothing was
found. The exit status is 1 if an honest decoder was accused. --kinds takes names, `honest`, `leaks` or `nulls`.
"""

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from decoder_zoo import HONEST, LEAKS, draw
from null_zoo import GENRES_ALONE, NULLS, draw_null

from eeg2text_jax import audit

FAMILIES = {"honest": HONEST, "leaks": LEAKS, "nulls": NULLS}
QUALITIES = (0.0, 0.1, 0.3, 0.6, 1.0)
PLAIN = ("uses EEG", "content above its null")
CLAIMS = (*PLAIN, "detectable but below the margin")
DOUBTS = ("not judgeable", "content of unproven origin")
# Weakest first. Verdicts of one number are the same strength: which of them is given depends on power.
STRENGTH = {"detectable but below the margin": 1, "content above its null": 2, "uses EEG": 2}


class Job(NamedTuple):
    kind: str
    quality: float
    seed: int
    alone: bool
    proof: str | None
    choices: bool


class Found(NamedTuple):
    kind: str
    quality: float
    seed: int
    verdict: str
    effect: float | None
    why: str  # codes of the notices that bar a verdict
    odd: str  # codes of the signs that stand beside it
    headline: str


def judged(job: Job) -> Found:
    found = draw_null(job.kind, job.seed) if job.kind in NULLS else draw(job.kind, job.quality, job.seed)
    controls = {} if job.alone else found.controls
    choices = list(found.choices) if job.choices else []
    result = audit(found.eeg, controls, choices=choices, proof=job.proof or "")
    effect = result.comparisons[0].contrast.effect
    why = ",".join(sorted({notice.code for notice in result.notices if notice.bars}))
    odd = ",".join(sorted({notice.code for notice in result.notices if notice.rows and not notice.bars}))
    plain = result.verdict.base.value if not result.verdict.restrictions else result.verdict.value
    return Found(job.kind, job.quality, job.seed, plain, effect, why, odd, result.verdict.headline)


def family(kind: str) -> str:
    return next(name for name, kinds in FAMILIES.items() if kind in kinds)


def falls(found: Sequence[Found]) -> list[str]:
    """Return each set whose verdict gets weaker where quality grows."""
    ladders: dict[tuple[str, int], list[Found]] = defaultdict(list)
    for one in sorted(found, key=lambda one: one.quality):
        ladders[one.kind, one.seed].append(one)
    return [
        f"{kind} (seed {seed}): {low.verdict} at quality {low.quality:g}, {high.verdict} at {high.quality:g}"
        for (kind, seed), ladder in ladders.items()
        for low, high in itertools.pairwise(ladder)
        if STRENGTH.get(high.verdict, 0) < STRENGTH.get(low.verdict, 0)
    ]


def line(ones: Sequence[Found]) -> str:
    """Return the counts of verdicts of one kind and quality, with the mean effect and what barred a verdict."""
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(o.verdict for o in ones).most_common())
    effects = [one.effect for one in ones if one.effect is not None]
    effect = f"{sum(effects) / len(effects):+7.2f}" if effects else "      –"
    why = ", ".join(sorted({one.why for one in ones} - {""}))
    kind, quality = ones[0].kind, ones[0].quality
    return f"{family(kind):7} {kind:24} {quality:4g} {effect}  {verdicts}{f'  [{why}]' if why else ''}"


def summary(found: Sequence[Found]) -> int:
    """Print what must not be, and what is counted; return how many honest sets were accused."""
    of = {name: [one for one in found if family(one.kind) == name] for name in FAMILIES}
    accused = [one for one in of["honest"] if one.verdict.startswith(DOUBTS)]
    missed = [one for one in of["honest"] if one.quality == 1 and one.verdict not in CLAIMS + DOUBTS]
    false = [one for one in of["honest"] if one.quality == 0 and one.verdict in CLAIMS]
    lists = {
        f"honest sets accused (of {len(of['honest'])}; must be 0)": accused,
        "honest sets of quality 1 in which nothing was found": missed,
        "honest sets of quality 0 in which content was claimed": false,
        f"nulls of which content was claimed (of {len(of['nulls'])}; genres alone: {', '.join(GENRES_ALONE)})": [
            one for one in of["nulls"] if one.verdict in CLAIMS
        ],
    }
    for title, ones in lists.items():
        print(f"\n{len(ones)} {title}")
        for kind, count in Counter(one.kind for one in ones).most_common():
            print(f"  {count:4} {kind}")
    if leaks := [one for one in of["leaks"] if one.quality > 0]:
        leak_table(leaks)
    weaker = falls(of["honest"])
    print(f"\n{len(weaker)} verdicts of honest decoders that get weaker as quality grows (must be 0)")
    for line in weaker:
        print(f"  {line}")
    return len(accused)


def leak_table(found: Sequence[Found]) -> None:
    print(f"\n{'leak':24} {'sets':>5} {'pass':>5} {'odd':>5} {'restricted':>10} {'barred':>6} {'nothing':>7}")
    for kind in [*dict.fromkeys(one.kind for one in found), "all"]:
        ones = [one for one in found if kind in (one.kind, "all")]
        passed = [one for one in ones if one.verdict in PLAIN]
        restricted = sum(one.verdict.startswith(CLAIMS) and one.verdict not in PLAIN for one in ones)
        barred, odd = sum(one.verdict.startswith(DOUBTS) for one in ones), sum(bool(one.odd) for one in passed)
        nothing = len(ones) - len(passed) - restricted - barred
        print(f"{kind:24} {len(ones):5} {len(passed):5} {odd:5} {restricted:10} {barred:6} {nothing:7}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(FAMILIES), help="names, honest, leaks or nulls")
    parser.add_argument("--qualities", type=float, nargs="+", default=QUALITIES)
    parser.add_argument("--sets", type=int, default=10, help="sets of each kind and quality")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="without the control")
    parser.add_argument("--proof", help="a statement of the authors, as the option of the audit")
    parser.add_argument("--choices", action="store_true", help="give the lists that decoders choose from")
    parser.add_argument("--out", type=Path, help="JSON lines with every verdict")
    flags = parser.parse_args()
    kinds = [kind for name in flags.kinds for kind in FAMILIES.get(name, [name])]
    unknown = [kind for kind in kinds if not any(kind in of for of in FAMILIES.values())]
    if unknown:
        parser.error(
            f"--kinds: {unknown[0]} is not known; choose from {', '.join([*FAMILIES, *HONEST, *LEAKS, *NULLS])}"
        )
    jobs = [
        Job(kind, quality, seed, flags.alone, flags.proof, flags.choices)
        for kind in kinds
        for quality in ((0.0,) if kind in NULLS else flags.qualities)
        for seed in range(flags.first_seed, flags.first_seed + flags.sets)
    ]
    start, found = time.perf_counter(), []
    with multiprocessing.get_context("spawn").Pool(flags.jobs) as pool:
        for one in pool.imap(judged, jobs):
            found.append(one)
            if len(found) % flags.sets == 0:
                print(line(found[-flags.sets :]), flush=True)
    if flags.out:
        flags.out.write_text("".join(f"{json.dumps(one._asdict(), ensure_ascii=False)}\n" for one in found))
    accused = summary(found)
    print(f"\n{len(found)} audits in {time.perf_counter() - start:.0f} s")
    return min(accused, 1)


if __name__ == "__main__":
    sys.exit(main())
