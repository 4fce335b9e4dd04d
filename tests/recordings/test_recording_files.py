"""Which files a command line means."""

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.recordings._zuco import find_recordings


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def found(*sources, task=""):
    return [(file.subject, file.task) for file in find_recordings([str(s) for s in sources], task)[0]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resultsZAB_SR.mat", ("ZAB", "SR")),
        ("resultsZPH_TSR.mat", ("ZPH", "TSR")),
        ("resultsYAC_NR.mat", ("YAC", "NRv2")),  # the same task name means other sentences in release 2.0
        ("resultsXBB_TSR.mat", ("XBB", "TSRv2")),
        ("resultsYAC_SR.mat", ("YAC", "SR")),  # which release 2.0 does not have
        ("resultsZAB_SR_ica_new.mat", ("ZAB", "SR")),
        ("task1-SR-dataset.pickle", ("", "SR")),
        ("task2-NR-dataset.pickle", ("", "NR")),
        ("task3-TSR-dataset-with-tokens_7-10.pickle", ("", "TSR")),
        ("task2-NR-2.0-dataset.pickle", ("", "NRv2")),
        ("task1_source.pkl", ("", "SR")),
        ("taskNRv2_source.pkl", ("", "NRv2")),
    ],
)
def test_subject_and_task_come_from_the_file_name(tmp_path, name, expected):
    """From the name alone: "results" and "ts" in a folder's name mislead readers that split the whole path."""
    folder = touch(tmp_path / "my results of ts_NR resultsZZZ_NR.mat", name)
    assert found(folder / name) == found(folder) == [expected]


def test_folders_are_searched_and_files_ordered_by_task_and_subject(tmp_path):
    touch(tmp_path, "task2 - NR/Matlab files/resultsZAB_NR.mat", "task1- SR/Matlab files/resultsZDM_SR.mat")
    touch(tmp_path, "task1- SR/Matlab files/resultsZAB_SR.mat", "v2/resultsYAC_NR.mat", "._resultsZAB_SR.mat", "a.txt")
    expected = [("ZAB", "SR"), ("ZDM", "SR"), ("ZAB", "NR"), ("YAC", "NRv2")]
    assert found(tmp_path) == expected
    assert found(f"{tmp_path}/**/*.mat") == expected
    assert found(tmp_path, tmp_path / "v2") == expected  # named twice, read once


def test_other_files_of_a_folder_are_passed_over_and_named(tmp_path):
    touch(tmp_path, "resultsZAB_SR.mat", "resultsZAB.mat", "montage.mat", "other.pickle")
    files, passed_over = find_recordings([str(tmp_path)])
    assert len(files) == 1
    names = [str(tmp_path / name) for name in ("montage.mat", "other.pickle", "resultsZAB.mat")]
    assert [note.split(": passed over; ")[0] for note in passed_over] == names


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("montage.mat", "its name tells no subject and task; expected results<SUBJECT>_<SR|NR|TSR>.mat"),
        ("other.pickle", "its name tells no task; give --task="),
        ("absent.mat", "there is no such file or folder"),
        ("*.nothing", "matches nothing"),
        ("empty", "no recordings found"),
    ],
)
def test_sources_that_are_none(tmp_path, source, message):
    touch(tmp_path, "montage.mat", "other.pickle", "empty/readme.txt")
    with pytest.raises(UserError) as error:
        found(tmp_path / source)
    assert message in str(error.value)
    assert str(tmp_path / source) in str(error.value)


def test_a_task_may_be_given(tmp_path):
    touch(tmp_path, "other.pickle")
    assert found(tmp_path / "other.pickle", task="TSR") == [("", "TSR")]


def test_duplicate_subject_files_are_refused(tmp_path):
    touch(tmp_path, "a/resultsZAB_SR.mat", "b/resultsZAB_SR.mat", "b/resultsZAB_NR.mat")
    message = r"a/resultsZAB_SR.mat and .*b/resultsZAB_SR.mat both hold subject ZAB of task SR"
    with pytest.raises(UserError, match=message):
        found(tmp_path)
