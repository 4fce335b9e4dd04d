"""Pieces of layers that are written differently from what JAX has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from jaxprs import equations

from eeg2text_jax.models.language_model import Head, StepTable, logits_of
from eeg2text_jax.models.layers import affine, column_sums, draw_kept, dropout, gelu
from eeg2text_jax.models.spec import Seq2SeqSpec, StackSpec


def test_gelu_is_that_of_pytorch():
    x = np.linspace(-12, 12, 4801, dtype=np.float32)
    theirs = torch.tensor(x, requires_grad=True)
    value = torch.nn.functional.gelu(theirs)
    value.sum().backward()
    np.testing.assert_allclose(gelu(jnp.asarray(x)), value.detach(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(gelu))(jnp.asarray(x)), theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("rng", ["threefry2x32", "rbg"])
def test_dropout_keeps_its_share_and_the_mean(rate, rng):
    ones = jnp.ones((1000, 1000), jnp.float32)
    dropped = np.asarray(dropout(ones, rate, jax.random.key(0, impl=rng)))
    np.testing.assert_allclose(np.unique(dropped), [0.0, 1 / (1 - rate)], rtol=1e-6)
    error = 5 * np.sqrt(rate * (1 - rate) / ones.size)
    assert abs((dropped == 0).mean() - rate) < error
    other = np.asarray(dropout(ones, rate, jax.random.key(0, impl=rng), site=1))
    assert abs(((dropped == 0) & (other == 0)).mean() - rate * rate) < error


@pytest.mark.parametrize("shape", [(500, 400), (3, 7), (2, 3, 5)])
def test_masks_of_gpus_compare_bits_like_others(shape, monkeypatch):
    """The low and the high halves of numbers of 32 bits, each compared once, also where the last byte is not full."""
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, cuda, default: cuda(*args))
    key, size = jax.random.key(0, impl="rbg"), np.prod(shape)
    kept = np.asarray(draw_kept(shape, 0.3, key, site=2))
    words = np.asarray(jax.random.bits(jax.random.fold_in(key, 2), (-(-size // 8), 4), jnp.uint32))
    drawn = np.stack([words & 0xFFFF, words >> 16], axis=-1).reshape(len(words), 8)
    np.testing.assert_array_equal(kept, (drawn.T.reshape(-1)[:size] >= round(0.3 * 2**16)).reshape(shape))
    if size > 1000:
        assert abs(kept.mean() - 0.7) < 5 * np.sqrt(0.3 * 0.7 / size)
        eighths = kept.reshape(8, -1)
        assert np.abs(np.corrcoef(eighths) - np.eye(8)).max() < 5 / np.sqrt(eighths.shape[1])


def test_a_rate_next_to_one_drops_nearly_all():
    assert (dropout(jnp.ones(10000), 1 - 1e-9, jax.random.key(0)) == 0).mean() > 0.99


@pytest.fixture(params=["cpu", "accelerator", "large batch"])
def sums(request, monkeypatch):
    """The ways in which gradients of scales and biases are summed."""
    if request.param == "accelerator":
        monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, tpu, default, **others: tpu(*args))
    if request.param == "large batch":
        monkeypatch.setattr("eeg2text_jax.models.layers.MANY_ROWS", 1)


@pytest.mark.parametrize("given", ["scale", "shift", "both"])
def test_affine_has_the_gradients_of_autodiff(given, sums):
    rng = np.random.default_rng(1)
    x, weight = (jnp.asarray(rng.normal(size=(3, 7, 5)), jnp.float32) for _ in range(2))
    rows = {
        name: jnp.asarray(rng.normal(size=5), jnp.float32) for name in ("scale", "shift") if given in (name, "both")
    }

    def ours(x: jax.Array, rows: dict) -> jax.Array:
        return (affine(x, rows.get("scale"), rows.get("shift"), jnp.float32) * weight).sum()

    def plain(x: jax.Array, rows: dict) -> jax.Array:
        scale, shift = (
            rows.get(name, jnp.full(5, usual, jnp.float32))[None, None] for name, usual in (("scale", 1), ("shift", 0))
        )
        return ((x * scale + shift) * weight).sum()

    found, wanted = (jax.jit(jax.value_and_grad(function, (0, 1)))(x, rows) for function in (ours, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, wanted)


def test_sums_over_rows_are_accumulated_in_float32(sums):
    """In bfloat16, a sum of ones ends at 256."""
    total = column_sums(jnp.ones((3000, 2), jnp.bfloat16))
    assert (total.dtype, total.tolist()) == (jnp.float32, [3000.0, 3000.0])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gradients_of_affine_have_the_dtypes_of_their_arguments(dtype, sums):
    arguments = jnp.ones((4, 3), dtype), jnp.ones(3, dtype), jnp.ones(3, dtype)
    _, pull = jax.vjp(lambda *rows: affine(*rows, jnp.bfloat16), *arguments)
    assert [one.dtype for one in pull(jnp.ones((4, 3), jnp.bfloat16))] == [one.dtype for one in arguments]


def products_of(program):
    return [equation for equation in equations(program) if equation.primitive.name == "dot_general"]


@pytest.mark.parametrize("platform", ["tpu", "cuda", "cpu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_head_multiplies_in_its_own_precision_in_both_directions(monkeypatch, dtype, platform):
    """The gradient is that of autodiff to the rounding of the dtype; in bfloat16 only a TPU has float32 operands.

    On CUDA GPUs, the 11 tokens of all three products are padded to 64.
    """

    def as_on(*operands, default, **branches):
        return branches.get(platform, default)(*operands)

    monkeypatch.setattr(jax.lax, "platform_dependent", as_on)
    rng = np.random.default_rng(0)
    x, table, weights = (jnp.asarray(rng.normal(size=shape), "float32") for shape in [(2, 5, 8), (11, 8), (2, 5, 11)])

    def plain(x, table):
        logits = jnp.einsum("...d,vd->...v", x, table, precision="highest")
        return jnp.sum(jax.nn.log_softmax(logits) * weights)

    def ours(x, table):
        return jnp.sum(jax.nn.log_softmax(logits_of(x, table, None)) * weights)

    given = x.astype(dtype), table.astype(dtype)
    found, expected = jax.grad(ours, (0, 1))(*given), jax.grad(plain, (0, 1))(*(a.astype("float32") for a in given))
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine.astype("float32"), theirs, atol=2e-6 if dtype == "float32" else 0.03)
    with jax.numpy_dtype_promotion("standard"):
        np.testing.assert_allclose(logits_of(*given, None), jnp.einsum("...d,vd->...v", *given), rtol=0.02, atol=0.02)
    products = products_of(jax.make_jaxpr(jax.grad(ours, (0, 1)))(*given))
    operands = [v.aval.dtype for eqn in products for v in eqn.invars]
    assert len(operands) == 6
    assert set(operands) == {jnp.dtype(dtype), jnp.dtype("float32" if platform == "tpu" else dtype)}
    of_vocabulary = {n for eqn in products for v in (*eqn.invars, *eqn.outvars) for n in v.aval.shape} - {2, 5, 8}
    assert of_vocabulary == {64 if platform == "cuda" else 11}


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("rows", [11, 64])
def test_a_step_multiplies_the_table_or_on_gpus_the_padded_one(platform, rows, monkeypatch):
    """A table whose rows fill groups of 64 is not copied."""
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, **ways: ways.get(platform, ways["default"])(*args))
    spec = StackSpec(layers=1, width=8, heads=2, head_dim=4, ffn=8, activation="relu")
    whole = Seq2SeqSpec("made", rows, spec, spec, pad_token=1, eos_token=2, start_token=2)
    head, rng = Head(whole, jnp.dtype("float32"), nnx.Rngs(0)), np.random.default_rng(0)
    x, tied = (jnp.asarray(rng.normal(size=(n, 8)), jnp.float32) for n in (5, rows))
    table = head.step_table(tied)
    np.testing.assert_allclose(head(x, table), x @ tied.T, rtol=1e-5, atol=1e-6)
    product, *_ = products_of(jax.make_jaxpr(lambda x: head(x, table))(x))
    assert product.invars[1].aval.shape == (64 if platform == "cuda" else rows, 8)
    assert isinstance(table, StepTable) == (rows == 11)
