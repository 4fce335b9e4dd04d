"""Endpoints: scores of every prediction against every reference, of which one decides the verdict.

An endpoint is additive over predictions: the score of a set is the mean of the scores of its rows. Corpus scores
(BLEU, WER) are not, so they are reported and decide nothing.
"""

import dataclasses
import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse

from eeg2text_jax.auditing.forms import RULE, words
from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.metrics.metric import Metric
from eeg2text_jax.study.metric_names import ENDPOINTS, Named

Points = Callable[[Sequence[str], Sequence[str]], np.ndarray]  # texts P and R -> scores [P, R], higher is better


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An additive score.

    Attributes:
      label: its name in tables.
      fit: all references of a test set -> `Points`.
      margin: default of the smallest difference that matters, in points.
      signature: what changes the score, in words.
      of_words: whether it compares plain words, so that both sides need the same form.
      notes: what the metric says about the texts that it scored.
    """

    label: str
    fit: Callable[[Sequence[str]], Points]
    margin: float = 1.0
    signature: str = ""
    of_words: bool = False
    notes: Callable[[], list[str]] = list


def shared_words(weights: Callable[[str], float], *, harmonic: bool = False) -> Points:
    """Return a score of shared words in points: the mean of precision and recall by weight.

    A word that occurs k times in both texts is shared k times. The arithmetic mean does not favor outputs of the own
    sentence's length: words drawn at random share in proportion to both lengths, so precision goes with one length
    alone, and recall with the other. In the `harmonic` mean (with equal weights: ROUGE-1 F) the lengths interact.
    """

    def points(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        columns: dict[tuple[str, int], int] = {}
        theirs, their_weight = _occurrences(references, columns, weights, grow=True)
        ours, our_weight = _occurrences(predictions, columns, weights, grow=False)
        shared = 100 * (ours @ theirs.T).toarray()
        if harmonic:
            return 2 * shared / np.maximum(our_weight[:, None] + their_weight, 1e-9)
        return shared * (0.5 / np.maximum(our_weight, 1e-9)[:, None] + 0.5 / np.maximum(their_weight, 1e-9))

    return points


def _occurrences(
    texts: Sequence[str], columns: dict[tuple[str, int], int], weights: Callable[[str], float], *, grow: bool
) -> tuple[sparse.csr_array, np.ndarray]:
    """Return the square root of the weight of the k-th occurrence of each word, `[N, V]`, and the texts' weights."""
    starts, places, roots, totals = [0], [], [], []
    for text in texts:
        total = 0.0
        for word, count in Counter(words(text)).items():
            weight = weights(word)
            total += weight * count
            for k in range(count):
                place = columns.setdefault((word, k), len(columns)) if grow else columns.get((word, k))
                if place is not None:
                    places.append(place)
                    roots.append(weight**0.5)
        starts.append(len(places))
        totals.append(total)
    width = max(len(columns), 1)
    return sparse.csr_array((roots, places, starts), shape=(len(texts), width)), np.array(totals)


def rare_words(references: Sequence[str]) -> Points:
    """Return `shared_words` with the weight `log((S + 1) / (n + 1))` of a word that is in n of the S references."""
    among = Counter(word for text in references for word in set(words(text)))
    return shared_words(lambda word: float(np.log((len(references) + 1) / (among[word] + 1))))


def of_metric(named: Named, metric: Metric) -> Endpoint:
    """Return one figure of a metric of single pairs, such as BERTScore, as an endpoint."""
    column, sign = metric.columns.index(named.figure), -1 if metric.lower_is_better else 1

    def points(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        return sign * metric.corpus(metric.pairwise(predictions, references))[..., column]

    return Endpoint(named.label, lambda references: points, named.margin, metric.signature, notes=metric.notes)


WORDS = Endpoint("words", rare_words, 1.0, f"shared words weighted by rarity in the references|{RULE}", True)
ROUGE_1 = Endpoint(
    "ROUGE-1 F", lambda references: shared_words(lambda word: 1.0, harmonic=True), 1.0, f"shared words|{RULE}", True
)
BY_NAME = {"words": WORDS, "rouge-1": ROUGE_1}


def named(name: str, what: str = "--endpoint") -> Named:
    """Return the entry `name` of `ENDPOINTS`; `what` is the option in the error message.

    Raises:
      UserError: the endpoint does not exist.
    """
    if name not in ENDPOINTS:
        raise UserError(f"{what}={name}: there is no such endpoint; {did_you_mean(name, ENDPOINTS)}")
    return ENDPOINTS[name]


def text_endpoint(given: Endpoint | str | None) -> Endpoint:
    """Return an endpoint of texts that needs no model: itself, `words` (also for None), `rouge-1` or MODULE:FUNCTION.

    Raises:
      UserError: there is no such endpoint.
    """
    if given is None or isinstance(given, Endpoint):
        return given or WORDS
    if given not in BY_NAME and ":" not in given:
        raise UserError(f"endpoint={given}: there is no such endpoint of texts; {did_you_mean(given, BY_NAME)}")
    return BY_NAME[given] if given in BY_NAME else function_endpoint(given)


def function_endpoint(name: str) -> Endpoint:
    """Return the endpoint `MODULE:FUNCTION`: a function of predictions and references to points `[P, R]`.

    Modules in the current folder are found, too.

    Raises:
      UserError: the module or the function cannot be imported.
    """
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        points = getattr(importlib.import_module(module), function)
        if not callable(points):
            raise ValueError(f"{function} is no function")
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise UserError(
            f"--endpoint={name}: {error}; expected MODULE:FUNCTION, a Python function of lists of predictions and "
            "references that returns an array of points [predictions, references], higher is better."
        ) from error
    return Endpoint(name, lambda references: points, 1.0, f"the function {name}")


def checked_points(found: np.ndarray, predictions: int, references: int, label: str) -> np.ndarray:
    """Return points `[P, R]` as float64. Raises UserError for another shape, or a number that is not finite."""
    try:
        found = np.asarray(found, float)
    except (TypeError, ValueError) as error:
        raise UserError(f"endpoint {label}: returned no numbers ({error}); expected an array of points.") from error
    if found.shape != (predictions, references) or not np.isfinite(found).all():
        what = f"an array of shape {found.shape}" if found.shape != (predictions, references) else "NaN or infinity"
        raise UserError(f"endpoint {label}: returned {what}; expected finite points [{predictions}, {references}].")
    return found
