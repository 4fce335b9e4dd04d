"""Encoders of waves: their interface, what padding changes, which channels they read, what they cost."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from test_properties import BARTISH, T5ISH, make_model
from tiny_run import tiny_config

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.backbones.build import brain_spec
from eeg2text_jax.models.functional import brain_flops, source_length
from eeg2text_jax.models.pretrained.folder import read_eeg, write_eeg
from eeg2text_jax.models.pretrained.wave_folder import unused_note
from eeg2text_jax.models.spec import WAVE_ENCODERS, Channels, EEGSpec
from eeg2text_jax.models.waves import Convolution, count_patches, cut, positions_of
from eeg2text_jax.training.sections import check_config, read_settings

NAMES = ("Fp1", "Cz", "E7", "T8")
CHANNELS = Channels(NAMES, 100.0, ((0.0, 0.1, 0.0), (0.0, 0.0, 0.1), (0.1, 0.0, 0.0), (0.0, -0.1, 0.0)))
KINDS = tuple(kind for kind in WAVE_ENCODERS if kind != "whisper")  # needs a checkpoint
WIDTHS = {"conv": 16, "labram": 32, "cbramod": 40, "reve": 16}
LENGTHS = (30, 64, 5)


def settings(kind: str, **changes: Any) -> Any:
    config = tiny_config(model__encoder=kind, model__encoder_width=WIDTHS[kind], model__encoder_layers=2)
    config.model.encoder_heads = 4
    config.model.waves.update({"patch": 16, "overlap": 4, "strides": (2, 2), **changes})
    return read_settings(config).model


def spec_of(kind: str, **changes: Any) -> EEGSpec:
    return brain_spec(settings(kind, **changes), 4, (), BARTISH.width, CHANNELS)


def recorded(length: int = 64) -> tuple[np.ndarray, np.ndarray]:
    samples = np.random.default_rng(0).normal(size=(3, length, 4)).astype(np.float32)
    return samples, np.arange(length)[None] < np.array(LENGTHS)[:, None]


@pytest.mark.parametrize("pool", [True, False], ids=["pooled", "each"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_behind_the_end_does_not_matter(kind: str, pool: bool) -> None:
    """Neither infinities at padding nor the width of the bucket; what is before the end does matter."""
    model = make_model(BARTISH, spec_of(kind, pool=pool))
    params = jax.jit(model.init)(jax.random.key(0))
    run = jax.jit(lambda x, mask: model._bind(params).eeg(x, mask))
    x, mask = recorded()
    spoilt = np.where(mask[..., None], x, np.inf)
    embeddings, seen = run(x, mask)
    assert embeddings.shape == (3, positions_of(model.eeg, 64), BARTISH.width)
    assert seen.shape == embeddings.shape[:2]
    np.testing.assert_array_equal(run(spoilt, mask)[0][seen], embeddings[seen])
    short = np.array([0, 2])  # 30 samples: two convolutions of stride 2 have an odd number of positions to read
    found, also = run(x[short, :30], mask[short, :30])
    np.testing.assert_allclose(found[also], embeddings[short][seen[short]], atol=3e-5)
    assert np.abs(run(np.roll(x, 1, axis=2), mask)[0] - embeddings)[seen].max() > 1e-3


@pytest.mark.quick("conv", "cbramod")  # LaBraM and REVE have its transformer layer
@pytest.mark.parametrize("kind", KINDS)
def test_training_is_one_function_with_and_without_remat(kind: str) -> None:
    """With dropout, in bfloat16; every parameter gets a gradient."""
    spec = dataclasses.replace(spec_of(kind), prompt=())
    x, mask = recorded()
    labels = jnp.ones((3, 4), jnp.int32)

    def loss(model: Any, params: Any) -> jax.Array:
        logits = model.forward(params, {"features": x, "mask": mask}, labels, dropout_key=jax.random.key(1))
        return jnp.square(logits).mean()

    gradients = []
    for remat in (False, True):
        model = dataclasses.replace(make_model(T5ISH, spec), remat=remat)
        params = jax.jit(model.init)(jax.random.key(0))
        gradients.append(jax.jit(jax.grad(lambda p, model=model: loss(model, p)))(params))
    for plain, again in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(plain, again, rtol=1e-3, atol=1e-6)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients[0]["eeg"]):
        used = np.asarray(leaf)[: count_patches(spec.waves, 64)] if path[0].key == "times" else np.asarray(leaf)
        assert np.abs(used).max() > 0 or "bias" in jax.tree_util.keystr(path), path
    half = dataclasses.replace(make_model(T5ISH, spec), dtype="bfloat16")
    assert np.isfinite(np.asarray(jax.jit(lambda p: loss(half, p))(params)))


@pytest.mark.parametrize(("taps", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (15, 8, 7), (49, 25, 24)])
def test_convolution_equals_torch(taps: int, stride: int, padding: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 200, 5)).astype(np.float32)
    theirs = torch.nn.Conv1d(5, 6, taps, stride, padding)
    ours = Convolution(5, 6, jnp.dtype("float32"), nnx.Rngs(0), taps=taps, stride=stride, padding=padding)
    ours.kernel, ours.bias = (nnx.Param(jnp.asarray(p.detach().numpy().T)) for p in (theirs.weight, theirs.bias))
    expected = theirs(torch.tensor(x.swapaxes(1, 2))).detach().numpy().swapaxes(1, 2)
    np.testing.assert_allclose(ours(jnp.asarray(x)), expected, atol=1e-5)


def test_patches_are_those_of_the_samples() -> None:
    """With an overlap, too; a patch counts if a sample of its own is real."""
    x = np.broadcast_to(np.arange(40.0, dtype=np.float32)[None, :, None], (3, 40, 4)) + 1
    mask = np.arange(40)[None] < np.array([[40], [16], [17]])
    waves = spec_of("reve").waves
    patches, real = cut(waves, jnp.asarray(x), jnp.asarray(mask), jnp.dtype("float32"))
    assert patches.shape == (3, 4, 3, 16)
    np.testing.assert_array_equal(patches[0, 0, 1], np.arange(13, 29))
    np.testing.assert_array_equal(real, [[True] * 3, [True, False, False], [True, True, False]])
    assert [count_patches(waves, n) for n in (1, 16, 17, 28, 29)] == [1, 1, 2, 2, 3]
    assert [count_patches(spec_of("labram").waves, n) for n in (1, 16, 17, 32)] == [1, 1, 2, 2]


def test_channels_are_found_by_name() -> None:
    eeg = spec_of("labram")
    assert eeg.waves.used == (0, 1, 3)
    assert eeg.waves.rows == (1, 42, 46)  # of their table, whose row 0 is that of its first token
    assert unused_note(eeg, CHANNELS) == "labram: reads 3 of 4 channels; unknown to it: E7."
    assert unused_note(spec_of("cbramod"), CHANNELS) == ""
    model = make_model(BARTISH, eeg)
    params = model.init(jax.random.key(0))
    x, mask = recorded()
    silent = x.copy()
    silent[:, :, 2] = 0.0
    run = jax.jit(lambda x: model._bind(params).eeg(x, mask)[0])
    np.testing.assert_array_equal(run(silent), run(x))


def test_channels_that_no_encoder_knows(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="finds channels by name, but the data states no names of its 4 channels"):
        brain_spec(settings("labram"), 4, (), 16)
    with pytest.raises(UserError, match=r"knows none of the channels E1, E2"):
        brain_spec(settings("labram"), 2, (), 16, Channels(("E1", "E2")))
    with pytest.raises(UserError, match=r"needs the places of channels, but the data has none"):
        brain_spec(settings("reve"), 4, (), 16, Channels(NAMES))
    path = tmp_path / "places.json"
    path.write_text(json.dumps({"CZ": [0, 0, 0.1], "fp1": [0, 0.1, 0]}))
    eeg = brain_spec(settings("reve", positions=str(path)), 4, (), 16, Channels(NAMES))
    assert (eeg.waves.used, eeg.waves.places) == ((0, 1), ((0.0, 0.1, 0.0), (0.0, 0.0, 0.1)))
    path.write_text('{"CZ": [0, 0]}')
    with pytest.raises(UserError, match=r"places.json: expected a JSON object of channel name to \[x, y, z\]"):
        brain_spec(settings("reve", positions=str(path)), 4, (), 16, Channels(NAMES))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder": "labram", "encoder_width": 28}, "expected a multiple of 8 for labram"),
        ({"encoder": "cbramod", "encoder_width": 48}, "expected a multiple of 40 for cbramod"),
        ({"encoder": "cbramod", "encoder_width": 4}, "expected a multiple of 40 for cbramod"),
        ({"encoder": "cbramod", "encoder_heads": 1}, "expected even numbers for cbramod"),
        ({"encoder": "reve", "encoder_width": 600}, "expected an even number up to 512 for reve"),
        ({"encoder": "reve", "encoder_width": 17}, "expected an even number up to 512 for reve"),
        ({"encoder": "conv", "encoder_width": 18}, "encoder_heads is 4, which does not divide the width 18 of conv"),
        ({"encoder": "whisper"}, "model.encoder_checkpoint is empty; expected a Whisper, or model.encoder=conv"),
    ],
)
def test_sizes_that_do_not_fit(fields: dict[str, Any], message: str) -> None:
    model = dataclasses.replace(
        settings(fields["encoder"]) if fields["encoder"] != "whisper" else settings("conv"), **fields
    )
    with pytest.raises(UserError, match=message):
        brain_spec(model, 4, (), 16, CHANNELS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder": "conv", "encoder_checkpoint": "x"}, "expected one of whisper, labram, cbramod, reve"),
        ({"encoder": "labram", "encoder_train": "frozen"}, "expected 'all', as the encoder's weights are random"),
        ({"backbone": "whisper", "prompt": "x"}, "expected '' with Whisper"),
        ({"backbone": "llama", "decoder_prompt": "x"}, "expected '' with a decoder-only model"),
    ],
)
def test_fields_that_contradict_each_other(fields: dict[str, Any], message: str) -> None:
    config = tiny_config()
    config.model.update(fields)
    with pytest.raises(UserError, match=message):
        check_config(config)


@pytest.mark.parametrize("kind", KINDS)
def test_a_description_survives_its_file(kind: str, tmp_path: Path) -> None:
    eeg = spec_of(kind)
    write_eeg(tmp_path, eeg, {"bridge": {"bias": np.zeros(2, np.float32)}})
    assert read_eeg(tmp_path)[0] == eeg


@pytest.mark.parametrize("pool", [True, False], ids=["pooled", "each"])
@pytest.mark.parametrize("kind", KINDS)
def test_flops_are_those_of_the_products(kind: str, pool: bool) -> None:
    """XLA counts the same of an unrolled program, but for the little that is no product."""
    model = dataclasses.replace(make_model(BARTISH, spec_of(kind, pool=pool)), unroll=True)
    inputs = jax.ShapeDtypeStruct((1, 512, 4), jnp.float32), jax.ShapeDtypeStruct((1, 512), bool)

    def run(params: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
        return model._bind(params).eeg(x, mask, unroll=True)[0]

    counted = jax.jit(run).lower(model.shapes, *inputs).compile().cost_analysis()["flops"]
    assert brain_flops(model.eeg, 512, BARTISH.width) == pytest.approx(counted, rel=0.25)
    assert source_length(model, 512) == positions_of(model.eeg, 512)
