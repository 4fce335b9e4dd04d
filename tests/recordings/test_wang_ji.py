"""`--compat=wang-ji` against their converters' pickles and their way of building samples, computed with torch."""

import pickle

import numpy as np
import pytest
import torch
from simulated_study import MISSING, NO_SINGLE, REJECTED, SHIFTED, TEXTS, UNREAD, make_content
from tiny_run import data_spec

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.recordings._zuco import Recordings, RecordingSpec
from eeg2text_jax.data.source import Tally
from eeg2text_testing.wang_ji_scripts import BANDS, dump, pickle_v5, pickle_v73
from eeg2text_testing.zuco_files import write_v5

FILE = "resultsZAB_SR.mat"
PLAIN = data_spec(RecordingSpec, "recordings")
COMPAT = data_spec(RecordingSpec, "recordings", compat="wang-ji")
Made = dict[int, tuple[str, np.ndarray]]


def samples(source, spec=COMPAT):
    tally = Tally()
    made = {s.sentence_index: (s.sentence, s.features) for s in tally.count(Recordings([str(source)], spec, tally))}
    return made, tally


def their_sample(sentence, measure="GD"):
    """`get_input_sample` of their data.py, up to padding; None where it gives none."""
    if sentence is None:
        return None
    own = torch.from_numpy(np.concatenate([sentence["sentence_level_EEG"][f"mean_{band}"] for band in BANDS]))
    if torch.isnan((own - own.mean()) / own.std()).any():
        return None
    words = []
    for word in sentence["word"]:
        eeg = np.concatenate([word["word_level_EEG"][measure][f"{measure}_{band}"] for band in BANDS])
        if len(eeg) != 840:
            return None
        row = torch.from_numpy(eeg)
        row = (row - row.mean()) / row.std()
        if torch.isnan(row).any():
            return None
        words.append(row)
    return (sentence["content"], torch.stack(words).float().numpy()) if words else None


@pytest.fixture(scope="module")
def pickles(study, tmp_path_factory):
    root = tmp_path_factory.mktemp("pickles")
    made = {"v5": root / "v5" / "task1-SR-dataset.pickle", "v73": root / "v73" / "task1-SR-dataset.pickle"}
    for path in made.values():
        path.parent.mkdir()
    pickle_v5(made["v5"], {"ZAB": study.v5 / FILE}, answers=True)
    pickle_v73(made["v73"], {"ZAB": study.v73 / FILE})
    return made


def assert_same(a, b):
    assert list(a) == list(b)
    for index in a:
        assert a[index][0] == b[index][0]
        np.testing.assert_array_equal(a[index][1], b[index][1])


@pytest.mark.parametrize("measure", ["GD", "FFD", "TRT"])
@pytest.mark.parametrize("form", ["v5", "v73"])
def test_files_give_what_their_pickle_gives(study, pickles, form, measure):
    spec = data_spec(RecordingSpec, "recordings", compat="wang-ji", measure=measure)
    from_files, tally = samples(getattr(study, form) / FILE, spec)
    from_pickle, other = samples(pickles[form], spec)
    assert_same(from_files, from_pickle)
    assert tally.dropped == other.dropped
    assert tally.sentences == other.sentences == {("ZAB", "SR"): len(TEXTS)}


@pytest.mark.parametrize("form", ["v5", "v73"])
def test_samples_are_what_their_code_builds(study, pickles, form):
    made, _ = samples(getattr(study, form) / FILE)
    content = pickle.loads(pickles[form].read_bytes())["ZAB"]  # written by this test
    expected = {i: theirs for i, sentence in enumerate(content) if (theirs := their_sample(sentence)) is not None}
    assert list(made) == list(expected)
    for i, (text, features) in expected.items():
        assert made[i][0] == text
        np.testing.assert_allclose(made[i][1], features, rtol=0, atol=2e-5)  # theirs in float32


def test_quirks_of_v5(study):
    made, tally = samples(study.v5 / FILE)
    assert made[8][0] == "feels emp11111ty and unsatisfying"  # the typing error stays
    assert len(made[SHIFTED][1]) == len(TEXTS[SHIFTED].split())  # "--" counts as a word
    assert not {MISSING, UNREAD, REJECTED} & set(made)
    dropped = {reason: n for (_, _, reason), n in tally.dropped.items()}
    assert dropped == {"missing": 1, "no fixated word": 1, "NaN band": 1}


def test_quirks_of_v73(study):
    """Every token of the sentence was fixated: after k skipped tokens, words have EEG from k places earlier."""
    shifted, tally = samples(study.v73 / FILE)
    right, _ = samples(study.v73 / FILE, PLAIN)
    words = TEXTS[SHIFTED].split()
    kept = [i for i, word in enumerate(words) if word != "--"]
    np.testing.assert_array_equal(shifted[SHIFTED][1], right[SHIFTED][1][: len(kept)])
    assert kept != list(range(len(kept)))
    assert NO_SINGLE in right
    assert NO_SINGLE not in shifted  # no SFD fields: missing
    assert tally.dropped["ZAB", "SR", "missing"] >= 3  # with the placeholder, and the one without rawEEG


def test_sentence_without_own_mean_is_dropped_by_theirs_only(tmp_path):
    content = make_content(3)[:3]
    content[0]["mean_a1"] = np.full((1, 105), np.nan, np.float32)
    write_v5(tmp_path / FILE, content)
    assert 0 not in samples(tmp_path / FILE)[0]
    assert 0 in samples(tmp_path / FILE, PLAIN)[0]


def test_pickle_of_either_converter_in_the_corrected_reading(study, pickles):
    """A v5 pickle has all that the corrected reading needs; one made from v7.3 keeps its shift."""
    assert_same(samples(study.v5 / FILE, PLAIN)[0], samples(pickles["v5"], PLAIN)[0])


def test_measures_that_pickles_lack(pickles):
    with pytest.raises(UserError, match="hold GD, FFD, TRT, not GPT"):
        samples(pickles["v5"], data_spec(RecordingSpec, "recordings", measure="GPT"))
    with pytest.raises(UserError, match="expected GD, FFD or TRT"):
        data_spec(RecordingSpec, "recordings", measure="SFD", compat="wang-ji")


def test_subjects_of_a_pickle_come_sorted_and_may_be_excluded(tmp_path, pickles):
    sentences = pickle.loads(pickles["v5"].read_bytes())["ZAB"]
    path = tmp_path / "taskNRv2_source.pkl"
    dump(path, {"YSD": sentences, "YAC": sentences, "YMH": sentences})
    tally = Tally()
    made = list(tally.count(Recordings([str(path)], COMPAT, tally)))
    assert list(dict.fromkeys(sample.subject for sample in made)) == ["YAC", "YSD"]
    assert {sample.task for sample in made} == {"NRv2"}
