"""Leakage in time: dev and test samples recorded close to a training sample, and groups that the time predicts."""

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from eeg2text_jax.data.clock import NO_TIME
from eeg2text_jax.splits.split import Readings

WITHIN = {"s": (5, 30, 120), "samples": (1, 5, 20)}  # unit of time -> distances up to which samples are neighbors
DRAWS = 2000  # permutations in the permutation test
ONE_BLOCK = 0.8  # warn if at least this share of the groups are each one block of consecutive samples
HIGH_SHARE, HIGH_GAIN = 0.5, 0.1  # least share of samples with a neighbor, and least gain over chance, to warn


def groups_of_readings(readings: Readings) -> dict[str, np.ndarray]:
    """Return "task" and "story" (of windows) -> label of each sample, object `[N]`, if the labels differ."""
    columns = {"task": readings.task, "story": readings.text_group}
    return {name: column for name, column in columns.items() if column is not None and len(set(column)) > 1}


def time_leakage(
    readings: Readings, parts: Mapping[str, np.ndarray], groups: Mapping[str, np.ndarray]
) -> dict[str, Any] | None:
    """Return how close in time dev and test samples are to training samples; None if no time is known.

    `parts`: part -> its rows; `groups`: name of a grouping -> label of each sample `[N]`, see `groups_of_readings`.

    Returns:
      `unit` (s or samples); `known`, the share of the parts' samples with a known time; `neighbors`, for dev and test
        the share of samples with a training sample of the same recording within each distance of `WITHIN`; `groups`,
        results of `neighbor_accuracy` by name and part; `one_block`, results of the function `one_block` by name;
        `ranges`, first and last onset (or order) by recording; `notes` about onsets that are hardly seconds.
    """
    clock = readings.clock
    if clock is None or not clock.known.any():
        return None
    kept = np.concatenate(list(parts.values()))
    found: dict[str, Any] = {"unit": clock.unit, "known": float(clock.known[kept].mean()), "neighbors": {}}
    found["groups"] = {name: {} for name in groups}
    for judged in ("dev", "test"):
        near, apart = clock.nearest(parts[judged], parts["train"])
        found["neighbors"][judged] = {str(limit): float(np.mean(apart <= limit)) for limit in WITHIN[clock.unit]}
        for name, labels in groups.items():
            found["groups"][name][judged] = neighbor_accuracy(labels, parts[judged], near)
    shares = {name: one_block(readings, labels) for name, labels in groups.items()}
    found["one_block"] = {name: share for name, share in shares.items() if share is not None}
    return found | {"ranges": {name: list(ends) for name, ends in clock.ranges.items()}, "notes": clock.notes()}


def neighbor_accuracy(labels: np.ndarray, judged: np.ndarray, near: np.ndarray) -> dict[str, Any]:
    """Return how often the nearest training sample in time has the same label, with a permutation test.

    `labels` are of all samples `[N]`, `judged` are rows `[M]`, and `near` `[M]` the rows of their neighbors, below 0
    if there is none. The result has the number of `samples` with a neighbor, the share `told` whose neighbor has the
    same label, the mean share under permutation (`chance`) and `p`. Readings of one sentence are not independent, so p
    describes the recordings only.
    """
    has = near >= 0
    names = np.unique(labels.astype(str), return_inverse=True)[1]
    own, other = names[judged[has]], names[near[has]]
    if not len(own):
        return {"samples": 0, "told": None, "chance": None, "p": None}
    rng = np.random.default_rng(0)
    drawn = np.array([np.mean(rng.permutation(own) == other) for _ in range(DRAWS)])
    told = float(np.mean(own == other))
    p = (1 + np.sum(drawn >= told - 1e-12)) / (1 + DRAWS)
    return {"samples": len(own), "told": told, "chance": float(drawn.mean()), "p": float(p)}


def one_block(readings: Readings, labels: np.ndarray) -> float | None:
    """Return the share of groups whose samples of a recording are consecutive; None if no recording has several groups.

    Groups with one sample in a recording are left out.
    """
    clock, consecutive = readings.clock, []
    for rows in clock.recordings().values():
        rows = rows[clock.known[rows]]
        shown = labels[rows[np.argsort(clock.spans[rows, 0], kind="stable")]].tolist()
        blocks = Counter(label for label, _ in itertools.groupby(shown))
        if len(blocks) > 1:
            consecutive += [blocks[label] == 1 for label, count in Counter(shown).items() if count > 1]
    return float(np.mean(consecutive)) if consecutive else None


def time_lines(time: Mapping[str, Any] | None) -> list[str]:
    """Return the result of `time_leakage` in words, as a list of sentences."""
    if time is None:
        return [f"time: {NO_TIME}"]
    unit = time["unit"]
    counted = "in seconds" if unit == "s" else "as places in the order of the recording, as onsets are not known"
    lines = [f"time: known for {time['known']:.1%} of the samples, {counted}", *time.get("notes", ())]
    for judged, shares in time["neighbors"].items():
        near = ", ".join(f"{share:.1%} within {limit} {unit}" for limit, share in shares.items())
        lines.append(f"{judged} samples with a training sample of the same recording beside them: {near}")
    for name, by_part in time["groups"].items():
        for judged, told in by_part.items():
            if told["samples"]:
                lines.append(
                    f"the nearest training sample in time tells the {name} of {told['told']:.1%} of {told['samples']} "
                    f"{judged} samples (chance {told['chance']:.1%}, p = {told['p']:.4f})"
                )
    for name, share in time["one_block"].items():
        if share >= ONE_BLOCK:
            lines.append(
                f"{share:.0%} of the {name} groups of a recording are shown in one block each: no split of one "
                f"recording can separate {name} from time. Designs that could: {name} groups in random order, or in "
                "several short blocks whose order differs between recordings, tested on another recording"
            )
    return lines


def high_neighbors(time: Mapping[str, Any] | None) -> list[str]:
    """Return warnings for an audit if many test samples have a training neighbor in time, or time tells their group."""
    if time is None:
        return []
    limit, share = list(time["neighbors"]["test"].items())[1]
    found = list(time.get("notes", ()))
    if share >= HIGH_SHARE:
        found.append(
            f"{share:.0%} of the test samples have a training sample of the same recording within {limit} "
            f"{time['unit']}: slow drifts of the signal are known from training"
        )
    for name, by_part in time["groups"].items():
        told = by_part["test"]
        if told["samples"] and told["p"] <= 0.05 and told["told"] - told["chance"] >= HIGH_GAIN:
            found.append(
                f"the nearest training sample in time tells the {name} of {told['told']:.0%} of the test samples "
                f"(chance {told['chance']:.0%}): a decoder that knows only the time could do the same"
            )
    return found
