"""Frozen sentence embeddings, the targets of the contrastive objective.

There are two kinds: the mean over tokens of a text encoder's hidden states at one layer and (without an encoder) hashed
tf-idf. In hashed tf-idf each word has a fixed random sign vector, and a sentence is the sum of its words' vectors,
weighted by their rarity in the train part. Both are standardized per dimension over the distinct train sentences.
"""

import collections
import dataclasses
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from etils import epath

from eeg2text_jax.conditions.donors import label_rows
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import replacing
from eeg2text_jax.predictions.file import sentence_key
from eeg2text_jax.pretrained.embedding import TextEmbedder
from eeg2text_jax.pretrained.encoders import load_encoder
from eeg2text_jax.pretrained.folder import checkpoint_folder
from eeg2text_jax.pretrained.load import read_config
from eeg2text_jax.splits.split import Split
from eeg2text_jax.study.grid import TextArrays
from eeg2text_jax.study.sections import ContrastiveSettings, Settings


@dataclasses.dataclass(frozen=True)
class TextTargets:
    """Standardized embeddings of the distinct sentences, in the order of the data file."""

    sentences: tuple[str, ...]  # S sentences, normalized by `sentence_key`
    vectors: np.ndarray  # embeddings, float32 [S, E]
    signature: str  # text: the encoder, its layer and the settings that made `vectors`

    def rows(self, texts: Iterable[str]) -> np.ndarray:
        """Return the index of each text's row in `vectors`, int32 `[N]`."""
        place = {text: row for row, text in enumerate(self.sentences)}
        return np.array([place[sentence_key(str(text))] for text in texts], np.int32)

    def arrays(self, config: Settings, data: DataFile, split: Split) -> TextArrays:
        """Return the embeddings and, for each sample, the row of its sentence (also under `label_shuffle`)."""
        sentence = self.rows(data.sentence)
        exchanged = sentence
        if "label_shuffle" in config.grid.train_conditions:
            exchanged = sentence[label_rows(data, split.parts["train"], config.seed)]
        return TextArrays(jnp.asarray(self.vectors), jnp.asarray(sentence), jnp.asarray(exchanged))


def open_targets(config: Settings, path: epath.Path, data: DataFile, split: Split) -> TextTargets:
    """Return the targets of `config.contrastive`, read from the file `path`, or computed and stored there.

    Raises UserError if the encoder or layer does not exist, or all train sentences have the same embedding.
    """
    sentences = tuple(dict.fromkeys(sentence_key(str(text)) for text in data.sentence))
    if not path.exists():
        known = {sentence_key(str(data.sentence[i])) for i in split.parts["train"]}
        train = np.array([text in known for text in sentences])
        vectors, signature = embed(config.contrastive, sentences, train)
        scaled = standardized(vectors, train)
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, vectors=scaled, signature=np.array(signature))
        print(f"targets: {len(sentences)} sentences, {signature}")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
        targets = TextTargets(sentences, found["vectors"], str(found["signature"]))
    if len(targets.vectors) != len(sentences):
        raise UserError(
            f"{path}: has {len(targets.vectors)} embeddings for {len(sentences)} sentences, so it was made for other "
            "data; remove it to have it made again."
        )
    return targets


def embed(settings: ContrastiveSettings, sentences: Sequence[str], train: np.ndarray) -> tuple[np.ndarray, str]:
    """Return embeddings `[S, E]` before standardization, and text on how they were made; `train`: bool `[S]`."""
    if settings.text:
        return hidden_means(settings.text, settings.layer, sentences)
    vectors = hashed_tfidf(sentences, train, settings.hashed)
    return vectors, f"tf-idf of words, hashed to {settings.hashed} numbers|idf:train|standardized:train"


def standardized(vectors: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Standardize embeddings `[S, E]` over the train sentences (`train`, bool `[S]`); constant columns become 0."""
    mean, deviation = vectors[train].mean(0), vectors[train].std(0)
    varies = deviation > 1e-6 * np.maximum(np.abs(vectors[train]).max(0), 1e-30)
    if not varies.any():
        raise UserError(
            "contrastive: the sentences of the train part all have the same embedding; change contrastive.text."
        )
    return np.where(varies, (vectors - mean) / np.where(varies, deviation, 1.0), 0.0).astype(np.float32)


def check_encoder(settings: ContrastiveSettings) -> None:
    """Raise UserError if the text encoder or its layer does not exist, without loading weights."""
    if settings.text:
        chosen_layer(settings.text, settings.layer)


def chosen_layer(name: str, layer: int) -> int:
    """Return the encoder layer whose output is used: `layer`, or the layer at two thirds of the depth if it is -1.

    Raises UserError if the checkpoint or the layer does not exist.
    """
    config: Any = read_config(checkpoint_folder(name))
    names = ("num_hidden_layers", "encoder_layers", "num_layers")  # fields with the number of layers
    depth = next((int(value) for known in names if (value := getattr(config, known, None)) is not None), 0)
    if layer > depth:
        raise UserError(f"contrastive.layer is {layer}; {name} has layers 0 (its embeddings) to {depth}.")
    return round(2 * depth / 3) if layer < 0 else layer


def hidden_means(name: str, layer: int, sentences: Sequence[str]) -> tuple[np.ndarray, str]:
    """Return mean hidden states `[S, E]` over each sentence's non-special tokens, and text on how they were made."""
    embedder = TextEmbedder(load_encoder(name, chosen_layer(name, layer)))
    special = np.array(sorted(embedder.loaded.tokenizer.all_special_ids))
    ids = embedder.tokens(sentences)
    means = []
    for one, states in zip(ids, embedder.states(ids), strict=True):
        real = ~np.isin(one, special)
        means.append(states[real if real.any() else slice(None)].mean(0, dtype=np.float64))
    return np.stack(means), f"{embedder.describe()}|mean over tokens|standardized:train"


def hashed_tfidf(sentences: Sequence[str], train: np.ndarray, width: int) -> np.ndarray:
    """Return unit-norm hashed tf-idf vectors, float64 `[S, width]`.

    Weights are those of scikit-learn's TfidfVectorizer: `tf (1 + ln((1 + n) / (1 + df)))` over the `n` train
    sentences. A word's signs come from its SHAKE-256 digest, so they are the same on every machine.
    """
    words = [re.findall(r"\w+", text.lower()) for text in sentences]
    frequency = collections.Counter(word for own, known in zip(words, train, strict=True) if known for word in set(own))
    n, signs = int(train.sum()), {}
    vectors = np.zeros((len(sentences), width))
    for row, own in enumerate(words):
        for word, count in collections.Counter(own).items():
            if word not in signs:
                stream = hashlib.shake_256(word.encode()).digest(-(-width // 8))
                signs[word] = 2.0 * np.unpackbits(np.frombuffer(stream, np.uint8))[:width] - 1.0
            vectors[row] += count * (1 + math.log((1 + n) / (1 + frequency[word]))) * signs[word]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
