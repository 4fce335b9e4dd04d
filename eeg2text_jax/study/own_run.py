"""Verify by digests that a predictions file was written by the run of its workdir: a header could be forged."""

import itertools
from collections.abc import Sequence
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest, parse_json
from eeg2text_jax.predictions.file import Prediction, PredictionSet
from eeg2text_jax.predictions.rankings import Ranking, RankingSet
from eeg2text_jax.splits.split import parts_digest
from eeg2text_jax.splits.splitfile import read_split_file
from eeg2text_jax.study.places import read_configuration, stored_digest
from eeg2text_jax.study.workdir import Workdir, read_object


def is_of_its_run(found: PredictionSet | RankingSet) -> bool:
    """Return whether digests tie predictions or rankings to configuration, split and checkpoint of their workdir.

    True if the workdir lists the file's digest, the file's header agrees with the configuration, the split and a
    checkpoint, and every sample is in the test part. A workdir that is forged as a whole is not detected.
    """
    workdir = Workdir(epath.Path(found.path).parent)
    needed = (workdir.config, workdir.split, workdir.finished)
    name = (workdir.rankings if isinstance(found, RankingSet) else workdir.predictions).name
    if isinstance(found, RankingSet):
        rows: Sequence[Prediction | Ranking] = found.rows
    else:
        rows = found.predictions if found.layout == "jsonl" else []
    if not rows or found.path.name != name or not all(path.exists() for path in needed):
        return False
    try:
        recorded = read_object(workdir.finished, "restore the file")
        document = read_configuration(workdir)
        decoding, training = (stored_digest(document, stage) for stage in ("decoding", "training"))
        split = read_split_file(workdir.split)
    except (UserError, ValueError, TypeError):
        return False
    return (
        recorded.get(found.path.name) == file_digest(found.path)
        and recorded.get(workdir.split.name) == file_digest(workdir.split)
        and found.header.get("config") == decoding
        and found.header.get("split") == parts_digest(split.samples)
        and {row.sample_id for row in rows} <= set(split.samples["test"])
        and _has_checkpoint(workdir, found.header, training)
    )


def neighbors_of_run(found: PredictionSet) -> dict[str, Any] | None:
    """Return how near in time dev and test samples are to training samples, from the workdir's split file.

    None if the split file has no such record, or the predictions are of another split.
    """
    workdir = Workdir(epath.Path(found.path).parent)
    if found.layout != "jsonl" or not workdir.split.exists():
        return None
    try:
        split = read_split_file(workdir.split)
    except UserError:
        return None
    return split.record.get("time") if found.header.get("split") == parts_digest(split.samples) else None


def _has_checkpoint(workdir: Workdir, header: dict[str, Any], digest: str) -> bool:
    """Return whether a checkpoint of the workdir records the header's split and the configuration digest `digest`."""
    wanted = {"split": header.get("split"), "config": digest}
    patterns = (f"{wave}checkpoints/step_*/info/metadata" for wave in ("", "*/"))  # a wave of arms may have a folder
    for path in itertools.chain.from_iterable(map(workdir.root.glob, patterns)):
        try:
            info = parse_json(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(info, dict) and wanted.items() <= info.items():
            return True
    return False
