"""Marker types of BrainVision: not part of a text, and no matter to codes."""

import re

import mne
import mne_bids as bids
import numpy as np
import pytest
from held import FILE, event, sentences_of

from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.planted import WORD, Plan, voltages
from eeg2text_jax.data.raw.find import annotations, is_marked_bad
from eeg2text_jax.data.raw.sentences import Texts

SENTENCES = 5
PLAIN = ["the cafX was near the lake", "a boat went over the lake"]


def matches(code, pattern):
    return event(0.0, code).match(pattern) is not None


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
     ("T101", "101"), ("sentence/101", "101"), ("101", "S10"), ("sentence/a b", "sentence"), ("axb", "a.b")],
)  # fmt: skip
def test_another_code_does_not_match(code, pattern):
    assert not matches(code, pattern)


def test_what_a_star_stands_for_has_no_type():
    assert event(0.0, "Comment/sentence/a/b c").match("sentence/*")[1] == "a/b c"
    assert event(0.0, "Comment/a b").match("*")[1] == "a b"
    assert event(0.0, "Comment/a b").match("Comment/*")[1] == "a b"


def test_a_bad_stretch_is_bad_with_its_type():
    assert is_marked_bad(event(0.0, "Comment/BAD_blink", 1.0))
    assert is_marked_bad(event(0.0, "Bad Interval/", 1.0))
    assert not is_marked_bad(event(0.0, "Comment/the bad day", 1.0))


def test_texts_by_code_in_every_spelling(tmp_path):
    table = tmp_path / "texts.tsv"
    for written in ("S101", "S 101", "Stimulus/S101", "101"):
        table.write_text(f"code\ttext\n{written}\tone\n")
        for code in ("Stimulus/S101", "S 101", "101"):
            assert Texts(table, "text").find(FILE, 1, (code,)) == "one", (written, code)
        assert Texts(table, "text").find(FILE, 1, ("Response/R101",)) == ""


def test_a_column_of_texts_loses_its_types():
    given = ((1.0, "Comment/a b"), (4.0, "New Segment/"), (7.0, "and/or"))
    events = [event(onset, code, 2.0, trial_type=code) for onset, code in given]
    found, _ = sentences_of(events, ("trial_type",), text="trial_type")
    assert [reading.text for reading in found] == ["a b", "and/or"]


def test_a_marker_of_one_sample_has_no_duration():
    """In BrainVision, triggers last one sample; two samples are a duration, and equal markers are one."""
    raw = mne.io.RawArray(np.zeros((1, 640)), mne.create_info(1, 128.0, "eeg"), verbose="error")
    marks = [(1.0, 1 / 128, "a b"), (2.0, 2 / 128, "a b"), (2.0, 2 / 128, "a b"), (3.0, 0.0, "c d")]
    raw.set_annotations(mne.Annotations(*zip(*marks, strict=True)))
    found = [(event.onset, event.duration, event.columns) for event in annotations(raw, "said")]
    assert found == [(1.0, 0.0, {"said": "a b"}), (2.0, 2 / 128, {"said": "a b"}), (3.0, 0.0, {"said": "c d"})]


def write(folder, how, raw):
    """The same recording, as one of the formats in which annotations travel."""
    folder.mkdir()
    if how == "fif":
        raw.save(folder / "S1_raw.fif", verbose="error", fmt="double")
    elif how == "fif of brainvision":
        mne.export.export_raw(folder.parent / "S1.vhdr", raw, verbose="error")
        again = mne.io.read_raw(folder.parent / "S1.vhdr", verbose="error")
        again.save(folder / "S1_raw.fif", verbose="error", fmt="double")
    elif how == "bids":
        raw.info["line_freq"] = 50
        path = bids.BIDSPath(subject="S1", task="reading", datatype="eeg", root=folder)
        bids.write_raw_bids(raw, path, format="BrainVision", allow_preload=True, verbose="error")
    else:
        mne.export.export_raw(folder / f"S1.{how}", raw, verbose="error")


@pytest.mark.filterwarnings("ignore")  # MNE's, while files are written
def test_copies_in_all_formats_give_the_same_texts_words_and_counts(tmp_path, capsys, printed_by):
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


@pytest.fixture
def written(tmp_path):
    """Write a recording with two sentences in a format; return its folder."""

    def write(suffix):
        (tmp_path / "files").mkdir()
        noise = np.random.default_rng(0).normal(size=(6, 40 * 128)) * 1e-5
        raw = mne.io.RawArray(noise, mne.create_info(6, 128.0, "eeg"), verbose="error")
        raw.set_annotations(mne.Annotations([4.0, 20.0], [5.0, 5.0], PLAIN))
        mne.export.export_raw(tmp_path / f"files/S1.{suffix}", raw, verbose="error")
        return tmp_path / "files"

    return write


@pytest.mark.filterwarnings("ignore")  # MNE's, while files are written
def test_annotations_of_edf_may_be_latin_1(written, refusal, tmp_path):
    folder = written("edf")
    path = folder / "S1.edf"
    path.write_bytes(path.read_bytes().replace(b"cafX", "café".encode("latin1")))
    advice = "its annotations are no UTF-8 text; set data.raw.encoding to their encoding, such as latin1"
    assert advice in refusal(folder)
    assert "expected the name of an encoding" in refusal(folder, "--config.data.raw.encoding=nothing")
    command = ["prepare", str(folder), "--config.data.raw.encoding=latin1", f"--out={tmp_path / 'data.h5'}"]
    assert main(command) == 0
    assert read_datafile(tmp_path / "data.h5").sentence.tolist() == ["the café was near the lake", PLAIN[1]]


@pytest.mark.filterwarnings("ignore")
def test_a_marker_for_each_channel_is_one_sentence(written, tmp_path):
    """The markers overlapped, and the second was called a word of the sentence."""
    folder = written("vhdr")
    markers = folder / "S1.vmrk"
    text = markers.read_text("utf8")
    lines = re.findall(r"^Mk\d+=Comment,.*$", text, re.MULTILINE)
    assert len(lines) == 2
    more = [re.sub(r",\d+$", f",{channel}", line) for channel in range(1, 7) for line in lines]
    numbered = [f"Mk{i}={line.partition('=')[2]}" for i, line in enumerate(more, 10)]
    markers.write_text(text.rstrip("\n") + "\n" + "\n".join(numbered) + "\n", "utf8")
    assert main(["prepare", str(folder), f"--out={tmp_path / 'data.h5'}"]) == 0
    assert read_datafile(tmp_path / "data.h5").sentence.tolist() == PLAIN
