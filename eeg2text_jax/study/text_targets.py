"""What a contrastive model is trained to come close to: a frozen embedding of every sentence of the data file.

Either the mean over tokens of a text encoder's hidden states at one layer, or, where no checkpoint is at hand, tf-idf
of words, hashed: each word has a fixed random vector of signs, a sentence is the sum of its words' ones weighted by
how rare they are among the train part's sentences. Both are standardized, each number by its mean and deviation over
the train part's distinct sentences; nothing of the test part enters but its own texts.
"""

import collections
import dataclasses
import hashlib
import math
import re
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from etils import epath
from ml_collections import ConfigDict

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


@dataclasses.dataclass(frozen=True)
class TextTargets:
    """Standardized embeddings `[S, E]` of the distinct sentences, in the order of the data file."""

    sentences: tuple[str, ...]  # as `sentence_key` has them
    vectors: np.ndarray
    signature: str  # what they were made of

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """The row of every text, int32 `[N]`."""
        place = {text: row for row, text in enumerate(self.sentences)}
        return np.array([place[sentence_key(str(text))] for text in texts], np.int32)

    def arrays(self, config: ConfigDict, data: DataFile, split: Split) -> TextArrays:
        """As the training step reads them."""
        sentence = self.rows(data.sentence)
        exchanged = sentence
        if "label_shuffle" in config.grid.train_conditions:
            exchanged = sentence[label_rows(data, split.parts["train"], config.seed)]
        return TextArrays(jnp.asarray(self.vectors), jnp.asarray(sentence), jnp.asarray(exchanged))


def open_targets(config: ConfigDict, path: epath.Path, data: DataFile, split: Split) -> TextTargets:
    """The targets of `config.contrastive`, made once and kept in the file `path`.

    Raises:
      UserError: there is no such encoder or layer, or the sentences of the train part have one embedding.
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
            f"{path}: has {len(targets.vectors)} embeddings for {len(sentences)} sentences; it is of other data, "
            "remove it to have it made again."
        )
    return targets


def embed(settings: ConfigDict, sentences: Sequence[str], train: np.ndarray) -> tuple[np.ndarray, str]:
    """Embeddings `[S, E]` that `config.contrastive` asks for, not yet standardized, and what they are."""
    if settings.text:
        return hidden_means(settings.text, settings.layer, sentences)
    vectors = hashed_tfidf(sentences, train, settings.hashed)
    return vectors, f"tf-idf of words, hashed to {settings.hashed} numbers|idf:train|standardized:train"


def standardized(vectors: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Each column less its mean over the rows `train` (bool `[S]`), over their deviation; constant ones become 0."""
    mean, deviation = vectors[train].mean(0), vectors[train].std(0)
    varies = deviation > 1e-6 * np.maximum(np.abs(vectors[train]).max(0), 1e-30)
    if not varies.any():
        raise UserError("contrastive: the sentences of the train part all have the same embedding; take another text.")
    return np.where(varies, (vectors - mean) / np.where(varies, deviation, 1.0), 0.0).astype(np.float32)


def check_encoder(settings: ConfigDict) -> None:
    """Looks whether the text encoder is there, before a run begins; loads nothing large."""
    if settings.text:
        chosen_layer(settings.text, settings.layer)


def chosen_layer(name: str, layer: int) -> int:
    """The layer whose output is taken; by default the one at two thirds of the depth.

    Raises:
      UserError: there is no such checkpoint or layer.
    """
    config: Any = read_config(checkpoint_folder(name))
    names = ("num_hidden_layers", "encoder_layers", "num_layers")
    depth = next((int(value) for known in names if (value := getattr(config, known, None)) is not None), 0)
    if layer > depth:
        raise UserError(f"contrastive.layer is {layer}; {name} has layers 0 (its embeddings) to {depth}.")
    return round(2 * depth / 3) if layer < 0 else layer


def hidden_means(name: str, layer: int, sentences: Sequence[str]) -> tuple[np.ndarray, str]:
    """Mean over the tokens of each sentence, special ones left out, of an encoder's hidden states, `[S, E]`."""
    embedder = TextEmbedder(load_encoder(name, chosen_layer(name, layer)))
    special = np.array(sorted(embedder.loaded.tokenizer.all_special_ids))
    ids = embedder.tokens(sentences)
    means = []
    for one, states in zip(ids, embedder.states(ids), strict=True):
        real = ~np.isin(one, special)
        means.append(states[real if real.any() else slice(None)].mean(0, dtype=np.float64))
    return np.stack(means), f"{embedder.describe()}|mean over tokens|standardized:train"


def hashed_tfidf(sentences: Sequence[str], train: np.ndarray, width: int) -> np.ndarray:
    """Hashed tf-idf of words, float64 `[S, width]`, each of length 1.

    Weights are those of scikit-learn's TfidfVectorizer: `tf (1 + ln((1 + n) / (1 + df)))` over the `n` train
    sentences. A word's signs follow from its SHAKE-256 digest, so that they are the same everywhere.
    """
    words = [re.findall(r"\w+", text.lower()) for text in sentences]
    frequency = collections.Counter(word for own, known in zip(words, train, strict=True) if known for word in set(own))
    n, signs = int(train.sum()), {}
    vectors = np.zeros((len(sentences), width))
    for row, own in enumerate(words):
        for word, count in collections.Counter(own).items():
            if word not in signs:
                signs[word] = word_signs(word, width)
            vectors[row] += count * (1 + math.log((1 + n) / (1 + frequency[word]))) * signs[word]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def word_signs(word: str, width: int) -> np.ndarray:
    """The fixed vector of a word, `[width]` of +1 and -1."""
    stream = hashlib.shake_256(word.encode()).digest(-(-width // 8))
    return 2.0 * np.unpackbits(np.frombuffer(stream, np.uint8))[:width] - 1.0
