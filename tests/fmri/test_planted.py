"""Planted stories: a real BIDS tree, read by the reader that everybody uses; the dial moves information alone."""

import nibabel
import numpy as np
import pytest
from tiny_run import data_spec

from eeg2text_jax import prepare
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.planted import PlantedSpec, _who_hears_what, write_planted

SMALL = {"subjects": 4, "stories": 8, "heard": 8, "frames": 60, "grid": (8, 8, 5), "vocabulary": 20}


FMRI = {"lag_tr": 3, "detrend": 2, "mask": 0.2, "window": 5, "stride": 5, "dtype": "float32"}


def spec_of(**fields):
    return data_spec(PlantedSpec, "synthetic_fmri", **{**SMALL, **fields})


def make(path, source="synthetic-fmri", *, grid=(8, 8, 5), **fields):
    changes = {f"data__fmri__{name}": value for name, value in {**FMRI, "grid": grid}.items()}
    changes |= {f"data__synthetic_fmri__{name}": value for name, value in {**SMALL, **fields}.items()}
    return prepare(source, path, **changes)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    return make(folder / "planted.h5", signal=1.0), make(folder / "null.h5", signal=0.0)


def decodable(data) -> float:
    """How far least squares on the other half of the subjects predicts which words a window has: mean correlation."""
    words = sorted({word for text in data.sentence for word in text.split()})
    counts = np.array([[text.split().count(word) for word in words] for text in data.sentence], float)
    means = np.stack([data.words(i).mean(0).reshape(-1) for i in range(len(data))])
    train = np.isin(data.subject, ["sub-01", "sub-02"]) & (data.task < "story07")
    test = np.isin(data.subject, ["sub-03", "sub-04"]) & (data.task >= "story07")
    x, y = means[train], counts[train] - counts[train].mean(0)
    weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ y)
    found, truth = means[test] @ weights, counts[test]
    found, truth = ((v - v.mean(0)) / (v.std(0) + 1e-9) for v in (found, truth))
    return float((found * truth).mean())


def test_the_dial_moves_information_alone(made):
    planted, null = made
    assert planted.sentence.tolist() == null.sentence.tolist()
    assert planted.sentence_id.tolist() == null.sentence_id.tolist()
    assert len(planted) == 4 * 8 * 12
    assert planted.feature_shape == (8, 8, 5)
    assert decodable(planted) > 0.3, "unseen subjects, unseen stories"
    assert abs(decodable(null)) < 0.1
    for data in made:
        whole = data.features[0 : len(data.features)]
        assert 0.95 < whole[whole != 0].std() < 1.15, "1 over the run, whose end is silent"
        assert 0.1 < (whole == 0).all(axis=0).mean() < 0.8, "outside of the brain"


def test_the_tree_is_what_a_scanner_leaves(tmp_path):
    write_planted(tmp_path, spec_of(subjects=1, heard=2))
    scans = sorted(tmp_path.glob("sub-01/func/*_bold.nii.gz"))
    assert len(scans) == 2
    image = nibabel.load(scans[0])
    assert image.shape == (8, 8, 5, 4 + 60 + 8 + 3)
    assert image.header.get_zooms()[3] == 1.5
    assert image.get_data_dtype() == np.int16
    assert len(list(tmp_path.glob("stimuli/gentle/*/align.csv"))) == 8
    events = scans[0].with_name(scans[0].name.replace("_bold.nii.gz", "_events.tsv")).read_text().splitlines()
    assert [line.split("\t")[2] for line in events] == ["trial_type", "music", "story"]
    assert any(line.endswith(",,") for path in tmp_path.glob("stimuli/gentle/*/align.csv")
               for line in path.read_text().splitlines())  # fmt: skip


def test_the_brain_is_an_ellipsoid_along_the_axes_of_the_grid(tmp_path):
    grid = (9, 5, 4)
    write_planted(tmp_path, spec_of(subjects=1, stories=1, heard=1, frames=10, grid=grid))
    (scan,) = tmp_path.glob("sub-01/func/*_bold.nii.gz")
    mean = np.asarray(nibabel.load(scan).dataobj).mean(axis=-1)
    centre, half = (np.array(grid) - 1) / 2, np.sqrt(1.6) * (np.array(grid) - 1) / 2  # half: its three semi-axes
    inside = (((np.stack(np.indices(grid), -1) - centre) / half) ** 2).sum(-1) <= 1
    np.testing.assert_array_equal(mean > 500, inside)


@pytest.mark.parametrize(("stories", "heard"), [(3, 2), (5, 3), (7, 6), (4, 4), (6, 1)])
def test_every_subject_hears_different_stories_and_all_are_about_equally_frequent(stories, heard):
    found = _who_hears_what(spec_of(subjects=30, stories=stories, heard=heard), np.random.default_rng(0))
    assert len(found) == 30
    for own in found:
        assert own.tolist() == sorted(set(own.tolist())), "each once, in the order of their numbers"
        assert len(own) == heard
    times = np.bincount(np.concatenate(found), minlength=stories)
    assert len(times) == stories
    assert np.abs(times - 30 * heard / stories).max() <= 3
    assert len({tuple(own) for own in found}) > 1 or heard == stories


def test_a_tree_that_is_kept_is_read_as_any_other(tmp_path):
    folder = tmp_path / "kept"
    first = make(tmp_path / "a.h5", folder=str(folder), grid=(5, 5, 5))  # the grid of real scans counts for them alone
    assert first.digest() == make(tmp_path / "b.h5", folder / "planted").digest()
    with pytest.raises(UserError, match="exists already"):
        make(tmp_path / "c.h5", folder=str(folder))
    with pytest.raises(UserError, match=r"heard is 9; expected at most .*stories \(8\)"):
        make(tmp_path / "c.h5", heard=9)
