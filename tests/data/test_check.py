"""`eeg2text check`: everything that is wrong with a data file, and what is worth a look."""

import dataclasses
import re

import h5py
import jax
import numpy as np
import pytest

from eeg2text_jax import data
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.check import check_datafile, names_of, scale_figure
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.training.conditions.condition import ConditionContext, apply_condition, condition_key


def good(path, **kwargs):
    rng = np.random.default_rng(0)
    rows = [
        {"features": rng.normal(3, [1, 10, 100, 1e-3, 2, 5], (2 + i % 3, 6)), "sentence": f"text {i % 7}",
         "subject": f"S{i // 7}", "task": "NR"}
        for i in range(14)
    ]  # fmt: skip
    return data.write(path, kwargs.get("change", lambda rows: rows)(rows), features_are="2 bands x 3 channels")


def test_a_good_file_has_no_problem_and_its_scales_are_shown(tmp_path, printed_by):
    path = good(tmp_path / "data.h5")
    out = printed_by(["check", str(path), f"--png={tmp_path / 'a.png'}"])
    assert "14 samples of 2 subjects, 1 tasks, 7 different texts; 41 words, 2 to 4 a sample" in out
    assert "no problem, 0 notes" in out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    findings = check_datafile(path)
    words = data.read_datafile(path).features.astype(float)
    np.testing.assert_allclose(findings.spread, words.std(0), rtol=1e-5)
    np.testing.assert_allclose(findings.mean, words.mean(0), rtol=1e-5)
    for name, own in (("S0", words[:20]), ("S1", words[20:])):
        assert [name, "7", str(len(own)), f"{np.abs(own).mean():.3g}"] in [line.split() for line in findings.table]


def test_what_the_encoder_is_fed_under_noise_is_described(tmp_path, printed_by, refused):
    path = good(tmp_path / "data.h5")
    out = printed_by(["check", str(path), "--condition=noise"])
    assert "condition noise, seed 0: 14 of 14 samples, 41 words of 6 numbers" in out
    mean, sd = map(float, re.search(r"fed: mean (\S+), sd (\S+), from", out).groups())
    assert abs(mean) < 4 / np.sqrt(41 * 6)
    assert abs(sd - 1) < 4 / np.sqrt(2 * 41 * 6)
    assert "as many words as in the file in 14 of 14 samples; largest value at padding 0" in out
    key = jax.random.fold_in(condition_key(0), 0)  # of an arm with seed 0
    context = ConditionContext(key, np.zeros(1, np.int32), np.int32(0))
    drawn = apply_condition("noise", np.zeros((1, 2, 6), np.float32), np.ones((1, 2), bool), context)
    assert f"first word of S0/NR:0: {' '.join(f'{value:.3f}' for value in drawn[0, 0])} ..." in out
    data = read_datafile(path)
    for name, correlation, place in (("eeg", "1.000", 0), ("time_reversed", r"-?0\.\d+", -1)):
        out = printed_by(["check", str(path), f"--condition={name}"])
        assert re.search(rf"; correlation {correlation}\n", out)
        assert f"first word of S0/NR:0: {' '.join(f'{value:.3f}' for value in data.words(0)[place])} ..." in out
    out = printed_by(["check", str(path), "--condition=zero"])
    assert "correlation none, as one is constant" in out
    assert "as many words as in the file in 0 of 14 samples" in out
    for name, why in (("nosie", "did you mean 'noise'"), ("shuffled", "is made from a split's parts (donor)")):
        assert why in refused(["check", str(path), f"--condition={name}"])


def test_the_picture_names_channels_and_bands_where_the_file_does(tmp_path):
    path = good(tmp_path / "data.h5")
    findings = check_datafile(path)
    assert names_of(findings.features_are) == ([], [])
    named = "x, 2 bands x 3 channels, band-major; bands in Hz: 4-6 8-10.5; channels: Fz Cz Pz"
    spread = np.array([1.0, 10.0, 100.0, 1e-3, 0.0, 1e4])  # the fifth, of Cz in the upper band, does not vary
    axes = scale_figure(dataclasses.replace(findings, spread=spread, features_are=named)).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["Fz", "Cz", "Pz"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["4-6 Hz", "8-10.5 Hz"]
    image = axes.images[0].get_array().filled(np.nan)
    np.testing.assert_allclose(image, [[0, 1, 2], [-3, np.nan, 4]], atol=1e-12)


def noted(tmp_path, change):
    return "\n".join(check_datafile(good(tmp_path / "data.h5", change=change)).notes)


def test_what_is_worth_a_look_is_noted(tmp_path):
    def constant(rows):
        return [{**row, "features": np.where(np.arange(6) == 4, 7.0, row["features"])} for row in rows]

    def twice(rows):
        return [*rows, {**rows[0], "subject": "S9"}, rows[1]]

    def smaller(times):
        size = {"S0": 1, "S1": times}
        return lambda rows: [{**row, "features": row["features"] / size[row["subject"]]} for row in rows]

    def trials(rows):
        return [{**row, "sentence_index": i % 6} for i, row in enumerate(rows)]

    assert "1 of 6 features do not vary (numbers 4)" in noted(tmp_path, constant)
    found = noted(tmp_path, twice)
    twins = "exactly the features of an earlier sample (the first pair: number 0, S0, NR:0, and number 14, S9"
    assert "2 samples have exactly" in found
    assert twins in found
    assert "1 sample is a repeated reading: the same subject read the same sentence before" in found
    for times, said in ((1e6, True), (130, True), (75, False)):
        assert ("the features of S0 are" in noted(tmp_path, smaller(times))) == said
    found = noted(tmp_path, trials)  # 3 texts for the numbers 0 and 1, and 2 for the others
    assert "6 sentence numbers stand for several texts each (the first is NR:0)" in found
    assert "7 texts have several sentence numbers" in found

    def one_number(rows):
        return [{**row, "sentence_index": 4 if i % 7 == 2 else i % 7} for i, row in enumerate(rows)]

    found = noted(tmp_path, one_number)
    assert "1 sentence numbers stand for several texts each (the first is NR:4)" in found
    assert "texts have several sentence numbers" not in found


def damaged(path, how):
    with h5py.File(path, "r+") as file:
        how(file)
    return path


def test_problems_are_listed_together(tmp_path, printed_by):
    def spoil(file):
        file["features"][3, 2] = np.nan
        file["sentence"][5] = " "

    path = damaged(good(tmp_path / "data.h5"), spoil)
    with h5py.File(path, "r+") as file:
        file.attrs["format"] = "eeg2text-data-1"  # without checksums
    out = printed_by(["check", str(path)], 2)
    assert "PROBLEM: 1 sample has an empty sentence, the first is number 5." in out
    assert "PROBLEM: 1 sample has NaN or infinity, the first is number 1." in out
    assert "2 problems" in out

    path = damaged(good(tmp_path / "edited.h5"), lambda file: file["features"].__setitem__((0, 0), 1.0))
    assert "checksum" in check_datafile(path).problems[0]

    def shorten(file):
        offsets = file["offsets"][:]
        offsets[-1] -= 1
        file["offsets"][:] = offsets
        file.attrs["format"] = "eeg2text-data-1"

    path = damaged(good(tmp_path / "short.h5"), shorten)
    assert "do not fit together" in check_datafile(path).problems[0]


def test_in_a_long_file_faults_and_magnitudes_are_those_of_their_samples(tmp_path):
    """Features are read in blocks of 65,536 words; the second begins within a sample of the second subject."""
    rows = [
        {"features": np.full((1000, 1), 1.0 + 8 * (i >= 40)), "sentence": f"text {i}", "subject": f"S{i // 40}",
         "task": "NR"}
        for i in range(70)
    ]  # fmt: skip
    path = data.write(tmp_path / "long.h5", rows)
    with h5py.File(path, "r+") as file:
        file["features"][-1] = np.nan
    found = check_datafile(path)
    assert [line.split() for line in found.table[-2:]] == [["S0", "40", "40000", "1"], ["S1", "30", "30000", "9"]]
    assert "1 sample has NaN or infinity, the first is number 69." in found.problems
    words = np.r_[np.ones(40_000), np.full(29_999, 9.0)]
    assert (found.mean, found.spread) == (pytest.approx(words.mean()), pytest.approx(words.std()))


def test_another_file_is_refused(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    with pytest.raises(UserError, match="expected an eeg2text data file"):
        check_datafile(tmp_path / "other.h5")
    with pytest.raises(UserError, match="there is no such file"):
        check_datafile(tmp_path / "nowhere.h5")


def test_a_token_that_all_texts_share_is_noted(tmp_path):
    def texts(template, n=12):
        words = [np.random.default_rng(i).normal(size=(3, 4)) for i in range(n)]
        samples = [{"features": w, "sentence": template.format(i), "subject": "S1"} for i, w in enumerate(words)]
        (tmp_path / "shared.h5").unlink(missing_ok=True)
        return "\n".join(check_datafile(data.write(tmp_path / "shared.h5", samples)).notes)

    notes = texts("Comment/w{0} x{0} truly the.")
    assert "all 12 different texts have the word 'comment', 'truly';" in notes
    assert "different texts have" not in texts("The w{0} is a x{0}."), "sentences share such words"
    assert "different texts have" not in texts("w{0} x{0} .")
    assert "different texts have" not in texts("the w{0}", n=9), "a few texts share a word by chance"


def test_a_mark_that_was_read_as_a_sentence_is_noted(tmp_path):
    def rows(mark):
        texts = [mark if i % 2 else f"the dog saw cat {i // 2}" for i in range(24)]
        return [{"features": np.full((2, 3), i), "sentence": text} for i, text in enumerate(texts)]

    data.write(tmp_path / "mark.h5", rows("Fixation cross"))
    noted = "'Fixation cross' is the text of 12 of 24 samples, the next most frequent text has 1. If the first is"
    assert any(note.startswith(noted) for note in check_datafile(tmp_path / "mark.h5").notes)


@pytest.mark.parametrize(("apart", "noted"), [(1.5, False), (2.6, False), (12.0, True)])
def test_a_subject_in_another_unit_is_noted_in_logarithms_too(apart, noted, tmp_path):
    rng = np.random.default_rng(0)
    samples = [
        {"features": rng.normal(apart * (s == "S1"), 0.5, (6, 4)), "sentence": f"text {i} of many", "subject": s}
        for s in ("S1", "S2", "S3")
        for i in range(12)
    ]
    are = "log10 of mean band power in uV^2 of words, 1 bands x 4 channels, band-major; bands in Hz: 4-8"
    path = data.write(tmp_path / "a.h5", samples, features_are=are)
    said = [note for note in check_datafile(path).notes if "are the units the same?" in note]
    assert [note.startswith("the features of S1 are") for note in said] == [True] * noted
