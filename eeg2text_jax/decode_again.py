"""Decode again what a workdir holds: the only evidence of where predictions come from that nobody can write by hand."""

from collections.abc import Iterator

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError
from eeg2text_jax.opening import begun
from eeg2text_jax.pipeline import decoded_rows
from eeg2text_jax.predictions.file import Prediction, PredictionSet, read_predictions
from eeg2text_jax.predictions.rankings import Ranking, RankingSet
from eeg2text_jax.rank_run import candidates_of, ranked_rows
from eeg2text_jax.study.config_file import read_configuration
from eeg2text_jax.study.own_run import is_of_its_run
from eeg2text_jax.study.ranges import checked_settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.study.workdir import find_workdir

CLOSE = 1e-3  # of scores of rankings, relative: other devices sum in another order


def decoded_again(found: PredictionSet | RankingSet) -> str:
    """Decode with the checkpoints beside a predictions or rankings file and compare every row.

    Returns:
      The evidence, as a report says it.

    Raises:
      UserError: the file is not that of a finished run, or a row differs from what the checkpoints give.
    """
    if not is_of_its_run(found):
        raise UserError(
            f"{found.path}: lies in no workdir of the run that wrote it, so it cannot be decoded again; give the file "
            "in its workdir (with config.json, split.json, finished.json and checkpoints), or leave --again out."
        )
    root = epath.Path(found.path).parent
    ranked = isinstance(found, RankingSet)
    there = {_key(row): row for row in _all_rows(found)}
    config = checked_settings(ConfigDict(read_configuration(find_workdir(str(root)))))
    with begun(config, str(root), make=False) as study:
        here = {_key(row): row for row in _rows(study, ranked)}
    differing = [key for key in there | here if not _same(there.get(key), here.get(key))]
    if differing:
        sample, trained, condition, *_ = differing[0]
        raise UserError(
            f"{found.path}: {len(differing)} of {len(there | here)} rows are not what the checkpoints beside it give, "
            f"the first {sample} ({trained} -> {condition}); another kind of device may change rows at a near tie. "
            "Remove the file and decode again, or leave --again out to have it judged as stated."
        )
    verb = "ranked" if ranked else "decoded"
    return f"{verb} again by this command with the checkpoints beside the file, and all {len(there)} rows are the same"


def _all_rows(found: PredictionSet | RankingSet) -> list[Prediction]:
    """Every row of the file: `--mode` may have left some out of `found`, and further hypotheses are not judged."""
    if isinstance(found, RankingSet):
        return list(found.rows)
    whole = read_predictions(found.path)
    return [*whole.predictions, *whole.further]


def _rows(study: Study, ranked: bool) -> Iterator[Prediction]:
    return ranked_rows(study, candidates_of(study)) if ranked else decoded_rows(study)


def _key(row: Prediction) -> tuple:
    return row.sample_id, row.train_condition, row.eval_condition, row.seed, row.mode, row.hypothesis


def _same(one: Prediction | None, other: Prediction | None) -> bool:
    if one is None or other is None or one.reference != other.reference:
        return False
    if isinstance(one, Ranking) and isinstance(other, Ranking):
        listed = one.candidates.references == other.candidates.references
        return listed and np.allclose(one.scores, other.scores, CLOSE, CLOSE)
    return one.prediction == other.prediction
