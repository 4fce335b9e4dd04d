"""`eeg2text compare`: decoders of the same sentences, side by side."""

import argparse
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence

from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.commands.audit import endpoints_of
from eeg2text_jax.instrument.auditing.align import align
from eeg2text_jax.instrument.auditing.result import columns_text
from eeg2text_jax.instrument.auditing.table import WORDS, Endpoint, fill, strata_members, text_scorer
from eeg2text_jax.instrument.auditing.verdict import Z_95, Contrast, Strata, contrast, holm, interval_text, p_cell
from eeg2text_jax.instrument.metrics.metric_names import ENDPOINTS, WORDS_ENDPOINT
from eeg2text_jax.instrument.metrics.tables import Table, table_latex, table_markdown
from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_jax.instrument.predictions.read import add_options, describe, options_of, read_any
from eeg2text_jax.instrument.predictions.selection import names_of, select_cells

SYSTEM_HEADINGS = ("system", "rows", "score", "others", "content", "95 % CI", "p", "p (Holm)")
PAIR_HEADINGS = ("difference in content", "points", "95 % CI", "p", "p (Holm)")


@dataclasses.dataclass(frozen=True)
class Systems:
    """Content of each system above its own null (p is one-sided), and of each pair (p is two-sided)."""

    endpoint: Endpoint
    sentences: int
    rows: dict[str, int]
    systems: dict[str, Contrast]
    pairs: dict[tuple[str, str], Contrast]
    adjusted: list[float]  # p of the systems, then of the pairs, adjusted over all of them (Holm)
    notes: tuple[str, ...]

    def system_rows(self) -> list[tuple[str, ...]]:
        """Return the rows of a text table under `SYSTEM_HEADINGS`."""
        made: list[tuple[str, ...]] = []
        for (name, c), adjusted in zip(self.systems.items(), self.adjusted, strict=False):
            figures = f"{c.scores[0]:.2f}", f"{c.nulls[0]:.2f}", f"{c.effect:+.2f}", interval_text(c.interval(Z_95))
            made.append((name, str(self.rows[name]), *figures, p_cell(c.decisive_p), p_cell(adjusted)))
        return made

    def pair_rows(self) -> list[tuple[str, ...]]:
        """Return the rows of a text table under `PAIR_HEADINGS`."""
        adjusted = self.adjusted[len(self.systems) :]
        return [
            (f"{a} − {b}", f"{c.effect:+.2f}", interval_text(c.interval(Z_95)), p_cell(two_sided(c)), p_cell(p))
            for ((a, b), c), p in zip(self.pairs.items(), adjusted, strict=True)
        ]


def two_sided(pair: Contrast) -> float:
    return min(1.0, 2 * min(pair.p, pair.p_less))


def compare_systems(
    systems: Mapping[str, Sequence[Prediction]], *, endpoint: Endpoint = WORDS, mode: str | None = None
) -> Systems:
    """Compare decoders, name -> predictions, over the sentences that all have.

    Raises UserError if the systems share no sentence, or too few.
    """
    aligned = align(systems, mode=mode, rows_alike=False)
    strata = Strata(strata_members(aligned.strata))
    scores = text_scorer(aligned, endpoint)
    cells = {c.name: fill(c, aligned.references, strata.members, scores) for c in aligned.conditions}
    alone = {name: contrast(strata, table) for name, table in cells.items()}
    pairs = {(a, b): contrast(strata, cells[a], cells[b], name=b) for a, b in itertools.combinations(cells, 2)}
    p_values = [*(c.decisive_p for c in alone.values()), *map(two_sided, pairs.values())]
    rows = {condition.name: len(condition.rows) for condition in aligned.conditions}
    return Systems(endpoint, len(strata), rows, alone, pairs, holm(p_values), aligned.notes)


def main(argv: list[str]) -> int:
    flags = _parser().parse_args(argv)
    if folder := next((path for path in flags.systems if path.is_dir()), None):
        raise UserError(f"{folder}: is a folder; `eeg2text table DIR...` joins finished runs, with their verdicts.")
    if len(flags.systems) < 2:
        raise UserError("compare: expected two files of predictions at least.")
    systems: dict[str, list[Prediction]] = {}
    for path, name in zip(flags.systems, names_of(flags.systems), strict=True):
        prediction_set = read_any(path, mode=flags.mode, **options_of(flags))
        print(describe(prediction_set))
        systems[name] = next(iter(select_cells(prediction_set.predictions).values()))
    endpoint, *others = endpoints_of(flags.endpoint)
    if others:
        raise UserError(f"--endpoint={flags.endpoint}: expected one endpoint.")
    compared = compare_systems(systems, endpoint=endpoint, mode=flags.mode)
    for note in compared.notes:
        print(f"{note}.")
    print(f"{endpoint.label} in points, {compared.sentences} sentences; p of a pair is two-sided\n")
    rows = {"systems": (SYSTEM_HEADINGS, compared.system_rows()), "pairs": (PAIR_HEADINGS, compared.pair_rows())}
    tables = {name: Table("", [("", h) for h in heads], [[*map(list, of)]], 1) for name, (heads, of) in rows.items()}
    if flags.json:
        records = {name: [dict(zip(t.headings, row, strict=True)) for row in t.rows] for name, t in tables.items()}
        write_text(flags.json, json.dumps(records, indent=1, ensure_ascii=False) + "\n")
    for table in tables.values():
        print(columns_text(table.headings, *table.rows), end="\n\n")
    for path, write in ((flags.markdown, table_markdown), (flags.tex, table_latex)):
        if path:
            write_text(path, "\n".join(map(write, tables.values())))
    return 0


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
