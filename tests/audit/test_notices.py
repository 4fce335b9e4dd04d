"""What limits a verdict: forms that differ, few sentences, modes, memory of the training text; and what does not."""

import dataclasses

import pytest
from rows import changed, edited, row, simulated_rows

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.notices import DECODED_HERE, file_notices
from eeg2text_jax.instrument.auditing.result import result_text
from eeg2text_jax.instrument.auditing.verdict import Verdict


@pytest.fixture(scope="module")
def sides():
    return simulated_rows(sentences=60, subjects=4, information=0.2, seed=2)


def codes(found, bars=None):
    return [n.code for n in found.notices if bars is None or bool(n.bars) == bars]


def letters(text, table):
    return " ".join("".join(table[int(c) % len(table)] for c in word if c.isdigit()) for word in text.split())


def phonemes(r):
    return " ".join(PHONES[ord(c) % 10] for c in r.reference if c != " ")


PHONES = ("AA", "IY", "S", "T", "K", "N", "ER", "Z", "M", "L")


@pytest.mark.parametrize(
    ("prediction", "reason"),
    [
        (phonemes, "l, aa, iy"),  # phonemes beside words
        (lambda r: " ".join(r.reference), "w"),  # spelled
        (lambda r: letters(r.reference, "абвгдежзик"), "Cyrillic and Latin letters"),
        (lambda r: letters(r.reference, "我们读书天地人和中文"), "Cjk and Latin letters"),
    ],
)
def test_two_sides_in_different_forms_are_not_judged(sides, prediction, reason):
    eeg, noise = (changed(rows, reference=lambda r: f"{r.reference} the end".replace("w", "word")) for rows in sides)
    eeg, noise = (changed(rows, prediction=prediction) for rows in (eeg, noise))
    for controls in ({"noise": noise}, {}):
        found = audit(eeg, controls)
        assert (found.verdict.base, found.exit_status) == (Verdict.NOT_JUDGEABLE, 8)
        assert found.verdict.headline == "not judgeable: the two columns are not in the same form"
        (notice,) = [n for n in found.notices if n.code == "other_form"]
        assert reason in notice.message
        assert len(notice.rows) == 2
        assert f"{notice.rows[1][0]!r:.60}"[:-1] in result_text(found)


def test_poor_outputs_of_the_same_language_are_in_the_same_form(sides):
    eeg, noise = sides
    for said in (
        changed(eeg, prediction=lambda r: " ".join(f"w{int(w[1:]) + 9000}" for w in r.prediction.split())),
        changed(eeg, prediction="w9876 w9877"),
        changed(eeg, prediction=""),
    ):
        found = audit(said, {"noise": noise})
        assert "other_form" not in codes(found)
        assert found.verdict.base is not Verdict.NOT_JUDGEABLE


def test_thirty_sentences_are_judged_and_fewer_are_not(sides):
    texts = sorted({r.reference for r in sides[0]})
    for count, judged in ((30, True), (29, False)):
        eeg, noise = ([r for r in rows if r.reference in texts[:count]] for rows in sides)
        found = audit(eeg, {"noise": noise})
        assert ("too_few_sentences" not in codes(found)) == judged
        assert (found.verdict.base is Verdict.USES_EEG) == judged
    assert found.verdict.headline == "not judgeable: too few sentences"
    assert "29 sentences are too few for a verdict, 30 are needed" in result_text(found)


def test_another_mode_bars_the_comparison_with_that_control_and_so_the_whole(sides):
    eeg, noise = sides
    unknown = changed(noise, mode="unknown", eval_condition="zero")
    found = audit(eeg, {"noise": noise, "zero": unknown})
    assert {c.control: c.verdict is Verdict.NOT_JUDGEABLE for c in found.comparisons} == {"noise": False, "zero": True}
    assert found.verdict.headline == "not judgeable: the decoding modes differ"
    assert "eeg is free-running and zero of unknown mode; state it with --mode" in result_text(found)


def test_teacher_forced_rows_are_not_judged(sides):
    forced = [changed(rows, mode="teacher_forced") for rows in sides]
    for eeg, controls in ((forced[0], {"noise": forced[1]}), (forced[0], {}), (forced[0], {"noise": sides[1]})):
        found = audit(eeg, controls, proof="targets were never loaded by the decoder")
        assert found.verdict.base is Verdict.NOT_JUDGEABLE
        assert "teacher-forced, every token was predicted from the true tokens" in result_text(found)
    control = audit(sides[0], {"noise": forced[1]})
    assert codes(control, bars=True) == ["modes_differ"]


def test_remembered_training_sentences(sides):
    eeg, noise = sides
    texts = sorted({r.reference for r in eeg})
    trained = [*texts[:30], "a sentence of the training part that is in no test", *(f"x {i} y z u" for i in range(9))]
    remembered = edited(eeg, lambda r, g: f"{g.choice(trained).capitalize()}.")
    found = audit(remembered, {"noise": noise}, training_text=[f" {text.upper()}!" for text in trained])
    assert codes(found, bars=True) == ["training_text"]
    assert found.verdict.headline == "not judgeable: remembered, not decoded"
    twice = edited(
        eeg, lambda r, g: texts[0] if r.subject < "subject 2" else "a b c"
    )  # one sentence, of half of the rows
    found = audit(twice, {"noise": noise}, training_text=texts[:2])
    (notice,) = [n for n in found.notices if n.code == "training_text"]
    assert ("and 120 of 240 predictions are training sentences" in notice.message, bool(notice.bars)) == (True, True)
    own_words = audit(eeg, {"noise": noise}, training_text=trained)
    assert "training_text" in codes(own_words, bars=False)
    assert own_words.verdict.base is Verdict.USES_EEG
    whole = audit(eeg, {"noise": noise}, training_text=texts[:31])
    assert "31 of the 60 test sentences are in the training text" in result_text(whole)
    assert whole.exit_status == 8
    assert codes(audit(eeg, {"noise": noise}, training_text=texts, decoded=DECODED_HERE), bars=True) == []
    for nothing in (["another"], ["", "..."]):
        assert "training_text" not in codes(audit(remembered, {"noise": noise}, training_text=nothing))


def test_outputs_that_collapse_or_are_empty_are_said_and_judged(sides):
    eeg, noise = sides
    few = edited(eeg, lambda r, g: g.choice(("w1 w2", "w3 w4 w5")))
    found = audit(few, {"noise": edited(noise, lambda r, _: "", 0.3)})
    said = {n.code: n.message for n in found.notices}
    assert said["collapsed"].startswith("eeg: 2 distinct predictions in 240 rows; ")
    assert said["empty"].startswith("noise: ")
    assert found.verdict.base is not Verdict.NOT_JUDGEABLE
    assert not {"collapsed", "empty"} & set(codes(audit(eeg, {"noise": noise})))


def test_rows_left_out_and_a_recipe_with_few_seeds_are_said(sides):
    eeg, noise = sides
    found = audit(eeg[3:], {"noise": noise}, common=True)
    message = "noise: 3 of 240 rows are not in every condition and were left out"
    assert message in [n.message for n in found.notices]
    assert "3 of 240 rows of noise left out" in found.choices
    trained = changed(noise, train_condition="noise")
    assert "few_seeds" in codes(audit(eeg, {"noise": trained}))
    assert "few_seeds" not in codes(audit(eeg, {"noise": noise}))
    two = [[dataclasses.replace(r, seed=seed) for r in rows for seed in range(2)] for rows in (eeg, noise, trained)]
    found = audit(two[0], {"noise": two[1], "other": changed(two[2], eval_condition="zero")})
    assert "needs at least 3 seeds, here 2;" in next(n.message for n in found.notices if n.code == "few_seeds")
    three = [[dataclasses.replace(r, seed=seed) for r in rows for seed in range(3)] for rows in (eeg, trained)]
    assert "few_seeds" not in codes(audit(three[0], {"noise": three[1]}))


def test_notices_of_a_file_need_no_test(sides):
    assert file_notices("none", [row(0, reference=" ")]) == []
    assert [n.code for n in file_notices("one", [row(0, subject="unknown", prediction="")])] == ["empty", "collapsed"]
    tokens = file_notices("one", [row(i, subject="unknown", prediction="<pad></s>") for i in range(9)])
    assert [n.message for n in tokens] == [
        "one: 9 of 9 predictions are empty or hold no word beside special tokens and marks",
        "one: 1 distinct predictions in 9 rows",
    ]
    assert file_notices("eeg", sides[0]) == []
    few = edited(sides[0], lambda r, _: "" if r.subject == "subject 1" else r.prediction)
    assert file_notices("eeg", few) == file_notices("eeg", few[::-1]) != []
    spelled = changed(sides[0], prediction=phonemes)
    assert "other_form" in [n.code for n in file_notices("eeg", changed(spelled, reference=lambda r: r.reference * 2))]


def test_the_list_that_a_decoder_chose_from_holds_every_prediction(sides):
    """So that no list lifts a finding, and a decoder that chose is not said to have copied."""
    texts = sorted({r.reference for r in sides[0]})
    eeg = edited(edited(sides[0], lambda r, g: g.choice(texts)), lambda r, _: r.reference, 0.6)
    noise = edited(sides[1], lambda r, g: g.choice(texts))
    for few in (texts[1:], ["something else"]):
        with pytest.raises(UserError, match=f"are not among its {len(few)} sentences; give the whole list"):
            audit(eeg, {"noise": noise}, choices=few)
    found = audit(eeg, {"noise": noise}, choices=[f"{text.upper()}." for text in texts])
    assert found.verdict.base is Verdict.USES_EEG
    assert "as stated, the decoder chose among 60 sentences" in found.choices


def test_a_decoder_that_writes_test_sentences_only_is_named():
    eeg, noise = simulated_rows(sentences=40, subjects=2)
    texts = [row.reference for row in eeg]
    listed = [dataclasses.replace(row, prediction=texts[(3 * i) % len(texts)]) for i, row in enumerate(eeg)]
    found = audit(listed, {"noise": noise})
    assert [n.message for n in found.notices if n.code == "chosen"] == [
        "eeg: 80 of 80 predictions are test sentences: the decoder chose from a list of them, or wrote targets"
    ]
    assert "chosen" not in {n.code for n in audit(eeg, {"noise": noise}).notices}
