"""Names of columns: known ones, those of a user's file, and what is asked where none is known."""

import json

import pytest
from reading import described, pairs, refusal, table, texts

from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.predictions._names import built_in
from eeg2text_jax.instrument.predictions.read import describe, read_any

TRUE = [f"they saw the {a} near the {b}" for a in ("dog", "cat", "cow", "hen") for b in ("barn", "pond")]
SAID = [f"we see {i} {text.split()[3]}" for i, text in enumerate(TRUE)]


def csv_of(names, *of):
    return table(names, *zip(*of, strict=True))


EQUAL = list(zip(TRUE, SAID, strict=True))


@pytest.mark.parametrize("names", [("model text", "human text"), ("was sagt es", "was ist wahr"), ("a", "b")])
def test_a_header_of_unknown_names_is_no_sample_and_no_order_is_guessed(write, names):
    """81 rows of 80 were read, and the predictions were taken for the references."""
    path = write(csv_of(names, SAID, TRUE), "file.csv")
    refused = refusal(path, "no column has a known name; its first rows are")
    for shown in (f"{names[0]} | {names[1]}", f"{names[1]},{names[0]}", "--columns=1,2", "--format=H"):
        assert shown in refused
    assert texts(path, columns=names[::-1]) == EQUAL


def test_numbers_of_columns_do_not_say_whether_there_is_a_header(write):
    path = write(csv_of(("model text", "human text"), SAID, TRUE))
    refusal(path, "'human text, model text' may be a header or a sample; say --format=F", columns=["2", "1"])
    assert texts(path, columns=["2", "1"], layout="F") == EQUAL
    assert len(read_any(path, columns=["2", "1"], layout="H").predictions) == len(TRUE) + 1
    headless = write("".join(csv_of((r, s), []) for r, s in EQUAL))
    assert texts(headless, columns=["1", "2"]) == EQUAL


def test_names_of_a_user_are_known(write, capsys):
    path = write(csv_of(("model text", "human text", "who"), SAID, TRUE, ["x"] * len(TRUE)))
    own = write(
        '[reference]\nnames = ["Human text"]\n[prediction]\nnames = ["model-text"]\n[field]\nsubject = ["who"]\n', "n"
    )
    found = read_any(path, names=own)
    assert pairs(found) == EQUAL
    assert {row.subject for row in found.predictions} == {"x"}
    assert main(["score", str(path), f"--names={own}", "--metrics=wer"]) == 0
    assert "reference 'human text', prediction 'model text'" in capsys.readouterr().out
    swapped = write('[reference]\nnames = ["prediction"]\n[prediction]\nnames = ["reference"]\n', "n")
    path = write(csv_of(("reference", "prediction"), SAID, TRUE))
    assert texts(path, names=swapped) == EQUAL
    paired = write('pairs = [["draft", "final"]]\n', "n")
    path = write(csv_of(("reference", "prediction", "draft", "final"), SAID, SAID, TRUE, SAID))
    refusal(path, "several columns may be reference and prediction", names=paired)
    assert texts(write(csv_of(("draft", "final"), TRUE, SAID)), names=paired) == EQUAL


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[reference\n", "not TOML"),
        ("[refernce]\nnames = []\n", "there is no section 'refernce'; did you mean 'reference'"),
        ("[reference]\nname = []\n", "there is no 'name'; did you mean 'names'"),
        ('[reference]\nnames = "gt"\n', "reference.names is 'gt'; expected a list of names"),
        ('pairs = [["a"]]\n', "expected a list of pairs of names"),
        ("reference = 3\n", r"reference is 3; expected a section \[reference\]"),
    ],
)
def test_a_file_of_names_of_another_form_is_refused(write, text, message):
    refusal(write("reference,prediction\na,b\n", "f.csv"), message, names=write(text, "names.toml"))


# Headers of published files: what is the reference, what the prediction. The texts are ours.
HEADERS = {
    "target_text,predicted_text": (0, 1),
    "sentence,prediction": (0, 1),
    "ground_truth,prediction": (0, 1),
    "true_text,llm_pred": (0, 1),
    "Expected Caption,Generated Caption": (0, 1),
    "reference_caption,generated_caption": (0, 1),
    "Input Text,Generated Text": (0, 1),
    "reference,real_eeg": (0, 1),
    "id,reference_text,hypothesis_text": (1, 2),
    "reference_text,predicted_text,wer": (0, 1),
    "trial,true_sentence,decoded_sentence": (1, 2),
    "True caption,Predicted caption": (0, 1),
    "sentence_gt,sentence_pred": (0, 1),
    "audio,transcript,hyp": (1, 2),
    "utt_id,ref,hyp,cer": (1, 2),
    "y_true,y_pred": (0, 1),
    "model_output,expected_output": (1, 0),
    "Original,Reconstructed": (0, 1),
    "label,predict,prompt": (0, 1),
    "Predicted Transcription,Correct Transcription": (1, 0),
}


@pytest.mark.parametrize("header", HEADERS)
def test_headers_of_published_sets_are_known(write, header):
    names = header.split(",")
    reference, prediction = HEADERS[header]
    columns = {reference: TRUE, prediction: SAID}
    filled = [columns.get(i, [f"0.{i}"] * len(TRUE)) for i in range(len(names))]
    assert texts(write(csv_of(names, *filled))) == EQUAL


def test_a_name_means_one_thing():
    known = built_in()
    sides = [set(known.forms[side]) for side in ("reference", "prediction")]
    assert not sides[0] & sides[1]
    assert not (sides[0] | sides[1]) & (known.fields.keys() | known.keys.keys())
    assert known.keys.keys() & known.fields.keys() == {"sample_id", "sentence_id"}


def phonemes(text):
    return " | ".join(" ".join(letter.upper() for letter in word) for word in text.split())


def test_phonemes_are_compared_with_phonemes(write):
    """BLEU-1 was 0, beside a column in which 92 % of the phonemes are right."""
    true, said = [phonemes(text) for text in TRUE], [phonemes(text) for text in SAID]
    found = read_any(write(csv_of(("true_sentence", "true_phonemes", "prediction"), TRUE, true, said)))
    plain = [[text.replace(" |", "") for text in side] for side in (true, said)]
    assert pairs(found) == list(zip(*plain, strict=True))  # the mark between words is no phoneme
    assert "in 8 rows '|' stands between the phonemes of words; it is no phoneme and is left out" in found.notes
    why = "'prediction' holds phonemes, so that 'true_phonemes' is the reference, and not 'true_sentence'"
    assert why in describe(found)
    assert "not used: 'true_sentence'" in describe(found)
    words = read_any(write(csv_of(("true_sentence", "true_phonemes", "prediction"), TRUE, true, SAID)))
    assert pairs(words) == EQUAL
    names = ("true_sentence", "true_phonemes", "pred_sentence", "pred_phonemes")
    assert texts(write(csv_of(names, TRUE, true, SAID, said))) == EQUAL
    alone = described(write(csv_of(("true_sentence", "prediction"), TRUE, said)))
    assert "'prediction' holds phonemes or single letters, and the reference 'true_sentence' holds words" in alone
    upper = [text.upper() for text in SAID]
    assert "holds phonemes" not in described(write(csv_of(("reference", "prediction"), TRUE, upper)))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_columns_of_time_are_time(write, kind):
    names = ("reference", "prediction", "recording", "onset", "duration", "order")
    columns = (TRUE, SAID, ["r1"] * 4 + ["r2"] * 4, [1.5 * i for i in range(8)], [2] * 8, [*range(4)] * 2)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    text = csv_of(names, *columns) if kind == "csv" else "".join(json.dumps(row) + "\n" for row in rows)
    found = read_any(write(text))
    times = [(row.recording, row.onset, row.duration, row.order) for row in found.predictions]
    assert times == [(r["recording"], r["onset"], 2.0, r["order"]) for r in rows]
    assert "time 'recording' and 'onset' and 'duration' and 'order'" in describe(found)


def test_columns_of_other_content_are_no_time(write):
    names = ("reference", "prediction", "order", "duration")
    found = read_any(write(csv_of(names, TRUE, SAID, ["ascending"] * 8, [3] * 8)))
    assert "not used: 'order', 'duration'" in describe(found)
    assert {row.order for row in found.predictions} == {None}
    refusal(
        write(csv_of(("truth", "pred", "onset"), TRUE, SAID, [1, "soon", *range(6)])),
        "line 3: onset is 'soon'; expected a finite number",
    )


def test_two_outputs_of_one_table_ask_which_is_the_control(write, refused):
    path = write(csv_of(("reference", "original_output", "adjusted"), TRUE, SAID, SAID[::-1]), "f.csv")
    said = refused(["audit", f"--eeg={path}", "--columns=reference,original_output,adjusted"])
    assert "which one is the control? Say --columns=REFERENCE,eeg=original_output,control=adjusted or the other" in said
    found = read_any(path, columns=["reference", "eeg=adjusted", "control=original_output"])
    assert [row.eval_condition for row in found.predictions] == ["eeg", "control"] * 8
    refusal(
        write(csv_of(("truth", "generated", "output"), TRUE, SAID, SAID)),
        "with --columns=truth,eeg=generated,control=output",
    )


def test_columns_are_listed_whole_or_with_their_number(write):
    names = [f"column number {i}" for i in range(30)]
    refusal(write(json.dumps([dict.fromkeys(names, "a b")] * 2)), "column number 7 and 22 more")
    long = [{f"a column of a long name, {i}": f"{i} and so on and on" for i in range(90)}] * 2
    lists = {"reference": [], **{f"a list {i}": ["a b"] * i for i in range(90)}}
    for content in (long, lists, {"rows": long}, {f"{i}": {f"{k}": "a b" for k in range(99)} for i in range(9)}):
        for options in ({}, {"columns": ["no", "not"]}):
            assert len(refusal(write(json.dumps(content)), **options)) < 850
    refusal(write(csv_of(names, *[TRUE] * 30)), "column number 29", columns=["column number 1", "what"], layout="F")
