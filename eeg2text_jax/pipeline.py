"""The whole job as a page: prepare, train the grid, decode both ways, score. A stage that is done is passed over."""

import rich
from ml_collections import ConfigDict

from eeg2text_jax.decoding.grid import decode_grid
from eeg2text_jax.metrics.examples import side_by_side
from eeg2text_jax.metrics.render import table_console, write_tables
from eeg2text_jax.metrics.score import score_cells, write_results
from eeg2text_jax.predictions import read_predictions, write_predictions
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
    score(study)


def decode(study: Study) -> None:
    """Decodes every cell with each arm's best parameters and writes the predictions file."""
    header = {
        "config": study.config_digest,
        "split": study.split.digest(),
        "tokenizer": study.tokenizer_digest,
        "decode": study.config.decode.to_dict(),
    }
    write_predictions(study.workdir.predictions, header, decode_grid(study, trained_params(study)))
    print(f"wrote {study.workdir.predictions}")


def score(study: Study) -> None:
    """Scores the predictions file; writes `results.json`, `results.md` and `results.tex` and prints the table."""
    predictions = read_predictions(study.workdir.predictions).predictions
    results = score_cells(predictions, token_source=f"{study.config.model.backbone} ids, {study.tokenizer_digest}")
    results["split"] = study.split.digest()
    write_results(study.workdir.results, results)
    write_tables(study.workdir.root, results, side_by_side(predictions), study.config.model.backbone)
    rich.print(table_console(results, study.config.model.backbone))
    print(f"wrote {study.workdir.results}, results.md and results.tex beside it")
