"""Marker types of BrainVision: not part of a text, and no matter to codes."""

from pathlib import Path

import numpy as np
import pytest
from tiny_run import data_spec

from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.planted import WORD, Plan, voltages
from eeg2text_jax.data.raw.find import Event, RawFile, RawSpec, annotations, is_marked_bad
from eeg2text_jax.data.raw.sentences import Texts, readings

FILE = RawFile(Path("S1.vhdr"), "S1", "NR")
SENTENCES = 5


def matches(code, pattern):
    return Event(0.0, 0.0, (code,), {}).match(pattern) is not None


@pytest.mark.parametrize("code", ["Stimulus/S101", "Stimulus/S 101", "S101", "S 101", "101", "Comment/101"])
@pytest.mark.parametrize("pattern", ["S101", "S 101", "101", "10*"])
def test_a_code_matches_in_every_spelling(code, pattern):
    assert matches(code, pattern)


@pytest.mark.parametrize("code", ["Stimulus/S101", "Stimulus/S 101", "S101", "S 101", "101"])
def test_a_pattern_with_a_type_matches_this_type_and_none(code):
    assert matches(code, "Stimulus/S101")
    assert matches(code, "Stimulus/S 101")
    assert not matches("Response/S101", "Stimulus/S101")
    assert not matches("other", "Stimulus/*")


@pytest.mark.parametrize(
    ("code", "pattern"),
    [("Stimulus/S101", "10"), ("Stimulus/S101", "1"), ("Stimulus/S101", "102"), ("Response/R101", "101"),
     ("T101", "101"), ("sentence/101", "101"), ("101", "S10")],
)  # fmt: skip
def test_another_code_does_not_match(code, pattern):
    assert not matches(code, pattern)


def test_what_a_star_stands_for_has_no_type():
    assert Event(0.0, 0.0, ("Comment/sentence/a/b c",), {}).match("sentence/*")[1] == "a/b c"
    assert Event(0.0, 0.0, ("Comment/a b",), {}).match("*")[1] == "a b"
    assert Event(0.0, 0.0, ("Comment/a b",), {}).match("Comment/*")[1] == "a b"


def test_a_bad_stretch_is_bad_with_its_type():
    assert is_marked_bad(Event(0.0, 1.0, ("Comment/BAD_blink",), {}))
    assert is_marked_bad(Event(0.0, 1.0, ("Bad Interval/",), {}))
    assert not is_marked_bad(Event(0.0, 1.0, ("Comment/the bad day",), {}))


def test_texts_by_code_in_every_spelling(tmp_path):
    table = tmp_path / "texts.tsv"
    for written in ("S101", "S 101", "Stimulus/S101", "101"):
        table.write_text(f"code\ttext\n{written}\tone\n")
        for code in ("Stimulus/S101", "S 101", "101"):
            assert Texts(table, "text").find(FILE, 1, (code,)) == "one", (written, code)
        assert Texts(table, "text").find(FILE, 1, ("Response/R101",)) == ""


def test_a_column_of_texts_loses_its_types():
    events = [Event(1.0, 2.0, ("Comment/a b",), {"trial_type": "Comment/a b"}),
              Event(4.0, 2.0, ("New Segment/",), {"trial_type": "New Segment/"}),
              Event(7.0, 2.0, ("and/or",), {"trial_type": "and/or"})]  # fmt: skip
    found, _ = readings(FILE, events, ("trial_type",), data_spec(RawSpec, "raw", text="trial_type"), None)
    assert [reading.text for reading in found] == ["a b", "and/or"]


def test_a_marker_of_one_sample_has_no_duration():
    """In BrainVision, triggers last one sample; two samples are a duration, and equal markers are one."""
    mne = pytest.importorskip("mne", reason="pip install 'eeg2text_jax[mne]'")
    raw = mne.io.RawArray(np.zeros((1, 640)), mne.create_info(1, 128.0, "eeg"), verbose="error")
    marks = [(1.0, 1 / 128, "a b"), (2.0, 2 / 128, "a b"), (2.0, 2 / 128, "a b"), (3.0, 0.0, "c d")]
    raw.set_annotations(mne.Annotations(*zip(*marks, strict=True)))
    found = [(event.onset, event.duration, event.columns) for event in annotations(raw, "said")]
    assert found == [(1.0, 0.0, {"said": "a b"}), (2.0, 2 / 128, {"said": "a b"}), (3.0, 0.0, {"said": "c d"})]


def write(folder, how, raw):
    """The same recording, as one of the formats in which annotations travel."""
    mne = pytest.importorskip("mne", reason="pip install 'eeg2text_jax[mne]'")
    folder.mkdir()
    if how == "fif":
        raw.save(folder / "S1_raw.fif", verbose="error", fmt="double")
    elif how == "fif of brainvision":
        mne.export.export_raw(folder.parent / "S1.vhdr", raw, verbose="error")
        again = mne.io.read_raw(folder.parent / "S1.vhdr", verbose="error")
        again.save(folder / "S1_raw.fif", verbose="error", fmt="double")
    elif how == "bids":
        bids = pytest.importorskip("mne_bids", reason="pip install 'eeg2text_jax[mne]'")
        raw.info["line_freq"] = 50
        path = bids.BIDSPath(subject="S1", task="reading", datatype="eeg", root=folder)
        bids.write_raw_bids(raw, path, format="BrainVision", allow_preload=True, verbose="error")
    else:
        mne.export.export_raw(folder / f"S1.{how}", raw, verbose="error")


@pytest.mark.filterwarnings("ignore")  # MNE's, while files are written
def test_copies_in_all_formats_give_the_same_texts_words_and_counts(tmp_path, capsys, printed_by):
    mne = pytest.importorskip("mne", reason="pip install 'eeg2text_jax[mne]'")
    for name in ("edfio", "pybv", "eeglabio", "pymatreader", "mne_bids"):
        pytest.importorskip(name, reason="comes with the extras `mne` and `test`")
    plan = Plan.draw(SENTENCES, 0)
    texts = [*(plan.text(i) for i in range(SENTENCES - 1)), "and/or the Comment; 3: it's über-long"]
    marks = [(plan.begins[i], plan.end(i) - plan.begins[i], texts[i]) for i in range(SENTENCES)]
    marks += [(time, WORD, "a word") for i in range(SENTENCES) for time in plan.word_times(i)]
    marks += [(plan.begins[2], 0.3, "BAD_blink"), (plan.seconds - 0.5, 0.0, "a trigger")]
    raw = mne.io.RawArray(voltages(plan, 0, planted=True), mne.create_info(6, 128.0, "eeg"), verbose="error")
    raw.set_annotations(mne.Annotations(*zip(*marks, strict=True)))
    found = {}
    for how in ("fif", "fif of brainvision", "vhdr", "edf", "set", "bids"):
        root = tmp_path / how
        root.mkdir()
        write(root / "files", how, raw.copy())
        fields = ["--config.data.raw.word=a word", *(["--config.data.raw.text=trial_type"] if how == "bids" else [])]
        capsys.readouterr()
        said = printed_by(["prepare", str(root / "files"), *fields, f"--out={root / 'data.h5'}"], to="err")
        assert said.count("marker type") == ("brainvision" in how or how == "vhdr"), how
        found[how] = read_datafile(root / "data.h5")
    expected = found["fif"]
    assert expected.sentence.tolist() == [texts[i] for i in (0, 1, 3, 4)]
    for how, data in found.items():
        assert data.sentence.tolist() == expected.sentence.tolist(), how
        assert data.n_words.tolist() == expected.n_words.tolist(), how
        assert data.provenance["dropped"] == {"marked bad": 1}, how
        np.testing.assert_allclose(data.features, expected.features, atol=5e-2, err_msg=how)
