"""What limits an audit: why there is no verdict, and facts about the outputs that a reader needs beside it."""

import dataclasses
import datetime
import enum
import re
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from etils import epath

from eeg2text_jax.base.errors import UserError, count_of
from eeg2text_jax.base.files import file_digest
from eeg2text_jax.base.packages import __version__
from eeg2text_jax.data.clock import ALIKE, clock_of_rows, order_likeness
from eeg2text_jax.instrument.auditing import strata, verdict
from eeg2text_jax.instrument.auditing._signs import Sign, Weight, signs_of
from eeg2text_jax.instrument.auditing.align import SHUFFLED, Aligned, Condition, without_unknown
from eeg2text_jax.instrument.auditing.strata import key, other_form, words
from eeg2text_jax.instrument.auditing.table import Cells, Scorer, fill, strata_members
from eeg2text_jax.instrument.auditing.verdict import Comparison, Contrast, Level, Strata, Time, Verdict
from eeg2text_jax.instrument.metrics.metric import word_bleu, word_error_rate
from eeg2text_jax.instrument.predictions.file import UNKNOWN, Prediction

# Provenance: the evidence that no target reached the decoder. A false statement cannot be detected, so its author is
# named.

FOLDERS = re.compile(r"(?<![\w.:/~])~?/([^/\s=,:]+/)+")  # of an absolute path, which tells of the machine
URL = re.compile(r"https?://[^\s/]+\.[^\s/]+\S*")
PROOF_WORDS = 4  # fewest different words of a `--proof` that is no URL
FORCED = re.compile(
    r"teacher.?forc|ground.?truth (tokens|words|prefix)|(given|fed) the (target|reference)", re.IGNORECASE
)
DENIED = {"no", "not", "never", "without", "none", "neither", "nor", "instead", "than", "isn", "wasn", "weren"}
AVERAGED = re.compile(r"\b(averag|pooled|mean of)", re.IGNORECASE)


class Origin(enum.StrEnum):
    """Evidence that predictions are free-running."""

    DECODED_HERE = "decoded here"
    DECODED_AGAIN = "decoded again"
    STATED = "stated"
    UNKNOWN = "not known"
    CONTRADICTED = "contradicted"


@dataclasses.dataclass(frozen=True)
class Provenance:
    """The evidence that predictions are free-running, in words."""

    level: Origin
    statement: str = ""  # evidence with its source, or findings against it
    checked: tuple[str, ...] = ()  # of rows decoded again
    not_checked: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.level.value}{f': {self.statement}' if self.statement else ''}"

    @property
    def sentence(self) -> str:
        return f"Origin of the outputs: {self.text.removesuffix('.')}."

    @property
    def lines(self) -> list[str]:
        return [f"Checked: {line}." for line in self.checked] + [f"Not checked: {line}." for line in self.not_checked]


DECODED_HERE = Provenance(Origin.DECODED_HERE, "by this run of eeg2text, whose free-running decoder takes no target")
RANKED_HERE = Provenance(Origin.DECODED_HERE, "ranked by this run of eeg2text, which scores every candidate alike")


def provenance_of(
    mode: str, *, decoded: Provenance | None, proof: str, stated_by: str, contradictions: list[str]
) -> Provenance:
    """Return the provenance of predictions whose rows state `mode`; see `audit.Options` for the other statements.

    `contradictions`, findings that only a target in the decoder explains, override every statement.
    """
    if contradictions:
        return Provenance(Origin.CONTRADICTED, "; ".join(contradictions))
    if decoded:
        return decoded
    if proof:
        return Provenance(Origin.STATED, f"the authors state: {proof}")
    match mode:
        case "free_running":
            return Provenance(Origin.STATED, f"{stated_by} that the predictions ran free")
        case "contrastive" | "likelihood":
            return Provenance(Origin.STATED, f"{stated_by} that candidates were scored without the answer ({mode})")
        case "teacher_forced":
            return Provenance(Origin.CONTRADICTED, "the file states that the predictions were teacher-forced")
    unknown = "nothing says whether they ran free; state it with --mode=free_running or --proof"
    return Provenance(Origin.UNKNOWN, unknown)


def checked_proof(text: str) -> str:
    """Return the statement of `--proof` with single spaces.

    Raises UserError if it is no URL and has fewer than `PROOF_WORDS` different words, or admits teacher forcing.
    """
    words = set(re.findall(r"[^\W\d_]{2,}", text.lower()))
    if FORCED.search(text) and not words & DENIED:
        raise UserError(
            f"--proof={text!r}: says that the decoder was given the target text; expected a statement of how you know "
            "that no target text reached the decoder."
        )
    if text and len(words) < PROOF_WORDS and not URL.fullmatch(text.strip()):
        raise UserError(
            f"--proof={text!r}: expected a sentence with at least {PROOF_WORDS} different words, or a link "
            "(https://...), that says how you know that no target text reached the decoder (no teacher forcing)."
        )
    return " ".join(text.split())


@dataclasses.dataclass(frozen=True)
class JudgedFile:
    """An audited file, without the folders of absolute paths."""

    name: str  # as on the command line
    sha256: str
    rows: int
    read: tuple[str, ...] = ()  # sentences about how it was read

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", FOLDERS.sub("", self.name))
        object.__setattr__(self, "read", tuple(FOLDERS.sub("", line) for line in self.read))


@dataclasses.dataclass(frozen=True)
class Judged:
    """The audited files. A run's `audit.json` has no command and date: equal runs give equal files."""

    files: tuple[JudgedFile, ...]
    version: str = __version__
    command: str = ""
    date: str = ""

    @classmethod
    def of(cls, path: epath.Path, rows: int) -> "Judged":
        return cls((JudgedFile(path.name, file_digest(path), rows),))

    def dated(self, command: Sequence[str] = ()) -> "Judged":
        """Return a copy with the time and the command, by default that of this process."""
        program = Path(sys.argv[0])
        if not command and (program.name == "eeg2text" or program.parent.name == "eeg2text_jax"):
            command = ["eeg2text", *sys.argv[1:]]
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        plain = shlex.join(FOLDERS.sub("", word) for word in command)
        return dataclasses.replace(self, command=plain or "a call from Python", date=now)


# Fewest sentences for a verdict: with fewer, one in a stratum of six decides the p. Calibrated from 30 on.
MIN_JUDGED = 30
A_POINT = 0.01  # of sentences and predictions: more in the training text may be memory
MOST = 0.5  # of the sentences in the training text: memory may explain the score
COLLAPSED = 0.1  # of the rows: with as few distinct predictions, outputs are collapsed
CHOSEN = 0.9  # of the predictions are test sentences: chosen from a list


@dataclasses.dataclass(frozen=True)
class Notice:
    """A fact that limits the verdict."""

    code: str  # its name in JSON
    message: str  # a sentence without its full stop
    bars: tuple[str, ...] = ()  # conditions that cannot be judged; `ALL`: the whole audit
    rows: tuple[tuple[str, str], ...] = ()  # (reference, prediction) pairs that show it

    @property
    def examples(self) -> list[str]:
        return [f"  {reference!r:.100} -> {prediction!r:.100}" for reference, prediction in self.rows]


ALL = ("",)
REASONS = {  # code of a notice -> reason in the headline, else TARGET
    "other_form": "the two columns are not in the same form",
    "too_few_sentences": "too few sentences",
    "modes_differ": "the decoding modes differ",
    "teacher_forced": "teacher-forced",
    "training_text": "remembered, not decoded",
}
TARGET = "a target reached the decoder"


@dataclasses.dataclass(frozen=True)
class Look:
    """What the outputs of a condition look like, in plain words."""

    rows: int
    distinct: int
    empty: int  # number of rows
    top_text: str  # the most frequent prediction
    top: int  # rows with it
    mean_words: float


def look_of(condition: Condition) -> Look:
    texts = [" ".join(words(text)) for text in condition.texts]
    counts = Counter(texts)
    top_text, top = min(counts.items(), key=lambda item: (-item[1], item[0]))
    return Look(len(texts), len(counts), counts[""], top_text, top, float(np.mean([len(t.split()) for t in texts])))


def unfit(aligned: Aligned) -> list[Notice]:
    """Return why nothing can be judged, whatever the rows hold: too few sentences, decoding modes."""
    eeg, notices = aligned.eeg, []
    if len(aligned.references) < MIN_JUDGED:
        message = f"{len(aligned.references)} sentences are too few for a verdict, {MIN_JUDGED} are needed"
        notices.append(Notice("too_few_sentences", message, ALL))
    for control in aligned.conditions[1:]:
        if control.mode != eeg.mode:
            modes = [c.mode.replace("_", "-") if c.mode != "unknown" else "of unknown mode" for c in (eeg, control)]
            remedy = "; state it with --mode" if "unknown" in (control.mode, eeg.mode) else ""
            message = f"the modes differ, {eeg.name} is {modes[0]} and {control.name} {modes[1]}{remedy}"
            notices.append(Notice("modes_differ", message, (control.name,)))
    if eeg.mode == "teacher_forced":
        message = f"{eeg.name}: teacher-forced, every token was predicted from the true tokens before it"
        notices.append(Notice("teacher_forced", message, ALL))
    return notices


def of_texts(
    conditions: Sequence[Condition], references: Sequence[str], looks: Iterable[Look], *, of_words: bool
) -> list[Notice]:
    """Return notices about predicted texts: their form, silence and collapse."""
    notices, sentences, eeg = [], set(map(key, references)), conditions[0]
    if of_words and (why := other_form(eeg.texts, references)):
        shown = tuple((references[s], text) for s, text in zip(eeg.sentence.tolist()[:2], eeg.texts[:2], strict=True))
        notices.append(Notice("other_form", f"{REASONS['other_form']}: {why}", ALL, shown))
    for condition, look in zip(conditions, looks, strict=True):
        if look.empty:
            blank = sum(not text.strip() for text in condition.texts)
            bare = " or hold no word beside special tokens and marks" if blank < look.empty else ""
            message = f"{condition.name}: {look.empty} of {look.rows} predictions are empty{bare}"
            notices.append(Notice("empty", message))
        if look.distinct <= max(1, COLLAPSED * look.rows):
            message = f"{condition.name}: {look.distinct} distinct predictions in {look.rows} rows"
            top = f"; {look.top} are {look.top_text!r:.60}" if look.top_text else ""  # the notice on empty ones says it
            notices.append(Notice("collapsed", message + top))
        listed = sum(rows for text, rows in Counter(condition.texts).items() if key(text) in sentences)
        if listed >= CHOSEN * look.rows and look.distinct > 1:
            message = f"{condition.name}: {listed} of {look.rows} predictions are test sentences"
            notices.append(Notice("chosen", f"{message}: the decoder chose from a list of them, or wrote targets"))
    return notices


def of_design(aligned: Aligned) -> list[Notice]:
    """Return notices about rows that were left out, unknown donors, and too few training seeds."""
    notices = [
        Notice("rows_left_out", f"{name}: {left} of {total} rows are not in every condition and were left out")
        for name, left, total in aligned.left_out
    ]
    donors = (
        "the rows do not say whose recording was their input (field donor); if the model works, the control's null "
        "contains hits on the donors' sentences, and the content difference is too large"
    )
    notices += [
        Notice("donors", f"{control.name}: {donors}")
        for control in aligned.conditions[1:]
        if any(row.eval_condition == SHUFFLED and not row.donor for row in control.rows)
    ]
    trained = {condition.rows[0].train_condition for condition in aligned.conditions}
    if len(aligned.seeds) < 3 and len(trained) > 1:
        message = (
            "a control was trained separately: the comparison judges the training recipe and needs at least 3 seeds, "
            f"here {len(aligned.seeds)}; to judge this model, feed the control to the same checkpoint"
        )
        notices.append(Notice("few_seeds", message))
    return notices


def of_training_text(aligned: Aligned, training: Iterable[str], *, apart: bool) -> list[Notice]:
    """Return a notice if test sentences are in the training text: the score may be memory.

    `apart`: these recordings are known not to be in training, or the decoder chose from a known list.
    """
    trained = {key(line) for line in training} - {""}
    shared = [text for text in aligned.references if key(text) in trained]
    n, rows = len(aligned.references), len(aligned.eeg.rows)
    if not shared:
        return []
    message = f"{len(shared)} of the {n} test sentences are in the training text (such as {shared[0]!r:.60})"
    outputs = sum(key(text) in trained for text in aligned.eeg.texts)
    if remembered := len(shared) > A_POINT * n and outputs > A_POINT * rows:
        message += f", and {outputs} of {rows} predictions are training sentences: remembered, not decoded"
    barred = remembered or (len(shared) > MOST * n and not apart)
    return [Notice("training_text", message, ALL if barred else ())]


def of_signs(signs: Sequence[Sign], name: str, *, known_free: bool) -> list[Notice]:
    """Return signs of a target as notices; contradictions bar the verdict unless rows are `known_free`."""
    barring = () if known_free else (Weight.CONTRADICTED,)
    return [Notice(s.code, f"{name}: {s.message}", ALL if s.weight in barring else (), s.rows) for s in signs]


def what_form_changes(predictions: Sequence[str], references: Sequence[str]) -> str:
    """Return a warning if WER or BLEU-1 of (at most 20,000) rows changes by over 5 points in plain words, or ""."""
    step = -(-len(predictions) // 20_000) or 1
    texts = [list(side[::step]) for side in (predictions, references)]
    plain = [[key(text) for text in side] for side in texts]
    changes = []
    for name, metric in (("WER", word_error_rate()), ("BLEU-1", word_bleu())):
        before, after = (float(metric.corpus(metric.statistics(*side).sum(0))[0]) for side in (texts, plain))
        if abs(before - after) > 5:
            changes.append(f"{name} from {before:.2f} to {after:.2f}")
    if not changes:
        return ""
    return (
        f"case, punctuation and special tokens count: without them, scores change ({' and '.join(changes)}); write "
        "predictions and references alike, or say whether the reported scores count them"
    )


def file_notices(name: str, rows: Sequence[Prediction]) -> list[Notice]:
    """Return notices about rows of one condition and mode that need no test."""
    rows = [without_unknown(row) for row in rows if row.reference.strip()]
    if not rows:
        return []
    by_key = {key(text): text for text in sorted((row.reference for row in rows), reverse=True)}
    references = [by_key[text] for text in sorted(by_key)]
    places = {text: place for place, text in enumerate(sorted(by_key))}
    sentence, none = np.array([places[key(row.reference)] for row in rows]), np.zeros(len(rows), int)
    condition = Condition(name, tuple(rows), sentence, none, none - 1)
    notices: list[Notice] = []
    if condition.mode != "teacher_forced":
        notices += of_signs(signs_of(condition.texts, references, sentence, condition.subjects), name, known_free=False)
    notices += of_texts([condition], references, [look_of(condition)], of_words=True)
    if change := what_form_changes(condition.texts, [row.reference for row in rows]):
        notices.append(Notice("case_and_punctuation", f"{name}: {change}"))
    return notices


# Questions about content that was found: is it about the sentence or its kind, and beyond the time of the recording?
# Between groups, whole groups are exchanged, so that predictions meet no reference of their own; within groups,
# sentences of one group, task and similar length.

# Control that keeps the features of the words -> its question; it does not decide.
QUESTIONS = {
    "time_reversed": "does the order of the recording matter?",
    "phase_randomized": "does the time course of the recording matter, beyond its spectrum?",
}
TIME_CONTROLS = ("clock", "nearest_in_time", "same_place", "neighbor")
OF_TIME = "does content go beyond the time of the recording?"
MOST_COMPARED = 2000  # sentences that are compared with all references, for content between groups


@dataclasses.dataclass(frozen=True)
class GroupAnswer:
    """Content between and within the groups of one column, against one control or EEG's null."""

    column: str
    control: str
    groups: int
    between: Contrast | None  # None: too few groups of two sentences or more
    within: Contrast | None  # None: too few sentences share group, task and length

    @property
    def level(self) -> Level:
        if self.within is not None and self.within.above:
            return Level.SENTENCE
        if self.within is not None and self.between is not None and self.between.above:
            return Level.KIND
        return Level.UNKNOWN

    @property
    def figures(self) -> tuple[str, str]:
        between, within = (verdict.figures_text(c) if c else "too few to tell" for c in (self.between, self.within))
        return between, within

    @property
    def text(self) -> str:
        against, (between, within) = f" against {self.control}" if self.control else "", self.figures
        return f"by {self.column} ({self.groups} groups){against}: between groups {between}; within groups {within}"


def labels_of(aligned: Aligned, groups: Mapping[str, str], column: str) -> np.ndarray:
    """Return the label of each sentence, `[S]`; `groups` maps references to labels.

    Raises UserError if a reference has no label, or all have the same one.
    """
    label_of = {key(text): label.strip() for text, label in groups.items()}
    missing = [text for text in aligned.references if not label_of.get(key(text))]
    if missing:
        many = count_of(len(missing), "reference has", "references have")
        raise UserError(f"--groups={column}: {many} no label, such as {missing[0]!r:.60}; give each one a label.")
    labels = np.array([label_of[key(text)] for text in aligned.references])
    if len(set(labels.tolist())) < 2:
        raise UserError(f"--groups={column}: all references have the same label; expected two groups or more.")
    return labels


def answer_groups(
    aligned: Aligned, labels: np.ndarray, column: str, pairs: Sequence[tuple[Condition, ...]], scores: Scorer
) -> list[GroupAnswer]:
    """Measure content between and within groups for each pair (EEG and a control, or EEG alone); `labels` is `[S]`."""
    kinds = [f"{g}\n{t}\n{r}" for g, t, r in zip(labels, aligned.tasks, aligned.readers, strict=True)]
    apart = (strata.length_strata(k, aligned.n_words) for k in (kinds, labels))
    inside = next((s for s in apart if strata.exchangeable(s).sum() >= strata.MIN_SENTENCES), None)
    within = Strata(strata_members(strata.divided(inside, aligned.references)) if inside is not None else [])
    names, group = np.unique(labels, return_inverse=True)
    members = np.flatnonzero(np.bincount(group)[group] > 1)
    if len(members) > MOST_COMPARED:
        members = np.sort(members[np.argsort(strata.hashes(aligned.references)[members])[:MOST_COMPARED]])
    several, of = np.unique(group[members], return_inverse=True)

    def cells(members: Sequence[np.ndarray]) -> dict[str, Cells]:
        conditions = {c.name: c for pair in pairs for c in pair}.values()
        return {c.name: fill(c, aligned.references, members, scores) for c in conditions}

    sentences = cells(within.members) if len(within) else {}
    enough = len(several) >= strata.MIN_SENTENCES
    groups = {name: _of_groups(one.blocks[0], of) for name, one in cells([members]).items()} if enough else {}
    answers = []
    for pair in pairs:
        name = pair[1].name if len(pair) > 1 else ""
        whole, inner = (
            verdict.contrast(of_strata, *(one[c.name] for c in pair), name=name) if one else None
            for of_strata, one in ((Strata([np.arange(len(several))]), groups), (within, sentences))
        )
        answers.append(GroupAnswer(column, name, len(names), whole, inner))
    return answers


def _of_groups(table: np.ndarray, of: np.ndarray) -> Cells:
    """Return means of a group's predictions against each group's references, never their own; groups `of`: `[S']`."""
    member = (of == np.arange(of.max() + 1)[:, None]).astype(float)  # [groups, S']
    apart = 1 - np.eye(len(of))
    block = (member @ (table * apart) @ member.T) / np.maximum(member @ apart @ member.T, 1)
    return Cells((block,), *np.zeros((2, len(member))))


def is_of_time(condition: Condition) -> bool:
    """Return whether a condition is a control of time, by its name or its rows' evaluation condition."""
    return condition.name in TIME_CONTROLS or condition.rows[0].eval_condition in TIME_CONTROLS


def questions(aligned: Aligned, deciding: Collection[str] | None) -> dict[str, str]:
    """Return control -> its question, for the controls that do not decide; if none would decide, all do.

    `deciding` names those that decide; None: all but those of `QUESTIONS` and of time.
    """
    asked = {}
    for control in aligned.conditions[1:]:
        kind = control.rows[0].eval_condition  # `name` may differ: an arm trained on a control has its own name
        if deciding is not None and {control.name, kind} & set(deciding):
            continue
        known = QUESTIONS.get(kind if deciding is None else control.name, "")
        question = OF_TIME if is_of_time(control) else known
        if question or deciding is not None:
            asked[control.name] = question or "does EEG differ from this control?"
    return asked if len(asked) < len(aligned.conditions) - 1 else {}


def answer_time(aligned: Aligned, comparisons: Sequence[Comparison], *, timed: bool) -> tuple[Time, str]:
    """Return whether content goes beyond the time of the recording, with a sentence: EEG must beat all time controls.

    `nearest_in_time` copies the training text nearest in time; `same_place` the one at the same place of another
    recording, which is needed where recordings have the same order of sentences. An arm trained on `clock` knows only
    the recording and the time in it, which a model trained on EEG cannot read. `neighbor`, a recording of the same
    minute, does not suffice: where groups of sentences are shown in blocks, some neighbors are of another group.
    `timed`: whether any row says when it was recorded.
    """
    controls = {c.name: c for c in aligned.conditions[1:] if is_of_time(c)}
    judged = [c for c in comparisons if c.control in controls and c.verdict is not Verdict.NOT_JUDGEABLE]
    if not judged:
        none = f"there is no control of time ({', '.join(TIME_CONTROLS)})"
        why = "no control of time can be judged" if controls else none
        why += "" if timed else ", and the rows do not say when they were recorded"
        return Time.UNKNOWN, f"Time is not excluded: {why}."
    figures = ", ".join(f"{verdict.figures_text(c.contrast)} against {c.control}" for c in judged)
    if not all(c.contrast.above for c in judged):
        return Time.NOT_BEYOND, f"Content is not shown to go beyond the time of the recording: {figures}."
    texts = np.array([key(row.reference) for row in aligned.eeg.rows])
    alike = order_likeness(clock_of_rows(aligned.eeg.rows), texts) >= ALIKE
    if any(_knows_all(controls[c.control], alike) for c in judged):
        return Time.BEYOND, f"Content goes beyond the time of the recording: {figures}."
    needed = "same_place" if alike else "nearest_in_time"
    advice = f"these controls keep less than a clock could know; add {needed}, or an arm trained on clock"
    advice += ", as recordings have the same order of sentences" if alike else ""
    return Time.UNKNOWN, f"Time is not excluded: {figures}; {advice}."


def _knows_all(condition: Condition, alike: bool) -> bool:
    """Return whether a control uses all that time can tell; `alike`: recordings have one order of sentences."""
    row = condition.rows[0]
    copies = {condition.name, row.eval_condition} & ({"same_place"} if alike else {"nearest_in_time", "same_place"})
    trained = row.train_condition == "clock" or (condition.name == "clock" and row.train_condition == UNKNOWN)
    return bool(copies) or trained
