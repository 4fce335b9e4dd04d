"""`eeg2text compare`: decoders of the same sentences, side by side."""

import argparse
import json
from collections.abc import Sequence

from etils import epath

from eeg2text_jax.auditing.result import columns_text
from eeg2text_jax.auditing.systems import PAIR_HEADINGS, SYSTEM_HEADINGS, compare_systems
from eeg2text_jax.commands.audit import endpoints_of
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.metrics.render import table_latex, table_markdown
from eeg2text_jax.metrics.tables import Table
from eeg2text_jax.predictions.file import Prediction
from eeg2text_jax.predictions.read import add_options, describe, options_of, read_any
from eeg2text_jax.predictions.selection import names_of, select_cells
from eeg2text_jax.study.metric_names import ENDPOINTS, WORDS_ENDPOINT

Rows = Sequence[Sequence[str]]


def main(argv: list[str]) -> int:
    flags = _parser().parse_args(argv)
    if folder := next((path for path in flags.systems if path.is_dir()), None):
        raise UserError(f"{folder}: is a folder; `eeg2text table DIR...` joins finished runs, with their verdicts.")
    if len(flags.systems) < 2:
        raise UserError("compare: expected two files of predictions at least.")
    tables = file_tables(flags)
    for heads, rows in tables:
        print(columns_text(heads, *rows), end="\n\n")
    made = [Table("", [("", head) for head in heads], [[list(row) for row in rows]], texts=1) for heads, rows in tables]
    for path, write in ((flags.markdown, table_markdown), (flags.tex, table_latex)):
        if path:
            write_text(path, "\n".join(map(write, made)))
    return 0


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("eeg2text compare", description=__doc__)
    add = parser.add_argument
    add("systems", type=epath.Path, nargs="+", metavar="FILE", help="files of predictions")
    add_options(add)
    add("--mode", choices=("teacher_forced", "free_running"), help="mode to compare, or mode of files without one")
    add("--endpoint", default=WORDS_ENDPOINT, metavar="NAME", help=f"the score: {', '.join(ENDPOINTS)} (words)")
    add("--json", type=epath.Path, metavar="OUT", help="write the tables to this file")
    add("--markdown", type=epath.Path, metavar="OUT", help="write the tables in Markdown")
    add("--tex", type=epath.Path, metavar="OUT", help="write the tables in LaTeX (booktabs)")
    return parser
