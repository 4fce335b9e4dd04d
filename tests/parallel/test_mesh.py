"""Choosing a mesh."""

import jax
import pytest
from jax.sharding import AxisType

from eeg2text_jax.base.devices.mesh import make_mesh, mesh_shape
from eeg2text_jax.base.errors import UserError


@pytest.mark.parametrize(
    ("devices", "arms", "wanted", "expected"),
    [
        (1, 2, (0, 0), (1, 1)),
        (8, 2, (0, 0), (2, 4)),
        (8, 6, (0, 0), (2, 4)),
        (4, 8, (0, 0), (4, 1)),
        (8, 3, (0, 0), (1, 8)),
        (8, 2, (1, 0), (1, 8)),
        (8, 4, (0, 4), (2, 4)),
        (8, 8, (8, 1), (8, 1)),
    ],
)
def test_mesh_shape(devices, arms, wanted, expected):
    assert mesh_shape(devices, arms, 32, wanted) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 2, 32, (2, 2)), "does not use all 8 devices"),
        ((8, 2, 32, (0, 16)), "does not use all 8 devices"),
        ((8, 3, 32, (2, 4)), "3 arms do not divide evenly among them"),
        ((8, 1, 30, (0, 0)), "batch.size = 30 does not divide among 8 devices; take 32"),
    ],
)
def test_mesh_shape_says_what_is_wrong(arguments, message):
    with pytest.raises(UserError, match=message):
        mesh_shape(*arguments)


def test_axes_are_propagated_by_xla():
    for mesh in (make_mesh(2, 4), make_mesh(4, 1, jax.devices()[:4])):
        assert mesh.axis_names == ("arm", "data")
        assert mesh.axis_types == (AxisType.Auto, AxisType.Auto)
    assert make_mesh(4, 1, jax.devices()[:4]).shape == {"arm": 4, "data": 1}
