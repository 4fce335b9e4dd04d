"""A judge's preflight: compiled for the CPU instead of a TPU, and by the real compiler where it is installed."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from real_compiler import preflight

from configs.judge import get_config
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.commands.cli import main
from eeg2text_jax.commands.preflight import judge_fit as module
from eeg2text_jax.commands.preflight.compiling import parse_topology
from eeg2text_jax.commands.preflight.judge_fit import judge_fit
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.judge.frozen import stored_as
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.pretrained.load import read_config, spec_of

SHAPE = {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 500}
SHAPE |= {"decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SHAPE["dropout_rate"] = 0.0  # dropout in every layer costs time to compile
SEEDS = "--config.seeds=(0,1,2,3,4,5,6,7)"
SMALL = [SEEDS, "--config.dtype=bfloat16", "--config.param_dtype=bfloat16", "--config.batch.widths=(16,48)"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    return tmp_path


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(module, "tpu_devices", lambda topology: jax.devices()[:1])


def frozen_bytes(folder):
    model = Seq2SeqModel(spec_of(read_config(folder), folder), None, "bfloat16")
    made = jax.eval_shape(lambda: stored_as(model.init(jax.random.key(0)), "bfloat16"))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(made))


def test_memory_of_eight_prompts_over_one_frozen_copy(folder, on_cpu, tmp_path, capsys):
    out, place = tmp_path / "fit.json", ["preflight", f"--config=judge:checkpoint={folder},pairs=edits"]
    at_once = "--config.batch.at_once=1600"
    assert main([*place, "--topology=v5e:1x1", *SMALL, at_once, f"--json={out}"]) == 0
    told, text = json.loads(out.read_text()), capsys.readouterr().out
    assert (told["arms"], told["pairs"], told["tokens"]) == (8, 16, 48)
    assert told["pieces"] == 4  # 8 prompts, 4 pairs, 48 tokens
    assert told["scored"] == 16  # 8 prompts, 16 pairs, a quarter of 48 tokens
    assert told["frozen_bytes"] == frozen_bytes(folder)
    for program in told["programs"].values():  # weights once, beside prompts and a batch of some kB
        assert 0 < program["argument_bytes"] - told["frozen_bytes"] < 100_000
        assert program["total_bytes"] >= program["argument_bytes"] + program["temporary_bytes"]
    assert "tuning step of 8 prompts, batch 16 in 4 pieces, 48 tokens" in text
    assert text.count(" GiB a chip, fits") == 2


def test_what_does_not_fit_says_so_and_ends_with_1(folder, on_cpu, monkeypatch, printed_by):
    monkeypatch.setattr(module, "usable", lambda chip: frozen_bytes(folder))
    command = ["preflight", f"--config=configs/judge.py:checkpoint={folder},pairs=edits", "--topology=v5e:1x1"]
    text = printed_by([*command, *SMALL], status=1)
    assert "DOES NOT FIT" in text
    assert "remedies: parallel.fsdp=True on several chips, model.remat=True" in text


@pytest.mark.slow
def test_the_smallest_slice_whose_chips_share_the_weights(folder, monkeypatch, printed_by, refused):
    monkeypatch.setattr("eeg2text_jax.base.devices.mesh.FSDP_MIN_SIZE", 1)
    monkeypatch.setattr(module, "tpu_devices", lambda topology: jax.devices()[: np.prod(topology.shape)])
    monkeypatch.setattr(module, "usable", lambda chip: 3 * frozen_bytes(folder) // 8)
    limits = {"v5e:2x2": 1, "v5e:2x4": 10 * frozen_bytes(folder)}  # the weights' share would fit on four chips
    fits, whole = [], module.judge_fit

    def judge_fit(config, topology, effort):
        fits.append(dataclasses.replace(whole(config, topology, effort), limit=limits[topology.name]))
        return fits[-1]

    monkeypatch.setattr(module, "judge_fit", judge_fit)
    narrow = [*SMALL[:3], "--config.batch.widths=(16,)", "--config.parallel.fsdp=True"]
    place = ["preflight", f"--config=judge:checkpoint={folder},pairs=edits", "--topology=v5e"]
    text = printed_by([*place, *narrow])
    assert "v5e:1x1: too small, frozen weights alone take" in text
    assert "v5e:2x2: too small\n" in text
    assert "the smallest slice that this judge fits: v5e:2x4" in text
    assert "GiB, divided over 8 chips" in text
    four, eight = fits
    assert four.frozen == eight.frozen == frozen_bytes(folder)
    shared = four.frozen * (1 / 4 - 1 / 8)  # bytes that a chip no longer holds
    assert four.scoring.arguments - eight.scoring.arguments > 0.9 * shared
    assert "set parallel.fsdp=True" in refused([*place, *narrow[:-1]])


def test_pieces_save_memory(folder, on_cpu):
    config = get_config(f"checkpoint={folder},pairs=edits")
    config.batch.widths = (64,)
    taken = {}
    for at_once in (0, 300):
        config.batch.at_once = at_once
        fit = judge_fit(read_section(JudgeSettings, config), parse_topology("v5e:1x1"), "least")
        taken[fit.pieces] = fit.tuning.temporaries
    assert taken.keys() == {1, 16}
    assert taken[16] < 0.4 * taken[1]


@pytest.mark.parametrize(
    ("topology", "message"), [("h100:8", "for TPUs only"), ("v5e:1x1", "expected a folder with config.json")]
)
def test_what_cannot_be_compiled_is_refused(topology, message, tmp_path, on_cpu):
    config = get_config(f"checkpoint={tmp_path},pairs=edits")
    with pytest.raises(UserError, match=message):
        judge_fit(read_section(JudgeSettings, config), parse_topology(topology), "least")


def test_the_real_compiler_on_one_chip(folder, tmp_path):
    config = f"--config=configs/judge.py:checkpoint={folder},pairs=edits"
    told, _ = preflight(tmp_path / "fit.json", config, "--topology=v5e:1x1", *SMALL)
    assert told["good"]
    assert told["frozen_bytes"] == frozen_bytes(folder)
    # Weights once, padded to the compiler's tiles: an axis of eight arms would make them eight times as large.
    assert told["programs"]["tuning"]["argument_bytes"] < 2 * told["frozen_bytes"] + 500_000
