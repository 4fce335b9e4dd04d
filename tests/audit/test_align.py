"""Alignment: which rows are compared, what is matched, what is refused; the order of rows plays no part."""

import dataclasses
import random

import numpy as np
import pytest
from rows import changed, row, simulated_rows

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing.align import align
from eeg2text_jax.instrument.predictions.selection import join_metadata, read_conditions, select_arms, select_cells


def rows(n=8, **fields):
    return [row(i, **fields) for i in range(n)]


def upper(r):
    return f"  {r.reference.upper().replace(' ', '  ')}. "


@pytest.mark.parametrize("write", [upper, lambda r: f"<s>{r.reference}</s>", lambda r: r.reference.title()])
def test_a_sentence_is_known_by_its_plain_words(write):
    eeg = [row(i, sample_id=f"{i}{s}", subject=s) for i in range(8) for s in "AB"]
    aligned = align({"eeg": eeg, "noise": changed(eeg, reference=write)})
    assert len(aligned.references) == 8
    assert [len(c.rows) for c in aligned.conditions] == [16, 16]
    for condition in aligned.conditions:
        for found, s in zip(condition.rows, condition.sentence, strict=True):
            assert found.sentence_id == aligned.eeg.rows[2 * s].sentence_id


def test_aligned_rows_are_a_function_of_the_set_of_rows():
    eeg, noise = simulated_rows(sentences=30, subjects=3, seeds=2)
    first = align({"eeg": eeg, "noise": noise})
    for seed in range(3):
        rng = random.Random(seed)
        again = align({"eeg": rng.sample(eeg, len(eeg)), "noise": rng.sample(noise, len(noise))})
        assert again.references == first.references
        np.testing.assert_array_equal(again.strata, first.strata)
        for a, b in zip(again.conditions, first.conditions, strict=True):
            assert a.rows == b.rows
            np.testing.assert_array_equal((a.sentence, a.seed), (b.sentence, b.seed))


def test_free_running_is_judged_where_both_modes_are_there():
    both = rows() + rows(mode="teacher_forced")
    aligned = align({"eeg": both})
    assert (aligned.eeg.mode, len(aligned.eeg.rows)) == ("free_running", 8)
    assert any("teacher_forced" in note for note in aligned.notes)
    assert align({"eeg": both}, mode="teacher_forced").eeg.mode == "teacher_forced"
    assert align({"eeg": both[::-1], "noise": both[::-1]}).eeg.mode == "free_running", "whichever stands first"
    with pytest.raises(UserError, match="no teacher_forced predictions, only free_running"):
        align({"eeg": rows()}, mode="teacher_forced")


def test_a_mode_that_all_conditions_have_is_judged():
    forced = rows(mode="teacher_forced")
    assert align({"eeg": rows() + forced, "noise": forced}).eeg.mode == "teacher_forced"
    assert [c.mode for c in align({"eeg": rows(), "noise": forced}).conditions] == ["free_running", "teacher_forced"]


def test_tasks_and_numbers_of_words():
    """One file may state the task for all; of several tasks the first by the alphabet counts."""
    assert all(align({"eeg": rows(task=""), "noise": rows()}).tasks)
    half = [*rows(4), *(row(i, task="") for i in range(4, 8))]
    aligned = align({"eeg": half})
    assert not all(aligned.tasks)
    assert any("the task of 4 of 8 sentences is not known" in note for note in aligned.notes)
    eeg = [row(i, task="b" if i % 2 else "a") for i in range(24)]
    aligned = align({"eeg": [*eeg, row(0, sample_id="again", task="b", subject="B")]})
    assert aligned.tasks[aligned.references.index(eeg[0].reference)] == "a"
    forms = [
        "three more words",
        "Three, more words!",
        "three mo ##re words",
        "<s>\u2581three \u2581more \u2581words</s>",
    ]
    for text in forms:
        aligned = align({"eeg": [*rows(7), row(7, reference=text)]})
        assert aligned.n_words[aligned.references.index(text)] == 3, text


def test_shortened_references_are_matched_and_the_shorter_one_counts():
    long = [row(i, reference=f"number {i} is a sentence with quite many words in it") for i in range(8)]
    short = changed(long, reference=lambda r: r.reference[:35])
    aligned = align({"eeg": long, "noise": short})
    assert any("8 references end earlier" in note for note in aligned.notes)
    assert len(aligned.references) == 8
    assert set(aligned.n_words.tolist()) == {8}


def test_a_short_or_doubtful_beginning_is_not_matched():
    """A text that two others begin with, or of fewer than twenty characters, may be a sentence of its own."""
    start = "this sentence has quite many words"
    two = [f"{start} in it", f"{start} and marks"]
    for own, others in (([start], two), (two, [start]), (["yes"], ["yes it is", "no"])):
        eeg = [*rows(), *(row(20 + i, reference=text) for i, text in enumerate(own))]
        noise = [*rows(), *(row(20 + i, reference=text) for i, text in enumerate(others))]
        assert len(align({"eeg": eeg, "noise": noise}, common=True).references) == 8


def test_common_keeps_what_all_conditions_share():
    eeg, noise = simulated_rows(sentences=20)
    aligned = align({"eeg": eeg[:-3], "noise": noise[5:]}, common=True)
    assert [len(c.rows) for c in aligned.conditions] == [len(eeg) - 8] * 2
    assert aligned.left_out == (("eeg", 5, len(eeg) - 3), ("noise", 3, len(eeg) - 5))
    twice = [*rows(), row(0, sample_id="again", prediction="another")]
    for order in (twice, twice[::-1]):
        again = align({"eeg": rows(), "noise": order}, common=True)
        assert again.left_out == (("noise", 1, 9),)
        assert "another" in again.conditions[1].texts, "of two rows of a reading the first by its text, in any order"
    with pytest.raises(UserError, match="share no row"):
        align({"eeg": rows(), "noise": rows(subject="B")}, common=True)


def test_what_one_side_does_not_state_is_not_compared():
    align({"eeg": rows(), "noise": rows(subject="")})
    assert len(align({"eeg": rows(sample_id="")}).eeg.rows) == 8, "rows without an id are no copies of each other"


def test_donors_are_other_sentences_of_the_test():
    eeg = rows()
    donors = ["s0", "s5", "elsewhere", None, *(f"s{i - 1}" for i in range(4, 8))]
    fed = [dataclasses.replace(r, eval_condition="shuffled", donor=d) for r, d in zip(eeg, donors, strict=True)]
    aligned = align({"eeg": eeg, "shuffled": fed})
    named = [aligned.eeg.rows[d].sentence_id if d >= 0 else None for d in aligned.conditions[1].donor]
    assert named == [None, "s5", None, None, "s3", "s4", "s5", "s6"]
    assert (aligned.eeg.donor == -1).all()


def test_five_sentences_can_be_tested_and_one_alone_in_its_task_is_left_out():
    assert len(align({"eeg": rows(5)}).references) == 5
    with pytest.raises(UserError, match="only 4 sentences that can be exchanged"):
        align({"eeg": rows(4)})
    aligned = align({"eeg": [row(99, task="other", n_words=30), *rows()]})
    assert len(aligned.references) == 8
    assert any("alone in their task" in note for note in aligned.notes)


REFUSED = {
    "references differ": ({"eeg": rows(), "noise": [*rows(7), row(30)]}, "the references differ: eeg has 8"),
    "no overlap": ({"eeg": rows(), "noise": [row(i) for i in range(20, 28)]}, "share no reference; they are not pr"),
    "lengths": ({"eeg": rows(), "noise": [*rows(), row(0, sample_id="x")]}, "eeg has 8 rows and noise 9"),
    "subjects": (
        {"eeg": rows(), "noise": rows(subject="B")},
        r"differ in the number of rows for some sentence, subject and seed .no subject label in common: A and B.",
    ),
    "duplicates": ({"eeg": [*rows(), row(3)]}, "sample 'sample 3' occurs more than once"),
    "empty reference": ({"eeg": [*rows(), row(9, reference=" ")]}, "row 9 .* empty reference"),
    "nothing": ({"eeg": []}, "no predictions"),
    "seeds": ({"eeg": rows(), "noise": rows(seed=1)}, "number of rows for some sentence, subject and seed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence(case):
    conditions, message = REFUSED[case]
    with pytest.raises(UserError, match=message) as error:
        align(conditions)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("header", ["reference,task", "Sentence,Task", "text,task", "target,TASK"])
def test_metadata_joins_on_the_reference_as_files_call_it(tmp_path, header):
    path = tmp_path / "meta.csv"
    path.write_text("\n".join([f"{header},subject,n_words", *(f"{r.reference},SR,S,3" for r in rows())]) + "\n")
    assert {(r.task, r.subject, r.n_words) for r in join_metadata(rows(), path)} == {("SR", "S", 3)}


def test_metadata_with_a_line_per_row_goes_in_order(tmp_path):
    path = tmp_path / "meta.csv"
    path.write_text(f"reference,subject\n{row(0).reference},first\n{row(0).reference},second\n")
    twice = [row(0), row(0, mode="teacher_forced"), row(0, sample_id="b"), row(0, sample_id="b", mode="teacher_forced")]
    assert [r.subject for r in join_metadata(twice, path)] == ["first", "first", "second", "second"]
    seeds = [row(0, seed=seed, sample_id=name) for seed in (0, 1) for name in "ab"]
    assert [r.subject for r in join_metadata(seeds, path)] == ["first", "second"] * 2
    arms = [row(0, train_condition=arm, eval_condition=fed, sample_id=name)
            for name in "ab" for arm, fed in (("eeg", "eeg"), ("eeg", "noise"), ("noise", "noise"))]  # fmt: skip
    assert [r.subject for r in join_metadata(arms, path)] == ["first"] * 3 + ["second"] * 3
    path.write_text(f"reference,subject,task,onset\n{row(0).reference},A,NR,1.5\n{row(0).reference},B,,2\n")
    joined = join_metadata([row(0), row(0, sample_id="b")], path)
    assert [(r.recording, r.onset) for r in joined] == [("A/NR", 1.5), ("B/all", 2.0)], "times are of a subject's task"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("what,task\nx,y\n", "line 1: columns are what, task; expected reference"),
        ("reference,n_words\n{0},many\n", "line 2: n_words is 'many'"),
        ("reference,n_words\n{0},7²\n", "line 2: n_words is '7²'"),  # a superscript is a digit, and no number
        ("reference,task\nnot this one,NR\n", "0 lines for the reference"),
        ("reference,task\n{0},a\n{0},b\n{0},c\n", "3 lines for the reference .*; expected 1 or 2"),
        ("reference,task\n{0},a\n{1},b\n{1},c\n", "2 lines for the reference .*; expected 1; add"),
    ],
)
def test_metadata_refused(tmp_path, content, message):
    path = tmp_path / "meta.csv"
    path.write_text(content.format(row(0).reference, row(1).reference))
    with pytest.raises(UserError, match=message):
        join_metadata([row(0), row(0, sample_id="b"), row(1)], path)


def cells():
    return [
        row(i, train_condition=train, eval_condition=test)
        for train in ("eeg", "noise")
        for test in ("noise", "eeg", "shuffled")
        for i in range(3)
    ]


def test_select_cells_takes_one_arm_with_eeg_first():
    found = select_cells(cells())
    assert list(found) == ["eeg", "noise", "shuffled"]
    assert {r.train_condition for group in found.values() for r in group} == {"eeg"}
    assert list(select_cells(cells(), "noise")) == ["eeg", "noise", "shuffled"]
    with pytest.raises(UserError, match="no arm trained on 'zero'"):
        select_cells(cells(), "zero")
    with pytest.raises(UserError, match="was not evaluated with eeg"):
        select_cells([r for r in cells() if r.eval_condition != "eeg"])


def test_of_other_arms_the_one_that_knows_the_clock_alone_is_a_control():
    fed = [row(i, train_condition="clock", eval_condition=test) for test in ("clock", "eeg") for i in range(3)]
    found = select_cells([*cells(), *fed])
    assert list(found) == ["eeg", "noise", "shuffled", "the arm trained on clock"]
    assert {r.eval_condition for r in found["the arm trained on clock"]} == {"clock"}


def test_an_arm_of_exchanged_labels_is_tested_with_eeg_and_others_with_what_they_know():
    fed = [row(0, train_condition=arm, eval_condition=test) for arm, test in (
        ("eeg", "eeg"), ("eeg", "noise"), ("noise", "noise"), ("noise", "eeg"), ("label_shuffle", "eeg"),
        ("label_shuffle", "label_shuffle"))]  # fmt: skip
    found = select_arms(fed)
    assert list(found) == ["eeg", "noise", "the arm trained on noise", "the arm trained on label_shuffle"]
    assert [r.eval_condition for rows in found.values() for r in rows] == ["eeg", "noise", "noise", "eeg"]


def test_conditions_are_called_by_what_tells_their_files_apart(tmp_path):
    paths = [tmp_path / name for name in ("t5_x_eeg-eeg.txt", "t5_x_eeg-noise.txt", "t5_x_noise-noise.txt")]
    found = read_conditions(paths[0], paths[1:], lambda path: rows(eval_condition="unknown"))
    assert list(found) == ["eeg-eeg", "eeg-noise", "noise-noise"]
    paths = [tmp_path / name for name in ("run_half_prompt.csv", "run_half_prompt_ctl.csv")]
    assert list(read_conditions(paths[0], paths[1:], lambda path: rows())) == ["run_half_prompt", "run_half_prompt_ctl"]
    with pytest.raises(UserError, match="given twice"):
        read_conditions(paths[0], [tmp_path / "x" / ".." / paths[0].name], lambda path: rows())


def test_files_of_several_cells_bring_controls(tmp_path):
    assert list(read_conditions(tmp_path / "own.jsonl", [], lambda path: cells())) == ["eeg", "noise", "shuffled"]
    sides = {"eeg.jsonl": rows(), "more.jsonl": cells()}
    paths = [tmp_path / name for name in sides]
    found = read_conditions(paths[0], paths[1:], lambda path: sides[path.name])
    assert list(found) == ["eeg", *(f"more: {a}→{b}" for a in ("eeg", "noise") for b in ("noise", "shuffled"))]
    sides["more.jsonl"] = [*changed(rows(), eval_condition="noise"), *changed(rows(), eval_condition="zero")]
    found = read_conditions(paths[0], paths[1:], lambda path: sides[path.name])
    assert list(found) == ["eeg", "more: eeg→noise", "more: eeg→zero"]
