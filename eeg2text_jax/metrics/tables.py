"""Score tables in the layout of the paper's Tables 2-3, and decoded examples of all conditions side by side.

The paper is *Are EEG-to-Text Models Working?* (Jo et al. 2024).
"""

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from rapidfuzz.distance import LCSseq

from eeg2text_jax.predictions.file import Prediction

MODE_TITLES = {
    "free_running": "free-running",
    "teacher_forced": "w/tf",
    "contrastive": "contrastive",
    "likelihood": "likelihood",
    "unknown": "mode unknown",
}
PAPER_NOTE = (
    "The columns P and R of the paper's Tables 2-3 are exchanged: what the paper prints under P is the recall, and "
    "stands here under R."
)

# (group, heading, name of the figure in the results); a column without figures is left out
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
NARROW_COLUMNS = (  # for a terminal
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
    """A table as formatted texts."""

    caption: str
    columns: list[tuple[str, str]]  # title of the column's group, and the column's heading
    sections: list[list[list[str]]]  # texts by section, row, column; lines separate sections
    texts: int = 3  # number of the first columns that hold texts; figures follow

    @property
    def headings(self) -> list[str]:
        """The headings, each with the title of its group, for layouts with one line of headings."""
        return [f"{group} {heading}".strip() for group, heading in self.columns]

    @property
    def rows(self) -> list[list[str]]:
        """The rows of all sections."""
        return [row for section in self.sections for row in section]


@dataclasses.dataclass(frozen=True)
class Row:
    """The results of a model, training condition, evaluation condition and mode: an entry in `cells` for each seed."""

    label: str
    train_condition: str
    eval_condition: str
    mode: str
    cells: list[dict[str, Any]]

    def values(self, figure: str) -> list[float]:
        """Return the value of a figure for every seed that has it."""
        return [cell["metrics"][figure]["value"] for cell in self.cells if figure in cell["metrics"]]


def score_table(
    results: dict[str, Any], label: str = "model", columns: Sequence[tuple[str, str, str]] = COLUMNS, digits: int = 2
) -> Table:
    """Return the table of the results of `score_cells`.

    Figures of several seeds are shown as mean ± standard deviation (n - 1).

    Args:
      label: the model's name, for cells without a `label` of their own (a file name).
      columns: the columns, in the layout of `COLUMNS`.
      digits: decimals of every figure.
    """
    grouped = grouped_rows(results["cells"], label)
    rows = list(grouped.values())
    columns = [column for column in columns if any(row.values(column[2]) for row in rows)]
    sections = [
        [[*titles(row, title), *(summary(row.values(figure), digits) for *_, figure in columns)] for row in chosen]
        for mode, title in MODE_TITLES.items()
        if (chosen := [row for row in rows if row.mode == mode])
    ]
    if ratios := list(ratio_rows(grouped, [figure for *_, figure in columns])):
        sections.append(ratios)
    described = [("", "Model"), ("", "Training"), ("", "Evaluation"), *((group, name) for group, name, _ in columns)]
    return Table(caption(results, rows), described, sections)


def grouped_rows(cells: Iterable[dict[str, Any]], label: str = "") -> dict[tuple[str, str, str, str], Row]:
    """Return (model, training condition, evaluation condition, mode) -> row with a cell of each seed."""
    grouped: dict[tuple[str, str, str, str], Row] = {}
    for cell in cells:
        key = (cell.get("label", label), cell["train_condition"], cell["eval_condition"], cell["mode"])
        grouped.setdefault(key, Row(*key, [])).cells.append(cell)
    return grouped


def titles(row: Row, title: str) -> list[str]:
    """Return the first three texts of a row: model and mode, training condition, evaluation condition."""
    return [f"{row.label} {title}".strip(), row.train_condition, row.eval_condition]


def summary(values: Sequence[float], digits: int) -> str:
    """Format the mean, with the standard deviation if there are several values; a dash without values."""
    if not values:
        return "–"
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def ratio_rows(rows: dict[tuple, Row], figures: Sequence[str]) -> Iterable[list[str]]:
    """Yield a row for each model and pair of conditions that has both modes: teacher-forced mean / free-running mean.

    The keys of `rows` are (model, training condition, evaluation condition, mode).
    """
    for (*key, mode), free in rows.items():
        forced = rows.get((*key, "teacher_forced"))
        if mode == "free_running" and forced is not None:
            pairs = ((forced.values(figure), free.values(figure)) for figure in figures)
            yield [*titles(free, "w/tf : free"), *(ratio(*pair) for pair in pairs)]


def ratio(forced: Sequence[float], free: Sequence[float]) -> str:
    """Format the ratio of the two means; a dash if a mean is missing or the divisor is 0."""
    if not forced or not free or statistics.mean(free) == 0:
        return "–"
    return f"{statistics.mean(forced) / statistics.mean(free):.2f}"


def signatures(results: dict[str, Any]) -> dict[str, list[str]]:
    """Return every signature with the names of the figures that it applies to."""
    found: dict[str, dict[str, None]] = {}
    for cell in results["cells"]:
        for figure, about in cell["metrics"].items():
            found.setdefault(about["signature"], {})[figure] = None
    return {signature: list(figures) for signature, figures in found.items()}


def caption(results: dict[str, Any], rows: Sequence[Row]) -> str:
    """Return the caption: numbers of predictions, the profile, and which cells were not scored and why."""
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


def map_cells(table: Table, change: Callable[[str], str]) -> Table:
    """Return the table with every text replaced by `change(text)`, for example escaped."""
    return Table(
        change(table.caption),
        [(change(group), change(heading)) for group, heading in table.columns],
        [[[change(text) for text in row] for row in section] for section in table.sections],
        table.texts,
    )


Style = Literal["plain", "bold", "underline"]
Marked = list[tuple[str, Style]]


@dataclasses.dataclass(frozen=True)
class Example:
    """One sentence: the reference, and one prediction for each pair of conditions and mode, with marked words."""

    sample_id: str
    reference: Marked
    outputs: list[tuple[str, Marked]]  # (conditions and mode as a title, predicted words)


def side_by_side(predictions: Iterable[Prediction], count: int = 3) -> list[Example]:
    """Return up to `count` samples of distinct sentences, each with its predictions of all conditions and modes.

    Of several seeds only the first is shown, for each mode and pair of training and evaluation condition. Words of
    teacher-forced predictions are bold if the reference has them. Words of the other predictions are underlined if they
    are in every one of these other predictions, over all samples returned.
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
    """Return up to `count` sample ids, evenly spaced and of distinct sentences, among those that all `cells` have."""
    of_sentence: dict[str, str] = {}
    for sample, prediction in cells[0].items() if cells else ():
        if all(sample in cell for cell in cells):
            of_sentence.setdefault(prediction.sentence_id, sample)
    samples = list(of_sentence.values())
    return [samples[i * len(samples) // count] for i in range(count)] if len(samples) > count else samples


def example(sample_id: str, outputs: dict[tuple[str, str, str], Prediction], repeated: set[str]) -> Example:
    """Return the marked words of one sample; the keys of `outputs` are (mode, training, evaluation condition)."""
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
    """Return every word with `style` at these positions, and with "plain" elsewhere."""
    return [(word, style if i in positions else "plain") for i, word in enumerate(words)]
