"""Scripts that are written without spaces (Chinese, Japanese, Thai and others): every character counts as a word.

What a metric calls a word is what stands between spaces. A sentence without spaces would be one word, right or wrong
as a whole.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from eeg2text_jax.predictions.file import Prediction

UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002ffff]"
)
NOTE = (
    "the references are of a script without spaces: texts are scored by characters, each of which counts as a word, as "
    "sacrebleu's zh tokenizer has it."
)
Controls = Mapping[str, Sequence[Prediction]]
Groups = Mapping[str, Mapping[str, str]]


def is_unspaced(references: Iterable[str]) -> bool:
    """Whether more than half of the letters are of a script without spaces."""
    text = "".join(set(references))
    return 2 * len(UNSPACED.findall(text)) > sum(map(str.isalpha, text))


def spaced(text: str) -> str:
    """A text with spaces around every character of a script without spaces."""
    return " ".join(UNSPACED.sub(r" \g<0> ", text).split())


def by_characters(rows: Sequence[Prediction]) -> list[Prediction]:
    """Rows with spaced texts; their number of words is that of their characters."""
    found = []
    for row in rows:
        reference = spaced(row.reference)
        words = len(reference.split())
        found.append(dataclasses.replace(row, reference=reference, prediction=spaced(row.prediction), n_words=words))
    return found


def in_one_script(
    eeg: Sequence[Prediction], controls: Controls, groups: Groups
) -> tuple[Sequence[Prediction], Controls, Groups, list[str]]:
    """Rows, controls and labels as they are scored, and a note where that is by characters."""
    if not is_unspaced(row.reference for row in eeg):
        return eeg, controls, groups, []
    labels = {column: {spaced(text): label for text, label in known.items()} for column, known in groups.items()}
    return by_characters(eeg), {name: by_characters(rows) for name, rows in controls.items()}, labels, [NOTE]
