"""The audit: does a model use the EEG? Its predictions or rankings under EEG and under controls say it."""

import dataclasses
import html
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.clock import clock_of_rows
from eeg2text_jax.instrument.auditing import notices, result, table, verdict
from eeg2text_jax.instrument.auditing._signs import Sign, Weight, others_chosen, signs_of
from eeg2text_jax.instrument.auditing.align import Aligned, Condition, align
from eeg2text_jax.instrument.auditing.notices import GroupAnswer, Notice, Origin, Provenance, questions
from eeg2text_jax.instrument.auditing.result import AuditResult, ConditionSummary, EegBits, RowContent, Secondary
from eeg2text_jax.instrument.auditing.strata import key, thin_windows
from eeg2text_jax.instrument.auditing.table import Cells, Endpoint, Scorer
from eeg2text_jax.instrument.auditing.verdict import Comparison, Contrast, Level, Ruling, Verdict
from eeg2text_jax.instrument.predictions.file import Prediction, PredictionSet
from eeg2text_jax.instrument.predictions.rankings import Ranking
from eeg2text_jax.instrument.predictions.read import describe
from eeg2text_jax.instrument.predictions.selection import Labels, as_conditions

SIGNALS = {"eeg": "EEG", "fmri": "fMRI", "meg": "MEG"}  # kind of recording -> its name in sentences


@dataclasses.dataclass(frozen=True)
class Options:
    """Settings of an audit, and facts about the predictions that the rows do not state.

    Attributes:
      name: name of the EEG condition in the result.
      endpoint: the score that decides, chosen before looking. For texts an `Endpoint`, `words`, `rouge-1` or
        MODULE:FUNCTION; for rankings a name in `WHICH_SENTENCE`, or None for top-5.
      secondary: further endpoints of texts, which do not decide.
      margin: smallest difference that matters, in points of the endpoint, fixed before looking. None: the endpoint's.
      common: judge the rows that all conditions share instead of refusing conditions that differ.
      training_text: sentences of the training part; test sentences among them are reported.
      choices: the sentences that the decoder chose from, as its authors state; empty: it writes freely.
      proof: the authors' sentence or URL on how they know that no target reached the decoder. It is printed, and
        overrides no finding.
      decoded: provenance of predictions that eeg2text decoded, here or again.
      stated_by: who states the mode of the rows, such as "the file states".
      deciding: names of the controls that decide. None: all but those that keep the features of the words
        (`QUESTIONS`) and those of time.
      recording: a key of `SIGNALS`. For fMRI, only windows that do not overlap are judged.
      groups: column -> reference -> its class, topic or story; content is measured between and within these. None:
        columns of the file or DataFrame with such a name.
      warnings: further sentences on what limits the verdict.
      plan: the plan that fixed these options, in words.
    """

    name: str = "eeg"
    endpoint: Endpoint | str | None = None
    secondary: Sequence[Endpoint] = ()
    margin: float | None = None
    common: bool = False
    training_text: Iterable[str] | None = None
    choices: Sequence[str] = ()
    proof: str = ""
    decoded: Provenance | None = None
    stated_by: str = "the file states"
    deciding: Collection[str] | None = None
    recording: str = "eeg"
    groups: Mapping[str, Mapping[str, str]] | None = None
    warnings: Sequence[str] = ()
    plan: str = ""


class AuditPage(AuditResult):
    """The result of `audit`, also as HTML (`report` imports `result`, and matplotlib)."""

    def _repr_html_(self) -> str:
        """Return verdict and comparisons as HTML for notebooks."""
        from eeg2text_jax.instrument.auditing import report

        headline, sentence = html.escape(self.verdict.headline), html.escape(self.sentence)
        return f"<p><b>{headline}</b></p><p>{sentence}</p>{report.table(*result.effect_table(self))}"

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report, one self-contained HTML file."""
        from eeg2text_jax.instrument.auditing import report

        report.write_report(self, path)


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
) -> AuditPage:
    """Judge whether predictions or rankings hold more about the sentence with EEG than with each control.

    Args:
      eeg: `Prediction`s or `Ranking`s made from EEG; a table of predictions (a DataFrame, a dict of columns, or dicts);
        the path of a file; or texts with `references`. If rows have `nll`, EEG bits are computed, too.
      controls: name -> rows of a control; or those of one control. None: the controls in the DataFrame or file. Without
        controls, EEG is compared with its content null.
      control: another name of `controls`.
      references: the true texts, or the path of their file, if `eeg` is one.
      columns: the columns of the reference and of predictions, if they have unusual names.
      mode: the decoding mode to judge, `free_running` or `teacher_forced`; None: free-running rows if there are any.
      options: further settings.
      changes: fields of `Options`, such as `margin=2.0`.

    Raises:
      UserError: rows cannot be compared, or references have no label.
      ValueError: a control has the name of the EEG condition.

    Examples:
      >>> from eeg2text_jax import audit, read_any
      >>> rows = read_any("run/predictions.jsonl").predictions
      >>> trained = [row for row in rows if row.train_condition == "eeg"]
      >>> conditions = {name: [row for row in trained if row.eval_condition == name] for name in ("eeg", "noise")}
      >>> result = audit(conditions.pop("eeg"), conditions)
      >>> result.verdict.value == "uses EEG"
      False
    """
    options = dataclasses.replace(options or Options(), **changes)
    if control is not None and controls is not None:
        raise UserError("controls and control are given; they mean the same, give one of them.")
    controls = next((given for given in (controls, control) if given is not None), {})
    if isinstance(controls, Mapping) and options.name in controls:
        raise ValueError(f"a control has the name of the EEG condition, {options.name!r}")
    eeg, controls, seeds_stated, labels, said = as_conditions(eeg, controls, references, mode, options.name, columns)
    groups = labels if options.groups is None else options.groups
    options = dataclasses.replace(options, proof=notices.checked_proof(options.proof), groups=groups)
    eeg, controls, thinned = thin_windows(eeg, controls, options.recording)
    aligned = align({options.name: eeg, **controls}, mode=mode, common=options.common)
    found = Audit(aligned, options).result()
    # Likelihoods are in teacher-forced rows, beside the free-running ones that are judged.
    bits = [gain for name, rows in controls.items() if (gain := eeg_bits(eeg, name, rows)) is not None]
    return dataclasses.replace(found, seeds_stated=seeds_stated, notes=[*said, *thinned, *found.notes], bits=bits)


def audit_files(
    sets: Sequence[PredictionSet], conditions: Mapping[str, Sequence[Prediction]], labels: Labels, **changes: Any
) -> AuditPage:
    """Judge conditions that `read_conditions` read from files of texts, `sets`, and record the files in the result.

    In both, EEG is first. `labels` is as `groups_of` returns it, `changes` are fields of `Options`, and `mode`. Errors
    are those of `audit`.
    """
    (name, eeg), *controls = conditions.items()
    recording = {"recording": str(sets[0].header.get("recording", "eeg"))}
    found = audit(eeg, dict(controls), **recording | changes | {"name": name, "groups": labels})
    files = (
        notices.JudgedFile(str(read.path), read.digest, len(read.predictions), tuple(describe(read).splitlines()))
        for read in sets
    )
    judged = notices.Judged(tuple(files))
    return dataclasses.replace(found, judged=judged, seeds_stated=all(read.seeds_stated for read in sets))


class Audit:
    def __init__(self, aligned: Aligned, options: Options) -> None:
        self.aligned, self.options = aligned, options
        self.controls = {c.name: c for c in aligned.conditions[1:]}
        self.asked = questions(aligned, options.deciding)
        self.strata = verdict.Strata(table.strata_members(aligned.strata))
        self.clock = clock_of_rows(aligned.eeg.rows)
        self.ranked: table.RankFigures | None = None
        self.growth = 0.0
        if isinstance(aligned.eeg.rows[0], Ranking):
            self.endpoint, column = table.rank_endpoint(aligned, options.endpoint or "top-5")
            self.ranked, self.scores = table.rank_figures(aligned, column), table.rank_scorer(column)
        else:
            self.endpoint = table.text_endpoint(options.endpoint)
            self.scores = table.text_scorer(aligned, self.endpoint)
            texts, points = aligned.references[:20], self.endpoint.fit(aligned.references)
            own = table.checked_points(points(texts, texts), len(texts), len(texts), self.endpoint.label)
            perfect = float(np.mean(np.diag(own)))  # points of predictions that are their references
            self.growth = verdict.variance_growth(aligned.eeg, aligned.n_words, self.strata.sentences, perfect)
        self.margin = self.endpoint.margin if options.margin is None else options.margin
        self.cells = self._fill(self.scores)

    def _fill(self, scores: Scorer) -> dict[str, Cells]:
        references, members = self.aligned.references, self.strata.members
        return {c.name: table.fill(c, references, members, scores) for c in self.aligned.conditions}

    def result(self) -> AuditPage:
        """Return the verdict and what leads to it."""
        aligned, options = self.aligned, self.options
        singles, pairs = self.contrasts()
        signs = self._signs()
        of_signs = notices.of_signs(signs, aligned.eeg.name, known_free=options.decoded is not None)
        origin = notices.provenance_of(
            aligned.eeg.mode,
            decoded=options.decoded,
            proof=options.proof,
            stated_by=options.stated_by,
            contradictions=[notice.message for notice in of_signs if notice.bars],
        )
        looks = {} if self.ranked else {c.name: notices.look_of(c) for c in aligned.conditions}
        figures = {c.name: table.figures_of(c) for c in aligned.conditions} if self.ranked else {}
        limits = self._notices(of_signs, looks.values())
        comparisons = self._decide(singles[0], pairs, limits, origin)
        main = verdict.deciding_one(comparisons)
        labels = {column: notices.labels_of(aligned, of, column) for column, of in (options.groups or {}).items()}
        deciding = [c.contrast for c in comparisons if not c.question]
        sides = [self._conditions(c.control) for c in deciding]
        groups = [
            answer
            for column, of in labels.items()
            for answer in notices.answer_groups(aligned, of, column, sides, self.scores)
        ]
        ruling, time = self._ruling(main, comparisons, groups, labels, limits)
        odd = {sign.code for sign in signs if sign.weight is Weight.ODD}
        mde = self.mde(deciding, singles[0])
        further = self._further(deciding)
        reported, more = ([], []) if self.ranked else table.reported_scores(aligned, self.strata.members)
        adjusted = verdict.holm([found.decisive_p for found in [*deciding, *(found for _, found in further)]])
        notes = [note.rstrip(".") for note in self.clock.notes(repeated=True)]
        notes += [note for endpoint in (self.endpoint, *options.secondary) for note in endpoint.notes()]
        return AuditPage(
            verdict=ruling,
            sentence=verdict.in_words(main, singles[0], mde, self.margin, ruling.recording),
            limits=result.limits_of(ruling, limits, origin, time, odd),
            metric=self.endpoint.label,
            signature=self.endpoint.signature,
            mode=aligned.eeg.mode,
            margin=self.margin,
            mde=mde,
            adjusted_p=adjusted[[c.control for c in deciding].index(main.control)],
            n_rows=len(aligned.eeg.rows),
            n_sentences=len(aligned.references),
            n_subjects=len(set(aligned.eeg.subjects) - {""}),
            n_strata=len(self.strata.members),
            alike=aligned.alike,
            seeds=aligned.seeds,
            conditions=[
                ConditionSummary(c.name, len(c.rows), single, looks.get(c.name), figures.get(c.name))
                for c, single in zip(aligned.conditions, singles, strict=True)
            ],
            comparisons=comparisons,
            secondary=[
                Secondary(endpoint.label, endpoint.signature, found, p)
                for (endpoint, found), p in zip(further, adjusted[len(deciding) :], strict=True)
            ],
            reported=reported,
            groups=groups,
            time=time,
            recordings=self.clock.ranges,
            time_unit=self.clock.unit,
            notices=limits,
            notes=[*aligned.notes, *notes, *more],
            choices=self._choices(),
            rows=self._rows(),
            provenance=origin,
            recording=options.recording,
            **(vars(self.ranked) if self.ranked else {}),
        )

    def contrasts(self) -> tuple[list[Contrast], list[Contrast]]:
        """Return every condition against its null, EEG first, and EEG against every control."""
        eeg, *controls = self.aligned.conditions
        singles = [self._contrast(self.cells, condition) for condition in self.aligned.conditions]
        return singles, [self._contrast(self.cells, eeg, control) for control in controls]

    def mde(self, deciding: Sequence[Contrast], alone: Contrast) -> float:
        """Return the minimum detectable effect of a verdict; EEG must beat its own null, too."""
        return verdict.verdict_mde([*deciding, alone] if deciding[0].control else [alone], self.growth)

    def _conditions(self, control: str) -> tuple[Condition, ...]:
        """Return EEG and this control, or EEG alone for ""."""
        return (self.aligned.eeg, self.controls[control]) if control else (self.aligned.eeg,)

    def _contrast(self, cells: Mapping[str, Cells], *conditions: Condition) -> Contrast:
        sides = [(condition, cells[condition.name]) for condition in conditions]
        seeds: dict[str, Any] = {}
        if (count := len(self.aligned.seeds)) >= 3:
            by_rows = ([condition.seed == g for condition in conditions] for g in range(count))
            by_seed = np.stack([verdict.content_from(self.strata, sides, rows) for rows in by_rows])
            seeds = {"seeds": np.nanmean(by_seed, 1), "seed_noise": verdict.seed_noise(by_seed)}
        name = conditions[1].name if conditions[1:] else ""
        return verdict.contrast(self.strata, *(of for _, of in sides), name=name, growth=self.growth, **seeds)

    def _signs(self) -> list[Sign]:
        """Return signs of a target in EEG's rows; in a control's they make no claim easier."""
        eeg, references, choices = self.aligned.eeg, self.aligned.references, self.options.choices
        averaged = bool(notices.AVERAGED.search(self.options.proof))
        if self.ranked:
            return table.rank_signs(eeg, averaged=averaged)
        if eeg.mode == "teacher_forced":
            return []
        check_choices(eeg.texts, choices)
        others = [text for c in self.controls.values() for text in others_chosen(c.texts, references, c.sentence)]
        rows = (eeg.texts, references, eeg.sentence, eeg.subjects)
        return signs_of(*rows, averaged=averaged, choices=[*choices, *others])

    def _notices(self, of_signs: Sequence[Notice], looks: Collection[notices.Look]) -> list[Notice]:
        aligned, options = self.aligned, self.options
        of_words, limits = self.endpoint.of_words, notices.unfit(aligned)
        if looks:
            limits = notices.of_texts(aligned.conditions, aligned.references, looks, of_words=of_words) + limits
        limits += of_signs
        if options.training_text is not None:
            apart = bool(options.decoded or options.choices)
            limits += notices.of_training_text(aligned, options.training_text, apart=apart)
        return [*limits, *notices.of_design(aligned), *(Notice("time", message) for message in options.warnings)]

    def _decide(
        self, alone: Contrast, pairs: Sequence[Contrast], limits: Sequence[Notice], origin: Provenance
    ) -> list[Comparison]:
        eeg, comparisons = self.aligned.eeg, []
        for pair in pairs or [alone]:
            if control := self.controls.get(pair.control):
                same = not self.ranked and _said(eeg) == _said(control)
                ruled = verdict.judge(pair, alone, self.margin, identical=same)
            else:
                ruled = verdict.judge_alone(alone, self.margin)
            if origin.level is Origin.UNKNOWN and ruled in (Verdict.USES_EEG, Verdict.CONTENT):
                ruled = Verdict.UNPROVEN
            if any(notice.bars == notices.ALL or pair.control in notice.bars for notice in limits):
                ruled = Verdict.NOT_JUDGEABLE
            alike = pair.equivalence_p(self.margin) if ruled is Verdict.EQUIVALENT else None
            comparisons.append(Comparison(pair, ruled, self.asked.get(pair.control, ""), alike))
        return comparisons

    def _ruling(
        self,
        main: Comparison,
        comparisons: Sequence[Comparison],
        groups: Sequence[GroupAnswer],
        labels: Mapping[str, np.ndarray],
        limits: Sequence[Notice],
    ) -> tuple[Ruling, str]:
        """Return the verdict with its qualifiers, and the answer about time."""
        status, time = notices.answer_time(self.aligned, comparisons, timed=bool(self.clock.timed.any()))
        signal = SIGNALS.get(self.options.recording, self.options.recording)
        if main.verdict not in verdict.FOUND:
            spread = main.verdict is Verdict.EQUIVALENT and main.contrast.varies
            unseen = min(1.0, verdict.RULE_OF_THREE / len(self.strata)) if spread else None
            barring = [notice.code for notice in limits if notice.bars]
            reason = notices.REASONS.get(barring[0], notices.TARGET) if main.verdict is Verdict.NOT_JUDGEABLE else ""
            return Ruling(main.verdict, recording=signal, unseen=unseen, reason=reason), time
        # Over several columns and controls, the weakest answer counts.
        weakness = [Level.SENTENCE, Level.KIND, Level.UNKNOWN].index
        about = max((answer.level for answer in groups), key=weakness, default=Level.UNKNOWN)
        sides = [(c, self.cells[c.name]) for c in self._conditions(main.control)]
        carriers = tuple(verdict.carriers(main.contrast, sides, self.strata, labels))
        return Ruling(main.verdict, about, status, carriers, signal), time

    def _further(self, deciding: Sequence[Contrast]) -> list[tuple[Endpoint, Contrast]]:
        further = []
        for endpoint in self.options.secondary:
            cells = self._fill(table.text_scorer(self.aligned, endpoint))
            further += [(endpoint, self._contrast(cells, *self._conditions(c.control))) for c in deciding]
        return further

    def _choices(self) -> list[str]:
        """Return what is not the default, in words."""
        options = self.options
        choices = [options.plan] if options.plan else []
        if not self.ranked and self.endpoint.label != table.WORDS.label:
            choices.append(f"endpoint {self.endpoint.label}")
        if self.margin != self.endpoint.margin:
            choices.append(f"margin {self.margin:g} (default {self.endpoint.margin:g})")
        if options.choices:
            choices.append(f"as stated, the decoder chose among {len(options.choices)} sentences")
        if self.asked.keys() != questions(self.aligned, None).keys():
            choices.append(f"deciding: {', '.join(name for name in self.controls if name not in self.asked)}")
        return choices + [f"{left} of {total} rows of {name} left out" for name, left, total in self.aligned.left_out]

    def _rows(self) -> list[RowContent]:
        rows = []
        for condition in self.aligned.conditions:
            cells = self.cells[condition.name]
            texts = (self.aligned.references[s] for s in condition.sentence.tolist())
            figures = (one.tolist() for one in (cells.own, cells.others, cells.content))
            for row, text, *points in zip(condition.rows, texts, *figures, strict=True):
                rows.append(RowContent(condition.name, row.subject, text, row.prediction, *points))
        return rows


def check_choices(texts: Sequence[str], choices: Sequence[str]) -> None:
    """Raise UserError if a prediction is none of the `choices`, unless these are empty."""
    listed = set(map(key, choices))
    if choices and (others := [text for text in texts if key(text) not in listed]):
        raise UserError(
            f"--choices: {len(others)} of {len(texts)} predictions, such as {others[0]!r:.80}, are not among its "
            f"{len(listed)} sentences; give the whole list that the decoder chose from, one sentence on each line."
        )


def _said(condition: Condition) -> list[tuple[int, str]]:
    return sorted(zip(condition.sentence.tolist(), condition.texts, strict=True))


def eeg_bits(eeg: Sequence[Prediction], name: str, control: Sequence[Prediction]) -> EegBits | None:
    """Return the EEG bits against the control `name`; None if no two sentences have an NLL in both conditions.

    Samples are matched by seed, id and number of tokens; interval and p are normal, over sentences.
    """
    scored = {_bits_key(row): row.nll for row in control if row.nll is not None and row.n_tokens}
    gains: dict[str, list[tuple[float, int]]] = {}  # sentence -> nats gained and tokens of its samples
    for row in eeg:
        if row.nll is not None and row.n_tokens and (other := scored.get(_bits_key(row))) is not None:
            gains.setdefault(key(row.reference), []).append((other - row.nll, row.n_tokens))
    if len(gains) < 2:
        return None
    sums = [(math.fsum(nats for nats, _ in gains[s]), sum(n for _, n in gains[s])) for s in sorted(gains)]
    gained, tokens = np.array(sums).T
    gained = gained / np.log(2)
    mean, count = float(gained.sum() / tokens.sum()), len(gains)
    spread = float(np.sqrt(((gained - mean * tokens) ** 2).sum() * count / (count - 1)) / tokens.sum())
    return EegBits(
        control=name,
        bits_per_token=mean,
        interval=(mean - verdict.Z_95 * spread, mean + verdict.Z_95 * spread),
        p=NormalDist().cdf(-mean / spread) if spread > 0 else float(mean <= 0),
        samples=sum(map(len, gains.values())),
        sentences=count,
        off_distribution="shuffled" not in name,
    )


def _bits_key(row: Prediction) -> tuple[int, str, int | None]:
    return row.seed, row.sample_id, row.n_tokens
