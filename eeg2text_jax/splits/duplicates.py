"""Texts of one part that are in another, word for word or nearly so."""

import collections
import dataclasses
import itertools

import numpy as np
import scipy.sparse

from eeg2text_jax.splits.leakage import PAIRS, SENTENCE_ID, text_keys
from eeg2text_jax.splits.normalize import normalize, tokens
from eeg2text_jax.splits.readings import Readings

OVERLAP = 0.8  # distinct words in common over distinct words in either, from which two texts count as near-duplicates


@dataclasses.dataclass(frozen=True)
class Duplicate:
    """A text of part `judged` and what part `seen` has of it; sentence ids are sorted.

    `overlap` is 1 where the texts are equal by letters and digits, else the share of words in common (Jaccard index of
    the sets of normalized words).
    """

    seen: str
    judged: str
    overlap: float
    seen_sentences: list[str]
    judged_sentences: list[str]

    @property
    def other_sentences(self) -> list[str]:
        """Sentences of the part `seen` that are not the judged sentences read by another subject."""
        return [name for name in self.seen_sentences if name not in self.judged_sentences]


def find_duplicates(readings: Readings, parts: dict[str, np.ndarray], threshold: float = OVERLAP) -> list[Duplicate]:
    """Equal texts and near-duplicates across every pair of parts; equal ones first. Needs `readings.text`."""
    known = {text: normalize(text) for text in set(readings.text.tolist())}
    key = np.array([known[text] for text in readings.text], object)
    words = {normal: frozenset(tokens(text)) for text, normal in known.items()}
    found = []
    for seen, judged in PAIRS:
        there, here = (_sentences_by_text(key, readings.sentence_id, parts[name]) for name in (seen, judged))
        equal = [(text, text, 1.0) for text in here if text in there]
        near = _near_pairs(list(here), list(there), words, threshold)
        found += [Duplicate(seen, judged, overlap, there[b], here[a]) for a, b, overlap in equal + near]
    return found


def _sentences_by_text(key: np.ndarray, sentence_id: np.ndarray, rows: np.ndarray) -> dict[str, list[str]]:
    sentences: dict[str, set[str]] = collections.defaultdict(set)
    for text, name in zip(key[rows], sentence_id[rows], strict=True):
        sentences[text].add(name)
    return {text: sorted(names) for text, names in sentences.items()}


def _near_pairs(
    judged: list[str], seen: list[str], words: dict[str, frozenset[str]], threshold: float
) -> list[tuple[str, str, float]]:
    """Pairs of different texts whose sets of words overlap by `threshold` or more."""
    number: dict[str, int] = {}
    a, b = (_incidence(texts, words, number) for texts in (judged, seen))
    width = len(number)
    a.resize(a.shape[0], width)
    b.resize(b.shape[0], width)
    common = (a @ b.T).tocoo()
    sizes_a, sizes_b = (np.asarray(m.sum(axis=1)).ravel() for m in (a, b))
    overlap = common.data / (sizes_a[common.row] + sizes_b[common.col] - common.data)
    return [
        (judged[i], seen[j], float(o))
        for i, j, o in zip(common.row, common.col, overlap, strict=True)
        if o >= threshold and judged[i] != seen[j]
    ]


def _incidence(texts: list[str], words: dict[str, frozenset[str]], number: dict[str, int]) -> scipy.sparse.csr_array:
    """Which words each text has, int `[texts, words so far]`; new words get the next numbers."""
    columns = [number.setdefault(word, len(number)) for text in texts for word in sorted(words[text])]
    ends = np.cumsum([0, *(len(words[text]) for text in texts)])
    ones = np.ones(len(columns), np.int64)
    return scipy.sparse.csr_array((ones, columns, ends), shape=(len(texts), len(number)))


@dataclasses.dataclass(frozen=True)
class SharedByTasks:
    """Texts that two tasks have in common, by the comparison `normalization`: the sentence ids of each such text."""

    tasks: tuple[str, str]
    normalization: str
    sentences: list[list[str]]


def shared_between_tasks(readings: Readings) -> list[SharedByTasks]:
    """Texts in common of every two tasks, however the parts are cut: what any split by sentence id will leak."""
    found = []
    for name, key in text_keys(readings).items():
        if name == SENTENCE_ID:
            continue
        groups: dict[str, dict[str, set[str]]] = collections.defaultdict(lambda: collections.defaultdict(set))
        for text, task, sentence in zip(key, readings.task, readings.sentence_id, strict=True):
            groups[text][task].add(sentence)
        for pair in itertools.combinations(sorted(set(readings.task)), 2):
            both = [group for group in groups.values() if all(task in group for task in pair)]
            sentences = [sorted(set.union(*(group[task] for task in pair))) for group in both]
            found.append(SharedByTasks(pair, name, sorted(sentences)))
    return found
