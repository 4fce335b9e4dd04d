"""Certificates and split files, and the command that makes and judges them."""

import json
import re

import numpy as np
import pytest
from reading_grids import ZUCO_SUBJECTS

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.commands.data import labels_of_samples
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.source import Sample
from eeg2text_jax.data.splits.certificate import leakage_table
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import PARTS, hash_ids, normalize, read_split_file, write_split_file

RATIO = (0.8, 0.1, 0.1)
TEXTS = {"NR": [f"sentence {i} of many" for i in range(20)], "TSR": [f"Sentence {i}: of many!" for i in range(15, 40)]}


def write(path, subjects=ZUCO_SUBJECTS, texts=TEXTS):
    with DataWriter(path, 1, "nothing") as writer:
        for subject in subjects:
            for task, sentences in texts.items():
                for i, text in enumerate(sentences):
                    writer.add(Sample(np.ones((1, 1), np.float32), text, subject, task, i))
    return path


@pytest.fixture(scope="module")
def data_path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("data") / "data.h5")


def test_the_certificate_states_what_the_split_is(data_path, tmp_path, capsys):
    out = tmp_path / "new" / "f.json"
    assert main(["split", str(data_path), "--method=f", "--seed=1", f"--json={out}"]) == 0
    certificate = json.loads(out.read_text())
    data = read_datafile(data_path)
    split = make_split(data, "f", RATIO, 1)
    assert certificate["digest"] == split.digest()
    made_from = certificate["data"]
    assert (made_from["name"], made_from["digest"]) == ("data.h5", data.digest())
    assert {name: made_from[name] for name in data.digests} == data.digests
    assert (certificate["method"], certificate["seed"], certificate["ratio"]) == ("f", 1, [0.8, 0.1, 0.1])
    assert certificate["kept"] == {"samples": split.kept, "of": 540, "fraction": split.kept / 540}
    for name in PARTS:
        part = certificate["parts"][name]
        assert part["samples"] == len(part["ids"]) == len(split.parts[name])
        assert part["ids_sha256"] == hash_ids(part["ids"])
        columns = data.subject, data.sentence_id, np.array([normalize(text) for text in data.sentence])
        counts = [len(set(column[split.parts[name]])) for column in columns]
        assert [part[what] for what in ("subjects", "sentences", "texts")] == counts
    leak = certificate["leakage"][0]
    assert leak["bslr_over_test"] == leak["bslr_over_all"] == 0
    assert leak["tslr"] == {"sentence-id": 0, "letters-digits": 0, "case-space": 0}
    assert [len(s["sentences"]) for s in certificate["shared_between_tasks"]] == [5, 0]
    assert "sentence 3" not in out.read_text()  # no texts: a certificate can be passed on
    shown = capsys.readouterr().out
    rows = [words for words in map(str.split, shown.splitlines()) if len(words) == 5 and words[0] in PARTS]
    counted = ("samples", "subjects", "sentences", "texts")
    assert rows == [[name, *(str(certificate["parts"][name][what]) for what in counted)] for name in PARTS]
    assert f"({split.kept} of 540)" in shown
    assert f"split hash {split.digest()}" in shown
    assert "train and test share no texts (by letters-digits), no near-duplicates and no subjects" in shown


def test_a_certificate_makes_the_same_split_even_of_a_file_in_another_order(data_path, tmp_path):
    out = tmp_path / "f.json"
    main(["split", str(data_path), "--method=f", f"--json={out}"])
    data, other = read_datafile(data_path), read_datafile(write(tmp_path / "b.h5", ZUCO_SUBJECTS[::-1]))
    assert make_split(data, "file", RATIO, 0, out).digest() == make_split(data, "f", RATIO, 0).digest()
    same = make_split(other, "file", RATIO, 0, out)
    assert same.digest() == make_split(data, "f", RATIO, 0).digest()
    for name in PARTS:
        expected = make_split(data, "f", RATIO, 0).parts[name]
        pairs = zip(data.subject[expected], data.sentence_id[expected], strict=True)
        assert set(pairs) == set(zip(other.subject[same.parts[name]], other.sentence_id[same.parts[name]], strict=True))


def test_the_audit_names_test_sentences_that_another_task_gives_away(data_path, tmp_path, printed_by):
    split = tmp_path / "mine.json"
    main(["split", str(data_path), "--method=unique_sent", f"--json={split}"])
    out = tmp_path / "judged.json"
    shown = printed_by(["split", "--audit", str(split), str(data_path), f"--json={out}"])
    assert "NR and TSR share 5 texts by letters-digits" in shown
    assert "test NR:18 equals train TSR:3: sentence 18 of many" in shown
    judged = [d for d in json.loads(out.read_text())["duplicates"] if d["overlap"] == 1]
    named = {(d["judged"], *d["judged_sentences"], *d["other_sentences"]) for d in judged}
    assert {("test", "NR:18", "TSR:3"), ("test", "NR:19", "TSR:4"), ("dev", "NR:16", "TSR:1")} <= named
    printed_by(["split", str(data_path), "--method=c", "--overlap=0.5", f"--json={out}"])
    certificate = json.loads(out.read_text())
    assert certificate["near_duplicate_overlap"] == 0.5
    assert any(0.5 <= d["overlap"] < 0.8 for d in certificate["duplicates"])
    shown = printed_by(["split", str(data_path), "--method=c", f"--json={out}"])
    duplicates = json.loads(out.read_text())["duplicates"]
    told = re.findall(r"^(?:dev|test) .* (?:equals|overlaps) .*", shown, re.MULTILINE)
    assert len(told) == sum(bool(d["other_sentences"]) for d in duplicates) < len(duplicates)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("dev", ["dev", "val", "validation"])
@pytest.mark.parametrize("kind", ["rows", "ids", "objects"])
def test_splits_made_elsewhere_are_read(data_path, tmp_path, kind, dev, wrapped):
    data = read_datafile(data_path)
    split = make_split(data, "c", RATIO, 0)

    def name(row):
        subject, task, index = data.subject[row], data.task[row], int(data.sentence_index[row])
        described = {"subject": subject, "task": task, "sentence_index": index}
        return {"rows": int(row), "ids": f"{subject}/{task}:{index}", "objects": described}[kind]

    names = dict(zip(PARTS, ("train", dev, "test"), strict=True))
    parts = {names[part]: [name(row) for row in split.parts[part][::-1]] for part in PARTS}
    path = tmp_path / "elsewhere.json"
    path.write_text(json.dumps({"parts": parts} if wrapped else parts))
    found = make_split(data, "file", RATIO, 0, path)
    assert found.digest() == split.digest()
    for part in PARTS:
        np.testing.assert_array_equal(found.parts[part], split.parts[part])


def test_an_audit_without_the_data_file_compares_the_texts_that_the_split_file_has(tmp_path, printed_by):
    def reading(subject, text):
        return {"subject": subject, "text": text}

    parts = {
        "train": [reading("A", "One – two"), reading("B", "three")],
        "dev": [reading("C", "four")],
        "test": [reading("A", "one two")],
    }
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(parts))
    said = printed_by(["split", "--audit", str(path)])
    assert "train and test share 1 text (by letters-digits), no near-duplicates and 1 subject" in said


def test_an_audit_of_ids_alone_says_that_it_compared_ids(tmp_path, printed_by):
    path = tmp_path / "ids.json"
    path.write_text(json.dumps({"train": ["A/NR:0", "B/NR:1"], "dev": ["A/NR:2"], "test": ["B/NR:0"]}))
    shown = printed_by(["split", "--audit", str(path)])
    assert "compared by sentence-id alone" in shown
    assert "train and test share 1 text (by sentence-id)" in shown


GOOD = {"train": ["ZAB/NR:0"], "dev": ["ZAB/NR:1"], "test": ["ZAB/NR:2"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "expected a split file in JSON"),
        ("[1, 2]", "train, dev and test, found [1, 2]."),
        (json.dumps({"train": [1], "test": [2]}), "part 'dev'"),
        (json.dumps({**GOOD, "test": []}), "part 'test'"),
        (json.dumps({**GOOD, "test": "ZAB/NR:2"}), "expected a list of samples as part 'test', found 'ZAB"),
        (json.dumps({**GOOD, "test": ["ZAB/NR:0"]}), "in part train and again in part test"),
        (json.dumps({**GOOD, "train": ["ZAB/NR:0", "ZAB/NR:0"]}), "in part train and again in part train"),
        (json.dumps({**GOOD, "test": ["ZAB/NR:2", 2]}), "'ZAB/NR:2' is in part test and again in part test"),
        (json.dumps({**GOOD, "test": ["ZAB/NR:99"]}), "'ZAB/NR:99' of part test is not in"),
        (json.dumps({**GOOD, "test": [99999]}), "row 99999 of part test"),
        (json.dumps({**GOOD, "test": [-1]}), "row -1 of part test"),
        (json.dumps({**GOOD, "test": [True]}), "part test"),
        (json.dumps({**GOOD, "test": ["nonsense"]}), 'part test holds "nonsense"'),
        (json.dumps({**GOOD, "test": ["ZAB/NR:two"]}), 'part test holds "ZAB/NR:two"'),
        (json.dumps({**GOOD, "test": ["NR:2"]}), 'part test holds "NR:2"'),
        (json.dumps({**GOOD, "test": [{"subject": "ZAB"}]}), "part test holds"),
        (json.dumps({**GOOD, "test": {"ids": ["ZAB/NR:2"], "ids_sha256": "0"}}), "it was edited"),
    ],
)
def test_bad_split_files_are_named_in_one_sentence(data_path, tmp_path, content, message):
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        read_split_file(path).resolve(read_datafile(data_path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_need_the_data_file(tmp_path, refused):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"train": [0], "dev": [1], "test": [2]}))
    assert "name the data file as well" in refused(["split", "--audit", str(path)])


@pytest.mark.parametrize("arguments", [[], ["--audit", "absent.json"], ["absent.h5"], ["--ratio=1,2"]])
def test_missing_input_is_one_sentence(arguments, refused):
    assert refused(["split", *arguments])


@pytest.mark.parametrize("folds", [[], ["--folds=2"]])
def test_groups_have_a_line_for_each_sentence(data_path, tmp_path, refused, folds):
    groups, out, data = tmp_path / "groups.csv", tmp_path / "f.json", read_datafile(data_path)
    lines = {t: f" {t.replace(' ', '  ')},{i % 3} \n" for texts in TEXTS.values() for i, t in enumerate(texts)}
    groups.write_text("".join(["reference,class\n", *lines.values()]))
    (found,) = labels_of_samples(data, groups).items()
    assert (found[0], found[1].tolist()) == ("class", [str(i % 3) for i in data.sentence_index])
    del lines["sentence 7 of many"]
    groups.write_text("".join(["reference,class\n", *lines.values()]))
    said = refused(["split", str(data_path), f"--groups={groups}", f"--json={out}", *folds])
    assert said == f"eeg2text split: {groups}: has no line for the sentence 'sentence 7 of many'; add one."
    assert [path.name for path in tmp_path.iterdir()] == ["groups.csv"]


def test_a_certificate_of_other_texts_is_refused(data_path, tmp_path, refused):
    """One that was made from another study with the same ids, or that somebody edited."""
    out = tmp_path / "f.json"
    main(["split", str(data_path), "--method=f", f"--json={out}"])
    other = write(tmp_path / "other.h5", texts={task: [f"{t} again" for t in many] for task, many in TEXTS.items()})
    said = refused(["split", str(other), "--method=file", f"--path={out}"])
    assert "f.json: was made from data.h5, whose subjects, tasks or sentences are not those of" in said
    edits = (('"digest": "', '"digest": "0'), ('"method": "f"', '"method": "c"'), ('"samples": ', '"samples": 1'))
    for old, new in edits:
        edited = tmp_path / "edited.json"
        assert out.read_text().count(old)
        edited.write_text(out.read_text().replace(old, new, 1))
        said = refused(["split", str(data_path), "--method=file", f"--path={edited}"])
        assert "edited.json: does not have the checksum that it states" in said
    certificate = json.loads(out.read_text())
    stated = certificate.pop("sha256")
    for checksum in ({}, {"sha256": None}, {"sha256": stated}):
        edited.write_text(json.dumps({**certificate, "seed": 7, **checksum}))
        with pytest.raises(UserError, match=r"edited\.json: does not have the checksum that it states"):
            read_split_file(edited)
    certificate["parts"]["test"]["ids"] = certificate["parts"]["test"]["ids"][1:]
    certificate["parts"]["test"]["ids_sha256"] = hash_ids(certificate["parts"]["test"]["ids"])
    write_split_file(edited, certificate)  # with a checksum of its own
    assert "it was edited" in refused(["split", str(data_path), "--method=file", f"--path={edited}"])


def test_a_sentence_that_is_read_twice_is_two_samples_of_one_sentence(tmp_path, printed_by):
    data = read_datafile(write(tmp_path / "data.h5", ("A", "B", "A"), {"NR": ["one", "two", "three"]}))
    path = tmp_path / "again.json"
    path.write_text(json.dumps({"train": ["A/NR:0"], "dev": ["B/NR:1"], "test": ["A/NR:0#2", "A/NR:2#2"]}))
    found = read_split_file(path).resolve(data)
    assert [found.parts[name].tolist() for name in PARTS] == [[0], [4], [6, 8]]
    said = "train and test share 1 text (by sentence-id)"
    assert said in printed_by(["split", "--audit", str(path)])


def test_rates_stand_under_their_names():
    pair = {"seen": "train", "judged": "test", "bslr_over_test": 0.5, "bslr_over_all": 0.25,
            "tslr": {"sentence-id": 0.1, "case-space": 0.2}}  # fmt: skip
    head, line = leakage_table({"leakage": [pair]}).splitlines()
    columns = [head.index(name) for name in ("BSLR, judged", "BSLR, all", "TSLR, sentence-id", "TSLR, case-space")]
    assert columns == sorted(columns)
    assert line.split() == ["train", "->", "test", "50.00%", "25.00%", "10.00%", "20.00%"]
