"""Leakage in time: training samples near dev and test samples, or at the same place of another recording."""

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from eeg2text_jax.data.clock import NO_TIME, Clock, runs_of
from eeg2text_jax.data.splits.split import Readings, normalize

WITHIN = {"s": (5, 30, 120), "samples": (1, 5, 20)}  # unit of time -> distances up to which samples are neighbors
# Origins of the sample at the nearest place of another recording.
SAME_RUN, ANYWHERE, OTHER_SUBJECT = "the same task and run", "any task and run", "another subject"
MOST_PAIRS = 1000  # pairs of recordings compared in a table of places
DRAWS = 2000  # permutations in the permutation test
# What to warn from: share of groups that are each one block; share of samples with a neighbor; gain over chance.
ONE_BLOCK, HIGH_SHARE, HIGH_GAIN = 0.8, 0.5, 0.1


def groups_of_readings(readings: Readings) -> dict[str, np.ndarray]:
    """Return "task" and "story" (of windows) -> label of each sample, object `[N]`, where labels differ."""
    columns = {"task": readings.task, "story": readings.text_group}
    return {name: column for name, column in columns.items() if column is not None and len(set(column)) > 1}


def time_leakage(
    readings: Readings, parts: Mapping[str, np.ndarray], groups: Mapping[str, np.ndarray]
) -> dict[str, Any] | None:
    """Return how close in time dev and test samples are to training samples; None if no time is known.

    `parts` has the rows of each part, `groups` the label of each sample `[N]` by grouping. Keys: `unit` (s or samples);
    `known`, the share of the parts' samples with a known time; `neighbors`, by part the share of samples with a
    training sample of the same recording within each distance of `WITHIN`; `groups` (by name and part:
    `neighbor_accuracy`), `one_block` (by name), `places` (by part: `place_accuracy`); `ranges`, first and last onset
    (or order) by recording; `notes` about onsets that are hardly seconds.
    """
    clock = readings.clock
    if clock is None or not clock.timed.any():
        return None
    known = float(clock.timed[np.concatenate(list(parts.values()))].mean())
    leakage: dict[str, Any] = {"unit": clock.unit, "known": known, "neighbors": {}, "groups": {n: {} for n in groups}}
    for judged in ("dev", "test"):
        near, apart = clock.nearest(parts[judged], parts["train"])
        leakage["neighbors"][judged] = {str(limit): float(np.mean(apart <= limit)) for limit in WITHIN[clock.unit]}
        for name, labels in groups.items():
            leakage["groups"][name][judged] = neighbor_accuracy(labels, parts[judged], near)
    text = texts_of(readings)
    leakage["places"] = {judged: place_accuracy(readings, text, parts, judged) for judged in ("dev", "test")}
    shares = {name: one_block(readings, labels) for name, labels in groups.items()}
    leakage["one_block"] = {name: share for name, share in shares.items() if share is not None}
    return leakage | {"ranges": {name: list(ends) for name, ends in clock.ranges.items()}, "notes": clock.notes()}


def texts_of(readings: Readings) -> np.ndarray:
    """Return each sample's text, normalized, or its sentence id if texts are not known, `[N]`."""
    if readings.text is None or readings.text_group is not None:
        return readings.sentence_id.astype(str)
    return np.array([normalize(text) or text for text in readings.text])


def place_accuracy(
    readings: Readings, text: np.ndarray, parts: Mapping[str, np.ndarray], judged: str
) -> dict[str, dict[str, Any]]:
    """Return how often the training sample at the nearest place in another recording has the same text.

    By origin of that sample, if there are any: the form of place that tells most, and its `neighbor_accuracy`.
    """
    clock, train, rows = readings.clock, parts["train"], parts[judged]
    run, scores = runs_of(readings.task, clock.recording), {}
    origins = {SAME_RUN: (run, None), ANYWHERE: (None, None), OTHER_SUBJECT: (run, readings.subject)}
    for origin, (within, apart) in origins.items():
        near = {form: clock.at_same_place(rows, train, form, within, apart) for form in clock.places}
        form = max(near, key=lambda form: np.sum(text[rows[near[form] >= 0]] == text[near[form][near[form] >= 0]]))
        scores[origin] = {"form": form, **neighbor_accuracy(text, rows, near[form])}
    return {origin: score for origin, score in scores.items() if score["samples"]}


def far_above_chance(score: Mapping[str, Any]) -> bool:
    return bool(score["samples"] and score["p"] <= 0.05 and score["told"] - score["chance"] >= HIGH_GAIN)


ORDER_FINDING = (
    "sentences come in the same order in several recordings: no split that trains and tests on the same sentences "
    "separates a sentence from its place. Designs that could: sentences in another random order in each recording; or "
    "test sentences that occur in no training recording (`--method=unique_text`; `blocks` holds out their places, too)"
)


def _told(score: Mapping[str, Any], judged: str) -> str:
    chance = f"(chance {score['chance']:.1%}, p = {score['p']:.4f})"
    return f"{score['told']:.1%} of {score['samples']} {judged} samples {chance}"


def place_lines(places: Mapping[str, Any]) -> list[str]:
    """Return each part's `place_accuracy` in words, with a finding if far above chance."""
    lines, high = [], False
    for judged, origins in places.items():
        if not origins:
            continue
        origin, score = max(origins.items(), key=lambda item: item[1]["told"])
        high |= far_above_chance(score)
        place = f"the nearest place (by {score['form']}) in another recording, of {origin}"
        lines.append(f"the training sample at {place}, has the text of {_told(score, judged)}")
    return [*lines, ORDER_FINDING] if high else lines


def run_table(readings: Readings, unit: float = 0.0) -> list[str]:
    """Return a text table of the order of sentences in recordings with the same texts, if there are several.

    Of pairs of recordings: the share of places (index) with the same text, and with the same number of characters by
    duration (with chance) if each is shown for `unit` seconds; the median distance in time of equal indices in the
    whole run and its first half; how often the sample nearest in time has the same text, in any other recording and in
    the next (of the last: the first).
    """
    lines, clock, text = [], readings.clock, texts_of(readings)
    for run, recordings in recordings_of_texts(readings).items():
        pairs = list(itertools.permutations(recordings, 2))
        if not pairs:
            continue
        found = [_compared(clock, text, unit, *pair) for pair in pairs[:: -(-len(pairs) // MOST_PAIRS)]]
        following = [_compared(clock, text, unit, *pair) for pair in itertools.pairwise([*recordings, recordings[0]])]
        same, length, chance, near = np.array([shares for shares, _ in found]).T
        halves = [np.concatenate([apart[: len(apart) // part] for _, apart in found]) for part in (1, 2)]
        apart = f"{np.median(halves[0]):.2f} s ({np.median(halves[1]):.2f})" if clock.in_seconds else "-"
        lengths = f"{_range(length)}, chance {chance.mean():.1%}" if unit else "-"
        near_share = f"{near.mean():.1%} ({np.mean([shares[3] for shares, _ in following]):.1%})"
        lines.append(f"{run:<23} {len(recordings):>3}  {_range(same):<20} {lengths:<34} {apart:<18} {near_share}")
    head = f"{'order of recordings':<23} {'n':>3}  {'same text (range)':<20} {'same length by duration (range)':<34} "
    return [f"{head}{'apart (1st half)':<18} nearest (in the next)", *lines] if lines else []


def recordings_of_texts(readings: Readings) -> dict[str, list[np.ndarray]]:
    """Return the rows of recordings, in order, by task and run; runs of mostly the same texts are one."""
    clock, text = readings.clock, texts_of(readings)
    home: dict[str, str] = {}  # run -> first run with its texts
    texts: dict[str, set[str]] = {}
    recordings: dict[str, list[np.ndarray]] = {}
    for rows in clock.recordings().values():
        rows = rows[clock.timed[rows]]
        if not len(rows):
            continue
        run, own = str(runs_of(readings.task[rows[:1]], clock.recording[rows[:1]])[0]), set(text[rows].tolist())
        if run not in home:
            home[run] = next((k for k, known in texts.items() if 2 * len(own & known) > len(own | known)), run)
            texts.setdefault(home[run], own)
        recordings.setdefault(home[run], []).append(rows[np.argsort(clock.places["index"][rows], kind="stable")])
    more = {run: sum(h == run for h in home.values()) - 1 for run in recordings}
    return {f"{run} and {more[run]} more" if more[run] else run: rows for run, rows in recordings.items()}


def _range(shares: np.ndarray) -> str:
    return f"{np.median(shares):.1%} ({100 * shares.min():.1f}-{shares.max():.1%})"


def _compared(
    clock: Clock, text: np.ndarray, unit: float, one: np.ndarray, other: np.ndarray
) -> tuple[list[float], np.ndarray]:
    """Return shares, and the distances in time of equal indices, of two recordings of the same texts.

    Shares: equal indices with the same text; with the same number of characters; the latter in any order; samples whose
    nearest in time in the other recording has the same text.
    """
    n, begin = min(len(one), len(other)), clock.spans[:, 0]
    near = other[np.abs(begin[other][None] - begin[one][:, None]).argmin(1)]
    first, second = (np.rint(clock.duration[rows[:n]] / (unit or np.nan)) for rows in (one, other))  # characters
    alike = text[one[:n]] == text[other[:n]], first == second, first[None] == second[:, None], text[one] == text[near]
    return [float(np.mean(of)) for of in alike], np.abs(begin[one[:n]] - begin[other[:n]])


def neighbor_accuracy(labels: np.ndarray, judged: np.ndarray, near: np.ndarray) -> dict[str, Any]:
    """Return how often the nearest training sample in time has the same label, with a permutation test.

    `labels` are of all samples `[N]`, `judged` rows `[M]`, `near` those of their neighbors `[M]`, below 0 without one.
    Keys: the number of `samples` with a neighbor; `told`, the share whose neighbor has the same label; `chance`, its
    mean under permutation; `p`, of these recordings only, as readings of one sentence are not independent.
    """
    has = near >= 0
    names = np.unique(labels.astype(str), return_inverse=True)[1]
    own, other = names[judged[has]], names[near[has]]
    if not len(own):
        return {"samples": 0, "told": None, "chance": None, "p": None}
    rng = np.random.default_rng(0)
    drawn = np.array([np.mean(rng.permutation(own) == other) for _ in range(DRAWS)])
    share = float(np.mean(own == other))
    p = (1 + np.sum(drawn >= share - 1e-12)) / (1 + DRAWS)
    return {"samples": len(own), "told": share, "chance": float(drawn.mean()), "p": float(p)}


def one_block(readings: Readings, labels: np.ndarray) -> float | None:
    """Return the share of groups that are one block of a recording; None if no recording has several groups."""
    clock, consecutive = readings.clock, []
    for rows in clock.recordings().values():
        rows = rows[clock.timed[rows]]
        shown = labels[rows[np.argsort(clock.spans[rows, 0], kind="stable")]].tolist()
        blocks = Counter(label for label, _ in itertools.groupby(shown))
        if len(blocks) > 1:
            consecutive += [blocks[label] == 1 for label, count in Counter(shown).items() if count > 1]
    return float(np.mean(consecutive)) if consecutive else None


def time_lines(time: Mapping[str, Any] | None) -> list[str]:
    """Return the `time_leakage` in sentences."""
    if time is None:
        return [f"time: {NO_TIME}"]
    unit = time["unit"]
    counted = "in seconds" if unit == "s" else "as places in the order of the recording, as onsets are not known"
    lines = [f"time: known for {time['known']:.1%} of the samples, {counted}", *time.get("notes", ())]
    for judged, shares in time["neighbors"].items():
        near = ", ".join(f"{share:.1%} within {limit} {unit}" for limit, share in shares.items())
        lines.append(f"{judged} samples with a training sample of the same recording beside them: {near}")
    for name, by_part in time["groups"].items():
        told = [_told(score, judged) for judged, score in by_part.items() if score["samples"]]
        lines += [f"the nearest training sample in time tells the {name} of {it}" for it in told]
    lines += place_lines(time.get("places", {}))
    for name, share in time["one_block"].items():
        if share >= ONE_BLOCK:
            lines.append(
                f"{share:.0%} of the {name} groups of a recording are shown in one block each: no split of one "
                f"recording can separate {name} from time. Designs that could: {name} groups in random order, or in "
                "several short blocks whose order differs between recordings, tested on another recording"
            )
    return lines


def high_neighbors(time: Mapping[str, Any] | None) -> list[str]:
    """Return warnings if many test samples have a training neighbor in time, or time or place tells much."""
    if time is None:
        return []
    limit, share = list(time["neighbors"]["test"].items())[1]
    lines = list(time.get("notes", ()))
    if share >= HIGH_SHARE:
        lines.append(
            f"{share:.0%} of the test samples have a training sample of the same recording within {limit} "
            f"{time['unit']}: slow drifts of the signal are known from training"
        )
    origins = time.get("places", {}).get("test", {})
    if (score := max(origins.values(), key=lambda score: score["told"], default=None)) and far_above_chance(score):
        lines.append(
            f"the training sample at the nearest place of another recording has the text of {score['told']:.0%} of the "
            f"test samples (chance {score['chance']:.0%}): a decoder that knows only the place in a recording could "
            "write the sentence"
        )
    for name, by_part in time["groups"].items():
        score = by_part["test"]
        if far_above_chance(score):
            lines.append(
                f"the nearest training sample in time tells the {name} of {score['told']:.0%} of the test samples "
                f"(chance {score['chance']:.0%}): a decoder that knows only the time could do the same"
            )
    return lines
