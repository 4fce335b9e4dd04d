"""`configs/paper.py:as=authors`: what the authors' code has and their text leaves open."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny_grid

from eeg2text_jax.base.devices.mesh import REPLICATED, make_mesh
from eeg2text_jax.data.batches import EpochPlan
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.sections import check_config, fields

PAPER = str(Path(__file__).parents[1] / "configs/paper.py")


@pytest.mark.parametrize(
    ("backbone", "checkpoint"),
    [("bart", "facebook/bart-large"), ("t5", "google-t5/t5-large"), ("pegasus", "google/pegasus-xsum")],
)
def test_as_authors_sets_what_their_code_has(backbone, checkpoint):
    plain, theirs = (load_config(f"{PAPER}:backbone={backbone}{more}") for more in ("", ",as=authors"))
    check_config(theirs)
    given, usual = dict(fields(theirs)), dict(fields(plain))
    changed = {name: value for name, value in given.items() if usual[name] != value}
    usual_checkpoint = {} if usual["model.checkpoint"] == checkpoint else {"model.checkpoint": checkpoint}
    assert changed == {
        "seed": 20,
        "grid.seeds": (312,),
        "batch.buckets": ((56, 56),),
        "train.best_by": "sentences",
        "decode.do_sample": True,
        "model.dtype": "float32",
        **usual_checkpoint,
    }
    assert bool(usual_checkpoint) == (backbone == "pegasus")


def test_batches_are_uniform_as_the_authors_are():
    """The mean number of words of a batch varies by 8.88 words with buckets of length, by less than 2 with one."""
    words = np.random.default_rng(0).normal(19.8, 9.5, 2000).clip(3, 56).astype(int)
    tokens = (words * 1.3).clip(2, 56).astype(int)
    spread = {}
    for name in ("", ":as=authors"):
        plan = EpochPlan(words, tokens, load_config(f"{PAPER}{name}").batch.buckets, 32, seed=0)
        spread[name] = np.std([words[rows].mean() for rows, _ in plan.epoch(0)])
    assert spread[""] > 6
    assert spread[":as=authors"] < 2


def test_best_by_sentences_is_a_mean_of_sentences():
    """Their dev loader has batches of one sentence, whose mean losses are averaged."""
    program, batch = tiny_grid.make_program(tiny_grid.ARMS[:1], label_smoothing=0.0), tiny_grid.make_batch(3)
    mesh = make_mesh(1, 1, jax.devices()[:1])
    state, study = tiny_grid.make_state(program, mesh, REPLICATED)[0], tiny_grid.study_arrays(program, mesh)
    single = jax.jit(program.eval_step)
    alone = []
    for row in np.flatnonzero(batch["weight"]):
        weight = np.zeros_like(batch["weight"])
        weight[row] = 1.0
        total, count = single(state.params, {**batch, "weight": weight}, study)
        alone.append(float(total[0] / count[0]))
    total, count = jax.jit(dataclasses.replace(program, by_sentence=True).eval_step)(state.params, batch, study)
    assert float(count[0]) == pytest.approx(len(alone))
    assert float(total[0] / count[0]) == pytest.approx(np.mean(alone), rel=1e-5)
    tokens, number = single(state.params, batch, study)
    assert abs(float(tokens[0] / number[0]) - np.mean(alone)) > 1e-3
