"""Which parameters a phase of training leaves free."""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax

from eeg2text_jax.errors import UserError
from eeg2text_jax.models.functional import Seq2SeqModel

Phase = Literal["first", "all"]


def free_mask(model: Seq2SeqModel, params: Any, phase: Phase = "all") -> Any:
    """A tree like `params` (arrays or shapes of one arm) of bool arrays that broadcast against each parameter.

    Multiply the optimizer's updates by it: True is trained. Phase `first` is step one of the authors' two-step
    training: of the language model only the shared embeddings, the learned positions and the encoder's first layer
    are free, which for T5, as their code matches BART's names, leaves the embeddings alone; what stands before the
    language model is always free. Phase `all` frees everything but buffers: BART's and PEGASUS's output bias, and
    PEGASUS's positions where the checkpoint brings a table of its own.
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


def only_free(
    optimizer: optax.GradientTransformation, model: Seq2SeqModel, phase: Phase
) -> optax.GradientTransformation:
    """The optimizer on what `phase` leaves free: the rest enters no gradient norm and does not decay either.

    Raises:
      UserError: there is no such phase.
    """
    if phase not in get_args(Phase):
        raise UserError(f"config.optim.free is {phase!r}; it must be one of {', '.join(get_args(Phase))}.")
    frozen_positions = model.spec.encoder.frozen_positions or model.spec.decoder.frozen_positions
    if phase == "all" and model.spec.logits_bias != "frozen" and not frozen_positions:
        return optimizer

    def hold(tree: Any, params: Any = None) -> Any:
        return jax.tree.map(lambda x, free: jnp.where(free, x, jnp.zeros_like(x)), tree, free_mask(model, tree, phase))

    return optax.chain(optax.stateless(hold), optimizer, optax.stateless(hold))
