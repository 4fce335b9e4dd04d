"""FLOPs of one step, counted from the model's description.

XLA's own count is unreliable for scanned or recomputed layers. Only matrix products count: two operations per
multiply-add, including padding, which the device also computes.
"""

from eeg2text_jax.models.brain.encoder import encoder_width, stack_spec
from eeg2text_jax.models.brain.lstm import hidden_width
from eeg2text_jax.models.brain.unicorn import series_spec, snapshot_flops
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.models.spec import EEGSpec, StackSpec
from eeg2text_jax.models.two_towers import LENGTH_FEATURES, ContrastiveModel

AnyModel = Seq2SeqModel | ContrastiveModel | ReconstructionModel


def training_flops(model: AnyModel, batch: int, words: int, tokens: int) -> float:
    """Return the FLOPs of forward and backward for one batch of one arm; backward costs twice as much as forward."""
    if isinstance(model, ReconstructionModel):
        series = stack_flops(series_spec(model.eeg), words, words, 0) if model.of == "series" else 0.0
        return 3.0 * batch * (2.0 * words * snapshot_flops(model.eeg) + series)
    if isinstance(model, ContrastiveModel):
        return 3.0 * batch * tower_flops(model, batch, words)
    return 3.0 * batch * (encode_flops(model, words) + decode_flops(model, words, tokens))


def tower_flops(model: ContrastiveModel, batch: int, words: int) -> float:
    """Return the FLOPs of one recording through brain encoder and output, and of its cosines with the batch's texts."""
    encoder = brain_flops(model.eeg, words, model.width)
    return encoder + 2.0 * model.width * (LENGTH_FEATURES + model.outputs) + 2.0 * batch * model.outputs


def search_flops(model: Seq2SeqModel, batch: int, words: int, length: int, beams: int) -> float:
    """Return the FLOPs of a beam search of one arm that writes `length` tokens.

    Every beam attends to the entries of all beams of its sentence, with other histories masked (see `models.cache`).
    """
    source, stack = source_length(model, words), model.spec.decoder
    cross = stack.layers * 4.0 * source * stack.width * inner_width(stack)
    if stack.alone:  # of a prompt, all that a layer does
        cross = stack_flops(stack, source, source, 0)
    steps = (length - 1) * step_flops(model, batch, words, length, beams)
    return batch * (encode_flops(model, words) + cross) + steps


def step_flops(model: Seq2SeqModel, batch: int, words: int, length: int, beams: int) -> float:
    """Return the FLOPs of one step of `search_flops`: one token for every beam of every sentence."""
    source = source_length(model, words)
    if model.spec.decoder.alone:
        length, source = length + -(-source // beams), 0
    step = stack_flops(model.spec.decoder, 1, length * beams, source, project_context=False) + head_flops(model)
    return batch * beams * step


def encode_flops(model: Seq2SeqModel, words: int) -> float:
    """Return the FLOPs of one sentence through EEG encoder, bridge and the backbone's encoder."""
    source, total = source_length(model, words), 0.0
    if model.spec.encoder is not None:
        total += stack_flops(model.spec.encoder, source, source, 0)
    if model.spec.encoder is not None and model.spec.encoder.width != model.spec.decoder.width:
        total += 2.0 * source * model.spec.encoder.width * model.spec.decoder.width
    return total if model.eeg is None else total + brain_flops(model.eeg, words, model.spec.d_model)


def brain_flops(eeg: EEGSpec, words: int, d_model: int) -> float:
    """Return the FLOPs of one sentence through brain encoder and bridge."""
    if eeg.kind == "lstm":
        hidden = hidden_width(eeg)
        inputs = eeg.features + max(eeg.layers - 1, 0) * 2 * hidden
        return 16.0 * words * hidden * (inputs + eeg.layers * hidden) + 4.0 * words * hidden * d_model
    if eeg.kind == "unicorn":
        series = stack_flops(series_spec(eeg), words, words, 0)
        return words * (snapshot_flops(eeg) + 2.0 * eeg.width * d_model) + series
    width, total = encoder_width(eeg), 0.0
    if eeg.width:
        total += 2.0 * words * eeg.features * width
    return total + stack_flops(stack_spec(eeg), words, words, 0) + 2.0 * words * width * d_model


def decode_flops(model: Seq2SeqModel, words: int, tokens: int) -> float:
    """Return the FLOPs of all positions of one target through decoder and output head."""
    source = source_length(model, words)
    if model.spec.decoder.alone:
        length = source + tokens - 1
        return stack_flops(model.spec.decoder, length, length, 0) + tokens * head_flops(model)
    return stack_flops(model.spec.decoder, tokens, tokens, source) + tokens * head_flops(model)


def stack_flops(stack: StackSpec, queries: int, keys: int, context: int, *, project_context: bool = True) -> float:
    """Return the FLOPs of `queries` positions that attend to `keys` positions and, in a decoder, to `context` ones."""
    inner = inner_width(stack)
    shared = (stack.kv_heads or stack.heads) / stack.heads  # of keys and values
    own = 4.0 * (1 + shared) * queries * stack.width * inner + 4.0 * queries * keys * inner
    feed_forward = (6.0 if stack.gated else 4.0) * queries * stack.width * stack.ffn
    cross = 0.0
    if stack.decoder and not stack.alone:
        cross = 4.0 * queries * stack.width * inner + 4.0 * queries * context * inner
        if project_context:
            cross += 4.0 * context * stack.width * inner
    return stack.layers * (own + feed_forward + cross)


def head_flops(model: Seq2SeqModel) -> float:
    """Return the FLOPs of the logits of one position."""
    width = model.spec.decoder.width
    return 2.0 * width * (model.spec.vocab_size + (width if model.spec.head_transform else 0))


def source_length(model: Seq2SeqModel, words: int) -> int:
    """Return the number of positions in cross-attention: the prompt's tokens and the words."""
    return words + (len(model.eeg.prompt) + len(model.eeg.prompt_after) if model.eeg else 0)


def inner_width(stack: StackSpec) -> int:
    return stack.heads * stack.head_dim
