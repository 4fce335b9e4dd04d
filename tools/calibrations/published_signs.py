"""Searches published predictions for signs of a target: teacher-forced sets show them, decoders that work show none.

    python tools/calibrations/published_signs.py --clones DIR

The sets are those of `tools/site/field_manifest.tsv` and of `working_decoders.py`; `DIR/owner+name` are clones. Printed
are the signs of each set, and how many sets of each kind are contradicted or odd. Three minutes on one core.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

import field
from working_decoders import SOURCES, Clones

from eeg2text_jax.instrument.auditing._signs import Sign, signs_of

MODES = {"teacher_forced": "teacher-forced", "free_running": "free-running"}
Rows = list[tuple[str, str, str]]  # reference, prediction, reader


def published(flags: argparse.Namespace) -> Iterator[tuple[str, str, Rows]]:
    """Name, kind and rows of each set."""
    with tempfile.TemporaryDirectory() as folder:
        for one in field.read_manifest(field.HERE / "field_manifest.tsv"):
            for mode, rows in field.read_set(one, Path(folder), flags).modes.items():
                found = [(row.reference, row.prediction, row.subject) for row in rows]
                yield f"{one.set} ({mode})", MODES.get(mode, one.mode or "not known"), found
    for kind, source in SOURCES.items():
        for path, pairs in source(Clones(flags.clones)):
            yield f"{kind}: {Path(path).name}", "decoders that work", [(*pair, "") for pair in pairs]


def signs(rows: Rows) -> list[Sign]:
    rows = [row for row in rows if row[0].strip()]
    references = list(dict.fromkeys(reference for reference, *_ in rows))
    number = {text: i for i, text in enumerate(references)}
    sentence = np.array([number[reference] for reference, *_ in rows])
    return signs_of([said for _, said, _ in rows], references, sentence, [reader for *_, reader in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path, required=True, metavar="DIR")
    flags = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for name, kind, rows in published(flags):
        found = signs(rows)
        counts[kind, "sets"] += 1
        counts.update((kind, weight) for weight in {sign.weight for sign in found})
        print(f"{kind:18} {name:70} {', '.join(f'{sign.code} ({sign.weight})' for sign in found)}", flush=True)
    for kind in dict.fromkeys(kind for kind, _ in counts):
        shares = (f"{counts[kind, what]} {what}" for what in ("sets", "contradicted", "odd"))
        print(f"{kind}: {', '.join(shares)}")


if __name__ == "__main__":
    main()
