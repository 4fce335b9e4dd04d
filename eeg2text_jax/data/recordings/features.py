"""A sentence as recorded -> the features of a sample, or the reason why there are none."""

import dataclasses

import numpy as np

from eeg2text_jax.data.recordings.sentence import CHANNELS, Sentence, Word

LARGEST = 1000.0  # µV; the authors rejected what exceeded 90, so a larger amplitude is a damaged number
ROUNDING = 1e-12  # of the largest magnitude: a smaller deviation of a word is what float64 leaves of equal values
# Typing errors in ZuCo's own sentences.
_TYPOS = (("emp11111ty", "empty"), ("film.1", "film."))

MISSING = "missing"
NO_WORD = "no fixated word"
NAN = "NaN band"
WRONG_LENGTH = "wrong length"
CONSTANT = "constant band values"
ABSURD = f"above {LARGEST:g} µV"
CONTRADICTION = "fixations contradict EEG"
NO_TEXT = "no text"


class Dropped(Exception):
    """The sentence gives no sample; the message is the reason that is counted."""


@dataclasses.dataclass(frozen=True)
class Choices:
    """How a sentence becomes a sample.

    non_words: `keep` or `skip` tokens without any letter or digit.
    zscore: subtract each word's mean and divide by its standard deviation (ddof 1) over its own F values.
    """

    non_words: str = "keep"
    zscore: bool = True


def corrected(sentence: Sentence | None, choices: Choices, measure: str) -> tuple[np.ndarray, str]:
    """The reading we stand for: features float32 `[W, F]` of the fixated words, F band-major, and the sentence.

    A word counts as fixated if the file says so, and its EEG is the EEG stored with it. Of the measure SFD, words
    take part that were fixated once, as only those have it.

    Raises:
      Dropped: a fixated word has no usable EEG, or there is no fixated word.
    """
    if sentence is None or sentence.words is None:
        raise Dropped(MISSING)
    if not sentence.content.strip():
        raise Dropped(NO_TEXT)
    fixated = []
    for word in sentence.words:
        if not _is_fixated(word) or (measure == "SFD" and word.fixations != 1):
            continue
        if choices.non_words == "keep" or any(c.isalnum() for c in word.content):
            fixated.append(word)
    if not fixated:
        raise Dropped(NO_WORD)
    return standardized(stacked(fixated), choices.zscore), repaired(sentence.content)


def repaired(text: str) -> str:
    """The sentence without the two typing errors of ZuCo's files."""
    for wrong, right in _TYPOS:
        text = text.replace(wrong, right)
    return text


def stacked(words: list[Word]) -> np.ndarray:
    """EEG of words, float64 `[W, F]`.

    Raises:
      Dropped: a band is not of 105 channels.
    """
    if any(band.size != CHANNELS for word in words for band in word.eeg):
        raise Dropped(WRONG_LENGTH)
    return np.array([np.concatenate(word.eeg) for word in words], np.float64)


def standardized(features: np.ndarray, zscore: bool) -> np.ndarray:
    """Checks features `[W, F]` in µV and standardizes each word by itself; float32.

    Raises:
      Dropped: a value is NaN or absurdly large, or all values of a word are equal.
    """
    if np.isnan(features).any():
        raise Dropped(NAN)
    if np.abs(features).max() > LARGEST:
        raise Dropped(ABSURD)
    if zscore:
        spread = features.std(axis=1, ddof=1, keepdims=True)
        if (spread <= ROUNDING * np.abs(features).max(axis=1, keepdims=True)).any():
            raise Dropped(CONSTANT)
        features = (features - features.mean(axis=1, keepdims=True)) / spread
    return features.astype(np.float32)


def _is_fixated(word: Word) -> bool:
    if word.fixations is None or word.fixations == 0:
        if any(band.size for band in word.eeg):
            raise Dropped(CONTRADICTION)
        return False
    if not (word.fixations >= 1 and word.fixations.is_integer()):
        raise Dropped(CONTRADICTION)
    return True
