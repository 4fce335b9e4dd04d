"""Prediction sets whose truth is known, with a dial for information.

Words are numbers. A reference is drawn from a Zipf vocabulary, with some words that go with its stratum, its length, a
group of sentences and its task. A prediction is drawn from the same vocabulary; some of its words are those of other
readings of the sentence, favourites of its subject, or copied. Shapes: `G` seeds, `S` sentences, `R` rows (a subject
reading a sentence), `L` words, padded with -1.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.instrument.auditing.strata import length_strata, reader_groups
from eeg2text_jax.instrument.predictions.file import Prediction

PAD = -1
VOCABULARY = 1500  # Zipf words; frequent ones have the small numbers
FREQUENT = 6
LIST_WORDS = 6  # words that go with one stratum, length, group of sentences or task
LIST_SHARE = 0.12  # of a reference's words, per kind of list
TASK_FREQUENT = 0.15  # of the words of a reference of an odd task are frequent ones besides: it is easier to match
SENTENCE_SHARE = 0.3  # of a prediction's words, shared by all readings of a sentence for no reason in its content
SUBJECT_SHARE = 0.1  # of a prediction's words, from a few favourites of the subject
REFERENCE_WORDS = (6, 36)  # lengths, the upper bound excluded
PREDICTION_WORDS = (11, 19)
KINDS = 4  # of lists
ZIPF = np.searchsorted(
    np.cumsum(1 / np.arange(1, VOCABULARY + 1)) / np.sum(1 / np.arange(1, VOCABULARY + 1)),
    (np.arange(2**16) + 0.5) / 2**16,
)


@dataclasses.dataclass(frozen=True)
class Dials:
    information: float = 0.0  # share of a prediction's words that are copied from its reference, with EEG
    style_shift: float = 0.0  # share of frequent words, with EEG: the score rises and nothing is decoded
    seed_sd: float = 0.0  # relative sd of the information between training seeds
    sentences: int = 112
    subjects: int = 6
    tasks: int = 2
    seeds: int = 1


@dataclasses.dataclass(frozen=True)
class Simulated:
    """`predictions` are EEG's, then the control's, `[G, R, L]`; `sentence` and `subject [R]` say whose rows."""

    references: np.ndarray  # [S, L]
    n_words: np.ndarray  # [S]
    tasks: np.ndarray  # [S]
    sentence: np.ndarray
    subject: np.ndarray
    predictions: tuple[np.ndarray, ...] = ()


def simulate(dials: Dials, rng: np.random.Generator) -> Simulated:
    size = dials.sentences
    n_words = rng.integers(*REFERENCE_WORDS, size=size)
    tasks = np.arange(size) * dials.tasks // size  # one after the other, as in released files
    group = rng.permutation(np.arange(size) % 2)
    sentence = np.repeat(np.arange(size), dials.subjects)
    subject = np.concatenate([rng.choice(dials.subjects, dials.subjects, replace=False) for _ in range(size)])
    kinds = zip(tasks, reader_groups(sentence, subject), strict=True)
    strata = length_strata([f"{task}\n{readers}" for task, readers in kinds], n_words)
    references = _zipf((size, REFERENCE_WORDS[1] - 1), rng)
    easy = TASK_FREQUENT * (tasks[:, None] % 2 == 1)
    references = _overwrite(references, easy, rng.integers(FREQUENT, size=references.shape), rng)
    for kind, index in enumerate((strata, n_words, group, tasks)):
        first = VOCABULARY + (index * KINDS + kind) * LIST_WORDS
        references = _overwrite(references, LIST_SHARE, first[:, None] + _pick(references.shape, rng), rng)
    references = np.where(np.arange(references.shape[1]) < n_words[:, None], references, PAD)
    simulated = Simulated(references, n_words, tasks, sentence, subject)
    scale = np.maximum(0, 1 + dials.seed_sd * rng.standard_normal(dials.seeds))
    eeg = _predict(simulated, dials.information * scale, dials.style_shift, rng)
    return dataclasses.replace(simulated, predictions=(eeg, _predict(simulated, 0.0 * scale, 0.0, rng)))


def _predict(simulated: Simulated, information: np.ndarray, style: float, rng: np.random.Generator) -> np.ndarray:
    sentence, seeds = simulated.sentence, len(information)
    shape = (seeds, len(sentence), PREDICTION_WORDS[1] - 1)  # [G, R, L]
    words = _overwrite(_zipf(shape, rng), style, rng.integers(FREQUENT, size=shape), rng)
    shared = _zipf((seeds, len(simulated.n_words), shape[2]), rng)[:, sentence]
    words = _overwrite(words, SENTENCE_SHARE, shared, rng)
    favourites = _zipf((simulated.subject.max() + 1, LIST_WORDS), rng)
    words = _overwrite(words, SUBJECT_SHARE, favourites[simulated.subject[:, None], _pick(shape, rng)], rng)
    if information.any():
        position = (rng.random(shape) * simulated.n_words[sentence, None]).astype(int)
        copied = simulated.references[sentence[:, None], position]
        words = _overwrite(words, information[:, None, None], copied, rng)
    lengths = rng.integers(*PREDICTION_WORDS, size=shape[:2])
    return np.where(np.arange(shape[2]) < lengths[..., None], words, PAD)


def _zipf(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Words with probability proportional to 1 / rank, to 1 in 65,536."""
    return ZIPF[rng.integers(len(ZIPF), size=shape, dtype=np.uint16)]


def _pick(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.integers(LIST_WORDS, size=shape)


def _overwrite(words: np.ndarray, share: float | np.ndarray, new: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(words.shape) < share, new, words)


def as_predictions(simulated: Simulated, names: Sequence[str] = ("eeg", "noise")) -> tuple[list[Prediction], ...]:
    """The same set as rows of text: EEG's and the control's."""
    return tuple(
        [
            _row(simulated, words[g, r], condition, g, s, u)
            for g in range(words.shape[0])
            for r, (s, u) in enumerate(zip(simulated.sentence, simulated.subject, strict=True))
        ]
        for condition, words in zip(names, simulated.predictions, strict=True)
    )


def _row(simulated: Simulated, words: np.ndarray, condition: str, g: int, s: int, u: int) -> Prediction:
    about = (f"s{s}-u{u}", f"subject {u}", f"task {simulated.tasks[s]}", f"s{s}", int(simulated.n_words[s]))
    return Prediction(*about, "eeg", condition, g, "free_running", text_of(simulated.references[s]), text_of(words))


def text_of(words: np.ndarray) -> str:
    return " ".join(f"w{word}" for word in words if word != PAD)
