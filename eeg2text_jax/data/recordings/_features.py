"""Convert a recorded sentence to features, or give the reason why it is dropped.

`--compat=wang-ji` builds samples as the scripts of Wang & Ji (EEG-To-Text) do, with their quirks, which differ by
format:

MAT v5 (and pickles made from it)
  1. every token with a fixation count above 0 counts as a word, even "--".
MAT v7.3 (a word with any fixation count, even 0, counts as fixated)
  2. tokens without an ASCII letter or digit are removed;
  3. the k-th remaining word gets the EEG of the k-th of all tokens: after n removed tokens, that of the token n places
     before it, which may be empty (then the sentence is dropped);
  4. a sentence counts as missing without SFD fields (no word has one fixation) or rawEEG (no word has any).
Both
  5. one word with NaN, without 8 x 105 values or with constant values drops its sentence;
  6. NaN in the sentence's own mean bands, which are not used, drops it, too;
  7. typing errors stay;
  8. the index of a sentence is its position in the subject's file;
  9. values are not dropped for their size (`prepare` counts absurdly large ones).

Where their scripts stop with an error (a one-word sentence, more than 56 fixated words, an empty fixation count under
numpy 2.2), the sentence is read as usual.
"""

import dataclasses
import re
from typing import Protocol

import numpy as np

CHANNELS = 105  # kept by ZuCo's authors out of 128, Cz last
BANDS = ("t1", "t2", "a1", "a2", "b1", "b2", "g1", "g2")  # 4-6 6.5-8 8.5-10 10.5-13 13.5-18 18.5-30 30.5-40 40-49.5 Hz
MEASURES = ("GD", "FFD", "TRT", "SFD", "GPT")  # gaze duration, first fixation, total, single fixation, go-past


class Damaged(Exception):
    """A MATLAB file violates the format."""


@dataclasses.dataclass(frozen=True)
class Fields:
    """The EEG fields to read: band amplitudes (µV) of a gaze measure."""

    measure: str
    bands: tuple[str, ...]

    @property
    def word(self) -> tuple[str, ...]:
        """EEG fields of a word, in the order of the features."""
        return tuple(f"{self.measure}_{band}" for band in self.bands)

    @property
    def sentence(self) -> tuple[str, ...]:
        """EEG fields of a sentence."""
        return tuple(f"mean_{band}" for band in self.bands)


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """One token of a sentence."""

    content: str
    fixations: float | None  # number; None if the file has an empty array
    eeg: tuple[np.ndarray, ...]  # per band [105]; [0] if the file has none


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """An entry of a subject's file."""

    content: str
    words: tuple[Word, ...] | None  # None for a placeholder
    tokens: tuple[str, ...]  # of all words; in a pickle, `words` are the fixated ones
    word_fields: frozenset[str]  # of the words; they differ between sentences
    means: tuple[np.ndarray, ...]  # mean EEG per band


class Structs(Protocol):
    """A MATLAB struct array; what it lacks is empty. Raises Damaged."""

    fields: frozenset[str]
    count: int

    def text(self, i: int) -> str:
        """Return the `content` of struct `i`."""

    def numbers(self, name: str, i: int) -> np.ndarray: ...

    def words(self, i: int) -> "Structs | np.ndarray | None":
        """Return the words of sentence `i`, or the numbers in their place (None: neither)."""


def make_sentence(sentences: Structs, i: int, fields: Fields, number: int) -> Sentence:
    """Make a sentence of struct `i`, of this `number` in the file (from 0)."""
    try:
        content = sentences.text(i)
        means = tuple(sentences.numbers(name, i) for name in fields.sentence)
        words = sentences.words(i)
        if words is None or isinstance(words, np.ndarray):  # NaN or empty: a placeholder
            if words is None or words.size > 1 or np.isfinite(words).any():
                raise Damaged("its words are no struct array")
            return Sentence(content, None, (), frozenset(), means)
        if "content" not in words.fields:
            raise Damaged("its words have no content")
        read = []
        for w in range(words.count):
            if (count := words.numbers("nFixations", w)).size > 1:
                raise Damaged(f"word {w + 1} has {count.size} fixation counts")
            eeg = tuple(words.numbers(name, w) for name in fields.word)
            read.append(Word(words.text(w), float(count[0]) if count.size else None, eeg))
        return Sentence(content, tuple(read), tuple(word.content for word in read), words.fields, means)
    except Damaged as error:
        raise Damaged(f"sentence {number + 1}: {error}") from error


LARGEST = 1000.0  # µV; ZuCo's authors rejected amplitudes above 90
ROUNDING = 1e-12  # of the largest magnitude; smaller deviations are float64 rounding
# Reasons to drop a sentence.
MISSING = "missing"
NO_WORD = "no fixated word"
NAN = "NaN band"
WRONG_LENGTH = "wrong length"
CONSTANT = "constant band values"
ABSURD = f"above {LARGEST:g} µV"


class Dropped(Exception):
    """The message is why a sentence gives no sample."""


def default_sample(sentence: Sentence | None, measure: str, non_words: str, zscore: bool) -> tuple[np.ndarray, str]:
    """Return features float32 `[W, F]`, F band-major, of the fixated words, and the text of the sentence.

    `sentence` is None if Wang & Ji's scripts found it missing; under SFD only words that were fixated once have EEG;
    `non_words`, without letter or digit, are to `keep` or `skip`; `zscore` standardizes each word (ddof 1). Raises
    Dropped if no word has usable EEG.
    """
    if sentence is None or sentence.words is None:
        raise Dropped(MISSING)
    if not sentence.content.strip():
        raise Dropped("no text")
    fixated = [
        word
        for word in sentence.words
        if _is_fixated(word)
        and (measure != "SFD" or word.fixations == 1)
        and (non_words == "keep" or any(map(str.isalnum, word.content)))
    ]
    if not fixated:
        raise Dropped(NO_WORD)
    text = sentence.content.replace("emp11111ty", "empty").replace("film.1", "film.")  # ZuCo's two typing errors
    return _standardize(_stack_eeg(fixated), zscore), text


def _stack_eeg(words: list[Word]) -> np.ndarray:
    if any(band.size != CHANNELS for word in words for band in word.eeg):
        raise Dropped(WRONG_LENGTH)
    return np.array([np.concatenate(word.eeg) for word in words], np.float64)


def _standardize(features: np.ndarray, zscore: bool) -> np.ndarray:
    """Check features `[W, F]` in µV and, if `zscore`, standardize each word; return float32 or raise Dropped."""
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
    """Return whether a word was fixated; raise Dropped if the count contradicts the EEG."""
    count = word.fixations or 0.0
    if count < 0 or not count.is_integer() or (not count and any(band.size for band in word.eeg)):
        raise Dropped("fixations contradict EEG")
    return count > 0


def wang_ji_sample(sentence: Sentence | None, layout: str, zscore: bool) -> tuple[np.ndarray, str]:
    """Return features float32 `[W, F]` and text as Wang & Ji's scripts do (with `zscore`), or raise Dropped.

    `layout` is `"mat-v5"`, `"mat-v7.3"` or `"pickle"`.
    """
    if sentence is None or sentence.words is None:
        raise Dropped(MISSING)
    fixated = [word for word in _wang_ji_words(sentence, layout) if word.fixations is not None]
    if layout == "mat-v5":
        fixated = [word for word in fixated if word.fixations > 0]
    means = np.concatenate(sentence.means)
    if means.size != CHANNELS * len(sentence.means):
        raise Dropped(WRONG_LENGTH)
    _wang_ji_standardize(means[None].astype(np.float64), zscore=True)  # drops the sentence where the scripts do
    if not fixated:
        raise Dropped(NO_WORD)
    return _wang_ji_standardize(_stack_eeg(fixated), zscore), sentence.content


def _wang_ji_words(sentence: Sentence, layout: str) -> list[Word]:
    if layout != "mat-v7.3":
        return list(sentence.words)
    real = [word for word in sentence.words if re.search("[a-zA-Z0-9]", word.content)]
    if not real or not sentence.word_fields >= {"rawEEG", "SFD"}:
        raise Dropped(MISSING)
    return [Word(word.content, word.fixations, sentence.words[k].eeg) for k, word in enumerate(real)]


def _wang_ji_standardize(features: np.ndarray, zscore: bool) -> np.ndarray:
    if np.isnan(features).any():
        raise Dropped(NAN)
    if zscore:
        with np.errstate(all="ignore"):
            spread = features.std(axis=1, ddof=1, keepdims=True)
            features = (features - features.mean(axis=1, keepdims=True)) / spread
        if np.isnan(features).any():
            raise Dropped(CONSTANT)
    with np.errstate(over="ignore"):
        features = features.astype(np.float32)
    if not np.isfinite(features).all():
        raise Dropped(ABSURD)  # their scripts keep infinite values
    return features
