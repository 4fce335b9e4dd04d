"""Token ids of target sentences and of prompts: what is cut, what is padded, and what always stays."""

import pytest

from eeg2text_jax.data.prompt import has_fields, make_prompts, template_problem
from eeg2text_jax.data.text import decode_tokens, encode_targets, longer_than, train_tokenizer

TEXT = "the dog saw a cat that ran off"


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT, "in what Bertha and Al read"], 300)


@pytest.mark.parametrize("alone", [False, True])
def test_a_target_that_is_cut_keeps_its_special_tokens(tokenizer, alone):
    plain = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    begin, end = [] if alone else [tokenizer.bos_token_id], [tokenizer.eos_token_id]
    whole = [*begin, *plain, *end]
    for most in (len(whole) + 3, len(whole), len(whole) - 1, 5):
        other, found, again = encode_targets(tokenizer, ["a", TEXT, TEXT], most, alone)
        assert found.tolist() == again.tolist() == [*begin, *plain[: most - len(begin) - 1], *end]
        assert other.tolist() == [*begin, *tokenizer("a", add_special_tokens=False)["input_ids"], *end]
        cut = longer_than(tokenizer, [TEXT, "a", TEXT], most, alone)
        assert cut.tolist() == [most < len(whole), False, most < len(whole)]
    assert decode_tokens(tokenizer, [whole, [*begin, *end]]) == [TEXT, ""]


def test_prompts_of_samples_are_filled_in_and_padded_behind(tokenizer):
    subjects, tasks = ("Al", "Bertha and Al", "Al"), ("what", "in", "in")
    before, after = make_prompts(tokenizer, "{subject} read <eeg> in {task}", False, subjects, tasks)
    said = [[decode_tokens(tokenizer, [row[row >= 0]])[0] for row in side] for side in (before, after)]
    assert said == [["Al read", "Bertha and Al read", "Al read"], ["in what", "in in", "in in"]]
    assert (before[:, 0] == tokenizer.bos_token_id).all()
    for side in (before, after):
        lengths = (side >= 0).sum(1)
        assert lengths.max() == side.shape[1]
        assert all((row[n:] == -1).all() for row, n in zip(side, lengths, strict=True))


def test_templates():
    assert has_fields("{subject} <eeg>")
    assert not has_fields("read <eeg>")
    assert template_problem("read <eeg> by {subject}") == template_problem("") == ""
    assert "in it once" in template_problem("<eeg> <eeg>")
