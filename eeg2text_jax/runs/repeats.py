"""Are recordings of one sentence more alike than recordings of two sentences? A table of likeness, before any model."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.clock import order_likeness
from eeg2text_jax.instrument.auditing.strata import MIN_SENTENCES, divided, length_strata, reader_groups
from eeg2text_jax.instrument.auditing.table import Cells, strata_members
from eeg2text_jax.instrument.auditing.verdict import (
    ALPHA,
    POWER,
    Z_ALPHA,
    Z_POWER,
    Contrast,
    Strata,
    contrast,
    figures_text,
    p_text,
)

if TYPE_CHECKING:
    from eeg2text_jax.data.datafile import DataFile

# Cell (s, t) of the table is the correlation of the features of sentence s in one recording and sentence t in another,
# in points, averaged over pairs of recordings. Content, p, interval and minimum detectable effect are those of the
# audit: same sentence minus others of its stratum. Features are standardized within a recording, without the effect of
# a sentence's length. A stratum has sentences of equal length or, if sentences come in the same order in each
# recording, two that follow each other, so that slow drift cancels. Faster drift does not: nothing is claimed where
# likeness falls between distances of 1 and 3 places by so much that such drift could have made the content.

WITHIN, OVER = "within subjects", "over subjects"  # the two recordings are of one subject, or of two
MAPS = ("correlation", "linear")
POSITIONS = 8  # most positions to which a sentence is resampled
ORDERED = 0.1  # order likeness from which sentences are compared with those beside them
NEAR, FAR, FARTHEST = 1, 3, 12  # distances in places: two that are compared, the largest shown
BLOCK, FEWEST_BLOCKS = 12, 5  # places of a block, the unit of the test that likeness falls; its fewest blocks
# Ratio of minimum detectable effects with and without the test that likeness falls, which withholds a share of ALPHA of
# the claims by chance.
BESIDE = (Z_ALPHA + NormalDist().inv_cdf(POWER / (1 - ALPHA))) / (Z_ALPHA + Z_POWER)
# A drift of w radians a place makes the content 1 - cos w and the fall cos w - cos 3w: content is above FALLS times the
# fall only if cos w (1 + cos w) is below 1 / (4 FALLS), for periods of less than 4.2 places.
FALLS = 4
FOLDS, COMPONENTS, RIDGE = 5, 64, 1.0  # of the linear map between two recordings
MOST_LEFT_OUT = 5  # recordings that are named with the effect without them


@dataclasses.dataclass(frozen=True)
class Recorded:
    """Standardized features of n sentences in R recordings, D numbers each."""

    values: np.ndarray  # float32 [R, n, D], 0 for sentences that a recording lacks
    present: np.ndarray  # bool [R, n]
    length: np.ndarray  # [n], number of positions
    place: np.ndarray  # [n], mean place in the recordings
    subject: Sequence[str]  # [R]
    recording: Sequence[str]  # [R]


@dataclasses.dataclass(frozen=True)
class Repeats:
    """How alike recordings of a sentence are, in points of correlation."""

    scope: str  # WITHIN or OVER
    pairs: int  # pairs of recordings
    order: float  # mean rank correlation of places in two recordings
    beside: bool  # whether sentences are compared with those beside them
    contrast: Contrast
    curve: np.ndarray  # [FARTHEST + 1], mean likeness by distance in places; NaN: none
    p_fall: float  # one-sided p that likeness falls from NEAR to FAR; NaN: too few places
    fall: float  # upper end of a 90 % interval of that fall; NaN: too few places
    without: Mapping[str, float]  # recording -> effect without its pairs
    features: np.ndarray  # [D], content of each number, in points of its covariance
    top: Mapping[int, tuple[float, float, float]]  # k -> share among the k most alike: by templates, perfect, chance

    @property
    def claim(self) -> bool:
        """Whether recordings are shown to hold something of sentences."""
        beyond_drift = self.p_fall > ALPHA or self.contrast.interval()[0] > FALLS * self.fall
        return self.contrast.above and (beyond_drift or not self.beside)

    @property
    def text(self) -> str:
        """The answer in one sentence."""
        figures = figures_text(self.contrast)
        if self.claim:
            beyond = " beyond their places" if self.beside else ""
            return f"recordings of one sentence are more alike than those of others{beyond}: {figures}"
        if not self.contrast.above:
            return f"not shown: {figures}"
        why = "there are too few places to test whether what drifts is slow"
        if not np.isnan(self.p_fall):
            why = (
                f"likeness falls by up to {self.fall:.2f} points from {NEAR} to {FAR} places ({p_text(self.p_fall)}), "
                f"so that drift could make a content of up to {FALLS * self.fall:.2f}"
            )
        return f"nothing is claimed ({figures}): sentences come in the same order, and {why}"


def repeats(data: "DataFile", likeness: str = "correlation", positions: int = POSITIONS) -> list[Repeats]:
    """Compare recordings of the same sentences, within subjects and over subjects.

    Args:
      data: the samples, each with a recording.
      likeness: "correlation" of features, or "linear": of the second recording with a linear map of the first, fitted
        on other sentences.
      positions: largest number of positions to which sentences are resampled.

    Raises:
      UserError: no recording is known, or too few sentences occur in two recordings.

    Examples:
      Forty sentences, read on two days:

      >>> import numpy as np
      >>> from eeg2text_jax import data, read_datafile, repeats
      >>> rng = np.random.default_rng(0)
      >>> rows = [
      ...     {"features": rng.normal(size=(4, 6)), "sentence": f"text {i}", "recording": day, "order": i}
      ...     for day in "12"
      ...     for i in range(40)
      ... ]
      >>> [found.scope for found in repeats(read_datafile(data.write("twice.h5", rows)))]
      ['within subjects']
    """
    if likeness not in MAPS:
        raise UserError(f"--repeats={likeness}: expected one of {', '.join(MAPS)}.")
    if data.is_windows or data.clock is None or not data.clock.timed.any():
        what = "holds scans of stories" if data.is_windows else "does not say in which recording a sample is"
        raise UserError(f"{data.path}: {what}; --repeats needs EEG with a column of recordings, and onset or order.")
    groups, order = recorded(data, positions)
    comparisons = [compare(groups, scope, order, likeness) for scope in (WITHIN, OVER)]
    if not (answers := [answer for answer in comparisons if answer is not None]):
        raise UserError(
            f"{data.path}: fewer than {MIN_SENTENCES} sentences that can be compared occur in two recordings or more; "
            "--repeats needs sentences that were recorded again, by the same subject or by another one."
        )
    return answers


def recorded(data: "DataFile", positions: int) -> tuple[list[Recorded], float]:
    """Return the standardized features of sentences that the same recordings have, and the order likeness."""
    clock = data.clock
    text = np.unique([" ".join(s.split()).casefold() for s in data.sentence], return_inverse=True)[1]
    names, run = np.unique(clock.recording.astype(str), return_inverse=True)
    rows = np.flatnonzero(clock.timed)
    several = np.bincount(np.unique(np.stack([text[rows], run[rows]]), axis=1)[0], minlength=text.max() + 1) > 1
    rows = rows[several[text[rows]]]
    if not len(rows):
        return [], 0.0
    dense = np.unique(text[rows], return_inverse=True)[1]
    group = reader_groups(dense, run[rows])
    subject_of = {names[r]: str(data.subject[i]) for i, r in zip(rows, run[rows], strict=True)}
    width = int(min(positions, np.median(data.n_words[rows])))
    groups = []
    for g in range(group.max() + 1):
        members = rows[group[dense] == g]
        sentence = np.unique(text[members], return_inverse=True)[1]
        there, recording = np.unique(run[members], return_inverse=True)
        values = np.stack([resampled(data.words(i), width) for i in members.tolist()])
        groups.append(
            gathered(values, sentence, recording, data.n_words[members], clock.places["index"][members],
                     [subject_of[names[r]] for r in there], [str(names[r]) for r in there])
        )  # fmt: skip
    return groups, order_likeness(clock, text)


def resampled(words: np.ndarray, positions: int) -> np.ndarray:
    """Resample features `[W, F]` linearly to `[positions * F]`; one position is the mean."""
    if positions == 1:
        return words.mean(0)
    at = np.linspace(0, len(words) - 1, positions)
    low = np.minimum(at.astype(int), max(len(words) - 2, 0))
    share = (at - low)[:, None].astype(words.dtype)
    return (words[low] * (1 - share) + words[np.minimum(low + 1, len(words) - 1)] * share).ravel()


def gathered(
    values: np.ndarray, sentence: np.ndarray, recording: np.ndarray, length: np.ndarray, place: np.ndarray,
    subject: Sequence[str], names: Sequence[str],
) -> Recorded:  # fmt: skip
    """Standardize samples `[N, D]` within their recordings, and average the samples of a sentence in a recording."""
    values = values.astype(np.float32, copy=True)
    for r in range(recording.max() + 1):
        rows = np.flatnonzero(recording == r)
        centered = without_length(values[rows] - values[rows].mean(0), length[rows], place[rows])
        spread = centered.std(0)
        values[rows] = centered / np.where(spread > 1e-6 * np.abs(centered).max(initial=1e-30), spread, np.inf)
    shape = (recording.max() + 1, sentence.max() + 1)
    whole, count = np.zeros((*shape, values.shape[1]), np.float32), np.zeros(shape)
    np.add.at(whole, (recording, sentence), values)
    np.add.at(count, (recording, sentence), 1)
    whole /= np.maximum(count, 1)[..., None].astype(np.float32)
    each = np.bincount(sentence)
    means = [np.bincount(sentence, column) / each for column in (length, place)]
    return Recorded(whole, count > 0, np.rint(means[0]), means[1], subject, names)


def without_length(values: np.ndarray, length: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Subtract the effect of each length from the samples `[n, D]` of a recording.

    The effect is fitted to differences of samples up to `FAR` places apart. Means over samples of equal length would
    contain slow drift; an effect fitted to differences of neighbors alone would add a part of each sentence to those
    beside it.
    """
    strata = length_strata(np.zeros(len(length), int), length)
    member = (strata[:, None] == np.arange(strata.max() + 1)).astype(np.float32)  # [n, lengths]
    order = np.argsort(place, kind="stable")
    lags = range(1, FAR + 1)
    steps, changes = (np.concatenate([x[lag:] - x[:-lag] for lag in lags]) for x in (member[order], values[order]))
    return values - member @ (np.linalg.pinv(steps) @ changes)


def pairs_of(group: Recorded, scope: str) -> Iterator[tuple[int, int]]:
    """Yield pairs of recordings: (a, b) and not (b, a), so that a sentence's noise counts once in the table."""
    for a, b in itertools.combinations(range(len(group.recording)), 2):
        if (group.subject[a] == group.subject[b]) == (scope == WITHIN):
            yield a, b


def unit_vectors(values: np.ndarray) -> np.ndarray:
    """Return vectors `[n, D]` without their means, of norm 1: their products are correlations."""
    values = values - values.mean(1, keepdims=True) if values.shape[1] > 2 else values
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


def mapped(one: np.ndarray, other: np.ndarray, both: np.ndarray) -> np.ndarray:
    """Return a ridge regression of `other` on principal components of `one`, `[n, D]`, fitted on other folds."""
    rank = int(min(COMPONENTS, max(both.sum() // 2, 1), one.shape[1]))
    _, _, axes = np.linalg.svd(one[both], full_matrices=False)
    components, predicted = one @ axes[:rank].T, np.zeros_like(other)
    components /= np.maximum(components[both].std(0), 1e-12)
    for fold in np.array_split(np.arange(len(one)), FOLDS):
        fitted = both.copy()
        fitted[fold] = False
        x, y = components[fitted], other[fitted]
        gram = x.T @ x + RIDGE * len(x) * np.eye(rank, dtype=x.dtype)
        predicted[fold] = components[fold] @ np.linalg.solve(gram, x.T @ y)
    return predicted


def strata_of(group: Recorded, beside: bool) -> list[np.ndarray]:
    """Return the sentences of each stratum: of equal length, or two that follow each other."""
    if not beside:
        strata = length_strata(np.zeros(len(group.length), int), group.length)
        return strata_members(divided(strata, [str(k) for k in range(len(strata))]))
    order = np.argsort(group.place, kind="stable")
    return [part for part in np.array_split(order, max(len(order) // 2, 1)) if len(part) > 1]


def compare(groups: Sequence[Recorded], scope: str, order: float, likeness: str = "correlation") -> Repeats | None:
    """Compare the recordings of a scope; None for fewer than `MIN_SENTENCES` sentences."""
    beside, tables, members, effects, carried, start = order >= ORDERED, [], [], [], [], 0
    for group in groups:
        compared = _table(group, scope, likeness)
        if compared is None:
            continue
        table, group = compared
        strata = strata_of(group, beside)
        tables.append((table, group.place))
        members += [(start + part, table[np.ix_(part, part)]) for part in strata]
        effects += _pair_effects(group, scope, strata, likeness)
        carried.append(_by_feature(group, scope, strata))
        start += len(table)
    if sum(len(part) for part, _ in members) < MIN_SENTENCES:
        return None
    zeros, strata = np.zeros(0), Strata([part for part, _ in members])
    answer = contrast(strata, Cells(tuple(block for _, block in members), zeros, zeros))
    answer = dataclasses.replace(answer, mde=answer.mde * BESIDE) if beside else answer
    curve, p_fall, fall = _distances(tables)
    return Repeats(
        scope=scope,
        pairs=len({pair[:2] for pair in effects}),
        order=order,
        beside=beside,
        contrast=answer,
        curve=curve,
        p_fall=p_fall,
        fall=fall,
        without=_without(effects),
        features=np.average([content for content, _ in carried], axis=0, weights=[weight for _, weight in carried]),
        top=_top(groups, scope, answer),
    )


def _likeness(group: Recorded, a: int, b: int, likeness: str) -> np.ndarray:
    one, other = group.values[a], group.values[b]
    one = mapped(one, other, group.present[a] & group.present[b]) if likeness == "linear" else one
    return 100 * unit_vectors(one) @ unit_vectors(other).T


def _table(group: Recorded, scope: str, likeness: str) -> tuple[np.ndarray, Recorded] | None:
    """Return the table of likeness of sentences in two recordings, and the group of these alone."""
    total, count = np.zeros((2, *(group.present.shape[1],) * 2))
    for a, b in pairs_of(group, scope):
        there = np.outer(group.present[a], group.present[b])
        total += np.where(there, _likeness(group, a, b, likeness), 0)
        count += there
    shared = np.flatnonzero(np.diag(count) > 0)
    if len(shared) < 2:
        return None
    table = total[np.ix_(shared, shared)] / np.maximum(count[np.ix_(shared, shared)], 1)
    fewer = dataclasses.replace(group, values=group.values[:, shared], present=group.present[:, shared],
                                length=group.length[shared], place=group.place[shared])  # fmt: skip
    return table, fewer


def _shared(group: Recorded, scope: str, strata: Sequence[np.ndarray]) -> Iterator[tuple[int, int, list[np.ndarray]]]:
    """Yield each pair of recordings, and each stratum's sentences in both, two or more."""
    for a, b in pairs_of(group, scope):
        both = group.present[a] & group.present[b]
        yield a, b, [part for part in (part[both[part]] for part in strata) if len(part) > 1]


def _pair_effects(
    group: Recorded, scope: str, strata: Sequence[np.ndarray], likeness: str
) -> list[tuple[str, str, float, int]]:
    """Return names, effect and number of sentences of each pair of recordings."""
    effects = []
    for a, b, parts in _shared(group, scope, strata):
        table, content = _likeness(group, a, b, likeness), []
        for part in parts:
            block = table[np.ix_(part, part)]
            content += (np.diag(block) - (block.sum(1) - np.diag(block)) / (len(part) - 1)).tolist()
        if content:
            effects.append((group.recording[a], group.recording[b], float(np.mean(content)), len(content)))
    return effects


def _without(effects: Sequence[tuple[str, str, float, int]]) -> dict[str, float]:
    """Return the effect without each of three or more recordings, the smallest first."""
    names = sorted({name for a, b, _, _ in effects for name in (a, b)})
    by_recording = {}
    for name in names if len(names) > 2 else ():
        if rest := [(effect, n) for a, b, effect, n in effects if name not in (a, b)]:
            by_recording[name] = float(np.average([e for e, _ in rest], weights=[n for _, n in rest]))
    return dict(sorted(by_recording.items(), key=lambda item: item[1]))


def _by_feature(group: Recorded, scope: str, strata: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
    """Return each number's content, 100 times its covariance within strata, `[D]`, and a weight."""
    total, weight = np.zeros(group.values.shape[2]), 0
    for a, b, parts in _shared(group, scope, strata):
        for part in parts:
            one, other = (group.values[r][part] - group.values[r][part].mean(0) for r in (a, b))
            total += 100 * (one * other).sum(0) * len(part) / (len(part) - 1)
            weight += len(part)
    return total / max(weight, 1), weight


def _distances(tables: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, float, float]:
    """Return mean likeness by distance, p that it falls from `NEAR` to `FAR`, and by how much at most."""
    sums, counts, falls = np.zeros(FARTHEST + 1), np.zeros(FARTHEST + 1), []
    for table, place in tables:
        order = np.argsort(place, kind="stable")
        table = table[np.ix_(order, order)]
        lines = {d: (np.diag(table, d) + np.diag(table, -d)) / 2 for d in range(min(FARTHEST + 1, len(table)))}
        for d, line in lines.items():
            sums[d], counts[d] = sums[d] + line.sum(), counts[d] + len(line)
        if FAR in lines:
            n = len(table) - FAR
            near = (lines[NEAR][:n] + lines[NEAR][FAR - NEAR :][:n]) / 2  # both have a sentence of the far pair
            fall = near - lines[FAR]
            falls += [part.mean() for part in np.array_split(fall, max(n // BLOCK, 1)) if n >= BLOCK]
    curve = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    if len(falls) < FEWEST_BLOCKS:
        return curve, float("nan"), float("nan")
    from scipy import stats  # slow to import

    test = stats.ttest_1samp(falls, 0)
    return curve, float(stats.t.sf(test.statistic, test.df)), float(test.confidence_interval(0.9).high)


def _top(groups: Sequence[Recorded], scope: str, answer: Contrast) -> dict[int, tuple[float, float, float]]:
    """Return k -> how often a sentence is among the k most alike: by means of other recordings, perfectly, by chance.

    *Perfectly*: templates without noise. The likeness of a recording and the template of its sentence is then the root
    of the effect, normal with the spread of likeness between sentences.
    """
    ranks, sizes, spreads = [], [], []
    for group in groups:
        for r in range(len(group.recording)):
            others = [b if a == r else a for a, b in pairs_of(group, scope) if r in (a, b)]
            count = group.present[others].sum(0)
            candidates, tested = np.flatnonzero(count > 0), np.flatnonzero(group.present[r] & (count > 0))
            if len(candidates) < 2 or not len(tested):
                continue
            templates = unit_vectors(group.values[others][:, candidates].sum(0) / count[candidates, None])
            alike = unit_vectors(group.values[r][tested]) @ templates.T
            right = alike[np.arange(len(tested)), np.searchsorted(candidates, tested)]
            ranks += (1 + (alike > right[:, None]).sum(1)).tolist()
            sizes += [len(candidates)] * len(tested)
            spreads.append(float(np.std(alike)))
    ranks, n = np.array(ranks), float(np.mean(sizes))
    strength = np.sqrt(max(answer.effect, 0) / 100) / max(float(np.mean(spreads)), 1e-9)
    return {k: (float(np.mean(ranks <= k)), _among(k, round(n), strength), min(k / n, 1.0)) for k in (1, 5)}


def _among(k: int, n: int, strength: float) -> float:
    """Return the chance that a normal value of mean `strength` is among the k largest of n, the others of mean 0."""
    from scipy import stats  # slow to import

    z = np.linspace(-8, 8, 2001)
    beaten = stats.binom.cdf(min(k, n) - 1, n - 1, 1 - stats.norm.cdf(z + strength))
    return float(np.sum(beaten * stats.norm.pdf(z)) * (z[1] - z[0]))


def repeat_lines(answers: Sequence[Repeats]) -> list[str]:
    """Return the answers as lines of text."""
    lines = []
    for answer in answers:
        c, (low, high) = answer.contrast, answer.contrast.interval()
        against = "the sentence beside it" if answer.beside else "others of equal length"
        so = ", so each sentence is compared with the one beside it" if answer.beside else ""
        shown = ", ".join(f"{d}: {v:+.2f}" for d, v in enumerate(answer.curve) if d in (0, 1, 2, 3, 6, 12) and v == v)
        is_tested = not np.isnan(answer.p_fall)
        by = f"at most {answer.fall:.2f}, {p_text(answer.p_fall)}" if is_tested else "not tested (too few places)"
        lines += [
            f"repeats {answer.scope}: {answer.text}",
            f"  {len(c.content)} sentences, {answer.pairs} pairs of recordings; same sentence {c.scores[0]:+.2f}, "
            f"{against} {c.nulls[0]:+.2f}, content {c.effect:+.2f} ({low:+.2f} to {high:+.2f}), {p_text(c.p)}, "
            f"minimum detectable effect {c.mde:.2f}, in points of correlation",
            f"  order of the recordings: rank correlation {answer.order:.2f}{so}",
            f"  likeness by distance in places {shown}; it falls from {NEAR} to {FAR}: {by}",
        ]
        if answer.without:
            named = ", ".join(f"{name} {left:+.2f}" for name, left in list(answer.without.items())[:MOST_LEFT_OUT])
            lines.append(f"  content without one recording, from the smallest on: {named}")
        tops = "; ".join(
            f"top-{k} {by:.1%} by means of other recordings, {best:.1%} by perfect templates (chance {chance:.1%})"
            for k, (by, best, chance) in answer.top.items()
        )
        lines.append(f"  {tops}. This limits decoders that compare these features with templates, and no others")
    return lines


def repeats_figure(answers: Sequence[Repeats], n_features: int, bands: Sequence[str], channels: Sequence[str]) -> Any:
    """Return a figure: likeness by distance, and content by band and channel, a row for each scope."""
    from matplotlib.figure import Figure  # slow to import, and seldom needed

    figure = Figure(figsize=(11, 3.2 * len(answers)), layout="constrained")
    for (curve, carried), answer in zip(figure.subplots(len(answers), 2, squeeze=False), answers, strict=True):
        curve.plot(range(FARTHEST + 1), answer.curve, "o-")
        curve.set(title=f"{answer.scope}: likeness by distance", xlabel="distance in places; 0: the same sentence",
                  ylabel="points of correlation")  # fmt: skip
        values = answer.features.reshape(-1, n_features).mean(0)
        is_grid = len(bands) * len(channels) == n_features
        image = values.reshape(len(bands), -1) if is_grid else values[None]
        most = float(np.abs(image).max()) or 1.0
        shown = carried.imshow(image, aspect="auto", interpolation="nearest", cmap="RdBu_r", vmin=-most, vmax=most)
        carried.set(title="content by band and channel" if is_grid else "content by feature")
        if is_grid:
            carried.set_yticks(range(len(bands)), [f"{band} Hz" for band in bands])
            every = -(-len(channels) // 64)  # more than 64 names would overlap
            carried.set_xticks(range(0, len(channels), every), channels[::every], rotation=90, fontsize=6)
        figure.colorbar(shown, label="points")
    return figure
