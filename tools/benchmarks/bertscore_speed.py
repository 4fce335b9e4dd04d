"""BERTScore beside the package bert-score, on the same pairs in one run: seconds, memory and the largest difference.

    python tools/benchmarks/bertscore_speed.py --encoder minilm --file OUTPUTS.txt [--pairs 512] [--repeats 3]

Pairs are the first ones of a predictions file of any layout, free-running where there are such rows. Each side scores
them once before the clock runs: loading and this first call, compilation included, are reported apart. Wall time and
CPU time, by turns. Peak memory is that of a process that has only one side.

Where a row's texts are shorter than the longest of its batch of 64 pairs, the similarity of a masked token, 0, is a
candidate for the best match in bert-score, and wins over negative ones. So two differences are given: as scored here,
where a mask is never matched, and with our own states matched as there, which says how exact all the rest is.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from eeg2text_jax.instrument.predictions.read import read_any
from eeg2text_jax.models.pretrained.folder import checkpoint_folder


def timed(work: Callable[[], np.ndarray]) -> tuple[np.ndarray, float, float]:
    """The result, wall seconds and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def ours(folder: Path, layer: int) -> Callable[[list[str], list[str]], np.ndarray]:
    from eeg2text_jax.judge._meaning import BertScore
    from eeg2text_jax.models.pretrained.encoders import TextEmbedder, load_encoder

    embedder = TextEmbedder(load_encoder(folder, layer))

    def score(predictions: list[str], references: list[str]) -> np.ndarray:
        embedder.forget()
        return BertScore(embedder).statistics(predictions, references)[:, :3]

    return score


def theirs(folder: Path, layer: int) -> Callable[[list[str], list[str]], np.ndarray]:
    from bert_score import BERTScorer

    scorer = BERTScorer(model_type=str(folder), num_layers=layer, nthreads=0)

    def score(predictions: list[str], references: list[str]) -> np.ndarray:
        return np.stack([figure.numpy() for figure in scorer.score(predictions, references)], 1)

    return score


BATCH = 64  # pairs that bert-score pads together


def matched_as_there(folder: Path, layer: int, predictions: list[str], references: list[str]) -> np.ndarray:
    """P, R and F `[N, 3]` from our hidden states, with masked tokens as candidates of similarity 0 as in bert-score."""
    from eeg2text_jax.judge._meaning import BertScore
    from eeg2text_jax.models.pretrained.encoders import TextEmbedder, load_encoder

    known = BertScore(TextEmbedder(load_encoder(folder, layer)))._embed([*predictions, *references])
    found = np.zeros((len(predictions), 3))
    for start in range(0, len(predictions), BATCH):
        pairs = list(zip(predictions[start : start + BATCH], references[start : start + BATCH], strict=True))
        longest = [max(len(known[pair[side]].states) for pair in pairs) for side in (0, 1)]
        for place, (prediction, reference) in enumerate(pairs, start):
            sides = known[prediction], known[reference]
            floor = [0.0 if len(side.states) < most else -1.0 for side, most in zip(sides, longest, strict=True)]
            similar = sides[0].states @ sides[1].states.T
            p = np.maximum(similar.max(1), floor[1]) @ sides[0].weights
            r = np.maximum(similar.max(0), floor[0]) @ sides[1].weights
            found[place] = p, r, 2 * p * r / (p + r)
    return found


def peak_memory(name: str, folder: Path, layer: int, texts: tuple[list[str], list[str]]) -> float:
    """GiB that a process of its own takes at most, which loads one side and scores with it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_score_alone, (name, folder, layer, texts))


def _score_alone(name: str, folder: Path, layer: int, texts: tuple[list[str], list[str]]) -> float:
    SIDES[name](folder, layer)(*texts)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


SIDES = {"ours": ours, "bert-score": theirs}


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
    for name in SIDES:  # before this process grows, as a child's figure begins with its parent's
        print(f"peak memory of {name} alone: {peak_memory(name, folder, args.layer, texts):.2f} GiB", flush=True)
    sides = {}
    for name, make in SIDES.items():
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
    there = matched_as_there(folder, args.layer, *texts)
    apart = np.abs(found["ours"] - found["bert-score"]).max(1)
    exact = np.abs(there - found["bert-score"]).max()
    print(f"  largest difference of a row, masks matched as there: {exact:.1e}")
    print(f"  as scored: {apart.max():.1e}, above 2e-5 in {(apart > 2e-5).sum()} rows")


if __name__ == "__main__":
    main()
