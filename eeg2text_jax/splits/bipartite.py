"""Splitting method (f): no subject and no text is in two parts (`papers/003`, section 3.3 and appendix B, corrected).

Samples are the edges of a bipartite graph: its nodes are the subjects on one side, the texts (for windows, the text
groups) on the other. The paper's pseudo-code leaks: its extension step tests only one endpoint of an edge and does not
record the other. This implementation tests both endpoints. For EEG, each text picks a subject, as the paper's prose and
array C of Algorithm 1 say. For windows the paper says two things, and both are methods: in `f` each subject picks a
story (C and the matrix of Algorithm 2), in `f_prose` each story picks a subject.
"""

from collections.abc import Sequence

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.split import PARTS, Split, part_sizes, text_units

NONE = -1  # in place of a part: a node without a part yet, or a discarded edge


def f(data: DataFile, ratio: tuple[float, float, float], seed: int, name: str = "f") -> Split:
    """Split by method (f): no subject and no normalized text is in two parts; other samples are discarded.

    A full grid of 12 subjects and 12 texts (cut 9/1/2) keeps (81 + 1 + 4) / 144 = 59.7% of the samples. Windows, whose
    texts overlap, are divided by text group (story). The ratio divides the subjects; for windows, it divides the text
    groups unless there are more text groups than subjects. Each node of the other side then picks the node that was
    picked least. `name` is "f" or "f_prose".
    """
    subjects, subject = np.unique(data.subject.astype(str), return_inverse=True)
    if len(subjects) < len(PARTS):
        raise UserError(
            f"{data.path}: split '{name}' gives each part subjects of its own, and there are "
            f"{len(subjects)} of them; expected {len(PARTS)} or more, or take split 'unique_text'."
        )
    names, text = np.unique(text_units(data), return_inverse=True)
    if data.is_windows and len(names) < len(PARTS):
        raise UserError(
            f"{data.path}: split '{name}' gives each part stories of its own, and there are {len(names)} text groups; "
            f"expected {len(PARTS)} or more."
        )
    stories_are_fewer, rng = data.is_windows and len(names) <= len(subjects), np.random.default_rng(seed)
    if stories_are_fewer and name == "f":
        part = split_graph(text, subject, ratio, rng, cut="u")
    else:
        part = split_graph(subject, text, ratio, rng, cut="v" if stories_are_fewer else "u")
    return Split.of(data, name, seed, part)


def f_prose(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split by method (f) as the paper's prose says: for windows, each story picks the subject that was picked least.

    It keeps fewer samples than `f` (on the graph of Narratives 83.9 % of the windows in place of 88.2 %, means of 20
    seeds); for EEG both are the same.
    """
    return f(data, ratio, seed, "f_prose")


def split_graph(
    u: np.ndarray,
    v: np.ndarray,
    ratio: tuple[float, float, float],
    rng: np.random.Generator,
    *,
    cut: str,
    order: tuple[str, ...] = ("test", "dev", "train"),
) -> np.ndarray:
    """Divide the edges of a bipartite graph so that no node has edges in two parts.

    Args:
      u, v: the endpoints of every edge, int `[E]`, numbered from 0 without gaps; equal edges stay together. Each
        node v picks a node u, which owns it.
      ratio: train, dev and test share of the nodes on the side `cut`.
      rng: source of randomness, also to break ties.
      cut: the side cut at `ratio`, "u" or "v".
      order: the order in which parts claim edges without a part; with train first, dev and test would get hardly any.

    Returns:
      The part of every edge as an index into `PARTS`, or -1 if discarded, int `[E]`. No discarded edge could be added
        to any part.
    """
    owner = pick_owners(u, v, rng)
    part_u, part_v = np.full(u.max() + 1, NONE), np.full(len(owner), NONE)
    if cut == "u":
        part_u = cut_nodes(len(part_u), ratio, rng)
        part_v = part_u[owner]
    else:
        part_v = cut_nodes(len(part_v), ratio, rng)
        weight = np.bincount(v[u == owner[v]])
        part_u = inherit(len(part_u), owner, part_v, weight, order)
    extend(u, v, part_u, part_v, order, rng)
    kept = part_u[u] == part_v[v]
    part_u[np.bincount(u, kept) == 0] = NONE  # a node is free again if none of its edges was kept
    part_v[np.bincount(v, kept) == 0] = NONE
    extend(u, v, part_u, part_v, order, rng)
    return np.where(part_u[u] == part_v[v], part_u[u], NONE)


def extend(
    u: np.ndarray, v: np.ndarray, part_u: np.ndarray, part_v: np.ndarray, order: Sequence[str], rng: np.random.Generator
) -> None:
    """Let each part in turn claim all edges without a node in another part; `part_u` and `part_v` are updated.

    One pass per part suffices: a skipped edge has an endpoint in another part, and nodes do not change parts.
    """
    for k in map(PARTS.index, order):
        for edge in rng.permutation(len(u)).tolist():
            if part_u[u[edge]] in (k, NONE) and part_v[v[edge]] in (k, NONE):
                part_u[u[edge]] = part_v[v[edge]] = k


def pick_owners(u: np.ndarray, v: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return one neighbor u of every node v as its owner, int `[V]`: the u that owns fewest so far, ties at random."""
    owner, degree = np.full(v.max() + 1, NONE), np.zeros(u.max() + 1, np.int64)
    by_v = np.argsort(v)
    neighbours = np.split(u[by_v], np.cumsum(np.bincount(v))[:-1])
    for node in rng.permutation(len(owner)).tolist():
        candidates = np.unique(neighbours[node])
        owner[node] = rng.choice(candidates[degree[candidates] == degree[candidates].min()])
        degree[owner[node]] += 1
    return owner


def at_least_one(n: int, ratio: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return the sizes of train, dev and test of `n` units as `part_sizes` does, but none empty if `n` is 3 or more.

    An empty part takes a unit from the part that exceeds its share most: 6 units at 8:1:1 give 4, 1 and 1.
    """
    found = list(part_sizes(n, ratio))
    while min(found) == 0 and max(found) > 1:
        above = [size - n * share if size > 1 else -np.inf for size, share in zip(found, ratio, strict=True)]
        found[int(np.argmax(above))] -= 1
        found[found.index(0)] += 1
    train, dev, test = found
    return train, dev, test


def cut_nodes(n: int, ratio: tuple[float, float, float], rng: np.random.Generator) -> np.ndarray:
    """Return a random part for each of `n` nodes, as an index into `PARTS`, int `[n]`; part sizes follow `ratio`."""
    return rng.permutation(np.repeat(np.arange(len(PARTS)), at_least_one(n, ratio)))


def inherit(n_u: int, owner: np.ndarray, part_v: np.ndarray, weight: np.ndarray, order: tuple[str, ...]) -> np.ndarray:
    """Return the part of every node u, int `[U]`: the part of the nodes v with `owner[v] == u`; -1 if there are none.

    If these v are in several parts, the part with the largest sum of `weight` wins; in a tie, the first of `order` wins
    (the paper has no rule for ties).
    """
    total = np.zeros((n_u, len(PARTS)))
    np.add.at(total, (owner, part_v), weight)
    preferred = [PARTS.index(name) for name in order]
    part = np.asarray(preferred)[np.argmax(total[:, preferred], axis=1)]
    return np.where(total.any(axis=1), part, NONE)
