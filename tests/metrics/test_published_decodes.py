"""The authors' released T5 outputs give the rows of the paper's Table 2; other groups' files give their figures.

The outputs lie beside the checkout, never in it; where they are absent these tests are skipped.
"""

from pathlib import Path

import pytest

from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.instrument.metrics.score import score_predictions
from eeg2text_jax.instrument.predictions.read import read_any

SHARED = Path(__file__).parents[2].parent / "shared"
DECODES = SHARED / "published_decodes"
pytestmark = pytest.mark.skipif(not DECODES.is_dir(), reason="the published outputs are not beside the checkout")

# training-evaluation: free-running BLEU-1..4, then P, R, F of ROUGE-1 as printed (P and R exchanged) and WER
FREE = {
    "eeg-eeg": (16.64, 5.80, 1.96, 0.81, 12.28, 12.88, 11.85, 111.13),
    "eeg-noise": (15.42, 4.78, 1.57, 0.65, 10.57, 11.45, 10.35, 112.00),
    "noise-eeg": (15.95, 5.71, 2.01, 0.91, 11.90, 12.61, 11.47, 111.37),
    "noise-noise": (15.54, 5.22, 1.70, 0.67, 11.48, 12.23, 11.10, 111.74),
}
FORCED = {
    "eeg-eeg": (22.92, 28.23, 25.11, 81.39),
    "eeg-noise": (22.76, 27.82, 24.87, 81.43),
    "noise-eeg": (23.02, 27.96, 25.06, 81.64),
    "noise-noise": (23.36, 28.40, 25.45, 81.46),
}


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(SHARED / "tokenizers" / "t5")


@pytest.mark.parametrize("row", FREE)
def test_table_2(row, tokenizer):
    read = read_any(DECODES / f"t5_sr-nr-tsr_{row}.txt")
    by_mode = {mode: [p for p in read.predictions if p.mode == mode] for mode in ("free_running", "teacher_forced")}
    assert [len(rows) for rows in by_mode.values()] == [1198, 1198]
    assert len({p.sentence_id for p in read.predictions}) == 112
    free = score_predictions(by_mode["free_running"], profile="paper", tokenizer=tokenizer)
    forced = score_predictions(by_mode["teacher_forced"], profile="paper")
    for n, printed in enumerate(FREE[row][:4], 1):
        assert free[f"token_bleu-{n}"]["value"] == pytest.approx(printed, abs=0.03)
    for scores, printed in [(free, FREE[row][4:]), (forced, FORCED[row])]:
        recall, precision, f, wer = printed
        assert scores["rouge-1-r"]["value"] == pytest.approx(recall, abs=0.01)
        assert scores["rouge-1-p"]["value"] == pytest.approx(precision, abs=0.01)
        assert scores["rouge-1-f"]["value"] == pytest.approx(f, abs=0.01)
        assert f"{scores['wer']['value']:.2f}" == f"{wer:.2f}"


@pytest.mark.parametrize(
    ("name", "layout", "rows", "sentences", "wer", "bleu"),
    [
        ("bart_sr-nr-nrv2_eeg.txt", "C", 1407, 104, 98.3, 9.77),
        ("bart_sr-nr-nrv2_noise.txt", "C", 1407, 104, 100.8, 14.61),
        ("transducer_logmel_eeg.csv", "F", 189, 164, 100.4, 3.99),
        ("transducer_logmel_noise.csv", "F", 189, 164, 99.6, 3.75),
        ("brain2qwerty_meg.csv", "F", 843, 281, 26.2, 76.27),
        ("bart_nr_teacher-forced.txt", "B", 355, 30, None, None),
    ],
)
def test_other_groups_files(name, layout, rows, sentences, wer, bleu):
    read = read_any(DECODES / name)
    assert read.layout.startswith(layout)
    assert (len(read.predictions), len({p.sentence_id for p in read.predictions})) == (rows, sentences)
    if wer is not None:
        scores = score_predictions(read.predictions)
        assert scores["wer"]["value"] == pytest.approx(wer, abs=0.05)
        assert scores["word_bleu-1"]["value"] == pytest.approx(bleu, abs=0.005)
