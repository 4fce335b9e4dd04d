"""`eeg2text score`: metrics of any predictions files, each number with its signature."""

import argparse
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.profiles import PROFILES
from eeg2text_jax.metrics.render import print_table
from eeg2text_jax.metrics.score import score_cells, write_results
from eeg2text_jax.metrics.tables import signatures
from eeg2text_jax.predictions.file import MODES
from eeg2text_jax.predictions.foreign import UNKNOWN
from eeg2text_jax.predictions.read import FORMATS, describe, read_any

LAYOUTS = """
layouts, recognised by content:
  jsonl  one JSON object a line, as `eeg2text decode` writes it
  A      target string / predicted string with tf / predicted string (A1: without tf; A2: with lines of tokens)
  B      Target string / Predicted string, closed by dashes
  C      start / Predicted / True / end
  D      target sentence / predicted sentence
  E      target word / pred word, a line a word
  F, H   CSV with and without a header
"""


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "eeg2text score", description=__doc__, epilog=LAYOUTS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=epath.Path, metavar="FILE")
    parser.add_argument("--profile", choices=PROFILES, default="standard", help="paper: what Tables 2-3 print")
    parser.add_argument("--tokenizer", metavar="DIR", help="for token BLEU where a file has no token ids")
    parser.add_argument("--json", type=epath.Path, metavar="OUT", help="write all figures and signatures there")
    parser.add_argument("--format", choices=FORMATS, help="the layout, where content misleads")
    parser.add_argument("--columns", metavar="REF,PRED", help="columns of a CSV, by name or by number from 1")
    parser.add_argument(
        "--mode", choices=MODES, help="the mode of a file that does not say it, or the only one to score"
    )
    parser.add_argument("--signatures", action="store_true", help="print the signature of every number")
    return parser


def main(argv: list[str]) -> int:
    flags = argument_parser().parse_args(argv)
    tokenizer = None
    if flags.tokenizer:
        from eeg2text_jax.data.text import load_tokenizer  # slow to import, and seldom needed

        tokenizer = load_tokenizer(flags.tokenizer)
    results: dict[str, Any] = {"format": 1, "profile": flags.profile, "cells": []}
    columns = flags.columns.split(",") if flags.columns else None
    for path in flags.files:
        read = read_any(path, layout=flags.format, columns=columns, mode=flags.mode)
        print(describe(read))
        try:
            source = str(read.header.get("tokenizer", "unstated"))
            scored = score_cells(read.predictions, profile=flags.profile, tokenizer=tokenizer, token_source=source)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        if unscored := [cell["unscored"] for cell in scored["cells"] if "unscored" in cell]:
            raise UserError(f"{path}: {unscored[0]}")
        results["cells"] += [labelled(cell, path, flags.files) for cell in scored["cells"]]
    check_distinct(results["cells"])
    show(results)
    if flags.signatures:
        for signature, names in signatures(results).items():
            print(f"{', '.join(names)}: {signature}")
    if flags.json:
        write_results(flags.json, results)
        print(f"wrote {flags.json}")
    return 0


def labelled(cell: dict[str, Any], path: epath.Path, files: list[epath.Path]) -> dict[str, Any]:
    """The cell with its file; where conditions are unknown and there are several files, the file's name tells them."""
    if len(files) == 1 or UNKNOWN not in (cell["train_condition"], cell["eval_condition"]):
        return {"file": str(path), **cell}
    alone = [other.name for other in files].count(path.name) == 1
    return {"label": path.name if alone else str(path), "file": str(path), **cell}


def check_distinct(cells: list[dict[str, Any]]) -> None:
    """Raises UserError where two files hold the same cell, which a table would take for two seeds."""
    files: dict[tuple, str] = {}
    for cell in cells:
        keys = ("label", "train_condition", "eval_condition", "seed", "mode")
        other = files.setdefault(tuple(cell.get(key) for key in keys), cell["file"])
        if other != cell["file"] or cells.count(cell) > 1:
            raise UserError(
                f"{cell['file']}: {cell['train_condition']} → {cell['eval_condition']}, seed {cell['seed']}, "
                f"{cell['mode']} is in {other} too; score such files one by one."
            )


def show(results: dict[str, Any]) -> None:
    """Prints the table, and what a reader of it must know."""
    print_table(results)
    if not any(name.startswith("token_bleu") for cell in results["cells"] for name in cell["metrics"]):
        print("BLEU on the model's tokens needs token ids in the file, or --tokenizer=DIR.")
