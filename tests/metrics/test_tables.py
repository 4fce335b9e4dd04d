"""Tables 2-3 and the examples of Table 4: what stands in which place, and that nothing breaks the markup."""

import io
import re
import statistics

from rich.console import Console
from test_score import grid, with_ids

from eeg2text_jax.instrument.metrics.score import score_cells
from eeg2text_jax.instrument.metrics.tables import print_table, score_table, side_by_side, table_console, write_tables


def test_modes_are_apart_and_the_ratio_follows():
    results = score_cells(with_ids(grid()))
    table = score_table(results, "BART")
    free, forced, ratio = table.sections
    assert [row[:3] for row in free] == [["BART free-running", "eeg", "eeg"], ["BART free-running", "eeg", "noise"]]
    assert [row[0] for row in forced] == ["BART w/tf"] * 2
    values = {(c["mode"], c["eval_condition"]): c["metrics"]["word_bleu-1"]["value"] for c in results["cells"]}
    column = 3 + 4  # after the titles and the token BLEUs
    assert free[1][column] == f"{values['free_running', 'noise']:.2f}"
    assert ratio[1][column] == f"{values['teacher_forced', 'noise'] / values['free_running', 'noise']:.2f}"
    assert len(table.columns) == len(ratio[0]) == 3 + 4 + 4 + 3 + 1


def test_tokens_that_the_model_did_not_write_are_called_retokenized():
    results = score_cells(with_ids(grid()))
    assert "re-tokenized" not in score_table(results).caption
    for cell in results["cells"]:
        cell["metrics"]["token_bleu-1"]["signature"] = "nrefs:1|case:mixed|eff:no|tok:retokenized[Fast,99,sha256:0]"
    said = table_console(results).caption
    assert "Tokens: re-tokenized from the text; not those that the model wrote." in said


def test_seeds_become_mean_and_standard_deviation():
    results = score_cells(grid(seeds=(0, 1, 2), modes=["free_running"]))
    table = score_table(results)
    wers = [c["metrics"]["wer"]["value"] for c in results["cells"] if c["eval_condition"] == "eeg"]
    assert table.sections[0][0][-1] == f"{statistics.mean(wers):.2f} ± {statistics.stdev(wers):.2f}"
    assert "3 seeds" in table.caption
    assert len(table.sections) == 1


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


def test_examples_mark_matches_and_what_every_free_run_repeats():
    shown = side_by_side(grid(), count=3)
    assert len({example.sample_id.split("/")[1] for example in shown}) == 3
    for example in shown:
        forced = [words for label, words in example.outputs if "w/tf" in label]
        free = [words for label, words in example.outputs if "free-running" in label]
        assert len(forced) == len(free) == 2
        assert all(words[0] == ("He", "underline") for words in free)
        matched = {word for word, style in example.reference if style == "bold"}
        assert matched == {word for words in forced for word, style in words if style == "bold"}
        assert matched
        assert all(style != "bold" for words in free for _, style in words)


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
