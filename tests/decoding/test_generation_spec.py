"""Settings are read as transformers writes them; what we do not implement is named, not ignored."""

import importlib.util
import json
from pathlib import Path

import pytest
from toy_models import MarkovModel
from transformers import GenerationConfig

from eeg2text_jax.errors import UserError
from eeg2text_jax.search.settings import GenerationSpec

MODEL = MarkovModel()


def default_config():
    path = Path(__file__).parents[2] / "configs" / "default.py"
    module = importlib.util.module_from_spec(source := importlib.util.spec_from_file_location("default", path))
    source.loader.exec_module(module)
    return module.get_config()


def test_default_config_gives_the_papers_settings():
    spec = GenerationSpec.from_fields(default_config().decode, MODEL)
    assert (spec.num_beams, spec.max_length, spec.repetition_penalty, spec.no_repeat_ngram_size) == (5, 56, 5.0, 2)
    assert (spec.decoder_start_token_id, spec.pad_token_id, spec.eos_token_id) == (0, 1, (2,))
    assert hash(spec) == hash(spec.replace())
    assert spec == spec.replace()


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
    ],
)
def test_what_cannot_be_done_is_said(fields, message):
    with pytest.raises(UserError, match=message):
        GenerationSpec.from_fields(fields, MODEL)


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
