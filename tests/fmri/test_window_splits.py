"""Splits of windows: what each method leaks, counted by hand and against the paper's Table 1."""

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.data_writer import VolumeWriter
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.splits.certificate import (
    assess_leakage,
    certify_data,
    segments_of,
    verdict,
)
from eeg2text_jax.data.splits.methods import make_split, split_graph
from eeg2text_jax.data.splits.neighbors import groups_of_readings
from eeg2text_jax.data.splits.split import PARTS, readings_of

L, RATIO = 10, (0.8, 0.1, 0.1)
GROUPS = {"scrambled": "whole"}


def windows(path, heard: dict[str, list[str]], frames: int = 60) -> DataFile:
    """`heard`: stimulus -> subjects; every window of `L` frames of each."""
    with VolumeWriter(path, (1, 1, 1), "float16", "x") as writer:
        for stimulus, subjects in heard.items():
            for subject in subjects:
                start = writer.add_frames(np.zeros((frames, 1, 1, 1)))
                for k in range(frames - L + 1):
                    text = " ".join(f"{stimulus}{k + j}" for j in range(L))
                    writer.add_window(start + k, L, sentence=text, subject=subject, task=stimulus, sentence_index=3 + k,
                                      text_group=GROUPS.get(stimulus, stimulus))  # fmt: skip
    return read_datafile(path)


def test_blocks_of_windows_share_no_segment(tmp_path):
    """Subjects hear a story at other times of their recordings; a segment of it stays in one part."""
    with VolumeWriter(tmp_path / "data.h5", (1, 1, 1), "float16", "x") as writer:
        for number, subject in enumerate(["S1", "S2", "S3"]):
            start = writer.add_frames(np.zeros((300, 1, 1, 1)))
            for k in range(300 - L + 1):
                writer.add_window(start + k, L, sentence=" ".join(f"w{k + j}" for j in range(L)), subject=subject,
                                  task="story", sentence_index=k, text_group="story", recording=subject,
                                  onset=2.0 * k + 7 * number, duration=2.0 * L)  # fmt: skip
    data = read_datafile(tmp_path / "data.h5")
    split = make_split(data, "blocks", RATIO, 0)
    segments = readings_of(data).segments.windows
    train, dev, test = ({*segments_of(segments[split.parts[part]]).tolist()} for part in PARTS)
    assert min(map(len, (train, dev, test))) > L
    assert not train & dev
    assert not train & test
    assert not dev & test


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> DataFile:
    rng = np.random.default_rng(0)
    names = [f"story{i}" for i in range(10)] + ["whole", "scrambled"]
    heard = {name: [f"S{s:02d}" for s in np.sort(rng.choice(20, 8, replace=False))] for name in names}
    return windows(tmp_path_factory.mktemp("windows") / "data.h5", heard)


def leak(data, method, seed=1):
    split = make_split(data, method, RATIO, seed)
    return split, assess_leakage(readings_of(data), split.parts)[0]


def test_f_and_b_keep_stories_apart_whatever_their_stimuli_are_called(data):
    for method in ("b", "unique_text", "f"):
        for seed in range(5):
            split, found = leak(data, method, seed)
            assert found.tslr["segment"] == 0
            assert found.shared_texts["story"] == 0, "two tellings of one story are one text"
            if method == "f":
                assert found.shared_subjects == []
                assert found.bslr_over_all == 0
                assert 0.2 < split.kept / len(data) < 1
            else:
                assert found.shared_subjects
                assert split.kept == len(data)


def test_a_c_d_and_e_leak_what_the_paper_says(data):
    _, a = leak(data, "a")
    assert (a.tslr["segment"], a.bslr_over_test) == (pytest.approx(1, abs=0.02), 0)
    _, c = leak(data, "c")
    assert c.tslr["segment"] > 0.98
    assert c.bslr_over_test == pytest.approx(0.125, abs=0.04)
    split, d = leak(data, "d")
    assert d.tslr["segment"] > 0.6
    assert d.tslr["sentence-id"] == 0
    split, e = leak(data, "e")
    for task in np.unique(data.task):
        for part in ("dev", "test"):
            rows = [i for i in split.parts[part] if data.task[i] == task]
            places = np.unique(data.sentence_index[rows])
            assert np.ptp(places) == len(places) - 1, "one run of consecutive windows"
            assert len(places) == {"dev": 5, "test": 6}[part]
    assert 0 < e.tslr["segment"] < d.tslr["segment"]


def test_e_leaks_two_boundaries_a_subject_and_story(tmp_path):
    """200 windows: test has 20, and 25 clipped hits at each end that has train beside it."""
    data = windows(tmp_path / "data.h5", {"one": ["A"], "two": ["A"], "three": ["B"]}, frames=209)
    rates = [leak(data, "e", seed)[1].tslr["segment"] for seed in range(8)]
    assert max(rates) == pytest.approx(2 * 25 / 200, abs=0.03)
    assert min(rates) > 0.05


def test_certificate_command_and_map(data, tmp_path, printed_by):
    split = make_split(data, "f", RATIO, 1)
    certificate = certify_data(data, split, RATIO)
    assert {name: len(set(labels)) for name, labels in groups_of_readings(readings_of(data)).items()} == {
        "task": 12, "story": 11}  # fmt: skip
    assert verdict(certificate).startswith("train and test share no texts (by segment)")
    assert [row["tslr"]["segment"] for row in certificate["leakage"]] == [0, 0, 0]
    made, picture = tmp_path / "split.json", tmp_path / "map.png"
    arguments = [str(data.path), "--method=f", "--seed=1", f"--json={made}", f"--map={picture}"]
    said = printed_by(["split", *arguments])
    assert "TSLR, segment" in said
    assert picture.read_bytes().startswith(b"\x89PNG")
    again = make_split(data, "file", RATIO, 0, made)
    assert all((again.parts[name] == split.parts[name]).all() for name in PARTS)


def test_in_f_each_subject_picks_a_story_and_in_f_prose_each_story_a_subject(data, tmp_path):
    """The ratio divides the stories; where they are as many as the subjects, too."""
    even = windows(tmp_path / "data.h5", {f"story{i}": list("ABCDE") for i in range(5)}, frames=12)
    for given, story in ((data, data.text_group), (even, even.task)):
        subject, text = (np.unique(column.astype(str), return_inverse=True)[1] for column in (given.subject, story))
        for seed in range(3):
            for name, (u, v, cut) in {"f": (text, subject, "u"), "f_prose": (subject, text, "v")}.items():
                part = split_graph(u, v, (0.5, 0.2, 0.3), np.random.default_rng(seed), cut=cut)
                found = make_split(given, name, (0.5, 0.2, 0.3), seed).parts
                for k, rows in enumerate(found.values()):
                    np.testing.assert_array_equal(rows, np.flatnonzero(part == k))


def test_two_stories_are_too_few_for_f(tmp_path):
    data = windows(tmp_path / "data.h5", {"whole": ["A", "B"], "scrambled": ["B", "C"], "other": ["C"]})
    with pytest.raises(UserError, match="there are 2 text groups; expected 3 or more"):
        make_split(data, "f", RATIO, 0)


def test_f_cuts_the_subjects_where_they_are_fewer_than_the_stories(tmp_path):
    data = windows(tmp_path / "data.h5", {f"story{i}": list("ABCD") for i in range(12)}, frames=12)
    for seed in range(4):
        parts = make_split(data, "f", (0.5, 0.25, 0.25), seed).parts
        assert [len(set(data.subject[parts[name]])) for name in PARTS] == [2, 1, 1]
