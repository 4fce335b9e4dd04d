"""A sample's place in its recording, and what the same place in another recording tells of the text."""

import dataclasses
import itertools

import numpy as np
import pytest
from reading_grids import are_apart, clock_of, data_of, grid, with_clock

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.data import part_cells, place_figure, split_map, time_figure
from eeg2text_jax.data.clock import PLACE_FORMS, Clock, runs_of
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.source import Sample
from eeg2text_jax.data.splits.certificate import certify_data, split_report
from eeg2text_jax.data.splits.methods import make_folds, make_split
from eeg2text_jax.data.splits.neighbors import (
    ANYWHERE,
    OTHER_SUBJECT,
    SAME_RUN,
    high_neighbors,
    place_lines,
    recordings_of_texts,
    run_table,
)
from eeg2text_jax.data.splits.split import Split, readings_of


def days(order="same", subjects=2, sessions=3, texts=40, seed=0, jitter=0.1):
    """Readers who read the same sentences again in each session, about one every five seconds after a lead-in."""
    rng = np.random.default_rng(seed)
    rows, recording, onset = [], [], []
    for subject in range(subjects):
        for session in range(sessions):
            shown = np.arange(texts) if order == "same" else rng.permutation(texts)
            begin = rng.uniform(20, 600)
            for k in shown.tolist():
                rows.append((f"S{subject}", "read", k, f"text number {k}"))
                recording.append(f"sub-{subject}_ses-{session}_run-1")
                onset.append(begin)
                begin += 5 + jitter * rng.random()
    return data_of(rows, clock=clock_of(recording, onset=onset))


def held_out(data, session):
    inside = np.array([f"ses-{session}" in name for name in data.clock.recording])
    return Split.of(data, "a day", 0, np.where(inside, 2, np.arange(len(data)) % 5 == 0))


def test_places_count_from_the_first_sample_of_each_recording():
    data = days(texts=5)
    assert tuple(data.clock.places) == PLACE_FORMS
    for rows in data.clock.recordings().values():
        assert data.clock.places["index"][rows].tolist() == [0, 1, 2, 3, 4]
        assert data.clock.places["share"][rows].tolist() == [0, 0.25, 0.5, 0.75, 1]
        assert data.clock.places["seconds"][rows][0] == 0


@pytest.mark.parametrize("form", PLACE_FORMS)
def test_the_nearest_place_by_brute_force(form):
    data = days("random", jitter=3.0)
    rng, clock, place = np.random.default_rng(1), data.clock, data.clock.places[form]
    among = np.sort(rng.permutation(len(data))[:90])
    rows = np.sort(rng.permutation(len(data))[:50])
    for within, apart in ((None, None), (data.subject, None), (data.task, data.subject)):
        found = clock.at_same_place(rows, among, form, within, apart)
        away = clock.recording if apart is None else apart
        for i, near in zip(rows.tolist(), found.tolist(), strict=True):
            fits = [j for j in among.tolist() if away[j] != away[i] and (within is None or within[j] == within[i])]
            assert near in fits
            assert abs(place[near] - place[i]) == pytest.approx(min(abs(place[j] - place[i]) for j in fits))


def test_a_sample_without_a_counterpart_or_a_time_has_none():
    data = days(subjects=1, sessions=1, texts=4)
    rows = np.arange(4)
    assert data.clock.at_same_place(rows, rows, "index").tolist() == [-1] * 4
    unknown = with_clock(data, onset=np.full(4, np.nan), order=np.full(4, -1)).clock
    assert unknown.at_same_place(rows, rows, "index").tolist() == [-1] * 4


def test_a_day_held_out_is_told_by_place_only_if_the_order_is_the_same():
    same, random = days(), days("random")
    found = certify_data(same, held_out(same, 2))["time"]["places"]["test"]
    assert found[SAME_RUN] == {"form": "index", "samples": 80, "told": 0.8, "chance": found[SAME_RUN]["chance"],
                               "p": pytest.approx(1 / 2001)}  # fmt: skip
    assert found[SAME_RUN]["chance"] == pytest.approx(1 / 40, abs=0.01)
    assert found[OTHER_SUBJECT]["told"] == 0.8  # each fifth sample is dev
    certificate = certify_data(same, held_out(same, 2))
    assert "the same order in several recordings: no split" in split_report(certificate, readings_of(same))
    assert any("nearest place of another recording" in line for line in high_neighbors(certificate["time"]))
    certificate = certify_data(random, held_out(random, 2))
    assert certificate["time"]["places"]["test"][SAME_RUN]["told"] < 0.15
    assert "the same order in several" not in split_report(certificate, readings_of(random))
    assert not any("nearest place" in line for line in high_neighbors(certificate["time"]))
    apart = certify_data(same, make_split(same, "unique_text", (0.6, 0.2, 0.2), 0))
    assert apart["time"]["places"]["test"][SAME_RUN]["told"] == 0


def test_who_tells_of_a_place_by_brute_force():
    """A reads a run; its training samples are of another session, of B, and of another run, in the same order."""
    rng, n = np.random.default_rng(0), 40
    orders = [np.arange(n), rng.permutation(n), np.r_[:15, rng.permutation(np.arange(15, n))], np.arange(n)]
    names = ["A_ses-1_run-1", "A_ses-2_run-1", "B_ses-1_run-1", "B_ses-1_run-2"]
    data = data_of([(name[0], "read", int(k), f"text number {k}") for name, own in zip(names, orders, strict=True)
                    for k in own])  # fmt: skip
    onsets = [np.cumsum(rng.uniform(1, 9, n)) for _ in names]
    onset = np.concatenate([*onsets[:3], onsets[0] + np.r_[0, rng.uniform(0, 0.2, n - 1)]])
    recording = np.repeat(np.array(names, object), n)
    data = dataclasses.replace(data, clock=Clock(recording, onset, np.full(4 * n, np.nan), np.tile(np.arange(n), 4)))
    parts = {"train": np.arange(n, 4 * n), "dev": np.arange(n - 5, n), "test": np.arange(n - 5)}
    found, said = certify_data(data, Split("x", 0, parts, data.sentence_id))["time"]["places"]["test"], {}
    text, run = data.sentence, np.array([name[-5:] for name in recording])
    for origin, fits in (
        (SAME_RUN, lambda i, j: run[i] == run[j]),
        (ANYWHERE, lambda i, j: True),
        (OTHER_SUBJECT, lambda i, j: run[i] == run[j] and data.subject[i] != data.subject[j]),
    ):
        for form, place in data.clock.places.items():
            near = []
            for i in parts["test"]:
                counterparts = [j for j in parts["train"] if fits(i, j)]
                near.append(min(counterparts, key=lambda j: (abs(place[j] - place[i]), place[j], j)))
            said[origin, form] = np.mean(text[parts["test"]] == text[near])
        best = max(PLACE_FORMS, key=lambda form: said[origin, form])
        assert (found[origin]["form"], found[origin]["told"]) == (best, pytest.approx(said[origin, best]))
    assert len({score["told"] for score in found.values()}) == 3
    told = max(found.values(), key=lambda score: score["told"])
    assert told is not found[SAME_RUN]
    assert f"has the text of {told['told']:.1%} of 35 test samples" in "".join(place_lines({"test": found}))


def test_sessions_are_held_out_whole_and_are_tested_once():
    data = days(sessions=4)
    session = np.array([name[:11] for name in data.clock.recording])
    split = make_split(data, "sessions", (0.5, 0.25, 0.25), 0)
    assert [len(set(session[rows])) for rows in split.parts.values()] == [4, 2, 2]
    assert split.kept == len(data)
    folds = make_folds(data, "sessions", 4, (0.5, 0.25, 0.25), 0)
    tested = np.concatenate([fold.parts["test"] for fold in folds])
    assert sorted(tested.tolist()) == list(range(len(data)))
    for fold in folds:
        assert are_apart(session, fold)
        assert len({*session[np.concatenate([*fold.parts.values()])]}) == 8


def test_blocks_hold_out_sentences_places_and_sessions_together():
    data = days(sessions=6, texts=60)
    split = make_split(data, "blocks", (0.5, 0.25, 0.25), 0, unique_sessions=True)
    place, session = data.clock.places["index"], np.array([name[:11] for name in data.clock.recording])
    assert all(are_apart(column, split) for column in (place, session, data.sentence))
    told = certify_data(data, split)["time"]["places"]["test"][SAME_RUN]
    assert told["told"] == 0
    with pytest.raises(UserError, match=r"split\.unique_sessions gives each part sessions of its own, and there are 2"):
        make_split(days(subjects=1, sessions=2), "blocks", (0.5, 0.25, 0.25), 0, unique_sessions=True)


@pytest.mark.parametrize("option", ["unique_subjects", "unique_sessions"])
def test_the_command_holds_out_what_is_asked_for(option, tmp_path, printed_by, refused):
    data, ratio, out = days(subjects=4, sessions=4), (0.5, 0.25, 0.25), tmp_path / "split.json"
    with DataWriter(tmp_path / "days.h5", 1, "nothing") as writer:
        for i, text in enumerate(data.sentence.tolist()):
            about = np.ones((1, 1), np.float32), text, data.subject[i], "read", int(data.sentence_index[i])
            writer.add(Sample(*about, str(data.clock.recording[i]), float(data.clock.onset[i])))
    asked = ["split", str(tmp_path / "days.h5"), f"--{option.replace('_', '-')}", f"--json={out}"]
    printed_by([*asked, "--method=blocks", "--ratio=0.5,0.25,0.25", "--gap=1"])
    written = read_datafile(tmp_path / "days.h5")
    expected = make_split(written, "blocks", ratio, 0, gap=1.0, **{option: True})
    assert make_split(written, "file", ratio, 0, out).digest() == expected.digest()
    # Where it has no effect, it is no empty promise.
    for other in ("--method=f", "--method=blocks --folds=2", f"--audit={out}"):
        assert f"split.{option} is True; expected False with " in refused([*asked[:3], *other.split()])


def test_the_table_of_orders_compares_all_pairs():
    data = days(jitter=1.0)
    head, line = run_table(readings_of(data))
    assert head.startswith("order of recordings")
    assert line.split()[:5] == ["read", "run-1", "6", "100.0%", "(100.0-100.0%)"]
    begin, index = data.clock.spans[:, 0], data.sentence_index
    lines = list(data.clock.recordings().values())

    def told(one, other):
        return np.mean([index[other[np.argmin(abs(begin[other] - begin[i]))]] == index[i] for i in one])

    pairs = list(itertools.permutations(lines, 2))
    apart = np.concatenate([np.abs(begin[one] - begin[other]) for one, other in pairs])
    half = np.concatenate([np.abs(begin[one] - begin[other])[:20] for one, other in pairs])
    following = np.mean([told(one, lines[(k + 1) % 6]) for k, one in enumerate(lines)])
    assert f"{np.median(apart):.2f} s ({np.median(half):.2f})" in line
    assert line.endswith(f"{np.mean([told(*pair) for pair in pairs]):.1%} ({following:.1%})")
    assert run_table(readings_of(days(subjects=1, sessions=1))) == []


def test_durations_tell_numbers_of_characters():
    data = days(subjects=1, sessions=2, jitter=0)
    characters = np.random.default_rng(0).integers(4, 9, 40)
    shown = np.tile(0.4 * characters, 2)
    shown[40:50] += 0.4
    (_, line) = run_table(readings_of(with_clock(data, duration=shown)), 0.4)
    assert f" 75.0% (75.0-75.0%), chance {np.mean(np.isclose(shown[:40, None], shown[40:])):.1%} " in line


def test_runs_with_the_same_texts_are_one():
    data = days(subjects=1, sessions=4)
    names = np.array([name.replace("ses-1_run-1", "ses-1_run-2") for name in data.clock.recording], object)
    last = np.array(["ses-3" in name for name in names])
    names = np.where(last, np.array([name.replace("run-1", "run-3") for name in names], object), names)
    other = last & (data.sentence_index > 10)  # a quarter of the texts are those of the other runs
    text = np.where(other, "another " + data.sentence.astype(str), data.sentence).astype(object)
    data = dataclasses.replace(with_clock(data, recording=names), sentence=text)
    found = recordings_of_texts(readings_of(data))
    assert {run: len(rows) for run, rows in found.items()} == {"read run-1 and 1 more": 3, "read run-3": 1}


def test_runs_are_read_from_names_of_recordings():
    task = np.array(["a", "a", "b"], object)
    assert runs_of(task, ["01/sub-01_run-02_eeg.edf", "x", "x_run-1"]).tolist() == ["a run-02", "a", "b run-1"]


def test_the_picture_of_times_has_a_bar_for_each_sample_in_the_colour_of_its_task():
    data = days(subjects=2, sessions=1, texts=5)
    data = dataclasses.replace(data, task=np.array([f"task {i % 3}" for i in range(len(data))], object))
    (axes,) = time_figure(data).axes
    lines = [text.get_text() for text in axes.get_yticklabels()]
    assert sorted(lines) == sorted(data.clock.recordings())
    bars = [bar for bar in axes.patches if bar.get_width()]
    colours = {}
    assert len(bars) == len(data)
    for i in range(len(data)):
        begin, end = data.clock.spans[i]
        (bar,) = (bar for bar in bars if bar.get_x() == pytest.approx(begin)
                  and round(bar.get_y() + bar.get_height() / 2) == lines.index(data.clock.recording[i]))  # fmt: skip
        assert bar.get_width() == pytest.approx(max(end - begin, 0.2))
        colours.setdefault(data.task[i], set()).add(bar.get_facecolor())
    assert [len(found) for found in colours.values()] == [1, 1, 1]
    assert len(set.union(*colours.values())) == 3


def test_the_picture_of_splits_has_a_panel_for_each_method_of_the_seed_and_ratio():
    data = grid(sentences={"SR": 24, "NR": 20})
    panels = split_map(data, (0.6, 0.2, 0.2), 3).axes
    for axes, method in zip(panels, "abcdef", strict=True):
        if not axes.images:
            with pytest.raises(UserError):
                make_split(data, method, (0.6, 0.2, 0.2), 3)
            continue
        split = make_split(data, method, (0.6, 0.2, 0.2), 3)
        np.testing.assert_array_equal(axes.images[0].get_array(), part_cells(data, split))
        sizes = " / ".join(f"{len(split.parts[name]):,}" for name in ("train", "dev", "test"))
        kept = sum(map(len, split.parts.values())) / len(data)
        assert axes.get_title() == f"({method}) keeps {kept:.0%}\n{sizes}"
    assert sum(bool(axes.images) for axes in panels) >= 4


def test_the_picture_has_a_panel_for_each_run_and_a_line_for_each_recording():
    figure = place_figure(days())
    (axes,) = figure.axes
    image = axes.images[0].get_array()
    assert image.shape == (6, 40)
    assert (np.asarray(image) == np.arange(40)).all()
