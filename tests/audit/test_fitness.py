"""Findings that bar the verdict, each on a file with that one fault; and what must not bar it."""

import dataclasses
import json
import random
import types

import pytest
from rows import changed, edited, one_file_each, row, simulated_rows

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.fitness import bars, file_flags, training_overlap, unfit
from eeg2text_jax.auditing.provenance import DECODED_HERE, checked_proof
from eeg2text_jax.auditing.red_flags import Flag
from eeg2text_jax.auditing.result import result_text
from eeg2text_jax.auditing.verdict import Verdict
from eeg2text_jax.cli import main
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import write_predictions


def quick(eeg, controls, **options):
    return audit(eeg, controls, **{"resamples": 200, **options})


def severe(result):
    return [flag.code for flag in result.flags if flag.level == "severe"]


@pytest.fixture(scope="module")
def sides():
    return simulated_rows(sentences=60, subjects=4, information=0.03, seed=2)


def same_for_all(rows):
    first = {r.sentence_id: r.prediction for r in reversed(rows)}
    return changed(rows, prediction=lambda r: first[r.sentence_id])


def as_long(rows, share=0.0, seed=0):
    """As many words as the reference, of which a share is right: what a teacher-forced decoder writes."""
    rng = random.Random(seed)
    vocabulary = [word for r in rows for word in r.reference.split()]

    def read(r):
        return " ".join(w if rng.random() < share else rng.choice(vocabulary) for w in r.reference.split())

    return changed(rows, prediction=read)


def copying(rows, share):
    return edited(rows, lambda r, _: r.reference, share)


def one_changed(row, rng):
    words = row.reference.split()
    words[rng.randrange(len(words))] = f"x{rng.randrange(10**6)}"
    return " ".join(words)


def less_its_last(row, _):
    return " ".join(row.reference.split()[:-1])


def half_of(row, _):
    words = row.reference.split()
    return " ".join(words[: max(5, len(words) // 2)])


def shuffled_words(row, rng):
    return " ".join(rng.sample(words := row.reference.split(), len(words)))


def with_marks(rows, seed=0):
    """References get commas at random places; predictions have them there, and nine of ten words wrong."""
    rng = random.Random(seed)
    places = {r.reference: [rng.random() < 0.3 for _ in r.reference.split()] for r in rows}

    def marked(text, reference):
        return " ".join(f"{w} ," if mark else w for w, mark in zip(text.split(), places[reference], strict=True))

    return [
        dataclasses.replace(r, reference=marked(r.reference, r.reference), prediction=marked(p.prediction, r.reference))
        for r, p in zip(rows, as_long(rows, 0.1), strict=True)
    ]


FAULTS = {
    "input_independent": lambda eeg, noise: (same_for_all(eeg), noise),
    "modes_differ": lambda eeg, noise: (changed(eeg, mode="teacher_forced"), noise),
    "looks_teacher_forced": lambda eeg, noise: (with_marks(eeg), with_marks(noise)),
    "target_copies of all": lambda eeg, noise: (copying(eeg, 1), noise),
    "target_copies with a word": lambda eeg, noise: (edited(eeg, lambda r, _: f"{r.reference} x"), noise),
    "target_edited": lambda eeg, noise: (edited(eeg, one_changed), noise),
    "target_edited in few": lambda eeg, noise: (edited(eeg, less_its_last, 0.08), noise),
    "target_cut": lambda eeg, noise: (edited(eeg, half_of), noise),
    "target_reordered": lambda eeg, noise: (edited(eeg, shuffled_words), noise),
    "teacher_forced": lambda eeg, noise: (changed(eeg, mode="teacher_forced"), changed(noise, mode="teacher_forced")),
    "target_copies": lambda eeg, noise: (copying(eeg, 0.03), noise),
    "silent_side": lambda eeg, noise: (eeg, changed(noise, prediction=" ... </s>")),
    "silent_side eeg": lambda eeg, noise: (changed(eeg, prediction=""), noise),
}


@pytest.fixture(scope="module")
def without_fault(sides):
    return quick(*one_file_each(sides))


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_bars_the_verdict(sides, without_fault, fault):
    assert without_fault.verdict is not Verdict.NOT_JUDGEABLE
    result = quick(*one_file_each(FAULTS[fault](*sides)))
    assert fault.split()[0] in severe(result)
    assert result.verdict is Verdict.NOT_JUDGEABLE
    assert result.exit_status == 8
    first = next(flag.message for flag in result.flags if flag.level == "severe")
    assert result.sentence.startswith(f"Not judgeable: {first}")
    assert "uses the EEG" not in result_text(result)


@pytest.mark.parametrize("fault", ["input_independent", "target_edited", "target_copies", "silent_side eeg"])
def test_one_fault_bars_one_file_alone(sides, fault):
    eeg, _ = FAULTS[fault](*sides)
    result = quick(eeg, {})
    assert fault.split()[0] in severe(result)
    assert result.verdict is Verdict.NOT_JUDGEABLE


def test_thirty_sentences_are_judged_and_fewer_are_not():
    eeg, noise = simulated_rows(sentences=30, information=0.1, seed=3)
    assert quick(eeg, {"noise": noise}, proof="the test planted all of it, no target").verdict is Verdict.USES_EEG
    dropped = eeg[0].reference
    eeg, noise = ([r for r in rows if r.reference != dropped] for rows in (eeg, noise))
    result = quick(eeg, {"noise": noise}, proof="the test planted all of it, no target")
    assert severe(result) == ["too_few_sentences"]
    said = "Not judgeable: 29 sentences are too few for a verdict, 30 are needed. Figures"
    assert result.sentence.startswith(said)


def test_remembered_training_sentences(sides):
    eeg, noise = sides
    texts = sorted({r.reference for r in eeg})
    trained = [*texts[:30], "a sentence of the training part that is in no test", *(f"x {i} y z u" for i in range(9))]
    remembered = [dataclasses.replace(r, prediction=random.Random(i).choice(trained)) for i, r in enumerate(eeg)]
    result = quick(remembered, {"noise": noise}, training_text=[f" {text.upper()}!" for text in trained])
    assert "training_text" in severe(result)
    assert "remembered, not decoded" in result.sentence
    own_words = quick(eeg, {"noise": noise}, training_text=trained)
    assert [f.level for f in own_words.flags if f.code == "training_text"] == ["warning"]
    assert own_words.verdict is not Verdict.NOT_JUDGEABLE
    whole = quick(eeg, {"noise": noise}, training_text=texts[:31])
    assert severe(whole) == ["training_text"]
    assert "31 of the 60 test sentences are in the training text" in whole.sentence
    assert whole.exit_status == 8
    for known in ({"decoded": DECODED_HERE}, {"choices": [r.prediction for r in eeg]}):
        assert severe(quick(eeg, {"noise": noise}, training_text=texts, **known)) == []
    clean = quick(remembered, {"noise": noise}, training_text=["another"])
    assert [f.level for f in clean.flags if f.code == "training_text"] == ["note"]


def test_a_statement_of_the_authors_is_printed_and_lifts_no_contradiction(sides):
    eeg, noise = (changed(rows, mode="unknown") for rows in simulated_rows(sentences=60, information=0.3, seed=2))
    silent = quick(eeg, {"noise": noise})
    assert (silent.verdict, silent.exit_status) == (Verdict.UNPROVEN, 9)
    assert "--mode=free_running or --proof" in silent.sentence
    assert "the model uses the EEG" not in result_text(silent)
    said = "targets were never loaded by the decoder"
    result = quick(eeg, {"noise": noise}, proof=said)
    assert result.verdict is Verdict.USES_EEG
    assert f"the authors state: {said}" in result.sentence
    for bad in (edited(eeg, one_changed), copying(eeg, 0.1)):
        assert quick(bad, {"noise": noise}, proof=said).verdict is Verdict.NOT_JUDGEABLE
    forced = [changed(rows, mode="teacher_forced") for rows in (eeg, noise)]
    assert quick(forced[0], {"noise": forced[1]}, proof=said).verdict is Verdict.NOT_JUDGEABLE


@pytest.mark.parametrize("blank", [" ", "yes", "trust me", "x x x x", "https://", "1 2 3 4 5", "https://a.org x"])
def test_what_is_no_statement_is_refused(sides, blank, tmp_path, refused):
    with pytest.raises(UserError, match="expected a sentence with at least 4 different words"):
        quick(*one_file_each(sides), proof=blank)
    write_predictions(tmp_path / "p.jsonl", {}, sides[0])
    assert "at least 4 different words" in refused(["audit", "--eeg", str(tmp_path / "p.jsonl"), f"--proof={blank}"])


def test_four_different_words_are_a_statement():
    assert checked_proof(" no  target was there ") == "no target was there"


def test_an_address_is_a_statement(sides, tmp_path, capsys, refused):
    write_predictions(tmp_path / "p.jsonl", {}, [*sides[0], *sides[1]])
    command = ["audit", "--resamples=200", "--eeg", str(tmp_path / "p.jsonl")]
    main([*command, "--proof=https://example.org/code/decode.py"])
    assert "the authors state: https://example.org/code/decode.py" in capsys.readouterr().out
    said = refused([*command, "--proof=s3://bucket/decode.py"])  # nothing is read from the bucket
    assert "--proof='s3://bucket/decode.py': expected a sentence" in said


def test_one_prediction_for_all_readers_is_judged_where_it_is_said_to_be_averaged():
    """What was decoded from recordings averaged over readers is the same for all of them, by its nature."""
    eeg, noise = simulated_rows(sentences=60, subjects=4, information=0.3, seed=2)
    rows = same_for_all(eeg)
    assert "input_independent" in severe(quick(rows, {"noise": noise}))
    said = quick(rows, {"noise": noise}, proof="one prediction was decoded from recordings averaged over readers")
    assert said.verdict is Verdict.USES_EEG


def test_a_fault_of_one_control_bars_that_comparison_and_the_whole(sides):
    eeg, noise = sides
    result = quick(eeg, {"noise": noise, "empty": changed(noise, prediction="")})
    verdicts = {c.control: c.verdict for c in result.comparisons}
    assert verdicts["empty"] is result.verdict is Verdict.NOT_JUDGEABLE
    assert verdicts["noise"] is not Verdict.NOT_JUDGEABLE
    assert "empty: the predictions say nothing in 60 of 60 sentences" in result.sentence


def test_a_finding_bars_the_comparisons_of_its_conditions_alone():
    flags = [Flag("a", "severe", "both", ("eeg", "noise")), Flag("b", "severe", "all"), Flag("c", "warning", "none")]
    assert bars(flags, "eeg", "noise") == ["both", "all"]
    assert bars(flags, "eeg", "shuffled") == bars(flags, "eeg", "") == ["all"]


def unfit_modes(**modes):
    """What `unfit` finds in conditions of these modes, EEG first."""
    conditions = [types.SimpleNamespace(name=name, mode=mode) for name, mode in modes.items()]
    texts = [f"sentence {i}" for i in range(30)]
    return unfit(types.SimpleNamespace(eeg=conditions[0], references=texts, conditions=conditions))


def test_every_control_of_another_mode_is_named():
    found = unfit_modes(eeg="free_running", noise="free_running", zero="unknown", other="unknown")
    assert {flag.conditions for flag in found} == {("eeg", "zero"), ("eeg", "other")}


def test_teacher_forcing_bars_the_comparisons_of_its_condition_alone():
    """Of a control, the comparison with it; of EEG, every comparison and EEG alone."""
    one = unfit_modes(eeg="free_running", forced="teacher_forced", noise="free_running")
    assert [flag.code for flag in one] == ["modes_differ", "teacher_forced"]
    assert bars(one, "eeg", "forced") == [flag.message for flag in one]
    assert bars(one, "eeg", "noise") == bars(one, "eeg", "") == []
    every = unfit_modes(eeg="teacher_forced", forced="teacher_forced", noise="free_running")
    named = {control: [m.split(":")[0] for m in bars(every, "eeg", control)] for control in ("forced", "noise", "")}
    differ = "the modes differ, eeg is teacher-forced and noise free-running"
    assert named == {"forced": ["eeg", "forced"], "noise": [differ, "eeg"], "": ["eeg"]}


def test_empty_predictions_are_no_training_sentences():
    eeg = types.SimpleNamespace(name="eeg", texts=["", "!"] * 4, rows=range(8))
    aligned = types.SimpleNamespace(references=[f"sentence {i}" for i in range(8)], eeg=eeg)
    assert [f.level for f in training_overlap(aligned, ["sentence 3", "", "..."])] == ["warning"]


def test_what_looks_alike_and_is_not_a_fault(sides):
    eeg, noise = sides
    collapsed = quick(changed(eeg, prediction="he was born in new york"), {"noise": noise})
    assert "input_independent" not in severe(collapsed)
    constant = quick(eeg, {"constant": changed(noise, prediction="he was born in new york")})
    assert severe(constant) == []
    told = quick(eeg, {"length_only": changed(as_long(noise), eval_condition="length_only")})
    assert severe(told) == []
    right = changed(eeg, prediction=lambda r: r.reference.replace("w1 ", "x "))
    assert "looks_teacher_forced" not in severe(quick(right, {"noise": noise}))


@pytest.mark.parametrize(("readers", "copies", "refused"), [("", 2, False), ("", 3, True), ("AB", 2, True)])
def test_rows_that_a_loader_gave_twice_are_no_readers(sides, readers, copies, refused):
    rows = [dataclasses.replace(r, subject="") for r in sides[0] if r.subject == sides[0][0].subject]
    repeated = [dataclasses.replace(r, subject=readers[k : k + 1], sample_id=f"{r.sample_id} {k}")
                for r in rows for k in range(copies)]  # fmt: skip
    assert ("input_independent" in severe(quick(repeated, {}))) == refused


def test_few_wrong_words_are_said_and_many_are_not(sides):
    def said(rows, **options):
        return [flag.level for flag in quick(rows, {}, **options).flags if flag.code == "few_wrong_words"]

    few = edited(sides[0], lambda r, _: r.reference.replace("w1 ", "x y "))
    assert said(few) == ["note"]
    assert said(few, decoded=DECODED_HERE) == []
    assert said(with_marks(simulated_rows(sentences=60, subjects=12)[0])) == []


def test_marks_of_a_few_sentences_are_too_few_to_tell():
    """The same rows with nine sentences that have marks inside, and with eleven."""
    eeg = simulated_rows(sentences=60, subjects=12)[0]
    marked = with_marks(eeg)
    found = {}
    for count in (9, 11):
        some = list(dict.fromkeys(r.sentence_id for r in eeg))[:count]
        mixed = [m if r.sentence_id in some else r for r, m in zip(eeg, marked, strict=True)]
        found[count] = "looks_teacher_forced" in severe(quick(mixed, {}))
    assert found == {9: False, 11: True}


def test_identical_conditions_are_equivalent(sides):
    eeg, _ = sides
    result = quick(eeg, {"copy": eeg})
    assert result.verdict is Verdict.EQUIVALENT
    assert "one file was given twice" in next(f.message for f in result.flags if f.code == "identical_conditions")


def test_a_header_with_the_right_keys_proves_nothing(tmp_path, printed_by):
    eeg, _ = simulated_rows(sentences=36, information=0.3)
    header = {"config": "a", "split": "b", "decode": {"num_beams": 5}}
    command = ["audit", "--resamples", "200", "--eeg"]
    lines = [json.dumps({"reference": r.reference, "prediction": r.prediction}) for r in eeg]
    (tmp_path / "unsaid.jsonl").write_text("\n".join(lines), "utf8")
    write_predictions(tmp_path / "said.jsonl", header, eeg)
    for name, status in (("said", 0), ("unsaid", 9)):
        printed = printed_by([*command, str(tmp_path / f"{name}.jsonl")], status)
        assert "by this run of eeg2text" not in printed
        assert "Provenance: decoded" not in printed
    write_predictions(tmp_path / "pure.jsonl", {"config": {}, "decode": {}, "split": {}}, copying(eeg, 1))
    assert "hold their reference to the letter" in printed_by([*command, str(tmp_path / "pure.jsonl")], 8)


def test_dots_make_no_sentences():
    """25 sentences under 100 references that differ in their last marks."""
    eeg, noise = simulated_rows(sentences=100, subjects=2, information=0.3)
    base = list(dict.fromkeys(r.reference for r in eeg))
    said = {text: base[i % 25].capitalize() + "." * (i // 25) for i, text in enumerate(base)}
    sides = [changed(rows, reference=lambda r: said[r.reference]) for rows in (eeg, noise)]
    result = quick(sides[0], {"noise": sides[1]}, proof="the test has drawn all of it")
    assert result.verdict is Verdict.NOT_JUDGEABLE
    assert "without case and punctuation, the 100 references are only 25 different sentences" in result.sentence


def test_a_control_below_its_null_makes_no_content(sides):
    """Junk against the same junk without the words of its sentence: the difference is the control's."""
    _, junk = simulated_rows(sentences=60, subjects=3)
    worse = changed(junk, eval_condition="worse", prediction=lambda r: without(r.reference, r.prediction))
    result = quick(junk, {"worse": worse}, proof="the test has drawn all of it at random")
    assert result.comparisons[0].primary.p_primary <= 0.05
    assert result.verdict is Verdict.NO_CONTENT
    assert "none above its own null" in result.sentence


def without(reference, prediction):
    return " ".join(word for word in prediction.split() if word not in reference.split())


@pytest.mark.parametrize("proof", ["Predictions were made with teacher forcing from the true tokens",
                                   "the decoder was given the target at each step"])  # fmt: skip
def test_a_proof_that_admits_the_target_is_refused(sides, proof):
    eeg, noise = sides
    with pytest.raises(UserError, match="says that the decoder was given the target"):
        quick(eeg, {"noise": noise}, proof=proof)
    quick(eeg, {"noise": noise}, proof="free running: no teacher forcing, the decoder is never given the target")


def test_flags_of_a_file_without_a_test(sides):
    eeg, _ = sides
    codes = [flag.code for flag in file_flags("eeg", same_for_all(as_long(eeg)))]
    assert codes[0] == "input_independent"
    silent = file_flags("one", [row(0, subject="unknown", prediction="")])
    assert [f.code for f in silent] == ["silent_side", "half_empty"]
    assert file_flags("none", [row(0, reference=" ")]) == []
