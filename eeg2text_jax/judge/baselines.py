"""Evaluation of a judge; its two baselines, logistic regression on BERTScore with error rates, and on similarity.

Shapes: `N` pairs, `C` features.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import optimize, special, stats

from eeg2text_jax.instrument.metrics.metric import edit_counts
from eeg2text_jax.judge._meaning import BertScore, Similarity
from eeg2text_jax.judge.pairs import Pair, Parts, normalize, preserved_of
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.pretrained.encoders import TextEmbedder, load_encoder

# Scores are float `[N]`, labels bool `[N]`: whether the meaning was kept.

DRAWS = 1000  # resamples of a bootstrap interval


def auc(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Return the probability that a preserved pair scores above a lost one, ties half; None for one class."""
    scores, labels = np.asarray(scores, float), np.asarray(labels, bool)
    n_yes, n_no = int(labels.sum()), int((~labels).sum())
    if not n_yes or not n_no:
        return None
    ranks = stats.rankdata(scores)
    return float((ranks[labels].sum() - n_yes * (n_yes + 1) / 2) / (n_yes * n_no))


def auc_interval(scores: np.ndarray, labels: np.ndarray, groups: Iterable[str]) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the AUC over `groups` (ground truths); None for one class."""
    if auc(scores, labels) is None:
        return None
    rng, members = np.random.default_rng(0), list(members_of(groups).values())
    areas = []
    for _ in range(DRAWS):
        rows = np.concatenate([members[i] for i in rng.integers(len(members), size=len(members))])
        areas.append(auc(scores[rows], labels[rows]))
    low, high = np.quantile([value for value in areas if value is not None], [0.025, 0.975])
    return float(low), float(high)


def members_of(groups: Iterable[str]) -> dict[str, np.ndarray]:
    """Return group -> its rows, in order of first appearance, from the group of every row."""
    members: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    return {group: np.array(rows) for group, rows in members.items()}


class Curve(NamedTuple):
    """Figures of the rule `score >= threshold` at every distinct score, the highest first."""

    thresholds: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    false_positive_rate: np.ndarray


def curve(scores: np.ndarray, labels: np.ndarray) -> Curve:
    scores, labels = np.asarray(scores, float), np.asarray(labels, bool)
    order = np.argsort(-scores, kind="stable")
    scores, hits = scores[order], np.cumsum(labels[order])
    last = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))  # equal scores share a threshold
    hits, taken = hits[last], last + 1
    with np.errstate(invalid="ignore"):
        return Curve(scores[last], hits / taken, hits / labels.sum(), (taken - hits) / (~labels).sum())


class Threshold(NamedTuple):
    """A decision threshold, its precision and recall, and how it was chosen, in words."""

    value: float
    precision: float
    recall: float
    how: str


def choose_threshold(scores: np.ndarray, labels: np.ndarray, precision: float) -> Threshold:
    """Return the lowest threshold with at least this precision, else 0.5."""
    points = curve(scores, labels)
    good = np.flatnonzero(points.precision >= precision)
    if len(good):
        value, precise, recall, _ = (float(column[good[-1]]) for column in points)
        return Threshold(value, precise, recall, f"lowest with a precision of {precision:g} on dev")
    taken, labels = np.asarray(scores) >= 0.5, np.asarray(labels, bool)
    hits = float((taken & labels).sum())
    how = f"0.5, as no score reaches a precision of {precision:g} on dev"
    return Threshold(0.5, hits / max(float(taken.sum()), 1.0), hits / max(float(labels.sum()), 1.0), how)


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of pairs that the threshold 0.5 classifies right."""
    return float(((np.asarray(scores) >= 0.5) == np.asarray(labels, bool)).mean())


def kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Return Cohen's kappa of two raters; None if the expected agreement is 1."""
    classes = sorted({*first, *second})
    table = stats.contingency.crosstab(first, second, levels=(classes, classes)).count / len(first)
    chance = float(table.sum(0) @ table.sum(1))
    return None if chance == 1.0 else float((np.trace(table) - chance) / (1 - chance))


STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # inverse weights of the L2 penalty


class Logistic(NamedTuple):
    """A logistic regression: sigmoid(bias + weights · (x - mean) / spread)."""

    mean: np.ndarray  # [C]
    spread: np.ndarray  # [C], standard deviation
    weights: np.ndarray  # [C]
    bias: float
    strength: float  # inverse weight of the L2 penalty

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Return the probability that the meaning is kept, `[N]`, from features `[N, C]`."""
        return special.expit(self.bias + (features - self.mean) / self.spread @ self.weights)


def fit(features: np.ndarray, labels: np.ndarray, strength: float) -> Logistic:
    """Minimize `|w|²/2 + strength · Σ log(1 + exp(∓(b + w·z)))` by BFGS; z: features, standardized."""
    mean, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    z = np.insert((features - mean) / spread, 0, 1.0, axis=1)
    sign, penalized = np.where(labels, -1.0, 1.0), np.array([0.0, *[1.0] * features.shape[1]])

    def loss_and_gradient(w: np.ndarray) -> tuple[float, np.ndarray]:
        logits = sign * (z @ w)
        loss = 0.5 * penalized @ w**2 + strength * np.logaddexp(0, logits).sum()
        return loss, penalized * w + strength * (sign * special.expit(logits)) @ z

    w = optimize.minimize(loss_and_gradient, np.zeros(z.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    return Logistic(mean, spread, w[1:], float(w[0]), strength)


def fit_best(train: tuple[np.ndarray, np.ndarray], dev: tuple[np.ndarray, np.ndarray]) -> Logistic:
    """Return the fit on `train` (features, labels) of the best AUC on `dev`; ties: the strongest penalty."""
    fits = [fit(*train, strength) for strength in STRENGTHS]
    return max(fits, key=lambda model: (auc(model(dev[0]), dev[1]) or 0.0, -model.strength))


def error_rates(pairs: Sequence[Pair]) -> np.ndarray:
    """Return each pair's deletions, insertions and substitutions per word of the ground truth, `[N, 3]`."""
    rates = []
    for pair in pairs:
        reference, hypothesis = (normalize(text).split() for text in pair.texts)
        replaced, deleted, inserted, words = edit_counts(hypothesis, reference)
        rates.append(np.array([deleted, inserted, replaced]) / max(words, 1))
    return np.array(rates, float).reshape(-1, 3)


def bertscore_features(pairs: Sequence[Pair], metric: BertScore) -> np.ndarray:
    """Return BERTScore F and the three error rates, `[N, 4]`."""
    rows = metric.statistics([pair.hypothesis for pair in pairs], [pair.reference for pair in pairs])
    return np.concatenate([rows[:, 2:3], error_rates(pairs)], axis=1)


def similarity_features(pairs: Sequence[Pair], metric: Similarity) -> np.ndarray:
    """Return the cosine of the two sentence embeddings and the word counts of both texts, `[N, 3]`."""
    cosine = metric.statistics([pair.hypothesis for pair in pairs], [pair.reference for pair in pairs])[:, :1]
    lengths = [[len(normalize(text).split()) for text in pair.texts] for pair in pairs]
    return np.concatenate([cosine, np.array(lengths, float).reshape(-1, 2)], axis=1)


def baseline_scores(encoders: tuple[str, str], own: Path, parts: Parts) -> dict[str, tuple[np.ndarray, int]]:
    """Fit the baselines; return baseline -> (scores of the test pairs `[N]`, parameter count of its encoder).

    `encoders` are checkpoints for BERTScore and for similarity; "own" is the judge's, `own`; "": without the baseline.
    """
    first, second = (own if name == "own" else name for name in encoders)
    embedder = TextEmbedder(load_encoder(first)) if first else None
    made: dict[str, tuple[Any, Any, TextEmbedder]] = {}
    if embedder:
        made["meaning[lr-bertscore]"] = bertscore_features, BertScore(embedder), embedder
    if second:
        shared = embedder and first == second and embedder.loaded.is_whole
        whole = embedder if shared else TextEmbedder(load_encoder(second, "last"))
        made["meaning[lr-similarity]"] = similarity_features, Similarity(whole), whole
    scores = {}
    for label, (features, metric, encoder) in made.items():
        train, dev = ((features(pairs, metric), preserved_of(pairs)) for pairs in (parts.train, parts.dev))
        scores[label] = fit_best(train, dev)(features(parts.test, metric)), count(encoder.loaded.params)
    return scores


def count(params: Params) -> int:
    """Return the number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


# The paper's Table 5: LATTEScore by speaker, the decisions that follow from it, and its agreement with people.

IMPAIRMENT = ("etiology", "severity")  # columns on a speaker's impairment, which may be empty
# Figures (percent) from which on a speech recognizer is good enough for a speaker (Tomanek et al. 2023, section 5).
BARS = {"word_accuracy": 80.0, "human": 70.0, "latte": 70.0}
Scores = Callable[[Sequence[Pair]], np.ndarray]  # pairs -> the judge's score of each pair, [N]


class Speaker(NamedTuple):
    """A speaker's figures over `n` pairs, in percent."""

    name: str
    n: int
    word_accuracy: float
    human: float  # pairs rated as preserved by people
    latte: float  # pairs whose score reaches the threshold
    latte_mean: float  # mean score

    def decisions(self) -> dict[str, bool]:
        """Return figure -> whether it reaches its bar."""
        return {name: getattr(self, name) >= bar for name, bar in BARS.items()}


class Agreement(NamedTuple):
    """The agreement of a figure with human ratings over speakers; undefined correlations are None."""

    pearson: float | None
    spearman: float | None
    mean_gap: float  # mean absolute difference, in percentage points
    same_decisions: int  # speakers for whom the figure and people decide alike
    speakers: int


def speakers_table(
    pairs: Sequence[Pair], scores: Scores, threshold: float, *, exact: str = "preserved"
) -> dict[str, Any]:
    """Return each speaker's figures and decisions, and the agreement of the figures with human ratings.

    A pair without an error has the score 1 without asking `scores`, or is left out (`exact="exclude"`). `threshold` is
    the lowest score that counts as preserved.
    """
    wrong = [i for i, pair in enumerate(pairs) if not pair.is_exact]
    score = np.ones(len(pairs))
    if wrong:
        score[wrong] = scores([pairs[i] for i in wrong])
    if exact == "exclude":
        pairs, score = [pairs[i] for i in wrong], score[wrong]
    words = np.array([max(len(normalize(pair.reference).split()), 1) for pair in pairs], float)
    edits, rng = error_rates(pairs).sum(1) * words, np.random.default_rng(0)
    speakers, lines = [], []
    for name, rows in members_of(pair.speaker for pair in pairs).items():
        members, yes = [pairs[i] for i in rows], score[rows] >= threshold
        line = Speaker(
            name,
            len(rows),
            word_accuracy=100.0 - min(100.0, 100.0 * float(edits[rows].sum()) / float(words[rows].sum())),
            human=100.0 * float(preserved_of(members).mean()),
            latte=100.0 * float(yes.mean()),
            latte_mean=100.0 * float(score[rows].mean()),
        )
        about = {field: next(filter(None, (getattr(pair, field) for pair in members)), "") for field in IMPAIRMENT}
        groups = members_of(normalize(pair.reference) for pair in members).values()
        sums, counts = np.array([yes[of].sum() for of in groups]), np.array([len(of) for of in groups])
        drawn = rng.integers(len(groups), size=(DRAWS, len(groups)))  # a bootstrap over sentences
        interval = np.quantile(100.0 * sums[drawn].sum(1) / counts[drawn].sum(1), [0.025, 0.975])
        figures = {"latte_interval": tuple(interval.tolist()), "decisions": line.decisions()}
        speakers.append({**line._asdict(), **about, **figures})
        lines.append(line)
    agreement = {name: of._asdict() for name, of in agreements(lines).items()}
    return {"bars": BARS, "speakers": speakers, "agreement": agreement}


def agreements(lines: Sequence[Speaker]) -> dict[str, Agreement]:
    """Return figure (`latte`, `word_accuracy`) -> its agreement with human ratings; {} without speakers."""
    human = np.array([line.human for line in lines])
    by_figure = {}
    for name in ("latte", "word_accuracy") if lines else ():
        figures = np.array([getattr(line, name) for line in lines])
        pearson = spearman = None
        if len(lines) >= 3 and figures.std() > 0 and human.std() > 0:
            pearson, spearman = (float(of(figures, human).statistic) for of in (stats.pearsonr, stats.spearmanr))
        alike = int(((figures >= BARS[name]) == (human >= BARS["human"])).sum())
        by_figure[name] = Agreement(pearson, spearman, float(np.abs(figures - human).mean()), alike, len(lines))
    return by_figure


def decided(figures: Mapping[str, float]) -> dict[str, bool]:
    """Return `word_accuracy`, `latte` -> whether it reaches its bar, from `wer` and `lattescore` in percent."""
    reached = {}
    if "wer" in figures:
        reached["word_accuracy"] = 100.0 - min(100.0, figures["wer"]) >= BARS["word_accuracy"]
    if "lattescore" in figures:
        reached["latte"] = figures["lattescore"] >= BARS["latte"]
    return reached


def speakers_markdown(table: Mapping[str, Any]) -> list[str]:
    """Return a `speakers_table` in Markdown, by word accuracy; a star marks figures that reach their bar."""
    bars, shown = table["bars"], [name for name in IMPAIRMENT if any(line.get(name) for line in table["speakers"])]
    rows = []
    for line in sorted(table["speakers"], key=lambda line: line["word_accuracy"]):
        figures = [f"{line[name]:.1f}{'*' if line[name] >= bars[name] else ''}" for name in bars]
        low, high = line["latte_interval"]
        rows.append([line["name"], *map(line.get, shown), str(line["n"]), *figures, f"{low:.1f} to {high:.1f}"])
    lines = table_lines(["speaker", *shown, "n", "WordACC", "human %", "LATTEScore", "95 %"], rows)
    enough = f"at least {bars['word_accuracy']:g} (WordACC) or {bars['human']:g} (human %, LATTEScore)"
    lines += ["", f"*: good enough, {enough}."]
    for name, title in (("latte", "LATTEScore"), ("word_accuracy", "WordACC")):
        if of := table["agreement"].get(name):
            lines.append(
                f"{title} and human ratings: Pearson {three_digits(of['pearson'])}, Spearman "
                f"{three_digits(of['spearman'])}, mean gap {of['mean_gap']:.1f} points, {of['same_decisions']} of "
                f"{of['speakers']} decisions alike."
            )
    return lines


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def three_digits(value: float | None) -> str:
    """Format a number with three decimals; a dash for None."""
    return "–" if value is None else f"{value:.3f}"
