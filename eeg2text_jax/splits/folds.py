"""Folds: several splits of the same data whose test parts together hold every text once.

One split of few subjects or sentences tests few of them. Over all folds every text is tested by a model that has not
seen it, so an audit of all test parts has as many sentences as the data.
"""

from collections.abc import Sequence

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.split import PARTS, Split, check_ratio, text_units
from eeg2text_jax.splits.stretches import block_folds

SUBJECTS = "subjects"  # as many folds as there are: leave one subject out
Groups = list[np.ndarray]  # of units: the test part of each fold


def make_folds(
    data: DataFile, method: str, folds: int | str, ratio: Sequence[float], seed: int, gap: float = 0.0
) -> list[Split]:
    """Return a split of a data file for each fold.

    Args:
      data: the samples.
      method: "unique_text" (texts in turn; no text of a test part trains), "f" (subjects and texts in turn: fold k
        tests group k of the texts, read by group k of the subjects, and trains on the other texts of the others), "a"
        (subjects in turn, with shared texts: the classical leave-one-subject-out, and a leak), or "blocks" (stretches
        of each recording in turn, with texts of their own).
      folds: how many, 2 or more; or "subjects", one for each.
      ratio: train, dev and test; only that of train to dev counts.
      seed: the only source of randomness.
      gap: seconds left out between parts; only for "blocks".

    Raises:
      UserError: another method, fewer units than folds, or an empty part.
    """
    rng = np.random.default_rng(seed)
    _, subject = np.unique(data.subject.astype(str), return_inverse=True)
    _, text = np.unique(text_units(data), return_inverse=True)
    n_subjects, n_texts = subject.max() + 1, text.max() + 1
    if method not in ("unique_text", "f", "a", "blocks"):
        raise UserError(f"--folds: split.method is {method!r}; expected unique_text, f, a or blocks.")
    if folds == SUBJECTS and method in ("unique_text", "blocks"):
        raise UserError(f"--folds=subjects: split.method is {method!r}, which divides texts; take f, or a number.")
    count = n_subjects if folds == SUBJECTS else int(folds)
    least = {"f": min(n_subjects, n_texts), "a": n_subjects}.get(method, n_texts)
    if not 2 <= count <= least:
        what = "texts" if method in ("unique_text", "blocks") else "subjects"
        raise UserError(f"--folds is {count}; expected from 2 to {least}, as there are so many {what} to divide.")
    train, dev, _ = check_ratio(tuple(ratio))
    share = dev / (train + dev)
    if method == "blocks":
        return block_folds(data, count, share, seed, gap)
    texts, subjects = _groups(n_texts, count, rng), _groups(n_subjects, count, rng)
    parts = []
    for k in range(count):
        of_text = _parts(texts, k, share, rng) if method != "a" else None
        of_subject = _parts(subjects, k, share, rng) if method != "unique_text" else None
        parts.append(_rows(subject, text, of_subject, of_text))
    return [Split.of(data, f"{method}, fold {k + 1} of {count}", seed, part) for k, part in enumerate(parts)]


def _groups(n: int, count: int, rng: np.random.Generator) -> Groups:
    """Divide the units 0 to n - 1 at random into groups of about equal size."""
    return np.array_split(rng.permutation(n), min(n, count))


def _parts(groups: Groups, k: int, share: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the units of each part in fold k: its group tests, the others are divided between dev and train."""
    others = rng.permutation(np.concatenate([group for i, group in enumerate(groups) if i != k]))
    n_dev = min(max(round(len(others) * share), 1), len(others) - 1)
    if n_dev < 1:
        raise UserError("--folds: a fold needs a subject or text each for train, dev and test; there are too few.")
    return {"train": others[n_dev:], "dev": others[:n_dev], "test": groups[k]}


def _rows(
    subject: np.ndarray,
    text: np.ndarray,
    of_subject: dict[str, np.ndarray] | None,
    of_text: dict[str, np.ndarray] | None,
) -> dict[str, np.ndarray]:
    """Return the samples of each part: those whose subject and text are the part's, if these are divided."""
    parts = {}
    for name in PARTS:
        inside = np.ones(len(subject), bool)
        for unit, of in ((subject, of_subject), (text, of_text)):
            if of is not None:
                inside &= np.isin(unit, of[name])
        parts[name] = np.flatnonzero(inside)
    return parts
