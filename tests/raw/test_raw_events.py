"""Tables of events as data sets have them, and recordings that are not there."""

import dataclasses
import re
import tarfile
from pathlib import Path

import pytest
from tiny_run import data_spec

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.raw.find import Event, RawFile, RawSpec, events_table, find_raw, read_events, stem_of
from eeg2text_jax.data.raw.sentences import Reading, Texts, readings, windows

CHISCO = Path(__file__).parents[3] / "shared/data/chisco2_ds006317_metadata.tar.xz"
FILE = RawFile(Path("S1.edf"), "S1", "NR")


def event(onset, code="", duration=0.0, **columns):
    return Event(onset, duration, (code,) if code else (), columns)


def test_patterns_of_codes():
    told = event(0.0, "sentence/The dog (barks).")
    assert told.match("sentence/*").group(1) == "The dog (barks)."
    assert told.match("sentence") is None
    assert event(0.0, "65329").match("65329")
    assert event(0.0, "a.b").match("a?b") is None


def test_annotations_with_texts_behind_a_prefix():
    spec = data_spec(RawSpec, "raw", begin="sentence/*", end="stop")
    found, dropped = readings(FILE, [event(1.0, "sentence/a  b"), event(2.0, "stop"), event(3.0, "sentence/c")], (),
                              spec, None)  # fmt: skip
    assert found == [Reading("a b", 1.0, 2.0)]
    assert dropped == {"no end": 1}


def test_words_without_durations_go_on_until_the_next():
    spec = data_spec(RawSpec, "raw", begin="b", end="e", word="w*")
    events = [event(1.0, "b", text="x y"), event(1.0, "w1"), event(1.5, "w2", 0.2), event(2.0, "e"),
              event(2.0, "w3", 0.2), event(2.5, "w4")]  # fmt: skip
    (found,), _ = readings(FILE, events, ("text",), spec, None)
    assert found.words == ((1.0, 1.5), (1.5, 1.7)), "from the first moment on, and before the last one"


def test_what_ends_as_a_sentence_begins_is_no_end_of_it():
    events = [event(1.0, "sentence/a"), event(1.0, "stop"), event(2.0, "stop"), event(2.0, "sentence/b")]
    found, _ = readings(FILE, events, (), data_spec(RawSpec, "raw", begin="sentence/*", end="stop"), None)
    assert found == [Reading("a", 1.0, 2.0)]


def test_a_word_ends_with_its_sentence():
    spec = data_spec(RawSpec, "raw", begin="b", end="e", word="w*")
    events = [event(1.0, "b", text="x y"), event(1.5, "w1", 2.0), event(2.0, "e")]
    (found,), _ = readings(FILE, events, ("text",), spec, None)
    assert found.words == ((1.5, 2.0),)


def test_events_of_a_table_come_in_order_of_time(tmp_path):
    path = tmp_path / "S1_events.tsv"
    path.write_text("onset\tduration\ttrial_type\n5\tn/a\tlate\n1\t2.5\tearly\n")
    columns, events = read_events(path)
    assert columns == ["onset", "duration", "trial_type"]
    found = [(one.onset, one.duration, one.codes) for one in events]
    assert found == [(1.0, 2.5, ("early",)), (5.0, 0.0, ("late",))]


def test_only_what_overlaps_a_bad_stretch_is_dropped():
    events = [event(0.5, "BAD_a", 0.5), event(1.0, "a b", 1.0, text="a b"), event(2.0, "BAD_b", 0.5),
              event(2.4, "c d", 1.0, text="c d"), event(3.9, "e f", 1.0, text="e f"), event(4.0, "BAD_c")]  # fmt: skip
    found, dropped = readings(FILE, events, (), data_spec(RawSpec, "raw"), None)
    assert [reading.text for reading in found] == ["a b"]
    assert dropped == {"marked bad": 2}


def test_windows_cover_a_sentence():
    assert windows(Reading("x", 10.0, 11.2), 0.5, 0.25) == ((10.0, 10.5), (10.25, 10.75), (10.5, 11.0))
    assert windows(Reading("x", 10.0, 10.3), 0.5, 0.25) == ((10.0, 10.3),)
    assert (0.3 - 0.1) / 0.1 < 2, "a window that ends with the sentence is not lost to rounding"
    assert windows(Reading("x", 0.0, 0.3), 0.1, 0.1) == ((0.0, 0.1), (0.1, 0.2), (0.2, pytest.approx(0.3)))


def test_texts_by_code_and_subject_and_what_contradicts(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text('subject,code,text\n01,7,"one, two"\n2,7,other\n', encoding="utf-8-sig")
    texts = Texts(table, "text")
    assert texts.find(RawFile(Path("x"), "1", "NR"), 3, ("a", "7.0")) == "one, two"
    assert texts.find(RawFile(Path("x"), "02", "NR"), 3, ("7",)) == "other"
    assert texts.find(RawFile(Path("x"), "3", "NR"), 3, ("7",)) == ""
    table.write_text("code,text\n7,one\n07,two\n")
    with pytest.raises(UserError, match="has two texts for code 07"):
        Texts(table, "text")


def test_names_of_files_tell_who_reads_what(tmp_path):
    for name in ("sub-A1_ses-2_task-NR_run-1_eeg.edf", "S07_raw.fif", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    pytest.importorskip("mne_bids", reason="pip install 'eeg2text_jax[mne]'")
    found = {(file.subject, file.task, file.session, file.run) for file in find_raw([str(tmp_path)])}
    assert found == {("A1", "NR", "2", "1"), ("S07", "reading", "", "")}
    (file,) = find_raw([str(tmp_path / "S07_raw.fif")], r"(?P<subject>S\d+)", "SR")
    assert (file.subject, file.task) == ("S07", "SR")
    assert stem_of(Path("a_raw.fif.gz")) == "a"
    with pytest.raises(UserError, match="no recordings found"):
        find_raw([str(tmp_path / "notes.txt").replace("notes", "*")])


def test_a_pointer_is_no_recording(tmp_path):
    path = tmp_path / "S1.edf"
    path.write_text("/annex/objects/SHA256E-s1--x.edf\n")
    assert not RawFile(path, "S1", "NR").here
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert not RawFile(path, "S1", "NR").here
    path.write_bytes(b"0" * 2000)
    assert RawFile(path, "S1", "NR").here


@pytest.fixture(scope="module")
def chisco(tmp_path_factory):
    if not CHISCO.exists():
        pytest.skip("shared/data/chisco2_ds006317_metadata.tar.xz is not here")
    pytest.importorskip("mne_bids", reason="pip install 'eeg2text_jax[mne]'")
    folder = tmp_path_factory.mktemp("chisco")
    with tarfile.open(CHISCO) as archive:
        archive.extractall(folder, filter="fully_trusted")  # its links lead nowhere on purpose
    return folder / "ds006317"


def test_events_of_a_real_data_set(chisco):
    """Marks of byte order, durations of zero, codes in place of texts."""
    files = find_raw([str(chisco)])
    assert len(files) == 64
    assert {file.subject for file in files} == {"01", "02"}
    assert not any(file.here for file in files)
    columns, events = read_events(events_table(files[0]))
    assert columns == ["onset", "duration", "trial_type", "value", "sample"]
    assert {event.duration for event in events} == {0.0}
    assert ("event_65329", "65329") in {event.codes for event in events}
    spec = data_spec(RawSpec, "raw", begin="65329", end="65381", text="trial_type")
    total = sum(len(readings(file, read_events(events_table(file))[1], columns, spec, None)[0]) for file in files)
    assert total == 17056


def test_recordings_that_are_not_downloaded_are_one_sentence(chisco, tmp_path, refused):
    table = tmp_path / "texts.tsv"
    table.write_text("code\ttext\n65329\ta sentence\n")
    arguments = ["--config.data.raw.begin=65329", "--config.data.raw.end=65381", f"--config.data.raw.texts={table}"]
    error = refused(["prepare", str(chisco), *arguments, f"--out={tmp_path / 'out.h5'}"])
    assert re.search(
        r"none of 64 recordings of 2 subjects is downloaded, though 64 tables of events are \(17056 sentences with a "
        r"text and an end, 0 without\); fetch the files", error
    ), error  # fmt: skip
    assert not (tmp_path / "out.h5").exists()


def test_overlapping_word_annotations_name_their_code():
    def refusal(*events, **fields):
        with pytest.raises(UserError, match="overlap") as error:
            readings(FILE, [Event(a, d, (said,), {"text": said}) for a, d, said in events], (),
                     data_spec(RawSpec, "raw", **fields), None)  # fmt: skip
        return str(error.value)

    sentence = (1.0, 3.0, "the dog barks")
    assert "data.raw.word=word;" in refusal(sentence, (1.0, 0.5, "word"))
    assert "data.raw.word='a word';" in refusal(sentence, (1.5, 0.5, "a word"))
    assert "data.raw.word" not in refusal(sentence, (3.5, 2.0, "a cat"))
    said = refusal((1.0, 0.2, "word"), (1.0, 3.0, "sentence/the dog barks"))
    assert "'word' (1 to 1.2 s) and 'sentence/the dog barks' (1 to 4 s) overlap" in said
    assert "data.raw.begin='sentence/*'" in said
    assert "data.raw.word=word;" in said
    words = (1.2, 0.1, "word"), (1.5, 0.5, "a cat"), (1.6, 0.1, "word")
    assert "data.raw.word" not in refusal(sentence, *words, word="word")


def test_a_sentence_without_a_word_is_counted():
    spec = data_spec(RawSpec, "raw", word="word")
    found, dropped = readings(FILE, [event(1.0, "a b", 2.0, text="a b")], (), spec, None)
    assert not found
    assert dropped == {"no word": 1}


def test_any_code_begins_a_sentence_but_those_of_its_end_and_words():
    events = [event(1.0, "a b"), event(1.5, "word"), event(2.0, "end"), event(3.0, "c d"), event(4.0, "end")]
    found, _ = readings(FILE, events, (), data_spec(RawSpec, "raw", begin="*", end="end"), None)
    assert [(reading.text, reading.end) for reading in found] == [("word", 2.0), ("c d", 4.0)]
    found, dropped = readings(FILE, events, (), data_spec(RawSpec, "raw", begin="*", end="end", word="word"), None)
    assert [(reading.text, reading.end) for reading in found] == [("a b", 2.0)]
    assert dropped == {"no word": 1}


def test_marks_are_skipped_by_name():
    events = [event(0.0, "Fixation cross", 0.5), event(1.0, "a b", 2.0), event(4.0, "pause 3", 1.0)]
    events = [dataclasses.replace(one, columns={"text": one.codes[0]}) for one in events]
    every, _ = readings(FILE, events, (), data_spec(RawSpec, "raw"), None)
    found, _ = readings(FILE, events, (), data_spec(RawSpec, "raw", skip=("Fixation cross", "pause *")), None)
    assert [reading.text for reading in every] == ["Fixation cross", "a b", "pause 3"]
    assert [reading.text for reading in found] == ["a b"]
    found, _ = readings(FILE, events, (), data_spec(RawSpec, "raw", begin="*", skip=("pause *",)), None)
    assert len(found) == 2


def test_a_table_of_texts_that_fits_no_recording_says_in_what(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("subject\ttrial\ttext\n1\t1\ta b\n")
    said = Texts(path, "text").mismatch([RawFile(Path("VP01.vhdr"), "VP01", "reading")])
    assert "its column subject has 1; the recordings' subject is VP01" in said
    said = Texts(path, "text").mismatch([RawFile(Path("1.vhdr"), "1", "reading")])
    assert said.endswith("no row has the subject and trial of a sentence here.")
    path.write_text("trial\ttext\n")
    assert Texts(path, "text").mismatch([]).endswith("no row has the trial of a sentence here.")
