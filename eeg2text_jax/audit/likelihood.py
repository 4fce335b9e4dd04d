"""EEG bits: how much better the model predicts the reference from its own EEG than from something else.

Needs teacher-forced rows that carry `nll` (nats, summed over the `n_tokens` tokens of the reference), one per sample
for `eeg` and for each control. More sensitive than any score of free-running text, and teacher forcing is
legitimate here, since nothing is claimed to be generated.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.audit.align import sentence_key
from eeg2text_jax.audit.statistics import bootstrap_counts, p_value
from eeg2text_jax.predictions.file import Prediction

EXCHANGEABLE = ("shuffled",)  # controls that are real EEG, so that only the content of the sentence differs


@dataclasses.dataclass(frozen=True)
class EegBits:
    """Bits per token that the EEG gives about its sentence, against one control.

    `p` flips the sign of whole sentences. It says *content* only against `shuffled`, another sentence's real EEG; any
    other control may raise the NLL merely by being unlike what the model was trained on (`off_distribution`).
    """

    control: str
    bits_per_token: float
    interval: tuple[float, float]
    p: float
    samples: int
    sentences: int
    off_distribution: bool


def eeg_bits(
    eeg: Sequence[Prediction],
    name: str,
    control: Sequence[Prediction],
    *,
    resamples: int,
    rng: np.random.Generator,
) -> EegBits | None:
    """(NLL of the reference under the control - under EEG) / tokens, in bits; None without NLLs in common.

    Samples are matched by seed and sample id, which must carry the same reference and number of tokens to count.
    """
    scored = {_key(row): row.nll for row in control if row.nll is not None and row.n_tokens}
    pairs = [(row, scored[_key(row)]) for row in eeg if row.nll is not None and row.n_tokens and _key(row) in scored]
    if not pairs:
        return None
    sentences = {text: i for i, text in enumerate(dict.fromkeys(sentence_key(row.reference) for row, _ in pairs))}
    place = np.array([sentences[sentence_key(row.reference)] for row, _ in pairs])
    gained = np.bincount(place, [(other - row.nll) / np.log(2) for row, other in pairs])
    tokens = np.bincount(place, [row.n_tokens for row, _ in pairs])
    counts = bootstrap_counts(len(sentences), len(sentences), resamples, rng)
    draws = (counts @ gained) / (counts @ tokens)
    flips = rng.choice([-1.0, 1.0], size=(resamples, len(sentences)))
    return EegBits(
        control=name,
        bits_per_token=float(gained.sum() / tokens.sum()),
        interval=tuple(np.quantile(draws, [0.025, 0.975]).tolist()),
        p=p_value(float(gained.sum()), flips @ gained),
        samples=len(pairs),
        sentences=len(sentences),
        off_distribution=not any(word in name for word in EXCHANGEABLE),
    )


def _key(row: Prediction) -> tuple[int, str, str, int | None]:
    return row.seed, row.sample_id, row.reference, row.n_tokens
