"""What word errors, BERTScore and sentence similarity make of controlled edits: AUC by kind, and decisions by speaker.

    python tools/calibrations/edit_baselines.py SENTENCES.txt --encoder minilm [--out DIR]  # a sentence a line
    python tools/calibrations/edit_baselines.py SENTENCES.txt --show 200 --seed 11   # random pairs, the label last

The generator is to be hard but not hopeless: word error rates alone between .65 and .85, similarity with lengths at
least .05 better, and negation, number and antonym below .80 for every baseline. Of made-up speakers, decisions by true
labels and by a classifier shall agree on 8 of 10, and word accuracy differ on 3 or more. All labels are a rule's:
read some pairs by eye with the label covered, judge whether a listener would still know what was meant, and compare.
"""

import argparse
import json
import random
from pathlib import Path

import numpy as np

from eeg2text_jax.judge._edits import make_pairs, make_speakers
from eeg2text_jax.judge._meaning import BertScore, Similarity
from eeg2text_jax.judge.baselines import (
    bertscore_features,
    choose_threshold,
    error_rates,
    fit_best,
    similarity_features,
    speakers_markdown,
    speakers_table,
)
from eeg2text_jax.judge.pairs import Pair, divide
from eeg2text_jax.judge.session import by_slice
from eeg2text_jax.models.pretrained.encoders import TextEmbedder, load_encoder

HARD = ("negation", "number", "antonym")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("edit_baselines"))
    parser.add_argument("--show", type=int, metavar="PAIRS", help="print so many pairs to read by eye, and end")
    args = parser.parse_args()
    lines = args.sentences.read_text("utf8").splitlines()
    pairs = make_pairs(lines, per_sentence=2, preserved=0.43, seed=args.seed)
    if args.show:
        for number, pair in enumerate(random.Random(args.seed).sample(pairs, min(args.show, len(pairs))), 1):
            print(f"{number}\n  {pair.reference}\n  {pair.hypothesis}\n  severity {pair.rated} {pair.kind}")
        return
    parts = divide(pairs, (0.6, 0.2, 0.2), args.seed, str(args.sentences))
    embedder = TextEmbedder(load_encoder(args.encoder, "last"))
    score, similarity = BertScore(embedder), Similarity(embedder)
    kinds = {
        "LR D, I, S": error_rates,
        "BERTScore F": lambda part: bertscore_features(part, score)[:, :1],
        "LR BERTScore F + D, I, S": lambda part: bertscore_features(part, score),
        "cosine": lambda part: similarity_features(part, similarity)[:, :1],
        "LR cosine + lengths": lambda part: similarity_features(part, similarity),
    }
    test, fitted = {}, {}
    for name, features in kinds.items():
        train, dev = ((features(part), labels(part)) for part in (parts.train, parts.dev))
        fitted[name] = fit_best(train, dev)
        test[name] = fitted[name](features(parts.test))
    rows = by_slice(test, parts.test)
    print("| classifier | " + " | ".join(f"{row['slice']} ({row['n']})" for row in rows) + " |")
    print("|---" * (len(rows) + 1) + "|")
    for name in test:
        first, *others = (row["auc"][name] for row in rows)
        cells = [shown(first, 3), *(shown(one, 2) for one in others)]
        print(f"| {name} | " + " | ".join(cells) + " |")
    hard = max(row["auc"][name]["value"] for row in rows for name in test if row["slice"].removeprefix("kind ") in HARD)
    print(f"largest AUC of negation, number, antonym: {hard:.3f}")

    features, best = kinds["LR cosine + lengths"], fitted["LR cosine + lengths"]
    threshold = choose_threshold(best(features(parts.dev)), labels(parts.dev), 0.9)
    tested = {pair.reference for pair in parts.test}
    spoken = make_speakers([line for line in lines if line in tested], speakers=10, utterances=60, seed=args.seed + 1)
    for cut in (threshold.value, 0.5):
        print(f"\nmade-up speakers, classifier LR cosine + lengths, threshold {cut:.3f}:")
        table = speakers_table(spoken, lambda asked: best(features(asked)), cut)
        print("\n".join(speakers_markdown(table)))
    args.out.mkdir(parents=True, exist_ok=True)
    counts = {"counts": parts.counts(), "slices": rows, "speakers": table}
    (args.out / "edit_baselines.json").write_text(json.dumps(counts, indent=1), encoding="utf8")


def shown(found: dict, digits: int) -> str:
    low, high = found["interval"]
    return f"{found['value']:.{digits}f} ({low:.2f}-{high:.2f})"


def labels(part: list[Pair]) -> np.ndarray:
    return np.array([pair.preserved for pair in part])


if __name__ == "__main__":
    main()
