"""`eeg2text prepare`, `check`, `export-data` and `split`: make a data file, inspect, convert and divide it."""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import file_digest, replacing, write_text
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.commands.arguments import check_outputs
from eeg2text_jax.data.check import check_datafile, names_of, scale_figure
from eeg2text_jax.data.datafile import DataFile, read_datafile, read_outline
from eeg2text_jax.data.prepare import prepare as make_datafile
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_jax.data.splits.certificate import OVERLAP, certify, certify_data, paper_table1, split_report
from eeg2text_jax.data.splits.methods import FROM_FILE, METHODS, SUBJECTS, check_ratio, make_folds, make_split
from eeg2text_jax.data.splits.neighbors import recordings_of_texts, run_table, texts_of
from eeg2text_jax.data.splits.split import PARTS, Split, read_split_file, readings_of, text_units, write_split_file
from eeg2text_jax.data.table_files import write_parquet
from eeg2text_jax.instrument.predictions.columns import read_metadata
from eeg2text_jax.instrument.predictions.file import sentence_key
from eeg2text_jax.runs.repeats import MAPS, repeat_lines, repeats, repeats_figure
from eeg2text_jax.training.configuration import load_config, parse_config

MOST_LINES, MOST_NAMED = 60, 12  # most recordings in the figure; most groups in its legend


def time_figure(data: DataFile) -> Any:
    """Return a figure of the samples by time, a line per recording, colored by story or task."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # slow to import, and seldom needed

    clock = data.clock
    groups = data.task if data.text_group is None else data.text_group
    names, label = np.unique(groups.astype(str), return_inverse=True)
    lines = list(clock.recordings().items())
    shown = lines[:MOST_LINES]
    figure = Figure(figsize=(9, 1.5 + 0.18 * len(shown)), layout="constrained")
    axes = figure.subplots()
    colors = colormaps["tab20"](np.arange(len(names)) % 20)
    for y, (_, rows) in enumerate(shown):
        rows = rows[clock.timed[rows]]
        begin, end = clock.spans[rows].T
        width = np.maximum(end - begin, 0.6 if clock.unit == "samples" else 0.2)
        axes.barh(np.full(len(rows), y), width, left=begin, height=0.8, color=colors[label[rows]])
    axes.set(yticks=range(len(shown)), yticklabels=[name for name, _ in shown], ylim=(len(shown) - 0.4, -0.6),
             xlabel="seconds" if clock.in_seconds else "place in the order")  # fmt: skip
    axes.tick_params(axis="y", labelsize=6)
    more = f", {len(shown)} of {len(lines)} recordings" if len(lines) > len(shown) else ""
    axes.set_title(f"{data.path.name}: what was recorded when{more}", fontsize=9)
    for name, color in list(zip(names, colors, strict=True))[:MOST_NAMED]:
        axes.barh([0], [0], color=color, label=name)
    axes.legend(fontsize=6, loc="upper right")
    return figure


def place_figure(data: DataFile) -> Any:
    """Return a figure of texts by place, a line per recording, with panels of task and run.

    A text's color is its place in the first recording of its run that has it: recordings of one order look alike.
    """
    from matplotlib.figure import Figure  # slow to import, and seldom needed

    text, lines = texts_of(readings_of(data)), recordings_of_texts(readings_of(data))
    shown = list(lines.items())[:MOST_NAMED]
    sizes = [min(len(recordings), MOST_LINES) for _, recordings in shown]
    figure = Figure(figsize=(9, 1 + 0.5 * len(shown) + 0.12 * sum(sizes)), layout="constrained")
    panels = figure.subplots(len(shown), squeeze=False, gridspec_kw={"height_ratios": sizes})[:, 0]
    for axes, (run, recordings) in zip(panels, shown, strict=True):
        recordings = recordings[:MOST_LINES]
        image = np.full((len(recordings), max(len(rows) for rows in recordings)), np.nan)
        first: dict[str, int] = {}
        for y, rows in enumerate(recordings):
            image[y, : len(rows)] = [first.setdefault(text[i], len(first)) for i in rows]
        axes.imshow(image, aspect="auto", interpolation="nearest", cmap="viridis")
        axes.set_title(f"{run}: {len(lines[run])} recordings", fontsize=8)
        axes.set_yticks(range(len(recordings)), [data.clock.recording[rows[0]] for rows in recordings], fontsize=5)
    panels[-1].set_xlabel("place in the recording (index); color: the text")
    return figure


_COLOURS = {"nothing": "#ffffff", "discarded": "#d9d9d9", "train": "#3b6fb6", "dev": "#e0a030", "test": "#c2403a",
            "several parts": "#7d5ba6"}  # fmt: skip


def part_cells(data: DataFile, split: Split) -> np.ndarray:
    """Return the part of each pair of subject and text as an index into `_COLOURS`, int `[subjects, texts]`."""
    subject, text = (np.unique(of, return_inverse=True)[1] for of in (data.subject.astype(str), text_units(data)))
    present = np.zeros((subject.max() + 1, text.max() + 1, len(PARTS)), bool)
    recorded = np.zeros(present.shape[:2], bool)
    recorded[subject, text] = True
    for k, name in enumerate(PARTS):
        rows = split.parts[name]
        present[subject[rows], text[rows], k] = True
    n_parts = present.sum(axis=-1)
    return np.select([n_parts > 1, n_parts == 1, recorded], [len(_COLOURS) - 1, present.argmax(axis=-1) + 2, 1], 0)


def split_map(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Any:
    """Return a figure of methods (a) to (f): the part of each pair of subject and text, or why none."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure  # slow to import, and seldom needed
    from matplotlib.patches import Patch

    figure = Figure(figsize=(19.2, 4.2), layout="constrained")
    colours = ListedColormap(list(_COLOURS.values()))
    for axes, method in zip(figure.subplots(1, 6), "abcdef", strict=True):
        axes.set(xticks=[], yticks=[], xlabel="text group" if data.is_windows else "text", ylabel="subject")
        try:
            split = make_split(data, method, ratio, seed)
        except UserError as error:
            axes.set_title(f"({method})")
            axes.text(0.5, 0.5, str(error).rpartition(": ")[2], wrap=True, ha="center", va="center", fontsize=7,
                      transform=axes.transAxes)  # fmt: skip
            continue
        axes.imshow(part_cells(data, split), cmap=colours, vmin=0, vmax=len(_COLOURS) - 1, aspect="auto",
                    interpolation="nearest")  # fmt: skip
        sizes = " / ".join(f"{len(split.parts[name]):,}" for name in PARTS)
        axes.set_title(f"({method}) keeps {split.kept / len(data):.0%}\n{sizes}", fontsize=9)
    figure.legend(
        handles=[Patch(facecolor=colour, edgecolor="#888888", label=name) for name, colour in _COLOURS.items()],
        loc="outside lower center", ncols=len(_COLOURS), fontsize=8,
    )  # fmt: skip
    return figure


# Croissant 1.0 (docs.mlcommons.org/croissant): a JSON description of an exported Parquet file for catalogues.

_TERMS = (
    "citeAs column equivalentProperty extract field fileProperty fileObject fileSet format includes isLiveDataset "
    "jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator "
    "source subField transform"
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    **{term: f"cr:{term}" for term in _TERMS.split()},
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}
_COLUMNS = {
    "sentence": ("sc:Text", "The sentence that was read."),
    "subject": ("sc:Text", "The subject who read the sentence."),
    "task": ("sc:Text", "The task in which the sentence was read."),
    "sentence_index": ("sc:Integer", "Number of the sentence within its task, the same for every subject."),
}
_TIME = {
    "recording": ("sc:Text", "Name of the recording, one run of one subject."),
    "onset": ("sc:Float", "Seconds on the clock of the recorder."),
    "duration": ("sc:Float", "Duration of the sample in seconds."),
    "order": ("sc:Integer", "Place of the sample in its recording."),
}


def write_croissant(data: DataFile, parquet: Path, out: Path, name: str, licence: str = "", cite: str = "") -> None:
    """Write `out` about the Parquet file that `write_parquet` made; `licence`: name or URL, `cite`: BibTeX."""
    fields = [
        {"@type": "cr:Field", "@id": f"samples/{column}", "name": column, "description": meaning, "dataType": kind}
        | {"source": {"fileObject": {"@id": "parquet"}, "extract": {"column": column}}}
        for column, (kind, meaning) in (_COLUMNS | ({} if data.clock is None else _TIME)).items()
    ]
    stored = {
        "@type": "cr:FileObject",
        "@id": "parquet",
        "name": parquet.name,
        "contentUrl": parquet.name,
        "contentSize": f"{parquet.stat().st_size} B",
        "encodingFormat": "application/x-parquet",
        "sha256": file_digest(parquet),
    }
    about = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": (
            f"{len(data)} samples, each one subject reading one sentence. Beside the columns below, `features` holds a "
            f"list of {data.n_features} numbers for every word: {data.features_are}."
        ),
        "version": "1.0.0",
        "datePublished": datetime.now(UTC).strftime("%Y-%m-%d"),
        "isLiveDataset": False,
        "distribution": [stored],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "samples", "name": "samples", "field": fields}],
        **{key: value for key, value in {"license": licence, "citeAs": cite}.items() if value},
    }
    write_text(out, json.dumps(about, indent=1, ensure_ascii=False) + "\n")


SPLIT = "eeg2text split DATA.h5 --method=f: divide a data file and certify the split; --audit judges any split."
PAPER_RATIO = (0.8, 0.1, 0.1)


def prepare(argv: list[str]) -> int:
    argv = ["--config.data.recordings.strict=True" if argument == "--strict" else argument for argument in argv]
    argv = [re.sub("^--(compat|task)=", r"--config.data.recordings.\1=", argument) for argument in argv]
    positional = "SOURCE... [--compat=wang-ji] [--strict] [--task=NR]"
    known: dict[str, Any] = {"default": "default", "positional": positional, "sections": ("data",)}
    arguments = parse_config(argv, "prepare", options=("out",), **known)
    out = Path(arguments.options["out"])
    tally = make_datafile(read_section(DataSettings, arguments.config.data), out, arguments.positional)
    for note in tally.notes:
        print(note, file=sys.stderr)
    print(tally.report())
    if tally.sentences:  # the source has recordings: Table 1 of the paper, for the new data file
        data = read_outline(out)
        try:
            table = paper_table1(data, make_split(data, "unique_sent", PAPER_RATIO, seed=0))
            print(f"\nas Table 1 of the paper (positional split {PAPER_RATIO}, unique_sent):\n{table}\n")
        except UserError as error:
            print(f"\nTable 1 of the paper cannot be made: {error}\n")
    print(f"wrote {out}")
    return 0


def check(argv: Sequence[str]) -> int:
    """Describe a data file and report its problems; the exit status is 2 if there are any."""
    parser = argparse.ArgumentParser(prog="eeg2text check", description=check.__doc__)
    add = parser.add_argument
    add("data", type=Path, metavar="DATA.h5")
    add("--png", type=Path, metavar="OUT", help="write a picture of the features' scales, band by channel")
    add("--time", type=Path, metavar="OUT", help="write a PNG picture of the time at which samples were recorded")
    add("--places", type=Path, metavar="OUT", help="write a PNG picture of the texts by place, a line per recording")
    alike = "compare recordings of the same sentences, by correlation or after a linear map between recordings"
    add("--repeats", nargs="?", const="correlation", choices=MAPS, help=alike)
    add("--repeats-png", type=Path, metavar="OUT", help="write a picture of --repeats: by distance, band and channel")
    add("--condition", metavar="NAME", help="describe the encoder's input under a condition, such as noise")
    flags = parser.parse_args(argv)
    findings = check_datafile(flags.data)
    print(findings.text())
    outline = None if findings.problems else read_outline(flags.data)
    timed = outline is not None and outline.clock is not None
    if timed and (table := run_table(readings_of(outline), outline.provenance.get("seconds_per_character", 0.0))):
        print("\n" + "\n".join(table))
    if flags.condition and not findings.problems:
        from eeg2text_jax.training.conditions.condition import condition_lines  # imports JAX

        print("\n".join(condition_lines(read_datafile(flags.data), flags.condition)))
    for flag, out, figure in (("time", flags.time, time_figure), ("places", flags.places, place_figure)):
        if not out or outline is None:
            continue
        if not timed:
            raise UserError(
                f"--{flag}={out}: {flags.data} does not say when samples were recorded; leave --{flag} out, or "
                "prepare the file again with columns of recording and onset or order."
            )
        write_figure(figure(outline), out)
    if flags.png and findings.spread is not None:
        write_figure(scale_figure(findings), flags.png)
    if (flags.repeats or flags.repeats_png) and outline is not None:
        answers = repeats(read_datafile(flags.data), flags.repeats or "correlation")
        print("\n".join(repeat_lines(answers)))
        if flags.repeats_png:
            names = names_of(outline.features_are)
            write_figure(repeats_figure(answers, outline.n_features, *names), flags.repeats_png)
    return 2 if findings.problems else 0


def export_data(argv: Sequence[str]) -> int:
    """Write a data file as Parquet, which pandas, datasets and other libraries read."""
    parser = argparse.ArgumentParser(prog="eeg2text export-data", description=export_data.__doc__)
    add = parser.add_argument
    add("data", type=Path, metavar="DATA.h5")
    add("--out", type=Path, required=True, metavar="DATA.parquet")
    add("--croissant", type=Path, metavar="OUT.json", help="write a description of the Parquet file in Croissant")
    add("--name", default="", help="name of the data set, for --croissant; default: the name of the file")
    add("--cite", default="", help="how to cite the data set, for --croissant")
    add("--licence", default="", help="licence of the data set, a name or a URL, for --croissant")
    flags = parser.parse_args(argv)
    if flags.out.suffix.lower() not in (".parquet", ".pq"):
        raise UserError(f"--out={flags.out}: the output is a Parquet file; expected a name that ends in .parquet.")
    data = read_datafile(flags.data)
    write_parquet(data, flags.out)
    if flags.croissant:
        write_croissant(data, flags.out, flags.croissant, flags.name or flags.out.stem, flags.licence, flags.cite)
        print(f"wrote {flags.croissant}")
    print(f"wrote {flags.out}: {len(data)} samples of {data.n_features} features a word")
    return 0


def _parse_split(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="eeg2text split", description=SPLIT)
    usual, add = load_config("default").split, parser.add_argument
    ratio = ",".join(map(str, usual.ratio))
    add("data", nargs="?", help="data file (.h5) of `eeg2text prepare`")
    add("--method", default=usual.method, help=f"one of {', '.join([*METHODS, FROM_FILE])}")
    add("--seed", type=int, default=usual.seed)
    add("--ratio", type=parse_ratio, default=usual.ratio, help=f"train,dev,test; {ratio} by default")
    add("--path", default=usual.path, help="split file, for --method=file")
    add("--gap", type=float, default=usual.gap, help="for --method=blocks: seconds left out between parts")
    add("--unique-subjects", action="store_true", help="for --method=blocks: no subject is in two parts")
    add("--unique-sessions", action="store_true", help="for --method=blocks: no session (a day) is in two parts")
    add("--groups", type=Path, metavar="CSV", help="a column `reference`, and columns with its class, topic or story")
    add("--audit", metavar="JSON", help="judge this split file; with DATA.h5, compare the texts, too")
    alike = "share of common words from which two sentences are near-duplicates, 0 to 1"
    add("--overlap", type=float, default=OVERLAP, help=alike)
    add("--folds", default="", help="several splits that together test every text: their number, or subjects")
    add("--json", metavar="OUT", help="write the certificate to this file; with --folds, to OUT_1.json and so on")
    add("--map", type=Path, metavar="OUT.png", help="write a picture of the texts that methods a to f keep and share")
    arguments = parser.parse_args(argv)
    if arguments.seed < 0:
        raise UserError(f"--seed={arguments.seed}: expected a whole number of at least 0.")
    if not 0 < arguments.overlap <= 1:
        raise UserError(f"--overlap={arguments.overlap}: expected a share above 0 and at most 1.")
    if not 0 <= arguments.gap < float("inf"):
        raise UserError(f"--gap={arguments.gap}: expected seconds, 0 or more.")
    if not arguments.data and not arguments.audit:
        raise UserError("name a data file (`eeg2text split DATA.h5`) or a split to judge (`--audit=SPLIT.json`).")
    return arguments


def parse_ratio(text: str) -> tuple[float, ...]:
    """Parse shares of train, dev and test, with commas. Raises UserError, which names --ratio."""
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError as error:
        what = "three shares separated by commas (train,dev,test), such as 0.8,0.1,0.1"
        raise UserError(f"--ratio={text}: expected {what}.") from error


def split(argv: list[str]) -> int:
    arguments = _parse_split(argv)
    data: DataFile | None = read_datafile(arguments.data) if arguments.data else None
    if arguments.folds:
        _folds(arguments, data)
        return 0
    if data is None:
        readings, split = read_split_file(arguments.audit).readings()
        certificate = certify(readings, split, arguments.overlap)
    else:
        method, path = (FROM_FILE, arguments.audit) if arguments.audit else (arguments.method, arguments.path)
        options = (arguments.gap, arguments.unique_subjects, arguments.unique_sessions)
        split = make_split(data, method, arguments.ratio, arguments.seed, path, *options)
        ratio = None if method == FROM_FILE else arguments.ratio
        groups = labels_of_samples(data, arguments.groups) if arguments.groups else None
        readings, certificate = readings_of(data), certify_data(data, split, ratio, arguments.overlap, groups)
    print(split_report(certificate, readings))
    if data is not None:
        print(f"\n{paper_table1(data, split)}\n\nsplit hash {split.digest()}")
    if arguments.json:
        write_split_file(arguments.json, certificate)
        print(f"wrote {arguments.json}")
    if arguments.map and data is not None:
        write_figure(split_map(data, check_ratio(arguments.ratio), arguments.seed), arguments.map)
    return 0


def write_figure(figure: Any, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as partial:
        figure.savefig(str(partial), format="png", dpi=120)
    print(f"wrote {out}")


def _folds(arguments: argparse.Namespace, data: DataFile | None) -> None:
    if data is None or arguments.audit or not (arguments.folds.isdecimal() or arguments.folds == SUBJECTS):
        what = "a number of folds or 'subjects', and a data file to divide (`eeg2text split DATA.h5`), without --audit"
        raise UserError(f"--folds={arguments.folds}: expected {what}.")
    how = (arguments.method, arguments.folds, arguments.ratio, arguments.seed, arguments.gap)
    groups = labels_of_samples(data, arguments.groups) if arguments.groups else None
    splits = list(make_folds(data, *how, arguments.unique_subjects, arguments.unique_sessions))
    outputs = [f"{arguments.json.removesuffix('.json')}_{k}.json" for k in range(1, len(splits) + 1) if arguments.json]
    for out in outputs:
        check_outputs("split", [arguments.data, f"--groups={arguments.groups}", f"--json={out}"])
    for k, split in enumerate(splits):
        certificate = certify_data(data, split, arguments.ratio, arguments.overlap, groups)
        print(f"{split.method}\n{split_report(certificate, readings_of(data))}\nsplit hash {split.digest()}\n")
        if outputs:
            write_split_file(outputs[k], certificate)
            print(f"wrote {outputs[k]}\n")


def labels_of_samples(data: DataFile, path: Path) -> dict[str, np.ndarray]:
    """Return column -> labels of all samples, object `[N]`, from a CSV with the sentences in `reference`.

    Raises UserError without this column, or a line for each sentence.
    """
    lines = list(read_metadata(path))
    if not lines or "reference" not in lines[0] or len(lines[0]) < 2:
        raise UserError(f"{path}: expected a CSV with the columns reference and one or more groups.")
    labels = {}
    for column in lines[0].keys() - {"reference"}:
        label = {sentence_key(line["reference"] or ""): (line[column] or "").strip() for line in lines}
        try:
            labels[column] = np.array([label[sentence_key(text)] for text in data.sentence], object)
        except KeyError as error:
            raise UserError(f"{path}: has no line for the sentence {error.args[0]!r:.60}; add one.") from None
    return labels
