"""Content and the verdict on it: one value with qualifiers, from which text, color and exit status are made."""

import dataclasses
import enum
import functools
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist

import numpy as np

from eeg2text_jax.instrument.auditing.align import Condition
from eeg2text_jax.instrument.auditing.table import Cells

# Content from tables of scores `[sentence, reference]` of EEG minus control, or of EEG alone, within strata.
# docs/method.md has the formulas.

ALPHA, POWER = 0.05, 0.9
Z_ALPHA, Z_POWER, Z_95 = (NormalDist().inv_cdf(q) for q in (1 - ALPHA, POWER, 0.975))
PAIRINGS = 10_000  # random pairings behind a p
MOST_DRAWN = 1000  # more sentences need no draws: their sum is normal
NOTHING = 1e-9  # a smaller spread, in points, is rounding error
STRONGEST = 0.02  # share of the sentences left out to see whether few carry the effect


class Strata:
    """The judged sentences of each stratum, and random pairings within the strata (the same for all tables)."""

    def __init__(self, members: Sequence[np.ndarray]) -> None:
        self.members = list(members)
        self.sentences = np.concatenate(self.members) if self.members else np.zeros(0, int)  # `[S']`

    def __len__(self) -> int:
        return len(self.sentences)

    @functools.cached_property
    def pairings(self) -> list[np.ndarray]:
        """For each stratum the references in each pairing, `[PAIRINGS, n]`."""
        rng = np.random.default_rng(0)
        return [rng.random((PAIRINGS, len(m)), np.float32).argsort(1) for m in self.members]


@dataclasses.dataclass(frozen=True)
class Contrast:
    """The content of EEG, minus the content of the control if there is one, in points of the endpoint."""

    control: str  # "" for EEG alone
    scores: tuple[float, ...]  # of EEG and control: mean score against the own reference
    nulls: tuple[float, ...]  # against the others of the stratum
    effect: float
    p: float  # one-sided: share of pairings with at least this effect
    p_less: float  # the same for less content
    p_seeds: float | None  # one-sided t test over three or more training seeds
    se: float  # standard error of the effect over sentences (and seeds)
    sd: float  # standard deviation of a random pairing's effect
    mde: float  # minimum detectable effect of this comparison alone
    seed_effects: tuple[float, ...]
    content: np.ndarray  # of each of `Strata.sentences`; its mean is `effect`
    centred: tuple[np.ndarray, ...]  # blocks without the effect, for covariances

    def interval(self, z: float = Z_ALPHA) -> tuple[float, float]:
        """Return the two-sided interval of 90 %, or with `Z_95` of 95 %: normal, with the first term of Student's t."""
        reach = z * (1 + (z**2 + 1) / (4 * max(len(self.content) - 1, 1))) * self.se
        return self.effect - reach, self.effect + reach

    @property
    def decisive_p(self) -> float:
        return self.p if self.p_seeds is None else max(self.p, self.p_seeds)

    @property
    def above(self) -> bool:
        """Whether more content is claimed: p is at most 5 %, and the 90 % interval above 0."""
        return self.decisive_p <= ALPHA and self.interval()[0] > 0

    @property
    def below(self) -> bool:
        p_less = self.p_less if self.p_seeds is None else max(self.p_less, 1 - self.p_seeds)
        return p_less <= ALPHA and self.interval()[1] < 0

    @property
    def reach(self) -> float:
        """The smallest margin of equivalence."""
        return max(map(abs, self.interval()))

    def equivalence_p(self, margin: float) -> float:
        """Return the larger p of two t tests that the effect is inside -margin and +margin."""
        from scipy import stats  # slow to import

        return float(stats.t.sf((margin - abs(self.effect)) / max(self.se, NOTHING), len(self.content) - 1))

    @property
    def varies(self) -> bool:
        """Whether other references would change the score."""
        return self.sd > NOTHING


def centred(block: np.ndarray) -> np.ndarray:
    """Return `n / (n - 1)` times a block `[n, n]` without its row and column means: what a pairing adds up."""
    n = len(block)
    return n / (n - 1) * (block - block.mean(1, keepdims=True) - block.mean(0) + block.mean())


def contrast(
    strata: Strata,
    eeg: Cells,
    control: Cells | None = None,
    *,
    name: str = "",
    seeds: np.ndarray | None = None,
    seed_noise: float = 0.0,
    growth: float = 0.0,
) -> Contrast:
    """Compare the tables of EEG and of the control `name`, or EEG with its own null.

    Args:
      seeds: content by training seed, EEG minus control, `[G]`; fewer than three do not count.
      seed_noise: variance of these that comes from the sentences, which is in the variance over sentences already.
      growth: growth of the variance of the effect with each point of the effect, see `variance_growth`.
    """
    tables = [eeg] if control is None else [eeg, control]
    blocks = [b - c for b, c in zip(eeg.blocks, control.blocks, strict=True)] if control else list(eeg.blocks)
    parts, size = [centred(block) for block in blocks], len(strata)
    content = np.concatenate([np.diag(part) for part in parts])
    effect = float(content.mean())
    factors = np.concatenate([np.full(n, n / (n - 1)) for n in map(len, parts)])
    variance = float((factors * (content - effect) ** 2).sum()) / (size - 1) / size
    plain = tuple(centred(block - effect * np.eye(len(block))) for block in blocks)
    sd, sd_alone = (float(np.sqrt(sum((p**2).sum() / (len(p) - 1) for p in one))) / size for one in (parts, plain))
    mde = _solve(np.array([[sd_alone**2]]), growth)
    effects, p_seeds = (), None
    if seeds is not None and len(seeds) >= 3:
        effects, p_seeds = tuple(seeds.tolist()), seed_p(seeds)
        variance += max(float(np.var(seeds, ddof=1)) - seed_noise, 0.0) / len(seeds)
        mde = max(mde, seed_mde(seeds))
    p, p_less = _pairing_p(strata, parts, sd)
    diagonals = [np.concatenate([np.diag(b) for b in table.blocks]) for table in tables]
    rest = [np.concatenate([(b.sum(1) - np.diag(b)) / (len(b) - 1) for b in table.blocks]) for table in tables]
    return Contrast(
        control=name,
        scores=tuple(float(values.mean()) for values in diagonals),
        nulls=tuple(float(values.mean()) for values in rest),
        effect=effect,
        p=p,
        p_less=p_less,
        p_seeds=p_seeds,
        se=float(np.sqrt(variance)),
        sd=sd,
        mde=mde,
        seed_effects=effects,
        content=content,
        centred=plain,
    )


def _pairing_p(strata: Strata, parts: Sequence[np.ndarray], sd: float) -> tuple[float, float]:
    """Return p for more and for less content: (1 + pairings at least as extreme) / (1 + pairings)."""
    observed = sum(float(np.trace(part)) for part in parts)
    if sd <= NOTHING:
        return 1.0, 1.0
    if len(strata) > MOST_DRAWN:
        z = NormalDist().cdf(observed / (sd * len(strata)))
        return 1 - z, z
    drawn = np.zeros(PAIRINGS)
    for part, pairing in zip(parts, strata.pairings, strict=True):
        drawn += part[np.arange(len(part)), pairing].sum(1)
    slack = 1e-9 * max(1.0, abs(observed))
    more, less = (drawn >= observed - slack).sum(), (drawn <= observed + slack).sum()
    return float(1 + more) / (1 + PAIRINGS), float(1 + less) / (1 + PAIRINGS)


def variance_growth(eeg: Condition, n_words: np.ndarray, judged: np.ndarray, perfect: float) -> float:
    """Return by how much the variance of the effect grows with each point of content that is spread.

    A right word of sentence s adds `perfect / n_words[s]` points to one of its different predictions, so content is a
    binomial count, whose variance is its mean times this unit. `perfect`: the points of a prediction that is its
    reference; `judged`: the sentences that are judged; `n_words` is `[S]`.
    """
    pairs = {(s, row.prediction) for s, row in zip(eeg.sentence.tolist(), eeg.rows, strict=True)}
    different = np.bincount([s for s, _ in pairs], minlength=len(n_words))
    return float(np.mean(perfect / np.maximum(n_words[judged], 1) / np.maximum(different[judged], 1))) / len(judged)


def verdict_mde(contrasts: Sequence[Contrast], growth: float) -> float:
    """Return the minimum detectable effect: the d that all `contrasts` find together with power 90 %.

    Effects are normal around d, with the covariance of random pairings plus the growth at d.
    """

    def of(a: Contrast, b: Contrast) -> float:
        return sum(float((x * y).sum()) / (len(x) - 1) for x, y in zip(a.centred, b.centred, strict=True))

    covariance = np.array([[of(a, b) for b in contrasts] for a in contrasts])
    return max(_solve(covariance / len(contrasts[0].content) ** 2, growth), *(c.mde for c in contrasts))


def _solve(covariance: np.ndarray, growth: float) -> float:
    """Return the least d around which normal effects all exceed their critical values with power `POWER`."""
    if not covariance.any():
        return 0.0
    count = len(covariance)
    draws = np.random.default_rng(0).standard_normal((20_000, count)) if count > 1 else None
    least = 0.0
    for _ in range(50):
        whole = covariance + growth * least
        critical = Z_ALPHA * np.sqrt(np.diag(whole))
        if draws is None:
            new = critical[0] + Z_POWER * np.sqrt(whole[0, 0])
        else:
            values, vectors = np.linalg.eigh(whole)
            effects = draws @ (vectors * np.sqrt(np.maximum(values, 0))).T
            new = float(np.quantile((critical + effects).max(1), POWER))
        if abs(new - least) < 1e-6 * new:
            break
        least = float(new)
    return least


def seed_noise(content: np.ndarray) -> float:
    """Return the variance of a seed's effect that comes from its sentences, from content `[G, S]`."""
    seeds, sentences = content.shape
    means = np.nanmean(content, 1, keepdims=True)
    rest = content - np.nanmean(content, 0) - means + np.nanmean(content)
    return float(np.nansum(rest**2)) / ((seeds - 1) * (sentences - 1)) / sentences


def seed_p(effects: np.ndarray) -> float:
    """Return the one-sided p of a t test that the mean effect of three or more seeds is above 0."""
    from scipy import stats  # slow to import

    spread = np.std(effects, ddof=1)
    if spread == 0:
        return 0.0 if np.mean(effects) > 0 else 1.0
    return float(stats.t.sf(np.mean(effects) / (spread / np.sqrt(len(effects))), len(effects) - 1))


def seed_mde(effects: np.ndarray) -> float:
    """Return the least mean effect of seeds with this spread that `seed_p` finds with power `POWER`."""
    from scipy import optimize, stats  # slow to import

    n = len(effects)
    critical = stats.t.ppf(1 - ALPHA, n - 1)
    shift = optimize.brentq(lambda nc: stats.nct.sf(critical, n - 1, nc) - POWER, 0, 100)
    return float(shift * np.std(effects, ddof=1) / np.sqrt(n))


Side = tuple[Condition, Cells]  # a condition with its table


def content_from(strata: Strata, sides: Sequence[Side], masks: Sequence[np.ndarray]) -> np.ndarray:
    """Return the content of each sentence, EEG's minus the control's if there is one, `[S']`; NaN: a side has no row.

    `masks`, bool `[N]`, says which rows of a side count.
    """
    parts, size = [], int(strata.sentences.max()) + 1
    for (side, cells), rows in zip(sides, masks, strict=True):
        of = side.sentence[rows]
        with np.errstate(invalid="ignore"):
            parts.append(np.bincount(of, cells.content[rows], size) / np.bincount(of, minlength=size))
    return (parts[0] - parts[1] if len(parts) > 1 else parts[0])[strata.sentences]


@dataclasses.dataclass(frozen=True)
class Carrier:
    """A reader, a group or a few sentences without which less than half of the effect is left."""

    name: str
    left: float  # the effect without it

    def __str__(self) -> str:
        return f"carried by {self.name}: without it {self.left:+.2f}"


def carriers(whole: Contrast, sides: Sequence[Side], strata: Strata, groups: Mapping[str, np.ndarray]) -> list[Carrier]:
    """Return which reader, group of `groups` (column -> labels `[S]`), or strongest 2 % carry an effect.

    Without them less than half is left, and its interval ends below the whole effect: it is the effect that goes, not
    the power. With the strongest sentences as many of the weakest are left out.
    """
    names = sorted({row.subject for side, _ in sides for row in side.rows} - {""})
    subjects, rests = [np.array(side.subjects) for side, _ in sides], []
    for name in names if len(names) > 1 else ():
        content = content_from(strata, sides, [readers != name for readers in subjects])
        rests.append((f"reader {name}", content[~np.isnan(content)]))
    for column, of in groups.items():
        labels = of[strata.sentences]
        rests += [(f"{column} {label}", _without(whole, labels == label)) for label in sorted(set(labels.tolist()))]
    rank, few = whole.content.argsort().argsort(), int(np.ceil(STRONGEST * len(strata)))
    rests.append((f"{few} of {len(strata)} sentences", _without(whole, (rank < few) | (rank >= len(strata) - few))))
    return [
        Carrier(name, float(rest.mean()))
        for name, rest in rests
        if len(rest) > 1
        and rest.mean() < whole.effect / 2
        and rest.mean() + Z_ALPHA * rest.std(ddof=1) / np.sqrt(len(rest)) < whole.effect
    ]


def _without(whole: Contrast, left_out: np.ndarray) -> np.ndarray:
    """Return the content of the other sentences if these, bool `[S']`, are in no stratum."""
    contents, start = [], 0
    for part in whole.centred:
        n = len(part)
        rest, start = ~left_out[start : start + n], start + n
        if rest.sum() > 1:
            block = part[np.ix_(rest, rest)] * (n - 1) / n + whole.effect * np.eye(rest.sum())
            contents.append(np.diag(centred(block)))
    return np.concatenate(contents) if contents else np.zeros(0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted by Holm's step-down method."""
    order = np.argsort(p_values)
    adjusted = np.maximum.accumulate(np.asarray(p_values)[order] * np.arange(len(order), 0, -1))
    result = np.empty(len(order))
    result[order] = np.minimum(adjusted, 1)
    return result.tolist()


RULE_OF_THREE = 3.0  # of S sentences that were not decoded, a share of up to 3 / S could have been, at 95 %


class Verdict(enum.StrEnum):
    """What a comparison says; the verdict of the audit is the first in this order, as EEG must beat all controls."""

    NOT_JUDGEABLE = "not judgeable"
    UNDERPOWERED = "underpowered"
    NO_CONTENT = "no content found above its null"
    CONTROL_BETTER = "control better"
    EQUIVALENT = "equivalent to control"
    UNPROVEN = "content of unproven origin"
    BELOW_MARGIN = "detectable but below the margin"
    USES_EEG = "uses EEG"
    CONTENT = "content above its null"  # only without a control

    def named(self, recording: str) -> str:
        return self.value.replace("EEG", recording)


class Level(enum.StrEnum):
    """What content is about."""

    SENTENCE = "of the sentence"
    KIND = "of its kind"
    UNKNOWN = "of the sentence or of its kind: not known"


class Time(enum.StrEnum):
    """Whether content goes beyond what the time of the recording tells."""

    BEYOND = "beyond its time"
    NOT_BEYOND = "not beyond its time"
    UNKNOWN = "beyond its time: not known"


FOUND = (Verdict.USES_EEG, Verdict.BELOW_MARGIN, Verdict.CONTENT, Verdict.UNPROVEN)  # verdicts on content that is there
# Statuses 1 and 2 say that Python crashed, and a user error.
EXIT_STATUS: dict[str, int] = {
    Verdict.USES_EEG: 0,
    Verdict.CONTENT: 0,
    Verdict.BELOW_MARGIN: 3,
    Verdict.UNDERPOWERED: 4,
    Verdict.EQUIVALENT: 5,
    Verdict.CONTROL_BETTER: 6,
    Verdict.NO_CONTENT: 7,
    Verdict.NOT_JUDGEABLE: 8,
    Verdict.UNPROVEN: 9,
    Time.NOT_BEYOND: 10,  # a claim of content with this qualifier
    Level.KIND: 11,  # likewise
}
PRECEDENCE = tuple(Verdict)


@dataclasses.dataclass(frozen=True)
class Ruling:
    """The verdict with its qualifiers; those of a claim are empty where nothing is claimed."""

    base: Verdict  # without qualifiers
    level: Level | None = None
    time: Time | None = None
    carriers: tuple[Carrier, ...] = ()
    recording: str = "EEG"  # name of the recordings in sentences
    unseen: float | None = None  # of *equivalent*: share of sentences that may be decoded whole and not in the test
    reason: str = ""  # of *not judgeable*

    @property
    def restrictions(self) -> list[str]:
        phrases = [str(q) for q in (self.time, self.level) if q in EXIT_STATUS]
        return phrases + [f"carried by {carrier.name}" for carrier in self.carriers]

    @property
    def value(self) -> str:
        """The verdict with its restrictions, for JSON and Python."""
        name = self.base.named(self.recording)
        return f"{name}: {', '.join(self.restrictions)}" if self.restrictions else name

    @property
    def headline(self) -> str:
        """The verdict with all qualifiers."""
        good = [str(q) for q in (self.time, self.level) if q in (Time.BEYOND, Level.SENTENCE)]
        said = [*good, *self.restrictions, *filter(None, [self.reason])]
        open_end = f" ({self.level})" if self.level is Level.UNKNOWN else ""
        if self.unseen is not None:
            open_end = f" (on average; decoding of up to {self.unseen:.1%} of all sentences could go unseen)"
        return self.base.named(self.recording) + (f": {', '.join(said)}" if said else "") + open_end

    @property
    def color(self) -> str:
        """The class of the report's box."""
        if self.base is Verdict.USES_EEG:
            return "open" if self.restrictions else "good"
        return "open" if self.base in (Verdict.CONTENT, Verdict.UNPROVEN, Verdict.UNDERPOWERED) else "bad"

    @property
    def exit_status(self) -> int:
        restricting = (EXIT_STATUS[q] for q in (self.time, self.level) if q in EXIT_STATUS)
        return EXIT_STATUS[self.base] or next(restricting, 0)

    def __str__(self) -> str:
        return self.headline


@dataclasses.dataclass(frozen=True)
class Comparison:
    """EEG against one control or its own null, with the verdict."""

    contrast: Contrast
    verdict: Verdict
    question: str = ""  # what a control that does not decide asks; "" if the control decides
    p_equivalence: float | None = None  # of *equivalent to control* alone

    @property
    def control(self) -> str:
        return self.contrast.control

    @property
    def p(self) -> tuple[float, str]:
        return p_of(self.verdict.value, self.contrast.decisive_p, self.contrast.p_less, self.p_equivalence)


def p_of(verdict: str, more: float, less: float, equivalence: float | None) -> tuple[float, str]:
    """Return the p that belongs to a verdict, and what it is for if not for more content."""
    if equivalence is not None:
        return equivalence, "equivalence"
    return (less, "less") if verdict == Verdict.CONTROL_BETTER.value else (more, "")


def judge(pair: Contrast, alone: Contrast, margin: float, *, identical: bool = False) -> Verdict:
    """Return the verdict of EEG against one control; `identical`: both have the same predictions.

    `alone`, EEG against its own null, needs more content, too: beside a control that fits other sentences better than
    its own, any predictions look better.
    """
    if identical:
        return Verdict.EQUIVALENT
    if not alone.varies:
        return Verdict.UNDERPOWERED
    inside = pair.reach < margin
    if pair.above:
        if not alone.above:
            return Verdict.NO_CONTENT if alone.interval()[1] < margin else Verdict.UNDERPOWERED
        return Verdict.BELOW_MARGIN if inside else Verdict.USES_EEG
    if inside:
        return Verdict.EQUIVALENT
    return Verdict.CONTROL_BETTER if pair.below else Verdict.UNDERPOWERED


def judge_alone(alone: Contrast, margin: float) -> Verdict:
    """Return the verdict of EEG without a control."""
    if not alone.above:
        return Verdict.NO_CONTENT
    return Verdict.BELOW_MARGIN if alone.reach < margin else Verdict.CONTENT


def deciding_one(comparisons: Iterable[Comparison]) -> Comparison:
    """Return the comparison that gives the overall verdict.

    Of several it is the one least in favor of EEG: the smallest difference or, if *equivalent*, the widest margin.
    """

    def rank(c: Comparison) -> tuple[int, float, str]:
        favor = -c.contrast.reach if c.verdict is Verdict.EQUIVALENT else c.contrast.effect
        return PRECEDENCE.index(c.verdict), favor, c.control

    return min((c for c in comparisons if not c.question), key=rank)


def in_words(main: Comparison, alone: Contrast, mde: float, margin: float, signal: str) -> str:
    """Return the verdict in a sentence for a lay reader; `signal` is EEG, fMRI or MEG."""
    against = f"with {main.control}" if main.control else "against other sentences"
    figures = figures_text(main.contrast, main.p_equivalence)
    better = f"better with {signal} than {against}" if main.control else "better than others"
    fit = f"fit their own sentences {better}: {figures}"
    power = f"90 % of such studies would find an effect of {mde:.2f}"
    match main.verdict:
        case Verdict.USES_EEG:
            return f"The outputs {fit}."
        case Verdict.BELOW_MARGIN if main.control:
            return f"The outputs {fit}, but by less than the margin of {margin:g}."
        case Verdict.CONTENT | Verdict.BELOW_MARGIN:
            return f"The outputs {fit}. Only a control could say why."
        case Verdict.UNPROVEN:
            return f"The outputs {fit}. A decoder that was given the true text with {signal} would look the same."
        case Verdict.NOT_JUDGEABLE:
            return "There is no verdict, and nothing follows from the figures."
        case Verdict.EQUIVALENT if not main.contrast.varies:
            return f"The outputs with {signal} and {against} are the same."
        case Verdict.EQUIVALENT:
            less = f"less than {margin:g} point{'' if margin == 1 else 's'}"
            return f"On average over the sentences, content differs by {less} from the control's: {figures}."
        case Verdict.CONTROL_BETTER:
            return f"The outputs fit their own sentences less well with {signal} than {against}: {figures}."
        case _ if not alone.varies:
            return "The outputs score the same against every sentence, so nothing can be found in them."
        case Verdict.UNDERPOWERED if main.control and main.contrast.above:
            return (
                f"Too few sentences to tell: the outputs fit their own sentences better than {main.control}'s do "
                f"({figures}), but were not found to fit them better than others ({figures_text(alone)}); {power}."
            )
        case Verdict.UNDERPOWERED:
            return f"Too few sentences to tell: with {signal} minus {against}, {figures}; {power}."
        case Verdict.NO_CONTENT if main.control and main.contrast.above:
            return (
                f"The outputs fit their own sentences no better than others ({figures_text(alone)}); the "
                f"difference from {main.control} says only that its outputs fit other sentences better than their own."
            )
        case _:
            return f"Nothing shows that the outputs fit their own sentences better than others: {figures}; {power}."


def figures_text(result: Contrast, p_equivalence: float | None = None) -> str:
    """Return effect, interval and p: of equivalence if given, else for more content, or less where less is claimed."""
    p, word = (result.decisive_p, "") if result.effect >= 0 or not result.below else (result.p_less, " for less")
    if p_equivalence is not None:
        p, word = p_equivalence, " for equivalence"
    return f"{result.effect:+.2f} points (90 % CI {interval_text(result.interval())}; {p_text(p)}{word})"


def p_cell(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def p_text(p: float) -> str:
    return f"p {'= ' if p >= 0.001 else ''}{p_cell(p)}"


def interval_text(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.2f} to {interval[1]:+.2f}"
