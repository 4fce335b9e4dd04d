"""`shuffled` is not held against the sentences whose recordings it was made from: by brute force, text and rankings."""

import dataclasses

import numpy as np
import pytest
from rows import row
from test_decoders import decoded, written

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.content_cells import donor_notes, donor_places, weighted_tables, without_donors
from eeg2text_jax.auditing.verdict import Verdict
from eeg2text_jax.metrics.bleu import word_bleu


def lent(rows, seed=0, among=None):
    """Each row with the prediction that its reader has for another sentence of its length, and that one as donor."""
    rng = np.random.default_rng(seed)
    groups, made = {}, []
    for r in rows:
        groups.setdefault((r.subject, r.n_words if among is None else among(r)), []).append(r)
    for group in groups.values():
        shift = int(rng.integers(1, len(group))) if len(group) > 1 else 0
        made += [
            dataclasses.replace(r, eval_condition="shuffled", prediction=d.prediction, donor=d.sentence_id)
            for r, d in zip(group, np.roll(np.array(group, object), shift), strict=True)
        ]
    return made


@pytest.mark.parametrize("readers", [1, 3])
def test_a_cell_is_the_mean_of_the_rows_that_are_not_of_its_sentence(readers):
    eeg = decoded(*written(readers), 0.7)
    aligned = align({"eeg": eeg, "shuffled": lent(eeg, among=lambda r: 0)}, stratum_size=6)
    metric = word_bleu()
    blocks, (_, found) = weighted_tables(aligned, aligned.strata, metric)
    rows, sentence = aligned.conditions[1].rows, aligned.conditions[1].sentence
    of_id = {r.sentence_id: int(s) for r, s in zip(rows, sentence, strict=True)}
    lent_by = [(r.prediction, s, of_id[r.donor]) for r, s in zip(rows, sentence, strict=True)]
    left_out = 0
    for members, block in blocks.views(found):
        for stratum, cells in zip(members, block, strict=True):
            for i, s in enumerate(stratum):
                for j, t in enumerate(stratum):
                    kept = [prediction for prediction, of, by in lent_by if of == s and by != t]
                    left_out += readers - len(kept)
                    if kept:
                        mean = metric.statistics(kept, [aligned.references[t]] * len(kept)).mean(0)
                        np.testing.assert_allclose(cells[i, j], mean * readers)
    assert left_out > 5


def test_without_another_row_the_next_sentence_stands_in_and_without_one_the_reference_itself():
    sums = np.arange(1.0, 10).reshape(1, 3, 3, 1)
    rows = np.zeros(3, int), np.arange(3), np.array([1, 2, 0])
    found = without_donors(sums, *rows, sums[0, [0, 1, 2], [1, 2, 0]])
    np.testing.assert_array_equal(found[0, ..., 0], [[1, 8, 3], [4, 5, 3], [4, 8, 9]])
    pair = np.array([[5.0, 70], [80, 6]]).reshape(1, 2, 2, 1)
    found = without_donors(pair, np.zeros(2, int), np.arange(2), np.array([1, 0]), np.array([[70.0], [80]]))
    np.testing.assert_array_equal(found[0, ..., 0], [[5, 6], [5, 6]])


def test_the_difference_is_the_content_of_eeg_and_says_so():
    """A decoder that gets most words right; unknown donors inflate the difference and are named."""
    eeg = decoded(*written(2), 0.9)
    control = lent(eeg, among=lambda r: r.n_words // 3)
    known = audit(eeg, {"shuffled": control}, resamples=200)
    unknown = audit(eeg, {"shuffled": [dataclasses.replace(r, donor=None) for r in control]}, resamples=200)
    own = known.conditions[0].content.effect
    (comparison,), (inflated,) = known.comparisons, unknown.comparisons
    assert comparison.primary.effect == pytest.approx(own, abs=2)
    assert inflated.primary.effect > own + 3
    assert known.verdict is unknown.verdict is Verdict.USES_EEG
    assert any("shuffled: no prediction is held against the sentence whose recording" in note for note in known.notes)
    assert any("shuffled: the rows do not say whose recording" in note for note in unknown.notes)


def test_nothing_is_claimed_of_nothing_more_often_than_it_may_be():
    claims = 0
    for seed in range(20):
        rng = np.random.default_rng([5, seed])
        words = [f"w{i}" for i in range(30)]
        drawn = [[" ".join(rng.choice(words, 6)) for _ in range(2)] for _ in range(40)]
        eeg = [row(s, reference=f"{s} {read}", prediction=said) for s, (read, said) in enumerate(drawn)]
        found = audit(eeg, {"shuffled": lent(eeg, seed)}, resamples=100, seed=seed)
        claims += found.verdict in (Verdict.USES_EEG, Verdict.BELOW_MARGIN)
    assert claims <= 4, "one in twenty is allowed; more than four of twenty come in one of four hundred such series"


def test_a_recording_of_the_same_sentence_and_an_unknown_one_are_no_donors():
    eeg = [row(i) for i in range(8)]
    donors = ["s0", "s5", "elsewhere", None, *(f"s{i - 1}" for i in range(4, 8))]
    fed = [dataclasses.replace(r, eval_condition="shuffled", donor=d) for r, d in zip(eeg, donors, strict=True)]
    aligned = align({"eeg": eeg, "shuffled": fed})
    assert donor_places(aligned.conditions[1], aligned).tolist() == [-1, 5, -1, -1, 3, 4, 5, 6]
    assert donor_places(aligned.eeg, aligned) is None
    assert "do not say whose recording" in "".join(donor_notes(aligned)), "one row does not"
