"""The audit: predictions under EEG and under controls -> does the model use the EEG?"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.auditing import fitness, red_flags, verdict
from eeg2text_jax.auditing.align import Aligned, align
from eeg2text_jax.auditing.beyond_time import beyond_time
from eeg2text_jax.auditing.cells import ContentTable, RowTable, content_tables, donor_notes
from eeg2text_jax.auditing.collapse import measure_collapse
from eeg2text_jax.auditing.compare import compare, gap_flags
from eeg2text_jax.auditing.contrast import Contrast, contrast
from eeg2text_jax.auditing.decision import decide, deciding_one, questions
from eeg2text_jax.auditing.endpoints import Endpoint, primary_endpoint
from eeg2text_jax.auditing.levels import curve, levels_of
from eeg2text_jax.auditing.provenance import AVERAGED, FOUND, checked_proof, provenance_of
from eeg2text_jax.auditing.recorded import judged
from eeg2text_jax.auditing.red_flags import LEVELS, Flag
from eeg2text_jax.auditing.result import AuditResult, Comparison, ConditionSummary, Evidence, Example
from eeg2text_jax.auditing.retrieval import CandidateScores, EegBits, Key, Retrieval, eeg_bits, retrieve
from eeg2text_jax.auditing.side_channel import GAP_CODES, SideChannel, measure_side_channel
from eeg2text_jax.auditing.statistics import design_effect
from eeg2text_jax.auditing.strata import STRATUM_SIZE, stand_ins
from eeg2text_jax.auditing.structure import contradictions, weighed
from eeg2text_jax.auditing.verdict import Verdict
from eeg2text_jax.predictions.file import Prediction
from eeg2text_jax.predictions.in_memory import as_conditions
from eeg2text_jax.splits.neighbors import high_neighbors

CURVE_RESAMPLES = 1000  # of a picture


def pick_examples(
    aligned: Aligned, table: RowTable, endpoint: Endpoint, rng: np.random.Generator, count: int = 4
) -> list[Example]:
    """Some rows at random and the rows with the highest score, each beside the controls' rows of the same sentence."""
    scores = np.nan_to_num(endpoint.score(table.own))
    best = np.argsort(-scores, kind="stable")[:count].tolist()
    drawn = rng.choice(len(scores), size=min(count, len(scores)), replace=False).tolist()
    return [_example(aligned, row, False) for row in drawn] + [_example(aligned, row, True) for row in best]


def _example(aligned: Aligned, row: int, best: bool) -> Example:
    eeg = aligned.eeg
    mine, sentence = eeg.rows[row], eeg.sentence[row]
    place = np.flatnonzero(eeg.sentence == sentence).tolist().index(row)
    texts = []
    for condition in aligned.conditions:
        rows = [condition.rows[i] for i in np.flatnonzero(condition.sentence == sentence)]
        same = [r for r in rows if mine.subject and (r.subject, r.seed) == (mine.subject, mine.seed)]
        texts.append((same or rows[place : place + 1] or rows)[0].prediction)
    texts[0] = mine.prediction
    return Example(aligned.references[sentence], mine.subject, tuple(texts), best)


def audit(
    eeg: Sequence[Prediction],
    controls: Mapping[str, Sequence[Prediction]] | None = None,
    *,
    references: Sequence[str] | None = None,
    name: str = "eeg",
    endpoint: Endpoint | None = None,
    secondary: Sequence[Endpoint] = (),
    margin: float | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    mode: str | None = None,
    common: bool = False,
    stratum_size: int = STRATUM_SIZE,
    training_text: Iterable[str] | None = None,
    proof: str = "",
    verified: str = "",
    stated_by: str = "the file states",
    deciding: Collection[str] | None = None,
    candidates: Mapping[str, Mapping[Key, CandidateScores]] | None = None,
    recording: str = "eeg",
    groups: Mapping[str, Mapping[str, str]] | None = None,
    with_curve: bool = False,
    neighbors: Mapping[str, Any] | None = None,
) -> AuditResult:
    """Judges whether predictions hold more about the sentence with EEG than with each control.

    Args:
      eeg: rows predicted from EEG, a DataFrame of them, or texts with `references`; rows with `nll` feed the EEG bits.
      controls: name -> the same of that control; none: those in the DataFrame, else EEG against its content null.
      references: the true texts, where predictions are lists of texts.
      name: what the EEG condition is called in the result.
      endpoint: the figure to judge by, named before looking; None: word BLEU-1.
      secondary: endpoints that are computed, too, and do not decide.
      margin: points of the endpoint below which a difference in content does not matter; fix it before looking. None:
        the endpoint's default.
      mode: `free_running` or `teacher_forced`; None judges free running where there is any.
      common: judge what the conditions share instead of refusing files that differ.
      training_text: sentences of the training part, to look for test sentences in.
      proof: how the authors know that no target reached the decoder, a sentence or an address. It is printed, and
        lifts nothing that the outputs contradict.
      verified: how it was shown that no target reached the decoder, by who compared the file with its run.
      stated_by: who says the mode of the rows, and "states".
      deciding: the controls that decide; the others ask questions of their own. None: all but those that keep the
        features of the words (`QUESTIONS`).
      candidates: condition -> scores for retrieval, see `eeg2text_jax.auditing.retrieval`.
      recording: "fmri" where rows are of windows of scans: those that share no segment are judged, and it is called so.
      groups: name -> reference -> label of its class, topic or story: content is given between and within these, too.
      with_curve: where content is found and no groups are given, how much is left within ever finer clusters.
      neighbors: section `time` of the split's certificate, see `splits.neighbors.time_leakage`.

    Raises:
      UserError: rows that cannot be compared, references without a label.

    Examples:
      >>> from eeg2text_jax import audit, read_any
      >>> rows = read_any("run/predictions.jsonl").predictions
      >>> own = [row for row in rows if row.train_condition == "eeg"]
      >>> conditions = {name: [row for row in own if row.eval_condition == name] for name in ("eeg", "noise")}
      >>> found = audit(conditions.pop("eeg"), conditions, resamples=200)
      >>> found.verdict.value == "uses EEG"
      False
    """
    if name in (controls or {}):
        raise ValueError(f"a control has the name of the EEG condition, {name!r}")
    eeg, controls, stated = as_conditions(eeg, controls or {}, references, mode, name)
    proof = checked_proof(proof)
    rng = np.random.default_rng(seed)
    eeg, controls, left_out = judged(eeg, controls, recording)
    aligned = align({name: eeg, **controls}, mode=mode, common=common, stratum_size=stratum_size)
    words = primary_endpoint()
    endpoint = words if endpoint is None or endpoint.is_words else endpoint
    margin = endpoint.margin if margin is None else margin
    channels, channel_flags = measure_side_channel(aligned, words.metric, words.score, resamples=resamples, rng=rng)
    length_leaks = any(flag.code in GAP_CODES for flag in channel_flags)
    tables = content_tables(aligned, aligned.strata, endpoint.metric, resamples=resamples, rng=rng, with_rows=True)
    derived = {
        source: content_tables(aligned, strata, endpoint.metric, resamples=resamples, rng=rng)
        for source, strata in stand_ins(aligned, stratum_size, length_leaks=length_leaks).items()
    }
    conditions = _summarize_conditions(aligned, tables, derived, channels, endpoint, rng)
    in_words = None
    if endpoint is not words:
        in_words = content_tables(aligned, aligned.strata, words.metric, resamples=resamples, rng=rng, with_rows=True)
    evidence, notes = compare(
        aligned, tables, derived, conditions[0].content, endpoint, resamples, rng, secondary, in_words
    )
    effect = design_effect(endpoint.score, tables[0].rows.own, aligned.eeg.sentence)
    flags = weighed(_findings(aligned, conditions, training_text, AVERAGED.search(proof)) + channel_flags, verified)
    flags += [Flag("time", "warning", message) for message in high_neighbors(neighbors)]
    flags += _warnings(aligned, tables, in_words or tables, conditions, evidence, endpoint, effect)
    origin = provenance_of(
        aligned.eeg.mode, verified=verified, proof=proof, stated_by=stated_by, contradictions=contradictions(flags)
    )
    asked, label = questions(aligned, deciding), endpoint.label
    within = levels_of(aligned, groups or {}, endpoint, resamples, seed, stratum_size)
    comparisons = [
        decide(
            found, fitness.bars(flags, name, found.control), aligned, conditions, label, margin, origin, asked, within
        )
        for found in evidence
    ]
    decisive = deciding_one(comparisons, alone=not controls)
    return AuditResult(
        verdict=decisive.verdict,
        sentence=decisive.sentence,
        metric=label,
        signature=endpoint.metric.signature,
        margin=margin,
        resamples=resamples,
        seed=seed,
        **counts(aligned),
        design_effect=effect,
        conditions=conditions,
        comparisons=comparisons,
        bits=_bits(eeg, controls, resamples, rng),
        retrieval=_retrieval(candidates, resamples, rng),
        flags=sorted(flags, key=lambda flag: LEVELS.index(flag.level)),
        notes=[
            *aligned.notes,
            *donor_notes(aligned),
            *left_out,
            *notes,
            *(note for e in (endpoint, *secondary) for note in e.metric.notes()),
        ],
        examples=pick_examples(aligned, tables[0].rows, endpoint, rng),
        recording=recording,
        seeds_stated=stated,
        provenance=origin,
        levels=within,
        curve=_curve(aligned, decisive, endpoint, resamples, seed, stratum_size) if with_curve and not groups else [],
        time=beyond_time(aligned, comparisons),
    )


def _curve(
    aligned: Aligned, decisive: Comparison, endpoint: Endpoint, resamples: int, seed: int, stratum_size: int
) -> list[tuple[int, Contrast]]:
    """Content left within ever finer clusters, where there is content; from draws of its own."""
    found = decisive.verdict in (*FOUND, Verdict.UNPROVEN)
    rng, draws = np.random.default_rng((seed, 2)), min(resamples, CURVE_RESAMPLES)
    options = {"resamples": draws, "rng": rng, "stratum_size": stratum_size, "control": decisive.control}
    return curve(aligned, endpoint, **options) if found else []


def counts(aligned: Aligned) -> dict[str, Any]:
    """What was judged, and how much of it."""
    return {
        "mode": aligned.mode,
        "n_rows": len(aligned.eeg.rows),
        "n_sentences": len(aligned.references),
        "n_subjects": len({row.subject for row in aligned.eeg.rows} - {""}),
        "n_strata": int(aligned.strata.max()) + 1,
        "task_known": aligned.task_known,
        "seeds": aligned.seeds,
    }


def _summarize_conditions(
    aligned: Aligned,
    tables: Sequence[ContentTable],
    derived: Mapping[str, Sequence[ContentTable]],
    channels: Sequence[SideChannel],
    endpoint: Endpoint,
    rng: np.random.Generator,
) -> list[ConditionSummary]:
    return [
        ConditionSummary(
            condition.name,
            contrast([tables[i].sampled], endpoint.score),
            {source: contrast([again[i].sampled], endpoint.score) for source, again in derived.items()},
            measure_collapse(condition, aligned.references, rng),
            channels[i],
        )
        for i, condition in enumerate(aligned.conditions)
    ]


def _findings(
    aligned: Aligned,
    conditions: Sequence[ConditionSummary],
    training_text: Iterable[str] | None,
    averaged: object,
) -> list[Flag]:
    """What may bar the verdict."""
    looks = [condition.collapse for condition in conditions]
    flags = fitness.unfit(aligned, looks, averaged=bool(averaged))
    return flags if training_text is None else flags + fitness.training_overlap(aligned, training_text)


def _warnings(
    aligned: Aligned,
    tables: Sequence[ContentTable],
    in_words: Sequence[ContentTable],
    conditions: Sequence[ConditionSummary],
    evidence: Sequence[Evidence],
    endpoint: Endpoint,
    effect: float,
) -> list[Flag]:
    """What a reader of the scores must know and what leaves the verdict as it is.

    `in_words` are the tables of word BLEU-1, `effect` is the design effect.
    """
    words = primary_endpoint()
    flags = red_flags.alignment_flags(aligned, effect) + red_flags.recipe_flags(aligned)
    flags += fitness.normalizing_flags(aligned.eeg, aligned.references)
    for condition, summary, table in zip(aligned.conditions, conditions, in_words, strict=True):
        bleu1 = float(words.score(table.sampled.own.sum((0, 1))))
        flags += red_flags.condition_flags(condition, summary.collapse, aligned.mode, bleu1)
        flags += red_flags.row_flags(condition, table.rows.own, words.score)
    looks = {summary.name: summary.collapse for summary in conditions}
    for control in aligned.conditions[1:]:
        flags += red_flags.pair_flags(aligned, control, looks)
    for index, found in enumerate(evidence):
        flags += gap_flags(aligned.eeg.name, found)
        if verdict.is_above(found.primary):
            chosen = [tables[0], tables[index + 1]] if found.control else [tables[0]]
            totals = np.stack([t.sampled.own.sum(0) for t in chosen] + [t.sampled.null.sum(0) for t in chosen], 1)
            flags += red_flags.sentence_flags(aligned, found.control, found.primary.effect, totals, endpoint.score)
    return flags


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
