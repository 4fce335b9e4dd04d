"""Prediction sets whose truth is known, to calibrate the audit: a dial for information and one for each leak.

Words are numbers. A reference is drawn from a Zipf vocabulary, with some words that go with its length, some that go
with its task and some that go with the group of subjects that read it. A prediction is drawn from the same vocabulary,
and each of its words may be overwritten by every dial in turn. Shapes: `G` seeds, `S` sentences, `R` rows (a subject
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
LIST_WORDS = 6  # words that go with one length, stratum, group of subjects or task
LIST_SHARE = 0.12  # of a reference's words, per kind of list
TASK_FREQUENT = 0.15  # of the words of a reference of an odd task are frequent ones besides: it is easier to match
REFERENCE_WORDS = (6, 36)  # lengths, the upper bound excluded
PREDICTION_WORDS = (11, 19)
KINDS = 4  # lists by stratum, by exact length, by group of subjects, by task
CONTROLS = ("alike", "constant", "style")

# Rows of a sentence, lowest and highest, by its task in turn: as in released test parts of ZuCo 1.0 and 2.0.
READERS = {"8-12": ((10, 12), (8, 10)), "10-18": ((10, 12), (15, 18))}
ZIPF = np.searchsorted(
    np.cumsum(1 / np.arange(1, VOCABULARY + 1)) / np.sum(1 / np.arange(1, VOCABULARY + 1)),
    (np.arange(2**16) + 0.5) / 2**16,
)


@dataclasses.dataclass(frozen=True)
class Dials:
    """Shares of a prediction's words, 0 to 1, unless said otherwise."""

    information: float = 0.0  # copied from its own reference, with EEG
    control_information: float = 0.0  # the same with the control
    style_shift: float = 0.0  # frequent words, with EEG only: the score rises and nothing is decoded
    length_leak: float = 0.0  # words that go with the stratum (task, length), with EEG and control
    eeg_length_leak: float = 0.0  # words that go with the exact length, with EEG only
    eeg_subject_leak: float = 0.0  # words that go with what the subject's group read, with EEG only
    eeg_task_leak: float = 0.0  # words that go with the task, with EEG only
    sentence_variance: float = 0.3  # shared by all readings of a sentence, for no reason in its content
    subject_variance: float = 0.1  # from a few favourites of the subject
    seed_sd: float = 0.0  # relative sd of the information between training seeds
    sentences: int = 112
    subjects: int = 6  # readers of a sentence, where `readers` says no more
    readers: str = "equal"  # or a key of READERS, or "half": one sentence has as many rows as all others together
    tasks: int = 2
    tasks_known: bool = True  # or strata are by number of words only
    seeds: int = 1
    reference_words: tuple[int, int] = REFERENCE_WORDS
    prediction_words: tuple[int, int] = PREDICTION_WORDS
    controls: tuple[str, ...] = ("alike",)  # of CONTROLS: as EEG, one constant sentence, shorter and of frequent words


@dataclasses.dataclass(frozen=True)
class Simulated:
    """`predictions` are EEG's, then each control's, `[G, R, L]`; `sentence` and `subject [R]` say whose rows."""

    references: np.ndarray  # [S, L]
    n_words: np.ndarray  # [S]
    tasks: np.ndarray  # [S]
    strata: np.ndarray  # [S]
    sentence: np.ndarray
    subject: np.ndarray
    predictions: tuple[np.ndarray, ...]
    tasks_known: bool


def simulate(dials: Dials, rng: np.random.Generator, study: np.random.Generator | None = None) -> Simulated:
    """Draws one set; with `study`, the predictions of another study of the same sentences and readers."""
    size = dials.sentences
    n_words = rng.integers(*dials.reference_words, size=size)
    tasks = np.arange(size) * dials.tasks // size  # one after the other, as in released files
    group = rng.permutation(np.arange(size) % 2)  # of the subjects that read it, where subjects leak
    sentence, subject = _read(dials, tasks, group, rng)
    kinds = zip(tasks * dials.tasks_known, reader_groups(sentence, subject), strict=True)
    strata = length_strata([f"{task}\n{readers}" for task, readers in kinds], n_words)
    lists = [_first_word(kind, index) for kind, index in enumerate((strata, n_words, group, tasks))]  # [S] each
    references = _zipf((size, dials.reference_words[1] - 1), rng)
    easy = TASK_FREQUENT * (tasks[:, None] % 2 == 1)
    references = _overwrite(references, easy, rng.integers(FREQUENT, size=references.shape), rng)
    for first in lists:
        references = _overwrite(references, LIST_SHARE, first[:, None] + _pick(references.shape, rng), rng)
    references = np.where(np.arange(references.shape[1]) < n_words[:, None], references, PAD)
    simulated = Simulated(references, n_words, tasks, strata, sentence, subject, (), dials.tasks_known)
    rng = study or rng
    scales = np.maximum(0, 1 + dials.seed_sd * rng.standard_normal((1 + len(dials.controls), dials.seeds)))
    kinds = zip(("eeg", *dials.controls), scales, strict=True)
    predictions = [_predict(dials, simulated, lists, kind, scale, rng) for kind, scale in kinds]
    return dataclasses.replace(simulated, predictions=tuple(predictions))


def _read(
    dials: Dials, tasks: np.ndarray, group: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Sentence and subject of each row, int `[R]`; subjects of a task that do not read a sentence are drawn."""
    spans = READERS.get(dials.readers, ((dials.subjects, dials.subjects),))
    low, high = np.array(spans)[tasks % len(spans)].T
    counts, pool = rng.integers(low, high + 1), high.copy()
    if dials.readers == "half":
        counts[0] = pool[0] = counts[1:].sum()
    sentence = np.repeat(np.arange(len(tasks)), counts)
    subject = np.concatenate([rng.choice(p, n, replace=False) for p, n in zip(pool, counts, strict=True)])
    if dials.eeg_subject_leak:
        subject = 2 * subject + group[sentence]
    return sentence, subject


def _predict(
    dials: Dials, simulated: Simulated, lists: list[np.ndarray], kind: str, scale: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    sentence, is_eeg = simulated.sentence, kind == "eeg"
    shape = (dials.seeds, len(sentence), dials.prediction_words[1] - 1)  # [G, R, L]
    if kind == "constant":
        return np.broadcast_to(_zipf((dials.seeds, 1, shape[2]), rng), shape)
    words = _zipf(shape, rng)
    style = {"eeg": dials.style_shift, "style": 0.4}.get(kind, 0.0)
    words = _overwrite(words, style, rng.integers(FREQUENT, size=shape), rng)
    shared = _zipf((dials.seeds, dials.sentences, shape[2]), rng)[:, sentence]
    words = _overwrite(words, dials.sentence_variance, shared, rng)
    favourites = _zipf((simulated.subject.max() + 1, LIST_WORDS), rng)
    words = _overwrite(words, dials.subject_variance, favourites[simulated.subject[:, None], _pick(shape, rng)], rng)
    only_eeg = (dials.eeg_length_leak, dials.eeg_subject_leak, dials.eeg_task_leak)
    for first, leak in zip(lists, (dials.length_leak, *(leak * is_eeg for leak in only_eeg)), strict=True):
        words = _overwrite(words, leak, first[sentence, None] + _pick(shape, rng), rng)
    information = dials.information if is_eeg else dials.control_information
    if information:
        position = (rng.random(shape) * simulated.n_words[sentence, None]).astype(int)
        copied = simulated.references[sentence[:, None], position]
        words = _overwrite(words, information * scale[:, None, None], copied, rng)
    fewest, most = dials.prediction_words
    longest = (fewest, most) if kind != "style" else (max(1, fewest // 2), max(2, most // 2))
    lengths = rng.integers(*longest, size=shape[:2])
    return np.where(np.arange(shape[2]) < lengths[..., None], words, PAD)


def _zipf(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Words with probability proportional to 1 / rank, to 1 in 65,536."""
    return ZIPF[rng.integers(len(ZIPF), size=shape, dtype=np.uint16)]


def _first_word(kind: int, index: np.ndarray) -> np.ndarray:
    return VOCABULARY + (index * KINDS + kind) * LIST_WORDS


def _pick(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.integers(LIST_WORDS, size=shape)


def _overwrite(words: np.ndarray, share: float | np.ndarray, new: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if np.ndim(share) == 0 and share == 0:
        return words
    return np.where(rng.random(words.shape) < share, new, words)


def as_predictions(simulated: Simulated, names: Sequence[str] = ("eeg", "noise")) -> tuple[list[Prediction], ...]:
    """The same set as rows of text: EEG's and each control's."""
    return tuple(
        [
            _row(simulated, words[g, r], condition, g, s, u)
            for g in range(words.shape[0])
            for r, (s, u) in enumerate(zip(simulated.sentence, simulated.subject, strict=True))
        ]
        for condition, words in zip(names, simulated.predictions, strict=True)
    )


def _row(simulated: Simulated, words: np.ndarray, condition: str, g: int, s: int, u: int) -> Prediction:
    task = f"task {simulated.tasks[s]}" if simulated.tasks_known else ""
    about = (f"s{s}-u{u}", f"subject {u}", task, f"s{s}", int(simulated.n_words[s]), "eeg", condition, g)
    return Prediction(*about, "free_running", _text(simulated.references[s]), _text(words))


def _text(words: np.ndarray) -> str:
    return " ".join(f"w{word}" for word in words if word != PAD)
