"""The whole job as a page: prepare, train the grid, decode both ways, score. A stage that is done is passed over."""

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
    study = open_study(config, open_workdir(root, config))
    if not study.workdir.predictions.exists():
        train(study)
        decode(study)


def decode(study: Study) -> None:
    """Decodes every cell with each arm's best parameters and writes the predictions file."""
    header = {
        "config": study.config_digest,
        "split": study.split.digest(),
        "tokenizer": study.tokenizer_digest,
        "decode": study.config.decode.to_dict(),
        "teacher_forced": "argmax at the reference's positions, cut at the first end token among them",
    }
    write_predictions(study.workdir.predictions, header, decode_grid(study, trained_params(study)))
    print(f"wrote {study.workdir.predictions}")
