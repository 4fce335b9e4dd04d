"""Tables 2-3 and the examples of Table 4: what stands in which place, and that nothing breaks the markup."""

import io
import re

import pytest
from rich.console import Console
from test_score import grid, with_ids

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.metrics.score import score_cells
from eeg2text_jax.instrument.metrics.tables import (
    Table,
    add_verdict,
    print_table,
    score_table,
    side_by_side,
    signatures,
    table_console,
    write_table,
    write_tables,
)
from eeg2text_jax.instrument.predictions.file import Prediction


def test_tokens_that_the_model_did_not_write_are_called_retokenized():
    results = score_cells(with_ids(grid()))
    assert "re-tokenized" not in score_table(results).caption
    for cell in results["cells"]:
        cell["metrics"]["token_bleu-1"]["signature"] = "nrefs:1|case:mixed|eff:no|tok:retokenized[Fast,99,sha256:0]"
    said = table_console(results).caption
    assert "Tokens: re-tokenized from the text; not those that the model wrote." in said


def cell(train, evaluation, seed, mode, label=None, **values):
    figures = {
        name: {"value": value, "signature": f"of {name[:4]}", "lower_is_better": False}
        for name, value in values.items()
    }
    about = {"train_condition": train, "eval_condition": evaluation, "seed": seed, "mode": mode, "metrics": figures}
    return about | {"rows": 30, "sentences": 12} | ({"label": label} if label else {})


def test_every_cell_by_hand():
    """Two models, one with three seeds; a mode that only one has, and a figure that some seeds lack."""
    cells = [
        cell("eeg", "eeg", 0, "teacher_forced", "one", **{"word_bleu-1": 40.0, "wer": 80.0}),
        *(cell("eeg", "eeg", k, "free_running", "one", **{"word_bleu-1": v}) for k, v in enumerate((10.0, 10.0, 16.0))),
        cell("eeg", "noise", 0, "free_running", "one", **{"word_bleu-1": 5.0, "wer": 111.0}),
        cell("noise", "eeg", 0, "free_running", **{"wer": 0.0, "lattescore-mean": 12.344}),
        cell("noise", "eeg", 0, "teacher_forced", **{"wer": 30.0}) | {"rows": 28, "unscored": "no text."},
    ]
    table = score_table({"profile": "paper", "cells": cells}, "two")
    assert table.headings[3:] == ["BLEU-N words (%) N=1", "WER (%)", "LATTEScore (%) mean"]
    assert table.sections == [
        [
            ["one free-running", "eeg", "eeg", "12.00 ± 3.46", "–", "–"],
            ["one free-running", "eeg", "noise", "5.00", "111.00", "–"],
            ["two free-running", "noise", "eeg", "–", "0.00", "12.34"],
        ],
        [
            ["one w/tf", "eeg", "eeg", "40.00", "80.00", "–"],
            ["two w/tf", "noise", "eeg", "–", "30.00", "–"],
        ],
        [
            ["one w/tf : free", "eeg", "eeg", "3.33", "–", "–"],
            ["two w/tf : free", "noise", "eeg", "–", "–", "–"],
        ],
    ]
    assert table.caption == (
        "Each line: 28 predictions of 12 sentences; 30 predictions of 12 sentences. Profile paper. Mean ± standard "
        "deviation over 3 seeds. The columns P and R of the paper's Tables 2-3 are exchanged: what the paper prints "
        "under P is the recall, and stands here under R. Not scored: noise → eeg, seed 0: no text. –: no ratio, as a "
        "score is missing or the free-running one is 0."
    )


def test_a_table_is_written_in_the_layout_of_its_name(tmp_path):
    made = Table("a #caption", [("", "name"), ("BLEU", "N=1"), ("BLEU", "N=2"), ("WER", "")],
                 [[["a_b", "1.0", "2.0", "3.0"]], [["c,d", "4.0", "–", "6.0"]]], texts=1)  # fmt: skip
    for name in ("t.md", "t.csv", "t.tex"):
        write_table(tmp_path / name, made, ["one", "two"])
    markdown, table, tex = ((tmp_path / name).read_text("utf8") for name in ("t.md", "t.csv", "t.tex"))
    assert markdown.splitlines() == [
        "| name | BLEU N=1 | BLEU N=2 | WER |", "| --- | ---: | ---: | ---: |", r"| a\_b | 1.0 | 2.0 | 3.0 |",
        "| c,d | 4.0 | – | 6.0 |", "", r"a \#caption", "- one", "- two",
    ]  # fmt: skip
    assert table == 'name,BLEU N=1,BLEU N=2,WER\na_b,1.0,2.0,3.0\n"c,d",4.0,–,6.0\n'
    heads = [r"\multicolumn{1}{c}{}", r"\multicolumn{2}{c}{BLEU}", r"\multicolumn{1}{c}{WER}"]
    assert r"\begin{tabular}{lrrr}" in tex
    assert f"{' & '.join(heads)} \\\\\nname & N=1 & N=2 &  \\\\\n\\midrule\n" in tex
    assert "a\\_b & 1.0 & 2.0 & 3.0 \\\\\n\\midrule\nc,d & 4.0 & -- & 6.0 \\\\" in tex
    assert tex.endswith("% one\n% two\n")
    with pytest.raises(UserError, match=r"t\.txt: expected a name that ends in \.md, \.tex or \.csv"):
        write_table(tmp_path / "t.txt", made)


def test_the_console_has_the_figures_that_its_headings_name():
    names = ("rouge-1-p", "rouge-1-r", "rouge-1-f", "rouge-l-f", "bertscore-p", "bertscore-r", "bertscore-f", "wer")
    shown = cell("eeg", "eeg", 0, "free_running", **{name: 1.5 + 10 * k for k, name in enumerate(names)})
    for profile, columns in (
        ("standard", ["ROUGE-1\nF", "WER", "BERTScore\nF"]),
        ("paper", ["ROUGE-1\nP", "ROUGE-1\nR", "ROUGE-1\nF", "ROUGE-L\nF", "WER"]),
    ):
        table = table_console({"profile": profile, "cells": [shown]})
        assert [column.header for column in table.columns[2:]] == columns
        cells = [next(iter(column.cells)) for column in table.columns[2:]]
        values = [names.index(title.lower().replace("\n", "-")) * 10 + 1.5 for title in columns]
        assert cells == [f"{value:.2f}" for value in values]


def test_examples_and_signatures_to_the_letter(tmp_path):
    """Two sentences of four have all outputs; of two samples of one sentence, the first is shown."""
    texts = {"free_running": ("he b was he", "was it he"), "teacher_forced": ("so d", "a said a")}
    rows = []
    for number, reader in ((0, "S"), (0, "T"), (1, "S"), (2, "S")):
        for mode, said in texts.items():
            for fed, text in zip(("eeg", "noise"), said, strict=True):
                if number < 2 or fed == "eeg":
                    about = (f"{reader}{number}", reader, "NR", f"s{number}", 4, "eeg", fed, 0, mode)
                    rows.append(Prediction(*about, "a b c d", f"{text} {number}" * (reader == "S")))
    results = score_cells(rows, metrics=["wer"])
    write_tables(tmp_path, results, side_by_side(rows), "my_model")
    text = (tmp_path / "results.md").read_text("utf8")
    assert text.count("| Ground truth | **a** b c **d** |") == 2
    assert "| Model | Training | Evaluation | WER (%) |\n| --- | --- | --- | ---: |" in text
    for number in (0, 1):
        for line in (
            f"| eeg → eeg, w/tf | so **d** {number} |",
            f"| eeg → noise, w/tf | **a** said a {number} |",
            f"| eeg → eeg, free-running | <u>he</u> b <u>was</u> <u>he</u> {number} |",
            f"| eeg → noise, free-running | <u>was</u> it <u>he</u> {number} |",
        ):
            assert line in text
    assert text.index("w/tf | so") < text.index("free-running | <u>he")
    tex = (tmp_path / "results.tex").read_text("utf8")
    assert r"\textbf{a} said a 1 \\" in tex
    assert r"\underline{was} it \underline{he} 0 \\" in tex
    signed = {"x": cell("eeg", "eeg", 0, "free_running", **{"rouge-1-p": 1.0, "rouge-l-f": 2.0, "wer": 3.0})}
    assert signatures({"cells": [*signed.values()]}) == {"of roug": ["rouge-1-p", "rouge-l-f"], "of wer": ["wer"]}
    add_verdict(tmp_path, "first")
    add_verdict(tmp_path, "second")
    assert (tmp_path / "results.md").read_text("utf8") == f"# Verdict\n\nsecond\n\n{text}"


def test_files_escape_what_their_format_would_read(tmp_path):
    rows = grid(seeds=(0, 1))
    write_tables(tmp_path, score_cells(rows), side_by_side(rows), "my_model")
    tex, markdown = ((tmp_path / name).read_text("utf8") for name in ("results.tex", "results.md"))
    assert re.findall(r"(?<!\\)[%#_]", tex) == []
    columns = {line.count(" & ") for line in tex.split("\\midrule")[1].strip().splitlines()}
    assert columns == {3 + 4 + 3 + 1 - 1}
    assert tex.count("{") - tex.count(r"\{") == tex.count("}") - tex.count(r"\}")
    assert r"my\_model w/tf" in markdown
    assert "`unit:word|" in markdown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.md", "results.tex"]


def test_no_sample_that_all_cells_have_gives_no_example():
    rows = grid()
    assert side_by_side([]) == []
    assert side_by_side([r for r in rows if (r.subject == "a") == (r.mode == "free_running")]) == []


def test_the_console_table_fits_80_columns():
    """The longest figures included: repeating models have word error rates above 100, different ones in each seed."""
    rows = score_cells(with_ids(grid(seeds=(0, 1))))
    for cell in rows["cells"]:
        cell["metrics"]["wer"]["value"] = 150.0 + 40 * cell["seed"]
    console = Console(width=80, file=io.StringIO())
    console.print(table_console(rows))
    text = console.file.getvalue()
    assert "170.0 ± 28.3" in text
    assert "…" not in text
    assert "eeg → noise" in text


def test_a_printed_table_goes_to_standard_output_in_a_notebook_too(capsys, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    print_table(score_cells(with_ids(grid())))
    assert "BLEU-1" in capsys.readouterr().out


def test_examples_are_spread_evenly_and_of_the_first_seed():
    shown = side_by_side(grid(seeds=(1, 0)))
    assert shown == side_by_side(grid(seeds=(1,)))
    assert [example.sample_id for example in shown] == ["a/0", "a/4", "a/8"]
