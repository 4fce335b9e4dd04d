"""AUC, curves, thresholds, kappa, logistic regression and the paper's Table 5, against what others compute."""

import types

import numpy as np
import pytest
from scipy import optimize, special
from tiny_judge import counted_auc

from eeg2text_jax.judge import baselines
from eeg2text_jax.judge.baselines import (
    BARS,
    STRENGTHS,
    Speaker,
    accuracy,
    agreements,
    auc,
    auc_interval,
    choose_threshold,
    curve,
    decided,
    error_rates,
    fit,
    fit_best,
    kappa,
    speakers_table,
)
from eeg2text_jax.judge.pairs import Pair, Parts, preserved_of
from eeg2text_jax.judge.session import by_slice


def scores_and_labels(n=80, seed=0):
    rng = np.random.default_rng(seed)
    return np.round(rng.random(n), 1), rng.random(n) < 0.4  # many ties


def test_auc_counts_pairs():
    scores, labels = scores_and_labels()
    assert auc(scores, labels) == counted_auc(scores, labels)
    assert auc(scores, np.zeros(len(scores), bool)) is None


def test_every_point_of_the_curve_is_a_threshold_that_was_counted():
    scores, labels = scores_and_labels(seed=2)
    found = curve(scores, labels)
    for at, precision, recall, wrong in zip(*found, strict=True):
        taken = scores >= at
        assert precision == pytest.approx(labels[taken].mean())
        assert recall == pytest.approx((taken & labels).sum() / labels.sum())
        assert wrong == pytest.approx((taken & ~labels).sum() / (~labels).sum())
    assert found.recall[-1] == 1


def test_the_lowest_threshold_that_is_precise_enough_is_taken():
    scores, labels = np.array([0.9, 0.8, 0.7, 0.6, 0.5]), np.array([True, True, False, True, True])
    assert choose_threshold(scores, labels, 0.8).value == 0.5
    assert choose_threshold(scores, labels, 0.9).value == 0.8
    none = choose_threshold(scores, ~labels, 0.9)
    assert none.value == 0.5
    assert "no score reaches" in none.how
    none = choose_threshold(np.array([0.9, 0.5, 0.4]), np.array([False, True, True]), 0.9)
    assert none[:3] == (0.5, 1 / 2, 1 / 2), "0.5 is accepted"


def test_accuracy_cuts_at_a_half():
    assert accuracy(np.array([0.5, 0.4]), np.array([True, True])) == 0.5


def test_kappa_of_a_table_by_hand():
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert kappa(first, second) == pytest.approx(0.4)
    assert kappa(["a", "a"], ["a", "a"]) is None


@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
def test_logistic_regression_is_at_the_optimum(strength):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(120, 4)) * [1, 10, 0.1, 1] + [0, 3, 0, 1]
    y = x[:, 0] + 0.1 * x[:, 1] + rng.normal(size=120) > 0.5
    found = fit(x, y, strength)
    z = (x - x.mean(0)) / x.std(0)

    def loss(w):
        return 0.5 * w[1:] @ w[1:] + strength * np.logaddexp(0, -(2 * y - 1.0) * (w[0] + z @ w[1:])).sum()

    def slope(w):
        residual = special.expit(w[0] + z @ w[1:]) - y
        return np.concatenate([[strength * residual.sum()], w[1:] + strength * residual @ z])

    best = optimize.minimize(loss, np.zeros(5), jac=slope, method="BFGS", options={"gtol": 1e-6})
    exact = optimize.root(slope, best.x, tol=1e-14)
    assert loss(exact.x) <= best.fun + 1e-9
    np.testing.assert_allclose([found.bias, *found.weights], exact.x, atol=1e-6)


def test_separable_classes_and_constant_features_do_no_harm():
    x = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0]] * 5)
    y = x[:, 0] > 1.5
    model = fit_best((x, y), (x, y))
    assert np.isfinite(model(x)).all()
    assert auc(model(x), y) == 1
    one_class = fit_best((x, y), (x, np.ones(len(y), bool)))  # no AUC on dev: the strongest penalty
    assert one_class.strength == min(STRENGTHS)


def test_error_rates_are_per_word_of_the_ground_truth():
    pair = Pair("one two three four", "One, two five four six seven eight nine ten", False)
    np.testing.assert_allclose(error_rates([pair])[0], [0, 5 / 4, 1 / 4])


# Table 5 of Tomanek et al. 2023: utterances, word accuracy, human %, LATTEScore %.
TABLE_5 = np.array([
    [72, 59.2, 48.6, 47.2], [94, 60.0, 35.1, 34.0], [152, 60.9, 48.7, 31.6], [61, 66.7, 44.3, 55.7],
    [262, 71.9, 46.9, 42.7], [50, 72.6, 74.0, 64.0], [179, 80.0, 52.0, 52.0], [76, 80.5, 57.9, 55.3],
    [41, 86.5, 68.3, 70.7], [44, 90.8, 77.3, 77.3],
])  # fmt: skip


def test_the_papers_table_of_speakers_recomputed():
    lines = [Speaker(f"S{i + 1}", int(n), w, h, s, s) for i, (n, w, h, s) in enumerate(TABLE_5)]
    found = agreements(lines)
    assert found["latte"].pearson == pytest.approx(0.866, abs=5e-4)
    assert found["word_accuracy"].pearson == pytest.approx(0.763, abs=5e-4)
    assert found["latte"].spearman == pytest.approx(0.721, abs=5e-4)
    assert found["word_accuracy"].spearman == pytest.approx(0.794, abs=5e-4)
    assert found["latte"].mean_gap == pytest.approx(5.0, abs=0.05)
    assert found["word_accuracy"].mean_gap == pytest.approx(17.9, abs=0.05)
    assert found["latte"].same_decisions == 8
    assert found["word_accuracy"].same_decisions == 6
    accepted = {name: [line.name for line in lines if line.decisions()[name]] for name in BARS}
    assert accepted == {"word_accuracy": ["S7", "S8", "S9", "S10"], "human": ["S6", "S10"], "latte": ["S9", "S10"]}


def test_speakers_by_hand():
    pairs = [
        Pair("a b c d", "a b c d", True, speaker="S1"),
        Pair("a b c e", "a b x e", True, speaker="S1"),
        Pair("a b c f", "g h i j", False, speaker="S1"),
        Pair("a b c d", "a b c", False, speaker="S2"),
    ]
    asked = []

    def scores(pairs):
        asked.extend(pairs)
        return np.array([0.9, 0.3, 0.7])

    found = speakers_table(pairs, scores, 0.9)  # which a score reaches
    assert asked == pairs[1:]  # what has no error is not asked
    first, second = found["speakers"]
    assert (first["n"], first["latte"], first["human"]) == (3, pytest.approx(200 / 3), pytest.approx(200 / 3))
    assert first["word_accuracy"] == pytest.approx(100 - 100 * 5 / 12)
    assert first["latte_mean"] == pytest.approx(100 * (1 + 0.9 + 0.3) / 3)
    assert (second["latte"], second["decisions"]["latte"]) == (0.0, False)


def test_a_slice_of_one_class_has_no_auc_and_says_why():
    pairs = [Pair("a b", "a", True, severity="mild"), Pair("c d", "c", False, severity="severe")] * 5
    rows = by_slice({"x": np.linspace(0, 1, 10)}, pairs)
    assert rows[0]["auc"]["x"]["value"] == auc(np.linspace(0, 1, 10), preserved_of(pairs))
    assert rows[1]["auc"]["x"]["value"] is None
    assert rows[1]["reason"] == "one class only"


def test_decisions_are_by_the_bar_of_each_figure():
    """80 % of the words, and 70 % of the pairs by people or by the judge; a figure at its bar is enough."""
    figures = ((85, 75, 60), (80, 70, 70), (79, 75, 75), (75, 60, 72), (60, 50, 40))  # words, human, judge
    lines = [Speaker(str(i), 10, *map(float, of), 0.0) for i, of in enumerate(figures)]
    found = agreements(lines)
    assert {name: of.same_decisions for name, of in found.items()} == {"latte": 3, "word_accuracy": 4}
    assert found["latte"].mean_gap == pytest.approx((15 + 0 + 0 + 12 + 10) / 5)
    assert decided({"wer": 20.0, "lattescore": 69.9}) == {"word_accuracy": True, "latte": False}
    assert decided({"wer": 20.1}) == decided({"wer": 300.0}) == {"word_accuracy": False}


@pytest.mark.parametrize("constant", ["latte", "human"])
def test_a_constant_has_no_correlation(constant):
    numbers = {"accuracy": range(4), "human": range(4), "latte": range(4)} | {constant: [50.0] * 4}
    lines = [Speaker(str(i), 10, *(float(numbers[name][i]) for name in numbers), 0.0) for i in range(4)]
    found = agreements(lines)["latte"]
    assert found.spearman is found.pearson is None
    assert found.speakers == 4


RIGHT = Pair("c d e f g h i j", "C d e f g h i j.", True, speaker="S")


@pytest.mark.parametrize(("pairs", "exact", "shown"), [
    ([RIGHT, Pair("a b", "a x", False, speaker="S")], "preserved", (2, 90, 50, 65)),  # one of ten words is wrong
    ([RIGHT, Pair("a b", "a x", False, speaker="S")], "exclude", (1, 50, 0, 30)),
    ([RIGHT, Pair("a b", "x y z w", False, speaker="S")], "preserved", (2, 60, 50, 65)),
    ([Pair("a b", "x y z w", False, speaker="S")], "preserved", (1, 0, 0, 30)),  # more errors than words
])  # fmt: skip
def test_word_accuracy_of_a_speaker_counts_words_and_not_utterances(pairs, exact, shown):
    table = speakers_table(pairs, lambda asked: np.array([0.3]), 0.5, exact=exact)
    (line,) = table["speakers"]
    assert [line[name] for name in ("n", "word_accuracy", "human", "latte_mean")] == pytest.approx(shown)
    assert table["agreement"]["word_accuracy"]["mean_gap"] == pytest.approx(abs(shown[1] - shown[2]))


def test_the_interval_of_a_speaker_counts_pairs_of_sentences_drawn_anew():
    """Nine of ten pairs are kept: ten sentences with nine pairs each, and ten with one that is lost."""
    kept = [Pair(f"kept {i}", f"said {i}", True, speaker="S") for i in range(10) for _ in range(9)]
    lost = [Pair(f"lost {i}", f"said {i}", False, speaker="S") for i in range(10)]
    score = np.repeat([0.9, 0.1], [90, 10])
    (line,) = speakers_table([*kept, *lost], lambda asked: score, 0.5)["speakers"]
    low, high = line["latte_interval"]
    assert 70 < low < 81, "of a hundred independent pairs it would be 84"
    assert 90 < high < 99


def test_copies_of_sentences_do_not_narrow_the_interval():
    """Six sentences, each with a hundred equal pairs, are six."""
    scores, labels = np.array([0.9, 0.2, 0.6, 0.4, 0.5, 0.3]), np.array([True, True, True, False, False, False])
    names = [str(i) for i in range(6)]
    few = auc_interval(scores, labels, names)
    many = auc_interval(np.repeat(scores, 100), np.repeat(labels, 100), np.repeat(names, 100).tolist())
    assert many == pytest.approx(few, abs=0.05)
    assert many[1] - many[0] > 0.5


class Words:
    """Of a pair: shares of shared words, as P, R and F or as one cosine."""

    def __init__(self, embedder=None, columns=(0, 1, 2)):
        self.columns = columns

    def statistics(self, predictions, references):
        sets = [(set(p.split()), set(r.split())) for p, r in zip(predictions, references, strict=True)]
        shared = [(len(p & r) / len(p), len(p & r) / len(r)) for p, r in sets]
        return np.array([[a, b, (a + b) / 2, 1.0] for a, b in shared])


def test_baselines_are_fitted_on_train_and_chosen_on_dev(monkeypatch):
    """Encoders of their own, with seven and eleven numbers; what each baseline looks at, by hand."""
    rng, loaded = np.random.default_rng(8), []

    def load(name, layer=None):
        loaded.append((name, layer))
        return types.SimpleNamespace(params={"a": np.zeros(11 if layer else 7)}, is_whole=True)

    monkeypatch.setattr(baselines, "load_encoder", load)
    monkeypatch.setattr(baselines, "TextEmbedder", lambda one: types.SimpleNamespace(loaded=one))
    monkeypatch.setattr(baselines, "BertScore", Words)
    monkeypatch.setattr(baselines, "Similarity", Words)

    def part(n):
        made = []
        for i in range(n):
            words = [f"w{k}" for k in rng.integers(30, size=rng.integers(4, 9))]
            kept = bool(rng.random() < 0.5)
            said = [w if rng.random() < (0.8 if kept else 0.6) else f"x{i}" for w in words][: rng.integers(2, 9)]
            made.append(Pair(" ".join(words), " ".join(said), kept))
        return made

    parts = Parts(part(60), part(40), part(30), 0, [], [])
    found = baselines.baseline_scores(("big", "own"), "folder", parts)
    assert loaded == [("big", None), ("folder", "last")]
    assert {name: size for name, (_, size) in found.items()} == {
        "meaning[lr-bertscore]": 7,
        "meaning[lr-similarity]": 11,
    }

    def features(pairs, name):
        rows = []
        for pair in pairs:
            values = Words().statistics([pair.hypothesis], [pair.reference])[0]
            lengths = len(pair.reference.split()), len(pair.hypothesis.split())
            rows.append([values[2], *error_rates([pair])[0]] if "bert" in name else [values[0], *lengths])
        return np.array(rows)

    for name, (scores, _) in found.items():
        (x, y), (dev, labels) = ((features(some, name), preserved_of(some)) for some in (parts.train, parts.dev))
        fits = [fit(x, y, strength) for strength in STRENGTHS]
        areas = [auc(one(dev), labels) for one in fits]
        np.testing.assert_allclose(scores, fits[int(np.argmax(areas))](features(parts.test, name)))
        assert np.argmax(areas) != np.argmax([auc(one(x), y) for one in fits])
