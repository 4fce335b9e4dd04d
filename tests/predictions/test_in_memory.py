"""Scores and audits of what Python holds: DataFrames, lists of texts."""

import dataclasses
from pathlib import Path

import pandas
import pytest
from reading import pairs

import eeg2text_jax
from eeg2text_jax import audit, read_any, score
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions.selection import as_conditions, as_set
from eeg2text_testing.prediction_sets import Dials, as_predictions, simulate


@pytest.fixture(scope="module")
def rows():
    import numpy as np

    return as_predictions(simulate(Dials(sentences=24, subjects=2, information=0.5), np.random.default_rng(0)))


def figures(found):
    return {name: figure["value"] for name, figure in found.items()}


def test_lists_of_texts_and_frames_score_as_rows_do(rows):
    eeg, _ = rows
    expected = score(eeg)
    texts, references = [row.prediction for row in eeg], [row.reference for row in eeg]
    named = pandas.DataFrame({"Ground truth": references, "prediction": texts, "more": 1})
    assert figures(score(texts, references)) == figures(score(named)) == figures(expected)
    assert "<table>" in expected._repr_html_()
    assert "word_bleu-1" in expected._repr_html_()


def test_frames_and_lists_are_audited_as_rows_are(rows):
    eeg, noise = rows
    plain = audit(eeg, {"noise": noise})
    frames = [pandas.DataFrame(map(dataclasses.asdict, some)) for some in rows]
    apart = audit(frames[0], {"noise": frames[1]})
    together = audit(pandas.concat(frames))
    for found in (apart, together):
        assert found.sentence == plain.sentence
        assert found.seeds_stated
    references = [row.reference for row in eeg]
    texts = ([row.prediction for row in some] for some in rows)
    listed = audit(next(texts), {"noise": next(texts)}, references=references, mode="free_running")
    assert listed.conditions[0].content.scores == pytest.approx(plain.conditions[0].content.scores)
    assert not listed.seeds_stated
    assert plain.verdict.value in plain._repr_html_()
    assert repr(plain) == f"AuditResult({plain.verdict.headline}. {plain.sentence})"


def test_a_column_of_topics_is_used_without_being_asked_for():
    folder = Path(eeg2text_jax.__file__).parent / "commands/example_files"
    paths = [folder / "eeg.csv", folder / "noise.csv"]
    for eeg, noise in (paths, [pandas.read_csv(path) for path in paths]):
        found = audit(eeg, control=noise)
        assert [answer.column for answer in found.groups] == ["topic"]
        assert str(found.verdict) == "uses EEG: of the sentence"
        assert audit(eeg, control=noise, groups={}).groups == []


def test_a_frame_of_our_own_rows_keeps_every_field(rows):
    first = dataclasses.replace(rows[0][0], onset=2.5, order=3, nll=4.0, n_tokens=5, prediction_tokens=[1, 2])
    own = [first, dataclasses.replace(rows[0][1], nll=4.25)]
    assert as_set(pandas.DataFrame(map(dataclasses.asdict, own))).predictions == own


def test_of_a_frame_the_first_hypothesis_of_a_sample_counts(rows):
    several = [dataclasses.replace(rows[0][0], hypothesis=k, prediction=f"text {k}") for k in (0, 1)]
    found = as_set(pandas.DataFrame(map(dataclasses.asdict, several))).predictions
    assert [row.prediction for row in found] == ["text 0"]


def test_seeds_are_stated_where_all_sides_state_them(rows):
    texts, references = ([getattr(row, name) for row in rows[1]] for name in ("prediction", "reference"))
    for control, stated in ((rows[1], True), (texts, False)):
        assert as_conditions(rows[0], {"noise": control}, references, "free_running", "eeg")[2] == stated


def test_a_missing_value_of_a_frame_is_an_empty_text():
    found = as_set(pandas.DataFrame({"reference": ["a b", "c d"], "prediction": ["a", pandas.NA]}))
    assert [row.prediction for row in found.predictions] == ["a", ""]


def test_a_frame_is_read_by_the_rules_of_a_file():
    texts = {"reference": ["a b", "c d", "e f"], "prediction": ["a", "c", "e"]}
    found = as_set(pandas.DataFrame(texts | {"split": ["test", "train", "test"]}))
    assert [row.reference for row in found.predictions] == ["a b", "e f"]
    with pytest.raises(UserError, match="the column 'source' says what was fed"):
        as_set(pandas.DataFrame(texts | {"source": ["eeg", "noise", "noise"]}))


def test_a_table_of_several_conditions_is_not_pooled(rows):
    both = pandas.concat([pandas.DataFrame(map(dataclasses.asdict, some)) for some in rows])
    with pytest.raises(UserError, match="eeg: the table holds the conditions eeg, noise; give a table for each"):
        audit(both, {"other": rows[1]})
    named = both.rename(columns={"eval_condition": "condition"})[["reference", "prediction", "condition", "subject"]]
    assert [found.control for found in audit(named, mode="free_running").comparisons] == ["noise"]


def test_what_cannot_be_read_is_one_sentence(rows):
    with pytest.raises(UserError, match="predictions: 2 texts and 0 references"):
        score(["a", "b"])
    with pytest.raises(UserError, match="noise: 1 text and 2 references"):
        audit(["a", "b"], {"noise": ["a"]}, references=["a", "b"])
    with pytest.raises(UserError, match="control is a list of list; expected predictions, texts"):
        audit(rows[0], [rows[1]])


def test_names_are_completed():
    assert {"fit", "audit", "prepare", "data"} <= set(dir(eeg2text_jax))


def test_a_text_is_a_path_or_refused(tmp_path):
    """`score("a.txt", "b.txt")` scored the letters of the names of the files."""
    outputs, references = tmp_path / "out.txt", tmp_path / "ref.txt"
    outputs.write_text("the film is good\nit was short\n")
    references.write_text("the film was good\nit was long\n")
    expected = score(["the film is good", "it was short"], ["the film was good", "it was long"])
    assert figures(score(str(outputs), str(references))) == figures(score(outputs, references)) == figures(expected)
    for given, others in (("the film is good", "the film was good"), ("out.txt", None), (str(outputs), "ref.txt")):
        with pytest.raises(UserError, match="there is no such file; give the path of a file, a DataFrame, or a list"):
            score(given, others)
    with pytest.raises(UserError, match="references is a path, and predictions is none"):
        score(["the film is good"], str(references))


@pytest.fixture
def frames(rows):
    named = {"what": "reference", "said": "prediction", "reader": "subject"}
    return [pandas.DataFrame({k: [getattr(r, v) for r in some] for k, v in named.items()}) for some in rows]


def test_two_tables_are_audited_with_columns_named_as_on_the_command_line(rows, frames):
    both = {"columns": ["what", "said"], "mode": "free_running"}
    apart = audit(frames[0], {"control": frames[1]}, **both)
    for found in (audit(*frames, **both), audit(frames[0], control=frames[1], **both)):
        assert found.sentence == apart.sentence
        assert [comparison.control for comparison in found.comparisons] == ["control"]
    expected = figures(score(rows[0], metrics=["bleu", "wer", "cer", "rouge"]))
    assert figures(score(frames[0], columns=["what", "said"])) == expected
    with pytest.raises(UserError, match="give one of them"):
        audit(frames[0], frames[1], control=frames[1])


def test_columns_of_a_table_that_are_not_used_are_said(rows):
    texts = [{"reference": row.reference, "prediction": row.prediction, "confidence": "high"} for row in rows[0]]
    found = audit(pandas.DataFrame(texts), pandas.DataFrame(texts), mode="free_running")
    for name in ("eeg", "control"):
        said = f"{name}: layout F (table; reference 'reference', prediction 'prediction'; not used: 'confidence')"
        assert any(note.startswith(said) for note in found.notes)


@pytest.mark.parametrize("nothing", [[], (), None, 3])
def test_nothing_is_one_sentence(rows, nothing):
    said = "; expected predictions, texts, a DataFrame or the path of a file"
    for call in (lambda: score(nothing), lambda: audit(nothing, rows[1]), lambda: audit(rows[0], {"noise": nothing})):
        with pytest.raises(UserError, match=rf"(predictions|eeg|noise) (holds no predictions|is None|is 3){said}"):
            call()


def test_messages_in_python_speak_of_arguments(write, tmp_path, frames):
    with pytest.raises(UserError, match=r"name two with columns=\[REFERENCE, PREDICTION\]") as refused:
        score(frames[0])
    path = write("gt,draft,final\na b,c d,e f\n", "file.csv")
    with pytest.raises(UserError, match=r'name it with columns=\["gt", PREDICTION\]'):
        eeg2text_jax.read_any(path)
    with pytest.raises(UserError, match=r'layout="Q": there is no such layout'):
        eeg2text_jax.read_any(path, layout="Q")
    (tmp_path / "out.txt").write_text("a b\nc d\n")
    with pytest.raises(UserError, match=r"give its references with reference=FILE"):
        score(tmp_path / "out.txt")
    assert "--" not in str(refused.value)


def test_a_result_is_a_page_and_a_table(tmp_path, rows):
    found = audit(rows[0], {"noise": rows[1]})
    found.to_html(tmp_path / "report.html")
    assert found.sentence[:40] in (tmp_path / "report.html").read_text("utf8")
    frame = found.to_frame()
    assert list(frame["against"]) == ["noise"]
    assert "content difference" in frame.columns


def test_a_dict_of_columns_and_a_list_of_dicts_are_tables_as_a_frame_is():
    table = {"Sentence": ["a b c", "d e"], "Output": ["a b", "d e f"], "trial": [1, 2]}
    frame = pandas.DataFrame(table)
    used = ["Sentence", "Output"]
    expected = as_set(frame, columns=used)
    assert pairs(expected) == [("a b c", "a b"), ("d e", "d e f")]
    for given in (table, frame.to_dict("records"), {name: frame[name] for name in frame}):
        assert as_set(given, columns=used) == expected
    with pytest.raises(UserError, match="differ in their number of rows: 'reference' has 2, 'prediction' has 1"):
        score({"reference": ["a", "b"], "prediction": ["a"]})
    with pytest.raises(UserError, match="two columns have the name 'prediction'; rename one of them"):
        score(pandas.DataFrame([["a", "b", "c"]], columns=["reference", "prediction", "prediction"]))


def test_series_are_lists_of_texts():
    texts, references = pandas.Series(["a b", "c d"], index=[7, 9]), pandas.Series(["a b", "c e"])
    assert figures(score(texts, references)) == figures(score([*texts], [*references]))


def test_a_dict_of_columns_is_a_control_and_a_dict_of_names_holds_controls(rows):
    columns = [
        {"reference": [row.reference for row in some], "prediction": [row.prediction for row in some]} for some in rows
    ]
    alone = audit(columns[0], columns[1])
    assert [found.control for found in alone.comparisons] == ["control"]
    named = audit(columns[0], {"noise": columns[1], "again": columns[1]})
    assert {found.control for found in named.comparisons} == {"noise", "again"}
    framed = audit(columns[0], {name: pandas.DataFrame(columns[1]) for name in ("noise", "again")})
    assert framed.sentence == named.sentence
    assert alone.sentence == named.sentence.replace("noise", "control").replace("again", "control")


def test_scores_are_printed_a_line_each_and_become_a_frame():
    found = score(["the film is good"], ["the film was good"])
    assert f"{'wer':22}{25:8.2f}" in str(found).split("\n")
    frame = found.to_frame()
    assert [*frame.index] == [*found]
    assert frame.loc["wer", "value"] == 25


def test_what_read_any_returns_is_scored_and_audited(write):
    """So a part of a file is chosen in Python, as a message says."""
    pairs = [(f"the road {a} was {b}", f"a road {a} is {b}") for a in ("here", "there", "home") for b in "abcdefgh"]
    text = "".join(f"Epoch {i}\n" + "".join(f"GT: {r}\nPR: {p} {i}\n" for r, p in pairs) for i in (1, 2))
    path = write(text, "log.txt")
    for judge in (score, audit):
        with pytest.raises(
            UserError, match=r"block=.last. the last.*read_any takes these arguments, give what it returns"
        ):
            judge(path)
    read = read_any(path, block="last")
    assert {row.prediction[-1] for row in read.predictions} == {"2"}
    assert score(read) == score(read.predictions)
    assert audit(read).sentence == audit(read.predictions).sentence
