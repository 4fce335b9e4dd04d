"""The methods of splitting by name: what `config.split.method` and `eeg2text split --method` accept."""

import os
from collections.abc import Callable, Sequence

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.splits.bipartite import f
from eeg2text_jax.splits.positional import unique_sent, unique_subj
from eeg2text_jax.splits.shuffled import by_sentence, by_subject, pooled
from eeg2text_jax.splits.split import Split, check_ratio
from eeg2text_jax.splits.splitfile import read_split_file
from eeg2text_jax.splits.unique_text import unique_text

METHODS: dict[str, Callable[[DataFile, tuple[float, float, float], int], Split]] = {
    "unique_text": unique_text,
    "unique_sent": unique_sent,
    "unique_subj": unique_subj,
    "a": by_subject,
    "c": pooled,
    "d": by_sentence,
    "f": f,
}
FROM_FILE = "file"  # the parts that a split file names


def make_split(
    data: DataFile, method: str, ratio: Sequence[float], seed: int, path: str | os.PathLike[str] = ""
) -> Split:
    """Divides the samples of a data file.

    Args:
      data: the samples.
      method: a name in `METHODS`, or "file" for the parts that the file at `path` names.
      ratio: shares of train, dev and test, of the units that the method shuffles.
      seed: the only source of chance.
      path: a certificate or another split file; for method "file" only.

    Raises:
      UserError: an unknown method, a bad ratio, an empty part, or a split file that does not fit the data.
    """
    if method == FROM_FILE:
        if not path:
            raise UserError("split.method=file needs split.path, a certificate or split file in JSON.")
        return read_split_file(path).resolve(data)
    if method not in METHODS:
        hint = did_you_mean(method, [*METHODS, FROM_FILE])
        raise UserError(f"split.method: there is no splitting method {method!r}; {hint}")
    return METHODS[method](data, check_ratio(tuple(ratio)), seed)
