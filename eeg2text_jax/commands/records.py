"""`eeg2text records WORKDIR --out=DIR`: write the results of a run in formats that other tools load.

DIR/data/...                 a record of Every Eval Ever for each arm
DIR/.eval_results/*.yaml     for a model's repository on the Hugging Face Hub, with --dataset
DIR/predictions.parquet      every prediction, for pandas and datasets, if pyarrow is installed
DIR/citation.bib             what to cite
"""

import argparse
import contextlib
import dataclasses
import json
import math
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from etils import epath
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import content_digest, parse_json, partial_of, remove, replacing, write_text
from eeg2text_jax.base.packages import BIBTEX, __version__, library
from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_jax.instrument.predictions.read import read_any

SCHEMA = "0.3.0"  # of Every Eval Ever, a JSON schema for evaluations of any model (github.com/evaleval/every_eval_ever)
_BOUNDED = ("token_bleu", "word_bleu", "rouge", "top")  # prefixes of the names of scores that range from 0 to 100 %


def records(
    results: dict[str, Any], model: str, dataset: str, evaluated: float, source: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each arm a path, `data/COLLECTION/DEVELOPER/MODEL/UUID.json`, and the record to write there.

    The arm's name is appended to `model`; `evaluated` is Unix time, `source` says who reports the results.
    """
    arms: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for cell in results["cells"]:
        arms.setdefault((cell["train_condition"], cell["seed"]), []).extend(_results(cell, dataset))
    developer, _, name = model.rpartition("/")
    for (condition, seed), entries in arms.items():
        if not entries:
            continue
        arm = f"{name}-{condition}-seed{seed}"
        record = {
            "schema_version": SCHEMA,
            "evaluation_id": f"{portable(dataset)}/{developer}/{arm}/{evaluated:.0f}",
            "evaluation_timestamp": f"{evaluated:.0f}",
            "retrieved_timestamp": f"{time.time():.0f}",
            "source_metadata": {"source_name": "eeg2text_jax", "source_type": "evaluation_run", **source},
            "eval_library": {"name": "eeg2text_jax", "version": __version__},
            "model_info": {
                "name": arm,
                "id": f"{developer}/{arm}",
                "developer": developer,
                "additional_details": {
                    "deployment_type": "self_deployed",
                    "model_availability": "unknown",
                    "train_condition": condition,
                    "seed": str(seed),
                },
            },
            "evaluation_results": entries,
        }
        digest = content_digest(record | {"retrieved_timestamp": ""})
        identity = uuid.UUID(hex=digest[:32], version=4)  # equal records get the same name
        yield f"data/{portable(dataset)}/{portable(developer)}/{portable(arm)}/{identity}.json", record


def _results(cell: dict[str, Any], dataset: str) -> Iterator[dict[str, Any]]:
    condition, mode = cell["eval_condition"], cell["mode"]
    for name, metric in cell["metrics"].items():
        is_rate, is_bounded = metric["lower_is_better"], name.startswith(_BOUNDED)
        yield {
            "evaluation_result_id": f"{condition}/{mode}/{name}",
            "evaluation_name": f"EEG-to-text, evaluated on {condition}, {mode}",
            "source_data": {
                "dataset_name": dataset,
                "source_type": "other",
                "additional_details": {"eval_condition": condition, "mode": mode},
            },
            "metric_config": {
                "evaluation_description": "decoded text against the sentence that was read",
                "metric_id": name,
                "metric_name": name,
                "metric_unit": "percent",
                "lower_is_better": is_rate,
                "score_type": "continuous",
                "min_score": 0 if is_rate or is_bounded else "-Infinity",
                "max_score": 100 if is_bounded and not is_rate else "Infinity",  # insertions let a rate exceed 100 %
                "additional_details": {"signature": metric["signature"]},
            },
            "score_details": {
                "score": metric["value"],
                "details": {"rows": str(cell["rows"]), "sentences": str(cell.get("sentences", ""))},
            },
        }


def portable(name: str) -> str:
    """Return a name in characters that every file system takes."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "unnamed"


METRIC_OF_HUB = "word_bleu-1"
HUB_NAME = r"[\w.-]+/[\w.-]+"


def main(argv: Sequence[str]) -> int:
    flags = parse(argv)
    if flags.metric and not flags.dataset:
        said = "names the score for --dataset, which is missing; give both, or leave --metric out"
        raise UserError(f"--metric={flags.metric}: {said}.")
    path = flags.workdir / "results.json" if flags.workdir.is_dir() else flags.workdir
    results = read_results(path)
    verdict = _verdict(path.with_name("audit.json"))
    evaluated = path.stat().st_mtime
    source = {
        "source_organization_name": flags.organization,
        "evaluator_relationship": flags.relationship,
        "additional_details": {**{name: str(results.get(name, "")) for name in ("profile", "split")}, **verdict},
    }
    model = flags.model or f"local/{portable(path.absolute().parent.name)}"
    dataset = flags.dataset or flags.dataset_name or _source(path.with_name("config.json"))
    recorded = records(results, model, dataset, evaluated, source)
    made = {name: json.dumps(record, indent=1, ensure_ascii=False) + "\n" for name, record in recorded}
    if flags.dataset:
        date, metric = datetime.fromtimestamp(evaluated, UTC), flags.metric or METRIC_OF_HUB
        hub = dict(hub_files(results, flags.dataset, metric, date.strftime("%Y-%m-%dT%H:%M:%SZ")))
        if not hub:
            raise UserError(f"--metric={metric}: no cell of {path} has this score; name a metric that was scored.")
        made |= hub
    made["citation.bib"] = BIBTEX
    with _all_or_nothing(flags.out) as partial:
        for name, text in made.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            write_text(partial / name, text)
        notes = _write_predictions(path.with_name("predictions.jsonl"), partial)
        names = [*made, *(file.name for file in partial.glob("*.parquet"))]
    print("\n".join([*(f"wrote {flags.out / name}" for name in names), *notes]))
    return 0


@contextlib.contextmanager
def _all_or_nothing(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside `out`; its files move to `out` when the block succeeds."""
    partial = Path(partial_of(epath.Path(out)))
    remove(epath.Path(partial))
    try:
        partial.mkdir(parents=True)
        yield partial
        for file in [path for path in partial.rglob("*") if path.is_file()]:
            place = out / file.relative_to(partial)
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)
    finally:
        remove(epath.Path(partial))


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "eeg2text records", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("workdir", type=Path, metavar="WORKDIR", help="folder of a finished run, or a results file")
    add("--out", type=Path, required=True, metavar="DIR", help="folder to write into")
    add("--model", default="", metavar="ORG/NAME", help="name of the model; default: the name of the folder")
    add("--dataset", default="", metavar="ORG/NAME", help="name of the data set on the Hugging Face Hub")
    add("--dataset-name", default="", metavar="NAME", help="name of a data set that is not on the Hub")
    add("--metric", default="", help=f"the score for .eval_results ({METRIC_OF_HUB})")
    add("--organization", default="unknown", metavar="NAME", help="organization that reports the results")
    relations = ("first_party", "third_party", "collaborative", "other")
    add("--relationship", choices=relations, default="first_party", help="relation of the evaluator to the model")
    flags = parser.parse_args(argv)
    for option in ("model", "dataset"):
        if (value := getattr(flags, option)) and not re.fullmatch(HUB_NAME, value):
            raise UserError(f"--{option}={value}: expected ORGANIZATION/NAME.")
    return flags


def _verdict(path: Path) -> dict[str, str]:
    try:
        audit = parse_json(path.read_bytes())
        return {"verdict": str(audit["verdict"]), "verdict_sentence": str(audit["sentence"])}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is no JSON of an audit; restore the file, or remove it.") from error


def _source(path: Path) -> str:
    try:
        return Path(str(parse_json(path.read_bytes())["data"]["source"])).name
    except (OSError, ValueError, KeyError, TypeError):
        return "unnamed data"


def _write_predictions(path: Path, out: Path) -> list[str]:
    """Write predictions.parquet, with the header as metadata; without pyarrow, return why it is not written."""
    if not path.exists():
        return []
    try:
        pa, pq = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    except UserError as error:
        return [f"no predictions.parquet: {error}"]
    prediction_set = read_any(path)
    names = [field.name for field in dataclasses.fields(Prediction)]
    kinds = dict.fromkeys(names, pa.string()) | dict.fromkeys(("nll", "onset", "duration"), pa.float64())
    kinds |= dict.fromkeys(("n_words", "seed", "n_tokens", "hypothesis", "order"), pa.int64())
    kinds["story_time"] = pa.list_(pa.float64())
    kinds |= dict.fromkeys(("reference_tokens", "prediction_tokens"), pa.list_(pa.int64()))
    schema = pa.schema(list(kinds.items()), metadata={b"eeg2text": json.dumps(prediction_set.header).encode()})
    rows = (*prediction_set.predictions, *prediction_set.further)
    columns = [pa.array([getattr(row, name) for row in rows], kind) for name, kind in kinds.items()]
    # An open file, because pyarrow takes no name that is not UTF-8.
    with replacing(out / "predictions.parquet") as partial, partial.open("wb") as file:
        pq.write_table(pa.table(columns, schema), file, write_page_checksum=True)
    return []


def hub_files(results: dict[str, Any], dataset: str, metric: str, date: str) -> Iterator[tuple[str, str]]:
    """Yield (name, content) of a file in `.eval_results/` for each cell that has `metric`; `date` is ISO 8601.

    The Hub shows them on the model's page and on leaderboards (source: huggingface.co/docs/hub/eval-results).
    """
    for cell in results["cells"]:
        if not (found := cell["metrics"].get(metric)):
            continue
        train, seed, condition, mode = (cell[name] for name in ("train_condition", "seed", "eval_condition", "mode"))
        parts = (train, f"seed{seed}", condition, mode)
        entry = EvalResultEntry(
            dataset_id=dataset,
            task_id=portable(f"{condition}_{mode}"),
            value=round(float(found["value"]), 4),
            date=date,
            notes=f"{metric}; trained on {train}, seed {seed}; evaluated on {condition}, {mode}; {found['signature']}",
        )
        content = yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True)
        yield f".eval_results/{portable('_'.join(parts))}.yaml", content


CELL = {"train_condition": str, "eval_condition": str, "seed": int, "mode": str, "rows": int, "metrics": dict}
METRIC = {"value": (int, float), "signature": str, "lower_is_better": bool}
_KIND_WORDS = {str: "text", int: "a whole number", bool: "true or false", dict: "an object"}


def read_results(path: Path) -> dict[str, Any]:
    """Return the content of a results file. Raises UserError if there is none, or a field is missing or wrong."""
    try:
        content = parse_json(path.read_bytes())
    except FileNotFoundError as error:
        makers = "`eeg2text run` or `eeg2text score --json`"
        raise UserError(f"{path}: there is no such file; {makers} makes one.") from error
    except ValueError as error:
        raise UserError(f"{path}: is not JSON; score again.") from error
    if not isinstance(content, dict) or content.get("format") != 1 or not isinstance(content.get("cells"), list):
        raise UserError(f"{path}: expected results of format 1 with a list of cells; score again.")
    for number, cell in enumerate(content["cells"], 1):
        _check(cell, CELL, f"{path}: cell {number}")
        for name, metric in cell["metrics"].items():
            _check(metric, METRIC, f"{path}: cell {number}, {name}")
            if not math.isfinite(metric["value"]):
                raise UserError(f"{path}: cell {number}, {name}: the value is not finite; score again.")
    if not any(cell["metrics"] for cell in content["cells"]):
        raise UserError(f"{path}: no cell has a score, so there is nothing to record.")
    return content


def _check(content: Any, wanted: Mapping[str, Any], where: str) -> None:
    if not isinstance(content, dict):
        raise UserError(f"{where}: expected an object, found {content!r:.40}; score again.")
    for name, kind in wanted.items():
        value = content.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            expected = _KIND_WORDS.get(kind, "a number")
            raise UserError(f"{where}: {name} is {str(value)[:40]!r}, expected {expected}; score again.")
