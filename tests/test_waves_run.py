"""A run over synthetic waves: prepared, trained, killed halfway and resumed, decoded under every control."""

import json

import numpy as np
import pytest
from tiny_run import as_flag, tiny_settings

from eeg2text_jax.commands.cli import main
from eeg2text_jax.data.datafile import Frames, read_datafile
from eeg2text_jax.instrument.predictions.file import read_predictions
from eeg2text_jax.runs import pipeline
from eeg2text_testing.forked_runs import final_checkpoint

CONTROLS = ("eeg", "noise", "noise_spectrum", "shuffled", "phase_randomized", "time_reversed", "clock", "neighbor",
            "subject_mean", "length_only")  # fmt: skip


WAVES = {
    "data__raw__features": "waves", "data__raw__window": 0.15, "data__max_words": 60, "batch__buckets": ((60, 56),),
    "data__synthetic__features": 4, "model__encoder": "conv", "model__encoder_width": 16, "decode__num_beams": 1,
    "grid__train_conditions": ("eeg", "noise_spectrum"), "grid__eval_conditions": ("eeg", "noise_spectrum", "shuffled"),
}  # fmt: skip


def settings():
    return tiny_settings(**{**WAVES, "grid__eval_conditions": CONTROLS})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waves")
    pipeline.run(settings(), str(folder))
    return folder


def test_every_condition_is_decoded_and_the_features_are_described(finished):
    data = read_datafile(finished / "data.h5")
    assert isinstance(data.features, Frames)
    assert (data.sfreq, data.channels) == (64.0, ("Fp1", "Fp2", "F7", "F3"))
    rows = read_predictions(finished / "predictions.jsonl").predictions
    assert {row.eval_condition for row in rows} == set(CONTROLS)
    assert {row.train_condition for row in rows} == {"eeg", "noise_spectrum"}
    assert "synthetic waves of 4 channels, 64 samples a second" in (finished / "report.html").read_text()


def test_the_map_has_channels_and_seconds(finished):
    found = json.loads((finished / "channels.json").read_text())
    assert [place[0] for place in found["electrodes"]] == ["Fp1", "Fp2", "F7", "F3"]
    for name, share in found["shares"].items():
        assert np.shape(found["seconds"][name]) == (1, 4)  # 60 samples, 64 of them a second
        assert np.sum(found["seconds"][name], axis=0) == pytest.approx(share, abs=1e-5)
    assert (finished / "channels.png").stat().st_size > 10_000


OTHERS = {
    "folds": ({}, ["--folds=2"]),
    "int8": ({"decode__weights_dtype": "int8"}, []),
    "lora": ({"optim__trainable": "lora"}, []),
}
LABRAM = {"model__encoder": "labram", "model__encoder_width": 24, "model__waves__patch": 16}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_command_trains_and_decodes(name, tmp_path):
    changes, flags = OTHERS[name]
    assert main(["run", as_flag(**{**WAVES, **changes}), f"--workdir={tmp_path}", *flags]) == 0
    rows = read_predictions(tmp_path / "predictions.jsonl").predictions
    tested = 60 * 2 if flags else 6 * 2  # sentences times subjects
    assert len(rows) == tested * 2 * 3 * 2  # arms, conditions, modes
    _, trained, _ = final_checkpoint(tmp_path / ("fold_1" if flags else ""))
    adapters = [values for place, values in trained.items() if "lora_" in place]
    assert bool(adapters) == (name == "lora")
    assert all(np.abs(values).max() > 0 for values in adapters)  # half of them begin as zeros
    assert (tmp_path / "audit.json").exists()


@pytest.mark.slow
def test_an_exported_encoder_is_trained_on_by_adapters(tmp_path):
    for number in (1, 2):
        begun = {"model__encoder_checkpoint": str(tmp_path / "export/encoder"), "model__encoder_train": "adapters"}
        changes = {**WAVES, **LABRAM, **(begun if number == 2 else {})}
        assert main(["run", as_flag(**changes), f"--workdir={tmp_path / str(number)}"]) == 0
        if number == 1:
            assert main(["export", f"--workdir={tmp_path / '1'}", f"--out={tmp_path / 'export'}"]) == 0
    adapters = [values for place, values in final_checkpoint(tmp_path / "2")[1].items() if "lora_" in place]
    assert adapters
    assert all(np.abs(values).max() > 0 for values in adapters)
