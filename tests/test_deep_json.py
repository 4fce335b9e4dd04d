"""Every JSON file that a command opens may hold more brackets in brackets than Python reads: one sentence names it."""

import json

import jax.numpy as jnp
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models.pretrained.folder import read_tensors
from eeg2text_jax.training.checkpoint import Checkpoints

DEEP = b"[" * 100_000 + b"]" * 100_000
ROW = {
    "sample_id": "s", "subject": "s", "task": "t", "sentence_id": "t", "n_words": 2, "train_condition": "eeg",
    "eval_condition": "eeg", "seed": 0, "mode": "free_running", "reference": "a b", "prediction": "a c",
}  # fmt: skip
SCORED = {"value": 1.0, "signature": "x", "lower_is_better": False}
CELL = {"train_condition": "eeg", "eval_condition": "eeg", "seed": 0, "mode": "free_running", "rows": 1, "sentences": 1}
RESULTS = {"format": 1, "profile": "standard", "cells": [CELL | {"metrics": {"wer": SCORED}}]}
COMMANDS = {
    "score": (["score", "{run}/predictions.jsonl"], "finished.json"),
    "audit": (["audit", "--eeg", "{run}/predictions.jsonl"], "finished.json"),
    "records": (["records", "{run}", "--out={run}/../out"], "audit.json"),
    "verdicts": (["table", "{run}"], "audit.json"),
    "export": (["export", "--workdir={run}", "--out={run}/../out"], "config.json"),
    "table": (["table", "{run}"], "split.json"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_deep_file_of_a_run_is_one_sentence(tmp_path, refused, name):
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "other").mkdir()
    (run / "predictions.jsonl").write_text(json.dumps({"header": {}}) + "\n" + json.dumps(ROW) + "\n")
    (run / "config.json").write_text("{}")
    (run / "results.json").write_text(json.dumps(RESULTS))
    command, deep = COMMANDS[name]
    (run / deep).write_bytes(DEEP)
    said = refused([part.format(run=run) for part in command], alone=False)
    assert str(run) in said
    if name != "table":  # which names the three files that it needs
        assert str(run / deep) in said
    assert not (tmp_path / "out").exists()


def test_a_deep_file_of_a_checkpoint_is_one_sentence(tmp_path):
    (tmp_path / "pytorch_model.bin.index.json").write_bytes(DEEP)
    with pytest.raises(UserError, match=r"index\.json: expected a JSON object with `weight_map`"):
        read_tensors(tmp_path)
    (tmp_path / "generation_config.json").write_bytes(DEEP)
    with pytest.raises(UserError, match=r"generation_config\.json: is not JSON \(brackets are nested too deeply\)"):
        GenerationSpec.from_checkpoint(tmp_path, None)
    (tmp_path / "generation_config.json").write_text("[1]")
    with pytest.raises(UserError, match=r"generation_config\.json: contains \[1\]; expected a JSON object"):
        GenerationSpec.from_checkpoint(tmp_path, None)


@pytest.mark.parametrize("content", [DEEP, b"[1]", b'{"a": ' + b"9" * 5000 + b"}"], ids=["deep", "list", "digits"])
def test_metadata_of_orbax_that_are_damaged_are_named_and_may_be_removed(tmp_path, content):
    """They have no digest, as orbax changes them later."""
    state = {"a": jnp.ones(3)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, state, {"b": 1})
    path = tmp_path / "checkpoints/step_3/_CHECKPOINT_METADATA"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(UserError) as error:
            Checkpoints(tmp_path, read_only=read_only)
        assert str(error.value).startswith(f"{path}: is damaged (")
        assert "\n" not in str(error.value)
    path.unlink()
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        step, restored, info = checkpoints.restore(state)
    assert (step, restored["a"].tolist(), info) == (3, [1, 1, 1], {"b": 1})
