"""Score tables in the layout of the paper's Tables 2-3 (training x evaluation condition, with and without teacher
forcing), and predictions side by side.
"""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from rapidfuzz.distance import LCSseq

from eeg2text_jax.metrics.score import PAPER_NOTE
from eeg2text_jax.predictions.file import Prediction

MODE_TITLES = {
    "free_running": "free-running",
    "teacher_forced": "w/tf",
    "contrastive": "contrastive",
    "likelihood": "likelihood",
    "unknown": "mode unknown",
}
RATIO_TITLE = "w/tf : free"

# (group, heading, figure in results); a group without any figure is left out
COLUMNS = (
    *(("BLEU-N tokens (%)", f"N={n}", f"token_bleu-{n}") for n in (1, 2, 3, 4)),
    *(("BLEU-N words (%)", f"N={n}", f"word_bleu-{n}") for n in (1, 2, 3, 4)),
    *(("ROUGE-1 (%)", figure.upper(), f"rouge-1-{figure}") for figure in "prf"),
    ("WER (%)", "", "wer"),
    *(("BERTScore (%)", figure.upper(), f"bertscore-{figure}") for figure in "prf"),
    ("similarity (%)", "", "similarity"),
    ("LATTEScore (%)", "", "lattescore"),
    ("LATTEScore (%)", "mean", "lattescore-mean"),
    *(("which sentence (%)", name, name) for name in ("top-1", "top-5", "chance top-5", "top-5 by length", "rank")),
    *(("which sentence (%)", name, name) for name in ("top-1 in stratum", "chance top-1 in stratum")),
)
NARROW_COLUMNS = (  # fit a terminal
    ("BLEU-1", "tokens", "token_bleu-1"),
    ("BLEU-1", "words", "word_bleu-1"),
    ("ROUGE-1", "F", "rouge-1-f"),
    ("WER", "", "wer"),
    ("BERTScore", "F", "bertscore-f"),
    ("similarity", "", "similarity"),
    ("LATTEScore", "", "lattescore"),
    *(("which sentence (%)", name, name) for name in ("top-1", "top-5", "chance top-5", "top-5 by length")),
)


PAPER_COLUMNS = (
    *((f"BLEU-{n}", "tokens", f"token_bleu-{n}") for n in (1, 2, 3, 4)),
    *(("ROUGE-1", figure.upper(), f"rouge-1-{figure}") for figure in "prf"),
    ("ROUGE-L", "F", "rouge-l-f"),
    ("WER", "", "wer"),
)


@dataclasses.dataclass(frozen=True)
class Table:
    """The text of a table. `groups` holds (title, number of columns); `sections` the rows between two rules."""

    caption: str
    groups: list[tuple[str, int]]
    headings: list[str]
    sections: list[list[list[str]]]


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: the cells (one per seed) of a model, training condition, evaluation condition and mode."""

    label: str
    train_condition: str
    eval_condition: str
    mode: str
    cells: list[dict[str, Any]]

    def values(self, figure: str) -> list[float]:
        return [cell["metrics"][figure]["value"] for cell in self.cells if figure in cell["metrics"]]


def score_table(
    results: dict[str, Any],
    label: str = "model",
    columns: Sequence[tuple[str, str, str]] = COLUMNS,
    digits: int = 2,
) -> Table:
    """Make the table of one run's `score_cells`; a cell's own `label` (a file name) replaces `label`, the model's name.

    Several seeds give mean ± standard deviation (n - 1); ratios are ratios of means.
    """
    rows = group_rows(results["cells"], label)
    columns = [column for column in columns if any(row.values(column[2]) for row in rows)]
    sections = [
        [[*titles(row, title), *(summary(row.values(figure), digits) for *_, figure in columns)] for row in chosen]
        for mode, title in MODE_TITLES.items()
        if (chosen := [row for row in rows if row.mode == mode])
    ]
    if ratios := list(ratio_rows(rows, [figure for *_, figure in columns])):
        sections.append(ratios)
    return Table(
        caption(results, rows),
        [("", 3), *spans(group for group, *_ in columns)],
        ["Model", "Training", "Evaluation", *(heading for _, heading, _ in columns)],
        sections,
    )


def group_rows(cells: Iterable[dict[str, Any]], label: str) -> list[Row]:
    rows: dict[tuple, Row] = {}
    for cell in cells:
        key = (cell.get("label", label), cell["train_condition"], cell["eval_condition"], cell["mode"])
        rows.setdefault(key, Row(*key, [])).cells.append(cell)
    return list(rows.values())


def titles(row: Row, title: str) -> list[str]:
    return [f"{row.label} {title}".strip(), row.train_condition, row.eval_condition]


def summary(values: Sequence[float], digits: int) -> str:
    """Format the mean, with the standard deviation of several values; a dash without values."""
    if not values:
        return "–"
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def ratio_rows(rows: Sequence[Row], figures: Sequence[str]) -> Iterable[list[str]]:
    """Return rows with the ratio of teacher-forced to free-running figures, where both exist."""
    by_key: dict[tuple[Any, ...], Row] = {
        (row.label, row.train_condition, row.eval_condition, row.mode): row for row in rows
    }
    for (*key, mode), free in by_key.items():
        forced = by_key.get((*key, "teacher_forced"))
        if mode == "free_running" and forced is not None:
            pairs = ((forced.values(figure), free.values(figure)) for figure in figures)
            yield [*titles(free, RATIO_TITLE), *(ratio(*pair) for pair in pairs)]


def ratio(forced: Sequence[float], free: Sequence[float]) -> str:
    if not forced or not free or statistics.mean(free) == 0:
        return "–"
    return f"{statistics.mean(forced) / statistics.mean(free):.2f}"


def signatures(results: dict[str, Any]) -> dict[str, list[str]]:
    """Return every signature with the figures that it applies to."""
    found: dict[str, list[str]] = {}
    for cell in results["cells"]:
        for figure, about in cell["metrics"].items():
            names = found.setdefault(about["signature"], [])
            if figure not in names:
                names.append(figure)
    return found


def caption(results: dict[str, Any], rows: Sequence[Row]) -> str:
    """Return the caption: how many rows were scored, and the metrics' conventions."""
    counts = sorted({(cell["rows"], cell["sentences"]) for cell in results["cells"]})
    sizes = "; ".join(f"{rows} predictions of {sentences} sentences" for rows, sentences in counts)
    seeds = max(len(row.cells) for row in rows)
    spread = f" Mean ± standard deviation over {seeds} seeds." if seeds > 1 else ""
    exchanged = f" {PAPER_NOTE}" if results["profile"] == "paper" else ""
    again = any("retokenized[" in about for about in signatures(results))
    tokens = " Tokens: re-tokenized from the text; not those that the model wrote." if again else ""
    unscored = "".join(
        f" Not scored: {cell['train_condition']} → {cell['eval_condition']}, seed {cell['seed']}: {cell['unscored']}"
        for cell in results["cells"]
        if "unscored" in cell
    )
    return f"Each line: {sizes}. Profile {results['profile']}.{spread}{exchanged}{tokens}{unscored}"


def spans(names: Iterable[str]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for name in names:
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1] + 1)
        else:
            found.append((name, 1))
    return found


def map_cells(table: Table, change: Callable[[str], str]) -> Table:
    """Return the table with `change` applied to every text; used to escape."""
    return Table(
        change(table.caption),
        [(change(title), span) for title, span in table.groups],
        [change(heading) for heading in table.headings],
        [[[change(text) for text in row] for row in section] for section in table.sections],
    )


Style = Literal["plain", "bold", "underline"]
Marked = list[tuple[str, Style]]


@dataclasses.dataclass(frozen=True)
class Example:
    """One sentence: its words, and one line of marked words per cell and mode."""

    sample_id: str
    reference: Marked
    outputs: list[tuple[str, Marked]]


def side_by_side(predictions: Iterable[Prediction], count: int = 3) -> list[Example]:
    """Return up to `count` evenly spaced samples of distinct sentences in every cell and mode, of the first seed."""
    cells: dict[tuple[str, str, str], dict[str, Prediction]] = {}
    first_seed: dict[tuple[str, str, str], int] = {}
    for p in predictions:
        cell = (p.mode, p.train_condition, p.eval_condition)
        if first_seed.setdefault(cell, p.seed) == p.seed:
            cells.setdefault(cell, {})[p.sample_id] = p
    order = sorted(cells, key=lambda cell: (cell[0] != "teacher_forced", cell[0]))
    shown = choose_samples([cells[cell] for cell in order], count)
    repeated = repeated_words(
        cells[cell][sample].prediction for cell in order if cell[0] != "teacher_forced" for sample in shown
    )
    return [example(sample, {cell: cells[cell][sample] for cell in order}, repeated) for sample in shown]


def choose_samples(cells: Sequence[dict[str, Prediction]], count: int) -> list[str]:
    """Return evenly spaced sample ids of distinct sentences that all cells have."""
    of_sentence: dict[str, str] = {}
    for sample, prediction in cells[0].items() if cells else ():
        if all(sample in cell for cell in cells):
            of_sentence.setdefault(prediction.sentence_id, sample)
    samples = list(of_sentence.values())
    return [samples[i * len(samples) // count] for i in range(count)] if len(samples) > count else samples


def repeated_words(texts: Iterable[str]) -> set[str]:
    """Return the words common to all texts; empty for a single text."""
    words = [set(text.split()) for text in texts]
    return set.intersection(*words) if len(words) > 1 else set()


def example(sample_id: str, outputs: dict[tuple[str, str, str], Prediction], repeated: set[str]) -> Example:
    reference = next(iter(outputs.values())).reference.split()
    matched: set[int] = set()
    lines = []
    for (mode, train, evaluation), prediction in outputs.items():
        words = prediction.prediction.split()
        bold = set()
        if mode == "teacher_forced":
            pairs = matching_words(reference, words)
            matched |= {i for i, _ in pairs}
            bold = {j for _, j in pairs}
        underline = set() if mode == "teacher_forced" else {j for j, word in enumerate(words) if word in repeated}
        lines.append((f"{train} → {evaluation}, {MODE_TITLES[mode]}", mark(words, bold, underline)))
    return Example(sample_id, mark(reference, matched, set()), lines)


def matching_words(reference: Sequence[str], prediction: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence's words in both texts."""
    blocks = LCSseq.opcodes(reference, prediction)
    return [
        (i, block.dest_start + i - block.src_start)
        for block in blocks
        if block.tag == "equal"
        for i in range(block.src_start, block.src_end)
    ]


def mark(words: Sequence[str], bold: set[int], underline: set[int]) -> Marked:
    return [(word, "bold" if i in bold else "underline" if i in underline else "plain") for i, word in enumerate(words)]
