"""Method (f) on random graphs, on the paper's Figure 2, and beside the pseudo-code that the paper prints."""

import numpy as np
import pytest
from reading_grids import grid

from eeg2text_jax.data.splits.certificate import leakage_rate
from eeg2text_jax.data.splits.methods import NONE, at_least_one, inherit, make_split, pick_owners, split_graph
from eeg2text_jax.data.splits.split import PARTS, part_sizes

RATIO = (0.8, 0.1, 0.1)


def random_graph(seed):
    """Edges of a random bipartite graph without isolated nodes, some of them twice."""
    rng = np.random.default_rng(seed)
    n_u, n_v = rng.integers(3, 16), rng.integers(3, 41)
    linked = rng.random((n_u, n_v)) < rng.uniform(0.05, 1)
    linked[rng.integers(n_u, size=n_v), np.arange(n_v)] = True
    linked[np.arange(n_u), rng.integers(n_v, size=n_u)] = True
    edges = np.argwhere(linked)
    edges = np.concatenate([edges, edges[rng.integers(len(edges), size=3)]])
    return edges[:, 0], edges[:, 1]


def full_graph(n_u, n_v):
    edges = np.argwhere(np.ones((n_u, n_v)))
    return edges[:, 0], edges[:, 1]


@pytest.mark.parametrize("cut", ["u", "v"])
def test_random_graphs(cut):
    for seed in range(80):
        u, v = random_graph(seed)
        part = split_graph(u, v, RATIO, np.random.default_rng(seed), cut=cut)
        nodes = {k: (set(u[part == k]), set(v[part == k])) for k in range(len(PARTS))}
        for a in range(len(PARTS)):
            for b in range(a):
                assert not nodes[a][0] & nodes[b][0]
                assert not nodes[a][1] & nodes[b][1]
                if (part == a).any() and (part == b).any():
                    assert leakage_rate(u[part == a], u[part == b]) == leakage_rate(v[part == a], v[part == b]) == 0
        for i in np.flatnonzero(part == NONE):  # maximal: wherever a discarded edge went, it would leak
            for k in range(len(PARTS)):
                others = [nodes[other] for other in range(len(PARTS)) if other != k]
                assert any(u[i] in us or v[i] in vs for us, vs in others), (seed, i, k)
        again = split_graph(u, v, RATIO, np.random.default_rng(seed), cut=cut)
        np.testing.assert_array_equal(part, again)


@pytest.mark.parametrize("cut", ["u", "v"])
def test_the_numbering_of_nodes_does_not_matter(cut):
    """Part sizes over many seeds are the same for a relabelled graph, up to the noise of 150 draws."""
    u, v = random_graph(5)
    renamed = np.random.default_rng(0).permutation(u.max() + 1)[u], np.random.default_rng(1).permutation(v.max() + 1)[v]
    sizes = []
    for a, b in ((u, v), renamed):
        parts = [split_graph(a, b, RATIO, np.random.default_rng(seed), cut=cut) for seed in range(150)]
        sizes.append([[np.sum(part == k) for k in range(len(PARTS))] for part in parts])
    one, other = np.array(sizes, float)
    error = np.sqrt((one.var(0) + other.var(0)) / 150)
    assert (np.abs(one.mean(0) - other.mean(0)) <= 4 * error + 1e-9).all()


@pytest.mark.parametrize(
    ("n", "sizes"), [(3, (1, 1, 1)), (4, (2, 1, 1)), (6, (4, 1, 1)), (9, (7, 1, 1)), (10, (8, 1, 1)), (12, (9, 1, 2))]
)
def test_an_empty_part_takes_from_the_part_that_is_most_above_its_share(n, sizes):
    """Of 6 units at 8:1:1 the authors' rounding makes 4, 0 and 2: test gives, not train."""
    assert at_least_one(n, RATIO) == sizes


def test_six_subjects_are_four_one_and_one():
    data = grid(subjects="ABCDEF", sentences={"SR": 60})
    for method in "af":
        parts = make_split(data, method, RATIO, 1).parts
        assert [len(set(data.subject[parts[name]])) for name in PARTS] == [4, 1, 1]


def test_owners_are_balanced_and_are_neighbours():
    u, v = full_graph(12, 100)
    degree = np.bincount(pick_owners(u, v, np.random.default_rng(0)))
    assert sorted(set(degree)) == [8, 9]
    u, v = random_graph(3)
    owner = pick_owners(u, v, np.random.default_rng(0))
    assert {(a, b) for b, a in enumerate(owner)} <= set(zip(u, v, strict=True))


def test_a_full_grid_of_12_subjects_keeps_86_of_144():
    kept = [make_split(grid(sentences={"SR": 144}), "f", RATIO, seed).kept / (12 * 144) for seed in range(3)]
    assert kept == [pytest.approx(86 / 144)] * 3


def test_figure_2_by_hand():
    """4 subjects read 4 + 3 + 4 texts; parts of 2, 1 and 1 subjects own 11 texts as 3, 3, 3 and 2."""
    u, v = full_graph(4, 11)
    for seed in range(20):
        part = split_graph(u, v, (0.5, 0.25, 0.25), np.random.default_rng(seed), cut="u")
        sizes = tuple(int(np.sum(part == k)) for k in range(3))
        assert sizes in {(2 * 6, 3, 2), (2 * 6, 2, 3), (2 * 5, 3, 3)}


def test_fmri_keeps_tasks_and_listeners_apart_and_gives_the_idle_listener_to_test():
    """4 listeners of 3 tasks, a task a part: 3 own a task, the fourth is claimed by the first part in order."""
    part = split_graph(*full_graph(4, 3), (1 / 3, 1 / 3, 1 / 3), np.random.default_rng(0), cut="v")
    assert np.bincount(part[part != NONE]).tolist() == [1, 1, 2]


def test_a_listener_goes_where_most_of_the_own_windows_are():
    """One listener of three stories of 1, 2 and 9 windows, a story a part: that of the third one, at random."""
    v = np.repeat([0, 1, 2], [1, 2, 9])
    parts = [split_graph(np.zeros(12, int), v, (1 / 3, 1 / 3, 1 / 3), np.random.default_rng(seed), cut="v")
             for seed in range(12)]  # fmt: skip
    assert {tuple(set(part.tolist())) for part in parts} == {(0,), (1,), (2,)}


# What appendix B prints, its array C given the length that it needs; the only change.


def printed_algorithm(linked, rng):
    """Algorithm 1 on `linked` [U, V]; Algorithm 2 is the same with the sides exchanged. Returns a part's edges."""
    n_u, n_v = linked.shape
    count = np.zeros(n_v)
    picked = np.zeros(linked.shape, bool)
    for u in range(n_u):
        copy = np.where(linked[u], count, np.inf)
        picked[u, np.argmin(copy)] = True
        count[np.argmin(copy)] += 1
    part_u = rng.permutation(np.repeat(np.arange(3), part_sizes(n_u, RATIO)))
    edges = {k: picked & (part_u == k)[:, None] for k in range(3)}
    for k in range(3):
        edges[k] |= linked & ~np.isin(part_u, [other for other in range(3) if other != k])[:, None]
    return {name: np.argwhere(edges[k]) for k, name in enumerate(PARTS)}


def test_algorithm_1_as_printed_leaks_texts():
    parts = printed_algorithm(np.ones((12, 60), bool), np.random.default_rng(0))
    assert leakage_rate(parts["train"][:, 0], parts["test"][:, 0]) == 0
    assert leakage_rate(parts["train"][:, 1], parts["test"][:, 1]) == pytest.approx(2 / 9)  # it is method (a)


def test_algorithm_2_as_printed_leaks_subjects():
    u, v = random_graph(8)
    linked = np.zeros((v.max() + 1, u.max() + 1), bool)
    linked[v, u] = True
    parts = printed_algorithm(linked, np.random.default_rng(0))
    assert leakage_rate(parts["train"][:, 0], parts["test"][:, 0]) == 0
    assert leakage_rate(parts["train"][:, 1], parts["test"][:, 1]) > 0


def test_a_node_goes_to_the_part_of_most_weight_and_in_a_tie_to_the_first_in_order():
    owner, part_v = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 2, 1, 2, 0])
    weight = np.array([1, 1, 3, 2, 2, 5])
    assert inherit(4, owner, part_v, weight).tolist() == [2, 2, 0, NONE]
