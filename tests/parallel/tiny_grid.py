"""A grid small enough to train on many meshes, without data files: shared by the tests of meshes and of hosts."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from eeg2text_jax.conditions.condition import condition_inputs
from eeg2text_jax.conditions.context import ConditionContext, condition_key
from eeg2text_jax.decoding.generate import search
from eeg2text_jax.decoding.spec import GenerationSpec
from eeg2text_jax.grid import Arm, arm_keys
from eeg2text_jax.models.build import random_spec
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.parallel.arms import compile_apart, compile_step
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.parallel.partition import Rules, arm_sharding, put, put_batch, replicated, state_shardings
from eeg2text_jax.training.state import TrainState, init_params, init_state
from eeg2text_jax.training.step import GridProgram, StudyArrays

ARMS = tuple(Arm(c, seed) for seed in (0, 1) for c in ("eeg", "noise", "zero", "time_reversed"))
B, W, F, T, VOCABULARY = 16, 6, 10, 7, 40
STEPS = 20


class Tokens:
    """What a random backbone asks of a tokenizer."""

    bos_token_id = cls_token_id = 0
    pad_token_id = 1
    eos_token_id = sep_token_id = 2

    def __len__(self) -> int:
        return VOCABULARY


def make_program(arms: tuple[Arm, ...], mapping: str = "vmap", **options: bool) -> GridProgram:
    shape = {"d_model": 16, "vocab_size": VOCABULARY, "max_position_embeddings": 16}
    shape |= {f"{side}_layers": 1 for side in ("encoder", "decoder")}
    shape |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    shape |= {f"{side}_ffn_dim": 32 for side in ("encoder", "decoder")}
    spec = random_spec("bart", shape, Tokens())
    # One place with dropout: a generator is what XLA:CPU compiles longest.
    encoder = dataclasses.replace(spec.encoder, dropout=0.0)
    decoder = dataclasses.replace(spec.decoder, dropout=0.0, embedding_dropout=0.0)
    spec = dataclasses.replace(spec, encoder=encoder, decoder=decoder)
    model = Seq2SeqModel(spec, EEGSpec(features=F, layers=0), **options)
    return GridProgram(model, arms, optax.sgd(0.05, momentum=0.9), 0.1, mapping)


def make_batch(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    lengths = rng.integers(2, T + 1, B)
    labels = rng.integers(3, VOCABULARY, (B, T)).astype(np.int32)
    labels[np.arange(T) >= lengths[:, None]] = 1
    return {
        "features": rng.normal(size=(B, W, F)).astype(np.float32),
        "mask": np.arange(W) < rng.integers(1, W + 1, B)[:, None],
        "sample_id": rng.integers(0, 1000, B).astype(np.int32),
        "weight": (rng.random(B) < 0.9).astype(np.float32),
        "labels": labels,
    }


def train(program: GridProgram, mesh: Mesh, rules: Rules, steps: int = STEPS) -> tuple[TrainState, np.ndarray, str]:
    """The state after `steps`, the losses `[steps, A]`, and the compiled step as text."""
    keys = [arm_keys(arm, 0) for arm in program.arms]
    init = jnp.stack([key["init"] for key in keys])

    def initial(keys: jax.Array) -> TrainState:
        return init_state(init_params(program.model, keys), program.optimizer)

    shardings = state_shardings(jax.eval_shape(initial, init), mesh, rules)
    state = jax.jit(initial, out_shardings=shardings)(init)
    study = study_arrays(program, mesh)
    step = compile_step(program.train_step, mesh, shardings)
    step = step.lower(state, put_batch(make_batch(0), mesh), study).compile()
    losses = []
    for i in range(steps):
        state, metrics = step(state, put_batch(make_batch(i), mesh), study)
        losses.append(to_host(metrics["loss"]))
    return state, np.array(losses), step.as_text()


def study_arrays(program: GridProgram, mesh: Mesh) -> StudyArrays:
    dropout = jnp.stack([arm_keys(arm, 0)["dropout"] for arm in program.arms])
    return jax.device_put(StudyArrays(dropout, condition_key(0), None), replicated(mesh))


def decode(program: GridProgram, params: Any, mesh: Mesh) -> tuple[np.ndarray, np.ndarray, str]:
    """Tokens `[A, B, T]` and scores `[A, B]` of a beam search for every arm, and the compiled program."""
    spec = GenerationSpec.from_fields({"num_beams": 3, "max_length": T}, program.model)
    batch = make_batch(1000)
    context = ConditionContext(condition_key(0), batch["sample_id"], jnp.zeros((), jnp.int32))
    pairs = [(arm.condition, arm.seed) for arm in program.arms]
    fed = condition_inputs(pairs, jnp.asarray(batch["features"]), jnp.asarray(batch["mask"]), context)
    fed = put(np.asarray(fed), arm_sharding(mesh))

    def one_arm(params: Any, fed: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = search(program.model, params, {"features": fed, "mask": mask}, spec, None)
        return found.sequences, found.scores

    apart = compile_apart(one_arm, mesh)
    mask = put_batch({"mask": batch["mask"]}, mesh)["mask"]
    compiled = apart.lower(params, fed, mask).compile()
    tokens, scores = to_host(compiled(params, fed, mask))
    return tokens, scores, compiled.as_text()
