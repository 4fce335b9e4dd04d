"""Frozen dataclasses that describe a language model and a brain encoder."""

import dataclasses
from typing import Any, Literal, NamedTuple

from eeg2text_jax.base.errors import UserError

# Brain encoders.
ENCODERS = ("transformer", "unicorn", "lstm", "none")  # of words
WAVE_ENCODERS = ("conv", "whisper", "labram", "cbramod", "reve")  # of samples `[W, channels]`


@dataclasses.dataclass(frozen=True)
class LoraSpec:
    """Low-rank adapters of dense layers: `x W + (alpha / rank) dropout(x) A B` (Hu et al. 2022)."""

    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]  # dense layers with an adapter: some of query, key, value, out, gate, inner, outer


@dataclasses.dataclass(frozen=True)
class StackSpec:
    """Description of a stack of layers: an encoder, a decoder with cross-attention, or a decoder-only model."""

    layers: int
    width: int  # D, width of the residual stream
    heads: int  # H, number of attention heads
    head_dim: int  # Dh, width of a head; heads * head_dim may differ from width (T5)
    ffn: int  # hidden width of the feed-forward network
    activation: str  # a name in layers.ACTIVATIONS
    decoder: bool = False  # self-attention is causal, and there is cross-attention unless `alone`
    alone: bool = False  # decoder-only language model
    gated: bool = False  # feed-forward act(x U) * (x V) instead of act(x U)
    pre_norm: bool = False  # normalize the input of a sublayer, not the residual sum after it
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    norm_offset: float = 0.0  # added to the scale of a norm (Gemma stores scale - 1)
    bias: bool = True  # all dense layers have biases
    biases: tuple[str, ...] = ()  # if `bias` is False: dense layers that still have one (query, key, value, out)
    scale_attention: bool = True  # divide attention scores by sqrt(head_dim)
    query_scale: float = 0.0  # multiply scores by this number instead; 0: see `scale_attention`
    kv_heads: int = 0  # heads of keys and values, each shared by heads / kv_heads query heads; 0: as many as heads
    head_norm: bool = False  # normalize the query and the key of every head
    layer_scale: float = 0.0  # initial value of a trained factor for each sublayer's output (LaBraM); 0: no such factor
    sandwich_norm: bool = False  # with pre_norm: also normalize the output of a sublayer (Gemma 2 and 3)
    score_cap: float = 0.0  # attention scores become cap * tanh(score / cap); 0: no cap
    rotary: tuple[float, ...] = ()  # rotary frequency of each pair of a head's dimensions, radians per position
    local_rotary: tuple[float, ...] = ()  # rotary frequencies of local layers; empty: `rotary`
    window: int = 0  # positions that a position of a local layer sees, itself included; 0: all
    local_layers: tuple[bool, ...] = ()  # whether each layer is local (sliding-window attention); empty: none
    lora: LoraSpec | None = None
    int8: bool = False  # kernels of dense layers are int8, with one float32 scale per output, and are not trained
    positions: Literal["learned", "sinusoidal", "relative", "rotary", "none"] = "none"
    max_positions: int | None = None  # usable rows of the learned table; None: any length
    position_offset: int = 0  # unused rows before the first position (BART has 2)
    frozen_positions: bool = False  # the table is a buffer of the checkpoint: never trained (PEGASUS, Whisper)
    relative_buckets: int = 0  # T5: buckets of the relative position bias
    relative_max_distance: int = 0  # T5: distance from which all positions share the last bucket
    token_types: int = 0  # BERT: rows of the token-type table; all tokens here have type 0
    embedding_norm: bool = False
    final_norm: bool = False
    embedding_dropout: float = 0.0
    dropout: float = 0.0  # rate at the output of each sublayer
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    final_dropout: float = 0.0  # rate after the final norm (T5)
    init_std: float | None = 0.02  # standard deviation of initial kernels and tables; None: 1/sqrt(fan in) as in T5

    @property
    def inner(self) -> int:
        """Width of all attention heads together."""
        return self.heads * self.head_dim


@dataclasses.dataclass(frozen=True)
class Seq2SeqSpec:
    """Description of a language model: encoder, decoder, embeddings and output head."""

    backbone: str  # a name in `backbones.BACKBONES`
    vocab_size: int
    encoder: StackSpec | None  # None: decoder-only
    decoder: StackSpec
    pad_token: int  # `vocab_size`, an id that no token has, if there is none
    eos_token: int
    start_token: int  # first input of the decoder; `vocab_size` if decoder-only, which begins with the prompt's end
    shared_embeddings: bool = True  # encoder and decoder share one embedding table (not BERT2BERT)
    encoder_vocab_size: int = 0  # rows of the encoder's own table; 0: vocab_size
    embedding_std: float = 0.02
    embedding_scale: float = 1.0  # factor of embedded token ids, not of embeddings that the caller passes
    frozen_pad: bool = True  # the embedding of the padding token gets no gradient (PyTorch's padding_idx)
    own_pads: tuple[int | None, int | None] = (None, None)  # padding tokens of the separate encoder and decoder tables
    tied_head: bool = True  # the output head is the decoder's embedding table
    head_scale: float = 1.0  # factor of the hidden states that enter the head (T5 v1.0: 1/sqrt(d_model))
    head_transform: bool = False  # dense, activation and norm before the head (BERT)
    logits_bias: Literal["none", "frozen", "trained"] = "none"  # "frozen": a buffer (BART); "trained": BERT
    logits_cap: float = 0.0  # logits become cap * tanh(logit / cap); 0: no cap
    stem: bool = False  # a convolution of stride 2 comes before the encoder (Whisper)
    decoder_prompt: tuple[int, ...] = ()  # tokens that the decoder is given after its start token

    @property
    def d_model(self) -> int:
        """Width of the embeddings that enter the encoder (in a decoder-only model, the decoder)."""
        return (self.encoder or self.decoder).width

    @property
    def adapters(self) -> LoraSpec | None:
        """The low-rank adapters of the stacks that have some."""
        return self.decoder.lora or (self.encoder.lora if self.encoder is not None else None)

    @property
    def bare_targets(self) -> bool:
        """Whether the end token is the only special token of targets: other ones are in the prompt (Whisper, LLMs)."""
        return self.encoder is None or self.backbone == "whisper"


class Channels(NamedTuple):
    """What a data file says of the channels of its samples; empty or 0: not known."""

    names: tuple[str, ...] = ()
    rate: float = 0.0  # samples a second
    places: tuple[tuple[float, float, float], ...] = ()  # of each channel, in metres


class PatchConvolution(NamedTuple):
    """A convolution along the samples of a patch, followed by GELU and a group norm, in the order of its encoder."""

    filters: int
    taps: int
    stride: int
    padding: int
    groups: int  # of the group norm


@dataclasses.dataclass(frozen=True)
class WaveSpec:
    """Description of an encoder of samples `[W, channels]`, one of `WAVE_ENCODERS`."""

    stack: StackSpec  # the transformer (of CBraMod, both halves of its layers)
    strides: tuple[int, ...] = ()  # conv, whisper: of each convolution over all channels
    patch: int = 0  # the others: samples of a patch; a channel's patches are positions of the transformer
    overlap: int = 0  # REVE: samples that a patch shares with the next one
    convolutions: tuple[PatchConvolution, ...] = ()  # LaBraM, CBraMod: of a patch
    used: tuple[int, ...] = ()  # numbers of the channels that the encoder reads
    rows: tuple[int, ...] = ()  # LaBraM: row of each channel used in the table of positions; empty: no table
    times: int = 0  # LaBraM: rows of the table of times; a recording has fewer patches
    mean_pooling: bool = False  # LaBraM: its checkpoint calls the last norm `fc_norm`
    outputs: int = 0  # CBraMod: width after its last dense layer
    places: tuple[tuple[float, float, float], ...] = ()  # REVE: of each channel used
    frequencies: int = 4  # REVE: of the positions, along each of the four axes
    pooled: bool = True  # the channels' mean at each time is one position for the language model; else each channel

    def width(self) -> int:
        """Return the width of the encoder's output, which the bridge reads."""
        return self.outputs or self.stack.width


@dataclasses.dataclass(frozen=True)
class EEGSpec:
    """Description of a brain encoder and bridge, the layer to the language model's width (defaults of the paper)."""

    features: int  # F, numbers per word; or voxels per volume
    layers: int = 6  # 0: the bridge alone, the authors' naive model
    heads: int = 8
    ffn: int = 2048
    width: int = 0  # output width of a projection before the layers; 0: none, F is zero-padded to a multiple of heads
    dropout: float = 0.1
    prompt: tuple[int, ...] = ()  # token ids whose embeddings come before the EEG positions
    prompt_after: tuple[int, ...] = ()  # token ids whose embeddings come after the EEG positions
    kind: str = "transformer"  # a name in `ENCODERS`
    volume: tuple[int, ...] = ()  # (X, Y, Z) of volumes; empty: words
    channels: tuple[int, ...] = ()  # UniCoRN: output channels of each convolution, which halves a volume
    hidden: int = 0  # UniCoRN of words: hidden units of the snapshot encoder
    activation: str = "relu"  # UniCoRN: a name in layers.ACTIVATIONS
    positions: Literal["sinusoidal", "none"] = "none"  # UniCoRN: position embeddings of the series
    bridge: str = "relu"  # UniCoRN: activation after the bridge, "relu" or "linear"
    waves: WaveSpec | None = None  # an encoder of samples

    def stack(self, width: int, **fields: Any) -> StackSpec:
        """Return the description of the encoder's transformer layers; `fields` are further fields of `StackSpec`."""
        fields |= dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), self.dropout)
        sizes = (self.layers, width, self.heads, width // self.heads, self.ffn)
        return StackSpec(*sizes, init_std=None, **fields)


def head_dim(width: int, heads: int) -> int:
    """Return `width / heads`; raise a UserError if it is not a whole number."""
    if heads < 1 or width % heads:
        raise UserError(f"the backbone's width {width} is no multiple of its {heads} attention heads; change one.")
    return width // heads
