"""Ranks, ties and chance: a score matrix made by hand, scipy's distributions, and files."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
from scipy import stats

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.metrics.score import (
    RankMetric,
    chance,
    chance_interval,
    score_rankings,
    statistics,
)
from eeg2text_jax.instrument.predictions.rankings import (
    Candidates,
    Ranking,
    is_rankings,
    rank_of,
    read_rankings,
    rounded,
    write_rankings,
)

SCORES = np.array([[0.9, 0.1, 0.5, 0.5], [0.2, 0.2, 0.2, 0.2], [0.0, 3.0, 2.0, 1.0]])


def test_ranks_of_a_matrix_made_by_hand():
    assert [[rank_of(row, c) for c in range(4)] for row in SCORES] == [[1, 4, 2.5, 2.5], [2.5] * 4, [4, 1, 2, 3]]
    found = statistics(SCORES, np.arange(4))
    assert found[..., 0].tolist() == [[1, 0, 0, 0], [0.25] * 4, [0, 1, 0, 0]]
    assert found[..., 1].tolist() == [[1] * 4, [1] * 4, [1] * 4], "of four, all are among five"
    np.testing.assert_allclose(found[..., 2], [[1, 0, 0.5, 0.5], [0.5] * 4, [0, 1, 2 / 3, 1 / 3]])


def test_shares_are_means_over_all_orders_of_those_that_tie():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 3, (1, 6)).astype(float)
    expected = np.zeros((6, 2))
    orders = list(itertools.permutations(range(6)))
    for order in orders:
        ranked = sorted(range(6), key=lambda c, order=order: (-scores[0, c], order[c]))
        for k, top in enumerate((1, 5)):
            expected[ranked[:top], k] += 1 / len(orders)
    np.testing.assert_allclose(statistics(scores, np.arange(6))[0, :, :2], expected, atol=1e-12)


def test_chance_is_scipys():
    for n, k in ((4, 5), (236, 5), (12, 1)):
        assert chance([n], k) == pytest.approx(1 - stats.hypergeom.pmf(0, n, 1, min(k, n)))
    low, high = chance_interval(5 / 236, 100)
    assert stats.binom.cdf(low * 100 - 1, 100, 5 / 236) < 0.025 <= stats.binom.cdf(low * 100, 100, 5 / 236)
    assert stats.binom.cdf(high * 100 - 1, 100, 5 / 236) < 0.975 <= stats.binom.cdf(high * 100, 100, 5 / 236)


def candidates(n=8):
    texts = [f"sentence number {i}" for i in range(n)]
    strata = np.arange(n) // 4
    return Candidates("test", texts, [f"T:{i}" for i in range(n)], ["T"] * n, 3.0 + strata, strata)


def ranking(i, scores, found, **changes):
    fields = {
        "sample_id": f"S/T:{i}", "subject": "S", "task": "T", "sentence_id": f"T:{i}", "n_words": 3 + i // 4,
        "train_condition": "eeg", "eval_condition": "eeg", "seed": 0, "mode": "contrastive",
        "reference": found.references[i], "prediction": found.references[int(np.argmax(scores))],
    }  # fmt: skip
    return Ranking(**{**fields, **changes}, scores=np.asarray(scores, float), candidates=found)


def test_figures_of_a_cell():
    found = candidates()
    rows = [ranking(i, np.arange(8) == i, found) for i in range(4)]
    rows += [ranking(i, np.zeros(8), found, subject="U", sample_id=f"U/{i}") for i in range(4)]
    (cell,) = score_rankings(rows)
    values = {name: figure["value"] for name, figure in cell["metrics"].items()}
    assert values["top-1"] == pytest.approx(100 * (4 + 4 / 8) / 8)
    assert values["top-5"] == pytest.approx(100 * (4 + 4 * 5 / 8) / 8)
    assert values["top-1 in stratum"] == pytest.approx(100 * (4 + 4 / 4) / 8)
    assert (values["chance top-1"], values["chance top-5"], values["chance top-1 in stratum"]) == (12.5, 62.5, 25)
    assert values["top-5 by length"] == 100, "four have the length, and five are allowed"
    assert cell["by_subject"]["S"]["top-1"] == 100
    assert cell["by_subject"]["U"]["top-1"] == 12.5
    assert (cell["rows"], cell["sentences"], cell["candidates"]) == (8, 4, [8])
    assert cell["chance_interval_top-5"] == pytest.approx([100 * share for share in chance_interval(5 / 8, 4)])
    assert {name: own["rows"] for name, own in cell["by_subject"].items()} == {"S": 4, "U": 4}
    (mixed,) = score_rankings(rows[::2] + rows[1::2])
    assert mixed["by_subject"] == cell["by_subject"]


def test_all_pairs_are_scored_in_the_list_of_each_row():
    one, rng = candidates(), np.random.default_rng(0)
    turned = [column[::-1] for column in (one.references, one.sentence_ids, one.tasks, one.n_words, one.strata)]
    lists = one, Candidates("dev", *turned)
    rows = [ranking(i, rng.normal(size=8), lists[i % 2]) for i in range(6)]
    table = RankMetric().pairwise(rows, one.references[:5])
    for i, row in enumerate(rows):
        for j, text in enumerate(one.references[:5]):
            np.testing.assert_array_equal(table[i, j], RankMetric().statistics([row], [text])[0])
            lower = row.scores < row.scores[list(row.candidates.references).index(text)]
            assert table[i, j, 2] == pytest.approx(lower.sum() / 7)


def test_file_is_read_back(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "rankings.jsonl"
    rows = [ranking(i, rounded(rng.normal(size=8)), candidates()) for i in range(3)]
    write_rankings(path, {"split": "abc"}, rows)
    assert is_rankings(path)
    found = read_rankings(path)
    assert found.header["split"] == "abc"
    for row, back in zip(rows, found.rows, strict=True):
        assert vars(back) | {"scores": None, "candidates": None} == vars(row) | {"scores": None, "candidates": None}
        np.testing.assert_array_equal(back.scores, row.scores)
    line = json.loads(path.read_text().splitlines()[1])
    assert (line["n"], line["stratum_n"], line["rank"]) == (8, 4, rank_of(rows[0].scores, 0))
    write_rankings(tmp_path / "again.jsonl", {"split": "abc"}, found.rows)
    assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()


def test_rounding_keeps_six_digits():
    found = rounded(np.array([0.12345678, -98765.4321, 0.0, 1e-9]))
    np.testing.assert_array_equal(found, [0.123457, -98765.4, 0, 1e-9])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [1.0]}, "expected scores, a finite number for each of 8"),
        ({"scores": [float("nan")] * 8}, "expected scores, a finite number"),
        ({"scores": [1.0] * 9}, "expected scores, a finite number for each of 8"),
        ({"scores": [True] * 8}, "expected scores, a finite number"),
        ({"rank": 7.0}, r"rank is 7.0; its scores give"),
        ({"n": 1e18}, r"n is 1e\+18; its scores give 8"),
        ({"stratum_n": 10**18}, r"stratum_n is 10+; its scores give 4"),
        ({"stratum_rank": -1}, r"stratum_rank is -1; its scores give"),
        ({"score": 1e300}, r"score is 1e\+300; its scores give"),
        ({"scores": [10**400] * 8}, "expected scores, a finite number"),
        ({"n_words": 10**18}, "n_words is 10+; expected a whole number up to"),
        ({"seed": -(10**30)}, "seed is -10+; expected a whole number up to"),
        ({"list": ["test"]}, r"list is \['test'\]; the header has test"),
        ({"list": "dev"}, "list is 'dev'; the header has test"),
        ({"mode": "free_running"}, "mode is 'free_running'; expected one of contrastive, likelihood"),
        ({"reference": "another"}, "'another' is not among the candidates"),
        ({"seed": "0"}, 'seed is "0"; expected a whole number'),
        ({"nothing": 1}, "unknown field 'nothing'; the fields are .*, list, scores, "),
    ],
)
def test_files_that_are_wrong_are_refused_by_line(tmp_path, change, message):
    path = tmp_path / "rankings.jsonl"
    write_rankings(path, {}, [ranking(0, np.arange(8), candidates())])
    header, line = path.read_text().splitlines()
    path.write_text(f"{header}\n{json.dumps(json.loads(line) | change)}\n")
    with pytest.raises(UserError, match=f"line 2: .*{message}"):
        read_rankings(path)


@pytest.mark.parametrize("change", [{"n_words": 1e18}, {"n_words": -1}, {"stratum": 10**30}])
def test_candidates_of_impossible_numbers_are_refused(tmp_path, change):
    path = tmp_path / "rankings.jsonl"
    write_rankings(path, {}, [ranking(0, np.arange(8), candidates())])
    header, *lines = path.read_text().splitlines()
    content = json.loads(header)
    content["header"]["candidates"]["test"][1] |= change
    path.write_text("\n".join([json.dumps(content), *lines]))
    with pytest.raises(UserError, match=f"candidates 'test', number 2: {next(iter(change))} is"):
        read_rankings(path)


def test_one_sentence_twice_among_the_candidates_is_refused():
    with pytest.raises(UserError, match="is there twice; expected distinct sentences"):
        Candidates("test", ["a  b", "a b"], ["1", "2"], ["T", "T"], [2, 2], np.zeros(2, int))


def test_a_sample_twice_in_a_cell_is_refused(tmp_path):
    row = ranking(0, np.arange(8), candidates())
    write_rankings(tmp_path / "r.jsonl", {}, [row, dataclasses.replace(row, subject="other")])
    with pytest.raises(UserError, match="line 3: sample 'S/T:0' is on line 2"):
        read_rankings(tmp_path / "r.jsonl")
