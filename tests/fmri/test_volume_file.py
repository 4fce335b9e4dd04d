"""Volumes in a data file: windows of frames as they were written, read one by one; damage is said."""

import json
import pickle

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.batches import Samples, batch_shapes, feature_scale, make_batch
from eeg2text_jax.data.check import check_datafile
from eeg2text_jax.data.data_writer import VolumeWriter
from eeg2text_jax.data.datafile import DataFile, from_half, read_datafile, read_outline, to_half
from eeg2text_jax.training.conditions import CONDITIONS
from eeg2text_jax.training.conditions._donors import donor_table, train_means
from eeg2text_jax.training.conditions.condition import ConditionContext, apply_condition, condition_key

GRID, L, FRAMES = (4, 3, 2), 3, 12


def write(path, frames, windows, subject_of=lambda start: "S"):
    """A data file of one scan; `windows` are (start, length)."""
    with VolumeWriter(path, GRID, "float32", "x") as writer:
        writer.add_frames(frames)
        for start, length in windows:
            writer.add_window(start, length, sentence=f"the {start} dogs", subject=subject_of(start), task="t",
                              sentence_index=start, text_group="t")  # fmt: skip
    return path


def make(path, dtype="float32", subjects=2) -> tuple[DataFile, np.ndarray]:
    """Windows of three frames, each begun one after the last, of two stimuli for every subject."""
    rng = np.random.default_rng(0)
    whole = []
    with VolumeWriter(path, GRID, dtype, "standardized voxels") as writer:
        for subject in range(subjects):
            for task in ("one", "two"):
                frames = rng.normal(size=(FRAMES, *GRID))
                start = writer.add_frames(frames)
                whole.append(frames.astype(dtype).astype(np.float32))
                for k in range(FRAMES - L + 1):
                    text = " ".join(f"{task}{k + j}" for j in range(L))
                    writer.add_window(start + k, L, sentence=text, subject=f"S{subject}", task=task,
                                      sentence_index=7 + k, text_group="both")  # fmt: skip
        writer.provenance = {"source": "made"}
    return read_datafile(path), np.concatenate(whole)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_windows_are_the_frames_that_were_written(tmp_path, dtype):
    data, whole = make(tmp_path / "data.h5", dtype)
    assert (data.recording, data.feature_shape, data.n_features, data.is_windows) == ("fmri", GRID, 24, True)
    assert len(data) == 4 * (FRAMES - L + 1)
    assert set(data.n_words) == {L}
    assert data.words(11).dtype == np.float32
    for i in range(len(data)):
        scan, k = divmod(i, FRAMES - L + 1)
        np.testing.assert_array_equal(data.words(i), whole[scan * FRAMES + k :][:L])
    assert data.sentence_id[1] == "one:8"
    assert set(data.text_group) == {"both"}
    again = pickle.loads(pickle.dumps(data.features))
    np.testing.assert_array_equal(again[5:7], whole[5:7])


def test_what_was_changed_has_another_digest(tmp_path):
    first, _ = make(tmp_path / "a.h5")
    assert first.digest() == make(tmp_path / "b.h5")[0].digest() == read_outline(tmp_path / "a.h5").digest()
    assert first.digest() != make(tmp_path / "c.h5", "float16")[0].digest()
    for name, change in (("starts", 1), ("sentence_index", 1)):
        with h5py.File(tmp_path / "b.h5", "r+") as file:
            file[name][3] += change
        with pytest.raises(UserError, match="is not the one that the file states"):
            read_datafile(tmp_path / "b.h5")
        make(tmp_path / "b.h5")


def test_a_damaged_frame_is_said_when_it_is_read(tmp_path):
    data, whole = make(tmp_path / "data.h5")
    with h5py.File(tmp_path / "data.h5", "r") as file:
        place = file["features"].id.get_chunk_info(4).byte_offset
    raw = bytearray((tmp_path / "data.h5").read_bytes())
    raw[place + 9] ^= 1
    (tmp_path / "data.h5").write_bytes(raw)
    data = read_datafile(tmp_path / "data.h5")
    np.testing.assert_array_equal(data.words(0), whole[:L])
    with pytest.raises(UserError, match="frames 4 to 7 cannot be read"):
        data.words(4)


def test_check_reads_all_frames(tmp_path, printed_by):
    path = tmp_path / "data.h5"
    make(path, "float16")
    said = printed_by(["check", str(path)])
    assert "48 frames of 4 x 3 x 2 voxels, windows of 3 to 3, 1 text groups" in said
    assert "no problem, 0 notes" in said
    with h5py.File(path, "r+") as file:
        file["features"][7] = 0
    read_datafile(path)
    assert "the checksum of its frames is not the one that the file states" in printed_by(["check", str(path)], 2)


def test_frames_that_are_in_no_window_are_counted(tmp_path):
    """Windows of frames 1 to 3, 2 to 4 and 8 to 10: the frames 0, 5, 6, 7 and 11 are in none."""
    frames = np.random.default_rng(0).normal(size=(FRAMES, *GRID))
    path = write(tmp_path / "data.h5", frames, [(1, L), (8, L), (2, L)])
    assert check_datafile(path).notes == ["5 frames are in no window."]


def test_magnitudes_and_constant_voxels_are_those_of_all_frames(tmp_path):
    """Frames are read 64 at a time; one voxel never varies, and another one only in the first of three blocks."""
    frames = np.random.default_rng(0).normal(size=(150, *GRID))
    frames[100:] *= 7
    frames[:, 1, 1, 1], frames[64:, 0, 0, 0] = 0.0, frames[0, 0, 0, 0]
    windows = [(start, 2) for start in range(0, 150, 2)]
    found = check_datafile(write(tmp_path / "data.h5", frames, windows, lambda start: f"S{start // 100}"))
    assert found.notes[1:] == ["1 of 24 voxels do not vary, as usual outside a mask."]
    for subject, own in (("S0", frames[:100:2]), ("S1", frames[100::2])):
        (line,) = [line for line in found.table if line.startswith(subject)]
        assert line.endswith(f"{len(own)} windows, mean size of a voxel {np.abs(own).mean():.3g}")


def test_windows_may_differ_in_length(tmp_path):
    frames = np.random.default_rng(0).normal(size=(FRAMES, *GRID)).astype(np.float32)
    windows = [(0, 2), (6, 5), (1, 3), (11, 1)]
    data = read_datafile(write(tmp_path / "data.h5", frames, windows))
    assert data.n_words.tolist() == [2, 5, 3, 1]
    for i, (start, length) in enumerate(windows):
        np.testing.assert_array_equal(data.words(i), frames[start : start + length])


def test_windows_beyond_the_frames_are_refused(tmp_path):
    with VolumeWriter(tmp_path / "data.h5", GRID, "float16", "x") as writer:
        writer.add_frames(np.zeros((FRAMES, *GRID)))
        with pytest.raises(ValueError, match="a window of 3 frames begins at frame 10 of 12"):
            writer.add_window(10, L, sentence="a", subject="S", task="t", sentence_index=0, text_group="t")


def samples_of(data: DataFile, **more) -> Samples:
    mean, scale, *_ = feature_scale(data, np.arange(4), standardize=True)
    targets = [np.arange(1, 3, dtype=np.int32)] * len(data)
    return Samples(data, targets, mean, scale, max_words=56, pad_token=0, **more)


def test_batches_of_volumes(tmp_path):
    data, whole = make(tmp_path / "data.h5")
    donors = donor_table(data, [np.arange(len(data))], 0).donor
    batch = make_batch(samples_of(data, donors=donors), [3, 10], (5, 4), 3)
    shapes = batch_shapes((5, 4), 3, data.feature_shape, "labels", "donor")
    assert {name: (v.shape, v.dtype) for name, v in batch.items()} == {n: (s.shape, s.dtype) for n, s in shapes.items()}
    np.testing.assert_array_equal(batch["features"][0, :L], whole[3:6])
    np.testing.assert_array_equal(batch["features"][1, :L], whole[FRAMES : FRAMES + L])
    assert not batch["features"][:, L:].any()
    np.testing.assert_array_equal(batch["donor"][0, :L], data.words(donors[3]))


def test_no_window_is_lent_to_one_that_shares_a_segment(tmp_path):
    data, _ = make(tmp_path / "data.h5")
    table = donor_table(data, [np.arange(20), np.arange(20, 40)], 3)
    assert (table.level == 0).all(), "the same subject and stimulus"
    apart = np.abs(data.sentence_index[table.donor] - data.sentence_index)
    assert (apart >= L).all()
    assert sorted(table.donor) == list(range(40)), "each window is lent once"


def test_every_condition_takes_volumes_as_it_takes_flat_features(tmp_path):
    data, whole = make(tmp_path / "data.h5")
    means, subject = train_means(data, np.arange(20))
    np.testing.assert_allclose(means[0], whole[: 2 * FRAMES].mean(0), atol=1e-6)
    np.testing.assert_allclose(means[0], means[1], atol=1e-6)  # the other subject is not in the train part
    rows = np.array([0, 12, 33])
    volumes = jnp.stack([jnp.asarray(data.words(i)) for i in rows])
    mask = jnp.arange(L)[None] < jnp.array([3, 2, 1])[:, None]
    context = ConditionContext(condition_key(1), jnp.asarray(rows, jnp.int32), jnp.zeros((), jnp.int32))
    for name in CONDITIONS:
        found = []
        for shape in ((-1,), GRID):
            own = context._replace(
                subject=jnp.asarray(subject[rows]), means=jnp.asarray(means).reshape(3, *shape),
                donor=volumes[::-1].reshape(3, L, *shape), clock=volumes[:, 0].reshape(3, -1),
                neighbor=volumes[::-1].reshape(3, L, *shape), kernel=jnp.asarray(whole[:4].reshape(4, -1)),
            )  # fmt: skip
            found.append(apply_condition(name, volumes.reshape(3, L, *shape), mask, own))
        assert found[1].shape == volumes.shape, name
        np.testing.assert_array_equal(found[0].reshape(volumes.shape), found[1], err_msg=name)
        assert not jnp.where(mask[:, :, None, None, None], 0, found[1]).any(), name


def test_the_file_says_what_it_is(tmp_path):
    make(tmp_path / "data.h5")
    with h5py.File(tmp_path / "data.h5", "r") as file:
        assert file.attrs["format"] == "eeg2text-volumes-2"
        assert set(json.loads(file.attrs["checksums"])) == {"features", "samples", "sentences", "frames", "about"}
        assert file["features"].chunks == (1, *GRID)


def test_halves_are_those_of_numpy():
    """All of them, and what lies between two: in the middle, the even one."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    found = from_half(halves)
    np.testing.assert_array_equal(found, halves.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(halves))
    values = np.sort(found[found >= 2.0**-14])
    middles = (values[1:] + values[:-1]) / np.float32(2)
    near = [np.nextafter(middles, np.float32(to)) for to in (0, np.inf)]
    values = np.concatenate([values, middles, *near])
    values = np.concatenate([values, -values])
    np.testing.assert_array_equal(to_half(values), values.astype(np.float16))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_frames_that_are_not_finite_are_refused(tmp_path, dtype):
    with VolumeWriter(tmp_path / "data.h5", GRID, dtype, "x") as writer:
        for wrong in (np.nan, np.inf, -np.inf):
            frames = np.full((2, *GRID), -60000.0)
            frames[1, 0, 2, 1] = wrong
            with pytest.raises(ValueError, match="frames are not finite"):
                writer.add_frames(frames)
        assert writer.add_frames(np.full((2, *GRID), -60000.0)) == 0
        assert writer.add_frames(np.zeros((1, *GRID))) == 2


@pytest.mark.parametrize(("odd", "named"), [("a\0b", "a NUL character"), ("a\ud800b", "no character")])
@pytest.mark.parametrize("field", ["sentence", "subject", "recording", "text_group"])
def test_a_text_of_a_window_that_hdf5_cannot_store_is_one_sentence(tmp_path, field, odd, named):
    texts = {"sentence": "one", "subject": "S1", "task": "t", "text_group": "g", "recording": "r"} | {field: odd}
    with (
        pytest.raises(UserError, match=f"{field} has .*{named}"),
        VolumeWriter(tmp_path / "x.h5", GRID, "float32", "") as w,
    ):
        w.add_window(w.add_frames(np.zeros((L, *GRID))), L, sentence_index=0, **texts)
    assert not [*tmp_path.iterdir()]
