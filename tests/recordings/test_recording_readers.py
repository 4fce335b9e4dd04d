"""The readers against scipy, h5py and each other, on files with every irregularity of ZuCo's."""

import tracemalloc

import h5py
import numpy as np
import pytest
import scipy.io
from simulated_study import SHIFTED, TEXTS, make_content

from eeg2text_jax.data.recordings._features import BANDS, MEASURES, Fields
from eeg2text_jax.data.recordings._mat_v5 import read_mat_v5
from eeg2text_jax.data.recordings._mat_v73 import read_mat_v73
from eeg2text_jax.data.source import UnreadableRecording
from eeg2text_testing.zuco_files import write_v5, write_v73

FILE = "resultsZAB_SR.mat"
PLAIN = Fields("GD", BANDS)


def read(study, form, fields=None):
    reader = read_mat_v73 if form == "v73" else read_mat_v5
    return list(reader(getattr(study, form) / FILE, fields or PLAIN))


def flat(value):
    """What loadmat makes of a numeric field: scalars are squeezed, `[]` has shape (0,)."""
    return np.atleast_1d(np.asarray(value, np.float64)).ravel()


@pytest.mark.parametrize("measure", MEASURES)
def test_v5_reads_what_loadmat_reads(study, measure):
    expected = scipy.io.loadmat(study.v5 / FILE, squeeze_me=True, struct_as_record=False)["sentenceData"]
    got = read(study, "v5", Fields(measure, BANDS))
    assert [sentence.content for sentence in got] == [sentence.content for sentence in expected] == list(TEXTS)
    for ours, theirs in zip(got, expected, strict=True):
        means = [flat(getattr(theirs, f"mean_{band}")) for band in BANDS]
        np.testing.assert_array_equal(np.concatenate(ours.means), np.concatenate(means))
        if isinstance(theirs.word, float):
            assert ours.words is None
            continue
        for word, other in zip(ours.words, np.atleast_1d(theirs.word), strict=True):
            assert word.content == other.content
            assert flat([] if word.fixations is None else word.fixations).tolist() == flat(other.nFixations).tolist()
            for band, eeg in zip(BANDS, word.eeg, strict=True):
                np.testing.assert_array_equal(eeg, flat(getattr(other, f"{measure}_{band}", [])))


@pytest.mark.parametrize("measure", ["GD", "SFD"])
@pytest.mark.parametrize("form", ["v7", "v73"])
def test_formats_agree(study, form, measure):
    for a, b in zip(read(study, "v5", Fields(measure, BANDS)), read(study, form, Fields(measure, BANDS)), strict=True):
        assert (a.content, a.tokens, a.word_fields) == (b.content, b.tokens, b.word_fields)
        assert (a.words is None) == (b.words is None)
        np.testing.assert_array_equal(np.concatenate(a.means), np.concatenate(b.means))
        for u, v in zip(a.words or (), b.words or (), strict=True):
            assert (u.content, u.fixations) == (v.content, v.fixations)
            for x, y in zip(u.eeg, v.eeg, strict=True):
                np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("form", ["v5", "v73"])
def test_chosen_bands_come_in_the_chosen_order(study, form):
    every, chosen = read(study, form)[0], read(study, form, Fields("GD", ("g2", "t1")))[0]
    for word, other in zip(every.words, chosen.words, strict=True):
        np.testing.assert_array_equal(other.eeg[0], word.eeg[7])
        np.testing.assert_array_equal(other.eeg[1], word.eeg[0])
    np.testing.assert_array_equal(chosen.means[0], every.means[7])


def test_v73_with_one_empty_array_for_all_and_arrays_lying_down(tmp_path):
    """MATLAB may keep one empty array for all; third-party files have (1, N) arrays."""
    content = make_content(4)[:2]
    write_v5(tmp_path / "a.mat", content)
    write_v73(tmp_path / "b.mat", content, share_empty=True)
    with h5py.File(tmp_path / "b.mat", "r+") as file:
        words = file[file["sentenceData/word"][0, 0]]
        for name in list(words):
            references = words[name][()]
            del words[name]
            words.create_dataset(name, data=references.T, dtype=h5py.ref_dtype)
    pairs = zip(read_mat_v5(tmp_path / "a.mat", PLAIN), read_mat_v73(tmp_path / "b.mat", PLAIN), strict=True)
    for one, other in pairs:  # to the end, where shared references are judged
        for u, v in zip(one.words, other.words, strict=True):
            assert (u.content, u.fixations) == (v.content, v.fixations)
            np.testing.assert_array_equal(np.concatenate(u.eeg), np.concatenate(v.eeg))


def test_v73_reference_to_another_array_is_noticed(study, tmp_path):
    path = tmp_path / FILE
    path.write_bytes((study.v73 / FILE).read_bytes())
    with h5py.File(path, "r+") as file:
        words = file[file["sentenceData/word"][SHIFTED, 0]]
        references = words["GD_t1"][()]
        references[3] = file[file["sentenceData/word"][SHIFTED, 0]]["FFD_t1"][2]
        words["GD_t1"][...] = references
    with pytest.raises(UnreadableRecording, match="two of its references lead to the same array"):
        list(read_mat_v73(path, PLAIN))


@pytest.mark.parametrize("write", [write_v5, write_v73])
def test_a_file_with_a_single_sentence(tmp_path, write):
    content = make_content(1)[:1]
    write(tmp_path / FILE, content)
    reader = read_mat_v5 if write is write_v5 else read_mat_v73
    (sentence,) = reader(tmp_path / FILE, PLAIN)
    assert sentence.content == TEXTS[0]
    assert len(sentence.words) == 5


def test_double_precision_is_read_in_full(tmp_path):
    content = make_content(1)[:2]
    value = np.full((1, 105), 1 / 3)
    next(word for word in content[0]["word"] if word["nFixations"] is not None)["GD_t1"] = value
    write_v5(tmp_path / "a.mat", content)
    write_v73(tmp_path / "b.mat", content)
    for sentences in (read_mat_v5(tmp_path / "a.mat", PLAIN), read_mat_v73(tmp_path / "b.mat", PLAIN)):
        word = next(word for word in next(sentences).words if word.fixations)
        assert word.eeg[0].dtype == np.float64
        assert word.eeg[0][0] == 1 / 3


@pytest.mark.parametrize("compress", [False, True])
def test_memory_is_that_of_what_is_read(tmp_path, compress):
    """The raw EEG of a sentence, 20 MB here, is passed over in pieces."""
    content = make_content(1)[:3]
    for sentence in content:
        sentence["rawData"] = np.zeros((105, 50_000), np.float32)
    write_v5(tmp_path / FILE, content, compress=compress)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_mat_v5(tmp_path / FILE, PLAIN)) == 3
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
