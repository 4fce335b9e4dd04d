"""The same training in PyTorch: our weights, the same batches, AdamW with the same settings.

The EEG encoder is `nn.TransformerEncoder` (post-norm, ReLU) and `relu(nn.Linear)` as in the paper's code, the language
model transformers' BART, fed through `inputs_embeds`.
"""

import importlib
from typing import Any

import numpy as np

from eeg2text_jax.bench.peers import torch_bart
from eeg2text_jax.data.batches import Batch
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.pretrained import bart as bart_table
from eeg2text_jax.pretrained.mapping import export, flatten


class TorchTraining:
    """A PyTorch model in training.

    Args:
      config: `BartConfig` of the backbone.
      model: ours, whose shape it has.
      params: ours, of one arm, as NumPy arrays.
      optimizer: settings of `config.optim`.

    Raises:
      UserError: torch is not installed.
    """

    def __init__(self, config: Any, model: Seq2SeqModel, params: dict[str, Any], optimizer: dict[str, Any]):
        backbone = flatten({"backbone": params["backbone"]})
        self._bart = torch_bart(config, export(bart_table.table(model.spec), backbone))
        self._torch = torch = importlib.import_module("torch")
        self._pad, self._clip = model.pad_token, optimizer["grad_clip"]
        self._encoder, self._bridge = _eeg_encoder(torch, model, params["eeg"])
        modules = torch.nn.ModuleList([self._bart, self._encoder, self._bridge])
        self._parameters = [p for p in modules.parameters() if p.requires_grad]
        self._modules = modules
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=optimizer["lr"], weight_decay=optimizer["weight_decay"], fused=True
        )

    def first_loss(self, batch: Batch) -> float:
        """Loss in nats per token without dropout."""
        self._modules.eval()
        with self._torch.no_grad():
            return float(self._loss(self._tensors(batch)))

    def step(self, batch: Batch) -> float:
        """One update with dropout."""
        self._modules.train()
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._loss(self._tensors(batch))
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self._parameters, self._clip)
        self._optimizer.step()
        return float(loss.detach())

    def _tensors(self, batch: Batch) -> dict[str, Any]:
        return {name: self._torch.from_numpy(batch[name]) for name in ("features", "mask", "labels")}

    def _loss(self, batch: dict[str, Any]) -> Any:
        hidden = self._encoder(batch["features"], src_key_padding_mask=~batch["mask"])
        embeddings = self._torch.relu(self._bridge(hidden))
        labels = batch["labels"].long().masked_fill(batch["labels"] == self._pad, -100)
        out = self._bart(inputs_embeds=embeddings, attention_mask=batch["mask"].long(), labels=labels, use_cache=False)
        return out.loss


def _eeg_encoder(torch: Any, model: Seq2SeqModel, params: dict[str, Any]) -> tuple[Any, Any]:
    """PyTorch's encoder and bridge with our weights."""
    eeg, width = model.eeg, model.eeg.features
    layer = torch.nn.TransformerEncoderLayer(width, eeg.heads, eeg.ffn, eeg.dropout, "relu", batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, eeg.layers, enable_nested_tensor=False)
    bridge = torch.nn.Linear(width, model.spec.d_model)
    stacked = params["encoder"]["layers"]
    with torch.no_grad():
        for number, theirs in enumerate(encoder.layers):
            for name, array in _layer_tensors(stacked, number).items():
                theirs.get_parameter(name).copy_(torch.tensor(array))
        bridge.weight.copy_(torch.tensor(np.asarray(params["bridge"]["kernel"]).T))
        bridge.bias.copy_(torch.tensor(np.asarray(params["bridge"]["bias"])))
    return encoder, bridge


def _layer_tensors(stacked: dict[str, Any], number: int) -> dict[str, np.ndarray]:
    """Tensors of one layer by PyTorch's names; theirs are transposed, and one holds queries, keys and values."""
    attention, ffn = stacked["self_attention"], stacked["ffn"]
    parts = [attention[part] for part in ("query", "key", "value")]
    tensors = {
        "self_attn.in_proj_weight": np.concatenate([part["kernel"][number].T for part in parts]),
        "self_attn.in_proj_bias": np.concatenate([part["bias"][number] for part in parts]),
    }
    dense = {"self_attn.out_proj": attention["out"], "linear1": ffn["inner"], "linear2": ffn["outer"]}
    for name, ours in dense.items():
        tensors |= {f"{name}.weight": ours["kernel"][number].T, f"{name}.bias": ours["bias"][number]}
    for name, ours in {"norm1": stacked["self_norm"], "norm2": stacked["ffn_norm"]}.items():
        tensors |= {f"{name}.weight": ours["scale"][number], f"{name}.bias": ours["bias"][number]}
    return {name: np.ascontiguousarray(array) for name, array in tensors.items()}
