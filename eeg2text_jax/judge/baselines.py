"""The paper's two baselines for a judge: logistic regression on BERTScore and error rates, and on sentence similarity.

Shapes: `N` pairs, `C` features.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import optimize, special

from eeg2text_jax.judge.pairs import Pair, Parts, normalize
from eeg2text_jax.judge.thresholds import auc
from eeg2text_jax.metrics.bertscore import BertScore
from eeg2text_jax.metrics.error_rates import edit_counts
from eeg2text_jax.metrics.meaning import Similarity
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.pretrained.embedding import TextEmbedder
from eeg2text_jax.pretrained.encoders import load_encoder

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # inverse weights of the L2 penalty; the best AUC on the dev part chooses one


@dataclasses.dataclass(frozen=True)
class Logistic:
    """A fitted logistic regression: sigmoid(bias + weights · (x - mean) / spread)."""

    mean: np.ndarray  # [C]
    spread: np.ndarray  # [C], standard deviation
    weights: np.ndarray  # [C]
    bias: float
    strength: float  # inverse weight of the L2 penalty

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Return the probability that the meaning is kept, `[N]`, from features `[N, C]`."""
        return special.expit(self.bias + (features - self.mean) / self.spread @ self.weights)


def fit(features: np.ndarray, labels: np.ndarray, strength: float) -> Logistic:
    """Fit weights w and bias b to features `[N, C]` and bool labels `[N]` by BFGS in float64.

    The fit minimizes `|w|²/2 + strength · Σ log(1 + exp(∓(b + w·z)))` over standardized features z.
    """
    mean, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    z = np.insert((features - mean) / spread, 0, 1.0, axis=1)
    sign, penalized = np.where(labels, -1.0, 1.0), np.array([0.0, *[1.0] * features.shape[1]])

    def loss_and_gradient(w: np.ndarray) -> tuple[float, np.ndarray]:
        logits = sign * (z @ w)
        loss = 0.5 * penalized @ w**2 + strength * np.logaddexp(0, logits).sum()
        return loss, penalized * w + strength * (sign * special.expit(logits)) @ z

    w = optimize.minimize(loss_and_gradient, np.zeros(z.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    return Logistic(mean, spread, w[1:], float(w[0]), strength)


def fit_best(train: tuple[np.ndarray, np.ndarray], dev: tuple[np.ndarray, np.ndarray]) -> Logistic:
    """Return the fit on `train` (features, labels) with the best AUC on `dev`; ties: the strongest penalty."""
    fits = [fit(*train, strength) for strength in STRENGTHS]
    return max(fits, key=lambda model: (auc(model(dev[0]), dev[1]) or 0.0, -model.strength))


def error_rates(pairs: Sequence[Pair]) -> np.ndarray:
    """Return each pair's word deletions, insertions and substitutions per word of the ground truth, `[N, 3]`."""
    found = []
    for pair in pairs:
        reference, hypothesis = (normalize(text).split() for text in (pair.reference, pair.hypothesis))
        replaced, deleted, inserted, words = edit_counts(hypothesis, reference)
        found.append(np.array([deleted, inserted, replaced]) / max(words, 1))
    return np.array(found, float).reshape(-1, 3)


def bertscore_features(pairs: Sequence[Pair], metric: BertScore) -> np.ndarray:
    """Return BERTScore F and the three error rates, `[N, 4]`."""
    rows = metric.statistics([pair.hypothesis for pair in pairs], [pair.reference for pair in pairs])
    return np.concatenate([rows[:, 2:3], error_rates(pairs)], axis=1)


def similarity_features(pairs: Sequence[Pair], metric: Similarity) -> np.ndarray:
    """Return the cosine of the two texts' sentence embeddings and the word counts of both texts, `[N, 3]`."""
    cosine = metric.statistics([pair.hypothesis for pair in pairs], [pair.reference for pair in pairs])[:, :1]
    lengths = [[len(normalize(text).split()) for text in (pair.reference, pair.hypothesis)] for pair in pairs]
    return np.concatenate([cosine, np.array(lengths, float).reshape(-1, 2)], axis=1)


def baseline_scores(encoders: tuple[str, str], own: Path, parts: Parts) -> dict[str, tuple[np.ndarray, int]]:
    """Fit the baselines on train; return baseline -> (scores of the test pairs `[N]`, parameter count of its encoder).

    Args:
      encoders: checkpoints of the encoders for BERTScore and for sentence similarity; "own" stands for the folder
        `own`; "" leaves the baseline out.
      own: the judge's checkpoint.
    """
    first, second = (own if name == "own" else name for name in encoders)
    embedder = TextEmbedder(load_encoder(first)) if first else None
    made: dict[str, tuple[Any, Any, TextEmbedder]] = {}
    if embedder:
        made["meaning[lr-bertscore]"] = bertscore_features, BertScore(embedder), embedder
    if second:
        shared = embedder and first == second and embedder.loaded.is_whole
        whole = embedder if shared else TextEmbedder(load_encoder(second, "last"))
        made["meaning[lr-similarity]"] = similarity_features, Similarity(whole), whole
    found = {}
    for label, (features, metric, encoder) in made.items():
        train, dev = (
            (features(part, metric), np.array([pair.preserved for pair in part])) for part in (parts.train, parts.dev)
        )
        found[label] = fit_best(train, dev)(features(parts.test, metric)), count(encoder.loaded.params)
    return found


def count(params: Params) -> int:
    """Return the number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
