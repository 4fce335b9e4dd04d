"""`eeg2text table` and `leakage`: any finished runs joined, and the papers' tables with the papers' own rows beside.

`published.tsv` has the papers' rows, `papers.tsv` what differs from the papers. Scores are of the profile "paper".
JAX is imported where it is needed, so that options are read at once.
"""

import argparse
import dataclasses
import itertools
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from eeg2text_jax.base.errors import UserError, named
from eeg2text_jax.base.files import parse_json, write_text
from eeg2text_jax.commands.data import PAPER_RATIO, parse_ratio
from eeg2text_jax.data.datafile import DataFile, read_outline
from eeg2text_jax.data.splits.certificate import SEGMENT, SENTENCE_ID, assess_leakage
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import readings_of
from eeg2text_jax.instrument.auditing.result import columns_text
from eeg2text_jax.instrument.auditing.verdict import interval_text, p_cell, p_of
from eeg2text_jax.instrument.metrics.score import PROFILES, score_cells
from eeg2text_jax.instrument.metrics.tables import (
    COLUMNS,
    Cells,
    Table,
    grouped_rows,
    side_by_side,
    styled,
    summary,
    values,
    write_table,
)
from eeg2text_jax.instrument.predictions.file import PredictionSet, read_predictions
from eeg2text_jax.instrument.workdir import check_unchanged
from eeg2text_jax.judge.pairs import Pair, Parts, data_tables

BLEU_ROUGE = (
    *(("BLEU-N tokens (%)", f"N={n}", f"token_bleu-{n}") for n in (1, 2, 3, 4)),
    *(("ROUGE-1, package rouge (%)", figure.upper(), f"rouge-1-{figure}") for figure in "prf"),
    ("WER (%)", "", "wer"),
)
FAIR_COLUMNS = (*BLEU_ROUGE[:4], BLEU_ROUGE[5], BLEU_ROUGE[4], BLEU_ROUGE[6])  # ROUGE as R, P, F, without WER
CONDITIONS = {"EEG": "eeg", "Random": "noise"}
BACKBONES = {"BART": "bart", "Pegasus": "pegasus", "T5": "t5"}
VERDICT_HEADINGS = ("run", "verdict", "content difference", "90 % CI", "p", "MDE")
MADE, PAPER = "here", "paper"  # the first column of a paper's table: whose figures a row has


@dataclasses.dataclass(frozen=True)
class Run:
    """A run whose results a paper's table has: a bundled configuration and its argument."""

    config: str
    argument: str

    @property
    def name(self) -> str:
        values = [part.partition("=")[2] for part in self.argument.split(",") if part]
        return "-".join([self.config, *values]).replace("*", "star")


@dataclasses.dataclass(frozen=True)
class PaperTable:
    """A table of a paper."""

    title: str
    places: tuple[str, ...]  # the paper, and its places on which the table depends, as in papers.tsv
    columns: tuple[tuple[str, str], ...]  # title of the group and heading, as in the paper
    texts: int  # columns that hold texts
    rows: tuple[tuple[str, ...], ...]  # as printed; "-" is a figure that is cut off in our copy


def _read_tables() -> dict[str, PaperTable]:
    """Read published.tsv: of each table `=title`, `=places`, `=columns`, then its rows."""
    lines = Path(__file__).with_name("published.tsv").read_text(encoding="utf8").splitlines()
    lines_of: dict[str, list[list[str]]] = {}
    for name, *cells in (line.split("\t") for line in lines):
        lines_of.setdefault(name, []).append(cells)
    tables = {}
    for name, ((_, title), (_, *places), (_, texts, *heads), *rows) in lines_of.items():
        columns = tuple((group, head) for group, _, head in (text.rpartition("|") for text in heads))
        tables[name] = PaperTable(title, tuple(places), columns, int(texts), tuple(map(tuple, rows)))
    return tables


TABLES = _read_tables()


def footnotes(table: str) -> list[str]:
    """Return what differs here from the paper, or is needed, where the table depends on it."""
    paper, *places = TABLES[table].places
    text = Path(__file__).with_name("papers.tsv").read_text(encoding="utf8")
    rows = (line.split("\t") for line in text.splitlines())
    return [f"{row[1]}, {row[2]}: {row[4]}." for row in rows if row[0] == paper and row[1] in places and row[4]]


def runs_of(table: str) -> list[Run]:
    """Return the runs of a table in the order of its rows, each once; none if it needs no run."""
    if table.startswith("jo-"):
        tasks = "sr-nr-nrv2" if table == "jo-3" else "sr-nr-tsr"
        names = ["bart"] if table == "jo-4" else BACKBONES.values()
        return [Run("paper", f"backbone={name},tasks={tasks}") for name in names]
    if table in ("fair-2", "fair-3"):
        return [_leakage_run(table, *row[:2]) for row in TABLES[table].rows]
    if table == "fair-4":
        return [Run("fair", f"model={model.lower()},data={data.lower()}") for data, model, *_ in TABLES[table].rows]
    if table == "fair-figure-4":
        methods = [("fair-2", "10+1e-3", "abcdef"), ("fair-3", "50+1e-4", "acdf")]
        return [_leakage_run(name, "UniCoRN", f"{length}+({m})") for name, length, letters in methods for m in letters]
    judges = {"latte-4": ("one", "two"), "latte-5": ("two,test=conversations",)}
    return [Run("judge", f"judge={number}") for number in judges.get(table, ())]


def _leakage_run(table: str, model: str, setting: str) -> Run:
    epochs, lr, method = setting.split("+")
    data, name = "narratives" if table == "fair-2" else "zuco", model.removesuffix("*").lower()
    about = f"data={data},model={name},method={method[1]},epochs={epochs},lr={lr}"
    return Run("leakage", about + (",pretrain=no" if model.endswith("*") else ""))


def predictions_of(workdir: Path) -> PredictionSet:
    """Return the predictions of a run. Raises UserError if it is not finished, or they were changed."""
    path = workdir / "predictions.jsonl"
    if not path.exists():
        raise UserError(f"{workdir}: is no finished run (it has no predictions.jsonl); run `eeg2text run` to its end.")
    check_unchanged(path)
    return read_predictions(path)


def cells_of_run(workdir: Path, profile: str = "paper") -> dict[tuple[str, ...], Cells]:
    """Return ("", training condition, evaluation condition, mode) -> scores of a run; none if it is not finished."""
    if not finished(workdir):
        return {}
    prediction_set = predictions_of(workdir)
    source = str(prediction_set.header.get("tokenizer", "unstated"))
    return grouped_rows(score_cells(prediction_set.predictions, profile=profile, token_source=source)["cells"])


def verdicts(workdirs: Sequence[Path]) -> Table:
    """Return a table of the verdicts of finished runs. Raises UserError for an audit that is not usable."""
    rows = [_verdict_row(folder) for folder in workdirs if (folder / "audit.json").exists()]
    return Table("Verdicts", [("", heading) for heading in VERDICT_HEADINGS], [rows], 2)


def _verdict_row(folder: Path) -> list[str]:
    path = folder / "audit.json"
    try:
        audit: dict[str, Any] = parse_json(path.read_text(encoding="utf8"))
        found = next(c for c in audit["comparisons"] if c["contrast"]["control"] == audit["deciding"])
        main = found["contrast"]
        more = max(main["p"], main["p_seeds"] or 0.0)
        p, what = p_of(found["verdict"], more, main["p_less"], found.get("p_equivalence"))
        shown = p_cell(p) + f" ({what})" * bool(what)
        figures = f"{main['effect']:+.2f}", interval_text(main["interval_90"]), shown, f"{audit['mde']:.2f}"
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise UserError(f"{path}: has no verdict of this version; run `eeg2text run` to its end there.") from error
    return [folder.name, audit["headline"], *figures]


def joined(workdirs: Sequence[Path], profile: str = "paper") -> Table:
    """Return one table of any finished runs: model, tasks, split, mode, conditions, every figure of a profile."""
    columns, described, lines = BLEU_ROUGE if profile == "paper" else COLUMNS, ("run", "model", "tasks", "split"), []
    for workdir in workdirs:
        about = [workdir.name, *_described(workdir)]
        for (_, train, test, mode), cells in cells_of_run(workdir, profile).items():
            lines.append(([*about, mode.replace("_", "-"), train, test], cells))
    columns = tuple(column for column in columns if any(values(cells, column[2]) for _, cells in lines))
    rows = [[*texts, *(summary(cells, figure) for *_, figure in columns)] for texts, cells in lines]
    heads = [("", head) for head in (*described, "mode", "training", "evaluation")]
    title = f"Finished runs, profile {profile}; several seeds: mean ± standard deviation"
    return Table(title, [*heads, *((group, name) for group, name, _ in columns)], [rows], len(heads))


def _described(workdir: Path) -> list[str]:
    try:
        config, split = (parse_json((workdir / f"{name}.json").read_text("utf8")) for name in ("config", "split"))
        model, brain = config["model"], config["model"]["encoder"]
        star = "*" if brain == "unicorn" and not config["pretrain"]["enabled"] else ""
        name = os.path.basename(model["checkpoint"]) or f"{model['backbone']}, random"
        tasks = sorted(split.get("tasks", {})) or [os.path.basename(config["data"]["source"])]
        return [f"{brain}{star} + {name}", ", ".join(tasks), config["split"]["method"]]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        said = f"is no finished run ({named(error)}); expected config.json and split.json"
        raise UserError(f"{workdir}: {said}.") from error


def paper_table(name: str, rows: Mapping[tuple[str, ...], Sequence[Sequence[str]]], more: Sequence[Any] = ()) -> Table:
    """Return a paper's table: below each of its rows those of ours with the same first cells.

    `rows` maps the first cells to rows, of which the first cell says whose they are; `more` are sections below.
    """
    about, lines = TABLES[name], []
    for row in about.rows:
        key = row[: about.texts]
        lines += [[PAPER, *row], *([whose, *key, *figures] for whose, *figures in rows.get(key, ()))]
    sections = [section for section in (lines, *more) if section]
    return Table(about.title, [("", ""), *about.columns], sections, 1 + about.texts)


def jo_table(name: str, out: Path) -> Table:
    """Return Table 2 or 3 of Jo et al.: three models, four scenarios, with and without teacher forcing."""
    rows: dict[tuple[str, ...], list[list[str]]] = {}
    for run, label in zip(runs_of(name), BACKBONES, strict=True):
        scored = cells_of_run(out / run.name)
        for mode, suffix in (("free_running", ""), ("teacher_forced", " w/tf")):
            for train, test in itertools.product(CONDITIONS, repeat=2):
                cells = scored.get(("", CONDITIONS[train], CONDITIONS[test], mode), [])
                rows[f"{label}{suffix}", train, test] = [[MADE, *_means(cells, BLEU_ROUGE)]]
    return paper_table(name, rows)


def fair_table(name: str, out: Path) -> Table:
    """Return Table 2, 3 or 4 of the cross-subject paper; below a row of ours are its teacher-forced and noise rows."""
    ours = {MADE: ("eeg", "eeg", "free_running"), f"{MADE}, w/tf": ("eeg", "eeg", "teacher_forced")}
    ours[f"{MADE}, noise"] = ("noise", "noise", "free_running")
    rows = {}
    for run, row in zip(runs_of(name), TABLES[name].rows, strict=True):
        scored = cells_of_run(out / run.name)
        rows[row[:2]] = [
            [whose, *_means(scored.get(("", *tested), []), FAIR_COLUMNS)] for whose, tested in ours.items()
        ]
    return paper_table(name, rows)


def _means(cells: Cells, columns: Sequence[tuple[str, str, str]]) -> list[str]:
    return [f"{statistics.mean(found):.2f}" if (found := values(cells, figure)) else "-" for *_, figure in columns]


MARKS = {"plain": "{}", "bold": "**{}**", "underline": "_{}_"}
# Beginnings of the three sentences that Table 4 of Jo et al. shows.
SHOWN = ("It's not a particularly", "Everything its title", "Joseph H. Ball")


def examples_table(out: Path) -> Table:
    """Return Table 4 of Jo et al.: three sentences, each decoded with EEG and with noise, w/tf and without."""
    rows: list[list[str]] = []
    run = out / runs_of("jo-4")[0].name
    predictions = predictions_of(run).predictions if finished(run) else []
    shown = [row for row in predictions if row.reference.startswith(SHOWN)]
    has_all = len({row.reference for row in shown}) == len(SHOWN)  # else three sentences that are evenly spaced
    for example in side_by_side(shown if has_all else predictions, len(SHOWN)) if predictions else ():
        texts = {title: styled(words, MARKS, str) for title, words in example.outputs}
        rows.append([MADE, "Ground truth", styled(example.reference, MARKS, str)])
        for suffix, mode in ((" w/tf", "w/tf"), ("", "free-running")):
            for label, condition in CONDITIONS.items():
                rows.append([MADE, f"{label}{suffix}", texts.get(f"{condition} → {condition}, {mode}", "-")])
    return paper_table("jo-4", {}, [rows])


def finished(workdir: Path) -> bool:
    return (workdir / "results.json").exists()


SLICES = ("all", *(heading for _, heading in TABLES["latte-4"].columns[3:]))


def judge_rows(results: Mapping[str, Any], classifiers: Sequence[str]) -> list[list[str]]:
    """Return the parameters of each classifier, then its AUC on each slice of Table 4."""
    from eeg2text_jax.judge.baselines import three_digits

    slices = {row["slice"].lower(): row["auc"] for row in results["slices"]}
    rows = []
    for classifier in classifiers:
        auc = (slices.get(name, {}).get(classifier, {}).get("value") for name in SLICES)
        size = results.get("parameters", {}).get(classifier)
        rows.append([f"{size / 1e6:,.1f}M" if size else "-", *map(three_digits, auc)])
    return rows


def classifiers_of(results: Mapping[str, Any]) -> list[str]:
    """Return the baselines of a judge's results, BERTScore's first, then the judge."""
    names = list(results["slices"][0]["auc"])
    return [*(name for name in names if name.startswith("meaning[")), next(name for name in names if "judge" in name)]


def judges_table(workdirs: Sequence[Path]) -> Table:
    """Return one table of judges and their baselines in the layout of LATTEScore's Table 4, a section a judge."""
    sections = []
    for workdir in workdirs:
        names = classifiers_of(results := judge_results(workdir))
        rows = zip(names, judge_rows(results, names), strict=True)
        sections.append([[workdir.name, name, *figures] for name, figures in rows])
    return Table("Judges: AUC-ROC", [("", "run"), *TABLES["latte-4"].columns], sections, 2)


def judge_results(workdir: Path) -> dict[str, Any]:
    try:
        return parse_json((workdir / "results.json").read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        said = f"is no finished judge ({named(error)}); run `eeg2text judge` to its end"
        raise UserError(f"{workdir}: {said}.") from error


def latte_auc_table(out: Path) -> Table:
    """Return Table 4 of LATTEScore: two baselines and two judges, by speech type and severity."""
    rows: dict[tuple[str, ...], list[list[str]]] = {}
    first, second = (out / run.name for run in runs_of("latte-4"))
    counted, *approaches = [row[:2] for row in TABLES["latte-4"].rows]
    for workdir, wanted in ((first, approaches[:3]), (second, approaches[3:])):
        if finished(workdir):
            results = judge_results(workdir)
            counts = {row["slice"].lower(): row["n"] for row in results["slices"]}
            rows[counted] = [[MADE, *(str(counts.get(name, 0)) for name in SLICES)]]
            names = classifiers_of(results) if len(wanted) > 1 else classifiers_of(results)[-1:]
            for approach, (parameters, *auc) in zip(wanted, judge_rows(results, names), strict=True):
                rows[approach] = [[f"{MADE}, {parameters}", *auc]]
    return paper_table("latte-4", rows)


def latte_speakers_table(out: Path) -> Table:
    """Return Table 5 of LATTEScore: the paper's speakers, then ours, by word accuracy."""
    from eeg2text_jax.judge.baselines import BARS

    (run,) = runs_of("latte-5")
    results = judge_results(out / run.name) if finished(out / run.name) else {}
    table = (results.get("second_test") or {}).get("speakers") or results.get("speakers") or {"speakers": []}
    speakers = [
        [MADE, line["name"], line["etiology"], line["severity"], str(line["n"]),
         *(f"{line[name]:.1f}{'*' if line[name] >= bar else ''}" for name, bar in BARS.items())]
        for line in sorted(table["speakers"], key=lambda line: line["word_accuracy"])
    ]  # fmt: skip
    return paper_table("latte-5", {}, [speakers])


def pairs_table(name: str, pairs: Sequence[Pair], parts: Parts) -> Table:
    """Return Table 1, 2 or 3 of LATTEScore: speakers, parts or labels of the pairs."""
    tables = data_tables(pairs)
    rows: dict[tuple[str, ...], list[list[str]]] = {}
    if name == "latte-1":
        by_severity = {severity.lower(): n for severity, n in tables["speakers_by_severity"].items()}
        rows["# Speakers",] = [[MADE, *(str(by_severity.get(s, "-")) for s in ("mild", "moderate", "severe"))]]
    elif name == "latte-2":
        columns = [parts.counts()[part] for part in ("train", "test", "dev")]
        rows["# Examples",] = [[MADE, *(str(part["pairs"]) for part in columns)]]
        rows["Meaning Preserved",] = [[MADE, *(f"{100 * p['preserved'] / p['pairs']:.1f}%" for p in columns)]]
    else:
        for label, *about in (row[:3] for row in TABLES[name].rows if row[0] in tables["labels"]):
            of = tables["labels"][label]
            share = f"{of['pairs']} ({of['percent']:.0f}%)"
            rows[label, *about] = [[MADE, share, "G: {} T: {}".format(*of["example"])]]
    return paper_table(name, rows)


BSLR, OVER_ALL = "BSLR", ", over all"


@dataclasses.dataclass(frozen=True)
class LeakageRow:
    """A leakage rate of a split method, in percent."""

    rate: str  # `BSLR` (subjects), or `TSLR` (texts) and how texts are compared; and `OVER_ALL` or nothing
    method: str  # a to f
    values: tuple[float, ...]  # the rate of each seed; empty if the method cannot divide this data
    published: float | None  # the paper's average on this kind of recording; None if the paper has none
    why: str = ""  # why the method cannot divide this data

    @property
    def average(self) -> float | None:
        return statistics.mean(self.values) if self.values else None


def paper_rates(data: DataFile) -> dict[str, str]:
    """Return rate -> its name in the paper, which compares fMRI texts by story segment, and EEG texts by index."""
    return {BSLR: "BSLR(%)", f"TSLR, {SEGMENT if data.is_windows else SENTENCE_ID}": "TSLR(%)"}


def leakage_rows(data: DataFile, seeds: Sequence[int], ratio: Sequence[float]) -> list[LeakageRow]:
    """Return leakage rates from train to test of the paper's methods a to f: BSLR of all, then each TSLR of all.

    Each rate is an average over the subjects or texts of the test part, as the paper says, and once more over all of
    them, as some of its figures suggest.
    """
    readings = readings_of(data)
    kind = 0 if data.is_windows else 1  # of the paper's cells "fMRI / EEG"
    published = {row[:2]: row[-1].split(" / ")[kind] for row in TABLES["fair-1"].rows}
    rates_of: dict[tuple[str, str], list[float]] = {}
    why: dict[str, str] = {}
    for method in "abcdef":
        for seed in seeds:
            try:
                split = make_split(data, method, ratio, seed)
            except UserError as error:
                why[method] = str(error)
                break
            leaked = assess_leakage(readings, split.parts)[0]
            rates = {BSLR: leaked.bslr_over_test, f"{BSLR}{OVER_ALL}": leaked.bslr_over_all}
            for name, value in leaked.tslr.items():
                rates[f"TSLR, {name}"] = value
                if name in leaked.tslr_over_all:
                    rates[f"TSLR, {name}{OVER_ALL}"] = leaked.tslr_over_all[name]
            for rate, value in rates.items():
                rates_of.setdefault((rate, method), []).append(100 * value)
    rows = []
    for rate in dict.fromkeys(rate for rate, _ in rates_of):
        name = paper_rates(data).get(rate.removesuffix(OVER_ALL), "")
        for method in "abcdef":
            of_seeds = () if method in why else tuple(rates_of[rate, method])
            cell = published.get((name, f"({method})"), "-")
            rows.append(LeakageRow(rate, method, of_seeds, None if cell == "-" else float(cell), why.get(method, "")))
    return rows


def leakage_table(data: Sequence[DataFile], seeds: Sequence[int] = (1, 2, 3, 4)) -> Table:
    """Return Table 1 of the cross-subject paper from a data file of scans and one of words: cells "fMRI / EEG"."""
    cells: dict[tuple[str, ...], list[list[str]]] = {}
    for kind, outline in enumerate(data):
        for row in leakage_rows(outline, seeds, PAPER_RATIO):
            plain = row.rate.removesuffix(OVER_ALL)
            if not (name := paper_rates(outline).get(plain)):
                continue
            key = name + row.rate.removeprefix(plain), f"({row.method})"
            sides = cells.setdefault(key, [["-"] * (len(seeds) + 1) for _ in data])
            if row.values:
                sides[kind] = [f"{value:.2f}" for value in (*row.values, row.average)]
    rows = {key: [[MADE, *(" / ".join(pair) for pair in zip(*sides, strict=True))]] for key, sides in cells.items()}
    over_all = [[MADE, *key, *lines[0][1:]] for key, lines in rows.items() if key[0].endswith(OVER_ALL)]
    return paper_table("fair-1", rows, [over_all])


def figure_table(out: Path) -> Table:
    """Draw fair-figure-4.png, a panel per data set and stage, a curve per split; return its lowest and last losses."""
    from eeg2text_jax.training.metrics_log import curve, curves_figure, rows_of, write_figure

    rows: list[list[str]] = []
    panels: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for run in runs_of("fair-figure-4"):
        if not finished(out / run.name):
            continue
        config = parse_json((out / run.name / "config.json").read_text("utf8"))
        arm, method = f"eeg/{config['grid']['seeds'][0]}", f"({config['split']['method']})"
        data = "Narratives" if "narratives" in run.argument else "ZuCo"
        for stage in ("snapshot", "series"):
            settings = config["pretrain"][stage]
            per_epoch = settings["steps"] / (settings["epochs"] or 1)
            logged = [
                {name.replace(arm, "recordings"): value for name, value in row.items()}
                | {"step": row["step"] / per_epoch}
                for row in rows_of(epath.Path(out / run.name / stage / "metrics.jsonl"))
            ]
            panels.setdefault(f"{data}, {stage}", {})[method] = logged
            epochs, losses = curve(logged, "dev_loss/recordings")
            lowest = min(range(len(losses)), key=losses.__getitem__)
            trivial = (logged[0][f"{name}/recordings"] for name in ("zero", "mean"))
            figures = (losses[lowest], epochs[lowest], losses[-1], *trivial)
            rows.append([MADE, data, method, stage, *(f"{value:.4f}" for value in figures)])
    if panels:
        write_figure(curves_figure(panels, ["recordings"], "epoch"), epath.Path(out / "fair-figure-4.png"))
    return paper_table("fair-figure-4", {}, [rows])


def leakage_text(rows: Sequence[LeakageRow], seeds: Sequence[int]) -> str:
    rates = dict.fromkeys(entry.rate for entry in rows)
    width = max(len(rate) for rate in rates) + 5
    heading = [f"{'(%)':<{width}}method", *(f"seed {seed}" for seed in seeds), "average", "published"]
    lines = ["".join(f"{word:>11}" if i else f"{word:<{width + 8}}" for i, word in enumerate(heading))]
    for entry in rows:
        shown = [*(entry.values or [None] * len(seeds)), entry.average, entry.published]
        cells = "".join(f"{'-' if value is None else f'{value:.2f}':>11}" for value in shown)
        lines.append(f"{entry.rate:<{width}}({entry.method})     {cells}")
    reasons = {entry.method: entry.why for entry in rows if entry.why}
    return "\n".join([*lines, *(f"({method}): {why}" for method, why in reasons.items())])


MOST_SEEDS = 1000  # each seed makes six splits of the whole data file


def leakage(argv: Sequence[str]) -> int:
    """Print what split methods (a) to (f) leak from train to test, by seed: Table 1 of the cross-subject paper."""
    parser = argparse.ArgumentParser(prog="eeg2text leakage", description=leakage.__doc__)
    parser.add_argument("data", type=Path, metavar="DATA.h5")
    parser.add_argument("--seeds", type=int, default=4, help="number of seeds; 4 by default, as in the paper")
    parser.add_argument("--ratio", type=parse_ratio, default=PAPER_RATIO, help="train,dev,test; 0.8,0.1,0.1 by default")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all rates to this file")
    flags = parser.parse_args(argv)
    if not 1 <= flags.seeds <= MOST_SEEDS:
        raise UserError(f"--seeds={flags.seeds}: expected a whole number from 1 to {MOST_SEEDS}.")
    seeds = range(1, flags.seeds + 1)
    rows = leakage_rows(read_outline(flags.data), seeds, flags.ratio)
    print(leakage_text(rows, seeds))
    if flags.json:
        written = [{**dataclasses.asdict(row), "average": row.average} for row in rows]
        write_text(flags.json, json.dumps(written, indent=1) + "\n")
        print(f"wrote {flags.json}")
    return 0


def table(argv: Sequence[str]) -> int:
    """Join finished runs, or judges, in one table: model, tasks, split, mode, conditions, scores; then the verdicts."""
    parser = argparse.ArgumentParser(prog="eeg2text table", description=table.__doc__)
    parser.add_argument("workdirs", nargs="+", type=Path, metavar="DIR", help="workdirs of `eeg2text run` or `judge`")
    parser.add_argument("--profile", choices=PROFILES, default="paper", help="paper: BLEU on tokens, package rouge")
    written = "also write .md, .tex, .csv"
    parser.add_argument("--out", type=Path, action="append", default=[], metavar="FILE", help=written)
    flags = parser.parse_args(argv)
    judges = [folder for folder in flags.workdirs if (folder / "judge").is_dir()]
    runs = [folder for folder in flags.workdirs if folder not in judges]
    judged = verdicts(runs)
    tables = [*([joined(runs, flags.profile)] if runs else []), *([judges_table(judges)] if judges else [])]
    for made in (*tables, *([judged] if judged.rows else [])):
        show(made)
    for path in flags.out:
        if len(tables) > 1:
            raise UserError(f"--out={path}: runs and judges are two tables; write them one by one.")
        write_table(path, tables[0], [": ".join(row[:2]) for row in judged.rows])
        print(f"wrote {path}")
    return 0


def show(made: Table) -> None:
    print(f"{made.caption}\n{columns_text(made.headings, *made.rows)}\n")
