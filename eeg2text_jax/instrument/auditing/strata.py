"""Strata: sentences that may be exchanged, as what is known of them apart from their words is the same.

The design comes first (task, readers), then clusters of the references where tasks are not known, then the number of
words. Sentences with equal values are never separated.
"""

import functools
import hashlib
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy import sparse

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions.file import SPACELESS, Prediction

RULE = "Unicode NFKC, no case, no punctuation, no special tokens, word pieces joined"
SPECIAL = re.compile(
    r"</?s>|<\|[a-z0-9_]+\|>|</?(?:start|end|unk|eos|bos|sos|pad|mask|sep|cls|extra_id_\d+)>"
    r"|\[(?:pad|cls|sep|unk|mask|eos|bos)\]",
    re.IGNORECASE,
)
STARTS = re.compile("[\u2581\u0120]")  # marks of SentencePiece and of GPT-2's tokenizer at the start of a word
CONTINUED = re.compile(r"(?<=\w)@@ | ##(?=\w)")  # marks of BPE and WordPiece within a word
APOSTROPHES = "'\u2019\u02bc`"
FEW_SHARED = 0.05  # least share of predicted words that are in the references, in one form
MIN_WORDS = 30  # fewest predicted words that tell the form
UNLIKE = 1.5  # ratio of mean lengths from which words are other units, such as phonemes; misspelt ones are not


class _Plain(dict):
    """Characters without punctuation, symbols, controls; those of spaceless scripts are words."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        plain = "" if letter in APOSTROPHES else " " if unicodedata.category(letter)[0] in "PSZC" else letter
        self[code] = f" {letter} " if plain and SPACELESS.match(letter) and plain != " " else plain
        return self[code]


_PLAIN = _Plain()


def unmarked(text: str) -> str:
    """Return the text in NFKC, without case and special tokens, with word pieces joined."""
    text = SPECIAL.sub(" ", text)
    if "</w>" in text:
        text = text.replace(" ", "").replace("</w>", " ")
    elif 2 * len(STARTS.findall(text)) >= len(text.split()) - 1 and STARTS.search(text):
        text = STARTS.sub(" ", text.replace(" ", ""))
    return unicodedata.normalize("NFKC", CONTINUED.sub("", text)).casefold()


@functools.lru_cache(1 << 20)
def words(text: str) -> tuple[str, ...]:
    """Return the plain words of a text; in scripts without spaces each character is one."""
    return tuple(unmarked(text).translate(_PLAIN).split())


def key(text: str) -> str:
    """Return the text by which a sentence is known: its plain words, or the stripped text if it has none."""
    return " ".join(words(text)) or unicodedata.normalize("NFKC", text.strip())


def other_form(predictions: Iterable[str], references: Sequence[str]) -> str:
    """Return why two sides are not in the same form, such as phonemes beside words, or ""."""
    true_words = Counter(word for text in references for word in words(text))
    written = Counter(word for text in predictions for word in words(text))
    shared = sum(count for word, count in written.items() if word in true_words)
    if written.total() < MIN_WORDS or shared >= FEW_SHARED * written.total():
        return ""
    (script, length, most), (true_script, true_length, true_most) = _form(written), _form(true_words)
    if script == true_script and max(length, true_length) < UNLIKE * min(length, true_length):
        return ""
    different = f" ({script} and {true_script} letters)" if script != true_script else ""
    return (
        f"{shared / written.total():.0%} of the predicted words are in any reference{different}; most frequent words: "
        f"{most} in the predictions, {true_most} in the references"
    )


def _form(counts: Counter[str]) -> tuple[str, float, str]:
    """Return the script (first word of a letter's Unicode name), mean length and frequent words."""
    names: Counter[str] = Counter()
    for word, count in counts.items():
        names[re.split("[ -]", unicodedata.name(word[0], "unnamed"))[0]] += count
    script = min(names, key=lambda name: (-names[name], name)).capitalize() if names else ""
    length = sum(len(word) * count for word, count in counts.items()) / max(counts.total(), 1)
    return script, length, ", ".join(sorted(counts, key=lambda word: (-counts[word], word))[:4])


Row = TypeVar("Row", bound=Prediction)
# Fewest sentences of a stratum, if its kind has as many. With 6, outputs that know a sentence's length seem to have
# twice the content and more; with 3, the MDE grows by 8 %.
LEAST = 3
GROUP = 6  # fewest sentences of a group of readers, and of a cluster of references
MOST = 200  # a larger stratum is divided at random: parts of 100 or more add at most 1 % to the variance
MIN_SENTENCES = 5  # 5! = 120 pairings; with 4! = 24, the smallest p is hardly below 0.05
CLUSTER = 7  # mean number of sentences of a cluster of references
SAMPLE = 2000  # texts for principal components
AXES = 4  # principal components for clusters: two and three hidden genres were found best with 4


def length_strata(kinds: Sequence[str] | np.ndarray, n_words: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the stratum of each sentence, int `[S]`: one kind, and neighboring numbers of words.

    Numbers of words are joined, beginning with the smallest, until a stratum has `LEAST` sentences; those that are left
    over join the last stratum.
    """
    kinds, n_words = np.asarray(kinds), np.asarray(n_words, float)
    strata, used = np.empty(len(kinds), int), 0
    for kind in np.unique(kinds):
        members = np.flatnonzero(kinds == kind)
        lengths, sizes = np.unique(n_words[members], return_counts=True)
        first, size, place = used, 0, {}
        for length, more in zip(lengths.tolist(), sizes.tolist(), strict=True):
            place[length], size = used, size + more
            if size >= LEAST:
                used, size = used + 1, 0
        strata[members] = [place[length] for length in n_words[members].tolist()]
        if size and used > first:
            strata[members[strata[members] == used]] = used - 1
        used += bool(size and used == first)
    return strata


def divided(strata: np.ndarray, keys: Sequence[str]) -> np.ndarray:
    """Return strata of at most `MOST` sentences, int `[S]`, divided by a hash of the references."""
    order, parts = hashes(keys), np.zeros(len(strata), int)
    for stratum in np.flatnonzero(np.bincount(strata) > MOST):
        members = np.flatnonzero(strata == stratum)
        for part, some in enumerate(np.array_split(members[np.argsort(order[members])], -(-len(members) // MOST))):
            parts[some] = part
    return np.unique(np.stack([strata, parts]), axis=1, return_inverse=True)[1].ravel()


def hashes(keys: Sequence[str]) -> np.ndarray:
    """Return numbers that give texts a random order, the same in every file, uint64 `[S]`."""
    return np.array([int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) for key in keys], np.uint64)


def reader_groups(sentence: np.ndarray, subject: np.ndarray) -> np.ndarray:
    """Group sentences by their readers: int `[S]`, from the sentence and subject of each row, int `[R]`.

    A model that knows the subject also knows the group. A sentence joins a group if at least half of its readers also
    read the group's first sentence, or the other way round: a missing recording does not part sentences. If a group
    would have fewer than `GROUP` sentences, all sentences form one group.
    """
    readers = defaultdict(set)
    for s, u in zip(sentence.tolist(), subject.tolist(), strict=True):
        readers[s].add(u)
    leaders: list[set[int]] = []
    groups = np.zeros(len(readers), int)
    # The most readers first: a group's first sentence does not lack a reader by chance.
    for s in sorted(readers, key=lambda s: (-len(readers[s]), s)):
        alike = (i for i, a in enumerate(leaders) if len(a & readers[s]) >= 0.5 * min(len(a), len(readers[s])))
        groups[s] = next(alike, len(leaders))
        if groups[s] == len(leaders):
            leaders.append(readers[s])
    return groups if np.bincount(groups).min() >= GROUP else np.zeros(len(groups), int)


def text_clusters(references: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """Return the cluster of each reference, int `[S]`: texts of one kind share words, and numbers of `rows`, int `[S]`.

    Ward's method on principal components of tf-idf vectors, and log numbers of rows if they vary; one cluster if texts
    are too few, or share too few words.
    """
    from scipy.cluster import hierarchy  # slow to import, and not needed where tasks are known

    axes = _text_axes(references)
    if len(np.unique(rows)) > 1:
        counts = np.log(rows)
        scale = max(axes.std(0).max(initial=0), 1e-3)
        axes = np.column_stack([axes, scale * (counts - counts.mean()) / counts.std()])
    count = len(references) // CLUSTER
    if count < 2 or not axes.shape[1]:
        return np.zeros(len(references), int)
    return _joined(hierarchy.fcluster(hierarchy.linkage(axes, "ward"), count, "maxclust") - 1, axes)


def _joined(clusters: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Join clusters of fewer than `GROUP` sentences, the smallest first, with the cluster whose mean is nearest."""
    clusters = clusters.copy()
    while True:
        sizes = np.bincount(clusters)
        there = np.flatnonzero(sizes)
        smallest = there[np.argmin(sizes[there])]
        if sizes[smallest] >= GROUP or len(there) == 1:
            return clusters
        means = np.stack([axes[clusters == cluster].mean(0) for cluster in there])
        distances = np.linalg.norm(means - axes[clusters == smallest].mean(0), axis=1)
        distances[there == smallest] = np.inf
        clusters[clusters == smallest] = there[np.argmin(distances)]


def _text_axes(references: Sequence[str]) -> np.ndarray:
    """Return principal components of tf-idf vectors, `[S, AXES]`; `[S, 0]` if texts share few words."""
    texts = [set(words(text)) for text in references]
    among = Counter(word for text in texts for word in text)
    column = {word: index for index, word in enumerate(sorted(word for word, n in among.items() if n > 1))}
    if min(len(texts), len(column)) <= AXES + 1:
        return np.zeros((len(texts), 0))
    places = [
        (row, column[word], among[word]) for row, text in enumerate(texts) for word in sorted(text & column.keys())
    ]
    rows, columns, counts = (np.array(values) for values in zip(*places, strict=True))
    table = sparse.csr_array((np.log(len(texts) / counts), (rows, columns)), shape=(len(texts), len(column)))
    norms = np.sqrt(np.asarray((table * table).sum(1)).ravel())
    table = sparse.diags_array(1 / np.maximum(norms, 1e-12)) @ table
    # Components of a sample are nearly those of all, and take seconds for any number of texts.
    sample = table[np.sort(np.argsort(hashes(references))[:SAMPLE])]
    sample, mean = sample.toarray() - np.asarray(sample.mean(0)), np.asarray(sample.mean(0)).ravel()
    sizes, vectors = np.linalg.eigh(sample @ sample.T)
    directions = sample.T @ (vectors[:, -AXES:] / np.sqrt(np.maximum(sizes[-AXES:], 1e-12)))
    return np.round(table @ directions - mean @ directions, 9)


def exchangeable(strata: np.ndarray) -> np.ndarray:
    """Return whether each sentence shares its stratum, bool `[S]`; otherwise it has no null."""
    return np.bincount(strata)[strata] > 1


def disjoint(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose windows do not overlap, from the start of each story on.

    Overlapping windows share text and frames: any signal that is smooth in time would have content.
    """
    end: dict[str, float] = {}  # story -> end of the last window kept
    kept = set()
    for window in sorted(set(map(_window, rows))):
        story, start, stop = window
        if start >= end.get(story, -math.inf):
            end[story] = stop
            kept.add(window)
    return [row for row in rows if _window(row) in kept]


def thin_windows(
    eeg: Sequence[Row], controls: Mapping[str, Sequence[Row]], recording: str
) -> tuple[Sequence[Row], Mapping[str, Sequence[Row]], list[str]]:
    """Return the rows to judge (fMRI: `disjoint` windows), and a note on dropped ones."""
    if recording != "fmri":
        return eeg, controls, []
    judged = disjoint(eeg)
    note = f"windows overlap: {len(judged)} of {len(eeg)} rows share no segment with each other and are judged"
    apart = {name: disjoint(rows) for name, rows in controls.items()}
    return judged, apart, [note] if len(judged) < len(eeg) else []


def _window(row: Prediction) -> tuple[str, float, float]:
    """Return story, start and end of a window, in seconds, or segments if the row has no time."""
    story, colon, first = row.sentence_id.rpartition(":")  # not `row.task`, which may contain the fold, too
    if not colon or (row.story_time is None and not re.fullmatch(r"-?\d+", first)):
        raise UserError(
            f"sample {row.sample_id!r}: the sentence_id of a window of fMRI is {row.sentence_id!r}; expected "
            "STORY:SEGMENT, the story and the number of the window's first segment, as windows may overlap."
        )
    start, stop = (int(first), int(first) + row.n_words) if row.story_time is None else row.story_time
    return story, start, stop
