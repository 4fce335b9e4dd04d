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
from eeg2text_jax.instrument.predictions.file import PredictionSet
from eeg2text_jax.instrument.predictions.read import read_any

# Convert results to Every Eval Ever, a JSON schema for evaluations of any kind of model.
#
# There is a record for each arm (a training condition and seed), with all scores. The schema is version 0.3.0 of
# github.com/evaleval/every_eval_ever.

SCHEMA = "0.3.0"
_BOUNDED = ("token_bleu", "word_bleu", "rouge", "top")  # prefixes of the names of scores that range from 0 to 100 %


@dataclasses.dataclass(frozen=True)
class About:
    """Fields that all records of a run share."""

    model: str  # `ORGANIZATION/NAME`, to which the arm's name is appended
    dataset: str
    organization: str  # name of the organization that reports the results
    relationship: str  # relationship of the evaluator to the model's developer
    evaluated: float  # time of the evaluation, Unix time in seconds
    recorded: float  # time of this export, Unix time in seconds
    details: dict[str, str]  # name -> text: profile, digest of the split, verdict and its sentence


def records(results: dict[str, Any], about: About) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each arm a path, `data/COLLECTION/DEVELOPER/MODEL/UUID.json`, and the record to write there."""
    arms = dict.fromkeys((cell["train_condition"], cell["seed"]) for cell in results["cells"])
    developer, _, name = about.model.rpartition("/")
    for condition, seed in arms:
        cells = [cell for cell in results["cells"] if (cell["train_condition"], cell["seed"]) == (condition, seed)]
        entries = [entry for cell in cells for entry in _results(cell, about)]
        if not entries:
            continue
        arm = f"{name}-{condition}-seed{seed}"
        record = {
            "schema_version": SCHEMA,
            "evaluation_id": f"{portable(about.dataset)}/{developer}/{arm}/{about.evaluated:.0f}",
            "evaluation_timestamp": f"{about.evaluated:.0f}",
            "retrieved_timestamp": f"{about.recorded:.0f}",
            "source_metadata": {
                "source_name": "eeg2text_jax",
                "source_type": "evaluation_run",
                "source_organization_name": about.organization,
                "evaluator_relationship": about.relationship,
                "additional_details": about.details,
            },
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
        yield f"data/{portable(about.dataset)}/{portable(developer)}/{portable(arm)}/{identity}.json", record


def _results(cell: dict[str, Any], about: About) -> Iterator[dict[str, Any]]:
    """Yield an entry of `evaluation_results` for each score of `cell`, one training and one evaluation condition."""
    for name, metric in cell["metrics"].items():
        is_rate, is_bounded = metric["lower_is_better"], name.startswith(_BOUNDED)
        yield {
            "evaluation_result_id": f"{cell['eval_condition']}/{cell['mode']}/{name}",
            "evaluation_name": f"EEG-to-text, evaluated on {cell['eval_condition']}, {cell['mode']}",
            "source_data": {
                "dataset_name": about.dataset,
                "source_type": "other",
                "additional_details": {"eval_condition": cell["eval_condition"], "mode": cell["mode"]},
            },
            "metric_config": {
                "evaluation_description": "decoded text against the sentence that was read",
                "metric_id": name,
                "metric_name": name,
                "metric_unit": "percent",
                "lower_is_better": metric["lower_is_better"],
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
    """Return a name in characters that are valid in a file name on every system."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "unnamed"


METRIC_OF_HUB = "word_bleu-1"
HUB_NAME = r"[\w.-]+/[\w.-]+"


def main(argv: Sequence[str]) -> int:
    flags = parse(argv)
    place, out = flags.workdir, flags.out
    if flags.metric and not flags.dataset:
        raise UserError(
            f"--metric={flags.metric}: names the score for --dataset, which is missing; give both, or leave --metric "
            "out."
        )
    metric = flags.metric or METRIC_OF_HUB
    path = place / "results.json" if place.is_dir() else place
    results = read_results(path)
    verdict = _verdict(path.with_name("audit.json"))
    evaluated = path.stat().st_mtime
    about = About(
        model=flags.model or f"local/{portable(path.absolute().parent.name)}",
        dataset=flags.dataset or flags.dataset_name or _source(path.with_name("config.json")),
        organization=flags.organization,
        relationship=flags.relationship,
        evaluated=evaluated,
        recorded=time.time(),
        details={"profile": str(results.get("profile", "")), "split": str(results.get("split", "")), **verdict},
    )
    made = {name: json.dumps(record, indent=1, ensure_ascii=False) + "\n" for name, record in records(results, about)}
    if flags.dataset:
        date = datetime.fromtimestamp(evaluated, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        hub = dict(hub_files(results, flags.dataset, metric, date))
        if not hub:
            raise UserError(f"--metric={metric}: no cell of {path} has this score; name a metric that was scored.")
        made |= hub
    made["citation.bib"] = BIBTEX
    with _all_or_nothing(out) as partial:
        for name, text in made.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            write_text(partial / name, text)
        notes = _write_predictions(path.with_name("predictions.jsonl"), partial)
        names = [*made, *(file.name for file in partial.glob("*.parquet"))]
    print("\n".join([*(f"wrote {out / name}" for name in names), *notes]))
    return 0


@contextlib.contextmanager
def _all_or_nothing(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside `out`; its files get their places in `out` when the block succeeds."""
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
    """Return `verdict` and `verdict_sentence` of an audit's JSON file; {} if there is no file."""
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
    """Write predictions.parquet into `out`; return why it is not written, if pyarrow is not installed."""
    if not path.exists():
        return []
    try:
        write_prediction_table(read_any(path), out / "predictions.parquet")
    except UserError as error:
        if "not installed" not in str(error):
            raise
        return [f"no predictions.parquet: {error}"]
    return []


def hub_files(results: dict[str, Any], dataset: str, metric: str, date: str) -> Iterator[tuple[str, str]]:
    """Yield (name, content) of a file in `.eval_results/` for each cell (arm, test condition, mode) that has `metric`.

    `date` (ISO 8601) is the time of the evaluation. The Hub shows these files on the model's page, and on the
    leaderboard of a data set that is registered as a benchmark (source: huggingface.co/docs/hub/eval-results).
    """
    for cell in results["cells"]:
        if metric not in cell["metrics"]:
            continue
        parts = (cell["train_condition"], f"seed{cell['seed']}", cell["eval_condition"], cell["mode"])
        entry = EvalResultEntry(
            dataset_id=dataset,
            task_id=portable(f"{cell['eval_condition']}_{cell['mode']}"),
            value=round(float(cell["metrics"][metric]["value"]), 4),
            date=date,
            notes=f"{metric}; trained on {cell['train_condition']}, seed {cell['seed']}; "
            f"evaluated on {cell['eval_condition']}, {cell['mode']}; {cell['metrics'][metric]['signature']}",
        )
        content = yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True)
        yield f".eval_results/{portable('_'.join(parts))}.yaml", content


_KINDS = {  # types of the Parquet columns that are not text
    **dict.fromkeys(("n_words", "seed", "n_tokens", "hypothesis"), "int64"),
    **dict.fromkeys(("reference_tokens", "prediction_tokens"), "list"),
    "nll": "float64",
    "story_time": "span",
}
_COLUMNS = (
    "sample_id", "subject", "task", "sentence_id", "n_words", "train_condition", "eval_condition", "seed", "mode",
    "reference", "prediction", "reference_tokens", "prediction_tokens", "nll", "n_tokens",
    "hypothesis", "donor", "story_time",
)  # fmt: skip


def write_prediction_table(prediction_set: PredictionSet, out: Path) -> None:
    """Write all predictions as Parquet, with the header as metadata. Raises UserError if pyarrow is not installed."""
    pa, pq = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    kinds = {"int64": pa.int64(), "float64": pa.float64(), "list": pa.list_(pa.int64()), "span": pa.list_(pa.float64())}
    schema = pa.schema(
        [(name, kinds[_KINDS[name]] if name in _KINDS else pa.string()) for name in _COLUMNS],
        metadata={b"eeg2text": json.dumps(prediction_set.header).encode()},
    )
    columns = [
        [getattr(row, name) for row in (*prediction_set.predictions, *prediction_set.further)] for name in _COLUMNS
    ]
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
    with replacing(out) as partial, partial.open("wb") as file:  # pyarrow takes no name that is not UTF-8
        pq.write_table(table, file, write_page_checksum=True)


CELL = {"train_condition": str, "eval_condition": str, "seed": int, "mode": str, "rows": int, "metrics": dict}
METRIC = {"value": (int, float), "signature": str, "lower_is_better": bool}
_KIND_WORDS = {str: "text", int: "a whole number", bool: "true or false", dict: "an object", list: "a list"}


def read_results(path: Path) -> dict[str, Any]:
    """Return the content of a results file. Raises UserError if it does not exist, or a field is missing or wrong."""
    try:
        content = parse_json(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: there is no such file; `eeg2text run` or `eeg2text score --json` makes one."
        ) from error
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
