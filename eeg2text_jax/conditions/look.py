"""Describe the encoder's input under a condition in numbers, for `eeg2text check DATA.h5 --condition=noise`."""

import numpy as np

from eeg2text_jax.conditions.condition import CONDITIONS, ConditionContext, condition_key, distinct_inputs, needs
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError, did_you_mean


def condition_lines(data: DataFile, name: str, seed: int = 0) -> list[str]:
    """Return lines of text on the encoder's input for the first 64 samples; `seed` is the seed of the run and the arm.

    Raises UserError if there is no such condition, it needs a split, or the samples are windows of scans.
    """
    if name not in CONDITIONS:
        raise UserError(f"--condition={name}: there is no such condition; {did_you_mean(name, CONDITIONS)}")
    if wanted := needs([name]):
        raise UserError(
            f"--condition={name}: is made from a split's parts ({', '.join(sorted(wanted))}), which a data file does "
            f"not have; expected one of {', '.join(other for other in CONDITIONS if not needs([other]))}."
        )
    if data.is_windows:
        raise UserError(f"--condition={name}: {data.path} has windows of scans; expected words.")
    n_words = data.n_words[:64]
    mask = np.arange(n_words.max()) < n_words[:, None]
    features = np.zeros((*mask.shape, data.n_features), np.float32)
    features[mask] = data.features[: n_words.sum()]
    context = ConditionContext(condition_key(seed), np.arange(len(mask), dtype=np.int32), np.int32(0))
    (fed,), _ = distinct_inputs([(name, seed)], features, mask, context)
    fed = np.asarray(fed)
    real, recorded = fed[mask], features[mask]
    constant = not real.std() or not recorded.std()
    correlation = "none, as one is constant" if constant else f"{np.corrcoef(real.ravel(), recorded.ravel())[0, 1]:.3f}"
    same = int(((fed != 0).any(-1).sum(1) == mask.sum(1)).sum())
    first = " ".join(f"{value:.3f}" for value in fed[0, 0, :6])
    return [
        f"condition {name}, seed {seed}: {len(mask)} of {len(data)} samples, {len(real)} words of {data.n_features} "
        "numbers",
        f"  fed: {spread(real)}; in the file: {spread(recorded)}; correlation {correlation}",
        f"  as many words as in the file in {same} of {len(mask)} samples; largest value at padding "
        f"{np.abs(fed[~mask]).max(initial=0):g}",
        f"  first word of {data.subject[0]}/{data.task[0]}:{data.sentence_index[0]}: {first} ...",
    ]


def spread(values: np.ndarray) -> str:
    """Return a phrase with mean, standard deviation and range of values."""
    return f"mean {values.mean():.3f}, sd {values.std():.3f}, from {values.min():.2f} to {values.max():.2f}"
