"""docs/method.md, computed again from the page alone: no code of the audit but its alignment of the rows."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import norm, t

from eeg2text_jax import audit
from eeg2text_jax.instrument.auditing.report import verdict_part
from eeg2text_jax.instrument.auditing.result import result_text
from eeg2text_jax.instrument.predictions.file import Prediction

NOUNS = ["river", "engine", "garden", "letter", "doctor", "window", "market", "forest", "bottle", "captain", "ladder"]
VERBS = ["found", "lost", "painted", "carried", "watched", "opened", "moved", "counted"]
Z = 1.6448536269514722


def rows_of(seed: int, words_right: float, sentences: int = 60, readers: int = 3) -> tuple[list, list, list]:
    rng = np.random.default_rng(seed)
    texts, rows = [], {"eeg": [], "noise": []}
    for s in range(sentences):
        size = int(rng.integers(5, 9))
        texts.append(" ".join([f"name{s}", *(str(rng.choice(NOUNS + VERBS)) for _ in range(size))]))
    for name, share in (("eeg", words_right), ("noise", 0.0)):
        for s, text in enumerate(texts):
            for u in range(readers):
                words = [
                    str(rng.choice(text.split())) if rng.random() < share else str(rng.choice(NOUNS + VERBS))
                    for _ in range(6)
                ]
                about = (f"s{s}-u{u}", f"u{u}", "reading", f"s{s}", 0, "eeg", name, 0, "free_running")
                rows[name].append(Prediction(*about, text, " ".join(words)))
    return texts, rows["eeg"], rows["noise"]


def by_hand(texts: list[str], eeg: list, noise: list) -> tuple[float, float, float, tuple[float, float], float]:
    """Return effect, p by the normal tail's z, sd, 90 % interval and detectable effect from docs/method.md."""
    texts = sorted(texts)
    among = Counter(w for t in texts for w in set(t.split()))
    weigh = lambda w: np.log((len(texts) + 1) / (among[w] + 1))  # noqa: E731

    def score(p: str, r: str) -> float:
        a, b = Counter(p.split()), Counter(r.split())
        shared, ours, theirs = (sum(weigh(w) * n for w, n in c.items()) for c in (a & b, a, b))
        return 50 * shared / ours + 50 * shared / theirs

    def table(rows: list) -> np.ndarray:
        made = [[r.prediction for r in rows if r.reference == t] for t in texts]
        return np.array([[np.mean([score(p, t) for p in own]) for t in texts] for own in made])

    d, lengths = table(eeg) - table(noise), np.array([len(t.split()) for t in texts])
    strata, group = [], []
    for length in sorted(set(lengths)):
        group += np.flatnonzero(lengths == length).tolist()
        if len(group) >= 3:
            strata, group = [*strata, group], []
    strata[-1] = strata[-1] + group
    c, variance, factors = contents(d, strata)
    size, effect = len(c), c.mean()
    alone = contents(d - effect * np.eye(len(d)), strata)[1] / size**2
    different = [len({r.prediction for r in eeg if r.reference == t}) for t in texts]
    g = np.mean([100 / n / k for n, k in zip(lengths, different, strict=True)]) / size
    z2 = (Z + 1.2815515655446004) ** 2
    mde = (z2 * g + np.sqrt(z2**2 * g**2 + 4 * z2 * alone)) / 2  # of d = (1.645 + 1.282) √(alone + g d)
    se = np.sqrt((factors * (c - effect) ** 2).sum() / (size - 1) / size)
    reach = Z * (1 + (Z**2 + 1) / (4 * (size - 1))) * se
    return effect, np.sqrt(variance) / size, se, (effect - reach, effect + reach), mde


def contents(d: np.ndarray, strata: list[list[int]]) -> tuple[np.ndarray, float, list[float]]:
    """Return each sentence's content, the sum of squares of the centred blocks, and n / (n - 1) of each sentence."""
    content, variance, factors = [], 0.0, []
    for members in strata:
        m, n = d[np.ix_(members, members)], len(members)
        c = n / (n - 1) * (m - m.mean(0) - m.mean(1)[:, None] + m.mean())
        content += np.diag(c).tolist()
        variance += (c**2).sum() / (n - 1)
        factors += [n / (n - 1)] * n
    return np.array(content), variance, factors


@pytest.mark.parametrize(("seed", "right"), [(1, 0.0), (2, 0.0), (3, 0.02), (4, 0.1), (5, 0.5)])
def test_every_figure_follows_from_the_page(seed: int, right: float) -> None:
    texts, eeg, noise = rows_of(seed, right)
    result = audit(eeg, {"noise": noise})
    found = result.comparisons[0].contrast
    effect, sd, se, interval, mde = by_hand(texts, eeg, noise)
    np.testing.assert_allclose(
        (found.effect, found.sd, found.se, *found.interval()), (effect, sd, se, *interval), rtol=1e-9, atol=1e-9
    )
    assert found.mde == pytest.approx(mde, rel=1e-4)
    assert result.mde > 1.001 * mde, "EEG must beat its own null, too"
    assert found.p == pytest.approx(norm.sf(effect / sd), abs=0.02)  # drawn pairings against their normal limit


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("share", [0.999, 1.001, 1.5])
def test_the_p_of_equivalence_is_printed_in_place_of_that_of_a_difference(share: float, turned: bool) -> None:
    texts, *both = rows_of(1, 0.0)
    eeg, noise = both[::-1] if turned else both
    effect, _, se, interval, _ = by_hand(texts, eeg, noise)
    assert (effect < 0) == turned
    margin = share * max(map(abs, interval))  # 1 is where the interval touches the margin
    result = audit(eeg, {"noise": noise}, margin=margin)
    p = t.sf((margin - abs(effect)) / se, len(texts) - 1)
    assert (p < 0.05) == (share > 1)
    (found,), shown = result.to_json()["comparisons"], result_text(result, verbose=True)
    if share < 1:
        assert (result.verdict.base.value, found["p_equivalence"]) == ("underpowered", None)
        assert "equivalence" not in shown
        return
    assert (result.verdict.base.value, found["p_equivalence"]) == ("equivalent to control", pytest.approx(p))
    for text in (shown, verdict_part(result)):
        assert f"{effect:+.2f} points" in text
        assert f"p = {p:.3f} for equivalence" in text
        assert f"{found['contrast']['p']:.3f}" not in text, "the p of the difference"
    assert f"{p:.3f} (equivalence)" in shown
    told = f"p of equivalence: how often figures are this close to 0 if the true ones are {margin:g} apart"
    assert f"<b>{p:.3f}</b><span>{told}</span>" in verdict_part(result)
    assert f"decoding of up to {3 / len(texts):.1%} of all sentences could go unseen" in result.verdict.headline
