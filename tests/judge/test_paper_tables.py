"""A second test file, whose references train nothing, and the paper's tables of speakers and labels."""

import dataclasses
import json

import numpy as np
import pytest
from matplotlib.figure import Figure
from tiny_judge import counted_auc, tiny_config

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge.baselines import speakers_markdown, speakers_table
from eeg2text_jax.judge.pairs import Pair, Parts, data_tables, divide, normalize, preserved_of, write_pairs
from eeg2text_jax.judge.session import (
    by_slice,
    caption,
    hold_out,
    judge,
    raters,
    second_results,
    to_markdown,
    write_curves,
)
from eeg2text_jax.judge.toy import toy_pairs

PLAIN = {"source": "x", "caption": "y", "slices": [{"auc": {}, "slice": "all", "n": 1, "preserved": 1}]}


def test_tables_1_and_3_by_hand():
    pairs = [
        Pair("a b c", "a b d", False, "2", speaker="S1", severity="Severe"),
        Pair("e f g", "e f", True, "0", speaker="S1", severity="Severe"),
        Pair("h i j", "h j", True, "1", speaker="S2", severity="Mild"),
        Pair("k l m", "k n", False, "2", speaker="S3", severity="Mild"),
    ]
    more = [Pair("o p", "o", True, "", severity="Mild"), Pair("q r", "q", True, "", speaker="S4")]
    healthy = [Pair("s t", "s", True, "", severity="Healthy", speaker="S5")]
    found = data_tables([*pairs, *more, *more[:1], *healthy])
    assert list(found["speakers_by_severity"].items()) == [("Mild", 2), ("Severe", 1), ("Healthy", 1)]
    assert [of["percent"] for of in found["labels"].values()] == [12.5, 12.5, 25.0], "of all pairs"
    found = data_tables(pairs)
    assert list(found["speakers_by_severity"].items()) == [("Mild", 2), ("Severe", 1)]
    assert [(name, of["pairs"], of["percent"], of["preserved"]) for name, of in found["labels"].items()] == [
        ("0", 1, 25.0, True), ("1", 1, 25.0, True), ("2", 2, 50.0, False),
    ]  # fmt: skip
    assert found["labels"]["2"]["example"] == ["a b c", "a b d"]
    text = to_markdown({**PLAIN, **found})
    assert "| severity | Mild | Severe |" in text
    assert "| speakers | 2 | 1 |" in text
    assert "| 2 | no | 2 | 50 | a b c | a b d |" in text


def test_table_2_has_samples_and_share_preserved_by_part():
    counts = divide(toy_pairs(300, 0), (0.6, 0.2, 0.2), 0, "pairs").counts()
    text = to_markdown({**PLAIN, "counts": counts})
    assert "| split | train | dev | test |" in text
    assert f"| examples | {counts['train']['pairs']} | {counts['dev']['pairs']} | {counts['test']['pairs']} |" in text
    share = [f"{100 * part['preserved'] / part['pairs']:.1f}%" for part in counts.values()]
    assert f"| meaning preserved | {' | '.join(share)} |" in text


def test_table_5_names_etiology_and_severity():
    pairs = [
        Pair("a b c", "a b c", True, "yes", speaker="S1", etiology="ALS"),
        Pair("a b c", "a d", False, "no", speaker="S1", severity="Severe"),
        Pair("e f g h", "e f", True, "yes", speaker="S2", severity="Mild"),
    ]
    table = speakers_table(pairs, lambda asked: np.array([0.9] * len(asked)), 0.5)
    first, _, *lines = speakers_markdown(table)
    assert first == "| speaker | etiology | severity | n | WordACC | human % | LATTEScore | 95 % |"
    assert lines[0].startswith("| S2 |  | Mild | 1 | 50.0 | 100.0* | 100.0* |")  # by word accuracy
    assert lines[1].startswith("| S1 | ALS | Severe | 2 | 66.7 | 50.0 | 100.0* |")  # two of six words are wrong
    plain = [dataclasses.replace(pair, severity="", etiology="") for pair in pairs]
    unknown = speakers_markdown(speakers_table(plain, lambda asked: np.ones(len(asked)), 0.5))
    assert unknown[0].startswith("| speaker | n |")
    some = [dataclasses.replace(pair, etiology="") for pair in pairs]
    some[1] = dataclasses.replace(some[1], severity="")
    first, _, *lines = speakers_markdown(speakers_table(some, lambda asked: np.ones(len(asked)), 0.5))
    assert first.startswith("| speaker | severity | n |")
    assert [line.split("|")[2].strip() for line in lines[:2]] == ["Mild", ""]


def test_a_table_of_speakers_has_each_figure_in_its_place():
    speakers = [
        {"name": "B", "n": 7, "word_accuracy": 80.0, "human": 69.9, "latte": 70.0, "latte_interval": (40.0, 90.04)},
        {"name": "A", "n": 5, "word_accuracy": 79.9, "human": 75.0, "latte": 60.0, "latte_interval": (12.3, 45.6)},
    ]
    about = {"mean_gap": 3.25, "same_decisions": 1, "speakers": 2}
    agreement = {
        "word_accuracy": {"pearson": 0.1234, "spearman": None, **about},
        "latte": {"pearson": 0.5678, "spearman": 0.25, **about, "mean_gap": 1.75, "same_decisions": 2},
    }
    bars = {"word_accuracy": 80.0, "human": 70.0, "latte": 70.0}
    assert speakers_markdown({"speakers": speakers, "bars": bars, "agreement": agreement}) == [
        "| speaker | n | WordACC | human % | LATTEScore | 95 % |",
        "| --- | --- | --- | --- | --- | --- |",
        "| A | 5 | 79.9 | 75.0* | 60.0 | 12.3 to 45.6 |",
        "| B | 7 | 80.0* | 69.9 | 70.0* | 40.0 to 90.0 |",
        "",
        "*: good enough, at least 80 (WordACC) or 70 (human %, LATTEScore).",
        "LATTEScore and human ratings: Pearson 0.568, Spearman 0.250, mean gap 1.8 points, 2 of 2 decisions alike.",
        "WordACC and human ratings: Pearson 0.123, Spearman –, mean gap 3.2 points, 1 of 2 decisions alike.",
    ]


def test_references_are_compared_without_case_and_marks():
    written = [dataclasses.replace(pair, reference=f"{pair.reference.title()}.") for pair in toy_pairs(300, 0)]
    tuned = divide(written, (0.6, 0.2, 0.2), 0, "pairs")
    taken = tuned.train[:5] + tuned.dev[:3]
    spoken = [dataclasses.replace(pair, reference=f"{pair.reference[:-1].upper()}!") for pair in taken]
    kept = hold_out(tuned, spoken, "second.tsv")
    assert len(kept.train) <= len(tuned.train) - 5
    assert len(kept.dev) <= len(tuned.dev) - 3
    assert kept.test == tuned.test
    trained, tested = ({normalize(pair.reference) for pair in side} for side in (kept.train + kept.dev, spoken))
    assert not trained & tested
    with pytest.raises(UserError, match=r"second\.tsv: every hypothesis equals its reference"):
        hold_out(tuned, [dataclasses.replace(spoken[0], hypothesis=spoken[0].reference)], "second.tsv")
    with pytest.raises(UserError, match=r"second\.tsv: the train part keeps only 0 pairs"):
        hold_out(tuned, tuned.train, "second.tsv")
    lost = [pair for pair in tuned.dev if not pair.preserved]
    with pytest.raises(UserError, match=r"the dev part keeps only .* pairs, not of both classes"):
        hold_out(tuned, lost, "second.tsv")


@pytest.mark.slow
def test_no_reference_of_the_test_file_is_in_training(tmp_path):
    """Through the command's function: the file holds references that the pairs have, too."""
    pairs = toy_pairs(120, 0)
    second = [
        dataclasses.replace(pair, rated="yes" if pair.preserved else "no", kind="", speaker=f"S{n % 2}")
        for n, pair in enumerate([*pairs[:20], *toy_pairs(20, 9)])
    ]
    path = tmp_path / "conversations.tsv"
    path.write_text(write_pairs(second))
    small = {"seeds": (0,), "batch__widths": (64,), "train__steps": 1}
    results = judge(tiny_config(test=str(path), **small), str(tmp_path / "work"))
    assert results["arms"][0]["step"] == 1, "the last step is tried on dev, too"
    assert results["arms"][0]["dev_accuracy"] >= 0
    found = results["second_test"]
    assert (found["references_in_training"], found["pairs"], found["with_an_error"]) == (0, 40, 40)
    assert found["taken_out"]["train"] > 5
    assert 0 <= found["auc"] <= 1
    assert [line["name"] for line in found["speakers"]["speakers"]] == ["S0", "S1"]
    assert results["auc_test"] != found["auc"]
    text = (tmp_path / "work/results.md").read_text()
    assert "conversations.tsv" in text
    assert "references, 0 are in training" in text
    assert json.loads((tmp_path / "work/results.json").read_text())["second_test"]["auc"] == found["auc"]


def drawn_interval(scores, labels, sentences):
    """Of the AUC, by sentences drawn anew."""
    rng, names, found = np.random.default_rng(7), np.unique(sentences), []
    for _ in range(400):
        rows = np.concatenate([np.flatnonzero(sentences == name) for name in rng.choice(names, len(names))])
        if 0 < labels[rows].sum() < len(rows):
            found.append(counted_auc(scores[rows], labels[rows]))
    return np.quantile(found, [0.025, 0.975])


def rated_pairs():
    """Eighty pairs of a sentence each, read, and thirty of six sentences, spoken; two classifiers."""
    rng, pairs = np.random.default_rng(3), []
    for n in range(110):
        text = f"the sentence number {n} here" if n < 80 else f"the long sentence {n % 6} there"
        kept = bool((n % 7 < 3) if n < 80 else n % 6 < 2)
        about = {"speech_type": "spoken" if n >= 80 else "read", "severity": "Mild" if n % 3 else ""}
        kind = "" if kept else "cut" if n % 4 else "number"
        pairs.append(Pair(text, f"{text} {n}", kept, "1" if kept else "2", kind=kind, **about))
    labels, sentences = preserved_of(pairs), np.array([pair.reference for pair in pairs])
    of_sentence = rng.normal(size=len(set(sentences)))[np.unique(sentences, return_inverse=True)[1]]
    scores = {"ours": labels + of_sentence, "lr": np.round(labels + 2 * rng.normal(size=len(pairs)))}
    return pairs, labels, sentences, scores


def test_areas_and_intervals_of_every_slice_are_those_of_its_own_pairs_and_sentences():
    pairs, labels, sentences, scores = rated_pairs()
    members = {"all": labels >= 0, "read": np.arange(110) < 80, "spoken": np.arange(110) >= 80}
    members["Mild"] = np.arange(110) % 3 > 0
    for kind in ("cut", "number"):
        members[f"kind {kind}"] = labels | np.array([pair.kind == kind for pair in pairs])
    rows = by_slice(scores, pairs)
    assert {row["slice"] for row in rows} == members.keys()
    for row in rows:
        mask = members[row["slice"]]
        assert (row["n"], row["preserved"]) == (mask.sum(), labels[mask].sum())
        for name, values in scores.items():
            about = values[mask], labels[mask]
            assert row["auc"][name]["value"] == pytest.approx(counted_auc(*about))
            if row["slice"] in ("spoken", "Mild") and name == "ours":
                assert row["auc"][name]["interval"] == pytest.approx(drawn_interval(*about, sentences[mask]), abs=0.05)
    first, second = ("0", "1", "2", "2", "1"), ("0", "0", "2", "1", "1")
    twice = [
        tuple(dataclasses.replace(pairs[0], rated=r, preserved=r != "2") for r in both)
        for both in zip(first, second, strict=True)
    ]
    agreed = raters(Parts([], [], [], 0, [], twice))
    # Of three labels 3 of 5 agree, by chance 8 of 25; of two 4 of 5, by chance 14 of 25.
    assert agreed == {"pairs": 5, "kappa": pytest.approx(7 / 17), "kappa_preserved": pytest.approx(6 / 11)}
    second = {"file": "b.tsv", "pairs": 30, "with_an_error": 20, "references": 9, "references_in_training": 4}
    second |= {"auc": 0.7, "auc_interval": (0.6, 0.8), "taken_out": {"train": 5, "dev": 6}, "speakers": None}
    sizes = {"ours": 2_500_000, "lr": 1_200_000}
    text = to_markdown({**PLAIN, "slices": rows, "raters": agreed, "parameters": sizes, "second_test": second})
    assert "| slice | n | preserved | ours | lr |\n| --- | --- | --- | --- | --- |\n" in text
    assert "| parameters |  |  | 2.5 M | 1.2 M |" in text
    for row in rows:
        shown = [f"{a['value']:.3f} ({a['interval'][0]:.2f} to {a['interval'][1]:.2f})" for a in row["auc"].values()]
        assert f"| {row['slice']} | {row['n']} | {row['preserved']} | {' | '.join(shown)} |" in text
    assert "two raters on 5 pairs: kappa 0.412 (labels as rated), 0.545 (preserved or not)." in text
    assert (
        "AUC 0.700 (0.60 to 0.80) on the 20 pairs with an error (30 pairs in all). Of this file's 9 references, 4 are "
        "in training; 5 pairs of train and 6 of dev share a reference with this file and were taken out."
    ) in text


def test_curves_of_each_classifier_hold_its_area(tmp_path, monkeypatch):
    _, labels, _, scores = rated_pairs()
    drawn, save = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (drawn.append(figure), save(figure, *a, **k)))
    write_curves(tmp_path / "curves.png", scores, labels)
    left, right = drawn[0].axes
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in (left, right)] == [
        ("recall", "precision"), ("false-positive rate", "true-positive rate")
    ]  # fmt: skip
    for place, (name, values) in enumerate(scores.items()):
        area = counted_auc(values, labels)
        assert (left.lines[place].get_label(), right.lines[place].get_label()) == (name, f"{name}, AUC {area:.3f}")
        x, y = right.lines[place].get_data()
        assert np.trapezoid(y, x) == pytest.approx(area)
        recall, precision = left.lines[place].get_data()
        for at in np.unique(values):
            taken = values >= at
            np.testing.assert_allclose(
                [recall[recall >= labels[taken].sum() / labels.sum() - 1e-9][0]], [labels[taken].sum() / labels.sum()]
            )
            assert labels[taken].mean() in precision
        assert (recall[-1], precision[-1]) == (1, labels.mean())


def test_a_second_file_asks_about_errors_alone_and_counts_sentences():
    """Pairs of three sentences; those without an error are right, and count for speakers."""
    before = divide(toy_pairs(300, 0), (0.6, 0.2, 0.2), 0, "pairs")
    kept = dataclasses.replace(before, train=before.train[7:], dev=before.dev[2:])
    known = [dataclasses.replace(pair, speaker="") for pair in kept.train[:3]]
    tested = [Pair("a b", "A b!", True, speaker="S1")] * 5
    for text, score, yes in (("a b", 0.9, True), ("c d", 0.6, False), ("e f", 0.55, True), ("g h", 0.1, False)):
        tested += [Pair(text, f"{text} {score} {n}", yes, speaker="S2") for n in range(20)]
    asked = []

    def scores(pairs):
        asked.append(pairs)
        return np.array([float(pair.hypothesis.split()[-2]) if pair.speaker else 0.3 for pair in pairs])

    config = tiny_config(test="at/second.tsv")
    found = second_results(config, before, kept, [*tested, *known], scores, 0.58)
    assert asked == [[*tested[5:], *known], tested[5:]]
    assert (found["file"], found["pairs"], found["with_an_error"]) == ("second.tsv", 88, 83)
    references = {normalize(pair.reference) for pair in known}
    assert (found["references"], found["references_in_training"]) == (4 + len(references), len(references))
    assert found["taken_out"] == {"train": 7, "dev": 2}
    wrong = [*tested[5:], *known]
    values, labels = scores(wrong), preserved_of(wrong)
    assert found["auc"] == pytest.approx(counted_auc(values, labels))
    low, high = drawn_interval(values, labels, np.array([normalize(pair.reference) for pair in wrong]))
    assert found["auc_interval"] == pytest.approx((low, high), abs=0.06)
    first, second = found["speakers"]["speakers"]
    assert (first["latte"], second["latte"]) == (100, 50)
    excluded = second_results(dataclasses.replace(config, exact="exclude"), before, kept, tested, scores, 0.58)
    assert [line["name"] for line in excluded["speakers"]["speakers"]] == ["S2"]


def test_the_caption_has_the_figures_of_the_chosen_prompt():
    arms = [{"seed": seed, "auc_test": value} for seed, value in ((4, 0.6), (7, 0.8), (9, None))]
    threshold = {"value": 0.375, "how": "given", "precision": 0.75, "recall": 0.25}
    figures = {"arms": arms, "chosen": 1, "auc_dev": 0.9, "auc_test": 0.8, "auc_test_before_tuning": 0.5}
    figures |= {"threshold": threshold, "auc_test_with_the_question": 0.625}
    assert caption("tiny", figures) == (
        "tiny, prompt of seed 7: AUC on test 0.800 (of all 2 seeds 0.700 ± 0.141), before tuning 0.500, with the "
        "question word in the prompt's place 0.625; threshold 0.375, given (precision 0.75, recall 0.25)."
    )
