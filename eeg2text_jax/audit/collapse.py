"""What a set of predictions looks like before any score: how many are distinct, and how much they repeat."""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.audit.align import Condition

PAIRS = 2000  # pairs of texts compared to estimate their overlap
RESIDUE = re.compile(r"</?s>|<pad>|<unk>|<extra_id_\d+>|\[(?:PAD|SEP|CLS|UNK)\]|⁇|�")
STUTTER = re.compile(r"(?:(\S+)(?:\s+\1){2,})(?!\S)|([^\w\s])(?:\s*\2){4,}")


@dataclasses.dataclass(frozen=True)
class Collapse:
    """Shares are of the rows, 0 to 1, unless said otherwise."""

    rows: int
    sentences: int
    empty: int
    distinct: int
    top_text: str
    top_share: float
    top_start: str  # the most common first two words
    top_start_share: float
    repetition: float  # mean share of a prediction's words that occurred in it before
    vocabulary: int  # distinct words of all predictions
    reference_vocabulary: int
    overlap: float  # mean Jaccard overlap of the words of predictions for two different sentences
    reference_overlap: float
    several_readers: int  # sentences with at least two rows
    input_independent: int  # of these, sentences with one and the same prediction in all rows
    residue: int  # rows with special tokens or undecodable characters left in
    stutter: int  # rows with a word three times, or a punctuation mark five times, in succession
    mean_words: float
    length_correlation: float  # of words in prediction and reference, over rows; NaN where one is constant


def measure_collapse(condition: Condition, references: Sequence[str], rng: np.random.Generator) -> Collapse:
    """Describes the rows of a condition; `references` are those of the aligned sentences."""
    texts = [" ".join(text.split()) for text in condition.texts]
    words = [text.lower().split() for text in texts]
    reference_words = [text.lower().split() for text in references]
    top_text, top_count = Counter(texts).most_common(1)[0]
    start, start_count = Counter(" ".join(text.split()[:2]) for text in texts).most_common(1)[0]
    by_sentence: dict[int, list[str]] = {}
    for sentence, text in zip(condition.sentence.tolist(), texts, strict=True):
        by_sentence.setdefault(sentence, []).append(text)
    several = [readings for readings in by_sentence.values() if len(readings) > 1]
    lengths = np.array([len(w) for w in words], float)
    expected = np.array([len(reference_words[s]) for s in condition.sentence], float)
    varied = lengths.std() > 0 and expected.std() > 0
    return Collapse(
        rows=len(texts),
        sentences=len(by_sentence),
        empty=sum(not text for text in texts),
        distinct=len(set(texts)),
        top_text=top_text,
        top_share=top_count / len(texts),
        top_start=start,
        top_start_share=start_count / len(texts),
        repetition=float(np.mean([1 - len(set(w)) / len(w) if w else 0.0 for w in words])),
        vocabulary=len({word for w in words for word in w}),
        reference_vocabulary=len({word for w in reference_words for word in w}),
        overlap=_overlap(words, condition.sentence, rng),
        reference_overlap=_overlap(reference_words, np.arange(len(references)), rng),
        several_readers=len(several),
        input_independent=sum(len(set(readings)) == 1 for readings in several),
        residue=sum(bool(RESIDUE.search(text)) for text in condition.texts),
        stutter=sum(bool(STUTTER.search(text)) for text in texts),
        mean_words=float(lengths.mean()),
        length_correlation=float(np.corrcoef(lengths, expected)[0, 1]) if varied else float("nan"),
    )


def _overlap(words: Sequence[Sequence[str]], sentence: np.ndarray, rng: np.random.Generator) -> float:
    """Mean Jaccard overlap of the word sets of two rows of different sentences, over random pairs."""
    sets = [frozenset(w) for w in words]
    first, second = rng.integers(len(sets), size=(2, PAIRS))
    apart = sentence[first] != sentence[second]
    values = [
        len(sets[a] & sets[b]) / max(1, len(sets[a] | sets[b]))
        for a, b in zip(first[apart], second[apart], strict=True)
    ]
    return float(np.mean(values)) if values else float("nan")
