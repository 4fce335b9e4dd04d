"""Convert results to Every Eval Ever, a JSON schema for evaluations of any kind of model.

There is a record for each arm (a training condition and seed), with all scores. The schema is version 0.3.0 of
github.com/evaleval/every_eval_ever.
"""

import dataclasses
import re
import uuid
from collections.abc import Iterator
from typing import Any

from eeg2text_jax.files import content_digest
from eeg2text_jax.versions import __version__

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
        found = [entry for cell in cells for entry in _results(cell, about)]
        if not found:
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
            "evaluation_results": found,
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
