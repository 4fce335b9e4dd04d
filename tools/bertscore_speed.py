"""BERTScore beside the package bert-score, on the same pairs in one run: seconds and the largest difference.

    python tools/bertscore_speed.py --encoder minilm --file OUTPUTS.txt [--pairs 512] [--repeats 3]

Pairs are the first ones of a predictions file of any layout, free-running where there are such rows. Loading and
compilation are reported apart: each side scores other pairs of the same lengths first. Wall time and CPU time.
"""

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from eeg2text_jax.predictions.read import read_any
from eeg2text_jax.pretrained.folder import checkpoint_folder


def timed(work: Callable[[], np.ndarray]) -> tuple[np.ndarray, float, float]:
    """The result, wall seconds and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def ours(folder: Path, layer: int) -> Callable[[list[str], list[str]], np.ndarray]:
    """Our BERTScore with nothing remembered of texts between two calls."""
    from eeg2text_jax.metrics.bertscore import BertScore
    from eeg2text_jax.pretrained.embedding import TextEmbedder
    from eeg2text_jax.pretrained.encoders import load_encoder

    embedder = TextEmbedder(load_encoder(folder, layer))

    def score(predictions: list[str], references: list[str]) -> np.ndarray:
        embedder.forget()
        return BertScore(embedder).statistics(predictions, references)[:, :3]

    return score


def theirs(folder: Path, layer: int) -> Callable[[list[str], list[str]], np.ndarray]:
    """bert-score with its model loaded once."""
    from bert_score import BERTScorer

    scorer = BERTScorer(model_type=str(folder), num_layers=layer, nthreads=0)

    def score(predictions: list[str], references: list[str]) -> np.ndarray:
        return np.stack([figure.numpy() for figure in scorer.score(predictions, references)], 1)

    return score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--layer", type=int, default=6)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    rows = read_any(args.file).predictions
    rows = [row for row in rows if row.mode == "free_running"] or rows
    rows = [row for row in rows if row.prediction.strip()][: args.pairs]
    texts = [row.prediction for row in rows], [row.reference for row in rows]
    folder = checkpoint_folder(args.encoder)
    sides = {}
    for name, make in (("ours", ours), ("bert-score", theirs)):
        start = time.perf_counter()
        score = make(folder, args.layer)
        loaded = time.perf_counter() - start
        _, first, _ = timed(lambda s=score: s(*texts))
        sides[name] = score
        print(f"{name}: loaded in {loaded:.1f} s; first call, compilation included, {first:.2f} s", flush=True)
    best: dict[str, tuple[float, float]] = {}
    found = {}
    for _ in range(args.repeats):  # by turns, as other work on the machine slows both
        for name, score in sides.items():
            found[name], wall, cpu = timed(lambda s=score: s(*texts))
            before = best.get(name, (float("inf"),) * 2)
            best[name] = min(before[0], wall), min(before[1], cpu)
    n_texts = len({*texts[0], *texts[1]})
    print(f"{len(rows)} pairs, {n_texts} distinct texts, best of {args.repeats}:")
    for name, (wall, cpu) in best.items():
        print(f"  {name}: {wall:.2f} s ({cpu:.2f} s of CPU)")
    ratios = [best["bert-score"][i] / best["ours"][i] for i in (0, 1)]
    print(f"  {ratios[0]:.2f} times as fast ({ratios[1]:.2f} by CPU time)")
    print(f"  largest difference of a row: {np.abs(found['ours'] - found['bert-score']).max():.1e}")
    print(f"  peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
