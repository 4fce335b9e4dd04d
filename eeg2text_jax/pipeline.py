"""The whole job as a page: prepare, train the grid, decode both ways, score. A stage that is done is passed over."""

import collections

import rich
from ml_collections import ConfigDict

from eeg2text_jax.data.splits.split import check_same_split
from eeg2text_jax.decoding.grid import decode_grid
from eeg2text_jax.metrics.examples import side_by_side
from eeg2text_jax.metrics.render import table_console, write_tables
from eeg2text_jax.metrics.score import score_cells, write_results
from eeg2text_jax.parallel.distributed import initialize, is_main, main_first
from eeg2text_jax.predictions import read_predictions, write_predictions
from eeg2text_jax.study import Study, open_study
from eeg2text_jax.training.loop import train, trained_params
from eeg2text_jax.workdir import open_workdir


def run(config: ConfigDict, root: str) -> None:
    """Does all of it in the folder `root`, going on where an earlier run of the same configuration ended.

    Raises:
      UserError: the configuration, the data or the folder is not usable.
    """
    study = start(config, root)
    if not study.workdir.predictions.exists():
        train(study)
        decode(study)
    if is_main():
        score(study)


def start(config: ConfigDict, root: str) -> Study:
    """Joins the other hosts, if any, and opens the study of the folder `root`, which all of them must see."""
    initialize(config.parallel.hosts)
    return main_first(lambda: open_study(config, open_workdir(root, config)))


def decode(study: Study) -> None:
    """Decodes every cell with each arm's best parameters and writes the predictions file."""
    header = {
        "config": study.config_digest,
        "split": study.split.digest(),
        "tokenizer": study.tokenizer_digest,
        "decode": study.config.decode.to_dict(),
        "teacher_forced": "argmax at the reference's positions, cut at the first end token among them",
    }
    predictions = decode_grid(study, trained_params(study))
    if not is_main():
        collections.deque(predictions, maxlen=0)  # takes part in the computation, writes nothing
        return
    write_predictions(study.workdir.predictions, header, predictions)
    print(f"wrote {study.workdir.predictions}")


def score(study: Study) -> None:
    """Scores the predictions file; writes `results.json`, `results.md` and `results.tex` and prints the table.

    Raises:
      UserError: the predictions were made with another split.
    """
    found = read_predictions(study.workdir.predictions)
    check_same_split(study.split.digest(), found.header.get("split"), study.workdir.predictions)
    predictions = found.predictions
    results = score_cells(predictions, token_source=f"{study.config.model.backbone} ids, {study.tokenizer_digest}")
    results["split"] = study.split.digest()
    write_results(study.workdir.results, results)
    write_tables(study.workdir.root, results, side_by_side(predictions), study.config.model.backbone)
    rich.print(table_console(results, study.config.model.backbone))
    print(f"wrote {study.workdir.results}, results.md and results.tex beside it")
