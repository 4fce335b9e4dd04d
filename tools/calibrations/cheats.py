"""Sixty ways to cheat the audit: how many pass as a run's (none may), and how many as stated, which are counted.

    python tools/calibrations/cheats.py

Every cheat makes rows of a file that states that it ran free, most of them from targets, on 60 sentences of random
words read by 4 people; the control is noise. A cheat passes as stated where content is claimed: a lie in a statement
cannot be seen where the outputs are those that an honest decoder would have, and the report says whose statement it is.
It passes as a run's where digests tie it to a run: cheats are written with the headers and folders of a run forged
beside them. Not among them is a whole forged folder with checkpoints: see docs/verdict.md. Ten seconds on one core.
"""

import argparse
import dataclasses
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

from eeg2text_jax.base.files import file_digest
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.verdict import Verdict
from eeg2text_jax.instrument.predictions.file import Prediction, write_predictions
from eeg2text_jax.instrument.predictions.read import read_any
from eeg2text_jax.instrument.workdir import is_of_its_run
from eeg2text_testing.decoders import Rows, chosen, written

NOISE, VOCABULARY = written(4)
Text = Callable[[Prediction, random.Random], str]
Cheat = Callable[[], Rows]


def words(row: Prediction) -> list[str]:
    return row.reference.split()


def each(text: Text, share: float = 1.0) -> Cheat:
    def made() -> Rows:
        rng = random.Random(5)
        return [dataclasses.replace(r, prediction=text(r, rng)) if rng.random() < share else r for r in NOISE]

    return made


def one_for_all(text: Text) -> Cheat:
    def made() -> Rows:
        rng, known = random.Random(6), {}
        return [dataclasses.replace(r, prediction=known.setdefault(r.sentence_id, text(r, rng))) for r in NOISE]

    return made


def of_reader(text: Text, which: str = "reader 0") -> Cheat:
    """Another text for one reader alone."""

    def made() -> Rows:
        rng = random.Random(7)
        return [dataclasses.replace(r, prediction=text(r, rng)) if r.subject == which else r for r in NOISE]

    return made


def joined(*parts: str) -> str:
    return " ".join(" ".join(parts).split())


def replaced(share: float) -> Text:
    """Each word of the target by another at random."""
    return lambda r, rng: " ".join(rng.choice(VOCABULARY) if rng.random() < share else w for w in words(r))


def edited(count: int) -> Text:
    """Exactly so many words of the target replaced."""

    def text(row: Prediction, rng: random.Random) -> str:
        out = words(row)
        for place in rng.sample(range(len(out)), count):
            out[place] = f"x{rng.randrange(9999)}"
        return " ".join(out)

    return text


def without(place: int) -> Text:
    return lambda r, _: " ".join(w for i, w in enumerate(words(r)) if i != place % len(words(r)))


def part(first: float, last: float) -> Text:
    return lambda r, _: " ".join(words(r)[int(first * len(words(r))) : max(5, int(last * len(words(r))))])


def misspelt(row: Prediction, rng: random.Random) -> str:
    return " ".join(f"{w}{rng.choice('abc')}" for w in words(row))


def forced(right: float, marks: float) -> Text:
    """As the most likely token given the true ones before it: words right with a chance, marks with a higher one."""

    def text(row: Prediction, rng: random.Random) -> str:
        out = []
        for word in words(row):
            plain = word.rstrip(",")
            said = plain if rng.random() < right else rng.choice(VOCABULARY)
            out.append(f"{said}," if word != plain and rng.random() < marks else said)
        return " ".join(out)

    return text


def as_long(row: Prediction, rng: random.Random) -> str:
    return " ".join(rng.choices(VOCABULARY, k=len(words(row))))


def as_many_letters(row: Prediction, rng: random.Random) -> str:
    return joined(*rng.choices(VOCABULARY, k=60))[: len(row.reference)]


def with_its_marks(row: Prediction, rng: random.Random) -> str:
    return " ".join(f"{rng.choice(VOCABULARY)}{',' if w.endswith(',') else ''}" for w in words(row))


def best_of(count: int) -> Text:
    """The output, of many random ones, that shares most words with the target."""

    def text(row: Prediction, rng: random.Random) -> str:
        drawn = (rng.choices(VOCABULARY, k=len(words(row))) for _ in range(count))
        return " ".join(max(drawn, key=lambda out: len(set(out) & set(words(row))) / len(out)))

    return text


def hits(row: Prediction) -> float:
    return len(set(row.prediction.split()) & set(words(row))) / max(1, len(row.prediction.split()))


def best_rows() -> Rows:
    """The better half of the rows of every reader."""
    ranked = sorted(NOISE, key=hits, reverse=True)
    kept = {id(r) for r in ranked[: len(ranked) // 2]}
    return [r for r in NOISE if id(r) in kept]


def best_sentences() -> Rows:
    scores: dict[str, float] = {}
    for row in NOISE:
        scores[row.sentence_id] = scores.get(row.sentence_id, 0) + hits(row)
    kept = sorted(scores, key=scores.get, reverse=True)[:40]
    return [r for r in NOISE if r.sentence_id in kept]


def best_reader() -> Rows:
    """One row a sentence: that of the reader who has most words right."""
    by_sentence: dict[str, list[Prediction]] = {}
    for row in NOISE:
        by_sentence.setdefault(row.sentence_id, []).append(row)
    return [max(rows, key=hits) for rows in by_sentence.values()]


def exchanged_columns(share: float) -> Cheat:
    """Targets in the column of predictions, edited ones in that of references."""
    text = replaced(share)

    def made() -> Rows:
        rng, known = random.Random(8), {}
        return [
            dataclasses.replace(r, reference=known.setdefault(r.sentence_id, text(r, rng)), prediction=r.reference)
            for r in NOISE
        ]

    return made


def listed(right: float, same: bool = False) -> Cheat:
    """A choice among all sentences, the answer among them; by reader, or one choice for all."""

    def made() -> Rows:
        rows = chosen(NOISE, right)
        first = {r.sentence_id: r.prediction for r in reversed(rows)}
        return [dataclasses.replace(r, prediction=first[r.sentence_id]) for r in rows] if same else rows

    return made


def of_equal_length() -> Rows:
    """Another sentence of as many words: knows the length and nothing else."""
    rng = random.Random(9)
    lengths: dict[int, list[str]] = {}
    for row in NOISE:
        lengths.setdefault(len(words(row)), []).append(row.reference)
    return [dataclasses.replace(r, prediction=rng.choice(lengths[len(words(r))])) for r in NOISE]


HALF = part(0, 0.5)
CHEATS: dict[str, Cheat] = {
    "the target": each(lambda r, _: r.reference),
    "with other marks": each(lambda r, _: r.reference.replace(",", ";")),
    "in capitals": each(lambda r, _: r.reference.upper()),
    "without marks": each(lambda r, _: r.reference.replace(",", "")),
    "with one more mark": each(lambda r, _: f"{r.reference}."),
    "with a word before it": each(lambda r, _: f"reads {r.reference}"),
    "with words after it": each(lambda r, rng: joined(r.reference, *rng.choices(VOCABULARY, k=3))),
    "twice": each(lambda r, _: f"{r.reference} {r.reference}"),
    "backwards": each(lambda r, _: " ".join(reversed(words(r)))),
    "in another order": each(lambda r, rng: " ".join(rng.sample(words(r), len(words(r))))),
    "sorted": each(lambda r, _: " ".join(sorted(words(r)))),
    "every word misspelt": each(misspelt),
    "one word changed": each(edited(1)),
    "two words changed": each(edited(2)),
    "three words changed": each(edited(3)),
    "less its last word": each(without(-1)),
    "less its first word": each(without(0)),
    "less its third word": each(without(2)),
    "a tenth of words replaced": each(replaced(0.1)),
    "half of words replaced": each(replaced(0.5)),
    "nine tenths of words replaced": each(replaced(0.9)),
    "in 5 % of rows": each(lambda r, _: r.reference, 0.05),
    "in 2 % of rows": each(lambda r, _: r.reference, 0.02),
    "in 20 % of rows": each(lambda r, _: r.reference, 0.2),
    "less its last word in 5 % of rows": each(without(-1), 0.05),
    "less its first word in 5 % of rows": each(without(0), 0.05),
    "one word changed in 5 % of rows": each(edited(1), 0.05),
    "two words changed in 10 % of rows": each(edited(2), 0.1),
    "a tenth replaced in 20 % of rows": each(replaced(0.1), 0.2),
    "half replaced in 20 % of rows": each(replaced(0.5), 0.2),
    "in capitals in 10 % of rows": each(lambda r, _: r.reference.upper(), 0.1),
    "half of it in 10 % of rows": each(HALF, 0.1),
    "of one reader": of_reader(lambda r, _: r.reference),
    "one word changed, of one reader": of_reader(edited(1)),
    "half replaced, of one reader": of_reader(replaced(0.5)),
    "its first half": each(HALF),
    "its last half": each(part(0.5, 1)),
    "its first five words": each(lambda r, _: " ".join(words(r)[:5])),
    "its first four fifths": each(part(0, 0.8)),
    "its first half and noise": each(lambda r, rng: joined(HALF(r, rng), *rng.choices(VOCABULARY, k=6))),
    "its number of words": each(as_long),
    "its number of letters": each(as_many_letters),
    "its number of words, and its marks": each(with_its_marks),
    "another sentence of its length": of_equal_length,
    "a list with the answer, right in 90 %": listed(0.9),
    "a list with the answer, right in 40 %": listed(0.4),
    "one choice from a list for all readers": listed(0.4, same=True),
    "half replaced, one text for all readers": one_for_all(replaced(0.5)),
    "nine tenths replaced, one text for all": one_for_all(replaced(0.9)),
    "teacher-forced, a text a reader": each(forced(0.35, 0.8)),
    "teacher-forced, one text for all": one_for_all(forced(0.35, 0.8)),
    "teacher-forced, marks left out": one_for_all(forced(0.35, 0.0)),
    "teacher-forced, poor": one_for_all(forced(0.15, 0.6)),
    "the best of 20 outputs": each(best_of(20)),
    "the best of 200 outputs": each(best_of(200)),
    "the better half of the rows": best_rows,
    "the better two thirds of the sentences": best_sentences,
    "the best reader of each sentence": best_reader,
    "columns exchanged, half replaced": exchanged_columns(0.5),
    "columns exchanged, a tenth replaced": exchanged_columns(0.1),
}


def stated(rows: Rows) -> tuple[str, list[str]]:
    """The verdict against noise, and why there is none where there is none."""
    same = {r.reference for r in rows} <= {r.reference for r in NOISE}
    controls = {"noise": NOISE} if same else {}
    result = audit(rows, controls, common=True, proof="no target was given to the decoder")
    return result.verdict.base.value, [notice.code for notice in result.notices if notice.bars]


def of_a_run(rows: Rows, folder: Path) -> bool:
    """Whether any forgery makes the command say that it decoded the rows itself."""
    headers = ({}, {"config": {}, "decode": {}, "split": {}}, {"config": "a" * 64, "split": "b" * 64, "decode": {}})
    found = False
    for number, header in enumerate(headers):
        root = folder / str(number)
        root.mkdir(exist_ok=True)
        write_predictions(root / "predictions.jsonl", header, rows)
        (root / "config.json").write_text("{}")
        (root / "split.json").write_text('{"test": []}')
        noted = {name: file_digest(root / name) for name in ("predictions.jsonl", "split.json")}
        (root / "finished.json").write_text(json.dumps(noted))
        found |= is_of_its_run(read_any(root / "predictions.jsonl"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    passed = shown = 0
    for name, cheat in CHEATS.items():
        rows = cheat()
        said, why = stated(rows)
        with tempfile.TemporaryDirectory() as folder:
            as_run = of_a_run(rows, Path(folder))
        passed += said in (Verdict.USES_EEG, Verdict.CONTENT)
        shown += as_run
        print(f"{name:42} {said:30} {', '.join(why)}{' OF A RUN' if as_run else ''}", flush=True)
    print(f"{len(CHEATS)} cheats: {shown} pass as a run's, {passed} as stated")
    return min(shown, 1)


if __name__ == "__main__":
    sys.exit(main())
