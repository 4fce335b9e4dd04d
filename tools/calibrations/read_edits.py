"""Controlled edits to read by eye: random pairs with what was done to them, the label last.

    python tools/calibrations/read_edits.py SENTENCES.txt --pairs 200 > pairs.txt

SENTENCES.txt has a sentence a line. Cover the label, judge whether a listener would still know what was meant, compare.
"""

import argparse
import random
from pathlib import Path

from eeg2text_jax.judge.controlled import make_pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    made = make_pairs(args.sentences.read_text("utf8").splitlines(), per_sentence=2, preserved=0.43, seed=args.seed)
    for number, pair in enumerate(random.Random(args.seed).sample(made, min(args.pairs, len(made))), 1):
        print(f"{number}\n  {pair.reference}\n  {pair.hypothesis}\n  severity {pair.rated} {pair.kind}")


if __name__ == "__main__":
    main()
