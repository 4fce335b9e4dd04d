"""Score tables in the layout of Tables 2-3 of Jo et al. (2024), and decoded examples of all conditions."""

import csv
import dataclasses
import io
import itertools
import os
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from etils import epath
from rapidfuzz.distance import LCSseq
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.instrument.predictions.file import Prediction

MODE_TITLES = {"free_running": "free-running", "teacher_forced": "w/tf", "contrastive": "contrastive"}
MODE_TITLES |= {"likelihood": "likelihood", "unknown": "mode unknown"}
PAPER_NOTE = (
    "The columns P and R of the paper's Tables 2-3 are exchanged: what the paper prints under P is the recall, and "
    "stands here under R."
)

RANKS = ("top-1", "top-5", "chance top-5", "top-5 by length", "rank", "top-1 in stratum", "chance top-1 in stratum")
# (group, heading, figure); a column without figures is left out
COLUMNS = (
    *(("BLEU-N tokens (%)", f"N={n}", f"token_bleu-{n}") for n in (1, 2, 3, 4)),
    *(("BLEU-N words (%)", f"N={n}", f"word_bleu-{n}") for n in (1, 2, 3, 4)),
    *(("ROUGE-1 (%)", figure.upper(), f"rouge-1-{figure}") for figure in "prf"),
    ("WER (%)", "", "wer"),
    *(("BERTScore (%)", figure.upper(), f"bertscore-{figure}") for figure in "prf"),
    ("similarity (%)", "", "similarity"),
    ("LATTEScore (%)", "", "lattescore"),
    ("LATTEScore (%)", "mean", "lattescore-mean"),
    *(("which sentence (%)", name, name) for name in RANKS),
)
NARROW_COLUMNS = (  # for a terminal
    ("BLEU-1", "tokens", "token_bleu-1"),
    ("BLEU-1", "words", "word_bleu-1"),
    ("ROUGE-1", "F", "rouge-1-f"),
    ("WER", "", "wer"),
    ("BERTScore", "F", "bertscore-f"),
    ("similarity", "", "similarity"),
    ("LATTEScore", "", "lattescore"),
    *(("which sentence (%)", name, name) for name in RANKS[:4]),
)
PAPER_COLUMNS = (
    *((f"BLEU-{n}", "tokens", f"token_bleu-{n}") for n in (1, 2, 3, 4)),
    *(("ROUGE-1", figure.upper(), f"rouge-1-{figure}") for figure in "prf"),
    ("ROUGE-L", "F", "rouge-l-f"),
    ("WER", "", "wer"),
)


@dataclasses.dataclass(frozen=True)
class Table:
    """A table as formatted texts."""

    caption: str
    columns: list[tuple[str, str]]  # title of the column's group, and heading
    sections: list[list[list[str]]]  # by section, row, column; lines separate sections
    texts: int = 3  # number of columns of texts; figures follow

    @property
    def headings(self) -> list[str]:
        """The headings on one line, each with the title of its group."""
        return [f"{group} {heading}".strip() for group, heading in self.columns]

    @property
    def rows(self) -> list[list[str]]:
        return [row for section in self.sections for row in section]


Cells = list[dict[str, Any]]  # entries in `cells` of results: a model, two conditions and a mode, by seed


def grouped_rows(cells: Iterable[dict[str, Any]], label: str = "") -> dict[tuple[str, ...], Cells]:
    """Return (model, training condition, evaluation condition, mode) -> cells of all seeds."""
    grouped: dict[tuple[str, ...], Cells] = {}
    for cell in cells:
        key = (cell.get("label", label), cell["train_condition"], cell["eval_condition"], cell["mode"])
        grouped.setdefault(key, []).append(cell)
    return grouped


def values(cells: Cells, figure: str) -> list[float]:
    """Return the value of a figure for every seed that has it."""
    return [cell["metrics"][figure]["value"] for cell in cells if figure in cell["metrics"]]


def score_table(
    results: dict[str, Any], label: str = "model", columns: Sequence[tuple[str, str, str]] = COLUMNS, digits: int = 2
) -> Table:
    """Return the table of the results of `score_cells`; several seeds: mean ± standard deviation (n - 1).

    `label` is the model's name, for cells without their own; `columns` are as in `COLUMNS`.
    """
    rows = grouped_rows(results["cells"], label)
    columns = [column for column in columns if any(values(cells, column[2]) for cells in rows.values())]
    figures = [figure for *_, figure in columns]
    sections = [
        [
            [f"{model} {title}".strip(), *tested, *(summary(cells, figure, digits) for figure in figures)]
            for (model, *tested, of), cells in rows.items()
            if of == mode
        ]
        for mode, title in MODE_TITLES.items()
    ]
    ratios = [
        [f"{model} w/tf : free".strip(), *tested, *(ratio(forced, free, figure) for figure in figures)]
        for (model, *tested, mode), free in rows.items()
        if mode == "free_running" and (forced := rows.get((model, *tested, "teacher_forced")))
    ]
    note = " –: no ratio, as a score is missing or the free-running one is 0." * any("–" in row for row in ratios)
    described = [("", "Model"), ("", "Training"), ("", "Evaluation"), *((group, name) for group, name, _ in columns)]
    seeds = max(map(len, rows.values()))
    return Table(caption(results, seeds) + note, described, [section for section in (*sections, ratios) if section])


def summary(cells: Cells, figure: str, digits: int = 2) -> str:
    """Format the mean over seeds, with the standard deviation of several; a dash without the figure."""
    if not (found := values(cells, figure)):
        return "–"
    spread = f" ± {statistics.stdev(found):.{digits}f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.{digits}f}{spread}"


def ratio(forced: Cells, free: Cells, figure: str) -> str:
    """Format teacher-forced mean / free-running mean; a dash if one is missing or the divisor is 0."""
    above, below = values(forced, figure), values(free, figure)
    if not above or not below or statistics.mean(below) == 0:
        return "–"
    return f"{statistics.mean(above) / statistics.mean(below):.2f}"


def signatures(results: dict[str, Any]) -> dict[str, list[str]]:
    """Return every signature with the names of the figures that it applies to."""
    figures_of: dict[str, dict[str, None]] = {}
    for cell in results["cells"]:
        for figure, about in cell["metrics"].items():
            figures_of.setdefault(about["signature"], {})[figure] = None
    return {signature: list(figures) for signature, figures in figures_of.items()}


def caption(results: dict[str, Any], seeds: int) -> str:
    """Return numbers of predictions, the profile, and which cells were not scored and why."""
    counts = sorted({(cell["rows"], cell["sentences"]) for cell in results["cells"]})
    sizes = "; ".join(f"{rows} predictions of {sentences} sentences" for rows, sentences in counts)
    spread = f" Mean ± standard deviation over {seeds} seeds." if seeds > 1 else ""
    exchanged = f" {PAPER_NOTE}" if results["profile"] == "paper" else ""
    again = any("retokenized[" in about for about in signatures(results))
    tokens = " Tokens: re-tokenized from the text; not those that the model wrote." * again
    unscored = "".join(
        f" Not scored: {cell['train_condition']} → {cell['eval_condition']}, seed {cell['seed']}: {cell['unscored']}"
        for cell in results["cells"]
        if "unscored" in cell
    )
    return f"Each line: {sizes}. Profile {results['profile']}.{spread}{exchanged}{tokens}{unscored}"


def map_cells(table: Table, change: Callable[[str], str]) -> Table:
    columns = [(change(group), change(heading)) for group, heading in table.columns]
    sections = [[[*map(change, row)] for row in section] for section in table.sections]
    return Table(change(table.caption), columns, sections, table.texts)


Style = Literal["plain", "bold", "underline"]
Marked = list[tuple[str, Style]]


@dataclasses.dataclass(frozen=True)
class Example:
    """A sentence with marked words: the reference, and a prediction for each pair of conditions and mode."""

    sample_id: str
    reference: Marked
    outputs: list[tuple[str, Marked]]  # (conditions and mode as a title, words)


def side_by_side(predictions: Iterable[Prediction], count: int = 3) -> list[Example]:
    """Return up to `count` samples of distinct sentences, each with its predictions of all conditions and modes.

    Of several seeds the first is shown. Words of teacher-forced predictions are bold if the reference has them. Words
    of the other predictions are underlined if every one of these, over all samples returned, has them.
    """
    cells: dict[tuple[str, str, str], dict[str, Prediction]] = {}
    first_seed: dict[tuple[str, str, str], int] = {}
    for p in predictions:
        cell = (p.mode, p.train_condition, p.eval_condition)
        if first_seed.setdefault(cell, p.seed) == p.seed:
            cells.setdefault(cell, {})[p.sample_id] = p
    order = sorted(cells, key=lambda cell: (cell[0] != "teacher_forced", cell[0]))
    shown = choose_samples([cells[cell] for cell in order], count)
    free = [cells[cell][sample].prediction for cell in order if cell[0] != "teacher_forced" for sample in shown]
    repeated = set.intersection(*(set(text.split()) for text in free)) if len(free) > 1 else set()
    return [example(sample, {cell: cells[cell][sample] for cell in order}, repeated) for sample in shown]


def choose_samples(cells: Sequence[dict[str, Prediction]], count: int) -> list[str]:
    """Return up to `count` ids of distinct sentences, evenly spaced among the samples that all `cells` have."""
    of_sentence: dict[str, str] = {}
    for sample, prediction in cells[0].items() if cells else ():
        if all(sample in cell for cell in cells):
            of_sentence.setdefault(prediction.sentence_id, sample)
    samples = list(of_sentence.values())
    return [samples[i * len(samples) // count] for i in range(count)] if len(samples) > count else samples


def example(sample_id: str, outputs: dict[tuple[str, str, str], Prediction], repeated: set[str]) -> Example:
    """Return a sample with marked words; the keys of `outputs` are (mode, training, evaluation condition)."""
    reference = next(iter(outputs.values())).reference.split()
    matched: set[int] = set()
    lines = []
    for (mode, train, evaluation), prediction in outputs.items():
        words = prediction.prediction.split()
        if mode == "teacher_forced":
            blocks = LCSseq.opcodes(reference, words).as_matching_blocks()
            matched |= {block.a + i for block in blocks for i in range(block.size)}
            marked = mark(words, {block.b + i for block in blocks for i in range(block.size)}, "bold")
        else:
            marked = mark(words, {j for j, word in enumerate(words) if word in repeated}, "underline")
        lines.append((f"{train} → {evaluation}, {MODE_TITLES[mode]}", marked))
    return Example(sample_id, mark(reference, matched, "bold"), lines)


def mark(words: Sequence[str], positions: set[int], style: Style) -> Marked:
    return [(word, style if i in positions else "plain") for i, word in enumerate(words)]


EXAMPLES_CAPTION = (
    "Bold: words that the ground truth and an output with teacher forcing (w/tf) share. "
    "Underlined: words that all outputs without teacher forcing have in common."
)
LATEX_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX_SPECIAL |= {character: f"\\{character}" for character in "&%$#_{}"}
LATEX_SPECIAL |= {"±": r"$\pm$", "–": "--", "→": r"$\to$"}


def latex_text(text: str) -> str:
    return "".join(LATEX_SPECIAL.get(character, character) for character in text)


def markdown_text(text: str) -> str:
    """Escape Markdown's and HTML's special characters, on one line."""
    escaped = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", " ".join(text.split()))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def table_markdown(table: Table) -> str:
    table = map_cells(table, markdown_text)
    rule = ["---"] * table.texts + ["---:"] * (len(table.columns) - table.texts)
    lines = ["| " + " | ".join(cells) + " |" for cells in (table.headings, rule, *table.rows)]
    return "\n".join([*lines, "", table.caption, ""])


def table_csv(table: Table) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([table.headings, *table.rows])
    return out.getvalue()


def table_latex(table: Table) -> str:
    """Format a table as LaTeX with booktabs."""
    table = map_cells(table, latex_text)
    spans = [(group, len(list(same))) for group, same in itertools.groupby(group for group, _ in table.columns)]
    groups = " & ".join(rf"\multicolumn{{{span}}}{{c}}{{{group}}}" for group, span in spans)
    sections = ["\n".join(" & ".join(row) + r" \\" for row in section) for section in table.sections]
    columns = "l" * table.texts + "r" * (len(table.columns) - table.texts)
    head = f"{groups} \\\\\n{' & '.join(heading for _, heading in table.columns)} \\\\\n\\midrule"
    return latex_table(table.caption, columns, [head, "\n\\midrule\n".join(sections)], r"\centering")


def latex_table(caption: str, columns: str, body: Sequence[str], *options: str) -> str:
    """Return a LaTeX table; `columns` specifies its columns, `options` precede the caption."""
    begin = [r"\begin{table}", *options, rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


LAYOUTS = {".md": (table_markdown, "- {}\n"), ".tex": (table_latex, "% {}\n"), ".csv": (table_csv, "")}


def write_table(path: str | os.PathLike[str], table: Table, below: Sequence[str] = ()) -> None:
    """Write a table in the layout of the file's name, .md, .tex or .csv, with lines `below` (not in CSV)."""
    name = os.fspath(path)
    write, line = LAYOUTS.get(os.path.splitext(name)[1], (None, ""))
    if write is None:
        raise UserError(f"{name}: expected a name that ends in .md, .tex or .csv.")
    write_text(path, write(table) + "".join(map(line.format, below)))


def print_table(results: dict[str, Any]) -> None:
    """Print the results of `score_cells` as wide as the terminal, or 160 characters without a terminal."""
    console = Console(force_jupyter=False)  # in Jupyter, rich would ignore a redirected standard output
    if not console.is_terminal:
        console.width = 160
    console.print(table_console(results))


def table_console(results: dict[str, Any], label: str = "") -> RichTable:
    """Format the results of `score_cells` for a console, with fewer columns than in files."""
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
    styles = {"plain": "{}", "bold": "**{}**", "underline": "<u>{}</u>"}
    blocks = []
    for shown in examples:
        lines = [("Ground truth", shown.reference), *shown.outputs]
        rows = [f"| {markdown_text(label)} | {styled(words, styles, markdown_text)} |" for label, words in lines]
        blocks.append("\n".join([rows[0], "| --- | --- |", *rows[1:], ""]))
    return "\n".join(blocks)


def examples_latex(examples: Sequence[Example]) -> str:
    """Format decoded examples as a LaTeX table with booktabs."""
    styles = {"plain": "{}", "bold": r"\textbf{{{}}}", "underline": r"\underline{{{}}}"}
    blocks = []
    for shown in examples:
        lines = [("Ground truth", shown.reference), *shown.outputs]
        rows = [f"{latex_text(label)} & {styled(words, styles, latex_text)} \\\\" for label, words in lines]
        blocks.append("\n".join(rows))
    return latex_table(latex_text(EXAMPLES_CAPTION), r"lp{0.7\linewidth}", ["\n\\midrule\n".join(blocks)])


def styled(words: Marked, styles: dict[str, str], change: Callable[[str], str]) -> str:
    """Return the words with markup; `styles` maps styles to format strings, `change` escapes a word."""
    return " ".join(styles[style].format(change(word)) for word, style in words) or "(empty)"


def add_verdict(folder: str | os.PathLike[str], verdict: str) -> None:
    """Write the verdict of an audit as the first section of `results.md`, in place of an earlier one."""
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
