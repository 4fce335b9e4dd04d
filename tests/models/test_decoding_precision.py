"""Decoding in less precision: caches in bfloat16, weights in int8."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import equations
from transformers import BartConfig, LlamaConfig, T5Config

from eeg2text_jax import GenerationSpec, Seq2SeqModel, generate
from eeg2text_jax.models import attention
from eeg2text_jax.models.backbones import bart, decoder_only, t5
from eeg2text_jax.models.layers import int8_of, int8_product

VOCABULARY, BEAMS, LENGTH = 60, 4, 7


def make(name: str, heads: int = 2, width: int = 128) -> tuple[Seq2SeqModel, dict]:
    if name == "llama":
        sizes = {"hidden_size": width, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": heads}
        config = LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=1, initializer_range=0.05, **sizes)
        spec = decoder_only.MODELS["llama"].spec_from_config(config)
    elif name == "bart":
        sides = {f"{side}_{field}": n for side in ("encoder", "decoder") for field, n in
                 (("layers", 2), ("attention_heads", heads), ("ffn_dim", 64))}  # fmt: skip
        spec = bart.spec_from_config(BartConfig(d_model=width, vocab_size=VOCABULARY, init_std=0.3, **sides))
    else:
        sizes = {"d_model": width, "d_kv": width // heads, "d_ff": 64, "num_layers": 2, "num_heads": heads}
        spec = t5.spec_from_config(T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **sizes))
    model = Seq2SeqModel(spec)
    return model, model.init(jax.random.key(0))


def encoded(model: Seq2SeqModel, params: dict) -> tuple[jax.Array, jax.Array]:
    ids = jax.random.randint(jax.random.key(1), (3, 6), 4, VOCABULARY)
    return model.encode(params, {"input_ids": ids, "mask": jnp.arange(6)[None] < jnp.array([[6], [4], [5]])})


def test_int8_rounds_each_column_to_its_largest_weight():
    weights = jnp.array([[1.0, -0.5], [0.25, 0.1], [0.0, 0.0]])
    values, scale = int8_of(weights, axis=0)
    assert values.dtype == jnp.int8
    np.testing.assert_allclose(scale, [1 / 127, 0.5 / 127], rtol=1e-6)
    np.testing.assert_allclose(values.astype(jnp.float32) * scale[None], weights, atol=0.5 / 127)
    assert not int8_of(jnp.zeros((3, 2)), axis=0)[0].any()


def test_a_product_in_int8_is_that_of_rounded_rows_and_rounded_weights():
    x, weights = jax.random.normal(jax.random.key(0), (2, 3, 16)), jax.random.normal(jax.random.key(1), (16, 5))
    rows, row_scale = int8_of(x, axis=-1)
    values, scale = int8_of(weights, axis=0)
    exact = np.einsum("abd,de->abe", np.asarray(rows, np.int64), np.asarray(values, np.int64))
    np.testing.assert_allclose(int8_product(x, values.T), exact * np.asarray(row_scale)[..., None], rtol=1e-6)
    assert not int8_product(jnp.zeros((2, 16)), values.T).any()
    found = int8_product(x, values.T) * scale[None, None]
    np.testing.assert_allclose(found, x @ weights, atol=0.1)


@pytest.mark.quick("t5")
@pytest.mark.parametrize("name", ["bart", "t5"])
def test_a_decoder_in_int8_multiplies_int8_numbers_alone(name):
    model, params = make(name)
    hidden, mask = encoded(model, params)
    cache = model.init_cache(params, hidden, mask, BEAMS, LENGTH)
    tokens = jnp.full((3 * BEAMS,), 7)

    def step(params, cache):
        return model.decode_step(model.prepared(params, "int8"))(tokens, jnp.int32(0), cache)

    program = jax.make_jaxpr(step)(params, cache).jaxpr
    products = [e for e in equations(program) if e.primitive.name == "dot_general"]
    of_weights = [e for e in products if not e.params["dimension_numbers"][1][0]]  # attention's have batch axes
    # In a step, self-attention has four, cross-attention two and the feed-forward network two; the head is traced once
    # for CPUs and once for others.
    assert len(of_weights) == 2 * 8 + 2
    assert {v.aval.dtype.name for e in of_weights for v in e.invars} == {"int8"}
    assert {e.outvars[0].aval.dtype.name for e in of_weights} == {"int32"}


@pytest.mark.quick("bfloat16-int8-t5", "bfloat16-int8-llama")
@pytest.mark.parametrize("name", ["bart", "t5", "llama"])
@pytest.mark.parametrize(("cache_dtype", "weights_dtype"), [("bfloat16", ""), ("", "int8"), ("bfloat16", "int8")])
def test_lower_precision_stays_near_the_logits(name, cache_dtype, weights_dtype):
    model, params = make(name)
    hidden, mask = encoded(model, params)
    exact = model.init_cache(params, hidden, mask, BEAMS, LENGTH)
    given = model.prepared(params, "int8") if weights_dtype else params
    low = model.init_cache(given, hidden, mask, BEAMS, LENGTH, cache_dtype)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(low.layers)} == {cache_dtype or "float32"}
    tokens = jax.random.randint(jax.random.key(2), (3 * BEAMS,), 4, VOCABULARY)
    for index in range(3):
        expected, exact = jax.jit(model.decode_step(params))(tokens, jnp.int32(index), exact)
        found, low = jax.jit(model.decode_step(given))(tokens, jnp.int32(index), low)
        assert found.dtype == jnp.float32
        difference = float(jnp.abs(found - expected).max() / expected.std())
        assert 0 < difference < 0.2


@pytest.mark.quick("t5")
@pytest.mark.parametrize("name", ["bart", "t5"])
def test_weights_rounded_once_give_the_same_sentences(name):
    model, params = make(name)
    inputs = {"input_ids": jnp.arange(4, 16).reshape(2, 6), "mask": jnp.ones((2, 6), bool)}
    spec = GenerationSpec.from_fields({"num_beams": 3, "max_length": 6, "weights_dtype": "int8"}, model)
    once = model.prepared(params, "int8")
    expected, found = (generate(model, given, inputs, spec) for given in (params, once))
    np.testing.assert_array_equal(found.sequences, expected.sequences)
    np.testing.assert_array_equal(found.scores, expected.scores)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(once.weights) if leaf.dtype == jnp.int8)
    # Attention has four matrices in each encoder layer and eight in each decoder layer, feed-forward networks two; and
    # there is the table of the head.
    assert numbers == 2 * (12 * 128 * 128 + 4 * 128 * 64) + VOCABULARY * 128
    for leaf in jax.tree.leaves(once.params):
        assert leaf.dtype == jnp.float32
    with pytest.raises(ValueError, match="weights_dtype is ''"):
        generate(model, once, inputs, spec.replace(weights_dtype=""))


def test_an_encoder_in_int8_attends_with_all_heads_at_once_on_a_tpu(monkeypatch):
    """A few heads at a time would multiply the rounded numbers without their scales."""
    model, params = make("bart")
    expected, _ = encoded(model, model.prepared(params, "int8"))
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *args, **ways: ways.get("tpu", ways["default"])(*args))
    monkeypatch.setattr(attention, "heads_at_once", lambda *sizes: 1)
    found, _ = encoded(model, model.prepared(params, "int8"))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
