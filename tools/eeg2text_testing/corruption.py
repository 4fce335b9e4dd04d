"""Random damage to recordings, and what must hold of the data file that is made from them all the same."""

import argparse
import collections
import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.source import Tally
from eeg2text_jax.data.source_settings import DataSettings

WAYS = ("byte", "bit", "zeros", "noise", "cut", "removed", "doubled")


def corrupt(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Damages a file's content in one of WAYS, at a random place; never returns it unchanged."""
    way, at = str(rng.choice(WAYS)), int(rng.integers(len(data)))
    length = int(rng.integers(1, 65))
    head, old, tail = data[:at], data[at : at + length], data[at + length :]
    made = {
        "byte": head + bytes([(data[at] + int(rng.integers(1, 256))) % 256]) + data[at + 1 :],
        "bit": head + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :],
        "zeros": head + bytes(len(old)) + tail,
        "noise": head + rng.bytes(len(old)) + tail,
        "cut": head,
        "removed": head + tail,
        "doubled": head + old + old + tail,
    }[way]
    return (way, made) if made != data else corrupt(data, rng)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`refused`, `noted` (drops or notes that the intact file does not cause), `unseen` (the same data, or changed
    numbers only), or `WRONG`, with the reason."""

    kind: str
    detail: str = ""


def arguments(doc: str, trials: int) -> argparse.ArgumentParser:
    """Return the parser of a script that damages at random, as often as it is told."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def series(trial: Callable[[int, np.random.Generator], tuple[str, str, Verdict]], trials: int, seed: int) -> int:
    """Count the verdicts of trials, and stop with status 1 at the first wrong one.

    A trial takes its number and the generator, and returns what was damaged, in which way, and the verdict.
    """
    counts, rng = collections.Counter(), np.random.default_rng(seed)
    for number in range(trials):
        form, way, verdict = trial(number, rng)
        counts[form, verdict.kind] += 1
        if verdict.kind == "WRONG":
            print(f"trial {number}, seed {seed}, {form}, {way}: {verdict.detail}")
            return 1
    for (form, kind), n in sorted(counts.items()):
        print(f"{form:<8} {kind:<14} {n:>5}")
    return 0


def judge(config: ConfigDict, original: DataFile, expected: Tally, path: Path, out: Path) -> Verdict:
    """Prepares a damaged file and compares with what the intact one gave.

    Args:
      config: the `data` section used for both.
      original: data file of the intact file.
      expected: its tally.
      path: the damaged file.
      out: where its data file may be written.
    """
    try:
        tally = prepare(read_section(DataSettings, config), out, [str(path)])
    except UserError as error:
        return Verdict("refused", str(error)) if "\n" not in str(error) else Verdict("WRONG", f"two lines: {error}")
    made = read_datafile(out)
    said = set(tally.notes) != set(expected.notes) or tally.dropped != expected.dropped
    if tally.sentences != expected.sentences:
        return Verdict("WRONG", f"read {tally.sentences}, not {expected.sentences}")
    rows = {index: i for i, index in enumerate(made.sentence_index)}
    if len(rows) < len(made):
        return Verdict("WRONG", "a sentence is there twice")
    known = {row.tobytes() for row in original.features}
    changed = False
    for i, index in enumerate(original.sentence_index):
        if index not in rows:
            if not said:
                return Verdict("WRONG", f"sentence {index} was lost")
            continue
        before, after = original.words(i), made.words(rows[index])
        if before.shape != after.shape:
            return Verdict("WRONG", f"sentence {index} has {len(after)} words, not {len(before)}")
        other = [row for row, same in zip(after, (before == after).all(axis=1), strict=True) if not same]
        changed |= bool(other)
        if any(row.tobytes() in known for row in other):
            return Verdict("WRONG", f"sentence {index} has another word's EEG")
        if made.sentence[rows[index]] != original.sentence[i] and not said:
            return Verdict("WRONG", f"sentence {index} has another text: {made.sentence[rows[index]]!r}")
    if len(made) > len(original):
        extra = sorted(set(made.sentence_index) - set(original.sentence_index))
        if not said:
            return Verdict("WRONG", f"sentences {extra} appeared")
    return Verdict("noted" if said else "unseen", "numbers changed" if changed else "")
