"""Every backbone against PyTorch with the same random weights: logits, loss, gradients, cached steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch_reference import (
    Case,
    Pair,
    cross_entropy,
    make_batch,
    make_pair,
    our_logits,
    their_outputs,
    to_params,
)

from eeg2text_jax.models.backbones.mapping import flatten

LOGITS, LOSS, GRADIENT = 1e-4, 1e-5, 1e-3

TOKENS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "vocab_size": 40}
ZERO_PAD = {"bos_token_id": None, "pad_token_id": 0, "eos_token_id": 1, "vocab_size": 37}
BART = {
    **TOKENS, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 40, "max_position_embeddings": 16,
}  # fmt: skip
T5 = {**ZERO_PAD, "d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4}
V11 = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
BERT = {
    **TOKENS, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32,
    "max_position_embeddings": 16,
}  # fmt: skip

CASES = {
    "bart": Case("bart", BART),
    "bart-uneven": Case(
        "bart",
        {**BART, "encoder_layers": 1, "decoder_layers": 3, "d_model": 20, "encoder_attention_heads": 5,
         "scale_embedding": True, "activation_function": "relu"},
    ),
    "pegasus": Case("pegasus", {**BART, **ZERO_PAD, "scale_embedding": True, "activation_function": "relu"}),
    "pegasus-uneven": Case("pegasus", {**BART, **ZERO_PAD, "encoder_layers": 3, "decoder_layers": 1, "d_model": 12}),
    "t5": Case("t5", T5),
    "t5-odd": Case(
        "t5", {**T5, "d_kv": 5, "num_heads": 3, "num_decoder_layers": 1, "relative_attention_num_buckets": 6,
               "relative_attention_max_distance": 7},
    ),
    "t5v1.1": Case("t5", V11),
    "t5v1.1-odd": Case("t5", {**V11, "d_kv": 7, "num_layers": 1, "num_decoder_layers": 3}),
    "bert2bert": Case("bert2bert", BERT),
    "bert2bert-uneven": Case(
        "bert2bert",
        {**BERT, "decoder_num_hidden_layers": 3, "encoder_hidden_size": 16, "encoder_vocab_size": 33,
         "hidden_act": "gelu_new"},
    ),
    # Three padding tokens: each table keeps the row of its own side's.
    "bert2bert-pads": Case("bert2bert", {**BERT, "encoder_pad_token_id": 3, "decoder_pad_token_id": 5}),
}  # fmt: skip


# Every case through token ids; the plain one of each architecture through given embeddings, too, its layers computed
# again in the backward pass.
BACKWARD = [(name, "input_ids") for name in CASES] + [(name, "inputs_embeds") for name in CASES if "-" not in name]


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest) -> Pair:
    return make_pair(CASES[request.param], seed=sorted(CASES).index(request.param))


@pytest.mark.quick(
    "t5v1.1-input_ids",
    "pegasus-inputs_embeds",
    "bert2bert-uneven-input_ids",
    "pegasus-uneven-input_ids",
    "t5-odd-input_ids",
    "bart-uneven-input_ids",
    "bart-inputs_embeds",
    "bert2bert-pads-input_ids",
)
@pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")  # transformers, on labels, each time
@pytest.mark.parametrize(("pair", "entry"), BACKWARD, indirect=["pair"])
def test_forward_and_backward(pair: Pair, entry: str) -> None:
    batch = make_batch(pair.model)
    theirs = their_outputs(pair, batch, entry)
    theirs.loss.backward()
    model = dataclasses.replace(pair.model, remat=entry == "inputs_embeds")

    @jax.jit
    def ours(params):
        def loss(params):
            logits = our_logits(model, params, batch, entry)
            return cross_entropy(logits, batch.labels), logits

        return jax.value_and_grad(loss, has_aux=True)(params)

    (loss, logits), gradient = ours(pair.params)
    real = batch.decoder_mask
    off = np.abs(np.asarray(logits) - theirs.logits.detach().numpy())[real].max()
    assert off < LOGITS, f"logits are {off} apart"
    assert abs(float(loss) - theirs.loss.item()) < LOSS
    check_gradient(pair, gradient)


def check_gradient(pair: Pair, gradient: dict) -> None:
    tensors = {
        name: np.zeros(p.shape, np.float32) if p.grad is None else p.grad.numpy()
        for name, p in pair.theirs.named_parameters()
    }
    pair.theirs.zero_grad(set_to_none=True)
    check_gradients(flatten(to_params(pair.table, tensors, pair.model)), flatten(gradient))


def check_gradients(expected: dict, found: dict) -> None:
    """Each parameter of each layer, by the norm of the difference over the norm."""
    expected, found = jax.device_get((expected, found))
    # Analytically zero gradients (a key's bias cannot change a softmax) are rounding noise on both sides.
    noise = 1e-6 * np.sqrt(sum(np.square(g).sum() for g in expected.values()))
    for path, theirs in expected.items():
        layers = theirs.shape[0] if "/layers/" in path else 1
        pairs = zip(np.reshape(theirs, (layers, -1)), np.reshape(found[path], (layers, -1)), strict=True)
        for layer, (a, b) in enumerate(pairs):
            off, size = np.linalg.norm(a - b), np.linalg.norm(a)
            assert off < max(GRADIENT * size, noise), f"{path} of layer {layer}: {off} off of {size}"


@pytest.mark.quick("bert2bert-uneven", "t5-odd", "pegasus-uneven", "bart", "t5v1.1")
@pytest.mark.parametrize("pair", CASES, indirect=True)
def test_cached_steps_equal_their_forward(pair: Pair) -> None:
    """Two beams a sentence, fed different targets, give at every position what PyTorch gives for whole sequences."""
    model, beams, length = pair.model, 2, 5
    batch = make_batch(model)
    targets = np.random.default_rng(1).integers(0, model.spec.vocab_size, (3 * beams, length))
    with torch.no_grad():
        theirs = pair.theirs(
            input_ids=torch.tensor(np.repeat(batch.input_ids, beams, axis=0)),
            attention_mask=torch.tensor(np.repeat(batch.mask, beams, axis=0)).long(),
            decoder_input_ids=torch.tensor(targets),
            use_cache=False,
        )

    @jax.jit
    def start(params):
        inputs = {"input_ids": jnp.asarray(batch.input_ids), "mask": jnp.asarray(batch.mask)}
        return model.init_cache(params, *model.encode(params, inputs), beams, length)

    step, cache = jax.jit(lambda params, *args: model.decode_step(params)(*args)), start(pair.params)
    for index in range(length):
        tokens = jnp.asarray(targets[:, index], jnp.int32)
        logits, cache = step(pair.params, tokens, jnp.int32(index), cache)
        np.testing.assert_allclose(logits, theirs.logits[:, index].numpy(), atol=LOGITS)
    assert step._cache_size() == 1
