"""Predictions as a Parquet file for pandas and datasets, one row per prediction."""

import json
from pathlib import Path

from eeg2text_jax.data.source import library
from eeg2text_jax.files import replacing
from eeg2text_jax.predictions.file import PredictionSet

HEADER = b"eeg2text"  # name of the file's metadata
_KINDS = {
    "n_words": "int64",
    "seed": "int64",
    "n_tokens": "int64",
    "hypothesis": "int64",
    "nll": "float64",
    "reference_tokens": "list",
    "prediction_tokens": "list",
    "story_time": "span",
}
COLUMNS = (
    "sample_id", "subject", "task", "sentence_id", "n_words", "train_condition", "eval_condition", "seed", "mode",
    "reference", "prediction", "reference_tokens", "prediction_tokens", "nll", "n_tokens",
    "hypothesis", "donor", "story_time",
)  # fmt: skip


def write_prediction_table(found: PredictionSet, out: Path) -> None:
    """Write all rows atomically; missing fields are null, and the header is in the file's metadata.

    Raises:
      UserError: pyarrow is not installed.
    """
    pa, pq = library("pyarrow", "parquet"), library("pyarrow.parquet", "parquet")
    kinds = {"int64": pa.int64(), "float64": pa.float64(), "list": pa.list_(pa.int64()), "span": pa.list_(pa.float64())}
    schema = pa.schema(
        [(name, kinds[_KINDS[name]] if name in _KINDS else pa.string()) for name in COLUMNS],
        metadata={HEADER: json.dumps(found.header).encode()},
    )
    columns = [[getattr(row, name) for row in (*found.predictions, *found.further)] for name in COLUMNS]
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
    with replacing(out) as partial:
        pq.write_table(table, str(partial))
