"""The training and evaluation steps of all arms: pure functions, compiled once per shape of the batch.

Arms of a seed get the same batch and dropout keys; only the condition (EEG or a control) differs.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AbstractMesh, Mesh

from eeg2text_jax.base.cpu import summed_by_blocks
from eeg2text_jax.base.devices.arms import Divided, choose_by_arm, each_arm
from eeg2text_jax.base.devices.mesh import shard_rows
from eeg2text_jax.data.batches import Batch, given_prompts
from eeg2text_jax.models.brain import ReconstructionModel
from eeg2text_jax.models.functional import AnyModel, Seq2SeqModel, divide
from eeg2text_jax.models.language_model import logits_of
from eeg2text_jax.training.conditions.condition import ConditionContext, distinct_inputs, fed_mask
from eeg2text_jax.training.sections import OptimSettings
from eeg2text_jax.training.study import Arm, StudyArrays

BLOCK = 1 << 26  # bytes of float32 logits in one block of `summed_loss_by_blocks`


def token_losses(logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0) -> jax.Array:
    """Return the negative log-likelihood in nats of labels `[B, T]` under logits `[B, T, V]`, float32 `[B, T]`.

    `label_smoothing` is the share of the target that is spread evenly over the vocabulary.
    """
    logits = shard_rows(logits.astype(jnp.float32))
    log_norm = _log_norm(logits)
    # A masked sum: XLA may partition a gather from sharded logits across the arms.
    is_label = labels[..., None] == jnp.arange(logits.shape[-1], dtype=labels.dtype).reshape(*[1] * labels.ndim, -1)
    losses = log_norm - jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
    if label_smoothing:
        losses = (1 - label_smoothing) * losses + label_smoothing * (log_norm - logits.mean(axis=-1))
    return losses


@jax.custom_vjp
def _log_norm(logits: jax.Array) -> jax.Array:
    """Return `jax.nn.logsumexp(logits, axis=-1)` of float32 logits `[..., V]`."""
    plain = functools.partial(jax.nn.logsumexp, axis=-1)
    return jax.lax.platform_dependent(logits, tpu=_log_norm_by_product, default=plain)


def _log_norm_by_product(logits: jax.Array) -> jax.Array:
    """Return `_log_norm(logits)` with the sum as a matrix product.

    By the TPU compiler's estimate it takes 2.2 ms instead of 4.3 (7,168 x 50,265 logits on a v5e). `HIGH` splits an
    exponential into two bfloat16: the relative error is at most 2^-17, and 0 for the largest exponential, 1.
    """
    most = jnp.max(logits, axis=-1, keepdims=True)
    ones = jnp.ones((logits.shape[-1], 8), logits.dtype)  # XLA turns a product with one column into a sum
    sums = jnp.matmul(jnp.exp(logits - most), ones, precision=jax.lax.Precision.HIGH)
    return jnp.log(sums[..., 0]) + most[..., 0]


def _log_norm_forward(logits: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    log_norm = _log_norm(logits)
    return log_norm, (logits, log_norm)


def _log_norm_backward(residuals: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array]:
    logits, log_norm = residuals
    return (jnp.exp(logits - log_norm[..., None]) * gradient[..., None],)


_log_norm.defvjp(_log_norm_forward, _log_norm_backward)


@jax.named_scope("head_loss")
def summed_loss(
    logits: jax.Array, labels: jax.Array, weight: jax.Array, pad_token: int, label_smoothing: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Return the loss summed over the tokens of a batch but padding, and their number (float32 scalars).

    `logits` are `[B, T, V]` or `[B*T, V]`, `labels` `[B, T]`; `weight [B]` is 0 for padding rows.
    """
    loss_mask = _loss_mask(labels, weight, pad_token)
    shape = logits.shape[:-1]
    losses = token_losses(logits, labels.reshape(shape), label_smoothing)
    return jnp.sum(losses * loss_mask.reshape(shape)), jnp.sum(loss_mask)


def logits_of_rows(x: jax.Array, table: jax.Array, bias: jax.Array | None, cap: float = 0.0) -> jax.Array:
    """Return `logits_of(x, table, bias, cap)` as `[B*T, V]`.

    A TPU copies products `[B, T, V]` into another layout (0.3 of 210 ms for BART-large, batch 128).
    """
    return logits_of(x.reshape(-1, x.shape[-1]), table, bias, cap)


@jax.named_scope("head_loss")
def summed_loss_by_blocks(
    x: jax.Array,
    table: jax.Array,
    bias: jax.Array | None,
    cap: float = 0.0,
    *,
    labels: jax.Array,
    weight: jax.Array,
    pad_token: int,
    label_smoothing: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """Return `summed_loss` of `logits_of(x, table, bias, cap)` for `x [B, T, D]`, without all logits in memory."""

    def of_block(head: Any, x: jax.Array, rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        labels, loss_mask = (leaf.reshape(-1) for leaf in rows)
        return jnp.sum(token_losses(logits_of_rows(x, head[0], head[1], cap), labels, label_smoothing) * loss_mask)

    loss_mask = _loss_mask(labels, weight, pad_token)
    length, smallest = labels.shape[1], -(-4 * labels.size * len(table) // BLOCK)
    blocks = next((n for n in range(smallest, length) if length % n == 0), length)
    return summed_by_blocks(of_block, (table, bias), x, (labels, loss_mask), blocks), jnp.sum(loss_mask)


def _loss_mask(labels: jax.Array, weight: jax.Array, pad_token: int) -> jax.Array:
    return (labels != pad_token).astype(jnp.float32) * weight[:, None]  # [B, T]


LOSSES = {"mae": jnp.abs, "mse": jnp.square}


@jax.named_scope("reconstruction_loss")
def reconstruction_loss(
    target: jax.Array, made: jax.Array, judged: jax.Array, weight: jax.Array, kind: str, voxels: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return the sum over snapshots of a snapshot's mean error, and the number of snapshots (float32 scalars).

    `made` broadcasts to the shape of the encoder's input, `target [B, W, ...]`. `judged`, bool `[B, W]`, and `voxels`,
    float32 `[...]` or None, say what counts; `weight [B]` is 0 for padding rows; `kind` is "mae" or "mse".
    """
    counted = judged.astype(jnp.float32) * weight[:, None]  # [B, W]
    error = LOSSES[kind](target.astype(jnp.float32) - made)
    axes = tuple(range(2, target.ndim))
    means = error.mean(axis=axes) if voxels is None else (error * voxels[None, None]).sum(axis=axes) / voxels.sum()
    # `where`: the error at padding may be inf or nan.
    return jnp.sum(jnp.where(counted > 0, means * counted, 0.0)), jnp.sum(counted)


def is_frozen(path: tuple, frozen: Sequence[str]) -> bool:
    """Return whether a path of `jax.tree_util` is one of `frozen`, such as "eeg/snapshot", or below."""
    name = "/".join(str(key.key) for key in path)
    return any(name == top or name.startswith(f"{top}/") for top in frozen)


def without_frozen(optimizer: optax.GradientTransformation, frozen: Sequence[str]) -> optax.GradientTransformation:
    """Return an optimizer without state for parameters at or below `frozen`, which it never changes."""
    if not frozen:
        return optimizer

    def label(path: tuple, _: Any) -> str:
        return "frozen" if is_frozen(path, frozen) else "trained"

    kinds = {"trained": optimizer, "frozen": optax.set_to_zero()}  # names in checkpoints
    return optax.partition(kinds, functools.partial(jax.tree.map_with_path, label))


def own_params(model: AnyModel, params: Any) -> Any:
    """Return the parameters (or shapes) of each arm: all but a frozen model that the arms share."""
    return divide(params)[0] if model.shared_frozen else params


def trainable_mask(model: Seq2SeqModel, params: Any, phase: str = "all") -> Any:
    """Return a bool array for each leaf of one arm's `params`, broadcastable to it: True where it is trained.

    Phase `first` is step one of the code of Jo et al. 2024. Of the language model it trains the shared embeddings, the
    learned positions and the encoder's first layer; in T5 only the embeddings, as that code selects by BART's names.
    Phase `all` trains all but buffers, which are the output bias of BART and PEGASUS, and PEGASUS's positions if a
    checkpoint has them.
    """

    def mask(path: tuple, leaf: jax.Array) -> np.ndarray:
        names, one = [key.key for key in path], (1,) * leaf.ndim
        if names[0] != "backbone":
            return np.ones(one, bool)
        if names[1:] == ["head", "bias"] and model.spec.logits_bias == "frozen":
            return np.zeros(one, bool)
        if "positions" in names and getattr(model.spec, names[1]).frozen_positions:
            return np.zeros(one, bool)
        if phase == "first" and model.spec.backbone != "t5" and names[1:3] == ["encoder", "layers"]:
            return (np.arange(leaf.shape[0]) == 0).reshape(-1, *one[1:])
        return np.full(one, phase == "all" or names[1] == "shared" or "embedding" in names[1] or "positions" in names)

    return jax.tree_util.tree_map_with_path(mask, params)


def trainable_only(
    optimizer: optax.GradientTransformation, model: Seq2SeqModel | ReconstructionModel, phase: str
) -> optax.GradientTransformation:
    """Restrict an optimizer, with its gradient norm and decay, to what a phase trains."""
    if _trains_all(model, phase):
        return optimizer
    zero_frozen = optax.stateless(lambda tree, params=None: trained_part(model, tree, phase))
    return optax.chain(zero_frozen, optimizer, zero_frozen)


def trained_part(model: AnyModel, tree: Any, phase: str) -> Any:
    """Return a tree like the parameters with zeros for what a phase does not train."""
    if _trains_all(model, phase):
        return tree
    mask = trainable_mask(cast(Seq2SeqModel, model), tree, phase)
    return jax.tree.map(lambda free, x: x if free.all() else jnp.where(free, x, jnp.zeros_like(x)), mask, tree)


def _trains_all(model: AnyModel, phase: str) -> bool:
    if isinstance(model, ReconstructionModel) or phase in ("bridge", "lora"):
        return True  # the state then has trained parameters only
    spec = getattr(model, "spec", None)  # of a language model
    if spec is None:
        return True
    frozen_positions = any(stack.frozen_positions for stack in filter(None, (spec.encoder, spec.decoder)))
    return phase == "all" and spec.logits_bias != "frozen" and not frozen_positions


Rate: TypeAlias = float | jax.Array


def make_schedule(config: OptimSettings, steps: int, lr: Rate | None = None) -> optax.Schedule:
    """Return the learning rate by step: linear warm-up to `lr` (default: `config.lr`), then `config.schedule`.

    A decay to `lr_end` ends at the last step, one to 0 a step later, as a step of rate 0 changes nothing.
    """
    warmup = min(int(config.warmup_steps), steps // 2)
    end = getattr(config, "lr_end", 0.0)  # a judge's configuration has none
    rest = max(steps - warmup - (1 if end else 0), 1)
    lr = config.lr if lr is None else lr
    match config.schedule:
        case "constant":
            after = optax.constant_schedule(lr)
        case "linear":
            after = optax.linear_schedule(lr, end, rest)
        case "cosine":
            after = optax.cosine_decay_schedule(lr, rest, end / lr if end else 0.0)
        case "geometric":
            after = optax.exponential_decay(lr, rest, end / lr, end_value=end)
        case _:  # "step"
            after = optax.exponential_decay(lr, config.decay_every, config.decay_rate, staircase=True)
    return optax.join_schedules([optax.linear_schedule(0.0, lr, max(warmup, 1)), after], [warmup])


def make_optimizer(config: OptimSettings, steps: int, lr: Rate | None = None) -> optax.GradientTransformation:
    """Return clipping, then AdamW, Adafactor (as in prompt tuning, Lester et al. 2021) or SGD with momentum."""
    schedule, decay = make_schedule(config, steps, lr), config.weight_decay
    clip = optax.clip_by_global_norm(config.grad_clip) if config.grad_clip else optax.identity()
    if config.name == "adamw":
        return optax.chain(clip, optax.adamw(schedule, weight_decay=decay))
    if config.name == "sgd":
        decayed = optax.add_decayed_weights(decay) if decay else optax.identity()
        return optax.chain(clip, decayed, optax.sgd(schedule, momentum=config.momentum))
    options = {"factored": False, "decay_rate": 0.8, "multiply_by_parameter_scale": False, "clipping_threshold": 1.0}
    return optax.chain(clip, optax.adafactor(schedule, weight_decay_rate=decay or None, **options))


class TrainState(NamedTuple):
    """What a training step updates, for all A arms."""

    step: jax.Array  # int32 scalar, number of finished steps
    params: Any  # parameters, each `[A, ...]`
    opt_state: optax.OptState  # optimizer state, each leaf `[A, ...]`
    best_params: Any  # of the lowest dev loss so far, each `[A, ...]`
    best_loss: jax.Array  # float32 `[A]`, in the unit of `loop.DevLoss`


def init_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """Return the state before the first step, of parameters `[A, ...]`."""
    n_arms = jax.tree.leaves(params)[0].shape[0]
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=jax.vmap(optimizer.init)(params),
        best_params=jax.tree.map(jnp.copy, params),
        best_loss=jnp.full((n_arms,), jnp.inf, jnp.float32),
    )


def keep_best(state: TrainState, loss: jax.Array) -> TrainState:
    """Return the state with new best parameters of arms whose dev loss, in `loss [A]`, is lower."""
    better = loss < state.best_loss

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    best = jax.tree.map(choose, state.params, state.best_params)
    return state._replace(best_params=best, best_loss=jnp.where(better, loss, state.best_loss))


Loss = Callable[[Any, Any, jax.Array], jax.Array]  # (parameters, rows, dropout key) -> a scalar


@dataclasses.dataclass(frozen=True)
class GridProgram:
    """Initial state and steps of all arms; fields are static under jit."""

    model: Any  # Seq2SeqModel, or the model of a subclass; the same for all arms
    arms: tuple[Arm, ...]  # in the order of the first axis of every parameter
    optimizer: optax.GradientTransformation  # applied to each arm separately
    label_smoothing: float  # see `token_losses`
    mapping: str  # "vmap" or "map": how one device computes several arms, see `base.devices.arms.each_arm`
    accumulate: int = 1  # micro-batches per step; a divisor of the batch size
    mesh: Mesh | AbstractMesh | None = None  # None: a single device
    frozen: tuple[str, ...] = ()  # paths, such as "eeg/snapshot", below which no parameter gets a gradient
    phase: str = "all"  # what is trained, see `trainable_mask`; `grad_norm` counts nothing else
    by_sentence: bool = False  # whether the dev loss is a mean over sentences, not tokens

    def initial_state(self, keys: jax.Array) -> TrainState:
        """Return the state before the first step, of random parameters from keys `[A]`."""
        return self.first_state(own_params(self.model, jax.vmap(self.model.init)(keys)))

    def first_state(self, params: Any) -> TrainState:
        """Return the state before the first step, of parameters `[A, ...]`."""
        return init_state(params, self.optimizer)

    def state_shapes(self) -> TrainState:
        """Return the shapes of the state; no initialization is traced."""
        return jax.tree.map(lambda leaf: leaf, _state_shapes(self))  # the dicts are copies

    def train_step(
        self, state: TrainState, batch: Batch, study: StudyArrays
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """Return the state after an update of every arm, and `loss` (nats per token) and `grad_norm`, each `[A]`.

        `batch` is `[S, B, ...]`: one for each seed, or S = 1 for all. `base.devices.arms.compile_step` jits this.
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
        """Return each arm's loss on a batch `[B, ...]` summed over tokens, and their number, float32 `[A]`.

        With `by_sentence`, means of sentences are summed, and sentences counted.
        """
        rows = self.fed(batch, study)
        if self.by_sentence:
            tokens = jnp.sum(rows["labels"] != self.model.pad_token, axis=-1).astype(jnp.float32)
            rows["weight"] /= jnp.maximum(tokens, 1.0)

        def evaluate(params, rows, frozen):
            return self._loss(params if frozen is None else Divided(params, frozen), rows, None)

        return each_arm(evaluate, self.mesh, self.mapping, (params, rows), study.frozen)

    def fed(self, batch: Batch, study: StudyArrays) -> dict[str, jax.Array]:
        """Return all arms' inputs, labels and weights, `[A, B, ...]`, from an evaluation batch `[B, ...]`."""
        of_all = jax.tree.map(lambda leaf: leaf[None], dict(batch))
        return self._rows(of_all, study, jnp.zeros((), jnp.int32))

    def _gradient(self, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        count = jnp.maximum(jnp.sum(_loss_mask(rows["labels"], rows["weight"], self.model.pad_token)), 1.0)

        def loss(params: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            return self._loss(params, rows, key)[0] / count

        return self._accumulated(loss, params, rows, key)

    def _accumulated(self, loss: Loss, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the sum of `loss` over micro-batches, and its gradient, 0 for frozen parameters."""

        def stopped(path: tuple, leaf: jax.Array) -> jax.Array:
            return jax.lax.stop_gradient(leaf) if is_frozen(path, self.frozen) else leaf

        def of_own(trained: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            trained = jax.tree.map_with_path(stopped, trained) if self.frozen else trained
            return loss(params._replace(own=trained) if isinstance(params, Divided) else trained, rows, key)

        gradient_of, trained = jax.value_and_grad(of_own), params.own if isinstance(params, Divided) else params
        if self.accumulate == 1:
            return gradient_of(trained, rows, key)

        def add(sums: Any, part: tuple[Batch, jax.Array]) -> tuple[Any, None]:
            rows, number = part
            return jax.tree.map(jnp.add, sums, gradient_of(trained, rows, jax.random.fold_in(key, number))), None

        zeros = jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, trained)
        # A part has every n-th of the rows `[B, ...]`, some on each device: `[n, B / n, ...]`.
        parts = jax.tree.map(lambda x: jnp.moveaxis(x.reshape(-1, self.accumulate, *x.shape[1:]), 1, 0), rows)
        return jax.lax.scan(add, zeros, (parts, jnp.arange(self.accumulate)))[0]

    def _loss(self, params: Any, rows: Mapping[str, Any], key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Return the summed loss of one arm, and the number of its terms; without a key there is no dropout."""
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
        """Whether the program runs on one CPU device, where `summed_by_blocks` saves time and memory."""
        if self.mesh is None:
            return jax.default_backend() == "cpu"
        return isinstance(self.mesh, Mesh) and [d.platform for d in self.mesh.devices.flat] == ["cpu"]

    def _rows(self, batch: Batch, study: StudyArrays, step: jax.Array) -> dict[str, jax.Array]:
        """Return each arm's features, mask, labels and weights, `[A, B, ...]`, from a batch `[S, B, ...]`."""
        conditions, places = [arm.condition for arm in self.arms], self._places(len(batch["mask"]))
        names = ["shuffled_labels" if condition == "label_shuffle" else "labels" for condition in conditions]
        rows = {
            "features": self._features(batch, study, step, places),
            "labels": _choose(batch, list(zip(names, places, strict=True))),
        }
        for name in ("mask", "weight", *given_prompts(batch)):
            rows[name] = _choose(batch, [(name, place) for place in places])
        return {**rows, "mask": fed_mask(conditions, rows["mask"])} if "prompt_only" in conditions else rows

    def _places(self, n_batches: int) -> list[int]:
        """Return for each arm the index of its batch: 0 of a single one, else that of its seed."""
        seeds = list(dict.fromkeys(arm.seed for arm in self.arms))
        if n_batches not in (1, len(seeds)):
            raise ValueError(f"{n_batches} batches for arms of {len(seeds)} seeds")
        return [seeds.index(arm.seed) if n_batches > 1 else 0 for arm in self.arms]

    def _features(self, batch: Mapping[str, Any], study: StudyArrays, step: jax.Array, places: list[int]) -> jax.Array:
        """Return every arm's encoder input `[A, B, W, F]`; `places` are the indices of their batches."""
        fed: list[jax.Array] = []
        which = [0] * len(self.arms)
        for place in sorted(set(places)):
            rows = {name: leaf[place] for name, leaf in batch.items()}
            members = [a for a, at in enumerate(places) if at == place]
            pairs = [(self.arms[a].condition, self.arms[a].seed) for a in members]
            context = ConditionContext.of(rows, study, step)
            values, chosen = distinct_inputs(pairs, rows["features"], rows["mask"], context)
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
    """Return `batch[name][place]` of each arm's (name, place), `[A, ...]`."""
    distinct = sorted(set(wanted))
    return choose_by_arm([batch[name][place] for name, place in distinct], [distinct.index(pair) for pair in wanted])
