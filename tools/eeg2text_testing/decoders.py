"""Simulated decoders of any quality, as rows of predictions: each works, and no target reaches it.

References are random words with commas; a decoder gets each word right with a chance that differs by row.
"""

import dataclasses
import random
from collections.abc import Sequence

from eeg2text_jax.instrument.predictions.file import Prediction

Rows = list[Prediction]
LENGTHS = (6, 21)  # words of a reference, the upper bound excluded
COMMA = 0.15


def written(readers: int, seed: int = 0, sentences: int = 60, tail: float = 0.5) -> tuple[Rows, list[str]]:
    """Rows of random words of as many readers of each sentence, and the words that there are.

    `tail` is the exponent of their frequencies: the smaller, the fewer words two sentences share.
    """
    rng = random.Random(seed)
    vocabulary = [f"w{int(rng.paretovariate(tail))}" for _ in range(4000)]
    rows = []
    for s in range(sentences):
        words = rng.choices(vocabulary, k=rng.randrange(*LENGTHS))
        text = " ".join(f"{word}," if rng.random() < COMMA else word for word in words)
        for u in range(readers):
            guess = " ".join(rng.choices(vocabulary, k=rng.randrange(*LENGTHS)))
            fields = (f"{s}-{u}", f"reader {u}", "NR", f"s{s}", len(words), "eeg", "eeg", 0, "free_running")
            rows.append(Prediction(*fields, text, guess))
    return rows, vocabulary


def decoded(rows: Sequence[Prediction], vocabulary: Sequence[str], right: float, seed: int = 1) -> Rows:
    """Each word right with a chance that differs by row around `right`; words are dropped and added."""
    rng = random.Random(seed)

    def text(row: Prediction) -> str:
        share = min(1.0, max(0.0, rng.gauss(right, right * (1 - right))))
        out = []
        for word in row.reference.split():
            if rng.random() < share:
                out.append(word)
            elif rng.random() < 0.8:
                out += rng.choices(vocabulary, k=rng.choice((1, 1, 1, 2)))
        return " ".join(out) or vocabulary[0]

    return [dataclasses.replace(row, prediction=text(row)) for row in rows]


def word_by_word(rows: Sequence[Prediction], vocabulary: Sequence[str], right: float, seed: int = 3) -> Rows:
    """A decoder that is told when each word was read: as many words as the reference."""
    rng = random.Random(seed)

    def text(row: Prediction) -> str:
        return " ".join(w if rng.random() < right else rng.choice(vocabulary) for w in row.reference.split())

    return [dataclasses.replace(row, prediction=text(row)) for row in rows]


def chosen(rows: Sequence[Prediction], right: float, seed: int = 4) -> Rows:
    """A choice among the sentences of the file: right as a whole, or another sentence."""
    rng = random.Random(seed)
    texts = sorted({row.reference for row in rows})
    return [
        dataclasses.replace(row, prediction=row.reference if rng.random() < right else rng.choice(texts))
        for row in rows
    ]


def exchanged(rows: Sequence[Prediction], step: int = 7) -> Rows:
    """A control: the same predictions over other sentences, each reader's in the same other order."""
    sentences = sorted({row.sentence_id for row in rows})
    others = dict(zip(sentences, sentences[step:] + sentences[:step], strict=True))
    said = {(row.sentence_id, row.subject): row.prediction for row in rows}
    return [dataclasses.replace(row, prediction=said[others[row.sentence_id], row.subject]) for row in rows]


def unsaid(rows: Sequence[Prediction]) -> Rows:
    return [dataclasses.replace(row, mode="unknown") for row in rows]


def of_words(sentences: int = 90, readers: int = 4, seed: int = 0) -> tuple[Rows, dict[str, list[str]]]:
    """Sentences without marks of a language in which a word has a few others after it, and that language."""
    rng = random.Random(seed)
    vocabulary = [f"w{i}" for i in range(200)]
    after = {word: [vocabulary[int(rng.random() ** 2 * 200)] for _ in range(6)] for word in vocabulary}
    rows = []
    for s in range(sentences):
        words = [rng.choice(vocabulary)]
        while len(words) < rng.randrange(12, 22):
            words.append(rng.choice(after[words[-1]]))
        for u in range(readers):
            fields = (f"{s}-{u}", f"reader {u}", "NR", f"s{s}", len(words), "eeg", "eeg", 0, "free_running")
            rows.append(Prediction(*fields, " ".join(words), ""))
    return rows, after


def by_language(
    rows: Sequence[Prediction], after: dict[str, list[str]], right: float, *, forced: bool, seed: int = 2
) -> Rows:
    """Each word read with a chance, else what the language has after the word before: the true one (`forced`) or the
    decoder's own."""
    rng = random.Random(seed)

    def text(row: Prediction) -> str:
        said = ["w0"]
        for i, word in enumerate(true := row.reference.split()):
            before = true[i - 1] if forced and i else said[-1]
            said.append(word if rng.random() < right else after[before][0 if rng.random() < 0.5 else rng.randrange(6)])
        return " ".join(said[1:])

    return [dataclasses.replace(row, prediction=text(row)) for row in rows]
