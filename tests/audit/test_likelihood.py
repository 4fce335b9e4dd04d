"""EEG bits: what the recording adds to the likelihood of its sentence, on planted likelihoods."""

import dataclasses

import numpy as np
import pytest
from rows import changed, row, simulated_rows

from eeg2text_jax.instrument.auditing.audit import audit, eeg_bits
from eeg2text_jax.instrument.auditing.result import result_text


def scored(gain, seed=0):
    """40 sentences with two readers each, the control's NLL higher by `gain` nats of 10 tokens."""
    rng = np.random.default_rng(seed)
    rows = [row(i, sample_id=f"{i}{s}", subject=s, mode="teacher_forced") for i in range(40) for s in "AB"]
    eeg = [dataclasses.replace(r, nll=float(30 + rng.normal()), n_tokens=10) for r in rows]
    control = [dataclasses.replace(r, nll=r.nll + gain + float(rng.normal())) for r in eeg]
    return eeg, control


def test_eeg_bits_are_the_planted_ones():
    eeg, control = scored(2.0)
    found = eeg_bits(eeg, "shuffled", control[::-1])
    expected = (sum(r.nll for r in control) - sum(r.nll for r in eeg)) / np.log(2) / 800
    assert found.bits_per_token == pytest.approx(expected)
    assert found.interval[0] < found.bits_per_token < found.interval[1]
    assert found.p < 1e-6
    assert (found.samples, found.sentences, found.off_distribution) == (80, 40, False)
    assert eeg_bits(eeg, "noise", control).off_distribution


def test_samples_are_matched_by_seed_and_number_of_tokens():
    eeg = [row(i, seed=seed, nll=10.0 + i, n_tokens=10) for i in range(6) for seed in (0, 1)]
    control = [dataclasses.replace(r, nll=r.nll + (6.0 if r.seed else 2.0)) for r in eeg]
    assert eeg_bits(eeg, "noise", control).bits_per_token == pytest.approx((2 + 6) / np.log(2) / 20)
    assert eeg_bits(eeg, "noise", [dataclasses.replace(r, n_tokens=11) for r in control]) is None
    assert eeg_bits(eeg, "noise", [dataclasses.replace(r, nll=None) for r in control]) is None


def test_bits_a_token_that_are_equal_in_all_sentences_have_no_spread():
    eeg = [row(i, nll=100.0, n_tokens=5 * 4**i) for i in range(6)]
    control = [dataclasses.replace(r, nll=r.nll + 0.1 * np.log(2) * r.n_tokens) for r in eeg]
    found = eeg_bits(eeg, "noise", control)
    assert (found.bits_per_token, *found.interval) == pytest.approx((0.1, 0.1, 0.1))


def test_the_interval_of_bits_is_that_of_sentences_drawn_anew():
    rng, eeg, control = np.random.default_rng(3), [], []
    for i in range(60):
        gain, tokens = rng.normal(0.05, 0.4), int(rng.integers(3, 40))
        for reader in "ABC"[: 1 + i % 3]:
            eeg.append(row(i, sample_id=f"{i}{reader}", subject=reader, nll=90.0, n_tokens=tokens))
            control.append(dataclasses.replace(eeg[-1], nll=90.0 + tokens * gain + float(rng.normal())))
    sums = np.zeros((60, 2))
    for a, b in zip(eeg, control, strict=True):
        sums[int(a.sentence_id[1:])] += (b.nll - a.nll) / np.log(2), a.n_tokens
    drawn = sums[rng.integers(60, size=(4000, 60))].sum(1)
    drawn = drawn[:, 0] / drawn[:, 1]
    found = eeg_bits(eeg, "shuffled", control)
    assert (found.samples, found.sentences) == (120, 60)
    assert found.bits_per_token == pytest.approx(sums[:, 0].sum() / sums[:, 1].sum())
    assert found.interval == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)
    assert found.p == pytest.approx(np.mean(drawn <= 0), abs=0.02)
    assert 0.01 < found.p < 0.5


def test_bits_come_from_the_teacher_forced_rows_beside():
    """A run judges its free-running texts, and has likelihoods in its teacher-forced rows alone."""
    eeg, noise = simulated_rows(sentences=36, subjects=2, information=0.3)
    forced = [
        [dataclasses.replace(r, mode="teacher_forced", nll=30.0 + extra, n_tokens=10) for r in side]
        for side, extra in ((eeg, 0.0), (noise, 2.0))
    ]
    found = audit([*eeg, *forced[0]], {"noise": [*noise, *forced[1]]})
    assert found.mode == "free_running"
    assert found.bits[0].bits_per_token == pytest.approx(0.2 / np.log(2))
    told = "EEG bits against noise: +0.2885 bits a token (95 % CI +0.2885 to +0.2885; p < 0.001; 36 sentences); "
    assert f"{told}off-distribution input alone can do that." in result_text(found, verbose=True)
    alone = audit(changed(eeg, nll=1.0, n_tokens=2), {})
    assert alone.bits == []
