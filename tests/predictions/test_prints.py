"""What programs print around decoded text: bars of progress, tables of pandas, tensors, numbers in labels, systems."""

import json

import pandas
import pytest
from reading import described, notebook, pairs, refusal, texts

from eeg2text_jax.instrument.predictions.read import describe, read_any

PAIRS = [(f"the {a} was {b} today", f"a {a} is {b} now") for a in ("road", "lake", "field") for b in ("wet", "dry")]
N = len(PAIRS)


def printed(form):
    return "".join(form.format(*sides, i=i) for i, sides in enumerate(PAIRS))


BARS = {
    "tqdm before a label": "\rTesting:  {i}0%|##{i}  | {i}/9 [00:0{i}<00:05,  1.50it/s]GT: {0}\nPR: {1}\n",
    "tqdm on its line": "GT: {0}\nPR: {1}\n {i}0%|\u2588\u2588  | {i}/9 [00:0{i}<?, ?it/s]\r",
    "tqdm behind a text": "GT: {0}\nPR: {1}  {i}0%|#   | {i}/9 [00:0{i}<00:05]\n",
    "Keras": "1/1 [==============================] - 0s {i}5ms/step\nGT: {0}\nPR: {1}\n",
    "Keras 3": "\x1b[1m1/1\x1b[0m \u2501\u2501\u2501\u2501 \x1b[1m0s\x1b[0m {i}5ms/step\nGT: {0}\nPR: {1}\n",
    "a bar below a label": "GT:\n{0}\nPR:\n1/9 [=>...] - ETA: 5s\x08\x081/1 [==] - 0s 2ms/step\n{1}\n",
}


@pytest.mark.parametrize("wrapped", [str, notebook], ids=["log", "notebook"])
@pytest.mark.parametrize("form", BARS.values(), ids=BARS)
def test_bars_of_progress_are_no_part_of_a_text(write, form, wrapped):
    found = read_any(write(wrapped(printed(form))))
    assert pairs(found) == PAIRS
    assert "other lines" not in describe(found)
    assert "blocks" not in describe(found)


def test_an_epoch_in_a_bar_is_an_epoch(write):
    bar = "Epoch {}:  50%|##  | 1/2 [00:01<00:05]\n"
    text = bar.format(1) + printed("GT: {0}\nPR: {1}\n") + bar.format(2) + printed("GT: {0}\nPR: {0}\n")
    refusal(write(text), "2 blocks: 1 is epoch 1 with 6 rows")


@pytest.mark.parametrize("options", [{}, {"index": False}, {"line_width": 40}])
def test_a_data_frame_that_pandas_prints_is_a_table(write, options):
    rows = [(i / 3, *pair) for i, pair in enumerate(PAIRS)]
    frame = pandas.DataFrame(rows, columns=["wer", "ground truth", "output"])
    text = f"loaded\n{frame.to_string(**options)}\ndone\n"
    for path in (write(text), write(notebook({"text/plain": text}))):
        found = read_any(path)
        assert pairs(found) == PAIRS
        assert "2 other lines are not used" in found.notes


@pytest.mark.parametrize("ruler", ["", f"{'-' * 28}  {'-' * 28}\n"])
def test_a_table_in_columns_that_begin_below_their_names_is_read(write, ruler):
    text = f"{'reference':<30}prediction\n{ruler}" + "".join(f"{r:<30}{p}\n" for r, p in PAIRS)
    assert texts(write(f"{text}done\n")) == PAIRS
    one = f"{'reference':>22}  {'prediction':>17}\n{PAIRS[0][0]:>22}  {PAIRS[0][1]:>17}\n"
    assert texts(write(one)) == PAIRS[:1]  # without an index


def test_what_pandas_leaves_out_is_said(write):
    frame = pandas.DataFrame([(r * 4, p) for r, p in PAIRS * 20], columns=["reference", "prediction"])
    found = read_any(write(repr(frame)))
    assert len(found.predictions) == 10
    assert "10 cells end with '...': pandas cut their texts" in describe(found)
    assert "rows are left out where '...' stands: pandas cut the table" in found.notes


@pytest.mark.parametrize(
    "form",
    [
        "tf.Tensor([b'{}'], shape=(1,), dtype=string)",
        "<tf.Tensor: shape=(1,), dtype=string, numpy=array([b'{}'], dtype=object)>",
        "tf.Tensor(\n[b'{}'], shape=(1,), dtype=string)",
        'tf.Tensor(b"{}", shape=(), dtype=string)',
        "<tf.Tensor: shape=(), dtype=string, numpy=b'{}'>",
        "b'{}'",
    ],
)
def test_tensors_of_one_text_are_texts(write, form):
    log = "".join(f"GT: {form.format(r)}\nPR: {form.format(p)}\n" for r, p in PAIRS)
    assert texts(write(notebook(log))) == PAIRS


def test_lists_of_one_length_are_batches(write):
    true, said = ([pair[k] for pair in PAIRS] for k in (0, 1))
    inside = "\n ".join(f"b'{text}'" for text in true)
    text = f"GT: tf.Tensor(\n[{inside}], shape=({N},), dtype=string)\nPR: {said}\n"
    found = read_any(write(notebook(text)))
    assert pairs(found) == PAIRS
    assert "lists of one length on both sides are batches: 1 pairs of labels hold 6 texts" in found.notes
    tokens = "".join(f"GT: {r.split()}\nPR: {[*p.split()]}\n" for r, p in PAIRS)
    assert texts(write(tokens)) == PAIRS


@pytest.mark.parametrize(
    "plain",
    ["<IPython.core.display.HTML object>", "<pandas.io.formats.style.Styler at 0x7f1>", "<__main__.Show at 0x7f1>"],
)
def test_html_of_an_object_is_what_a_notebook_shows(write, plain):
    page = printed("<p><b>GT:</b> {0}<br />PR: <span style='color:red'>{1}</span></p>")
    assert texts(write(notebook({"text/plain": plain, "text/html": page}))) == PAIRS


def test_a_number_in_a_label_is_of_the_sample(write):
    path = write(printed("Example {i} CORRECT: {0}\nExample {i} PREDICTED: {1}\n"))
    refusal(path, r"lines begin with 'Example 0 CORRECT', 'Example 0 PREDICTED'")
    for labels in (["Example 0 CORRECT", "Example 0 PREDICTED"], ["CORRECT", "predicted"]):
        found = read_any(path, labels=labels)
        assert pairs(found) == PAIRS
        assert "other lines" not in describe(found)
    beams = write(printed("Truth: {0}\nBeam 1: {1}\nBeam 2: no {1}\n"))
    assert texts(beams, labels=["Truth", "Beam 1"]) == PAIRS


MARKS = [
    "REF = {0}\nHYP = {1}\n\n",
    "10:00 INFO - ref='{0}' hyp='{1}'\n",
    "REF < {0}\nHYP < {1}\n",
    "ref> {0}\nhyp> {1}\n",
]


@pytest.mark.parametrize("form", MARKS)
def test_other_marks_behind_known_labels(write, form):
    assert texts(write(printed(form))) == PAIRS


def segments(texts):
    return "<p>" + "".join(f'<seg id="{i}">{text} &amp; so</seg>\n' for i, text in enumerate(texts)) + "</p>"


def wmt(*systems):
    true, said = ([pair[k] for pair in PAIRS] for k in (0, 1))
    outputs = "".join(f'<hyp system="{name}" language="de">{segments(said)}</hyp>\n' for name in systems)
    refs = f'<ref lang="de" translator="A">{segments(true)}</ref>\n<ref translator="B">{segments(said)}</ref>'
    doc = f'<doc id="d"><src>{segments(["x"] * N)}</src>\n{refs}\n{outputs}</doc>'
    return f'<?xml version="1.0"?>\n<dataset>{doc}</dataset>'


def test_references_and_systems_of_wmt_are_pairs(write):
    expected = [(f"{r} & so", f"{p} & so") for r, p in PAIRS]
    found = read_any(write(wmt("one")))
    assert pairs(found) == expected
    assert "the first of 2 references counts" in found.notes
    both = write(wmt("one", "two"))
    refusal(both, "2 blocks: 1 is one with 6 rows, 2 is two with 6 rows")
    assert texts(both, block="2") == expected


def test_sources_of_wmt_are_no_texts(write):
    sources, true = segments(["x"] * N), segments([r for r, _ in PAIRS])
    reference = write(f"<doc><src>{sources}</src><ref>{true}</ref></doc>", "true.xml")
    outputs = write("".join(f"{p}\n" for _, p in PAIRS), "out.txt")
    assert [p.reference for p in read_any(outputs, reference=reference).predictions] == [f"{r} & so" for r, _ in PAIRS]


def test_comments_above_a_header_are_passed_over(write):
    table = "reference,prediction\n" + printed("{0},{1}\n")
    found = read_any(write(f"# of model x, on a day\n# seed: 3\n{table}", "file.csv"))
    assert pairs(found) == PAIRS
    assert "2 lines of comments above the table are not used" in found.notes
    one = read_any(write("# of model x\n" + table, "file.csv"))
    assert pairs(one) == PAIRS
    assert "1 lines of comments above the table are not used" in one.notes
    hashed = "#id,reference,prediction\n" + printed("{i},{0},{1}\n")
    assert texts(write(hashed, "file.csv")) == PAIRS


def rows(better=False):
    return [{"reference": r, "prediction": r if better else p} for r, p in PAIRS]


def test_lists_of_models_in_json_are_blocks(write):
    one = write(json.dumps({"date": "x", "results": {"small": rows()}}))
    assert texts(one) == PAIRS
    for content in (
        {"results": {"small": rows(), "large": rows(better=True)}},
        {"small": {"wer": 3, "samples": rows()}, "large": {"wer": 1, "samples": rows(better=True)}},
    ):
        path = write(json.dumps(content))
        refusal(path, r"2 blocks: 1 is .*small.* with 6 rows, 2 is .*large.* with 6 rows")
        assert texts(path, block=1) == PAIRS


def test_lists_of_turns_in_json_are_rows(write):
    dialogues = [[{"turn": k, **row} for k, row in enumerate(rows()[i : i + 2])] for i in range(0, N, 2)]
    found = read_any(write(json.dumps(dialogues)))
    assert pairs(found) == PAIRS
    assert "blocks" not in describe(found)
    turns = [
        [{"speaker": "U", "text": "where?"}, {"speaker": "S", "text": r, "references": [r, "x"]}] for r, _ in PAIRS
    ]
    outputs = write(json.dumps([{"id": i, "response": p} for i, (_, p) in enumerate(PAIRS)]), "out.json")
    found = read_any(outputs, reference=write(json.dumps(turns), "true.json"))
    assert pairs(found) == PAIRS
    assert "6 items without two texts are not used, such as item 1" in found.notes
    log = {name: [{"loss": 0.3}, *some] for name, some in (("small", rows()), ("large", rows(better=True)))}
    assert texts(write(json.dumps({"runs": log})), block=1) == PAIRS
    targets = [{"target": i % 2 == 0, "response": p} for i, (_, p) in enumerate(PAIRS)]
    lines = write("".join(f"{r}\n" for r, _ in PAIRS), "true.txt")
    assert texts(write(json.dumps(targets)), reference=lines) == PAIRS  # yes and no are no references
    missing = json.dumps([{"what": {"a": "b"}, "n": 1}, {"n": 2}])
    assert "object object" not in refusal(write(missing))


def test_all_tables_of_a_text_are_shown(write):
    def table(*names, some=PAIRS):
        return f"\n| {' | '.join(names)} |\n|---|---|\n" + "".join(f"| {r} | {p} |\n" for r, p in some)

    path = write("# Title\n" + table("Said", "Meant", some=PAIRS[:3]) + table("Heard", "Told"))
    refusal(path, r"--columns=Heard,Told .*3 rows\): name two .*--columns=Said,Meant")
    assert texts(path, columns=["Said", "Meant"]) == PAIRS[:3]


def test_columns_of_one_name_are_named_by_number(write):
    path = write("ank,ank\n" + printed("{0},{1}\n"))
    refused = refusal(path, r"such as --columns=1,2 or --columns=2,1, with --format=H")
    assert "ank,ank or" not in refused
    path = write("reference,said,said\n" + printed("{0},{1},x\n"))
    refusal(path, "two columns are named 'said'; name the columns by number", columns=["reference", "said"])


@pytest.mark.parametrize(("end", "said"), [(" .", False), (".", False), (" endseq", True), (" <end>", True)])
def test_a_word_at_the_end_of_all_texts_is_said_and_a_mark_is_not(write, end, said):
    rows = [(r, p.replace("now", "today")) for r, p in PAIRS]
    one = write("reference,prediction\n" + "".join(f"{r},{p}{end}\n" for r, p in rows))
    wrong = f"6 predictions end with '{end[1:]}', and no reference does: it counts as a wrong word"
    assert (wrong in described(one)) == said
    assert ("predictions end with" in described(one)) == said
    both = write("reference,prediction\n" + "".join(f"{r}{end},{p}{end}\n" for r, p in rows))
    assert (f"references end with '{end[1:]}': it counts as a right word" in described(both)) == said
