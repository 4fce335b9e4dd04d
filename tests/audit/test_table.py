"""The sentence table against the metric itself, and the short cut of the simulation against the table."""

import numpy as np
import pytest
from rows import simulated_rows

from eeg2text_jax.audit.align import align
from eeg2text_jax.audit.simulate import Dials, simulate, unigram_score, unigram_tables
from eeg2text_jax.audit.table import content_table
from eeg2text_jax.metrics.bleu import word_bleu
from eeg2text_jax.metrics.error_rates import word_error_rate


@pytest.mark.parametrize("metric", [word_bleu(), word_error_rate()], ids=["bleu", "wer"])
def test_table_is_the_metric_of_every_pair(metric):
    eeg, _ = simulated_rows(sentences=9, subjects=2, seeds=2, tasks=1)
    aligned = align({"eeg": eeg}, stratum_size=4)
    found = content_table(aligned.eeg, aligned.references, aligned.strata, aligned.strata, 2, metric)
    size = len(aligned.references)
    expected = np.zeros_like(found.pairs)
    for row, s, g in zip(aligned.eeg.rows, aligned.eeg.sentence, aligned.eeg.seed, strict=True):
        for t in range(size):
            if aligned.strata[s] == aligned.strata[t]:
                expected[g, s, t] += metric.statistics([row.prediction], [aligned.references[t]])[0]
    np.testing.assert_allclose(found.pairs, expected)
    texts = aligned.eeg.texts
    own = metric.statistics(texts, [aligned.references[s] for s in aligned.eeg.sentence])
    np.testing.assert_allclose(found.own, own)
    for index in (0, 17, 35):
        s = aligned.eeg.sentence[index]
        others = [t for t in range(size) if t != s and aligned.strata[t] == aligned.strata[s]]
        mean = np.mean([metric.statistics([texts[index]], [aligned.references[t]])[0] for t in others], axis=0)
        np.testing.assert_allclose(found.null[index], mean)


def test_unigram_tables_are_word_bleu_of_the_text():
    dials = Dials(sentences=24, subjects=3, seeds=2, information=0.1, length_leak=0.1, eeg_subject_leak=0.2)
    simulated = simulate(dials, np.random.default_rng(0))
    rows = simulated_rows(0, **vars(dials))
    aligned = align({"eeg": rows[0], "noise": rows[1]})
    order = [aligned.references.index(row.reference) for row in _first_rows(rows[0])]
    metric = word_bleu()
    for condition, fast in zip(aligned.conditions, unigram_tables(simulated), strict=True):
        slow = content_table(condition, aligned.references, aligned.strata, aligned.strata, 2, metric).pairs
        slow = slow[:, order][:, :, order]
        np.testing.assert_array_equal(aligned.strata[order], simulated.strata)
        np.testing.assert_allclose(slow[..., [0, 1, 2]], fast)
        own = np.einsum("gssk->k", slow)
        assert unigram_score(np.einsum("gssk->k", fast)) == pytest.approx(metric.corpus(own)[0])


def _first_rows(rows):
    """One row of each sentence, in the order in which they were simulated."""
    return {row.sentence_id: row for row in rows}.values()
