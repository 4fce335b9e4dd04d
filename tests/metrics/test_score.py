"""Scores of cells and modes: grouping, signatures, and failures that name the sample."""

import dataclasses
import random

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.metrics.metric import word_bleu
from eeg2text_jax.instrument.metrics.score import (
    by_subject,
    parse_metrics,
    row_figures,
    score_cells,
    score_predictions,
)
from eeg2text_jax.instrument.metrics.tables import score_table
from eeg2text_jax.instrument.predictions.file import Prediction

VOCABULARY = ["the", "quick", "brown", "fox_x", "jumps", "over", "50%", "dogs", "&"]


def grid(seeds=(0,), modes=("teacher_forced", "free_running"), sentences=12) -> list[Prediction]:
    """Two subjects read every sentence; every free run begins with "He"."""
    rows = []
    for seed in seeds:
        for train, evaluation in [("eeg", "eeg"), ("eeg", "noise")]:
            rng = random.Random(f"{seed}{train}{evaluation}")
            for mode in modes:
                for i in range(sentences):
                    reference = random.Random(i).choices(VOCABULARY, k=8)
                    kept = 0.6 if mode == "teacher_forced" else 0.2
                    words = [w if rng.random() < kept else rng.choice(VOCABULARY) for w in reference]
                    text = ("" if mode == "teacher_forced" else "He ") + " ".join(words)
                    for subject in "ab":
                        row = (f"{subject}/{i}", subject, "NR", f"t{i}", 8, train, evaluation, seed, mode)
                        rows.append(Prediction(*row, " ".join(reference), text))
    return rows


def with_ids(rows: list[Prediction]) -> list[Prediction]:
    number = {word: i for i, word in enumerate([*VOCABULARY, "He"])}

    def ids(text: str) -> list[int]:
        return [number[word] for word in text.split()]

    return [
        dataclasses.replace(r, reference_tokens=ids(r.reference), prediction_tokens=ids(r.prediction)) for r in rows
    ]


def test_one_entry_a_cell_and_mode_with_a_signature_on_every_number():
    results = score_cells(with_ids(grid(seeds=(0, 1))), token_source="bpe-600")
    assert len(results["cells"]) == 2 * 2 * 2
    for cell in results["cells"]:
        assert (cell["rows"], cell["sentences"]) == (24, 12)
        names = {"token_bleu-1", "word_bleu-4", "rouge-1-p", "rouge-l-f", "wer", "cer-insertions"}
        assert names <= set(cell["metrics"])
        assert all("version:" in about["signature"] for about in cell["metrics"].values())
        assert "tok:model-ids[bpe-600]" in cell["metrics"]["token_bleu-2"]["signature"]


@pytest.mark.parametrize("profile", ["standard", "paper"])
def test_of_error_rates_alone_less_is_better(profile):
    figures = score_predictions(with_ids(grid(modes=["free_running"])), profile=profile)
    rates = {name for name in figures if name.split("-")[0] in ("wer", "cer")}
    assert {"wer", "wer-insertions"} <= rates < figures.keys()
    assert {name: found["lower_is_better"] for name, found in figures.items()} == {n: n in rates for n in figures}


def test_the_figures_are_those_of_the_rows_of_the_cell():
    rows = grid()
    chosen = [r for r in rows if r.mode == "free_running" and r.eval_condition == "noise"]
    expected = word_bleu().score([r.prediction for r in chosen], [r.reference for r in chosen])
    shuffled = random.Random(0).sample(rows, len(rows))
    cells = {(c["eval_condition"], c["mode"]): c["metrics"] for c in score_cells(shuffled)["cells"]}
    for name, value in expected.items():
        assert cells["noise", "free_running"][name]["value"] == pytest.approx(value, abs=1e-9)


def test_token_bleu_needs_ids_or_a_tokenizer():
    assert not any(name.startswith("token_bleu") for name in score_predictions(grid(modes=["free_running"])))
    rows = with_ids(grid(modes=["free_running"]))
    rows[5] = dataclasses.replace(rows[5], prediction_tokens=None)
    with pytest.raises(UserError, match=r"sample 'b/2' .* lacks token ids"):
        score_predictions(rows)


def test_failures_are_errors_that_name_the_sample():
    rows = grid(modes=["free_running"])
    with pytest.raises(UserError, match="no predictions"):
        score_predictions([])
    with pytest.raises(UserError, match="every prediction of the 48 free_running rows is empty"):
        score_predictions([dataclasses.replace(r, prediction=" ") for r in rows])
    rows[3] = dataclasses.replace(rows[3], reference="Привет")
    with pytest.raises(UserError, match=r"rouge failed on the reference of sample 'b/1' \(free_running\)"):
        score_predictions(rows, metrics=("rouge",))
    assert not any(name.startswith("rouge") for name in score_predictions(rows))  # by default it is left out
    with pytest.raises(UserError, match="no profile 'papr'"):
        score_predictions(rows, profile="papr")


def test_a_cell_of_empty_predictions_is_left_unscored_beside_the_others():
    rows = [
        dataclasses.replace(r, prediction="") if (r.eval_condition, r.mode) == ("noise", "free_running") else r
        for r in grid()
    ]
    results = score_cells(rows)
    unscored = [cell for cell in results["cells"] if "unscored" in cell]
    found = [(cell["eval_condition"], cell["mode"], cell["metrics"]) for cell in unscored]
    assert found == [("noise", "free_running", {})]
    table = score_table(results)
    assert set(table.sections[0][1][3:]) == {"–"} == set(table.sections[2][1][3:])
    assert "Not scored: eeg → noise, seed 0: every prediction of the 24 free_running rows is empty" in table.caption


def test_long_scoring_shows_its_progress(monkeypatch, capsys):
    score_predictions(grid(modes=["free_running"]))
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("eeg2text_jax.instrument.metrics.score.SHOW_PROGRESS", 100)
    score_predictions(grid(modes=["free_running"]))
    assert "scoring (rows of all metrics): 192/192" in capsys.readouterr().out


def test_a_profile_has_the_conventions_that_its_signatures_state():
    rows = with_ids(grid(modes=["free_running"]))
    paper, standard = (score_predictions(rows, profile=name) for name in ("paper", "standard"))
    assert "|short:count-one|" in paper["token_bleu-4"]["signature"]
    assert "|short:no-ngrams|" in standard["token_bleu-4"]["signature"]
    assert [("formula-of-rouge" in found["rouge-1-f"]["signature"]) for found in (paper, standard)] == [True, False]
    assert not {"word_bleu-1", "cer"} & paper.keys()


def test_token_ids_of_one_side_alone_are_no_token_bleu():
    rows = with_ids(grid(modes=["free_running"]))
    for side in ("prediction_tokens", "reference_tokens"):
        assert not [name for name in score_predictions([dataclasses.replace(r, **{side: None}) for r in rows])
                    if name.startswith("token_bleu")]  # fmt: skip
    assert parse_metrics(" wer,cer, wer ,") == ("wer", "cer")
    asked = {name: set(score_predictions(rows, metrics=(name,))) for name in ("bleu", "wer")}
    assert "token_bleu-1" in asked["bleu"], "BLEU is on words and on tokens"
    assert {name.partition("-")[0] for name in asked["wer"]} == {"wer"}


def test_figures_of_subjects_and_rows_are_those_of_their_own_rows():
    rows = with_ids(grid(modes=["free_running"]))
    rows = [dataclasses.replace(r, prediction=f"{r.prediction} quick") if r.subject == "b" else r for r in rows]

    def figures(chosen):
        return {name: found["value"] for name, found in score_predictions(chosen).items()}

    found = by_subject(rows)
    assert list(found) == ["a", "b"]
    for subject, own in found.items():
        chosen = [row for row in rows if row.subject == subject]
        assert own == pytest.approx({"rows": len(chosen), **figures(chosen)})
    for row, line in list(zip(rows, row_figures(rows), strict=True))[:4]:
        assert (line["sample_id"], line["eval_condition"]) == (row.sample_id, row.eval_condition)
        assert line["figures"] == pytest.approx(figures([row]))
    empty = [dataclasses.replace(rows[0], reference="", reference_tokens=()), rows[1]]
    undefined, defined = (line["figures"] for line in row_figures(empty))
    assert undefined["wer"] is None, "JSON has no NaN"
    assert None not in defined.values()
    with pytest.raises(UserError, match="sample 'b/0' has no subject"):
        by_subject([rows[0], dataclasses.replace(rows[1], subject="")])
