"""Planted data through a small decoder-only model: what was learned of the EEG, and what a prompt alone tells."""

import dataclasses
from pathlib import Path

import jax
import llm_runs
import pytest
from etils import epath
from llm_runs import open_tiny
from planted_llm import WORDS, write_planted

from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.result import AuditResult
from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_jax.runs.cells import decode_grid
from eeg2text_jax.runs.exported import write_export
from eeg2text_jax.training.loop import train, trained_params
from eeg2text_jax.training.study import Study

SHAPE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 96, "tie_word_embeddings": True, "initializer_range": 0.12,
}  # fmt: skip
SMALL = {
    "grid.train_conditions": ("eeg",), "grid.eval_conditions": ("eeg", "shuffled"), "data.max_words": WORDS,
    "batch.size": 32, "batch.buckets": ((WORDS, 8),), "text.template": "<eeg>", "text.vocab_size": 360,
    "text.max_tokens": 8, "decode.max_length": 8, "decode.batch_size": 32, "decode.repetition_penalty": 1.0,
    "decode.no_repeat_ngram_size": 0, "model.encoder_layers": 0, "model.dropout": 0.0, "optim.lr": 5e-3,
    "optim.warmup_steps": 20, "train.steps": 300, "train.eval_every": 100, "train.save_every": 300,
}  # fmt: skip


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, data: str, **changes: object) -> Study:
    """Train a small model on planted data."""
    monkeypatch.setattr(llm_runs, "SHAPE", SHAPE)
    study = open_tiny(epath.Path(folder / "run"), **{**SMALL, "data.source": data, **changes})
    train(study)
    return study


def free_rows(study: Study) -> list[Prediction]:
    return [row for row in decode_grid(study, trained_params(study)) if row.mode == "free_running"]


def judged(study: Study) -> AuditResult:
    """The verdict on the first arm, against the recording of another sentence."""
    rows = free_rows(study)
    eeg, shuffled = ([row for row in rows if row.eval_condition == name] for name in ("eeg", "shuffled"))
    return audit(eeg, {"shuffled": shuffled})


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A model that learned to read the planted words, all of it trained."""
    folder = tmp_path_factory.mktemp("reader")
    data = write_planted(folder / "data.npz", sentences=320, classes=3, signal=True)
    with pytest.MonkeyPatch.context() as patch:
        return run(folder, patch, data)


@pytest.fixture(scope="module")
def base(reader: Study, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The reader as a checkpoint; another recording system needs a bridge of its own."""
    out = tmp_path_factory.mktemp("base") / "folder"
    params = jax.tree.map(lambda leaf: leaf[0], trained_params(reader))
    write_export(reader, reader.arms[0], params, str(out))
    (out / "eeg_encoder.safetensors").unlink()
    sums = out / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "eeg_encoder" not in line))
    return str(out)


def test_a_model_that_reads_uses_eeg(reader: Study) -> None:
    found = judged(reader)
    assert found.verdict.value == "uses EEG", found.sentence


@pytest.mark.parametrize(
    ("trainable", "frozen"),
    [
        pytest.param("bridge", "bfloat16", marks=pytest.mark.slow),
        ("lora", "bfloat16"),
        pytest.param("lora", "int8", marks=pytest.mark.slow),
    ],
)
def test_a_frozen_model_reads_through_what_is_trained(
    trainable: str, frozen: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_planted(tmp_path / "data.npz", sentences=320, classes=3, signal=True, system=1)
    changes = {"model.checkpoint": base, "model.frozen_dtype": frozen}
    changes |= {"optim.trainable": trainable, "optim.lr": 2e-2}
    found = judged(run(tmp_path, monkeypatch, data, **changes))
    assert found.verdict.value == "uses EEG", found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("trainable", ["lora", "bridge", "all"])
@pytest.mark.parametrize("systems", [1, 3])
def test_noise_gives_no_content(
    systems: int, trainable: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test at 5 % calls one null in twenty content: of three at most one."""
    changes = {"model.checkpoint": base, "optim.trainable": trainable, "optim.lr": 2e-2 if trainable != "all" else 5e-3}
    found = []
    for system in range(1, systems + 1):
        data = write_planted(tmp_path / f"{system}.npz", sentences=320, classes=3, signal=False, system=system)
        found.append(judged(run(tmp_path / str(system), monkeypatch, data, **changes)))
    wrong = [result.sentence for result in found if result.verdict.base == "uses EEG"]
    assert len(wrong) <= systems // 3, wrong


@pytest.mark.slow
def test_the_class_in_the_prompt_is_all_that_noise_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt names the class of a sentence: both arms write the class's words, and the recording adds nothing."""
    data = write_planted(tmp_path / "data.npz", sentences=12_000, classes=6, signal=False, subjects=1, named=True)
    both = {"grid.train_conditions": ("eeg", "prompt_only"), "grid.eval_conditions": ("eeg", "prompt_only")}
    changes = {**both, "text.template": "{task} <eeg>", "train.steps": 200, "train.eval_every": 200}
    rows = free_rows(run(tmp_path, monkeypatch, data, **{**changes, "train.save_every": 200}))
    cells = {
        name: [dataclasses.replace(row, task="") for row in rows if row.train_condition == row.eval_condition == name]
        for name in ("eeg", "prompt_only")
    }
    kinds = {row.reference: row.reference.split()[0] for row in rows}
    options = {"groups": {"class": kinds}}
    alone = [audit(rows, **options) for rows in cells.values()]
    answers = [found.groups[0] for found in alone]
    assert all(answer.between.above for answer in answers), [answer.text for answer in answers]
    # A test at 5 % calls one null in twenty content: one of six arms of three data sets, so of these two at most one.
    assert any(not answer.within.above for answer in answers), [answer.text for answer in answers]
    found = audit(cells["eeg"], {"prompt_only": cells["prompt_only"]}, **options)
    assert found.verdict.value == "equivalent to control", found.sentence
