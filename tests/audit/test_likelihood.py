"""EEG bits and retrieval on planted likelihoods."""

import dataclasses
import json

import numpy as np
import pytest
from rows import row

from eeg2text_jax.auditing.retrieval import eeg_bits, retrieve
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.rankings import CandidateScores, read_candidates


def scored(gain, seed=0):
    """40 sentences with two readers each, the control's NLL higher by `gain` nats of 10 tokens."""
    rng = np.random.default_rng(seed)
    rows = [row(i, sample_id=f"{i}{s}", subject=s, mode="teacher_forced") for i in range(40) for s in "AB"]
    eeg = [dataclasses.replace(r, nll=float(30 + rng.normal()), n_tokens=10) for r in rows]
    control = [dataclasses.replace(r, nll=r.nll + gain + float(rng.normal())) for r in eeg]
    return eeg, control


def test_eeg_bits_are_the_planted_ones():
    eeg, control = scored(2.0)
    found = eeg_bits(eeg, "shuffled", control[::-1], resamples=500, rng=np.random.default_rng(0))
    expected = (sum(r.nll for r in control) - sum(r.nll for r in eeg)) / np.log(2) / 800
    assert found.bits_per_token == pytest.approx(expected)
    assert found.interval[0] < found.bits_per_token < found.interval[1]
    assert found.p == pytest.approx(1 / 501)
    assert (found.samples, found.sentences, found.off_distribution) == (80, 40, False)


def test_eeg_bits_of_nothing_are_found_at_the_nominal_rate():
    p = []
    for seed in range(150):
        eeg, control = scored(0.0, seed)
        p.append(eeg_bits(eeg, "noise", control, resamples=200, rng=np.random.default_rng(seed)).p)
    assert np.mean(np.array(p) <= 0.1) == pytest.approx(0.1, abs=0.07)


def test_eeg_bits_need_likelihoods_in_common():
    eeg, control = scored(1.0)
    without = [dataclasses.replace(r, nll=None) for r in control]
    other = [dataclasses.replace(r, reference="another text") for r in control]
    for rows in (without, other):
        assert eeg_bits(eeg, "noise", rows, resamples=10, rng=np.random.default_rng(0)) is None


def candidate_sets(gain, size=6, sentences=30, seed=0):
    """Own probabilities of the texts differ widely; only `gain` is about the recording."""
    rng = np.random.default_rng(seed)
    names = [f"s{i}" for i in range(size)]
    eeg, control = {}, {}
    for i in range(sentences):
        ids = tuple(f"{name}-{i // size}" for name in names)
        prior = 50 * rng.random(size)
        for subject in "AB":
            right = np.arange(size) == i % size
            nll = prior - gain * right + 0.1 * rng.normal(size=size)
            key = (f"{i}{subject}", 0)
            eeg[key] = CandidateScores(ids[i % size], ids, tuple(nll))
            control[key] = CandidateScores(ids[i % size], ids, tuple(prior))
    return eeg, "shuffled", control


def test_retrieval_ranks_by_evidence_and_not_by_the_texts_own_probability():
    found = retrieve(*candidate_sets(1.0), resamples=500, rng=np.random.default_rng(0))
    assert found.top1 == 1
    assert found.mean_rank == 1
    assert (found.chance_top1, found.chance_top5, found.chance_rank) == pytest.approx((1 / 6, 5 / 6, 3.5))
    assert found.p == pytest.approx(1 / 501)
    nothing = retrieve(*candidate_sets(0.0), resamples=500, rng=np.random.default_rng(0))
    assert nothing.top1 < 0.4
    assert nothing.p > 0.01


def test_a_favourite_that_many_read_is_no_find():
    """All samples rank one text first, the one with most readers: right in most samples, and nothing was retrieved."""
    ids = tuple(f"s{i}" for i in range(6))
    eeg, control = {}, {}
    for i, name in enumerate(ids):
        for reader in range(30 if i == 2 else 3):
            eeg[f"{name} {reader}", 0] = CandidateScores(name, ids, tuple(float(c != "s2") for c in ids))
            control[f"{name} {reader}", 0] = CandidateScores(name, ids, (1.0,) * 6)
    found = retrieve(eeg, "shuffled", control, resamples=200, rng=np.random.default_rng(0))
    assert found.top1 == pytest.approx(30 / 45)
    assert found.p == 1


def test_lists_that_nobody_shares_show_nothing():
    scores = {(n, 0): CandidateScores(n, (n, f"{n} other"), (1.0, 2.0)) for n in "abc"}
    flat = {key: CandidateScores(s.sentence_id, s.candidates, (1.0, 1.0)) for key, s in scores.items()}
    found = retrieve(scores, "shuffled", flat, resamples=50, rng=np.random.default_rng(0))
    assert (found.top1, found.p) == (1, 1)


def test_ties_rank_the_right_sentence_last():
    scores = {("a", 0): CandidateScores("x", ("x", "y", "z"), (1.0, 1.0, 1.0))}
    found = retrieve(scores, "noise", scores, resamples=10, rng=np.random.default_rng(0))
    assert found.mean_rank == 3
    assert found.p == 1


LINE = {"sample_id": "a", "sentence_id": "x", "eval_condition": "eeg", "seed": 0}
LINE |= {"candidates": ["x", "y"], "nll": [1.0, 2.0]}


def test_candidates_file_is_read_back(tmp_path):
    path = tmp_path / "candidates.jsonl"
    path.write_text("\n".join(json.dumps(LINE | {"eval_condition": c}) for c in ("eeg", "shuffled")))
    assert read_candidates(path)["shuffled"]["a", 0] == CandidateScores("x", ("x", "y"), (1.0, 2.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nll": [1.0]}, "line 1: expected one finite nll for each candidate"),
        ({"nll": [1.0, float("nan")]}, "line 1: expected one finite nll"),
        ({"sentence_id": "z"}, "line 1: expected at least two candidates, and the sentence_id"),
        ({"candidates": "xy"}, "line 1: candidates is missing or not a list"),
        ({}, "conditions are eeg; expected eeg and at least one control"),
        ({"eval_condition": "noise"}, "conditions are noise; expected eeg and at least one control"),
    ],
)
def test_candidates_refused(tmp_path, change, message):
    path = tmp_path / "candidates.jsonl"
    path.write_text(json.dumps(LINE | change) + "\n")
    with pytest.raises(UserError, match=message):
        read_candidates(path)


def test_candidates_that_differ_are_refused():
    eeg = {("a", 0): CandidateScores("x", ("x", "y"), (1.0, 2.0))}
    control = {("a", 0): CandidateScores("x", ("x", "z"), (1.0, 2.0))}
    with pytest.raises(UserError, match="same candidates"):
        retrieve(eeg, "noise", control, resamples=10, rng=np.random.default_rng(0))


def test_the_order_of_candidates_does_not_matter():
    """Lists of the same sentences in other orders may be exchanged."""
    eeg, name, control = candidate_sets(1.0)

    def turned(scores):
        ids = scores.candidates
        shift = ids.index(scores.sentence_id)
        return CandidateScores(scores.sentence_id, *(part[shift:] + part[:shift] for part in (ids, scores.nll)))

    sides = ({key: turned(scores) for key, scores in side.items()} for side in (eeg, control))
    found = retrieve(next(sides), name, next(sides), resamples=500, rng=np.random.default_rng(0))
    assert (found.top1, found.p) == (1, pytest.approx(1 / 501))


def test_chance_is_that_of_the_lists_of_all_samples():
    """Three samples of a sentence among two, and one of a sentence among four."""
    lists = {"x": ("x", "y"), "z": ("z", "u", "v", "w")}
    samples = {(f"{name} {i}", 0): name for name, n in (("x", 3), ("z", 1)) for i in range(n)}
    scores = {key: CandidateScores(name, lists[name], (1.0,) * len(lists[name])) for key, name in samples.items()}
    found = retrieve(scores, "noise", scores, resamples=10, rng=np.random.default_rng(0))
    assert found.chance_top1 == pytest.approx((3 / 2 + 1 / 4) / 4)
    assert found.chance_rank == pytest.approx((3 * 1.5 + 2.5) / 4)


def bits(eeg, control):
    return eeg_bits(eeg, "noise", control, resamples=200, rng=np.random.default_rng(0))


def test_eeg_bits_match_samples_by_seed_and_tokens():
    eeg = [row(0, seed=seed, nll=nll, n_tokens=10) for seed, nll in ((0, 10.0), (1, 20.0))]
    control = [dataclasses.replace(r, nll=r.nll + gain) for r, gain in zip(eeg, (2.0, 6.0), strict=True)]
    assert bits(eeg, control).bits_per_token == pytest.approx((2 + 6) / np.log(2) / 20)
    assert bits(eeg, [dataclasses.replace(r, n_tokens=11) for r in control]) is None


def test_bits_a_token_that_are_equal_in_all_sentences_have_no_spread():
    """Short and long sentences, each with a tenth of a bit a token."""
    eeg = [row(i, nll=100.0, n_tokens=n) for i, n in enumerate((5, 50, 500, 5000))]
    control = [dataclasses.replace(r, nll=r.nll + 0.1 * np.log(2) * r.n_tokens) for r in eeg]
    assert (found := bits(eeg, control)).interval == pytest.approx((0.1, 0.1))
    assert found.bits_per_token == pytest.approx(0.1)


def test_candidates_of_two_seeds_are_two_samples_and_one_alone_is_no_choice(tmp_path):
    path = tmp_path / "candidates.jsonl"
    rows = [LINE | {"eval_condition": c, "seed": seed} for c in ("eeg", "noise") for seed in (0, 1)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert {*read_candidates(path)["noise"]} == {("a", 0), ("a", 1)}
    path.write_text(json.dumps(LINE | {"candidates": ["x"], "nll": [1.0]}))
    with pytest.raises(UserError, match="at least two candidates"):
        read_candidates(path)
