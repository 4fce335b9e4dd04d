"""The training step and the evaluation step of all arms: pure functions, compiled once per shape of the batch.

All arms of a seed get the same batch and the same dropout keys; only the condition (EEG or a control) differs.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AbstractMesh, Mesh

from eeg2text_jax.conditions.condition import ConditionContext, distinct_inputs, fed_mask
from eeg2text_jax.data.batches import Batch, given_prompts
from eeg2text_jax.parallel.arms import Divided, choose_by_arm, each_arm
from eeg2text_jax.study.grid import Arm, StudyArrays
from eeg2text_jax.training.objectives import count_tokens, logits_of_rows, summed_loss, summed_loss_by_blocks
from eeg2text_jax.training.state import TrainState, init_state, own_params, stop_frozen, trained_part

Loss = Callable[[Any, Any, jax.Array], jax.Array]  # (parameters, rows, dropout key) -> a scalar


@dataclasses.dataclass(frozen=True)
class GridProgram:
    """Initial state, training step and evaluation step of all arms; its fields are static under jit."""

    model: Any  # Seq2SeqModel, or the model of a subclass; the same for all arms
    arms: tuple[Arm, ...]  # in the order of the first axis of every parameter
    optimizer: optax.GradientTransformation  # applied to each arm separately
    label_smoothing: float  # see `objectives.token_losses`
    mapping: str  # "vmap" or "map": how one device computes several arms, see `parallel.arms.each_arm`
    accumulate: int = 1  # number of micro-batches per step; a divisor of the batch size
    mesh: Mesh | AbstractMesh | None = None  # None: a single device
    frozen: tuple[str, ...] = ()  # paths, such as "eeg/snapshot": parameters at or below them get no gradient
    phase: str = "all"  # what is trained, see `state.trainable_mask`; `grad_norm` counts nothing else
    by_sentence: bool = False  # whether the dev loss is a mean over sentences, instead of tokens

    def initial_state(self, keys: jax.Array) -> TrainState:
        """Return the state before the first step, with random parameters from keys `[A]`."""
        return self.first_state(own_params(self.model, jax.vmap(self.model.init)(keys)))

    def first_state(self, params: Any) -> TrainState:
        """Return the state before the first step, with these parameters `[A, ...]`."""
        return init_state(params, self.optimizer)

    def state_shapes(self) -> TrainState:
        """Return the shapes of the state, without tracing the random initialization."""
        return jax.tree.map(lambda leaf: leaf, _state_shapes(self))  # the dicts are copies

    def train_step(
        self, state: TrainState, batch: Batch, study: StudyArrays
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Return the state after one update of every arm, and `loss` (nats per token) and `grad_norm`, each `[A]`.

        `batch` is `[S, B, ...]`: a batch for each seed of the arms, or S = 1 for one batch for all arms. Jit this with
        `parallel.arms.compile_step`, which donates the state.
        """
        keys = jax.vmap(jax.random.fold_in, (0, None))(study.dropout, state.step)
        # With one seed, an unmapped key makes vmap draw once for all arms.
        shared_key = keys[0] if len({arm.seed for arm in self.arms}) == 1 else None

        def update(params, opt_state, key, rows, shared):
            shared_key, frozen = shared
            whole = params if frozen is None else Divided(params, frozen)
            value, gradient = self._gradient(whole, rows, key if shared_key is None else shared_key)
            with jax.named_scope("optimizer"):
                with jax.numpy_dtype_promotion("standard"):  # optax computes float ** int32 step
                    updates, opt_state = self.optimizer.update(gradient, opt_state, params)
                metrics = {"loss": value, "grad_norm": optax.tree.norm(trained_part(self.model, gradient, self.phase))}
                return optax.apply_updates(params, updates), opt_state, metrics

        rows = self._rows(batch, study, state.step)
        with jax.named_scope("optimizer"):  # in profiles, writing the new state then counts as optimizer
            arguments, shared = (state.params, state.opt_state, keys, rows), (shared_key, study.frozen)
            params, opt_state, metrics = each_arm(update, self.mesh, self.mapping, arguments, shared)
        return state._replace(step=state.step + 1, params=params, opt_state=opt_state), metrics

    def eval_step(self, params: Any, batch: Batch, study: StudyArrays) -> tuple[jax.Array, jax.Array]:
        """Return each arm's loss on a batch `[B, ...]`, summed over tokens, and the number of tokens, float32 `[A]`.

        With `by_sentence`, each sentence's mean is summed over sentences, and sentences are counted. All arms get the
        same batch, each under its training condition.
        """
        rows = self.fed(batch, study)
        if self.by_sentence:
            tokens = jnp.sum(rows["labels"] != self.model.pad_token, axis=-1).astype(jnp.float32)
            rows["weight"] /= jnp.maximum(tokens, 1.0)

        def evaluate(params, rows, frozen):
            return self._loss(params if frozen is None else Divided(params, frozen), rows, None)

        return each_arm(evaluate, self.mesh, self.mapping, (params, rows), study.frozen)

    def fed(self, batch: Batch, study: StudyArrays) -> dict[str, jax.Array]:
        """Return a dict of all arms' inputs, labels and weights, `[A, B, ...]`, from an evaluation batch `[B, ...]`."""
        of_all = jax.tree.map(lambda leaf: leaf[None], dict(batch))
        return self._rows(of_all, study, jnp.zeros((), jnp.int32))

    def _gradient(self, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the mean loss of one arm over the tokens of its batch, and the gradient of this mean."""
        count = jnp.maximum(count_tokens(rows["labels"], rows["weight"], self.model.pad_token), 1.0)

        def loss(params: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            return self._loss(params, rows, key)[0] / count

        return self._accumulated(loss, params, rows, key)

    def _accumulated(self, loss: Loss, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the sum of `loss` over the micro-batches, and its gradient, which is 0 for frozen parameters."""

        def of_own(own: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            own = stop_frozen(own, self.frozen)
            return loss(params._replace(own=own) if isinstance(params, Divided) else own, rows, key)

        gradient_of, own = jax.value_and_grad(of_own), params.own if isinstance(params, Divided) else params
        if self.accumulate == 1:
            return gradient_of(own, rows, key)

        def add(sums: Any, part: tuple[Batch, jax.Array]) -> tuple[Any, None]:
            rows, number = part
            return jax.tree.map(jnp.add, sums, gradient_of(own, rows, jax.random.fold_in(key, number))), None

        zeros = jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, own)
        parts = jax.tree.map(self._microbatches, rows)
        return jax.lax.scan(add, zeros, (parts, jnp.arange(self.accumulate)))[0]

    def _microbatches(self, rows: jax.Array) -> jax.Array:
        """Split rows `[B, ...]` into n = `accumulate` parts, `[n, B / n, ...]`.

        Part i has every n-th row from row i on, so that each part has rows on all devices.
        """
        return jnp.moveaxis(rows.reshape(-1, self.accumulate, *rows.shape[1:]), 1, 0)

    def _loss(self, params: Any, rows: Mapping[str, Any], key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return the loss of one arm summed over tokens, and their number; without a key there is no dropout."""
        inputs = {"features": rows["features"], "mask": rows["mask"], **given_prompts(rows)}
        labels, pad = rows["labels"], self.model.pad_token
        smoothing = self.label_smoothing if key is not None else 0.0
        judged = {"labels": labels, "weight": rows["weight"], "pad_token": pad, "label_smoothing": smoothing}
        forward = functools.partial(self.model.forward, params, inputs, self.model.shift_right(labels), dropout_key=key)
        if self._on_a_cpu:
            return forward(read_out=functools.partial(summed_loss_by_blocks, **judged))
        return summed_loss(forward(read_out=logits_of_rows), **judged)

    @property
    def _on_a_cpu(self) -> bool:
        """Whether the program runs on a single CPU device, where `summed_by_blocks` saves time and memory."""
        if self.mesh is None:
            return jax.default_backend() == "cpu"
        return isinstance(self.mesh, Mesh) and [d.platform for d in self.mesh.devices.flat] == ["cpu"]

    def _rows(self, batch: Batch, study: StudyArrays, step: jax.Array) -> dict[str, jax.Array]:
        """Return a dict of each arm's features, mask, labels and weights, `[A, B, ...]`, from a batch `[S, B, ...]`."""
        names = ["shuffled_labels" if arm.condition == "label_shuffle" else "labels" for arm in self.arms]
        places = self._places(len(batch["mask"]))
        rows = {
            "features": self._features(batch, study, step, places),
            "labels": _choose(batch, list(zip(names, places, strict=True))),
        }
        for name in ("mask", "weight", *given_prompts(batch)):
            rows[name] = _choose(batch, [(name, place) for place in places])
        conditions = [arm.condition for arm in self.arms]
        return {**rows, "mask": fed_mask(conditions, rows["mask"])} if "prompt_only" in conditions else rows

    def _places(self, n_batches: int) -> list[int]:
        """Return for each arm the index of its batch: 0 with a single batch, otherwise the index of its seed."""
        seeds = list(dict.fromkeys(arm.seed for arm in self.arms))
        if n_batches not in (1, len(seeds)):
            raise ValueError(f"{n_batches} batches for arms of {len(seeds)} seeds")
        return [seeds.index(arm.seed) if n_batches > 1 else 0 for arm in self.arms]

    def _features(self, batch: Mapping[str, Any], study: StudyArrays, step: jax.Array, places: list[int]) -> jax.Array:
        """Return every arm's encoder input `[A, B, W, F]`; `places` has the index of each arm's batch."""
        fed: list[jax.Array] = []
        which = [0] * len(self.arms)
        for place in sorted(set(places)):
            own = {name: leaf[place] for name, leaf in batch.items()}
            context = ConditionContext.of(own, study.condition, study.means, step)
            members = [a for a, at in enumerate(places) if at == place]
            pairs = [(self.arms[a].condition, self.arms[a].seed) for a in members]
            values, chosen = distinct_inputs(pairs, own["features"], own["mask"], context)
            for a, value in zip(members, chosen, strict=True):
                which[a] = len(fed) + value
            fed += values
        return choose_by_arm(fed, which)


@functools.lru_cache(maxsize=64)
def _state_shapes(program: GridProgram) -> TrainState:
    def stacked(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((len(program.arms), *leaf.shape), leaf.dtype)

    return jax.eval_shape(program.first_state, jax.tree.map(stacked, own_params(program.model, program.model.shapes)))


def _choose(batch: Mapping[str, Any], wanted: list[tuple[str, int]]) -> jax.Array:
    """Return `batch[name][place]` of each arm, stacked to `[A, ...]`; `wanted` has a (name, place) for each arm."""
    distinct = sorted(set(wanted))
    return choose_by_arm([batch[name][place] for name, place in distinct], [distinct.index(pair) for pair in wanted])
