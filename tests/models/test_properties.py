"""What must hold of every model, whatever its weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations

from eeg2text_jax.decoding import generate
from eeg2text_jax.decoding.generate import search
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models import _heads as heads
from eeg2text_jax.models import attention
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec, StackSpec

B, W, F, T, V = 3, 6, 10, 5, 23

STACK = StackSpec(layers=2, width=16, heads=2, head_dim=8, ffn=24, activation="gelu", init_std=0.2)
BARTISH = dataclasses.replace(STACK, positions="learned", max_positions=12, position_offset=2, embedding_norm=True)
T5ISH = dataclasses.replace(
    STACK, pre_norm=True, norm="rms", bias=False, gated=True, final_norm=True, scale_attention=False,
    positions="relative", relative_buckets=6, relative_max_distance=8,
)  # fmt: skip
DROPOUT = {"dropout": 0.3, "attention_dropout": 0.3}
EEG = EEGSpec(features=F, layers=2, heads=4, ffn=12, dropout=0.3)


def make_model(stack: StackSpec, eeg: EEGSpec | None = EEG, **fields) -> Seq2SeqModel:
    decoder = dataclasses.replace(stack, decoder=True)
    spec = Seq2SeqSpec("bart", V, stack, decoder, pad_token=1, eos_token=2, start_token=2, embedding_std=0.5)
    return Seq2SeqModel(spec, eeg, **fields)


both_kinds = pytest.mark.parametrize("model", ["bart-like", "t5-like"], indirect=True)


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest) -> Seq2SeqModel:
    stack = T5ISH if getattr(request, "param", "bart-like") == "t5-like" else BARTISH
    return make_model(dataclasses.replace(stack, **DROPOUT))


@pytest.fixture(scope="module")
def forward(model: Seq2SeqModel):
    """The model's forward pass, compiled once for all tests."""
    return jax.jit(model.forward)


@pytest.fixture(scope="module")
def params(model: Seq2SeqModel):
    return jax.jit(model.init)(jax.random.key(0))


@pytest.fixture(scope="module")
def inputs():
    features = jax.random.normal(jax.random.key(1), (B, W, F))
    return {"features": features, "mask": jnp.arange(W)[None] < jnp.array([[4], [6], [1]])}


@pytest.fixture(scope="module")
def ids():
    return jax.random.randint(jax.random.key(2), (B, T), 3, V)


@both_kinds
def test_padding_changes_nothing(forward, params, inputs, ids) -> None:
    """Neither what padded positions hold, infinities included, nor how many there are."""
    clean = forward(params, inputs, ids)
    filled = jnp.where(inputs["mask"][..., None], inputs["features"], jnp.inf)
    np.testing.assert_array_equal(clean, forward(params, {**inputs, "features": filled}, ids))
    longer = {
        "features": jnp.pad(inputs["features"], ((0, 0), (0, 3), (0, 0)), constant_values=7.0),
        "mask": jnp.pad(inputs["mask"], ((0, 0), (0, 3))),
    }
    np.testing.assert_allclose(clean, forward(params, longer, ids), atol=1e-5)


@both_kinds
def test_targets_are_masked(forward, params, inputs, ids) -> None:
    """A later target, or a padded one, is not seen."""
    clean = forward(params, inputs, ids)
    later = forward(params, inputs, ids.at[:, 3].set(4))
    np.testing.assert_array_equal(clean[:, :3], later[:, :3])
    assert not np.array_equal(clean[:, 3:], later[:, 3:])
    mask = jnp.ones((B, T), bool).at[:, 1].set(False)
    hidden = forward(params, inputs, ids, mask), forward(params, inputs, ids.at[:, 1].set(4), mask)
    np.testing.assert_array_equal(hidden[0][:, 2:], hidden[1][:, 2:])


@both_kinds
def test_masked_positions_get_no_gradient(model, params, inputs, ids) -> None:
    def total(features, mask):
        logits = model.forward(params, {"features": features, "mask": mask}, ids)
        return jnp.sum(jnp.sin(logits))

    gradient = jax.jit(jax.grad(total))(inputs["features"], inputs["mask"])
    assert np.all(np.asarray(gradient)[~np.asarray(inputs["mask"])] == 0)
    assert np.all(np.abs(np.asarray(gradient)[np.asarray(inputs["mask"])]).max(axis=-1) > 0)


def value_and_gradient(model, params, inputs, ids):
    def total(params):
        return jnp.mean(jnp.square(model.forward(params, inputs, ids, dropout_key=jax.random.key(5))))

    return jax.jit(jax.value_and_grad(total))(params)


@pytest.fixture(scope="module")
def scanned(model, params, inputs, ids):
    return value_and_gradient(model, params, inputs, ids)


@pytest.mark.quick("remat")
@pytest.mark.parametrize("option", ["unroll", "remat"])
def test_scan_unrolled_and_rematerialised_agree(model, params, inputs, ids, scanned, option) -> None:
    """With dropout, so that the keys must agree as well."""
    other = dataclasses.replace(model, **{option: True})
    for a, b in zip(*map(jax.tree.leaves, (scanned, value_and_gradient(other, params, inputs, ids))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_dropout_is_in_the_key_alone(forward, params, inputs, ids) -> None:
    one, again, other = (forward(params, inputs, ids, dropout_key=jax.random.key(k)) for k in (1, 1, 2))
    still = forward(params, inputs, ids)
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)
    assert not np.allclose(one, still)


def test_half_precision_computes_in_it_and_answers_in_float32(model, forward, params, inputs, ids) -> None:
    half = dataclasses.replace(model, dtype="bfloat16")
    logits = jax.jit(half.forward)(params, inputs, ids)
    assert logits.dtype == jnp.float32
    hidden, mask = jax.jit(half.encode)(params, inputs)
    assert hidden.dtype == jnp.bfloat16
    cache = jax.eval_shape(lambda p: half.init_cache(p, hidden, mask, 2, T), params)
    assert cache.layers[0].self_keys.dtype == jnp.bfloat16
    expected = forward(params, inputs, ids)
    assert 0 < np.abs(logits - expected).max() < 0.1 * np.abs(expected).max()


def test_no_weight_is_converted_within_the_loop_over_tokens(model, params, inputs) -> None:
    """Their conversion is the same for all tokens: it belongs before the loop. Also in the loop that a TPU has."""
    half = dataclasses.replace(model, dtype="bfloat16")
    spec = GenerationSpec.from_fields({"num_beams": 2, "max_length": T}, half)
    traced = jax.make_jaxpr(lambda p: search(half, p, inputs, spec, None))(params).jaxpr
    loops = [e for e in equations(traced) if e.primitive.name == "while"]
    assert len(loops) == 2
    weights = {leaf.shape[-2:] for leaf in jax.tree.leaves(params) if leaf.ndim > 1}
    for loop in loops:
        body = list(equations(loop.params["body_jaxpr"].jaxpr))
        assert "dot_general" in {e.primitive.name for e in body}
        converted = {e.invars[0].aval.shape for e in body if e.primitive.name == "convert_element_type"}
        assert converted
        assert not weights & {shape[-2:] for shape in converted if np.prod(shape) > 2 * B * STACK.width}


SEARCHES = {"plain": {}, "drawn": {"do_sample": True}, "limits": {"no_repeat_ngram_size": 2, "repetition_penalty": 5.0}}


@pytest.mark.quick("cpu-1-drawn-t5-like", "tpu-0-limits-bart-like")
@both_kinds
@pytest.mark.parametrize("settings", SEARCHES)
@pytest.mark.parametrize("compactions", [0, 1])
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_a_cache_that_grows_changes_no_result(
    model, params, inputs, settings, compactions, platform, monkeypatch
) -> None:
    """A cache of 3 beams and 8 tokens has room for 1, 3, 6 and 8 tokens on a TPU, and for 2, 4, 6 and 8 on a CPU.

    On a TPU, beams share the first token's entry, which two rows compute, and heads of cross-attention are in groups of
    two from the third size on.
    """
    fields = {"num_beams": 3, "num_return_sequences": 3, "max_length": 8, **SEARCHES[settings]}
    spec, key, sizes = GenerationSpec.from_fields(fields, model), jax.random.key(5), []
    usual = jax.jit(lambda p: search(model, p, inputs, spec, key))(params)

    def spied(grown: attention.Cache, beams: int, length: int, *, on_tpu: bool) -> attention.Cache:
        resized = attention.resize(grown, beams, length, on_tpu=on_tpu)
        layer = resized.layers[0]
        sizes.append((grown.ancestors.shape[2], length, layer.self_keys.shape[3], layer.cross_keys.shape[1]))
        return resized

    monkeypatch.setattr(generate, "resize", spied)
    monkeypatch.setattr(attention, "LANES", 9)
    monkeypatch.setattr(heads, "LANES", 2 * STACK.head_dim)
    if platform == "tpu":
        monkeypatch.setattr(
            jax.lax, "platform_dependent", lambda *args, tpu=None, default, **_: (tpu or default)(*args)
        )
    grown = jax.jit(lambda p: search(model, p, inputs, spec, key, compactions, platform=platform))(params)
    if platform == "tpu":
        few, all_ = STACK.heads // 2, STACK.heads
        assert sizes == [(8, 1, 2, all_), (1, 3, 7, all_), (3, 6, 16, few), (6, 8, 22, few)]
    else:
        assert sizes == [(before, size, 3 * size, STACK.heads) for before, size in ((8, 2), (2, 4), (4, 6), (6, 8))]
    np.testing.assert_array_equal(grown.sequences, usual.sequences)
    np.testing.assert_array_equal(grown.lengths, usual.lengths)
    np.testing.assert_allclose(grown.scores, usual.scores, rtol=1e-5)
    assert usual.lengths.max() > 6  # all sizes were needed


def test_a_cache_in_bfloat16_grows_and_groups_heads_by_products_without_a_change() -> None:
    shapes = (3, 4, 64, 18), (3, 4, 18, 64), (3, 4, 5, 64), (3, 4, 5, 64)  # six positions of three beams
    layer = attention.LayerCache(*(jax.random.normal(jax.random.key(0), shape, jnp.bfloat16) for shape in shapes))
    wide = attention.LayerCache(*(x.astype(jnp.float32) for x in layer))
    rest = jnp.zeros((3, 3, 6), jnp.int32), jnp.ones((3, 5), bool)
    grown, exact = (attention.resize(attention.Cache((x,), *rest), 3, 8, on_tpu=True).layers[0] for x in (layer, wide))
    assert (grown.self_keys.shape, grown.cross_keys.shape) == ((3, 4, 64, 24), (3, 2, 5, 128))
    for found, expected in zip(grown, exact, strict=True):
        assert (found.dtype, expected.dtype) == (jnp.bfloat16, jnp.float32)
        np.testing.assert_array_equal(found, expected)


def test_sizes_of_a_cache_fill_groups_of_128_entries() -> None:
    assert attention.lengths_of(5, 56, "tpu") == (26, 52, 56)
    assert attention.lengths_of(4, 32, "tpu") == attention.lengths_of(4, 32, "cpu") == (32,)
    assert attention.lengths_of(4, 33, "tpu") == (32, 33)
    assert attention.lengths_of(5, 256, "tpu") == (103, 180, 256)
    assert attention.lengths_of(200, 3, "tpu") == (2, 3)  # a position has more than a group
    assert attention.lengths_of(5, 56, "cpu") == (14, 28, 42, 56)
    assert attention.lengths_of(200, 3, "cpu") == (1, 2, 3)
    assert attention.lengths_of(5, 56, "cuda") == attention.lengths_of(5, 56, None) == (56,)


def test_parameters_are_float32_in_plain_dicts(model, params) -> None:
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    assert shapes == model.shapes
    assert jax.tree.structure(shapes) == jax.tree.structure(params)
    assert type(params["backbone"]["encoder"]["layers"]) is dict
    kernel = params["backbone"]["encoder"]["layers"]["ffn"]["inner"]["kernel"]
    assert kernel.shape == (2, 16, 24)
    assert not np.array_equal(kernel[0], kernel[1])
