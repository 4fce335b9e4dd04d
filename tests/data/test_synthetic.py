"""Synthetic recordings: reproducible, distinct sentences, and a dial that moves information alone."""

import dataclasses
import itertools

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data import write
from eeg2text_jax.data.planted import (
    SUCCESSOR_PROBABILITIES,
    SyntheticSpec,
    make_vocabulary,
    synthetic_samples,
    synthetic_waves,
)

SPEC = SyntheticSpec(
    signal=1.0, sentences=300, subjects=2, tasks=2, features=24, vocabulary=60, groups=1, order="random", drift=0.0,
    seed=3,
)  # fmt: skip


def generate(**changes):
    return list(synthetic_samples(dataclasses.replace(SPEC, **changes)))


def group_labels(spec):
    """Return the group of each word, and so of each sentence by any of its words."""
    vocabulary = make_vocabulary(spec.vocabulary, np.random.default_rng([spec.seed, 0]))
    width = spec.vocabulary // spec.groups
    return {word: f"group {min(i // width, spec.groups - 1)}" for i, word in enumerate(vocabulary)}


def word_rows(samples):
    """Words and features of every occurrence."""
    words = [word for sample in samples for word in sample.sentence.split()]
    return np.array(words), np.concatenate([sample.features for sample in samples])


def between_word_share(samples):
    """Share of the features' variance that lies between words (eta squared), for one subject."""
    words, features = word_rows([s for s in samples if s.subject == "S01"])
    total = features.var(axis=0).sum()
    _, group = np.unique(words, return_inverse=True)
    sums = np.zeros((group.max() + 1, features.shape[1]))
    np.add.at(sums, group, features)
    means = sums / np.bincount(group)[:, None]
    return (means[group]).var(axis=0).sum() / total


def test_same_seed_same_samples_other_seed_others():
    first, again, other = generate(), generate(), generate(seed=4)
    for one, two in zip(first, again, strict=True):
        assert one.sentence == two.sentence
        np.testing.assert_array_equal(one.features, two.features)
    assert [s.sentence for s in first] != [s.sentence for s in other]


def test_sentences_are_distinct_and_every_subject_reads_each():
    samples = generate()
    for subject in ("S01", "S02"):
        read = [s.sentence for s in samples if s.subject == subject]
        assert len(read) == len(set(read)) == SPEC.sentences


def test_tasks_take_the_sentences_in_turn_and_number_their_own_from_0():
    one = [s.sentence for s in generate(sentences=20, subjects=1, tasks=1)]
    found = {(s.subject, s.task, s.sentence_index): s.sentence for s in generate(sentences=20, tasks=3)}
    for subject in ("S01", "S02"):
        for task in (1, 2, 3):
            own = one[task - 1 :: 3]
            assert [found.pop((subject, f"T{task}", index)) for index in range(len(own))] == own
    assert not found


def test_successors_follow_the_stated_probabilities():
    follows = {}
    for sample in generate(sentences=3000, vocabulary=30, subjects=1):
        words = sample.sentence.split()
        for a, b in itertools.pairwise(words):
            follows.setdefault(a, {}).setdefault(b, 0)
            follows[a][b] += 1
    assert all(len(counts) <= 4 for counts in follows.values())
    top = np.mean([max(counts.values()) / sum(counts.values()) for counts in follows.values()])
    assert top == pytest.approx(SUCCESSOR_PROBABILITIES[0], abs=0.02)


def test_signal_dial_moves_information_and_nothing_else():
    planted, null = generate(signal=1.0, sentences=2000), generate(signal=0.0, sentences=2000)
    assert [s.sentence for s in planted] == [s.sentence for s in null]
    assert between_word_share(planted) > 0.85
    assert between_word_share(null) < 0.05
    some = generate(signal=0.5, sentences=2000)
    half = between_word_share(some)
    assert 0.1 < half < 0.5
    assert half == pytest.approx(0.5**2 * between_word_share(planted), rel=0.1)
    spread = [word_rows(s)[1].std() for s in (planted, null)]
    assert spread[0] == pytest.approx(spread[1], rel=0.1)
    own = [word_rows([s for s in found if s.subject == "S01"])[1].var(0).sum() for found in (null, some)]
    assert own[1] == pytest.approx(own[0], rel=0.05), "a part of the signal leaves the variance as it is"


@pytest.mark.parametrize("field", ["sentences=10000000", "features=1000000"])
def test_more_than_the_memory_is_one_sentence(refused, tmp_path, field):
    """No machine has the memory for as many sentences as the range allows, or hundreds with a million features."""
    out = tmp_path / "x.h5"
    said = refused(["prepare", "synthetic", f"--config.data.synthetic.{field}", f"--out={out}"])
    assert "GB of memory to make; expected at most" in said
    assert "features a word" in said
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("field", ["sentence", "subject", "recording"])
def test_a_nul_character_in_a_text_is_one_sentence(tmp_path, field):
    odd = dataclasses.replace(next(synthetic_samples(SPEC)), **{field: "a\0b"})
    with pytest.raises(UserError, match=f"{field} has a NUL character"):
        write(tmp_path / "x.h5", [odd])
    assert not [*tmp_path.iterdir()]


def test_groups_have_words_of_their_own_and_labels():
    spec = dataclasses.replace(SPEC, groups=3)
    label = group_labels(spec)
    for sample in synthetic_samples(spec):
        assert len({label[word] for word in sample.sentence.split()}) == 1


@pytest.mark.parametrize("order", ["blocks", "random", "same_for_all"])
def test_the_order_of_a_recording(order):
    samples = generate(groups=3, order=order, sentences=60)
    label = group_labels(dataclasses.replace(SPEC, groups=3))
    runs = {}
    for sample in samples:
        runs.setdefault(sample.recording, []).append(sample)
    shown = {name: sorted(found, key=lambda sample: sample.onset) for name, found in runs.items()}
    assert sorted(shown) == ["S01/T1", "S01/T2", "S02/T1", "S02/T2"]
    for found in shown.values():
        ends = np.array([sample.onset + sample.duration for sample in found])
        assert (np.array([sample.onset for sample in found])[1:] > ends[:-1]).all()
    kinds = [label[sample.sentence.split()[0]] for sample in shown["S01/T1"]]
    changes = sum(a != b for a, b in itertools.pairwise(kinds))
    assert (changes == 2) == (order == "blocks")
    texts = [[sample.sentence for sample in shown[name]] for name in ("S01/T1", "S02/T1")]
    assert (texts[0] == texts[1]) == (order == "same_for_all")


def test_drift_is_slow_and_leaves_the_rest_as_it_was():
    still, moved = (generate(drift=drift, sentences=120, signal=0.0) for drift in (0.0, 2.0))
    assert [s.sentence for s in still] == [s.sentence for s in moved]
    slow = [b.features.mean(0) - a.features.mean(0) for a, b in zip(still, moved, strict=True)]
    rows = [k for k, s in enumerate(still) if s.recording == "S01/T1"]
    rows.sort(key=lambda k: still[k].onset)
    found = np.array([slow[k] for k in rows])
    beside = np.mean((found[1:] - found[:-1]) ** 2)
    apart = np.mean((found - np.random.default_rng(0).permutation(found)) ** 2)
    assert beside < 0.3 * apart


def test_each_recording_has_a_drift_of_its_own():
    """Of another subject, task or seed, in one order of the same sentences."""
    drawn = {}
    for seed in (3, 4):
        options = {"sentences": 24, "seed": seed, "signal": 0.0, "order": "same_for_all"}
        for still, moved in zip(*(generate(drift=drift, **options) for drift in (0.0, 1.0)), strict=True):
            drawn.setdefault((seed, still.recording), []).append(moved.features[0] - still.features[0])
    assert len(drawn) == 8
    for one, other in itertools.combinations(drawn.values(), 2):
        assert not np.allclose(one, other, atol=0.01)


@pytest.mark.parametrize(("rate", "seconds", "number"), [(64.0, 0.15, 4), (100.0, 0.4, 16)])
def test_waves_have_the_features_of_a_word_as_amplitudes(rate, seconds, number):
    spec, length = dataclasses.replace(SPEC, sentences=20, features=3, subjects=1), round(rate * seconds)
    source = synthetic_waves(spec, rate, seconds)
    plain = list(synthetic_samples(dataclasses.replace(spec, features=3 * number)))
    for sample, own in zip(source.samples, plain, strict=True):
        words = sample.features.reshape(-1, length, 3)
        amplitudes = np.fft.rfft(words, axis=1).real[:, 1 : number + 1] * 2 / length
        noise = amplitudes - own.features.reshape(-1, number, 3)
        assert noise.std() == pytest.approx(0.3 * (2 / length) ** 0.5, rel=0.25)
    places = {name: place for name, *place in source.provenance["electrodes"]}
    assert list(places) == ["Fp1", "Fp2", "F7"]
    assert np.linalg.norm(places["F7"]) == pytest.approx(0.09, abs=1e-3)
