"""Synthetic EEG features with an adjustable amount of information about the words.

Sentences are random walks over an artificial vocabulary in which every word has four likely successors. So a language
model alone predicts about half of the words, and teacher-forced scores exceed free-running ones as with real text. The
features of a word are its latent vector times a matrix of the subject. With `signal` below 1 a part of the vector is
drawn anew at each occurrence; means and covariances stay equal, so null data (`signal=0`) differ from planted data in
information alone.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterator
from typing import Annotated

import numpy as np

from eeg2text_jax import kinds
from eeg2text_jax.data.source import Sample
from eeg2text_jax.errors import UserError

ORDERS = ("random", "blocks", "same_for_all")  # values of data.synthetic.order
WORD_SECONDS, PAUSE = 0.4, 1.6  # seconds of a word, and between sentences
SLOWEST = 0.05  # Hz, highest frequency of the drift
SOURCES = 6  # number of slow components, whose mixture is the drift of a feature
POPS_PER_MINUTE, POP_SIZE, POP_SECONDS = 0.5, 3.0, 60.0  # electrode pops: rate, size, time constant of the decay
REFERENCE = 0.5  # standard deviation of each feature's constant shift in a recording


def presentation_order(order: str, group: np.ndarray, seed: list[int]) -> np.ndarray:
    """Return the numbers of a recording's sentences in the order of presentation, int `[n]`.

    Orders: "random", drawn for each recording from `seed`; "same_for_all", drawn for all recordings from `seed[:2]`;
    "blocks", one group after the other. `group` is the group of each sentence, int `[n]`.
    """
    rng = np.random.default_rng(seed[:2] if order == "same_for_all" else seed)
    shown = rng.permutation(len(group))
    if order == "blocks":
        rank = rng.permutation(group.max() + 1)
        shown = shown[np.argsort(rank[group[shown]], kind="stable")]
    return shown


def onsets_of(words: np.ndarray, shown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return onset and duration of each sentence in seconds, float64 `[n]`; `words` are lengths, `shown` the order."""
    duration = WORD_SECONDS * words.astype(float)
    onset = np.empty(len(words))
    onset[shown] = np.concatenate([[0.0], np.cumsum(duration[shown] + PAUSE)[:-1]])
    return onset, duration


def drift(times: np.ndarray, n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the drift of a recording at `times` (seconds), float64 `[T, F]`, of variance about 1 without pops.

    It is the sum of mixed sources with 1/f power below `SLOWEST`, of electrode pops (decaying jumps of one feature in
    ten), and of a constant shift, as after a new reference.
    """
    seconds = float(times.max()) + 1
    frequency = np.arange(1, max(2, int(SLOWEST * 2 * seconds))) / (2 * seconds)
    size = 1 / np.sqrt(frequency)
    phase = rng.uniform(0, 2 * np.pi, (SOURCES, len(frequency)))
    angle = 2 * np.pi * frequency * times[:, None, None] + phase
    sources = (np.cos(angle) * size).sum(2) * np.sqrt(2 / np.sum(size**2))  # --> [T, SOURCES]
    found = sources @ rng.standard_normal((SOURCES, n_features)) / np.sqrt(SOURCES)
    for begin in rng.uniform(0, seconds, rng.poisson(POPS_PER_MINUTE * seconds / 60)):
        after = np.where(times >= begin, np.exp(-np.maximum(times - begin, 0) / POP_SECONDS), 0)
        found += POP_SIZE * after[:, None] * (rng.random(n_features) < 0.1) * rng.standard_normal(n_features)
    return found + REFERENCE * rng.standard_normal(n_features)


SUCCESSOR_PROBABILITIES = (0.55, 0.25, 0.15, 0.05)  # of a word's four successors
SENTENCE_WORDS = (4, 20)  # fewest and most words of a sentence
LATENT_WIDTH = 32
TRIES = 20  # sentences are drawn for each that is wanted, as they must be distinct
SUBJECT_MIXING = 0.3  # share of a subject's mixing matrix that is individual
SENSOR_NOISE = 0.3  # standard deviation; features have a variance of about 1


@dataclasses.dataclass(frozen=True)
class SyntheticSpec:
    """Settings of synthetic EEG features: the fields of `config.data.synthetic`."""

    signal: Annotated[float, kinds.number(0, 1)]
    sentences: Annotated[int, kinds.whole(1, 10_000_000)]
    subjects: Annotated[int, kinds.whole(1, 100_000)]
    tasks: Annotated[int, kinds.whole(1, 100_000)]
    features: Annotated[int, kinds.whole(1, 1_000_000)]
    vocabulary: Annotated[int, kinds.whole(20, 100_000)]
    groups: Annotated[int, kinds.whole(1, 1000)]
    order: Annotated[str, kinds.one_of(*ORDERS)]
    drift: Annotated[float, kinds.number(0, 1e6)]
    seed: Annotated[int, kinds.whole(0)]

    def __post_init__(self) -> None:
        if self.vocabulary < 20 * self.groups:
            raise UserError(
                f"data.synthetic.vocabulary is {self.vocabulary} for {self.groups} groups; expected at least 20 words "
                "for each group."
            )


def make_vocabulary(size: int, rng: np.random.Generator) -> list[str]:
    """Return `size` distinct pronounceable words of two or three syllables."""
    consonants, vowels = list("bdfgklmnprstvz"), list("aeiou")
    words: dict[str, None] = {}
    while len(words) < size:
        syllables = rng.integers(2, 4)
        words["".join(rng.choice(consonants) + rng.choice(vowels) for _ in range(syllables))] = None
    return list(words)


def check_memory(spec: SyntheticSpec) -> None:
    """Raise UserError if making the samples takes more memory than this machine has."""
    longest = SENTENCE_WORDS[1]
    drawn = TRIES * (40 * longest + 150)  # bytes a sentence: arrays and lists of all drawn word numbers
    words = 0.5 * sum(SENTENCE_WORDS) * 8 * (4 * spec.features + 3 * LATENT_WIDTH)  # features of one subject
    needed, there = spec.sentences * (drawn + words), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise UserError(
            f"data.synthetic.sentences is {spec.sentences} with {spec.features} features a word, which takes about "
            f"{needed / 1e9:.0f} GB of memory to make; expected at most {there / 1e9:.0f} GB, which this machine has; "
            "take fewer sentences or features."
        )


def make_sentences(spec: SyntheticSpec, rng: np.random.Generator) -> list[np.ndarray]:
    """Draw distinct sentences, each as word numbers `[W]`."""
    successors = np.stack([rng.choice(spec.vocabulary, 4, replace=False) for _ in range(spec.vocabulary)])
    tries, longest = TRIES * spec.sentences, SENTENCE_WORDS[1]
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
    """Draw sentences, each as word numbers `[W]`: the groups take turns, and share no words."""
    if spec.groups == 1:
        return make_sentences(spec, rng)
    words, many = spec.vocabulary // spec.groups, -(-spec.sentences // spec.groups)
    part = dataclasses.replace(spec, groups=1, vocabulary=words, sentences=many)
    found = [[words * g + sentence for sentence in make_sentences(part, rng)] for g in range(spec.groups)]
    return [found[i % spec.groups][i // spec.groups] for i in range(spec.sentences)]


def synthetic_samples(spec: SyntheticSpec) -> Iterator[Sample]:
    """Yield the samples: each subject reads all sentences, in one recording per task; tasks take sentences in turn.

    The sentences do not depend on `signal` or `drift`: planted data and null data (`signal=0`) of one seed share them.
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
    """Return onset and duration of a subject's sentences, float64 `[n]`, and the drift at all words, `[sum W, F]`."""
    onset, duration = np.zeros(len(n_words)), np.zeros(len(n_words))
    sentence_of = np.repeat(np.arange(len(n_words)), n_words)  # [sum W], number of each word's sentence
    place = np.concatenate([np.arange(n) for n in n_words])  # [sum W], place of each word in its sentence
    slow = np.zeros((len(sentence_of), spec.features))
    for task in range(spec.tasks):
        own = np.arange(task, len(n_words), spec.tasks)
        if not len(own):
            continue
        shown = presentation_order(spec.order, own % spec.groups, [spec.seed, task, 2 + subject])
        onset[own], duration[own] = onsets_of(n_words[own], shown)
        if spec.drift:
            inside = sentence_of % spec.tasks == task
            times = onset[sentence_of[inside]] + WORD_SECONDS * place[inside]
            slow[inside] = drift(times, spec.features, np.random.default_rng([spec.seed, 3, task, subject]))
    return onset, duration, slow
