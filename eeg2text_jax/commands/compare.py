"""`eeg2text compare`: decoders of the same sentences, or finished runs, side by side."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etils import epath

from eeg2text_jax.auditing.result import columns_text
from eeg2text_jax.auditing.systems import PAIR_HEADINGS, SYSTEM_HEADINGS, compare_systems
from eeg2text_jax.auditing.verdict import interval_text, p_cell
from eeg2text_jax.commands.audit import endpoints_of
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import parse_json, write_text
from eeg2text_jax.metrics.render import latex_text, markdown_text
from eeg2text_jax.predictions.file import Prediction
from eeg2text_jax.predictions.read import add_options, describe, options_of, read_any
from eeg2text_jax.predictions.selection import names_of, select_cells
from eeg2text_jax.study.metric_names import ENDPOINTS, WORDS_ENDPOINT

RUN_HEADINGS = ("run", "verdict", "content difference", "90 % CI", "p", "MDE")
Rows = Sequence[Sequence[str]]


def main(argv: list[str]) -> int:
    flags = _parser().parse_args(argv)
    if len(flags.systems) < 2:
        raise UserError("compare: expected two files of predictions or two workdirs of finished runs at least.")
    folders = [path for path in flags.systems if path.is_dir()]
    if folders and len(folders) < len(flags.systems):
        raise UserError(f"{folders[0]}: is a folder, but other arguments are files; give only one of both kinds.")
    tables = run_tables(folders) if folders else file_tables(flags)
    for heads, rows in tables:
        print(columns_text(heads, *rows), end="\n\n")
    for path, write in ((flags.markdown, markdown), (flags.tex, latex)):
        if path:
            write_text(path, "\n".join(write(*table) for table in tables))
    return 0


def run_tables(folders: Sequence[Path]) -> list[tuple[Sequence[str], Rows]]:
    """Return a table of the verdicts of finished runs. Raises UserError if a folder has none."""
    return [(RUN_HEADINGS, [_run_row(folder) for folder in folders])]


def _run_row(folder: Path) -> tuple[str, ...]:
    path = folder / "audit.json"
    try:
        found: dict[str, Any] = parse_json(path.read_text(encoding="utf8"))
        main = next(c["contrast"] for c in found["comparisons"] if c["contrast"]["control"] == found["deciding"])
        p = max(main["p"], main["p_seeds"] or 0.0)
        figures = f"{main['effect']:+.2f}", interval_text(main["interval_90"]), p_cell(p), f"{found['mde']:.2f}"
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise UserError(f"{path}: has no verdict of this version; run `eeg2text run` to its end there.") from error
    return folder.name, found["headline"], *figures


def file_tables(flags: argparse.Namespace) -> list[tuple[Sequence[str], Rows]]:
    """Return the tables of systems and of pairs for files of predictions."""
    systems: dict[str, list[Prediction]] = {}
    for path, name in zip(flags.systems, names_of(flags.systems), strict=True):
        found = read_any(path, mode=flags.mode, **options_of(flags))
        print(describe(found))
        systems[name] = next(iter(select_cells(found.predictions).values()))
    endpoint, *others = endpoints_of(flags.endpoint)
    if others:
        raise UserError(f"--endpoint={flags.endpoint}: expected one endpoint.")
    found = compare_systems(systems, endpoint=endpoint, mode=flags.mode)
    for note in found.notes:
        print(f"{note}.")
    print(f"{endpoint.label} in points, {found.sentences} sentences; p of a pair is two-sided\n")
    if flags.json:
        rows = {"systems": _records(SYSTEM_HEADINGS, found.system_rows())}
        rows["pairs"] = _records(PAIR_HEADINGS, found.pair_rows())
        write_text(flags.json, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    return [(SYSTEM_HEADINGS, found.system_rows()), (PAIR_HEADINGS, found.pair_rows())]


def _records(heads: Sequence[str], rows: Rows) -> list[dict[str, str]]:
    return [dict(zip(heads, row, strict=True)) for row in rows]


def markdown(heads: Sequence[str], rows: Rows) -> str:
    """Return a table in Markdown."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    lines = [list(map(markdown_text, cells)) for cells in (heads, *rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (lines[0], rule, *lines[1:])) + "\n"


def latex(heads: Sequence[str], rows: Rows) -> str:
    """Return a table in LaTeX, for the package booktabs."""
    lines = [" & ".join(map(latex_text, cells)) + r" \\" for cells in (heads, *rows)]
    body = [r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", *body, r"\end{tabular}"]) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("eeg2text compare", description=__doc__)
    add = parser.add_argument
    add("systems", type=Path, nargs="+", metavar="FILE|DIR", help="files of predictions, or workdirs of finished runs")
    add_options(add)
    add("--mode", choices=("teacher_forced", "free_running"), help="mode to compare, or mode of files without one")
    add("--endpoint", default=WORDS_ENDPOINT, metavar="NAME", help=f"the score: {', '.join(ENDPOINTS)} (words)")
    add("--json", type=epath.Path, metavar="OUT", help="write the tables to this file")
    add("--markdown", type=epath.Path, metavar="OUT", help="write the tables in Markdown")
    add("--tex", type=epath.Path, metavar="OUT", help="write the tables in LaTeX (booktabs)")
    return parser
