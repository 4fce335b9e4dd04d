"""Decodes every cell of a grid in both modes: (arm, evaluation condition) -> rows of the predictions file."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.conditions.condition import condition_inputs
from eeg2text_jax.conditions.context import ConditionContext
from eeg2text_jax.data.batches import Batch, make_batch
from eeg2text_jax.data.text import decode_tokens
from eeg2text_jax.decoding.generate import generate
from eeg2text_jax.decoding.spec import GenerationSpec
from eeg2text_jax.decoding.teacher_forced import teacher_forced
from eeg2text_jax.grid import Arm
from eeg2text_jax.predictions import Prediction
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.study import Study


def decode_grid(study: Study, params: Any) -> Iterator[Prediction]:
    """Decodes the test part of the study under every evaluation condition.

    Args:
      study: the run.
      params: each arm's parameters, `[A, ...]`.

    Yields:
      For every arm, condition and batch the free-running rows, then the teacher-forced ones.
    """
    spec = GenerationSpec.from_fields(study.config.decode, study.model)
    rows = study.split.parts["test"]
    conditions = tuple(study.config.grid.eval_conditions)
    with ProgressLine("decode", len(rows) * len(study.arms) * len(conditions)) as progress:
        for a, arm in enumerate(study.arms):
            arm_params = jax.tree.map(lambda leaf, a=a: leaf[a], params)
            for batch, chosen in test_batches(study, rows):
                for condition in conditions:
                    inputs = {"features": feed(study, condition, arm.seed, batch), "mask": batch["mask"]}
                    free = generate(study.model, arm_params, inputs, spec)
                    forced = teacher_forced(study.model, arm_params, inputs, batch["labels"])
                    yield from _predictions(study, arm, condition, chosen, free, forced, batch["labels"])
                    progress.advance(len(chosen), f"{arm} -> {condition}")


def test_batches(study: Study, rows: np.ndarray) -> Iterator[tuple[Batch, np.ndarray]]:
    """Batches of samples that share a bucket of EEG positions, shortest first, with their rows.

    Buckets and order depend on the number of words alone, never on the text.
    """
    size = study.config.decode.batch_size
    edges = sorted({words for words, _ in study.config.batch.buckets})
    words = study.samples.n_words()[rows]
    for low, high in zip([0, *edges[:-1]], edges, strict=True):
        inside = rows[(words > low) & (words <= high)]
        inside = inside[np.argsort(study.samples.n_words()[inside], kind="stable")]
        for start in range(0, len(inside), size):
            chosen = inside[start : start + size]
            yield make_batch(study.samples, chosen, (high, study.config.text.max_tokens), size), chosen


def feed(study: Study, condition: str, seed: int, batch: Batch) -> jax.Array:
    """What the encoder is fed under a condition, `[B, W, F]`."""
    keep = ("features", "mask", "sample_id", "subject", "donor")
    return _feed(condition, seed, {name: batch[name] for name in keep if name in batch}, study.arrays)


@functools.partial(jax.jit, static_argnames=("condition", "seed"))
def _feed(condition: str, seed: int, batch: Any, arrays: Any) -> jax.Array:
    context = ConditionContext(
        arrays.condition,
        batch["sample_id"],
        jnp.zeros((), jnp.int32),
        batch.get("subject"),
        arrays.means,
        batch.get("donor"),
    )
    return condition_inputs([(condition, seed)], batch["features"], batch["mask"], context)[0]


def _predictions(
    study: Study, arm: Arm, condition: str, rows: np.ndarray, free, forced, labels
) -> Iterator[Prediction]:
    """Rows of one decoded batch; its filling rows are left out."""
    n = len(rows)
    sequences = {
        "free_running": [
            _strip(study, row[:length]) for row, length in zip(*_host(free.sequences, free.lengths, n), strict=True)
        ],
        "teacher_forced": [
            _until_end(study, row[:length])
            for row, length in zip(*_host(forced.tokens, forced.n_tokens, n), strict=True)
        ],
    }
    data, sentence_id = study.data, study.data.sentence_id
    for mode, tokens in sequences.items():
        texts = decode_tokens(study.tokenizer, tokens)
        for k, i in enumerate(rows):
            scored = mode == "teacher_forced"
            yield Prediction(
                sample_id=f"{data.subject[i]}/{sentence_id[i]}",
                subject=str(data.subject[i]),
                task=str(data.task[i]),
                sentence_id=str(sentence_id[i]),
                n_words=int(data.n_words[i]),
                train_condition=arm.condition,
                eval_condition=condition,
                seed=arm.seed,
                mode=mode,
                reference=str(data.sentence[i]),
                prediction=texts[k],
                reference_tokens=_strip(study, labels[k]),
                prediction_tokens=tokens[k],
                nll=float(forced.nll[k]) if scored else None,
                n_tokens=int(forced.n_tokens[k]) if scored else None,
            )


def _host(tokens: jax.Array, lengths: jax.Array, n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(tokens)[:n], np.asarray(lengths)[:n]


def _until_end(study: Study, tokens: np.ndarray) -> list[int]:
    """Argmax tokens at the reference's positions up to the first end token among them, without special tokens."""
    ends = np.flatnonzero(tokens == study.model.eos_token)
    return _strip(study, tokens[: ends[0]] if len(ends) else tokens)


def _strip(study: Study, tokens: np.ndarray) -> list[int]:
    special = set(study.tokenizer.all_special_ids)
    return [token for token in map(int, tokens) if token not in special]
