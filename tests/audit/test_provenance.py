"""Where predictions come from: statements, what is refused as one, and the files that were judged."""

import json

import pytest
from rows import changed, simulated_rows

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.notices import DECODED_HERE, Origin, checked_proof, provenance_of
from eeg2text_jax.instrument.auditing.result import result_text
from eeg2text_jax.instrument.predictions.file import write_predictions

SIDES = simulated_rows(sentences=60, subjects=2, information=0.3, seed=2)


def origin(mode="free_running", **about):
    said = {"decoded": None, "proof": "", "stated_by": "the file states", "contradictions": []}
    return provenance_of(mode, **{**said, **about})


@pytest.mark.parametrize(
    ("about", "level", "text"),
    [
        ({}, Origin.STATED, "the file states that the predictions ran free"),
        ({"mode": "unknown"}, Origin.UNKNOWN, "nothing says whether"),
        ({"mode": "teacher_forced"}, Origin.CONTRADICTED, "teacher-forced"),
        ({"mode": "contrastive"}, Origin.STATED, "scored without the answer"),
        ({"mode": "unknown", "proof": "decoded live"}, Origin.STATED, "the authors state: decoded live"),
        ({"decoded": DECODED_HERE, "proof": "decoded live"}, Origin.DECODED_HERE, "by this run"),
        ({"proof": "decoded live", "contradictions": ["a sign"]}, Origin.CONTRADICTED, "a sign"),
    ],
)
def test_the_best_evidence_counts_and_a_contradiction_overrides_all(about, level, text):
    found = origin(**about)
    assert found.level is level
    assert text in found.text


def test_content_of_an_unknown_mode_is_of_unproven_origin_until_it_is_stated():
    eeg, noise = (changed(rows, mode="unknown") for rows in SIDES)
    silent = audit(eeg, {"noise": noise})
    assert (silent.verdict.base, silent.exit_status) == ("content of unproven origin", 9)
    assert "--mode=free_running or --proof" in result_text(silent)
    said = audit(eeg, {"noise": noise}, proof=" targets were   never loaded by the decoder ")
    assert (said.verdict.base, said.exit_status) == ("uses EEG", 0)
    assert "the authors state: targets were never loaded by the decoder" in result_text(said)
    assert audit(noise, {"noise": eeg}).verdict.base == "control better", "without content its origin does not matter"


@pytest.mark.parametrize("blank", [" ", "yes", "trust me", "x x x x", "https://", "1 2 3 4 5", "https://a.org x"])
def test_what_is_no_statement_is_refused(blank, tmp_path, refused):
    with pytest.raises(UserError, match="expected a sentence with at least 4 different words"):
        audit(SIDES[0], {}, proof=blank)
    assert "at least 4 different words" in refused(["audit", f"--eeg={tmp_path / 'none'}", f"--proof={blank}"])


@pytest.mark.parametrize(
    "proof",
    ["Predictions were made with teacher forcing from the true tokens", "we were given the target at each step"],
)
def test_a_statement_that_admits_the_target_is_refused(proof):
    with pytest.raises(UserError, match="says that the decoder was given the target"):
        checked_proof(proof)
    denied = "free running: no teacher forcing, the decoder is never given the target"
    assert checked_proof(denied) == denied


@pytest.mark.parametrize("proof", ["no target was there", "https://example.org/code/decode.py"])
def test_four_different_words_or_an_address_are_a_statement(proof, tmp_path, printed_by):
    write_predictions(tmp_path / "p.jsonl", {}, [*SIDES[0], *SIDES[1]])
    assert f"the authors state: {proof}" in printed_by(["audit", f"--eeg={tmp_path / 'p.jsonl'}", f"--proof={proof}"])


def test_a_header_with_the_right_keys_proves_nothing(tmp_path, printed_by):
    header = {"config": "a", "split": "b", "decode": {"num_beams": 5}}
    lines = [json.dumps({"reference": r.reference, "prediction": r.prediction}) for r in SIDES[0]]
    (tmp_path / "unsaid.jsonl").write_text("\n".join(lines), "utf8")
    write_predictions(tmp_path / "said.jsonl", header, SIDES[0])
    for name, status in (("said", 0), ("unsaid", 9)):
        printed = printed_by(["audit", "-v", "--eeg", str(tmp_path / f"{name}.jsonl")], status)
        assert not any(level in printed for level in (Origin.DECODED_HERE, Origin.DECODED_AGAIN))
