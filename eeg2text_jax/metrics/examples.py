"""Decoded examples side by side, as in the paper's Table 4.

Bold: words that stand in both the ground truth and a teacher-forced output, in the same order. Underlined: words that
every free-running output shown repeats, whatever the sentence.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from rapidfuzz.distance import LCSseq

from eeg2text_jax.metrics.tables import MODE_TITLES
from eeg2text_jax.predictions.file import Prediction

Style = Literal["plain", "bold", "underline"]
Marked = list[tuple[str, Style]]


@dataclasses.dataclass(frozen=True)
class Example:
    """One sentence: its words, and a line of marked words per cell and mode."""

    sample_id: str
    reference: Marked
    outputs: list[tuple[str, Marked]]


def side_by_side(predictions: Iterable[Prediction], count: int = 3) -> list[Example]:
    """Up to `count` samples of distinct sentences, spread over those that every cell and mode has.

    Of several seeds the first is shown.
    """
    cells: dict[tuple[str, str, str], dict[str, Prediction]] = {}
    first_seed: dict[tuple[str, str, str], int] = {}
    for p in predictions:
        cell = (p.mode, p.train_condition, p.eval_condition)
        if first_seed.setdefault(cell, p.seed) == p.seed:
            cells.setdefault(cell, {})[p.sample_id] = p
    order = sorted(cells, key=lambda cell: (cell[0] != "teacher_forced", cell[0]))
    shown = choose_samples([cells[cell] for cell in order], count)
    repeated = repeated_words(
        cells[cell][sample].prediction for cell in order if cell[0] != "teacher_forced" for sample in shown
    )
    return [example(sample, {cell: cells[cell][sample] for cell in order}, repeated) for sample in shown]


def choose_samples(cells: Sequence[dict[str, Prediction]], count: int) -> list[str]:
    """Sample ids of distinct sentences that all cells have, evenly spread."""
    of_sentence: dict[str, str] = {}
    for sample, prediction in cells[0].items() if cells else ():
        if all(sample in cell for cell in cells):
            of_sentence.setdefault(prediction.sentence_id, sample)
    samples = list(of_sentence.values())
    return [samples[i * len(samples) // count] for i in range(count)] if len(samples) > count else samples


def repeated_words(texts: Iterable[str]) -> set[str]:
    """Words that all of the texts have; none where there is only one text."""
    words = [set(text.split()) for text in texts]
    return set.intersection(*words) if len(words) > 1 else set()


def example(sample_id: str, outputs: dict[tuple[str, str, str], Prediction], repeated: set[str]) -> Example:
    reference = next(iter(outputs.values())).reference.split()
    matched: set[int] = set()
    lines = []
    for (mode, train, evaluation), prediction in outputs.items():
        words = prediction.prediction.split()
        bold = set()
        if mode == "teacher_forced":
            pairs = matching_words(reference, words)
            matched |= {i for i, _ in pairs}
            bold = {j for _, j in pairs}
        underline = set() if mode == "teacher_forced" else {j for j, word in enumerate(words) if word in repeated}
        lines.append((f"{train} → {evaluation}, {MODE_TITLES[mode]}", mark(words, bold, underline)))
    return Example(sample_id, mark(reference, matched, set()), lines)


def matching_words(reference: Sequence[str], prediction: Sequence[str]) -> list[tuple[int, int]]:
    """Positions of the words of a longest common subsequence in both texts."""
    blocks = LCSseq.opcodes(reference, prediction)
    return [
        (i, block.dest_start + i - block.src_start)
        for block in blocks
        if block.tag == "equal"
        for i in range(block.src_start, block.src_end)
    ]


def mark(words: Sequence[str], bold: set[int], underline: set[int]) -> Marked:
    return [(word, "bold" if i in bold else "underline" if i in underline else "plain") for i, word in enumerate(words)]
