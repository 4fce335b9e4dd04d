"""Random damage to files of labelled pairs and to judge folders: each is read whole, or refused in one sentence.

    python tools/checks/mutate_judge.py [--count 300] [--first 0]

A file of pairs that is read must give as many pairs as it has records; a judge that is read must be the one that was
written, but for what its JSON says of people's figures. Anything else than a sentence (a traceback) is a failure.
"""

import argparse
import csv
import dataclasses
import io
import random
import tempfile
from pathlib import Path

import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge._edits import make_pairs
from eeg2text_jax.judge._judge_folder import Judge, read_judge, write_judge
from eeg2text_jax.judge.pairs import read_pairs, write_pairs
from eeg2text_jax.judge.toy import sentences
from eeg2text_jax.judge.wording import TEMPLATES, Labels, Wording

ODD = (b"\xff\xfe", b"\0", b'"', b"\t", b"\n", b"\r", b",", b"\xef\xbb\xbf", b"{", b"NaN", b"1e999", b"-1")
ODD += (b"\xe2\x80\xa8",)  # a line separator


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The bytes with one kind of damage: a cut, a hole, something put in, doubled or exchanged."""
    kind, at = rng.randrange(6), rng.randrange(len(content) + 1)
    end = min(len(content), at + rng.choice((1, 1, 2, 8, 64)))
    lines = content.split(b"\n")
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + content[end:]
    if kind == 2:
        return content[:at] + rng.choice(ODD) + content[at:]
    if kind == 3:
        return content[:at] + bytes(rng.randrange(256) for _ in range(end - at)) + content[end:]
    if kind == 4:
        line = rng.randrange(len(lines))
        return b"\n".join([*lines[:line], lines[line], *lines[line:]])
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


def a_judge() -> Judge:
    """A judge of no model in particular."""
    prompt = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    labels = Labels(("yes", "no"), ((7,), (9,)))
    wording = Wording("plain", TEMPLATES["plain"])
    return Judge(
        *("../toy", "a" * 64, "tok", "float32", "float32"), wording, labels, prompt, 0.5, "found", "preserved",
        "human labels", "b" * 64, {"auc_test": 0.9},
    )  # fmt: skip


def try_pairs(folder: Path, rng: random.Random) -> str:
    """One damaged file of pairs: "read" or "refused"."""
    made = make_pairs(list(sentences(15, rng.randrange(99))), per_sentence=1, preserved=0.4, seed=rng.randrange(99))
    path = folder / "pairs.tsv"
    path.write_bytes(damaged(write_pairs(made).encode(), rng))
    try:
        found = read_pairs(path, "severity" if rng.random() < 0.5 else "")
    except UserError as error:
        check_sentence(str(error), path)
        return "refused"
    text = path.read_bytes().decode("utf-8-sig")
    records = [record for record in csv.reader(io.StringIO(text, newline=""), delimiter="\t") if record]
    if len(found) != len(records) - 1:
        raise AssertionError(f"{len(found)} pairs of {len(records) - 1} records")
    return "read"


def try_judge(folder: Path, rng: random.Random) -> str:
    """One damaged judge: "read" or "refused"."""
    place, made = folder / "judge", a_judge()
    write_judge(made, place)
    whole = read_judge(place)
    path = place / rng.choice(("judge.json", "prompt.safetensors"))
    path.write_bytes(damaged(path.read_bytes(), rng))
    try:
        found = read_judge(place)
    except UserError as error:
        check_sentence(str(error), place)
        return "refused"
    if not np.array_equal(found.prompt, made.prompt):
        raise AssertionError("another prompt was read without a word")
    for field in dataclasses.fields(Judge):
        if type(getattr(found, field.name)) is not type(getattr(whole, field.name)):
            raise AssertionError(f"{field.name} changed its kind")
    return "read"


def check_sentence(message: str, path: Path) -> None:
    """One line that names the file."""
    if "\n" in message or str(path) not in message or len(message) > 600:
        raise AssertionError(f"not a sentence about {path}: {message!r}")


def series(count: int, first: int = 0) -> dict[str, int]:
    """Runs the mutations `first` to `first + count`, pairs and judges by turns; how often each end was seen."""
    seen: dict[str, int] = {}
    for number in range(first, first + count):
        rng, attempt = random.Random(number), (try_pairs, try_judge)[number % 2]
        with tempfile.TemporaryDirectory() as folder:
            try:
                ended = attempt(Path(folder), rng)
            except Exception as error:
                raise AssertionError(f"mutation {number} ({attempt.__name__}): {error!r}") from error
        name = f"{attempt.__name__.removeprefix('try_')} {ended}"
        seen[name] = seen.get(name, 0) + 1
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    print(", ".join(f"{name}: {n}" for name, n in sorted(series(args.count, args.first).items())))


if __name__ == "__main__":
    main()
