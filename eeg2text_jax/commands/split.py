"""`eeg2text split DATA.h5 --method=f`: divides a data file and certifies it; `--audit` judges any split."""

import argparse

from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.certificate import certify, certify_data
from eeg2text_jax.splits.duplicates import OVERLAP
from eeg2text_jax.splits.folds import SUBJECTS, make_folds
from eeg2text_jax.splits.methods import FROM_FILE, METHODS, make_split
from eeg2text_jax.splits.readings import readings_of
from eeg2text_jax.splits.report import paper_table1, split_report
from eeg2text_jax.splits.splitfile import read_split_file, write_split_file


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="eeg2text split", description=__doc__)
    parser.add_argument("data", nargs="?", help="data file (.h5) of `eeg2text prepare`")
    parser.add_argument("--method", default="unique_text", help=f"one of {', '.join([*METHODS, FROM_FILE])}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ratio", type=_ratio, default=(0.8, 0.1, 0.1), help="train,dev,test; 0.8,0.1,0.1 by default")
    parser.add_argument("--path", default="", help="split file, for --method=file")
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
    arguments = parser.parse_args(argv)
    if not 0 < arguments.overlap <= 1:
        raise UserError(f"--overlap: expected a share above 0 and up to 1, got {arguments.overlap}.")
    if not arguments.data and not arguments.audit:
        raise UserError("name a data file (`eeg2text split DATA.h5`) or a split to judge (`--audit=SPLIT.json`).")
    return arguments


def _ratio(text: str) -> tuple[float, ...]:
    return tuple(float(share) for share in text.split(","))


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    data: DataFile | None = read_datafile(arguments.data) if arguments.data else None
    if arguments.folds:
        return _folds(arguments, data)
    if data is None:
        readings, split = read_split_file(arguments.audit).readings()
        certificate = certify(readings, split, arguments.overlap)
    else:
        method, path = (FROM_FILE, arguments.audit) if arguments.audit else (arguments.method, arguments.path)
        split = make_split(data, method, arguments.ratio, arguments.seed, path)
        ratio = None if method == FROM_FILE else arguments.ratio
        readings, certificate = readings_of(data), certify_data(data, split, ratio, arguments.overlap)
    print(split_report(certificate, readings))
    if data is not None:
        print("\n" + paper_table1(data, split))
        print(f"\nsplit hash {split.digest()}")
    if arguments.json:
        write_split_file(arguments.json, certificate)
        print(f"wrote {arguments.json}")
    return 0


def _folds(arguments: argparse.Namespace, data: DataFile | None) -> int:
    if data is None or arguments.audit or not (arguments.folds.isdecimal() or arguments.folds == SUBJECTS):
        raise UserError(f"--folds={arguments.folds}: expected a data file, and a number of folds or 'subjects'.")
    for k, split in enumerate(make_folds(data, arguments.method, arguments.folds, arguments.ratio, arguments.seed), 1):
        certificate = certify_data(data, split, arguments.ratio, arguments.overlap)
        print(f"{split.method}\n{split_report(certificate, readings_of(data))}\nsplit hash {split.digest()}\n")
        if arguments.json:
            out = f"{arguments.json.removesuffix('.json')}_{k}.json"
            write_split_file(out, certificate)
            print(f"wrote {out}\n")
    return 0
