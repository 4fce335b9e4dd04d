"""`eeg2text score`: metrics of any predictions files, with a signature for each number, and warnings."""

import argparse
import dataclasses
import json
import operator
import os
from collections.abc import Sequence
from typing import Any

from etils import epath
from rich.console import Console
from rich.table import Table as RichTable

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import file_digest, write_text
from eeg2text_jax.instrument.auditing.notices import file_notices
from eeg2text_jax.instrument.metrics.metric_names import MEANING, WORDS
from eeg2text_jax.instrument.metrics.score import (
    CELL,
    PROFILES,
    by_subject,
    cells_of,
    parse_metrics,
    row_figures,
    score_cells,
    score_rankings,
    write_results,
)
from eeg2text_jax.instrument.metrics.tables import MODE_TITLES, NARROW_COLUMNS, print_table, signatures
from eeg2text_jax.instrument.predictions.file import MODES, UNKNOWN, Prediction, PredictionSet, mode_name
from eeg2text_jax.instrument.predictions.rankings import describe_rankings, is_rankings, read_rankings
from eeg2text_jax.instrument.predictions.read import add_options, check_given_once, describe, options_of, read_any
from eeg2text_jax.instrument.workdir import check_unchanged
from eeg2text_jax.judge.model_metrics import makers_of

LAYOUTS = """
layouts, recognised by content:
  jsonl  one JSON object per line, as `eeg2text decode` writes it
  A      target string / predicted string with tf / predicted string (A1: without tf; A2: with lines of tokens)
  B      Target string / Predicted string, closed by dashes
  C      start / Predicted / True / end
  C1     Predicted / True, closed by equals signs
  C2     REF: / HYP:, or other labels, on one line or on two; in logs and in the outputs of notebooks, too
  D      target sentence / predicted sentence
  E      target word / pred word, one line per word
  F, H   CSV with a header, and without (--columns=1,2 --format=H)
  J      JSON lines, a list of objects or lists by name, with the usual names of columns; chat JSON lines
  P, K   with --reference: lines, a table or JSON of texts alone, joined row by row (P) or by id (K)
Parquet and Excel tables are read as CSV, and any file may be packed with gzip or zip.
Files of rankings (rankings.jsonl, as `eeg2text decode` writes it) are scored by the rank of the sentence that was read.
"""
cell_key = operator.itemgetter(*CELL)  # (training condition, evaluation condition, seed, mode) of a cell's results


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "eeg2text score", description=__doc__, epilog=LAYOUTS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("files", nargs="+", type=epath.Path, metavar="FILE")
    add_options(add)
    add("--profile", choices=PROFILES, default="standard", help="paper: the metrics of the paper's Tables 2 and 3")
    add("--tokenizer", metavar="DIR", help="tokenizer for token BLEU, if a file has no token ids")
    add("--json", type=epath.Path, metavar="OUT", help="write all scores and signatures to this file")
    add("--mode", type=mode_name, choices=MODES, help="mode to score, or the mode of a file that does not state it")
    add("--conditions", metavar="TRAIN:TEST,...", help="conditions of the files, if they lack them: eeg:eeg,eeg:noise")
    add("--metrics", metavar="NAMES", help=f"metrics, instead of the profile's: {', '.join((*WORDS, *MEANING))}")
    add("--encoder", metavar="NAME", help="text encoder of bertscore and similarity: a checkpoint, or minilm")
    add("--layer", type=int, help="layer of the encoder that bertscore compares; default: the best one known")
    add("--idf", action="store_true", help="bertscore weights tokens by inverse document frequency")
    add("--rescale", metavar="TSV", help="rescale bertscore by bert-score's baseline file for the encoder")
    add("--judge", metavar="DIR", help="for lattescore: the folder DIR/judge of `eeg2text judge`")
    add("--truncate", action="store_true", help="lattescore cuts pairs longer than the judge's input")
    add("--by", choices=("subject",), help="also print every score by subject")
    add("--rows", type=epath.Path, metavar="OUT", help="write the scores of single rows to this file (JSON lines)")
    add("--signatures", action="store_true", help="print the signature of every number")
    return parser


def main(argv: list[str]) -> int:
    flags = argument_parser().parse_args(argv)
    tokenizer = None
    if flags.tokenizer:
        from eeg2text_jax.data.text import load_tokenizer  # slow to import

        tokenizer = load_tokenizer(flags.tokenizer)
    metrics = parse_metrics(flags.metrics) if flags.metrics else None
    models = {name: getattr(flags, name) for name in ("layer", "idf", "rescale", "truncate")}
    meaning = makers_of(metrics or (), flags.encoder, flags.judge, **models)
    cells: list[dict[str, Any]] = []
    lines: list[str] = []
    for note in check_given_once(flags.files, flags.reference):
        print(note)
    for path, conditions in zip(flags.files, stated_conditions(flags), strict=True):
        check_unchanged(path)
        if is_rankings(path):
            ranked = read_rankings(path)
            print(describe_rankings(ranked))
            cells += [labelled({**cell, "flags": []}, path, flags.files) for cell in score_rankings(ranked.rows)]
            continue
        read = with_conditions(read_any(path, mode=flags.mode, **options_of(flags)), *conditions)
        print(describe(read))
        options = {
            "profile": flags.profile,
            "tokenizer": tokenizer,
            "token_source": str(read.header.get("tokenizer", "unstated")),
            "metrics": metrics,
            "meaning": meaning,
        }
        try:
            scored = score_cells(read.predictions, **options)["cells"]
            if all("unscored" in cell for cell in scored):
                raise UserError(scored[0]["unscored"])
            for cell, (_, rows) in zip(scored, cells_of(read.predictions), strict=True):
                lines += add_details(flags, cell, rows, options)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        cells += [labelled(cell, path, flags.files) for cell in scored]
    tell_apart(cells, flags.files)
    results = {"format": 1, "profile": flags.profile, "cells": cells}
    show(results)
    figures = {name for cell in cells for name in cell["metrics"]}
    if metrics is None and "word_bleu-1" in figures and "rouge-1-f" not in figures:
        print("ROUGE is left out: as published, it knows only a-z and 0-9, and a reference has none of these.")
    for note in meaning.notes() if meaning else ():
        print(note)
    if flags.signatures:
        for signature, names in signatures(results).items():
            print(f"{', '.join(names)}: {signature}")
    if flags.json:
        short = short_names(flags.files)
        for cell in cells:
            cell |= {name: short[cell[name]] for name in ("file", "label") if cell.get(name) in short}
        write_results(flags.json, results)
        print(f"wrote {flags.json}")
    if flags.rows:
        write_text(flags.rows, "".join(f"{line}\n" for line in lines))
        print(f"wrote {flags.rows}")
    return 0


def short_names(files: Sequence[epath.Path]) -> dict[str, str]:
    """Return each file's path below the folder that holds all of them: results name no folder of this machine."""
    paths = {str(file): os.path.abspath(file) for file in files}
    above = os.path.commonpath([os.path.dirname(path) for path in paths.values()])
    return {name: os.path.relpath(path, above) for name, path in paths.items()}


def stated_conditions(flags: argparse.Namespace) -> list[list[str]]:
    """Return [training condition, evaluation condition] of each file as in --conditions, else `UNKNOWN`."""
    if not flags.conditions:
        return [[UNKNOWN, UNKNOWN]] * len(flags.files)
    pairs = [pair.split(":") for pair in flags.conditions.split(",")]
    if len(pairs) != len(flags.files) or not all(len(pair) == 2 and all(pair) for pair in pairs):
        what = f"TRAIN:TEST for each of the {len(flags.files)} files, with commas, such as eeg:eeg,eeg:noise"
        raise UserError(f"--conditions={flags.conditions}: expected {what}.")
    return pairs


def with_conditions(read: PredictionSet, train: str, evaluation: str) -> PredictionSet:
    """Return a copy in which `train` and `evaluation` replace unknown conditions of rows."""
    stated: dict[str, Any] = {"train_condition": train, "eval_condition": evaluation}
    rows = [
        dataclasses.replace(row, **{name: value for name, value in stated.items() if getattr(row, name) == UNKNOWN})
        for row in read.predictions
    ]
    return dataclasses.replace(read, predictions=rows)


def add_details(
    flags: argparse.Namespace, cell: dict[str, Any], rows: Sequence[Prediction], options: dict[str, Any]
) -> list[str]:
    """Add scores by subject, and `flags` (the audit's warnings that need no control); return scores of rows as JSON."""
    if "unscored" in cell:
        message = f"every prediction or reference of the {cell['mode']} rows is empty; they are not scored"
        cell["flags"] = [{"code": "empty_half", "level": "severe", "message": message}]
        return []
    if flags.by:
        cell["by_subject"] = by_subject(rows, **options)  # with LATTEScore: `accepted`, bar -> reached or not
        if any("lattescore" in row for row in cell["by_subject"].values()):
            from eeg2text_jax.judge.baselines import decided

            for row in cell["by_subject"].values():
                row["accepted"] = decided(row)
    cell["flags"] = [
        {"code": notice.code, "level": "severe" if notice.bars else "warning", "message": notice.message}
        for notice in file_notices(title_of(cell), rows)
    ]
    return [json.dumps(row, ensure_ascii=False) for row in row_figures(rows, **options)] if flags.rows else []


def show_subjects(cell: dict[str, Any]) -> None:
    rows = cell["by_subject"]
    figures = [name for *_, name in NARROW_COLUMNS if any(name in row for row in rows.values())]
    decisions = next((list(row["accepted"]) for row in rows.values() if "accepted" in row), [])
    accepted = [f"accepted by {name.replace('_', ' ')}" for name in decisions]
    table = RichTable("subject", "rows", *figures, *accepted, title=f"by subject: {title_of(cell)}")
    for subject, row in rows.items():
        shown = [f"{row[name]:.2f}" if name in row else "–" for name in figures]
        shown += ["yes" if row["accepted"].get(name) else "no" for name in decisions]
        table.add_row(subject, str(row["rows"]), *shown)
    Console().print(table)
    if decisions:
        accuracy = "a word accuracy (100 - WER) of at least 80"
        print(f"accepted: {accuracy}, a LATTEScore of at least 70 (Tomanek et al. 2023).")


def title_of(cell: dict[str, Any]) -> str:
    train, evaluation, seed, mode = cell_key(cell)
    about = f"{train} → {evaluation}, seed {seed}, " if seed else f"{train} → {evaluation}, "
    return MODE_TITLES[mode] if train == evaluation == UNKNOWN else about + MODE_TITLES[mode]


def labelled(cell: dict[str, Any], path: epath.Path, files: list[epath.Path]) -> dict[str, Any]:
    """Add `file` to a cell's results; with several files of unknown conditions, also the file's name as `label`."""
    if len(files) == 1 or UNKNOWN not in (cell["train_condition"], cell["eval_condition"]):
        return {"file": str(path), **cell}
    alone = [other.name for other in files].count(path.name) == 1
    return {"label": path.name if alone else str(path), "file": str(path), **cell}


def tell_apart(cells: list[dict[str, Any]], files: Sequence[epath.Path]) -> None:
    """Add a file's folder or name as `label` if two files have the same cell, else they would count as two seeds.

    Raises UserError for a copy of another file.
    """
    first: dict[tuple, dict[str, Any]] = {}
    for cell in cells:
        other = first.setdefault((cell.get("label"), *cell_key(cell)), cell)
        if cell is not other and file_digest(cell["file"]) == file_digest(other["file"]):
            train, evaluation, seed, mode = cell_key(cell)
            what = f"{train} → {evaluation}, seed {seed}, {mode} is in {other['file']} too, a file of the same bytes"
            raise UserError(f"{cell['file']}: {what}; give one of the two.")
    if len(first) == len(cells):
        return
    folders = [file.parent.name for file in files]
    whole = len({*folders}) == len(files) and len({file.name for file in files}) == 1
    names = dict(zip(map(str, files), folders if whole else map(str, files), strict=True))
    for cell in cells:
        cell["label"] = names[cell["file"]]


def show(results: dict[str, Any]) -> None:
    print_table(results)
    for cell in results["cells"]:
        if "by_subject" in cell:
            show_subjects(cell)
    several = len({cell["file"] for cell in results["cells"]}) > 1
    for cell in results["cells"]:
        where = f"{cell['file']}: " if several else ""
        for flag in cell["flags"]:
            print(f"{flag['level']}: {where}{flag['message']}.")
    scored = {name for cell in results["cells"] for name in cell["metrics"]}
    if "word_bleu-1" in scored and "token_bleu-1" not in scored:
        print("BLEU on the model's tokens needs token ids in the file, or --tokenizer=DIR.")
