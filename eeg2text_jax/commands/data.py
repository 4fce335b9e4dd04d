"""`eeg2text prepare SOURCE... --out=DATA.h5`: one data file; `check`, `export-data` and `split` take it from there."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eeg2text_jax.data.arrow import write_parquet
from eeg2text_jax.data.check import check_datafile, scale_figure
from eeg2text_jax.data.data_settings import DataSettings
from eeg2text_jax.data.datafile import DataFile, read_datafile, read_outline
from eeg2text_jax.data.prepare import prepare as make_datafile
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import replacing
from eeg2text_jax.kinds import read_section
from eeg2text_jax.predictions.groups import labels_of_samples
from eeg2text_jax.records.croissant import write_croissant
from eeg2text_jax.splits.certificate import certify, certify_data, paper_table1, split_report
from eeg2text_jax.splits.leakage import OVERLAP
from eeg2text_jax.splits.methods import FROM_FILE, METHODS, SUBJECTS, make_folds, make_split
from eeg2text_jax.splits.split import check_ratio, readings_of
from eeg2text_jax.splits.split_map import split_map, time_figure
from eeg2text_jax.splits.splitfile import read_split_file, write_split_file
from eeg2text_jax.stores.arguments import check_outputs
from eeg2text_jax.study.configuration import load_config, parse_config

SPLIT = "eeg2text split DATA.h5 --method=f: divides a data file and certifies it; --audit judges any split."

PAPER_RATIO = (0.8, 0.1, 0.1)

# Flags of this command -> what they stand for; other fields are set by their own names.
_SHORT = {
    "--strict": "--config.data.recordings.strict=True",
    "--compat=": "--config.data.recordings.compat=",
    "--task=": "--config.data.recordings.task=",
}


def prepare(argv: list[str]) -> int:
    argv = [_expand(argument) for argument in argv]
    positional = "SOURCE... [--compat=wang-ji] [--strict] [--task=NR]"
    arguments = parse_config(
        argv, "prepare", default="default", positional=positional, options=("out",), sections=("data",)
    )
    out = Path(arguments.options["out"])
    tally = make_datafile(read_section(DataSettings, arguments.config.data), out, arguments.positional)
    for note in tally.notes:
        print(note, file=sys.stderr)
    print(tally.report())
    if tally.sentences:  # recordings
        print(f"\n{_table1(out)}\n")
    print(f"wrote {out}")
    return 0


def _table1(out: Path) -> str:
    """Return the paper's Table 1 for the new data file: samples per task under its positional split."""
    data = read_outline(out)
    try:
        table = paper_table1(data, make_split(data, "unique_sent", PAPER_RATIO, seed=0))
    except UserError as error:
        return f"Table 1 of the paper cannot be made: {error}"
    return f"as Table 1 of the paper (positional split {PAPER_RATIO}, unique_sent):\n{table}"


def _expand(argument: str) -> str:
    for short, field in _SHORT.items():
        if argument == short or (short.endswith("=") and argument.startswith(short)):
            return field + argument.removeprefix(short)
    return argument


def check(argv: Sequence[str]) -> int:
    """What is in a data file, and what is wrong with it; exit status 2 where something is.

    Raises:
      UserError: the file is not there, or is no data file.
    """
    parser = argparse.ArgumentParser(prog="eeg2text check", description=check.__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA.h5")
    parser.add_argument("--png", type=Path, metavar="OUT", help="a picture of the features' scales, band by channel")
    parser.add_argument("--time", type=Path, metavar="OUT", help="a picture of what was recorded when, as PNG")
    parser.add_argument(
        "--condition", metavar="NAME", help="describe what the encoder is fed in place of recordings: noise"
    )
    flags = parser.parse_args(argv)
    findings = check_datafile(flags.data)
    print(findings.text())
    if flags.condition and not findings.problems:
        from eeg2text_jax.conditions.look import condition_lines  # imports JAX

        print("\n".join(condition_lines(read_datafile(flags.data), flags.condition)))
    if flags.time and not findings.problems:
        outline = read_outline(flags.data)
        if outline.clock is None:
            raise UserError(
                f"--time={flags.time}: {flags.data} does not say when samples were recorded; leave --time out, or "
                "prepare the file again with columns of recording and onset or order."
            )
        write_figure(time_figure(outline), flags.time)
    if flags.png and findings.spread is not None:
        write_figure(scale_figure(findings), flags.png)
    return 2 if findings.problems else 0


def export_data(argv: Sequence[str]) -> int:
    """A data file for pandas, datasets and whatever else reads Parquet.

    Raises:
      UserError: the data file is not usable, or pyarrow is not installed.
    """
    parser = argparse.ArgumentParser(prog="eeg2text export-data", description=export_data.__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA.h5")
    parser.add_argument("--out", type=Path, required=True, metavar="DATA.parquet")
    parser.add_argument("--croissant", type=Path, metavar="OUT.json", help="describe the file in Croissant, beside it")
    parser.add_argument("--name", default="", help="of the data set, for --croissant; default: that of the file")
    parser.add_argument("--cite", default="", help="how to cite the data set, for --croissant")
    parser.add_argument("--licence", default="", help="of the data set, a name or an address, for --croissant")
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
    parser.add_argument("data", nargs="?", help="data file (.h5) of `eeg2text prepare`")
    usual = load_config("default").split
    ratio = ",".join(map(str, usual.ratio))
    parser.add_argument("--method", default=usual.method, help=f"one of {', '.join([*METHODS, FROM_FILE])}")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--ratio", type=parse_ratio, default=usual.ratio, help=f"train,dev,test; {ratio} by default")
    parser.add_argument("--path", default=usual.path, help="split file, for --method=file")
    parser.add_argument("--gap", type=float, default=usual.gap, help="seconds left out between parts, of blocks")
    parser.add_argument("--unique-subjects", action="store_true", help="of blocks: parts with subjects of their own")
    parser.add_argument(
        "--groups", type=Path, metavar="CSV", help="class, topic or the like of each sentence: columns beside reference"
    )
    parser.add_argument(
        "--audit", metavar="JSON", help="judge this split file; with DATA.h5 its texts are compared too"
    )
    parser.add_argument(
        "--overlap", type=float, default=OVERLAP, help="shared words that make a near-duplicate, 0 to 1"
    )
    parser.add_argument(
        "--folds", default="", help="several splits that together test every text: a number, or subjects"
    )
    parser.add_argument("--json", metavar="OUT", help="where to write the certificate; of folds, OUT_1.json and so on")
    parser.add_argument("--map", type=Path, metavar="OUT.png", help="a picture of what methods a to f keep and share")
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
    """Return the shares of train, dev and test that a flag names."""
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError as error:
        raise UserError(
            f"--ratio={text}: expected three shares separated by commas (train,dev,test), such as 0.8,0.1,0.1."
        ) from error


def split(argv: list[str]) -> int:
    arguments = _parse_split(argv)
    data: DataFile | None = read_datafile(arguments.data) if arguments.data else None
    if arguments.folds:
        return _folds(arguments, data)
    if data is None:
        readings, split = read_split_file(arguments.audit).readings()
        certificate = certify(readings, split, arguments.overlap)
    else:
        method, path = (FROM_FILE, arguments.audit) if arguments.audit else (arguments.method, arguments.path)
        options = (arguments.gap, arguments.unique_subjects)
        split = make_split(data, method, arguments.ratio, arguments.seed, path, *options)
        ratio = None if method == FROM_FILE else arguments.ratio
        groups = labels_of_samples(data, arguments.groups) if arguments.groups else None
        readings, certificate = readings_of(data), certify_data(data, split, ratio, arguments.overlap, groups)
    print(split_report(certificate, readings))
    if data is not None:
        print("\n" + paper_table1(data, split))
        print(f"\nsplit hash {split.digest()}")
    if arguments.json:
        write_split_file(arguments.json, certificate)
        print(f"wrote {arguments.json}")
    if arguments.map and data is not None:
        write_figure(split_map(data, check_ratio(arguments.ratio), arguments.seed), arguments.map)
    return 0


def write_figure(figure: Any, out: Path) -> None:
    """Write a matplotlib figure as PNG, atomically."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as partial:
        figure.savefig(str(partial), format="png", dpi=120)
    print(f"wrote {out}")


def _folds(arguments: argparse.Namespace, data: DataFile | None) -> int:
    if data is None or arguments.audit or not (arguments.folds.isdecimal() or arguments.folds == SUBJECTS):
        raise UserError(
            f"--folds={arguments.folds}: expected a number of folds or 'subjects', and a data file to divide "
            "(`eeg2text split DATA.h5`), without --audit."
        )
    how = (arguments.method, arguments.folds, arguments.ratio, arguments.seed, arguments.gap)
    groups = labels_of_samples(data, arguments.groups) if arguments.groups else None
    splits = list(make_folds(data, *how))
    outputs = [f"{arguments.json.removesuffix('.json')}_{k}.json" for k in range(1, len(splits) + 1) if arguments.json]
    for out in outputs:
        check_outputs("split", [arguments.data, f"--groups={arguments.groups}", f"--json={out}"])
    for k, split in enumerate(splits):
        certificate = certify_data(data, split, arguments.ratio, arguments.overlap, groups)
        print(f"{split.method}\n{split_report(certificate, readings_of(data))}\nsplit hash {split.digest()}\n")
        if outputs:
            write_split_file(outputs[k], certificate)
            print(f"wrote {outputs[k]}\n")
    return 0
