"""`prepare` on recordings: formats give one data file, drops are counted, bad files are named."""

import pickle
import shutil
from collections import Counter

import h5py
import numpy as np
import pytest
import scipy.io
from simulated_study import TEXTS, make_content
from tiny_run import prepare

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.source import Tally
from eeg2text_testing.wang_ji_scripts import dump, pickle_v5
from eeg2text_testing.zuco_files import write_v5

FILE = "resultsZAB_SR.mat"


def made(config, out, *sources):
    tally = prepare(config, out, [str(source) for source in sources])
    return read_datafile(out), tally


def test_all_formats_give_identical_data_files(study, tmp_path, data_config):
    files = {form: made(data_config, tmp_path / f"{form}.h5", getattr(study, form)) for form in ("v5", "v7", "v73")}
    assert len({data.digest() for data, _ in files.values()}) == 1
    assert len({tally.table() for _, tally in files.values()}) == 1
    assert files["v5"][0].features_are == files["v73"][0].features_are
    for (data, _), layout in zip(files.values(), ("mat-v5", "mat-v5", "mat-v7.3"), strict=True):
        assert [file["layout"] for file in data.provenance["files"]] == [layout]
        assert data.provenance["sentences"] == {"SR": {"ZAB": len(TEXTS)}}


def test_table_counts_every_sentence(study, tmp_path, data_config):
    data, tally = made(data_config, tmp_path / "a.h5", study.v5)
    assert len(data) + sum(tally.drops().values()) == len(TEXTS)
    lines = tally.table().splitlines()
    assert lines[0].split() == ["subject", "task", "read", "kept", "dropped"]
    assert lines[1].split(maxsplit=5) == ["ZAB", "SR", "10", "7", "3", "NaN band 1, missing 1, no fixated word 1"]
    assert lines[-1].split()[:5] == ["all", "all", "10", "7", "3"]
    assert sorted(set(range(10)) - set(data.sentence_index.tolist())) == [1, 3, 4]  # the others keep their index
    assert data.clock.order.tolist() == data.sentence_index.tolist()
    assert set(data.clock.recording) == {"ZAB/SR"}


def test_more_sentences_than_one_row_each():
    tally = Tally()
    for i in range(130):
        tally.n_kept[f"S{i}", "SR"] = 2
    lines = [line.split()[:3] for line in tally.table().splitlines()[1:]]
    assert lines == [["all", "SR", "260"], ["all", "all", "260"]]


def test_subjects_with_other_sentences_are_matched_by_index(study, tmp_path, data_config):
    shutil.copy(study.v7 / FILE, tmp_path)
    write_v5(tmp_path / "resultsZDM_SR.mat", make_content(1)[:7])
    write_v5(tmp_path / "resultsZJS_SR.mat", make_content(2)[2:])
    data, tally = made(data_config, tmp_path / "a.h5", tmp_path)
    assert any("resultsZDM_SR.mat (ZDM, SR): has 7 sentences, ZAB has 10; matched by index" in n for n in tally.notes)
    assert any("(ZJS, SR): 8 sentences have another text than ZAB's of the same index" in n for n in tally.notes)
    assert data.provenance["sentences"]["SR"] == {"ZAB": 10, "ZDM": 7, "ZJS": 8}
    rows = {(s, i): text for s, i, text in zip(data.subject, data.sentence_index, data.sentence, strict=True)}
    assert rows["ZAB", 5] == rows["ZDM", 5] == TEXTS[5]
    assert rows["ZJS", 0] == TEXTS[2]


def test_files_of_two_subjects_and_tasks_are_as_each_alone(tmp_path, data_config):
    """In the order of the tasks; the tasks have other texts, and one subject has one sentence fewer."""
    order = [("ZAB", "SR"), ("ZDM", "SR"), ("ZAB", "NR"), ("ZDM", "NR")]
    for seed, (subject, task) in enumerate(order):
        content = make_content(seed)[:: 1 if task == "SR" else -1]
        write_v5(tmp_path / f"results{subject}_{task}.mat", content[: 9 if (subject, task) == ("ZDM", "SR") else 10])
    both, tally = made(data_config, tmp_path / "all.h5", tmp_path)
    start, sums = 0, Counter()
    for subject, task in order:
        one, own = made(data_config, tmp_path / "one.h5", tmp_path / f"results{subject}_{task}.mat")
        rows = range(start, start := start + len(one))
        assert {(both.subject[i], both.task[i]) for i in rows} == {(subject, task)}
        assert both.sentence[rows].tolist() == one.sentence.tolist()
        assert both.sentence_index[rows].tolist() == one.sentence_index.tolist() == one.clock.order.tolist()
        assert all(np.array_equal(both.words(i), one.words(k)) for k, i in enumerate(rows))
        assert tally.drops(subject, task) == own.drops()
        sums.update(own.drops())
    assert start == len(both)
    assert both.provenance["dropped"] == tally.drops() == dict(sums)
    assert both.provenance["sentences"] == {"SR": {"ZAB": 10, "ZDM": 9}, "NR": {"ZAB": 10, "ZDM": 10}}
    names = [f"results{subject}_{task}.mat" for subject, task in order]
    assert [file["name"] for file in both.provenance["files"]] == names
    (note,) = tally.notes
    assert "resultsZDM_SR.mat (ZDM, SR): has 9 sentences, ZAB has 10; matched by index." in note


def test_words_in_another_order_are_not_those_of_the_text(tmp_path, data_config):
    content = make_content(0)[:3]
    content[1]["word"] = content[1]["word"][::-1]
    write_v5(tmp_path / FILE, content)
    _, tally = made(data_config, tmp_path / "a.h5", tmp_path / FILE)
    assert any("in 1 sentence the words are not the tokens of the text" in note for note in tally.notes)


def test_the_authors_rules_without_scores_keep_microvolts(tmp_path, data_config):
    """And large values, which two of three sentences have."""
    content = [make_content(0)[i] for i in (0, 2, 7)]
    for sentence, value in ((content[0], 5000.0), (content[2], -2000.0)):
        fixated = [word for word in sentence["word"] if word["nFixations"] is not None]
        for word in fixated[:2]:
            word["GD_t2"] = np.r_[value, np.arange(104.0)][None].astype(np.float32)
    write_v5(tmp_path / FILE, content)
    data_config.recordings.update({"compat": "wang-ji", "zscore": False})
    data, tally = made(data_config, tmp_path / "a.h5", tmp_path / FILE)
    assert data.words(0)[0, 105:110].tolist() == [5000, 0, 1, 2, 3]
    assert data.words(len(data) - 1)[1, 105:107].tolist() == [-2000, 0]
    assert any(": 2 sentences kept with values above 1000" in note for note in tally.notes)
    assert "(µV)" in data.features_are


def test_an_unreadable_file_is_named_and_the_others_kept(study, tmp_path, data_config):
    shutil.copy(study.v5 / FILE, tmp_path / "resultsZAB_SR.mat")
    (tmp_path / "resultsZDM_SR.mat").write_bytes((study.v7 / FILE).read_bytes()[:5000])
    shutil.copy(study.v5 / FILE, tmp_path / "resultsZDN_SR.mat")
    data, tally = made(data_config, tmp_path / "a.h5", tmp_path)
    assert set(data.subject) == {"ZAB", "ZDN"}
    assert [note for note in tally.notes if note.startswith(f"LEFT OUT: {tmp_path / 'resultsZDM_SR.mat'}: ")]
    assert data.provenance["notes"] == tally.notes
    data_config.recordings.strict = True
    with pytest.raises(UserError, match=r"resultsZDM_SR.mat: is damaged or cut short"):
        prepare(data_config, tmp_path / "strict.h5", [str(tmp_path)])
    assert not list(tmp_path.glob("*strict*"))


def test_the_file_of_an_excluded_subject_is_left_out(study, tmp_path, data_config):
    for subject in ("ZAB", "ZDM"):
        shutil.copy(study.v5 / FILE, tmp_path / f"results{subject}_SR.mat")
    data_config.recordings.exclude = ("ZAB",)
    data, tally = made(data_config, tmp_path / "a.h5", tmp_path)
    assert set(data.subject) == {"ZDM"}
    assert any("resultsZAB_SR.mat: left out, data.recordings.exclude names ZAB" in note for note in tally.notes)


def test_a_subject_both_in_a_pickle_and_a_file_is_refused(study, tmp_path, data_config):
    pickle_v5(tmp_path / "task1-SR-dataset.pickle", {"ZAB": study.v5 / FILE})
    with pytest.raises(UserError, match="both hold subject ZAB of task SR"):
        prepare(data_config, tmp_path / "a.h5", [str(study.v5), str(tmp_path)])


def cut(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def without(path, name):
    with h5py.File(path, "r+") as file:
        del file[name]


BAD = {
    "a .mat of something else": (lambda p, _: scipy.io.savemat(p, {"montage": np.eye(3)}), "found montage"),
    "numbers called sentenceData": (lambda p, _: scipy.io.savemat(p, {"sentenceData": np.eye(3)}), "struct array"),
    "an HDF5 file of something else": (lambda p, _: h5py.File(p, "w").create_group("eeg"), "expected a group sentence"),
    "text": (lambda p, _: p.write_text("a,b\n1,2\n"), "neither a MATLAB"),
    "an empty file": (lambda p, _: p.touch(), "is empty"),
    "v5 cut short": (lambda p, s: (shutil.copy(s.v5 / FILE, p), cut(p, 0.7)), "the file is cut short"),
    "v7 cut short": (lambda p, s: (shutil.copy(s.v7 / FILE, p), cut(p, 0.7)), "the file is cut short"),
    "v7.3 cut short": (lambda p, s: (shutil.copy(s.v73 / FILE, p), cut(p, 0.7)), "is damaged or cut short"),
    "v7.3 header alone": (lambda p, s: (shutil.copy(s.v73 / FILE, p), cut(p, 1e-4)), "cut short"),
    "v7.3 without words": (lambda p, s: (shutil.copy(s.v73 / FILE, p), without(p, "sentenceData/word")), "has no word"),
    "v7.3 without the struct": (lambda p, s: (shutil.copy(s.v73 / FILE, p), without(p, "sentenceData")), "found noth"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_give_one_sentence(kind, study, tmp_path, refused):
    make, expected = BAD[kind]
    make(tmp_path / FILE, study)
    line = refused(["prepare", str(tmp_path / FILE), f"--out={tmp_path}/a.h5", "--strict"])
    assert f"{tmp_path / FILE}: " in line
    assert expected in line
    assert not list(tmp_path.glob("*.h5")) + list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (pickle.dumps({"ZAB": [None]})[:-9], "is damaged or not a pickle by Wang & Ji's scripts"),
        (pickle.dumps([1, 2]), "it holds no dictionary of subjects"),
        (pickle.dumps({"ZAB": [{"content": "a"}]}), "KeyError: missing 'word'"),
        (pickle.dumps({"ZAB": [None, None]}), "all were dropped (missing 2)"),
        (pickle.dumps({"ZAB": [shutil.rmtree]}), "nothing was executed: it names shutil.rmtree"),
    ],
)
def test_bad_pickles_give_one_sentence(content, expected, tmp_path, refused):
    path = tmp_path / "task1-SR-dataset.pickle"
    path.write_bytes(content)
    assert expected in refused(["prepare", str(path), f"--out={tmp_path}/a.h5", "--strict"], alone=False)
    assert not (tmp_path / "a.h5").exists()


def test_pickle_that_contradicts_itself(study, tmp_path, data_config):
    path = tmp_path / "task1-SR-dataset.pickle"
    pickle_v5(path, {"ZAB": study.v5 / FILE})
    content = pickle.loads(path.read_bytes())
    del content["ZAB"][0]["word"][0]
    dump(path, content)
    with pytest.raises(UserError, match="contradict its list of tokens"):
        prepare(data_config, tmp_path / "a.h5", [str(path)])


def test_command_prints_table_and_notes(study, tmp_path, capsys):
    shutil.copytree(study.v7, tmp_path / "in")
    (tmp_path / "in" / "montage.mat").touch()
    arguments = ["--compat=wang-ji", "--config.data.recordings.measure=FFD"]
    assert main(["prepare", str(tmp_path / "in"), f"--out={tmp_path}/a.h5", *arguments]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["subject", "task", "read", "kept", "dropped"]
    assert "montage.mat: passed over" in err
    table1 = out[out.index("as Table 1 of the paper") :].splitlines()
    assert table1[1].split() == ["task", "train", "dev", "test", "total"]
    assert [int(n) for n in table1[2].split()[1:]] == [6, 1, 1, 6 + 2]
    assert "[1/1]" in err  # progress
    provenance = read_datafile(tmp_path / "a.h5").provenance
    assert (provenance["compat"], provenance["measure"]) == ("wang-ji", "FFD")
    assert len(provenance["files"][0]["sha256"]) == 64


@pytest.mark.parametrize("source", ["data.txt", "data.h5", "nowhere", "nowhere.mat"])
def test_sources_that_are_not_there_or_of_no_kind(source, tmp_path, data_config):
    with pytest.raises(UserError, match=f"{source}.*: there is no such file"):
        prepare(data_config, tmp_path / "a.h5", [str(tmp_path / source) + "/" * (source == "nowhere")])
    (tmp_path / source).write_text("")
    with pytest.raises(UserError, match="its name tells no" if source.endswith("mat") else "is no source"):
        prepare(data_config, tmp_path / "a.h5", [str(tmp_path / source)])
