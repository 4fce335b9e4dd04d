"""Levels of content by plain loops, with nothing of the audit: what `eeg2text audit --groups` must come to.

    python tools/calibrations/levels_by_hand.py EEG CONTROL --reference=COLUMN --prediction=COLUMN --groups=COLUMN

Word BLEU-1 (sacrebleu's 13a) of each side, less that of the same predictions over other sentences: of nearly its
length, of its group and nearly its length, and, between groups, over the sentences of other groups instead of its own.
No p: a difference within 0.05 of the audit's is the check. A minute a pair.
"""

import argparse
import csv
import math
from collections import Counter, defaultdict
from pathlib import Path

from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

STRATUM = 6
tokenize = Tokenizer13a()


def read(path: Path, reference: str, prediction: str, groups: str) -> tuple[dict, dict]:
    """Reference -> tokens of its predictions; reference -> its most frequent group."""
    said, labels = defaultdict(list), defaultdict(Counter)
    with path.open(encoding="utf8", newline="") as file:
        for row in csv.DictReader(file):
            text = " ".join(row[reference].split())
            said[text].append(Counter(tokenize(row[prediction]).split()))
            labels[text][row[groups].strip()] += 1
    return dict(said), {text: found.most_common(1)[0][0] for text, found in labels.items()}


def strata(texts: list[str], group: dict[str, str]) -> list[list[str]]:
    """Sentences of a group in the order of their lengths, cut into parts of six or a little more."""
    found = []
    for name in sorted(set(group.values())):
        mine = sorted((t for t in texts if group[t] == name), key=lambda t: len(t.split()))
        parts = max(1, len(mine) // STRATUM)
        sizes = [len(mine) // parts + (i < len(mine) % parts) for i in range(parts)]
        for size in sizes:
            found.append(mine[:size])
            mine = mine[size:]
    return [part for part in found if len(part) > 1]


class Side:
    """One file: statistics of the mean prediction of one sentence against the reference of another."""

    def __init__(self, said: dict) -> None:
        self.said = said
        self.lengths = {text: sum(row.total() for row in rows) / len(rows) for text, rows in said.items()}
        self.tokens = {text: Counter(tokenize(text).split()) for text in said}
        self.known: dict[tuple[str, str], tuple[float, float, float]] = {}

    def mean(self, source: str, target: str) -> tuple[float, float, float]:
        """Words predicted, words of the reference, matches; of a row of `source` held against `target`."""
        if (source, target) not in self.known:
            rows, reference = self.said[source], self.tokens[target]
            matches = sum(min(row[token], count) for row in rows for token, count in reference.items()) / len(rows)
            self.known[source, target] = (self.lengths[source], reference.total(), matches)
        return self.known[source, target]

    def summed(self, pairs: dict[tuple[str, str], float]) -> float:
        """BLEU-1 in percent of pairs of sentence and reference, each with its weight."""
        predicted = reference = matches = 0.0
        for (source, target), weight in pairs.items():
            p, r, m = self.mean(source, target)
            predicted, reference, matches = predicted + weight * p, reference + weight * r, matches + weight * m
        return 100 * math.exp(min(0.0, 1 - reference / predicted)) * matches / predicted


def exchange_within(parts: list[list[str]], rows: dict[str, int]) -> tuple[dict, dict]:
    """Pairs in place, and pairs with every other sentence of the part."""
    own, other = {}, {}
    for part in parts:
        for target in part:
            own[target, target] = rows[target]
            other |= {(source, target): rows[target] / (len(part) - 1) for source in part if source != target}
    return own, other


def exchange_groups(texts: list[str], group: dict[str, str], rows: dict[str, int]) -> tuple[dict, dict]:
    """Pairs within groups, a sentence never with itself, and pairs with every other group."""
    members = defaultdict(list)
    for text in texts:
        members[group[text]].append(text)
    members = {name: found for name, found in members.items() if len(found) > 1}
    own, other = {}, {}
    for name, mine in members.items():
        for target in mine:
            own |= {(s, target): rows[target] / (len(mine) - 1) for s in mine if s != target}
            for strange, theirs in members.items():
                if strange != name:
                    weight = rows[target] / len(theirs) / (len(members) - 1)
                    other |= {(s, target): weight for s in theirs}
    return own, other


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("eeg", type=Path)
    parser.add_argument("control", type=Path)
    for name in ("reference", "prediction", "groups"):
        parser.add_argument(f"--{name}", required=True, metavar="COLUMN")
    flags = parser.parse_args()
    columns = (flags.reference, flags.prediction, flags.groups)
    (eeg, group), (control, _) = read(flags.eeg, *columns), read(flags.control, *columns)
    texts, rows = list(eeg), {text: len(said) for text, said in eeg.items()}
    if rows != {text: len(said) for text, said in control.items()}:
        raise SystemExit("the files differ in their sentences or in how many rows each has")
    whole = exchange_within(strata(texts, dict.fromkeys(texts, "")), rows)
    within = exchange_within(strata(texts, group), rows)
    levels = {"content": whole, "between": exchange_groups(texts, group, rows), "within": within}
    sides = [Side(eeg), Side(control)]
    for name, (own, other) in levels.items():
        of_eeg, of_control = (side.summed(own) - side.summed(other) for side in sides)
        print(f"{name}: {of_eeg - of_control:+.2f} ({of_eeg:+.2f} less {of_control:+.2f})")


if __name__ == "__main__":
    main()
