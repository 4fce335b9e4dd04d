"""Evidence from likelihoods: EEG bits, by which a recording makes its own reference likelier; and retrieval.

Retrieval: is the right sentence among length-matched candidates the one that the EEG makes likelier? The scores come
from a file of candidates, see `predictions.candidates`.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from eeg2text_jax.auditing.align import sentence_key
from eeg2text_jax.auditing.statistics import bootstrap_counts, keep_row_counts, p_value, permuted_totals
from eeg2text_jax.auditing.strata import Blocks, blocks_of
from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.ranks import chance
from eeg2text_jax.predictions.candidates import CandidateScores, Key
from eeg2text_jax.predictions.file import Prediction


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """Shares of samples (0 to 1) whose sentence ranks first, or among five; `chance_*` are exact.

    `p` gives the right sentences that share one list of candidates to each other's samples at random, with the share
    ranked first as statistic. Under the hypothesis that the ranking of a sentence's samples does not depend on which
    sentence of the list was read, all these assignments are equally likely. Each right sentence keeps its number of
    samples: the mean over the samples that it is given counts that often; else a list's favourite that many read would
    look like a find. A sentence whose list no other has stays in place, and adds nothing.
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

    Ties rank the right sentence last. Raises UserError if the two conditions, or the samples of one sentence, do not
    have the same candidates.
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
        chance_top1=float(np.mean([chance(n, 1) for n in sizes])),
        top5=float(np.mean(own <= 5)),
        chance_top5=float(np.mean([chance(n, 5) for n in sizes])),
        mean_rank=float(own.mean()),
        chance_rank=float(np.mean((sizes + 1) / 2)),
        p=p,
        samples=len(own),
        sentences=len(tables),
    )


def _first_cells(tables: Mapping[str, np.ndarray], lists: Mapping[str, tuple[str, ...]]) -> tuple[Blocks, np.ndarray]:
    """Return blocks of sentences with the same candidates, and the weighted table `[C, 1]` of candidates ranked first.

    Every sentence keeps its number of samples, see `statistics`.
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


EXCHANGEABLE = ("shuffled",)  # controls that are real EEG, so that only the content of the sentence differs


@dataclasses.dataclass(frozen=True)
class EegBits:
    """Bits per token that the EEG gives about its sentence, against one control.

    `p` flips the sign of whole sentences: where EEG and control tell equally much, which of the two made a sentence's
    rows likelier is a toss, and each sentence is tossed with all of its rows. Nothing moves between sentences, so that
    it does not matter how many readers each had. It says *content* only against `shuffled`, another sentence's real
    EEG; any other control may raise the NLL merely by being unlike what the model was trained on (`off_distribution`).
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
