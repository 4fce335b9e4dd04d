"""Soft-prompt tuning (Lester et al. 2021) and scoring as pure functions: many prompts, one frozen language model.

Shapes: `A` arms (seeds times learning rates), `P` vectors of a prompt, `D` width of the model, `B` pairs, `S` tokens.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, Mesh

from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.parallel.arms import each_arm
from eeg2text_jax.parallel.mesh import ARM, DATA
from eeg2text_jax.training.objectives import summed_loss

Batch = Mapping[str, jax.Array]  # ids int32 [B, S], length int32 [B], yes bool [B], weight float32 [B]
LabelIds = tuple[tuple[int, ...], tuple[int, ...]]  # token ids of the answers yes and no


class TuneState(NamedTuple):
    """The training state of `A` prompts, a pytree; the first axis of every leaf but `step` has the prompts."""

    step: jax.Array  # int32 [], steps done
    prompt: jax.Array  # float32 [A, P, D]
    opt_state: optax.OptState
    best_prompt: jax.Array  # float32 [A, P, D], the prompts with the best accuracy on dev so far
    best: jax.Array  # float32 [A, 2], accuracy and AUC on dev of `best_prompt`
    best_step: jax.Array  # int32 [A], steps after which `best_prompt` was reached


@dataclasses.dataclass(frozen=True)
class TuneProgram:
    """The functions of prompt tuning and scoring, which the caller compiles with jit; all fields are static."""

    model: Seq2SeqModel  # the frozen language model
    labels: LabelIds
    rates: tuple[float, ...]  # peak learning rate of each arm
    optimizer: Callable[[Any], optax.GradientTransformation]  # learning rate -> optimizer of one prompt
    mapping: str = "vmap"  # how several arms run on one device, see `parallel.arms.each_arm`
    mesh: Mesh | AbstractMesh | None = None  # None: a single device
    # Most tokens that a device processes together, over all its arms that run in parallel; gradients of a larger batch
    # are accumulated over micro-batches. 0: no limit.
    at_once: int = 0

    def initial_state(self, prompt: jax.Array) -> TuneState:
        """Return the state before the first step, from prompts `[A, P, D]`."""
        arms = len(prompt)
        return TuneState(
            step=jnp.zeros((), jnp.int32),
            prompt=prompt,
            opt_state=jax.vmap(self.optimizer(0.0).init)(prompt),
            best_prompt=jnp.copy(prompt),
            best=jnp.full((arms, 2), -1.0, jnp.float32),
            best_step=jnp.zeros((arms,), jnp.int32),
        )

    def state_shapes(self, length: int) -> TuneState:
        """Return the shapes and dtypes of the state for prompts of `length` vectors."""
        shape = (len(self.rates), length, self.model.spec.d_model)
        return jax.eval_shape(self.initial_state, jax.ShapeDtypeStruct(shape, jnp.float32))

    def tune_step(
        self, state: TuneState, batch: Batch, frozen: Params, keys: jax.Array
    ) -> tuple[TuneState, dict[str, jax.Array]]:
        """Update every prompt on the same batch; also return `loss` (nats per token) and `grad_norm`, each `[A]`.

        Args:
          state: the state, which may be donated.
          frozen: the model's parameters; no gradient with respect to them is computed.
          keys: PRNG keys of the arms for dropout, `[A]`.
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
        """Return the mean negative log-likelihood per token of the right label with its end token, under one prompt."""
        total, count = self._summed_loss(prompt, frozen, batch, key)
        return total / jnp.maximum(count, 1.0)

    def _summed_loss(
        self, prompt: jax.Array, frozen: Params, batch: Batch, key: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Return the loss summed over tokens, and the number of tokens."""
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
        """Return the loss and its gradient with respect to the prompt, accumulated over micro-batches."""
        size, width = batch["ids"].shape
        pieces = self.pieces(size, width)
        if pieces == 1:
            return jax.value_and_grad(self.loss)(prompt, frozen, batch, key)
        # Neighbouring rows, which lie on one device, go to different pieces, so each device has a share of every piece.
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
        """Return the number of micro-batches of a batch of `size` rows of `width` tokens: the fewest within `at_once`.

        Each device gets the same number of rows of every micro-batch, at least one.
        """
        along = 1 if self.mesh is None else self.mesh.shape[DATA]
        arms = len(self.rates) // (1 if self.mesh is None else self.mesh.shape[ARM])
        arms = 1 if self.mapping == "map" else arms
        allowed = [n for n in range(1, size + 1) if size % n == 0 and size // n % along == 0] or [1]
        fits = [n for n in allowed if arms * width * size // n // along <= self.at_once]
        return min(fits, default=allowed[-1]) if self.at_once else 1

    def score_step(self, prompt: jax.Array, batch: Batch, frozen: Params) -> jax.Array:
        """Return the log-likelihoods of both labels under every prompt `[A, P, D]`: `[A, B, 2]`, yes first."""

        def score(prompt, shared):
            return label_scores(self.model, shared[0], prompt, shared[1], self.labels)

        return each_arm(score, self.mesh, self.mapping, (prompt,), (frozen, dict(batch)))


def encode_pairs(
    model: Seq2SeqModel, frozen: Params, prompt: jax.Array, batch: Batch, key: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return the encoder's hidden states `[B, P + S, D]` of the prompt followed by each pair, and their mask.

    A decoder-only model has no encoder: the states are input embeddings, padded on the left.
    """
    ids, (length, width) = batch["ids"], prompt.shape
    text = model.embed(frozen, ids).astype(prompt.dtype)
    before = jnp.broadcast_to(prompt[None], (ids.shape[0], length, width))
    mask = jnp.arange(length + ids.shape[1])[None] < length + batch["length"][:, None]
    inputs = {"inputs_embeds": jnp.concatenate([before, text], axis=1), "mask": mask}
    return model.encode(frozen, inputs, dropout_key=key)


def label_scores(model: Seq2SeqModel, frozen: Params, prompt: jax.Array, batch: Batch, labels: LabelIds) -> jax.Array:
    """Return log p(label | pair), summed over the label's tokens, for yes and no: float32 `[B, 2]`.

    The encoder runs once. A decoder-only model processes the pair again if the labels have several tokens.
    """
    hidden, mask = encode_pairs(model, frozen, prompt, batch)
    inputs = [(model.start_token, *ids[:-1]) for ids in labels]
    found: dict[tuple[int, ...], jax.Array] = {}
    for tokens in dict.fromkeys(inputs):  # labels of one token have the same input, so the decoder runs once
        ids = jnp.broadcast_to(jnp.asarray(tokens, jnp.int32)[None], (hidden.shape[0], len(tokens)))
        found[tokens] = jax.nn.log_softmax(model.decode(frozen, ids, hidden, mask).astype(jnp.float32), axis=-1)
    sums = [
        sum(found[tokens][:, place, token] for place, token in enumerate(ids))
        for tokens, ids in zip(inputs, labels, strict=True)
    ]
    return jnp.stack(sums, axis=-1)


def keep_best(state: TuneState, found: jax.Array) -> TuneState:
    """Store the current prompt as the best one in arms whose accuracy on dev rose, or stayed while the AUC rose.

    Args:
      found: accuracy and AUC of the current prompts on dev, float32 `[A, 2]`.
    """
    accuracy, auc = found[:, 0], found[:, 1]
    before, auc_before = state.best[:, 0], state.best[:, 1]
    better = (accuracy > before) | ((accuracy == before) & (auc > auc_before))
    return state._replace(
        best_prompt=jnp.where(better[:, None, None], state.prompt, state.best_prompt),
        best=jnp.where(better[:, None], found, state.best),
        best_step=jnp.where(better, state.step, state.best_step),
    )


def with_dropout(model: Seq2SeqModel, rate: float) -> Seq2SeqModel:
    """Return a frozen model with the same dropout rate in all its layers; 0: no dropout."""
    names = ("embedding_dropout", "dropout", "attention_dropout", "activation_dropout", "final_dropout")
    stacks = {name: getattr(model.spec, name) for name in ("encoder", "decoder")}
    changed = {name: dataclasses.replace(s, **dict.fromkeys(names, float(rate))) for name, s in stacks.items() if s}
    return dataclasses.replace(model, spec=dataclasses.replace(model.spec, **changed))


def stored_as(params: Params, dtype: str) -> Params:
    """Cast the frozen kernels and token embeddings to `dtype`; all other parameters keep their dtype."""

    def cast(path: Any, leaf: Any) -> Any:
        names = [part.key for part in path]
        large = names[-1] in ("kernel", "embedding") and "relative" not in names
        return leaf.astype(jnp.dtype(dtype)) if large else leaf

    return jax.tree_util.tree_map_with_path(cast, params)
