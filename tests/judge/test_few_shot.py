"""Few-shot prompting and decoder-only models: what they are shown, and a judge of both through its folder."""

import dataclasses

import jax
import numpy as np
import pytest
from tiny_judge import counted_auc, tiny_config, tiny_frozen
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge._judge_folder import load_judged
from eeg2text_jax.judge.frozen import Asker, load_frozen
from eeg2text_jax.judge.pairs import divide, preserved_of, read_pairs
from eeg2text_jax.judge.session import judge
from eeg2text_jax.judge.toy import toy_pairs, toy_tokenizer, toy_wording
from eeg2text_jax.judge.tune import with_examples
from eeg2text_jax.judge.wording import TEMPLATES, Encoder, Wording, label_ids, read_labels
from eeg2text_jax.models.backbones.build import describe, random_config
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.pretrained.export import export_checkpoint

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE |= {"num_key_value_heads": 2, "max_position_embeddings": 400}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """The folder of a random Llama with the toy's words."""
    folder, tokenizer = tmp_path_factory.mktemp("llama") / "tiny-llama", toy_tokenizer()
    config = random_config("llama", SHAPE, tokenizer)
    model = Seq2SeqModel(describe(config, "llama", "tiny"))
    export_checkpoint(model, model.init(jax.random.key(0)), config, tokenizer, folder, "# tiny\n")
    return folder


def test_examples_are_answered_as_in_figure_1():
    figure = Wording("figure", TEMPLATES["figure"])
    pairs = toy_pairs(40, 0)
    asked = with_examples(figure, pairs, ("yes", "no"), 3, 7)
    lines = asked.text("a b", "a c").split("\n")
    assert len(lines) == 4
    asked_last = "Ground truth: {a b}. Transcription: {a c}. Transcript preserves the meaning of the ground truth: {"
    assert lines[-1] == asked_last
    by_text = {figure.text(*pair.texts): pair.preserved for pair in pairs}
    shown = [by_text[line.rpartition("{")[0] + "{"] for line in lines[:3]]
    assert sorted(shown) == [False, True, True]
    assert [line.endswith("{yes}") for line in lines[:3]] == shown
    assert with_examples(figure, pairs, ("yes", "no"), 3, 7) == asked
    assert with_examples(figure, pairs, ("yes", "no"), 3, 8) != asked
    plain = with_examples(Wording("plain", TEMPLATES["plain"]), pairs, ("yes", "no"), 2, 7)
    assert {line.rpartition(" ")[2] for line in plain.before.splitlines()} == {"yes", "no"}
    message = "shots is 4, which takes 2 train pairs that lose the meaning, but there are only 0"
    with pytest.raises(UserError, match=message):
        with_examples(figure, [pair for pair in pairs if pair.preserved], ("yes", "no"), 4, 0)


def test_an_answer_that_continues_has_the_tokens_that_it_has_there():
    """Byte-level tokenizers have other tokens for a word behind a space than for the word alone."""
    words = ["truth:", "\u0120yes", "\u0120no", "yes", "no", "{", "\u0120{", "}", ".", "<unk>"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    parts = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), pre_tokenizers.Split("{", "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")
    plain = Wording("plain", "{reference} {hypothesis} truth:")
    wordings = None, plain, Wording("figure", "{reference} {hypothesis} truth: {")
    names = [fast.convert_ids_to_tokens(list(label_ids("yes", fast, wording))) for wording in wordings]
    assert names == [["yes"], ["\u0120yes"], ["yes"]]


def test_a_text_that_is_continued_has_no_end_token():
    tokenizer, wording = toy_tokenizer(), toy_wording()
    (whole,), (open_end,) = (Encoder(tokenizer, wording, 99, False, end)([("the boy", "the girl")]) for end in (0, 1))
    assert whole.tolist() == [*open_end.tolist(), tokenizer.eos_token_id]


def test_a_long_text_beside_a_short_one_is_cut_as_far_as_it_must():
    encoder = Encoder(toy_tokenizer(), toy_wording(), 12, truncate=True)
    (ids,) = encoder([("boy", " ".join(["girl"] * 30))])
    assert len(ids) == 12
    assert encoder.cut == 1


def test_a_tokenizer_without_an_end_token_loses_no_token_of_an_open_text():
    def tokenizer(texts, **_):
        return {"input_ids": [[5, 6, 7] for _ in texts]}

    tokenizer.eos_token_id = 1
    (ids,) = Encoder(tokenizer, toy_wording(), 99, False, True)([("a", "b")])
    assert ids.tolist() == [5, 6, 7]


def test_scores_are_alike_divided_or_not(llama, monkeypatch):
    """Weights are read shard by shard, in bfloat16 as in float32."""
    monkeypatch.setattr("eeg2text_jax.base.devices.mesh.FSDP_MIN_SIZE", 1)
    prompt = np.random.default_rng(0).normal(size=(3, 32))
    pairs = [pair.texts for pair in toy_pairs(9, 1)]
    found = {}
    for fsdp in (False, True):
        for kind in ("float32", "bfloat16"):
            frozen = load_frozen(llama, "float32", kind, fsdp)
            kernel = frozen.params["backbone"]["decoder"]["layers"]["ffn"]["inner"]["kernel"]
            assert kernel.dtype == kind
            assert kernel.addressable_shards[0].data.size * (8 if fsdp else 1) == kernel.size
            labels = read_labels(("yes", "no"), frozen.tokenizer, toy_wording())
            found[fsdp, kind] = Asker(frozen, prompt, toy_wording(), labels).scores(pairs)
    np.testing.assert_allclose(found[True, "float32"], found[False, "float32"], atol=1e-6)
    np.testing.assert_allclose(found[True, "bfloat16"], found[False, "bfloat16"], atol=1e-6)
    assert np.ptp(found[False, "float32"]) > 1e-4


def test_a_judge_by_examples_is_written_and_read_again(llama, tmp_path):
    config = tiny_config(checkpoint=str(llama), shots=3, parallel__fsdp=True, optim__lr=(0.1, 0.3))
    results = judge(config, str(tmp_path / "work"))
    assert [(arm["seed"], arm["step"]) for arm in results["arms"]] == [(0, 0), (1, 0)]
    assert "3 examples of seed" in results["caption"]
    assert "without examples" in results["caption"]
    assert (tmp_path / "work/results.md").read_text().startswith("# Judge with 3 examples of template pairs\n")
    assert not (tmp_path / "work/checkpoints").exists()
    made, frozen = load_judged(tmp_path / "work/judge")
    assert made.prompt.shape == (0, 32)
    assert len(made.wording.before.splitlines()) == 3
    assert frozen.fsdp
    assert "|examples:[sha256:" in results["signature"]
    assert judge(config, str(tmp_path / "work"))["signature"] == results["signature"]
    assert results["arms"][results["chosen"]]["auc_test"] == pytest.approx(results["auc_test"])
    parts = divide(read_pairs(tmp_path / "work/pairs.tsv"), config.split.ratio, config.split.seed, "")
    asked = [pair.texts for pair in parts.test]
    bare = dataclasses.replace(made.wording, before="")
    for arm in results["arms"]:  # each with its own examples
        wording = with_examples(bare, parts.train, made.labels.words, 3, arm["seed"])
        scores = Asker(frozen, made.prompt, wording, made.labels).scores(asked)
        assert arm["auc_test"] == pytest.approx(counted_auc(scores, preserved_of(parts.test)))
    whole = Asker(frozen, made.prompt, made.wording, made.labels)
    assert whole.encoder.max_tokens == 399  # the model's positions, one of which the answer takes
    written = tmp_path / "work/judge/judge.json"
    written.write_text(written.read_text().replace("truth", "truths", 1))
    with pytest.raises(UserError, match="was changed since it was written"):
        load_judged(tmp_path / "work/judge")


def test_examples_leave_room_for_long_texts():
    frozen = tiny_frozen()
    labels = read_labels(("yes", "no"), frozen.tokenizer)
    assert frozen.max_tokens(toy_wording(), labels, 5) == 507
    assert frozen.max_tokens(dataclasses.replace(toy_wording(), before="x\n"), labels, 0) == 2048


@pytest.mark.parametrize(("widest", "said"), [
    (12, r"but config.batch.widths has at most 12; .* or set --config.truncate=True to"),
    (100_000, r"but the model takes at most \d+; .* or set --config.truncate=True to"),
    (None, r"but the model takes at most \d+; .* or set --truncate to"),
])  # fmt: skip
def test_a_pair_that_is_too_long_is_told_what_bounds_it(widest, said):
    frozen, wording = tiny_frozen(), toy_wording()
    labels = read_labels(("yes", "no"), frozen.tokenizer)
    encoder = frozen.encoder(wording, labels, 4, widest=widest)
    with pytest.raises(UserError, match=said):
        encoder([("the boy " * 600, "a")], "row")
