"""A second test file, like the paper's conversations: its references leave train and dev, its AUC is printed apart."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.judge.pairs import Pair, Parts, is_exact, normalize
from eeg2text_jax.judge.results import speakers_table
from eeg2text_jax.judge.thresholds import auc, auc_interval

Scores = Callable[[Sequence[Pair]], np.ndarray]  # pairs -> s, [N]


def digests(pairs: Sequence[Pair]) -> set[str]:
    """Return the SHA-256 of every normalized reference."""
    return {hashlib.sha256(normalize(pair.reference).encode()).hexdigest() for pair in pairs}


def hold_out(parts: Parts, tested: Sequence[Pair], where: str) -> Parts:
    """Return the parts without the pairs of train and dev whose reference is in the test file.

    References are compared normalized: without case and punctuation.

    Raises:
      UserError: train or dev then lacks a class, or the test file has no pair with an error.
    """
    if all(is_exact(pair.reference, pair.hypothesis) for pair in tested):
        raise UserError(f"{where}: has no pair with an error; expected such pairs to test with; give another file.")
    held = {normalize(pair.reference) for pair in tested}
    kept = {
        name: [pair for pair in getattr(parts, name) if normalize(pair.reference) not in held]
        for name in ("train", "dev")
    }
    for name, pairs in kept.items():
        if len({pair.preserved for pair in pairs}) < 2:
            raise UserError(
                f"{where}: the {name} part keeps only {len(pairs)} pairs, not of both classes (preserved and lost), "
                "after the references of this test file are taken out; give more pairs to tune on."
            )
    return dataclasses.replace(parts, train=kept["train"], dev=kept["dev"])


def second_results(
    path: str, before: Parts, parts: Parts, tested: Sequence[Pair], scores: Scores, threshold: float, exact: str
) -> dict[str, Any]:
    """Return the entry `second_test` of `results.json`.

    Args:
      before: the parts before `hold_out`, to count the pairs that it took out.
      scores: scores of the tuned judge; only pairs with an error are asked.
    """
    wrong = [pair for pair in tested if not is_exact(pair.reference, pair.hypothesis)]
    labels, values = np.array([pair.preserved for pair in wrong]), scores(wrong)
    spoken = [pair for pair in tested if pair.speaker]
    mine = digests(tested)
    return {
        "file": path,
        "pairs": len(tested),
        "with_an_error": len(wrong),
        "references": len(mine),
        "taken_out": {name: len(getattr(before, name)) - len(getattr(parts, name)) for name in ("train", "dev")},
        "references_in_training": len(mine & digests([*parts.train, *parts.dev])),
        "auc": auc(values, labels),
        "auc_interval": auc_interval(values, labels, [normalize(pair.reference) for pair in wrong]),
        "speakers": speakers_table(spoken, scores, threshold, exact=exact) if spoken else None,
    }
