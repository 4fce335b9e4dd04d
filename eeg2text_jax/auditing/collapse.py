"""Descriptive figures of predictions: how many are distinct, and how much they repeat themselves."""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Sequence, Set

import numpy as np

from eeg2text_jax.auditing.align import Condition
from eeg2text_jax.predictions.file import characters_apart

PAIRS = 2000  # pairs of texts compared to estimate their overlap
FREQUENT = 50  # number of most frequent words that count as frequent: about all function words, 4 of 10 words in ZuCo
RESIDUE = re.compile(r"</?s>|<pad>|<unk>|<extra_id_\d+>|\[(?:PAD|SEP|CLS|UNK)\]|⁇|�")
WORD_STUTTER = re.compile(r"(?![\d\W]+(?!\S))(\S+)(?:\s+\1){2,}(?!\S)")  # a word three times, except numbers
MARK_STUTTER = re.compile(r"([^\w\s])(?:\s*\1){4,}")


@dataclasses.dataclass(frozen=True)
class Collapse:
    """Descriptive figures of one condition. Shares are between 0 and 1, of the rows unless stated otherwise."""

    rows: int
    sentences: int
    empty: int
    distinct: int
    top_text: str
    top_share: float
    top_start: str  # the most common first two words
    top_start_share: float
    repetition: float  # mean share of a prediction's words that occur earlier in it, too
    vocabulary: int  # distinct words of all predictions
    reference_vocabulary: int
    overlap: float  # mean Jaccard overlap of the words of two predictions for different sentences
    reference_overlap: float
    several_readers: int  # sentences with at least two rows
    input_independent: int  # of these, sentences with the same prediction in all rows
    residue: int  # rows that contain special tokens or undecodable characters
    stutter: int  # rows that repeat a word three times, or a mark five times, in a row, unlike their reference
    mean_words: float
    length_correlation: float  # of the numbers of words of prediction and reference; NaN if one is constant
    frequent_share: float  # share of predicted words that are among the FREQUENT most frequent words of the references
    reference_frequent_share: float
    first_vocabulary: int  # distinct words in the first prediction of each sentence
    said: int  # sentences with a prediction that contains a word


def measure_collapse(condition: Condition, references: Sequence[str], rng: np.random.Generator) -> Collapse:
    """Describe the predictions of a condition; `references` has the text of each sentence."""
    texts = [plain_spaces(text) for text in condition.texts]
    read = _words(references, np.arange(len(references)))
    spoken = _words(texts, condition.sentence, repeating=read.stutter)
    counts = Counter(texts)
    top_text, top_count = counts.most_common(1)[0]
    start, start_count = Counter(" ".join(text.split()[:2]) for text in texts).most_common(1)[0]
    by_sentence = condition.by_sentence()
    several = [rows for rows in by_sentence if len(rows) > 1]
    lengths, expected = spoken.lengths, read.lengths[condition.sentence]
    varied = lengths.std() > 0 and expected.std() > 0
    said, printed = _without_marks(spoken.counts), _without_marks(read.counts)
    frequent = dict(printed.most_common(FREQUENT))
    return Collapse(
        rows=len(texts),
        sentences=len(by_sentence),
        empty=sum(not text for text in texts),
        distinct=len(counts),
        top_text=top_text,
        top_share=top_count / len(texts),
        top_start=start,
        top_start_share=start_count / len(texts),
        repetition=float(spoken.repetition.mean()),
        vocabulary=len(spoken.counts),
        reference_vocabulary=len(read.counts),
        overlap=_overlap(texts, condition.sentence, rng),
        reference_overlap=_overlap(references, np.arange(len(references)), rng),
        several_readers=len(several),
        input_independent=sum(len({texts[row] for row in rows}) == 1 for rows in several),
        residue=sum(bool(RESIDUE.search(text)) for text in condition.texts),
        stutter=len(spoken.stutter),
        mean_words=float(lengths.mean()),
        length_correlation=float(np.corrcoef(lengths, expected)[0, 1]) if varied else float("nan"),
        frequent_share=sum(said[word] for word in frequent) / max(said.total(), 1),
        reference_frequent_share=sum(frequent.values()) / max(printed.total(), 1),
        first_vocabulary=len(spoken.first),
        said=sum(any(re.search(r"\w", RESIDUE.sub("", texts[row])) for row in rows) for rows in by_sentence),
    )


def sorted_rows(condition: Condition) -> list[tuple[int, str]]:
    """Return (sentence, prediction) of all rows, sorted: equal lists mean equal predictions."""
    return sorted(zip(condition.sentence.tolist(), condition.texts, strict=True))


def plain_spaces(text: str) -> str:
    """Return a text with single spaces; the same object if nothing changes."""
    joined = " ".join(text.split())
    return text if joined == text else joined


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case without punctuation."""
    return re.findall(r"\w+", characters_apart(text.lower()))


def words_apart(text: str) -> list[str]:
    """Return the plain words of a text; words joined without a space (`andHe`, from word pieces) are split."""
    following = itertools.pairwise(f"{text} ")
    return plain_words("".join(f"{a} " if a.islower() and b.isupper() else a for a, b in following))


@dataclasses.dataclass(frozen=True)
class _Words:
    """Statistics of the words of `N` texts, in lower case and split at spaces."""

    lengths: np.ndarray  # number of words, [N]
    repetition: np.ndarray  # share of words that occur earlier in the same text, too, [N]
    counts: Counter[str]
    first: set[str]  # words of the first text of each sentence
    stutter: set[int]  # indices of texts that repeat a word three times, or a mark five times, in a row


def _words(texts: Sequence[str], sentence: np.ndarray, repeating: Set[int] = frozenset()) -> _Words:
    """Count the words of texts, which are of sentences `sentence [N]`; ignore stutter in the sentences `repeating`."""
    lengths, repetition = np.zeros((2, len(texts)))
    counts: Counter[str] = Counter()
    first: set[str] = set()
    stutter = set()
    firsts = set(np.unique(sentence, return_index=True)[1].tolist())  # the first row of each sentence
    for row, (text, number) in enumerate(zip(texts, sentence.tolist(), strict=True)):
        words = characters_apart(text.lower()).split()
        counts.update(words)
        lengths[row] = len(words)
        repetition[row] = 1 - len(set(words)) / len(words) if words else 0
        if number not in repeating and _stutters(text, words):
            stutter.add(row)
        if row in firsts:
            first.update(words)
    return _Words(lengths, repetition, counts, first, stutter)


def _without_marks(counts: Counter[str]) -> Counter[str]:
    """Convert counts of space-separated words to counts of words without punctuation."""
    found: Counter[str] = Counter()
    for word, count in counts.items():
        for plain in plain_words(word):
            found[plain] += count
    return found


def _stutters(text: str, words: Sequence[str]) -> bool:
    """Return whether a word occurs three times in a row, or a mark five times."""
    twice = any(a == b for a, b in itertools.pairwise(words))  # a fast check first, as WORD_STUTTER is slow
    return bool(twice and WORD_STUTTER.search(text)) or bool(MARK_STUTTER.search(text))


def _overlap(texts: Sequence[str], sentence: np.ndarray, rng: np.random.Generator) -> float:
    """Return the mean Jaccard overlap of the words of two texts, over random pairs from different sentences."""
    first, second = rng.integers(len(texts), size=(2, PAIRS))
    apart = sentence[first] != sentence[second]
    pairs = [(texts[a], texts[b]) for a, b in zip(first[apart].tolist(), second[apart].tolist(), strict=True)]
    words = {text: set(words_apart(text)) for text in {*itertools.chain.from_iterable(pairs)}}
    values = [len(words[a] & words[b]) / max(1, len(words[a] | words[b])) for a, b in pairs]
    return float(np.mean(values)) if values else float("nan")
