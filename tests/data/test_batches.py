"""Batches: fixed shapes, every sample once an epoch, the same order whenever and wherever one begins."""

import collections
import dataclasses
import itertools

import jax
import numpy as np
import pytest

from eeg2text_jax.base.devices.mesh import make_mesh, own_rows
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.batches import (
    EpochPlan,
    Samples,
    batch_shapes,
    each_evaluation_batch,
    feature_scale,
    make_batch,
    stack_seeds,
    training_batches,
)
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.source import Sample
from eeg2text_jax.training.metrics_log import BatchWork

BUCKETS = ((4, 6), (8, 12))
SIZE = 5
TRAIN = np.flatnonzero(np.arange(37) % 5 != 2)


@pytest.fixture
def samples(tmp_path):
    rng = np.random.default_rng(0)
    with DataWriter(tmp_path / "data.h5", 3, "x") as writer:
        for i in range(37):
            words = int(rng.integers(1, 11))
            writer.add(Sample(rng.normal(2, 3, (words, 3)), f"sentence {i}", "A", "NR", i))
    data = read_datafile(tmp_path / "data.h5")
    targets = [np.arange(1, 2 + int(rng.integers(1, 11)), dtype=np.int32) for _ in range(len(data))]
    mean, scale, *_ = feature_scale(data, TRAIN, standardize=True)
    return Samples(data, targets, mean, scale, max_words=8, pad_token=0)


def test_features_are_standardized_on_the_train_part(samples):
    words = np.concatenate([samples.data.words(i) for i in TRAIN])
    for i in range(37):
        expected = ((samples.data.words(i) - words.mean(axis=0)) / words.std(axis=0))[:8]
        np.testing.assert_allclose(samples.features(i), expected, atol=1e-5)
    assert samples.n_words.tolist() == np.minimum(samples.data.n_words, 8).tolist()
    assert samples.data.n_words.max() > 8, "a long recording loses its last words"


def test_features_stay_as_they_are_where_they_are_not_standardized(samples):
    mean, scale, *_ = feature_scale(samples.data, np.arange(30), standardize=False)
    plain = dataclasses.replace(samples, mean=mean, scale=scale)
    np.testing.assert_array_equal(plain.features(4), samples.data.words(4))


def test_an_epoch_has_every_sample_once_in_the_smallest_bucket_that_holds_it():
    """But for those that fill no batch there; of them, only the last batch is not full."""
    rng, n = np.random.default_rng(0), 83
    words, tokens = rng.integers(1, 9, n), rng.integers(1, 13, n)
    plan, small = EpochPlan(words, tokens, BUCKETS, SIZE, seed=1), (words <= 4) & (tokens <= 6)
    assert (words[small].max(), tokens[small].max()) == (4, 6)
    full, left = divmod(int(small.sum()), SIZE)
    rest, last = divmod(n - full * SIZE, SIZE)
    assert left * last, "both are put to the test"
    for epoch in range(3):
        batches = plan.epoch(epoch)
        assert len(batches) == plan.batches_per_epoch
        assert sorted(np.concatenate([rows for rows, _ in batches])) == list(range(n))
        sizes = collections.Counter((bucket, len(rows)) for rows, bucket in batches)
        assert sizes == {((4, 6), SIZE): full, ((8, 12), SIZE): rest, ((8, 12), last): 1}
        assert sum(np.count_nonzero(small[rows]) for rows, bucket in batches if bucket == (8, 12)) == left
    orders = [np.concatenate([rows for rows, _ in plan.epoch(e)]).tolist() for e in (0, 1)]
    assert orders[0] != orders[1]


def test_the_stream_goes_on_from_a_saved_state(samples):
    def stream():
        return iter(training_batches(samples, np.arange(30), BUCKETS, SIZE, seed=2, steps=25))

    whole = [batch["sample_id"].tolist() for batch in stream()]
    assert len(whole) == 25
    assert all(np.shape(ids) == (1, SIZE) for ids in whole), "one seed"
    first = stream()
    for _ in range(9):
        next(first)
    second = stream()
    second.set_state(first.get_state())
    assert [batch["sample_id"].tolist() for batch in second] == whole[9:]


def test_evaluation_has_every_row_once_in_the_order_of_the_rows_and_the_shortest_first(samples):
    rows, buckets, size = np.arange(35, 4, -1), ((4, 12), (8, 12)), 2
    batches = list(each_evaluation_batch(samples, rows, buckets, size))
    seen = [batch["sample_id"][batch["weight"] > 0].tolist() for batch in batches]
    assert sorted(itertools.chain(*seen)) == sorted(rows.tolist())
    assert all(ids == sorted(ids, reverse=True) for ids in seen)
    widths = [batch["mask"].shape[1] for batch in batches]
    assert widths == sorted(widths)
    assert set(widths) == {4, 8}
    own = np.array([1])
    for whole, part in zip(batches, each_evaluation_batch(samples, rows, buckets, size, own), strict=True):
        for name, leaf in whole.items():
            np.testing.assert_array_equal(part[name], leaf[own], strict=True)


def test_a_sample_that_fits_nowhere_is_said(samples):
    with pytest.raises(UserError, match=r"no bucket for a sample of \d words"):
        training_batches(samples, np.arange(30), ((4, 6),), SIZE, seed=0, steps=1)


def test_seeds_have_orders_of_their_own_in_batches_of_the_same_shapes(samples):
    """Whatever other seeds there are: a grid trained in waves is the same grid."""

    def stream(*seeds):
        return list(training_batches(samples, np.arange(30), BUCKETS, SIZE, seed=2, steps=14, grid_seeds=seeds))

    alone = {seed: stream(seed) for seed in (0, 1, 7)}
    for step, batch in enumerate(stream(7, 0, 1)):
        for place, seed in enumerate((7, 0, 1)):
            for name, leaf in batch.items():
                np.testing.assert_array_equal(leaf[place], alone[seed][step][name][0])
    ids = [[batch["sample_id"][0][batch["weight"][0] > 0].tolist() for batch in alone[seed]] for seed in alone]
    assert ids[0] != ids[1] != ids[2] != ids[0]
    epoch = len(EpochPlan(samples.n_words[:30], samples.n_tokens(np.arange(30)), BUCKETS, SIZE, 2).epoch(0))
    for own in ids:
        assert sorted(itertools.chain(*own[:epoch])) == list(range(30)), "every sample once an epoch"


@pytest.mark.parametrize("buckets", [((8, 6), (4, 12)), ((8, 12), (4, 6)), ((4, 12), (8, 6)), ((8, 12), (8, 12))])
def test_buckets_that_are_not_nested_are_refused(samples, buckets):
    """What is left over of the first would be put into the second, which does not hold it."""
    message = r"batch.buckets is .* expected pairs \(words, tokens\), each larger than the pair"
    with pytest.raises(UserError, match=message):
        training_batches(samples, np.arange(30), buckets, SIZE, seed=0, steps=1)


def scaled(samples, unit):
    """The same recordings in another unit, with a constant and a nearly constant feature beside them."""
    features = samples.data.features
    flat = np.full((len(features), 2), 3.7, np.float32)
    flat[:, 1] *= 1 + 1e-7 * np.random.default_rng(0).normal(size=len(features)).astype(np.float32)
    data = dataclasses.replace(samples.data, features=(np.hstack([features, flat]) * np.float32(unit)))
    found = feature_scale(data, np.arange(30), standardize=True)
    return found, dataclasses.replace(samples, data=data, mean=found.mean, scale=found.scale)


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e-6, 1e6, 1e12, 2.0**-40, 2.0**40])
def test_the_unit_of_the_recordings_changes_nothing(samples, unit):
    """Volts or microvolts: features that vary are fed alike, to the bit where the unit is a power of two."""
    (_, ours), (found, theirs) = scaled(samples, 1.0), scaled(samples, unit)
    for i in range(37):
        tolerance = 0 if np.log2(unit).is_integer() else 1e-5
        np.testing.assert_allclose(theirs.features(i), ours.features(i), rtol=tolerance, atol=tolerance)
    assert np.abs(theirs.features(0)[:, :3]).max() > 0.1
    assert (found.constant.tolist(), found.nearly.tolist()) == ([3], [4])


def test_features_that_do_not_vary_are_counted_and_named(samples):
    found, flat = scaled(samples, 1.0)
    said = "1 constant (number 3) and 1 nearly constant (number 4)"
    assert found.note() == f"of 5 features, {said} over the train part: they are fed as 0."
    assert all((flat.features(i)[:, 3:] == 0).all() for i in range(37)), "of dev and test as well"
    features = flat.data.features.copy()
    features[np.repeat(np.arange(37) == 30, flat.data.n_words), 3] = 9.0  # a test sample alone has another value
    varied = dataclasses.replace(flat, data=dataclasses.replace(flat.data, features=features))
    assert (varied.features(30)[:, 3] == 0).all()
    assert feature_scale(samples.data, np.arange(30), standardize=True).note() == ""


def test_each_field_of_a_batch_is_of_its_own_table(samples):
    """A recording that is lent is cut, or repeated, to the length of the sample that it is lent to."""
    n, rng = len(samples.data), np.random.default_rng(0)
    lent, near, labels = (np.roll(np.arange(n), shift) for shift in (1, 2, 3))
    clock, subject = rng.normal(size=(n, 3)).astype(np.float32), rng.permutation(n)
    prompts = tuple(rng.integers(-1, 50, (n, width), np.int32) for width in (2, 4))
    targets = [np.full(1 + i % 5, i + 1, np.int32) for i in range(n)]
    tables = {"donors": lent, "neighbors": near, "label_rows": labels, "clock": clock, "subject": subject}
    given, rows = dataclasses.replace(samples, targets=targets, prompts=prompts, **tables), list(range(12))
    batch, words = make_batch(given, rows, (8, 12), 12), samples.n_words
    assert len(set(np.sign(words[lent[rows]] - words[rows]).tolist())) == 3
    for i in rows:
        for field, table in (("donor", lent), ("neighbor", near)):
            looped = np.concatenate([samples.features(table[i])] * 8)
            np.testing.assert_array_equal(batch[field][i, : words[i]], looped[: words[i]])
            assert not batch[field][i, words[i] :].any()
        for field, own in (("labels", targets[i]), ("shuffled_labels", targets[labels[i]])):
            assert batch[field][i].tolist() == [*own, *[0] * (12 - len(own))]
        assert batch["clock"][i].tolist() == clock[i].tolist()
        assert batch["subject"][i] == subject[i]
        assert [batch[name][i].tolist() for name in ("before", "after")] == [ids[i].tolist() for ids in prompts]
    made = {name: (leaf.shape, leaf.dtype) for name, leaf in stack_seeds([batch] * 5).items()}
    stated = {name: (one.shape, one.dtype) for name, one in batch_shapes((8, 12), 12, 3, *batch, seeds=5).items()}
    assert stated == {name: made[name] for name in made if name not in ("before", "after")}
    assert batch_shapes((8, 12), 12, (2, 3, 4), "clock")["clock"].shape == (12, 24)
    assert given.n_tokens(np.array(rows)).tolist() == [max(len(targets[i]), len(targets[labels[i]])) for i in rows]


def test_a_batch_keeps_the_order_of_its_rows_and_masks_samples_of_one_word(samples):
    words, readers = samples.n_words, np.arange(37)[::-1].copy()
    rows = [*np.flatnonzero(words == 1)[::-1].tolist(), 30, 2, 17, int(samples.data.n_words.argmax())]
    assert words[rows[0]] == words[rows[1]] == 1
    batch = make_batch(dataclasses.replace(samples, subject=readers), rows, (11, 12), 20)
    filled = [*rows, *[rows[0]] * (20 - len(rows))]
    assert batch["mask"].sum(axis=1).tolist() == words[filled].tolist()
    assert batch["subject"].tolist() == readers[filled].tolist()
    assert batch["sample_id"].tolist() == filled
    assert batch["weight"].tolist() == [1.0] * len(rows) + [0.0] * (20 - len(rows))


def test_epochs_and_seeds_shuffle_which_samples_share_a_batch(samples):
    words, tokens = samples.n_words, samples.n_tokens(np.arange(37))

    def groups(seed, number):
        plan = EpochPlan(words, tokens, BUCKETS, SIZE, seed)
        return {frozenset(rows.tolist()) for rows, _ in plan.epoch(number)}

    first = groups(1, 0)
    for other in (groups(1, 1), groups(2, 0)):
        assert len(first & other) < len(first) / 2


def test_training_batches_have_the_samples_of_their_rows_alone(samples):
    rows = np.arange(36, 5, -2)
    seen = [set(batch["sample_id"].ravel().tolist()) for batch in
            training_batches(samples, rows, BUCKETS, SIZE, seed=2, steps=8)]  # fmt: skip
    assert set.union(*seen) == set(rows.tolist())


def test_each_of_eight_hosts_builds_an_eighth_of_the_rows(samples, monkeypatch):
    """Simulated hosts of one device each: what they build, put together, is the whole batch to the last bit."""
    mesh, size, read = make_mesh(1, 8), 16, collections.Counter()
    of_samples, host = Samples.features, "all"

    def counted(self, i):
        read[host] += 1
        return of_samples(self, i)

    monkeypatch.setattr(Samples, "features", counted)
    donors, prompts, every = np.arange(37)[::-1].copy(), (np.ones((37, 2), np.int32),) * 2, np.arange(37)[::-1]
    distinct = dataclasses.replace(samples, donors=donors, prompts=prompts, pad_token=3)

    def batches(own):
        return list(training_batches(distinct, every, BUCKETS, size, 2, 6, grid_seeds=(0, 1), host_rows=own))

    whole, parts = batches(None), []
    for number, device in enumerate(mesh.devices.flat):
        host = number
        own = own_rows(mesh, size, [device])
        assert own.tolist() == [2 * number, 2 * number + 1]
        parts.append(batches(own))
    assert own_rows(mesh, size) is None  # one host has all rows
    for step, batch in enumerate(whole):
        assert {*parts[0][step]} == {*batch, "whole"}
        for name, leaf in batch.items():
            together = np.concatenate([part[step][name] for part in parts], axis=1)
            np.testing.assert_array_equal(together, leaf, strict=True)
        works = [BatchWork.of(part[step], distinct.pad_token) for part in parts]
        assert set(works) == {BatchWork.of(batch, distinct.pad_token)}  # each host knows the whole batch's size
    built = sum(leaf.shape[0] * leaf.shape[1] for part in parts for leaf in (batch["features"] for batch in part))
    assert built == 6 * 2 * size
    each = [read[number] for number in range(8)]
    assert max(each) <= 6 * 2 * 2 * 2  # steps, seeds, rows, and each row's donor
    assert jax.process_count() == 1
