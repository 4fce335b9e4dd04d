"""Method (f): subjects and texts both disjoint between parts (`papers/003`, section 3.3 and appendix B, corrected).

Samples are the edges of a graph between two kinds of node: subjects and texts (EEG), or subjects and tasks (fMRI, where
the windows of a task overlap in text). The printed pseudo-code leaks: its extension step tests only one endpoint of an
edge and does not record the other, and Algorithm 1 picks one text per subject where the prose picks one subject per
text. This implementation follows the prose and tests both endpoints.
"""

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.split import PARTS, Split, part_sizes, text_units

NONE = -1  # part of a discarded node or edge


def f(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """(f): subjects and normalized texts are disjoint between parts; the other samples are discarded.

    A full grid of 12 subjects (cut 9/1/2) keeps (81 + 1 + 4) / 144 = 59.7% of the samples. The texts of windows, which
    overlap, are the text groups; the side with fewer nodes is cut at the ratio, in Narratives the stories.
    """
    subjects, subject = np.unique(data.subject.astype(str), return_inverse=True)
    if len(subjects) < len(PARTS):
        raise UserError(
            f"{data.path}: split 'f' gives each part subjects of its own, and there are "
            f"{len(subjects)} of them; expected {len(PARTS)} or more, or take split 'unique_text'."
        )
    names, text = np.unique(text_units(data), return_inverse=True)
    if data.is_windows and len(names) < len(PARTS):
        raise UserError(
            f"{data.path}: split 'f' gives each part stories of its own, and there are {len(names)} text groups; "
            f"expected {len(PARTS)} or more."
        )
    stories_are_fewer = data.is_windows and len(names) <= len(subjects)
    part = split_graph(subject, text, ratio, np.random.default_rng(seed), cut="v" if stories_are_fewer else "u")
    return Split.of(data, "f", seed, {name: np.flatnonzero(part == k) for k, name in enumerate(PARTS)})


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
      u, v: the endpoints of every edge, int `[E]`, numbered from 0 without gaps; equal edges stay together.
      ratio: train, dev and test share of the nodes on the cut side.
      rng: source of every shuffle and tie.
      cut: the side cut at `ratio`: "u" for EEG (subjects), "v" for fMRI (tasks).
      order: the order in which parts claim edges in the extension; small parts first, or train takes the nodes of the
        other side that have no part yet.

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
    part_u[np.bincount(u, kept) == 0] = NONE  # a part that holds none of a node's edges has no claim on the node
    part_v[np.bincount(v, kept) == 0] = NONE
    extend(u, v, part_u, part_v, order, rng)
    return np.where(part_u[u] == part_v[v], part_u[u], NONE)


def extend(
    u: np.ndarray,
    v: np.ndarray,
    part_u: np.ndarray,
    part_v: np.ndarray,
    order: tuple[str, ...],
    rng: np.random.Generator,
) -> None:
    """Let every part in turn claim the edges whose endpoints are its own or free; claims are written to the nodes.

    One pass per part suffices: a skipped edge has an endpoint in another part, and no label is taken back.
    """
    for k in map(PARTS.index, order):
        for edge in rng.permutation(len(u)).tolist():
            if part_u[u[edge]] in (k, NONE) and part_v[v[edge]] in (k, NONE):
                part_u[u[edge]] = part_v[v[edge]] = k


def pick_owners(u: np.ndarray, v: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return one neighbor u of every v, so that all u own about as many; ties are random. Int `[V]`."""
    owner, degree = np.full(v.max() + 1, NONE), np.zeros(u.max() + 1, np.int64)
    by_v = np.argsort(v)
    neighbours = np.split(u[by_v], np.cumsum(np.bincount(v))[:-1])
    for node in rng.permutation(len(owner)).tolist():
        candidates = np.unique(neighbours[node])
        least = candidates[degree[candidates] == degree[candidates].min()]
        owner[node] = rng.choice(least)
        degree[owner[node]] += 1
    return owner


def at_least_one(n: int, ratio: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return the sizes of the parts of `n` units, none of them empty if there are three units or more.

    They are those of `part_sizes`, whose rounding favours test; an empty part takes a unit from the part that exceeds
    its share most, so 6 units at 8:1:1 give 4, 1 and 1.
    """
    found = list(part_sizes(n, ratio))
    while min(found) == 0 and max(found) > 1:
        above = [size - n * share if size > 1 else -np.inf for size, share in zip(found, ratio, strict=True)]
        found[int(np.argmax(above))] -= 1
        found[found.index(0)] += 1
    train, dev, test = found
    return train, dev, test


def cut_nodes(n: int, ratio: tuple[float, float, float], rng: np.random.Generator) -> np.ndarray:
    """Return a random part for each of `n` nodes, int `[n]`."""
    part = np.repeat(np.arange(len(PARTS)), at_least_one(n, ratio))
    return rng.permutation(part)


def inherit(n_u: int, owner: np.ndarray, part_v: np.ndarray, weight: np.ndarray, order: tuple[str, ...]) -> np.ndarray:
    """Return the part of every u through the v that it owns, int `[U]`; -1 if it owns none.

    If those v are in several parts, the heaviest wins, in a tie the first in `order` (the paper does not say).
    """
    total = np.zeros((n_u, len(PARTS)))
    np.add.at(total, (owner, part_v), weight)
    preferred = [PARTS.index(name) for name in order]
    part = np.asarray(preferred)[np.argmax(total[:, preferred], axis=1)]
    return np.where(total.any(axis=1), part, NONE)
