"""The GPU's kernels against the attention of other platforms, computed by Pallas's interpreter; and where they run."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from eeg2text_jax.models import _fused_attention as fused_attention
from eeg2text_jax.models import attention as cache_module
from eeg2text_jax.models._fused_attention import LONGEST, attend_cached, attend_fused
from eeg2text_jax.models._heads import Heads, attend, attend_apart
from eeg2text_jax.models.attention import Attention, LayerCache, history_bias, mask_bias, padding_bias
from eeg2text_jax.models.spec import StackSpec

KERNEL = "__gpu$xla.gpu.triton"


def rows(rng, *shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


@pytest.mark.quick("16-16-16-0.3-joined1", "64-5-40-0.1-joined2")
@pytest.mark.parametrize(
    ("n_queries", "n_keys", "head_dim", "rate", "joined"),
    [(7, 13, 24, 0.0, (1, 1, 1)), (16, 16, 16, 0.3, (3,)), (LONGEST, 5, 40, 0.1, (1, 2))],
)
def test_values_and_gradients_are_those_of_separate_products(n_queries, n_keys, head_dim, rate, joined):
    """Sizes that fill no block, masks by sentence and by position, scaled queries, and dropout of the same weights.

    `joined` says how many of queries, keys and values are side by side in each array.
    """
    rng, (batch, heads) = np.random.default_rng(n_keys), (3, 2)
    queries, gradient = (rows(rng, batch * n_queries, heads * head_dim) for _ in range(2))
    keys, values = (rows(rng, batch * n_keys, heads * head_dim) for _ in range(2))
    lengths = jnp.asarray([n_keys, 1, n_keys // 2])
    padding = padding_bias(jnp.arange(n_keys)[None, :] < lengths[:, None]).transpose(1, 0, 2, 3)
    causal = mask_bias(jnp.tril(jnp.ones((n_queries, n_keys), bool)))[None, None]
    key = jax.random.key(1)

    def apart(queries, *given):
        return attend_apart(Heads(batch, heads, rate), queries * 0.7, *given, [padding, causal], key)

    def fused(*given):
        parts = iter(given)
        projected = [jnp.concatenate(list(itertools.islice(parts, count)), axis=1) for count in joined]
        return attend_fused(Heads(batch, heads, rate), projected, [padding, causal], key, scale=0.7, interpret=True)

    @jax.jit
    def both(*given):
        (expected, back), (found, fused_back) = (jax.vjp(way, *given) for way in (apart, fused))
        return expected, found, back(gradient), fused_back(gradient)

    expected, found, back, fused_back = both(queries, keys, values)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for ours, theirs in zip(fused_back, back, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("biases", [("query", "value", "out"), ()])
@pytest.mark.parametrize("of_itself", [True, False])
def test_projections_by_one_product_are_those_of_each_layer(biases, of_itself, monkeypatch):
    """The attention of GPUs and that of other platforms, of the same layers; Whisper has no bias for keys."""
    attention = Attention(spec(bias=False, biases=biases), jnp.dtype("bfloat16"), nnx.Rngs(0))
    rng = np.random.default_rng(0)
    for name in biases:
        dense = getattr(attention, name)
        dense.bias[...] = rows(rng, *dense.bias.shape)
    x, other = (rows(rng, 2 * 8, 32).astype(jnp.bfloat16) for _ in range(2))
    given = x, x if of_itself else other, 2, [jnp.zeros((1, 1, 1, 8))], None
    expected = attention(*given)
    calls = []

    def spied(shape, projected, *more, **options):
        calls.append([part.shape[1] // 32 for part in projected])
        return attend_fused(shape, projected, *more, **options, interpret=True)

    monkeypatch.setattr(cache_module, "attend_fused", spied)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cuda=None, default, **_: (cuda or default)(*args))
    np.testing.assert_allclose(attention(*given).astype(jnp.float32), expected.astype(jnp.float32), atol=0.05)
    assert calls == [[3] if of_itself else [1, 2]]


def test_devices_compute_their_own_sentences():
    """Values and gradients of 4 devices are those of one, without communication."""
    rng, (batch, heads, length) = np.random.default_rng(0), (8, 2, 5)
    given = [rows(rng, batch * length, heads * 16) for _ in range(3)]
    masks = [rows(rng, 1, batch, 1, length), rows(rng, 1, 1, length, length)]

    @jax.jit
    def both(given, masks):
        def loss(given):
            found = attend_fused(Heads(batch, heads, 0.3), given, masks, jax.random.key(0), interpret=True)
            return jnp.square(found).sum(), found

        return jax.value_and_grad(loss, has_aux=True)(given)

    (_, alone), expected = both(given, masks)
    mesh = jax.make_mesh((1, 4), ("arm", "data"), (AxisType.Auto,) * 2, devices=jax.devices()[:4])
    placed = jax.device_put(given, NamedSharding(mesh, PartitionSpec("data")))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        compiled = both.lower(placed, masks).compile()
        (_, divided), found = compiled(placed, masks)
    np.testing.assert_allclose(divided, alone, atol=1e-6)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert "all-gather" not in compiled.as_text()


@pytest.mark.parametrize("index", [0, 3, 29])
@pytest.mark.parametrize("heads_of_bias", [1, 2])
def test_a_decoder_step_over_the_cache(index, heads_of_bias):
    """Beams with different histories; entries after `index` hold numbers that must not be read."""
    rng, (batch, beams, heads, head_dim, length) = np.random.default_rng(index), (2, 3, 2, 24, 30)
    ancestors = jnp.asarray(rng.integers(0, beams, (batch, beams, length)), jnp.int32)
    written = jnp.arange(length) <= index
    position = jnp.where(written, rows(rng, 1, heads_of_bias, 1, length), mask_bias(jnp.array(False)))
    bias = history_bias(ancestors, position)
    queries = rows(rng, batch * beams, heads * head_dim)
    keys, values = (rows(rng, batch, heads, length * beams, head_dim) for _ in range(2))
    split = queries.reshape(batch, beams, heads, head_dim).swapaxes(1, 2)
    expected = attend(split, keys, values, (bias,)).swapaxes(1, 2).reshape(queries.shape)
    unread = jnp.arange(length * beams)[None, None, :, None] >= (index + 1) * beams
    keys, values = (jnp.where(unread, jnp.nan, x) for x in (keys, values))
    filled = jnp.int32((index + 1) * beams)
    found = attend_cached(queries, keys.swapaxes(2, 3), values, bias, filled, keys_last=True, interpret=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_decoder_step_over_the_encoder_output():
    rng, (batch, beams, heads, head_dim, length) = np.random.default_rng(0), (2, 5, 2, 16, 70)
    mask = jnp.arange(length)[None, :] < jnp.asarray([[70], [9]])
    queries = rows(rng, batch * beams, heads * head_dim)
    cache = LayerCache.empty(heads, *(rows(rng, batch, length, heads * head_dim) for _ in range(2)), 4)
    expected = cache.cross(queries, padding_bias(mask))
    given = queries, cache.cross_keys, cache.cross_values, padding_bias(mask), jnp.int32(length)
    np.testing.assert_allclose(attend_cached(*given, keys_last=False, interpret=True), expected, atol=1e-5)


@pytest.mark.parametrize(("cap", "kernels"), [(0.0, 2), (5.0, 1)])
def test_the_cache_is_read_by_the_kernel_on_gpus(cap, kernels, monkeypatch):
    """The newest entries included; capped scores of self-attention are left to other programs."""
    rng, (batch, beams, heads, head_dim, index) = np.random.default_rng(3), (2, 3, 2, 16, 4)

    def drawn(*shape):
        return rows(rng, *shape).astype(jnp.bfloat16)

    cache = LayerCache.empty(heads, *(drawn(batch, 7, heads * head_dim) for _ in range(2)), 6 * beams)
    for position in range(index + 1):
        cache = cache.remember(*(drawn(batch * beams, heads * head_dim) for _ in range(2)), jnp.int32(position))
    ancestors = jnp.asarray(rng.integers(0, beams, (batch, beams, 6)), jnp.int32)
    bias = history_bias(ancestors, mask_bias(jnp.arange(6) <= index)[None, None, None])
    hidden, queries = padding_bias(jnp.arange(7)[None, :] < jnp.asarray([[7], [3]])), drawn(batch * beams, 32)
    expected = cache.own(queries, bias, jnp.int32(index), cap), cache.cross(queries, hidden)
    calls = []

    def spied(*given, **options):
        calls.append(options)
        return attend_cached(*given, **options, interpret=True)

    monkeypatch.setattr(cache_module, "attend_cached", spied)
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cuda=None, default, **_: (cuda or default)(*args))
    found = cache.own(queries, bias, jnp.int32(index), cap), cache.cross(queries, hidden)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.astype(jnp.float32), theirs.astype(jnp.float32), atol=0.02)
    assert len(calls) == kernels


def lowered_for_gpus(spec, dtype, length, mesh):
    """Return the StableHLO for GPUs of an attention of `length` positions in 8 sentences, and its gradient."""
    attention = Attention(spec, jnp.dtype(dtype), nnx.Rngs(0))
    graph, state = nnx.split(attention)

    def loss(state, x):
        found = nnx.merge(graph, state)(x, x, 8, [jnp.zeros((1, 1, 1, length))], None)
        return found.astype(jnp.float32).sum()

    x = jax.ShapeDtypeStruct((8 * length, spec.width), jnp.dtype(dtype))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        return jax.jit(jax.grad(loss)).trace(state, x).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize(("capability", "kernels"), [("7.5", 0), ("8.0", 2), ("10.0", 2), ("gfx90a", 0)])
def test_older_gpus_and_those_of_amd_have_no_kernels(capability, kernels, monkeypatch):
    """A V100 (7.0) and a T4 (7.5) have no products of bfloat16."""
    mesh = jax.make_mesh((1, 1), ("arm", "data"), (AxisType.Auto,) * 2, devices=jax.devices()[:1])
    monkeypatch.setattr(fused_attention, "capabilities", lambda: ["9.0", capability])
    assert lowered_for_gpus(spec(), "bfloat16", 8, mesh).count(f"@{KERNEL}") == kernels
    assert fused_attention.fits_step(16, 5) == (kernels > 0)


def spec(**fields):
    sizes = {"layers": 1, "width": 32, "heads": 2, "head_dim": 16, "ffn": 32, "activation": "gelu"}
    return StackSpec(**{**sizes, **fields})


@pytest.mark.parametrize(
    ("why_not", "fields", "dtype", "length", "data"),
    [
        ("", {}, "bfloat16", 8, 1),
        ("float32", {}, "float32", 8, 1),
        ("too long", {}, "bfloat16", LONGEST + 1, 1),
        ("a learned bias", {"positions": "relative"}, "bfloat16", 8, 1),
        ("capped scores", {"score_cap": 5.0}, "bfloat16", 8, 1),
        ("shared key heads", {"kv_heads": 1}, "bfloat16", 8, 1),
        ("", {}, "bfloat16", 8, 2),
        ("a batch that 3 devices cannot divide", {}, "bfloat16", 8, 3),
    ],
)
def test_gpus_run_the_kernels_where_they_can(why_not, fields, dtype, length, data):
    """Forward and backward are one kernel each."""
    mesh = jax.make_mesh((1, data), ("arm", "data"), (AxisType.Auto,) * 2, devices=jax.devices()[:data])
    assert lowered_for_gpus(spec(**fields), dtype, length, mesh).count(f"@{KERNEL}") == (0 if why_not else 2)
