"""Made-up test sets with decoders that know the clock of a recording, words of the sentence, or both."""

import dataclasses

import numpy as np

from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_testing.prediction_sets import PAD, text_of

CLASSES = 12
COMMON = 60  # words that any sentence may have
LONGEST = 8  # words of a sentence


@dataclasses.dataclass(frozen=True)
class Clocked:
    sentences: int = 300  # distinct ones, read by every subject; every fifth at random is tested
    subjects: int = 6
    block: int = 12  # sentences of a class that follow each other; 1: classes in random order
    words: float = 0.0  # how many of the sentence's two own words the decoder names on average: one, then both


def made(spec: Clocked, seed: int) -> tuple[dict[str, list[Prediction]], dict[str, str]]:
    """Rows of text by condition, and the class of each reference."""
    rng, n = np.random.default_rng(seed), spec.sentences
    label, first_common = np.arange(n) % CLASSES, 2 * CLASSES + 2 * n
    texts = np.full((n, LONGEST), PAD)  # words are numbers: two of the class, two of its own, one to four common ones
    texts[:, :2] = _class_words(label)
    texts[:, 2:4] = 2 * CLASSES + 2 * np.arange(n)[:, None] + (0, 1)
    common = first_common + rng.integers(COMMON, size=(n, 4))
    texts[:, 4:] = np.where(np.arange(4) < rng.integers(1, 5, size=n)[:, None], common, PAD)
    test, references = np.zeros(n, bool), list(map(text_of, texts))
    test[rng.permutation(n)[: n // 5]] = True
    found: dict[str, list[Prediction]] = {}
    for subject in range(spec.subjects):
        order = _order(spec, label, rng)
        places = np.flatnonzero(test[order])
        for condition, written in _read(spec, texts, label, order, test, rng).items():
            rows = zip(order[places].tolist(), places.tolist(), written, strict=True)
            made_rows = [_row(references[s], s, subject, place, condition, text_of(words)) for s, place, words in rows]
            found.setdefault(condition, []).extend(made_rows)
    return found, {text: f"class {c}" for text, c in zip(references, label.tolist(), strict=True)}


def _class_words(label: np.ndarray) -> np.ndarray:
    return 2 * label[..., None] + (0, 1)


def _order(spec: Clocked, label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sentences in the order in which they are shown: blocks of a class, in random order."""
    drawn = [rng.permutation(np.flatnonzero(label == c)) for c in range(CLASSES)]
    blocks = [part for shown in drawn for part in np.array_split(shown, -(-len(shown) // spec.block))]
    return np.concatenate([blocks[k] for k in rng.permutation(len(blocks))])


def _read(
    spec: Clocked, texts: np.ndarray, label: np.ndarray, order: np.ndarray, test: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """What is written for the test part of one recording, by condition, `[T, 8]` each."""
    train, tested = np.flatnonzero(~test[order]), np.flatnonzero(test[order])  # places in the order
    first_common = 2 * CLASSES + 2 * spec.sentences

    def nearest(places: np.ndarray) -> np.ndarray:
        return order[train[np.abs(places[:, None] - train).argmin(1)]]

    def from_clock(places: np.ndarray) -> np.ndarray:
        """Words of the class that a clock tells, among three common ones."""
        words = np.full((len(places), LONGEST), PAD)
        words[:, :2] = _class_words(label[nearest(places)])
        words[:, 2:5] = first_common + rng.integers(COMMON, size=(len(places), 3))
        return words

    def decode(places: np.ndarray) -> np.ndarray:
        """What a decoder writes that was fed the recordings of these places."""
        words, drawn = from_clock(places), rng.random(len(places))
        for k in (0, 1):
            words[:, 4 - k] = np.where(drawn < spec.words - k, texts[order[places], 2 + k], words[:, 4 - k])
        return words

    apart = np.abs(tested[:, None] - tested).astype(float)
    np.fill_diagonal(apart, np.inf)
    return {
        "eeg": decode(tested),
        "shuffled": decode(rng.permutation(tested)),
        "clock": from_clock(tested),
        "neighbor": decode(tested[apart.argmin(1)]),
        "nearest_in_time": texts[nearest(tested)],
    }


def _row(reference: str, sentence: int, subject: int, place: int, condition: str, text: str) -> Prediction:
    name, id_ = f"S{subject + 1}", f"T:{sentence}"
    trained = "clock" if condition == "clock" else "eeg"
    about = (f"{name}/{id_}", name, "T", id_, len(reference.split()), trained, condition, 0)
    time = {"recording": name, "onset": 4.0 * place, "duration": 3.0, "order": place}
    return Prediction(*about, "free_running", reference, text, **time)
