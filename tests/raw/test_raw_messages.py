"""What is wrong with recordings is said so that the next try works."""

import re
from pathlib import Path

import pytest
from held import FILE, TEXTS, event, recording, sentences_of
from tiny_run import data_spec

from eeg2text_jax import prepare
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.raw.find import RawFile, RawSpec, find_raw, read_table
from eeg2text_jax.data.raw.sentences import Texts, no_sentence

BIDS = RawFile(Path("S1.edf"), "01", "NR", "2", "1")


@pytest.mark.parametrize(
    ("files", "given", "message"),
    [
        (["a/x/r.edf", "b/x/r.edf"], ".", r"its subfolders hold 2 recordings, such as a/x/r\.edf; name them as '\*/\*"),
        (["r.vhdr", "r.eeg"], "r.eeg", r"r\.eeg: is a part of a recording; name r\.vhdr instead"),
        (["r.vhdr", "r.vmrk"], "r.vmrk", r"name r\.vhdr instead"),
        (["r.set", "r.fdt"], "r.fdt", r"name r\.set instead"),
        ([], ".", "this folder holds no files"),
    ],
)
def test_what_is_named_is_no_recording(files, given, message, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    for name in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"x")
    said = refused(["prepare", given, "--out=own.h5"])
    assert re.search(message, said), said


def test_check_of_a_recording_says_what_comes_first(tmp_path, refused):
    (tmp_path / "S1.vhdr").write_bytes(b"Brain Vision")
    for place, what in ((tmp_path, "folder"), (tmp_path / "S1.vhdr", "recording")):
        assert f"is no data file but a {what}; prepare it first: eeg2text prepare" in refused(["check", str(place)])


def test_names_of_bids_fit_tables_with_and_without_prefix(tmp_path):
    path = tmp_path / "texts.tsv"
    for column, subject in (("subject", "sub-01"), ("subject", "1"), ("participant_id", "sub-01")):
        path.write_text(f"{column}\tses\ttrial\ttext\n{subject}\tx\t1\tone\nsub-02\tx\t1\ttwo\n")
        texts = Texts(path, "text")
        assert texts.find(BIDS, 1, ()) == "one"
        texts.check_trials(BIDS, 1)
    path.write_text("trigger\tsentence\n1\tone\n")
    message = r"expected 'text' \(data.raw.text can name another column\) and `trial` or `code`;"
    with pytest.raises(UserError, match=message):
        Texts(path, "text")


def test_tables_of_a_spreadsheet(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("trial;text\n1;one\n")
    with pytest.raises(UserError, match="separated by semicolons; save it with commas"):
        read_table(path)


def test_why_no_event_begins_a_sentence():
    spec = data_spec(RawSpec, "raw")
    bad = event(0.0, "BAD_ACQ_SKIP", 1.0)
    assert "no annotations, and there is no table of events S1_events.tsv (or .csv)" in no_sentence(FILE, [bad], spec)
    said = no_sentence(FILE, [bad, event(1.0, "a dog")], spec)
    assert "none has a duration, so give data.raw.end" in said
    assert said.endswith("the codes of its events are a dog.")


def test_words_of_a_table_have_a_code_already():
    columns = ("onset", "duration", "trial_type", "text")
    events = [event(1.0, "sentence", 3.0, text="the dog barks"), event(1.0, "word", 0.5, text="the")]
    with pytest.raises(UserError, match=r"if 'word' marks a word, name the code of words with data\.raw\.word=word;"):
        sentences_of(events, columns)
    events = [event(1.0, "", 3000.0, text="a b"), event(6.0, "", 3500.0, text="c d")]
    with pytest.raises(UserError, match=r"they last 3000 and 3500 s: are durations in ms\?"):
        sentences_of(events, columns)


@pytest.mark.parametrize(
    ("onsets", "seconds", "message"),
    [
        (
            [3000, 11000, 20000],
            [4] * 3,
            "the first goes from 3000 to 3004 s in a recording of 30 s: expected onsets and dur",
        ),
        ([3, 11, 20], [0] * 3, "no end 3.; give each sentence a duration in seconds, or set data.raw.end to"),
    ],
)
def test_why_all_were_dropped(onsets, seconds, message, tmp_path):
    recording().save(tmp_path / "S1_raw.fif", verbose="error")
    rows = zip(onsets, seconds, TEXTS, strict=True)
    lines = ["onset\tduration\ttext", *("\t".join(map(str, row)) for row in rows)]
    (tmp_path / "S1_events.tsv").write_text("\n".join(lines))
    with pytest.raises(UserError, match=message):
        prepare(tmp_path, tmp_path / "a.h5")


def test_the_advised_expression_leaves_the_ending_out(tmp_path):
    (tmp_path / "subj1_reading.edf").write_bytes(b"x")
    (file,) = find_raw([str(tmp_path)], "(?P<subject>[^_]+)_(?P<task>[^_.]+)")
    assert (file.subject, file.task) == ("subj1", "reading")


def test_the_usage_of_prepare_has_an_optional_configuration(refused):
    assert "[--config=NAME|FILE.py]" in refused(["prepare", "x"])
