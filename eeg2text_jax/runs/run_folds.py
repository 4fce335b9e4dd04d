"""`eeg2text run --folds=K`: a run for each fold, and one verdict over all test parts.

The audit exchanges sentences only within a fold, because each fold trains on test sentences of the other folds.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.base.stores.buckets import address_of
from eeg2text_jax.base.stores.mirror import mirrored
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.splits.certificate import certify_data
from eeg2text_jax.data.splits.methods import make_folds
from eeg2text_jax.data.splits.split import Split, read_split_file, write_split_file
from eeg2text_jax.decoding.settings import search_name
from eeg2text_jax.instrument.auditing.result import AuditResult
from eeg2text_jax.instrument.auditing.strata import key
from eeg2text_jax.instrument.metrics.score import write_results
from eeg2text_jax.instrument.metrics.tables import (
    NARROW_COLUMNS,
    print_table,
    score_table,
    side_by_side,
    table_markdown,
    write_tables,
)
from eeg2text_jax.instrument.predictions.file import Prediction, read_predictions, write_predictions
from eeg2text_jax.instrument.predictions.rankings import Ranking, read_rankings
from eeg2text_jax.instrument.workdir import PLACES, Workdir, check_name, differences, portable, read_object, resolved
from eeg2text_jax.runs.pipeline import (
    NO_AUDIT,
    audit_rows,
    can_audit,
    is_ranked,
    judge_ranked_folds,
    publish,
    run,
    score_rows,
    shows_finished,
)
from eeg2text_jax.training.sections import Settings
from eeg2text_jax.training.study import open_data


def run_folds(config: Settings, root: str, folds: str) -> AuditResult | None:
    """Run every fold in its own folder under `root`, then score and audit all test parts together.

    `folds` is the number of folds, or "subjects" for one fold per subject; with `split.method` it decides what a fold
    is, see `methods.make_folds`. Finished stages are skipped, as in a single run. Results over all folds are in
    `root`, under the file names of a single run. Returns the audit over all folds; None if no arm was trained and
    tested with EEG, or `root` is read-only. Raises UserError as `make_folds` and `pipeline.run`, or if `root` has folds
    of another configuration.
    """
    if folds != "subjects" and not (folds.isdecimal() and int(folds) >= 2):
        raise UserError(
            f"--folds is {folds!r}; expected a number of folds, at least 2, or 'subjects' to test one subject per fold."
        )
    if config.parallel.hosts != "one":
        raise UserError(f"--folds: parallel.hosts is {config.parallel.hosts!r}; folds run on one host.")
    with mirrored(root) as local:
        return _run_in(config, Path(local), folds)


def _run_in(config: Settings, place: Path, folds: str) -> AuditResult | None:
    check_name(place)
    _check_same(place, config, folds)
    data = open_data(config, Workdir(epath.Path(place)))
    source = config.data.source if config.data.source.endswith(".h5") else str(data.path)
    how = config.split
    options = (how.gap, how.unique_subjects, how.unique_sessions)
    splits = make_folds(data, how.method, folds, how.ratio, how.seed, *options)
    rows: list[list[Prediction]] = []  # predictions of each fold
    ranked: list[list[Ranking]] = []  # rankings of each fold
    for k, split in enumerate(splits, 1):
        print(f"\n=== {split.method} ===")
        certificate = _certificate(place / f"fold_{k}.json", data, split, config)
        changes = {"data.source": source, "split.method": "file", "split.path": str(certificate)}
        run(config.changed(changes), str(place / f"fold_{k}"), fold=True)
        print(f"fold {k} of {len(splits)} is done, its audit is in fold_{k}; the verdict will be over all folds.")
        if is_ranked(config):
            ranked.append(read_rankings(place / f"fold_{k}" / "rankings.jsonl").rows)
        if config.objective == "generate":
            rows.append(list(read_predictions(place / f"fold_{k}" / "predictions.jsonl").predictions))
    print(f"\n=== all {len(splits)} folds ===")
    if shows_finished(place):
        return None
    leaked = leaked_text(data, splits)
    header: dict[str, Any] = {"splits": [split.digest() for split in splits]}
    header |= {"recording": data.recording} if data.recording != "eeg" else {}
    ranked_audit = judge_ranked_folds(config, place, ranked, header, leaked) if ranked else None
    return judge_folds(config, place, rows, header, leaked) if config.objective == "generate" else ranked_audit


def judge_folds(
    config: Settings,
    place: Path,
    rows: Sequence[Sequence[Prediction]],
    header: Mapping[str, Any],
    training_text: Sequence[str] | None = None,
) -> AuditResult | None:
    """Score and audit the predictions `rows` of each fold together; write the files of a single run to `place`.

    `header` is for the predictions file: digests of the folds' splits; the kind of recording unless it is EEG. The
    audit looks for test sentences in `training_text`, see `leaked_text`.
    """
    # Token ids are dropped: if folds train their own tokenizers, an id stands for another token in each.
    plain = [[dataclasses.replace(p, prediction_tokens=None, reference_tokens=None) for p in fold] for fold in rows]
    together = [row for fold in plain for row in fold]
    search = search_name(config.decode.num_beams, config.decode.do_sample)
    header = {**header, "decode": config.decode.fields(), "search": search}
    write_predictions(place / "predictions.jsonl", header, together)
    results = score_rows(config, together)
    write_results(place / "results.json", results)
    write_tables(place, results, side_by_side(together), config.model.backbone)
    print_table(results)
    if not can_audit(config.grid):
        print(NO_AUDIT)
        return None
    apart = [dataclasses.replace(p, task=f"{p.task}, fold {k}") for k, fold in enumerate(plain, 1) for p in fold]
    verdict = audit_rows(config, apart, training_text=training_text, recording=header.get("recording", "eeg"))
    table = table_markdown(score_table(results, config.model.backbone, NARROW_COLUMNS))
    verdict = publish(verdict, epath.Path(place / "predictions.jsonl"), len(together), table)
    made = "report.html, results.md, results.json, predictions.jsonl, audit.json, fold_*"
    print(f"everything is in {address_of(place)}: {made}")
    return verdict


def leaked_text(data: DataFile, splits: Sequence[Split]) -> list[str]:
    """Return the test sentences that are in the training part of their fold; case and punctuation do not count."""
    leaked = []
    for split in splits:
        train_keys = {key(str(text)) for text in data.sentence[split.parts["train"]]}
        tested = dict.fromkeys(str(text) for text in data.sentence[split.parts["test"]])
        leaked += [text for text in tested if key(text) in train_keys]
    return leaked


def _check_same(place: Path, config: Settings, folds: str) -> None:
    """Raise UserError if a folder has folds of other data or another division.

    All other fields of the configuration are checked when the run of a fold begins.
    """
    wanted = {"folds": folds, **{name: config.document[name] for name in ("data", "split")}}
    noted = place / "folds.json"
    if noted.exists():
        other = differences(wanted, resolved(read_object(noted, "restore the file"), place, PLACES), PLACES)
        if other:
            raise UserError(
                f"{place} has folds of another configuration: {', '.join(other[:3])}; take another --workdir."
            )
        return
    if place.exists() and any(place.iterdir()):
        raise UserError(f"{place} is not empty and has no folds of eeg2text; take another --workdir.")
    place.mkdir(parents=True, exist_ok=True)
    write_text(noted, json.dumps(portable(wanted, place, PLACES), indent=1, sort_keys=True) + "\n")


def _certificate(path: Path, data: DataFile, split: Split, config: Settings) -> Path:
    """Write the split file of a fold, or check an existing one; return its path."""
    if not path.exists():
        write_split_file(path, certify_data(data, split, config.split.ratio))
    elif read_split_file(path).resolve(data).digest() != split.digest():
        raise UserError(f"{path}: has another split than this fold; the data may have changed; take another --workdir.")
    return path
