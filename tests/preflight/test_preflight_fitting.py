"""The search for the largest batch, on memory that is known."""

import pytest

from eeg2text_jax.commands.preflight.estimate import largest_batch, promise, second_size

LIMIT = 16_000


def search(memory, start: int, step: int = 4, compilations: int = 3):
    """As the command does it: two sizes, then the search; also the sizes that it compiled."""
    compiled = []

    def measure(size: int) -> int:
        compiled.append(size)
        return memory(size)

    other = second_size(start, memory(start), step, LIMIT)
    found = largest_batch(measure, {start: memory(start), other: memory(other)}, step, LIMIT, compilations)
    return found, compiled


@pytest.mark.parametrize(
    ("start", "fixed", "slope"), [(32, 4_000, 100), (32, 1_000, 470), (8, 5_000, 31), (512, 900, 77)]
)
def test_affine_memory_takes_one_compilation_more(start, fixed, slope):
    found, compiled = search(lambda size: fixed + slope * size, start)
    best = (LIMIT - fixed) // slope // 4 * 4
    assert (found.size, found.confirmed) == (best, True)
    assert compiled in ([best], [])  # none where the second size is the answer
    assert found.compiled_bytes[best] <= LIMIT


def test_a_third_compilation_that_does_not_fit_draws_the_line_anew():
    """Memory jumps beyond 100, where the line through 32 and 64 knows nothing of it."""
    found, compiled = search(lambda size: 4_000 + 90 * size + (4_000 if size > 100 else 0), 32)
    assert compiled[0] == 132
    assert found.compiled_bytes[132] > LIMIT
    assert found.size <= 100
    assert found.compiled_bytes[found.size] <= LIMIT


def test_what_no_compilation_confirms_is_not_called_confirmed():
    found, compiled = search(lambda size: 4_000 + 90 * size + (4_000 if size > 100 else 0), 32, compilations=1)
    assert compiled == [132]
    assert (found.size, found.confirmed) == (64, False)
    assert 64 < found.estimate < 132


def test_far_more_than_promised_is_looked_for():
    """A compiler that saves memory when it runs short: growth falls to a third."""
    found, compiled = search(lambda size: min(4_000 + 120 * size, 10_000 + 20 * size), 16)
    assert compiled[0] < 200
    assert found.size > 250
    assert found.compiled_bytes[found.size] <= LIMIT


def test_memory_that_is_flat_at_first():
    """As T5-large's, whose small batches need less than the optimizer: two sizes of the same memory tell nothing."""
    found, compiled = search(lambda size: max(14_000 + 2 * size, 9_000 + 45 * size), 32, compilations=5)
    assert compiled[0] > 400
    assert 0.95 * 155 < found.size <= 155
    assert found.compiled_bytes[found.size] <= LIMIT


def test_nothing_fits():
    found, compiled = search(lambda size: 20_000 + size, 32)
    assert (found.size, found.confirmed) == (0, False)
    assert compiled == []


@pytest.mark.parametrize("step", [1, 4, 8])
def test_answers_divide_among_the_devices(step):
    found, _ = search(lambda size: 4_000 + 101 * size, 32, step=step)
    assert found.size % step == 0
    assert found.size + step > (LIMIT - 4_000) / 101 >= found.size


def test_the_line_stays_between_what_fits_and_what_does_not():
    assert promise({8: 15_999, 16: 16_001}, 4, LIMIT) == 8
    assert promise({8: 15_999, 12: 16_001}, 4, LIMIT) == 8
    assert promise({8: 9_000}, 4, LIMIT) == 8
    assert promise({8: 1_000, 16: 1_000}, 4, LIMIT) > 1_000  # flat: whatever is asked for
