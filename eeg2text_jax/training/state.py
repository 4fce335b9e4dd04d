"""The training state (parameters, optimizer state, best parameters), the optimizer, and which parameters it trains."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.flops import AnyModel
from eeg2text_jax.models.functional import Seq2SeqModel, divide
from eeg2text_jax.models.reconstruction import ReconstructionModel
from eeg2text_jax.study.sections import OptimSettings

PHASES = ("first", "all", "bridge", "lora")  # values of optim.trainable


def is_frozen(path: tuple, frozen: Sequence[str]) -> bool:
    """Return whether a path of `jax.tree_util` is, or lies below, one of the paths `frozen`, such as "eeg/snapshot"."""
    name = "/".join(str(key.key) for key in path)
    return any(name == top or name.startswith(f"{top}/") for top in frozen)


def stop_frozen(params: Any, frozen: Sequence[str]) -> Any:
    """Apply `stop_gradient` to the parameters at or below the paths `frozen`."""
    if not frozen:
        return params
    stop = jax.lax.stop_gradient
    return jax.tree.map_with_path(lambda path, leaf: stop(leaf) if is_frozen(path, frozen) else leaf, params)


def without_frozen(optimizer: optax.GradientTransformation, frozen: Sequence[str]) -> optax.GradientTransformation:
    """Return an optimizer that has no state for parameters at or below the paths `frozen` and never changes them."""
    if not frozen:
        return optimizer

    def label(path: tuple, _: Any) -> str:
        return "frozen" if is_frozen(path, frozen) else "trained"

    kinds = {"trained": optimizer, "frozen": optax.set_to_zero()}
    return optax.partition(kinds, functools.partial(jax.tree.map_with_path, label))


def own_params(model: AnyModel, params: Any) -> Any:
    """Return the parameters (or shapes) that each arm has of its own: all but a frozen model that the arms share."""
    return divide(params)[0] if getattr(model, "shared_frozen", False) else params


def trainable_mask(model: Seq2SeqModel, params: Any, phase: str = "all") -> Any:
    """Return a bool array for each leaf of `params` (of one arm), broadcastable to it: True where it is trained.

    Phase `first` is step one of the two-step training in the code of Jo et al. 2024. In the language model it trains
    the shared embeddings, the learned positions and the encoder's first layer; in T5 only the embeddings, because that
    code selects parameters by BART's names. Phase `all` trains everything but buffers: the output bias of BART and
    PEGASUS, and PEGASUS's positions if the checkpoint has a table of them. Parameters outside of the language model are
    always trained.
    """

    def mask(path: tuple, leaf: jax.Array) -> np.ndarray:
        names = [key.key for key in path]
        if names[0] != "backbone":
            return np.ones((1,) * leaf.ndim, bool)
        if names[1:] == ["head", "bias"] and model.spec.logits_bias == "frozen":
            return np.zeros((1,) * leaf.ndim, bool)
        if "positions" in names and getattr(model.spec, names[1]).frozen_positions:
            return np.zeros((1,) * leaf.ndim, bool)
        if phase == "first" and model.spec.backbone != "t5" and names[1:3] == ["encoder", "layers"]:
            return (np.arange(leaf.shape[0]) == 0).reshape(-1, *(1,) * (leaf.ndim - 1))
        free = phase == "all" or names[1] == "shared" or "embedding" in names[1] or "positions" in names
        return np.full((1,) * leaf.ndim, free)

    return jax.tree_util.tree_map_with_path(mask, params)


def trainable_only(
    optimizer: optax.GradientTransformation, model: Seq2SeqModel | ReconstructionModel, phase: str
) -> optax.GradientTransformation:
    """Restrict an optimizer to the parameters that a phase of `trainable_mask` trains; an unknown phase is a UserError.

    Other parameters do not enter the gradient norm and do not decay.
    """
    if phase not in PHASES:
        raise UserError(f"config.optim.trainable is {phase!r}; it must be one of {', '.join(PHASES)}.")
    if _trains_all(model, phase):
        return optimizer

    def zero_frozen(tree: Any, params: Any = None) -> Any:
        return trained_part(model, tree, phase)

    return optax.chain(optax.stateless(zero_frozen), optimizer, optax.stateless(zero_frozen))


def trained_part(model: AnyModel, tree: Any, phase: str) -> Any:
    """Return a tree of the parameters' structure with zeros for what a phase of `trainable_mask` does not train."""

    def zero_where(free: np.ndarray, x: jax.Array) -> jax.Array:
        return x if free.all() else jnp.where(free, x, jnp.zeros_like(x))

    if _trains_all(model, phase):
        return tree
    return jax.tree.map(zero_where, trainable_mask(cast(Seq2SeqModel, model), tree, phase), tree)


def _trains_all(model: AnyModel, phase: str) -> bool:
    """Return whether a phase trains all parameters of the training state."""
    if isinstance(model, ReconstructionModel) or phase in ("bridge", "lora"):
        return True  # the training state then has trained parameters only
    spec = getattr(model, "spec", None)  # of a language model
    stacks = filter(None, (spec.encoder, spec.decoder)) if spec else ()
    frozen_positions = any(stack.frozen_positions for stack in stacks)
    return spec is None or (phase == "all" and spec.logits_bias != "frozen" and not frozen_positions)


Rate: TypeAlias = float | jax.Array


def make_schedule(config: OptimSettings, steps: int, lr: Rate | None = None) -> optax.Schedule:
    """Return the learning rate by step: linear warm-up to `lr` (default: `config.lr`), then `config.schedule`.

    A decay to `lr_end` reaches it at the last step; a decay to 0 reaches 0 one step later, because a last step with
    rate 0 would change nothing.
    """
    warmup = min(int(config.warmup_steps), steps // 2)
    end = getattr(config, "lr_end", 0.0)  # the configuration of a judge (a scoring model) has no such field
    rest = steps - warmup - (1 if end else 0)
    lr = config.lr if lr is None else lr
    if config.schedule == "constant":
        after = optax.constant_schedule(lr)
    elif config.schedule == "linear":
        after = optax.linear_schedule(lr, end, max(rest, 1))
    elif config.schedule == "cosine":
        after = optax.cosine_decay_schedule(lr, max(rest, 1), end / lr if end else 0.0)
    elif config.schedule == "geometric":
        after = optax.exponential_decay(lr, max(rest, 1), end / lr, end_value=end)
    else:  # "step"
        after = optax.exponential_decay(lr, config.decay_every, config.decay_rate, staircase=True)
    return optax.join_schedules([optax.linear_schedule(0.0, lr, max(warmup, 1)), after], [warmup])


def make_optimizer(config: OptimSettings, steps: int, lr: Rate | None = None) -> optax.GradientTransformation:
    """Return the optimizer: gradient clipping, then AdamW, Adafactor, or SGD with momentum.

    Adafactor has the settings of prompt tuning (Lester et al. 2021): second moments not factored, no scaling by the
    parameters' size, decay not multiplied by the learning rate. `lr`, a number or a scalar array, replaces `config.lr`.
    """
    schedule = make_schedule(config, steps, lr)
    clip = optax.clip_by_global_norm(config.grad_clip) if config.grad_clip else optax.identity()
    if config.name == "adamw":
        return optax.chain(clip, optax.adamw(schedule, weight_decay=config.weight_decay))
    if config.name == "sgd":
        decay = optax.add_decayed_weights(config.weight_decay) if config.weight_decay else optax.identity()
        return optax.chain(clip, decay, optax.sgd(schedule, momentum=config.momentum))
    options = {"factored": False, "decay_rate": 0.8, "multiply_by_parameter_scale": False, "clipping_threshold": 1.0}
    return optax.chain(clip, optax.adafactor(schedule, weight_decay_rate=config.weight_decay or None, **options))


class TrainState(NamedTuple):
    """A pytree of arrays that a training step updates, for all A arms."""

    step: jax.Array  # int32 scalar, number of finished steps
    params: Any  # parameters, each `[A, ...]`
    opt_state: optax.OptState  # optimizer state, each leaf `[A, ...]`
    best_params: Any  # parameters of the lowest dev loss so far, each `[A, ...]`
    best_loss: jax.Array  # lowest dev loss so far, float32 `[A]`; its unit: see `loop.DevLoss`


def init_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """Return the state before the first step, from the initial parameters `[A, ...]`."""
    n_arms = jax.tree.leaves(params)[0].shape[0]
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=jax.vmap(optimizer.init)(params),
        best_params=jax.tree.map(jnp.copy, params),
        best_loss=jnp.full((n_arms,), jnp.inf, jnp.float32),
    )


def keep_best(state: TrainState, loss: jax.Array) -> TrainState:
    """Return the state with new best parameters for arms whose dev loss, in `loss [A]`, is lower than before."""
    better = loss < state.best_loss

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return state._replace(
        best_params=jax.tree.map(choose, state.params, state.best_params),
        best_loss=jnp.where(better, loss, state.best_loss),
    )
