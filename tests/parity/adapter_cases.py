"""Small random decoder-only models with a bridge and adapters, in PyTorch with PEFT and ours, with the same weights."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from causal_cases import random_pair
from torch_reference import Pair

from eeg2text_jax.base.devices.arms import Divided
from eeg2text_jax.models.backbones import LORA_TARGETS
from eeg2text_jax.models.backbones.decoder_only import PROJECTIONS
from eeg2text_jax.models.functional import Seq2SeqModel, divide
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.spec import EEGSpec, LoraSpec

FEATURES, WORDS, TARGET, SIZE = 12, 6, 5, 4


class Adapted(NamedTuple):
    """The same model twice: `theirs` is the PEFT model and the layers of the bridge."""

    pair: Pair
    theirs: torch.nn.ModuleDict
    model: Seq2SeqModel
    params: Divided


class Rows(NamedTuple):
    """Recordings of different lengths, with random numbers in the padding, and labels padded at the end."""

    features: np.ndarray  # [B, W, F]
    mask: np.ndarray  # [B, W] bool
    labels: np.ndarray  # [B, T]


def random_adapted(family: str, seed: int) -> Adapted:
    """One configuration of a family with random adapters, prompt and bridge."""
    rng = np.random.default_rng([seed, 35])
    pair = random_pair(family, seed)
    names = [name for name in LORA_TARGETS if rng.random() < 0.6] or ["q_proj"]
    targets = tuple(LORA_TARGETS[name] for name in names)
    lora = LoraSpec(int(rng.integers(1, 5)), float(rng.integers(1, 9)), 0.0, targets)
    prompt = rng.integers(3, pair.model.spec.vocab_size, int(rng.integers(0, 5))).tolist()
    cut = int(rng.integers(0, len(prompt) + 1))
    before, after = tuple(prompt[:cut]), tuple(prompt[cut:])
    eeg = EEGSpec(FEATURES, layers=0, width=8, dropout=0.0, prompt=before, prompt_after=after)
    spec = pair.model.spec
    spec = dataclasses.replace(spec, decoder=dataclasses.replace(spec.decoder, lora=lora))
    model = Seq2SeqModel(spec, eeg, shared_frozen=True, remat=bool(seed % 2))
    theirs = _with_peft(pair, lora, names, seed)
    own = divide(model.shapes)[0]
    return Adapted(pair, theirs, model, Divided(from_torch(theirs, own, "value"), pair.params))


def _with_peft(pair: Pair, lora: LoraSpec, names: list[str], seed: int) -> torch.nn.ModuleDict:
    """PyTorch's model with adapters whose both factors are random, and the two layers of the bridge."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=names, bias="none")
    project, bridge = torch.nn.Linear(FEATURES, 8), torch.nn.Linear(8, pair.model.spec.d_model)
    whole = torch.nn.ModuleDict({"lm": get_peft_model(pair.theirs, config), "project": project, "bridge": bridge})
    with torch.no_grad():
        for name, tensor in whole.named_parameters():
            if "lora_" in name:
                tensor.copy_(torch.randn_like(tensor) * 0.3)
    return whole.eval()


def from_torch(theirs: torch.nn.ModuleDict, shapes: Params, what: str) -> Params:
    """Values, or gradients (`what="grad"`), of what PyTorch trains, as a tree like `shapes`."""

    def read(tensor: torch.Tensor) -> np.ndarray:
        return (tensor.detach() if what == "value" else tensor.grad).numpy().T

    def leaf(path: tuple, shape: jax.ShapeDtypeStruct) -> jax.Array:
        names = [key.key for key in path]
        if names[0] == "eeg":
            return jnp.asarray(read(getattr(theirs[names[1]], "weight" if names[2] == "kernel" else "bias")))
        layers = theirs["lm"].base_model.model.model.layers
        modules = [layer.get_submodule(PROJECTIONS[names[-2]]) for layer in layers]
        part = {"lora_a": "lora_A", "lora_b": "lora_B"}[names[-1]]
        return jnp.asarray(np.stack([read(getattr(module, part)["default"].weight) for module in modules]))

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def random_rows(adapted: Adapted, seed: int) -> Rows:
    """A batch for `adapted`."""
    rng = np.random.default_rng([seed, 36])
    words = rng.integers(1, WORDS + 1, SIZE)
    tokens = rng.integers(1, TARGET + 1, SIZE)
    spec = adapted.model.spec
    labels = rng.integers(3, spec.vocab_size, (SIZE, TARGET))
    return Rows(
        rng.normal(size=(SIZE, WORDS, FEATURES)).astype(np.float32),
        np.arange(WORDS)[None] < words[:, None],
        np.where(np.arange(TARGET)[None] < tokens[:, None], labels, spec.pad_token).astype(np.int32),
    )


def their_logits(adapted: Adapted, rows: Rows) -> torch.Tensor:
    """PyTorch's logits `[B, T, V]`: every row built by itself and padded on the left with zeros."""
    lm, eeg = adapted.theirs["lm"], adapted.model.eeg
    embed = lm.get_input_embeddings()
    sequences = []
    for features, mask, labels in zip(*rows, strict=True):
        fed = torch.relu(adapted.theirs["bridge"](adapted.theirs["project"](torch.tensor(features[mask]))))
        text = torch.tensor(np.minimum(labels[:-1], adapted.model.spec.vocab_size - 1)).long()
        before, after = (embed(torch.tensor(ids, dtype=torch.long)) for ids in (eeg.prompt, eeg.prompt_after))
        sequences.append(torch.cat([before, fed, after, embed(text)]))
    longest = max(map(len, sequences))
    padded = torch.stack([torch.nn.functional.pad(s, (0, 0, longest - len(s), 0)) for s in sequences])
    real = torch.stack([torch.arange(longest) >= longest - len(s) for s in sequences]).long()
    places = (real.cumsum(-1) - 1).clamp(min=0)
    return lm(inputs_embeds=padded, attention_mask=real, position_ids=places).logits[:, -TARGET:]


def their_step(adapted: Adapted, logits: torch.Tensor, rows: Rows, lr: float, decay: float, clip: float) -> Any:
    """PyTorch's loss, gradients and norm, and what one step of its AdamW leaves of the trained parameters."""
    spec, own = adapted.model.spec, adapted.params.own
    labels = np.where(rows.labels == spec.pad_token, -100, rows.labels)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels).long().flatten())
    loss.backward()
    trained = [p for p in adapted.theirs.parameters() if p.requires_grad]
    gradients = from_torch(adapted.theirs, own, "grad")
    gradients = jax.tree.map(np.array, gradients)
    norm = torch.nn.utils.clip_grad_norm_(trained, clip)
    torch.optim.AdamW(trained, lr=lr, weight_decay=decay).step()
    return loss.item(), gradients, norm.item(), from_torch(adapted.theirs, own, "value")
