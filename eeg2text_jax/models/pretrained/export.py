"""Write our parameters to a folder that `transformers` loads, with the brain encoder and a model card."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import replacing
from eeg2text_jax.models.backbones.build import backbone_module
from eeg2text_jax.models.backbones.mapping import export
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.pretrained.folder import (
    Feeding,
    write_adapter,
    write_eeg,
    write_feeding,
    write_safetensors,
    write_sums,
)
from eeg2text_jax.models.pretrained.load import backbone_table
from eeg2text_jax.models.pretrained.wave_folder import CLASSES, write_wave_encoder


def export_checkpoint(
    model: Seq2SeqModel,
    params: Params,
    config: PretrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    out: str | Path,
    card: str,
    *,
    generation: Mapping[str, Any] | None = None,
    feeding: Feeding | None = None,
    rate: float = 0.0,
) -> None:
    """Write everything that decoding needs into a new folder, atomically.

    It holds configuration, weights and tokenizer in transformers' format; the brain encoder, if any, and how it is fed;
    a model card; and `SHA256SUMS`, which are checked when the folder is read.

    Args:
      params: parameters of one arm. Of a frozen language model (`feeding.base` is its checkpoint), only adapters are
        written, in PEFT's format.
      config: the Hugging Face configuration that `model.spec` was read from.
      card: README.md of the folder, from `model_card`.
      generation: content of generation_config.json, from `GenerationSpec.to_fields`.
      rate: samples a second of waves; 0: not known.

    Raises:
      UserError: the folder exists and is not empty, or cannot be written.
    """
    out = Path(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: exists already; give --out a new folder.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as partial:
            partial.mkdir()
            folder = Path(partial)
            if feeding is None or not feeding.base:
                module, tensors = backbone_module(model.spec.backbone), export(backbone_table(model.spec), params)
                tensors |= module.only_exported(model.spec, config) if hasattr(module, "only_exported") else {}
                write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
                (folder / "config.json").write_text(_config_json(model, config), encoding="utf8")
            elif model.spec.adapters is not None:
                write_adapter(folder, model.spec, backbone_table(model.spec), params, feeding.base)
            if model.eeg is not None:
                write_eeg(folder, model.eeg, params["eeg"])
                if model.eeg.kind in CLASSES:
                    samples = feeding.max_words if feeding is not None else 0
                    write_wave_encoder(folder / "encoder", model.eeg, params["eeg"], samples, rate)
            if feeding is not None:
                write_feeding(folder, feeding)
            tokenizer.save_pretrained(str(folder))
            if generation is not None:
                settings = {name: value for name, value in generation.items() if value != model.spec.vocab_size}
                (folder / "generation_config.json").write_text(_json(settings), encoding="utf8")
            write_sums(folder)
            (folder / "README.md").write_text(card, encoding="utf8")
    except OSError as error:
        raise UserError(f"{out}: cannot be written ({error.strerror or error}).") from error


def _config_json(model: Seq2SeqModel, config: PretrainedConfig) -> str:
    fields = json.loads(config.to_json_string(use_diff=False))
    fields |= {"architectures": [backbone_module(model.spec.backbone).ARCHITECTURE], "dtype": "float32"}
    if prompt := model.spec.decoder_prompt:
        fields["forced_decoder_ids"] = [[place, token] for place, token in enumerate(prompt, 1)]
    if not model.spec.tied_head:
        # transformers 5 writes true even for T5 1.1, and older versions would then tie the head.
        fields["tie_word_embeddings"] = False
    return _json(fields)


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=2, sort_keys=True) + "\n"


@dataclasses.dataclass(frozen=True)
class CardFacts:
    """The content of a model card (README.md of an export); empty strings are left out."""

    name: str
    backbone: str
    started_from: str = ""
    arm: str = ""
    data: str = ""
    features: str = ""
    n_features: int = 0  # F, numbers per word; 0: there is no brain encoder
    base: str = ""  # checkpoint of the frozen language model that is not in the folder
    lora: bool = False  # the folder has low-rank adapters of the frozen language model
    int8: bool = False  # the run rounded the kernels of the frozen language model to int8
    alone: bool = False  # the language model is decoder-only
    encoder: bool = False  # the brain encoder is there in braindecode's format, too
    split: str = ""
    config_hash: str = ""
    scores: Sequence[Mapping[str, Any]] = ()  # rows of one table, column -> value
    signatures: Mapping[str, str] = dataclasses.field(default_factory=dict)  # how each metric was computed
    verdict: str = ""  # of the run's audit, with its sentence


_USE_EEG = """\
Raw features to text, as the run decoded them (standardization, prompt and settings are in this folder):

```python
import numpy as np
from eeg2text_jax import load_export

exported = load_export(".")  # this folder, or its name on the Hub
rng = np.random.default_rng(0)  # random numbers; put your recordings here, [words, {features}] each
recordings = [rng.normal(exported.feeding.mean, exported.feeding.scale, (words, {features})) for words in (9, 14)]
print(exported.decode(recordings))
```
"""

_USE_TEXT = """\
The language model alone, in PyTorch:

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")
tokens = tokenizer("A sentence.", return_tensors="pt")
print(tokenizer.batch_decode(model.generate(tokens.input_ids), skip_special_tokens=True))
```
"""

_USE_BASE = """\
In PyTorch, from the prompt with the recording in it:

```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("{base}", dtype=torch.float32)
{adapter}x, mask = exported.prompts(recordings)
tokens = model.generate(
    inputs_embeds=torch.tensor(x), attention_mask=torch.tensor(mask).long(), **exported.generation.to_new_tokens()
)
print(exported.tokenizer.batch_decode(tokens, skip_special_tokens=True))
```
"""

_USE_HIDDEN = """\
In PyTorch, from what its encoder makes of a recording:

```python
import torch
from transformers import AutoModelFor{kind}, GenerationMixin
from transformers.modeling_outputs import BaseModelOutput

model = AutoModelFor{kind}.from_pretrained("{base}", dtype=torch.float32)
{adapter}settings = {{**exported.generation.to_fields(), "pad_token_id": exported.generation.eos_token_id[0]}}
ids = [settings.pop("decoder_start_token_id"), *exported.generation.decoder_prompt]
settings.pop("forced_decoder_ids", None)
for recording in recordings:
    hidden = BaseModelOutput(torch.tensor(exported.prompts([recording])[0]))
    tokens = GenerationMixin.generate(model, encoder_outputs=hidden, decoder_input_ids=torch.tensor([ids]), **settings)
    print(exported.tokenizer.batch_decode(tokens, skip_special_tokens=True))
```
"""

_CAUTION = """\
A score under EEG alone says nothing about decoding: compare it with the same model's score when it is fed noise,
and see the audit report of the run. Teacher-forced rows were computed with the reference in the decoder's input."""


def model_card(facts: CardFacts) -> str:
    """Return the Markdown of a model card, with the front matter that model hubs read."""
    about = {
        "Backbone": facts.backbone, "Started from": facts.started_from, "Trained on": facts.arm, "Data": facts.data,
        "Features": facts.features, "Split hash": facts.split, "Configuration hash": facts.config_hash,
    }  # fmt: skip
    lines = ["---", "library_name: transformers", "tags: [eeg-to-text, eeg2text_jax]", "---", "", f"# {facts.name}", ""]
    lines += ["EEG encoder, bridge and language model, trained with eeg2text_jax.", ""]
    lines += [f"- {name}: {value}" for name, value in about.items() if value]
    if facts.verdict:
        lines += ["", "## Does the model use the recordings?", "", facts.verdict]
    if facts.scores:
        lines += ["", "## Scores on the test part", "", *_table(facts.scores), "", _CAUTION]
    if facts.signatures:
        lines += ["", *(f"- {metric}: `{signature}`" for metric, signature in facts.signatures.items())]
    model = "- `config.json`, `model.safetensors`, tokenizer files: the language model, as transformers loads it"
    if facts.base:
        model = f"- tokenizer files; the frozen language model is {facts.base}"
    if facts.lora:
        model += ", its adapters are `adapter_config.json` and `adapter_model.safetensors`, as PEFT loads them"
    files = [model, "- `generation_config.json`: settings of decoding"]
    files += ["- `SHA256SUMS`: checksums, which loading compares (`sha256sum -c SHA256SUMS`)"]
    if facts.n_features:
        files += [
            "- `eeg_encoder.safetensors`: EEG encoder and bridge; its header says how they are built",
            *(["- `encoder`: the brain encoder in braindecode's format"] if facts.encoder else []),
            "- `eeg2text.json`: how raw features are cut and standardized before they enter the EEG encoder",
        ]
    whisper = facts.backbone == "whisper"
    adapter = 'from peft import PeftModel\n\nmodel = PeftModel.from_pretrained(model, ".")\n' if facts.lora else ""
    if whisper or (facts.base and not facts.alone):
        kind = "SpeechSeq2Seq" if whisper else "Seq2SeqLM"
        text = _USE_HIDDEN.format(base=facts.base or ".", adapter=adapter, kind=kind)
    elif facts.base:
        text = _USE_BASE.format(base=facts.base, adapter=adapter)
        if facts.int8:
            text += (
                "\nThe run kept the kernels of this language model in int8, as `load_export` does. The code above uses "
                "the unrounded checkpoint, so its texts may differ.\n"
            )
    else:
        text = _USE_TEXT.replace("AutoModelForSeq2SeqLM", "AutoModelForCausalLM") if facts.alone else _USE_TEXT
    use = [*([_USE_EEG.format(features=facts.n_features)] if facts.n_features else []), text]
    return "\n".join([*lines, "", "## Files", "", *files, "", "## Use", "", *use])


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = list(rows[0])
    cells = [[f"{row[c]:.2f}" if isinstance(row[c], float) else str(row[c]) for c in columns] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in (columns, ["---"] * len(columns), *cells)]
