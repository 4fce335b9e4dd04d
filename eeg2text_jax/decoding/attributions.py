"""Attribute a model's own free-running text to EEG channels: input times the gradient of the text's log-likelihood.

The resulting map shows to which channels the likelihood is sensitive, not whether the text is right: a model that was
trained on noise has a map, too, which is shown for comparison.
"""

import collections
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.sharding import Mesh

from eeg2text_jax.data.raw.electrodes import Place, electrodes_of
from eeg2text_jax.decoding.cells import over_slices, place_params
from eeg2text_jax.decoding.retrieve import padded_labels, summed_nll
from eeg2text_jax.decoding.sharded import Inputs, program_of_arms
from eeg2text_jax.files import write_text
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.predictions.file import Prediction
from eeg2text_jax.study.study import Study


class ChannelShares:
    """Share of each channel in the attribution, for each training condition; `add` takes the arms wave by wave.

    `places` is empty, and nothing can be added, if the data file has no positions of electrodes or the run does not
    decode under the condition `eeg`.
    """

    def __init__(self, study: Study):
        self.places: list[Place] = electrodes_of(study.data) if "eeg" in study.config.grid.eval_conditions else []
        self._of_arms: dict[str, list[np.ndarray]] = collections.defaultdict(list)  # shares [channels] of each arm

    def add(self, study: Study, params: Any, mesh: Mesh, texts: Sequence[Sequence[str]]) -> None:
        """Add the shares of the study's arms; `texts [A][N]` were decoded by the arms from the EEG of the test part."""
        rows = study.split.parts["test"]
        found = padded_labels(study, [text for own in texts for text in own]).reshape(len(study.arms), len(rows), -1)
        program = attribution_program(study.model, mesh, study.config.decode.tensor_parallel)
        params = place_params(study, params, mesh)

        def run(fed: Inputs, shared: Inputs, _: Inputs) -> jax.Array:
            return program(params, fed, shared)

        sizes = over_slices(
            study, rows, "eeg", mesh, run, "attribute texts to channels", found
        )  # [A, N, F = channels * bands]
        for arm, own in zip(study.arms, sizes, strict=True):
            channels = own.reshape(len(rows), -1, len(self.places)).sum(axis=1, dtype=np.float64)
            self._of_arms[arm.condition].append(mean_share(channels, study.data.subject[rows]))

    def write(self, out: epath.Path) -> None:
        """Write electrode positions, and for each training condition the channels' shares, mean over arms, as JSON."""
        shares = {name: np.mean(own, axis=0).round(6).tolist() for name, own in self._of_arms.items()}
        write_text(out, json.dumps({"electrodes": self.places, "shares": shares}) + "\n")


def own_texts(study: Study, rows: Iterable[Prediction]) -> list[list[str]]:
    """Return each arm's best free-running texts from EEG, a list `[A][N]` with the samples in the order of `rows`."""
    own: dict[tuple[str, int], list[str]] = {(arm.condition, arm.seed): [] for arm in study.arms}
    for row in rows:
        if row.mode == "free_running" and row.eval_condition == "eeg" and not row.hypothesis:
            own[row.train_condition, row.seed].append(row.prediction)
    return list(own.values())


def mean_share(sizes: np.ndarray, subjects: np.ndarray) -> np.ndarray:
    """Return each channel's share of `sizes [N, channels]`: shares sum to 1 for each subject, then are averaged."""
    of_subject = [sizes[subjects == name].mean(axis=0) for name in np.unique(subjects.astype(str))]
    return np.mean([own / max(own.sum(), np.finfo(float).tiny) for own in of_subject], axis=0)


@functools.lru_cache(maxsize=16)
def attribution_program(model: Seq2SeqModel, mesh: Mesh, tensor_parallel: bool = False) -> Callable[..., jax.Array]:
    """Return the jitted function `(params, fed, shared) -> |gradient * input|`, summed over words, `[A, B, F]`.

    `fed` has `features [A, B, W, F]` and the texts `labels [A, B, T]` whose likelihood is differentiated.
    """

    def attribute(params: Any, fed: Inputs, shared: Inputs) -> jax.Array:
        def loss(features: jax.Array) -> jax.Array:
            hidden, mask = model.encode(params, {"features": features, **shared})
            return jnp.sum(summed_nll(model, params, hidden, mask, fed["labels"]))

        product = jax.grad(loss)(fed["features"]) * fed["features"]
        return jnp.sum(jnp.where(shared["mask"][..., None], jnp.abs(product), 0.0), axis=1)

    return program_of_arms(attribute, mesh, tensor_parallel)
