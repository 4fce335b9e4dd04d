"""Feeding the arms without an exchange between them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from eeg2text_jax.base.chips.hlo_text import collectives
from eeg2text_jax.base.devices import arms
from eeg2text_jax.base.devices.arms import choose_by_arm, jit_once, shard_map_arms, tensor_parallel_arms
from eeg2text_jax.base.devices.mesh import make_mesh


def stack(values, which):
    return jnp.stack([values[i] for i in which])


@pytest.mark.parametrize("which", [(0, 1, 2, 0), (0, 0), (1, 0, 1)])
def test_a_choice_is_the_stack(which):
    values = [jnp.asarray(np.random.default_rng(i).normal(size=(4, 3)), jnp.float32) for i in range(3)]
    np.testing.assert_array_equal(choose_by_arm(values, which), stack(values, which))
    whole = [value.astype(jnp.int32) for value in values]
    assert choose_by_arm(whole, which).dtype == jnp.int32


@pytest.mark.parametrize(("feed", "axes"), [(choose_by_arm, set()), (stack, {"arm"})])
def test_a_stack_is_exchanged_between_the_arms_and_a_choice_is_not(feed, axes):
    mesh = make_mesh(2, 4)
    x = jax.ShapeDtypeStruct((16, 6, 10), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    w = jax.ShapeDtypeStruct((8, 10, 10), jnp.float32, sharding=NamedSharding(mesh, P("arm")))

    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        fed = feed([x, jnp.sin(x)], (0, 1, 0, 1, 0, 1, 0, 1))
        return jax.vmap(jnp.matmul, spmd_axis_name="arm")(fed, jnp.broadcast_to(w[:, None], (8, 16, 10, 10)))

    out = NamedSharding(mesh, P("arm", "data"))
    text = jax.jit(step, out_shardings=out).lower(w, x).compile().as_text()
    assert {axis for c in collectives(text, mesh) for axis in c.axes} == axes


def test_every_shard_loops_by_itself():
    """Doubling until a row's sum is large: each shard as often as its own rows need, and nothing exchanged."""

    def double(params: jax.Array, fed: jax.Array, shared: jax.Array) -> tuple[jax.Array, jax.Array]:
        start = (jnp.abs(fed) * params + shared, jnp.zeros((), jnp.int32))
        x, steps = jax.lax.while_loop(lambda s: s[0].min() < 100, lambda s: (s[0] * 2, s[1] + 1), start)
        return x, jnp.broadcast_to(steps, x.shape)

    mesh = make_mesh(2, 4)
    rng = np.random.default_rng(0)
    params, fed = rng.uniform(1, 9, 4).astype(np.float32), rng.uniform(0.1, 99, (4, 8)).astype(np.float32)
    shared = np.ones(8, np.float32)
    apart = shard_map_arms(double, mesh).lower(params, fed, shared).compile()
    assert collectives(apart.as_text(), mesh) == []
    x, steps = apart(params, fed, shared)
    for arm in range(4):
        for rows in np.split(np.arange(8), 4):
            alone = double(jnp.asarray(params[arm]), jnp.asarray(fed[arm, rows]), jnp.asarray(shared[rows]))
            np.testing.assert_allclose(x[arm, rows], alone[0], rtol=1e-6)  # product and sum may be rounded once
            np.testing.assert_array_equal(steps[arm, rows], alone[1])
    assert len(np.unique(steps)) > 1


def test_equal_arguments_give_one_jitted_function():
    """Of a method of one object, and of shardings that are made anew; other options or another object give another."""

    class Twice:
        def of(self, x):
            return jax.tree.map(lambda leaf: 2 * leaf, x)

    def jitted(object, *axes, **options):
        where = {"a": NamedSharding(make_mesh(2, 4), P(*axes)), "b": NamedSharding(make_mesh(2, 4), P())}
        return jit_once(object.of, out_shardings=where, **options)

    one, other, x = Twice(), Twice(), {"a": jnp.ones(8), "b": jnp.ones(8)}
    assert jitted(one, "data") is jitted(one, "data")
    ways = {jitted(one, "data"), jitted(other, "data"), jitted(one, "arm"), jitted(one, "data", donate_argnums=0)}
    assert len(ways) == 4
    found = jitted(one, "data")(x)
    assert found["a"].sharding.spec == P("data")
    assert (found["a"] == 2).all()


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("gpu", {"xla_gpu_dot_merger_threshold_mb": 0, "xla_gpu_enable_triton_gemm": False}),
        ("tpu", {"xla_tpu_scoped_vmem_limit_kib": 32768}),
        ("cpu", {}),
    ],
)
def test_accelerators_compile_a_step_with_their_options(monkeypatch, platform, expected):
    """The options of GPUs are XLA's: a compiler that does not know a name would refuse it."""
    given = {}
    monkeypatch.setattr(jax, "jit", lambda step, **options: given.update(options))
    for name in ("seeds_sharding", "arm_sharding", "replicated"):
        monkeypatch.setattr(arms, name, lambda mesh: None)
    arms.compile_step(None, SimpleNamespace(devices=np.array([SimpleNamespace(platform=platform)])), None)
    assert given["compiler_options"] == expected
    monkeypatch.undo()
    if platform == "gpu":  # those of a TPU are known to libtpu alone, see tests/preflight
        assert jax.jit(lambda x: x + 1, compiler_options=expected)(1) == 2


@pytest.mark.parametrize("function_of", [shard_map_arms, tensor_parallel_arms])
@pytest.mark.parametrize(("platform", "expected"), [("gpu", {"xla_gpu_enable_triton_gemm": False}), ("cpu", {})])
def test_all_searches_have_the_options_of_their_platform(monkeypatch, function_of, platform, expected):
    given = {}
    monkeypatch.setattr(jax, "jit", lambda function, **options: given.update(options))
    function_of(None, SimpleNamespace(devices=np.array([SimpleNamespace(platform=platform)])))
    assert given["compiler_options"] == expected
