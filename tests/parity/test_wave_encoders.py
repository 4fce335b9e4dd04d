"""LaBraM, CBraMod and REVE against braindecode on random small configurations, in both directions."""

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from safetensors.torch import load_file, save_file
from tiny_run import tiny_config

from eeg2text_jax.models.backbones.build import brain_spec
from eeg2text_jax.models.backbones.mapping import flatten, match, unflatten
from eeg2text_jax.models.brain import make_encoder
from eeg2text_jax.models.nnx_bridge import init_params, structure_of
from eeg2text_jax.models.pretrained.load import tensor_shapes
from eeg2text_jax.models.pretrained.wave_folder import wave_sources, wave_table, write_wave_encoder
from eeg2text_jax.models.spec import Channels, EEGSpec
from eeg2text_jax.models.waves import LABRAM_CHANNELS
from eeg2text_jax.training.sections import read_settings

OUTPUTS, GRADIENTS, WIDTH = 1e-5, 1e-4, 12
KINDS = ("labram", "cbramod", "reve")


@pytest.fixture(scope="module")
def braindecode(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """braindecode's models; REVE finds made-up places of electrodes in place of a download."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "reve_positions.json").write_text(json.dumps({"CZ": [0.0, 0.0, 0.1]}))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("REVE_POSITIONS_PATH", str(folder))
        patch.setenv("HOME", str(folder))
        yield pytest.importorskip("braindecode.models", exc_type=ImportError)


class Pair(NamedTuple):
    theirs: torch.nn.Module
    eeg: EEGSpec
    params: dict[str, Any]
    folder: Path
    channels: Channels


def random_fields(kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """The arguments of braindecode's class, over all that we implement."""

    def one_of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    patches, heads, layers = int(rng.integers(2, 5)), int(one_of(2, 4)), int(rng.integers(1, 4))
    fields = {"n_outputs": 3, "n_chans": int(rng.integers(2, 6)), "sfreq": 200.0}
    if kind == "labram":
        patch, filters = one_of((16, 8), (24, 8), (40, 4), (20, 8))
        norm = "torch.nn.modules.normalization.LayerNorm"
        return fields | {
            "n_times": patch * patches, "patch_size": patch, "conv_out_channels": filters, "num_layers": layers,
            "num_heads": one_of(2, 4), "mlp_ratio": one_of(4.0, 1.3), "qkv_bias": one_of(True, False),
            "qk_norm": one_of(norm, None), "qk_scale": one_of(None, 0.3), "init_values": one_of(0.1, None),
            "use_abs_pos_emb": one_of(True, True, False), "use_mean_pooling": one_of(True, False),
            "attn_head_dim": one_of(None, 5),
        }  # fmt: skip
    if kind == "cbramod":  # its code needs patches of 200 samples
        filters = int(one_of(10, 5))
        convolutions = [
            (filters, 49, 25, 24, (5, filters)),
            *[(filters, 3, 1, 1, (5, filters))] * int(rng.integers(0, 3)),
        ]
        return fields | {
            "n_times": 200 * patches, "n_layer": layers, "nhead": heads, "dim_feedforward": 24,
            "emb_dim": int(one_of(8, 20)), "channels_kernel_stride_padding_norm": convolutions,
            "return_encoder_output": True,
        }  # fmt: skip
    patch, overlap = one_of((20, 2), (16, 0), (24, 9))
    return fields | {
        "n_times": patch + (patch - overlap) * (patches - 1), "patch_size": patch, "patch_overlap": overlap,
        "embed_dim": int(one_of(16, 26)), "depth": layers, "heads": heads, "head_dim": int(one_of(4, 6)),
        "mlp_dim_ratio": one_of(2.66, 1.5), "use_geglu": one_of(True, False), "freqs": int(one_of(3, 4)),
    }  # fmt: skip


def make_theirs(models: Any, kind: str, fields: dict[str, Any]) -> torch.nn.Module:
    name = {"labram": "Labram", "cbramod": "CBraMod", "reve": "REVE"}[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(models, name).from_config(fields).eval()


def our_spec(folder: Path, kind: str, channels: Channels) -> EEGSpec:
    config = tiny_config()
    config.model.update({"encoder": kind, "encoder_checkpoint": str(folder), "dropout": 0.0})
    config.model.waves.pool = False
    return brain_spec(read_settings(config).model, len(channels.names), (), WIDTH, channels)


def make_pair(models: Any, kind: str, seed: int, folder: Path) -> Pair:
    """A model of theirs whose every parameter is random, in a folder, and ours read from it."""
    rng = np.random.default_rng(seed)
    fields = random_fields(kind, rng)
    torch.manual_seed(seed)
    theirs = make_theirs(models, kind, fields)
    with torch.no_grad():
        for tensor in theirs.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.1)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(theirs.get_config()))
    if seed % 2:
        torch.save(theirs.state_dict(), folder / "pytorch_model.bin")
    else:
        save_file(theirs.state_dict(), folder / "model.safetensors")
    names = tuple(str(name) for name in rng.choice(LABRAM_CHANNELS, fields["n_chans"], replace=False))
    places = tuple(tuple(map(float, place)) for place in rng.normal(0, 0.1, (fields["n_chans"], 3)))
    channels = Channels(tuple(map(str.title, names)), 200.0, places)
    eeg = our_spec(folder, kind, channels)
    params = init_params(lambda rngs: make_encoder(eeg, WIDTH, jnp.dtype("float32"), rngs), jax.random.key(seed))
    return Pair(theirs, eeg, loaded(eeg, params, str(folder)), folder, channels)


def loaded(eeg: EEGSpec, params: dict[str, Any], folder: str) -> dict[str, Any]:
    """The parameters with those of a folder; all but the bridge must be there."""
    found = wave_sources(eeg, folder, tensor_shapes({"eeg": params}))
    flat = flatten({"eeg": params})
    assert {path for path in flat if path not in found} == {"eeg/bridge/kernel", "eeg/bridge/bias"}
    arrays = {path: np.stack(s.pieces) if s.stacked else np.asarray(s.pieces[0]) for path, s in found.items()}
    return unflatten({path: jnp.asarray(arrays.get(path, leaf)) for path, leaf in flat.items()})["eeg"]


def our_tokens(eeg: EEGSpec, params: dict[str, Any], samples: np.ndarray, mask: np.ndarray | None = None) -> jax.Array:
    structure, _ = structure_of(lambda rngs: make_encoder(eeg, WIDTH, jnp.dtype("float32"), rngs))
    mask = np.ones(samples.shape[:2], bool) if mask is None else mask
    return nnx.merge(structure, params).tokens(jnp.asarray(samples), jnp.asarray(mask))[0]


def their_tokens(pair: Pair, samples: np.ndarray) -> torch.Tensor:
    """Patches `[B, C, P, E]`."""
    waves = torch.tensor(samples.swapaxes(1, 2))
    if pair.eeg.kind == "labram":
        found = pair.theirs(waves, return_features=True, ch_names=list(pair.channels.names))["features"]
        return found.reshape(len(samples), samples.shape[2], -1, found.shape[-1])
    if pair.eeg.kind == "reve":
        places = torch.tensor(pair.channels.places, dtype=torch.float32)
        return pair.theirs(waves, pos=places.expand(len(samples), -1, -1), return_features=True)["features"]
    return pair.theirs(waves, return_features=True)["features"]


def recordings(pair: Pair, seed: int) -> np.ndarray:
    n_times = json.loads((pair.folder / "config.json").read_text())["n_times"]
    return np.random.default_rng(seed).normal(size=(2, n_times, pair.eeg.features)).astype(np.float32)


@pytest.mark.quick("0-labram", "1-labram", "0-cbramod", "1-cbramod", "0-reve", "1-reve")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10))
def test_outputs_gradients_and_folders(braindecode: Any, kind: str, seed: int, tmp_path: Path) -> None:
    pair = make_pair(braindecode, kind, seed, tmp_path / "theirs")
    samples = recordings(pair, seed)
    expected = their_tokens(pair, samples)
    weight = np.random.default_rng(1).normal(size=expected.shape).astype(np.float32)
    (expected * torch.tensor(weight)).mean().backward()

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        tokens = our_tokens(pair.eeg, params, samples)
        return (tokens * weight).mean(), tokens

    gradient, tokens = jax.jit(jax.grad(loss, has_aux=True))(pair.params)
    largest = float(expected.abs().max())
    assert np.abs(np.asarray(tokens) - expected.detach().numpy()).max() < OUTPUTS * max(1.0, largest)
    named = dict(pair.theirs.named_parameters())
    tensors = {
        name: (torch.zeros_like(each) if each.grad is None else each.grad).numpy() for name, each in named.items()
    }
    of_theirs = match(wave_table(pair.eeg), tensors, tensor_shapes({"eeg": pair.params}), "gradients")
    ours = flatten({"eeg": gradient})
    for path, source in of_theirs.items():
        theirs = np.stack(source.pieces) if source.stacked else source.pieces[0]
        assert np.abs(np.asarray(ours[path]) - theirs).max() < GRADIENTS * max(1.0, np.abs(theirs).max()), path
    _there_and_back(braindecode, pair, kind, samples, expected.detach().numpy(), tmp_path / "ours")


def _there_and_back(
    models: Any, pair: Pair, kind: str, samples: np.ndarray, expected: np.ndarray, folder: Path
) -> None:
    """Our folder loads there, with the classifier alone missing, and gives the same; and it loads here again."""
    write_wave_encoder(folder, pair.eeg, pair.params, samples.shape[1])
    fields = json.loads((folder / "config.json").read_text())
    theirs = make_theirs(models, kind, fields)
    found = load_file(folder / "model.safetensors")
    missing, unexpected = theirs.load_state_dict(found, strict=False)
    assert not unexpected
    assert all(name.startswith("final_layer") for name in missing)
    again = their_tokens(pair._replace(theirs=theirs, folder=folder), samples).detach().numpy()
    np.testing.assert_allclose(again, expected, rtol=0, atol=1e-6 * max(1.0, np.abs(expected).max()))
    assert our_spec(folder, kind, pair.channels) == pair.eeg
    for path, leaf in flatten(loaded(pair.eeg, pair.params, str(folder))).items():
        np.testing.assert_array_equal(leaf, flatten(pair.params)[path])


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(braindecode: Any, kind: str, tmp_path: Path) -> None:
    """What lies behind the end of a recording, and how much of it, is not seen; nor is a part of a patch lost."""
    pair = make_pair(braindecode, kind, 4, tmp_path / "theirs")
    samples = recordings(pair, 0)
    tokens = np.asarray(our_tokens(pair.eeg, pair.params, samples))
    if kind == "labram":  # a longer table of times
        pair.params["times"] = jnp.pad(pair.params["times"], ((0, 4), (0, 0)), constant_values=9.0)
    step = pair.eeg.waves.patch - pair.eeg.waves.overlap
    behind = np.random.default_rng(3).normal(size=(2, 2 * step, samples.shape[2])).astype(np.float32) * 100
    longer = np.concatenate([samples, behind], axis=1)
    mask = np.arange(longer.shape[1])[None] < np.array([[samples.shape[1]], [samples.shape[1]]])
    found = np.asarray(our_tokens(pair.eeg, pair.params, longer, mask))[:, :, : tokens.shape[2]]
    np.testing.assert_allclose(found, tokens, atol=2e-5 * max(1.0, np.abs(tokens).max()))
    short = samples[:, : samples.shape[1] - step + 1]  # one sample of the last patch is left
    filled = np.concatenate([short, np.zeros((2, step - 1, short.shape[2]), np.float32)], axis=1)
    np.testing.assert_allclose(
        our_tokens(pair.eeg, pair.params, short), our_tokens(pair.eeg, pair.params, filled), atol=2e-5
    )
