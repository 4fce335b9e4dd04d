"""Evidence from likelihoods: EEG bits, and retrieval of the right sentence among candidates.

EEG bits are what a recording adds to the likelihood of its reference. Retrieval ranks candidates of similar length by
what the recording adds to their likelihoods, from a file of scores, see `predictions.candidates`.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from eeg2text_jax.auditing.align import sentence_key
from eeg2text_jax.auditing.statistics import bootstrap_counts, keep_row_counts, p_value, permuted_totals
from eeg2text_jax.auditing.strata import Blocks, blocks_of
from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.ranks import chance
from eeg2text_jax.predictions.file import Prediction
from eeg2text_jax.predictions.rankings import CandidateScores, Key


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """Shares of samples (0 to 1) whose sentence ranks first, or among the first five; `chance_*`: expected by chance.

    `p` is of a permutation test on the share ranked first. It exchanges the sentences that have the same candidates:
    these are exchangeable if rankings do not depend on which of them was read. Each sentence keeps its number of
    samples as weight; otherwise a sentence that ranks first everywhere and that many subjects read would look like an
    effect. A sentence whose candidates no other sentence has stays in place.
    """

    control: str
    top1: float
    chance_top1: float
    top5: float
    chance_top5: float
    mean_rank: float
    chance_rank: float
    p: float
    samples: int
    sentences: int


def retrieve(
    eeg: Mapping[Key, CandidateScores],
    name: str,
    control: Mapping[Key, CandidateScores],
    *,
    resamples: int,
    rng: np.random.Generator,
) -> Retrieval:
    """Rank candidates by log p(text | EEG) - log p(text | control), so that a sentence's own probability cancels.

    Ties rank the right sentence last.

    Raises:
      UserError: the candidates differ between EEG and control, or between samples of one sentence.
    """
    ranks: dict[str, list[np.ndarray]] = {}  # sentence -> per sample the rank of every candidate
    lists: dict[str, tuple[str, ...]] = {}
    for key, scores in eeg.items():
        other = control.get(key)
        expected = lists.setdefault(scores.sentence_id, scores.candidates)
        if other is None or not scores.candidates == other.candidates == expected:
            raise UserError(
                f"sample {key[0]!r}: is missing under {name}, or its candidates differ there or in other rows of its "
                "sentence; expected the same candidates in all of these."
            )
        evidence = np.array(other.nll) - np.array(scores.nll)
        ranks.setdefault(scores.sentence_id, []).append((evidence[:, None] <= evidence).sum(1))
    tables = {sentence: np.stack(rows) for sentence, rows in ranks.items()}  # [samples, candidates]
    own = np.concatenate([table[:, lists[sentence].index(sentence)] for sentence, table in tables.items()])
    sizes = np.concatenate([np.full(len(table), table.shape[1]) for table in tables.values()])
    blocks, cells = _first_cells(tables, lists)
    p = 1.0
    if blocks.groups:
        (null,) = permuted_totals([cells], blocks, resamples, rng)
        p = p_value(float(cells[blocks.own].sum()), null[:, 0])
    return Retrieval(
        control=name,
        top1=float(np.mean(own == 1)),
        chance_top1=chance(sizes, 1),
        top5=float(np.mean(own <= 5)),
        chance_top5=chance(sizes, 5),
        mean_rank=float(own.mean()),
        chance_rank=float(np.mean((sizes + 1) / 2)),
        p=p,
        samples=len(own),
        sentences=len(tables),
    )


def _first_cells(tables: Mapping[str, np.ndarray], lists: Mapping[str, tuple[str, ...]]) -> tuple[Blocks, np.ndarray]:
    """Return blocks of sentences with equal candidates, and per cell (s, t) how often t ranks first for s, `[C, 1]`.

    Args:
      tables: sentence -> rank of each candidate in each sample, `[samples, candidates]`.
      lists: sentence -> its candidates.
    """
    names, counts = list(tables), np.array([[len(table) for table in tables.values()]])
    known: dict[frozenset[str], int] = {}
    blocks = blocks_of(np.array([known.setdefault(frozenset(lists[name]), len(known)) for name in names]))
    sums = np.zeros((1, blocks.n_cells, 1))
    for members, block in blocks.views(sums):
        for stratum, result in zip(members, block[0], strict=True):
            for s, row in zip(stratum, result, strict=True):
                first = dict(zip(lists[names[s]], (tables[names[s]] == 1).sum(0), strict=True))
                row[:, 0] = [first[names[t]] for t in stratum]
    return blocks, keep_row_counts(sums, counts, blocks)[0]


@dataclasses.dataclass(frozen=True)
class EegBits:
    """Bits per token that the EEG adds to the likelihood of its sentence, compared with one control.

    `p` is of a sign-flip test over sentences, each with all of its rows. The bits show content only against
    `shuffled`, the EEG of another sentence. Any other control is `off_distribution`: likelihoods under this control may
    be lower merely because its input is unlike the training data.
    """

    control: str
    bits_per_token: float
    interval: tuple[float, float]
    p: float
    samples: int
    sentences: int
    off_distribution: bool


def eeg_bits(
    eeg: Sequence[Prediction], name: str, control: Sequence[Prediction], *, resamples: int, rng: np.random.Generator
) -> EegBits | None:
    """Return the EEG bits against one control; None if no sample has an NLL in both conditions.

    Samples are matched by seed and id; those with different references or numbers of tokens are ignored.
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
        off_distribution="shuffled" not in name,
    )


def _key(row: Prediction) -> tuple[int, str, str, int | None]:
    return row.seed, row.sample_id, row.reference, row.n_tokens
