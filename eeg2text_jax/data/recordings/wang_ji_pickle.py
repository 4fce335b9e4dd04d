"""The pickles that the scripts of Wang & Ji (and NeuSpeech's copy of them) make: one task, all subjects.

They hold fixated words only, of the measures GD, FFD and TRT. What the scripts did wrong when they made one (see
`wang_ji`) is in the pickle and cannot be undone.
"""

import collections
from pathlib import Path
from typing import Any

from eeg2text_jax.data.recordings.sentence import Fields, Sentence, UnreadableRecording, Word
from eeg2text_jax.data.recordings.unpickle import Forbidden, array, load_plain
from eeg2text_jax.errors import UserError, first_line

MEASURES = ("GD", "FFD", "TRT")
_MASK = "[MASK]"


def read_pickle(path: Path, fields: Fields) -> collections.OrderedDict[str, list[Sentence | None]]:
    """Reads a pickle without executing anything that it names.

    Returns:
      The sentences of each subject, subjects sorted; None for a sentence that the scripts found missing.

    Raises:
      UnreadableRecording: the file is no such pickle, is damaged, or names a class or function that does not belong.
      UserError: the measure is not in these pickles.
    """
    if fields.measure not in MEASURES:
        raise UserError(
            f"{path}: Wang & Ji's pickles hold {', '.join(MEASURES)}, not {fields.measure}; "
            "choose another data.recordings.measure or read the MATLAB files."
        )
    try:
        with path.open("rb") as file:
            content = load_plain(file)
        if not isinstance(content, dict) or not content:
            raise TypeError("it holds no dictionary of subjects")
        subjects = collections.OrderedDict()
        for subject in sorted(content):
            subjects[subject] = [_sentence(item, fields) for item in content.pop(subject)]
    except Forbidden as error:
        raise UnreadableRecording(
            path, f"refused, nothing was executed: it names {error}, and recordings hold only arrays, text and numbers."
        ) from error
    except Exception as error:  # a damaged pickle makes the C unpickler raise nearly anything
        reason = f"missing {first_line(error)}" if isinstance(error, KeyError) else first_line(error)
        raise UnreadableRecording(
            path, f"is damaged or not a pickle by Wang & Ji's scripts ({type(error).__name__}: {reason})."
        ) from error
    return subjects


def _sentence(item: Any, fields: Fields) -> Sentence | None:
    if item is None:
        return None
    words = tuple(_word(word, fields) for word in item["word"])
    _check_tokens(item, words)
    means = tuple(array(item["sentence_level_EEG"][name]) for name in fields.sentence)
    tokens = tuple(_text(token) for token in item["word_tokens_all"])
    return Sentence(_text(item["content"]), words, tokens, frozenset(), means)


def _word(item: Any, fields: Fields) -> Word:
    measured = item["word_level_EEG"][fields.measure]
    count = array(item["nFixations"])
    return Word(_text(item["content"]), float(count.item()), tuple(array(measured[name]) for name in fields.word))


def _check_tokens(item: Any, words: tuple[Word, ...]) -> None:
    """The scripts store the fixated words three times; a damaged file contradicts itself."""
    contents = [word.content for word in words]
    masked, every = item["word_tokens_with_mask"], item["word_tokens_all"]
    fixated = [token for token, mask in zip(every, masked, strict=True) if mask != _MASK]
    if contents != item["word_tokens_has_fixation"] or contents != fixated:
        raise ValueError("the words of a sentence contradict its list of tokens")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where text was expected")
    return value
