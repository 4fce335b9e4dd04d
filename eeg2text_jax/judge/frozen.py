"""The frozen language model of a judge with its tokenizer, initial prompts, and the scores of pairs under a prompt."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from scipy import special
from transformers import PreTrainedTokenizerBase

from eeg2text_jax.backbones.build import backbone_of
from eeg2text_jax.backbones.mapping import flatten, match, unflatten
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.errors import UserError
from eeg2text_jax.judge.fields import PromptSettings
from eeg2text_jax.judge.pair_batches import block
from eeg2text_jax.judge.program import Batch, LabelIds, label_scores, stored_as
from eeg2text_jax.judge.wording import Encoder, Labels, Wording, read_labels
from eeg2text_jax.metrics.score import describe_tokenizer
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.parallel.mesh import make_mesh, with_mesh
from eeg2text_jax.parallel.placement import FULLY_SHARDED, REPLICATED, batch_sharding, frozen_shardings, put, replicated
from eeg2text_jax.pretrained.embedding import plan_batches
from eeg2text_jax.pretrained.encoders import MODEL_TYPES, weights_digest
from eeg2text_jax.pretrained.folder import checkpoint_folder, read_tensors
from eeg2text_jax.pretrained.load import (
    Shardings,
    as_stored,
    assemble,
    backbone_table,
    read_config,
    spec_of,
    tensor_shapes,
)


class Frozen(NamedTuple):
    """A language model whose weights are not trained."""

    name: str  # the last part of the checkpoint's name
    folder: Path
    model: Seq2SeqModel
    params: Params
    tokenizer: PreTrainedTokenizerBase
    digest: str  # SHA-256 of the weights
    tokenizer_digest: str  # class, vocabulary size and hash of the tokenizer
    fsdp: bool = False  # the weights are sharded over all devices

    @property
    def alone(self) -> bool:
        """Whether the model is decoder-only, so that its answer continues the text."""
        return self.model.spec.encoder is None

    def encoder(
        self, wording: Wording, labels: Labels, prompt: int, truncate: bool = False, widest: int | None = None
    ) -> Encoder:
        """Return a tokenizer of pairs; a pair has at most `widest` tokens, and fits after `prompt` prompt vectors."""
        limit = self.max_tokens(wording, labels, prompt)
        encoder = Encoder(self.tokenizer, wording, limit, truncate, self.alone)
        if widest is None:
            return encoder
        encoder.flag = "--config.truncate=True"
        if widest < limit:
            encoder.max_tokens, encoder.limit = widest, "config.batch.widths has"
        return encoder

    def labels(self, words: Sequence[str], wording: Wording) -> Labels:
        """Return the two answers, yes first, with their token ids; see `read_labels`."""
        return read_labels(words, self.tokenizer, wording if self.alone else None)

    def max_tokens(self, wording: Wording, labels: Labels, prompt: int) -> int:
        """Return the largest number of tokens of a pair that follows a prompt of `prompt` vectors."""
        spec = self.model.spec
        positions = (spec.encoder or spec.decoder).max_positions or wording.longest
        answer = max(map(len, labels.ids)) if self.alone else 0
        return min(wording.longest, positions - answer) - prompt


def load_frozen(
    checkpoint: str | Path, dtype: str = "float32", param_dtype: str = "float32", fsdp: bool = False
) -> Frozen:
    """Load a language model: an encoder-decoder, such as T5 or BART, or a decoder, such as Llama.

    Args:
      checkpoint: a folder, or a name on the Hugging Face Hub.
      dtype: of the computation.
      param_dtype: of the frozen weights in memory.
      fsdp: shard the weights over all devices instead of loading them to the first one.

    Raises:
      UserError: there is no such checkpoint, or it has no decoder.
    """
    folder = checkpoint_folder(checkpoint)
    config = read_config(folder)
    if backbone_of(config) is None and config.model_type in MODEL_TYPES:
        raise UserError(
            f"{checkpoint}: is a {config.model_type} encoder without a decoder, so it cannot answer; a judge needs an "
            "encoder-decoder (T5, BART, PEGASUS) or a decoder (Llama, Mistral, Qwen, Gemma)."
        )
    tokenizer, spec = load_tokenizer(folder), as_stored(spec_of(config, folder), folder)
    if spec.encoder is None:  # a decoder's configuration may list several end tokens
        spec = dataclasses.replace(spec, eos_token=tokenizer.eos_token_id)
    model = Seq2SeqModel(spec, None, dtype)
    shardings = functools.partial(weights_shardings, mesh=asking_mesh(fsdp), fsdp=True) if fsdp else None
    params = _load_weights(model, folder, param_dtype, shardings)
    name = str(checkpoint).rstrip("/").rpartition("/")[2]
    return Frozen(name, folder, model, params, tokenizer, weights_digest(folder), describe_tokenizer(tokenizer), fsdp)


def _load_weights(model: Seq2SeqModel, folder: Path, param_dtype: str, shardings: Shardings | None) -> Params:
    """Read the language model's weights file by file; an EEG encoder in the same checkpoint is left out."""
    shapes = model.shapes
    sources = match(backbone_table(model.spec), read_tensors(folder), tensor_shapes(shapes), str(folder))
    wanted = flatten(jax.eval_shape(functools.partial(stored_as, dtype=param_dtype), shapes))
    params: dict[str, Any] = {}
    for dtype in {leaf.dtype for leaf in wanted.values()}:
        of_kind = {path: source for path, source in sources.items() if wanted[path].dtype == dtype}
        params |= flatten(assemble(of_kind, shapes, shardings, dtype=dtype))
    return unflatten({path: params[path] for path in wanted})


def weights_shardings(params: Params, mesh: Mesh, fsdp: bool) -> Any:
    """Return the shardings of frozen weights: replicated, or with `fsdp` sharded along the mesh axis `data`."""
    return frozen_shardings(params, mesh, FULLY_SHARDED if fsdp else REPLICATED)


def asking_mesh(fsdp: bool) -> Mesh:
    """Return the mesh for scoring pairs under one prompt: all devices with `fsdp`, else the devices of this process."""
    devices = jax.devices() if fsdp else jax.local_devices()
    return make_mesh(1, len(devices), devices)


def initial_prompts(
    frozen: Frozen, seeds: Sequence[int], config: PromptSettings, labels: Labels, texts: Sequence[str]
) -> np.ndarray:
    """Return an initial prompt of P = `config.length` input embeddings for each of A seeds, float32 `[A, P, D]`.

    Args:
      config: its `init` is `vocabulary`: embeddings of tokens drawn from the `population` most frequent ones (Lester et
        al. 2021); `labels`: the mean embedding of each label's tokens first, then as `vocabulary`; or `uniform`:
        numbers from -0.5 to 0.5.
      texts: texts in which tokens are counted, see `frequent_tokens`.

    Raises:
      UserError: there are fewer tokens to draw from than the prompt is long.
    """
    length = config.length
    if config.init == "uniform":
        shape = length, frozen.model.spec.d_model
        draws = [np.random.default_rng([seed, 1]).uniform(-0.5, 0.5, shape) for seed in seeds]
        return np.stack(draws).astype(np.float32)
    known = frequent_tokens(frozen, config.population, texts)
    if len(known) < length:
        raise UserError(
            f"prompt.population is {config.population}, which gives only {len(known)} tokens for a prompt of {length}; "
            "raise prompt.population, or lower prompt.length."
        )
    prompts = []
    for seed in seeds:
        chosen = np.random.default_rng([seed, 0]).choice(known, length, replace=False)
        prompt = embeddings_of(frozen, chosen)
        if config.init == "labels":
            for place, tokens in enumerate(labels.ids[:length]):
                prompt[place] = embeddings_of(frozen, np.array(tokens)).mean(0)
        prompts.append(prompt)
    return np.stack(prompts)


def embeddings_of(frozen: Frozen, ids: np.ndarray) -> np.ndarray:
    """Return the input embeddings of tokens `[N]`, float32 `[N, D]`."""
    embed = jax.jit(frozen.model.embed)  # jit drops all weights but the embeddings
    return to_host(embed(frozen.params, jnp.asarray(ids, jnp.int32)[None]).astype(jnp.float32))[0].copy()


def frequent_tokens(frozen: Frozen, population: int, texts: Sequence[str]) -> np.ndarray:
    """Return the ids of at most `population` tokens that are not special, the most frequent first.

    Frequencies are counted in `texts`, ties are ordered by id; T5's own vocabulary is ordered by frequency already.
    """
    special = set(frozen.tokenizer.all_special_ids)
    size = min(len(frozen.tokenizer), frozen.model.spec.vocab_size)
    order = np.arange(size)
    ordered = type(frozen.tokenizer.backend_tokenizer.model).__name__ == "Unigram"  # SentencePiece, as T5 has it
    if frozen.model.spec.backbone != "t5" or not ordered:
        encoded = frozen.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        counts = np.bincount(np.concatenate([np.asarray(ids, int) for ids in encoded]), minlength=size)
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] > 0]
    return np.array([i for i in order.tolist() if i not in special][:population])


class Asker:
    """A frozen model with one prompt, which scores pairs; equal pairs are scored once."""

    def __init__(self, frozen: Frozen, prompt: np.ndarray, wording: Wording, labels: Labels, truncate: bool = False):
        self.frozen, self.labels = frozen, labels
        self._mesh = asking_mesh(frozen.fsdp)
        self._params = jax.device_put(frozen.params, weights_shardings(frozen.params, self._mesh, frozen.fsdp))
        self._prompt = put(np.asarray(prompt, np.float32), replicated(self._mesh))
        self.encoder = frozen.encoder(wording, labels, len(prompt), truncate)

    def scores(self, pairs: Sequence[tuple[str, str]], where: str = "row") -> np.ndarray:
        """Return the probability that the meaning is kept of every (reference, hypothesis), float64 `[N]`.

        Raises:
          UserError: a pair (named by `where` and its number) is too long for the model, or a score is not finite.
        """
        distinct = list(dict.fromkeys(pairs))
        ids = self.encoder(distinct, where)
        found, nothing = np.zeros(len(distinct)), np.zeros(len(distinct), bool)
        pending = None
        for rows, width, size in plan_batches(list(map(len, ids)), self._mesh.size):
            batch = block(ids, nothing, rows, width, size, self.frozen.model.pad_token)
            placed = put({name: batch[name] for name in ("ids", "length")}, batch_sharding(self._mesh))
            answers = _ask(self.frozen.model, self.labels.ids, self._mesh, self._params, self._prompt, placed)
            self._read(pending, found)  # the previous batch, while devices compute this one
            pending = rows, answers
        self._read(pending, found)
        if not np.isfinite(found).all():
            wrong = distinct[int(np.flatnonzero(~np.isfinite(found))[0])]
            raise UserError(f"{self.frozen.name}: the score of {wrong[1]!r:.60} is not finite; set dtype=float32.")
        place = {pair: i for i, pair in enumerate(distinct)}
        return found[[place[pair] for pair in pairs]]

    def _read(self, pending: tuple[np.ndarray, jax.Array] | None, found: np.ndarray) -> None:
        """Write the scores of a batch, given as its rows and their log-likelihoods, into `found`."""
        if pending is not None:
            rows, answers = pending[0], to_host(pending[1]).astype(float)[: len(pending[0])]
            found[rows] = special.expit(answers[:, 0] - answers[:, 1])


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _ask(
    model: Seq2SeqModel, labels: LabelIds, mesh: Mesh, params: Params, prompt: jax.Array, batch: Batch
) -> jax.Array:
    """Return the log-likelihoods of both labels for a batch of pairs under one prompt, `[B, 2]`."""
    return with_mesh(functools.partial(label_scores, model, labels=labels), mesh)(params, prompt, batch)
