"""Files whose pairs are of several parts: epochs, sections, tables, cells of a notebook, systems."""

import json

import pytest
from reading import described, pairs, refusal, texts

from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.predictions.read import describe, read_any

PAIRS = [(f"the {a} was {b} today", f"a {a} is {b}") for a in ("road", "field", "lake") for b in ("wet", "dry", "long")]
BETTER = [(r, r.replace("today", "now")) for r, _ in PAIRS]


def labelled(some):
    return "".join(f"GT: {r}\nPR: {p}\n" for r, p in some)


def barred(some):
    return "\n| Reference | Prediction |\n|---|---|\n" + "".join(f"| {r} | {p} |\n" for r, p in some)


def notebook(*texts):
    outputs = [[{"output_type": "stream", "text": text}] for text in texts]
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "outputs": of} for of in outputs]})


def table(some):
    return "reference,hypothesis\n" + "".join(f"{r},{p}\n" for r, p in some)


TWO = {  # a file of two systems -> names of its blocks
    "epochs": ("".join(f"Epoch {n}/2 loss: 0.1\n{labelled(s)}" for n, s in ((1, PAIRS), (2, BETTER))), "1 is epoch 1"),
    "steps": (
        "".join(f"[{n}000/9000] Train loss: 0.1\n{labelled(s)}" for n, s in ((1, PAIRS), (2, BETTER))),
        "1 is step 1000",
    ),
    "headings": (
        f"# Small\n\n{labelled(PAIRS)}\n# Large\n{labelled(BETTER)}",
        "1 is 'Small' with 9 rows, 2 is 'Large'",
    ),
    "lines with a colon": (
        f"Results of one:\n{labelled(PAIRS)}\nResults of two:\n{labelled(BETTER)}",
        "'Results of one'",
    ),
    "ruled lines": (f"Reader A\n=====\n{labelled(PAIRS)}\nReader B\n=====\n{labelled(BETTER)}", "1 is 'Reader A'"),
    "lists of folds": (
        json.dumps(
            {
                f"fold_{k}": dict(zip(("gt", "pred"), zip(*some, strict=True), strict=True))
                for k, some in ((0, PAIRS), (1, BETTER))
            }
        ),
        "1 is fold_0 with 9 rows, 2 is fold_1",
    ),
    "marked lines": (f"=== one ===\n{labelled(PAIRS)}\n=== two ===\n{labelled(BETTER)}", "1 is 'one'"),
    "tables": (barred(PAIRS) + barred(BETTER), "1 is table of line 2 with 9 rows"),
    "cells": (notebook(labelled(PAIRS), labelled(BETTER)), "1 is cell 1 with 9 rows, 2 is cell 2"),
    "tables of cells": (notebook(barred(PAIRS), barred(BETTER)), "1 is cell 1, table of line 2"),
}


@pytest.mark.parametrize("name", TWO)
def test_blocks_of_the_same_references_are_asked_about_and_chosen(write, name):
    text, named = TWO[name]
    path = write(text)
    refused = refusal(path, r"; --block=N takes one, --block=last the last, --block=all")
    assert f"2 blocks: {named}" in refused.replace("1 is 'Results", "'Results")
    assert texts(path, block=1) == PAIRS
    last = read_any(path, block="last")
    assert pairs(last) == texts(path, block="2") == BETTER
    assert "only block 2 of 2 is used" in describe(last)
    pooled = read_any(path, block="all")
    assert pairs(pooled) == PAIRS + BETTER
    assert "all rows count as one system's outputs, as stated" in describe(pooled)
    refusal(path, r"--block=3: there is no such block; .* has 2 blocks: ", block=3)


def test_blocks_of_other_references_are_asked_about_too(write):
    """They may be validations that show other samples each, the first ones of an untrained model."""
    for text in (notebook(labelled(PAIRS[:4]), labelled(PAIRS[4:])), barred(PAIRS[:4]) + barred(PAIRS[4:])):
        path = write(text)
        refusal(path, r"in several parts of the file .2 blocks: 1 is .*--block=all all")
        assert texts(path, block="all") == PAIRS
        assert texts(path, block="last") == PAIRS[4:]


def test_one_pair_an_epoch_is_said_and_one_a_section_is_not(write):
    steps = "".join(f"[{n}000/9000] Train loss: 0.{n}\n{labelled([one])}" for n, one in enumerate(PAIRS))
    refusal(write(steps), "9 blocks: 1 is step 0000 with 1 row")
    for head in ("### Sample {}\n", "=== sentence {} ===\n", "[{}/9] a/b.wav\n"):
        text = "".join(head.format(n) + labelled([one]) for n, one in enumerate(PAIRS))
        assert not read_any(write(text)).notes or "blocks" not in described(write(text))
    text = "Epoch 1 loss 2\nEpoch 2 loss 1\n" + labelled(PAIRS) + "Epoch 3 loss 1\n"
    assert "blocks" not in described(write(text))
    refusal(write(text), r"--block=2: there is no such block; .* has one block only", block=2)
    assert texts(write(text), block="last") == PAIRS


def test_a_column_of_systems_is_named_and_one_is_chosen(write):
    rows = [(system, r, p) for system, some in (("a", PAIRS), ("b", BETTER)) for r, p in some]
    path = write("backend,reference,hypothesis\n" + "".join(",".join(row) + "\n" for row in rows))
    said = described(path)
    assert "'backend' is not used, and each of its 2 values has the same 9 references (2 blocks: 1 is a with" in said
    assert "--block=N takes one, --block=last the last; if they are systems" in said
    assert texts(path, block=2) == BETTER
    rows[0] = ("a", "of one system alone", "x")
    other = write("backend,reference,hypothesis\n" + "".join(",".join(row) + "\n" for row in rows))
    assert "'backend' is not used, and" not in described(other)


def test_several_columns_of_systems_are_combined(write):
    rows = [(a, b, r, p) for a in ("de", "en") for b in ("raw", "cut") for r, p in PAIRS]
    path = write("language,cleaning,reference,hypothesis\n" + "".join(",".join(row) + "\n" for row in rows))
    said = described(path)
    why = "'language' and 'cleaning' are not used, and each of their values has the same 9 references (4 blocks:"
    assert why in said
    assert "2 is de, cut with 9 rows" in said
    assert texts(path, block=2) == PAIRS


def test_batches_of_training_beside_a_validation_are_said(write):
    log = "".join(f"Epoch {i} loss 1\n{labelled([(f'only in {i}', 'a b'), *PAIRS])}" for i in (1, 2))
    said = described(write(log), block=2)
    assert "9 of its 10 rows have references of other blocks, and the rest do not: batches of training" in said


def test_a_label_without_a_text_and_a_figure_are_no_headings(write):
    rows = "".join(f"Source: {'x' * (i != 4)}\nTarget: {r}\nPredicted: {p}\n" for i, (r, p) in enumerate(PAIRS))
    assert texts(write(rows)) == PAIRS
    rows = "".join(
        f"Target: {r}\nPredicted: {p}\n" + "WER: 0.5\n-------\n" * (i == 4) for i, (r, p) in enumerate(PAIRS)
    )
    assert texts(write(rows)) == PAIRS


def test_of_sentences_that_recur_one_time_is_chosen(write):
    path = write(table(PAIRS + BETTER))
    said = described(path)
    assert "18 rows share their reference with another row" in said
    assert "(2 blocks: 1 is pass 1 with 9 rows, 2 is pass 2 with 9 rows)" in said
    assert texts(path, block="last") == BETTER


def test_sentences_that_recur_more_and_less_often_are_no_blocks(write):
    said = described(write(table(PAIRS + BETTER[:6])))
    assert "12 rows share their reference with another row, and no known column says why: all rows count as" in said
    assert "one system's outputs; if they are systems, conditions or readers, name" in said
    assert "block" not in said
    assert "share their reference" not in described(write(table(PAIRS + BETTER[:1])))


def test_blocks_are_chosen_in_two_files(write, printed_by):
    reference = write("".join(f"{r}\n" for r, _ in PAIRS) * 2, "true.txt")
    outputs = write("system,output\n" + "".join(f"{k},{p}\n" for k in "ab" for _, p in PAIRS), "out.csv")
    assert texts(outputs, reference=reference, block=1) == PAIRS
    said = printed_by(["score", str(outputs), f"--reference={reference}", "--block=last", "--metrics=wer"])
    assert "only block 2 of 2 is used: b" in " ".join(said.split())
    assert main(["read", str(outputs), f"--reference={reference}", "--block=1"]) == 0


def test_an_epoch_with_several_validations_has_a_block_for_each(write):
    """They begin with the same reference; what is saved is of the epoch before."""
    one = "".join(f"Reference: {r}\nHypothesis: {p}\n" for r, p in PAIRS)
    log = "".join(f"Epoch {i}, loss 0.5\n{one}validated: 50, loss {i}\n{one}" for i in (1, 2))
    refusal(write(log), r"4 blocks: 1 is epoch 1, pass 1 with .* 4 is epoch 2, pass 2")
    assert texts(write(log), block="last") == PAIRS
    saved = "".join(one + f"Epoch 0000{i}: saving model to a.ckpt\n" for i in (1, 2))
    refusal(write(saved), "2 blocks: 1 is pass 1 with 9 rows, 2 is pass 2 with 9 rows")


def test_a_block_whose_references_repeat_is_said(write):
    rows = "".join(f"Reference: {r}\nHypothesis: {p}\n" for r, p in [*PAIRS, *PAIRS[::-1]])
    log = "".join(f"Epoch {i}, loss 0.5\n" + rows for i in (1, 2))
    read = read_any(write(log), block=1)
    assert len(read.predictions) == 2 * len(PAIRS)
    assert any("share their reference" in note for note in read.notes)


def test_the_last_of_many_blocks_is_named(write):
    log = "".join(f"Epoch {i}, loss 0.5\nReference: {r}\nHypothesis: {p}\n" * 2 for i in range(9) for r, p in PAIRS[:1])
    refusal(write(log), r"and \d+ more, the last \d+ is epoch 8", block="none")


def test_a_column_of_epochs_and_one_of_train_and_val_divide_a_table(write):
    """The split is known by its values; of what is validated, each epoch is a block."""
    rows = [
        f"{kind},{k},{r},{p}{k}\n"
        for k in (1, 2)
        for kind, some in (("train", PAIRS[k : k + 2]), ("val", PAIRS[4:]))
        for r, p in some
    ]
    table = "Kind,Epoch,GT,Predicted\n" + "".join(rows)
    refusal(write(table), rf"2 blocks: 1 is 'Epoch' 1 with {len(PAIRS[4:])} rows, 2 is 'Epoch' 2")
    read = read_any(write(table), block="last")
    assert pairs(read) == [(r, f"{p}2") for r, p in PAIRS[4:]]
    assert any("only 10 rows of dev are used" in note for note in read.notes)


def test_rows_of_a_table_are_no_labelled_lines(write):
    """Alignments word by word in HTML, beside the lines of two systems, which are asked for."""
    page = "".join(
        f"<table><tr><td>REF: </td><td>{'</td><td>'.join(r.split())}</td></tr>"
        f"<tr><td>HYP: </td><td>{'</td><td>'.join(p.split())}</td></tr></table>"
        for r, p in PAIRS
    )
    cells = [{"output_type": "stream", "text": "".join(f"ref: {r}\norig hyp: {p}\nmod hyp: {p} x\n" for r, p in PAIRS)}]
    cells += [{"output_type": "display_data", "data": {"text/html": page}}]
    path = write(json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "outputs": cells}]}))
    refusal(path, r"such as --labels='?ref,(orig|mod) hyp")
    assert texts(path, labels="ref,orig hyp") == PAIRS


def test_labels_and_the_part_of_a_log_are_asked_for_at_once(write):
    log = "".join(f"Epoch {i} loss 1\n" + "".join(f"Heard: {r}\nMeant: {p}\n" for r, p in PAIRS) for i in (1, 2))
    for text in (log, notebook(log)):
        path = write(text)
        refusal(path, r"labels with --labels=TRUE,PREDICTED, and with --block=last or all which")
        assert texts(path, labels=["Heard", "Meant"], block="last") == PAIRS


def test_batches_in_several_cells_have_a_block_each(write):
    """The rows of a batch were counted as one: the second block could not be taken."""
    one, two = (f"GT: {[r for r, _ in some]}\nPR: {[p for _, p in some]}\n" for some in (PAIRS, BETTER))
    path = write(notebook(one, two))
    refusal(path, "2 blocks: 1 is cell 1 with 9 rows, 2 is cell 2 with 9 rows")
    assert texts(path, block="last") == BETTER


def test_the_last_table_of_a_log_is_the_last_even_if_it_stood_before(write):
    """A validation may print what an earlier one has printed."""
    log = "".join(f"[{n}000/9000] Train loss: 1\n{barred(some)}" for n, some in enumerate((PAIRS, BETTER, PAIRS)))
    last = read_any(write(log), block="last")
    assert pairs(last) == PAIRS
    assert "step 2000" in describe(last)


def test_a_traceback_divides_no_log(write):
    text = labelled(PAIRS[:4]) + 'Traceback (most recent call last):\n  File "a.py", line 3\n' + labelled(PAIRS[4:])
    assert texts(write(text)) == PAIRS


def test_a_part_that_repeats_another_is_named(write):
    pairs = "Target: a b {0}\nPredicted: a c {0}\nTarget: d e\nPredicted: d f\n"
    path = write("".join(f"Epoch {n}\n{pairs.format(word)}" for n, word in enumerate(("x", "x", "y"), 1)), "log.txt")
    refusal(path, r"2 is epoch 2 with 2 rows, those of 1, 3 is epoch 3 with 2 rows[)]")


def test_runs_that_are_appended_to_one_log_are_asked_about(write):
    """The names of files before the labels begin anew."""
    lines = [f"img_{i}.png | GT: B{i}40 | Pred: B{i}4 | CER: 0.25\n" for i in range(5)]
    path = write("".join(lines[:2] + lines), "log.txt")
    refusal(path, r"2 blocks: 1 is run 1 with 2 rows, 2 is run 2 with 5 rows")
    assert [p.reference for p in read_any(path, block="last").predictions] == [f"B{i}40" for i in range(5)]
    path.write_text("".join(lines))
    assert "the file has one part, which is used whole" in described(path, block="last")


def test_two_stated_labels_of_one_line_need_not_begin_it(write):
    rows = [("sit here", "setz dich her", "sitz hier"), ("sit here", "setz dich hin", "sitz"), ("go", "geh los", "geh")]
    path = write("".join(f"[INFO] SRC={s}, TARGET={t}, PREDICTED={p}\nmore\n" for s, t, p in rows), "log.txt")
    assert texts(path, labels=["TARGET", "PREDICTED"]) == [(t, p) for _, t, p in rows]


def test_headings_of_most_pairs_are_no_parts(write):
    pairs = "".join(
        f"Captions for file {i}.wav:\n\tPredicted caption: rain {i} falls\n\tOriginal caption: a rain {i}\n"
        for i in range(6)
    )
    path = write(f"Captions start:\n{pairs}Captions start:\n{pairs}", "captions.txt")
    refusal(
        path,
        r"2 blocks: 1 is pass 1 with 6 rows, 2 is pass 2 with 6 rows",
        labels=["Original caption", "Predicted caption"],
    )
