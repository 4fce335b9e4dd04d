"""Our parameters -> a folder that `transformers` loads in PyTorch, with the EEG encoder in a file beside it."""

import json
from pathlib import Path

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import replacing
from eeg2text_jax.models.build import backbone_module
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.pretrained.eeg_file import write_eeg
from eeg2text_jax.pretrained.load import backbone_table
from eeg2text_jax.pretrained.mapping import export
from eeg2text_jax.pretrained.write import write_safetensors


def export_checkpoint(
    model: Seq2SeqModel,
    params: Params,
    config: PretrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    out: str | Path,
    card: str,
) -> None:
    """Writes configuration, weights, tokenizer, EEG encoder (if the model has one) and model card into a new folder.

    The folder appears under its name only when everything is in it.

    Args:
      model: what the parameters are of.
      params: of one arm.
      config: the Hugging Face configuration that `model.spec` was read from.
      tokenizer: goes into the folder as it is.
      out: the folder; it must not exist, or be empty.
      card: README.md of the folder, from `card.model_card`.

    Raises:
      UserError: the folder is there already, or cannot be written.
    """
    out = Path(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: exists already; give --out a new folder.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as partial:
            partial.mkdir()
            tensors = export(backbone_table(model.spec), params)
            write_safetensors(Path(partial) / "model.safetensors", tensors, {"format": "pt"})
            if model.eeg is not None:
                write_eeg(Path(partial), model.eeg, params["eeg"])
            tokenizer.save_pretrained(str(partial))
            (partial / "config.json").write_text(_config_json(model, config), encoding="utf8")
            (partial / "README.md").write_text(card, encoding="utf8")
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror or error}).") from error


def _config_json(model: Seq2SeqModel, config: PretrainedConfig) -> str:
    fields = json.loads(config.to_json_string(use_diff=False))
    fields |= {"architectures": [backbone_module(model.spec.backbone).ARCHITECTURE], "dtype": "float32"}
    if not model.spec.tied_head:
        # T5 1.1: transformers 5 writes true here whatever the model is, and older versions believe it.
        fields["tie_word_embeddings"] = False
    return json.dumps(fields, indent=2, sort_keys=True) + "\n"
