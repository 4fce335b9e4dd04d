"""Random damage to recordings, and what must hold of the data file that is made from them all the same."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.source import Tally
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_testing.wang_ji_scripts import pickle_v5
from eeg2text_testing.zuco_files import write_v5, write_v73

WAYS = ("byte", "bit", "zeros", "noise", "cut", "removed", "doubled")
TEXT_WAYS = (*WAYS, "inserted", "exchanged")
ODD = (b"\xff\xfe", b"\0", b'"', b"\t", b"\n", b"\r", b",", b"\xef\xbb\xbf", b"{", b"NaN", b"1e999", b"-1")
ODD += (b"\xe2\x80\xa8",)  # a line separator


def in_every_format(folder: Path, content: list[dict[str, Any]]) -> dict[str, Path]:
    """Writes the sentences of a subject in each format of ZuCo's recordings; returns format -> file."""
    files = {form: folder / form / "resultsZAB_SR.mat" for form in ("v5", "v7", "v7.3")}
    files["pickle"] = folder / "pickle" / "task1-SR-dataset.pickle"
    for path in files.values():
        path.parent.mkdir()
    write_v5(files["v5"], content)
    write_v5(files["v7"], content, compress=True)
    write_v73(files["v7.3"], content)
    pickle_v5(files["pickle"], {"ZAB": files["v5"]})
    return files


def corrupt(data: bytes, rng: np.random.Generator, ways: Sequence[str] = WAYS) -> tuple[str, bytes]:
    """Damages a file's content in one of `ways`, at a random place; never returns it unchanged."""
    way, at = str(rng.choice(ways)), int(rng.integers(len(data)))
    length = int(rng.integers(1, 65))
    head, old, tail = data[:at], data[at : at + length], data[at + length :]
    if way == "inserted":
        made = head + ODD[rng.integers(len(ODD))] + old + tail
    elif way == "exchanged":
        lines = data.split(b"\n")
        one, other = rng.integers(len(lines), size=2)
        lines[one], lines[other] = lines[other], lines[one]
        made = b"\n".join(lines)
    else:
        made = {
            "byte": head + bytes([(data[at] + int(rng.integers(1, 256))) % 256]) + data[at + 1 :],
            "bit": head + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :],
            "zeros": head + bytes(len(old)) + tail,
            "noise": head + rng.bytes(len(old)) + tail,
            "cut": head,
            "removed": head + tail,
            "doubled": head + old + old + tail,
        }[way]
    return (way, made) if made != data else corrupt(data, rng, ways)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """`refused`, `noted` (drops or notes that the intact file does not cause), `unseen` (the same data, or changed
    numbers only), or `WRONG`, with the reason."""

    kind: str
    detail: str = ""


def judge(config: ConfigDict, original: DataFile, expected: Tally, path: Path, out: Path) -> Verdict:
    """Prepares a damaged file into `out`, and compares with the data file and the tally of the intact one."""
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
