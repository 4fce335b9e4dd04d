"""Export, then load: in PyTorch and here."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file
from test_load import IDS, MASK, TARGETS, logits_of
from tiny import CLASSES, CONFIGS, tokenizer, torch_model

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.pretrained.export import CardFacts, export_checkpoint, model_card
from eeg2text_jax.models.pretrained.load import load_pretrained, spec_of
from eeg2text_jax.models.spec import EEGSpec

EEG = EEGSpec(features=6, layers=1, heads=2, ffn=8, prompt=(5, 6))


@pytest.fixture(scope="module", params=CONFIGS)
def exported(request, tmp_path_factory):
    """A model with random parameters, biases and scales too, and its export."""
    config = CONFIGS[request.param]()
    folder = tmp_path_factory.mktemp(request.param) / "export"
    model = Seq2SeqModel(spec_of(config, folder), EEG)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.3, leaf.shape), jnp.float32), model.shapes)
    export_checkpoint(model, params, config, tokenizer(), folder, "# A card\n")
    return request.param, folder, model, params


def test_pytorch_finds_every_tensor_and_computes_the_same_logits(exported):
    kind, folder, model, params = exported
    reference, report = CLASSES[kind].from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report  # nor misses BERT's pooler and PEGASUS's positions, which our models lack
    with torch.no_grad():
        logits = reference.eval()(input_ids=IDS, attention_mask=MASK.long(), decoder_input_ids=TARGETS).logits
    np.testing.assert_allclose(logits_of(model, params), logits.numpy(), atol=1e-4)


def test_the_checksums_cover_every_file_but_the_card(exported, tmp_path):
    _, _, model, params = exported
    out = tmp_path / "out"
    export_checkpoint(model, params, CONFIGS[exported[0]](), tokenizer(), out, "", generation={"num_beams": 2})
    listed = {line.split()[1] for line in (out / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in out.iterdir()} - {"SHA256SUMS", "README.md"}


def test_import_gives_identical_parameters(exported):
    _, folder, model, params = exported
    loaded, again = load_pretrained(folder)
    assert loaded == model
    assert jax.tree.structure(again) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, again, params)


def there_and_back(reference, tmp_path):
    """Tensors of a checkpoint of PyTorch's, and of what is exported once it is loaded."""
    reference.save_pretrained(tmp_path / "in")
    model, params = load_pretrained(tmp_path / "in")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "in")
    export_checkpoint(model, params, config, tokenizer(), tmp_path / "out", "")
    return [load_file(tmp_path / side / "model.safetensors") for side in ("in", "out")]


def test_export_of_a_loaded_checkpoint_is_the_checkpoint(tmp_path):
    before, after = there_and_back(torch_model("t5_v1_1"), tmp_path)
    assert set(before) == set(after)
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)
    assert not (tmp_path / "out" / "eeg_encoder.safetensors").exists()


def test_a_bert2bert_of_two_widths_is_the_checkpoint_again(tmp_path):
    """With the projection to the decoder's width, and the encoder's pooler, which our models lack, as zeros."""
    config = CONFIGS["bert2bert"]()
    config.encoder.hidden_size = 24
    before, after = there_and_back(CLASSES["bert2bert"](config=config), tmp_path)
    assert before["enc_to_dec_proj.weight"].shape == (16, 24)
    assert set(before) == set(after)
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], 0 * array if "pooler" in name else array, err_msg=name)
    _, report = CLASSES["bert2bert"].from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values()), report


def test_tokenizer_and_card_are_in_the_folder(exported):
    _, folder, _, _ = exported
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    assert loaded("w5 w6")["input_ids"] == tokenizer()("w5 w6")["input_ids"]
    assert (folder / "README.md").read_text() == "# A card\n"
    assert not [path for path in folder.parent.iterdir() if path != folder]  # no temporary folder stays


def test_a_folder_with_files_is_left_alone(exported, tmp_path):
    _, _, model, params = exported
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        export_checkpoint(model, params, CONFIGS["bart"](), tokenizer(), tmp_path, "")
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_a_damaged_eeg_file_is_named(exported, tmp_path):
    _, folder, _, _ = exported
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "eeg_encoder.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match=r"eeg_encoder.safetensors: has changed since it was exported"):
        load_pretrained(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()  # as in exports of 0.1.0
    with pytest.raises(UserError, match=r"eeg_encoder.safetensors: its header does not describe"):
        load_pretrained(tmp_path)


def test_card():
    rows = [{"eval": "eeg", "mode": "free_running", "BLEU-1": 12.345}, {"eval": "noise", "mode": "x", "BLEU-1": 9.0}]
    facts = CardFacts("demo", "bart", split="0123abcd", scores=rows, signatures={"BLEU-1": "case:mixed|tok:none"})
    card = model_card(facts)
    assert "| eval | mode | BLEU-1 |\n| --- | --- | --- |\n| eeg | free_running | 12.35 |" in card
    assert "Split hash: 0123abcd" in card
    assert "BLEU-1: `case:mixed|tok:none`" in card
    assert "Started from" not in card
    assert "load_export" not in card  # there is no EEG encoder


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize(("backbone", "base", "alone", "loader"), [
    ("llama", "org/base", True, "CausalLM"), ("bart", "org/base", False, "Seq2SeqLM"), ("bart", "", False, "Seq2SeqLM"),
    ("whisper", "org/base", False, "SpeechSeq2Seq"), ("whisper", "", False, "SpeechSeq2Seq"),
    ("llama", "", True, "CausalLM"),
])  # fmt: skip
def test_a_card_says_which_files_there_are_and_how_they_are_loaded(backbone, base, alone, loader, lora):
    """Weights or the name of a frozen model, adapters and an encoder where the folder has them."""
    facts = CardFacts("x", backbone, base=base, lora=lora and bool(base), alone=alone, n_features=5, arm="eeg, seed 3",
                      data="zuco.h5, 9 training samples", started_from="org/base", encoder=lora)  # fmt: skip
    card = model_card(facts)
    assert f'AutoModelFor{loader}.from_pretrained("{base or "."}"' in card
    assert ("`model.safetensors`, tokenizer files" in card) == (not base)
    assert ("the frozen language model is org/base" in card) == bool(base)
    for said in ("PeftModel.from_pretrained", "`adapter_model.safetensors`"):
        assert (said in card) == (lora and bool(base))
    assert ("`encoder`: the brain encoder" in card) == lora
    assert "load_export" in card
    for line in ("Trained on: eeg, seed 3", "Data: zuco.h5, 9 training samples", "Started from: org/base"):
        assert f"- {line}\n" in card
    assert "unrounded" not in card
    rounded = model_card(dataclasses.replace(facts, int8=True))
    assert ("kernels of this language model in int8" in rounded) == (bool(base) and alone)


def test_a_pegasus_with_positions_of_its_own_keeps_them(tmp_path):
    reference = torch_model("pegasus")
    with torch.no_grad():
        reference.model.encoder.embed_positions.weight.normal_()
    before, after = there_and_back(reference, tmp_path)
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        np.testing.assert_allclose(after[name], before[name], rtol=0, atol=1e-6)
