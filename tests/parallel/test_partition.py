"""Which rule places which array."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from eeg2text_jax.base.devices.mesh import FULLY_SHARDED, REPLICATED, make_mesh, put_batch, state_shardings


def specs(state, mesh, rules):
    return jax.tree.map(lambda sharding: sharding.spec, state_shardings(state, mesh, rules))


@pytest.fixture
def params():
    """Two arms, three stacked layers."""
    shapes = {
        "layers": {"kernel": (2, 3, 256, 512), "bias": (2, 3, 512)},
        "embedding": (2, 1001, 128),
        "odd": (2, 301, 303),
    }
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), shapes, is_leaf=lambda x: isinstance(x, tuple))


def test_replicated_divides_the_arms_alone(params):
    found = specs({"params": params, "step": jax.ShapeDtypeStruct((), jnp.int32)}, make_mesh(2, 4), REPLICATED)
    assert found.pop("step") == P()
    assert {*jax.tree.leaves(found, is_leaf=lambda x: isinstance(x, P))} == {P("arm")}


def test_fully_sharded_divides_the_longest_axis_that_can_be(params):
    found = specs(params, make_mesh(2, 4), FULLY_SHARDED)
    assert found["layers"]["kernel"] == P("arm", None, None, "data")
    assert found["layers"]["bias"] == P("arm")  # small
    assert found["embedding"] == P("arm", None, "data")  # 1001 rows do not divide by 4
    assert found["odd"] == P("arm")
    assert specs(params, make_mesh(8, 1), FULLY_SHARDED)["embedding"] == P("arm")


def test_optimizer_state_lies_like_its_parameters(params):
    state = jax.eval_shape(jax.vmap(optax.adamw(1e-3).init), params)
    found = specs(state, make_mesh(2, 4), FULLY_SHARDED)
    assert found[0].mu == found[0].nu == specs(params, make_mesh(2, 4), FULLY_SHARDED)
    assert found[0].count == P("arm")


def test_the_first_rule_holds_and_every_array_needs_one(params):
    mesh = make_mesh(2, 4)
    rules = ((r"kernel$", (None, None, "data")), (r"layers/", ()), (r"embedding|odd", ()))
    assert specs(params, mesh, rules)["layers"] == {"kernel": P("arm", None, None, "data"), "bias": P("arm")}
    with pytest.raises(ValueError, match="no partition rule matches embedding"):
        specs(params, mesh, rules[:1])
    with pytest.raises(ValueError, match="the rule for embedding names the axes"):
        specs(params, mesh, ((r".*", (None, None, "data")),))


def test_batches_are_divided_by_rows_and_shared_by_arms():
    mesh = make_mesh(2, 4)
    batch = {
        "features": np.arange(8 * 3 * 2, dtype=np.float32).reshape(8, 3, 2),
        "sample_id": np.arange(8, dtype=np.int32),
    }
    placed = put_batch(batch, mesh)
    for name, array in placed.items():
        np.testing.assert_array_equal(array, batch[name])
        assert array.sharding.spec == P("data")
        assert {shard.data.shape for shard in array.addressable_shards} == {(2, *batch[name].shape[1:])}
