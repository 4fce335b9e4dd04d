"""Small random PyTorch models and the same weights in ours, for the tests of parity."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers

from eeg2text_jax.models.backbones.build import backbone_module
from eeg2text_jax.models.backbones.mapping import flatten, match, unflatten
from eeg2text_jax.models.functional import Seq2SeqModel

CLASSES = {
    "bart": transformers.BartForConditionalGeneration,
    "pegasus": transformers.PegasusForConditionalGeneration,
    "t5": transformers.T5ForConditionalGeneration,
    "bert2bert": transformers.EncoderDecoderModel,
}
DECODERS = ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Gemma3")
CLASSES |= {name.lower(): getattr(transformers, f"{name}ForCausalLM") for name in DECODERS}


class Case(NamedTuple):
    """A backbone and the fields of its random configuration."""

    backbone: str
    fields: dict[str, Any]


class Pair(NamedTuple):
    """The same weights twice."""

    theirs: torch.nn.Module
    model: Seq2SeqModel
    params: dict[str, Any]
    table: Any


def make_pair(case: Case, seed: int = 0) -> Pair:
    """A PyTorch model whose every parameter and buffer is random, norms and biases too, and ours with its weights."""
    backbone = backbone_module(case.backbone)
    config = backbone.random_config(case.fields)
    torch.manual_seed(seed)
    theirs = CLASSES[case.backbone](config).eval()
    spec = backbone.spec_from_config(config)
    if not spec.tied_head and spec.encoder:  # transformers 5 ties what it makes; T5 v1.1 files hold a head of their own
        theirs.lm_head.weight = torch.nn.Parameter(torch.randn_like(theirs.lm_head.weight))
    with torch.no_grad():
        for tensor in theirs.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.1 * (1 if tensor.requires_grad else 0))
        if spec.logits_bias == "frozen":
            theirs.final_logits_bias.copy_(torch.randn_like(theirs.final_logits_bias))
    model = Seq2SeqModel(spec)
    table = backbone.table(spec)
    state = {name: tensor.detach().numpy() for name, tensor in theirs.state_dict().items()}
    return Pair(theirs, model, to_params(table, state, model), table)


def to_params(table: Any, tensors: dict[str, np.ndarray], model: Seq2SeqModel) -> dict[str, Any]:
    """Tensors by PyTorch's names -> parameters of ours."""
    shapes = {path: leaf.shape for path, leaf in flatten(model.shapes).items()}
    found = match(table, tensors, shapes, "reference")
    assert set(found) == set(shapes)
    arrays = {path: np.stack(s.pieces) if s.stacked else s.pieces[0] for path, s in found.items()}
    return unflatten({path: jnp.asarray(array) for path, array in arrays.items()})


class Batch(NamedTuple):
    """Text in, text out, with padding on both sides; labels are -100 after their end."""

    input_ids: np.ndarray  # [B, S]
    inputs_embeds: np.ndarray  # [B, S, D]
    mask: np.ndarray  # [B, S] bool
    labels: np.ndarray  # [B, T]
    decoder_mask: np.ndarray  # [B, T] bool


def make_batch(model: Seq2SeqModel, seed: int = 0, size: int = 3, source: int = 7, target: int = 6) -> Batch:
    """Random inputs; lengths differ, one row is full, and padding holds random tokens, not padding tokens."""
    rng = np.random.default_rng(seed)
    vocab = min(model.spec.vocab_size, model.spec.encoder_vocab_size or model.spec.vocab_size)
    lengths = np.array([source, source - 2, 1])[:size, None]
    target_lengths = np.array([target - 1, target, 2])[:size, None]
    decoder_mask = np.arange(target)[None] < target_lengths
    labels = rng.integers(0, model.spec.vocab_size, (size, target))
    input_ids = rng.integers(0, vocab, (size, source))
    input_ids[0, :3] = labels[1, :3] = 1, 3, 5  # among them the padding tokens, whose rows of the tables are frozen
    return Batch(
        input_ids,
        rng.normal(size=(size, source, model.spec.d_model)).astype(np.float32),
        np.arange(source)[None] < lengths,
        np.where(decoder_mask, labels, -100),
        decoder_mask,
    )


def their_outputs(pair: Pair, batch: Batch, entry: str) -> Any:
    """PyTorch's forward pass through `entry`, `input_ids` or `inputs_embeds`."""
    return pair.theirs(
        **{entry: torch.tensor(getattr(batch, entry))},
        attention_mask=torch.tensor(batch.mask).long(),
        labels=torch.tensor(batch.labels),
        decoder_attention_mask=torch.tensor(batch.decoder_mask).long(),
        use_cache=False,
    )


def our_logits(model: Seq2SeqModel, params: Any, batch: Batch, entry: str) -> jax.Array:
    """Our forward pass on the same batch."""
    inputs = {entry: jnp.asarray(getattr(batch, entry)), "mask": jnp.asarray(batch.mask)}
    ids = model.shift_right(jnp.asarray(batch.labels))
    return model.forward(params, inputs, ids, jnp.asarray(batch.decoder_mask))


def cross_entropy(logits: jax.Array, labels: np.ndarray) -> jax.Array:
    """Mean over labels other than -100."""
    real = jnp.asarray(labels != -100)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(jnp.asarray(labels), 0)[..., None], axis=-1)
    return -jnp.sum(jnp.where(real, picked[..., 0], 0.0)) / real.sum().astype(jnp.float32)
