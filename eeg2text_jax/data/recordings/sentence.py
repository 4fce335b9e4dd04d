"""What every reader of recordings yields: sentences as they were recorded, nothing judged yet."""

import dataclasses
import os

import numpy as np

from eeg2text_jax.errors import UserError

CHANNELS = 105  # scalp channels that ZuCo's authors kept of 128, Cz last
BANDS = ("t1", "t2", "a1", "a2", "b1", "b2", "g1", "g2")  # 4-6 6.5-8 8.5-10 10.5-13 13.5-18 18.5-30 30.5-40 40-49.5 Hz
MEASURES = ("GD", "FFD", "TRT", "SFD", "GPT")  # gaze duration, first fixation, total, single fixation, go-past


class UnreadableRecording(UserError):
    """A file that is damaged or is no recording; `prepare` names it and, unless strict, goes on with the others."""

    def __init__(self, path: str | os.PathLike[str], problem: str):
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


@dataclasses.dataclass(frozen=True)
class Fields:
    """Which of a word's EEG is read: band amplitudes in µV of one gaze measure."""

    measure: str = "GD"
    bands: tuple[str, ...] = BANDS

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise UserError(f"data.recordings.measure is {self.measure!r}; expected one of {', '.join(MEASURES)}.")
        if not self.bands or len(set(self.bands)) < len(self.bands) or set(self.bands) - set(BANDS):
            raise UserError(f"data.recordings.bands is {self.bands}; expected some of {', '.join(BANDS)}, each once.")

    @property
    def word(self) -> tuple[str, ...]:
        """Names of the EEG fields of a word, in the order of the features."""
        return tuple(f"{self.measure}_{band}" for band in self.bands)

    @property
    def sentence(self) -> tuple[str, ...]:
        """Names of the EEG fields of a sentence."""
        return tuple(f"mean_{band}" for band in self.bands)


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """One token of a sentence.

    `fixations` is None where the file has none (an empty array). `eeg` holds one flat array per band: `[105]`, or
    `[0]` where the file has nothing, or whatever else the file has.
    """

    content: str
    fixations: float | None
    eeg: tuple[np.ndarray, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """One entry of a subject's file; its place in the file is its index.

    `words` is None where the file has a placeholder for the sentence. `tokens` are the words' texts, also of those
    that `words` lacks (a pickle has fixated words only). `word_fields` are the names present in the words of this
    sentence: they differ between sentences. `means` are the sentence's own bands, one array each.
    """

    content: str
    words: tuple[Word, ...] | None
    tokens: tuple[str, ...]
    word_fields: frozenset[str]
    means: tuple[np.ndarray, ...]
