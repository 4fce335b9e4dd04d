"""Check that the parts of a data file, a DataFile, fit together; the first fault is raised as a sentence."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError


def check_sums(data: Any, stated: dict[str, str] | None, found: Mapping[str, str]) -> None:
    """Compares the checksums that the file states, None in the format without them, with those found.

    Raises:
      UserError: some differ.
    """
    if stated is None:
        return
    pairs = {**{name: (stated.get(name), sum_) for name, sum_ in found.items()}}
    pairs["clock"] = stated.get("clock"), found.get("clock")
    pairs["description"] = stated.get("about"), stated["about now"]
    for name, (expected, sum_) in pairs.items():
        if expected != sum_:
            raise UserError(
                f"{data.path}: its {name} do not have the checksum that the file states, so it is damaged or was "
                "edited; make it again with `eeg2text prepare`."
            )


def check_columns(data: Any) -> None:
    """
    Raises:
      UserError: the parts do not fit together, or a sample has no words, no text or features that are not finite.
    """
    n, total = len(data.sentence), len(data.features)
    offsets = data.offsets
    if not n:
        raise UserError(f"{data.path}: holds no samples.")
    lengths = {len(data.subject), len(data.task), len(data.sentence_index), len(offsets) - 1}
    if lengths != {n} or offsets[0] != 0 or not _within(data, total):
        raise UserError(f"{data.path}: its columns disagree in length; make it again with `eeg2text prepare`.")
    if data.clock is not None and any(len(column) != n for column in data.clock.columns().values()):
        raise UserError(f"{data.path}: its columns of time disagree in length; make it again with `eeg2text prepare`.")
    if (data.n_words < 1).any():
        row = int(np.argmax(data.n_words < 1))
        raise UserError(f"{data.path}: sample {row} ({data.subject[row]}, {data.sentence_id[row]}) has no words.")
    if isinstance(data.features, np.ndarray) and not np.isfinite(data.features).all():
        row = int(np.searchsorted(offsets, np.argwhere(~np.isfinite(data.features))[0, 0], side="right")) - 1
        raise UserError(
            f"{data.path}: sample {row} ({data.subject[row]}, {data.sentence_id[row]}) has NaN or infinity."
        )
    if not all(text.strip() for text in data.sentence):
        row = next(i for i, text in enumerate(data.sentence) if not text.strip())
        raise UserError(
            f"{data.path}: the sentence of sample {row} ({data.subject[row]}, {data.sentence_id[row]}) is empty."
        )


def _within(data: Any, total: int) -> bool:
    """Whether the samples are what the features hold, none more and none less; windows lie inside the frames."""
    if data.starts is None:
        return data.offsets[-1] == total
    same = len(data.starts) == len(data.text_group) == len(data)
    return same and data.starts.min() >= 0 and (data.starts + data.n_words).max() <= total
