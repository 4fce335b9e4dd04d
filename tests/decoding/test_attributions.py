"""The picture of channels: gradient times input of the free-running likelihood."""

import dataclasses
import itertools
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from etils import epath
from tiny_run import tiny_settings

from eeg2text_jax import data
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.batches import make_batch
from eeg2text_jax.instrument.predictions.file import Prediction, read_predictions
from eeg2text_jax.runs import exported, pipeline
from eeg2text_jax.runs._attributions import (
    ChannelShares,
    attribution_program,
    flattened,
    map_figure,
    mean_share,
    own_texts,
)
from eeg2text_jax.runs.cells import likelihood_program, padded_labels
from eeg2text_jax.runs.exported import finished_study
from eeg2text_jax.training.loop import trained_params
from eeg2text_jax.training.study import Arm

PLACES = [("Fz", 0.0, 0.09, 0.1), ("C3", -0.06, 0.03, 0.1), ("C4", 0.06, 0.03, 0.1), ("flat", 0.0, -0.08, 0.06)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run over recordings of three bands and four channels with positions, of which the last is constant."""
    folder, rng = tmp_path_factory.mktemp("mapped"), np.random.default_rng(0)
    features = rng.normal(size=(120, 4, 3, 4)) * [1.0, 1.0, 1.0, 0.0]
    rows = [
        {"features": own.reshape(4, 12), "sentence": f"the dog saw {i // 2} cats", "subject": f"S{i % 2}"}
        for i, own in enumerate(features)
    ]
    data.write(folder / "own.h5", rows, provenance={"electrodes": PLACES})
    short = {"batch__buckets": ((4, 24),), "decode__num_beams": 1, "decode__max_length": 6}
    pipeline.run(tiny_settings(data__source=str(folder / "own.h5"), **short), str(folder / "run"))
    return folder / "run"


def test_a_report_has_the_picture_and_says_that_it_is_no_test(finished):
    found = json.loads((finished / "channels.json").read_text())
    assert [place[0] for place in found["electrodes"]] == ["Fz", "C3", "C4", "flat"]
    assert set(found["shares"]) == {"eeg", "noise"}
    for share in found["shares"].values():
        assert sum(share) == pytest.approx(1.0, abs=1e-5)
        assert share[3] == 0.0  # a channel that does not vary is fed as 0
        assert min(share[:3]) > 0.05
    report = (finished / "report.html").read_text()
    assert report.count("Which channels count") == 1
    assert "The map is no statistical test" in report
    assert 'alt="channels"' in report


@pytest.mark.parametrize(("section", "name"), [("data", "raw"), ("data", "synthetic_fmri"), ("", "decode")])
def test_a_run_of_a_version_without_a_section_is_refused(finished, monkeypatch, section, name):
    stored = json.loads((finished / "config.json").read_text())
    del (stored[section] if section else stored)[name]
    monkeypatch.setattr(exported, "read_configuration", lambda workdir: stored)
    with pytest.raises(UserError, match=rf"config.json: has no field '{name}'; another version wrote it"):
        finished_study(str(finished))


def test_sizes_are_slopes_of_the_likelihood(finished):
    study = finished_study(str(finished))
    mesh = study.placement.mesh
    params = jax.tree.map(lambda leaf: 5 * leaf[:1], trained_params(study))  # slopes above the rounding of float32
    batch = make_batch(study.samples, study.split.parts["test"][:2], (4, 24), 2)
    labels = padded_labels(study, ["the dog saw", "cats"])
    shared = {"mask": batch["mask"]}

    def nll(features):
        texts = np.stack([labels, labels])  # all texts for each recording
        return np.diagonal(likelihood_program(study.model, mesh)(params, {"features": features}, (shared, texts))[0])

    features = np.asarray(batch["features"])[None]
    fed = {"features": features, "labels": labels[None]}
    sizes = np.asarray(attribution_program(study.model, mesh)(params, fed, shared))[0]
    in_halves = np.asarray(attribution_program(study.model, mesh, False, 2.0, 2)(params, fed, shared))[0]
    for place in (0, 6):
        slopes = []
        for word in range(4):
            step = np.zeros_like(features)
            step[:, :, word, place] = 0.01
            slopes.append((nll(features + step) - nll(features - step)) / 0.02 * features[0, :, word, place])
        assert np.abs(slopes).sum(0) == pytest.approx(sizes[:, place], rel=0.02)
        for half in (0, 1):  # two words a second
            expected = np.abs(slopes[2 * half : 2 * half + 2]).sum(0)
            assert expected == pytest.approx(in_halves[:, half, place], rel=0.02)


def test_shares_are_of_the_texts_that_the_arm_wrote_and_of_its_channels(finished):
    """Computed again from the predictions file: bands of a channel added, subjects alike."""
    study = finished_study(str(finished))
    rows, mesh = study.split.parts["test"], study.placement.mesh
    written = read_predictions(finished / "predictions.jsonl").predictions
    kinds = [(p.train_condition, p.eval_condition, p.mode) for p in written]
    own = [p for p, kind in zip(written, kinds, strict=True) if kind == ("noise", "eeg", "free_running")]
    assert [p.sample_id for p in own] == [study.split.names[i] for i in rows]
    batch = make_batch(study.samples, rows, (4, 24), len(rows))
    labels = padded_labels(study, [p.prediction for p in own])
    fed = {"features": np.asarray(batch["features"])[None], "labels": labels[None]}
    params = jax.tree.map(lambda leaf: leaf[1:], trained_params(study))
    sizes = np.asarray(attribution_program(study.model, mesh)(params, fed, {"mask": batch["mask"]}))[0]
    channels = sizes.reshape(len(rows), 3, 4).sum(axis=1)
    readers = np.array([p.subject for p in own])
    means = [channels[readers == name].mean(axis=0) for name in ("S0", "S1")]
    expected = np.mean([mean / mean.sum() for mean in means], axis=0)
    shares = json.loads((finished / "channels.json").read_text())["shares"]
    assert shares["noise"] == pytest.approx(expected, abs=1e-5)


def test_subjects_count_alike():
    sizes = np.array([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0], [300.0, 100.0]])
    assert mean_share(sizes, np.array(["A", "A", "A", "B"])) == pytest.approx([0.5, 0.5])


def test_arms_are_added_wave_by_wave_and_averaged(finished, tmp_path):
    """The trained arms, then the same two again as further seeds of one condition."""
    study = finished_study(str(finished))
    texts = own_texts(study, read_predictions(finished / "predictions.jsonl").predictions)
    shares = ChannelShares(study)
    for arms in (study.arms, (Arm("eeg", 1), Arm("eeg", 2))):
        shares.add(dataclasses.replace(study, arms=arms), trained_params(study), study.placement.mesh, texts)
    shares.write(epath.Path(tmp_path / "channels.json"))
    stored, found = (json.loads((folder / "channels.json").read_text())["shares"] for folder in (finished, tmp_path))
    eeg, noise = (np.array(stored[name]) for name in ("eeg", "noise"))
    assert np.abs(eeg - noise).max() > 1e-3
    assert found["noise"] == pytest.approx(noise, abs=1e-5)
    assert found["eeg"] == pytest.approx((2 * eeg + noise) / 3, abs=1e-5)


def test_texts_of_an_arm_are_its_best_free_running_ones_from_eeg():
    arms = (Arm("eeg", 0), Arm("noise", 0), Arm("eeg", 1))
    rows = []
    for arm, number in itertools.product(reversed(arms), (0, 1)):
        about = ("s", "A", "NR", "1", 3, arm.condition)
        own = Prediction(*about, "eeg", arm.seed, "free_running", "", f"{arm} {number}", hypothesis=0)
        others = ({"hypothesis": 1}, {"eval_condition": "noise"}, {"mode": "teacher_forced", "hypothesis": None})
        rows += [own, *(dataclasses.replace(own, prediction="another", **fields) for fields in others)]
    assert own_texts(SimpleNamespace(arms=arms), rows) == [[f"{arm} {number}" for number in (0, 1)] for arm in arms]


def test_the_head_from_above():
    top, right, front = flattened(np.array([[0.0, 0.0, 0.1], [0.1, 0.0, 0.0], [0.0, 0.1, 0.1]]))
    assert top == pytest.approx([0.0, 0.0])
    assert right == pytest.approx([1.0, 0.0])
    assert front == pytest.approx([0.0, 0.5])


def test_what_is_right_on_the_head_is_right_in_the_picture():
    places = [
        ("left", -0.1, 0.0, 0.03),
        ("right", 0.1, 0.0, 0.03),
        ("front", 0.0, 0.1, 0.03),
        ("back", 0.0, -0.1, 0.03),
    ]
    figure = map_figure(places, {"eeg": [0.1, 0.6, 0.2, 0.1]})
    image = np.asarray(figure.axes[0].images[0].get_array())
    middle = image.shape[0] // 2
    assert image[middle, -1] > 50 > 20 > image[middle, 0]
    assert image[-1, middle] > image[0, middle]


def test_each_type_of_sensors_has_a_head_of_its_own_and_pairs_at_a_place_are_added():
    places = [(f"M{i}", x, y, 0.03) for i, (x, y) in enumerate([(-0.1, 0), (0.1, 0), (0, 0.1), (0, -0.1)] * 3)]
    types = ["mag"] * 4 + ["grad"] * 8
    figure = map_figure(places, {"eeg": [0.0, 0.2, 0.0, 0.0, *[0.1, 0.0] * 4]}, types)
    mags, grads = (axes for axes in figure.axes if axes.images)
    assert "magnetometers" in mags.get_title()
    assert "gradiometers" in grads.get_title()
    left, right = (np.asarray(axes.images[0].get_array())[60] for axes in (mags, grads))
    assert left[-1] > 15 > 5 > left[0]
    assert right[0] > 15 > 5 > right[-1]  # 0.1 twice at the first and third place


def test_arms_have_one_scale_that_ends_at_the_largest_share_of_any():
    shares = {"eeg": [0.1, 0.3, 0.4, 0.2], "noise": [0.2, 0.7, 0.05, 0.05], "zero": [0.25, 0.25, 0.2, 0.3]}
    figure = map_figure(PLACES, shares)
    heads = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in heads] == [f"arm trained on {name}" for name in shares]
    assert [axes.images[0].get_clim() for axes in heads] == [pytest.approx((0.0, 70.0))] * 3
    assert figure.axes[-1].get_ylim() == pytest.approx((0.0, 70.0)), "the colour bar"
