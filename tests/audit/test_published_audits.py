"""The audit of what other groups released; the folder lies beside the checkout, not in it."""

import csv
import json
import time
from pathlib import Path

import pytest

from eeg2text_jax.cli import main
from eeg2text_jax.predictions.read import read_any

FOLDER = Path(__file__).parents[3] / "shared" / "published_decodes"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="published decodes are not beside the checkout")

T5 = [f"t5_sr-nr-tsr_{cell}.txt" for cell in ("eeg-eeg", "eeg-noise", "noise-eeg", "noise-noise")]


def judged(tmp_path, eeg, *controls, resamples=1000):
    arguments = ["--eeg", str(FOLDER / eeg), "--json", str(tmp_path / "a.json"), "--resamples", str(resamples)]
    for control in controls:
        arguments += ["--control", str(FOLDER / control)]
    status = main(["audit", *arguments])
    result = json.loads((tmp_path / "a.json").read_text())
    assert status == result["exit_status"]
    return result


def codes(result):
    return {flag["code"]: flag["message"] for flag in result["flags"]}


def test_four_t5_files(tmp_path):
    """112 sentences, not 1198 rows; the gap to noise is style; equivalent to the controls.

    Sentences have 8 to 12 rows: with rows that travel with the predictions the content is +0.06, p .37.
    """
    start = time.process_time()
    result = judged(tmp_path, *T5, resamples=10_000)
    assert time.process_time() - start < 60
    assert (result["n_rows"], result["n_sentences"]) == (1198, 112)
    assert "1198 rows are 112 independent sentences" in codes(result)["rows_not_independent"]
    noise = result["comparisons"][0]["primary"]
    assert noise["observed"] == pytest.approx(1.44, abs=0.01)
    assert noise["effect"] == pytest.approx(0.077, abs=0.005)
    assert noise["permutation_sd"] == pytest.approx(0.16, abs=0.01)
    assert noise["p"] == pytest.approx(0.33, abs=0.03)
    assert "(within strata by length; p = " in codes(result)["gap_is_style"]
    assert "smallest margin that would have passed in all strata 0." in result["sentence"]
    assert result["verdict"] == "equivalent to control"


def test_bart_pair_is_collapsed_and_its_metrics_disagree(tmp_path):
    result = judged(tmp_path, "bart_sr-nr-nrv2_eeg.txt", "bart_sr-nr-nrv2_noise.txt")
    assert [c["collapse"]["distinct"] for c in result["conditions"]] == [26, 86]
    assert [flag["code"] for flag in result["flags"]].count("collapsed") == 2
    said = "is -4.84 BLEU-1 (higher is better) and -2.51 WER (lower is better); "
    assert said in codes(result)["metrics_disagree"]
    assert (result["n_rows"], result["n_sentences"]) == (1407, 104)
    scores = result["comparisons"][0]["primary"]["scores"]
    assert scores == pytest.approx([9.77, 14.61], abs=0.006)
    wer = next(s for s in result["comparisons"][0]["secondary"] if s["label"] == "WER")
    assert wer["scores"] == pytest.approx([98.3, 100.8], abs=0.06)


def test_teacher_forced_file_ignores_the_recording_and_says_so(tmp_path):
    result = judged(tmp_path, "bart_nr_teacher-forced.txt")
    said = "30 sentences of which every row is wrong by more than its spelling, 30 have one and the same prediction"
    assert said in codes(result)["input_independent"]
    assert {"looks_teacher_forced", "length_follows_reference", "literal_padding"} <= codes(result).keys()
    assert "mode_unknown" in codes(result)
    assert result["verdict"] == "not judgeable"
    assert (result["n_rows"], result["n_sentences"]) == (355, 30)


def test_noise_holds_nothing_and_is_not_said_to(tmp_path):
    """The release found content in the outputs of noise (p .019) and more of it than in those of EEG (p .027)."""
    alone = judged(tmp_path, "bart_sr-nr-nrv2_noise.txt")
    assert alone["verdict"] == "no content found above its null"
    pair = judged(tmp_path, "bart_sr-nr-nrv2_noise.txt", "bart_sr-nr-nrv2_eeg.txt")
    assert pair["verdict"] == "equivalent to control"
    stand_ins = {"the order of the file", "the words of the texts", "the number of rows"}
    assert set(pair["comparisons"][0]["derived"]) >= stand_ins
    assert "equal task" not in pair["sentence"]


def test_teacher_forced_beside_free_running_is_not_judged(tmp_path):
    """Neither half of such a pair says its mode once the labels are gone."""
    rows = read_any(FOLDER / T5[0]).predictions
    for name, mode in (("eeg", "teacher_forced"), ("noise", "free_running")):
        lines = [[r.reference, r.prediction] for r in rows if r.mode == mode]
        with (tmp_path / f"{name}.csv").open("w", encoding="utf8", newline="") as file:
            csv.writer(file).writerows([["reference", "prediction"], *lines])
    arguments = ["--eeg", str(tmp_path / "eeg.csv"), "--control", str(tmp_path / "noise.csv"), "--resamples", "100"]
    assert main(["audit", *arguments, "--json", str(tmp_path / "a.json")]) == 8
    assert "looks_teacher_forced" in codes(json.loads((tmp_path / "a.json").read_text()))


def test_meg_content_is_far_above_its_null(tmp_path):
    result = judged(tmp_path, "brain2qwerty_meg.csv")
    content = result["conditions"][0]["content"]
    assert result["verdict"] == "content of unproven origin"
    assert content["scores"][0] == pytest.approx(76.27, abs=0.006)
    assert content["effect"] > 50
    assert (result["n_rows"], result["n_sentences"], result["n_subjects"]) == (843, 281, 3)


def test_transducer_pair(tmp_path):
    result = judged(tmp_path, "transducer_logmel_eeg.csv", "transducer_logmel_noise.csv")
    assert (result["n_rows"], result["n_sentences"]) == (189, 164)
    assert result["comparisons"][0]["primary"]["scores"] == pytest.approx([3.99, 3.75], abs=0.006)
    assert result["verdict"] == "underpowered"


FILES = sorted(path.name for path in FOLDER.glob("*_*")) if FOLDER.is_dir() else []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if n % 4 == 0 else [pytest.mark.slow]) for n, name in enumerate(FILES)]
)
def test_every_file_is_audited_without_options(tmp_path, name):
    assert judged(tmp_path, name, resamples=100)["n_rows"] > 100


def test_teacher_forced_half_of_a_t5_file(tmp_path):
    arguments = ["--eeg", str(FOLDER / T5[0]), "--mode", "teacher_forced", "--json", str(tmp_path / "a.json")]
    main(["audit", *arguments, "--resamples", "100"])
    result = json.loads((tmp_path / "a.json").read_text())
    assert result["mode"] == "teacher_forced"
    assert result["verdict"] == "not judgeable"
    assert {"teacher_forced", "token_residue"} <= codes(result).keys()
