"""The sentence table against the metric itself, and the short cut of the simulation against the table."""

import dataclasses
import itertools
import tracemalloc

import numpy as np
import pytest
from rows import row, simulated_rows

from eeg2text_jax.auditing import content_cells as module
from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.content_cells import RowTable, _reader_null, content_tables, weighted_tables
from eeg2text_jax.auditing.contrast import contrast
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.guessed_strata import equal_length_strata
from eeg2text_jax.auditing.levels import Level
from eeg2text_jax.auditing.strata import blocks_of
from eeg2text_jax.auditing.text_table import text_table
from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.bleu import word_bleu
from eeg2text_jax.metrics.error_rates import word_error_rate
from eeg2text_testing.prediction_sets import Dials, gather, simulate, unigram_score, unigram_tables


def unequal(seed=0, **dials):
    """EEG's rows of 9 sentences, some with a reader less."""
    eeg, _ = simulated_rows(seed, **{"sentences": 9, "subjects": 4, "tasks": 1, **dials})
    return [r for i, r in enumerate(eeg) if i % 7]


@pytest.mark.parametrize("metric", [word_bleu(), word_error_rate()], ids=["bleu", "wer"])
def test_table_is_the_metric_of_every_pair_with_the_rows_of_the_reference(metric):
    aligned = align({"eeg": unequal()}, stratum_size=4)
    blocks, (found,) = weighted_tables(aligned, aligned.strata, metric)
    rows, sentence = aligned.eeg.rows, aligned.eeg.sentence
    counts = np.bincount(sentence)
    assert len(set(counts)) > 1
    for members, block in blocks.views(found):
        for stratum, cells in zip(members, block, strict=True):
            assert len(set(aligned.strata[stratum])) == 1
            for (i, s), (j, t) in itertools.product(enumerate(stratum), repeat=2):
                texts = [r.prediction for r, of in zip(rows, sentence, strict=True) if of == s]
                mean = metric.statistics(texts, [aligned.references[t]] * len(texts)).mean(0)
                np.testing.assert_allclose(cells[i, j], mean * counts[t])


def test_rows_are_held_against_what_their_reader_read():
    """A reader's null is the mean, over the references it read, of its other predictions, each with its rows."""
    metric = word_bleu()
    aligned = align({"eeg": unequal()}, stratum_size=4)
    options = {"resamples": 10, "rng": np.random.default_rng(0), "with_rows": True}
    (found,) = content_tables(aligned, aligned.strata, metric, **options)
    rows, sentence = aligned.eeg.rows, aligned.eeg.sentence
    own = metric.statistics([r.prediction for r in rows], [aligned.references[s] for s in sentence])
    np.testing.assert_allclose(found.rows.own, own)
    for subject in {r.subject for r in rows}:
        mine = [i for i, r in enumerate(rows) if r.subject == subject]
        for stratum in set(aligned.strata):
            here = [i for i in mine if aligned.strata[sentence[i]] == stratum]
            if len(here) < 2:
                assert np.isnan(found.rows.null[here]).all()
                continue
            expected = 0
            for i in here:
                others = [rows[j].prediction for j in here if j != i]
                reference = aligned.references[sentence[i]]
                expected += metric.statistics(others, [reference] * len(others)).mean(0)
            np.testing.assert_allclose(found.rows.null[here].sum(0), expected)


def test_texts_in_pieces_are_the_texts_at_once(monkeypatch):
    aligned, found = align({"eeg": unequal()}, stratum_size=4), []
    for chunk in (module.CHUNK, 3):
        monkeypatch.setattr(module, "CHUNK", chunk)
        options = {"resamples": 10, "rng": np.random.default_rng(0), "with_rows": True}
        found += content_tables(aligned, aligned.strata, word_bleu(), **options)
    whole, pieces = found
    np.testing.assert_allclose(pieces.sampled.permuted, whole.sampled.permuted)
    np.testing.assert_allclose(pieces.rows.own, whole.rows.own)
    np.testing.assert_allclose(pieces.rows.null, whole.rows.null)


def test_any_strata_can_be_tested_and_lone_sentences_are_left_out():
    aligned = align({"eeg": unequal()})
    strata = np.array([0, 0, 0, 0, 0, 0, 1, 2, 2])
    (found,) = content_tables(aligned, strata, word_bleu(), resamples=50, rng=np.random.default_rng(0))
    assert not found.sampled.own[:, 6].any()
    assert found.sampled.own[:, 7].any()
    metric, kept = word_bleu(), aligned.eeg.sentence != 6
    texts = [text for text, k in zip(aligned.eeg.texts, kept, strict=True) if k]
    references = [aligned.references[s] for s in aligned.eeg.sentence[kept]]
    expected = metric.score(texts, references)["word_bleu-1"]
    assert contrast([found.sampled], primary_endpoint().score).scores[0] == pytest.approx(expected)
    with pytest.raises(UserError, match="alone in its stratum"):
        content_tables(aligned, np.arange(9), word_bleu(), resamples=50, rng=np.random.default_rng(0))


def test_strata_that_do_not_fit_are_refused_with_what_they_would_take(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_TABLE", 1000)
    aligned = align({"eeg": unequal()})
    with pytest.raises(UserError, match=r"the largest has 9 sentences.* give a smaller --stratum-size"):
        content_tables(aligned, np.zeros(9, int), word_bleu(), resamples=50, rng=np.random.default_rng(0))


def test_strata_of_equal_length_hold_one_task_one_group_of_readers_and_one_length():
    lengths, tasks = [5, 5, 5, 6, 7, 7, 8, 8, 5], "AAAAAAABB"
    found = enumerate(zip(lengths, tasks, strict=True))
    rows = [row(i, reference=f"w{i} " * n, n_words=n, task=t) for i, (n, t) in found]
    assert equal_length_strata(align({"eeg": rows}, stratum_size=2), 2).tolist() == [0, 0, 0, 1, 2, 2, 3, 4, 5]
    parted = [dataclasses.replace(r, subject="one" if i % 2 else "other") for i, r in enumerate(rows)]
    found = equal_length_strata(align({"eeg": parted}, stratum_size=2), 2)
    assert found.tolist() == [0, 1, 0, 2, 3, 4, 5]  # B's are alone


@pytest.mark.parametrize("readers", ["equal", "10-18", "half"])
def test_unigram_tables_are_word_bleu_of_the_text(readers):
    dials = {"sentences": 24, "subjects": 3, "seeds": 2, "information": 0.1, "length_leak": 0.1, "readers": readers}
    simulated = simulate(Dials(**dials), np.random.default_rng(0))
    eeg, noise = simulated_rows(0, **dials)
    aligned = align({"eeg": eeg, "noise": noise})
    np.testing.assert_array_equal(aligned.strata, simulated.strata)
    assert len(eeg) == 2 * len(simulated.sentence)
    blocks, slow = weighted_tables(aligned, aligned.strata, word_bleu())
    counts = simulated.counts.sum(0)
    for found, fast in zip(slow, unigram_tables(simulated), strict=True):
        weights = counts[None, :] / counts[:, None]
        expected = gather(blocks, fast.sum(0) * weights[..., None])
        np.testing.assert_allclose(found[:, [0, 1, 2]], expected)
        score = word_bleu().corpus(found[blocks.own].sum(0))[0]
        assert unigram_score(expected[blocks.own].sum(0)) == pytest.approx(score)


def test_memory_goes_with_rows_and_not_with_the_square_of_the_references():
    """A table of all 1,500 references against each other would take 180 MB."""
    rows = [row(i, reference=f"the {i % 7} sentence w{i} {'x ' * (i % 9)}", n_words=4 + i % 9) for i in range(1500)]
    aligned = align({"eeg": rows})
    assert blocks_of(aligned.strata).n_cells < 12 * len(rows)
    tracemalloc.start()
    options = {"resamples": 20, "rng": np.random.default_rng(0), "with_rows": True}
    (found,) = content_tables(aligned, aligned.strata, word_bleu(), **options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.sampled.permuted.shape == (20, 10)
    assert peak < 30e6


@pytest.mark.parametrize("named", [0.0, 0.5, 1.0])
def test_single_rows_have_a_null_of_their_reader_only_if_all_readers_are_named(named):
    rows = unequal()
    rows = [dataclasses.replace(r, subject=r.subject if i < named * len(rows) else "") for i, r in enumerate(rows)]
    aligned = align({"eeg": rows})
    options = {"resamples": 50, "rng": np.random.default_rng(0), "with_rows": True}
    (found,) = content_tables(aligned, aligned.strata, word_bleu(), **options)
    assert np.isfinite(found.rows.null).any() == (named == 1.0)


def test_several_rows_of_a_reader_share_the_null_of_their_sentence():
    """Sentence 0 has two rows, sentence 1 one: two references of 0 against 1's text, one of 1 against 0's mean."""
    sums, counts = np.array([[[[9.0], [4]], [[3], [7]]]]), np.array([[2, 1]])
    shares = _reader_null(sums, counts)
    assert (shares[..., 0] * counts).sum() == 2 * 3 + 1 * 4 / 2
    assert np.isnan(_reader_null(sums, np.array([[2, 0]]))).all()


def test_rows_of_two_conditions_are_paired_by_reader_whatever_their_order():
    eeg, noise = ([r for i, r in enumerate(side) if i % 7] for side in simulated_rows(sentences=9, subjects=4, tasks=1))
    found = []
    for other in (noise, noise[::-1]):
        aligned = align({"eeg": eeg, "noise": other}, stratum_size=4)
        options = {"resamples": 2, "rng": np.random.default_rng(0)}
        found.append(content_tables(aligned, aligned.strata, word_bleu(), **options)[0].sampled.spread)
    np.testing.assert_allclose(found[0].within, found[1].within)
    size = len(found[0].within) // 2
    assert found[0].within[:size, size:].any()


def test_examples_stand_beside_the_same_seed_and_the_best_come_first():
    eeg = [row(i, seed=s, prediction=f"text {i} of {s}") for i in range(8) for s in (0, 1)]
    eeg[9] = dataclasses.replace(eeg[9], prediction=eeg[9].reference)
    noise = [dataclasses.replace(r, prediction=f"noise {r.sentence_id[1:]} of {r.seed}") for r in eeg[::-1]]
    table = text_table(align({"eeg": eeg, "noise": noise}))
    texts = [r.prediction for r in table.aligned.eeg.rows]
    own = table.plain.metric.statistics(texts, [r.reference for r in table.aligned.eeg.rows])
    shown = table.examples(RowTable(own, own), np.random.default_rng(0))
    assert [example.best for example in shown] == [False] * 4 + [True] * 4
    assert shown[4].predictions == (eeg[9].reference, "noise 4 of 1")
    assert len({example.reference for example in shown[4:]}) == 4
    for example in shown:
        if example.predictions[0] != eeg[9].reference:
            assert example.predictions[1] == example.predictions[0].replace("text", "noise")


def test_what_content_is_about_is_said_of_the_control_itself():
    table = text_table(align({"eeg": unequal()}))
    levels = [Level("class", "noise", 2, None, None), Level("topic", "zero", 2, None, None)]
    assert "(topic)" in table.content_is_about(levels, "zero")
    assert "(class)" not in table.content_is_about(levels, "zero")
    assert table.content_is_about(levels, "other").endswith("not known")
