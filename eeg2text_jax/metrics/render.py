"""Format score tables and decoded examples as Markdown, LaTeX and console text."""

import csv
import io
import itertools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from etils import epath
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.metrics.tables import (
    NARROW_COLUMNS,
    PAPER_COLUMNS,
    Example,
    Marked,
    Table,
    map_cells,
    score_table,
    signatures,
)

EXAMPLES_CAPTION = (
    "Bold: words that the ground truth and an output with teacher forcing (w/tf) share. "
    "Underlined: words that all outputs without teacher forcing have in common."
)
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "±": r"$\pm$",
    "–": "--",
    "→": r"$\to$",
}


def latex_text(text: str) -> str:
    """Escape LaTeX's special characters."""
    return "".join(LATEX_SPECIAL.get(character, character) for character in text)


def markdown_text(text: str) -> str:
    """Escape Markdown's and HTML's special characters, and put the text on one line."""
    escaped = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", " ".join(text.split()))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def table_markdown(table: Table) -> str:
    """Format a table as Markdown; each heading includes the title of its group, as there is one line of headings."""
    table = map_cells(table, markdown_text)
    rule = ["---"] * table.texts + ["---:"] * (len(table.columns) - table.texts)
    lines = ["| " + " | ".join(cells) + " |" for cells in (table.headings, rule, *table.rows)]
    return "\n".join([*lines, "", table.caption, ""])


def table_csv(table: Table) -> str:
    """Format a table as CSV, without its caption."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([table.headings, *table.rows])
    return out.getvalue()


def write_table(path: str | os.PathLike[str], table: Table, below: Sequence[str] = ()) -> None:
    """Write a table in the layout of the file's name: .md, .tex or .csv; lines `below` follow, but not in CSV."""
    name = os.fspath(path)
    write = {".md": table_markdown, ".tex": table_latex, ".csv": table_csv}.get(os.path.splitext(name)[1])
    if write is None:
        raise UserError(f"{name}: expected a name that ends in .md, .tex or .csv.")
    marked = {table_markdown: "- {}", table_latex: "% {}"}.get(write, "")
    write_text(path, write(table) + "".join(f"{marked.format(line)}\n" for line in below if marked))


def table_latex(table: Table) -> str:
    """Format a table as LaTeX for the package booktabs."""
    table = map_cells(table, latex_text)
    spans = [(group, len(list(same))) for group, same in itertools.groupby(group for group, _ in table.columns)]
    groups = " & ".join(rf"\multicolumn{{{span}}}{{c}}{{{group}}}" for group, span in spans)
    sections = ["\n".join(" & ".join(row) + r" \\" for row in section) for section in table.sections]
    columns = "l" * table.texts + "r" * (len(table.columns) - table.texts)
    head = f"{groups} \\\\\n{' & '.join(heading for _, heading in table.columns)} \\\\\n\\midrule"
    return latex_table(table.caption, columns, [head, "\n\\midrule\n".join(sections)], r"\centering")


def latex_table(caption: str, columns: str, body: Sequence[str], *options: str) -> str:
    """Return a LaTeX table environment; `columns` is its column specification, `options` precede the caption."""
    begin = [r"\begin{table}", *options, rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def print_table(results: dict[str, Any]) -> None:
    """Print the scores of `score_cells` as a table as wide as the terminal, or 160 characters without a terminal."""
    console = Console(force_jupyter=False)  # in Jupyter, rich would ignore a redirected standard output
    if not console.is_terminal:
        console.width = 160
    console.print(table_console(results))


def table_console(results: dict[str, Any], label: str = "") -> RichTable:
    """Format the scores of `score_cells` for a console, with fewer columns than the files."""
    seeds = {cell["seed"] for cell in results["cells"]}
    columns = PAPER_COLUMNS if results["profile"] == "paper" else NARROW_COLUMNS
    table = map_cells(score_table(results, label, columns, digits=1 if len(seeds) > 1 else 2), escape)
    layout = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}  # so that 80 characters suffice
    shown = RichTable(caption=table.caption, caption_justify="left", **layout)
    shown.add_column("")
    shown.add_column("training →\nevaluation")
    for group, heading in table.columns[3:]:
        shown.add_column(f"{group.removesuffix(' (%)')}\n{heading}".strip(), justify="right", no_wrap=True)
    for section in table.sections:
        for name, train, evaluation, *figures in section:
            shown.add_row(name, f"{train} → {evaluation}", *figures)
        shown.add_section()
    return shown


def examples_markdown(examples: Sequence[Example]) -> str:
    """Format decoded examples as Markdown tables."""
    styles = {"plain": "{}", "bold": "**{}**", "underline": "<u>{}</u>"}
    blocks = []
    for shown in examples:
        lines = [("Ground truth", shown.reference), *shown.outputs]
        rows = [f"| {markdown_text(label)} | {styled(words, styles, markdown_text)} |" for label, words in lines]
        blocks.append("\n".join([rows[0], "| --- | --- |", *rows[1:], ""]))
    return "\n".join(blocks)


def examples_latex(examples: Sequence[Example]) -> str:
    """Format decoded examples as one LaTeX table for the package booktabs."""
    styles = {"plain": "{}", "bold": r"\textbf{{{}}}", "underline": r"\underline{{{}}}"}
    blocks = [
        "\n".join(
            f"{latex_text(label)} & {styled(words, styles, latex_text)} \\\\"
            for label, words in [("Ground truth", shown.reference), *shown.outputs]
        )
        for shown in examples
    ]
    return latex_table(latex_text(EXAMPLES_CAPTION), r"lp{0.7\linewidth}", ["\n\\midrule\n".join(blocks)])


def styled(words: Marked, styles: dict[str, str], change: Callable[[str], str]) -> str:
    """Return the words with their markup; `styles` maps a style to a format string, `change` escapes a word."""
    return " ".join(styles[style].format(change(word)) for word, style in words) or "(empty)"


def add_verdict(folder: str | os.PathLike[str], verdict: str) -> None:
    """Write the verdict of an audit as the first section of `results.md`, instead of an earlier one."""
    path = epath.Path(folder) / "results.md"
    if verdict and path.exists():
        scores = path.read_text()
        write_text(path, f"# Verdict\n\n{verdict}\n\n{scores[max(scores.find('# Scores'), 0) :]}")


def write_tables(
    folder: str | os.PathLike[str], results: dict[str, Any], examples: Sequence[Example], label: str = "model"
) -> None:
    """Write `results.md` and `results.tex` into a folder, each atomically."""
    table = score_table(results, label)
    signed = [f"- {', '.join(names)}: `{signature}`" for signature, names in signatures(results).items()]
    scores = ("# Scores", "", table_markdown(table), "## Signatures", "", *signed, "")
    decoded = ("# Decoded examples", "", EXAMPLES_CAPTION, "", examples_markdown(examples))
    write_text(epath.Path(folder) / "results.md", "\n".join([*scores, *decoded]))
    write_text(epath.Path(folder) / "results.tex", f"{table_latex(table)}\n{examples_latex(examples)}")
