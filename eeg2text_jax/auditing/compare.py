"""Score the conditions of a table, compare EEG with each control, and decide the verdict of each comparison."""

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing import verdict
from eeg2text_jax.auditing.align import Aligned
from eeg2text_jax.auditing.beyond_time import QUESTION, is_of_time
from eeg2text_jax.auditing.content_cells import ContentTable, content_tables
from eeg2text_jax.auditing.contrast import Contrast, Evidence, SampledGroups, Secondary, contrast, subject_effects
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.guessed_strata import stand_ins
from eeg2text_jax.auditing.levels import Level
from eeg2text_jax.auditing.provenance import Provenance, joined
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.side_channel import GAP_CODES, measure_side_channel
from eeg2text_jax.auditing.statistics import holm
from eeg2text_jax.auditing.table import ConditionSummary, Table
from eeg2text_jax.auditing.verdict import FOUND, Comparison, Verdict, is_above
from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.metric import MetricError

# Control that keeps the features of the words -> question that it answers; such controls do not decide the verdict.
QUESTIONS = {
    "time_reversed": "does the order of the recording matter?",
    "phase_randomized": "does the time course of the recording matter, beyond its spectrum?",
}
SUBJECT_RESAMPLES = 1000  # bootstrap draws per subject: enough for the error bars of a figure


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measured conditions of a table, in lists with EEG first."""

    cells: list[ContentTable]  # one per condition: the deciding endpoint, within strata of task and length
    derived: dict[str, list[ContentTable]]  # the source of other strata -> the same within them
    plain: list[ContentTable]  # statistics under `Table.plain`, the endpoint of warnings
    conditions: list[ConditionSummary]
    flags: list[Flag]  # about the length side channel


def measure(table: Table, *, stratum_size: int, resamples: int, rng: np.random.Generator) -> Measured:
    """Score all conditions of a table under the same permutations and bootstrap draws."""
    aligned, plain = table.aligned, table.plain
    metric, score = table.endpoint.metric, table.endpoint.score
    draws: dict[str, Any] = {"resamples": resamples, "rng": rng}
    channels, flags = measure_side_channel(aligned, plain.metric, plain.score, **draws)
    leaks = any(flag.code in GAP_CODES for flag in flags)
    cells = content_tables(aligned, aligned.strata, metric, with_rows=True, **draws)
    derived = {
        source: content_tables(aligned, strata, metric, **draws)
        for source, strata in stand_ins(aligned, stratum_size, length_leaks=leaks).items()
    }
    conditions = [
        ConditionSummary(
            condition.name,
            len(condition.rows),
            contrast([cells[i].sampled], score),
            {source: contrast([again[i].sampled], score) for source, again in derived.items()},
            channels[i],
            **table.describe(condition, cells[i], rng),
        )
        for i, condition in enumerate(aligned.conditions)
    ]
    in_plain = cells
    if plain.metric is not metric:
        in_plain = content_tables(aligned, aligned.strata, plain.metric, with_rows=True, **draws)
    return Measured(cells, derived, in_plain, conditions, flags)


def compare(
    table: Table, measured: Measured, groups: Sequence[SampledGroups] = (), *, resamples: int, rng: np.random.Generator
) -> tuple[list[Evidence], list[str]]:
    """Compare EEG with each control, or with its null if there is none; `groups` as for `contrast`.

    Returns:
      The evidence of each comparison, and notes on metrics that could not be computed.
    """
    cells, score = measured.cells, table.endpoint.score
    pairs = [[0, i] for i in range(1, len(cells))] or [[0]]
    secondary, notes = _secondary(table, measured, pairs, resamples, rng)
    evidence = []
    for chosen, figures in zip(pairs, secondary, strict=True):
        conditions = [table.aligned.conditions[i] for i in chosen]
        rows = [cells[i].rows for i in chosen]
        again = {name: [tables[i].sampled for i in chosen] for name, tables in measured.derived.items()}
        evidence.append(
            Evidence(
                control="".join(condition.name for condition in conditions[1:]),
                primary=contrast([cells[i].sampled for i in chosen], score, groups),
                derived={name: contrast(sampled, score, groups) for name, sampled in again.items()},
                secondary=figures,
                subjects=subject_effects(conditions, rows, score, resamples=SUBJECT_RESAMPLES, rng=rng),
            )
        )
    return evidence, notes


def _secondary(
    table: Table, measured: Measured, pairs: Sequence[Sequence[int]], resamples: int, rng: np.random.Generator
) -> tuple[list[list[Secondary]], list[str]]:
    """Return the secondary endpoints of each comparison, p adjusted over all (Holm), and notes on failed metrics."""
    aligned, notes = table.aligned, []
    known: dict[int, Sequence[ContentTable]] = {
        id(table.plain.metric): measured.plain,
        id(table.endpoint.metric): measured.cells,
    }
    scored: list[tuple[Endpoint, Sequence[ContentTable]]] = []
    for _, group in itertools.groupby(table.secondary, lambda endpoint: id(endpoint.metric)):
        endpoints = list(group)
        metric = endpoints[0].metric
        try:
            if id(metric) not in known:
                known[id(metric)] = content_tables(aligned, aligned.strata, metric, resamples=resamples, rng=rng)
        except MetricError as error:
            notes.append(f"{', '.join(endpoint.label for endpoint in endpoints)} not computed: {error}")
            continue
        scored += [(endpoint, known[id(metric)]) for endpoint in endpoints]
    found = [[(e, contrast([t[i].sampled for i in chosen], e.score)) for e, t in scored] for chosen in pairs]
    adjusted = iter(holm(np.array([c.p for row in found for _, c in row])).tolist())

    def figure(e: Endpoint, c: Contrast) -> Secondary:
        scores = tuple(e.sign * score for score in c.scores)
        return Secondary(e.label, e.metric.signature, scores, c.gap_interval, c.effect, c.interval, c.p, next(adjusted))

    return [[figure(e, c) for e, c in row] for row in found], notes


def questions(aligned: Aligned, deciding: Collection[str] | None) -> dict[str, str]:
    """Return control -> its question, for the controls that do not decide the verdict.

    `deciding` names the controls that decide; None: all but those of `QUESTIONS` and of time. If no control would
    decide, all do.
    """
    asked = {}
    for control in aligned.conditions[1:]:
        kind = control.rows[0].eval_condition  # `name` may differ: an arm trained on a control has its own name
        if deciding is not None and {control.name, kind} & set(deciding):
            continue
        question = QUESTIONS.get(kind if deciding is None else control.name, "")
        question = QUESTION if is_of_time(control) else question
        if question or deciding is not None:
            asked[control.name] = question or "does EEG differ from this control?"
    return asked if len(asked) < len(aligned.conditions) - 1 else {}


def deciding_of(names: str, controls: Collection[str]) -> list[str] | None:
    """Return the controls named by `--deciding`; None if it is not given.

    Raises:
      UserError: a name is not a control of the files.
    """
    found = [name.strip() for name in names.split(",")] if names else None
    for name in found or ():
        if name not in controls:
            raise UserError(
                f"--deciding={names}: {name!r} is not a control of these files; expected some of {', '.join(controls)}."
            )
    return found


def decide(
    found: Evidence,
    reasons: Sequence[str],
    table: Table,
    conditions: Sequence[ConditionSummary],
    margin: float,
    origin: Provenance,
    asked: Mapping[str, str],
    levels: Sequence[Level],
) -> Comparison:
    """Return a comparison with its verdict and a sentence that explains it.

    Args:
      found: the evidence of the comparison.
      reasons: messages of findings that bar a verdict.
      table: the table that was measured.
      conditions: summaries of the conditions of the table, EEG first.
      margin: the smallest difference that matters, in points of the endpoint.
      origin: the provenance of the predictions.
      asked: control -> its question, for controls that do not decide.
      levels: content between and within groups.
    """
    derived, own = tuple(found.derived.values()), conditions[0]
    if found.control:
        same, p = table.same_predictions(found.control), next(c.p for c in conditions if c.name == found.control)
        names = {"eeg": own.name, "control": found.control}
        outcome = verdict.judge(found.primary, margin, derived, scores_vary=own.content.varies, identical=same)
        reading = verdict.paired_reading(
            outcome, found.primary, derived, **names, p_control=p, margin=margin, own=own.content
        )
        # A control below its own null would make any predictions look better, so EEG must also beat its own null.
        if outcome in FOUND and not all(map(is_above, (own.content, *own.derived.values()))):
            outcome, reading = Verdict.NO_CONTENT, verdict.not_its_own(own.content, own.p, **names)
    else:
        outcome = verdict.judge_alone(found.primary, margin, derived)
        reading = verdict.alone_reading(outcome, found.primary, derived, margin)
    figures = table.in_figures(found, outcome)
    question = asked.get(found.control, "")
    if reasons:
        outcome, reading = Verdict.NOT_JUDGEABLE, "; ".join(reasons)
        sentence = f"Not judgeable: {reading}. Figures, from which nothing follows: {figures}."
    else:
        outcome, reading = joined(outcome, reading, origin)
        content = table.content_is_about(levels, found.control)
        if content and (outcome is Verdict.USES_EEG or (levels and outcome in FOUND)):
            reading = f"{reading}; {content}"
        sentence = f"{figures[0].upper()}{figures[1:]}: {reading}."
        if question:
            sentence = f"This control does not decide, but answers a question of its own ({question}): {sentence}"
    return Comparison(**vars(found), verdict=outcome, sentence=sentence, question=question, reading=reading)
