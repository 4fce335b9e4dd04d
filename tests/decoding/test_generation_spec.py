"""Settings are read as transformers writes them; what we do not implement is named, not ignored."""

import dataclasses
import json

import numpy as np
import pytest
from tiny_run import tiny_settings
from toy_models import MarkovModel
from transformers import GenerationConfig

from configs import default
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.decoding.settings import GenerationSpec, search_name
from eeg2text_jax.runs.opening import generation_note
from eeg2text_jax.training.configuration import load_config

MODEL = MarkovModel()


def test_default_config_gives_the_papers_settings():
    spec = GenerationSpec.from_fields(default.get_config().decode, MODEL)
    assert (spec.num_beams, spec.max_length, spec.repetition_penalty, spec.no_repeat_ngram_size) == (5, 56, 5.0, 2)
    assert (spec.decoder_start_token_id, spec.pad_token_id, spec.eos_token_id) == (0, 1, (2,))
    assert hash(spec) == hash(spec.replace())
    assert spec == spec.replace()


def test_a_run_decodes_as_its_section_says():
    """Also where a value is 0 and the default is not; settings of the loop over the test set are left out."""
    changes = {
        "num_beams": 3, "max_length": 9, "repetition_penalty": 1.5, "no_repeat_ngram_size": 0, "length_penalty": 0.0,
        "num_return_sequences": 2, "do_sample": True, "temperature": 0.5, "top_k": 0, "top_p": 0.25,
        "cache_dtype": "bfloat16", "weights_dtype": "int8",
    }  # fmt: skip
    decode = tiny_settings(**{f"decode__{name}": value for name, value in changes.items()}).decode
    assert GenerationSpec.from_fields(decode.fields(), MODEL) == GenerationSpec(0, 1, (2,), **changes)
    more = {"early_stopping": True, "forced_bos_token_id": 0, "min_length": 2}
    decode = dataclasses.replace(decode, others=more)
    assert GenerationSpec.from_fields(decode.fields(), MODEL) == GenerationSpec(0, 1, (2,), **changes, **more)


def test_one_token_id_is_a_tuple_of_one():
    """Token 0 is a token as any other."""
    fields = {"eos_token_id": 0, "suppress_tokens": 0, "begin_suppress_tokens": 3}
    spec = GenerationSpec.from_fields(fields, MODEL)
    assert (spec.eos_token_id, spec.suppress_tokens, spec.begin_suppress_tokens) == ((0,), (0,), (3,))
    several = spec.replace(eos_token_id=[4, 0], suppress_tokens=None, begin_suppress_tokens=())
    assert (several.eos_token_id, several.suppress_tokens, several.begin_suppress_tokens) == ((4, 0), (), ())


def test_checkpoint_file_of_transformers(tmp_path):
    stored = GenerationConfig(
        num_beams=4, max_length=30, length_penalty=0.8, early_stopping="never", eos_token_id=[2, 7],
        forced_bos_token_id=9, suppress_tokens=[5], decoder_start_token_id=11, no_repeat_ngram_size=3, bos_token_id=0,
    )  # fmt: skip
    stored.save_pretrained(tmp_path)
    spec = GenerationSpec.from_checkpoint(tmp_path, MODEL, {"max_length": 20, "batch_size": 32})
    assert spec == GenerationSpec(
        11, 1, (2, 7), max_length=20, num_beams=4, length_penalty=0.8, early_stopping="never", forced_bos_token_id=9,
        suppress_tokens=(5,), no_repeat_ngram_size=3,
    )  # fmt: skip


def test_new_token_counts_leave_out_the_start_token():
    spec = GenerationSpec.from_fields({"max_new_tokens": 10, "min_new_tokens": 3}, MODEL)
    assert (spec.max_length, spec.min_length) == (11, 4)
    for fields in ({"max_new_tokens": 10, "max_length": 30}, {"max_length": 30, "max_new_tokens": 10}):
        assert GenerationSpec.from_fields(fields, MODEL).max_length == 11, "counts of new tokens win"
    new = spec.to_new_tokens()
    assert (new["max_new_tokens"], new["min_new_tokens"]) == (10, 3)
    assert not {"max_length", "min_length", "decoder_start_token_id"} & set(new)
    assert spec.replace(min_length=0).to_new_tokens()["min_new_tokens"] == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"do_sample": True, "top_k": 0, "top_p": 0.9, "temperature": 0.7, "num_return_sequences": 3},
        {"num_beams": 4, "early_stopping": True, "length_penalty": 0.0, "eos_token_id": (2, 7)},
        {"min_length": 3, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "begin_suppress_tokens": (9,)},
        {"eos_token_id": 0, "suppress_tokens": 0, "begin_suppress_tokens": [0, 9]},
        {"num_beams": 3, "cache_dtype": "bfloat16", "weights_dtype": "int8"},
    ],
)
def test_what_is_written_is_read_back(tmp_path, fields):
    """Values that are 0 or False, too, whose defaults are others."""
    spec = GenerationSpec.from_fields(fields, MODEL)
    (tmp_path / "generation_config.json").write_text(json.dumps(spec.to_fields()))
    assert GenerationSpec.from_checkpoint(tmp_path, MarkovModel(start_token=8, pad_token=9, eos_token=10)) == spec
    dtypes = {"cache_dtype", "weights_dtype"}
    assert dtypes & spec.to_fields().keys() == dtypes & fields.keys()
    of_sampling = {"temperature", "top_k", "top_p"} & spec.to_fields().keys()
    assert of_sampling == ({"temperature", "top_k", "top_p"} if spec.do_sample else set())  # transformers warns of them


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_beam": 5}, "'num_beam' .* nearest .*'num_beams'"),
        ({"typical_p": 0.2}, "'typical_p' .* nearest"),
        ({"encoder_no_repeat_ngram_size": 3}, "'encoder_no_repeat_ngram_size' .* 'no_repeat_ngram_size'"),
        ({"bad_words_ids": [[3]]}, "'bad_words_ids'"),
        ({"max_length": 1}, "max_length: expected at least 2"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences"),
        ({"num_return_sequences": 3}, "greedy"),
        ({"early_stopping": "always"}, "early_stopping"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_length": 60, "max_length": 56}, "min_length"),
        ({"min_length": -1}, "min_length"),
        ({"num_beams": 0}, "num_beams: expected at least 1"),
        ({"num_beams": 2, "num_return_sequences": 0}, "num_return_sequences"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size"),
        ({"temperature": 0.0}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 1.1}, "top_p"),
        ({"eos_token_id": []}, "eos_token_id"),
        ({"cache_dtype": "float16"}, "cache_dtype"),
        ({"cache_dtype": []}, "cache_dtype"),
        ({"weights_dtype": "int4"}, "weights_dtype"),
        ({"max_length": "12"}, "max_length: expected a whole number, got '12'"),
        ({"max_new_tokens": "12"}, "max_new_tokens: expected a whole number, got '12'"),
        ({"min_new_tokens": [3]}, r"min_new_tokens: expected a whole number, got \[3\]"),
        ({"num_beams": 2.5}, "num_beams: expected a whole number, got 2.5"),
        ({"num_beams": True}, "num_beams: expected a whole number, got True"),
        ({"length_penalty": float("nan")}, "length_penalty: expected a finite number, got nan"),
        ({"num_beams": 2, "length_penalty": "1"}, "length_penalty: expected a finite number, got '1'"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty: expected a finite number"),
        ({"do_sample": "no"}, "do_sample: expected True or False, got 'no'"),
        ({"eos_token_id": "12"}, "eos_token_id: expected a token id or a list of token ids, got '12'"),
        ({"suppress_tokens": [3, 4.5]}, "suppress_tokens: expected a token id or a list of token ids"),
        ({"forced_bos_token_id": "0"}, "forced_bos_token_id: expected a token id or None"),
        ({"forced_bos_token_id": -1}, "forced_bos_token_id: expected a token id, or None for none, got -1"),
        ({"forced_eos_token_id": -1}, "forced_eos_token_id: expected a token id, or None for none, got -1"),
        ({"decoder_start_token_id": -1}, "decoder_start_token_id: expected a token id"),
    ],
)
def test_what_cannot_be_done_is_said(fields, message):
    with pytest.raises(UserError, match=message):
        GenerationSpec.from_fields(fields, MODEL)


def test_numbers_of_numpy_are_numbers():
    spec = GenerationSpec.from_fields({"num_beams": np.int64(2), "length_penalty": np.float32(0.5)}, MODEL)
    assert (spec.num_beams, spec.length_penalty) == (2, 0.5)
    assert GenerationSpec.from_fields({"length_penalty": 2}, MODEL).length_penalty == 2


def test_neutral_values_of_other_fields_pass(tmp_path):
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"typical_p": 1.0, "num_beam_groups": 1, "use_cache": True, "bad_words_ids": None})
    )
    assert GenerationSpec.from_checkpoint(tmp_path, MODEL).max_length == 21


def test_unreadable_checkpoint_files(tmp_path):
    with pytest.raises(UserError, match=r"generation_config\.json: cannot be read"):
        GenerationSpec.from_checkpoint(tmp_path, MODEL)
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(UserError, match="line 1"):
        GenerationSpec.from_checkpoint(tmp_path, MODEL)


def test_what_a_checkpoint_would_decode_otherwise_is_named(tmp_path):
    spec = GenerationSpec.from_fields({"num_beams": 5, "max_length": 56}, MODEL)
    assert generation_note("", spec) == generation_note(str(tmp_path), spec) == ""
    stored = {
        "num_beams": 5, "max_length": 56, "early_stopping": True, "forced_bos_token_id": 0, "forced_eos_token_id": 2,
        "eos_token_id": 2, "decoder_start_token_id": 0, "pad_token_id": 1, "top_k": 7, "transformers_version": "5",
    }  # fmt: skip
    (tmp_path / "generation_config.json").write_text(json.dumps(stored))
    note = generation_note(str(tmp_path), spec)
    assert "generation_config.json: is ignored in favour of config.decode, from which it differs in " in note
    assert "early_stopping (file: True, config.decode: False)" in note
    assert "forced_bos_token_id (file: 0, config.decode: None)" in note
    assert not any(name in note for name in ("num_beams", "max_length", "top_k", "(file: [2]", "pad_", "version"))
    followed = spec.replace(early_stopping=True, forced_bos_token_id=0, forced_eos_token_id=2)
    assert generation_note(str(tmp_path), followed) == ""
    assert "top_k (file: 7, config.decode: 50)" in generation_note(str(tmp_path), followed.replace(do_sample=True))
    stored = {"max_new_tokens": 55, "min_new_tokens": 3, "typical_p": 0.2, "num_beam_groups": 1, "num_beams": 5}
    (tmp_path / "generation_config.json").write_text(json.dumps(stored))
    note = generation_note(str(tmp_path), spec.replace(min_length=5))
    assert "differs in min_new_tokens (file: 3, config.decode: 4), typical_p (file: 0.2, config.decode: 1.0)" in note
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(UserError, match=r"generation_config\.json: is not JSON"):
        generation_note(str(tmp_path), spec)


def test_the_papers_decoding_is_a_choice_that_has_a_name():
    found = {name: load_config(f"paper:decoding={name}").decode for name in ("text", "code")}
    specs = {name: GenerationSpec.from_fields(decode, MODEL) for name, decode in found.items()}
    assert load_config("paper").decode.to_dict() == found["text"].to_dict()
    assert specs["code"] == specs["text"].replace(do_sample=True)
    assert {name: search_name(d.num_beams, d.do_sample) for name, d in found.items()} == {
        "text": "beam search", "code": "beam search that samples",
    }  # fmt: skip
    assert [search_name(1, False), search_name(1, True)] == ["greedy", "sampling"]
