"""The frozen language model of a judge: soft-prompt tuning (Lester et al. 2021), and scores of pairs under a prompt."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, Mesh
from scipy import special
from transformers import PreTrainedTokenizerBase

from eeg2text_jax.base.devices.arms import each_arm
from eeg2text_jax.base.devices.hosts import to_host
from eeg2text_jax.base.devices.mesh import (
    ARM,
    DATA,
    FULLY_SHARDED,
    REPLICATED,
    batch_sharding,
    frozen_shardings,
    make_mesh,
    put,
    replicated,
    with_mesh,
)
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.text import load_tokenizer
from eeg2text_jax.instrument.metrics.score import describe_tokenizer
from eeg2text_jax.judge.fields import PromptSettings
from eeg2text_jax.judge.pairs import block
from eeg2text_jax.judge.wording import Encoder, Labels, Wording
from eeg2text_jax.models.backbones.build import backbone_of
from eeg2text_jax.models.backbones.mapping import flatten, match, unflatten
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.pretrained import load
from eeg2text_jax.models.pretrained.encoders import MODEL_TYPES, plan_batches, weights_digest
from eeg2text_jax.models.pretrained.folder import checkpoint_folder, read_tensors
from eeg2text_jax.training.step import summed_loss

# Shapes: `A` arms (seeds times learning rates), `P` vectors of a prompt, `D` model width, `B` pairs, `S` tokens.

Batch = Mapping[str, jax.Array]  # ids int32 [B, S], length int32 [B], yes bool [B], weight float32 [B]
LabelIds = tuple[tuple[int, ...], tuple[int, ...]]  # token ids of the answers yes and no


class TuneState(NamedTuple):
    """The training state of `A` prompts, a pytree; they are the first axis of every leaf but `step`."""

    step: jax.Array  # int32 [], steps done
    prompt: jax.Array  # float32 [A, P, D]
    opt_state: optax.OptState
    best_prompt: jax.Array  # float32 [A, P, D], the best on dev so far
    best: jax.Array  # float32 [A, 2], accuracy and AUC on dev of `best_prompt`
    best_step: jax.Array  # int32 [A], steps after which `best_prompt` was reached


@dataclasses.dataclass(frozen=True)
class TuneProgram:
    """The functions of tuning and scoring, for the caller to compile; all fields are static."""

    model: Seq2SeqModel  # the frozen language model
    labels: LabelIds
    rates: tuple[float, ...]  # peak learning rate of each arm
    optimizer: Callable[[Any], optax.GradientTransformation]  # learning rate -> optimizer of one prompt
    mapping: str = "vmap"  # of arms on one device, see `base.devices.arms.each_arm`
    mesh: Mesh | AbstractMesh | None = None  # None: a single device
    # Most tokens that a device processes together, over its parallel arms; gradients of a larger batch are accumulated
    # over micro-batches. 0: no limit.
    at_once: int = 0

    def initial_state(self, prompt: jax.Array) -> TuneState:
        """Return the state before the first step, from prompts `[A, P, D]`."""
        opt_state, arms = jax.vmap(self.optimizer(0.0).init)(prompt), len(prompt)
        best = jnp.copy(prompt), jnp.full((arms, 2), -1.0, jnp.float32), jnp.zeros((arms,), jnp.int32)
        return TuneState(jnp.zeros((), jnp.int32), prompt, opt_state, *best)

    def state_shapes(self, length: int) -> TuneState:
        """Return the shapes and dtypes of the state of prompts of `length` vectors."""
        shape = (len(self.rates), length, self.model.spec.d_model)
        return jax.eval_shape(self.initial_state, jax.ShapeDtypeStruct(shape, jnp.float32))

    def tune_step(
        self, state: TuneState, batch: Batch, frozen: Params, keys: jax.Array
    ) -> tuple[TuneState, dict[str, jax.Array]]:
        """Update every prompt on a batch; also return `loss` (nats per token) and `grad_norm`, each `[A]`.

        `frozen` are the model's parameters, `keys` the arms' keys for dropout, `[A]`.
        """

        def update(prompt, opt_state, rate, key, shared):
            frozen, batch, step = shared
            stack = self.model.spec.encoder or self.model.spec.decoder
            dropout = max(stack.dropout, stack.embedding_dropout, stack.attention_dropout) > 0
            key = jax.random.fold_in(key, step) if dropout else None
            value, gradient = self._loss_and_gradient(prompt, frozen, batch, key)
            with jax.numpy_dtype_promotion("standard"):  # optax computes float ** int32 step count
                updates, opt_state = self.optimizer(rate).update(gradient, opt_state, prompt)
            metrics = {"loss": value, "grad_norm": jnp.linalg.norm(gradient)}
            return optax.apply_updates(prompt, updates), opt_state, metrics

        arguments = (state.prompt, state.opt_state, jnp.asarray(self.rates, jnp.float32), keys)
        shared = (frozen, dict(batch), state.step)
        prompt, opt_state, metrics = each_arm(update, self.mesh, self.mapping, arguments, shared)
        return state._replace(step=state.step + 1, prompt=prompt, opt_state=opt_state), metrics

    def loss(self, prompt: jax.Array, frozen: Params, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """Return the mean negative log-likelihood per token of the right labels, end tokens included."""
        total, count = self._summed_loss(prompt, frozen, batch, key)
        return total / jnp.maximum(count, 1.0)

    def _summed_loss(
        self, prompt: jax.Array, frozen: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        targets = np.full((2, max(map(len, self.labels)) + 1), self.model.pad_token, np.int32)
        for row, ids in zip(targets, self.labels, strict=True):
            row[: len(ids) + 1] = *ids, self.model.eos_token
        labels = jnp.where(batch["yes"][:, None], targets[:1], targets[1:])
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        hidden, mask = encode_pairs(self.model, frozen, prompt, batch, keys[0])
        logits = self.model.decode(frozen, self.model.shift_right(labels), hidden, mask, dropout_key=keys[1])
        return summed_loss(logits, labels, batch["weight"], self.model.pad_token)

    def _loss_and_gradient(
        self, prompt: jax.Array, frozen: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Return the loss and its gradient by the prompt, accumulated over micro-batches."""
        size, width = batch["ids"].shape
        pieces = self.pieces(size, width)
        if pieces == 1:
            return jax.value_and_grad(self.loss)(prompt, frozen, batch, key)
        # Neighbouring rows lie on one device and go to different pieces, so each device has a share of every piece.
        parts = {name: one.reshape(size // pieces, pieces, *one.shape[1:]) for name, one in batch.items()}
        summed = jax.value_and_grad(self._summed_loss, has_aux=True)

        def add(done: tuple, number: jax.Array) -> tuple[tuple, None]:
            part = {name: jax.lax.dynamic_index_in_dim(one, number, 1, keepdims=False) for name, one in parts.items()}
            (total, count), gradient = summed(
                prompt, frozen, part, None if key is None else jax.random.fold_in(key, number)
            )
            return (done[0] + total, done[1] + count, done[2] + gradient), None

        nothing = jnp.zeros((), jnp.float32)
        (total, count, gradient), _ = jax.lax.scan(add, (nothing, nothing, jnp.zeros_like(prompt)), jnp.arange(pieces))
        count = jnp.maximum(count, 1.0)
        return total / count, gradient / count

    def pieces(self, size: int, width: int) -> int:
        """Return the fewest micro-batches of `size` rows of `width` tokens within `at_once`, alike on all devices."""
        along, divided = (1, 1) if self.mesh is None else (self.mesh.shape[DATA], self.mesh.shape[ARM])
        arms = 1 if self.mapping == "map" else len(self.rates) // divided
        allowed = [n for n in range(1, size + 1) if size % n == 0 and size // n % along == 0] or [1]
        fits = [n for n in allowed if arms * width * size // n // along <= self.at_once]
        return min(fits, default=allowed[-1]) if self.at_once else 1

    def score_step(self, prompt: jax.Array, batch: Batch, frozen: Params) -> jax.Array:
        """Return the log-likelihoods of both labels, yes first, under prompts `[A, P, D]`: `[A, B, 2]`."""

        def score(prompt, shared):
            return label_scores(self.model, shared[0], prompt, shared[1], self.labels)

        return each_arm(score, self.mesh, self.mapping, (prompt,), (frozen, dict(batch)))


def encode_pairs(
    model: Seq2SeqModel, frozen: Params, prompt: jax.Array, batch: Batch, key: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return states `[B, P + S, D]` of prompt and pairs (of a decoder: embeddings, padded on the left), and mask."""
    ids, (length, width) = batch["ids"], prompt.shape
    text = model.embed(frozen, ids).astype(prompt.dtype)
    before = jnp.broadcast_to(prompt[None], (ids.shape[0], length, width))
    mask = jnp.arange(length + ids.shape[1])[None] < length + batch["length"][:, None]
    inputs = {"inputs_embeds": jnp.concatenate([before, text], axis=1), "mask": mask}
    return model.encode(frozen, inputs, dropout_key=key)


def label_scores(model: Seq2SeqModel, frozen: Params, prompt: jax.Array, batch: Batch, labels: LabelIds) -> jax.Array:
    """Return log p(label | pair), summed over the label's tokens, for yes and no: float32 `[B, 2]`.

    The encoder runs once; a decoder-only model reads the pair again if labels have several tokens.
    """
    hidden, mask = encode_pairs(model, frozen, prompt, batch)
    inputs = [(model.start_token, *ids[:-1]) for ids in labels]
    log_probs: dict[tuple[int, ...], jax.Array] = {}
    for tokens in dict.fromkeys(inputs):  # the decoder runs once for labels of one token
        ids = jnp.broadcast_to(jnp.asarray(tokens, jnp.int32)[None], (hidden.shape[0], len(tokens)))
        log_probs[tokens] = jax.nn.log_softmax(model.decode(frozen, ids, hidden, mask).astype(jnp.float32), axis=-1)
    sums = [
        sum(log_probs[tokens][:, place, token] for place, token in enumerate(ids))
        for tokens, ids in zip(inputs, labels, strict=True)
    ]
    return jnp.stack(sums, axis=-1)


def keep_best(state: TuneState, figures: jax.Array) -> TuneState:
    """Keep prompts whose accuracy, then AUC, on dev (`figures`, float32 `[A, 2]`) are the best so far."""
    accuracy, auc = figures[:, 0], figures[:, 1]
    before, auc_before = state.best[:, 0], state.best[:, 1]
    better = (accuracy > before) | ((accuracy == before) & (auc > auc_before))
    return state._replace(
        best_prompt=jnp.where(better[:, None, None], state.prompt, state.best_prompt),
        best=jnp.where(better[:, None], figures, state.best),
        best_step=jnp.where(better, state.step, state.best_step),
    )


def with_dropout(model: Seq2SeqModel, rate: float) -> Seq2SeqModel:
    """Return the model with one dropout rate in all layers; 0: no dropout."""
    names = ("embedding_dropout", "dropout", "attention_dropout", "activation_dropout", "final_dropout")
    stacks = {name: getattr(model.spec, name) for name in ("encoder", "decoder")}
    changed = {name: dataclasses.replace(s, **dict.fromkeys(names, float(rate))) for name, s in stacks.items() if s}
    return dataclasses.replace(model, spec=dataclasses.replace(model.spec, **changed))


def stored_as(params: Params, dtype: str) -> Params:
    """Cast kernels and token embeddings to `dtype`, and no other parameters."""

    def cast(path: Any, leaf: Any) -> Any:
        names = [part.key for part in path]
        large = names[-1] in ("kernel", "embedding") and "relative" not in names
        return leaf.astype(jnp.dtype(dtype)) if large else leaf

    return jax.tree_util.tree_map_with_path(cast, params)


class Frozen(NamedTuple):
    """A language model that is not trained."""

    name: str  # last part of the checkpoint's name
    folder: Path
    model: Seq2SeqModel
    params: Params
    tokenizer: PreTrainedTokenizerBase
    digest: str  # SHA-256 of the weights
    tokenizer_digest: str  # class, vocabulary size and hash of the tokenizer
    fsdp: bool = False  # the weights are sharded over all devices

    @property
    def alone(self) -> bool:
        """Whether the model is decoder-only: its answer continues the text."""
        return self.model.spec.encoder is None

    def encoder(
        self, wording: Wording, labels: Labels, prompt: int, truncate: bool = False, widest: int | None = None
    ) -> Encoder:
        """Return a tokenizer of pairs of up to `widest` tokens that fit behind `prompt` prompt vectors."""
        limit = self.max_tokens(wording, labels, prompt)
        if widest is None:
            return Encoder(self.tokenizer, wording, limit, truncate, self.alone)
        least, what = (widest, "config.batch.widths has") if widest < limit else (limit, Encoder.limit)
        return Encoder(self.tokenizer, wording, least, truncate, self.alone, what, "--config.truncate=True")

    def max_tokens(self, wording: Wording, labels: Labels, prompt: int) -> int:
        """Return the most tokens of a pair behind `prompt` prompt vectors."""
        spec = self.model.spec
        positions = (spec.encoder or spec.decoder).max_positions or wording.longest
        answer = max(map(len, labels.ids)) if self.alone else 0
        return min(wording.longest, positions - answer) - prompt


def load_frozen(
    checkpoint: str | Path, dtype: str = "float32", param_dtype: str = "float32", fsdp: bool = False
) -> Frozen:
    """Load an encoder-decoder (T5, BART) or a decoder (Llama) from a folder or the Hub.

    `dtype` is of the computation, `param_dtype` of the weights, which `fsdp` shards over all devices. Raises UserError
    if there is no such checkpoint, or it has no decoder.
    """
    folder = checkpoint_folder(checkpoint)
    config = load.read_config(folder)
    if backbone_of(config) is None and config.model_type in MODEL_TYPES:
        raise UserError(
            f"{checkpoint}: is a {config.model_type} encoder without a decoder, so it cannot answer; a judge needs an "
            "encoder-decoder (T5, BART, PEGASUS) or a decoder (Llama, Mistral, Qwen, Gemma)."
        )
    tokenizer, spec = load_tokenizer(folder), load.stored_spec(config, folder)
    if spec.encoder is None:  # a decoder's configuration may list several end tokens
        spec = dataclasses.replace(spec, eos_token=tokenizer.eos_token_id)
    model = Seq2SeqModel(spec, None, dtype)
    shardings = functools.partial(weights_shardings, mesh=asking_mesh(fsdp), fsdp=True) if fsdp else None
    # Weights are read file by file, without an EEG encoder in the checkpoint.
    shapes = model.shapes
    sources = match(load.backbone_table(spec), read_tensors(folder), load.tensor_shapes(shapes), str(folder))
    wanted = flatten(jax.eval_shape(functools.partial(stored_as, dtype=param_dtype), shapes))
    loaded: dict[str, Any] = {}
    for kind in {leaf.dtype for leaf in wanted.values()}:
        of_kind = {path: source for path, source in sources.items() if wanted[path].dtype == kind}
        loaded |= flatten(load.assemble(of_kind, shapes, shardings, dtype=kind))
    params = unflatten({path: loaded[path] for path in wanted})
    name = str(checkpoint).rstrip("/").rpartition("/")[2]
    return Frozen(name, folder, model, params, tokenizer, weights_digest(folder), describe_tokenizer(tokenizer), fsdp)


def weights_shardings(params: Params, mesh: Mesh, fsdp: bool) -> Any:
    """Return the shardings of frozen weights: replicated, or with `fsdp` along the mesh axis `data`."""
    return frozen_shardings(params, mesh, FULLY_SHARDED if fsdp else REPLICATED)


def asking_mesh(fsdp: bool) -> Mesh:
    """Return the mesh for scoring under one prompt: all devices with `fsdp`, else those of this process."""
    devices = jax.devices() if fsdp else jax.local_devices()
    return make_mesh(1, len(devices), devices)


def initial_prompts(
    frozen: Frozen, seeds: Sequence[int], config: PromptSettings, labels: Labels, texts: Sequence[str]
) -> np.ndarray:
    """Return an initial prompt of P = `config.length` input embeddings for each of A seeds, float32 `[A, P, D]`.

    `config.init` is `vocabulary`: tokens drawn from the `population` most frequent in `texts` (Lester et al. 2021);
    `labels`: the same behind the mean embedding of each label's tokens; or `uniform`: numbers from -0.5 to 0.5. Raises
    UserError if there are fewer tokens to draw from than the prompt is long.
    """
    length = config.length
    if config.init == "uniform":
        shape = length, frozen.model.spec.d_model
        return np.array([np.random.default_rng([seed, 1]).uniform(-0.5, 0.5, shape) for seed in seeds], np.float32)
    pool = frequent_tokens(frozen, config.population, texts)
    if len(pool) < length:
        raise UserError(
            f"prompt.population is {config.population}, which gives only {len(pool)} tokens for a prompt of {length}; "
            "raise it, or lower prompt.length."
        )
    prompts = []
    for seed in seeds:
        token_ids = np.random.default_rng([seed, 0]).choice(pool, length, replace=False)
        prompt = embeddings_of(frozen, token_ids)
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
    """Return ids of up to `population` tokens, none special, the most frequent in `texts` first.

    T5's own vocabulary is in the order of frequency.
    """
    special, spec = set(frozen.tokenizer.all_special_ids), frozen.model.spec
    size = min(len(frozen.tokenizer), spec.vocab_size)
    order = np.arange(size)
    is_unigram = type(frozen.tokenizer.backend_tokenizer.model).__name__ == "Unigram"  # SentencePiece, as T5 has it
    if spec.backbone != "t5" or not is_unigram:
        encoded = frozen.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        counts = np.bincount(np.concatenate([np.asarray(ids, int) for ids in encoded]), minlength=size)
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] > 0]
    return np.array([i for i in order.tolist() if i not in special][:population])


class Asker:
    """A frozen model with a prompt, which scores pairs, equal ones once."""

    def __init__(self, frozen: Frozen, prompt: np.ndarray, wording: Wording, labels: Labels, truncate: bool = False):
        self.frozen, self.labels = frozen, labels
        self._mesh = asking_mesh(frozen.fsdp)
        self._params = jax.device_put(frozen.params, weights_shardings(frozen.params, self._mesh, frozen.fsdp))
        self._prompt = put(np.asarray(prompt, np.float32), replicated(self._mesh))
        self.encoder = frozen.encoder(wording, labels, len(prompt), truncate)

    def scores(self, pairs: Sequence[tuple[str, str]], where: str = "row") -> np.ndarray:
        """Return the probability that each (reference, hypothesis) keeps the meaning, float64 `[N]`.

        Raises UserError if a pair (named by `where` and its number) is too long, or a score is not finite.
        """
        distinct = list(dict.fromkeys(pairs))
        ids = self.encoder(distinct, where)
        probabilities, nothing = np.zeros(len(distinct)), np.zeros(len(distinct), bool)
        pending = None
        for rows, width, size in plan_batches(list(map(len, ids)), self._mesh.size):
            batch = block(ids, nothing, rows, width, size, self.frozen.model.pad_token)
            placed = put({name: batch[name] for name in ("ids", "length")}, batch_sharding(self._mesh))
            answers = _ask(self.frozen.model, self.labels.ids, self._mesh, self._params, self._prompt, placed)
            self._read(pending, probabilities)  # the previous batch, while devices compute this one
            pending = rows, answers
        self._read(pending, probabilities)
        if not np.isfinite(probabilities).all():
            wrong = distinct[int(np.flatnonzero(~np.isfinite(probabilities))[0])]
            raise UserError(f"{self.frozen.name}: the score of {wrong[1]!r:.60} is not finite; set dtype=float32.")
        place = {pair: i for i, pair in enumerate(distinct)}
        return probabilities[[place[pair] for pair in pairs]]

    def _read(self, pending: tuple[np.ndarray, jax.Array] | None, probabilities: np.ndarray) -> None:
        """Write the scores of a batch, from its rows and their log-likelihoods, into `probabilities`."""
        if pending is not None:
            rows, answers = pending[0], to_host(pending[1]).astype(float)[: len(pending[0])]
            probabilities[rows] = special.expit(answers[:, 0] - answers[:, 1])


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _ask(
    model: Seq2SeqModel, labels: LabelIds, mesh: Mesh, params: Params, prompt: jax.Array, batch: Batch
) -> jax.Array:
    return with_mesh(functools.partial(label_scores, model, labels=labels), mesh)(params, prompt, batch)
