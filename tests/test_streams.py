"""No two draws of a run come from the same key."""

from collections import defaultdict

import jax
import numpy as np
import pytest
from tiny_run import tiny_settings

from eeg2text_jax.runs.cells import sentence_keys
from eeg2text_jax.training.conditions import condition
from eeg2text_jax.training.conditions.condition import STREAMS, ConditionContext, condition_key, sample_keys, stream_rng
from eeg2text_jax.training.study import Arm, dropout_keys, init_keys
from eeg2text_jax.training.study import arms as arms_of

SEEDS, STEPS, SAMPLES = range(6), range(40), np.arange(40, dtype=np.int32)
PURPOSES = {name: getattr(condition, f"_{name.upper()}") for name in ("fixed", "redrawn", "uniform", "phases")}


def streams(seed: int) -> dict[str, jax.Array]:
    """Every key that a run of the configuration's `seed` draws from, or begins to draw from, by purpose."""
    arms = tuple(Arm("noise", number) for number in SEEDS)
    fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))
    found = {
        "init": init_keys(arms, seed),
        "dropout": dropout_keys(arms, seed, "threefry"),
        "dropout by step": fold(dropout_keys(arms, seed, "threefry"), np.array(STEPS)),
        "sampling": sentence_keys(seed, SAMPLES),
    }
    for number in SEEDS:  # as `condition_inputs` does
        key = jax.random.fold_in(condition_key(seed), number)
        for name, purpose in PURPOSES.items():
            by_sample = sample_keys(ConditionContext(key, SAMPLES, np.int32(0)), purpose)
            found[f"{name}, arm {number}"] = by_sample
            if name == "redrawn":
                found[f"{name} by step, arm {number}"] = fold(by_sample, np.array(STEPS))
    return found


@pytest.mark.parametrize("seed", [0, 3])
def test_no_key_serves_two_purposes(seed):
    where = defaultdict(list)
    for name, keys in streams(seed).items():
        for data in np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist():
            where[tuple(data)].append(name)
    assert not {tuple(names) for names in where.values() if len(names) > 1}


def test_generators_of_numpy_differ_and_so_do_those_of_plain_seeds():
    """`default_rng(s)` is `default_rng([s, 0])`: what epoch 0 is shuffled with must not deal out donors, too."""
    draws = [stream_rng(5, name).random(4).tolist() for name in STREAMS]
    draws += [np.random.default_rng(5).random(4).tolist(), np.random.default_rng([5, 1]).random(4).tolist()]
    assert len({tuple(draw) for draw in draws}) == len(draws)


def test_arms_are_those_of_one_seed_after_the_other_and_a_seed_has_one_key():
    config = tiny_settings(grid__train_conditions=("noise", "eeg"), grid__seeds=(3, 1))
    arms = arms_of(config.grid)
    assert list(map(str, arms)) == ["noise/3", "eeg/3", "noise/1", "eeg/1"]
    for keys in (init_keys(arms, 0), dropout_keys(arms, 0, "threefry"), dropout_keys(arms, 0, "rbg")):
        data = np.asarray(jax.random.key_data(keys)).tolist()
        assert data[0] == data[1] != data[2] == data[3]
