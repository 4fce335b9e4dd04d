"""Floating-point operations (FLOPs) of training and decoding, counted from a model's description.

XLA's own count is wrong for scanned or recomputed layers. Only matrix products count: two operations per multiply-add,
including padding, which the device also computes.
"""

from collections.abc import Sequence

from eeg2text_jax.models.brain.encoder import encoder_width, hidden_width, stack_spec
from eeg2text_jax.models.brain.unicorn import series_spec, snapshot_flops
from eeg2text_jax.models.cache import steps_of
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.models.spec import EEGSpec, StackSpec
from eeg2text_jax.models.two_towers import LENGTH_FEATURES, ContrastiveModel

AnyModel = Seq2SeqModel | ContrastiveModel | ReconstructionModel


def training_flops(model: AnyModel, batch: int, words: int, tokens: int) -> float:
    """Return the FLOPs of a training step of one model that its gradient needs.

    A product costs one forward pass, one for the gradient of its input and one for the gradient of its weights. A
    frozen language model (`shared_frozen`) needs no gradient of its weights: two passes, but three for its products of
    two activations (attention) and for its adapters.
    """
    if isinstance(model, ReconstructionModel):
        series = stack_flops(series_spec(model.eeg), words, words, 0) if model.of == "series" else 0.0
        return 3.0 * batch * (2.0 * words * snapshot_flops(model.eeg) + series)
    if isinstance(model, ContrastiveModel):
        # The encoder sees one recording; then come its cosines with all texts of the batch.
        encoder = brain_flops(model.eeg, words, model.width)
        dense = 2.0 * model.width * (LENGTH_FEATURES + model.outputs)
        return 3.0 * batch * (encoder + dense + 2.0 * batch * model.outputs)
    whole = encode_flops(model, words) + decode_flops(model, words, tokens)
    if not model.shared_frozen:
        return 3.0 * batch * whole
    trained = brain_flops(model.eeg, words, model.spec.d_model) if model.eeg else 0.0
    stack = model.spec.decoder
    length = source_length(model, words) + tokens - 1 if stack.alone else tokens
    trained += stack_attention_flops(stack, length, length, 0 if stack.alone else source_length(model, words))
    if model.spec.encoder is not None:
        source = source_length(model, words)
        trained += stack_attention_flops(model.spec.encoder, source, source, 0)
    return batch * (2.0 * whole + trained + 3.0 * adapter_flops(stack, length))


def stack_attention_flops(stack: StackSpec, queries: int, keys: int, context: int) -> float:
    """Return the FLOPs of a stack's attention scores and mixing, its products of two activations."""
    cross = context if stack.decoder and not stack.alone else 0
    return stack.layers * 4.0 * queries * (keys + cross) * inner_width(stack)


def adapter_flops(stack: StackSpec, positions: int) -> float:
    """Return the FLOPs of the low-rank adapters of a decoder-only stack for `positions` positions."""
    if stack.lora is None:
        return 0.0
    inner, kv = inner_width(stack), stack.head_dim * (stack.kv_heads or stack.heads)
    ends = {"query": (stack.width, inner), "key": (stack.width, kv), "value": (stack.width, kv)}
    ends |= {"out": (inner, stack.width), "gate": (stack.width, stack.ffn), "inner": (stack.width, stack.ffn)}
    ends |= {"outer": (stack.ffn, stack.width)}
    return stack.layers * 2.0 * positions * stack.lora.rank * sum(sum(ends[name]) for name in stack.lora.targets)


def search_flops(
    model: Seq2SeqModel, batch: int, words: int, length: int, beams: int, sizes: Sequence[int] = ()
) -> float:
    """Return the FLOPs of a beam search by one model that writes `length` tokens for each sentence of a batch.

    Every beam attends to the cache entries of all beams of its sentence (see `models.cache`). `sizes` are the
    successive sizes of a cache that grows, in positions; by default it has `length` positions from the beginning.
    """
    source, stack = source_length(model, words), model.spec.decoder
    cross = stack.layers * 4.0 * source * stack.width * inner_width(stack)
    if stack.alone:  # a decoder-only model computes whole layers for the prompt
        cross = stack_flops(stack, source, source, 0)
    sizes = sizes or (length,)
    each = zip(steps_of(sizes), sizes, strict=True)
    steps = sum(number * step_flops(model, batch, words, size, beams) for number, size in each)
    return batch * (encode_flops(model, words) + cross) + steps


def step_flops(model: Seq2SeqModel, batch: int, words: int, length: int, beams: int) -> float:
    """Return the FLOPs of one decoder step of a beam search: one token for every beam of every sentence."""
    source = source_length(model, words)
    if model.spec.decoder.alone:
        length, source = length + -(-source // beams), 0
    step = stack_flops(model.spec.decoder, 1, length * beams, source, project_context=False) + head_flops(model)
    return batch * beams * step


def encode_flops(model: Seq2SeqModel, words: int) -> float:
    """Return the FLOPs of one sentence through brain encoder, bridge (to the backbone's width) and backbone encoder."""
    source, encoder, total = source_length(model, words), model.spec.encoder, 0.0
    if encoder is not None:
        total += stack_flops(encoder, source, source, 0)
        if encoder.width != model.spec.decoder.width:
            total += 2.0 * source * encoder.width * model.spec.decoder.width
    return total if model.eeg is None else total + brain_flops(model.eeg, words, model.spec.d_model)


def brain_flops(eeg: EEGSpec, words: int, d_model: int) -> float:
    """Return the FLOPs of one sentence through the brain encoder and the bridge, the layer to width `d_model`."""
    if eeg.kind == "lstm":
        hidden = hidden_width(eeg)
        inputs = eeg.features + max(eeg.layers - 1, 0) * 2 * hidden
        return 16.0 * words * hidden * (inputs + eeg.layers * hidden) + 4.0 * words * hidden * d_model
    if eeg.kind == "unicorn":
        series = stack_flops(series_spec(eeg), words, words, 0)
        return words * (snapshot_flops(eeg) + 2.0 * eeg.width * d_model) + series
    width = encoder_width(eeg)
    projection = 2.0 * words * eeg.features * width if eeg.width else 0.0
    return projection + stack_flops(stack_spec(eeg), words, words, 0) + 2.0 * words * width * d_model


def decode_flops(model: Seq2SeqModel, words: int, tokens: int) -> float:
    """Return the FLOPs of decoder and output head for all positions of one target."""
    source, length = source_length(model, words), tokens
    if model.spec.decoder.alone:
        source, length = 0, source + tokens - 1
    return stack_flops(model.spec.decoder, length, length, source) + tokens * head_flops(model)


def stack_flops(stack: StackSpec, queries: int, keys: int, context: int, *, project_context: bool = True) -> float:
    """Return the FLOPs of a stack for `queries` positions, which attend to `keys` positions.

    In a decoder with cross-attention, the queries also attend to `context` encoder positions, whose projections to keys
    and values count if `project_context`.
    """
    inner = inner_width(stack)
    shared = (stack.kv_heads or stack.heads) / stack.heads  # heads of keys and values per query head
    own = 4.0 * (1 + shared) * queries * stack.width * inner + 4.0 * queries * keys * inner
    feed_forward = (6.0 if stack.gated else 4.0) * queries * stack.width * stack.ffn
    cross = 0.0
    if stack.decoder and not stack.alone:
        cross = 4.0 * queries * stack.width * inner + 4.0 * queries * context * inner
        if project_context:
            cross += 4.0 * context * stack.width * inner
    return stack.layers * (own + feed_forward + cross)


def head_flops(model: Seq2SeqModel) -> float:
    """Return the FLOPs of the output head for one position."""
    width = model.spec.decoder.width
    return 2.0 * width * (model.spec.vocab_size + (width if model.spec.head_transform else 0))


def source_length(model: Seq2SeqModel, words: int) -> int:
    """Return the length of the encoder's input: the prompt's tokens and `words` EEG positions."""
    return words + (len(model.eeg.prompt) + len(model.eeg.prompt_after) if model.eeg else 0)


def inner_width(stack: StackSpec) -> int:
    """Return the width of all attention heads together, `heads * head_dim`."""
    return stack.heads * stack.head_dim
