"""Batches of pairs: every pair once an epoch, in a width that holds it, with its own answer."""

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge.pairs import PairBatches, slices

LENGTHS = [3, 12, 7, 16, 5, 9, 4, 30, 8, 13, 6, 11, 2, 10, 31]
IDS = [np.arange(1, n + 1) + 100 * row for row, n in enumerate(LENGTHS)]
YES = np.arange(len(IDS)) % 3 == 0


def epochs(seed=0, count=2):
    """Of each epoch, the pairs (by their first token) in their order."""
    batches = PairBatches(IDS, YES, [32, 8, 16], 4, 0, seed)
    order, found, step = [], [], 0
    while len(found) < count:
        batch = batches(step)
        for ids, length, yes, weight in zip(*(batch[n] for n in ("ids", "length", "yes", "weight")), strict=True):
            if weight:
                row = int(ids[0] - 1) // 100
                np.testing.assert_array_equal(ids[:length], IDS[row])
                assert not ids[length:].any()
                assert yes == YES[row]
                order.append(row)
        step += 1
        assert len(set(order)) == len(order), "a second time before all were there"
        if len(order) == len(IDS):
            found, order = [*found, order], []
    return found


def test_every_pair_is_there_once_an_epoch_in_another_order():
    first, second = epochs()
    assert sorted(first) == sorted(second) == list(range(len(IDS)))
    assert first != second
    assert epochs() == [first, second]
    other = epochs(seed=1)[0]
    assert {tuple(first[:4]), tuple(second[:4])} != {tuple(other[:4])}


def test_company_changes_between_epochs():
    """Pairs of the narrowest width fill two batches or so; which ones stand together is drawn anew."""
    batches = PairBatches(IDS, YES, [8, 16, 32], 4, 0, 0)
    together = {
        frozenset(batch["ids"][batch["weight"] > 0, 0].tolist())
        for batch in map(batches, range(20))
        if batch["ids"].shape[1] == 8
    }
    assert len(together) > 2


def test_a_pair_that_fits_no_width_is_refused():
    for widths in ([8, 16], [30, 8]):
        with pytest.raises(UserError, match="a pair has 31; add a width of at least 31"):
            PairBatches(IDS, YES, widths, 4, 0, 0)


def test_a_pair_may_fill_the_widest_width():
    batch = PairBatches(IDS[-2:], YES[-2:], [31, 8], 2, 0, 0)(0)
    assert sorted(batch["length"]) == [10, 31]
    np.testing.assert_array_equal(batch["ids"][batch["length"].argmax()], IDS[-1])


def test_slices_hold_every_pair_once_in_the_narrowest_width():
    found = list(slices(LENGTHS, [16, 8, 32], lambda width: 32 // width))
    assert sorted(np.concatenate([rows for rows, _ in found]).tolist()) == list(range(len(LENGTHS)))
    for rows, width in found:
        assert len(rows) <= 32 // width
        assert all(width / 2 < LENGTHS[row] <= width or LENGTHS[row] <= width == 8 for row in rows)
