"""The table of an audit: the mean score of the predictions made for a sentence against every reference of its stratum.

Cell (s, t) of a block is the mean over the rows of sentence s of their scores against reference t, so that every
sentence weighs the same. The diagonal holds the scores, the other cells what they are worth.
"""

import contextlib
import dataclasses
import importlib
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse

from eeg2text_jax.base.errors import UserError, did_you_mean, named
from eeg2text_jax.base.progress import ProgressLine
from eeg2text_jax.instrument.auditing._signs import Sign, Weight
from eeg2text_jax.instrument.auditing.align import Aligned, Condition
from eeg2text_jax.instrument.auditing.strata import RULE, words
from eeg2text_jax.instrument.metrics import score
from eeg2text_jax.instrument.metrics.metric import Metric, MetricError, Rouge, word_bleu, word_error_rate
from eeg2text_jax.instrument.metrics.metric_names import ENDPOINTS, WHICH_SENTENCE, Named
from eeg2text_jax.instrument.metrics.score import Figures, RankMetric
from eeg2text_jax.instrument.predictions.rankings import Ranking

# Endpoints: the score of a set is the mean of those of its rows. Corpus scores (BLEU, WER) are not, and decide nothing.

Points = Callable[[Sequence[str], Sequence[str]], np.ndarray]  # texts P and R -> scores [P, R], higher is better


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An additive score."""

    label: str  # in tables
    fit: Callable[[Sequence[str]], Points]  # from all references of a test set
    margin: float = 1.0  # default of the smallest difference that matters, in points
    signature: str = ""  # what changes the score
    of_words: bool = False  # it compares plain words, so that both sides need the same form
    notes: Callable[[], list[str]] = list  # of the metric, about the texts that it scored


def shared_words(weights: Callable[[str], float], *, harmonic: bool = False) -> Points:
    """Return a score of shared words in points: the mean of precision and recall by weight.

    A word that occurs k times in both texts is shared k times. For words drawn at random, precision goes with one
    length and recall with the other, so their arithmetic mean does not favor outputs of the own sentence's length;
    the `harmonic` mean (with equal weights: ROUGE-1 F) does.
    """

    def points(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        columns: dict[tuple[str, int], int] = {}
        theirs, their_weight = _occurrences(references, columns, weights, grow=True)
        ours, our_weight = _occurrences(predictions, columns, weights, grow=False)
        shared = 100 * (ours @ theirs.T).toarray()
        if harmonic:
            return 2 * shared / np.maximum(our_weight[:, None] + their_weight, 1e-9)
        return shared * (0.5 / np.maximum(our_weight, 1e-9)[:, None] + 0.5 / np.maximum(their_weight, 1e-9))

    return points


def _occurrences(
    texts: Sequence[str], columns: dict[tuple[str, int], int], weights: Callable[[str], float], *, grow: bool
) -> tuple[sparse.csr_array, np.ndarray]:
    """Return the roots of the weights of each word's k-th occurrence, `[N, V]`, and the texts' weights."""
    starts, places, roots, totals = [0], [], [], []
    for text in texts:
        total = 0.0
        for word, count in Counter(words(text)).items():
            weight = weights(word)
            total += weight * count
            for k in range(count):
                place = columns.setdefault((word, k), len(columns)) if grow else columns.get((word, k))
                if place is not None:
                    places.append(place)
                    roots.append(weight**0.5)
        starts.append(len(places))
        totals.append(total)
    width = max(len(columns), 1)
    return sparse.csr_array((roots, places, starts), shape=(len(texts), width)), np.array(totals)


def rare_words(references: Sequence[str]) -> Points:
    """Return `shared_words` with weight `log((S + 1) / (n + 1))` for a word in n of the S references."""
    among = Counter(word for text in references for word in set(words(text)))
    return shared_words(lambda word: float(np.log((len(references) + 1) / (among[word] + 1))))


def of_metric(named: Named, metric: Metric) -> Endpoint:
    """Return a figure of a metric of single pairs, such as BERTScore, as an endpoint."""
    column = metric.columns.index(named.figure)

    def points(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        return metric.corpus(metric.pairwise(predictions, references))[..., column]

    return Endpoint(named.label, lambda references: points, named.margin, metric.signature, notes=metric.notes)


def _of_words(name: str, fit: Callable[[Sequence[str]], Points], said: str) -> Endpoint:
    return Endpoint(ENDPOINTS[name].label, fit, ENDPOINTS[name].margin, f"{said}|{RULE}", of_words=True)


BY_NAME = {
    "words": _of_words("words", rare_words, "shared words weighted by rarity in the references"),
    "rouge-1": _of_words("rouge-1", lambda _: shared_words(lambda word: 1.0, harmonic=True), "shared words"),
}
WORDS = BY_NAME["words"]


def text_endpoint(endpoint: Endpoint | str | None) -> Endpoint:
    """Return an endpoint of texts: itself, or by name `words` (also for None), `rouge-1` or MODULE:FUNCTION.

    Raises UserError if there is none.
    """
    if endpoint is None or isinstance(endpoint, Endpoint):
        return endpoint or WORDS
    if endpoint in BY_NAME:
        return BY_NAME[endpoint]
    if ":" in endpoint:
        return function_endpoint(endpoint)
    raise UserError(f"endpoint={endpoint}: there is no such endpoint of texts; {did_you_mean(endpoint, BY_NAME)}")


def function_endpoint(name: str) -> Endpoint:
    """Return the endpoint `MODULE:FUNCTION`, of a function of predictions and references to points `[P, R]`.

    The current folder is searched, too. Raises UserError if it cannot be imported.
    """
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        points = getattr(importlib.import_module(module), function)
        if not callable(points):
            raise ValueError(f"{function} is no function")
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise UserError(
            f"--endpoint={name}: {error}; expected MODULE:FUNCTION, a Python function of lists of predictions and "
            "references that returns an array of points [predictions, references], higher is better."
        ) from error

    def guarded(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        try:
            return points(predictions, references)
        except Exception as error:
            failed = f"{len(predictions)} predictions and {len(references)} references"
            if len(predictions) == len(references) == 1:
                failed = f"the prediction {predictions[0]!r:.60} and the reference {references[0]!r:.60}"
            elif len(predictions) > 1:
                for text in predictions:  # raises for the first that fails alone
                    guarded([text], references)
            else:
                for text in references:
                    guarded(predictions, [text])
            raise UserError(f"--endpoint={name}: failed on {failed} ({named(error)}); correct the function.") from error

    return Endpoint(name, lambda references: guarded, signature=f"the function {name}")


def checked_points(points: np.ndarray, predictions: int, references: int, label: str) -> np.ndarray:
    """Return points `[P, R]` as float64. Raises UserError for another shape, NaN or infinity."""
    try:
        points = np.asarray(points, float)
    except (TypeError, ValueError) as error:
        raise UserError(f"endpoint {label}: returned no numbers ({error}); expected an array of points.") from error
    if points.shape != (predictions, references) or not np.isfinite(points).all():
        what = f"an array of shape {points.shape}" if points.shape != (predictions, references) else "NaN or infinity"
        raise UserError(f"endpoint {label}: returned {what}; expected finite points [{predictions}, {references}].")
    return points


PROGRESS_ROWS = 50_000  # rows from which progress is shown
Scorer = Callable[[Condition, np.ndarray, Sequence[str]], np.ndarray]  # rows, references -> scores [rows, references]


@dataclasses.dataclass(frozen=True)
class Cells:
    """Scores of one condition, in points; higher is better."""

    blocks: tuple[np.ndarray, ...]  # of each stratum, `[n, n]`
    own: np.ndarray  # each row's score against its own reference, `[N]`
    others: np.ndarray  # each row's mean score against the other sentences of its stratum, `[N]`

    @property
    def content(self) -> np.ndarray:
        return self.own - self.others


def strata_members(strata: np.ndarray) -> list[np.ndarray]:
    """Return the sentences of each stratum of two or more, from strata int `[S]`."""
    order = np.argsort(strata, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(strata))[:-1])
    return [members for members in parts if len(members) > 1]


def text_scorer(aligned: Aligned, endpoint: Endpoint) -> Scorer:
    """Return a scorer of texts, equal ones once."""
    points = endpoint.fit(aligned.references)

    def scores(condition: Condition, rows: np.ndarray, references: Sequence[str]) -> np.ndarray:
        texts: dict[str, int] = {}
        which = [texts.setdefault(condition.rows[row].prediction, len(texts)) for row in rows.tolist()]
        scored = points(list(texts), references)
        return checked_points(scored, len(texts), len(references), endpoint.label)[which]

    return scores


def fill(condition: Condition, references: Sequence[str], strata: Sequence[np.ndarray], scores: Scorer) -> Cells:
    """Score the rows of a condition against all references of their strata (`strata_members`)."""
    n = len(condition.rows)
    own, others, blocks = np.full(n, np.nan), np.full(n, np.nan), []
    starts = np.searchsorted(condition.sentence, np.arange(condition.sentence.max() + 2))
    line = ProgressLine(f"scoring {condition.name}", len(strata)) if n >= PROGRESS_ROWS else None
    with line or contextlib.nullcontext():
        for members in strata:
            rows = np.concatenate([np.arange(starts[s], starts[s + 1]) for s in members.tolist()])
            sizes = (starts[members + 1] - starts[members]).tolist()
            place = np.repeat(np.arange(len(members)), sizes)
            points = scores(condition, rows, [references[s] for s in members.tolist()])
            own[rows] = points[np.arange(len(rows)), place]
            _replace_donors(points, place, condition.donor[rows], members)
            others[rows] = (points.sum(1) - own[rows]) / (len(members) - 1)
            share = 1 / np.repeat(sizes, sizes)
            mean = sparse.csr_array((share, (place, np.arange(len(rows)))), shape=(len(members), len(rows)))
            blocks.append(mean @ points)
            if line:
                line.advance(1)
    return Cells(tuple(blocks), own, others)


def _replace_donors(points: np.ndarray, place: np.ndarray, donor: np.ndarray, members: np.ndarray) -> None:
    """Replace scores of rows against their donors' sentences, which a working decoder writes, by the mean over others.

    `donor` `[rows]` is the sentence whose recording was the input, -1 for none.
    """
    where = {s: index for index, s in enumerate(members.tolist())}
    for row in np.flatnonzero(donor >= 0).tolist():
        if (column := where.get(int(donor[row]))) is not None and len(members) > 2:
            rest = points[row].sum() - points[row, column] - points[row, place[row]]
            points[row, column] = rest / (len(members) - 2)


# Rankings: for the endpoint top-5, cell (s, t) is how often sentence t is among the five best candidates for recordings
# of sentence s.

MIN_CANDIDATES = 4  # scores of fewer candidates may tie by chance
ALL_ROWS = 0.99
MIN_SENTENCES, SAME = 10, 0.5  # sentences with several readings; share whose scores are the same


@dataclasses.dataclass(frozen=True)
class RankFigures:
    """What is printed of rankings: numbers of candidates, chance in percent, and a baseline."""

    candidates: tuple[int, int]  # fewest and most
    chance: float
    chance_interval: tuple[float, float]  # of 95 % of scores by chance
    by_length: Figures  # of a baseline that knows only the number of words


def rank_endpoint(aligned: Aligned, name: object) -> tuple[Endpoint, int]:
    """Return the endpoint `name` of `WHICH_SENTENCE`, and its column in `RankMetric`.

    Raises UserError if there is none, or a control has texts.
    """
    if not isinstance(name, str) or name not in WHICH_SENTENCE:
        names = ", ".join(WHICH_SENTENCE)
        raise UserError(
            f"--endpoint={name}: for rankings, expected one of {names}; {did_you_mean(str(name), WHICH_SENTENCE)}"
        )
    for condition in aligned.conditions:
        if not all(isinstance(row, Ranking) for row in condition.rows):
            raise UserError(
                f"{condition.name}: holds no rankings, but {aligned.eeg.name} does; give rankings only, or decoded "
                "text only."
            )
    metric, figure = RankMetric(), WHICH_SENTENCE[name]
    return Endpoint(figure.label, _no_texts, figure.margin, metric.signature), metric.columns.index(figure.figure)


def _no_texts(references: Sequence[str]) -> Points:
    raise UserError("rankings hold no texts to score.")


def rank_scorer(column: int) -> Scorer:
    """Return a scorer of rankings by a column of `RankMetric`."""
    metric = RankMetric()

    def scores(condition: Condition, rows: np.ndarray, references: Sequence[str]) -> np.ndarray:
        return metric.corpus(metric.pairwise([condition.rows[row] for row in rows.tolist()], references))[..., column]

    return scores


def _rows(condition: Condition) -> list[Ranking]:
    return [row for row in condition.rows if isinstance(row, Ranking)]


def figures_of(condition: Condition) -> Figures:
    rows = _rows(condition)
    return Figures.of(score.right_statistics(rows, [row.scores for row in rows]).sum(0))


def rank_figures(aligned: Aligned, column: int) -> RankFigures:
    """Return chance and baseline of an endpoint by its column in `RankMetric`."""
    rows, sentences = _rows(aligned.eeg), len(aligned.references)
    sizes = [len(row.candidates) for row in rows]
    if column >= len(score.TOP):  # "rank": by chance the percentile is uniform, with mean 50
        reach = 1.96 * 100 / np.sqrt(12 * sentences)
        level, interval = 50.0, (50 - reach, 50 + reach)
    else:
        share = score.chance(sizes, score.TOP[column])
        low, high = score.chance_interval(share, sentences)
        level, interval = 100 * share, (100 * low, 100 * high)
    lengths = Figures.of(score.right_statistics(rows, [score.by_length(row) for row in rows]).sum(0))
    return RankFigures((min(sizes), max(sizes)), level, interval, lengths)


def rank_signs(eeg: Condition, *, averaged: bool) -> list[Sign]:
    """Return signs that scores hold the answer or, unless they are `averaged`, are not of the individual recording."""
    return [*_answer_alone(eeg), *([] if averaged else _same_for_all(eeg))]


def _answer_alone(condition: Condition) -> list[Sign]:
    """Return a sign if all candidates except the right one have equal scores."""
    rows = [row for row in _rows(condition) if len(row.scores) >= MIN_CANDIDATES]
    others = [np.delete(row.scores, row.right) for row in rows]
    marked = sum(o.min() == o.max() < row.scores[row.right] for o, row in zip(others, rows, strict=True))
    if not rows or marked < ALL_ROWS * len(rows):
        return []
    message = f"in {marked} of {len(rows)} rows all candidates but the right one have the same score"
    return [Sign("target_scores", Weight.CONTRADICTED, message, ())]


def _same_for_all(condition: Condition) -> list[Sign]:
    """Return a sign if all recordings of a sentence have the same scores."""
    by_sentence = defaultdict(list)
    for s, row in zip(condition.sentence.tolist(), _rows(condition), strict=True):
        by_sentence[s].append(row.scores.tobytes())
    several = [set(scores) for scores in by_sentence.values() if len(scores) > 1]
    alike = sum(len(scores) == 1 for scores in several)
    distinct = len(set().union(*several))
    if len(several) < MIN_SENTENCES or alike <= SAME * len(several) or distinct <= SAME * alike:
        return []
    message = f"in {alike} of the {len(several)} sentences with several readings all readings have the same scores"
    return [Sign("input_independent", Weight.CONTRADICTED, message, ())]


# Scores as papers print them, from the raw texts, each beside its null; they test nothing.

MOST_ROWS = 5000  # with more, they take longer than the audit
SHIFTS = 3  # other sentences against which each prediction is scored


@dataclasses.dataclass(frozen=True)
class Reported:
    """A corpus score of every condition, EEG first, with its null: against other sentences."""

    label: str
    signature: str
    scores: tuple[float, ...]
    nulls: tuple[float, ...]


def reported_scores(aligned: Aligned, members: Sequence[np.ndarray]) -> tuple[list[Reported], list[str]]:
    """Return BLEU-1, BLEU-4, WER, ROUGE-1 F and ROUGE-L F, and notes on those that are not computed."""
    most = max(len(condition.rows) for condition in aligned.conditions)
    if most > MOST_ROWS:
        return [], [f"BLEU, WER and ROUGE are not computed for {most} rows; `eeg2text score` has them"]
    reported, notes = [], []
    metrics: list[tuple[Metric, dict[str, int]]] = [
        (word_bleu(), {"BLEU-1": 0, "BLEU-4": 3}),
        (word_error_rate(), {"WER": 0}),
        (of_rouge := Rouge(), {f"ROUGE-{kind} F": of_rouge.columns.index(f"rouge-{kind}-f".lower()) for kind in "1L"}),
    ]
    # The next sentences of each stratum, int `[SHIFTS, S]`; they may repeat.
    others = np.tile(np.arange(len(aligned.references)), (SHIFTS, 1))
    for stratum in members:
        for shift in range(SHIFTS):
            others[shift, stratum] = np.roll(stratum, -1 - shift % (len(stratum) - 1))
    for metric, columns in metrics:
        try:
            pairs = [_score(condition, aligned.references, others, metric) for condition in aligned.conditions]
        except MetricError as error:
            notes.append(f"{', '.join(columns)} not computed: {error}")
            continue
        for label, column in columns.items():
            scores, nulls = zip(*((float(own[column]), float(null[column])) for own, null in pairs), strict=True)
            reported.append(Reported(label, metric.signature, scores, nulls))
    return reported, notes


def _score(
    condition: Condition, references: Sequence[str], others: np.ndarray, metric: Metric
) -> tuple[np.ndarray, np.ndarray]:
    """Return the figures `[C]` of rows against their references, and against `others`."""
    texts, sentence = condition.texts, condition.sentence
    raw = [row.reference for row in condition.rows]
    null = [references[s] for shift in others for s in shift[sentence].tolist()]
    return metric.corpus(metric.total(texts, raw)), metric.corpus(metric.total(texts * len(others), null))
