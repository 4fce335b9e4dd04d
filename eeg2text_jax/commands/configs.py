"""`eeg2text configs`: the configurations that travel with the package; `show NAME` prints one, `copy NAME` gives it."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.files import write_text
from eeg2text_jax.study.shipped import shipped, summary


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="eeg2text configs", description=__doc__)
    actions = parser.add_subparsers(dest="action", metavar="show | copy")
    for name, what in (("show", "print a configuration"), ("copy", "write it to a file of your own, to be edited")):
        action = actions.add_parser(name, help=what, description=what)
        action.add_argument("name", help="as in the list")
        if name == "copy":
            action.add_argument("--out", default="", help="the new file; NAME.py of the current folder by default")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """
    Raises:
      UserError: there is no configuration of that name, or the new file is there already.
    """
    arguments = parse(argv)
    known = shipped()
    if arguments.action is None:
        for name, path in known.items():
            print(f"{name:<12} {summary(path)}")
        print("\n`--config=NAME` takes one as it is, `eeg2text configs copy NAME` gives a file to edit.")
        return 0
    if arguments.name not in known:
        raise UserError(f"{arguments.name}: there is no such configuration; {did_you_mean(arguments.name, known)}")
    text = known[arguments.name].read_text(encoding="utf8")
    if arguments.action == "show":
        print(text, end="")
        return 0
    out = Path(arguments.out or f"{arguments.name}.py")
    if out.exists():
        raise UserError(f"{out}: exists already; give --out another name, or remove it.")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, text)
    print(f"wrote {out}; use it with --config={out}")
    return 0
