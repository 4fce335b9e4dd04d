"""Made-up test sets with decoders that know the clock of a recording, words of the sentence, or both."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from eeg2text_jax.predictions.file import Prediction

COMMON = 60  # words that any sentence may have


@dataclasses.dataclass(frozen=True)
class Clocked:
    """What to simulate.

    Fields:
      sentences: distinct ones, read by every subject.
      block: sentences of a class that follow each other; 1: classes in random order.
      same_order: all subjects meet the sentences in one order.
      blocked: the test part is one stretch of each recording; else every fifth text at random.
      exact: standard deviation, in sentences, of the time that the decoder knows.
      words: chance that the decoder names a word of the sentence.
    """

    sentences: int = 300
    classes: int = 12
    subjects: int = 6
    block: int = 12
    same_order: bool = False
    blocked: bool = False
    exact: float = 0.0
    words: float = 0.0


def made(spec: Clocked, seed: int) -> tuple[dict[str, list[Prediction]], dict[str, str]]:
    """Rows by condition (eeg, shuffled, and the controls of time), and the class of each reference."""
    rng = np.random.default_rng(seed)
    n = spec.sentences
    label = np.arange(n) % spec.classes
    texts = [
        f"class{c} thing{c} own{i} thus{i} {' '.join(f'w{k}' for k in rng.integers(COMMON, size=rng.integers(1, 5)))}"
        for i, c in enumerate(label)
    ]
    first = _order(spec, label, rng)
    orders = [first if spec.same_order else _order(spec, label, rng) for _ in range(spec.subjects)]
    test = np.zeros(n, bool)
    test[first[: n // 5] if spec.blocked else rng.permutation(n)[: n // 5]] = True
    found: dict[str, list[Prediction]] = {}
    for subject, order in enumerate(orders):
        for name, row in _readings(spec, texts, label, order, test, f"S{subject + 1}", rng):
            found.setdefault(name, []).append(row)
    return found, {text: f"class {c}" for text, c in zip(texts, label.tolist(), strict=True)}


def _order(spec: Clocked, label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sentences in the order in which they are shown: blocks of a class, in random order."""
    blocks = [
        part
        for c in range(spec.classes)
        for part in np.array_split(rng.permutation(np.flatnonzero(label == c)), -(-(label == c).sum() // spec.block))
    ]
    return np.concatenate([blocks[k] for k in rng.permutation(len(blocks))])


def _readings(
    spec: Clocked,
    texts: list[str],
    label: np.ndarray,
    order: np.ndarray,
    test: np.ndarray,
    subject: str,
    rng: np.random.Generator,
) -> Iterator[tuple[str, Prediction]]:
    train, tested = np.flatnonzero(~test[order]), np.flatnonzero(test[order])  # places in the order

    def from_clock(place: float) -> list[str]:
        """Words of the class that a clock tells, among common ones."""
        near = order[train[np.argmin(np.abs(train - place))]]
        return [f"class{label[near]}", f"thing{label[near]}", *(f"w{k}" for k in rng.integers(COMMON, size=3))]

    def decode(place: int, error: float) -> str:
        """What a decoder writes that was fed the recording of this place."""
        words = from_clock(place + error * rng.standard_normal())
        if rng.random() < spec.words:
            words[-1] = texts[order[place]].split()[2]
        return " ".join(words)

    others = rng.permutation(tested)
    for place, other in zip(tested.tolist(), others.tolist(), strict=True):
        i = int(order[place])
        beside = tested[tested != place]
        neighbor = int(beside[np.argmin(np.abs(beside - place))])
        copied = texts[order[train[np.argmin(np.abs(train - place))]]]
        outputs = {
            "eeg": decode(place, spec.exact),
            "shuffled": decode(other, spec.exact),
            "clock": " ".join(from_clock(place)),
            "neighbor": decode(neighbor, spec.exact),
            "nearest_in_time": copied,
        }
        for name, text in outputs.items():
            trained = "clock" if name == "clock" else "eeg"
            about = (f"{subject}/T:{i}", subject, "T", f"T:{i}", len(texts[i].split()), trained, name, 0)
            time = {"recording": subject, "onset": 4.0 * place, "duration": 3.0, "order": place}
            yield name, Prediction(*about, "free_running", texts[i], text, **time)
