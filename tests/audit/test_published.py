"""The audit of what other groups released, and of small cases; both lie beside the checkout, not in it."""

import csv
import json
from pathlib import Path

import pytest

from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.predictions.read import read_any

SHARED = Path(__file__).parents[3] / "shared"
PUBLISHED, CASES = SHARED / "published_decodes", SHARED / "cases"
pytestmark = pytest.mark.skipif(not (PUBLISHED.is_dir() and CASES.is_dir()), reason="shared data are not beside it")
T5 = [f"t5_sr-nr-tsr_{cell}.txt" for cell in ("eeg-eeg", "eeg-noise", "noise-eeg", "noise-noise")]


def judged(tmp_path, eeg, *controls, folder=PUBLISHED, more=()):
    arguments = ["--eeg", str(folder / eeg), "--json", str(tmp_path / "a.json"), *more]
    for control in controls:
        arguments += ["--control", str(folder / control)]
    status = main(["audit", *arguments])
    found = json.loads((tmp_path / "a.json").read_text())
    assert status == found["exit_status"]
    return found


def first(found):
    return found["comparisons"][0]["contrast"]


def reported(found, label):
    return next(r for r in found["reported"] if r["label"] == label)


def test_four_t5_files(tmp_path):
    """112 sentences, not 1198 rows; of the gain of 1.44 BLEU-1 nearly all is left with other sentences."""
    found = judged(tmp_path, *T5)
    assert (found["n_rows"], found["n_sentences"]) == (1198, 112)
    assert found["verdict"] == "equivalent to control"
    assert "decoding of up to 2.7% of all sentences could go unseen" in found["headline"]
    bleu = reported(found, "BLEU-1")
    assert bleu["scores"][0] - bleu["scores"][1] == pytest.approx(1.44, abs=0.01)
    assert bleu["nulls"][0] - bleu["nulls"][1] > 1
    assert reported(found, "WER")["scores"] == pytest.approx([111.13, 112.00, 111.37, 111.74], abs=0.006)
    assert abs(first(found)["effect"]) < 0.3
    assert first(found)["p"] > 0.1
    assert found["mde"] < 1


def test_bart_pair_is_collapsed_and_holds_nothing(tmp_path):
    found = judged(tmp_path, "bart_sr-nr-nrv2_eeg.txt", "bart_sr-nr-nrv2_noise.txt")
    assert [c["look"]["distinct"] for c in found["conditions"]] == [25, 85]
    assert [n["code"] for n in found["notices"]].count("collapsed") == 2
    assert found["verdict"] == "equivalent to control"
    other_way = judged(tmp_path, "bart_sr-nr-nrv2_noise.txt", "bart_sr-nr-nrv2_eeg.txt")
    assert first(other_way)["effect"] == pytest.approx(-first(found)["effect"])
    assert other_way["verdict"] == "equivalent to control"
    assert judged(tmp_path, "bart_sr-nr-nrv2_noise.txt")["verdict"] == "no content found above its null"


def test_meg_content_is_far_above_its_null(tmp_path):
    found = judged(tmp_path, "brain2qwerty_meg.csv")
    assert found["verdict"] == "content of unproven origin"
    assert first(found)["effect"] > 50
    assert found["n_subjects"] == 3
    stated = judged(tmp_path, "brain2qwerty_meg.csv", more=["--mode=free_running"])
    assert stated["verdict"] == "content above its null"


def test_transducer_pair(tmp_path):
    found = judged(tmp_path, "transducer_logmel_eeg.csv", "transducer_logmel_noise.csv")
    assert found["verdict"] == "underpowered"


def test_teacher_forced_half_of_a_t5_file(tmp_path):
    found = judged(tmp_path, T5[0], more=["--mode=teacher_forced"])
    assert (found["mode"], found["verdict"]) == ("teacher_forced", "not judgeable")
    assert found["headline"] == "not judgeable: teacher-forced"


def test_teacher_forced_beside_free_running_is_not_judged(tmp_path):
    """Neither half of such a pair says its mode once the labels are gone."""
    rows = read_any(PUBLISHED / T5[0]).predictions
    for name, mode in (("eeg", "teacher_forced"), ("noise", "free_running")):
        lines = [[r.reference, r.prediction] for r in rows if r.mode == mode]
        with (tmp_path / f"{name}.csv").open("w", encoding="utf8", newline="") as file:
            csv.writer(file).writerows([["reference", "prediction"], *lines])
    assert judged(tmp_path, "eeg.csv", "noise.csv", folder=tmp_path)["exit_status"] in (8, 9)


FILES = sorted(path.name for path in PUBLISHED.glob("*_*")) if PUBLISHED.is_dir() else []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if n % 4 == 0 else [pytest.mark.slow]) for n, name in enumerate(FILES)]
)
def test_every_file_is_audited_without_options(tmp_path, name):
    assert judged(tmp_path, name)["n_rows"] > 100


def figures(found):
    one = first(found)
    return found["verdict"], one["effect"], one["p"], *one["interval_90"]


def test_one_set_of_rows_has_one_answer_in_any_order(tmp_path):
    four = {
        figures(judged(tmp_path, f"ord{i}.csv", folder=CASES / "order", more=["--mode=free_running"])) for i in range(4)
    }
    assert len(four) == 1
    blocks, mixed = (
        figures(judged(tmp_path, f"{name}_eeg.csv", f"{name}_ctl.csv", folder=CASES / "order"))
        for name in ("blocks", "mixed")
    )
    assert blocks == mixed
    assert blocks[1] > 5
    assert blocks[3] > 0, "the class is content, of the kind"


def test_one_right_word_a_row_is_content(tmp_path):
    found = judged(tmp_path, "kw_eeg.csv", "kw_noise.csv", folder=CASES / "short", more=["--mode=free_running"])
    assert found["verdict"] == "uses EEG"
    assert first(found)["effect"] > 5 * found["mde"]


@pytest.mark.parametrize("name", ["p4.csv", "p6.csv", "f_pad.csv", "i14_eos.csv", "i19.csv"])
def test_two_sides_in_another_writing_are_judged_by_their_words(tmp_path, name):
    found = judged(tmp_path, name, folder=CASES / "forms", more=["--mode=free_running"])
    assert found["verdict"] == "content above its null"
    assert first(found)["effect"] > 20


def test_phonemes_are_compared_with_phonemes(tmp_path):
    columns = "--columns=true_phonemes,prediction"
    found = judged(tmp_path, "p2.csv", folder=CASES / "forms", more=["--mode=free_running", columns])
    assert found["verdict"] == "content above its null"
    assert first(found)["effect"] > 10
    words = judged(tmp_path, "p2.csv", folder=CASES / "forms", more=["--columns=true_sentence,prediction"])
    assert words["headline"] == "not judgeable: the two columns are not in the same form"
