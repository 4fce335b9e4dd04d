"""A run over synthetic waves: prepared, trained, killed halfway and resumed, decoded under every control."""

import numpy as np
import pytest
from tiny_run import tiny_settings

from eeg2text_jax.data.datafile import Frames, read_datafile
from eeg2text_jax.instrument.predictions.file import read_predictions
from eeg2text_jax.runs import pipeline
from eeg2text_jax.training.checkpoint import Checkpoints
from eeg2text_testing.forked_runs import final_checkpoint

CONTROLS = ("eeg", "noise", "noise_spectrum", "shuffled", "phase_randomized", "time_reversed", "clock", "neighbor",
            "subject_mean", "length_only")  # fmt: skip


def settings():
    return tiny_settings(
        data__raw__features="waves", data__raw__window=0.15, data__max_words=60, batch__buckets=((60, 56),),
        data__synthetic__features=4, model__encoder="conv", model__encoder_width=16, decode__num_beams=1,
        grid__train_conditions=("eeg", "noise_spectrum"), grid__eval_conditions=CONTROLS,
    )  # fmt: skip


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


def test_a_killed_run_ends_where_the_whole_one_does(finished, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    save = Checkpoints.save

    def save_and_die(self, step, *rest):
        save(self, step, *rest)
        if step == 4:
            raise Killed

    monkeypatch.setattr(Checkpoints, "save", save_and_die)
    with pytest.raises(Killed):
        pipeline.run(settings(), str(tmp_path))
    monkeypatch.undo()
    pipeline.run(settings(), str(tmp_path))
    (_, expected, _), (_, found, _) = final_checkpoint(finished), final_checkpoint(tmp_path)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(values, found[name], err_msg=name)
    assert (tmp_path / "predictions.jsonl").read_bytes() == (finished / "predictions.jsonl").read_bytes()
