"""Placing tensors on devices, whole and in shards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.backbones.mapping import Source
from eeg2text_jax.models.pretrained.load import assemble, place

MESH = jax.make_mesh((2, 4), ("arm", "data"), axis_types=(AxisType.Auto,) * 2)


def layers(dtype=np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(40, 24)).astype(dtype) for _ in range(4)]


@pytest.mark.parametrize("spec", [None, (), (None, "data"), (None, None, "data"), ("arm", "data", None), ("data",)])
def test_stacked_and_turned_layers_in_any_sharding(spec):
    sharding = None if spec is None else NamedSharding(MESH, PartitionSpec(*spec))
    pieces = [layer.T for layer in layers()]
    array = place(pieces, sharding, stacked=True)
    np.testing.assert_array_equal(array, np.stack(pieces))
    assert sharding is None or array.sharding.is_equivalent_to(sharding, array.ndim)


def test_vectors_and_the_default_device():
    vector = np.arange(5, dtype=np.float32)
    array = place([vector], None, stacked=False)
    assert len(array.devices()) == 1
    vector[:] = 0  # the parameter is a copy
    np.testing.assert_array_equal(array, np.arange(5))


@pytest.mark.parametrize("spec", [None, ("arm",), ("arm", None, "data"), (None, "data")])
def test_equal_arms(spec):
    sharding = None if spec is None else NamedSharding(MESH, PartitionSpec(*spec))
    array = place(layers(), sharding, stacked=True, arms=6)
    np.testing.assert_array_equal(array, np.stack([np.stack(layers())] * 6))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16, np.int8])
def test_what_is_no_number_is_named_whatever_it_becomes(dtype, turned):
    pieces = layers()
    pieces[2][3, 5] = np.nan
    pieces = [piece.T for piece in pieces] if turned else pieces
    source = Source(pieces, True, tuple(f"layer.{i}" for i in range(4)), "checkpoint")
    leaf = jax.ShapeDtypeStruct((4, *pieces[0].shape), dtype)
    scale = jax.ShapeDtypeStruct((4, 1, pieces[0].shape[1]), np.float32)
    with pytest.raises(UserError, match=r"checkpoint: layer\.2 holds values that are not a number"):
        assemble({"a/kernel": source}, {"a": {"kernel": leaf} | ({"kernel_scale": scale} if dtype == np.int8 else {})})
