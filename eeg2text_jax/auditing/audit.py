"""The audit: does a model use the EEG, judged by its predictions or rankings under EEG and under controls?"""

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from eeg2text_jax.auditing import fitness, red_flags
from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.beyond_time import SAID_BEHIND, beyond_time, time_lines
from eeg2text_jax.auditing.compare import Measured, compare, decide, measure, questions
from eeg2text_jax.auditing.content_cells import donor_notes
from eeg2text_jax.auditing.contrast import Contrast, Evidence
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.levels import Level, curve, labels_of, measure_levels, sampled_groups
from eeg2text_jax.auditing.provenance import AVERAGED, checked_proof, provenance_of
from eeg2text_jax.auditing.rank_table import rank_table
from eeg2text_jax.auditing.red_flags import LEVELS, Flag
from eeg2text_jax.auditing.result import AuditResult
from eeg2text_jax.auditing.retrieval import eeg_bits, retrieve
from eeg2text_jax.auditing.statistics import design_effect
from eeg2text_jax.auditing.strata import STRATUM_SIZE, thin_windows
from eeg2text_jax.auditing.structure import contradictions, weighed
from eeg2text_jax.auditing.table import Table
from eeg2text_jax.auditing.text_table import text_table
from eeg2text_jax.auditing.verdict import Comparison, deciding_one, is_above
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.in_memory import as_conditions
from eeg2text_jax.predictions.rankings import CandidateScores, Key, Ranking
from eeg2text_jax.splits.neighbors import high_neighbors

CURVE_RESAMPLES = 1000  # upper limit of the draws for `levels.curve`, which decides nothing


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of an audit, and facts about the predictions that the rows do not state.

    Attributes:
      name: name of the EEG condition in the result.
      endpoint: the score that decides, chosen before looking. For texts an `Endpoint`, or None for word BLEU-1; for
        rankings a name in `WHICH_SENTENCE`, or None for top-5.
      secondary: further endpoints of texts; they are computed and do not decide.
      margin: smallest difference in content that matters, in points of the endpoint, fixed before looking. None: the
        endpoint's default.
      resamples: number of permutations and of bootstrap draws.
      seed: random seed of permutations and bootstrap.
      common: judge the rows that all conditions share instead of refusing conditions that differ.
      stratum_size: number of sentences of one task and similar length in a stratum.
      training_text: sentences of the training part; test sentences among them are reported.
      choices: the list of sentences that the decoder chose from, as its authors state; empty if it writes freely.
      proof: the authors' statement, a sentence or a URL, of how they know that no target reached the decoder. It is
        printed; findings that contradict it remain.
      verified: the evidence that the run decoded these predictions itself; "": not verified.
      stated_by: words that say who states the mode of the rows, such as "the file states".
      deciding: names of the controls that decide; the others ask questions of their own. None: all controls except
        those that keep the features of the words (`QUESTIONS`) and those of time.
      candidates: condition -> candidate scores for retrieval, see `predictions.candidates`.
      recording: "eeg" or "fmri". For fMRI, only windows that do not overlap are judged, and the report says
        fMRI in place of EEG.
      groups: column name -> reference -> its class, topic or story; content is measured between and within these.
      with_curve: whether to measure the content within ever finer clusters of sentences, if content is found and no
        groups are given.
      neighbors: section `time` of the split's certificate, see `splits.neighbors.time_leakage`.
    """

    name: str = "eeg"
    endpoint: Endpoint | str | None = None
    secondary: Sequence[Endpoint] = ()
    margin: float | None = None
    resamples: int = 10_000
    seed: int = 0
    common: bool = False
    stratum_size: int = STRATUM_SIZE
    training_text: Iterable[str] | None = None
    choices: Sequence[str] = ()
    proof: str = ""
    verified: str = ""
    stated_by: str = "the file states"
    deciding: Collection[str] | None = None
    candidates: Mapping[str, Mapping[Key, CandidateScores]] | None = None
    recording: str = "eeg"
    groups: Mapping[str, Mapping[str, str]] | None = None
    with_curve: bool = False
    neighbors: Mapping[str, Any] | None = None


def audit(
    eeg: Any,
    controls: Any = None,
    *,
    control: Any = None,
    references: Any = None,
    columns: Sequence[str] | None = None,
    mode: str | None = None,
    options: Options | None = None,
    **changes: Any,
) -> AuditResult:
    """Judge whether predictions or rankings hold more about the sentence with EEG than with each control.

    Args:
      eeg: `Prediction`s or `Ranking`s made from EEG; a DataFrame of predictions; the path of a file; or texts with
        `references`. If rows have `nll`, EEG bits are computed, too.
      controls: name -> predictions or rankings of a control; or those of one control. None: the controls in the
        DataFrame or file. Without controls, EEG is compared with its content null.
      control: another name of `controls`.
      references: the true texts, if predictions are lists of texts; or the path of their file, if they are paths.
      columns: the columns of the reference and of predictions, if files or DataFrames have others than usual names.
      mode: the decoding mode to judge, `free_running` or `teacher_forced`; None: free-running rows if there are any.
      options: further settings; None: the defaults.
      changes: fields of `Options` to change, such as `resamples=2000`.

    Raises:
      UserError: rows cannot be compared, or references have no label.
      ValueError: a control has the name of the EEG condition.

    Examples:
      >>> from eeg2text_jax import audit, read_any
      >>> rows = read_any("run/predictions.jsonl").predictions
      >>> own = [row for row in rows if row.train_condition == "eeg"]
      >>> conditions = {name: [row for row in own if row.eval_condition == name] for name in ("eeg", "noise")}
      >>> found = audit(conditions.pop("eeg"), conditions, resamples=200)
      >>> found.verdict.value == "uses EEG"
      False
    """
    options = dataclasses.replace(options or Options(), **changes)
    if control is not None and controls is not None:
        raise UserError("controls and control are given; they mean the same, give one of them.")
    controls = {} if controls is control is None else controls if control is None else control
    if isinstance(controls, Mapping) and options.name in controls:
        raise ValueError(f"a control has the name of the EEG condition, {options.name!r}")
    eeg, controls, seeds_stated = as_conditions(eeg, controls, references, mode, options.name, columns)
    options = dataclasses.replace(options, proof=checked_proof(options.proof))
    eeg, controls, left_out = thin_windows(eeg, controls, options.recording)
    conditions = {options.name: eeg, **controls}
    aligned = align(conditions, mode=mode, common=options.common, stratum_size=options.stratum_size)
    if isinstance(aligned.eeg.rows[0], Ranking):
        table: Table = rank_table(aligned, cast(str, options.endpoint or "top-5"))
    else:
        table = text_table(aligned, cast("Endpoint | None", options.endpoint), options.secondary)
    rng = np.random.default_rng(options.seed)
    result = audit_table(table, options, rng)
    draws: dict[str, Any] = {"resamples": options.resamples, "rng": rng}
    bits = [eeg_bits(eeg, name, rows, **draws) for name, rows in controls.items()]
    scores = dict(options.candidates or {})
    ranked = scores.pop("eeg", {})
    return dataclasses.replace(
        result,
        seeds_stated=seeds_stated,
        notes=[*aligned.notes, *donor_notes(aligned), *left_out, *result.notes],
        bits=[found for found in bits if found is not None],
        retrieval=[retrieve(ranked, name, other, **draws) for name, other in scores.items()],
    )


def audit_table(table: Table, options: Options, rng: np.random.Generator) -> AuditResult:
    """Audit aligned conditions: score each, compare EEG with controls, collect findings, and decide the verdict."""
    aligned, endpoint = table.aligned, table.endpoint
    margin = endpoint.margin if options.margin is None else options.margin
    measured = measure(table, stratum_size=options.stratum_size, resamples=options.resamples, rng=rng)
    groups = options.groups or {}
    labels = {column: labels_of(aligned, of, column) for column, of in groups.items()}
    sampled = sampled_groups(labels, groups)
    evidence, notes = compare(table, measured, sampled, resamples=options.resamples, rng=rng)
    effect = design_effect(endpoint.score, measured.cells[0].rows.own, aligned.eeg.sentence)
    flags = findings(table, measured, evidence, options, effect)
    statements = {"verified": options.verified, "proof": options.proof, "stated_by": options.stated_by}
    origin = provenance_of(aligned.eeg.mode, **statements, contradictions=contradictions(flags))
    levels = _levels(table, labels, options)
    asked = questions(aligned, options.deciding)
    bars = [fitness.bars(flags, aligned.eeg.name, found.control) for found in evidence]
    comparisons = [
        decide(found, reasons, table, measured.conditions, margin, origin, asked, levels)
        for found, reasons in zip(evidence, bars, strict=True)
    ]
    decisive = deciding_one(comparisons)
    time = beyond_time(aligned, comparisons)
    return AuditResult(
        verdict=decisive.verdict,
        sentence=" ".join([decisive.sentence, *time_lines(decisive.verdict, time)]),
        metric=endpoint.label,
        signature=endpoint.metric.signature,
        margin=margin,
        resamples=options.resamples,
        seed=options.seed,
        mode=aligned.eeg.mode,
        n_rows=len(aligned.eeg.rows),
        n_sentences=len(aligned.references),
        n_subjects=len({row.subject for row in aligned.eeg.rows} - {""}),
        n_strata=int(aligned.strata.max()) + 1,
        task_known=aligned.task_known,
        seeds=aligned.seeds,
        design_effect=effect,
        conditions=measured.conditions,
        comparisons=comparisons,
        flags=sorted(flags, key=lambda flag: LEVELS.index(flag.level)),
        notes=[*map(str, sampled), *notes, *(note for e in (endpoint, *table.secondary) for note in e.metric.notes())],
        recording=options.recording,
        provenance=origin,
        levels=levels,
        curve=_curve(table, decisive, options) if options.with_curve and not options.groups else [],
        time=time,
        examples=table.examples(measured.cells[0].rows, rng),
        **table.fields(),
    )


def findings(
    table: Table, measured: Measured, evidence: Sequence[Evidence], options: Options, effect: float
) -> list[Flag]:
    """Return all findings about the files, those that may bar the verdict first. `effect` is the design effect."""
    aligned, score = table.aligned, table.endpoint.score
    flags = fitness.unfit(aligned)
    flags += table.signs(measured.conditions, averaged=bool(AVERAGED.search(options.proof)), choices=options.choices)
    if options.training_text is not None:
        apart = bool(options.verified or options.choices)
        flags += fitness.training_overlap(aligned, options.training_text, apart=apart)
    flags += measured.flags
    flags = weighed(flags) if options.verified else flags
    flags += [Flag("time", "warning", message) for message in high_neighbors(options.neighbors)]
    flags += red_flags.alignment_flags(aligned, effect) + red_flags.seed_flags(aligned)
    flags += table.warnings(measured.conditions, measured.plain, evidence)
    for index, found in enumerate(evidence):
        if is_above(found.primary):
            chosen = [measured.cells[0], measured.cells[index + 1]] if found.control else measured.cells[:1]
            totals = np.stack([t.sampled.own.sum(0) for t in chosen] + [t.sampled.null.sum(0) for t in chosen], 1)
            flags += red_flags.sentence_flags(aligned, found.control, found.primary.effect, totals, score)
    return flags


def _levels(table: Table, labels: Mapping[str, np.ndarray], options: Options) -> list[Level]:
    """Measure content between and within the groups of each column, with a random generator of its own."""
    rng = np.random.default_rng((options.seed, 1))
    draws: dict[str, Any] = {"resamples": options.resamples, "rng": rng, "stratum_size": options.stratum_size}
    found = (measure_levels(table.aligned, of, name, table.endpoint, **draws) for name, of in labels.items())
    return list(itertools.chain.from_iterable(found))


def _curve(table: Table, decisive: Comparison, options: Options) -> list[tuple[int, Contrast]]:
    """Return the curve of `levels.curve`, with a random generator of its own; empty if no content was found."""
    if decisive.verdict not in SAID_BEHIND:
        return []
    return curve(
        table.aligned,
        table.endpoint,
        decisive.control,
        resamples=min(options.resamples, CURVE_RESAMPLES),
        rng=np.random.default_rng((options.seed, 2)),
        stratum_size=options.stratum_size,
    )
