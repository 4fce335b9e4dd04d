"""A backbone as data: one frozen description instead of one block class per architecture.

The numbers come from a Hugging Face configuration, which the modules in `backbones/` read.
"""

import dataclasses
from typing import Literal

from eeg2text_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class LoraSpec:
    """Low-rank adapters of dense layers: `x W + (alpha / rank) dropout(x) A B` (Hu et al. 2022)."""

    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]  # dense layers that have one, of query, key, value, out, gate, inner, outer


@dataclasses.dataclass(frozen=True)
class StackSpec:
    """One stack of layers: an encoder, a decoder with cross-attention, or a language model by itself."""

    layers: int
    width: int  # D, of the residual stream
    heads: int  # H
    head_dim: int  # Dh; heads * head_dim may differ from width (T5)
    ffn: int  # hidden width of the feed-forward network
    activation: str  # a name in layers.ACTIVATIONS
    decoder: bool = False  # causal, and with cross-attention unless `alone`
    alone: bool = False  # a decoder-only language model
    gated: bool = False  # feed-forward act(x U) * (x V) instead of act(x U)
    pre_norm: bool = False  # normalize the input of a sublayer, not the residual sum after it
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    norm_offset: float = 0.0  # added to the scale of a norm (Gemma stores scale - 1)
    bias: bool = True  # dense layers have biases ...
    biases: tuple[str, ...] = ()  # ... or else these alone, of query, key, value, out
    scale_attention: bool = True  # divide scores by sqrt(head_dim) ...
    query_scale: float = 0.0  # ... or multiply them by this, where it is not 0
    kv_heads: int = 0  # heads of keys and values, each shared by heads / kv_heads queries; 0: as many as heads
    head_norm: bool = False  # a norm of every head's query and key
    sandwich_norm: bool = False  # with pre_norm: also normalize the output of a sublayer (Gemma 2 and 3)
    score_cap: float = 0.0  # attention scores become cap * tanh(score / cap); 0: no cap
    rotary: tuple[float, ...] = ()  # radians a position of each pair of a head's dimensions
    local_rotary: tuple[float, ...] = ()  # the same in local layers; empty: as in the others
    window: int = 0  # in local layers a position sees so many, itself among them; 0: all
    local_layers: tuple[bool, ...] = ()  # which layers are local; empty: none
    lora: LoraSpec | None = None
    positions: Literal["learned", "sinusoidal", "relative", "rotary", "none"] = "none"
    max_positions: int | None = None  # usable rows of the learned table; None: any length
    position_offset: int = 0  # unused rows before the first position (BART has 2)
    frozen_positions: bool = False  # the learned table is a buffer of the checkpoint: never trained (PEGASUS)
    relative_buckets: int = 0  # T5: buckets of the relative position bias ...
    relative_max_distance: int = 0  # ... and the distance from which all share the last one
    token_types: int = 0  # BERT: rows of the token-type table; everything here is of type 0
    embedding_norm: bool = False
    final_norm: bool = False
    embedding_dropout: float = 0.0
    dropout: float = 0.0  # of the output of each sublayer
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    final_dropout: float = 0.0  # after the final norm (T5)
    init_std: float | None = 0.02  # of kernels and tables; None: 1/sqrt(fan in) as in T5


@dataclasses.dataclass(frozen=True)
class Seq2SeqSpec:
    """A language model: an encoder and a decoder, or a decoder alone; its embeddings and its output head.

    For a decoder alone, `start_token` (and `pad_token`, if the model has none) is `vocab_size`, an id of no token:
    decoding begins with the last position of the prompt.
    """

    backbone: str  # name of the module that describes it
    vocab_size: int
    encoder: StackSpec | None
    decoder: StackSpec
    pad_token: int
    eos_token: int
    start_token: int  # first input of the decoder
    bos_token: int | None = None
    shared_embeddings: bool = True  # one table for both sides (not BERT2BERT)
    encoder_vocab_size: int = 0  # where the tables are apart; 0: vocab_size
    embedding_std: float = 0.02
    embedding_scale: float = 1.0  # of embedded token ids; given embeddings are taken as they are
    frozen_pad: bool = True  # looking up the padding token trains nothing (PyTorch's padding_idx)
    own_pads: tuple[int | None, int | None] = (None, None)  # padding tokens of separate tables
    tied_head: bool = True  # the output head is the decoder's embedding table
    head_scale: float = 1.0  # of the hidden states that enter the head (T5 v1.0: 1/sqrt(d_model))
    head_transform: bool = False  # dense, activation and norm before the head (BERT)
    logits_bias: Literal["none", "frozen", "trained"] = "none"  # BART's is a buffer, BERT's a parameter
    logits_cap: float = 0.0  # logits become cap * tanh(logit / cap); 0: no cap

    @property
    def d_model(self) -> int:
        """Width of the embeddings that enter the model."""
        return (self.encoder or self.decoder).width


@dataclasses.dataclass(frozen=True)
class EEGSpec:
    """Brain encoder and bridge in front of a backbone (the paper: 6 layers, 8 heads, 2048, ReLU, dropout 0.1)."""

    features: int  # F; of volumes the number of voxels
    layers: int = 6  # 0: the authors' naive model, the bridge alone
    heads: int = 8
    ffn: int = 2048
    width: int = 0  # output width of a first projection; 0: none, F is zero-padded to a multiple of heads
    dropout: float = 0.1
    prompt: tuple[int, ...] = ()  # token ids embedded before the EEG positions ...
    prompt_after: tuple[int, ...] = ()  # ... and after them
    kind: str = "transformer"  # which encoder, a name in `brain.ENCODERS`
    volume: tuple[int, ...] = ()  # (X, Y, Z) where the features are volumes
    channels: tuple[int, ...] = ()  # of UniCoRN's convolutions, each of which halves a volume
    hidden: int = 0  # UniCoRN: units of the hidden layer of a word
    activation: str = "relu"  # of UniCoRN
    positions: Literal["sinusoidal", "none"] = "none"  # of UniCoRN's series
    bridge: str = "relu"  # of UniCoRN's bridge: "relu" or "linear"


def head_dim(width: int, heads: int) -> int:
    """Return Dh of a model whose heads share its width; raise a UserError if they do not divide it."""
    if heads < 1 or width % heads:
        raise UserError(
            f"the backbone's width {width} is no multiple of its {heads} attention heads; change one of them."
        )
    return width // heads
