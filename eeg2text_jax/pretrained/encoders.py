"""Checkpoint folder -> text encoder, cut at a layer."""

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Literal, NamedTuple

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest
from eeg2text_jax.models.build import backbone_module
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.text_encoder import EncoderSpec, TextEncoder, encoder_spec
from eeg2text_jax.pretrained.bert2bert import OLD_NORMS, UNUSED, bert_rules
from eeg2text_jax.pretrained.hub import checkpoint_folder
from eeg2text_jax.pretrained.load import assemble, backbone_table, read_config, tensor_shapes
from eeg2text_jax.pretrained.mapping import Table, match
from eeg2text_jax.pretrained.read import INDEX, read_tensors, weights_file

# Layer whose hidden states agree best with human judgement of translations, by the last part of a model's name; as
# bert-score 0.3.13 has them (Zhang et al. 2020, appendix B). MiniLM: its last was the best in our comparison.
BEST_LAYERS = {
    "roberta-large": 17,
    "roberta-base": 10,
    "bert-base-uncased": 9,
    "bert-large-uncased": 18,
    "bart-base": 6,
    "bart-large": 10,
    "t5-small": 6,
    "t5-base": 11,
    "t5-large": 23,
    "pegasus-large": 8,
    "minilm": 6,
}


class LoadedEncoder(NamedTuple):
    """An encoder with its parameters and tokenizer."""

    name: str  # the last part of the checkpoint's name
    encoder: TextEncoder
    params: Params
    tokenizer: PreTrainedTokenizerBase
    folder: Path
    digest: str  # of the weights, see `weights_digest`
    tuned_layer: bool  # whether the layer was chosen by name or by the user, and not for want of knowledge
    is_whole: bool  # whether nothing was cut off


def load_encoder(name: str | Path, layer: int | Literal["last"] | None = None, dtype: str = "float32") -> LoadedEncoder:
    """Loads BERT, RoBERTa, or the encoder of BART, PEGASUS or T5, up to one layer.

    Args:
      name: a checkpoint's folder, its name on the Hugging Face Hub, or `minilm`.
      layer: the layer whose output is taken, 0 for the embeddings; None: the one known to be best, or the last.

    Raises:
      UserError: there is no such checkpoint, encoder or layer.
    """
    folder = checkpoint_folder(name)
    config = read_config(folder)
    whole = encoder_spec(config, str(folder))
    short = str(name).rstrip("/").rpartition("/")[2]
    depth = whole.stack.layers
    chosen = min(BEST_LAYERS.get(short, depth), depth) if layer is None else depth if layer == "last" else layer
    if not 0 <= chosen <= depth:
        raise UserError(f"--layer={layer}: {short} has layers 0 (its embeddings) to {depth}.")
    encoder = TextEncoder(whole.cut(chosen), dtype)
    shapes = encoder.shapes
    sources = match(_cut_table(whole, chosen, config), read_tensors(folder), tensor_shapes(shapes), str(folder))
    tokenizer = _tokenizer(folder, whole.model_type)
    tuned = layer is not None or short in BEST_LAYERS
    return LoadedEncoder(
        short, encoder, assemble(sources, shapes), tokenizer, folder, weights_digest(folder), tuned, chosen == depth
    )


def weights_digest(folder: Path) -> str:
    """SHA-256 of a checkpoint's file of weights; of several, that of their digests in the order of their names."""
    name = weights_file({path.name for path in folder.iterdir()})
    if not name.endswith(INDEX):
        return file_digest(folder / name)
    shards = sorted(set(json.loads((folder / name).read_text("utf8"))["weight_map"].values()))
    return hashlib.sha256("".join(file_digest(folder / Path(shard).name) for shard in shards).encode()).hexdigest()


def _tokenizer(folder: Path, model_type: str) -> PreTrainedTokenizerBase:
    """The checkpoint's tokenizer; RoBERTa's first word is made to have the space before it that all others have.

    bert-score asks its tokenizer for that in each call, which transformers 5 ignores without a word.
    """
    return load_tokenizer(folder, add_prefix_space=True) if model_type == "roberta" else load_tokenizer(folder)


def _cut_table(whole: EncoderSpec, layers: int, config: PretrainedConfig) -> Table:
    """Rules of the encoder's lower layers; the checkpoint's other known tensors are passed over."""
    if whole.table == "shared":
        table = backbone_table(backbone_module(whole.model_type).spec_from_config(config))
    else:
        prefix = whole.model_type
        rules = bert_rules("encoder", prefix, whole.stack.layers)
        unused = (*UNUSED, r"lm_head\..*", r"classifier\..*", r"(.*\.)?embeddings\.token_type_ids")
        table = Table(prefix.upper(), tuple(rules), unused, ((rf"^{prefix}\.", ""), *OLD_NORMS))
    ours = (f"backbone/{whole.table}/", "backbone/encoder/")
    kept, passed = [], set()
    for rule in table.rules:
        if rule.target.startswith(ours) and (layers or not rule.layers):
            lower = dataclasses.replace(rule, layers=min(rule.layers, layers))
            passed |= {*rule.names()} - {*lower.names()}
            kept.append(lower)
        else:
            passed |= {*rule.names(), *rule.tied}
    spellings = {_respelled(name, table) for name in passed} | passed
    return dataclasses.replace(table, rules=tuple(kept), ignored=(*table.ignored, *map(re.escape, sorted(spellings))))


def _respelled(name: str, table: Table) -> str:
    for pattern, replacement in table.spellings[:1]:  # the prefix; the names of old norms belong to BERT alone
        name = re.sub(pattern, replacement, name)
    return name
