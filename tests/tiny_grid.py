"""A grid small enough to train on many meshes, without data files: shared by tests of meshes and of steps.

Compiling is what costs here, so the network has one layer a side and no initializer is compiled.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from tiny_run import SHAPE

from eeg2text_jax.base.devices.arms import compile_step
from eeg2text_jax.base.devices.hosts import to_host
from eeg2text_jax.base.devices.mesh import (
    Rules,
    fed_sharding,
    put,
    put_batch,
    replicated,
    state_shardings,
)
from eeg2text_jax.decoding.generate import generate_program
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models.backbones.build import random_spec
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.spec import EEGSpec
from eeg2text_jax.training.conditions.condition import ConditionContext, condition_inputs, condition_key
from eeg2text_jax.training.grid_program import ContrastiveProgram
from eeg2text_jax.training.step import GridProgram, TrainState, init_state
from eeg2text_jax.training.study import Arm, StudyArrays, TextArrays, dropout_keys

ARMS = tuple(Arm(c, seed) for seed in (0, 1) for c in ("eeg", "noise", "zero", "time_reversed"))
B, W, F, T, VOCABULARY = 16, 6, 10, 7, 40
STEPS = 20
SENTENCES, TEXT_WIDTH = 30, 12  # of contrastive programs


class Tokens:
    """What a random backbone asks of a tokenizer."""

    bos_token_id = cls_token_id = 0
    pad_token_id = 1
    eos_token_id = sep_token_id = 2

    def __len__(self) -> int:
        return VOCABULARY


def make_model(dropout: float = 0.1, **options: Any) -> Seq2SeqModel:
    """A BART of one layer a side, behind the bridge alone; `dropout` stands in one place, before its encoder."""
    shape = {**SHAPE, "vocab_size": VOCABULARY, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    spec = random_spec("bart", shape, Tokens())
    encoder = dataclasses.replace(spec.encoder, dropout=0.0, embedding_dropout=dropout)
    decoder = dataclasses.replace(spec.decoder, dropout=0.0, embedding_dropout=0.0)
    spec = dataclasses.replace(spec, encoder=encoder, decoder=decoder)
    return Seq2SeqModel(spec, EEGSpec(features=F, layers=0), **options)


def make_program(arms: tuple[Arm, ...], model: Any = None, kind: Any = GridProgram, **options: Any) -> GridProgram:
    fields = {"label_smoothing": 0.1, "mapping": "vmap", **options}
    return kind(model or make_model(), arms, optax.sgd(0.1, momentum=0.9), **fields)


def make_params(program: GridProgram) -> Any:
    """Parameters `[A, ...]` as NumPy arrays; those of an arm follow from its seed alone."""
    shapes = program.model.shapes
    rngs = [np.random.default_rng(arm.seed) for arm in program.arms]

    def draw(path: Any, leaf: Any) -> np.ndarray:
        centre = 1.0 if path[-1].key == "scale" else 0.0
        return np.stack([rng.normal(centre, 0.4, leaf.shape).astype(np.float32) for rng in rngs])

    return jax.tree_util.tree_map_with_path(draw, shapes)


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


def of_all(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A batch `[1, B, ...]` for the arms of all seeds."""
    return {name: leaf[None] for name, leaf in batch.items()}


def fed(program: GridProgram, step: int, mesh: Mesh) -> dict[str, jax.Array]:
    """The batch of a step on a mesh; a model of volumes gets the features of a word as one."""
    batch, volume = make_batch(step), program.model.eeg.volume
    if volume:
        batch["features"] = batch["features"].reshape(B, W, *volume)
    return put_batch(of_all(batch), mesh, seeds=True)


def make_state(program: GridProgram, mesh: Mesh, rules: Rules) -> tuple[TrainState, Any]:
    """The state before the first step and its shardings."""
    params = make_params(program)
    shapes = jax.eval_shape(lambda params: init_state(params, program.optimizer), params)
    shardings = state_shardings(shapes, mesh, rules)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    state = zeros._replace(params=params, best_params=params)
    return jax.tree.map(put, state, shardings), shardings


def compiled_step(program: GridProgram, mesh: Mesh, rules: Rules) -> tuple[TrainState, StudyArrays, Callable[..., Any]]:
    """The state before the first step, what is constant, and the compiled step."""
    program = dataclasses.replace(program, mesh=mesh)
    state, shardings = make_state(program, mesh, rules)
    study = study_arrays(program, mesh)
    step = compile_step(program.train_step, mesh, shardings)
    return state, study, step.lower(state, fed(program, 0, mesh), study).compile()


def train(program: GridProgram, mesh: Mesh, rules: Rules, steps: int = STEPS) -> tuple[TrainState, np.ndarray, str]:
    """The state after `steps`, the losses `[steps, A]`, and the compiled step as text."""
    state, study, step = compiled_step(program, mesh, rules)
    losses = []
    for i in range(steps):
        state, metrics = step(state, fed(program, i, mesh), study)
        losses.append(to_host(metrics["loss"]))
    return state, np.array(losses), step.as_text()


def study_arrays(program: GridProgram, mesh: Mesh, rng: str = "threefry") -> StudyArrays:
    dropout = dropout_keys(program.arms, 0, rng)
    texts = make_texts() if isinstance(program, ContrastiveProgram) else None
    return jax.device_put(StudyArrays(dropout, condition_key(0), None, texts=texts), replicated(mesh))


def make_texts() -> TextArrays:
    """Embeddings of sentences, and a sentence for each sample that a batch may have."""
    rng = np.random.default_rng(0)
    of_sample = rng.integers(0, SENTENCES, 1000).astype(np.int32)
    return TextArrays(rng.normal(size=(SENTENCES, TEXT_WIDTH)).astype(np.float32), of_sample, of_sample)


def decode(program: GridProgram, params: Any, mesh: Mesh) -> tuple[np.ndarray, str]:
    """Tokens `[A, B, T]` of a beam search for every arm, and the compiled program."""
    spec = GenerationSpec.from_fields({"num_beams": 2, "max_length": T}, program.model)
    batch = make_batch(1000)
    context = ConditionContext(condition_key(0), batch["sample_id"], jnp.zeros((), jnp.int32))
    pairs = [(arm.condition, arm.seed) for arm in program.arms]
    fed = condition_inputs(pairs, jnp.asarray(batch["features"]), jnp.asarray(batch["mask"]), context)
    fed = {"features": put(np.asarray(fed), fed_sharding(mesh))}
    shared = (put_batch({"mask": batch["mask"]}, mesh), None)
    compiled = generate_program(program.model, spec, mesh).lower(params, fed, shared).compile()
    return to_host(compiled(params, fed, shared).sequences), compiled.as_text()
