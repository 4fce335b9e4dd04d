"""Tables of donors, exchanged texts and mean words."""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import normalize
from eeg2text_jax.training.conditions._donors import DonorTable, donor_table, label_rows, train_means


def make_data(sentences: list[str], subjects: int = 3, seed: int = 0) -> DataFile:
    """Every subject reads every sentence; who skips words has fewer of them. Tasks by turns, one text in both."""
    rng = np.random.default_rng(seed)
    rows = [(f"S{s}", f"T{i % 2}", i, text) for s in range(subjects) for i, text in enumerate(sentences)]
    n_words = np.array([max(1, len(text.split()) - rng.integers(0, 3)) for *_, text in rows])
    features = rng.normal(size=(n_words.sum(), 4)).astype(np.float32)
    subject, task, index, text = (np.array(column, object) for column in zip(*rows, strict=True))
    offsets = np.concatenate([[0], np.cumsum(n_words)])
    return DataFile(Path("made.h5"), features, offsets, text, subject, task, index.astype(np.int64), "", {})


@pytest.fixture(scope="module")
def data() -> DataFile:
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{rng.integers(50)}" for _ in range(rng.integers(2, 12))) for _ in range(150)]
    return make_data([*texts, "twice read text here", "Twice read text here!"])


@pytest.fixture(scope="module")
def parts(data) -> list[np.ndarray]:
    return list(make_split(data, "unique_text", (0.8, 0.1, 0.1), 0).parts.values())


@pytest.fixture(scope="module")
def table(data, parts) -> DonorTable:
    return donor_table(data, parts, seed=0)


def test_donors_keep_subject_task_length_and_part(data, parts, table):
    for part in parts:
        assert set(table.donor[part]) <= set(part)
    exact = table.level == 0
    assert exact.mean() > 0.8
    for column in (data.subject, data.task, data.n_words):
        assert (column[table.donor[exact]] == column[exact]).all()
    nearest = table.level == 1
    assert nearest.any()
    assert (data.subject[table.donor[nearest]] == data.subject[nearest]).all()
    assert (data.task[table.donor[nearest]] == data.task[nearest]).all()


def test_how_near_donors_are_is_said_of_a_part(data, parts, table):
    """Shares of the levels, of samples whose donor is cut or looped, and by how many words, of that part alone."""
    rows = parts[2]
    exact = np.mean(table.level[rows] == 0)
    gap = np.abs(data.n_words[table.donor[rows]] - data.n_words[rows])
    assert 0 < exact < 1
    assert f"{exact:.1%} same subject, task and length" in table.summary(rows)
    expected = f"; {np.mean(gap > 0):.1%} have another length, by {gap[gap > 0].mean():.1f} words on average"
    assert table.summary(rows).endswith(expected)
    assert table.summary(rows[gap == 0]).count("length") == 1
    assert table.summary(rows) != table.summary(parts[0])


def test_donors_are_nearly_a_permutation(parts, table):
    """The control has the recordings that the experiment has, none of them often."""
    train = parts[0]
    assert len(set(table.donor[train])) > 0.9 * len(train)
    assert max(Counter(table.donor[train]).values()) <= 3


def test_nearest_donor_is_the_nearest_of_another_text(data, parts, table):
    texts = np.array([normalize(text) for text in data.sentence])
    assert (texts[table.donor] != texts).all()
    for part in parts:
        for i in part[table.level[part] == 1]:
            alike = (data.subject[part] == data.subject[i]) & (data.task[part] == data.task[i])
            allowed = part[alike & (texts[part] != texts[i])]
            gap = np.abs(data.n_words[allowed] - data.n_words[i]).min()
            assert abs(data.n_words[table.donor[i]] - data.n_words[i]) == gap


@pytest.mark.parametrize("changed", [1, 2])
def test_what_a_part_holds_moves_no_donor_of_another(data, parts, changed):
    kept = [part for k, part in enumerate(parts) if k != changed]
    sentence = data.sentence.copy()
    sentence[parts[changed]] = [f"rewritten text {i % 7}" for i in range(len(parts[changed]))]
    before, after = (donor_table(one, parts, seed=0) for one in (data, dataclasses.replace(data, sentence=sentence)))
    for part in kept:
        np.testing.assert_array_equal(before.donor[part], after.donor[part])
    assert (before.donor[parts[changed]] != after.donor[parts[changed]]).any()


def test_donors_fall_back_step_by_step():
    data = make_data(["one two three", "four five six seven eight nine"], subjects=2)
    alone_in_task = donor_table(data, [np.arange(4)], seed=0)
    np.testing.assert_array_equal(alone_in_task.level, 2)
    np.testing.assert_array_equal(alone_in_task.donor, [1, 0, 3, 2])
    one_each = donor_table(data, [np.array([0, 3])], seed=0)
    np.testing.assert_array_equal(one_each.level, [3, -1, -1, 3])
    np.testing.assert_array_equal(one_each.donor, [3, -1, -1, 0])
    with pytest.raises(UserError, match="single text"):
        donor_table(data, [np.array([0, 2])], seed=0)


def test_tables_depend_on_the_seed_alone(data, parts):
    np.testing.assert_array_equal(donor_table(data, parts, 3).donor, donor_table(data, parts, 3).donor)
    assert (donor_table(data, parts, 3).donor != donor_table(data, parts, 4).donor).mean() > 0.5
    np.testing.assert_array_equal(label_rows(data, parts[0], 3), label_rows(data, parts[0], 3))
    assert (label_rows(data, parts[0], 3) != label_rows(data, parts[0], 4)).mean() > 0.3


def test_label_shuffle_exchanges_texts_within_train(data, parts):
    train = parts[0]
    rows = label_rows(data, train, seed=0)
    outside = np.setdiff1d(np.arange(len(data)), train)
    np.testing.assert_array_equal(rows[outside], outside)
    assert set(rows[train]) <= set(train)
    texts = np.array([normalize(text) for text in data.sentence])
    new = texts[rows]
    assert (new[train] != texts[train]).all()
    pairs = set(zip(texts[train], new[train], strict=True))
    assert len(pairs) == len(set(texts[train])) == len({b for _, b in pairs})  # one to one
    words = np.array([len(text.split()) for text in data.sentence])
    assert np.mean(words[rows[train]] == words[train]) > 0.9


def test_label_shuffle_leaves_nobody_alone():
    lengths = [1, 2, 2, 3, 5, 6, 6, 6, 9]
    data = make_data([" ".join(f"{i}x{k}" for k in range(n)) for i, n in enumerate(lengths)], subjects=1)
    for seed in range(20):
        rows = label_rows(data, np.arange(len(data)), seed)
        assert sorted(rows) == list(range(len(data)))
        assert (rows != np.arange(len(data))).all()


def test_means_come_from_train_alone(data, parts):
    train = parts[0][data.subject[parts[0]] != "S2"]
    means, subject = train_means(data, train)
    assert means.shape == (4, 4)
    assert (np.array(["S0", "S1", "S2"])[subject] == data.subject).all()
    for row, name in enumerate(["S0", "S1"]):
        words = np.concatenate([data.words(i) for i in train if data.subject[i] == name])
        np.testing.assert_allclose(means[row], words.mean(0), atol=1e-6)
    overall = np.concatenate([data.words(i) for i in train]).mean(0)
    np.testing.assert_allclose(means[2], overall, atol=1e-6)  # a subject that only the test part has
    np.testing.assert_allclose(means[3], overall, atol=1e-6)
