"""The whole job as a page: prepare, train the grid, decode both ways, score. Each stage is skipped when done."""

import json
from typing import Any

import jax
from ml_collections import ConfigDict

from eeg2text_jax.decoding.grid import decode_grid
from eeg2text_jax.predictions import write_predictions
from eeg2text_jax.study import Study, open_study
from eeg2text_jax.training.loop import train, trained_params
from eeg2text_jax.workdir import open_workdir


def run(config: ConfigDict, root: str) -> None:
    """Does all of it in the folder `root`, going on where an earlier run of the same configuration ended.

    Raises:
      UserError: the configuration, the data or the folder is not usable.
    """
    workdir = open_workdir(root, config)
    study = open_study(config, workdir)
    if not workdir.predictions.exists():
        decode(study, train(study).best_params)
    score(study)
