"""Columns that say which rows count: the mode in other words, the part of a split, what was fed."""

import json
import types
from collections import Counter

import pytest
from reading import described, pairs, refusal, texts

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions.read import describe, read_any
from eeg2text_jax.instrument.predictions.selection import MOST_DIVIDED, groups_of, likely_groups

TEXTS = [(f"the {i} true words", f"some {i} other words") for i in range(6)]


@pytest.fixture
def read(tmp_path):
    def read(name, values, **options):
        path = tmp_path / "file.csv"
        rows = [f"{r},{p},{values[i % len(values)]}" for i, (r, p) in enumerate(TEXTS)]
        path.write_text("\n".join([f"reference,prediction,{name}", *rows]) + "\n")
        return read_any(path, **options)

    return read


@pytest.mark.parametrize(
    ("name", "value", "mode"),
    [
        ("teacher_forcing", "True", "teacher_forced"),
        ("tf", "1", "teacher_forced"),
        ("TF", "0", "free_running"),
        ("decoding", "teacher forced", "teacher_forced"),
        ("decoding", "beam search", "unknown"),
        ("mode", "Teacher-Forcing", "teacher_forced"),
        ("mode", "without TF", "free_running"),
        ("teacher_forcing", "0.5", "unknown"),
        ("mode,teacher_forcing", "free-running,True", "free_running"),
    ],
)
def test_the_mode_is_understood_in_other_words(read, name, value, mode):
    found = read(name, [value])
    assert {p.mode for p in found.predictions} == {mode}


def test_both_modes_in_one_column_are_parted(read):
    found = read("teacher_forcing", ["True", "False"], mode="free-running")
    assert [p.prediction for p in found.predictions] == [p for _, p in TEXTS[1::2]]
    assert "mode 'teacher_forcing'" in describe(found)


def test_rows_of_test_count_and_those_of_train_are_left_out(read):
    found = read("split", ["train", "Test", "val"])
    assert [p.reference for p in found.predictions] == [r for r, _ in TEXTS[1::3]]
    assert "only 2 rows of test are used; left out are 2 of train, 2 of dev" in describe(found)
    found = read("split", ["train", "val"])
    assert [p.reference for p in found.predictions] == [r for r, _ in TEXTS[1::2]]
    assert "only 3 rows of dev are used; left out are 3 of train" in describe(found)
    assert "every row is of the training part" in describe(read("split", ["train"]))
    assert len(read("split", ["fold 1", "fold 2"]).predictions) == 6
    assert "not used: 'split'" in describe(read("split", ["fold 1", "fold 2"]))


def test_rows_of_another_part_need_no_texts(tmp_path):
    rows = [{"reference": "a b", "prediction": "c", "split": "test"}, {"reference": None, "split": "train"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_any(tmp_path / "rows.jsonl")
    assert pairs(found) == [("a b", "c")]
    assert "only 1 rows of test are used; left out are 1 of train" in describe(found)


@pytest.mark.parametrize("name", ["source", "model", "kind of input"])
def test_a_column_of_another_name_that_tells_eeg_from_noise_is_not_pooled(read, name):
    with pytest.raises(UserError, match=f"the column {name.replace(' ', '_')!r} says what was fed"):
        read(name, ["EEG", "noise"])
    assert len(read(name, ["EEG", "another"]).predictions) == 6
    assert len(read(name, ["EEG"]).predictions) == 6
    assert len(read(name, ["EEG", "noise", "another"]).predictions) == 6


def test_another_recording_is_no_control(read):
    with pytest.raises(UserError, match="holds eeg and meg, which is another recording and no control"):
        read("condition", ["EEG", "MEG"])
    assert len(read("condition", ["MEG", "rest"]).predictions) == 6


NAMES = {  # header -> the columns read, or words of the refusal
    "reference,pred_eeg,pred_noise": {"eeg", "noise"},
    "subject,reference,prediction_eeg": {"eeg"},
    "truth,shuffled_prediction,eeg_prediction": {"shuffled", "eeg"},
    "truth,eeg_prediction,noise_level": {"eeg"},
    "label,generated": {"unknown"},
    "SubjectID,ground_truth,model_prediction": {"unknown"},
    "subject,Stimulus,Model output": "'Model output'; no column can be recognized as the reference among Stimulus",
    "subject,label,text,prediction": "'prediction'; no column can be recognized as the reference among label, text",
    "subject,Ground truth,said": "'Ground truth'; .* among said; name it with --columns='Ground truth,PREDICTION'",
    "ref,gt,said": "several columns may be the reference .ref, gt",
}


@pytest.mark.parametrize("header", NAMES)
def test_names_of_columns_are_known_or_the_known_one_is_said(tmp_path, header):
    path, outcome = tmp_path / "file.csv", NAMES[header]
    path.write_text(f"{header}\n" + f"{','.join('some words' for _ in header.split(','))}\n" * 2)
    if isinstance(outcome, str):
        refusal(path, outcome)
    else:
        assert {p.eval_condition for p in read_any(path).predictions} == outcome
    if "subject" in header.lower():
        assert not isinstance(outcome, set) or read_any(path).predictions[0].subject == "some words"


def test_columns_that_are_named_are_conditions_by_their_names(write):
    path = write("what,out_a,pred_eeg,pred_noise\na,b,c,d\n", "file.csv")
    found = read_any(path, columns=["what", "pred_eeg", "pred_noise"]).predictions
    assert [(p.eval_condition, p.prediction) for p in found] == [("eeg", "c"), ("noise", "d")]


def test_counts_of_one_and_unknown_conditions_read_well(write):
    path = write(",reference,prediction,subject\n0,a b,c,s1\n", "file.csv")
    said = described(path)
    assert "; 1 prediction of 1 sentence, 1 subject; mode unknown." in said
    assert "not used: the index (column 1)" in said


def labelled(labels):
    """A file whose column `topic` has these labels, a list for each reference."""
    counts = {f"reference {i}": Counter(found) for i, found in enumerate(labels)}
    return types.SimpleNamespace(groups={"topic": counts}, predictions=[], path="file.csv")


@pytest.mark.parametrize(
    ("labels", "likely"),
    [
        ([["a"], ["a"], ["b"], ["b"]], True),
        ([["a"], ["b"], ["c"], ["c"]], False),  # nearly as many labels as references
        ([["a"], ["a"], ["b"], ["b"], ["b"], [""]], False),
        ([["a"], ["a"], ["b"], ["b", "a"]], False),
        ([["a"]] * 4, False),
    ],
)
def test_a_likely_column_has_a_label_for_each_reference_and_few_labels(labels, likely):
    assert likely_groups(labelled(labels)) == ["topic"] * likely


def test_of_a_few_references_with_several_labels_the_most_frequent_counts():
    labels = [["a"], *[["b"]] * 10, ["b", "c", "c"]]
    assert 1 / len(labels) < MOST_DIVIDED
    found, notes = groups_of(labelled(labels), ["topic"])
    assert found["topic"]["reference 11"] == "c"
    assert notes == ["--groups=topic: 1 reference has several labels; the most frequent one counts"]
    with pytest.raises(UserError, match="2 of 13 references have several labels"):
        groups_of(labelled([*labels, ["a", "b"]]), ["topic"])


def test_labels_of_the_metadata_are_preferred_to_those_of_the_file(tmp_path):
    (tmp_path / "meta.csv").write_text("reference,topic\nreference 0,x\nreference 1,y\n")
    found, _ = groups_of(labelled([["a"], ["b"]]), ["topic"], tmp_path / "meta.csv")
    assert found["topic"] == {"reference 0": "x", "reference 1": "y"}


def test_a_mark_of_each_side_before_one_noun_tells_a_header_and_is_proposed(write):
    rows = ",Input Data,True thing,Predicted Thing\n0,ab,a one,a two\n1,bc,b one,b one\n"
    path = write(rows.replace(",", "\t"), "file.tsv")
    refusal(path, "such as --columns='True thing,Predicted Thing'")
    rows = texts(path, columns=["3", "4"])
    assert rows == [("a one", "a two"), ("b one", "b one")]
    path.write_text("n,said there,heard there\n0,a one,a two\n1,b one,b one\n".replace(",", "\t"))
    refusal(path, "may be a header or a sample; say --format=F", columns=["2", "3"])


def test_names_that_hold_a_known_name_are_proposed_whole(write):
    head = "ID,Topic,transcript_raw,normalised_transcript_raw,hypothesis_raw"
    rows = [("a tale", f"it is, so, {w}", f"it is so {w}", f"this is so {w}") for w in ("one", "two", "six", "ten")]
    path = write(head + "\n" + "".join(f'u{i},{t},"{r}",{n},{p}\n' for i, (t, r, n, p) in enumerate(rows)))
    refused = refusal(path, r"transcript_raw, normalised_transcript_raw, .*")
    assert refused.endswith("such as --columns=transcript_raw,hypothesis_raw.")
    found = read_any(path, columns=["transcript_raw", "hypothesis_raw"]).predictions
    assert [(row.reference, row.prediction) for row in found] == [(r, p) for _, r, _, p in rows]
    refusal(
        path,
        "there is no column 'hypothesis'; the columns are ID, Topic, transcript_raw",
        columns=["transcript_raw", "hypothesis"],
    )


def test_a_header_of_likely_names_is_proposed_and_a_sentence_is_none(write):
    rows = "".join(f"it is so {i},it is so {i}!,this is so {i}\n" for i in range(4))
    refusal(
        write("transcript_raw,transcript_norm,asr_output\n" + rows),
        r"such as --columns=transcript_raw,asr_output or .* if line 1 is a header",
    )
    path, true = write("that is true, his response\nand, so, on\n"), write("a b\nc d\n", "true.txt")
    assert read_any(path, reference=true).predictions[0].prediction == "that is true, his response"


def test_one_name_that_is_a_column_tells_a_header(write):
    path = write("wahr,gehoert\n" + "".join(f"it is {i},it was {i}\n" for i in range(4)))
    refusal(path, "there is no column 'gehört'; the columns are wahr, gehoert", columns=["wahr", "gehört"])


@pytest.mark.parametrize("name", ["ref_text_norm", "Raw reference", "caption_of_image"])
def test_a_name_beside_a_known_prediction_is_proposed(write, name):
    path = write(f"wer,{name},pred_text\n" + "".join(f"0.{i},it is {i},it was {i}\n" for i in range(4)))
    assert f"{name},pred_text" in refusal(path)


def test_columns_of_texts_are_proposed_before_short_ones(write):
    """And named first: the header begins with many others."""
    names = "flag,turn,ref_domain,pred_domain,a,b,c,d,e,ref_response,pred_response"
    rows = "".join(f"1,{i},hotel,hotel,1,2,3,4,5,the bed {i} is fine,the bed is {i}\n" for i in range(6))
    refusal(write(f"{names}\n{rows}"), r"among ref_response, pred_response, .*--columns=ref_response,pred_response\.")


def test_rows_without_both_texts_are_no_samples_of_a_table(write):
    rows = [("a b", "a c"), ("", ""), ("d e", "d f"), ("", "x"), ("g h", "")]
    objects = [{"id": i, "reference": r, "prediction": p} for i, (r, p) in enumerate(rows)]
    table = "id,reference,prediction\n" + "".join(f"{i},{r},{p}\n" for i, (r, p) in enumerate(rows))
    for text in (table, json.dumps(objects)):
        found = read_any(write(text))
        assert pairs(found) == [row for row in rows if row != ("", "")]
        assert "1 row without reference and prediction are no samples: left out" in found.notes


def test_the_one_list_of_records_in_a_list_is_read(write):
    records = [{"ground_trurh": f"the road {i} was wet", "beam": f"a road {i}", "greedy": "x"} for i in range(4)]
    path = write(json.dumps([{"wer": 3.5}, {"cer": 1.5}, records]))
    refusal(path, r"among ground_trurh, beam, greedy; .*name two with --columns=")
    found = read_any(path, columns=["ground_trurh", "beam"])
    assert [p.prediction for p in found.predictions] == [row["beam"] for row in records]
    assert "JSON list within a list" in found.layout
    schema = {
        "schema": {"fields": [{"name": "truth"}], "primaryKey": ["index"]},
        "data": records,
    }  # as pandas writes it
    assert len(read_any(write(json.dumps(schema)), columns=["ground_trurh", "beam"]).predictions) == 4


def test_the_column_that_a_prediction_is_named_after_is_proposed(write):
    """`summary` beside `predicted_summary`, though `input_text` is a known name of references."""
    rows = (f"a long article {i} of words,{r},{p}\n" for i, (r, p) in enumerate(TEXTS))
    path = write("input_text,summary,predicted_summary\n" + "".join(rows), "file.csv")
    refusal(path, "such as --columns=summary,predicted_summary")
    rows = (f"{i}.wav,{p},{r},{r} again\n" for i, (r, p) in enumerate(TEXTS))
    path.write_text("file,candidate,reference_0,reference_1\n" + "".join(rows))
    refusal(path, "name it with --columns=reference_0,candidate")
