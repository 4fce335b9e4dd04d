"""Lining conditions up: what is accepted, what is matched, and what is refused in one sentence."""

import dataclasses

import numpy as np
import pytest
from rows import changed, row, simulated_rows

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.strata import disjoint, reader_groups, readers_of
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.selection import join_metadata, read_conditions, select_arms, select_cells


def rows(n=8, **fields):
    return [row(i, **fields) for i in range(n)]


def test_sentences_are_distinct_references():
    eeg = [row(i, sample_id=f"{i}{s}", subject=s) for i in range(8) for s in "AB"]
    noise = changed(reversed(eeg), reference=lambda r: f"  {r.reference.replace(' ', '  ')}")
    aligned = align({"eeg": eeg, "noise": noise})
    assert len(aligned.references) == 8
    assert len(aligned.conditions[1].rows) == 16
    for condition in aligned.conditions:
        for found, sentence in zip(condition.rows, condition.sentence, strict=True):
            assert aligned.references[sentence] == " ".join(found.reference.split())


def test_free_running_is_judged_where_both_modes_are_there():
    both = rows() + rows(mode="teacher_forced")
    aligned = align({"eeg": both})
    assert aligned.eeg.mode == "free_running"
    assert len(aligned.eeg.rows) == 8
    assert any("teacher_forced" in note for note in aligned.notes)
    assert align({"eeg": both}, mode="teacher_forced").eeg.mode == "teacher_forced"
    assert align({"eeg": both[::-1], "noise": both[::-1]}).eeg.mode == "free_running", "whichever stands first"


def test_a_mode_that_all_conditions_have_is_judged():
    forced = rows(mode="teacher_forced")
    both = rows() + forced
    assert align({"eeg": both, "noise": forced}).eeg.mode == "teacher_forced"
    assert [c.mode for c in align({"eeg": rows(), "noise": forced}).conditions] == ["free_running", "teacher_forced"]


def test_a_task_that_one_file_says_is_known():
    eeg, noise = rows(task=""), rows()
    assert align({"eeg": eeg, "noise": noise}).task_known
    half = [*rows(4), *(row(i, task="") for i in range(4, 8))]
    aligned = align({"eeg": half})
    assert not aligned.task_known
    assert any("known for only 4 of 8 sentences" in note for note in aligned.notes)


def test_shortened_references_are_matched_and_the_shorter_one_counts():
    long = [row(i, reference=f"number {i} is a sentence with quite many words in it") for i in range(8)]
    short = changed(long, reference=lambda r: r.reference[:35])
    aligned = align({"eeg": long, "noise": short})
    assert aligned.shortened == 8
    assert set(aligned.references) == {" ".join(r.reference.split()) for r in short}


def test_strata_by_the_words_of_the_reference_are_noted():
    words = [len(r.reference.split()) for r in rows()]
    said = "strata: number of words of the reference (the rows give no other number of words)."
    some = [n + 1 if i % 2 else 0 for i, n in enumerate(words)]
    for found, noted in ((words, True), ([0] * 8, True), (some, True), ([n + 1 for n in words], False)):
        eeg = [dataclasses.replace(r, n_words=n) for r, n in zip(rows(), found, strict=True)]
        assert (said in align({"eeg": eeg}).notes) == noted


def test_common_keeps_what_all_conditions_share():
    eeg, noise = simulated_rows(sentences=20)
    aligned = align({"eeg": eeg[:-3], "noise": noise[5:]}, common=True)
    assert [len(c.rows) for c in aligned.conditions] == [len(eeg) - 8] * 2
    assert aligned.left_out == (("eeg", 5, len(eeg) - 3), ("noise", 3, len(eeg) - 5))


def test_common_keeps_as_many_rows_of_a_reading_as_all_conditions_have():
    twice = [*rows(), row(0, sample_id="again", prediction="another")]
    aligned = align({"eeg": rows(), "noise": twice}, common=True)
    assert [len(c.rows) for c in aligned.conditions] == [8, 8]
    assert aligned.left_out == (("noise", 1, 9),)


def test_a_short_or_doubtful_beginning_is_not_matched():
    """A text that two others begin with, or of fewer than twenty characters, may be a sentence of its own."""
    start = "this sentence has quite many words"
    for own, others in (([start], [f"{start} in it", f"{start} and marks"]), (["yes"], ["yes it is", "no"])):
        eeg = [*rows(), *(row(20 + i, reference=text) for i, text in enumerate(own))]
        noise = [*rows(), *(row(20 + i, reference=text) for i, text in enumerate(others))]
        assert align({"eeg": eeg, "noise": noise}, common=True).shortened == 0


def test_subjects_that_one_side_does_not_name_are_not_compared():
    align({"eeg": rows(), "noise": rows(subject="")})


def test_rows_without_an_id_are_no_copies_of_each_other():
    assert len(align({"eeg": rows(sample_id="")}).eeg.rows) == 8


def test_five_sentences_can_be_tested_and_four_cannot():
    assert len(align({"eeg": rows(5)}).references) == 5
    with pytest.raises(UserError, match="only 4 sentences that can be exchanged"):
        align({"eeg": rows(4)})


def test_no_stratum_mixes_sentences_of_different_readers():
    eeg = [row(i, subject="one" if i % 2 else "other", n_words=i) for i in range(24)]
    aligned = align({"eeg": eeg})
    assert aligned.reader_groups == 2
    for stratum in set(aligned.strata.tolist()):
        assert len({int(s) % 2 for s in np.flatnonzero(aligned.strata == stratum)}) == 1


def test_a_sentence_that_few_read_joins_the_group_of_its_readers():
    """One of the four who read the second half read the last sentence alone."""
    sentence = np.append(np.repeat(np.arange(15), 4), 15)
    subject = np.append(np.tile(np.arange(4), 15), 2) + 10 * (sentence > 7)
    assert reader_groups(sentence, subject, 6).tolist() == [0] * 8 + [1] * 8


def test_readers_tell_nothing_where_a_row_does_not_name_its_own():
    eeg = [row(i, subject="one" if i % 2 else "other") for i in range(24)]
    assert readers_of(eeg, np.arange(24), 6).tolist() == [0, 1] * 12
    assert not readers_of([*changed(eeg[:8], subject=""), *eeg[8:]], np.arange(24), 6).any()


def test_windows_of_two_stories_are_told_apart_by_all_before_the_last_colon():
    windows = [row(i, sentence_id=f"fold:{story}:{k}", n_words=3) for i, (story, k) in enumerate([("a", 0), ("b", 1)])]
    assert disjoint([*windows, row(2, sentence_id="fold:a:2", n_words=3)]) == windows


def test_number_of_words_and_tasks():
    eeg = [row(i, n_words=3 + i, task="b" if i % 2 else "a") for i in range(24)]
    eeg += [row(0, sample_id="again", task="b", n_words=5, subject="B")]
    aligned = align({"eeg": eeg}, stratum_size=6)
    assert aligned.tasks[0] == "a"  # read in both
    assert aligned.n_words[0] == 4  # median of 3 and 5
    assert len(set(aligned.strata)) == 4


def test_a_sentence_alone_in_its_task_is_left_out_with_a_note():
    counted = [row(i, n_words=4 + i) for i in range(8)]
    aligned = align({"eeg": [row(99, task="other", n_words=30), *counted]})
    assert len(aligned.references) == 8
    assert aligned.n_words.tolist() == [4 + i for i in range(8)]
    assert any("alone in their task" in note for note in aligned.notes)


REFUSED = {
    "references differ": ({"eeg": rows(), "noise": [*rows(7), row(30)]}, "the references differ: eeg has 8"),
    "no overlap": ({"eeg": rows(), "noise": [row(i) for i in range(20, 28)]}, "share no reference; they are not pr"),
    "lengths": ({"eeg": rows(), "noise": [*rows(), row(0, sample_id="x")]}, "eeg has 8 rows and noise 9"),
    "subjects": (
        {"eeg": rows(), "noise": rows(subject="B")},
        r"differ in the number of rows for some sentence, subject and seed .no subject label in common: A and B.",
    ),
    "case": (
        {"eeg": rows(), "noise": changed(rows(), reference=lambda r: f"{r.reference.upper()}.")},
        "share no reference; some references differ only in case and punctuation; write them alike",
    ),
    "duplicates": ({"eeg": [*rows(), row(3)]}, "sample 'sample 3' occurs more than once"),
    "empty reference": ({"eeg": [*rows(), row(9, reference=" ")]}, "row 9 .* empty reference"),
    "two samples": ({"eeg": rows(2)}, "at least 5 are needed"),
    "nothing": ({"eeg": []}, "no predictions"),
    "seeds": (
        {"eeg": rows(), "noise": rows(seed=1)},
        "differ in the number of rows for some sentence, subject and seed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence(case):
    conditions, message = REFUSED[case]
    with pytest.raises(UserError, match=message) as error:
        align(conditions)
    assert "\n" not in str(error.value)


def test_common_refuses_where_nothing_is_shared():
    with pytest.raises(UserError, match="share no row"):
        align({"eeg": rows(), "noise": rows(subject="B")}, common=True)


def test_metadata_joins_on_the_reference(tmp_path):
    path = tmp_path / "meta.csv"
    lines = ["reference,subject,task,n_words", *(f"{row(i).reference},S{i},SR,{i + 3}" for i in range(8))]
    path.write_text("\n".join(lines))
    joined = join_metadata(rows(), path)
    assert [(r.subject, r.task, r.n_words) for r in joined] == [(f"S{i}", "SR", i + 3) for i in range(8)]


@pytest.mark.parametrize("header", ["Sentence,Task", "text,task", "target,TASK", "reference,task_name"])
def test_metadata_may_call_the_reference_as_files_do(tmp_path, header):
    path = tmp_path / "meta.csv"
    path.write_text("\n".join([header, *(f"{r.reference},SR" for r in rows())]) + "\n")
    assert {r.task for r in join_metadata(rows(), path)} == {"SR"}


def test_a_name_is_not_cut_where_the_other_is_longer(tmp_path):
    paths = [tmp_path / name for name in ("run_half_prompt.csv", "run_half_prompt_ctl.csv")]
    assert list(read_conditions(paths[0], paths[1:], lambda path: rows())) == ["run_half_prompt", "run_half_prompt_ctl"]


def test_metadata_with_a_line_per_row_goes_in_order(tmp_path):
    path = tmp_path / "meta.csv"
    path.write_text(f"reference,subject\n{row(0).reference},first\n{row(0).reference},second\n")
    twice = [row(0), row(0, mode="teacher_forced"), row(0, sample_id="b"), row(0, sample_id="b", mode="teacher_forced")]
    assert [r.subject for r in join_metadata(twice, path)] == ["first", "first", "second", "second"]
    seeds = [row(0, seed=seed, sample_id=name) for seed in (0, 1) for name in "ab"]
    assert [r.subject for r in join_metadata(seeds, path)] == ["first", "second"] * 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("what,task\nx,y\n", "line 1: columns are what, task; expected reference"),
        ("reference,n_words\n{0},many\n", "line 2: n_words is 'many'"),
        ("reference,n_words\n{0},7²\n", "line 2: n_words is '7²'"),  # a superscript is a digit, and no number
        ("reference,task\nnot this one,NR\n", "0 lines for the reference"),
        ("reference,task\n{0},a\n{0},b\n{0},c\n", "3 lines for the reference .*; expected 1 or 2"),
    ],
)
def test_metadata_refused(tmp_path, content, message):
    path = tmp_path / "meta.csv"
    path.write_text(content.format(row(0).reference))
    with pytest.raises(UserError, match=message):
        join_metadata([row(0), row(0, sample_id="b")], path)


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


def test_a_control_file_of_several_cells_gives_those_that_were_not_fed_eeg(tmp_path):
    sides = {"eeg.jsonl": rows(), "more.jsonl": cells()}
    paths = [tmp_path / name for name in sides]
    found = read_conditions(paths[0], paths[1:], lambda path: sides[path.name])
    assert list(found) == ["eeg", *(f"more: {a}→{b}" for a in ("eeg", "noise") for b in ("noise", "shuffled"))]


def test_select_cells_refuses_an_arm_that_is_not_there():
    with pytest.raises(UserError, match="no arm trained on 'zero'"):
        select_cells(cells(), "zero")
    with pytest.raises(UserError, match="was not evaluated with eeg"):
        select_cells([r for r in cells() if r.eval_condition != "eeg"])


def test_conditions_are_called_by_what_tells_their_files_apart(tmp_path):
    paths = [tmp_path / name for name in ("t5_x_eeg-eeg.txt", "t5_x_eeg-noise.txt", "t5_x_noise-noise.txt")]
    found = read_conditions(paths[0], paths[1:], lambda path: rows(eval_condition="unknown"))
    assert list(found) == ["eeg-eeg", "eeg-noise", "noise-noise"]


def test_a_file_is_not_its_own_control(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(UserError, match="given twice"):
        read_conditions(path, [tmp_path / "x" / ".." / "a.txt"], lambda path: rows())


def test_a_file_of_several_cells_brings_its_own_controls(tmp_path):
    found = read_conditions(tmp_path / "predictions.jsonl", [], lambda path: cells())
    assert list(found) == ["eeg", "noise", "shuffled"]
