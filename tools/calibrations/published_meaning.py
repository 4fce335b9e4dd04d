"""The audit of released outputs decided by meaning, and of the same with words planted; and two ways of the null.

    python tools/calibrations/published_meaning.py --decodes published_decodes --encoder minilm [--out DIR]

For BLEU-1 and every endpoint that the encoder serves, on the T5 outputs (EEG/EEG against EEG/noise, free-running):
- the verdict as `eeg2text audit` gives it, with its seconds (texts are embedded anew for each);
- the content null in two ways: every reference keeps its number of rows, as the audit has it, and row counts travel
  with the predictions, as first measured (BERTScore +0.09, similarity +0.22): both from the same tables;
- the verdict with reference words in 10 % of the places of the EEG file, which must be *uses EEG*.
For the command itself the planted file is written to DIR/planted.jsonl, and its control to DIR/control.jsonl.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

import numpy as np

from eeg2text_jax.auditing.align import Aligned, align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.content_cells import weighted_tables
from eeg2text_jax.auditing.contrast import contrast
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.statistics import resample
from eeg2text_jax.auditing.strata import blocks_of
from eeg2text_jax.model_metrics import endpoints, makers_of
from eeg2text_jax.predictions.file import Prediction, write_predictions
from eeg2text_jax.predictions.read import read_any
from eeg2text_jax.study.metric_names import ENDPOINTS
from eeg2text_testing.text_sets import World, released

FILES = ("t5_sr-nr-tsr_eeg-eeg.txt", "t5_sr-nr-tsr_eeg-noise.txt")
NAMES = ("bleu-1", "bertscore-f", "similarity")


def both_nulls(aligned: Aligned, endpoint: Endpoint, resamples: int) -> dict[str, str]:
    """Scores, nulls, effect, p of both ways."""
    blocks, weighted = weighted_tables(aligned, aligned.strata, endpoint.metric)
    counts = np.bincount(aligned.eeg.sentence)
    sources = np.concatenate([np.repeat(members.ravel(), members.shape[1]) for members in blocks.groups])
    targets = np.concatenate([np.repeat(m, m.shape[1], axis=0).ravel() for m in blocks.groups])
    sums = [table * (counts[sources] / counts[targets])[:, None] for table in weighted]  # as they were summed over rows
    found = {}
    for how, rows in {"rows kept": counts, "rows travel": np.ones_like(counts)}.items():
        options = {"resamples": resamples, "rng": np.random.default_rng(0)}
        c = contrast(resample([s[None] for s in sums], [rows[None]] * 2, blocks_of(aligned.strata), **options),
                     endpoint.score)  # fmt: skip
        scores, nulls = (" | ".join(f"{x:.2f}" for x in pair) for pair in (c.scores, c.nulls))
        found[how] = f"{scores}, nulls {nulls}, effect {c.effect:+.3f}, p {c.p:.3f}, sd {c.permutation_sd:.2f}"
    return found


def planted(rows: list[Prediction], world: World, share: float) -> list[Prediction]:
    """The rows with reference words in a share of the places."""
    rng = np.random.default_rng(0)
    texts = [world.planted(row.prediction, row.reference, share, rng) for row in rows]
    return [dataclasses.replace(row, prediction=text) for row, text in zip(rows, texts, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--decodes", type=Path, required=True)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--resamples", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("published_meaning"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    eeg, noise = ([r for r in read_any(args.decodes / name).predictions if r.mode == "free_running"] for name in FILES)
    signal = planted(eeg, released(args.decodes), 0.1)
    write_predictions(args.out / "planted.jsonl", {}, signal)
    write_predictions(args.out / "control.jsonl", {}, noise)
    for name in NAMES:
        metric = ENDPOINTS[name].metric
        makers = makers_of([metric], None if name == "bleu-1" else args.encoder, None)
        (endpoint,) = endpoints([name], makers)
        begun = time.monotonic()
        result = audit(eeg, {"noise": noise}, endpoint=endpoint, resamples=args.resamples)
        taken = time.monotonic() - begun
        print(f"{name}: {result.verdict.value}, margin {result.margin:g} ({taken:.0f} s)\n  {result.sentence}")
        for how, figures in both_nulls(align({"eeg": eeg, "noise": noise}), endpoint, args.resamples).items():
            print(f"  {how}: {figures}")
        options = {"endpoint": endpoint, "resamples": args.resamples, "proof": "the words were planted by this program"}
        found = audit(signal, {"noise": noise}, **options)
        print(f"  planted in 10 % of the places: {found.verdict.value}, {found.sentence}", flush=True)


if __name__ == "__main__":
    main()
