"""The device mesh: axis `arm` (arms of the grid, which never communicate) by axis `data` (samples of a batch)."""

import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh

from eeg2text_jax.errors import UserError

ARM, DATA = "arm", "data"


def mesh_shape(n_devices: int, n_arms: int, batch_size: int, wanted: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Devices along `arm` and along `data`.

    Left to choose, as many devices as divide the arms go along `arm`, since arms cost no communication, and the
    rest along `data`. Arms that outnumber their devices are computed side by side on each.

    Args:
      n_devices: devices of all hosts.
      batch_size: the global one.
      wanted: the configuration's choice; 0 for an axis that follows from the other one.

    Raises:
      UserError: the axes do not multiply to the devices, or do not divide the arms and the batch.
    """
    arm, data = wanted
    if not arm and data:
        arm = n_devices // data
    arm = arm or math.gcd(n_arms, n_devices)
    data = data or n_devices // arm
    if arm * data != n_devices:
        raise UserError(
            f"parallel.mesh = {tuple(wanted)} does not use all {n_devices} devices; take 0 to have it chosen."
        )
    if n_arms % arm:
        raise UserError(f"parallel.mesh puts {arm} devices on the arms, which does not divide the {n_arms} arms.")
    if batch_size % data:
        nearest = max(round(batch_size / data), 1) * data
        raise UserError(
            f"batch.size = {batch_size} does not divide among {data} devices; take {nearest} or another parallel.mesh."
        )
    return arm, data


def make_mesh(arm: int, data: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh `("arm", "data")` whose shardings XLA propagates (Auto axes; `jax.make_mesh` would take Explicit ones).

    Args:
      devices: `arm * data` of them, `jax.devices()` by default. Given ones are laid out row by row: those of one
        arm are neighbours.
    """
    types = (AxisType.Auto, AxisType.Auto)
    if devices is None:
        return jax.make_mesh((arm, data), (ARM, DATA), axis_types=types)
    return Mesh(np.asarray(devices).reshape(arm, data), (ARM, DATA), axis_types=types)


def abstract_mesh(arm: int, data: int) -> AbstractMesh:
    """A mesh of no devices, for which programs can be lowered, not compiled."""
    return AbstractMesh((arm, data), (ARM, DATA), axis_types=(AxisType.Auto, AxisType.Auto))
