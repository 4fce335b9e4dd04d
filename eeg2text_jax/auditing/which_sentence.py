"""The audit of rankings: does the recording tell which sentence was read, beyond its length and beyond each control?

The machinery is that of the audit of texts: strata of task and length, one permutation of sentences for all
conditions with every reference keeping its rows, bootstrap over sentences, equivalence margin, verdicts. What is
permuted is who is ranked for whom.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing import fitness, verdict
from eeg2text_jax.auditing.align import Aligned, align
from eeg2text_jax.auditing.audit import counts
from eeg2text_jax.auditing.beyond_time import beyond_time
from eeg2text_jax.auditing.cells import ContentTable, content_tables, donor_notes
from eeg2text_jax.auditing.compare import SUBJECT_RESAMPLES
from eeg2text_jax.auditing.contrast import contrast, subject_effects
from eeg2text_jax.auditing.decision import as_question, deciding_one, questions
from eeg2text_jax.auditing.endpoints import Endpoint, rank_endpoints
from eeg2text_jax.auditing.provenance import AVERAGED, Provenance, checked_proof, joined, provenance_of
from eeg2text_jax.auditing.rank_signs import rank_signs
from eeg2text_jax.auditing.rank_words import RankedCondition, chance_flags, held_against, in_words
from eeg2text_jax.auditing.recorded import judged
from eeg2text_jax.auditing.red_flags import LEVELS, Flag
from eeg2text_jax.auditing.result import AuditResult, Comparison, Evidence, Secondary
from eeg2text_jax.auditing.side_channel import GAP_CODES, measure_side_channel
from eeg2text_jax.auditing.statistics import design_effect, holm
from eeg2text_jax.auditing.strata import STRATUM_SIZE, stand_ins
from eeg2text_jax.auditing.structure import contradictions, weighed
from eeg2text_jax.auditing.verdict import Verdict
from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.ranks import Figures
from eeg2text_jax.predictions.rankings import Ranking
from eeg2text_jax.splits.neighbors import high_neighbors


@dataclasses.dataclass(frozen=True)
class RankingAudit(AuditResult):
    """What the report prints; `conditions` are `RankedCondition`s.

    `candidates` are the fewest and the most that a recording was held against, `chance` that of the endpoint in
    percent and `chance_interval` its 95 % interval over sentences; `by_length` has the figures of who knows the number
    of words and nothing else.
    """

    candidates: tuple[int, int]
    chance: float
    chance_interval: tuple[float, float]
    by_length: Figures


def select_rankings(rows: Iterable[Ranking]) -> dict[str, list[Ranking]]:
    """EEG first, then its controls, of the arms in a file.

    Controls of the model: the arm trained on EEG, tested with anything else. Controls of the recipe: every other arm,
    tested with what it was trained on (`label_shuffle` with EEG), called `the arm trained on NAME`.

    Raises:
      UserError: no arm was trained and tested with EEG.
    """
    found: dict[str, list[Ranking]] = {"eeg": []}
    arms: dict[str, list[Ranking]] = {}
    for row in rows:
        train, evaluation = row.train_condition, row.eval_condition
        if train == "eeg":
            found.setdefault(evaluation, []).append(row)
        elif evaluation == ("eeg" if train == "label_shuffle" else train):
            arms.setdefault(f"the arm trained on {train}", []).append(row)
    if not found["eeg"]:
        raise UserError("no arm was trained and tested with eeg, so there is nothing to audit.")
    return found | arms


def audit_rankings(
    eeg: Sequence[Ranking],
    controls: Mapping[str, Sequence[Ranking]],
    *,
    name: str = "eeg",
    endpoint: str = "top-5",
    margin: float | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    common: bool = False,
    stratum_size: int = STRATUM_SIZE,
    training_text: Iterable[str] | None = None,
    recording: str = "eeg",
    deciding: Collection[str] | None = None,
    proof: str = "",
    verified: str = "",
    neighbors: Mapping[str, Any] | None = None,
) -> RankingAudit:
    """Judges whether recordings tell which sentence was read, more than each control does.

    Args:
      eeg: rows ranked from EEG.
      controls: name -> rows of that control; empty: EEG alone is judged against its content null.
      endpoint: the figure to judge by, a name in `WHICH_SENTENCE`; the others are computed, too.
      margin: points of it below which a difference does not matter; None: the endpoint's default.
      others: as for `audit`. `proof` and `verified` are about the answer, which no score may know.

    Raises:
      UserError: rows that cannot be compared.
    """
    proof = checked_proof(proof)
    rng = np.random.default_rng(seed)
    eeg, controls, left_out = judged(eeg, controls, recording)
    aligned = align({name: eeg, **controls}, common=common, stratum_size=stratum_size)
    chosen, *others = rank_endpoints(endpoint)
    margin = chosen.margin if margin is None else margin
    options: dict[str, Any] = {"resamples": resamples, "rng": rng}
    channels, flags = measure_side_channel(aligned, chosen.metric, chosen.score, **options)
    leaks = any(flag.code in GAP_CODES for flag in flags)
    tables = content_tables(aligned, aligned.strata, chosen.metric, with_rows=True, **options)
    derived = {
        source: content_tables(aligned, strata, chosen.metric, **options)
        for source, strata in stand_ins(aligned, stratum_size, length_leaks=leaks).items()
    }
    conditions = [
        RankedCondition(
            condition.name,
            len(condition.rows),
            Figures.of(tables[i].rows.own.sum(0)),
            contrast([tables[i].sampled], chosen.score),
            {source: contrast([again[i].sampled], chosen.score) for source, again in derived.items()},
            channels[i],
        )
        for i, condition in enumerate(aligned.conditions)
    ]
    held = held_against(eeg, chosen, len(aligned.references))
    evidence = _compare(aligned, tables, derived, chosen, others, rng)
    averaged = bool(AVERAGED.search(proof))
    flags += [Flag("time", "warning", message) for message in high_neighbors(neighbors)]
    flags += fitness.too_few(aligned) + chance_flags(conditions, evidence, chosen, held)
    flags += weighed(rank_signs(aligned.eeg, conditions[0].figures.top1, averaged=averaged), verified)
    origin = provenance_of(
        aligned.eeg.mode,
        verified=verified,
        proof=proof,
        stated_by="the file states",
        contradictions=contradictions(flags),
    )
    flags += [] if training_text is None else fitness.training_overlap(aligned, training_text)
    asked = questions(aligned, deciding)
    comparisons = [
        _decide(
            found,
            fitness.bars(flags, name, found.control),
            aligned,
            conditions,
            chosen,
            margin,
            held,
            origin,
            asked.get(found.control, ""),
        )
        for found in evidence
    ]
    decisive = deciding_one(comparisons, alone=not controls)
    return RankingAudit(
        verdict=decisive.verdict,
        sentence=decisive.sentence,
        metric=chosen.label,
        signature=chosen.metric.signature,
        margin=margin,
        resamples=resamples,
        seed=seed,
        **counts(aligned),
        design_effect=design_effect(chosen.score, tables[0].rows.own, aligned.eeg.sentence),
        conditions=conditions,
        comparisons=comparisons,
        bits=[],
        retrieval=[],
        flags=sorted(flags, key=lambda flag: LEVELS.index(flag.level)),
        notes=[*aligned.notes, *donor_notes(aligned), *left_out],
        examples=[],
        recording=recording,
        provenance=origin,
        time=beyond_time(aligned, comparisons),
        **held,
    )


def _compare(
    aligned: Aligned,
    tables: Sequence[ContentTable],
    derived: Mapping[str, Sequence[ContentTable]],
    endpoint: Endpoint,
    others: Sequence[Endpoint],
    rng: np.random.Generator,
) -> list[Evidence]:
    """The evidence against each control, or of EEG alone; figures that do not decide are adjusted by Holm together."""
    pairs = [[0, i] for i in range(1, len(tables))] or [[0]]
    found = [[(e, contrast([tables[i].sampled for i in pair], e.score)) for e in others] for pair in pairs]
    adjusted = iter(holm(np.array([c.p for row in found for _, c in row])).tolist())
    evidence = []
    for pair, figures in zip(pairs, found, strict=True):
        conditions = [aligned.conditions[i] for i in pair]
        rows = [tables[i].rows for i in pair]
        evidence.append(
            Evidence(
                control="".join(condition.name for condition in conditions[1:]),
                primary=contrast([tables[i].sampled for i in pair], endpoint.score),
                derived={
                    source: contrast([again[i].sampled for i in pair], endpoint.score)
                    for source, again in derived.items()
                },
                secondary=[
                    Secondary(
                        e.label, e.metric.signature, c.scores, c.gap_interval, c.effect, c.interval, c.p, next(adjusted)
                    )
                    for e, c in figures
                ],
                subjects=subject_effects(conditions, rows, endpoint.score, resamples=SUBJECT_RESAMPLES, rng=rng),
            )
        )
    return evidence


def _decide(
    found: Evidence,
    reasons: Sequence[str],
    aligned: Aligned,
    conditions: Sequence[RankedCondition],
    endpoint: Endpoint,
    margin: float,
    held: dict[str, Any],
    origin: Provenance,
    question: str = "",
) -> Comparison:
    """The verdict of one comparison and its sentence."""
    eeg, derived = aligned.eeg.name, tuple(found.derived.values())
    if found.control:
        summary = next(c for c in conditions if c.name == found.control)
        outcome = verdict.judge(found.primary, margin, derived, scores_vary=conditions[0].content.varies)
        reading = verdict.paired_reading(
            outcome, found.primary, derived, eeg=eeg, control=found.control, p_control=summary.p, margin=margin
        )
    else:
        outcome = verdict.judge_alone(found.primary, margin, derived)
        reading = verdict.alone_reading(outcome, found.primary, derived, margin)
    figures = in_words(found, outcome, aligned, endpoint, held)
    if reasons:
        said = verdict.unfit_sentence(reasons, figures)
        return Comparison(**vars(found), verdict=Verdict.NOT_JUDGEABLE, sentence=said, question=question)
    outcome, reading = joined(outcome, reading, origin)
    said = as_question(f"{figures[0].upper()}{figures[1:]}: {reading}.", question)
    return Comparison(**vars(found), verdict=outcome, sentence=said, question=question)
