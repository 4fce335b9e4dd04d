"""One training step and one evaluation step for all arms at once: pure functions, compiled once per bucket.

All arms of a seed see the same batch with the same dropout keys; only the condition differs.
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
from eeg2text_jax.training.objectives import count_tokens, summed_loss, summed_loss_by_blocks
from eeg2text_jax.training.state import TrainState, held, init_state, own_only

Loss = Callable[[Any, Any, jax.Array], jax.Array]  # (parameters, rows, dropout key) -> a scalar


@dataclasses.dataclass(frozen=True)
class GridProgram:
    """The compiled side of a grid: everything here is static."""

    model: Any  # a Seq2SeqModel, or the kind that a subclass trains; the same for all arms
    arms: tuple[Arm, ...]  # the arms, in the order of the first axis of every parameter
    optimizer: optax.GradientTransformation  # applied to each arm on its own
    label_smoothing: float  # see `objectives.token_losses`
    mapping: str  # of several arms on one device, see `parallel.arms.each_arm`
    accumulate: int = 1  # number of micro-batches per step; divides the batch
    mesh: Mesh | AbstractMesh | None = None  # where it runs; None on a single device
    frozen: tuple[str, ...] = ()  # paths of parameters that get no gradient, with all below them, as "eeg/snapshot"

    def initial_state(self, keys: jax.Array) -> TrainState:
        """Return the state before the first step, with random parameters from keys `[A]`."""
        return init_state(own_only(self.model, jax.vmap(self.model.init)(keys)), self.optimizer)

    def state_shapes(self) -> TrainState:
        """Return the shapes of the state, without tracing how its parameters are drawn."""

        def stacked(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((len(self.arms), *leaf.shape), leaf.dtype)

        shapes = jax.tree.map(stacked, own_only(self.model, self.model.shapes))
        return jax.eval_shape(functools.partial(init_state, optimizer=self.optimizer), shapes)

    def train_step(
        self, state: TrainState, batch: Batch, study: StudyArrays
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Update every arm once; also return `loss` (nats per token) and `grad_norm`, each `[A]`.

        `batch` from `data.batches` is `[S, B, ...]`: one batch per seed of the arms, or one for all of them. The caller
        jits this with the buffers of `state` donated (see `parallel.arms.compile_step`).
        """
        keys = jax.vmap(jax.random.fold_in, (0, None))(study.dropout, state.step)
        # Under vmap, an unmapped key gives one draw that all arms share.
        shared_key = keys[0] if len({arm.seed for arm in self.arms}) == 1 else None

        def update(params, opt_state, key, rows, shared):
            shared_key, frozen = shared
            whole = params if frozen is None else Divided(params, frozen)
            value, gradient = self._gradient(whole, rows, key if shared_key is None else shared_key)
            with jax.named_scope("optimizer"):
                with jax.numpy_dtype_promotion("standard"):  # optax computes float ** int32 step
                    updates, opt_state = self.optimizer.update(gradient, opt_state, params)
                metrics = {"loss": value, "grad_norm": optax.tree.norm(gradient)}
                return optax.apply_updates(params, updates), opt_state, metrics

        rows = self._rows(batch, study, state.step)
        with jax.named_scope("optimizer"):  # also the writes of the new state, which belong to no part of the model
            arguments, shared = (state.params, state.opt_state, keys, rows), (shared_key, study.frozen)
            params, opt_state, metrics = self._each_arm(update, arguments, shared)
        return state._replace(step=state.step + 1, params=params, opt_state=opt_state), metrics

    def eval_step(self, params: Any, batch: Batch, study: StudyArrays) -> tuple[jax.Array, jax.Array]:
        """Return each arm's summed loss under its own condition, and the number of tokens, both float32 `[A]`.

        All arms get the same batch `[B, ...]`.
        """

        def evaluate(params, rows, frozen):
            return self._loss(params if frozen is None else Divided(params, frozen), rows, None)

        return self._each_arm(evaluate, (params, self.fed(batch, study)), study.frozen)

    def fed(self, batch: Batch, study: StudyArrays) -> dict[str, jax.Array]:
        """Return the inputs and labels of every arm in an evaluation, `[A, B, ...]`, from a batch `[B, ...]`."""
        of_all = jax.tree.map(lambda leaf: leaf[None], dict(batch))
        return self._rows(of_all, study, jnp.zeros((), jnp.int32))

    def _gradient(self, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the mean loss over the tokens of one arm's batch, and its gradient."""
        count = jnp.maximum(count_tokens(rows["labels"], rows["weight"], self.model.pad_token), 1.0)

        def loss(params: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            return self._loss(params, rows, key)[0] / count

        return self._accumulated(loss, params, rows, key)

    def _accumulated(self, loss: Loss, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the sum of `loss` over the micro-batches, and its gradient; frozen parameters have none."""

        def of_own(own: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            own = held(own, self.frozen)
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
        """`[B, ...]` -> `[accumulate, B / accumulate, ...]`: strided, so each part has rows of every device."""
        return jnp.moveaxis(rows.reshape(-1, self.accumulate, *rows.shape[1:]), 1, 0)

    def _loss(self, params: Any, rows: Mapping[str, Any], key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return the summed loss of one arm and the number of tokens."""
        inputs = {"features": rows["features"], "mask": rows["mask"], **given_prompts(rows)}
        labels, pad = rows["labels"], self.model.pad_token
        smoothing = self.label_smoothing if key is not None else 0.0
        judged = {"labels": labels, "weight": rows["weight"], "pad_token": pad, "label_smoothing": smoothing}
        forward = functools.partial(self.model.forward, params, inputs, self.model.shift_right(labels), dropout_key=key)
        if self._on_a_cpu:
            return forward(read_out=functools.partial(summed_loss_by_blocks, **judged))
        return summed_loss(forward(), **judged)

    @property
    def _on_a_cpu(self) -> bool:
        """Whether the program runs on one CPU device, where `summed_by_blocks` saves time as well as memory."""
        if self.mesh is None:
            return jax.default_backend() == "cpu"
        return isinstance(self.mesh, Mesh) and [d.platform for d in self.mesh.devices.flat] == ["cpu"]

    def _rows(self, batch: Batch, study: StudyArrays, step: jax.Array) -> dict[str, jax.Array]:
        """Return each arm's features, mask, labels and weights, `[A, B, ...]`, from a batch `[S, B, ...]`."""
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
        """Return the index of each arm's batch: that of its seed, or of the only batch."""
        seeds = list(dict.fromkeys(arm.seed for arm in self.arms))
        if n_batches not in (1, len(seeds)):
            raise ValueError(f"{n_batches} batches for arms of {len(seeds)} seeds")
        return [seeds.index(arm.seed) if n_batches > 1 else 0 for arm in self.arms]

    def _features(self, batch: Mapping[str, Any], study: StudyArrays, step: jax.Array, places: list[int]) -> jax.Array:
        """Return every arm's encoder input, `[A, B, W, F]`."""
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

    def _each_arm(self, function: Callable[..., Any], arguments: Any, shared: Any) -> Any:
        return each_arm(function, self.mesh, self.mapping, arguments, shared)


def _choose(batch: Mapping[str, Any], wanted: list[tuple[str, int]]) -> jax.Array:
    """Return `batch[name][place]` for each arm's pair in `wanted`, stacked to `[A, ...]`."""
    distinct = sorted(set(wanted))
    return choose_by_arm([batch[name][place] for name, place in distinct], [distinct.index(pair) for pair in wanted])
