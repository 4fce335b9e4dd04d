"""Calibrates the audit's endpoints on published outputs: false positives, power, and margins that mean the same.

    python tools/calibrate_endpoints.py --decodes published_decodes --encoder minilm [--judge DIR/judge] --out DIR

For every endpoint, with the rows of SR+NR (112 sentences of the T5 outputs):
- *null*: predictions drawn at random from published outputs, row by row or all those of a random sentence together,
  against one constant sentence. How often *uses EEG* is said (at most 70 of 1,000 allowed) and how often equivalence;
- *margin*: reference words put into a growing share of the places of the EEG predictions, until content rises by 1.0
  points of BLEU-1: what the same share is worth in the other endpoints, over several drawings;
- *power*: how often that share is called *uses EEG*.

Every distinct text is held against every reference once. Writes endpoints.json and endpoints.md.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from eeg2text_jax.auditing.contrast import Contrast, contrast
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.statistics import resample
from eeg2text_jax.auditing.strata import Blocks, blocks_of, length_strata
from eeg2text_jax.auditing.verdict import Verdict, judge
from eeg2text_jax.model_metrics import endpoints, makers_of
from eeg2text_jax.predictions.read import read_any
from eeg2text_jax.study.metric_names import ENDPOINTS

POOL = ("t5_sr-nr-tsr_eeg-eeg", "t5_sr-nr-tsr_noise-noise")
SHARES = (0.0, 0.02, 0.05, 0.1)
AT_ONCE = 64  # texts held against all references together


class Tables:
    """Statistics of texts against all references, each distinct text once: `[texts, S, K]`."""

    def __init__(self, endpoint: Endpoint, references: Sequence[str]):
        self.endpoint, self.references = endpoint, list(references)
        self._rows: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        for start in range(0, len(new), AT_ONCE):
            part = new[start : start + AT_ONCE]
            self._rows |= dict(zip(part, self.endpoint.metric.pairwise(part, self.references), strict=True))
        return np.stack([self._rows[text] for text in texts])


def summed(texts: Sequence[str], sentence: np.ndarray, tables: Tables, blocks: Blocks) -> np.ndarray:
    """What `resample` takes, from the text of every row, `[1, C, K]`."""
    distinct = list(dict.fromkeys(texts))
    place = {text: i for i, text in enumerate(distinct)}
    found = tables(distinct)
    chosen = sparse.csr_array(
        (np.ones(len(texts)), (sentence, [place[text] for text in texts])),
        shape=(len(tables.references), len(distinct)),
    )
    flat = chosen @ found.reshape(len(distinct), -1)
    return blocks.gather(flat.reshape(len(tables.references), *found.shape[1:]))[None]


class Set:
    """The rows of the real file, and tests on texts in their places."""

    def __init__(self, rows: Sequence, resamples: int):
        self.references = list(dict.fromkeys(row.reference for row in rows))
        place = {text: i for i, text in enumerate(self.references)}
        self.sentence = np.array([place[row.reference] for row in rows])
        self.blocks = blocks_of(length_strata([""] * len(place), [len(t.split()) for t in self.references]))
        self.counts = np.bincount(self.sentence)[None]
        self.resamples = resamples

    def test(self, eeg: Sequence[str], control: Sequence[str], tables: Tables, seed: int) -> tuple[Verdict, Contrast]:
        """The verdict at the endpoint's default margin."""
        sums = [summed(texts, self.sentence, tables, self.blocks) for texts in (eeg, control)]
        rng = np.random.default_rng(seed)
        one, other = resample(sums, [self.counts] * 2, self.blocks, resamples=self.resamples, rng=rng)
        found, alone = (contrast(chosen, tables.endpoint.score) for chosen in ([one, other], [one]))
        return judge(found, tables.endpoint.margin, scores_vary=alone.varies), found


def planted(rows: Sequence, share: float, rng: np.random.Generator) -> list[str]:
    """Predictions with words of their own reference in a share of their places."""
    texts = []
    for row in rows:
        words, own = row.prediction.split(), row.reference.split()
        texts.append(" ".join(own[rng.integers(len(own))] if rng.random() < share else word for word in words))
    return texts


def drawn(rows: Sequence, pool: Sequence, whole: bool, rng: np.random.Generator) -> list[str]:
    """Texts of the pool for every row: one by one, or those of one random sentence for all rows of a sentence."""
    if not whole:
        return [pool[i].prediction for i in rng.integers(len(pool), size=len(rows))]
    groups: dict[str, list[str]] = {}
    for row in pool:
        groups.setdefault(row.reference, []).append(row.prediction)
    readings = list(groups.values())
    chosen = {reference: readings[rng.integers(len(readings))] for reference in {row.reference for row in rows}}
    return [chosen[row.reference][rng.integers(len(chosen[row.reference]))] for row in rows]


def calibrate(endpoint: Endpoint, rows: Sequence, pool: Sequence, args: argparse.Namespace) -> dict:
    """The three parts for one endpoint."""
    held = Set(rows, args.resamples)
    tables = Tables(endpoint, held.references)
    found: dict = {"endpoint": endpoint.label, "margin": endpoint.margin, "signature": endpoint.metric.signature}
    for whole in (False, True):
        said: dict[str, int] = {}
        for index in range(args.sets):
            rng = np.random.default_rng([args.seed, whole, index])
            eeg = drawn(rows, pool, whole, rng)
            constant = [pool[rng.integers(len(pool))].prediction] * len(rows)
            verdict, _ = held.test(eeg, constant, tables, index)
            said[verdict.value] = said.get(verdict.value, 0) + 1
        found[f"null, {'whole sentences' if whole else 'single rows'}"] = said
    plain = [row.prediction for row in rows]
    curve = []
    for number, share in enumerate(SHARES):
        effects, uses = [], 0
        for index in range(args.drawings):
            rng = np.random.default_rng([args.seed, 99, number, index])
            verdict, one = held.test(planted(rows, share, rng), plain, tables, index)
            effects.append(one.effect)
            uses += verdict in (Verdict.USES_EEG, Verdict.BELOW_MARGIN)
        spread = float(np.std(effects, ddof=1)) if len(effects) > 1 else 0.0
        curve.append({"share": share, "effect": float(np.mean(effects)), "sd": spread, "claimed": uses})
    found["planted"] = curve
    return found


def worth(result: list[dict]) -> None:
    """Adds to each endpoint what the share of words is worth that raises BLEU-1 by one point."""
    bleu = result[0]["planted"]
    share = float(np.interp(1.0, [c["effect"] for c in bleu], [c["share"] for c in bleu]))
    for one in result:
        curve = one["planted"]
        one["share"] = share
        one["worth"] = float(np.interp(share, [c["share"] for c in curve], [c["effect"] for c in curve]))


def table(result: list[dict]) -> str:
    """The figures as Markdown."""
    lines = [
        "| endpoint | margin | worth of 1 point of BLEU-1 | null: uses EEG (rows, sentences) | claimed at 5 %, 10 % |"
    ]
    lines.append("|---|---|---|---|---|")
    for one in result:
        nulls = [one[f"null, {how}"] for how in ("single rows", "whole sentences")]
        said = ", ".join(f"{n.get('uses EEG', 0)} of {sum(n.values())}" for n in nulls)
        claimed = ", ".join(str(c["claimed"]) for c in one["planted"][2:])
        lines.append(f"| {one['endpoint']} | {one['margin']:g} | {one['worth']:.2f} | {said} | {claimed} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--decodes", type=Path, required=True, help="folder of published decodes")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--judge")
    parser.add_argument("--endpoints", default="bleu-1,bertscore-f,similarity")
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--drawings", type=int, default=10)
    parser.add_argument("--resamples", type=int, default=999)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("calibration"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    files = [read_any(args.decodes / f"{name}.txt").predictions for name in POOL]
    rows, *others = [[row for row in file if row.mode == "free_running"] for file in files]
    pool = [row for file in (rows, *others) for row in file if row.prediction.strip()]
    names = args.endpoints.split(",")
    metrics = [ENDPOINTS[name].metric for name in names]
    needs_encoder = {"bertscore", "similarity"} & set(metrics)
    made = endpoints(names, makers_of(metrics, args.encoder if needs_encoder else None, args.judge))
    result: list[dict] = []
    for endpoint in made:
        begun = time.monotonic()
        result.append({**calibrate(endpoint, rows, pool, args), "seconds": 0.0})
        result[-1]["seconds"] = time.monotonic() - begun
        worth(result)
        (args.out / "endpoints.json").write_text(json.dumps(result, indent=1), encoding="utf8")
        print(table(result), flush=True)
    (args.out / "endpoints.md").write_text(table(result) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
