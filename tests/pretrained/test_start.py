"""Starting to train from checkpoints: which parameters are loaded, which are random."""

import jax
import numpy as np
import pytest
import torch
import transformers
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from ml_collections import ConfigDict
from tiny import CONFIGS, TOKENS, tokenizer, torch_model
from tokenizers import Tokenizer, models

from configs import default
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.models.backbones.mapping import flatten
from eeg2text_jax.models.pretrained.export import export_checkpoint
from eeg2text_jax.models.pretrained.load import (
    Start,
    checkpoint_config,
    load_pretrained,
    model_from_checkpoint,
    start_from_checkpoint,
)

FEATURES = 6


def model_config(checkpoint, backbone: str) -> ConfigDict:
    config = default.get_config().model
    # The bridge alone in front of the backbone: initialising layers takes seconds to compile.
    config.update({"checkpoint": str(checkpoint), "backbone": backbone, "encoder_layers": 0})
    return config


def keys(*seeds: int) -> jax.Array:
    return jax.numpy.stack([jax.random.key(seed) for seed in seeds])


def bert_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """As BERT's: no start and end token by that name."""
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer().backend_tokenizer, cls_token="<s>", sep_token="</s>", pad_token="<pad>"
    )


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bart")
    torch_model("bart").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A BERT with its head of masked language modelling, every tensor random."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(CONFIGS["bert2bert"]().encoder)
    with torch.no_grad():
        for value in model.state_dict().values():
            value.normal_()
    model.save_pretrained(folder)
    return folder


def test_a_language_model_ends_where_its_targets_end(tmp_path):
    """A checkpoint of several end tokens: targets have the tokenizer's, which need not be the first."""
    shape = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 2, "bos_token_id": 0, "pad_token_id": 1}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, eos_token_id=[5, 2])).save_pretrained(tmp_path)
    model = model_from_checkpoint(model_config(tmp_path, "llama"), FEATURES, tokenizer())
    assert model.eos_token == tokenizer().eos_token_id == 2


def test_arms_share_the_checkpoint_and_only_equal_keys_the_rest(bart):
    model = model_from_checkpoint(model_config(bart, "bart"), FEATURES, tokenizer())
    start = start_from_checkpoint(model, bart, keys(0, 0, 1))
    _, loaded = load_pretrained(bart)
    for path, leaf in flatten(loaded).items():
        np.testing.assert_array_equal(flatten(start.params)[path], np.stack([leaf] * 3))
    kernel = np.asarray(start.params["eeg"]["bridge"]["kernel"])
    np.testing.assert_array_equal(kernel[0], kernel[1])
    assert np.abs(kernel[0] - kernel[2]).max() > 0.01
    assert {path.split("/")[0] for path in start.random} == {"eeg"}
    assert start.summary().endswith("initialised at random: eeg")
    wide = {"a": np.broadcast_to(0, (3, 1_200_000)), "b": {"c": np.broadcast_to(0, (3, 500, 1000))}}
    counted = Start(wide, ("a",), ("b/c",)).summary()
    assert counted == "1.2 M parameters loaded; 0.5 M initialised at random: b", "of one arm"


def test_every_parameter_goes_where_the_sharding_says(bart):
    mesh = jax.make_mesh((2,), ("arm",), devices=jax.devices()[:2], axis_types=(AxisType.Auto,))
    model = model_from_checkpoint(model_config(bart, "bart"), FEATURES, tokenizer())
    where = NamedSharding(mesh, PartitionSpec("arm"))
    start = start_from_checkpoint(model, bart, keys(0, 1), lambda shapes: jax.tree.map(lambda _: where, shapes))
    assert {leaf.sharding for leaf in jax.tree.leaves(start.params)} == {where}


def test_an_export_starts_with_its_eeg_encoder(bart, tmp_path):
    config = model_config(bart, "bart")
    model = model_from_checkpoint(config, FEATURES, tokenizer())
    params = jax.tree.map(lambda leaf: leaf[0], start_from_checkpoint(model, bart, keys(0)).params)
    export_checkpoint(model, params, CONFIGS["bart"](), tokenizer(), tmp_path / "export", "")
    again = start_from_checkpoint(model, tmp_path / "export", keys(1))
    assert again.random == ()
    assert "random" not in again.summary()
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b), again.params, params)


@pytest.fixture(scope="module")
def warm_start(bert):
    model = model_from_checkpoint(model_config(bert, "bert2bert"), FEATURES, bert_tokenizer())
    return start_from_checkpoint(model, bert, keys(0))


def test_a_bert_fills_both_sides_as_transformers_does(bert, warm_start):
    reference = transformers.EncoderDecoderModel.from_encoder_decoder_pretrained(bert, bert)
    state = {name: value.numpy() for name, value in reference.state_dict().items()}
    backbone = warm_start.params["backbone"]
    pairs = {
        "encoder.encoder.layer.1.intermediate.dense.bias": backbone["encoder"]["layers"]["ffn"]["inner"]["bias"][0][1],
        "decoder.bert.encoder.layer.1.output.dense.bias": backbone["decoder"]["layers"]["ffn"]["outer"]["bias"][0][1],
        "encoder.embeddings.word_embeddings.weight": backbone["encoder_embedding"]["embedding"][0],
        "decoder.bert.embeddings.word_embeddings.weight": backbone["decoder_embedding"]["embedding"][0],
        "decoder.cls.predictions.transform.dense.bias": backbone["head"]["transform"]["bias"][0],
        "decoder.cls.predictions.bias": backbone["head"]["bias"][0],
    }
    for name, ours in pairs.items():
        np.testing.assert_array_equal(ours, state[name], err_msg=name)


def test_cross_attention_of_a_warm_start_is_named_as_random(warm_start):
    named = warm_start.summary().split("random: ")[1].split(", ")
    assert named == ["backbone/decoder/layers/cross_attention", "backbone/decoder/layers/cross_norm", "eeg"]
    assert set(warm_start.loaded) | set(warm_start.random) == set(flatten(warm_start.params))


def test_tokens_of_a_warm_start_are_the_tokenizer_s(bert):
    config = checkpoint_config(bert, bert_tokenizer())
    model = model_from_checkpoint(model_config(bert, "bert2bert"), FEATURES, bert_tokenizer())
    assert config.model_type == "encoder-decoder"
    assert (model.start_token, model.eos_token, model.pad_token) == (0, 2, 1)


def test_another_backbone_is_refused(bart):
    with pytest.raises(UserError, match=r"backbone is 't5', but .* is a bart checkpoint"):
        model_from_checkpoint(model_config(bart, "t5"), FEATURES, tokenizer())


@pytest.fixture(scope="module")
def with_tokenizer(bart, tmp_path_factory):
    """The checkpoint, and its tokenizer beside it."""
    folder = tmp_path_factory.mktemp("whole")
    for path in bart.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    tokenizer().save_pretrained(folder)
    return folder


def other_tokenizer(words: int = 40, shift: int = 0, end: str = "</s>") -> transformers.PreTrainedTokenizerFast:
    """Other words under the same ids; `shift` moves the special tokens, `end` is the end token."""
    names = {shift + i: name for i, name in enumerate(("<s>", "<pad>", "</s>", "<unk>"))}
    vocabulary = Tokenizer(models.WordLevel({names.get(i, f"v{i}"): i for i in range(words)}, unk_token="<unk>"))
    tokens = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": end, "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=vocabulary, **tokens)


@pytest.mark.parametrize(
    ("place", "given", "message"),
    [
        ("bart", {"shift": 1}, r"padding token is 2, but .* has 1; set config.text.tokenizer to the one"),
        ("bart", {"end": "v5"}, r"end token is 5, but .* has 2; set config.text.tokenizer to the one"),
        ("with_tokenizer", {"shift": 1}, "padding token is 2, .* leave config.text.tokenizer empty"),
        ("with_tokenizer", {}, r"36 ids mean other tokens .* \(id 4 is 'v4', not 'w4'\)"),
        ("bart", {"words": 20}, "has 40 tokens, the tokenizer only 20: the tokenizer is of another checkpoint"),
        ("with_tokenizer", {"words": 20}, "16 ids mean other tokens"),
    ],
)
def test_a_tokenizer_of_another_family_is_refused(request, place, given, message):
    folder = request.getfixturevalue(place)
    with pytest.raises(UserError, match=message):
        model_from_checkpoint(model_config(folder, "bart"), FEATURES, other_tokenizer(**given))


def test_tokenizers_that_agree_are_taken(bart, with_tokenizer):
    for folder, given in ((with_tokenizer, tokenizer()), (bart, other_tokenizer()), (bart, other_tokenizer(words=37))):
        model_from_checkpoint(model_config(folder, "bart"), FEATURES, given)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_folder_without_a_tokenizer_gives_none(kind, tmp_path):
    """transformers makes up one of five tokens, all of them special."""
    CONFIGS[kind]().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)


def test_a_larger_vocabulary_is_refused(bart):
    larger = tokenizer()
    larger.add_tokens(["one", "more"])
    with pytest.raises(UserError, match="has 40 tokens, the tokenizer 42"):
        model_from_checkpoint(model_config(bart, "bart"), FEATURES, larger)


def test_the_tiny_tokenizer_agrees_with_the_configurations():
    special = tokenizer()
    assert (special.bos_token_id, special.pad_token_id, special.eos_token_id) == tuple(TOKENS.values())[:3]
