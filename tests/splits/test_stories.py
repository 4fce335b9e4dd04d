"""Splits for stories: whole tasks, and consecutive windows within each."""

import numpy as np
import pytest

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.methods import make_split

RATIO = (0.8, 0.1, 0.1)


def heard(tasks: dict[str, int], subjects: int = 3, groups: dict[str, str] | None = None) -> DataFile:
    """Windows of some tasks, each heard by all subjects."""
    rows = [(f"S{s}", task, place) for s in range(subjects) for task, n in tasks.items() for place in range(n)]
    subject, task, place = (np.array(column) for column in zip(*rows, strict=True))
    n = len(rows)
    sentence = np.array([f"{t} {p}" for t, p in zip(task, place, strict=True)], object)
    group = None if groups is None else np.array([groups.get(name, name) for name in task], object)
    return DataFile(
        "made up", np.zeros((n, 2), np.float32), np.arange(n + 1), sentence, subject.astype(object),
        task.astype(object), place, "nothing", {}, text_group=group,
    )  # fmt: skip


def test_tasks_go_together_and_so_do_those_of_one_story() -> None:
    tasks = {f"t{number}": 5 for number in range(12)}
    data = heard(tasks, groups={"t1": "t0", "t2": "t0"})
    split = make_split(data, "b", RATIO, 3)
    of = {name: set(data.text_group[rows]) for name, rows in split.parts.items()}
    assert sum(map(len, of.values())) == 10
    assert [len(of[name]) for name in ("train", "dev", "test")] == [8, 1, 1]
    assert all(set(data.subject[rows]) == {"S0", "S1", "S2"} for rows in split.parts.values())
    with pytest.raises(UserError, match=r"split 'b' deals out tasks, found 2 \(t0, t1\)"):
        make_split(heard({"t0": 4, "t1": 4}), "b", RATIO, 0)


@pytest.mark.parametrize("seed", range(4))
def test_places_of_a_part_are_consecutive_and_all_subjects_share_them(seed: int) -> None:
    data = heard({"t0": 50, "t1": 33, "t2": 3})
    split = make_split(data, "e", RATIO, seed)
    assert sum(map(len, split.parts.values())) == len(data)
    for task, n in (("t0", 50), ("t1", 33), ("t2", 3)):
        for name in ("dev", "test"):
            rows = split.parts[name][data.task[split.parts[name]] == task]
            places = np.unique(data.sentence_index[rows])
            assert len(places) == max(1, int(0.1 * n)) + (name == "test" and n % 10 > 0 and n > 10)
            np.testing.assert_array_equal(places, np.arange(places[0], places[0] + len(places)))
            assert len(rows) == 3 * len(places)


def test_a_task_of_two_places_cannot_be_cut() -> None:
    with pytest.raises(UserError, match="split 'e' cuts each task into three, task t0 has 2 samples"):
        make_split(heard({"t0": 2}), "e", RATIO, 0)
