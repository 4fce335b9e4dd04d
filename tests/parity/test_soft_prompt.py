"""A soft prompt before T5, and before a decoder alone: label likelihoods and its gradient against PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from causal_cases import random_pair
from torch_reference import Case, make_pair

from eeg2text_jax.judge.frozen import TuneProgram, label_scores

scores_of = jax.jit(label_scores, static_argnums=(0, 4))
SHAPE = {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2}
TOKENS = {"vocab_size": 40, "bos_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
V10 = {**SHAPE, **TOKENS}
V11 = {**V10, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


def torch_pair(fields):
    return make_pair(Case("t5", fields))


def random_inputs(width, seed=0):
    rng = np.random.default_rng(seed)
    length = np.array([9, 4, 7], np.int32)
    ids = np.where(np.arange(9)[None] < length[:, None], rng.integers(3, 40, (3, 9)), 0).astype(np.int32)
    batch = {"ids": ids, "length": length, "yes": np.array([True, False, True]), "weight": np.ones(3, np.float32)}
    return batch, rng.normal(size=(5, width)).astype(np.float32)


def theirs_embedded(theirs, batch, prompt):
    text = theirs.shared(torch.tensor(batch["ids"], dtype=torch.long))
    embeds = torch.cat([prompt[None].expand(3, -1, -1), text], dim=1)
    mask = torch.tensor(np.arange(14)[None] < 5 + batch["length"][:, None], dtype=torch.long)
    return embeds, mask


@pytest.mark.quick("pieces-v1.1")
@pytest.mark.parametrize("fields", [V10, V11], ids=["v1.0", "v1.1"])
@pytest.mark.parametrize("labels", [((7,), (9,)), ((7, 8, 12), (7, 9))], ids=["one piece", "pieces"])
def test_label_likelihoods_are_those_of_pytorch(fields, labels):
    pair = torch_pair(fields)
    batch, prompt = random_inputs(16)
    embeds, mask = theirs_embedded(pair.theirs, batch, torch.tensor(prompt))
    expected = np.zeros((3, 2))
    for column, ids in enumerate(labels):
        fed = torch.tensor([[0, *ids[:-1]]]).expand(3, -1)
        with torch.no_grad():
            logits = pair.theirs(inputs_embeds=embeds, attention_mask=mask, decoder_input_ids=fed).logits
        log = torch.log_softmax(logits, -1)
        expected[:, column] = sum(log[:, place, piece].numpy() for place, piece in enumerate(ids))
    found = np.asarray(scores_of(pair.model, pair.params, jnp.asarray(prompt), batch, labels))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    s = [1 / (1 + np.exp(-(x[:, 0] - x[:, 1]))) for x in (found.astype(float), expected)]
    np.testing.assert_allclose(s[0], s[1], atol=1e-5)
    exchanged = np.asarray(scores_of(pair.model, pair.params, jnp.asarray(prompt), batch, labels[::-1]))
    other = 1 / (1 + np.exp(-(exchanged[:, 0] - exchanged[:, 1]).astype(float)))
    np.testing.assert_allclose(other, 1 - s[0], atol=1e-7)


@pytest.mark.quick("v1.1")
@pytest.mark.parametrize("fields", [V10, V11], ids=["v1.0", "v1.1"])
def test_the_gradient_in_the_prompt_is_that_of_pytorch(fields):
    pair = torch_pair(fields)
    batch, prompt = random_inputs(16, seed=1)
    program = TuneProgram(pair.model, ((7,), (9,)), (0.3,), None)
    value, gradient = jax.jit(jax.value_and_grad(program.loss))(jnp.asarray(prompt), pair.params, batch)
    theirs = torch.tensor(prompt, requires_grad=True)
    embeds, mask = theirs_embedded(pair.theirs, batch, theirs)
    targets = torch.tensor([[7 if yes else 9, 1] for yes in batch["yes"]])
    loss = pair.theirs(inputs_embeds=embeds, attention_mask=mask, labels=targets).loss
    check_gradient(loss, theirs, value, gradient)


def check_gradient(loss, theirs, value, gradient):
    loss.backward()
    assert float(value) == pytest.approx(loss.item(), rel=1e-5)
    error = np.linalg.norm(np.asarray(gradient) - theirs.grad.numpy()) / np.linalg.norm(theirs.grad.numpy())
    assert error < 1e-4


def continued(pair, batch, prompt, answers):
    """PyTorch's log-likelihoods of every piece of an answer that continues a prompt and a text, row by row."""
    embed, found = pair.theirs.get_input_embeddings(), []
    for ids, length, answer in zip(batch["ids"], batch["length"], answers, strict=True):
        tokens = torch.tensor([*ids[:length].tolist(), *answer[:-1]])
        whole = torch.cat([prompt, embed(tokens)])
        log = torch.log_softmax(pair.theirs(inputs_embeds=whole[None]).logits[0, -len(answer) :], -1)
        found.append(log[torch.arange(len(answer)), torch.tensor(answer)])
    return found


@pytest.mark.quick("gemma2")
@pytest.mark.parametrize("backbone", ["llama3", "gemma2"])
def test_a_decoder_alone_continues_the_text_as_in_pytorch(backbone):
    """Rows of several lengths, answers of several pieces; the loss counts the end token, as in training."""
    pair = random_pair(backbone, 3)
    batch, prompt = random_inputs(pair.model.spec.d_model)
    labels, end = ((7, 8, 12), (7, 9)), pair.model.eos_token
    with torch.no_grad():
        expected = np.array(
            [[row.sum().item() for row in continued(pair, batch, torch.tensor(prompt), [ids] * 3)] for ids in labels]
        ).T
    found = np.asarray(scores_of(pair.model, pair.params, jnp.asarray(prompt), batch, labels))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    program = TuneProgram(pair.model, labels, (0.3,), None)
    value, gradient = jax.jit(jax.value_and_grad(program.loss))(jnp.asarray(prompt), pair.params, batch)
    theirs = torch.tensor(prompt, requires_grad=True)
    answers = [(*labels[0 if yes else 1], end) for yes in batch["yes"]]
    check_gradient(-torch.cat(continued(pair, batch, theirs, answers)).mean(), theirs, value, gradient)
