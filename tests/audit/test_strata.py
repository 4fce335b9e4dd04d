"""Strata: a function of the set of sentences; known design first, no tie in length cut, clusters of unknown kinds."""

import random
from collections import Counter

import numpy as np
import pytest
from rows import changed, row

from eeg2text_jax.instrument.auditing.align import align
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.strata import (
    GROUP,
    LEAST,
    MOST,
    disjoint,
    divided,
    exchangeable,
    length_strata,
    reader_groups,
    text_clusters,
)

KINDS = {kind: [f"{kind}{i}" for i in range(12)] for kind in ("film", "born", "stew")}
COMMON = [f"w{i}" for i in range(150)]


def texts(kind, count, rng):
    """Sentences of one kind: two of five words are of its kind."""
    return [
        " ".join(rng.choice(KINDS[kind] if rng.random() < 0.4 else COMMON) for _ in range(rng.randrange(12, 20)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_sentences_of_one_kind_and_length_are_never_parted(seed):
    rng = np.random.default_rng(seed)
    kinds, lengths = rng.integers(3, size=90), rng.integers(4, 30, size=90)
    strata = length_strata(kinds, lengths)
    found = {}
    for stratum, kind, length in zip(strata.tolist(), kinds.tolist(), lengths.tolist(), strict=True):
        assert found.setdefault((kind, length), stratum) == stratum
    sizes = Counter(strata.tolist())
    assert min(sizes.values()) >= LEAST
    for stratum in sizes:  # one kind, and neighboring lengths
        kind, *more = set(kinds[strata == stratum].tolist())
        assert not more
        inside = lengths[strata == stratum]
        between = lengths[(kinds == kind) & (lengths >= inside.min()) & (lengths <= inside.max())]
        assert len(between) == len(inside)
    order = rng.permutation(90)
    again = length_strata(kinds[order], lengths[order])
    assert {frozenset(order[again == s].tolist()) for s in set(again.tolist())} == {
        frozenset(np.flatnonzero(strata == s).tolist()) for s in sizes
    }


def test_what_is_left_joins_the_last_stratum_and_a_small_kind_is_one():
    n, less = LEAST, LEAST - 1
    assert length_strata(["a"] * (n + less), [1] * n + [2] * less).tolist() == [0] * (n + less)
    assert length_strata(["a"] * less + ["b"] * n, [*range(less), *[2] * n]).tolist() == [0] * less + [1] * n
    assert length_strata(["a"] * (2 * n + 1), [1] * n + [2] * n + [3]).tolist() == [0] * n + [1] * (n + 1)


def test_a_sentence_without_another_in_its_stratum_is_not_exchangeable():
    assert exchangeable(length_strata(["a", "b", "b"], [1, 1, 9])).tolist() == [False, True, True]


def test_large_strata_are_divided_at_random_and_always_alike():
    keys = [f"sentence {i}" for i in range(3 * MOST + 5)]
    strata = np.repeat([0, 1], [5, 3 * MOST])
    found = divided(strata, keys)
    sizes = np.bincount(found)
    assert sizes.tolist() == [5, *[MOST] * 3]
    order = np.random.default_rng(0).permutation(len(keys))
    np.testing.assert_array_equal(divided(strata[order], [keys[i] for i in order]), found[order])
    place = np.array([np.flatnonzero(found == part).mean() for part in (1, 2, 3)])
    assert np.ptp(place) < 0.2 * len(keys), "parts are no stretches of the file"


def test_readers_are_groups_where_they_read_different_sentences():
    eeg = [row(i, subject="one" if i % 2 else "other", n_words=i) for i in range(24)]
    aligned = align({"eeg": eeg})
    assert any("2 groups of subjects read different sentences" in note for note in aligned.notes)
    subject = np.array(aligned.eeg.subjects)
    assert all(len(set(subject[aligned.strata == s])) == 1 for s in set(aligned.strata.tolist()))
    nameless = align({"eeg": [*changed(eeg[:8], subject=""), *eeg[8:]]})
    assert not nameless.readers.any(), "one row does not name its reader"


def test_a_missing_recording_makes_no_group():
    """One of the four who read the second half read the last sentence alone."""
    sentence = np.append(np.repeat(np.arange(15), 4), 15)
    subject = np.append(np.tile(np.arange(4), 15), 2) + 10 * (sentence > 7)
    assert reader_groups(sentence, subject).tolist() == [0] * 8 + [1] * 8
    few = reader_groups(np.arange(24), np.repeat([0, 1], [20, 4]))
    assert not few.any(), "a group of fewer sentences than a stratum has is none"


def test_a_first_sentence_with_few_readers_does_not_join_two_groups():
    """One of each group read it: beside either half of its readers, everybody would be alike."""
    sentence = np.append([0, 0], np.repeat(np.arange(1, 17), 4))
    subject = np.append([0, 10], np.tile(np.arange(4), 16) + 10 * np.repeat(np.arange(16) > 7, 4))
    assert reader_groups(sentence, subject).tolist() == [0] * 9 + [1] * 8


@pytest.mark.parametrize("kinds", [("film", "born"), ("film", "born", "stew")])
def test_clusters_part_hidden_kinds(kinds):
    rng = random.Random(1)
    made = [(text, kind) for kind in kinds for text in texts(kind, 60, rng)]
    rng.shuffle(made)
    clusters = text_clusters([text for text, _ in made], np.ones(len(made), int))
    assert np.bincount(clusters)[np.unique(clusters)].min() >= GROUP, "small clusters are joined"
    assert pure(clusters, np.array([kind for _, kind in made])) >= 0.9


def pure(clusters, kind):
    return sum(max(Counter(kind[clusters == c].tolist()).values()) for c in set(clusters.tolist())) / len(kind)


def test_clusters_part_numbers_of_rows_where_words_tell_nothing():
    rng = random.Random(2)
    same = [" ".join(rng.choices(COMMON, k=15)) for _ in range(80)]
    counts = np.repeat([4, 12], 40)
    assert pure(text_clusters(same, counts), counts) >= 0.9
    assert pure(text_clusters(same, np.ones(80, int)), counts) < 0.7


def test_texts_without_common_words_are_one_cluster():
    assert not text_clusters([f"a{i} b{i} c{i}" for i in range(40)], np.ones(40, int)).any()


def decoder_of_the_kind(task_known, seed, readers=(6, 3)):
    """Predictions that know the kind of the sentence alone; one kind has twice as many rows."""
    rng, eeg, noise = random.Random(seed), [], []
    for place, kind in enumerate(("film", "born")):
        for s, text in enumerate(texts(kind, 52, rng)):
            for reader in range(readers[place]):
                said = [rng.choice(KINDS[kind] if rng.random() < 0.15 else COMMON) for _ in range(14)]
                other = [rng.choice(KINDS["film"] + KINDS["born"] + COMMON) for _ in range(14)]
                about = {"sample_id": f"{kind}{s}-{reader}", "subject": f"S{reader}", "n_words": len(text.split())}
                about |= {"reference": text, "task": kind if task_known else ""}
                eeg.append(row(s, **about, prediction=" ".join(said)))
                noise.append(row(s, **about, prediction=" ".join(other)))
    return eeg, {"noise": noise}


@pytest.mark.parametrize("task_known", [True, False])
def test_what_the_kind_explains_is_not_content_of_the_sentence(task_known):
    """Whether it is stated or not: strata of length alone would claim it in every set."""
    found = [audit(*decoder_of_the_kind(task_known, seed)) for seed in range(6)]
    assert sum(result.deciding.contrast.above for result in found) <= 2
    assert all(("clusters of references" in " ".join(result.notes)) != task_known for result in found)
    alike = "equal task and similar length" if task_known else "similar words and length"
    assert {result.alike for result in found} == {alike}


def test_overlapping_windows_are_thinned_by_story():
    windows = [row(i, sentence_id=f"fold:{story}:{k}", n_words=3) for i, (story, k) in enumerate([("a", 0), ("b", 1)])]
    assert disjoint([*windows, row(2, sentence_id="fold:a:2", n_words=3)]) == windows
