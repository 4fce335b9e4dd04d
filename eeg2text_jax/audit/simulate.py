"""Prediction sets whose truth is known, to calibrate the audit: a dial for information and one for each leak.

Words are numbers. A reference is drawn from a Zipf vocabulary, with some words that go with its length and some that
go with the group of subjects that read it. A prediction is drawn from the same vocabulary, and each of its words may
be overwritten by every dial in turn. Shapes: `G` seeds, `S` sentences, `U` subjects, `L` words, padded with -1.
"""

import dataclasses

import numpy as np

from eeg2text_jax.audit.strata import length_strata
from eeg2text_jax.predictions.file import Prediction

PAD = -1
VOCABULARY = 1500  # Zipf words; frequent ones have the small numbers
FREQUENT = 6
LIST_WORDS = 6  # words that go with one length, stratum or group of subjects
LIST_SHARE = 0.12  # of a reference's words, per kind of list
REFERENCE_WORDS = (6, 36)  # lengths, the upper bound excluded
PREDICTION_WORDS = (11, 19)
MAX_REPEATS = 36  # a word cannot occur more often in a text
KINDS = 3  # lists by stratum, by exact length, by group of subjects


@dataclasses.dataclass(frozen=True)
class Dials:
    """Shares of a prediction's words, 0 to 1, unless said otherwise."""

    information: float = 0.0  # copied from its own reference, with EEG
    control_information: float = 0.0  # the same with the control
    style_shift: float = 0.0  # frequent words, with EEG only: the score rises and nothing is decoded
    length_leak: float = 0.0  # words that go with the stratum (task, length), with EEG and control
    eeg_length_leak: float = 0.0  # words that go with the exact length, with EEG only
    eeg_subject_leak: float = 0.0  # words that go with what the subject's group read, with EEG only
    sentence_variance: float = 0.3  # shared by all readings of a sentence, for no reason in its content
    subject_variance: float = 0.1  # from a few favourites of the subject
    seed_sd: float = 0.0  # relative sd of the information between training seeds
    sentences: int = 112
    subjects: int = 6
    tasks: int = 2
    seeds: int = 1


@dataclasses.dataclass(frozen=True)
class Simulated:
    """`predictions` are EEG's and the control's, `[G, S, U, L]`; `read [S, U]` says who read what."""

    references: np.ndarray  # [S, L]
    n_words: np.ndarray  # [S]
    tasks: np.ndarray  # [S]
    strata: np.ndarray  # [S]
    read: np.ndarray
    predictions: tuple[np.ndarray, np.ndarray]


def simulate(dials: Dials, rng: np.random.Generator) -> Simulated:
    """Draws one set."""
    size = dials.sentences
    n_words = rng.integers(*REFERENCE_WORDS, size=size)
    tasks = np.arange(size) % dials.tasks
    strata = length_strata([str(task) for task in tasks], n_words)
    group = rng.permutation(np.arange(size) % 2)  # of the subjects that read it, where subjects leak
    read = np.ones((size, dials.subjects), bool)
    if dials.eeg_subject_leak:
        read = group[:, None] == np.arange(dials.subjects) % 2
    lists = [_first_word(kind, index) for kind, index in enumerate((strata, n_words, group))]  # [S] each
    references = _zipf((size, REFERENCE_WORDS[1] - 1), rng)
    for first in lists:
        references = _overwrite(references, LIST_SHARE, first[:, None] + _pick(references.shape, rng), rng)
    references = np.where(np.arange(references.shape[1]) < n_words[:, None], references, PAD)
    scales = np.maximum(0, 1 + dials.seed_sd * rng.standard_normal((2, dials.seeds)))
    predictions = tuple(
        _predict(dials, references, n_words, lists, is_eeg, scale, rng)
        for is_eeg, scale in zip((True, False), scales, strict=True)
    )
    return Simulated(references, n_words, tasks, strata, read, predictions)


def _predict(
    dials: Dials,
    references: np.ndarray,
    n_words: np.ndarray,
    lists: list[np.ndarray],
    is_eeg: bool,
    scale: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    shape = (dials.seeds, dials.sentences, dials.subjects, PREDICTION_WORDS[1] - 1)  # [G, S, U, L]
    words = _zipf(shape, rng)
    if is_eeg:
        words = _overwrite(words, dials.style_shift, rng.integers(FREQUENT, size=shape), rng)
    shared = _zipf((dials.seeds, dials.sentences, 1, shape[3]), rng)
    words = _overwrite(words, dials.sentence_variance, np.broadcast_to(shared, shape), rng)
    favourites = _zipf((dials.subjects, LIST_WORDS), rng)
    chosen = favourites[np.arange(dials.subjects)[:, None], _pick(shape, rng)]
    words = _overwrite(words, dials.subject_variance, chosen, rng)
    leaks = (dials.length_leak, dials.eeg_length_leak * is_eeg, dials.eeg_subject_leak * is_eeg)
    for first, leak in zip(lists, leaks, strict=True):
        words = _overwrite(words, leak, first[:, None, None] + _pick(shape, rng), rng)
    position = (rng.random(shape) * n_words[:, None, None]).astype(int)
    copied = references[np.arange(dials.sentences)[:, None, None], position]
    information = dials.information if is_eeg else dials.control_information
    words = _overwrite(words, information * scale[:, None, None, None], copied, rng)
    lengths = rng.integers(*PREDICTION_WORDS, size=shape[:3])
    return np.where(np.arange(shape[3]) < lengths[..., None], words, PAD)


def _zipf(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Words with probability proportional to 1 / rank."""
    cumulative = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    return np.searchsorted(cumulative / cumulative[-1], rng.random(shape))


def _first_word(kind: int, index: np.ndarray) -> np.ndarray:
    return VOCABULARY + (index * KINDS + kind) * LIST_WORDS


def _pick(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.integers(LIST_WORDS, size=shape)


def _overwrite(words: np.ndarray, share: float | np.ndarray, new: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if np.ndim(share) == 0 and share == 0:
        return words
    return np.where(rng.random(words.shape) < share, new, words)


def unigram_tables(simulated: Simulated, groups: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What `content_table` holds for word BLEU-1, without making text: `[G, S, S, 3]`.

    Filled within `groups`, int `[S]`, which are the strata by default.

    Statistics: words of the predictions, words of the references, clipped matches.
    """
    reference_ids = _occurrences(simulated.references)
    largest = max(simulated.references.max(), *(words.max() for words in simulated.predictions))
    holds = np.zeros((len(reference_ids), (int(largest) + 1) * MAX_REPEATS), bool)
    rows = np.broadcast_to(np.arange(len(reference_ids))[:, None], reference_ids.shape)
    present = reference_ids >= 0
    holds[rows[present], reference_ids[present]] = True
    groups = simulated.strata if groups is None else groups
    return tuple(_table(words, simulated, holds, groups) for words in simulated.predictions)


def _occurrences(words: np.ndarray) -> np.ndarray:
    """Numbers the k-th occurrence of a word in a text apart; -1 stays."""
    earlier = np.tril(np.ones((words.shape[-1],) * 2, bool), -1)
    count = ((words[..., :, None] == words[..., None, :]) & earlier).sum(-1)
    return np.where(words == PAD, PAD, words * MAX_REPEATS + count)


def _table(words: np.ndarray, simulated: Simulated, holds: np.ndarray, groups: np.ndarray) -> np.ndarray:
    n_seeds, n_sentences = words.shape[:2]
    ids = np.where(simulated.read[..., None], _occurrences(words), PAD)
    length = (ids != PAD).sum((2, 3))
    readers = simulated.read.sum(1)
    table = np.zeros((n_seeds, n_sentences, n_sentences, 3))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        flat = ids[:, members].reshape(n_seeds, len(members), -1)
        matches = (holds[members][:, flat] & (flat != PAD)).sum(-1)  # [references, G, predictions]
        cells = np.ix_(np.arange(n_seeds), members, members)
        table[(*cells, 0)] = length[:, members, None]
        table[(*cells, 1)] = readers[members, None] * simulated.n_words[members]
        table[(*cells, 2)] = matches.transpose(1, 2, 0)
    return table


def unigram_score(totals: np.ndarray) -> np.ndarray:
    """BLEU-1 in percent from the statistics of `unigram_tables`."""
    predicted, reference, matches = np.moveaxis(totals, -1, 0)
    return 100 * np.exp(np.minimum(0, 1 - reference / predicted)) * matches / predicted


def as_predictions(simulated: Simulated) -> tuple[list[Prediction], list[Prediction]]:
    """The same set as rows of text: EEG's and the control's."""
    return tuple(
        [
            _row(simulated, words[g, s, u], condition, g, s, u)
            for g in range(words.shape[0])
            for s, u in zip(*np.nonzero(simulated.read), strict=True)
        ]
        for condition, words in zip(("eeg", "noise"), simulated.predictions, strict=True)
    )


def _row(simulated: Simulated, words: np.ndarray, condition: str, g: int, s: int, u: int) -> Prediction:
    return Prediction(
        sample_id=f"s{s}-u{u}",
        subject=f"subject {u}",
        task=f"task {simulated.tasks[s]}",
        sentence_id=f"s{s}",
        n_words=int(simulated.n_words[s]),
        train_condition="eeg",
        eval_condition=condition,
        seed=g,
        mode="free_running",
        reference=_text(simulated.references[s]),
        prediction=_text(words),
    )


def _text(words: np.ndarray) -> str:
    return " ".join(f"w{word}" for word in words if word != PAD)
