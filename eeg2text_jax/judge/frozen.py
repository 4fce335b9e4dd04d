"""The language model that is asked: a checkpoint's encoder-decoder with its tokenizer, frozen, and there once."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from scipy import special
from transformers import PreTrainedTokenizerBase

from eeg2text_jax.backbones import DECODERS
from eeg2text_jax.backbones.build import backbone_module, backbone_of
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.errors import UserError
from eeg2text_jax.judge.pair_batches import block
from eeg2text_jax.judge.program import Batch, LabelIds, label_scores, stored_as
from eeg2text_jax.judge.wording import Encoder, Labels, Wording
from eeg2text_jax.metrics.score import describe_tokenizer
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.pretrained.embedding import plan_batches
from eeg2text_jax.pretrained.encoders import MODEL_TYPES, weights_digest
from eeg2text_jax.pretrained.folder import checkpoint_folder
from eeg2text_jax.pretrained.load import load_pretrained, read_config

LONGEST = 512  # tokens of a pair and its prompt


class Frozen(NamedTuple):
    """A language model that nothing changes."""

    name: str  # the last part of the checkpoint's name
    folder: Path
    model: Seq2SeqModel
    params: Params
    tokenizer: PreTrainedTokenizerBase
    digest: str  # SHA-256 of its weights
    tokenizer_digest: str

    def max_tokens(self, prompt: int) -> int:
        """Tokens of a pair beside a prompt of so many vectors."""
        return min(LONGEST, self.model.spec.encoder.max_positions or LONGEST) - prompt


def load_frozen(checkpoint: str | Path, dtype: str = "float32", param_dtype: str = "float32") -> Frozen:
    """Loads a checkpoint with encoder and decoder: T5, BART, PEGASUS, BERT2BERT.

    Args:
      checkpoint: a folder, or a name on the Hugging Face Hub.
      dtype: of the computation.
      param_dtype: in which the frozen weights are kept.

    Raises:
      UserError: there is no such checkpoint, or it has no decoder.
    """
    folder = checkpoint_folder(checkpoint)
    config = read_config(folder)
    if backbone_of(config) is None and config.model_type in MODEL_TYPES:
        raise UserError(
            f"{checkpoint}: is a {config.model_type} encoder without a decoder, so it cannot answer; a judge needs an "
            "encoder-decoder (T5, BART, PEGASUS)."
        )
    if config.model_type in [backbone_module(name).MODEL_TYPE for name in DECODERS]:
        raise UserError(
            f"{checkpoint}: is a {config.model_type} model, a decoder alone; a judge needs an encoder-decoder "
            "(T5, BART, PEGASUS)."
        )
    model, params = load_pretrained(folder, dtype=dtype)
    tokenizer = load_tokenizer(folder)
    name = str(checkpoint).rstrip("/").rpartition("/")[2]
    params = {"backbone": params["backbone"]} if model.eeg is not None else params
    model = Seq2SeqModel(model.spec, None, dtype)
    if param_dtype != "float32":
        params = jax.jit(functools.partial(stored_as, dtype=param_dtype), donate_argnums=0)(params)
    return Frozen(name, folder, model, params, tokenizer, weights_digest(folder), describe_tokenizer(tokenizer))


def initial_prompts(
    frozen: Frozen,
    seeds: Sequence[int],
    *,
    length: int,
    init: str,
    population: int,
    labels: Labels,
    texts: Sequence[str],
) -> np.ndarray:
    """A prompt for each seed, float32 `[A, P, D]`, as the encoder would see it.

    Args:
      init: `vocabulary`, embeddings of tokens drawn from the most frequent ones (Lester et al. 2021); `labels`, the
        mean of each label's pieces, and for the rest as before; `uniform`, numbers from -0.5 to 0.5.
      population: how many tokens count as the most frequent ones. T5's table is in that order; of other models the
        tokens of `texts` are counted, ties by id.

    Raises:
      UserError: fewer tokens are known than the prompt is long.
    """
    width = frozen.model.spec.encoder.width
    if init == "uniform":
        draws = [np.random.default_rng([seed, 1]).uniform(-0.5, 0.5, (length, width)) for seed in seeds]
        return np.stack(draws).astype(np.float32)
    known = frequent_tokens(frozen, population, texts)
    if len(known) < length:
        raise UserError(f"prompt.population gives {len(known)} tokens for a prompt of {length}; raise it.")
    prompts = []
    for seed in seeds:
        chosen = np.random.default_rng([seed, 0]).choice(known, length, replace=False)
        prompt = embeddings_of(frozen, chosen)
        if init == "labels":
            for place, pieces in enumerate(labels.ids[:length]):
                prompt[place] = embeddings_of(frozen, np.array(pieces)).mean(0)
        prompts.append(prompt)
    return np.stack(prompts)


def embeddings_of(frozen: Frozen, ids: np.ndarray) -> np.ndarray:
    """What tokens `[N]` are to the encoder, float32 `[N, D]`."""
    return np.array(frozen.model.embed(frozen.params, jnp.asarray(ids, jnp.int32)[None])[0].astype(jnp.float32))


def frequent_tokens(frozen: Frozen, population: int, texts: Sequence[str]) -> np.ndarray:
    """The most frequent tokens, most frequent first, without special ones."""
    special = set(frozen.tokenizer.all_special_ids)
    size = min(len(frozen.tokenizer), frozen.model.spec.vocab_size)
    order = np.arange(size)
    if frozen.model.spec.backbone != "t5" or not _is_sentencepiece(frozen.tokenizer):
        encoded = frozen.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        counts = np.bincount(np.concatenate([np.asarray(ids, int) for ids in encoded]), minlength=size)
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] > 0]
    return np.array([i for i in order.tolist() if i not in special][:population])


def _is_sentencepiece(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the order of the vocabulary is one of frequency, as in T5's own."""
    return type(tokenizer.backend_tokenizer.model).__name__ == "Unigram"


class Asker:
    """A prompt on a frozen model: how likely each pair keeps the meaning. Equal pairs are asked once."""

    def __init__(self, frozen: Frozen, prompt: np.ndarray, wording: Wording, labels: Labels, truncate: bool = False):
        self.frozen, self.labels = frozen, labels
        self._mesh = Mesh(np.array(jax.local_devices()), ("data",))
        everywhere = NamedSharding(self._mesh, P())
        self._params = jax.device_put(frozen.params, everywhere)
        self._prompt = jax.device_put(np.asarray(prompt, np.float32), everywhere)
        self.encoder = Encoder(frozen.tokenizer, wording, frozen.max_tokens(len(prompt)), truncate)

    def scores(self, pairs: Sequence[tuple[str, str]], where: str = "row") -> np.ndarray:
        """For every (reference, hypothesis) how likely the meaning is kept, from 0 to 1, float64 `[N]`.

        Raises:
          UserError: a pair is longer than the model takes, or an answer is not finite.
        """
        distinct = list(dict.fromkeys(pairs))
        ids = self.encoder(distinct, where)
        found, nothing = np.zeros(len(distinct)), np.zeros(len(distinct), bool)
        rows_apart, pending = NamedSharding(self._mesh, P("data")), None
        for rows, width, size in plan_batches(list(map(len, ids)), self._mesh.size):
            batch = block(ids, nothing, rows, width, size, self.frozen.model.pad_token)
            placed = jax.device_put({name: batch[name] for name in ("ids", "length")}, rows_apart)
            asked = rows, _ask(self.frozen.model, self.labels.ids, self._params, self._prompt, placed)
            self._read(pending, found)  # the next batch is under way meanwhile
            pending = asked
        self._read(pending, found)
        if not np.isfinite(found).all():
            wrong = distinct[int(np.flatnonzero(~np.isfinite(found))[0])]
            raise UserError(f"{self.frozen.name}: its answer about {wrong[1]!r:.60} is not finite; try dtype float32.")
        place = {pair: i for i, pair in enumerate(distinct)}
        return found[[place[pair] for pair in pairs]]

    def _read(self, asked: tuple[np.ndarray, jax.Array] | None, found: np.ndarray) -> None:
        if asked is not None:
            answers = to_host(asked[1])[: len(asked[0])].astype(float)
            found[asked[0]] = special.expit(answers[:, 0] - answers[:, 1])


@functools.partial(jax.jit, static_argnums=(0, 1))
def _ask(model: Seq2SeqModel, labels: LabelIds, params: Params, prompt: jax.Array, batch: Batch) -> jax.Array:
    return label_scores(model, params, prompt, batch, labels)
