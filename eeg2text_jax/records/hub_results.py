"""Results for a model's repository on the Hugging Face Hub: files of `.eval_results/`, one per cell.

Source: huggingface.co/docs/hub/eval-results. The Hub shows them on the model's page, and on the leaderboard of the data
set if it is registered as a benchmark.
"""

from collections.abc import Iterator
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from eeg2text_jax.records.every_eval_ever import portable

FOLDER = ".eval_results"


def hub_files(results: dict[str, Any], dataset: str, metric: str, date: str) -> Iterator[tuple[str, str]]:
    """Yield file names and contents: for every cell, the figure of the verdict's endpoint, or `metric`.

    Args:
      results: the result of `read_results`.
      dataset: the data set's name on the Hub, `ORGANIZATION/NAME`.
      metric: a figure's name in the results.
      date: the date of the evaluation, ISO 8601.
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
        yield f"{FOLDER}/{portable('_'.join(parts))}.yaml", content
