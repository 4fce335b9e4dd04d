"""What `prepare` and `check` say of texts, subjects and columns that serve nothing."""

import numpy as np
import pandas
import pytest

from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.source import Sample, Tally

TEXTS = ["the dog saw it", "a cat ran off", "no hen was there", "an owl sat up"]
NOTE = "columns not used: subj, rating; if 'subj' is the subject, give data.columns.subject=subj."


@pytest.fixture(params=["parquet", "npz", "csv"])
def source(request, tmp_path):
    """The same samples with a column `subj` and one of ratings in each layout."""
    path, features = tmp_path / f"own.{request.param}", np.arange(24.0).reshape(4, 2, 3)
    about = {"subj": ["A", "A", "B", "B"], "rating": ["x", "y", "z", "x"]}
    if request.param == "npz":
        np.savez(path, features=features, sentence=TEXTS, n_words=[2] * 4, **about)
    elif request.param == "parquet":
        pandas.DataFrame({"features": features.tolist(), "sentence": TEXTS, **about}).to_parquet(path)
    else:
        lines = ["sentence,subj,rating,f1,f2"]
        lines += [f"{t},{s},{r},1.5,{i}" for i, (t, s, r) in enumerate(zip(TEXTS, *about.values(), strict=True))]
        path.write_text("\n".join(lines))
    return path


def test_columns_that_serve_nothing_are_named(source, tmp_path, capsys, printed_by):
    out = tmp_path / "own.h5"
    assert main(["prepare", str(source), f"--out={out}"]) == 0
    said = capsys.readouterr()
    assert NOTE in said.err
    assert "first texts: the dog saw it | a cat ran off | no hen was there\n" in said.out
    said = printed_by(["check", str(out)])
    assert "first texts: the dog saw it | a cat ran off | no hen was there\n" in said
    assert "columns of the source that were not used: subj, rating." in said


def test_nothing_is_said_where_every_column_serves(tmp_path, printed_by):
    path = tmp_path / "own.npz"
    np.savez(path, features=np.zeros((4, 2, 3)), sentence=TEXTS, subject=list("AABB"), n_words=[2] * 4)
    assert "not used" not in printed_by(["prepare", str(path), f"--out={tmp_path / 'own.h5'}"], to="err")


def test_columns_of_time_in_a_table_serve(tmp_path, printed_by):
    lines = ["sentence,recording,onset,order,f1,f2", *(f"{t},r,{3 * i},{i},1.5,{i}" for i, t in enumerate(TEXTS))]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    out = str(tmp_path / "own.h5")
    assert "not used" not in printed_by(["prepare", str(tmp_path / "own.csv"), f"--out={out}"], to="err")
    assert "not used" not in printed_by(["check", out])


def test_long_texts_are_shortened_and_one_text_is_shown_once():
    tally = Tally()
    samples = [Sample(np.zeros((1, 1)), text, "A", "NR", 0) for text in ["word " * 60, "b", "b", "c", "d"]]
    assert len(list(tally.count(samples))) == 5
    line = tally.report().splitlines()[-1]
    assert line.endswith(" ... | b | c")
    assert len(line) < 130


def test_positions_have_the_name_of_what_they_are(tmp_path, capsys):
    path = tmp_path / "own.npz"
    np.savez(path, features=np.random.default_rng(0).normal(size=(4, 2, 3)), sentence=TEXTS, n_words=[2] * 4)
    power = "log10 of mean band power of windows of 0.5 s every 0.5 s, 1 bands x 3 channels, band-major"
    named = f"--config.data.columns.features_are={power}"
    assert main(["prepare", str(path), f"--out={tmp_path / 'own.h5'}", named]) == 0
    main(["check", str(tmp_path / "own.h5")])
    said = capsys.readouterr().out
    assert "8 windows, 2 to 2 a sample" in said
    assert "3 features a window: log10" in said
    assert "words" not in said


def test_drops_are_counted_for_a_subject_and_a_task():
    """With the lines of the table: by task, then by subject."""
    tally = Tally()
    tally.dropped.update({("S1", "NR", "a"): 2, ("S1", "TSR", "a"): 3, ("S2", "TSR", "b"): 4})
    tally.n_kept.update({("S1", "NR"): 10, ("S1", "TSR"): 20, ("S2", "NR"): 40, ("S2", "TSR"): 80})
    assert tally.drops("S1", "TSR") == {"a": 3}
    assert tally.drops("S1") == {"a": 5}
    assert list(tally.drops(task="TSR").items()) == [("b", 4), ("a", 3)]
    assert list(tally.drops().items()) == [("a", 5), ("b", 4)]
    assert (tally.drops("S1", "NR"), tally.drops("S2", "NR")) == ({"a": 2}, {})
    assert [line.split(maxsplit=5) for line in tally.table().splitlines()[1:]] == [
        ["S1", "NR", "12", "10", "2", "a 2"], ["S2", "NR", "40", "40", "0"], ["S1", "TSR", "23", "20", "3", "a 3"],
        ["S2", "TSR", "84", "80", "4", "b 4"], ["all", "all", "159", "150", "9", "a 5, b 4"]]  # fmt: skip
