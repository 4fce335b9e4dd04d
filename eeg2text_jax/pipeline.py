"""The stages of a run: prepare, train all arms, decode (free-running and teacher-forced), score, audit.

Finished stages are skipped.
"""

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from eeg2text_jax import rank_run
from eeg2text_jax.auditing.page import Section
from eeg2text_jax.auditing.provenance import DECODED_HERE
from eeg2text_jax.auditing.result import AuditResult
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.decoding.attributions import ChannelShares, own_texts
from eeg2text_jax.decoding.cells import decode_grid
from eeg2text_jax.decoding.topomap import map_figure, read_map
from eeg2text_jax.metrics.ranks import score_rankings
from eeg2text_jax.metrics.render import markdown_text, print_table, table_markdown, write_tables
from eeg2text_jax.metrics.score import score_cells, write_results
from eeg2text_jax.metrics.tables import NARROW_COLUMNS, score_table, side_by_side
from eeg2text_jax.model_metrics import configured, endpoints
from eeg2text_jax.opening import open_run
from eeg2text_jax.parallel.distributed import is_main, wait_for_all
from eeg2text_jax.predictions.file import MODES, Prediction, read_predictions, write_predictions
from eeg2text_jax.predictions.selection import select_cells
from eeg2text_jax.search.settings import search_name
from eeg2text_jax.splits.neighbors import high_neighbors, run_table
from eeg2text_jax.splits.split import readings_of
from eeg2text_jax.splits.splitfile import read_split_file
from eeg2text_jax.stores.address import address_of
from eeg2text_jax.study.config_file import write_configuration
from eeg2text_jax.study.metric_names import WORDS
from eeg2text_jax.study.sections import Settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.study.workdir import DECODED
from eeg2text_jax.training.metrics_log import loss_figure, write_figure
from eeg2text_jax.training.pictures import write_reconstructions
from eeg2text_jax.training.resume import trained_params
from eeg2text_jax.training.waves import restore_log, train_arms, waves

CHANNELS = (
    "The influence of each channel on the likelihood of the text that an arm (a training run) decoded from the EEG of "
    "the test part: absolute gradient times input, summed over words and bands, as a share of all channels, averaged "
    "over subjects. All arms are fed the same EEG, so a pattern that the arm trained on noise also has was not learned "
    "from EEG. The map is no statistical test, and does not tell whether the model is right."
)


def run(config: Settings, root: str, *, fold: bool = False) -> None:
    """Run all stages in the folder `root`, resuming an earlier run of the same configuration.

    With `fold`, one of several folds, the audit is written but not printed, because the verdict is over all folds. Of a
    finished run in a read-only folder, the results are printed.
    Raises UserError if the configuration, the data or the folder is not usable.
    """
    with open_run(config, root) as study:
        missing = [name for name in decoded_files(config) if not (study.workdir.root / name).exists()]
        if missing:
            train_arms(study)
            decode(study, missing)
        elif rank_run.shows_finished(study.workdir.root):
            return
        restore_log(study)
        if is_main():
            results = score(study)
            judge(study, results, show=not fold)
        wait_for_all("end of run")


def decoded_files(config: Settings) -> list[str]:
    """Return the names of the files that decoding writes: rankings, predictions, or both."""
    wanted = {"rankings.jsonl": rank_run.is_ranked(config), "predictions.jsonl": config.objective == "generate"}
    return [name for name, is_wanted in wanted.items() if is_wanted]


def decode(study: Study, files: Sequence[str] | None = None) -> None:
    """Decode with each arm's best parameters and write `files`; None: all of `decoded_files`."""
    files = decoded_files(study.config) if files is None else files
    if study.workdir.rankings.name in files:
        rank_run.rank(study)
    if study.workdir.predictions.name in files:
        predict(study)


def predict(study: Study) -> None:
    """Decode the test part with each arm's best parameters under every evaluation condition; write the file."""
    header, shares = header_of_predictions(study), ChannelShares(study)
    predictions = decoded_rows(study, shares)
    if not is_main():
        collections.deque(predictions, maxlen=0)  # other hosts only take part in the computation
        return
    write_configuration(study.workdir, study.config.document)
    study.workdir.unrecord(study.workdir.predictions.name, study.workdir.channels.name)
    write_predictions(study.workdir.predictions, header, predictions)
    if shares.places:
        shares.write(study.workdir.channels)
    study.workdir.record(study.workdir.predictions.name, *study.workdir.unrecorded(*DECODED))
    print(f"wrote {address_of(study.workdir.predictions)}")


def header_of_predictions(study: Study) -> dict[str, Any]:
    """Return the header of the predictions file: digests of its inputs, and how it was decoded."""
    return rank_run.header_of(study) | {
        "tokenizer": study.tokenizer_digest,
        "decode": study.config.decode.fields(),
        "search": search_name(study.config.decode.num_beams, study.config.decode.do_sample),
        "teacher_forced": "argmax at the reference's positions, cut at the first end token among them",
    }


def decoded_rows(study: Study, shares: ChannelShares | None = None) -> Iterator[Prediction]:
    """Yield predictions of every arm under every condition; `shares` adds up each channel's influence on the text."""
    return itertools.chain.from_iterable(_decode_wave(wave, shares) for wave in waves(study))


def _decode_wave(study: Study, shares: ChannelShares | None) -> Iterator[Prediction]:
    params, mesh, rows = trained_params(study), study.placement.mesh, []
    for row in decode_grid(study, params, mesh):
        if shares is not None and shares.places:
            rows.append(row)
        yield row
    if shares is not None and shares.places:
        shares.add(study, params, mesh, own_texts(study, rows))


def score(study: Study) -> dict[str, Any]:
    """Score the decoded rows; write `results.json`, `results.md` and `results.tex`; print the table.

    Returns the content of `results.json`. Raises UserError if the rows were changed since they were written, or made
    with another split, other data or another configuration.
    """
    config, workdir = study.config, study.workdir
    workdir.check(*DECODED)
    rows: Sequence[Prediction]
    if config.objective == "contrastive":
        rows = rank_run.read_ranked(study)
        title, results = "contrastive", rank_run.ranked_results(rows)
    else:
        found = read_predictions(workdir.predictions)
        rank_run.check_header(study, found.header, workdir.predictions, "decode")
        rows, title = rank_run.in_grid_order(study, found.predictions), config.model.backbone
        results = score_rows(config, rows, token_source=f"{title} ids, {study.tokenizer_digest}")
        if rank_run.is_ranked(config):
            results["cells"] += score_rankings(rank_run.read_ranked(study))
    results["split"] = study.split.digest()
    write_results(workdir.results, results)
    workdir.record(workdir.results.name, *workdir.unrecorded(*DECODED))
    write_tables(workdir.root, results, side_by_side(rows), title)
    print_table(results)
    return results


def score_rows(config: Settings, rows: Sequence[Prediction], **options: Any) -> dict[str, Any]:
    """Score rows with the word metrics and those in `config.metrics`; pass `options` to `score_cells`."""
    names, makers = config.metrics.names, configured(config)
    wanted = (*WORDS, *names) if names else None
    results = score_cells(rows, metrics=wanted, meaning=makers if names else None, **options)
    for note in makers.notes() if makers else ():
        print(note)
    return results


def verdict_of(study: Study) -> AuditResult | None:
    """Audit the arms trained on EEG: decoded with EEG against the other conditions; None if there is no such arm."""
    if not rank_run.can_audit(study.config.grid):
        return None
    if study.config.objective == "contrastive":
        return rank_run.audit_ranked(study.config, rank_run.read_ranked(study), **facts_of(study))
    return audit_rows(study.config, read_predictions(study.workdir.predictions).predictions, **facts_of(study))


def facts_of(study: Study) -> dict[str, Any]:
    """Return the audit's options about the data: training sentences, kind of recording, neighbors in time."""
    path = study.workdir.split
    return {
        "training_text": [str(text) for text in study.data.sentence[study.split.parts["train"]]],
        "recording": study.data.recording,
        "warnings": high_neighbors(read_split_file(path).record.get("time") if path.exists() else None),
    }


def audit_rows(config: Settings, rows: Iterable[Prediction], **facts: Any) -> AuditResult:
    """Audit rows that this run decoded, as `config.audit` says; `facts` are further keyword arguments of `audit`."""
    conditions = select_cells(rows, "eeg")
    endpoint, *secondary = endpoints((config.audit.endpoint, *config.audit.secondary), configured(config))
    options = {"endpoint": endpoint, "secondary": secondary, "margin": config.audit.margin or None, **facts}
    return rank_run.audit_conditions(config, conditions, decoded=DECODED_HERE, **options)


def judge(study: Study, results: dict[str, Any], *, show: bool = True) -> None:
    """Write `audit.json` and `report.html`; print the verdict if `show`."""
    config, workdir = study.config, study.workdir
    sections = functools.cache(lambda: report_sections(study))
    judged, found = workdir.rankings, None
    if rank_run.is_ranked(config):
        rows = rank_run.read_ranked(study)
        found = rank_run.judge_ranked(config, workdir.root, rows, facts_of(study), sections, show=show)
    if config.objective == "generate":
        judged, found = workdir.predictions, verdict_of(study)
        if found is None:
            print(rank_run.NO_AUDIT)
            return
        count = sum(cell["rows"] for cell in results["cells"] if cell["mode"] in MODES)
        table = table_markdown(score_table(results, config.model.backbone, NARROW_COLUMNS))
        rank_run.publish(found, judged, count, table, sections, show=show)
    if show and found is not None:
        files = f"report.html, results.md, results.json, {judged.name}, audit.json"
        print(f"everything is in {address_of(workdir.root)}: {files}")


def report_sections(study: Study) -> list[Section]:
    """Return the report's sections: data and, where the run has them, donors, losses, channels, reconstructions."""
    root, metrics, channels = study.workdir.root, study.workdir.metrics, study.workdir.channels
    sections = [data_section(study.data)]
    sections += [Section("Donors", study.samples.donor_note)] if study.samples.donor_note else []
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
    """Return the report's section on the recordings: counts, dropped samples, features and notes."""
    dropped = ", ".join(f"{reason} {n}" for reason, n in data.provenance.get("dropped", {}).items())
    about = f"{len(data)} samples of {len(set(data.subject))} subjects and {len(set(data.sentence))} different texts"
    lines = [f"{about}; dropped: {dropped or 'none'}.", f"Features: {data.features_are}."]
    lines += data.provenance.get("notes", ())
    if data.clock is not None and data.clock.ranges:
        rows = [
            f"| {markdown_text(name)} | {first:.10g} | {last:.10g} |"
            for name, (first, last) in data.clock.ranges.items()
        ]
        heads = f"| recording | first sample ({data.clock.unit}) | last sample ({data.clock.unit}) |"
        lines += [*data.clock.notes(), "\n".join([heads, "| --- | --- | --- |", *rows])]
        lines += ["\n".join(["```", *table, "```"])] if (table := run_table(readings_of(data))) else []
    return Section("Data", "\n\n".join(lines))
