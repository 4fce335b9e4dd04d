"""Strata that stand in for unknown tasks: what they are made of, and what does not survive them."""

import random

import numpy as np
import pytest
from rows import changed, row, simulated_rows

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.content_cells import content_tables
from eeg2text_jax.auditing.contrast import contrast
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.guessed_strata import EQUAL_LENGTHS, _cuts, stand_ins
from eeg2text_jax.auditing.report import write_report
from eeg2text_jax.auditing.result import result_text
from eeg2text_jax.auditing.verdict import Verdict, judge

KINDS = {  # words that go with the task, as reviews and biographies have theirs
    "SR": [f"film{i}" for i in range(12)],
    "NR": [f"born{i}" for i in range(12)],
}
COMMON = [f"w{i}" for i in range(150)]


def two_tasks(task_known, sentences=60, knows_task=0.3, readers=(8, 4), seed=0, shuffled=False):
    """Outputs that know the task and nothing else, with EEG alone; references of a task share a few words."""
    rng = random.Random(seed)
    rows, noise = [], []
    for number in range(sentences):
        task = "SR" if number < sentences / 2 else "NR"
        length = rng.randrange(12, 20)
        words = [rng.choice(KINDS[task]) if rng.random() < 0.4 else rng.choice(COMMON) for _ in range(length)]
        for reader in range(readers[task == "NR"]):
            said = [rng.choice(KINDS[task]) if rng.random() < knows_task else rng.choice(COMMON) for _ in range(14)]
            other = [rng.choice(KINDS["SR"] + KINDS["NR"] + COMMON) for _ in range(14)]
            about = {"sample_id": f"{number}-{reader}", "subject": f"S{reader}", "n_words": length}
            about |= {"reference": " ".join(words), "task": task if task_known else ""}
            rows.append(row(number, **about, prediction=" ".join(said)))
            noise.append(row(number, **about, prediction=" ".join(other)))
    if shuffled:
        order = rng.sample(range(len(rows)), len(rows))
        rows, noise = [[side[i] for i in order] for side in (rows, noise)]
    return rows, noise


def test_what_the_task_explains_is_not_claimed_where_the_task_is_unknown():
    """Within length alone the difference is large; what stands in takes it away, and the report shows both."""
    eeg, noise = two_tasks(task_known=False, sentences=104, knows_task=0.15)
    result = audit(eeg, {"noise": noise}, resamples=500, proof="the test planted all of it, no target")
    found = result.comparisons[0]
    assert found.primary.p <= 0.01
    assert found.primary.effect > 2 * found.derived["the order of the file"].effect
    assert result.verdict not in (Verdict.USES_EEG, Verdict.BELOW_MARGIN)
    assert "other sentences of equal length) was " in result.sentence
    assert "equal task" not in result_text(result)
    assert "the tasks are not known, and within other strata it was" in result.sentence
    assert "does not hold within all strata and is not claimed" in result.sentence
    for source in ("the order of the file", "the words of the texts", "the number of rows"):
        assert source in result_text(result)


def test_where_the_task_is_known_it_is_in_the_strata_and_said():
    eeg, noise = two_tasks(task_known=True)
    result = audit(eeg, {"noise": noise}, resamples=500, proof="the test planted all of it, no target")
    assert result.comparisons[0].derived == {}
    assert result.comparisons[0].primary.p > 0.05
    assert "other sentences of equal task and length" in result.sentence


@pytest.mark.quick("False")
@pytest.mark.parametrize("shuffled", [False, True])
def test_claims_that_only_the_unknown_task_makes_are_as_rare_as_by_chance(shuffled):
    """Within length alone every set is significant; one of six may be left, as of sets that know nothing."""
    endpoint, claims = primary_endpoint(), []
    for seed in range(6):
        eeg, noise = two_tasks(task_known=False, sentences=104, knows_task=0.15, seed=seed, shuffled=shuffled)
        aligned, found = align({"eeg": eeg, "noise": noise}), []
        for strata in (aligned.strata, *stand_ins(aligned, 6).values()):
            rng = np.random.default_rng(0)
            tables = content_tables(aligned, strata, endpoint.metric, resamples=200, rng=rng)
            found.append(contrast([table.sampled for table in tables], endpoint.score))
        assert judge(found[0], 1.0) in (Verdict.USES_EEG, Verdict.BELOW_MARGIN)
        claims.append(judge(found[0], 1.0, found[1:]) in (Verdict.USES_EEG, Verdict.BELOW_MARGIN))
    assert sum(claims) <= 1


def test_one_file_alone_is_held_to_the_same():
    eeg, _ = two_tasks(task_known=False, seed=1)
    result = audit(eeg, {}, resamples=200, proof="the test planted all of it, no target")
    assert result.comparisons[0].primary.p <= 0.05
    assert result.verdict is Verdict.NO_CONTENT
    assert "no content that can be claimed" in result.sentence


def test_content_survives():
    """What is decoded is of the sentence and not of its kind."""
    eeg, noise = (changed(side, task="") for side in simulated_rows(information=0.1))
    result = audit(eeg, {"noise": noise}, resamples=300, proof="the test planted all of it, no target")
    assert result.verdict is Verdict.USES_EEG
    assert all(c.p <= 0.05 for c in result.comparisons[0].derived.values())
    for condition in result.conditions:
        assert condition.derived
        assert all(c.scores == pytest.approx(condition.content.scores) for c in condition.derived.values())


def test_strata_of_the_texts_part_the_kinds_and_those_of_the_order_the_places():
    eeg, _ = two_tasks(task_known=False, shuffled=True)
    aligned = align({"eeg": eeg})
    tasks = np.array([len(set(text.split()) & set(KINDS["SR"])) > 2 for text in aligned.references])
    found = stand_ins(aligned, 6)
    assert purity(found["the words of the texts"], tasks) >= 0.7
    assert purity(found["the order of the file"], tasks) < 0.3
    for strata in found.values():
        assert np.bincount(strata).min() >= 5
    blocks = found["the order of the file"]
    assert max(np.ptp(np.flatnonzero(blocks == s)) for s in set(blocks.tolist())) <= 13
    assert stand_ins(align({"eeg": two_tasks(task_known=True)[0]}), 6) == {}


def purity(strata, tasks):
    """Share of the strata that hold one task."""
    return np.mean([len(set(tasks[strata == s])) == 1 for s in set(strata.tolist())])


def test_blocks_of_the_order_end_where_the_texts_change():
    """One task after the other, the second beginning within what would be a block."""
    eeg, _ = two_tasks(task_known=False, sentences=70)
    aligned = align({"eeg": eeg})
    tasks = np.arange(70) < 35
    assert purity(stand_ins(aligned, 6)["the order of the file"], tasks) >= 0.8


def test_texts_without_a_common_word_are_left_in_their_order():
    rows = [row(i, task="", reference=f"a{i} b{i} c{i} d{i}", prediction="x") for i in range(40)]
    found = stand_ins(align({"eeg": rows}), 6)
    np.testing.assert_array_equal(found["the order of the file"], found["the words of the texts"])


@pytest.mark.parametrize("known", [True, False])
def test_the_report_shows_both(known, tmp_path):
    eeg, noise = two_tasks(task_known=known)
    write_report(audit(eeg, {"noise": noise}, resamples=150), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf8")
    assert ("Again, within other strata" in page) != known
    assert ("other sentences of equal task and length" in page) == known


def test_a_change_in_the_middle_is_found_where_both_parts_are_as_small_as_allowed():
    axes = np.repeat([[0.0], [1.0]], 12, axis=0)
    assert _cuts(axes, 12) == [12]
    assert _cuts(axes, 13) == []


def test_every_change_of_the_texts_is_found_at_its_place_in_the_file():
    assert _cuts(np.repeat([[0.0], [5.0], [10.0]], 12, axis=0), 12) == [12, 24]


def test_strata_of_equal_lengths_need_five_sentences_that_share_theirs():
    for same, kept in ((4, False), (5, True)):
        rows = [row(i, n_words=3 if i < same else 10 + i) for i in range(12)]
        assert (EQUAL_LENGTHS in stand_ins(align({"eeg": rows}), 6, length_leaks=True)) == kept
