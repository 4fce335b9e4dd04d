"""Made-up test sets with decoders that know the clock of a recording, words of the sentence, or both."""

import dataclasses

import numpy as np

from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_testing.prediction_sets import PAD

CONDITIONS = ("eeg", "shuffled", "clock", "neighbor", "nearest_in_time")
COMMON = 60  # words that any sentence may have
LONGEST = 8  # words of a sentence


@dataclasses.dataclass(frozen=True)
class Clocked:
    """What to simulate.

    Fields:
      sentences: distinct ones, read by every subject.
      block: sentences of a class that follow each other; 1: classes in random order.
      same_order: all subjects meet the sentences in one order.
      blocked: the test part is one stretch of each recording; else every fifth text at random.
      exact: standard deviation, in sentences, of the time that the decoder knows.
      words: how many of the sentence's two own words the decoder names on average, 0 to 2: one, then both.
    """

    sentences: int = 300
    classes: int = 12
    subjects: int = 6
    block: int = 12
    same_order: bool = False
    blocked: bool = False
    exact: float = 0.0
    words: float = 0.0


@dataclasses.dataclass(frozen=True)
class Readings:
    """What was read and written, as numbers of words (shapes: `S` sentences, `R` rows of the test part).

    Fields:
      texts: words of each sentence, int `[S, 8]`, padded with -1: two of its class, two of its own, one to four common.
      label: class of each sentence, `[S]`.
      sentence, subject, place: of each row, `[R]`; `place` is the sentence's place in the recording.
      written: words by condition, `[R, 8]` each.
    """

    texts: np.ndarray
    label: np.ndarray
    sentence: np.ndarray
    subject: np.ndarray
    place: np.ndarray
    written: dict[str, np.ndarray]


def readings(spec: Clocked, seed: int) -> Readings:
    """Draws one test set."""
    rng = np.random.default_rng(seed)
    n = spec.sentences
    label = np.arange(n) % spec.classes
    first_common = 2 * spec.classes + 2 * n
    texts = np.full((n, LONGEST), PAD)
    texts[:, :2] = _class_words(label)
    texts[:, 2:4] = 2 * spec.classes + 2 * np.arange(n)[:, None] + (0, 1)
    common = first_common + rng.integers(COMMON, size=(n, 4))
    texts[:, 4:] = np.where(np.arange(4) < rng.integers(1, 5, size=n)[:, None], common, PAD)
    first = _order(spec, label, rng)
    orders = [first if spec.same_order else _order(spec, label, rng) for _ in range(spec.subjects)]
    test = np.zeros(n, bool)
    test[first[: n // 5] if spec.blocked else rng.permutation(n)[: n // 5]] = True
    read = [_read(spec, texts, label, order, test, rng) for order in orders]
    places = [np.flatnonzero(test[order]) for order in orders]
    return Readings(
        texts=texts,
        label=label,
        sentence=np.concatenate([order[place] for order, place in zip(orders, places, strict=True)]),
        subject=np.repeat(np.arange(spec.subjects), n // 5),
        place=np.concatenate(places),
        written={name: np.concatenate([one[name] for one in read]) for name in CONDITIONS},
    )


def _class_words(label: np.ndarray) -> np.ndarray:
    """The two words of a class, `[..., 2]`."""
    return 2 * label[..., None] + (0, 1)


def _order(spec: Clocked, label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sentences in the order in which they are shown: blocks of a class, in random order."""
    drawn = [rng.permutation(np.flatnonzero(label == c)) for c in range(spec.classes)]
    blocks = [part for shown in drawn for part in _parts(shown, spec.block)]
    return np.concatenate([blocks[k] for k in rng.permutation(len(blocks))])


def _parts(shown: np.ndarray, longest: int) -> list[np.ndarray]:
    """As few parts of about equal length as keep to the longest; `np.array_split` takes half of a set's time here."""
    count = -(-len(shown) // longest)
    size, larger = divmod(len(shown), count)
    ends = np.cumsum([size + (k < larger) for k in range(count)]).tolist()
    return [shown[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def _read(
    spec: Clocked, texts: np.ndarray, label: np.ndarray, order: np.ndarray, test: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """What is written for the test part of one recording, by condition, `[T, 8]` each."""
    train, tested = np.flatnonzero(~test[order]), np.flatnonzero(test[order])  # places in the order
    first_common = 2 * spec.classes + 2 * spec.sentences

    def nearest(places: np.ndarray) -> np.ndarray:
        """The training sentence nearest in time."""
        return order[train[np.abs(places[:, None] - train).argmin(1)]]

    def from_clock(places: np.ndarray) -> np.ndarray:
        """Words of the class that a clock tells, among three common ones."""
        words = np.full((len(places), LONGEST), PAD)
        words[:, :2] = _class_words(label[nearest(places)])
        words[:, 2:5] = first_common + rng.integers(COMMON, size=(len(places), 3))
        return words

    def decode(places: np.ndarray) -> np.ndarray:
        """What a decoder writes that was fed the recordings of these places."""
        words = from_clock(places + spec.exact * rng.standard_normal(len(places)))
        drawn = rng.random(len(places))
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


def made(spec: Clocked, seed: int) -> tuple[dict[str, list[Prediction]], dict[str, str]]:
    """Rows of text by condition, and the class of each reference."""
    drawn = readings(spec, seed)
    texts = list(map(_text, drawn.texts))
    rows = list(zip(drawn.sentence.tolist(), drawn.subject.tolist(), drawn.place.tolist(), strict=True))
    found = {
        name: [_row(texts, *row, name, _text(words)) for row, words in zip(rows, written, strict=True)]
        for name, written in drawn.written.items()
    }
    return found, {text: f"class {c}" for text, c in zip(texts, drawn.label.tolist(), strict=True)}


def _text(words: np.ndarray) -> str:
    return " ".join(f"w{word}" for word in words.tolist() if word != PAD)


def _row(texts: list[str], sentence: int, subject: int, place: int, condition: str, text: str) -> Prediction:
    name, id_ = f"S{subject + 1}", f"T:{sentence}"
    trained = "clock" if condition == "clock" else "eeg"
    about = (f"{name}/{id_}", name, "T", id_, len(texts[sentence].split()), trained, condition, 0)
    time = {"recording": name, "onset": 4.0 * place, "duration": 3.0, "order": place}
    return Prediction(*about, "free_running", texts[sentence], text, **time)
