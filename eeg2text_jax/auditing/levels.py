"""Levels of content: what predictions tell about a sentence's group, and about the sentence within its group.

Between groups, whole groups are exchanged: predictions are compared with the references of another group, and never
with their own reference. Within groups, sentences of one task and similar length are exchanged. Clusters of the
references give a curve for the report; it tests nothing.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from eeg2text_jax.auditing.align import Aligned
from eeg2text_jax.auditing.beyond_time import stretches
from eeg2text_jax.auditing.content_cells import content_tables, weighted_tables
from eeg2text_jax.auditing.contrast import Contrast, SampledGroups, contrast
from eeg2text_jax.auditing.endpoints import Endpoint
from eeg2text_jax.auditing.guessed_strata import text_vectors
from eeg2text_jax.auditing.statistics import Resampled, resample_tables
from eeg2text_jax.auditing.strata import MIN_SENTENCES, STRATUM_SIZE, blocks_of, exchangeable, length_strata, readers_of
from eeg2text_jax.auditing.verdict import interval_text, is_above, p_cell
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import sentence_key

CLUSTERS = (1, 5, 10, 20, 40, 80)
HEADINGS = ("groups by", "against", "content", "content difference", "95 % CI", "p", "MDE")
NOT_KNOWN = "of the sentence or only of its kind: not known"  # said of content if no groups are given


@dataclasses.dataclass(frozen=True)
class Level:
    """Content between and within groups (classes, topics or stories, from one column), against one control."""

    column: str
    control: str  # "" for EEG alone
    groups: int
    between: Contrast | None  # None: fewer than `MIN_SENTENCES` groups of two sentences or more
    # None: fewer than `MIN_SENTENCES` sentences have another one of their group, task and length.
    within: Contrast | None
    stretches: Contrast | None = None  # within groups and stretches of time, see `beyond_time.stretches`

    @property
    def reading(self) -> str:
        """A clause that says whether content was found between and within groups."""
        tells, within = (None if side is None else is_above(side) for side in (self.between, self.within))
        kind = f"tells the category ({self.column})"
        if tells is None:
            kind = f"between categories ({self.column}) too few groups to tell"
        elif not tells:
            kind = f"nothing found between categories ({self.column})"
        if within is None:
            return f"{kind}; within categories too few sentences to tell"
        if not within:
            return f"{kind}; nothing found within categories"
        return f"{kind}; found within categories{', too' if tells else ''}"


def level_rows(levels: Sequence[Level]) -> list[tuple[str, ...]]:
    """Return the rows of a text table of levels; its columns are `HEADINGS`."""
    rows: list[tuple[str, ...]] = []
    for level in levels:
        sides = {"between groups": level.between, "within groups": level.within}
        sides |= {"within groups and stretches": level.stretches} if level.stretches else {}
        for side, c in sides.items():
            figures = ("too few to tell", "–", "–", "–")
            if c is not None:
                figures = (f"{c.effect:+.2f}", interval_text(c.interval), p_cell(c.p_primary), f"{c.mde:.2f}")
            rows.append((f"{level.column} ({level.groups})", level.control or "its null", side, *figures))
    return rows


def labels_of(aligned: Aligned, groups: Mapping[str, str], column: str) -> np.ndarray:
    """Return the number of each sentence's group, int `[S]`; `groups` maps reference texts to labels.

    Raises:
      UserError: a reference has no label, or all have the same label.
    """
    known = {sentence_key(text): label for text, label in groups.items()}
    missing = [text for text in aligned.references if not known.get(sentence_key(text), "").strip()]
    if missing:
        raise UserError(
            f"--groups={column}: {len(missing)} references have no label, such as {missing[0]!r:.60}; give each one a "
            "label."
        )
    labels = np.unique([known[sentence_key(text)] for text in aligned.references], return_inverse=True)[1]
    if not labels.any():
        raise UserError(f"--groups={column}: all references have the same label; expected two groups or more.")
    return labels


def sampled_groups(labels: Mapping[str, np.ndarray], groups: Mapping[str, Mapping[str, str]]) -> list[SampledGroups]:
    """Return the groups of each column in which only some groups, but at least `MIN_SENTENCES`, are tested.

    `groups` may label more references than are tested, such as those of the training part. Another study would test
    other groups, so the spread between groups is part of the uncertainty. Fewer groups do not show this spread; if all
    groups are tested, another study tests the same groups.

    Args:
      labels: column -> group of each sentence, int `[S]`, see `labels_of`.
      groups: column -> reference -> label.
    """
    found = []
    for column, of in labels.items():
        sampled = SampledGroups(column, of, known=len(set(groups[column].values()) - {""}))
        if MIN_SENTENCES <= sampled.tested < sampled.known:
            found.append(sampled)
    return found


def measure_levels(
    aligned: Aligned,
    labels: np.ndarray,
    column: str,
    endpoint: Endpoint,
    *,
    resamples: int,
    rng: np.random.Generator,
    stratum_size: int = STRATUM_SIZE,
) -> list[Level]:
    """Measure content between and within the groups `labels`, int `[S]`, against each control, or of EEG alone."""
    pairs: list[tuple[int, ...]] = [(0, i) for i in range(1, len(aligned.conditions))] or [(0,)]
    within = _within(aligned, labels, endpoint, resamples, rng, stratum_size)
    between = _group_tables(aligned, labels, endpoint, resamples, rng)
    in_time = _sampled(aligned, [stretches(aligned, labels, stratum_size)], endpoint, resamples, rng)
    found = []
    for pair in pairs:
        sides = [contrast([t[i] for i in pair], endpoint.score) if t else None for t in (between, within, in_time)]
        control = aligned.conditions[pair[1]].name if len(pair) > 1 else ""
        found.append(Level(column, control, len(set(labels.tolist())), *sides))
    return found


def _within(
    aligned: Aligned, labels: np.ndarray, endpoint: Endpoint, resamples: int, rng: np.random.Generator, size: int
) -> list[Resampled]:
    """Return the `Resampled` of each condition within strata of one group, task, set of readers and length.

    If these strata leave too few sentences, strata of one group and length are used; if these do, too, [] is returned.
    """
    readers = readers_of(aligned.eeg.rows, aligned.eeg.sentence, size)
    kinds = [f"{g} {t} {r}" for g, t, r in zip(labels, aligned.tasks, readers, strict=True)]
    strata = (length_strata(names, aligned.n_words, size) for names in (kinds, labels.astype(str)))
    return _sampled(aligned, strata, endpoint, resamples, rng)


def _sampled(
    aligned: Aligned, choices: Iterable[np.ndarray | None], endpoint: Endpoint, resamples: int, rng: np.random.Generator
) -> list[Resampled]:
    """Return the `Resampled` of each condition within the first strata that leave enough sentences; [] if none do."""
    for strata in choices:
        if strata is not None and exchangeable(strata).sum() >= MIN_SENTENCES:
            tables = content_tables(aligned, strata, endpoint.metric, resamples=resamples, rng=rng)
            return [table.sampled for table in tables]
    return []


def _group_tables(
    aligned: Aligned, labels: np.ndarray, endpoint: Endpoint, resamples: int, rng: np.random.Generator
) -> list[Resampled]:
    """Return the `Resampled` of each condition with groups in place of sentences; [] if there are too few groups.

    Cell (g, h) of the `Q` groups sums over the references of group h: the mean over the predictions of group g except
    the reference's own, times the number of rows of the reference.
    """
    kept = np.bincount(labels)[labels] > 1
    names, group = np.unique(labels[kept], return_inverse=True)
    if len(names) < MIN_SENTENCES:
        return []
    member = (group == np.arange(len(names))[:, None]).astype(float)  # [Q, S']
    sizes = member.sum(1)[:, None] - np.eye(len(names))  # sentences of a group to compare with a reference; not its own
    apart = ~np.eye(len(group), dtype=bool)[..., None]
    blocks = blocks_of(np.zeros(len(names), int))
    _, tables = weighted_tables(aligned, np.where(kept, 0, np.arange(1, len(kept) + 1)), endpoint.metric)
    pairs = (table.reshape(*apart.shape[:2], -1) * apart for table in tables)  # [S', S', K], own references left out
    sums = [np.einsum("gs,stk,ht->ghk", member, table, member, optimize=True) for table in pairs]
    cells = [(table / sizes[..., None]).reshape(1, sizes.size, -1) for table in sums]  # [1, Q * Q, K]
    rows = [member @ np.bincount(condition.sentence)[kept] for condition in aligned.conditions]
    return resample_tables(cells, rows, blocks, resamples=resamples, rng=rng)


def curve_text(found: Sequence[tuple[int, Contrast]]) -> str:
    """Describe the result of `curve` in a sentence."""
    points = ", ".join(f"{c.effect:+.2f} ({count})" for count, c in found)
    return (
        "Content left when predictions are exchanged only within ever finer clusters of the references, by their words "
        f"(number of clusters): {points}. A picture of how fine the content is, and no test of a level"
    )


def curve(
    aligned: Aligned,
    endpoint: Endpoint,
    control: str,
    *,
    resamples: int,
    rng: np.random.Generator,
    stratum_size: int = STRATUM_SIZE,
    clusters: Sequence[int] = CLUSTERS,
) -> list[tuple[int, Contrast]]:
    """Measure content within ever finer clusters of the references (Ward's method on tf-idf vectors).

    Args:
      control: name of the control to compare with; "" for EEG alone.

    Returns:
      (number of clusters, content within them), for numbers with at least four sentences a cluster on average.
    """
    from scipy.cluster import hierarchy  # slow to import, and scoring a file needs none of it

    chosen = [i for i, condition in enumerate(aligned.conditions) if i == 0 or condition.name == control]
    tree = hierarchy.linkage(text_vectors(aligned.references), "ward")
    found = []
    for count in clusters:
        if count * 4 > len(aligned.references):
            break
        labels = hierarchy.fcluster(tree, count, "maxclust")
        if tables := _within(aligned, labels, endpoint, resamples, rng, stratum_size):
            found.append((count, contrast([tables[i] for i in chosen], endpoint.score)))
    return found
