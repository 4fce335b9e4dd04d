"""Chips that work together, by the name of a slice or a number of GPUs."""

import dataclasses
import importlib.util
import re

from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.parallel.chips import CHIPS, Chip


@dataclasses.dataclass(frozen=True)
class Topology:
    """Chips that work together: of a TPU a slice such as `v5e:2x4`, of GPUs a number, `h100:8`."""

    name: str
    chip: Chip
    shape: tuple[int, ...]


def parse_topology(name: str) -> Topology:
    """Reads `v5e:2x4` or `h100:8`; imports nothing of JAX.

    Raises:
      UserError: no such chip, or no shape after its name.
    """
    key, _, shape = name.lower().partition(":")
    if key not in CHIPS:
        raise UserError(f"--topology={name!r}: there is no chip {key!r}; {did_you_mean(key, CHIPS)}")
    chip = CHIPS[key]
    pattern, example = (r"[1-9]\d*(x[1-9]\d*)+", "2x4") if chip.platform == "tpu" else (r"[1-9]\d*", "8")
    if not re.fullmatch(pattern, shape):
        raise UserError(f"--topology={name!r}: expected a shape after the chip, as in '{key}:{example}'.")
    return Topology(f"{key}:{shape}", chip, tuple(int(n) for n in shape.split("x")))


def require_libtpu() -> None:
    """
    Raises:
      UserError: the compiler for TPUs is not installed.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise UserError("compiling for a TPU needs libtpu: pip install 'eeg2text_jax[preflight]'.")
