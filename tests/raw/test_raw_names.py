"""Recordings that would silently count as one subject, twice, or by their codes."""

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.raw.find import RawFile, find_raw
from eeg2text_jax.data.raw.sentences import refuse_codes
from eeg2text_jax.data.source import are_codes, mark_notes


@pytest.fixture
def nested(tmp_path):
    for folder in ("vp1/s1", "vp1/s2", "vp2/s1"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "reading.edf").write_bytes(b"x")
    return tmp_path


def test_files_of_one_name_are_not_one_subject(nested):
    with pytest.raises(UserError, match=r"3 files are called reading\.edf.*data\.raw\.names='\(\?P<subject>"):
        find_raw([f"{nested}/*/*/reading.edf"])
    with pytest.raises(UserError, match=r"2 files are called reading\.edf, .* the subject vp1"):
        find_raw([f"{nested}/*/*/reading.edf"], r"(?P<subject>[^/]+)/s\d/reading")


def test_folders_tell_who_reads(nested, monkeypatch):
    names = r"(?P<subject>[^/]+)/(?P<session>[^/]+)/[^/]+"
    found = find_raw([f"{nested}/*/*/*"], names)
    assert [(file.subject, file.session) for file in found] == [("vp1", "s1"), ("vp1", "s2"), ("vp2", "s1")]
    monkeypatch.chdir(nested / "vp2/s1")
    assert find_raw(["reading.edf"], "(?P<subject>[^/]+)/[^/]+/reading")[0].subject == "vp2"
    with pytest.raises(UserError, match="finds no subject"):
        find_raw(["reading.edf"], r"(?P<subject>vp\d)")  # without a slash, for the file's name alone


@pytest.mark.parametrize("texts", [["S  8", "S 30", "S 24"], ["101", "102", "103"], ["event_1", "event_2", "event_3"]])
def test_codes_are_no_texts(texts):
    with pytest.raises(UserError, match=r"look like codes \(.*data\.raw\.texts"):
        refuse_codes(RawFile("S1.edf", "S1", "NR"), texts)
    (note,) = mark_notes(texts)
    assert "look like codes of triggers" in note


def test_a_text_may_be_a_mark_if_it_is_five_times_as_frequent_as_the_next_one():
    def noted(*counts):
        return mark_notes(f"the dog saw {'abcde'[i]}" for i, n in reversed([*enumerate(counts)]) for _ in range(n))

    for counts in ((10, 9, 1, 1, 1), (24, 5, 1, 1), (4, 1, 1), (7, 7, 7), (30, 1), (30,), ()):
        assert noted(*counts) == [], counts
    for counts, said in (((10, 2, 1, 1), "10 of 14"), ((25, 5, 1), "25 of 31"), ((5, 1, 1), "5 of 7")):
        (note,) = noted(*counts)
        expected = f"'the dog saw a' is the text of {said} samples, the next most frequent text has {counts[1]}. If"
        assert note.startswith(expected)


def test_texts_are_no_codes():
    assert not are_codes(["the dog saw 3", "a cat ran", "b 2"])
    assert not are_codes(["yes", "no", "maybe"])
    assert not are_codes(["S 1", "S 1"])


def test_parts_of_a_recording_and_an_empty_room_are_no_recordings(tmp_path):
    (tmp_path / "dataset_description.json").write_text("{}")
    for name in ("sub-01/meg/sub-01_task-a_split-01_meg.fif", "sub-01/meg/sub-01_task-a_split-02_meg.fif",
                 "sub-01/meg/sub-01_acq-crosstalk_meg.fif", "sub-02/ses-3/meg/sub-02_ses-3_task-a_run-2_meg.fif",
                 "sub-emptyroom/ses-3/meg/sub-emptyroom_ses-3_task-noise_meg.fif"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    pytest.importorskip("mne_bids", reason="pip install 'eeg2text_jax[mne]'")
    found = [(file.subject, file.session, file.run, file.path.name) for file in find_raw([str(tmp_path)])]
    assert found == [("01", "", "", "sub-01_task-a_split-01_meg.fif"),
                     ("02", "3", "2", "sub-02_ses-3_task-a_run-2_meg.fif")]  # fmt: skip
