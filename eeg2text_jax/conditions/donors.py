"""Choose donors: samples whose EEG (condition `shuffled`) or text (`label_shuffle`) replaces another sample's.

A donor is in the same part as its sample, so train and test do not mix. Almost always, the donors are a permutation of
the recordings, or of the texts, so the control has the same recordings, or texts, as the experiment. They are chosen
once, on the host.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.split import normalize
from eeg2text_jax.streams import stream_rng

# What donor and sample have in common, in order of preference; later levels are used if no earlier one has a donor.
LEVELS = ("same subject, task and length", "same subject and task", "same subject", "any subject")


@dataclasses.dataclass(frozen=True)
class DonorTable:
    """The donor of each of N samples of the data file: the sample whose recording replaces its own under `shuffled`."""

    donor: np.ndarray  # int64 [N], rows of the data file; -1 for samples that are in no part
    level: np.ndarray  # int8 [N], index in `LEVELS`; -1 for samples that are in no part
    n_words: np.ndarray  # int64 [N], number of words of every sample

    def summary(self, rows: np.ndarray) -> str:
        """Return a phrase about the donors of the samples `rows`: shares of the levels, and differences in length."""
        shares = [(np.mean(self.level[rows] == level), name) for level, name in enumerate(LEVELS)]
        levels = ", ".join(f"{share:.1%} {name}" for share, name in shares if share)
        gap = np.abs(self.n_words[self.donor[rows]] - self.n_words[rows])
        if not gap.any():
            return levels
        return f"{levels}; {np.mean(gap > 0):.1%} have another length, by {gap[gap > 0].mean():.1f} words on average"


def donor_table(data: DataFile, parts: list[np.ndarray], seed: int) -> DonorTable:
    """Return for each sample a donor: a sample of the same part with another sentence.

    `parts` has the rows of each part. Samples of equal subject, task and number of words are shifted cyclically. A
    sample left without a donor gets the sample of the nearest length from the same subject and task, else from the same
    subject, else from any subject. Windows of a stimulus are shifted in order of time, and windows with a common
    segment are no donors of each other. Raises UserError if a part has a single text.
    """
    text = np.unique([normalize(sentence) for sentence in data.sentence], return_inverse=True)[1]
    subject, task = (np.unique(names.astype(str), return_inverse=True)[1] for names in (data.subject, data.task))
    clash = clashes(data, text, task)
    donor, level = np.full(len(data), -1), np.full(len(data), -1, np.int8)
    # A random stream for each part, so that the donors of a part do not depend on the other parts.
    for part, rng in zip(parts, stream_rng(seed, "donors").spawn(len(parts)), strict=True):
        if len(np.unique(text[part])) < 2:
            raise UserError(
                f"{data.path}: a part has a single text, so 'shuffled' has no other sentence to feed; give more "
                "sentences, or leave the condition out."
            )
        stratum = np.stack([subject[part], task[part], data.n_words[part]], axis=1)
        order = np.argsort(data.sentence_index[part], kind="stable") if data.is_windows else rng.permutation(len(part))
        _pass_on(part[order], stratum[order], clash, rng, donor, level)
        for i in part[donor[part] < 0]:
            donor[i], level[i] = _nearest(i, part, clash, subject, task, data.n_words, rng)
    return DonorTable(donor, level, data.n_words)


def clashes(data: DataFile, text: np.ndarray, task: np.ndarray) -> Callable[[Any, Any], np.ndarray]:
    """Return a function that tells whether two (arrays of) rows have the same text or, if windows, share a segment.

    `text` and `task`, both int `[N]`, hold a number for the text and for the task of each sample.
    """
    if not data.is_windows:
        return lambda a, b: text[a] == text[b]
    start, stop = data.story_times.T
    return lambda a, b: (text[a] == text[b]) | ((task[a] == task[b]) & (start[a] < stop[b]) & (start[b] < stop[a]))


def label_rows(data: DataFile, train: np.ndarray, seed: int) -> np.ndarray:
    """Return for every sample the row whose sentence is its target under `label_shuffle`, int64 `[N]`.

    Every distinct text of the train part is replaced by another train text of the same or nearest number of words. All
    readings of a sentence get the same new text, and every text is used. Samples outside of the train part keep their
    text. Raises UserError if the train part has a single text.
    """
    texts, first, text = np.unique([normalize(data.sentence[i]) for i in train], return_index=True, return_inverse=True)
    if len(texts) < 2:
        raise UserError(
            f"{data.path}: the train part has a single text, so 'label_shuffle' has nothing to exchange; give more "
            "sentences, or leave the condition out."
        )
    rng = stream_rng(seed, "label_rows")
    length = np.array([len(data.sentence[i].split()) for i in train[first]])
    order = np.lexsort((rng.random(len(texts)), length))
    new = np.empty(len(texts), np.int64)
    for group in _groups_of_two_or_more(length[order]):
        new[order[group]] = np.roll(order[group], rng.integers(1, len(group)))
    rows = np.arange(len(data))
    rows[train] = train[first][new[text]]
    return rows


def _pass_on(rows, stratum, clash, rng, donor, level) -> None:
    """Fill in `donor` and `level` for strata of samples in which a cyclic shift gives every sample a valid donor.

    Row i of `stratum [n, k]` describes sample `rows[i]`; samples whose rows of `stratum` are equal form a stratum.
    """
    label = np.unique(stratum, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(label, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        group = rows[members]
        for shift in rng.permutation(np.arange(1, len(group))):
            lent = np.roll(group, shift)
            if not clash(lent, group).any():
                donor[group], level[group] = lent, 0
                break


def _nearest(i, part, clash, subject, task, length, rng) -> tuple[int, int]:
    """Return the donor of sample `i` (another text, the closest length) and the index of its level in `LEVELS`."""
    other = part[~clash(part, i)]
    if not len(other):
        raise UserError(
            f"sample {i} shares text with all other samples of its part, so 'shuffled' has nothing to feed it; make "
            "the parts larger, or leave the condition out."
        )
    same_subject = subject[other] == subject[i]
    same_task = same_subject & (task[other] == task[i])
    distance = np.abs(length[other] - length[i])
    choices = (same_task & (distance == 0), same_task, same_subject, np.ones(len(other), bool))
    level = next(level for level, allowed in enumerate(choices) if allowed.any())
    near = other[choices[level] & (distance == distance[choices[level]].min())]
    return int(rng.choice(near)), level


def _groups_of_two_or_more(length: np.ndarray) -> list[np.ndarray]:
    """Return index arrays of equal values in sorted lengths; a single value joins the group before or after it."""
    runs = np.split(np.arange(len(length)), np.flatnonzero(np.diff(length)) + 1)
    groups: list[np.ndarray] = []
    for run in runs:
        if groups and (len(run) == 1 or len(groups[-1]) == 1):
            groups[-1] = np.concatenate([groups[-1], run])
        else:
            groups.append(run)
    return groups


def train_means(data: DataFile, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each subject's mean features of a word over the rows `train`, and each sample's row in these means.

    The means, float32 `[S + 1, *feature_shape]`, have a row for each subject in alphabetical order, then the mean of
    all train words, which is also the row of a subject without train samples. The samples' rows are int32 `[N]`.
    """
    subjects, subject = np.unique(data.subject.astype(str), return_inverse=True)
    sums = np.zeros((len(subjects), *data.feature_shape))
    words = np.zeros(len(subjects))
    for owner, features in _counted_once(data, train):
        sums[subject[owner]] += features.sum(axis=0, dtype=np.float64)
        words[subject[owner]] += len(features)
    overall = sums.sum(axis=0) / words.sum()
    each = (-1, *[1] * len(data.feature_shape))
    seen = (words > 0).reshape(each)
    means = np.concatenate([np.where(seen, sums / np.maximum(words, 1).reshape(each), overall), overall[None]])
    return means.astype(np.float32), subject.astype(np.int32)


def _counted_once(data: DataFile, train: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the row number and the features of each train sample; frames of overlapping windows are yielded once."""
    end = -1
    for i in train if data.starts is None else train[np.argsort(data.starts[train], kind="stable")]:
        features = data.words(i)
        if data.starts is not None:
            features, end = features[max(0, end - data.starts[i]) :], max(end, data.starts[i] + len(features))
        if len(features):
            yield i, features
