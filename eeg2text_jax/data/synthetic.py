"""Synthetic recordings with a dial for how much they know of the words that were read.

Sentences are walks over a made-up vocabulary in which every word has four likely successors, so that a language
model alone predicts the next word about half of the time: the gap between teacher-forced and free-running scores
that real text shows. Features of a word are its latent vector, mixed by the subject. With `signal` below 1 a part
of that vector is replaced by one drawn afresh for every occurrence; means and covariances stay the same, so null
data (`signal=0`) differ from planted data in information alone.
"""

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from eeg2text_jax.data.datafile import Sample
from eeg2text_jax.data.slow_drift import ORDERS, WORD_SECONDS, drift, onsets_of, shown_in
from eeg2text_jax.errors import UserError

SUCCESSOR_PROBABILITIES = (0.55, 0.25, 0.15, 0.05)
SENTENCE_WORDS = (4, 20)  # fewest and most words of a sentence
LATENT_WIDTH = 32
SUBJECT_MIXING = 0.3  # share of a subject's mixing matrix that is its own
SENSOR_NOISE = 0.3  # standard deviation, beside features of variance about 1


@dataclasses.dataclass(frozen=True)
class SyntheticSpec:
    """What to generate; the fields of `config.data.synthetic`."""

    signal: float
    sentences: int
    subjects: int
    tasks: int
    features: int
    vocabulary: int
    groups: int
    order: str
    drift: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.signal <= 1:
            raise UserError(f"data.synthetic.signal is {self.signal}; expected a number from 0 to 1.")
        for name in ("sentences", "subjects", "tasks", "features"):
            if getattr(self, name) < 1:
                raise UserError(f"data.synthetic.{name} is {getattr(self, name)}; expected at least 1.")
        if self.vocabulary < 20 * self.groups or self.groups < 1:
            raise UserError(
                f"data.synthetic.vocabulary is {self.vocabulary} for {self.groups} groups; expected at least 20 words "
                "for each group, of which there is at least 1."
            )
        if self.order not in ORDERS or not 0 <= self.drift < np.inf:
            raise UserError(
                f"data.synthetic.order is {self.order!r} and .drift {self.drift}; expected one of {', '.join(ORDERS)}, "
                "and a number from 0."
            )


def make_vocabulary(size: int, rng: np.random.Generator) -> list[str]:
    """`size` distinct pronounceable words of two or three syllables."""
    consonants, vowels = list("bdfgklmnprstvz"), list("aeiou")
    words: dict[str, None] = {}
    while len(words) < size:
        syllables = rng.integers(2, 4)
        words["".join(rng.choice(consonants) + rng.choice(vowels) for _ in range(syllables))] = None
    return list(words)


def make_sentences(spec: SyntheticSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """Distinct sentences as arrays of word numbers `[W]`."""
    successors = np.stack([rng.choice(spec.vocabulary, 4, replace=False) for _ in range(spec.vocabulary)])
    tries, longest = 20 * spec.sentences, SENTENCE_WORDS[1]
    lengths = rng.integers(SENTENCE_WORDS[0], longest + 1, tries)
    words = np.empty((tries, longest), int)
    words[:, 0] = rng.integers(spec.vocabulary, size=tries)
    choices = np.searchsorted(np.cumsum(SUCCESSOR_PROBABILITIES)[:-1], rng.random((tries, longest)))
    for place in range(1, longest):
        words[:, place] = successors[words[:, place - 1], choices[:, place]]
    distinct = dict.fromkeys(tuple(row[:length]) for row, length in zip(words.tolist(), lengths, strict=True))
    if len(distinct) >= spec.sentences:
        return [np.array(sentence) for sentence in itertools.islice(distinct, spec.sentences)]
    raise UserError(
        f"data.synthetic.vocabulary={spec.vocabulary} is too small for {spec.sentences} distinct sentences; "
        "raise it or ask for fewer sentences."
    )


def grouped_sentences(spec: SyntheticSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """Sentences of all groups in turn, as arrays of word numbers `[W]`; each group has words of its own."""
    if spec.groups == 1:
        return make_sentences(spec, rng)
    words, many = spec.vocabulary // spec.groups, -(-spec.sentences // spec.groups)
    part = dataclasses.replace(spec, groups=1, vocabulary=words, sentences=many)
    found = [[words * g + sentence for sentence in make_sentences(part, rng)] for g in range(spec.groups)]
    return [found[i % spec.groups][i // spec.groups] for i in range(spec.sentences)]


def group_labels(spec: SyntheticSpec) -> dict[str, str]:
    """The group of each word of the vocabulary, and so of each sentence by any of its words."""
    vocabulary = make_vocabulary(spec.vocabulary, np.random.default_rng([spec.seed, 0]))
    width = spec.vocabulary // spec.groups
    return {word: f"group {min(i // width, spec.groups - 1)}" for i, word in enumerate(vocabulary)}


def synthetic_samples(spec: SyntheticSpec) -> Iterator[Sample]:
    """Every subject reads every sentence; sentences are dealt out to the tasks in turn.

    The text depends on `seed`, `sentences`, `vocabulary` and `groups` alone: a planted and a null data set of one seed
    share their sentences. Each subject has a recording for each task; `order` says when its sentences were read.
    """
    text_rng = np.random.default_rng([spec.seed, 0])
    vocabulary = make_vocabulary(spec.vocabulary, text_rng)
    sentences = grouped_sentences(spec, text_rng)
    n_words = np.array([len(sentence) for sentence in sentences])
    rng = np.random.default_rng([spec.seed, 1])
    latent = rng.standard_normal((spec.vocabulary, LATENT_WIDTH))
    shared = rng.standard_normal((LATENT_WIDTH, spec.features))
    for subject in range(spec.subjects):
        own = rng.standard_normal((LATENT_WIDTH, spec.features))
        mixing = np.sqrt(1 - SUBJECT_MIXING) * shared + np.sqrt(SUBJECT_MIXING) * own
        offset = 0.5 * rng.standard_normal(spec.features)
        read = np.concatenate(sentences)
        fresh = rng.standard_normal((len(read), LATENT_WIDTH))
        source = spec.signal * latent[read] + np.sqrt(1 - spec.signal**2) * fresh
        noise = SENSOR_NOISE * rng.standard_normal((len(read), spec.features))
        features = source @ mixing / np.sqrt(LATENT_WIDTH) + offset + noise
        ends = np.cumsum(n_words)
        onset, duration, slow = _times(spec, subject, n_words)
        features = features + spec.drift * slow
        for index, (sentence, end) in enumerate(zip(sentences, ends, strict=True)):
            yield Sample(
                features=features[end - len(sentence) : end],
                sentence=" ".join(vocabulary[word] for word in sentence),
                subject=f"S{subject + 1:02d}",
                task=f"T{index % spec.tasks + 1}",
                sentence_index=index // spec.tasks,
                recording=f"S{subject + 1:02d}/T{index % spec.tasks + 1}",
                onset=float(onset[index]),
                duration=float(duration[index]),
            )


def _times(spec: SyntheticSpec, subject: int, n_words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Onset and duration of a subject's sentences, float64 `[n]`, and the drift at their words, `[sum W, F]`."""
    onset, duration = np.zeros(len(n_words)), np.zeros(len(n_words))
    word_of = np.repeat(np.arange(len(n_words)), n_words)
    slow = np.zeros((len(word_of), spec.features))
    for task in range(spec.tasks):
        own = np.arange(task, len(n_words), spec.tasks)
        if not len(own):
            continue
        shown = shown_in(spec.order, own % spec.groups, [spec.seed, task, 2 + subject])
        onset[own], duration[own] = onsets_of(n_words[own], shown)
        if spec.drift:
            inside = np.flatnonzero(word_of % spec.tasks == task)
            first = np.concatenate([[0], np.cumsum(n_words)[:-1]])
            times = onset[word_of[inside]] + WORD_SECONDS * (inside - first[word_of[inside]])
            slow[inside] = drift(times, spec.features, np.random.default_rng([spec.seed, 3, task, subject]))
    return onset, duration, slow
