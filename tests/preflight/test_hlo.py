"""Reading a program's collectives: every notation of groups, and programs whose communication is known."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from eeg2text_jax.base.chips.hlo_text import bytes_by_axis, collectives, replica_groups
from eeg2text_jax.base.devices.mesh import make_mesh

ROWS = [[0, 1, 2, 3], [4, 5, 6, 7]]  # along data of a 2 x 4 mesh
COLUMNS = [[0, 4], [1, 5], [2, 6], [3, 7]]  # along arm


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", ROWS),
        ("[2,4]<=[8]", ROWS),
        ("mesh['axis_0'=2,'axis_1'=4,'axis_2'=1] {'axis_1'}", ROWS),
        ("{{0,4},{1,5},{2,6},{3,7}}", COLUMNS),
        ("[4,2]<=[2,4]T(1,0)", COLUMNS),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", COLUMNS),
        ("mesh['a'=8] {'a':(1)2}", COLUMNS),
        ("mesh['a'=8] {'a':(2)4}", ROWS),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", COLUMNS),
        ("mesh['a'=4,'b'=2], device_ids=(0,4,1,5,2,6,3,7) {'b'}", COLUMNS),
        ("mesh['a'=1,'b'=4,'c'=2], device_ids=([2,4]T(1,0)) {'b'}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("{}", [list(range(8))]),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_0','axis_1'}", [list(range(8))]),
        ("[8,1]<=[8]", [[i] for i in range(8)]),
    ],
)
def test_notations(text, groups):
    assert replica_groups(text, 8) == groups


def compiled(function, *arrays: jax.Array) -> str:
    return jax.jit(function).lower(*arrays).compile().as_text()


def place(mesh, shape: tuple[int, ...], *axes: str | None) -> jax.Array:
    return jax.device_put(jnp.ones(shape), NamedSharding(mesh, P(*axes)))


@pytest.mark.parametrize("shape", [(2, 4), (4, 2)])
@pytest.mark.parametrize("axis", ["arm", "data", ("arm", "data")])
@pytest.mark.parametrize("op", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"])
def test_collectives_by_hand(shape, axis, op):
    """shard_map, where the program says what is exchanged; XLA lists the groups."""
    mesh = make_mesh(*shape)
    names = (axis,) if isinstance(axis, str) else axis
    n = int(np.prod([mesh.shape[name] for name in names]))
    ring = [(i, (i + 1) % n) for i in range(n)]
    exchange, size = {
        "all-reduce": (lambda x: jax.lax.psum(x, axis), 16),
        "all-gather": (lambda x: jax.lax.all_gather(x, axis)[0], 16 * n),
        "reduce-scatter": (lambda x: jax.lax.psum_scatter(x, axis, scatter_dimension=2, tiled=True), 16 // n),
        "all-to-all": (lambda x: jax.lax.all_to_all(x, axis, 2, 2, tiled=True), 16),
        "collective-permute": (lambda x: jax.lax.ppermute(x, axis, ring), 16),
    }[op]
    spec = P("arm", "data")
    program = functools.partial(jax.shard_map, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(exchange)
    found = collectives(compiled(program, place(mesh, (*shape, 16), "arm", "data")), mesh)
    assert [(c.op, c.axes, c.bytes, c.times) for c in found] == [(op, names, 4 * size, 1)]
    others = 64 * (n - 1)  # bytes of the other devices' arrays
    received = {"all-reduce": 2 * others / n, "all-gather": others, "collective-permute": 64}.get(op, others / n)
    assert [(c.received, c.asynchronous) for c in found] == [(pytest.approx(received), False)]


def test_collectives_by_propagation():
    """jit over a mesh, where XLA decides; it writes named axes and ranges."""
    mesh = make_mesh(2, 4)
    x, w = place(mesh, (2, 8, 16), "arm", "data"), place(mesh, (2, 16, 16), "arm", "data")
    texts = [compiled(f, x) for f in (lambda x: x.sum(1), lambda x: x.sum(0))]
    texts.append(compiled(jax.vmap(jnp.matmul, spmd_axis_name="arm"), x, w))
    assert [{c.axes for c in collectives(text, mesh)} for text in texts] == [{("data",)}, {("arm",)}, {("data",)}]
    assert "mesh[" in texts[0]
    assert "<=[" in texts[2]


def test_a_stop_condition_under_vmap_crosses_the_arms():
    """The mistake that the check is for: a while loop under vmap stops when all arms have."""

    def decode(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < 1e3, lambda x: x * 2, x)

    mesh = make_mesh(2, 4)
    x = place(mesh, (2, 16), "arm")
    found = collectives(compiled(jax.vmap(decode, spmd_axis_name="arm"), x), mesh)
    assert any("arm" in c.axes for c in found)
    apart = jax.shard_map(jax.vmap(decode), mesh=mesh, in_specs=P("arm"), out_specs=P("arm"))
    assert collectives(compiled(apart, x), mesh) == []


@pytest.mark.parametrize("written", [True, False])
def test_loops_count_their_length(written):
    """Also where the compiler does not write it beside the loop, as the TPU's: then the loop's condition tells."""
    mesh = make_mesh(2, 4)

    def program(x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jax.lax.psum(jnp.sin(x), "data"), None

        inner = jax.lax.scan(layer, x, length=3)[0]
        return jax.lax.scan(lambda x, _: (jax.lax.scan(layer, x, length=5)[0], None), inner, length=2)[0]

    sharded = jax.shard_map(program, mesh=mesh, in_specs=P("arm", "data"), out_specs=P("arm", "data"), check_vma=False)
    text = compiled(sharded, place(mesh, (2, 4, 16), "arm", "data"))
    # An optimized program for a CPU wraps comparison and sum into fusions; one for a TPU has them as they are.
    for name, plain in (("compare", r"compare(\1), direction=LT"), ("add", r"add(\1)")):
        text = re.sub(rf"fusion\((%\S+, %\S+)\), kind=kLoop, calls=%wrapped_{name}[\w.]*", plain, text)
    assert "known_trip_count" in text
    found = collectives(text if written else text.replace("known_trip_count", "unknown"), mesh)
    assert sum(c.times for c in found) == 3 + 2 * 5
    assert bytes_by_axis(found) == {"data": 13 * 16 * 4}


def test_unknown_forms_are_errors():
    with pytest.raises(ValueError, match="unknown notation"):
        replica_groups("tiles(2x4)", 8)
    mesh = make_mesh(2, 4)
    line = "  %x = f32[8]{0} {op}(%a), channel_id=1, replica_groups={groups}, to_apply=%add"
    for op, groups in [("all-reduce", "tiles(2x4)"), ("all-shuffle", "{{0,1}}")]:
        with pytest.raises(ValueError, match="groups of devices"):
            collectives(line.replace("{op}", op).replace("{groups}", groups), mesh)


def test_asynchronous_forms():
    """As TPU compilers write them: the start's tuple holds the operand, too."""
    mesh = make_mesh(2, 4)
    text = """ENTRY %main (a: bf16[4,16]) -> bf16[16,16] {
  %s = (bf16[4,16]{1,0:T(8,128)}, bf16[16,16]{1,0}) all-gather-start(%a), channel_id=1, replica_groups=[2,4]<=[8]
  %d = bf16[16,16]{1,0} all-gather-done(%s)
  %r = (f32[8]{0}, pred[3]{0}) all-reduce-start(%b, %c), channel_id=2, replica_groups={{0,4},{1,5},{2,6},{3,7}}
}"""
    found = collectives(text, mesh)
    assert [(c.op, c.axes, c.bytes) for c in found] == [("all-gather", ("data",), 512), ("all-reduce", ("arm",), 35)]
    assert [(c.received, c.asynchronous) for c in found] == [(384, True), (35, True)]


def test_a_reduce_scatter_as_the_tpu_compiler_writes_it():
    """A fusion of an all-reduce and a slice, in which a device receives each other device's share once."""
    text = """%all-reduce-scatter.7.clone (input: bf16[1024,64]) -> bf16[256,64] {
  %all-reduce.1 = bf16[1024,64]{1,0} all-reduce(%input), channel_id=3, replica_groups=[2,4]<=[8], to_apply=%add
}

ENTRY %main (a: bf16[1024,64]) -> bf16[256,64] {
  ROOT %f = bf16[256,64]{1,0} fusion(%a), kind=kCustom, calls=%all-reduce-scatter.7.clone
}"""
    (found,) = collectives(text, make_mesh(2, 4))
    assert (found.bytes, found.received) == (131_072, 98_304)
