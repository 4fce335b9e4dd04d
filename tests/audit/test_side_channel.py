"""What task and length alone give: which sentences of a large file are looked at."""

import numpy as np
from rows import changed, simulated_rows

from eeg2text_jax.auditing import side_channel
from eeg2text_jax.auditing.audit import audit


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
