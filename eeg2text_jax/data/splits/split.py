"""A split: which samples of a data file train, tune and test a model."""

import dataclasses
import hashlib
import json
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


def part_sizes(n: int, ratio: tuple[float, float, float]) -> tuple[int, int, int]:
    """Units of each part: `int(n * train)`, `int(n * dev)`, the rest for test (the authors' rounding)."""
    train, dev = int(n * ratio[0] + 1e-9), int(n * ratio[1] + 1e-9)
    return train, dev, n - train - dev
