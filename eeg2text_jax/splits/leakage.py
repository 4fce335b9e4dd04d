"""Leakage between parts: the rates of `papers/003`, section 4.2, for subjects and texts, and (near-)duplicate texts.

Read literally, the paper's rates use a set that is empty (a sample is never in both parts). The paper's numbers fit a
ratio of counts instead: the test samples of subject i over the training samples of subject i.
"""

import collections
import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np
import scipy.sparse

from eeg2text_jax.splits.split import NORMALIZATIONS, Readings, normalize, tokens

PAIRS = (("train", "test"), ("train", "dev"), ("dev", "test"))  # (part seen before, part judged)
# Names of comparisons of texts, besides `NORMALIZATIONS`: by task and index, by stimulus segment, by text group.
SENTENCE_ID, SEGMENT, STORY = "sentence-id", "segment", "story"
OVERLAP = 0.8  # Jaccard index of words from which on two texts count as near-duplicates


def leakage_rate(train: np.ndarray, test: np.ndarray, n_units: int | None = None) -> float:
    """Return the leakage rate of units, from 0 to 1: subjects (equation 8) or texts of EEG (equation 9).

    It is the mean over units of `min(1, n_test / n_train)`, 0 for a unit that is not in both parts. `train` and `test`
    are the units of samples, `[N_train]` and `[N_test]`. The sum is divided by `n_units`; None: by the number of units
    in `test`, as the paper says (but rows (b) and TSLR (c) of the paper's Table 1 fit the number of all units better).
    """
    n_train = dict(zip(*np.unique(train, return_counts=True), strict=True))
    units, n_test = np.unique(test, return_counts=True)
    if not len(units):
        return 0.0
    terms = [min(1.0, n / n_train[unit]) for unit, n in zip(units, n_test, strict=True) if unit in n_train]
    return float(sum(terms) / (len(units) if n_units is None else n_units))


def segment_leakage_rate(train: np.ndarray, test: np.ndarray, lengths: np.ndarray | None = None) -> float:
    """Return the leakage rate of the texts of windows (equations 10 and 11), from 0 to 1.

    `train` and `test` are the segment numbers of all windows, one window after another. The rate is
    `sum_j min(n_test(j), n_train(j)) / sum_j n_test(j)` over segments j, weighted by their `lengths` if repetition
    times differ. The paper's factor 1/M is left out: with it, method (a) could not reach the 100% of the paper's
    Table 1.
    """
    if not len(test):
        return 0.0
    segments, n_test = np.unique(test, return_counts=True)
    n_train = np.bincount(train, minlength=segments[-1] + 1)[segments]
    weights = np.ones(len(segments)) if lengths is None else lengths[segments]
    return float(np.minimum(n_test, n_train) @ weights / (n_test @ weights))


@dataclasses.dataclass(frozen=True)
class Leakage:
    """Leakage of part `seen` (such as train) into part `judged` (such as test); rates are from 0 to 1.

    The rate of subjects is averaged over the subjects of the judged part (`bslr_over_test`) or over all subjects
    (`bslr_over_all`). `tslr` (rate of texts, averaged over the texts of the judged part), `tslr_over_all` (over all
    texts) and `shared_texts` (their number) are by name of the comparison of texts; segments have one rate only.
    """

    seen: str
    judged: str
    shared_subjects: list[str]
    bslr_over_test: float
    bslr_over_all: float
    shared_texts: dict[str, int]
    tslr: dict[str, float]
    tslr_over_all: dict[str, float]


def text_keys(readings: Readings) -> dict[str, np.ndarray]:
    """Return name of a text comparison -> key of each sample, object `[N]`; texts with equal keys count as equal."""
    keys = {SENTENCE_ID: readings.sentence_id}
    if readings.text is not None:
        for name, function in NORMALIZATIONS.items():
            known = {text: function(text) for text in set(readings.text.tolist())}
            keys[name] = np.array([known[text] for text in readings.text], object)
    return keys


def assess_leakage(readings: Readings, parts: Mapping[str, np.ndarray]) -> list[Leakage]:
    """Return the leakage from the seen into the judged part, for each pair in `PAIRS`."""
    keys = text_keys(readings)
    if readings.text_group is not None:
        keys[STORY] = readings.text_group
    n_subjects = len(set(readings.subject))
    found = []
    for seen, judged in PAIRS:
        a, b = parts[seen], parts[judged]
        subjects = readings.subject[a], readings.subject[b]
        shared = {name: len(set(key[a]) & set(key[b])) for name, key in keys.items()}
        rates = {name: leakage_rate(key[a], key[b]) for name, key in keys.items()}
        over_all_texts = {name: leakage_rate(key[a], key[b], len(set(key))) for name, key in keys.items()}
        if readings.segments is not None:
            there, here = (segments_of(readings.segments.windows[rows]) for rows in (a, b))
            shared = {SEGMENT: len(np.intersect1d(there, here)), **shared}
            rates = {SEGMENT: segment_leakage_rate(there, here, readings.segments.lengths), **rates}
        both = sorted(set(subjects[0]) & set(subjects[1]))
        over_test, over_all = leakage_rate(*subjects), leakage_rate(*subjects, n_subjects)
        found.append(Leakage(seen, judged, both, over_test, over_all, shared, rates, over_all_texts))
    return found


def segments_of(windows: np.ndarray) -> np.ndarray:
    """Return the numbers of the segments of windows `[N, 2]` (first segment, count), window after window."""
    first, length = windows.T
    begins = np.cumsum(length) - length
    return np.repeat(first - begins, length) + np.arange(length.sum())


@dataclasses.dataclass(frozen=True)
class Duplicate:
    """A text of part `judged` that equals or resembles a text of part `seen`."""

    seen: str
    judged: str
    overlap: float  # 1 for texts equal by letters and digits, else the Jaccard index of their normalized words
    seen_sentences: list[str]  # sorted ids of the sentences with this text
    judged_sentences: list[str]

    @property
    def other_sentences(self) -> list[str]:
        """Sentence ids in part `seen` that are not in part `judged`."""
        return [name for name in self.seen_sentences if name not in self.judged_sentences]


def find_duplicates(readings: Readings, parts: Mapping[str, np.ndarray], threshold: float = OVERLAP) -> list[Duplicate]:
    """Return, for each pair in `PAIRS`, texts in both parts, then near-duplicates; `readings.text` must be known."""
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
    """Return (judged text, another text seen, Jaccard index of their words) if the index is `threshold` or more."""
    texts = [*judged, *seen]
    places: dict[str, int] = {}
    columns = [places.setdefault(word, len(places)) for text in texts for word in words[text]]
    sizes = np.array([len(words[text]) for text in texts])
    ones, ends, shape = np.ones(len(columns), np.int64), np.cumsum([0, *sizes]), (len(texts), len(places))
    incidence = scipy.sparse.csr_array((ones, columns, ends), shape)
    common = (incidence[: len(judged)] @ incidence[len(judged) :].T).sorted_indices().tocoo()
    overlap = common.data / (sizes[common.row] + sizes[len(judged) + common.col] - common.data)
    return [
        (judged[i], seen[j], float(o))
        for i, j, o in zip(common.row, common.col, overlap, strict=True)
        if o >= threshold and judged[i] != seen[j]
    ]


@dataclasses.dataclass(frozen=True)
class SharedByTasks:
    """Texts that two tasks share after `normalization`; `sentences` lists for each text its sentence ids."""

    tasks: tuple[str, str]
    normalization: str
    sentences: list[list[str]]


def shared_between_tasks(readings: Readings) -> list[SharedByTasks]:
    """Return the texts that two tasks share, by task pair and normalization; splits by sentence id can leak them."""
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
