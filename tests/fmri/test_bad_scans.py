"""Scans that are not as they should be: a sentence a kind, the others kept, nothing half-written."""

import gzip
import json
import os
import shutil

import nibabel
import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.fmri._scans import Scan, read_exclusions, select
from eeg2text_jax.data.planted import write_scan, write_transcript
from eeg2text_testing.bids_stories import GRID, WINDOW, fmri_spec, frame_of, make_tree, story, volumes

SCAN = "sub-01/func/sub-01_task-tunnel"
FLAGS = [f"--config.data.fmri.grid={GRID}", f"--config.data.fmri.window={WINDOW}"]


def annexed(path):
    path.unlink(missing_ok=True)
    path.symlink_to("../../.git/annex/objects/XX/image.nii.gz")


def pointer(path):
    path.write_text("/annex/objects/XX/image.nii.gz\n")


def cut(path):
    path.write_bytes(path.read_bytes()[:-50])


def flipped(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 255
    path.write_bytes(raw)


def longer(path):
    with gzip.open(path) as file:
        raw = file.read()
    with gzip.open(path, "wb") as file:
        file.write(raw + bytes(48))


def events(path, *rows):
    lines = ["onset\tduration\ttrial_type\tstim_file", *rows]
    path.write_text("\n".join(lines) + "\n")


def other_grid(path):
    nibabel.save(nibabel.Nifti1Image(np.zeros((5, 4, 3, 40), np.int16), np.eye(4)), path)


def header_tr(path):
    image = nibabel.load(path)
    image = nibabel.Nifti1Image(np.asarray(image.dataobj), np.eye(4), image.header)
    image.header["pixdim"][4] = 2.0
    nibabel.save(image, path)


IMAGE, SIDECAR, EVENTS = f"{SCAN}_bold.nii.gz", f"{SCAN}_bold.json", f"{SCAN}_events.tsv"
ALIGN = "stimuli/gentle/tunnel/align.csv"
TUNNEL = "tunnel_audio.wav"
CASES = {
    "annexed image": (IMAGE, annexed, "not downloaded", "datalad get"),
    "pointer": (IMAGE, pointer, "not downloaded", "is a pointer"),
    "no image": (IMAGE, os.remove, "no image", "no image beside its sidecar"),
    "no sidecar": (SIDECAR, os.remove, "no sidecar", "which says how long a TR is"),
    "an annexed sidecar": (SIDECAR, annexed, "sidecar not downloaded", "its sidecar"),
    "a pointer for events": (EVENTS, pointer, "events not downloaded", "datalad get"),
    "empty sidecar": (SIDECAR, lambda p: p.write_text("{}"), "unreadable sidecar", "RepetitionTime"),
    "sidecar of zeros": (SIDECAR, lambda p: p.write_bytes(bytes(20)), "unreadable sidecar", "how long a TR is"),
    "a TR in milliseconds": (
        SIDECAR, lambda p: p.write_text(json.dumps({"RepetitionTime": 1500})), "impossible TR", "1500"),
    "no events": (EVENTS, os.remove, "no events", "when the story was played"),
    "events without a story": (EVENTS, lambda p: events(p, f"0\t9\tmusic\t{TUNNEL}"), "no story", "trial_type story"),
    "overlapping stories": (
        EVENTS, lambda p: events(p, f"3\t20\tstory\t{TUNNEL}", f"20\t9\tstory\t{TUNNEL}"), "overlapping stories",
        "at 20 s begins before the one at 3 s has ended"),
    "a story without audio": (EVENTS, lambda p: events(p, "3\t20\tstory\tn/a"), "no audio named", "stim_file"),
    "a negative duration": (EVENTS, lambda p: events(p, f"3\t-2\tstory\t{TUNNEL}"), "unreadable events", "-2"),
    "an onset that is a word": (EVENTS, lambda p: events(p, f"x\t2\tstory\t{TUNNEL}"), "unreadable events", "'x'"),
    "events of one column": (EVENTS, lambda p: p.write_text("onset\n3\n"), "unreadable events", "duration"),
    "another grid": (IMAGE, other_grid, "another grid", "5 x 4 x 3 x 40"),
    "a header with another TR": (IMAGE, header_tr, "contradictory TR", "2 s by its header and of 1.5 s"),
    "a truncated gz": (IMAGE, cut, "damaged image", "cannot be read to its end"),
    "a flipped byte in a gz": (IMAGE, flipped, "damaged image", ""),
    "more than the header says": (IMAGE, longer, "damaged image", "more bytes"),
    "not an image": (IMAGE, lambda p: p.write_text("x" * 2000), "damaged image", "no NIfTI image"),
    "no transcript": (ALIGN, os.remove, "no transcript", "data.fmri.transcripts"),
    "an annexed transcript": (ALIGN, annexed, "transcript not downloaded", "stimuli/gentle"),
    "a transcript of three columns": (ALIGN, lambda p: p.write_text("a,a,1\n"), "unreadable transcript", "3 columns"),
    "a transcript that goes backwards in a word": (
        ALIGN, lambda p: p.write_text("a,a,2,1\n"), "unreadable transcript", "the times 2 and 1"),
    "a transcript without times": (ALIGN, lambda p: p.write_text("a,,,\n"), "unreadable transcript", "no word with a"),
}  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return make_tree(tmp_path_factory.mktemp("tree") / "bids")


@pytest.fixture
def tree(original, tmp_path):
    return shutil.copytree(original, tmp_path / "bids", symlinks=True)


@pytest.mark.parametrize("case", CASES)
def test_a_scan_that_cannot_be_used_is_named_and_left_out(case, tree, tmp_path, capsys):
    name, damage, kind, said = CASES[case]
    damage(tree / name)
    assert main(["prepare", str(tree), f"--out={tmp_path / 'data.h5'}", *FLAGS]) == 0
    output = capsys.readouterr()
    lines = [line for line in output.err.splitlines() if f"({kind})" in line]
    assert len(lines) == 1, output.err
    assert "sub-01_task-tunnel" in lines[0]
    assert said in lines[0]
    assert kind in output.out, "the table of what was dropped"
    data = read_datafile(tmp_path / "data.h5")
    assert not ((data.subject == "sub-01") & (data.task == "tunnel")).any()
    assert ((data.subject == "sub-02") & (data.task == "twice")).any()


@pytest.mark.parametrize("case", ["annexed image", "no sidecar", "a truncated gz", "events without a story"])
def test_where_strict_the_first_one_stops_it(case, tree, tmp_path, refused):
    name, damage, *_ = CASES[case]
    damage(tree / name)
    out = tmp_path / "out" / "data.h5"
    error = refused(["prepare", str(tree), f"--out={out}", "--config.data.fmri.strict=True", *FLAGS])
    assert "sub-01_task-tunnel" in error
    assert not out.parent.exists() or not [path for path in out.parent.iterdir() if "lock" not in path.name]


@pytest.mark.parametrize("lag", [0, 3])
def test_fewer_frames_than_the_events_say(lag, tree, tmp_path, printed_by):
    """Of a file whose header has its repetition time in milliseconds."""
    path = write_scan(tree, "sub-01", "tunnel", volumes(1, 1, 20), 1.5, story(3.0, 45.0, "tunnel"))
    image = nibabel.load(path)
    image = nibabel.Nifti1Image(np.asarray(image.dataobj), np.eye(4), image.header)
    image.header.set_xyzt_units("mm", "msec")
    image.header["pixdim"][4] = 1500.0
    nibabel.save(image, path)
    arguments = ["prepare", str(tree), f"--out={tmp_path / 'data.h5'}", *FLAGS, f"--config.data.fmri.lag_tr={lag}"]
    output = printed_by(arguments, to="err")
    line = next(line for line in output.splitlines() if "sub-01_task-tunnel" in line)
    assert f"has 20 frames and its events go to frame {32 + lag}: windows beyond the end are dropped" in line
    data = read_datafile(tmp_path / "data.h5")
    rows = np.flatnonzero((data.subject == "sub-01") & (data.task == "tunnel"))
    assert data.sentence_index[rows].tolist() == list(range(15 - lag))  # frames 2 + lag to 19, in windows of 4
    for k, i in enumerate(rows):
        assert frame_of(data.words(i), 20).tolist() == list(range(2 + lag + k, 6 + lag + k))
        assert data.clock.onset[i] == (2 + lag + k) * 1.5


def test_a_first_word_far_from_its_story_is_mended_where_it_is_known_and_said_where_not(tree, tmp_path, printed_by):
    gentle = tree / "stimuli" / "gentle"
    rows = [("so", "so", 2.0, 2.5), ("it", "it", 22.6, 22.9), ("goes", "goes", 24.1, 24.5)]
    for name in ("prettymouth", "other"):
        write_transcript(gentle, name, rows)
        write_scan(tree, "sub-01", name, volumes(1, 7), 1.5, story(21.0, 18.0, name, music=0.0))
    said = printed_by(["prepare", str(tree), f"--out={tmp_path / 'data.h5'}", *FLAGS], to="err")
    at_2 = "has its first word at 2 s of the audio, but the story begins at 21 s"
    assert f"prettymouth {at_2}; corrected: 'so' at 21 s" in said
    assert f"of other {at_2}: is it the transcript" in said
    data = read_datafile(tmp_path / "data.h5")
    texts = {task: data.sentence[data.task == task][0] for task in ("prettymouth", "other")}
    assert texts == {"prettymouth": "so it goes", "other": "it goes"}


def test_a_folder_without_anything_usable_is_an_error(tree, tmp_path, refused):
    for path in tree.glob("sub-*/func/*_bold.nii.gz"):
        annexed(path)
    error = refused(["prepare", str(tree), f"--out={tmp_path / 'data.h5'}", *FLAGS])
    reasons = "none of the 13 selected scans can be used, for these reasons: 13 scans are left out (not downloaded)"
    assert reasons in error
    assert "Traceback" not in error
    assert not (tmp_path / "data.h5").exists()


def test_names_that_the_folder_does_not_have(tree, tmp_path, refused):
    out = f"--out={tmp_path / 'data.h5'}"
    for flag, said in (
        ("--config.data.fmri.tasks=('tunel',)", "data.fmri.tasks names 'tunel'"),
        ("--config.data.fmri.exclude=list.json", "there is no such file; set data.fmri.exclude"),
        ("--config.data.fmri.grid=(4, 4, 9)", "has 9 slices"),
        ("--config.data.fmri.window=99", "no window is left"),
    ):
        assert said in refused(["prepare", str(tree), out, *FLAGS, flag])
    assert not (tmp_path / "data.h5").exists()


def test_a_list_of_scans_to_leave_out_has_names_and_nothing_else(tmp_path):
    """An empty name, being a part of every name, would leave out all scans."""

    def read(found):
        (tmp_path / "list.json").write_text(json.dumps(found))
        return read_exclusions(tmp_path, "list.json")

    annexed(tmp_path / "list.json")
    with pytest.raises(UserError, match="link to a file that is not downloaded; fetch it"):
        read_exclusions(tmp_path, "list.json")
    (tmp_path / "list.json").unlink()

    for names in ([""], ["sub-01_task-pie", ""], ["", "sub-01_task-pie"], [3], [None], "sub-01", {"a": 1}, None):
        with pytest.raises(UserError, match=r"list\.json: is no list of scans to leave out .* subject -> names"):
            read({"pie": {"sub-02": ["sub-02_task-pie"], "sub-01": names}})
    found = read({"pie": {"sub-01": ["a", "b"], "sub-02": []}, "lucy": {}, "tunnel": {"sub-01": ["c"]}})
    assert found == ["a", "b", "c"]


def test_the_next_run_is_taken_where_the_first_cannot_be_used(tmp_path):
    problems = {"1": "no events|has none", "2": "", "3": ""}
    scans = [Scan(tmp_path, f"sub-01_task-pie_run-{run}", "sub-01", "pie", run, 1.5, GRID[2], (), problem)
             for run, problem in problems.items()]  # fmt: skip
    wanted, left_out = select(tmp_path, scans, fmri_spec(grid=GRID))
    assert [scan.run for scan in wanted] == ["1", "2"]
    assert [scan.run for scan in left_out["a further run"]] == ["3"]
    assert select(tmp_path, scans, fmri_spec(grid=GRID, runs="all"))[0] == scans


def test_a_name_in_the_list_of_scans_to_leave_out_is_that_of_all_runs(tmp_path):
    stems = ["sub-01_task-pie_run-1", "sub-01_task-pie_run-2", "sub-02_task-pie_run-1", "sub-01_task-lucy"]
    scans = [Scan(tmp_path, stem, *stem.split("_task-")[:1], "pie", "1", 1.5, GRID[2], ()) for stem in stems]
    (tmp_path / "list.json").write_text('{"pie": {"sub-01": ["sub-01_task-pie"], "sub-02": []}}')
    wanted, left_out = select(tmp_path, scans, fmri_spec(grid=GRID, runs="all", exclude="list.json"))
    assert (wanted, left_out) == (scans[2:], {"excluded by the data set's list": scans[:2]})


def test_tellings_of_one_story_are_one_group():
    spec = fmri_spec(same_text=(("whole", "scrambled"), ("a", "b")))
    assert [spec.group_of(name) for name in ("scrambled", "whole", "b", "other")] == ["whole", "whole", "a", "other"]
