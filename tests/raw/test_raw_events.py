"""Events, names and codes of recordings, and recordings that are not there."""

import re
import tarfile
from pathlib import Path

import pytest
from held import event, recording, sentences_of

from eeg2text_jax import prepare
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.raw.find import RawFile, events_table, find_raw, read_events, stem_of
from eeg2text_jax.data.raw.sentences import Reading, Texts, windows
from eeg2text_jax.data.source import are_codes, mark_notes

CHISCO = Path(__file__).parents[3] / "shared/data/chisco2_ds006317_metadata.tar.xz"


def test_annotations_with_texts_behind_a_prefix():
    events = [event(1.0, "sentence/a  b"), event(2.0, "stop"), event(3.0, "sentence/c")]
    found, dropped = sentences_of(events, begin="sentence/*", end="stop")
    assert found == [Reading("a b", 1.0, 2.0)]
    assert dropped == {"no end": 1}


def test_words_without_durations_go_on_until_the_next():
    events = [event(1.0, "b", text="x y"), event(1.0, "w1"), event(1.5, "w2", 0.2), event(1.8, "w3", 2.0),
              event(2.0, "e"), event(2.0, "w4", 0.2), event(2.5, "w5")]  # fmt: skip
    (found,), _ = sentences_of(events, ("text",), begin="b", end="e", word="w*")
    assert found.words == ((1.0, 1.5), (1.5, 1.7), (1.8, 2.0)), "from the first moment on, until the last one"


def test_what_ends_as_a_sentence_begins_is_no_end_of_it():
    events = [event(1.0, "sentence/a"), event(1.0, "stop"), event(2.0, "stop"), event(2.0, "sentence/b")]
    found, _ = sentences_of(events, begin="sentence/*", end="stop")
    assert found == [Reading("a", 1.0, 2.0)]


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
    found, dropped = sentences_of(events)
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
    fields = {"begin": "65329", "end": "65381", "text": "trial_type"}
    found = [sentences_of(read_events(events_table(file))[1], columns, file=file, **fields)[0] for file in files]
    assert sum(map(len, found)) == 17056


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
            sentences_of([event(a, said, d, text=said) for a, d, said in events], **fields)
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
    found, dropped = sentences_of([event(1.0, "a b", 2.0, text="a b")], word="word")
    assert not found
    assert dropped == {"no word": 1}


def test_any_code_begins_a_sentence_but_those_of_its_end_and_words():
    events = [event(1.0, "a b"), event(1.5, "word"), event(2.0, "end"), event(3.0, "c d"), event(4.0, "end")]
    found, _ = sentences_of(events, begin="*", end="end")
    assert [(reading.text, reading.end) for reading in found] == [("word", 2.0), ("c d", 4.0)]
    found, dropped = sentences_of(events, begin="*", end="end", word="word")
    assert [(reading.text, reading.end) for reading in found] == [("a b", 2.0)]
    assert dropped == {"no word": 1}


def test_marks_are_skipped_by_name():
    given = ((0.0, "Fixation cross", 0.5), (1.0, "a b", 2.0), (4.0, "pause 3", 1.0))
    events = [event(*one, text=one[1]) for one in given]
    every, _ = sentences_of(events)
    found, _ = sentences_of(events, skip=("Fixation cross", "pause *"))
    assert [reading.text for reading in every] == ["Fixation cross", "a b", "pause 3"]
    assert [reading.text for reading in found] == ["a b"]
    found, _ = sentences_of(events, begin="*", skip=("pause *",))
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
def test_codes_are_no_texts(texts, tmp_path):
    raw = recording()
    raw.annotations.description[:] = texts
    with pytest.raises(UserError, match=r"look like codes \(.*data\.raw\.texts"):
        prepare(raw, tmp_path / "a.h5")
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
    found = [(file.subject, file.session, file.run, file.path.name) for file in find_raw([str(tmp_path)])]
    assert found == [("01", "", "", "sub-01_task-a_split-01_meg.fif"),
                     ("02", "3", "2", "sub-02_ses-3_task-a_run-2_meg.fif")]  # fmt: skip
