"""Bridge and adapters around a frozen decoder-only model against PyTorch with PEFT: logits, gradients, a step."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from causal_cases import cases
from test_backbones import check_gradients

from eeg2text_jax.base.devices.arms import Divided
from eeg2text_jax.models.backbones.mapping import flatten
from eeg2text_jax.training.conditions.condition import condition_key
from eeg2text_jax.training.step import GridProgram, init_state
from eeg2text_jax.training.study import Arm, StudyArrays

if importlib.util.find_spec("peft") is None:
    pytest.skip("peft is not installed", allow_module_level=True)

from adapter_cases import Adapted, Rows, random_adapted, random_rows, their_logits, their_step

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks for it

LOGITS, GRADIENT = 5e-5, 1e-3
LR, DECAY, CLIP = 1e-2, 0.1, 0.5


@pytest.mark.parametrize(("family", "seed"), cases(("gemma3",)))
def test_logits_gradients_and_a_step(family: str, seed: int) -> None:
    adapted = random_adapted(family, seed)
    rows = random_rows(adapted, seed)
    theirs = their_logits(adapted, rows)
    (logits, gradients), (state, metrics) = ours(adapted, rows)
    real = rows.labels != adapted.model.spec.pad_token
    np.testing.assert_allclose(np.asarray(logits)[real], theirs.detach().numpy()[real], atol=LOGITS, rtol=0)

    loss, expected, norm, moved = their_step(adapted, theirs, rows, LR, DECAY, CLIP)
    np.testing.assert_allclose(metrics["loss"], [loss], rtol=1e-5)
    np.testing.assert_allclose(metrics["grad_norm"], [norm], rtol=GRADIENT)
    assert flatten(expected).keys() == flatten(gradients).keys()
    check_gradients(flatten(expected), flatten(gradients))
    check_step(adapted, flatten(state.params), flatten(moved), flatten(expected))


def ours(adapted: Adapted, rows: Rows) -> tuple:
    """Logits and gradients of our model, and one step of the real training program."""
    model, frozen = adapted.model, adapted.params.frozen
    optimizer = optax.chain(optax.clip_by_global_norm(CLIP), optax.adamw(LR, weight_decay=DECAY))
    program = GridProgram(model, (Arm("eeg", 0),), optimizer, 0.0, "vmap")
    batch = {**{name: jnp.asarray(value) for name, value in rows._asdict().items()}, "weight": jnp.ones(len(rows.mask))}
    batch["sample_id"] = jnp.arange(len(rows.mask), dtype=jnp.int32)
    keys = jax.random.split(jax.random.key(0), 1)

    @jax.jit
    def run(own, frozen, batch):
        def loss(own):
            inputs = {name: batch[name] for name in ("features", "mask")}
            logits = model.forward(Divided(own, frozen), inputs, model.shift_right(batch["labels"]))
            real = batch["labels"] != model.pad_token
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(real, batch["labels"], 0))
            return jnp.sum(jnp.where(real, losses, 0.0)) / jnp.sum(real.astype(jnp.float32)), logits

        gradients, logits = jax.grad(loss, has_aux=True)(own)
        state = init_state(jax.tree.map(lambda leaf: leaf[None], own), optimizer)
        study = StudyArrays(keys, condition_key(0), None, frozen=frozen)
        step = program.train_step(state, jax.tree.map(lambda leaf: leaf[None], batch), study)
        return (logits, gradients), step

    (logits, gradients), (state, metrics) = run(adapted.params.own, frozen, batch)
    return (logits, gradients), (state._replace(params=jax.tree.map(lambda leaf: leaf[0], state.params)), metrics)


def check_step(adapted: Adapted, found: dict, moved: dict, gradients: dict) -> None:
    """Adam's first step moves by the sign of a gradient: equal wherever the gradient is more than rounding noise."""
    norm = np.sqrt(sum(float(np.sum(np.square(g))) for g in gradients.values()))
    before, counted = flatten(adapted.params.own), 0
    for path, expected in moved.items():
        clear = np.abs(gradients[path]) > 1e-5 * norm
        step, theirs = np.asarray(found[path]), np.asarray(expected)
        np.testing.assert_allclose(step[clear], theirs[clear], atol=2e-3 * LR, rtol=0, err_msg=path)
        assert np.all(np.abs(step - np.asarray(before[path]))[~clear] <= LR * 1.5), path
        counted += int(clear.sum())
    assert counted > 0.5 * sum(leaf.size for leaf in moved.values())
