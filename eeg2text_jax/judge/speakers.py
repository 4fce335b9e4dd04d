"""The paper's Table 5: LATTEScore by speaker, the decisions that follow from it, and its agreement with people."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from eeg2text_jax.judge.baselines import error_rates
from eeg2text_jax.judge.pairs import Pair, is_exact, normalize
from eeg2text_jax.judge.thresholds import DRAWS, members_of

IMPAIRMENT = ("etiology", "severity")  # columns on a speaker's impairment, which may be empty
# A speech recognizer is good enough for a speaker whose figure (percent) reaches the bar: word accuracy, pairs rated as
# preserved by people, and LATTEScore (Tomanek et al. 2023, section 5).
BARS = {"word_accuracy": 80.0, "human": 70.0, "latte": 70.0}
Scores = Callable[[Sequence[Pair]], np.ndarray]  # pairs -> the judge's score of each pair, [N]


class Speaker(NamedTuple):
    """The figures of one speaker over `n` pairs, in percent."""

    name: str
    n: int
    word_accuracy: float
    human: float  # pairs rated as preserved by people
    latte: float  # pairs whose score reaches the threshold
    latte_mean: float  # mean score

    def decisions(self) -> dict[str, bool]:
        """Return figure -> whether it reaches its bar, so that a speech recognizer is good enough for this speaker."""
        return {name: getattr(self, name) >= bar for name, bar in BARS.items()}


class Agreement(NamedTuple):
    """The agreement of a figure with human ratings, over all speakers; correlations are None if undefined."""

    pearson: float | None
    spearman: float | None
    mean_gap: float  # mean absolute difference, in percentage points
    same_decisions: int  # number of speakers for whom the figure and people decide alike
    speakers: int  # number of all speakers


def speakers_table(
    pairs: Sequence[Pair], scores: Scores, threshold: float, *, exact: str = "preserved"
) -> dict[str, Any]:
    """Return each speaker's figures and decisions, and the agreement of these figures with human ratings.

    Args:
      pairs: pairs with a speaker, those without an error included.
      scores: the judge; it is asked about pairs with an error only, as a pair without one has the score 1.
      threshold: the lowest score that counts as preserved.
      exact: "exclude" leaves out pairs without an error; "preserved" counts them.
    """
    wrong = [i for i, pair in enumerate(pairs) if not is_exact(pair.reference, pair.hypothesis)]
    score = np.ones(len(pairs))
    if wrong:
        score[wrong] = scores([pairs[i] for i in wrong])
    if exact == "exclude":
        pairs, score = [pairs[i] for i in wrong], score[wrong]
    words = np.array([max(len(normalize(pair.reference).split()), 1) for pair in pairs], float)
    edits = error_rates(pairs).sum(1) * words
    rng = np.random.default_rng(0)
    speakers, lines = [], []
    for name, rows in members_of([pair.speaker for pair in pairs]).items():
        own, yes = [pairs[i] for i in rows], score[rows] >= threshold
        line = Speaker(
            name,
            len(rows),
            word_accuracy=100.0 - min(100.0, 100.0 * float(edits[rows].sum()) / float(words[rows].sum())),
            human=100.0 * float(np.mean([pair.preserved for pair in own])),
            latte=100.0 * float(yes.mean()),
            latte_mean=100.0 * float(score[rows].mean()),
        )
        about = {field: next(filter(None, (getattr(pair, field) for pair in own)), "") for field in IMPAIRMENT}
        interval = _interval(yes, [normalize(pair.reference) for pair in own], rng)
        speakers.append({**line._asdict(), **about, "latte_interval": interval, "decisions": line.decisions()})
        lines.append(line)
    agreement = {name: of._asdict() for name, of in agreements(lines).items()}
    return {"bars": BARS, "speakers": speakers, "agreement": agreement}


def _interval(yes: np.ndarray, sentences: Sequence[str], rng: np.random.Generator) -> tuple[float, float]:
    """Return the 95 % interval of the percentage of true entries in `yes` `[N]`, by a bootstrap over sentences."""
    groups = members_of(sentences).values()
    sums, counts = np.array([yes[rows].sum() for rows in groups]), np.array([len(rows) for rows in groups])
    drawn = rng.integers(len(groups), size=(DRAWS, len(groups)))
    low, high = np.quantile(100.0 * sums[drawn].sum(1) / counts[drawn].sum(1), [0.025, 0.975])
    return float(low), float(high)


def agreements(lines: Sequence[Speaker]) -> dict[str, Agreement]:
    """Return figure (`latte`, `word_accuracy`) -> its agreement with human ratings; empty without speakers."""
    human = np.array([line.human for line in lines])
    found = {}
    for name in ("latte", "word_accuracy") if lines else ():
        figures = np.array([getattr(line, name) for line in lines])
        pearson = spearman = None
        if len(lines) >= 3 and figures.std() > 0 and human.std() > 0:
            pearson, spearman = (float(of(figures, human).statistic) for of in (stats.pearsonr, stats.spearmanr))
        alike = int(((figures >= BARS[name]) == (human >= BARS["human"])).sum())
        found[name] = Agreement(pearson, spearman, float(np.abs(figures - human).mean()), alike, len(lines))
    return found


def decided(figures: Mapping[str, float]) -> dict[str, bool]:
    """Return `word_accuracy`, `latte` -> whether it reaches its bar, from `wer` and `lattescore` (percent) if given."""
    known = {}
    if "wer" in figures:
        known["word_accuracy"] = 100.0 - min(100.0, figures["wer"])
    if "lattescore" in figures:
        known["latte"] = figures["lattescore"]
    return {name: value >= BARS[name] for name, value in known.items()}


def speakers_markdown(table: Mapping[str, Any]) -> list[str]:
    """Return a `speakers_table` as lines of Markdown, by word accuracy; a star marks figures that reach their bar."""
    bars, shown = table["bars"], [name for name in IMPAIRMENT if any(line.get(name) for line in table["speakers"])]
    rows = []
    for line in sorted(table["speakers"], key=lambda line: line["word_accuracy"]):
        figures = [f"{line[name]:.1f}{'*' if line[name] >= bars[name] else ''}" for name in bars]
        low, high = line["latte_interval"]
        about = [line[name] for name in shown]
        rows.append([line["name"], *about, str(line["n"]), *figures, f"{low:.1f} to {high:.1f}"])
    lines = table_lines(["speaker", *shown, "n", "WordACC", "human %", "LATTEScore", "95 %"], rows)
    lines += [
        "",
        f"*: good enough, at least {bars['word_accuracy']:g} (WordACC) or {bars['human']:g} (human %, LATTEScore).",
    ]
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
    """Format a number with three digits behind the point; a dash for None."""
    return "–" if value is None else f"{value:.3f}"
