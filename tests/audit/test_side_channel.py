"""What task and length alone give: which sentences of a large file are looked at."""

import numpy as np
import pytest
from rows import changed, row, simulated_rows
from test_statistics import cells_of, total

from eeg2text_jax.auditing import side_channel
from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.strata import blocks_of


def test_sentences_that_are_not_drawn_stand_alone(monkeypatch):
    """Those that are drawn are whole strata, by their task; no other shares a number with them or with each other."""
    given = []
    measured = side_channel.weighted_tables

    def noted(aligned, tasks, metric):
        given.append((aligned, tasks))
        return measured(aligned, tasks, metric)

    monkeypatch.setattr(side_channel, "weighted_tables", noted)
    monkeypatch.setattr(side_channel, "SENTENCES", 40)
    task = {"task": lambda r: "NR" if len(r.reference) % 2 else "SR"}
    sides = [changed(rows, **task) for rows in simulated_rows(2, sentences=120)]
    audit(sides[0], {"noise": sides[1]}, resamples=100)
    ((aligned, tasks),) = given
    numbers, counts = np.unique(tasks, return_counts=True)
    kinds = np.unique(np.array(aligned.tasks), return_inverse=True)[1]
    drawn = np.isin(tasks, numbers[counts > 1])
    assert 0 < drawn.sum() < len(tasks)
    assert (tasks[drawn] == kinds[drawn]).all()
    assert not set(aligned.strata[drawn]) & set(aligned.strata[~drawn])
    assert not set(tasks[~drawn]) & set(kinds)


def measured(tables, strata, resamples):
    """Channels and findings of EEG and noise, from full tables `[S, S, K]` of one task."""
    blocks = blocks_of(np.zeros(len(strata), int))
    cells = [cells_of(table, blocks) for table in tables]
    options = {"resamples": resamples, "rng": np.random.default_rng(0)}
    return side_channel.side_channel(["eeg", "noise"], cells, blocks, np.array(strata), total, **options)


def test_a_channel_is_worth_what_the_own_stratum_has_more_than_any_stratum():
    """No prediction is held against its own reference; a stratum of one sentence has no others and is left out."""
    rng, strata = np.random.default_rng(1), [0, 0, 0, 1, 1, 2, 2, 2, 3]
    tables = rng.random((2, 9, 9, 1))
    tables[:, np.arange(9), np.arange(9)] = 100
    channels, _ = measured(tables, strata, 20_000)
    for table, channel in zip(tables[..., 0], channels, strict=True):
        between = np.array([
            [sum(np.mean([table[s, t] for s in range(9) if strata[s] == a and s != t])
                 for t in range(9) if strata[t] == b) for b in range(3)] for a in range(3)
        ])  # fmt: skip
        assert channel.worth == pytest.approx(np.trace(between) - between.sum() / 3, abs=0.02)


def test_channels_differ_by_a_test_of_both_sides():
    """The largest difference that 8 strata allow: p is twice 1 / (draws + 1)."""
    strata = np.repeat(np.arange(8), 2)
    tables = np.random.default_rng(0).random((2, 16, 16, 1))
    tables[0] += 5.0 * (strata[:, None] == strata)[..., None]
    for resamples, found in ((30, []), (60, ["side_channel_in_one_condition"])):
        assert [flag.code for flag in measured(tables, strata, resamples)[1]] == found
        assert [flag.code for flag in measured(tables[::-1], strata, resamples)[1]] == found


def test_a_style_that_shifts_all_scores_is_no_channel():
    control = np.random.default_rng(0).random((16, 16, 1))
    assert measured([control + 5, control], np.repeat(np.arange(8), 2), 60)[1] == []


def test_the_first_rows_of_a_sentence_keep_their_sentence_and_seed(monkeypatch):
    monkeypatch.setattr(side_channel, "ROWS", 2)
    rows = [row(i, seed=k % 2, sample_id=f"{i} {k}") for i in range(8) for k in range(3 + i % 2)]
    found = side_channel._thinned(align({"eeg": rows}).eeg)
    assert [r.sample_id for r in found.rows] == [f"{i} {k}" for i in range(8) for k in range(2)]
    assert [f"s{s}" for s in found.sentence] == [r.sentence_id for r in found.rows]
    assert found.seed.tolist() == [r.seed for r in found.rows]
