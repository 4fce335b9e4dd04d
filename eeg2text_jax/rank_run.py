"""Stages of a run that ranks candidate sentences (rank, score, audit), with functions that runs of text share."""

import collections
import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from etils import epath

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.page import Section
from eeg2text_jax.auditing.provenance import RANKED_HERE, Judged
from eeg2text_jax.auditing.report import write_report
from eeg2text_jax.auditing.result import AuditResult, result_text
from eeg2text_jax.auditing.strata import length_strata
from eeg2text_jax.decoding.retrieve import COSINE, EVIDENCE, rank_by_likelihood, retrieve_grid
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.metrics.ranks import score_rankings
from eeg2text_jax.metrics.render import add_verdict, print_table, table_markdown
from eeg2text_jax.metrics.tables import NARROW_COLUMNS, score_table
from eeg2text_jax.parallel.distributed import is_main
from eeg2text_jax.predictions.file import Prediction, sentence_key
from eeg2text_jax.predictions.rankings import Candidates, Ranking, read_rankings, write_rankings
from eeg2text_jax.predictions.selection import select_arms
from eeg2text_jax.splits.split import check_same_data, check_same_split
from eeg2text_jax.study.config_file import write_configuration
from eeg2text_jax.study.sections import GridSettings, Settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.study.workdir import DECODED, is_read_only, verdict_in
from eeg2text_jax.training.resume import trained_params
from eeg2text_jax.training.waves import waves

Row = TypeVar("Row", bound=Prediction)
NO_AUDIT = "no arm was trained and tested with eeg, so there is nothing to audit."


def is_ranked(config: Settings) -> bool:
    """Return whether a run ranks candidate sentences; it may write texts as well."""
    return config.objective == "contrastive" or config.retrieval.likelihood


def candidates_of(study: Study) -> Candidates:
    """Return the sentences to rank: the distinct ones of the test part, in the order of the data file."""
    data = study.data
    first: dict[str, int] = {}
    for i in np.sort(study.split.parts["test"]).tolist():
        first.setdefault(sentence_key(str(data.sentence[i])), i)
    rows = list(first.values())
    tasks, words = [str(data.task[i]) for i in rows], [int(data.n_words[i]) for i in rows]
    return Candidates(
        "test",
        [str(data.sentence[i]) for i in rows],
        [f"{data.task[i]}:{data.sentence_index[i]}" for i in rows],
        tasks,
        np.array(words, float),
        length_strata(tasks, words),
    )


def header_of(study: Study) -> dict[str, Any]:
    """Return the header of a predictions or rankings file: digests of inputs; kind of recording if not EEG."""
    recording = {"recording": study.data.recording} if study.data.recording != "eeg" else {}
    digests = {"config": study.config_digest, "split": study.split.digest(), "data": study.data.digest()}
    return digests | recording


def check_header(study: Study, header: dict[str, Any], path: epath.Path, verb: str) -> None:
    """Raise UserError unless the rows in `path` were made with this run's split, data and configuration."""
    check_same_split(study.split.digest(), header.get("split"), path)
    check_same_data(study.data.digest(), header.get("data"), path)
    if header.get("config") != study.config_digest:
        raise UserError(
            f"{path}: is of another run (configuration {header.get('config')}; expected {study.config_digest}); "
            f"remove the file to {verb} again."
        )


def in_grid_order(study: Study, rows: Iterable[Row]) -> list[Row]:
    """Sort rows by training condition, in the order of the run's arms, then by seed."""
    places = {arm.condition: a for a, arm in reversed(list(enumerate(study.arms)))}
    return sorted(rows, key=lambda row: (places[row.train_condition], row.seed))


def can_audit(grid: GridSettings) -> bool:
    """Return whether an arm is trained and tested with EEG."""
    return "eeg" in grid.train_conditions and "eeg" in grid.eval_conditions


def publish(
    found: AuditResult,
    judged: epath.Path,
    rows: int,
    table: str,
    sections: Callable[[], Sequence[Section]] = tuple,
    *,
    suffix: str = "",
    show: bool = True,
) -> AuditResult:
    """Write `audit.json`, then `report.html`, beside the file that was judged; print the verdict if `show`.

    `rows` is the number of judged rows, `table` the scores in Markdown. `sections` returns the further sections of the
    report; it is called once the audit is written. `suffix` is added to the names of both files.
    """
    found = dataclasses.replace(found, judged=Judged.of(judged, rows))
    text = json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n"
    write_text(judged.parent / f"audit{suffix}.json", text)
    write_report(found, judged.parent / f"report{suffix}.html", sections=[Section("Scores", table), *sections()])
    if not suffix:
        add_verdict(judged.parent, verdict_in(judged.parent))
    if show:
        print(result_text(found))
    return found


def shows_finished(root: str | os.PathLike[str]) -> bool:
    """Print table and verdict that a read-only folder of a finished run or of folds has; False for any other folder."""
    folder = Path(root)
    results, verdict = folder / "results.json", folder / "audit.json"
    if not (is_read_only(folder) and results.exists()):
        return False
    print_table(json.loads(results.read_text()))
    print(json.loads(verdict.read_text())["sentence"] if verdict.exists() else NO_AUDIT)
    print(f"{folder}: is read-only, so nothing was written; the verdict is that of its audit.json.")
    return True


def rank(study: Study) -> None:
    """Rank the candidate sentences with each arm's best parameters under every condition; write `rankings.jsonl`."""
    header, candidates = header_of_rankings(study), candidates_of(study)
    rows = ranked_rows(study, candidates)
    if not is_main():
        collections.deque(rows, maxlen=0)  # other hosts only take part in the computation
        return
    write_configuration(study.workdir, study.config.document)
    study.workdir.unrecord(study.workdir.rankings.name)
    write_rankings(study.workdir.rankings, header, rows)
    study.workdir.record(study.workdir.rankings.name, *study.workdir.unrecorded(*DECODED))
    print(f"wrote {study.workdir.rankings}: {len(candidates)} candidates")


def header_of_rankings(study: Study) -> dict[str, Any]:
    """Return the header of the rankings file, without the candidates: digests of its inputs, and what scores are."""
    contrastive = study.config.objective == "contrastive"
    return header_of(study) | {"scores": f"{COSINE}|{study.targets.signature}" if contrastive else EVIDENCE}


def ranked_rows(study: Study, candidates: Candidates) -> Iterator[Ranking]:
    """Yield rankings of `candidates` for each test sample, by every arm's best parameters under every condition."""
    rank_wave = retrieve_grid if study.config.objective == "contrastive" else rank_by_likelihood
    ranked = (rank_wave(wave, trained_params(wave), wave.placement.mesh, candidates) for wave in waves(study))
    return itertools.chain.from_iterable(ranked)


def read_ranked(study: Study) -> list[Ranking]:
    """Read this run's rankings, sorted by `in_grid_order`. Raises UserError if it was changed or is of another run."""
    path = study.workdir.rankings
    study.workdir.check(path.name)
    found = read_rankings(path)
    check_header(study, found.header, path, "rank")
    return in_grid_order(study, found.rows)


def ranked_results(rows: Sequence[Ranking]) -> dict[str, Any]:
    """Compute top-1, top-5 and ranks of rankings; return the content of `results.json`."""
    return {"format": 1, "profile": "which sentence", "cells": score_rankings(rows)}


def audit_ranked(config: Settings, rows: Iterable[Ranking], **facts: Any) -> AuditResult | None:
    """Audit rankings as `config.retrieval` says; None if no arm was trained and tested with EEG.

    `facts` are further keyword arguments of `audit`.
    """
    if not can_audit(config.grid):
        return None
    endpoint, margin = config.retrieval.endpoint, config.retrieval.margin or None
    return audit_conditions(config, select_arms(rows), endpoint=endpoint, margin=margin, decoded=RANKED_HERE, **facts)


def audit_conditions(config: Settings, conditions: dict[str, list[Any]], **options: Any) -> AuditResult:
    """Audit EEG against the other conditions (name -> rows), with `config`'s deciding controls."""
    return audit(conditions.pop("eeg"), conditions, deciding=config.grid.controls, **options)


def judge_ranked(
    config: Settings,
    root: Any,
    rows: Sequence[Ranking],
    facts: Mapping[str, Any],
    sections: Callable[[], Sequence[Section]] = tuple,
    *,
    show: bool = True,
) -> AuditResult | None:
    """Write the audit and the report of rankings into the folder `root`; print the verdict if `show`.

    Rankings by likelihood have their own file names, because the audit of texts is in the same folder.
    """
    found = audit_ranked(config, rows, **facts)
    if found is None:
        print(NO_AUDIT)
        return None
    suffix = "" if config.objective == "contrastive" else "_likelihood"
    table = table_markdown(score_table(ranked_results(rows), config.objective, NARROW_COLUMNS))
    return publish(found, epath.Path(root) / "rankings.jsonl", len(rows), table, sections, suffix=suffix, show=show)


def judge_ranked_folds(
    config: Settings,
    place: Path,
    folds: Sequence[Sequence[Ranking]],
    header: dict[str, Any],
    training_text: Sequence[str] | None = None,
) -> AuditResult | None:
    """Audit the rankings of all folds together; candidates are ranked, and sentences permuted, only within a fold."""
    rows: list[Ranking] = []
    for k, fold in enumerate(folds, 1):
        candidates = dataclasses.replace(fold[0].candidates, name=f"fold {k}")
        rows += [dataclasses.replace(row, task=f"{row.task}, fold {k}", candidates=candidates) for row in fold]
    write_rankings(place / "rankings.jsonl", header, rows)
    facts = {"training_text": training_text, "recording": header.get("recording", "eeg")}
    return judge_ranked(config, place, rows, facts)
