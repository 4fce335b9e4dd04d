"""Scans of stories as Narratives has them -> windows: every frame and every word where the tables say."""

import gzip

import numpy as np
import pytest
from tiny_run import prepare

from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.fmri._prepare_scans import usual_tr
from eeg2text_jax.data.fmri._scans import Scan, Story, Transcript, align_stories, correct_onsets, frame_texts
from eeg2text_jax.data.planted import write_scan
from eeg2text_jax.data.source import Tally
from eeg2text_jax.training.configuration import load_config
from eeg2text_testing.bids_stories import GRID, WINDOW, frame_of, make_tree, story, volumes


def make(root, out, **fields) -> tuple[DataFile, Tally]:
    config = load_config("default").data
    with config.unlocked():
        config.fmri.update({"grid": GRID, "window": WINDOW, "dtype": "float32", **fields})
    tally = prepare(config, out, [str(root)])
    return read_datafile(out), tally


@pytest.fixture(scope="module", params=[True, False], ids=["packed", "plain"])
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    tree = make_tree(folder / "bids", packed=request.param)
    return make(tree, folder / "data.h5", same_text=(("slow", "tunnel"), ("pie", "other")))


def windows(data: DataFile, subject: str, task: str) -> dict[int, tuple[list[int], str]]:
    """First segment -> frames in the scan and text of each window."""
    rows = np.flatnonzero((data.subject == subject) & (data.task == task))
    return {int(data.sentence_index[i]): (frame_of(data.words(i)).tolist(), str(data.sentence[i])) for i in rows}


def test_frames_and_words_of_a_story_that_begins_with_its_audio(made):
    """Audio and story at 3.0 s, TR 1.5: frames 2 to 31; word k begins at 3.3 + 3k s, that is in frame 2 + 2k."""
    data, _ = made
    found = windows(data, "sub-01", "tunnel")
    words = ["Once", "there", "was", "a", "Zorblax", "named, quote", "null", "who", "nan", "ran", "and", "none", "home"]
    # The last word is in the 25th frame of 30, so the last 2 of 27 windows have none.
    assert sorted(found) == list(range(25))
    for start, (frames, text) in found.items():
        assert frames == list(range(2 + start, 2 + start + WINDOW))
        assert text == " ".join(w for k, w in enumerate(words) if start <= 2 * k < start + WINDOW)


def test_windows_without_words_are_counted_as_dropped(made):
    _, tally = made
    assert tally.dropped["sub-01", "tunnel", "no words"] == 2
    assert tally.n_kept["sub-01", "tunnel"] == 25


def test_a_story_that_was_begun_early_has_the_same_text_at_the_same_segment(made):
    """Story row at 9 s for two subjects and at 3 s for the third, music at 0 for all: frames 6 to 17 and 2 to 13."""
    data, tally = made
    usual, early = windows(data, "sub-01", "pretty"), windows(data, "sub-03", "pretty")
    assert {start: text for start, (_, text) in usual.items()} == {s: text for s, (_, text) in early.items()}
    assert usual[6][0] == [6, 7, 8, 9]
    assert early[6][0] == [2, 3, 4, 5]
    assert usual[6][1] == "so it was"  # 9.2, 11.2, 13.2 s: frames 6, 7, 8; the next one at 15.2 s is in frame 10
    assert [note for note in tally.notes if "sub-03_task-pretty" in note and "-6 s" in note]


def test_most_scans_tell_where_a_story_is_in_its_audio_whether_others_have_it_earlier_or_later():
    """At 9 s; the audio is moved where the story is at 3 or 12 s, but not for 0.3 s."""
    scans = [(Story("x", onset, 18.0, 1.0),) for onset in (13.0, 10.0, 10.3, 4.0, 10.0)]
    placed = [story for (story,) in align_stories(scans)]
    assert [story.onset for story in placed] == [13.0, 10.0, 10.3, 4.0, 10.0]
    assert [story.audio_start for story in placed] == [4.0, 1.0, 1.0, -5.0, 1.0]
    assert [story.moved for story in placed] == [3.0, 0.0, 0.0, -6.0, 0.0]


def test_stimuli_of_the_same_text_are_one_group_and_others_are_their_own(made):
    data, _ = made
    assert set(zip(data.task, data.text_group, strict=True)) == {
        ("tunnel", "slow"), ("slow", "slow"), ("pretty", "pretty"), ("twice", "twice"), ("pie", "pie")}  # fmt: skip


def test_the_repetition_time_of_each_scan_is_its_own(made):
    """Words at 2 + 5.07 k s: with a TR of 1.5 in frame floor(t / 1.5), with 1.52 in floor(t / 1.52)."""
    data, _ = made
    begins = 2.0 + 5.07 * np.arange(10)
    for subject, tr, n in (("sub-01", 1.5, 36), ("sub-02", 1.52, 36)):
        places = np.floor(begins / tr).astype(int)
        names = np.array(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"])
        found = windows(data, subject, "slow")
        for start in range(n - WINDOW + 1):
            inside = (places >= start) & (places < start + WINDOW)
            assert (start in found) == inside.any()
            if inside.any():
                assert found[start] == (list(range(start, start + WINDOW)), " ".join(names[inside]))
    assert windows(data, "sub-01", "slow") != windows(data, "sub-02", "slow")


def test_segments_count_in_the_usual_repetition_time_and_seconds_in_that_of_the_scan(tmp_path):
    """Story at 9 s with a TR of 2.4 s: frames 4 to 11, the first of which begins at 9.6 s of the audio.

    The scan's task has another name than what was played.
    """
    root = make_tree(tmp_path / "bids")
    write_scan(root, "sub-07", "later", volumes(7, 2), 2.4, story(9.0, 18.0, "pretty", music=0.0))
    options = {"tasks": ("pretty", "later"), "lag_tr": 1, "same_text": (("tunnel", "pretty"), ("pie", "later"))}
    data, _ = make(root, tmp_path / "a.h5", **options)
    rows = np.flatnonzero(data.subject == "sub-07")
    assert (set(data.task), set(data.text_group)) == ({"pretty"}, {"tunnel"})
    assert data.sentence_index[rows].tolist() == [6, 8, 10, 11, 13], "2.4 / 1.5 of the frame's number"
    np.testing.assert_allclose(data.clock.onset[rows], [2.4 * (frame + 1) for frame in range(4, 9)])
    np.testing.assert_allclose(data.clock.duration[rows], 9.6)
    assert [frame_of(data.words(i))[0] for i in rows] == [5, 6, 7, 8, 9]
    np.testing.assert_allclose(data.story_times[rows], [(2400 * f, 2400 * (f + 4)) for f in range(4, 9)])


def test_no_window_goes_across_the_gap_between_two_stories_of_one_audio(made):
    """Audio at 1.5 s; stories at 4.5 s (frames 3 to 12) and 31.5 s (21 to 28)."""
    data, _ = made
    found = windows(data, "sub-02", "twice")
    assert sorted(found) == [*range(2, 9), *range(20, 25)]  # segments count from the audio's beginning
    assert found[2] == ([3, 4, 5, 6], "a b c")
    assert found[20] == ([21, 22, 23, 24], "u v w")
    assert found[24][0] == [25, 26, 27, 28]


def test_one_run_is_taken_and_the_excluded_and_wide_scans_are_not(made):
    data, tally = made
    assert "excluded" not in data.task
    assert tally.drops("sub-02", "excluded") == {"excluded by the data set's list": 5}
    assert tally.drops("sub-01", "pie") == {"a further run": 7}
    assert sorted(set(data.subject[data.task == "pie"])) == ["sub-01"]
    assert (data.subject == "sub-01")[data.task == "pie"].sum() == 7
    unheard = "2 transcripts are of audio that no selected scan played: excluded, unheard"
    assert any(unheard in note for note in tally.notes)


def test_all_runs_lag_stride_and_half_precision(tmp_path):
    root = make_tree(tmp_path / "bids")
    data, _ = make(root, tmp_path / "a.h5", runs="all", lag_tr=3, stride=WINDOW, dtype="float16", tasks=("pie",))
    assert len(data) == 4  # frames 4 to 13 twice, windows begun at 4 and 8
    frames = [frame_of(data.words(i)).tolist() for i in range(4)]
    assert frames == [[7, 8, 9, 10], [11, 12, 13, 14]] * 2
    assert data.sentence_id.tolist() == ["pie:4", "pie:8"] * 2
    assert data.clock.onset.tolist() == [7 * 1.5, 11 * 1.5] * 2
    assert set(data.clock.duration) == {4 * 1.5}
    assert len(data.clock.recordings()) == 2
    assert data.sentence[0] == "I ate a"  # 6, 8, 10 and 12 s: frames 4, 5, 6 and 8


@pytest.mark.parametrize("scaled", [False, True])
def test_a_trend_is_taken_off_and_a_mask_leaves_zeros(scaled, tmp_path):
    """Of floats, or of whole numbers whose scale in the header is negative."""
    root = make_tree(tmp_path / "bids")
    rng = np.random.default_rng(0)
    values = 1000 + rng.normal(0, 5, (*GRID, 40)) + np.linspace(0, 300, 40) + np.linspace(0, 20, 40) ** 2
    values[0] /= 100  # outside of the brain
    written = values.astype(np.float32)
    written[2, 1, 1, 7] = written[3, 0, 2] = np.nan  # as outside of some programs' masks
    stored = np.rint((1500 - values) * 8).astype(np.int16)
    path = write_scan(root, "sub-09", "pie", stored if scaled else written, 1.5, story(6.0, 15.0, "pie", music=0.0))
    if scaled:
        content = bytearray(gzip.decompress(path.read_bytes()))
        content[112:120] = np.array([-1 / 8, 1500], "<f4").tobytes()  # `scl_slope` and `scl_inter`
        path.write_bytes(gzip.compress(bytes(content)))
        values = 1500 - stored / 8
    data, _ = make(root, tmp_path / "a.h5", detrend=2, mask=0.3, tasks=("pie",), clip=2.0)
    own = data.words(int(np.flatnonzero(data.subject == "sub-09")[0]))
    assert (own[:, 0] == 0).all()
    time = np.linspace(-1, 1, 40)
    design = np.stack([time**0, time, time**2], 1)
    flat = values[1:].reshape(-1, 40).T.astype(np.float32).astype(np.float64)
    rest = flat - design @ np.linalg.lstsq(design, flat, rcond=None)[0]
    expected = np.clip(rest / rest.std(0), -2, 2)[4 : 4 + WINDOW].reshape(WINDOW, 3, *GRID[1:])
    expected[:, [1, 2], [1, 0], [1, 2]] *= scaled  # NaN, which whole numbers do not have
    np.testing.assert_allclose(own[:, 1:], expected, atol=2e-3)


def test_words_at_the_edges_of_a_story_are_in_its_nearest_frame():
    """Frames 2 to 5 are 3.0 to 9.0 s, and the story is 3.2 to 9.1 s: a word in either is in the text."""
    starts = [2.9, 3.05, 4.5, np.nan, 4.7, 9.05, 9.2]
    transcript = Transcript(("no", "first", "next", "lost", "then", "last", "no"), np.array(starts))
    assert frame_texts(transcript, Story("x", 3.2, 5.9, 0.0), 1.5) == ["first", "next lost then", "", "last"]
    moved = Transcript(transcript.words, transcript.starts - 2)
    assert frame_texts(moved, Story("x", 3.2, 5.9, 2.0), 1.5) == ["first", "next lost then", "", "last"]


@pytest.mark.parametrize(
    ("starts", "corrected"),
    [
        ([np.nan, 2.0, 3.0, 31.0], [np.nan, 29.0, 29.15, 31.0]),
        ([2.0, 28.0, 31.0, 33.0], [29.0, 28.0, 31.0, 33.0]),
        ([27.0, 2.0, 31.0, 33.0], [27.0, 2.0, 31.0, 33.0]),
    ],
)
def test_first_words_far_from_their_story_are_corrected_one_by_one(starts, corrected):
    transcript = Transcript(("a", "b", "c", "d"), np.array(starts))
    found, note = correct_onsets(transcript, "merlin", 29.0, 1.5)
    np.testing.assert_array_equal(found.starts, corrected)
    assert bool(note) == (starts != corrected)
    np.testing.assert_array_equal(transcript.starts, starts)


def test_the_usual_repetition_time_is_that_of_most_scans_and_in_a_tie_the_shortest(tmp_path):
    played = {"x": (1.52, 1.52, 1.5), "y": (1.52, 1.5)}
    scans = [Scan(tmp_path, "", "sub-01", name, "", tr, 0, (Story(name, 0.0, 9.0, 0.0), Story(name, 9.0, 9.0, 0.0)))
             for name, trs in played.items() for tr in trs]  # fmt: skip
    assert usual_tr(scans) == {"x": 1.52, "y": 1.5}
