"""Calibrates the audit's endpoints: false positives, power, and margins that mean the same.

    python tools/calibrations/calibrate_endpoints.py --decodes published_decodes --encoder minilm --out DIR
    python tools/calibrations/calibrate_endpoints.py --judge DIR/judge --endpoints bleu-1,lattescore-mean --out DIR

With --decodes, texts are those that the paper's authors released (T5; BART as another style), in the rows of their
file: 112 sentences, 4 to 18 rows each. Without it they are template sentences in as many rows, which the toy judge
knows.
- *null*: predictions drawn at random, row by row or all those of a random sentence together, against three controls:
  drawn alike, one constant sentence, another style. In each cell, how often *uses EEG* is said (at most 70 of 1,000
  allowed);
- *planted*: words of the own reference in a share of the places. The mean effect over the same texts without them says
  what a share is worth, and the share that raises BLEU-1 by 1.0 gives each endpoint's margin; against a control drawn
  alike, how often the share is found.

Writes endpoints.json (as cells finish) and endpoints.md; the same command goes on after a stop. All endpoints of the
released texts take about 25 minutes on one core.
"""

import argparse
import collections
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

import numpy as np
from scipy import sparse

from eeg2text_jax.auditing.contrast import contrast
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.statistics import Resampled, resample
from eeg2text_jax.auditing.strata import Blocks, blocks_of, length_strata
from eeg2text_jax.auditing.verdict import Verdict, judge
from eeg2text_jax.model_metrics import endpoints, makers_of
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.study.metric_names import ENDPOINTS
from eeg2text_testing.prediction_sets import gather
from eeg2text_testing.text_sets import CONTROLS, Pool, World, released, templates

CLAIMS = (Verdict.USES_EEG, Verdict.BELOW_MARGIN)
AT_ONCE = 64  # texts held against all references together


class Tests:
    """One endpoint on the rows of a world."""

    def __init__(self, world: World, endpoint: Endpoint, resamples: int):
        n_words = [len(text.split()) for text in world.references]
        self.world, self.endpoint, self.resamples = world, endpoint, resamples
        self.blocks: Blocks = blocks_of(length_strata([""] * len(n_words), n_words))
        self.counts = np.bincount(world.sentence)[None]
        self.size = len(endpoint.metric.statistic_names)
        self.members = {s: group for groups in self.blocks.groups for group in groups for s in group.tolist()}

    def table(self, texts: Sequence[str]) -> np.ndarray:
        """Statistics of texts against all references, `[texts, S, K]`."""
        parts = [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]
        with ProgressLine(f"{self.endpoint.label}: texts of the pool", len(parts)) as progress:
            found = []
            for part in parts:
                found.append(self.endpoint.metric.pairwise(part, self.world.references))
                progress.advance(1)
        return np.concatenate(found)

    def row_table(self, texts: Sequence[str]) -> np.ndarray:
        """Statistics of a text for each row against the references of its stratum, `[R, m, K]`."""
        longest = max(map(len, self.members.values()))
        found = np.zeros((len(texts), longest, self.size))
        for group in {tuple(group.tolist()) for group in self.members.values()}:
            mine = np.flatnonzero(np.isin(self.world.sentence, group))
            references = [self.world.references[s] for s in group]
            found[mine, : len(group)] = self.endpoint.metric.pairwise([texts[i] for i in mine], references)
        return found

    def cells(self, rows: np.ndarray) -> np.ndarray:
        """Sums over the rows of each sentence, `[1, C, K]` from `[R, m, K]`."""
        n, table = len(self.world.references), None
        summed = np.zeros((n, *rows.shape[1:]))
        np.add.at(summed, self.world.sentence, rows)
        table = np.zeros((n, n, self.size))
        for s, group in self.members.items():
            table[s, group] = summed[s, : len(group)]
        return gather(self.blocks, table)[None]

    def cells_of(self, chosen: np.ndarray, table: np.ndarray) -> np.ndarray:
        """The same from the number of each row's text, int `[R]`, in a table of texts `[texts, S, K]`."""
        n = len(self.world.references)
        occurs = sparse.csr_array((np.ones(len(chosen)), (self.world.sentence, chosen)), shape=(n, len(table)))
        return gather(self.blocks, (occurs @ table.reshape(len(table), -1)).reshape(n, n, self.size))[None]

    def sample(self, sums: Sequence[np.ndarray], seed: int) -> list[Resampled]:
        """Conditions resampled together."""
        counts, rng = [self.counts] * len(sums), np.random.default_rng(seed)
        return resample(sums, counts, self.blocks, resamples=self.resamples, rng=rng)

    def verdict(self, eeg: Resampled, control: Resampled) -> tuple[Verdict, float]:
        """The verdict at the endpoint's default margin, and the effect."""
        found, alone = (contrast(chosen, self.endpoint.score) for chosen in ([eeg, control], [eeg]))
        return judge(found, self.endpoint.margin, scores_vary=alone.varies), found.effect


def null_cells(tests: Tests, pool: Pool, table: np.ndarray, whole: bool, args: argparse.Namespace) -> dict:
    """Verdicts of sets without information, by control."""
    said: dict[str, collections.Counter] = {name: collections.Counter() for name in CONTROLS}
    with ProgressLine(f"{tests.endpoint.label}: null sets", args.sets) as progress:
        for index in range(args.sets):
            rng = np.random.default_rng([args.seed, whole, index])
            drawn = [pool.drawn(whole, rng), *(pool.control(name, whole, rng) for name in CONTROLS)]
            eeg, *controls = tests.sample([tests.cells_of(chosen, table) for chosen in drawn], index)
            for name, control in zip(CONTROLS, controls, strict=True):
                said[name][tests.verdict(eeg, control)[0].value] += 1
            progress.advance(1)
    return {name: dict(counter) for name, counter in said.items()}


def planted_cell(tests: Tests, pool: Pool, table: np.ndarray, share: float, args: argparse.Namespace) -> dict:
    """What a share of planted words is worth, and how often it is found.

    `args.variants` texts are made for every row; a set takes one of them at random.
    """
    world, rng = pool.world, np.random.default_rng([args.seed, 99, round(1000 * share)])
    base = np.stack([pool.drawn(False, rng) for _ in range(args.variants)])
    rows = []
    with ProgressLine(f"{tests.endpoint.label}: {share:.0%} planted, variants", args.variants) as progress:
        for variant in base:
            texts = [
                world.planted(pool.texts[text], world.references[s], share, rng)
                for text, s in zip(variant, world.sentence, strict=True)
            ]
            rows.append(tests.row_table(texts))
            progress.advance(1)
    bank, places = np.stack(rows), np.arange(len(world.sentence))
    effects, said = [], collections.Counter()
    for index in range(args.planted_sets):
        variant = rng.integers(args.variants, size=len(places))
        sums = [tests.cells(bank[variant, places]), tests.cells_of(base[variant, places], table)]
        sums.append(tests.cells_of(pool.drawn(False, rng), table))
        eeg, without, alike = tests.sample(sums, index)
        effects.append(tests.verdict(eeg, without)[1])
        said[tests.verdict(eeg, alike)[0].value] += 1
    return {"share": share, "effect": float(np.mean(effects)), "sd": float(np.std(effects)), "said": dict(said)}


def worth(result: dict) -> None:
    """Adds to each endpoint what the share of words is worth that raises BLEU-1 by one point."""

    def curve(one: dict) -> tuple[list[float], list[float]]:
        points = [(0.0, 0.0), *((c["share"], c["effect"]) for c in one["planted"])]
        return [p[0] for p in points], [p[1] for p in points]

    shares, effects = curve(result["bleu-1"])
    for one in result.values():
        one["share"] = float(np.interp(1.0, effects, shares))
        one["worth"] = float(np.interp(one["share"], *curve(one)))


def markdown(result: dict) -> str:
    """The figures as tables."""
    lines = [
        "| endpoint | margin | worth of 1 point of BLEU-1 | null: most *uses EEG* in a cell | most claims of any size "
        "| sets of a cell |",
        "|---|---|---|---|---|---|",
    ]
    for one in result.values():
        cells = [counts for null in one["null"].values() for counts in null.values()]
        most = max(counts.get(Verdict.USES_EEG, 0) for counts in cells)
        claims = max(sum(counts.get(claim, 0) for claim in CLAIMS) for counts in cells)
        shown = f"{one['worth']:.2f}" if "worth" in one else "-"
        lines.append(f"| {one['label']} | {one['margin']:g} | {shown} | {most} | {claims} | {sum(cells[0].values())} |")
    lines += ["", "| endpoint | drawn | " + " | ".join(CONTROLS) + " |", "|---|---|---|---|---|"]
    for one in result.values():
        for how, null in one["null"].items():
            said = " | ".join(", ".join(f"{k} {n}" for k, n in sorted(null[name].items())) for name in CONTROLS)
            lines.append(f"| {one['label']} | {how} | {said} |")
    lines += ["", "| endpoint | words planted | effect (sd) | verdicts |", "|---|---|---|---|"]
    for one in result.values():
        for c in one["planted"]:
            said = ", ".join(f"{k} {n}" for k, n in sorted(c["said"].items()))
            lines.append(f"| {one['label']} | {c['share']:.0%} | {c['effect']:+.2f} ({c['sd']:.2f}) | {said} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--decodes", type=Path, help="folder of published decodes; without it, template sentences")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--judge")
    parser.add_argument("--endpoints", default="bleu-1,bertscore-f,similarity", help="bleu-1 first")
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--planted-sets", type=int, default=200)
    parser.add_argument("--variants", type=int, default=6)
    parser.add_argument("--resamples", type=int, default=999)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("calibration"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "endpoints.json"
    names = ("sets", "planted_sets", "variants", "resamples", "seed", "encoder", "judge")
    settings = {**{name: getattr(args, name) for name in names}, "decodes": bool(args.decodes)}
    before = json.loads(path.read_text(encoding="utf8")) if path.exists() else {}
    result: dict = before["endpoints"] if before.get("settings") == settings else {}
    world = released(args.decodes) if args.decodes else templates()
    pool = Pool(world)
    asked = args.endpoints.split(",")
    metrics = [ENDPOINTS[name].metric for name in asked]
    needs_encoder = {"bertscore", "similarity"} & set(metrics)
    made = endpoints(asked, makers_of(metrics, args.encoder if needs_encoder else None, args.judge))

    def cell(one: dict, part: dict | list, key: str | int, work: Callable[[], dict]) -> None:
        if (key in part) if isinstance(part, dict) else (key < len(part)):
            return
        begun = time.monotonic()
        found = work()
        part.append(found) if isinstance(part, list) else part.__setitem__(key, found)
        one["seconds"] += time.monotonic() - begun
        path.write_text(json.dumps({"settings": settings, "endpoints": result}, indent=1), encoding="utf8")
        print(f"{one['label']}, {key}: {found}", flush=True)

    for name, endpoint in zip(asked, made, strict=True):
        about = {"label": endpoint.label, "margin": endpoint.margin, "signature": endpoint.metric.signature}
        one = result.setdefault(name, {**about, "seconds": 0.0, "null": {}, "planted": []})
        if len(one["planted"]) == len(world.shares):
            continue
        tests = Tests(world, endpoint, args.resamples)
        table = tests.table(pool.texts)
        for whole, how in enumerate(("single rows", "whole sentences")):
            cell(one, one["null"], how, lambda w=whole, x=(tests, table): null_cells(x[0], pool, x[1], bool(w), args))
        for number, share in enumerate(world.shares):
            cell(one, one["planted"], number, lambda s=share, x=(tests, table): planted_cell(x[0], pool, x[1], s, args))
    if "bleu-1" in result:
        worth(result)
    path.write_text(json.dumps({"settings": settings, "endpoints": result}, indent=1), encoding="utf8")
    (args.out / "endpoints.md").write_text(markdown(result) + "\n", encoding="utf8")
    print(markdown(result))


if __name__ == "__main__":
    main()
