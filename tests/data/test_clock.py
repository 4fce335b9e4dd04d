"""Time travels: recording, onset, duration and order from every source into data files, predictions and rankings."""

import csv
import dataclasses
import itertools

import h5py
import numpy as np
import pytest
import scipy.stats
from tiny_run import prepare

from eeg2text_jax import data as public
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.check import check_datafile
from eeg2text_jax.data.clock import Clock, clock_of_rows, order_likeness, sessions_of
from eeg2text_jax.data.datafile import read_datafile, read_outline
from eeg2text_jax.data.splits.certificate import certify_data
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.neighbors import high_neighbors, time_leakage, time_lines
from eeg2text_jax.data.splits.split import readings_of
from eeg2text_jax.data.table_files import write_parquet
from eeg2text_jax.instrument.predictions.file import Prediction, read_predictions, write_predictions
from eeg2text_jax.instrument.predictions.selection import join_metadata
from eeg2text_jax.runs.pipeline import data_section
from eeg2text_jax.training.configuration import load_config

ONSETS = (9.0, 1.5, 4.0, 2.0, -1.0)


def rows(**more):
    for k, onset in enumerate(ONSETS):
        row = {"features": np.full((2, 3), k + 1.0), "sentence": f"sentence {k}", "subject": f"S{k % 2}"}
        yield row | {"recording": f"run{k // 3}", "onset": onset, "duration": 1.0} | more


def test_a_data_file_keeps_time_and_ranks_onsets(tmp_path):
    clock = read_datafile(public.write(tmp_path / "a.h5", rows())).clock
    assert clock.recording.tolist() == ["run0", "run0", "run0", "run1", "run1"]
    assert clock.onset.tolist() == list(ONSETS)
    assert clock.order.tolist() == [2, 0, 1, 1, 0]
    assert clock.in_seconds
    assert clock.spans.tolist() == [
        [7.5, 8.5],
        [0, 1],
        [2.5, 3.5],
        [3, 4],
        [0, 1],
    ]  # from the first sample of the recording
    assert read_outline(tmp_path / "a.h5").clock.order.tolist() == [2, 0, 1, 1, 0]


def test_an_order_that_is_stated_stays_beside_onsets(tmp_path):
    orders = [7, 2, 5, 6, 4]
    found = ({**row, "order": order} for order, row in zip(orders, rows(), strict=True))
    clock = read_datafile(public.write(tmp_path / "a.h5", found)).clock
    assert (clock.unit, clock.order.tolist()) == ("s", orders)
    assert clock.places["index"].tolist() == [5, 0, 3, 2, 0], "counted from the first sample, and not by onsets"
    assert clock.places["share"].tolist() == [1, 0, 0.6, 1, 0]


def test_order_alone_is_counted_in_samples(tmp_path):
    found = ({**row, "onset": None, "order": 4 - k} for k, row in enumerate(rows()))
    clock = read_datafile(public.write(tmp_path / "a.h5", found)).clock
    assert (clock.unit, clock.order.tolist()) == ("samples", [4, 3, 2, 1, 0])
    assert clock.nearest(np.array([0]), np.arange(5))[1].tolist() == [1.0]


@pytest.mark.parametrize("source", ["npz", "parquet", "csv"])
def test_arrays_parquet_and_tables_bring_time(tmp_path, source):
    path = tmp_path / f"own.{source}"
    own = list(rows())
    if source == "npz":
        names = ("sentence", "subject", "recording", "onset", "duration")
        np.savez(path, features=np.stack([r["features"] for r in own]), n_words=np.full(5, 2),
                 **{name: np.array([r[name] for r in own]) for name in names})  # fmt: skip
    elif source == "parquet":
        write_parquet(read_datafile(public.write(tmp_path / "a.h5", own)), path)
    else:
        with path.open("w") as file:
            lines = csv.writer(file)
            lines.writerow(["sentence", "subject", "recording", "onset", "duration", "a"])
            lines.writerows([r["sentence"], r["subject"], r["recording"], r["onset"], 1, 2.5] for r in own)
    prepare(load_config("default").data, tmp_path / "b.h5", [str(path)])
    clock = read_datafile(tmp_path / "b.h5").clock
    assert clock.recording.tolist() == ["run0", "run0", "run0", "run1", "run1"]
    assert clock.order.tolist() == [2, 0, 1, 1, 0]
    assert (clock.onset.tolist(), clock.duration.tolist()) == (list(ONSETS), [1.0] * 5)


@pytest.mark.parametrize(("column", "value", "wanted"), [
    ("onset", "late", "a finite number of seconds"), ("duration", -1, "a finite number of seconds"),
    ("order", 1.5, "a whole number from 0"), ("onset", float("inf"), "a finite number of seconds"),
    ("onset", float("-inf"), "a finite number of seconds"), ("order", 2**63, "a whole number from 0"),
    ("onset", 1.7e12, r"a finite number of seconds, below 1e10 \(are these milliseconds\?\)"),
])  # fmt: skip
def test_wrong_times_are_named(tmp_path, column, value, wanted):
    with pytest.raises(UserError, match=f"row 0: {column} is .*; expected {wanted}"):
        public.write(tmp_path / "a.h5", rows(**{column: value}))


def test_onsets_and_orders_that_contradict_each_other_are_no_data_file(tmp_path):
    found = ({**row, "order": k} for k, row in enumerate(rows()))
    with pytest.raises(UserError, match=r"'run0': onset and order contradict each other .order 0 begins at 9 s, order"):
        public.write(tmp_path / "a.h5", found)
    assert not [*tmp_path.iterdir()]


def test_a_changed_clock_is_found(tmp_path):
    path = public.write(tmp_path / "a.h5", rows())
    with h5py.File(path, "r+") as file:
        file["onset"][0] = 3.0
    with pytest.raises(UserError, match="the checksum of its clock is not the one"):
        read_datafile(path)
    with h5py.File(path, "r+") as file:
        for name in ("recording", "onset", "duration", "order"):
            del file[name]
    with pytest.raises(UserError, match="the checksum of its clock is not the one"):
        read_datafile(path)


def test_files_without_time_are_read_as_before(tmp_path):
    plain = [{key: row[key] for key in ("features", "sentence", "subject")} for row in rows()]
    path = public.write(tmp_path / "a.h5", plain)
    digest = read_datafile(path).digest()
    with h5py.File(path, "r+") as file:
        file.attrs["format"] = "eeg2text-data-2"
    old = read_datafile(path)
    assert (old.clock, old.digest()) == (None, digest)


def brute_nearest(clock, i, among):
    best = (np.inf, np.inf, -1)
    for j in among:
        if j != i and clock.recording[j] == clock.recording[i]:
            a, b = clock.spans[i], clock.spans[j]
            apart = max(b[0] - a[1], a[0] - b[1], 0.0)
            best = min(best, (apart, abs(a[0] - b[0]), j))
    return best


def test_the_nearest_sample_is_that_of_a_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = 30
        clock = Clock.of({"recording": [f"r{k}" for k in rng.integers(0, 3, n)], "onset": rng.uniform(0, 50, n),
                          "duration": rng.uniform(0, 3, n), "order": [-1] * n})  # fmt: skip
        among = rng.permutation(n)[:12]
        found, apart = clock.nearest(np.arange(n), among)
        for i in range(n):
            distance, _, j = brute_nearest(clock, i, among)
            assert (found[i], apart[i]) == (j, pytest.approx(distance) if j >= 0 else np.inf)


def predicted(k, **more):
    about = ("NR", f"NR:{k}", 3, "eeg", "eeg", 0, "free_running", f"text {k}", "x")
    return Prediction(f"S/NR:{k}", "S", *about, **more)


def test_predictions_carry_time_and_metadata_add_it(tmp_path):
    timed = [predicted(k, recording="S/run", onset=2.0 * k - 3, duration=1.0, order=k) for k in range(3)]
    write_predictions(tmp_path / "a.jsonl", {}, timed)
    assert read_predictions(tmp_path / "a.jsonl").predictions == timed
    meta = tmp_path / "meta.csv"
    meta.write_text("reference,recording,onset\ntext 0,S/run,-1\ntext 1,S/run,2\ntext 2,S/run,\n")
    joined = join_metadata([predicted(k) for k in range(3)], meta)
    assert [(row.recording, row.onset) for row in joined] == [("S/run", -1.0), ("S/run", 2.0), (None, None)]
    assert clock_of_rows(joined).timed.tolist() == [True, True, False]


def test_check_draws_what_was_recorded_when(tmp_path, capsys):
    path = public.write(tmp_path / "a.h5", rows())
    assert main(["check", str(path), f"--time={tmp_path / 'time.png'}"]) == 0
    assert (tmp_path / "time.png").read_bytes().startswith(b"\x89PNG")
    plain = [{key: row[key] for key in ("features", "sentence", "subject")} for row in rows()]
    path = public.write(tmp_path / "b.h5", plain)
    assert main(["check", str(path), f"--time={tmp_path / 'no.png'}"]) == 2
    assert not (tmp_path / "no.png").exists()
    printed = capsys.readouterr()
    assert "time: when samples were recorded is not known" in printed.out
    assert "does not say when samples were recorded" in printed.err


def shown_every(step, begin=0.0, late=0.0, n=12):
    """A recording of n samples; `late` is added to the onset of the last one."""
    for k in range(n):
        onset = begin + step * k + late * (k == n - 1)
        text = f"{('owl', 'fox', 'elk', 'hen')[k % 4]} number {'abcdefghijkl'[k]}" if k else "a bee"
        yield {"features": np.full((2, 3), k + 1.0), "sentence": text, "recording": "r|1", "onset": onset}


@pytest.mark.parametrize(("made", "noted"), [
    ((4000.0,), "r|1 (a median of 4e+03 s); are they milliseconds, days or rounded? Expected seconds."),
    ((4 / 86400, 739000.0), "r|1 (a median of 4.63e-05 s)"),
    ((4.0, 0.0, 1.7e9), "r|1 (from 40 to 1700000044 s, 472,222.2 hours); correct a wrong onset"),
    ((4.0, 1.7e9, 86400.0), "24.0 hours); correct a wrong onset"),
    ((4.0,), ""), ((4.0, 1.7e9), ""), ((0.3, 40000.0), ""), ((4.0, 0.0, 1800.0), ""), ((2000.0, 0.0, 0.0, 3), ""),
])  # fmt: skip
def test_onsets_that_are_hardly_seconds_are_named(tmp_path, capsys, made, noted):
    """By `write`, `check`, the report of a run, the certificate of a split and an audit; usual ones by none of them."""
    path = public.write(tmp_path / "a.h5", shown_every(*made))
    data, rows = read_datafile(path), np.arange(3)
    time = time_leakage(readings_of(data), {"train": rows, "dev": rows, "test": rows}, {})
    places = [capsys.readouterr().err, "".join(check_datafile(path).notes), data_section(data).markdown,
              "".join(time_lines(time)), "".join(high_neighbors(time))]  # fmt: skip
    for said in places:
        assert noted in said
        assert bool(noted) == ("for seconds" in said or "long break" in said)


def test_a_report_has_the_range_of_onsets_of_each_recording(tmp_path):
    path = public.write(tmp_path / "a.h5", shown_every(4.0, begin=1.7e9))
    assert "| r\\|1 | 1700000000 | 1700000044 |" in data_section(read_datafile(path)).markdown
    summary = "\n".join(check_datafile(path).table)
    assert "1 recording, from first to last sample in s: r|1 1700000000 to 1700000044" in summary
    split = make_split(read_datafile(path), "c", (0.6, 0.2, 0.2), 0)
    assert certify_data(read_datafile(path), split)["time"]["ranges"] == {"r|1": [1.7e9, 1.7e9 + 44]}


def test_a_sample_of_unknown_time_is_nobodys_neighbor():
    nan = np.nan
    times = np.array([0.0, nan, 5.0, 1.0]), np.full(4, nan), np.full(4, -1)
    clock = Clock(np.array(["r", "r", "r", ""], object), *times)
    found, apart = clock.nearest(np.arange(4), np.arange(4))
    assert found.tolist() == [2, -1, 0, -1]
    assert apart.tolist() == [5, np.inf, 5, np.inf]
    assert clock.nearest(np.array([0]), np.array([1]))[0].tolist() == [-1]
    places = dataclasses.replace(clock, onset=np.full(4, nan), order=np.array([5, -1, 0, 1]))
    assert places.nearest(np.arange(4), np.arange(4))[0].tolist() == [2, -1, 0, -1]


def test_the_order_is_the_time_where_an_onset_is_missing():
    clock = Clock(np.array(["r"] * 3, object), np.array([0.0, np.nan, 100.0]), np.full(3, 7.0), np.array([4, 5, 6]))
    assert clock.unit == "samples"
    assert clock.spans.tolist() == [[0, 0], [1, 1], [2, 2]]


def test_onsets_without_a_recording_are_of_the_subjects_task(tmp_path):
    given = [{name: value for name, value in row.items() if name != "recording"} | {"task": "NR"} for row in rows()]
    clock = read_datafile(public.write(tmp_path / "a.h5", given)).clock
    assert clock.recording.tolist() == ["S0/NR", "S1/NR", "S0/NR", "S1/NR", "S0/NR"]
    assert clock.order.tolist() == [2, 0, 1, 1, 0]


def test_sessions_of_two_subjects_are_two_sessions():
    recordings = np.array(["sub-A_ses-1_run-1", "sub-A_ses-1_run-2", "sub-B_ses-1_run-1", "without a session"])
    first, again, other, alone = sessions_of(np.array(["A", "A", "B", "B"]), recordings)
    assert first == again
    assert len({first, other, alone}) == 3


def test_rows_of_several_conditions_are_no_fast_sequence():
    onset = np.repeat(4.0 * np.arange(12), 3)
    clock = Clock.of({"recording": ["r"] * 36, "onset": onset, "duration": [np.nan] * 36, "order": [-1] * 36})
    assert clock.notes(repeated=True) == []
    assert "r (a median of 0 s)" in clock.notes()[0]


def test_the_likeness_of_orders_is_the_mean_rank_correlation_of_recordings():
    """Of five texts in common or more; of a text that is shown again, the first time counts."""
    rng = np.random.default_rng(0)
    orders = [list("abcdefgh"), list("hbcaxdefgb"), list("cbahgfedyy"), list("abcdxyzw"), list("vwabcduu")]
    rows = [(k, text, 7.0 * k + 3 * place + rng.uniform(0, 2)) for k, own in enumerate(orders)
            for place, text in enumerate(own)]  # fmt: skip
    rows = [rows[i] for i in rng.permutation(len(rows))]
    run, text, onset = zip(*rows, strict=True)
    blank = [np.nan] * len(rows)
    columns = {"recording": [f"r{k}" for k in run], "onset": onset, "duration": blank, "order": [-1] * len(rows)}
    expected = []
    for one, other in itertools.combinations(orders, 2):
        if len(common := sorted({*one} & {*other})) >= 5:
            expected.append(scipy.stats.spearmanr(*([own.index(t) for t in common] for own in (one, other)))[0])
    assert len(expected) == 6
    assert order_likeness(Clock.of(columns), np.array(text, object)) == pytest.approx(np.mean(expected))
