"""What every condition keeps and what it destroys."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from eeg2text_jax.training.conditions.condition import (
    CONDITIONS,
    ConditionContext,
    apply_condition,
    condition_inputs,
    condition_key,
    needs,
)

NOISES = ("noise", "noise_redrawn", "noise_uniform", "noise_spectrum")
LENGTHS = np.array([1, 2, 5, 8, 13, 24])
W, F = 24, 6


def batch(width: int = W) -> tuple[jax.Array, jax.Array, ConditionContext]:
    """Six recordings with a trend over the words, so that order matters, and rubbish at padding."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(len(LENGTHS), W, F)) @ rng.normal(size=(F, F)) + np.linspace(0, 3, W)[:, None]
    mask = np.arange(width) < LENGTHS[:, None]
    features = np.where(mask[:, :, None], features[:, :width], 77.0)
    context = ConditionContext(
        key=condition_key(5),
        sample_id=np.array([7, 3, 9, 0, 1000000, 12], np.int32),
        step=np.int32(0),
        subject=np.array([0, 1, 0, 1, 0, 1], np.int32),
        means=rng.normal(size=(3, F)).astype(np.float32),
        donor=rng.normal(size=(len(LENGTHS), W, F)).astype(np.float32)[:, :width],
        clock=rng.normal(size=(len(LENGTHS), F)).astype(np.float32),
        neighbor=rng.normal(size=(len(LENGTHS), W, F)).astype(np.float32)[:, :width],
        kernel=rng.normal(size=(10, F)).astype(np.float32),
    )
    return jnp.asarray(features, jnp.float32), jnp.asarray(mask), context


# XLA:CPU spends seconds on optimizing the noise generator, and no test runs it for long.
QUICK = {"xla_backend_optimization_level": 1}
apply = jax.jit(apply_condition, static_argnums=0, compiler_options=QUICK)


@pytest.mark.parametrize("name", CONDITIONS)
def test_shape_type_and_padding(name):
    features, mask, context = batch()
    fed = apply(name, features, mask, context)
    assert (fed.shape, fed.dtype) == (features.shape, features.dtype)
    assert np.isfinite(fed).all()
    assert not np.asarray(fed)[~np.asarray(mask)].any()
    half = jax.eval_shape(lambda x: apply_condition(name, x, mask, context), features.astype(jnp.bfloat16))
    assert half.dtype == jnp.bfloat16


@pytest.mark.parametrize("name", CONDITIONS)
def test_same_in_every_batch_order_and_bucket(name):
    features, mask, context = batch()
    fed = np.asarray(apply(name, features, mask, context))
    order = np.array([4, 2, 0, 1, 5, 3])
    of_rows = ("sample_id", "subject", "donor", "clock", "neighbor")
    chosen = context._replace(**{field: getattr(context, field)[order] for field in of_rows})
    np.testing.assert_allclose(apply(name, features[order], mask[order], chosen), fed[order], rtol=0, atol=1e-5)
    short = LENGTHS <= 8
    features, mask, context = batch(width=8)
    if name in ("phase_randomized", "noise_spectrum"):  # sums over the bucket: equal up to rounding
        np.testing.assert_allclose(apply(name, features, mask, context)[short], fed[short, :8], rtol=0, atol=2e-5)
    else:
        np.testing.assert_array_equal(apply(name, features, mask, context)[short], fed[short, :8])


@pytest.mark.parametrize("name", [*NOISES, "zero", "length_only", "shuffled"])
def test_nothing_of_the_recording_is_left(name):
    features, mask, context = batch()
    fed = apply(name, features, mask, context)
    np.testing.assert_array_equal(fed, apply(name, -3 * features + 1, mask, context))


@pytest.mark.parametrize("name", ["eeg", "time_reversed", "phase_randomized"])
def test_padding_does_not_leak_into_words(name):
    features, mask, context = batch()
    other = jnp.where(mask[:, :, None], features, -5.0)
    np.testing.assert_array_equal(apply(name, features, mask, context), apply(name, other, mask, context))


@pytest.mark.parametrize(
    ("name", "distribution"), [("noise", "norm"), ("noise_redrawn", "norm"), ("noise_uniform", "uniform")]
)
def test_noise_has_its_distribution_and_no_repeats(name, distribution):
    features = jnp.zeros((64, 16, 8))
    mask = jnp.ones((64, 16), bool)
    context = ConditionContext(condition_key(1), np.arange(64, dtype=np.int32), np.int32(3))
    fed = np.asarray(apply(name, features, mask, context))
    assert scipy.stats.kstest(fed.ravel(), distribution).pvalue > 0.01
    correlation = np.corrcoef(fed.reshape(64, -1)) - np.eye(64)
    assert np.abs(correlation).max() < 0.45  # 128 values each: independent ones stay under 5 / sqrt(128)
    assert np.unique(fed).size > 0.995 * fed.size


@pytest.mark.parametrize("name", CONDITIONS)
def test_only_redrawn_noise_changes_with_the_step_and_only_random_conditions_with_the_key(name):
    features, mask, context = batch()
    fed = apply(name, features, mask, context)
    later, other = context._replace(step=np.int32(1)), context._replace(key=condition_key(6))
    assert np.array_equal(fed, apply(name, features, mask, later)) == (name != "noise_redrawn")
    assert np.array_equal(fed, apply(name, features, mask, other)) == (not CONDITIONS[name].random)


def test_other_generators_are_refused():
    """Under `rbg` a sample's noise depends on its batch: the reason for the refusal, so show that it holds."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0, impl="rbg"), jnp.arange(3))
    wide, narrow = (jax.vmap(lambda key, w=w: jax.random.normal(key, (w, F)))(keys) for w in (W, 8))
    assert not np.array_equal(wide[:, :8], narrow)
    features, mask, context = batch()
    with pytest.raises(ValueError, match="condition_key"):
        apply_condition("noise", features, mask, context._replace(key=jax.random.key(0, impl="rbg")))


def test_phase_randomized_destroys_where_the_words_are():
    features, mask, context = batch()
    fed = np.asarray(apply("phase_randomized", features, mask, context))
    np.testing.assert_allclose(fed[0, 0], features[0, 0], atol=1e-5)  # one word: only a mean
    for row, length in list(enumerate(LENGTHS))[2:]:
        distance = np.abs(fed[row, :length] - np.asarray(features[row, :length])).mean()
        assert distance > 0.3 * np.asarray(features[row, :length]).std(axis=0).mean()
        turned = np.angle(np.fft.rfft(fed[row, :length], axis=0)[1:] / np.fft.rfft(features[row, :length], axis=0)[1:])
        assert np.ptp(turned, axis=0)[0] > 0.1  # not a mere shift of all by the same phase


def test_phases_are_uniform():
    mask = jnp.ones((2000, 7), bool)
    features = jnp.broadcast_to(jax.random.normal(condition_key(2), (1, 7, 1)), (2000, 7, 1))
    context = ConditionContext(condition_key(1), np.arange(2000, dtype=np.int32), np.int32(0))
    fed = np.asarray(apply("phase_randomized", features, mask, context))[:, :, 0]
    turned = np.angle(np.fft.rfft(fed, axis=1)[:, 1:] / np.fft.rfft(np.asarray(features)[:, :, 0], axis=1)[:, 1:])
    for frequency in range(3):
        uniform = scipy.stats.uniform(-np.pi, 2 * np.pi)
        assert scipy.stats.kstest(turned[:, frequency], uniform.cdf).pvalue > 0.01


def test_arms_are_stacked_and_differ_as_they_should():
    features, mask, context = batch()
    arms = (("noise", 0), ("eeg", 0), ("shuffled", 1), ("noise", 1), ("noise", 0), ("eeg", 1))
    stack = jax.jit(condition_inputs, static_argnums=0, compiler_options=QUICK)
    stacked = np.asarray(stack(arms, features, mask, context))
    assert stacked.shape == (6, *features.shape)
    for arm in (1, 2, 5):
        np.testing.assert_array_equal(stacked[arm], apply(arms[arm][0], features, mask, context))
    seeded = context._replace(key=jax.random.fold_in(context.key, 1))
    # Two programs, in which XLA may round a normal deviate differently (JAX 0.12 does, by one unit in the last place).
    np.testing.assert_allclose(stacked[3], apply("noise", features, mask, seeded), rtol=1e-6)
    np.testing.assert_array_equal(stacked[0], stacked[4])
    assert not np.isclose(stacked[0], stacked[3])[np.asarray(mask)].any()


def test_what_is_missing_is_named():
    features, mask, context = batch()
    assert needs(["eeg", "noise"]) == frozenset()
    assert needs(["shuffled", "subject_mean"]) == {"donor", "subject", "means"}
    bare = ConditionContext(context.key, context.sample_id, context.step)
    for name, field in [("shuffled", "donor"), ("length_only", "means"), ("subject_mean", "subject")]:
        with pytest.raises(ValueError, match=f"context.{field}"):
            apply_condition(name, features, mask, bare)


def test_the_noises_of_a_sample_are_drawn_apart():
    """Normal and uniform numbers of one key would have the same order."""
    features, mask = jnp.zeros((64, 16, 8)), jnp.ones((64, 16), bool)
    context = ConditionContext(condition_key(1), np.arange(64, dtype=np.int32), np.int32(0))
    normal, uniform, redrawn = (
        np.asarray(apply(name, features, mask, context)).ravel() for name in ("noise", "noise_uniform", "noise_redrawn")
    )
    for other in (uniform, redrawn):
        assert abs(scipy.stats.spearmanr(normal, other).statistic) < 0.05


def test_every_condition_says_what_it_takes_away():
    """In the table of docs/controls.md: name, what the encoder is given, what this removes."""
    page = (Path(__file__).parents[2] / "docs/controls.md").read_text(encoding="utf8")
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `")]
    said = {name.strip(" `"): [text.strip() for text in texts] for name, *texts in rows}
    assert all(len(said[name]) == 2 and all(said[name]) for name in CONDITIONS), said.keys()
