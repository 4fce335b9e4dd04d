"""TPU chips: memory, and peaks from the makers' data sheets."""

import dataclasses

import jax
from jax.experimental import topologies

from eeg2text_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Chip:
    """One JAX device of a TPU generation. `hbm` in bytes, `flops` bfloat16 a second, `bandwidth` bytes a second."""

    name: str
    hbm: int
    flops: float
    bandwidth: float


CHIPS = {
    "v4": Chip("TPU v4", 32 * 2**30, 275e12, 1228e9),
    "v5e": Chip("TPU v5e", 16 * 2**30, 197e12, 819e9),
    "v5p": Chip("TPU v5p", 95 * 2**30, 459e12, 2765e9),
    "v6e": Chip("TPU v6e", 32 * 2**30, 918e12, 1640e9),
}


def open_topology(name: str) -> tuple[Chip, list[jax.Device]]:
    """Chip and devices of a slice such as `v5e:2x4` or `v4:2x2x2`; needs no TPU, but libtpu.

    Raises:
      UserError: the name is not one of a slice, or libtpu is not installed.
    """
    generation, colon, _ = name.partition(":")
    if generation not in CHIPS or not colon:
        raise UserError(f"--topology={name!r}; expected one like v5e:2x4, of {', '.join(CHIPS)}.")
    try:
        described = topologies.get_topology_desc(platform="tpu", topology_name=name)
    except Exception as error:  # libtpu reports a wrong shape in several kinds
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise UserError(
            f"--topology={name!r} cannot be described ({reason}); see that the shape exists and that libtpu is "
            "installed: pip install 'eeg2text_jax[tpu]'."
        ) from error
    return CHIPS[generation], list(described.devices)
