"""`eeg2text read`: what `audit` would judge and why, with ten rows; nothing is scored."""

import argparse
from collections.abc import Sequence

from etils import epath

from eeg2text_jax.instrument.predictions.file import MODES, Prediction, PredictionSet, mode_name
from eeg2text_jax.instrument.predictions.rankings import describe_rankings, is_rankings, read_rankings
from eeg2text_jax.instrument.predictions.read import add_options, check_given_once, options_of, read_any
from eeg2text_jax.instrument.predictions.selection import LIKELY, account, first_rows, read_conditions
from eeg2text_jax.instrument.workdir import check_unchanged


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("eeg2text read", description=__doc__)
    add = parser.add_argument
    add("files", nargs="+", type=epath.Path, metavar="FILE", help="predictions from EEG, then those of controls")
    add_options(add)
    add("--mode", type=mode_name, choices=MODES, help="mode to judge, or the mode of a file that does not state it")
    add("--arm", help="training condition to judge, if a file has several")
    flags = parser.parse_args(argv)
    sets: list[PredictionSet] = []

    def rows_of(path: epath.Path) -> list[Prediction]:
        check_unchanged(path)
        sets.append(read_any(path, mode=flags.mode, groups=LIKELY, **options_of(flags)))
        print("\n".join(account(sets[-1])))
        return sets[-1].predictions

    for note in check_given_once(flags.files, flags.reference):
        print(note)
    if ranked := [path for path in flags.files if is_rankings(path)]:
        for path in ranked:
            print(describe_rankings(read_rankings(path)))
        return 0
    eeg, *controls = flags.files
    name, *others = (conditions := read_conditions(eeg, controls, rows_of, flags.arm))
    against = ", ".join(f"{other!r} ({len(conditions[other])})" for other in others) or "other sentences' references"
    print(f"judged: {name!r} ({len(conditions[name])} rows) against {against}")
    for row in first_rows(sets[0]):
        print(" | ".join(row))
    return 0
