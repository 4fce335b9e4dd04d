"""Optimizer and learning-rate schedule of `config.optim`."""

import optax
from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError


def make_schedule(config: ConfigDict, steps: int) -> optax.Schedule:
    """Learning rate by step: linear warm-up to `lr`, then constant, cosine to zero, or step decay.

    Raises:
      UserError: `schedule` is not known.
    """
    warmup = min(int(config.warmup_steps), steps // 2)
    rest = steps - warmup
    if config.schedule == "constant":
        after = optax.constant_schedule(config.lr)
    elif config.schedule == "cosine":
        after = optax.cosine_decay_schedule(config.lr, max(rest, 1))
    elif config.schedule == "step":
        after = optax.exponential_decay(config.lr, config.decay_every, config.decay_rate, staircase=True)
    else:
        raise UserError(f"optim.schedule is {config.schedule!r}; expected 'constant', 'cosine' or 'step'.")
    return optax.join_schedules([optax.linear_schedule(0.0, config.lr, max(warmup, 1)), after], [warmup])


def make_optimizer(config: ConfigDict, steps: int) -> optax.GradientTransformation:
    """Gradient clipping, then AdamW or SGD with momentum.

    Raises:
      UserError: `name` or `schedule` is not known.
    """
    schedule = make_schedule(config, steps)
    clip = optax.clip_by_global_norm(config.grad_clip) if config.grad_clip else optax.identity()
    if config.name == "adamw":
        return optax.chain(clip, optax.adamw(schedule, weight_decay=config.weight_decay))
    if config.name == "sgd":
        decay = optax.add_decayed_weights(config.weight_decay) if config.weight_decay else optax.identity()
        return optax.chain(clip, decay, optax.sgd(schedule, momentum=config.momentum))
    raise UserError(f"optim.name is {config.name!r}; expected 'adamw' or 'sgd'.")
