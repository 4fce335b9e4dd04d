"""The audit: predictions under EEG and under controls -> does the model use the EEG?"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from eeg2text_jax.audit import red_flags, verdict
from eeg2text_jax.audit.align import Aligned, align
from eeg2text_jax.audit.collapse import measure_collapse
from eeg2text_jax.audit.compare import compare, content_tables, gap_flags
from eeg2text_jax.audit.contrast import contrast
from eeg2text_jax.audit.endpoints import Endpoint, primary_endpoint
from eeg2text_jax.audit.examples import pick_examples
from eeg2text_jax.audit.likelihood import EegBits, eeg_bits
from eeg2text_jax.audit.red_flags import Flag
from eeg2text_jax.audit.result import AuditResult, ConditionSummary
from eeg2text_jax.audit.retrieval import CandidateScores, Key, Retrieval, retrieve
from eeg2text_jax.audit.side_channel import measure_side_channel
from eeg2text_jax.audit.statistics import design_effect
from eeg2text_jax.audit.strata import STRATUM_SIZE
from eeg2text_jax.audit.table import ContentTable
from eeg2text_jax.predictions.file import Prediction


def audit(
    eeg: Sequence[Prediction],
    controls: Mapping[str, Sequence[Prediction]],
    *,
    name: str = "eeg",
    margin: float = 1.0,
    resamples: int = 10_000,
    seed: int = 0,
    mode: str | None = None,
    common: bool = False,
    stratum_size: int = STRATUM_SIZE,
    training_text: Iterable[str] | None = None,
    candidates: Mapping[str, Mapping[Key, CandidateScores]] | None = None,
) -> AuditResult:
    """Judges whether predictions hold more about the sentence with EEG than with each control.

    Args:
      eeg: rows predicted from EEG; rows with `nll` feed the EEG bits, whatever their mode.
      controls: name -> rows predicted from that control; empty: EEG alone is judged against its content null.
      name: what the EEG condition is called in the result.
      margin: points of word BLEU-1 below which a difference in content does not matter; fix it before looking.
      mode: `free_running` or `teacher_forced`; None judges free running where there is any.
      common: judge what the conditions share instead of refusing files that differ.
      training_text: sentences of the training part, to look for test sentences in.
      candidates: condition -> scores for retrieval, see `eeg2text_jax.audit.retrieval`.

    Raises:
      UserError: rows that cannot be compared.
    """
    if name in controls:
        raise ValueError(f"a control has the name of the EEG condition, {name!r}")
    rng = np.random.default_rng(seed)
    aligned = align({name: eeg, **controls}, mode=mode, common=common, stratum_size=stratum_size)
    tasks = np.unique(np.array(aligned.tasks), return_inverse=True)[1]
    endpoint = primary_endpoint()
    tables = content_tables(aligned, tasks, endpoint)
    conditions, flags = _summarize_conditions(aligned, tables, tasks, endpoint, resamples, rng)
    comparisons, notes = compare(aligned, tables, conditions[0].content, endpoint, margin, resamples, rng)
    effect = design_effect(endpoint.score, tables[0].own, aligned.eeg.sentence)
    flags = red_flags.alignment_flags(aligned, effect) + red_flags.recipe_flags(aligned) + flags
    flags += [flag for c in comparisons for flag in gap_flags(name, c)]
    if training_text is not None:
        flags.append(red_flags.training_overlap_flag(aligned.references, training_text))
    decided = verdict.overall([c.verdict for c in comparisons]) if controls else comparisons[0].verdict
    deciding = next(c for c in comparisons if c.verdict is decided)
    order = {"severe": 0, "warning": 1, "note": 2}
    return AuditResult(
        verdict=decided,
        sentence=deciding.sentence,
        metric=endpoint.label,
        signature=endpoint.metric.signature,
        mode=aligned.mode,
        margin=margin,
        resamples=resamples,
        seed=seed,
        n_rows=len(aligned.eeg.rows),
        n_sentences=len(aligned.references),
        n_subjects=len({row.subject for row in aligned.eeg.rows} - {""}),
        n_strata=int(aligned.strata.max()) + 1,
        seeds=aligned.seeds,
        design_effect=effect,
        conditions=conditions,
        comparisons=comparisons,
        bits=_bits(eeg, controls, resamples, rng),
        retrieval=_retrieval(candidates, resamples, rng),
        flags=sorted(flags, key=lambda flag: order[flag.level]),
        notes=[*aligned.notes, *notes],
        examples=pick_examples(aligned, tables[0], endpoint, rng),
    )


def _summarize_conditions(
    aligned: Aligned,
    tables: Sequence[ContentTable],
    tasks: np.ndarray,
    endpoint: Endpoint,
    resamples: int,
    rng: np.random.Generator,
) -> tuple[list[ConditionSummary], list[Flag]]:
    channels, channel_flags = measure_side_channel(
        [c.name for c in aligned.conditions],
        [table.pairs.sum(0) for table in tables],
        aligned.strata,
        tasks,
        endpoint.score,
        resamples=resamples,
        rng=rng,
    )
    summaries, flags = [], []
    for condition, table, channel in zip(aligned.conditions, tables, channels, strict=True):
        content = contrast([table.pairs], aligned.strata, endpoint.score, resamples=resamples, rng=rng)
        collapse = measure_collapse(condition, aligned.references, rng)
        summaries.append(ConditionSummary(condition.name, content, collapse, channel))
        flags += red_flags.condition_flags(condition, collapse, aligned.mode, content.scores[0])
    collapses = {summary.name: summary.collapse for summary in summaries}
    for control in aligned.conditions[1:]:
        flags += red_flags.pair_flags(aligned, control, collapses)
    return summaries, flags + channel_flags


def _bits(
    eeg: Sequence[Prediction], controls: Mapping[str, Sequence[Prediction]], resamples: int, rng: np.random.Generator
) -> list[EegBits]:
    found = (eeg_bits(eeg, name, rows, resamples=resamples, rng=rng) for name, rows in controls.items())
    return [bits for bits in found if bits is not None]


def _retrieval(
    candidates: Mapping[str, Mapping[Key, CandidateScores]] | None, resamples: int, rng: np.random.Generator
) -> list[Retrieval]:
    if not candidates:
        return []
    return [
        retrieve(candidates["eeg"], name, scores, resamples=resamples, rng=rng)
        for name, scores in candidates.items()
        if name != "eeg"
    ]
