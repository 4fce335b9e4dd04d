"""A split: which samples of a data file train, tune and test a model."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping

import numpy as np

from eeg2text_jax.errors import UserError

PARTS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class Split:
    """Sample indices by part. Each value is a sorted int64 array; a sample is in one part or in none."""

    method: str
    seed: int
    parts: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        for name in PARTS:
            if not len(self.parts[name]):
                raise UserError(
                    f"split {self.method!r} (seed {self.seed}) leaves its {name} part empty; "
                    "give it more sentences or subjects, another ratio or another seed."
                )

    def digest(self) -> str:
        """Hash of the parts' sample indices: carried by checkpoints and predictions."""
        content = json.dumps({name: self.parts[name].tolist() for name in PARTS})
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def kept(self) -> int:
        """Samples that are in any part."""
        return sum(len(self.parts[name]) for name in PARTS)


def part_sizes(n: int, ratio: tuple[float, float, float]) -> tuple[int, int, int]:
    """Units of each part: `int(n * train)`, `int(n * dev)`, the rest for test (the authors' rounding)."""
    train, dev = int(n * ratio[0] + 1e-9), int(n * ratio[1] + 1e-9)
    return train, dev, n - train - dev


def check_ratio(ratio: tuple[float, ...]) -> tuple[float, float, float]:
    """The shares of train, dev and test as three floats.

    Raises:
      UserError: they are not three positive numbers that add up to 1.
    """
    if len(ratio) != len(PARTS) or min(ratio) <= 0 or abs(sum(ratio) - 1) > 1e-6:
        raise UserError(
            f"split.ratio: expected three positive shares (train, dev, test) that add up to 1, got {tuple(ratio)}; "
            "write for example 0.8,0.1,0.1."
        )
    train, dev, test = map(float, ratio)
    return train, dev, test


def check_same_split(expected_digest: str, header_digest: str | None, path: str | os.PathLike[str]) -> None:
    """Refuses a checkpoint or predictions file made with another split: its train part may hold our test part.

    Args:
      expected_digest: `Split.digest()` of the split in use.
      header_digest: the digest that the file carries; None where it carries none.
      path: the file, for the message.

    Raises:
      UserError: the digests differ, or the file carries none.
    """
    if header_digest != expected_digest:
        found = f"split {header_digest}" if header_digest else "no split hash"
        raise UserError(
            f"{path}: carries {found}, expected split {expected_digest}; its training may have seen our test part, "
            "so use the configuration (split method, ratio and seed) that it was made with."
        )
