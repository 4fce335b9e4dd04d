"""Printed pairs with labels: alone, in the log of a training, on one line, in the outputs of a notebook."""

import contextlib
import json
import re
import time

import pytest
from reading import described, pairs, refusal, texts

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.predictions.read import describe, read_any

PAIRS = [(f"the {a} was {b} today", f"a {a} is {b}") for a in ("road", "field", "lake") for b in ("wet", "dry", "long")]

LABELS = [
    "True Sentence: {}\nPred Sentence: {}\n\n",
    "  GT : {}\n  PR : {}\n",
    "**Reference:** {}\n**Prediction:** {}\n",
    "Sample 3 - Ground truth: {}\nSample 3 - Decoded: {}\n",
    "[INFO] target sentence: {}\n[INFO] predicted sentence: {}\n",
    "\x1b[32mTruth:\x1b[0m {}\n\x1b[31mPred:\x1b[0m {}\n",
    'Target: "{}"\nOutput: "{}"\n',
]


def printed(pair, between="", pairs=PAIRS):
    return "".join(pair.format(*sides, i=i) + between.format(i=i) for i, sides in enumerate(pairs))


@pytest.mark.parametrize("pair", LABELS)
def test_names_of_columns_are_names_of_labels(write, pair):
    found = read_any(write(printed(pair)))
    assert pairs(found) == PAIRS
    assert "layout C2 (labelled lines; reference" in describe(found)
    assert not found.notes


BETWEEN = [
    "2026-01-08 15:36:43,960: val PER: 1.0{i}\n2026-01-08 15:36:44,1: WER debug example\n",
    "Epoch 1 step {i}: loss 0.3\n",
    "saved checkpoint to out/model_{i}.pt\n\n",
    "{{'loss': 0.{i}, 'lr': 1e-4}}\n",
]


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize(
    "pair",
    [
        LABELS[1],
        "Pred: {1}\nTrue: {0}\n",
        "12:00:01 | Target: {} \n12:00:02 | Output: {}\n",
        "INFO:root:[7] Ground truth -> {}\nINFO:root:[7] Decoded -> {}\n",
    ],
)
def test_pairs_among_the_lines_of_a_log_are_read_and_the_lines_counted(write, pair, between):
    found = read_any(write("Model(512, 256)\n" + printed(pair, between)), block="all")
    assert pairs(found) == PAIRS
    lines = 1 + len(PAIRS) * len([line for line in between.split("\n") if line])
    assert f"{lines} other lines are not used, such as line 1: 'Model(512, 256)'" in describe(found)


def test_a_line_that_may_be_the_rest_of_a_text_is_the_one_that_is_shown(write):
    text = "step 1: loss 3\n" + printed(LABELS[1]) + "and more of this text\nstep 2: loss 3\n"
    said = described(write(text), block="all")
    assert (
        "3 other lines are not used, 1 of them directly below a text, which may go on there, such as line 20: " in said
    )
    assert "such as line 20: 'and more" in said


def test_a_pair_without_a_partner_is_left_out_and_said(write):
    whole = printed(LABELS[1], "step {i}: loss 3\n")
    for cut, at in ((f"  PR : {PAIRS[2][1]}\n", 7), (f"  GT : {PAIRS[2][0]}\n", 7)):
        found = read_any(write(whole.replace(cut, "")), block="all")
        assert pairs(found) == [*PAIRS[:2], *PAIRS[3:]]
        assert f"1 labels without a partner are not used, such as line {at}: " in describe(found)
    found = read_any(write(printed(LABELS[1]).replace(f"  PR : {PAIRS[2][1]}\n", "")))
    assert pairs(found) == [*PAIRS[:2], *PAIRS[3:]]
    assert "such as line 5: 'GT : " in describe(found)
    refusal(write("GT: a b\nPR: c d\n" * 3 + "PR: e f\nGT: g h\n"), "line 8: 'GT: g h' has no partner")
    text = "Real: a b\nSaid: c d\nSaid: e f\nReal: g h\nSaid: i j\n"
    assert texts(write(text), labels=["Real", "Said"]) == [("a b", "c d"), ("g h", "i j")]


@pytest.mark.parametrize(
    "pair",
    [
        "Predicted: {1} True: {0} ====================\n",
        "[12:30] True: {0} | Predicted: {1}\n",
        "Sample 1: Reference: {0}, Hypothesis: {1}\n",
        "target: {0}\tprediction: {1}\n",
    ],
)
def test_pairs_on_one_line(write, pair):
    found = read_any(write(printed(pair)))
    assert pairs(found) == PAIRS
    found = read_any(write(printed(pair, "loss: 0.{i}\n")))
    assert pairs(found) == PAIRS
    assert "9 other lines are not used" in describe(found)


def test_other_labels_are_asked_for_and_taken(write, capsys):
    path = write(printed("heard> {}\nmodel says> {}\n", "loss {i}\n"))
    assert "neither a known layout" in refusal(
        path, "'heard', 'model says'; name the labels with --labels=.*--reference="
    )
    assert texts(path, labels=["heard>", "model says>"]) == PAIRS
    path = write(printed("Brain said: {}\nStimulus was: {}\n"))
    refusal(path, r"lines begin with 'Brain said', 'Stimulus was'; .* --labels=TRUE,PREDICTED")
    assert texts(path, labels=["Brain said", "stimulus was:"]) == PAIRS
    assert main(["score", str(path), "--labels=Brain said,Stimulus was", "--metrics=wer"]) == 0
    assert "labelled lines; reference 'Brain said', prediction 'Stimulus was'" in capsys.readouterr().out
    for labels, message in (
        (["Brain said"], "expected two labels"),
        (["x", "y"], "no pairs of lines begin with these labels"),
    ):
        refusal(path, message, labels=labels)


def test_several_labels_of_a_side_are_asked_about(write):
    path = write(printed("Target: {0}\nOutput: {1}\nPredicted: {1}\n"))
    refusal(path, r"several labels may be meant .*'output', 'predicted'.; name two with --labels=")
    assert texts(path, labels=["Target", "Predicted"]) == PAIRS
    both = read_any(write(printed("Target: {0}\nPrediction: {1}\nPrediction with tf: {0}\n")))
    assert [row.mode for row in both.predictions[:2]] == ["free_running", "teacher_forced"]


def notebook(text):
    cells = [{"cell_type": "markdown", "source": ["Target: not this one\n"]}]
    printed = {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
    for output in (printed, {"output_type": "execute_result", "data": {"text/plain": ["0.5"]}}):
        cells.append({"cell_type": "code", "source": ["print(x)"], "outputs": [output]})
    return json.dumps({"cells": cells, "nbformat": 4})


def test_the_printed_outputs_of_a_notebook_are_a_log(write):
    found = read_any(write(notebook(printed(LABELS[1], "loss: {i}\n")), "work.ipynb"))
    assert pairs(found) == PAIRS
    assert "printed outputs of a notebook" in describe(found)
    message = "a notebook whose printed outputs have no samples of known labels"
    refusal(write(notebook("hello\n"), "work.ipynb"), message)
    assert texts(write(notebook(printed("A> {}\nB> {}\n"))), labels=["A>", "B>"]) == PAIRS
    series = printed("True caption:\n{}\nGenerated caption:\n32     {}\nName: generated, dtype: object\n")
    assert texts(write(notebook(series), "series.ipynb")) == PAIRS


def test_a_number_between_a_label_and_its_colon_is_no_text(write):
    text = "".join(
        f"step {i}: loss 0.1\nSource {i % 3}: x\nTruth {i % 3}: {r}\nSample {i % 3}: {p}\n"
        for i, (r, p) in enumerate(PAIRS)
    )
    assert texts(write(text), labels=["Truth", "Sample"], block="all") == PAIRS


PROSE = [
    "He wrote a sentence: it was long.\nShe read the text: it was short.\n" * 5,
    "text: a b\n" * 6,
    "loss: 3\nacc: 4\n" * 6,
]


@pytest.mark.parametrize("text", PROSE)
def test_other_texts_with_colons_are_no_pairs(write, text):
    refusal(write(text), "neither a known layout")


NBEST = ["the road was wet", "the road is wet", "a road was wet"]


@pytest.mark.parametrize(
    "content", ["\n".join(f"{i}. {t}" for i, t in enumerate(NBEST, 1)), "; ".join(NBEST), "\n".join(NBEST)]
)
def test_the_first_of_the_candidates_in_a_chat_is_the_prediction(write, content):
    turns = [{"role": "system", "content": "correct"}, {"role": "user", "content": content}]
    rows = [{"messages": [*turns, {"role": "assistant", "content": f"the road {i} was wet"}]} for i in range(3)]
    found = read_any(write("".join(json.dumps(row) + "\n" for row in rows)))
    assert pairs(found) == [(f"the road {i} was wet", NBEST[0]) for i in range(3)]
    assert "the first is the prediction, the assistant's text is the reference" in describe(found)


def test_the_first_of_a_list_of_the_n_best_is_the_prediction(write):
    best = [{"text": text, "score": -1.5} for text in NBEST]
    found = read_any(write("".join(json.dumps({"reference": r, "nbest": best}) + "\n" for r, _ in PAIRS)))
    assert pairs(found) == [(r, NBEST[0]) for r, _ in PAIRS]
    assert "in 9 rows predictions hold several texts; the first of them counts" in describe(found)


def bar(cells):
    return f"| {' | '.join(cells)} |\n"


PRINTED = {
    "texts below their labels": printed("Ground truth:\n{}\nDecoded:\n{}\n\n", "loss: 0.{i}\n"),
    "equals signs": printed("target = {}\npred = {}\n"),
    "headings": printed("### Sample {i}\n- **Target:** {0}\n- **Predicted:** {1}\n"),
    "fairseq": printed(
        "S-{i}\tx\nT-{i}\t{0}\nH-{i}\t-0.5\t{1}\nD-{i}\t-0.5\t{1}\nP-{i}\t-0.1 -0.2\nH-{i}\t-0.9\tnot {1}\n"
    ),
    "printed dicts": "".join(f"{ {'target': r, 'prediction': p, 'wer': 0.5} }\n" for r, p in PAIRS),
    "bars": "reference|prediction\n" + printed("{0}|{1}\n"),
    "a colon and an equals sign": printed("SOURCE    := x\nEXPECTED  := {}\nPREDICTED := {}\n"),
    "a logger": printed(
        "".join(
            f"2024-05-04 13:03:20,688 - INFO - my.training - \t{m}\n"
            for m in ("Source: x", "Reference:  {}", "Hypothesis: {}")
        )
    ),
    "indented blocks": printed("Example #0\n\tSource: x\n\tReference: {}\n\tHypothesis: {}\n"),
    "rulers": printed("SOURCE: x\nEXPECTED: {}\nPREDICTED: {}\n----------\nWER : 0.5\n----------\n", "```text\n"),
    "Kaldi": printed("u_{i} ref  {0}\nu_{i} hyp  *** {1}\nu_{i} op C\nu_{i} #csid 1\n"),
    "SpeechBrain": "%WER 1.0\nALIGNMENTS\n\nFormat:\n<utterance-id>, WER DETAILS\n<eps> ; a\n  I ; S\n b ; c\n"
    + "".join(
        f"{'=' * 80}\nu{i}, %WER 8.5 [ 2 / 4, 1 ins, 0 del, 1 sub ]\n{' ; '.join(r.split())}\n = ; S \n"
        f"<eps> ;  {'  ; '.join(p.split())} \n"
        for i, (r, p) in enumerate(PAIRS)
    ),
    "sclite": printed("id: (a-1)\nScores: (#C #S) 1 2\nREF:  {} \nHYP:  ***** {} \nEval:  D\n\n"),
    "icefall": "".join(f"a{i}:\tref={r.split()}\na{i}:\thyp={p.split()}\n" for i, (r, p) in enumerate(PAIRS)),
    "a table in a log": "[1/2] loss: 3\nGround Truth  | Prediction | Score & T/F\n"
    + "-" * 40
    + "\n"
    + printed("{0}  | {1} | 0.5\tTrue\n")
    + "-" * 40
    + "\n[2/2] loss: 2\n",
    "Markdown": bar(["Reference", "Prediction"]) + "|---|:--:|\n" + "".join(map(bar, PAIRS)),
}


@pytest.mark.parametrize("name", PRINTED)
def test_more_forms_of_print_are_read(write, name):
    assert texts(write(PRINTED[name])) == PAIRS


@pytest.mark.parametrize("order", [("Predicted", "Target"), ("Target", "Predicted")])
def test_a_field_with_a_label_is_of_its_sample_and_half_a_sample_is_left_out(write, order):
    """In either order of the texts, beside losses; of a sample without one text the other one joins no neighbor."""
    texts = [{"Subject": f"S{i % 4}", "Target": r, "Predicted": f"{p} {i}"} for i, (r, p) in enumerate(PAIRS)]
    expected = [(of["Subject"], of["Target"], of["Predicted"]) for of in texts]
    whole = [f"{name}: {of[name]}\n" for of in texts for name in ("Subject", *order)]
    found = read_any(write("".join(f"{line}loss: 0.5\n" * (i % 3 == 2) or line for i, line in enumerate(whole))))
    assert [(row.subject, row.reference, row.prediction) for row in found.predictions] == expected
    lines = [f"{name}: {of[name]}\n" for of in texts for name in order]
    found = read_any(write("".join(line for i, line in enumerate(lines) if i != 5) + "loss: 0.5\n"))
    assert pairs(found) == [(reference, said) for i, (_, reference, said) in enumerate(expected) if i != 2]
    assert "1 labels without a partner are not used" in describe(found)


def test_labels_before_a_hyphen_are_proposed_and_read(write):
    path = write("".join(f"SOURCE - {p}?\nTARGET - - {r} - so\nPREDICTED - {p}\n{'=' * 20}\n" for r, p in PAIRS))
    refusal(path, r"begin with 'SOURCE', 'TARGET', 'PREDICTED'; .*--labels=TARGET,PREDICTED;")
    assert texts(path, labels=["TARGET", "PREDICTED"]) == [(f"- {r} - so", p) for r, p in PAIRS]


def test_lines_without_labels_are_shown(write):
    path = write("".join(f"photo_{i}.jpg\n{p.split()}\n{[r.split()]}\n" for i, (r, p) in enumerate(PAIRS)))
    first = repr(str(PAIRS[0][1].split()))
    refusal(path, re.escape(f"its first lines are 'photo_0.jpg', {first[:20]}"))


def test_marks_among_letters_are_no_labels(write):
    path = write("".join(f"Al>b{i} well-{i} (u-{i})\nw<x{i} b=c (v-{i})\n" for i in range(9)))
    refused = refusal(path, r"at least two columns; .* give its references with --reference=FILE")
    assert "lines begin with" not in refused


def test_an_empty_output_is_no_label_of_the_line_below(write):
    found = read_any(write(printed("True: {0}\nPred: \n", "step {i}: loss 0.1\n")), block="all")
    assert {p.prediction for p in found.predictions} == {""}


@pytest.mark.parametrize(
    "noise", ["1" * 50_000, "[" * 20_000, "= " * 20_000, "(" * 20_000, "a: " * 10_000, "-" * 50_000 + "x"]
)
def test_a_long_line_takes_no_time(write, noise):
    """A pattern for what may stand before a label tried each way to divide a line of digits."""
    start = time.process_time()
    text = printed("GT: {}\nPR: {}\n", f"{noise}x: loss 0.1\n") + f"{noise}GT: a b\n"
    with contextlib.suppress(UserError):
        read_any(write(text))
    assert time.process_time() - start < 5


def test_a_comma_that_ends_a_text_before_the_next_label_stays(write):
    text = "".join(f"Reference: {r}{',' * (i == 0)} Hypothesis: {p}\n" for i, (r, p) in enumerate(PAIRS))
    assert texts(write(text))[0] == (f"{PAIRS[0][0]},", PAIRS[0][1])


@pytest.mark.parametrize(
    "labels",
    [
        ("Actual Welsh", "Translated Welsh"),
        ("Target output", "Draft output", "Final output"),
        ("Input row", "Target row", "Predicted row"),
        ("Target row", "Predicted row", "Input row"),
    ],
)
def test_two_labels_of_one_noun_are_proposed(write, labels):
    true = next(label for label in labels if label.startswith(("Actual", "Target")))
    said = next((label for label in labels if label.startswith("Predicted")), labels[-1])
    text = "".join(f"Sentence: {i}\n" + "".join(f"{label}: a b {i}\n" for label in labels) for i in range(4))
    refusal(write(text), rf"such as --labels='{true},{said}'")


def test_lines_above_printed_lists_are_labels_that_are_proposed(write):
    true, said = ([pair[k] for pair in PAIRS] for k in (0, 1))
    text = f"Dataset({{\n    features: ['id']\n}})\nPred str before\n{said}\nLabel str before\n{true}\n"
    path = write(notebook(text))
    refusal(path, r"such as --labels='Label str before,Pred str before'")
    assert texts(path, labels=["Label str before", "Pred str before"]) == PAIRS


@pytest.mark.parametrize("labels", [["GroundTruth", "Translation"], ["【GroundTruth】", "【Translation】"]])
def test_labels_in_brackets_need_no_colon(write, labels):
    said = ["he said : no", '" quoted', "plain words"]
    path = write("".join(f"【待翻译】{t}\n【Translation】{t} b\n【GroundTruth】{t}\n" for t in said))
    refusal(path, "lines begin with '待翻译', 'Translation', 'GroundTruth'; name the labels")
    assert texts(path, labels=labels) == [(t, f"{t} b") for t in said]


def test_marks_and_figures_that_all_texts_have_are_said(write):
    words = ("city", "river", "stone")
    path = write(
        "".join(
            f"True text='{w}', level=hard\n  CNN : {w} (Confidence: 0.9{i}, Time: {i} ms)\n"
            for i, w in enumerate(words)
        ),
        "log.txt",
    )
    said = described(path, labels=["True text", "CNN"])
    assert "nearly all references end alike, as \"'city', level=hard\"" in said
    assert "nearly all predictions end alike, as 'city (Confidence: 0.90, Time: 0 ms)'" in said
    path.write_text("".join(f"Beam (k=3) : a {w}\nTrue : {i}. a {w}\n" for i, w in enumerate(words)))
    found = read_any(path, labels=["True", "Beam (k=3)"])
    assert [p.prediction for p in found.predictions] == [f"a {w}" for w in words]
    assert "nearly all references begin alike, as '0. a city'" in describe(found)
