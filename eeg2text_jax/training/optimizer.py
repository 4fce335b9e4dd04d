"""Optimizer and learning-rate schedule of `config.optim`."""

import jax
import optax
from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError

Rate = float | jax.Array


def make_schedule(config: ConfigDict, steps: int, lr: Rate | None = None) -> optax.Schedule:
    """Learning rate by step: linear warm-up to `lr`, then constant, linear or cosine to zero, or step decay.

    Raises:
      UserError: `schedule` is not known.
    """
    warmup = min(int(config.warmup_steps), steps // 2)
    rest = steps - warmup
    lr = config.lr if lr is None else lr
    if config.schedule == "constant":
        after = optax.constant_schedule(lr)
    elif config.schedule == "linear":
        after = optax.linear_schedule(lr, 0.0, max(rest, 1))
    elif config.schedule == "cosine":
        after = optax.cosine_decay_schedule(lr, max(rest, 1))
    elif config.schedule == "step":
        after = optax.exponential_decay(lr, config.decay_every, config.decay_rate, staircase=True)
    else:
        raise UserError(f"optim.schedule is {config.schedule!r}; expected 'constant', 'linear', 'cosine' or 'step'.")
    return optax.join_schedules([optax.linear_schedule(0.0, lr, max(warmup, 1)), after], [warmup])


def make_optimizer(config: ConfigDict, steps: int, lr: Rate | None = None) -> optax.GradientTransformation:
    """Gradient clipping, then AdamW, Adafactor, or SGD with momentum.

    Adafactor is that of prompt tuning (Lester et al. 2021): second moments whole, no scaling by the parameters' size,
    decay that the learning rate does not multiply.

    Args:
      lr: in place of `config.lr`; may be an array of no axes, as where several are tried in one program.

    Raises:
      UserError: `name` or `schedule` is not known.
    """
    schedule = make_schedule(config, steps, lr)
    clip = optax.clip_by_global_norm(config.grad_clip) if config.grad_clip else optax.identity()
    if config.name == "adamw":
        return optax.chain(clip, optax.adamw(schedule, weight_decay=config.weight_decay))
    if config.name == "sgd":
        decay = optax.add_decayed_weights(config.weight_decay) if config.weight_decay else optax.identity()
        return optax.chain(clip, decay, optax.sgd(schedule, momentum=config.momentum))
    if config.name == "adafactor":
        adafactor = optax.adafactor(
            schedule,
            factored=False,
            decay_rate=0.8,
            multiply_by_parameter_scale=False,
            clipping_threshold=1.0,
            weight_decay_rate=config.weight_decay or None,
        )
        return optax.chain(clip, adafactor)
    raise UserError(f"optim.name is {config.name!r}; expected 'adamw', 'adafactor' or 'sgd'.")
