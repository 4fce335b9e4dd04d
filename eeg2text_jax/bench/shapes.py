"""The models that benchmarks measure: a BART of known size behind an EEG encoder, random weights."""

from typing import Any, NamedTuple

from transformers import BartConfig

from eeg2text_jax.data.epochs import Bucket
from eeg2text_jax.models.spec import EEGSpec

BUCKETS: tuple[Bucket, ...] = ((16, 24), (28, 40), (56, 56))  # (words, tokens), those of configs/default.py


class Shape(NamedTuple):
    """A backbone and the EEG encoder before it."""

    width: int
    ffn: int
    layers: int
    heads: int
    vocabulary: int
    features: int
    eeg_layers: int
    eeg_ffn: int

    def bart_config(self, **fields: Any) -> BartConfig:
        """The backbone's configuration, with transformers' defaults for what neither the shape nor `fields` says."""
        sides = {
            f"{side}_{field}": value
            for side in ("encoder", "decoder")
            for field, value in (("layers", self.layers), ("attention_heads", self.heads), ("ffn_dim", self.ffn))
        }
        return BartConfig(d_model=self.width, vocab_size=self.vocabulary, **sides, **fields)

    def eeg_spec(self) -> EEGSpec:
        """The EEG encoder."""
        return EEGSpec(features=self.features, layers=self.eeg_layers, ffn=self.eeg_ffn)


SHAPES = {
    "base": Shape(768, 3072, 6, 12, 50265, 840, 6, 2048),  # BART-base behind the paper's encoder
    "large": Shape(1024, 4096, 12, 16, 50265, 840, 6, 2048),
    "tiny": Shape(48, 64, 1, 4, 400, 16, 1, 32),
}
