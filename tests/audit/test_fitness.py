"""Findings that bar the verdict, each on a file with that one fault; and what must not bar it."""

import dataclasses
import random

import pytest
from rows import row, simulated_rows

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.fitness import file_flags
from eeg2text_jax.auditing.result import result_text
from eeg2text_jax.auditing.verdict import Verdict
from eeg2text_jax.cli import main
from eeg2text_jax.predictions.file import write_predictions


def quick(eeg, controls, **options):
    return audit(eeg, controls, **{"resamples": 200, **options})


def severe(result):
    return [flag.code for flag in result.flags if flag.level == "severe"]


def changed(rows, **fields):
    return [dataclasses.replace(r, **fields) for r in rows]


@pytest.fixture(scope="module")
def sides():
    return simulated_rows(sentences=60, subjects=4, information=0.03, seed=2)


def same_for_all(rows):
    first = {r.sentence_id: r.prediction for r in reversed(rows)}
    return [dataclasses.replace(r, prediction=first[r.sentence_id]) for r in rows]


def as_long(rows, share=0.0, seed=0):
    """As many words as the reference, of which a share is right: what a teacher-forced decoder writes."""
    rng = random.Random(seed)
    vocabulary = [word for r in rows for word in r.reference.split()]
    return [
        dataclasses.replace(
            r, prediction=" ".join(w if rng.random() < share else rng.choice(vocabulary) for w in r.reference.split())
        )
        for r in rows
    ]


def copying(rows, share, seed=0):
    rng = random.Random(seed)
    return [dataclasses.replace(r, prediction=r.reference) if rng.random() < share else r for r in rows]


FAULTS = {
    "input_independent": lambda eeg, noise: (same_for_all(eeg), noise),
    "modes_differ": lambda eeg, noise: (changed(eeg, mode="teacher_forced"), noise),
    "modes_differ by look": lambda eeg, noise: (as_long(eeg, 0.3), noise),
    "looks_teacher_forced": lambda eeg, noise: (as_long(eeg, 0.3), as_long(noise, 0.3, 1)),
    "teacher_forced": lambda eeg, noise: (changed(eeg, mode="teacher_forced"), changed(noise, mode="teacher_forced")),
    "target_copies": lambda eeg, noise: (copying(eeg, 0.03), noise),
    "needs_proof": lambda eeg, noise: (simulated_rows(sentences=60, subjects=4, information=0.3, seed=2)[0], noise),
    "silent_side": lambda eeg, noise: (eeg, changed(noise, prediction=" ... </s>")),
    "silent_side eeg": lambda eeg, noise: (changed(eeg, prediction=""), noise),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_bars_the_verdict(sides, fault):
    assert quick(*_named(sides)).verdict is not Verdict.NOT_JUDGEABLE
    result = quick(*_named(FAULTS[fault](*sides)))
    assert fault.split()[0] in severe(result)
    assert result.verdict is Verdict.NOT_JUDGEABLE
    assert result.exit_status == 8
    first = next(flag.message for flag in result.flags if flag.level == "severe")
    assert result.sentence.startswith(f"Not judgeable: {first}")
    assert "uses the EEG" not in result_text(result)


def _named(sides):
    return sides[0], {"noise": sides[1]}


@pytest.mark.parametrize("fault", ["input_independent", "looks_teacher_forced", "target_copies", "silent_side eeg"])
def test_one_fault_bars_one_file_alone(sides, fault):
    eeg, _ = FAULTS[fault](*sides)
    result = quick(eeg, {})
    assert fault.split()[0] in severe(result)
    assert result.verdict is Verdict.NOT_JUDGEABLE


def test_thirty_sentences_are_judged_and_fewer_are_not():
    eeg, noise = simulated_rows(sentences=30, information=0.1, seed=3)
    assert quick(eeg, {"noise": noise}, proof="planted").verdict is Verdict.USES_EEG
    dropped = {eeg[0].reference}
    eeg, noise = ([r for r in rows if r.reference not in dropped] for rows in (eeg, noise))
    result = quick(eeg, {"noise": noise}, proof="planted")
    assert severe(result) == ["too_few_sentences"]
    assert result.sentence.startswith(
        "Not judgeable: 29 sentences are too few for a verdict, 30 are needed. The figures"
    )


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
    clean = quick(remembered, {"noise": noise}, training_text=["another"])
    assert [f.level for f in clean.flags if f.code == "training_text"] == ["note"]


def test_proof_that_no_target_reached_the_decoder_is_printed_and_enough(sides):
    eeg, noise = simulated_rows(sentences=60, subjects=4, information=0.3, seed=2)
    result = quick(eeg, {"noise": noise}, proof="planted by this test")
    assert result.verdict is Verdict.USES_EEG
    assert any("needs proof (planted by this test)" in flag.message for flag in result.flags)
    forced = quick(changed(eeg, mode="teacher_forced"), {"noise": noise}, proof="planted by this test")
    assert forced.verdict is Verdict.NOT_JUDGEABLE  # what a file says of itself needs no proof


def test_a_fault_of_one_control_bars_that_comparison_and_the_whole(sides):
    eeg, noise = sides
    result = quick(eeg, {"noise": noise, "empty": changed(noise, prediction="")})
    verdicts = {c.control: c.verdict for c in result.comparisons}
    assert verdicts["empty"] is result.verdict is Verdict.NOT_JUDGEABLE
    assert verdicts["noise"] is not Verdict.NOT_JUDGEABLE
    assert "empty: the predictions say nothing in 60 of 60 sentences" in result.sentence


def test_what_looks_alike_and_is_not_a_fault(sides):
    eeg, noise = sides
    collapsed = quick(changed(eeg, prediction="he was born in new york"), {"noise": noise})
    assert "input_independent" not in severe(collapsed)
    constant = quick(eeg, {"constant": changed(noise, prediction="he was born in new york")})
    assert severe(constant) == []
    told = quick(eeg, {"length_only": changed(as_long(noise), eval_condition="length_only")})
    assert severe(told) == []
    right = [dataclasses.replace(r, prediction=r.reference.replace("w1 ", "x ")) for r in eeg]
    assert "looks_teacher_forced" not in severe(quick(right, {"noise": noise}))


def test_identical_conditions_are_equivalent(sides):
    eeg, _ = sides
    result = quick(eeg, {"copy": eeg})
    assert result.verdict is Verdict.EQUIVALENT
    assert "one file was given twice" in next(f.message for f in result.flags if f.code == "identical_conditions")


def test_status_of_the_command_and_the_proof_of_our_own_decoder(tmp_path, capsys):
    eeg, noise = simulated_rows(sentences=36, information=0.3)
    header = {"config": "a", "split": "b", "decode": {"num_beams": 5}}
    for name, about in (("own", header), ("foreign", {})):
        write_predictions(tmp_path / f"{name}.jsonl", about, [*eeg, *noise])
    command = ["audit", "--resamples", "200", "--eeg"]
    assert main([*command, str(tmp_path / "own.jsonl")]) == 0
    assert "decoded by eeg2text" in capsys.readouterr().out
    assert main([*command, str(tmp_path / "foreign.jsonl")]) == 8
    printed = capsys.readouterr().out
    assert printed.rstrip().endswith("VERDICT: not judgeable")
    assert "severe: eeg has" in printed
    assert main([*command, str(tmp_path / "foreign.jsonl"), "--proof", "I looked"]) == 0


def test_flags_of_a_file_without_a_test(sides):
    eeg, _ = sides
    codes = [flag.code for flag in file_flags("eeg", same_for_all(as_long(eeg)))]
    assert codes[:2] == ["looks_teacher_forced", "input_independent"]
    assert [f.code for f in file_flags("one", [row(0, subject="unknown", prediction="")])] == [
        "silent_side",
        "collapsed",
        "half_empty",
    ]
    assert file_flags("none", [row(0, reference=" ")]) == []
