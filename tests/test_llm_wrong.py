"""Decoder-only models: what is refused and how; killed runs; units of recordings."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath
from llm_runs import export_first, make_base, open_tiny
from safetensors.numpy import load_file, save_file

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.prompt import make_prompts
from eeg2text_jax.models.backbones import LoraSettings
from eeg2text_jax.models.backbones.build import random_spec
from eeg2text_jax.models.spec import LoraSpec
from eeg2text_jax.runs.cells import decode_grid
from eeg2text_jax.runs.exported import load_export
from eeg2text_jax.runs.opening import AnyTokenizer
from eeg2text_jax.training.loop import train, trained_params
from eeg2text_jax.training.metrics_log import MetricsLog
from eeg2text_jax.training.study import Study, _with_lora, check_positions, make_samples

LORA = {"optim.trainable": "lora", "optim.lr": 0.05, "grid.train_conditions": ("eeg",), "train.save_every": 1}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, base: str) -> Study:
    """A run with adapters, never interrupted."""
    study = open_tiny(epath.Path(tmp_path_factory.mktemp("lora")), **{"model.checkpoint": base, **LORA})
    train(study)
    return study


@pytest.fixture(scope="module")
def exported(trained: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "folder"
    export_first(trained, out)
    return out


def test_a_killed_run_with_adapters_ends_where_an_uninterrupted_one_does(
    trained: Study, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, add = open_tiny(epath.Path(tmp_path), **{"model.checkpoint": base, **LORA}), MetricsLog.add

    def die(log: MetricsLog, step: int, scalars: dict) -> None:
        add(log, step, scalars)
        if step == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MetricsLog, "add", die)
        with pytest.raises(KeyboardInterrupt):
            train(study)
    train(open_tiny(epath.Path(tmp_path), **{"model.checkpoint": base, **LORA}))
    expected, found = trained_params(trained), trained_params(study)
    jax.tree.map(np.testing.assert_array_equal, expected, found)


@pytest.fixture
def other_weights(base: str) -> Iterator[None]:
    """The checkpoint with other weights of the same names and shapes, so that nothing else tells."""
    path = Path(base) / "model.safetensors"
    before = path.read_bytes()
    save_file({name: -tensor for name, tensor in load_file(path).items()}, path, {"format": "pt"})
    yield
    path.write_bytes(before)


@pytest.mark.usefixtures("other_weights")
def test_other_frozen_weights_are_refused(trained: Study, exported: Path) -> None:
    message = r"its weights are not the weights that .* was trained with; restore the original weights"
    with pytest.raises(UserError, match=message):
        trained_params(dataclasses.replace(trained))
    with pytest.raises(UserError, match=message):
        train(dataclasses.replace(trained))
    with pytest.raises(UserError, match=message):
        load_export(exported)


def test_a_prompt_of_fields_is_held_against_the_positions(trained: Study) -> None:
    """What stands in the fields is known from the data alone."""
    message = r"the prompt .150 tokens., the recording .20 positions. and the text need 194 positions, but the"
    with pytest.raises(UserError, match=message):
        check_positions(trained.model, trained.config, 150)
    for changes, needed in (({"decode.max_length": 31}, 181), ({"text.max_tokens": 33}, 183)):
        with pytest.raises(UserError, match=f"the text need {needed} positions"):
            check_positions(trained.model, trained.config.changed(changes), 130)


def test_the_fields_of_a_prompt_are_those_of_its_sample(trained: Study) -> None:
    subjects, tasks = ([f"{name}{i}" for i in range(len(trained.data))] for name in ("who", "what"))
    tokenizer = trained.tokenizer
    before, after = make_prompts(tokenizer, "{subject} <eeg> in {task}", False, subjects, tasks)
    assert len(before) == len(after) == len(subjects)
    for row, subject, task in zip(range(3), subjects, tasks, strict=False):
        said = [tokenizer.decode([token for token in ids[row] if token >= 0]) for ids in (before, after)]
        assert subject in said[0]
        assert task in said[1]


def test_adapters_have_the_settings_and_stacks_of_their_section() -> None:
    sides = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    spec = random_spec("bart", {"d_model": 8, "vocab_size": 40, **sides}, AnyTokenizer())
    for stacks in (("decoder",), ("encoder",), ("encoder", "decoder")):
        found = _with_lora(spec, LoraSettings(3, 5.0, 0.25, ("q_proj", "down_proj"), stacks))
        expected = LoraSpec(rank=3, alpha=5.0, dropout=0.25, targets=("query", "outer"))
        for side in ("encoder", "decoder"):
            assert getattr(found, side).lora == (expected if side in stacks else None)


@pytest.mark.parametrize("unit", [1e-9, 1e12])
def test_the_unit_of_the_recordings_changes_no_prediction(trained: Study, unit: float) -> None:
    params, rows = trained_params(trained), trained.split.parts["test"][:4]
    split = dataclasses.replace(trained.split, parts={**trained.split.parts, "test": rows})
    data = dataclasses.replace(trained.data, features=trained.data.features * np.float32(unit))
    samples = make_samples(trained.config, data, split, trained.tokenizer, trained.model.pad_token, alone=True)
    first = dataclasses.replace(trained, split=split)
    studies = first, dataclasses.replace(first, data=data, samples=samples)
    before, after = ([row.prediction_tokens for row in decode_grid(study, params)] for study in studies)
    assert before == after


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text.template": "no place"}, "expected <eeg> in it once"),
        ({"text.template": "<eeg> {mood}"}, "expected fields of a sample"),
        ({"text.template": "<eeg>", "model.backbone": "bart"}, "expected a decoder-only model"),
        ({"model.prompt": "x"}, "text.template with a decoder-only model"),
        ({"decode.tensor_parallel": True}, "expected bridge or lora"),
        ({"parallel.tensor_parallel": True}, "expected bridge or lora, and a decoder-only model"),
        ({"model.frozen_dtype": "int8"}, "expected bridge or lora, and a decoder-only model"),
        ({"text.chat": True}, "no chat template"),
        ({"text.template": "why " * 150 + "<eeg>"}, "the model has 160; shorten"),
        ({"text.template": "x" * 80 + "<eeg>" + "x" * 80}, r"the prompt \(16\d tokens\), .* the model has 160"),
    ],
)
def test_wrong_prompts_are_refused(changes: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        open_tiny(epath.Path(tmp_path), **{"grid.eval_conditions": ("eeg",), **changes})


def rewrite(folder: Path, name: str, **changes: object) -> None:
    """Change fields of a JSON file of an export, and take it off the list of checksums."""
    sums, path = folder / "SHA256SUMS", folder / name
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if name not in line))
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"r": 5}, "wrongly shaped"),
        ({"r": 0}, "expected LORA"),
        ({"r": "many"}, "does not describe adapters"),
        ({"target_modules": ["c_attn"]}, "expected LORA"),
        ({"target_modules": ["q_proj"]}, "v_proj"),
        ({"peft_type": "IA3"}, "expected LORA"),
        ({"bias": "all"}, "expected LORA"),
    ],
)
def test_wrong_adapters_are_refused(exported: Path, changes: dict, message: str, tmp_path: Path) -> None:
    out = shutil.copytree(exported, tmp_path / "copy")
    rewrite(out, "adapter_config.json", **changes)
    with pytest.raises(UserError, match=message) as found:
        load_export(out)
    assert "Traceback" not in str(found.value)


def test_an_export_without_its_adapters_is_refused(exported: Path, tmp_path: Path) -> None:
    out = shutil.copytree(exported, tmp_path / "copy")
    (out / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match=r"adapter_model\.safetensors"):
        load_export(out)
