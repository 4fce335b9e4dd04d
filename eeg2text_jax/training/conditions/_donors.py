"""Choose donors: samples whose EEG (condition `shuffled`) or text (`label_shuffle`) replaces another sample's.

They are chosen once, within the sample's part, so that train and test do not mix. Almost always they are a permutation,
so that the control has the same recordings, or texts, as the experiment.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.batches import Samples
from eeg2text_jax.data.clock import NO_TIME, known_clock, runs_of
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.splits.methods import text_names
from eeg2text_jax.data.splits.neighbors import groups_of_readings
from eeg2text_jax.data.splits.split import PARTS, Split, normalize, readings_of
from eeg2text_jax.training.conditions import NEAREST, SAME_PLACE
from eeg2text_jax.training.conditions.condition import MOST_LAGS, condition_key, needs, stream_rng

# What donor and sample have in common; a level is used if no earlier one has a donor.
LEVELS = ("same subject, task and length", "same subject and task", "same subject", "any subject")
Clash = Callable[[Any, Any], np.ndarray]  # see `clashes`


def chosen_samples(names: Collection[str], data: DataFile, split: Split, seed: int) -> dict[str, Any]:
    """Return fields of `Samples`: what the conditions `names` feed in place of each sample, and `donor_note`."""
    needed, train, test = needs(names), split.parts["train"], split.parts["test"]
    chosen: dict[str, Any] = {"copies": {}}
    notes, near = [], []
    if {"donor", "neighbor"} & needed:
        table = donor_table(data, list(split.parts.values()), seed)
    if "donor" in needed:
        chosen["donors"] = table.donor
        notes.append(f"shuffled, donors in the test part: {table.summary(test)}.")
    if "neighbor" in needed:
        found = neighbor_table(data, [split.parts[name] for name in PARTS], table.donor)
        chosen["neighbors"] = found.donor
        near.append(found.note)
    for name, choose in ((NEAREST, nearest_texts), (SAME_PLACE, same_place_texts)):
        if name in names:
            chosen["copies"][name] = np.full(len(data), -1)
            chosen["copies"][name][test], note = choose(data, train, test)
            near.append(note)
    if "clock" in needed:
        chosen["clock"] = clock_features(data, train, seed)
        notes.append(clock_note(data, train, chosen["clock"]))
    if "label_shuffle" in names:
        chosen["label_rows"] = label_rows(data, train, seed)
    if "subject" in needed:
        chosen["subject"] = np.unique(data.subject.astype(str), return_inverse=True)[1].astype(np.int32)
    return chosen | {"donor_note": " ".join(notes + near)}


def constant_arrays(names: Collection[str], samples: Samples, train: np.ndarray, seed: int) -> dict[str, Any]:
    """Return the fields of `StudyArrays` that the conditions `names` read at every step."""
    needed, arrays = needs(names), {"condition": condition_key(seed)}
    if "means" in needed:
        arrays["means"] = jnp.asarray((train_means(samples.data, train)[0] - samples.mean) / samples.scale)
    if "kernel" in needed:
        arrays["kernel"] = noise_kernel(samples, train)
    return arrays


@dataclasses.dataclass(frozen=True)
class DonorTable:
    """The donor of each of N samples: the sample whose recording replaces its own under `shuffled`."""

    donor: np.ndarray  # int64 [N], rows of the data file; -1: in no part
    level: np.ndarray  # int8 [N], index in `LEVELS`; -1: in no part
    n_words: np.ndarray  # int64 [N], see `lengths_of`
    unit: str  # of `n_words`

    def summary(self, rows: np.ndarray) -> str:
        """Return shares of the levels and differences in length of the samples `rows`, as a phrase."""
        shares = [(np.mean(self.level[rows] == level), name) for level, name in enumerate(LEVELS)]
        levels = ", ".join(f"{share:.1%} {name}" for share, name in shares if share)
        gap = np.abs(self.n_words[self.donor[rows]] - self.n_words[rows])
        if not gap.any():
            return levels
        mean = gap[gap > 0].mean()
        return f"{levels}; {np.mean(gap > 0):.1%} have another length, by {mean:.1f} {self.unit} on average"


def lengths_of(data: DataFile) -> tuple[np.ndarray, str]:
    """Return the lengths by which donors are chosen, int64 `[N]`, and their unit."""
    if not data.is_waves:
        return data.n_words, "words"
    return np.rint(2 * data.n_words / data.sfreq).astype(int), "half seconds"


def donor_table(data: DataFile, parts: list[np.ndarray], seed: int) -> DonorTable:
    """Return for each sample a donor: a sample of the same part with another sentence. `parts` are lists of rows.

    Samples of equal subject, task and length are shifted cyclically (windows of a stimulus in order of time) if one
    shift gives all of them another sentence. The others get the donor of the nearest length at the first of `LEVELS`
    that has one. UserError if a part has a single text.
    """
    text = _text_numbers(data)
    subject, task = (np.unique(names.astype(str), return_inverse=True)[1] for names in (data.subject, data.task))
    clash, (length, unit) = clashes(data, text, task), lengths_of(data)
    donor, level = np.full(len(data), -1), np.full(len(data), -1, np.int8)
    # A stream for each part, so that its donors do not depend on the other parts.
    for part, rng in zip(parts, stream_rng(seed, "donors").spawn(len(parts)), strict=True):
        if len(np.unique(text[part])) < 2:
            raise UserError(
                f"{data.path}: a part has a single text, so 'shuffled' has no other to feed; give more sentences, or "
                "leave the condition out."
            )
        stratum = np.stack([subject[part], task[part], length[part]], axis=1)
        order = np.argsort(data.sentence_index[part], kind="stable") if data.is_windows else rng.permutation(len(part))
        _pass_on(part[order], stratum[order], clash, rng, donor, level)
        for i in part[donor[part] < 0]:
            donor[i], level[i] = _nearest(i, part, clash, subject, task, length, rng)
    return DonorTable(donor, level, length, unit)


def _text_numbers(data: DataFile) -> np.ndarray:
    return np.unique([normalize(sentence) for sentence in data.sentence], return_inverse=True)[1]


def clashes(data: DataFile, text: np.ndarray, task: np.ndarray) -> Clash:
    """Return a function that tells whether rows have the same text or, of windows, share a segment."""
    if not data.is_windows:
        return lambda a, b: text[a] == text[b]
    start, stop = data.story_times.T
    return lambda a, b: (text[a] == text[b]) | ((task[a] == task[b]) & (start[a] < stop[b]) & (start[b] < stop[a]))


def label_rows(data: DataFile, train: np.ndarray, seed: int) -> np.ndarray:
    """Return the row whose sentence is each sample's target under `label_shuffle`, int64 `[N]`.

    Texts of the train part are permuted among those of the same or nearest number of words; other samples keep theirs.
    UserError if the train part has a single text.
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
    """Set `donor` and `level` where a cyclic shift within equal rows of `stratum [n, k]` suits all."""
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
    """Return the donor of sample `i` (another text, the closest length) and its level, an index in `LEVELS`."""
    other = part[~clash(part, i)]
    if not len(other):
        raise UserError(
            f"sample {i} shares text with all others of its part; make the parts larger, or leave 'shuffled' out."
        )
    same_subject = subject[other] == subject[i]
    same_task = same_subject & (task[other] == task[i])
    distance = np.abs(length[other] - length[i])
    choices = (same_task & (distance == 0), same_task, same_subject, np.ones(len(other), bool))
    level = next(level for level, allowed in enumerate(choices) if allowed.any())
    near = other[choices[level] & (distance == distance[choices[level]].min())]
    return int(rng.choice(near)), level


def _groups_of_two_or_more(length: np.ndarray) -> list[np.ndarray]:
    """Return indices of equal values of sorted lengths; a single one joins the group beside it."""
    groups: list[np.ndarray] = []
    for run in np.split(np.arange(len(length)), np.flatnonzero(np.diff(length)) + 1):
        joins = groups and 1 in (len(run), len(groups[-1]))
        groups.append(np.concatenate([groups.pop(), run]) if joins else run)
    return groups


def train_means(data: DataFile, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean features of a word, float32 `[S + 1, *feature_shape]`, and each sample's row in them, int32 `[N]`.

    They are of the rows `train`: of each subject in alphabetical order, then of all, for subjects without any.
    """
    subjects, subject = np.unique(data.subject.astype(str), return_inverse=True)
    sums, words = np.zeros((len(subjects), *data.feature_shape)), np.zeros(len(subjects))
    for owner, features in _counted_once(data, train):
        sums[subject[owner]] += features.sum(axis=0, dtype=np.float64)
        words[subject[owner]] += len(features)
    overall = sums.sum(axis=0) / words.sum()
    each = words.reshape(-1, *[1] * len(data.feature_shape))
    means = np.concatenate([np.where(each > 0, sums / np.maximum(each, 1), overall), overall[None]])
    return means.astype(np.float32), subject.astype(np.int32)


def some_rows(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` of the rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)]


MOST_SPECTRA = 1000  # train samples from which `noise_kernel` is computed


def noise_kernel(samples: Samples, train: np.ndarray) -> np.ndarray:
    """Return the filter, float32 `[2 L, F]`, that gives white noise each feature's spectrum over the train part.

    It comes from autocovariances of standardized samples at lags below L (`MOST_LAGS`, or less if all samples are
    shorter), with a triangular window.
    """
    rows = some_rows(train, MOST_SPECTRA)
    width = samples.data.n_features
    lags = int(min(MOST_LAGS, samples.n_words[rows].max()))
    total, count = np.zeros((lags, width)), 0
    for i in rows:
        features = samples.features(int(i)).reshape(-1, width)
        size = len(features) + lags
        power = np.abs(np.fft.rfft(features, size, axis=0)) ** 2
        total, count = total + np.fft.irfft(power, size, axis=0)[:lags], count + len(features)
    covariance = (1 - np.arange(lags) / lags)[:, None] * total / count
    even = np.concatenate([covariance, np.zeros((1, width)), covariance[:0:-1]])
    gain = np.sqrt(np.maximum(np.fft.rfft(even, axis=0).real, 0.0))
    return np.roll(np.fft.irfft(gain, 2 * lags, axis=0), lags, axis=0).astype(np.float32)


def _counted_once(data: DataFile, train: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield row and features of each train sample, frames of overlapping windows once."""
    end = -1
    for i in train if data.starts is None else train[np.argsort(data.starts[train], kind="stable")]:
        features = data.words(i)
        if data.starts is not None:
            features, end = features[max(0, end - data.starts[i]) :], max(end, data.starts[i] + len(features))
        if len(features):
            yield i, features


# Controls of time: `clock`, `neighbor`, `nearest_in_time`, `same_place`.

# Waves of the time in the recording: the first period is twice the latest train sample, each further one half as long.
PERIODS = 10
MOST_OWN = 512  # waves with phases of each recording's own
MOST_ERROR = 0.1  # of a recording's length: a clock that tells the time less exactly is refused
MOST_FITTED, RIDGE = 4000, 0.01  # train samples of this fit; its penalty: waves that hardly vary tell nothing
NEEDS_TIME = f"condition {{!r}} cannot be fed, as {NO_TIME}; leave the condition out."
TOLERANCE = 2  # number of words, or half seconds, by which the length of a preferred neighbor may differ


def clock_features(data: DataFile, train: np.ndarray, seed: int) -> np.ndarray:
    """Return the features that `clock` feeds at every word of a sample, float32 `[N, F]`; zeros if its time is unknown.

    They are a one-hot code of the recording, waves of the time since its first sample, `_further_forms` and
    `_own_waves`, all with a mean square of about 1. If F is too small for all, at least half of F are waves of the
    longest periods, and the codes are projected on random directions. Periods and codes come from the train part alone.
    """
    clock, width = known_clock(data, NEEDS_TIME.format("clock")), data.n_features
    seen = sorted({name for name in clock.recording[train].tolist() if name})
    turns = _turns(np.nan_to_num(clock.since_first), train)
    waves = _waves(turns)[:, : max(width - len(seen), (width + 1) // 2)]
    free, rng = width - waves.shape[1], stream_rng(seed, "clock")
    codes = np.sqrt(len(seen)) * (clock.recording[:, None] == np.array(seen, object))
    if len(seen) > free:
        codes = codes @ rng.standard_normal((len(seen), free)) / np.sqrt(len(seen))
    forms = _further_forms(data, train, turns)[:, : free - codes.shape[1]]
    count = min(free - codes.shape[1] - forms.shape[1], MOST_OWN)
    columns = np.concatenate([codes, waves, forms, _own_waves(clock.recording, turns, seen, count, rng)], axis=1)
    features = np.zeros((len(data), width), np.float32)
    features[clock.timed, : columns.shape[1]] = columns[clock.timed]
    return features


def _turns(place: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return the phases `[N, 1]` of a wave whose period is twice the latest place of the train part."""
    return 2 * np.pi * place[:, None] / (2 * float(place[train].max()) or 1.0)


def _waves(turns: np.ndarray) -> np.ndarray:
    """Return cosine and sine of `PERIODS` periods, each half of the one before, `[N, 2 * PERIODS]`."""
    phases = turns * 2.0 ** np.arange(PERIODS)
    return np.sqrt(2) * np.stack([np.cos(phases), np.sin(phases)], axis=2).reshape(len(turns), -1)


def _further_forms(data: DataFile, train: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Return codes of subjects with several recordings, and waves of index and share unless `turns` has them."""
    clock, blocks = data.clock, [np.zeros((len(data), 0))]
    subjects = sorted(set(data.subject[train].tolist()))
    pairs = {(s, r) for s, r in zip(data.subject[train], clock.recording[train], strict=True) if r}
    if 1 < len(subjects) < len(pairs):
        blocks.append(np.sqrt(len(subjects)) * (data.subject[:, None] == np.array(subjects, object)))
    phases = [turns]
    for form in ("index", "share"):
        turns_of_form = _turns(np.nan_to_num(clock.places[form]), train)
        if not any(np.allclose(turns_of_form[train], other[train], atol=1e-6) for other in phases):
            phases.append(turns_of_form)
            blocks.append(_waves(turns_of_form))
    return np.concatenate(blocks, axis=1)


def _own_waves(
    recording: np.ndarray, turns: np.ndarray, seen: list[str], count: int, rng: np.random.Generator
) -> np.ndarray:
    """Return `count` waves `[N, count]` with random phases for each recording of `seen`; zeros for other recordings.

    `turns [N, 1]` are the phases of the longest period. With these waves a linear layer tells the same stretch of two
    recordings apart; without them, drift seemed to be content beyond its time in 2 of 12 trainings.
    """
    rates, waves = 2.0 ** rng.uniform(0, PERIODS - 3, count), np.zeros((len(recording), count))
    for name in seen:
        rows = recording == name
        waves[rows] = np.sqrt(2) * np.cos(turns[rows] * rates + rng.uniform(0, 2 * np.pi, count))
    return waves


def clock_note(data: DataFile, train: np.ndarray, features: np.ndarray) -> str:
    """Return how well a linear fit reads `clock_features` on the train part; UserError if it is no control of time."""
    clock = known_clock(data, NEEDS_TIME.format("clock"))
    rows = some_rows(train[clock.timed[train]], MOST_FITTED)
    if not len(rows):
        raise UserError(f"{data.path}: {NEEDS_TIME.format('clock')}")
    since, groups = clock.since_first, clock.recordings()
    longest = {name: np.nanmax(since[members]) for name, members in groups.items() if clock.timed[members].any()}
    shared = features[:, : len(longest) + 2 * PERIODS][rows]  # without the waves of each recording's own
    time = _fitted(shared, since[rows, None])[:, 0]
    off = np.abs(time - since[rows]) / np.maximum([longest[name] for name in clock.recording[rows]], 1e-9)
    said = [f"the time to within {np.median(off):.1%} of a recording's length (median)"]
    for name, column in {"recording": clock.recording, **groups_of_readings(readings_of(data))}.items():
        label = np.unique(column[rows].astype(str), return_inverse=True)[1]
        right = _fitted(shared, np.eye(label.max() + 1)[label]).argmax(axis=1) == label
        said.append(f"the {name} of {right.mean():.1%} of the samples")
    note = f"clock: on the train part, a linear fit of its input tells {', '.join(said)}."
    if np.median(off) > MOST_ERROR:
        raise UserError(
            f"{data.path}: {note} Expected at most {MOST_ERROR:.0%}: an arm trained on it would be no control of time. "
            "Look at the onsets with `eeg2text check`, or leave the condition 'clock' out."
        )
    return note


def _fitted(predictors: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the ridge regression of `wanted [N, K]` on `predictors [N, C]` and a constant."""
    spread, mean = predictors - predictors.mean(axis=0, dtype=float), wanted.mean(axis=0)
    gram = spread.T @ spread + RIDGE * len(predictors) * np.eye(predictors.shape[1])
    return mean + spread @ np.linalg.solve(gram, spread.T @ (wanted - mean))


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The sample whose recording `neighbor` feeds in place of each sample's own."""

    donor: np.ndarray  # int64 [N], rows of the data file; -1: in no part
    note: str  # about the test part, for the user


def same_place_texts(data: DataFile, train: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the training row whose text `same_place` predicts for each of `rows`, and a note for users.

    It is at the nearest place in another recording, of the same task and run if possible; the form of place (index,
    seconds, share) is the one that tells most texts of the train part.
    """
    clock = known_clock(data, NEEDS_TIME.format("same_place"))
    text, run, fitted = text_names(data), runs_of(data.task, clock.recording), some_rows(train, MOST_FITTED)

    def copied(samples: np.ndarray, form: str) -> np.ndarray:
        near = clock.at_same_place(samples, train, form, run)
        return np.where(near >= 0, near, clock.at_same_place(samples, train, form))

    def share_told(form: str) -> float:
        near = copied(fitted, form)
        return float(np.mean((near >= 0) & (text[near] == text[fitted])))

    form = max(clock.places, key=share_told)
    near = copied(rows, form)
    if (near < 0).any():
        same_recording, _ = clock.nearest(rows, train)
        near = np.where(near >= 0, near, np.where(same_recording >= 0, same_recording, train[0]))
    return near, (
        f"same_place: the training text at the same place (by {form}) of another recording is the text of "
        f"{np.mean(text[near] == text[rows]):.1%} of the test part."
    )


def neighbor_table(data: DataFile, parts: list[np.ndarray], donors: np.ndarray) -> Neighbors:
    """Return for each sample the nearest in time with another sentence, of the same recording.

    Else the one at the nearest place of another recording, or its donor of `shuffled` in `donors [N]`. Lengths that
    differ by at most `TOLERANCE` are preferred. `parts` are the rows of train, dev and test: a train sample gets one of
    train, a dev sample one of train or dev, a test sample any of the file.
    """
    clock = known_clock(data, NEEDS_TIME.format("neighbor"))
    clash = clashes(data, _text_numbers(data), np.unique(data.task.astype(str), return_inverse=True)[1])
    neighbors, apart = donors.copy(), np.full(len(data), np.inf)
    length, _ = lengths_of(data)
    train, dev, test = parts
    # Nothing of the test part is fed in training, or where a checkpoint is chosen.
    for part, among in ((train, train), (dev, np.concatenate([train, dev])), (test, np.arange(len(data)))):
        # A neighbor within the tolerance replaces the neighbor of any length.
        for tolerance in (np.inf, TOLERANCE):
            near, distance = clock.nearest(
                part,
                among,
                lambda i, others, most=tolerance: clash(others, i) | (np.abs(length[others] - length[i]) > most),
            )
            has = near >= 0
            neighbors[part[has]], apart[part[has]] = near[has], distance[has]
        lone = part[~np.isfinite(apart[part])]
        if len(lone):
            elsewhere = _other_text_at_place(data, lone, among, clash)
            neighbors[lone] = np.where(elsewhere >= 0, elsewhere, neighbors[lone])
    return Neighbors(neighbors, _describe(data, test, neighbors, apart, clock.unit))


def _other_text_at_place(data: DataFile, rows: np.ndarray, among: np.ndarray, clash: Clash) -> np.ndarray:
    """Return the sample of another text at the nearest place of another recording, `[R]`; -1: none."""
    run, samples, left = runs_of(data.task, data.clock.recording), np.full(len(rows), -1), np.arange(len(rows))
    while len(left):  # each turn removes candidates of the same text, at most one a recording and sample
        near = data.clock.at_same_place(rows[left], among, "index", run)
        left, near = left[near >= 0], near[near >= 0]
        fits = ~clash(near, rows[left])
        samples[left[fits]] = near[fits]
        left, among = left[~fits], np.setdiff1d(among, near[~fits])
    return samples


def _describe(data: DataFile, test: np.ndarray, neighbors: np.ndarray, apart: np.ndarray, unit: str) -> str:
    near = np.isfinite(apart[test])
    away = f"a median of {np.median(apart[test][near]):.3g} {unit} away" if near.any() else "so all get donors"
    note = f"neighbor: {near.mean():.1%} of the test samples have a neighbor in their recording, {away}"
    for name, labels in groups_of_readings(readings_of(data)).items():
        differ = np.mean(labels[test] != labels[neighbors[test]])
        note += (
            f"; {differ:.1%} of the pairs are of different groups ({name}): only in these pairs, the comparison with "
            f"neighbor does not exclude what a clock tells about the {name}"
        )
    return f"{note}."


def nearest_texts(data: DataFile, train: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the training row whose text `nearest_in_time` predicts for each of `rows`, and a note for users.

    Without one in the same recording, it is that of `same_place`: what a model of time alone knows.
    """
    clock = known_clock(data, NEEDS_TIME.format("nearest_in_time"))
    near, apart = clock.nearest(rows, train)
    has = near >= 0
    if not has.all():
        near[~has] = same_place_texts(data, train, rows[~has])[0]
    away = f", a median of {np.median(apart[has]):.3g} {clock.unit} away" if has.any() else ""
    return near, f"nearest_in_time: {has.mean():.1%} of the test part has a training text in its recording{away}."
