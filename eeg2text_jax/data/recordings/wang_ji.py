"""`--compat=wang-ji`: samples as the scripts of Wang & Ji (EEG-To-Text) build them, quirks included.

Their readers differ by file format, and so do the quirks:

MAT v5 (and pickles made from it)
  1. every token counts as a word, "--" as well, if its fixation count is above 0.
MAT v7.3 (a fixation count of whatever value makes a fixated word)
  2. tokens without an ASCII letter or digit are left out, and
  3. the k-th remaining word gets the EEG stored with the k-th token: after n left-out tokens, the EEG of the word n
     places earlier, which may be empty (the sentence is dropped then);
  4. a sentence without SFD fields or without rawEEG (no word was fixated once, or none at all) is missing.
Both
  5. one word with NaN, without 8 x 105 values or with constant ones drops its sentence;
  6. so do NaN in the sentence's own mean bands, although nothing is computed from them;
  7. typing errors in the sentences stay;
  8. the index of a sentence is its place in the subject's file, whatever the text there;
  9. values are not dropped for their size (`prepare` counts those that are absurd).

Where their scripts stop with an error (a one-word sentence, more than 56 fixated words, an empty fixation count
under numpy 2.2), there is nothing to reproduce and the sentence is read as usual.
"""

import re

import numpy as np

from eeg2text_jax.data.recordings.features import (
    ABSURD,
    CONSTANT,
    MISSING,
    NAN,
    NO_WORD,
    WRONG_LENGTH,
    Dropped,
    stacked,
)
from eeg2text_jax.data.recordings.sentence import CHANNELS, Sentence, Word

_REAL_WORD = re.compile("[a-zA-Z0-9]")
_NEEDED_V73 = {"rawEEG", "SFD"}


def wang_ji(sentence: Sentence | None, layout: str, zscore: bool) -> tuple[np.ndarray, str]:
    """Features float32 `[W, F]` and sentence as theirs.

    Args:
      sentence: as read.
      layout: `"mat-v5"`, `"mat-v7.3"` or `"pickle"`.
      zscore: theirs is True.

    Raises:
      Dropped: their code gives no sample.
    """
    if sentence is None or sentence.words is None:
        raise Dropped(MISSING)
    fixated = [word for word in _words(sentence, layout) if word.fixations is not None]
    if layout == "mat-v5":
        fixated = [word for word in fixated if word.fixations > 0]
    own = np.concatenate(sentence.means)
    if own.size != CHANNELS * len(sentence.means):
        raise Dropped(WRONG_LENGTH)
    _theirs(own[None].astype(np.float64), zscore=True)
    if not fixated:
        raise Dropped(NO_WORD)
    return _theirs(stacked(fixated), zscore), sentence.content


def _words(sentence: Sentence, layout: str) -> list[Word]:
    if layout != "mat-v7.3":
        return list(sentence.words)
    real = [word for word in sentence.words if _REAL_WORD.search(word.content)]
    if not real or not sentence.word_fields >= _NEEDED_V73:
        raise Dropped(MISSING)
    return [Word(word.content, word.fixations, sentence.words[k].eeg) for k, word in enumerate(real)]


def _theirs(features: np.ndarray, zscore: bool) -> np.ndarray:
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
        raise Dropped(ABSURD)  # theirs goes on with infinity
    return features
