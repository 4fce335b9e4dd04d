"""The contrastive loss and its gradients against PyTorch, and what shares a sentence."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_grid
import torch

from eeg2text_jax.models.functional import ContrastiveModel
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.training.conditions.condition import condition_key
from eeg2text_jax.training.grid_program import ContrastiveProgram, clip_loss
from eeg2text_jax.training.study import Arm, StudyArrays, dropout_keys

B, E = 7, 5


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    brain = rng.normal(size=(B, E)).astype(np.float32)
    brain /= np.linalg.norm(brain, axis=1, keepdims=True)
    return brain, rng.normal(size=(B, E)).astype(np.float32)


def of_torch(brain, text, scale, symmetric, rows=None):
    """As open_clip and transformers have it: cross-entropy of the cosines' rows, and of their columns."""
    rows = list(range(len(brain))) if rows is None else rows
    b = torch.tensor(brain[rows], requires_grad=True)
    s = torch.tensor(scale, requires_grad=True)
    t = torch.nn.functional.normalize(torch.tensor(text[rows]), dim=1)
    logits = s * b @ t.T
    target = torch.arange(len(rows))
    loss = torch.nn.functional.cross_entropy(logits, target, reduction="sum")
    if symmetric:
        loss = (loss + torch.nn.functional.cross_entropy(logits.T, target, reduction="sum")) / 2
    loss.backward()
    return loss.item(), b.grad.numpy(), s.grad.item()


@pytest.mark.parametrize("symmetric", [False, True])
def test_loss_and_gradients_are_torchs(symmetric):
    brain, text = drawn()
    ids, weight = jnp.arange(B, dtype=jnp.int32), jnp.ones(B, jnp.float32)

    def loss(brain, scale):
        return clip_loss(brain, jnp.asarray(text), ids, weight, scale, symmetric)

    value, gradients = jax.value_and_grad(loss, (0, 1))(jnp.asarray(brain), jnp.float32(14.3))
    expected, of_brain, of_scale = of_torch(brain, text, 14.3, symmetric)
    assert float(value) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(gradients[0], of_brain, rtol=1e-4, atol=1e-5)
    assert float(gradients[1]) == pytest.approx(of_scale, rel=1e-3)


@pytest.mark.parametrize("symmetric", [False, True])
def test_rows_that_fill_the_batch_change_nothing(symmetric):
    brain, text = drawn()
    weight = np.ones(B, np.float32)
    weight[[2, 5]] = 0
    brain[2] = np.nan_to_num(brain[2]) * 0 + brain[0]
    given = map(jnp.asarray, (brain, text, np.arange(B, dtype=np.int32), weight))
    found = clip_loss(*given, 3.0, symmetric)
    expected, *_ = of_torch(brain, text, 3.0, symmetric, [0, 1, 3, 4, 6])
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_readers_of_one_sentence_are_never_each_others_negatives(symmetric):
    """Each of the two rows of a sentence is compared with the others as if the second were not in the batch."""
    brain, text = drawn()
    text[4] = text[1]
    sentence = np.array([0, 1, 2, 3, 1, 5, 6], np.int32)
    weight = jnp.ones(B, jnp.float32)
    found = clip_loss(jnp.asarray(brain), jnp.asarray(text), jnp.asarray(sentence), weight, 5.0, symmetric)
    logits = 5.0 * brain @ (text / np.linalg.norm(text, axis=1, keepdims=True)).T
    expected = 0.0
    for i in range(B):
        others = [j for j in range(B) if j == i or sentence[j] != sentence[i]]
        rows, columns = np.exp(logits[i, others]).sum(), np.exp(logits[others, i]).sum()
        forth, back = np.log(rows) - logits[i, i], np.log(columns) - logits[i, i]
        expected += (forth + back) / 2 if symmetric else forth
    assert float(found) == pytest.approx(expected, rel=1e-5)
    naive = clip_loss(jnp.asarray(brain), jnp.asarray(text), jnp.arange(B, dtype=jnp.int32), weight, 5.0, symmetric)
    assert float(naive) > float(found) + 0.1, "a false negative would have cost something"


def test_cosines_are_divided_by_the_temperature_fixed_or_learned_and_never_by_less_than_a_hundredth():
    def scale(temperature, **log_scale):
        model = ContrastiveModel(None, width=4, outputs=E, temperature=temperature, learn_temperature=bool(log_scale))
        return float(model.scale({name: jnp.array([value], jnp.float32) for name, value in log_scale.items()}))

    assert scale(0.07) == pytest.approx(1 / 0.07)
    assert scale(0.07, log_scale=np.log(1 / 0.2)) == pytest.approx(5.0)
    assert scale(0.07, log_scale=10.0) == pytest.approx(100.0)


def test_a_learned_temperature_begins_at_the_configured_one():
    eeg = EEGSpec(features=3, layers=0)
    network = dataclasses.replace(tiny_grid.make_model(), eeg=eeg)
    model = ContrastiveModel(network, width=4, outputs=E, temperature=0.2, learn_temperature=True)
    assert float(model.scale(model.init(jax.random.key(0)))) == pytest.approx(5.0)


def test_padding_changes_no_embedding_and_every_word_counts():
    network = dataclasses.replace(tiny_grid.make_model(), eeg=EEGSpec(features=3, layers=0))
    model = ContrastiveModel(network, width=4, outputs=E, temperature=0.2, learn_temperature=False)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), model.shapes)
    embed, words = jax.jit(model.embed), rng.normal(size=(2, 9, 3)).astype(np.float32)

    def embedded(rows, width, lengths):
        return np.asarray(embed(params, {"features": rows[:, :width], "mask": np.arange(width) < np.array(lengths)}))

    short, both = embedded(words[1:], 2, [[2]]), embedded(words, 4, [[4], [2]])
    np.testing.assert_allclose(both[1], short[0], atol=1e-6)
    np.testing.assert_allclose(embedded(words, 9, [[4], [2]]), both, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1.0, rtol=1e-5)
    other = words.copy()
    other[0, 3] += 3.0
    assert np.abs(embedded(other, 4, [[4], [2]])[0] - both[0]).max() > 1e-3


def test_sentences_follow_the_batch_of_the_seed_and_the_condition():
    arms = tuple(Arm(condition, seed) for seed in (0, 1) for condition in ("eeg", "label_shuffle"))
    model = ContrastiveModel(None, width=4, outputs=E, temperature=0.1, learn_temperature=False)
    program = tiny_grid.make_program(arms, model, ContrastiveProgram)
    own = tiny_grid.make_texts()
    exchanged = (own.sentence + 1) % tiny_grid.SENTENCES
    texts = jax.tree.map(jnp.asarray, own._replace(exchanged=exchanged))
    study = StudyArrays(dropout_keys(arms, 0, "threefry"), condition_key(0), None, texts=texts)
    batches = [{**batch, "shuffled_labels": batch["labels"]} for batch in map(tiny_grid.make_batch, (0, 1))]
    both = {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
    rows = program._rows(both, study, jnp.int32(0))
    for a, (batch, table) in enumerate((batch, table) for batch in batches for table in (own.sentence, exchanged)):
        np.testing.assert_array_equal(rows["sentence"][a], table[batch["sample_id"]])
        np.testing.assert_array_equal(rows["text"][a], own.vectors[table[batch["sample_id"]]])
