"""The stages of a run: prepare, train all arms, decode, score, audit; and its folds. Finished stages are skipped."""

import collections
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from etils import epath

from eeg2text_jax.base.devices.hosts import is_main, wait_for_all
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.base.stores.buckets import address_of
from eeg2text_jax.base.stores.mirror import mirrored
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.splits.certificate import certify_data
from eeg2text_jax.data.splits.methods import make_folds
from eeg2text_jax.data.splits.neighbors import high_neighbors, run_table
from eeg2text_jax.data.splits.split import (
    Split,
    check_same_data,
    check_same_split,
    read_split_file,
    readings_of,
    write_split_file,
)
from eeg2text_jax.decoding.settings import search_name
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.notices import DECODED_HERE, RANKED_HERE, Judged
from eeg2text_jax.instrument.auditing.report import Section, write_report
from eeg2text_jax.instrument.auditing.result import AuditResult, result_text
from eeg2text_jax.instrument.auditing.strata import key, length_strata
from eeg2text_jax.instrument.metrics import tables
from eeg2text_jax.instrument.metrics.metric_names import WORDS
from eeg2text_jax.instrument.metrics.score import score_cells, score_rankings, write_results
from eeg2text_jax.instrument.predictions.file import (
    MODES,
    Prediction,
    read_predictions,
    sentence_key,
    write_predictions,
)
from eeg2text_jax.instrument.predictions.rankings import Candidates, Ranking, read_rankings, write_rankings
from eeg2text_jax.instrument.predictions.selection import select_arms, select_cells
from eeg2text_jax.instrument.workdir import (
    DECODED,
    PLACES,
    Workdir,
    check_name,
    differences,
    is_read_only,
    portable,
    read_object,
    resolved,
    verdict_in,
    write_configuration,
)
from eeg2text_jax.judge.model_metrics import configured, endpoints
from eeg2text_jax.runs._attributions import ChannelShares, map_figure, own_texts, read_map
from eeg2text_jax.runs.cells import COSINE, EVIDENCE, decode_grid, rank_by_likelihood, retrieve_grid
from eeg2text_jax.runs.opening import open_run
from eeg2text_jax.training.loop import arms_together, restore_log, train_arms, trained_params, write_reconstructions
from eeg2text_jax.training.metrics_log import loss_figure, write_figure
from eeg2text_jax.training.sections import GridSettings, Settings
from eeg2text_jax.training.study import Study, open_data

Row = TypeVar("Row", bound=Prediction)
Facts = Mapping[str, Any]  # see `facts_of`
Sections = Callable[[], Sequence[Section]]  # makes further sections of a report
NO_AUDIT = "no arm was trained and tested with eeg, so there is nothing to audit."


def run(config: Settings, root: str, *, fold: bool = False) -> None:
    """Run all stages in the folder `root`, resuming an earlier run; UserError if an input is not usable.

    The audit of a fold is not printed. Of a finished run in a read-only folder, the results are printed.
    """
    with open_run(config, root) as study:
        missing = [name for name in decoded_files(config) if not (study.workdir.root / name).exists()]
        if missing:
            train_arms(study)
            decode(study, missing)
        elif shows_finished(study.workdir.root):
            return
        restore_log(study)
        if is_main():
            judge(study, score(study), show=not fold)
        wait_for_all("end of run")


def decoded_files(config: Settings) -> list[str]:
    """Return the files that decoding writes: rankings, predictions, or both."""
    wanted = {"rankings.jsonl": is_ranked(config), "predictions.jsonl": config.objective == "generate"}
    return [name for name, is_wanted in wanted.items() if is_wanted]


def is_ranked(config: Settings) -> bool:
    """Return whether a run ranks sentences; it may write texts as well."""
    return config.objective == "contrastive" or config.retrieval.likelihood


def shows_finished(root: str | os.PathLike[str]) -> bool:
    """Print table and verdict of a read-only folder of a finished run or folds; False for any other."""
    folder = Path(root)
    results, verdict = folder / "results.json", folder / "audit.json"
    if not (is_read_only(folder) and results.exists()):
        return False
    tables.print_table(json.loads(results.read_text()))
    print(json.loads(verdict.read_text())["sentence"] if verdict.exists() else NO_AUDIT)
    print(f"{folder}: is read-only, so nothing was written; the verdict is that of its audit.json.")
    return True


def decode(study: Study, files: Sequence[str] | None = None) -> None:
    """Decode with each arm's best parameters; write `files` (None: `decoded_files`)."""
    files = decoded_files(study.config) if files is None else files
    if study.workdir.rankings.name in files:
        rank(study)
    if study.workdir.predictions.name in files:
        predict(study)


def _stored(study: Study, path: epath.Path, rows: Iterator[Any], write: Callable[[Any], None], *others: str) -> bool:
    """Write rows and their digest (`others`: further files of `write`); False on hosts that only compute."""
    if not is_main():
        collections.deque(rows, maxlen=0)
        return False
    write_configuration(study.workdir, study.config.document)
    study.workdir.unrecord(path.name, *others)
    write(rows)
    study.workdir.record(path.name, *study.workdir.unrecorded(*DECODED))
    return True


def predict(study: Study) -> None:
    """Decode the test part by every arm under every condition; write `predictions.jsonl`."""
    header, shares, path = header_of_predictions(study), ChannelShares(study), study.workdir.predictions

    def write(rows: Iterable[Prediction]) -> None:
        write_predictions(path, header, rows)
        if shares.places:
            shares.write(study.workdir.channels)

    if _stored(study, path, decoded_rows(study, shares), write, study.workdir.channels.name):
        print(f"wrote {address_of(path)}")


def header_of_predictions(study: Study) -> dict[str, Any]:
    """Return the header of the predictions file."""
    return header_of(study) | {
        "tokenizer": study.tokenizer_digest,
        **_search(study.config),
        "teacher_forced": "argmax at the reference's positions, cut at the first end token among them",
    }


def _search(config: Settings) -> dict[str, Any]:
    decode = config.decode
    return {"decode": decode.fields(), "search": search_name(decode.num_beams, decode.do_sample)}


def decoded_rows(study: Study, shares: ChannelShares | None = None) -> Iterator[Prediction]:
    """Yield predictions of every arm under every condition; add each channel's influence to `shares`."""
    for wave in arms_together(study):
        params, mesh, rows = trained_params(wave), wave.placement.mesh, []
        for row in decode_grid(wave, params, mesh):
            if shares is not None and shares.places:
                rows.append(row)
            yield row
        if shares is not None and shares.places:
            shares.add(wave, params, mesh, own_texts(wave, rows))


def rank(study: Study) -> None:
    """Rank the candidate sentences by every arm under every condition; write `rankings.jsonl`."""
    header, candidates, path = header_of_rankings(study), candidates_of(study), study.workdir.rankings
    if _stored(study, path, ranked_rows(study, candidates), lambda rows: write_rankings(path, header, rows)):
        print(f"wrote {path}: {len(candidates)} candidates")


def candidates_of(study: Study) -> Candidates:
    """Return the distinct sentences of the test part, in the order of the data file."""
    data = study.data
    first: dict[str, int] = {}
    for i in np.sort(study.split.parts["test"]).tolist():
        first.setdefault(sentence_key(str(data.sentence[i])), i)
    rows = list(first.values())
    tasks, words = [str(data.task[i]) for i in rows], [int(data.n_words[i]) for i in rows]
    texts = [str(data.sentence[i]) for i in rows]
    names = [f"{data.task[i]}:{data.sentence_index[i]}" for i in rows]
    return Candidates("test", texts, names, tasks, np.array(words, float), length_strata(tasks, words))


def header_of_rankings(study: Study) -> dict[str, Any]:
    """Return the header of the rankings file, without the candidates."""
    contrastive = study.config.objective == "contrastive"
    return header_of(study) | {"scores": f"{COSINE}|{study.targets.signature}" if contrastive else EVIDENCE}


def ranked_rows(study: Study, candidates: Candidates) -> Iterator[Ranking]:
    """Yield rankings of `candidates` for each test sample by every arm under every condition."""
    rank_wave = retrieve_grid if study.config.objective == "contrastive" else rank_by_likelihood
    for wave in arms_together(study):
        yield from rank_wave(wave, trained_params(wave), wave.placement.mesh, candidates)


def header_of(study: Study) -> dict[str, Any]:
    """Return digests of inputs, and the kind of recording if not EEG."""
    digests = {"config": study.config_digest, "split": study.split.digest(), "data": study.data.digest()}
    return digests | _recording(study.data)


def _recording(data: DataFile) -> dict[str, str]:
    return {"recording": data.recording} if data.recording != "eeg" else {}


def score(study: Study) -> dict[str, Any]:
    """Score the decoded rows; write and return `results.json`; write `results.md` and `.tex`; print the table.

    UserError if the rows were changed, or are of another run.
    """
    config, workdir = study.config, study.workdir
    workdir.check(*DECODED)
    rows: Sequence[Prediction]
    if config.objective == "contrastive":
        rows = read_ranked(study)
        title, results = "contrastive", ranked_results(rows)
    else:
        stored = read_predictions(workdir.predictions)
        check_header(study, stored.header, workdir.predictions, "decode")
        rows, title = in_grid_order(study, stored.predictions), config.model.backbone
        results = score_rows(config, rows, token_source=f"{title} ids, {study.tokenizer_digest}")
        if is_ranked(config):
            results["cells"] += score_rankings(read_ranked(study))
    results["split"] = study.split.digest()
    write_results(workdir.results, results)
    workdir.record(workdir.results.name, *workdir.unrecorded(*DECODED))
    tables.write_tables(workdir.root, results, tables.side_by_side(rows), title)
    tables.print_table(results)
    return results


def score_rows(config: Settings, rows: Sequence[Prediction], **options: Any) -> dict[str, Any]:
    """Score rows with word metrics and those of `config.metrics`; `options` are those of `score_cells`."""
    names, makers = config.metrics.names, configured(config)
    wanted = (*WORDS, *names) if names else None
    results = score_cells(rows, metrics=wanted, meaning=makers if names else None, **options)
    for note in makers.notes() if makers else ():
        print(note)
    return results


def ranked_results(rows: Sequence[Ranking]) -> dict[str, Any]:
    """Return the content of `results.json` of rankings."""
    return {"format": 1, "profile": "which sentence", "cells": score_rankings(rows)}


def read_ranked(study: Study) -> list[Ranking]:
    """Return this run's rankings `in_grid_order`; UserError if changed or of another run."""
    path = study.workdir.rankings
    study.workdir.check(path.name)
    stored = read_rankings(path)
    check_header(study, stored.header, path, "rank")
    return in_grid_order(study, stored.rows)


def check_header(study: Study, header: dict[str, Any], path: epath.Path, verb: str) -> None:
    """Raise UserError unless the rows in `path` are of this run's split, data and configuration."""
    check_same_split(study.split.digest(), header.get("split"), path)
    check_same_data(study.data.digest(), header.get("data"), path)
    if header.get("config") != study.config_digest:
        raise UserError(
            f"{path}: is of another run (configuration {header.get('config')}; expected {study.config_digest}); "
            f"remove the file to {verb} again."
        )


def in_grid_order(study: Study, rows: Iterable[Row]) -> list[Row]:
    """Sort rows by training condition, in the order of the arms, then by seed."""
    places = {arm.condition: a for a, arm in reversed(list(enumerate(study.arms)))}
    return sorted(rows, key=lambda row: (places[row.train_condition], row.seed))


def judge(study: Study, results: dict[str, Any], *, show: bool = True) -> None:
    """Audit a run, which writes `audit.json` and `report.html` by `publish`; print the verdict if `show`."""
    config, workdir = study.config, study.workdir
    sections = functools.cache(lambda: report_sections(study))
    judged, verdict = workdir.rankings, None
    if is_ranked(config):
        rows = read_ranked(study)
        verdict = judge_ranked(config, workdir.root, rows, facts_of(study), sections, show=show)
    if config.objective == "generate":
        judged, count = workdir.predictions, sum(cell["rows"] for cell in results["cells"] if cell["mode"] in MODES)
        title = config.model.backbone
        verdict = publish(verdict_of(study), judged, count, results, title, sections, show=show)
    if show and verdict is not None:
        files = f"report.html, results.md, results.json, {judged.name}, audit.json"
        print(f"everything is in {address_of(workdir.root)}: {files}")


def judge_ranked(
    config: Settings, root: Any, rows: Sequence[Ranking], facts: Facts, sections: Sections = tuple, *, show: bool = True
) -> AuditResult | None:
    """Write the audit and the report of rankings into the folder `root`; print the verdict if `show`.

    With likelihoods, the names end in `_likelihood`, as the audit of texts is there as well.
    """
    verdict, judged = audit_ranked(config, rows, **facts), epath.Path(root) / "rankings.jsonl"
    suffix, title = "" if config.objective == "contrastive" else "_likelihood", config.objective
    return publish(verdict, judged, len(rows), ranked_results(rows), title, sections, suffix=suffix, show=show)


def verdict_of(study: Study) -> AuditResult | None:
    """Audit the arms trained on EEG: EEG against the other conditions; None if there is no such arm."""
    if study.config.objective == "contrastive":
        return audit_ranked(study.config, read_ranked(study), **facts_of(study))
    return audit_rows(study.config, read_predictions(study.workdir.predictions).predictions, **facts_of(study))


def facts_of(study: Study) -> dict[str, Any]:
    """Return the audit's options about the data: training text, kind of recording, neighbors in time."""
    path = study.workdir.split
    return {
        "training_text": [str(text) for text in study.data.sentence[study.split.parts["train"]]],
        "recording": study.data.recording,
        "warnings": high_neighbors(read_split_file(path).record.get("time") if path.exists() else None),
    }


def audit_rows(config: Settings, rows: Iterable[Prediction], **facts: Any) -> AuditResult | None:
    """Audit rows as `config.audit` says; None if no arm was trained and tested with EEG."""
    if not can_audit(config.grid):
        return None
    conditions = select_cells(rows, "eeg")
    endpoint, *secondary = endpoints((config.audit.endpoint, *config.audit.secondary), configured(config))
    options = {"endpoint": endpoint, "secondary": secondary, "margin": config.audit.margin or None, **facts}
    return audit(conditions.pop("eeg"), conditions, deciding=config.grid.controls, decoded=DECODED_HERE, **options)


def audit_ranked(config: Settings, rows: Iterable[Ranking], **facts: Any) -> AuditResult | None:
    """Audit rankings as `config.retrieval` says, else as `audit_rows`."""
    if not can_audit(config.grid):
        return None
    conditions, how = select_arms(rows), config.retrieval
    options = {"endpoint": how.endpoint, "margin": how.margin or None, "decoded": RANKED_HERE, **facts}
    return audit(conditions.pop("eeg"), conditions, deciding=config.grid.controls, **options)


def can_audit(grid: GridSettings) -> bool:
    return "eeg" in grid.train_conditions and "eeg" in grid.eval_conditions


def publish(
    verdict: AuditResult | None,
    judged: epath.Path,
    rows: int,
    results: dict[str, Any],
    title: str,
    sections: Sections = tuple,
    *,
    suffix: str = "",
    show: bool = True,
) -> AuditResult | None:
    """Write `audit.json`, then `report.html`, beside the judged file of `rows` rows; print the verdict if `show`.

    The report has the scores `results` under `title`, and `sections`, which are made once the audit is written.
    `suffix` is added to both names.
    """
    if verdict is None:
        print(NO_AUDIT)
        return None
    verdict = dataclasses.replace(verdict, judged=Judged.of(judged, rows))
    text = json.dumps(verdict.to_json(), indent=1, ensure_ascii=False) + "\n"
    write_text(judged.parent / f"audit{suffix}.json", text)
    scores = tables.table_markdown(tables.score_table(results, title, tables.NARROW_COLUMNS))
    write_report(verdict, judged.parent / f"report{suffix}.html", sections=[Section("Scores", scores), *sections()])
    if not suffix:
        tables.add_verdict(judged.parent, verdict_in(judged.parent))
    if show:
        print(result_text(verdict, more=f"report{suffix}.html in the workdir, with every row"))
    return verdict


CHANNELS = (
    "The influence of each channel on the likelihood of the text that an arm (a training run) decoded from the EEG of "
    "the test part: absolute gradient times input, summed over words and bands, as a share of all channels, averaged "
    "over subjects. All arms are fed the same EEG, so a pattern that the arm trained on noise also has was not learned "
    "from EEG. The map is no statistical test, and does not tell whether the model is right."
)


def report_sections(study: Study) -> list[Section]:
    """Return the report's sections on data, donors, losses, channels and reconstructions."""
    root, metrics, channels = study.workdir.root, study.workdir.metrics, study.workdir.channels
    sections = [data_section(study.data)]
    if note := study.samples.donor_note:
        sections.append(Section("Donors", note))
    if not metrics.exists():
        print(f"{metrics}: there is no such file, so the report has no curves.")
        return sections
    write_figure(loss_figure(metrics), root / "loss.png")
    sections.append(Section("Loss", images=[root / "loss.png"]))
    if channels.exists():
        write_figure(map_figure(*read_map(channels)), root / "channels.png")
        sections.append(Section("Which channels count", CHANNELS, [root / "channels.png"]))
    if pictures := write_reconstructions(study):
        sections.append(Section("Reconstruction before the text", images=pictures))
    return sections


def data_section(data: DataFile) -> Section:
    """Return the report's section on the recordings."""
    dropped = ", ".join(f"{reason} {n}" for reason, n in data.provenance.get("dropped", {}).items()) or "none"
    about = f"{len(data)} samples of {len(set(data.subject))} subjects and {len(set(data.sentence))} different texts"
    lines = [f"{about}; dropped: {dropped}.", f"Features: {data.features_are}.", *data.provenance.get("notes", ())]
    if data.clock is not None and data.clock.ranges:
        rows = [
            f"| {tables.markdown_text(name)} | {first:.10g} | {last:.10g} |"
            for name, (first, last) in data.clock.ranges.items()
        ]
        heads = f"| recording | first sample ({data.clock.unit}) | last sample ({data.clock.unit}) |"
        lines += [*data.clock.notes(), "\n".join([heads, "| --- | --- | --- |", *rows])]
        if table := run_table(readings_of(data), data.provenance.get("seconds_per_character", 0.0)):
            lines.append("\n".join(["```", *table, "```"]))
    return Section("Data", "\n\n".join(lines))


# The audit exchanges sentences only within a fold, as each fold trains on test sentences of the others.


def run_folds(config: Settings, root: str, folds: str) -> AuditResult | None:
    """Run every fold in a folder under `root`, then score and audit all test parts together, with a run's file names.

    `folds` is their number, or "subjects" for one per subject. Returns the audit over all folds; None if there is none,
    or `root` is read-only. UserError as of `make_folds` and `run`, or if `root` has other folds.
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
        folder, certificate = place / f"fold_{k}", place / f"fold_{k}.json"
        if not certificate.exists():
            write_split_file(certificate, certify_data(data, split, config.split.ratio))
        elif read_split_file(certificate).resolve(data).digest() != split.digest():
            raise UserError(
                f"{certificate}: has another split than this fold; the data may have changed; take another --workdir."
            )
        changes = {"data.source": source, "split.method": "file", "split.path": str(certificate)}
        run(config.changed(changes), str(folder), fold=True)
        print(f"fold {k} of {len(splits)} is done, its audit is in fold_{k}; the verdict will be over all folds.")
        if is_ranked(config):
            ranked.append(read_rankings(folder / "rankings.jsonl").rows)
        if config.objective == "generate":
            rows.append(list(read_predictions(folder / "predictions.jsonl").predictions))
    print(f"\n=== all {len(splits)} folds ===")
    if shows_finished(place):
        return None
    times = [read_split_file(place / f"fold_{k}.json").record.get("time") for k in range(1, len(splits) + 1)]
    facts = {
        "training_text": leaked_text(data, splits),
        "recording": data.recording,
        "warnings": [f"fold {k}: {line}" for k, time in enumerate(times, 1) for line in high_neighbors(time)],
    }
    header = {"splits": [split.digest() for split in splits], **_recording(data)}
    ranked_audit = judge_ranked_folds(config, place, ranked, header, facts) if ranked else None
    return judge_folds(config, place, rows, header, facts) if config.objective == "generate" else ranked_audit


def judge_folds(
    config: Settings, place: Path, rows: Sequence[Sequence[Prediction]], header: Facts, facts: Facts
) -> AuditResult | None:
    """Score and audit all folds' `rows` together; write a run's files to `place`."""
    # Token ids are dropped: if folds train their own tokenizers, an id stands for another token in each.
    plain = [[dataclasses.replace(p, prediction_tokens=None, reference_tokens=None) for p in fold] for fold in rows]
    together, judged = [row for fold in plain for row in fold], epath.Path(place / "predictions.jsonl")
    write_predictions(judged, {**header, **_search(config)}, together)
    results = score_rows(config, together)
    write_results(place / "results.json", results)
    tables.write_tables(place, results, tables.side_by_side(together), config.model.backbone)
    tables.print_table(results)
    apart = [dataclasses.replace(p, task=f"{p.task}, fold {k}") for k, fold in enumerate(plain, 1) for p in fold]
    verdict = publish(audit_rows(config, apart, **facts), judged, len(together), results, config.model.backbone)
    if verdict is not None:
        made = "report.html, results.md, results.json, predictions.jsonl, audit.json, fold_*"
        print(f"everything is in {address_of(place)}: {made}")
    return verdict


def judge_ranked_folds(
    config: Settings, place: Path, folds: Sequence[Sequence[Ranking]], header: Facts, facts: Facts
) -> AuditResult | None:
    """Audit the rankings of all folds together; candidates are ranked, and sentences permuted, only within a fold."""
    rows: list[Ranking] = []
    for k, fold in enumerate(folds, 1):
        candidates = dataclasses.replace(fold[0].candidates, name=f"fold {k}")
        rows += [dataclasses.replace(row, task=f"{row.task}, fold {k}", candidates=candidates) for row in fold]
    write_rankings(place / "rankings.jsonl", dict(header), rows)
    return judge_ranked(config, place, rows, facts)


def leaked_text(data: DataFile, splits: Sequence[Split]) -> list[str]:
    """Return the test sentences that their fold trains on, whatever case and punctuation."""
    leaked = []
    for split in splits:
        train_keys = {key(str(text)) for text in data.sentence[split.parts["train"]]}
        tested = dict.fromkeys(str(text) for text in data.sentence[split.parts["test"]])
        leaked += [text for text in tested if key(text) in train_keys]
    return leaked


def _check_same(place: Path, config: Settings, folds: str) -> None:
    """Refuse folds of other data or another division; a fold's run checks the other fields."""
    wanted = {"folds": folds, **{name: config.document[name] for name in ("data", "split")}}
    noted = place / "folds.json"
    if noted.exists():
        stored = resolved(read_object(noted, "restore the file"), place, PLACES)
        if other := differences(wanted, stored, PLACES):
            raise UserError(
                f"{place} has folds of another configuration: {', '.join(other[:3])}; take another --workdir."
            )
        return
    if place.exists() and any(place.iterdir()):
        raise UserError(f"{place} is not empty and has no folds of eeg2text; take another --workdir.")
    place.mkdir(parents=True, exist_ok=True)
    write_text(noted, json.dumps(portable(wanted, place, PLACES), indent=1, sort_keys=True) + "\n")
