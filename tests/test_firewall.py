"""Which rows a run learns from: whatever stands in the test part, or in dev, training comes out the same."""

import contextlib
import io

import numpy as np
import pytest
from tiny_run import as_flag, prepare, study_in, tiny_config, tiny_settings

from eeg2text_jax.base.files import files_below
from eeg2text_jax.commands import cli
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.source import Sample
from eeg2text_jax.training.conditions._donors import donor_table
from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.loop import DevLoss, trained_params
from eeg2text_testing.forked_runs import final_checkpoint, logged_metrics

# Split d divides by the numbers of sentences, so that other texts leave the parts as they are. Dropout is off, and the
# learning rate so high that the last parameters are not the best.
FIELDS = {
    "split__method": "d",
    "model__encoder_layers": 0,
    "grid__train_conditions": ("eeg", "label_shuffle"),
    "grid__eval_conditions": ("eeg", "shuffled", "subject_mean"),
    "optim__lr": 0.3,
    "optim__schedule": "constant",
    "train__steps": 4,
    "train__eval_every": 1,
    "train__save_every": 4,
    "decode__max_length": 4,
}


def opened(data, root):
    return study_in(root, tiny_settings(**FIELDS, data__source=str(data)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A data file, the folder of a run on it, and what the command printed."""
    place = tmp_path_factory.mktemp("firewall")
    prepare(tiny_config(**FIELDS).data, place / "data.h5")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        command = ["run", as_flag(**FIELDS, data__source=str(place / "data.h5")), f"--workdir={place / 'run'}"]
        assert cli.main(command) == 0
    return place / "data.h5", place / "run", said.getvalue()


def rewrite(source, out, rows):
    """The data with other recordings and other texts in `rows`: words that occur nowhere else, and large features."""
    data, rng = read_datafile(source), np.random.default_rng(0)
    with DataWriter(out, data.n_features, data.features_are) as writer:
        for i in range(len(data)):
            features, text = data.words(i), str(data.sentence[i])
            if i in rows:
                features = rng.normal(40, 9, features.shape).astype(np.float32)
                text = " ".join(f"zyx{data.sentence_index[i]}q{k}" for k in range(len(text.split())))
            where = (str(data.subject[i]), str(data.task[i]), int(data.sentence_index[i]))
            writer.add(Sample(features, text, *where))
        writer.provenance = data.provenance


def donors(study):
    return donor_table(study.data, list(study.split.parts.values()), study.config.seed).donor


@pytest.mark.parametrize("part", ["test", "dev"])
def test_another_part_changes_nothing_of_training(whole, part, tmp_path):
    """Parameters and their optimizer, losses, tokenizer, scale, means, exchanged texts, donors of the other parts."""
    source, root, _ = whole
    before = opened(source, root)
    rewrite(source, tmp_path / "data.h5", set(before.split.parts[part].tolist()))
    fields = as_flag(**FIELDS, data__source=str(tmp_path / "data.h5"))
    assert cli.main(["train", fields, f"--workdir={tmp_path}/run"]) == 0
    after = opened(tmp_path / "data.h5", tmp_path / "run")
    for name, rows in before.split.parts.items():
        np.testing.assert_array_equal(rows, after.split.parts[name])
        texts_differ = [before.data.sentence[i] != after.data.sentence[i] for i in rows]
        assert all(texts_differ) if name == part else not any(texts_differ)
        if name != part:
            np.testing.assert_array_equal(donors(before)[rows], donors(after)[rows])
            np.testing.assert_array_equal(before.samples.donors[rows], donors(after)[rows])

    for name in files_below(before.workdir.tokenizer):
        assert (after.workdir.tokenizer / name).read_bytes() == (before.workdir.tokenizer / name).read_bytes(), name
    for name in ("mean", "scale", "label_rows"):
        np.testing.assert_array_equal(getattr(before.samples, name), getattr(after.samples, name), err_msg=name)
    np.testing.assert_array_equal(before.arrays.means, after.arrays.means)

    (step, arrays, info), (_, others, other_info) = final_checkpoint(root), final_checkpoint(tmp_path / "run")
    assert step == FIELDS["train__steps"]
    assert info["iterator"] == other_info["iterator"]
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        if part == "dev" and "best" in name:  # dev chooses them
            continue
        np.testing.assert_array_equal(array, others[name], err_msg=name)
    logs = [logged_metrics(folder) for folder in (root, tmp_path / "run")]
    losses, dev = ([{k: v for k, v in row.items() if k.startswith("dev_") == on_dev} for log in logs for row in log]
                   for on_dev in (False, True))  # fmt: skip
    assert logs[0][0]["loss/label_shuffle/0"] != pytest.approx(logs[0][0]["loss/eeg/0"], abs=1e-4), "the same targets"
    half = len(logs[0])
    assert len(logs[1]) == half
    assert losses[:half] == losses[half:]
    assert (dev[:half] == dev[half:]) == (part == "test")


def test_the_parameters_of_the_lowest_loss_on_dev_are_decoded_not_the_last_ones(whole, capsys):
    source, root, _ = whole
    study = opened(source, root)
    program = make_program(study.config, study.model, study.arms)
    found = np.asarray(DevLoss(study, program)(trained_params(study)))
    for arm, loss in zip(study.arms, found, strict=True):
        dev = [row[f"dev_loss/{arm}"] for row in logged_metrics(root) if f"dev_loss/{arm}" in row]
        assert min(dev) < dev[-1], "the last parameters are the best: nothing is shown"
        np.testing.assert_allclose(loss, min(dev), rtol=1e-6)


def test_how_near_the_donors_are_is_printed_and_reported(whole):
    source, root, said = whole
    study = opened(source, root)
    table = donor_table(study.data, list(study.split.parts.values()), study.config.seed)
    note = f"shuffled, donors in the test part: {table.summary(study.split.parts['test'])}."
    assert note in said
    assert note in (root / "report.html").read_text()
    assert "same subject" in note
