"""A second test file, whose references train nothing, and the paper's tables of speakers and labels."""

import dataclasses
import json

import numpy as np
import pytest
from tiny_judge import tiny_config

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge.baselines import speakers_markdown, speakers_table
from eeg2text_jax.judge.pairs import Pair, data_tables, divide, normalize, write_pairs
from eeg2text_jax.judge.session import caption, hold_out, judge, second_results, slices_of, to_markdown
from eeg2text_jax.judge.toy import toy_pairs


def test_tables_1_and_3_by_hand():
    pairs = [
        Pair("a b c", "a b d", False, "2", speaker="S1", severity="Severe"),
        Pair("e f g", "e f", True, "0", speaker="S1", severity="Severe"),
        Pair("h i j", "h j", True, "1", speaker="S2", severity="Mild"),
        Pair("k l m", "k n", False, "2", speaker="S3", severity="Mild"),
    ]
    more = [Pair("o p", "o", True, "", severity="Mild"), Pair("q r", "q", True, "", speaker="S4")]
    found = data_tables([*pairs, *more, *more])
    assert list(found["speakers_by_severity"].items()) == [("Mild", 2), ("Severe", 1)]
    assert [of["percent"] for of in found["labels"].values()] == [12.5, 12.5, 25.0], "of all pairs"
    found = data_tables(pairs)
    assert list(found["speakers_by_severity"].items()) == [("Mild", 2), ("Severe", 1)]
    assert [(name, of["pairs"], of["percent"], of["preserved"]) for name, of in found["labels"].items()] == [
        ("0", 1, 25.0, True), ("1", 1, 25.0, True), ("2", 2, 50.0, False),
    ]  # fmt: skip
    assert found["labels"]["2"]["example"] == ["a b c", "a b d"]
    slices = [{"auc": {}, "slice": "all", "n": 1, "preserved": 1}]
    text = to_markdown({"source": "x", "caption": "y", "slices": slices, **found})
    assert "| severity | Mild | Severe |" in text
    assert "| speakers | 2 | 1 |" in text
    assert "| 2 | no | 2 | 50 | a b c | a b d |" in text


def test_table_2_has_samples_and_share_preserved_by_part():
    counts = divide(toy_pairs(300, 0), (0.6, 0.2, 0.2), 0, "pairs").counts()
    slices = [{"auc": {}, "slice": "all", "n": 1, "preserved": 1}]
    text = to_markdown({"source": "x", "caption": "y", "slices": slices, "counts": counts})
    assert "| split | train | dev | test |" in text
    assert f"| examples | {counts['train']['pairs']} | {counts['dev']['pairs']} | {counts['test']['pairs']} |" in text
    share = [f"{100 * part['preserved'] / part['pairs']:.1f}%" for part in counts.values()]
    assert f"| meaning preserved | {' | '.join(share)} |" in text


def test_table_5_names_etiology_and_severity():
    pairs = [
        Pair("a b c", "a b c", True, "yes", speaker="S1", severity="Severe", etiology="ALS"),
        Pair("a b c", "a d", False, "no", speaker="S1"),
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


def test_a_kind_of_edit_stands_beside_all_pairs_that_keep_the_meaning():
    kinds = ("", "cut", "", "number", "cut")
    pairs = [Pair("a", "b", not kind, kind=kind) for kind in kinds]
    found = {name: rows.tolist() for name, rows in slices_of(pairs).items()}
    assert found == {"all": [0, 1, 2, 3, 4], "kind cut": [0, 1, 2, 4], "kind number": [0, 2, 3]}


def test_a_second_file_asks_about_errors_alone():
    parts = divide(toy_pairs(100, 0), (0.6, 0.2, 0.2), 0, "pairs")
    tested = [Pair("a b", "A b!", True), Pair("a b", "a c", True), Pair("d e", "f", False)]
    asked = []

    def scores(pairs):
        asked.append(pairs)
        return np.array([0.9, 0.2])

    found = second_results("second.tsv", parts, parts, tested, scores, 0.5, "preserved")
    assert asked == [tested[1:]]
    assert (found["pairs"], found["with_an_error"], found["references"], found["auc"]) == (3, 2, 2, 1.0)


def test_the_caption_has_the_spread_of_a_sample_of_seeds():
    arms = [{"seed": seed, "auc_test": value} for seed, value in ((0, 0.6), (1, 0.8))]
    threshold = {"value": 0.5, "how": "given", "precision": 1.0, "recall": 1.0}
    figures = {"arms": arms, "chosen": 1, "auc_test": 0.8, "auc_test_before_tuning": 0.5, "threshold": threshold}
    assert "prompt of seed 1: AUC on test 0.800 (of all 2 seeds 0.700 ± 0.141)" in caption("tiny", figures)
