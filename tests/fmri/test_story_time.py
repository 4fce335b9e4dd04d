"""Windows of scans with TRs of 1.5 and 1.52 s: what they share is what they share in the story's time."""

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from eeg2text_jax import prepare
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.splits.certificate import SEGMENT, assess_leakage, segments_of
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import readings_of
from eeg2text_jax.instrument.auditing.strata import disjoint
from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_jax.runs.cells import Cell, row_fields
from eeg2text_jax.training.conditions._donors import donor_table
from eeg2text_jax.training.study import Arm
from eeg2text_testing.bids_stories import GRID, WINDOW, make_tree

CELL = 0.02  # seconds: TRs, onsets and their differences are whole numbers of it


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> DataFile:
    folder, fields = tmp_path_factory.mktemp("tree"), {"grid": GRID, "window": WINDOW, "dtype": "float32", "lag_tr": 2}
    changes = {f"data__fmri__{name}": value for name, value in fields.items()}
    return prepare(make_tree(folder / "bids"), folder / "data.h5", **changes)


def spans(data: DataFile) -> list[tuple[str, int, int]]:
    """Story, first and last cell of every window, from what the tree's tables say."""
    audio = {"tunnel": 3.0, "pretty": 0.0, "slow": 0.0, "twice": 1.5, "pie": 0.0}
    begins = {"tunnel": [3.0], "pretty": [9.0], "slow": [0.0], "twice": [4.5, 31.5], "pie": [6.0]}
    found = []
    for i in range(len(data)):
        subject, task = str(data.subject[i]), str(data.task[i])
        tr = 1.52 if (subject, task) == ("sub-02", "slow") else 1.5
        first = round(begins[task][0] / tr) * tr - audio[task]
        place = round(data.sentence_index[i] * 1.5 / tr - first / tr)  # TRs drift by less than half of one
        start = first + place * tr
        found.append((task, round(start / CELL), round((start + WINDOW * tr) / CELL)))
    return found


def test_windows_share_a_segment_exactly_where_their_times_overlap(data):
    expected, own = spans(data), readings_of(data).segments.windows
    np.testing.assert_array_equal(data.story_times, [(20 * a, 20 * b) for _, a, b in expected])
    slow = np.flatnonzero(data.task == "slow")
    assert len({round(t) for t in np.diff(data.story_times[slow])[:, 0].tolist()}) == 2
    partly = 0
    for i, j in itertools.combinations(range(len(data))[::2], 2):
        shared = set(segments_of(own[[i]]).tolist()) & set(segments_of(own[[j]]).tolist())
        (story, a, b), (other, c, d) = expected[i], expected[j]
        assert bool(shared) == (story == other and a < d and c < b)
        partly += bool(shared) and (b - a != d - c)
    assert partly > 10


@pytest.mark.parametrize("method", ["a", "c", "d", "e"])
def test_the_rate_of_leakage_is_that_of_cells_of_time(data, method):
    """Equations 10 and 11 over cells of 20 ms, of which windows of either TR have whole numbers."""
    split = make_split(data, method, (0.6, 0.2, 0.2), 3)
    expected, counts = spans(data), {}
    for part in ("train", "test"):
        cells = [(story, cell) for i in split.parts[part] for story, a, b in [expected[i]] for cell in range(a, b)]
        counts[part] = dict(zip(*np.unique([f"{s} {c}" for s, c in cells], return_counts=True), strict=True))
    hits = sum(min(n, counts["train"].get(cell, 0)) for cell, n in counts["test"].items())
    found = assess_leakage(readings_of(data), split.parts)[0]
    assert 0 < found.tslr[SEGMENT] == pytest.approx(hits / sum(counts["test"].values()), abs=1e-12)


def test_a_sentence_id_is_the_nearest_segment_of_the_usual_repetition_time(data):
    slow = (data.task == "slow") & (data.subject == "sub-02")
    starts = data.story_times[slow, 0] / 1500
    assert np.abs(starts - data.sentence_index[slow]).max() <= 0.5
    assert np.abs(starts - np.round(starts)).max() > 0.3


def test_no_donor_lends_time_of_the_same_story(data):
    rows = np.arange(len(data))
    donors = donor_table(data, [rows], 0).donor
    times = data.story_times
    overlap = (times[:, 0] < times[donors, 1]) & (times[donors, 0] < times[:, 1])
    assert not (overlap & (data.task == data.task[donors])).any()


def test_decoded_rows_state_the_seconds_of_the_story(data):
    names, samples = [str(i) for i in range(len(data))], SimpleNamespace(donors=None)
    study = SimpleNamespace(data=data, split=SimpleNamespace(names=names), samples=samples)
    cell = Cell(Arm("eeg", 0), "eeg")
    found = [row_fields(study, cell, i, "free_running")["story_time"] for i in range(len(data))]
    np.testing.assert_allclose(found, [(CELL * a, CELL * b) for _, a, b in spans(data)], rtol=0, atol=1e-9)
    study.data = dataclasses.replace(data, starts=None)  # words, which no story gives a time
    assert row_fields(study, cell, 0, "free_running")["story_time"] is None


def test_windows_that_are_judged_share_no_time(data):
    rows = [
        Prediction(f"{i}", str(data.subject[i]), str(data.task[i]), str(data.sentence_id[i]), WINDOW, "eeg", "eeg", 0,
                   "free_running", str(data.sentence[i]), "x", story_time=(data.story_times[i] / 1000).tolist())
        for i in range(len(data))
    ]  # fmt: skip
    kept = [(r.task, *r.story_time) for r in disjoint(rows)]
    assert len(set(kept)) > 10
    for (story, a, b), (other, c, d) in itertools.combinations(sorted(set(kept)), 2):
        assert story != other or b <= c or d <= a
