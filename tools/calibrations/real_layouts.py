"""Neighbors in time of published data sets, from their tables of events alone: `real_layouts.py FOLDER`.

Of a BIDS folder (recordings need not be downloaded) it prints, for each split, what it keeps, the share of test samples
with a training sample beside them, how well the nearest one tells a group, and how often the one at the nearest place
of another recording has the text. Chisco 2.0 (ds006317): a trial lasts from event 65329 to 65381; texts are not in the
tables, but equal trials have equal durations (para2: in all runs), so these count as one text. Narratives (ds002345):
windows of 15 s, told apart by story. ZuCo: the tables of labels of version 1.0, in the order of the recordings' files,
and seven blocks of NR of version 2.0, whose texts count as distinct; time is counted in sentences.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.clock import Clock
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.neighbors import WITHIN, groups_of_readings, neighbor_accuracy, time_leakage
from eeg2text_jax.data.splits.split import readings_of

RATIO = (0.8, 0.1, 0.1)
SPLITS = (("c", 0), ("sessions", 0), ("unique_text", 0), ("f", 0), ("blocks", 0), ("blocks", 30))
# Of ZuCo by task: table, delimiter, places of text and group (rows have more columns than headers), what groups are.
ZUCO = {
    "SR": ("sentiment_labels_task1.csv", ";", 1, -1, "sentiment"),
    "NR": ("relations_labels_task2.csv", ",", 2, 0, "paragraph"),
    "TSR": ("relations_labels_task3.csv", ";", 2, -1, "relation"),
}
READERS, READERS_V2 = 12, 18
BLOCKS_V2 = (50, 50, 51, 50, 50, 49, 49)  # sentences of the blocks of NR, between which blocks of TSR were read
WINDOW, TR = 15.0, 1.5  # seconds of a window of a story, and of a frame


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def trials(path: Path) -> list[tuple[float, float, str]]:
    """Begin, end and text of each trial of a table of Chisco."""
    found, begin = [], None
    task, run = path.name.removesuffix("_events.tsv").split("_")[2:4]
    name = f"{task}_{run}" if task == "task-para1" else f"{task}_"
    for row in rows_of(path):
        if row["value"] == "65329":
            begin = float(row["onset"])
        elif row["value"] == "65381" and begin is not None:
            found.append((begin, float(row["onset"]), f"{name} trial {len(found)}"))
            begin = None
    return found


def story_windows(path: Path) -> list[tuple[float, float, str]]:
    """Begin, end and story with number of each window of a table of Narratives."""
    found = []
    for row in rows_of(path):
        if row["trial_type"] == "story" and row["stim_file"] not in ("", "n/a"):
            begin, story = float(row["onset"]), row["stim_file"].removesuffix(".wav").removesuffix("_audio")
            for k in range(int(float(row["duration"]) / WINDOW)):
                found.append((begin + k * WINDOW, begin + (k + 1) * WINDOW, f"{story} {10 * k}"))
    return found


def zuco(folder: Path) -> tuple[DataFile, dict[str, np.ndarray]]:
    """Samples of ZuCo's tables, with features of nothing, and the groups of their texts; "" where there is none."""
    rows = []  # subject, task, recording, text, place in the task and in the recording, group and its name
    for task, (name, delimiter, text, group, called) in ZUCO.items():
        lines = (folder / name).read_text(encoding="utf-8-sig").splitlines()
        table = csv.reader([line for line in lines[1:] if not line.startswith("#")], delimiter=delimiter)
        for k, row in enumerate(table):
            rows += [(f"Z{s}", task, f"Z{s} {task}", row[text], k, k, row[group], called) for s in range(READERS)]
    places = [(block, k) for block, size in enumerate(BLOCKS_V2) for k in range(size)]
    for index, (block, k) in enumerate(places):
        about = [(f"Y{s}", f"Y{s} run-{block + 1}") for s in range(READERS_V2)]
        rows += [(who, "NRv2", run, f"sentence {index} of NRv2", index, k, "", "") for who, run in about]
    subject, task, recording, text, index, order, group, called = (np.array(c, object) for c in zip(*rows, strict=True))
    blank = [np.nan] * len(rows)
    clock = Clock.of({"recording": recording, "onset": blank, "duration": blank, "order": order.astype(int)})
    offsets, nothing = np.arange(len(rows) + 1), np.ones((1, 1), np.float32)
    groups = {name: np.where(called == name, group, "") for name in ("sentiment", "paragraph", "relation")}
    found = DataFile(folder, nothing, offsets, text, subject, task, index.astype(int), "nothing", {}, clock=clock)
    return found, groups


def layout(folder: Path) -> DataFile:
    """The samples of all tables, with features of nothing."""
    rows, recording, spans = [], [], []
    for path in sorted(folder.glob("sub-*/**/*_events.tsv")):
        stories = "func" in path.parts
        for begin, end, text in (story_windows if stories else trials)(path):
            task = text.rpartition(" ")[0] if stories else text.partition("task-")[2].partition("_")[0]
            rows.append((path.name.partition("_")[0], task, text))
            recording.append(path.name)
            spans.append((begin, end - begin))
    subject, task, text = (np.array(column, object) for column in zip(*rows, strict=True))
    onset, duration = np.array(spans).T
    clock = Clock.of({"recording": recording, "onset": onset, "duration": duration, "order": [-1] * len(rows)})
    length = 10 if stories else 1
    index = np.array([int(t.rpartition(" ")[2]) for t in text]) if stories else np.unique(text, return_inverse=True)[1]
    windows = {"starts": np.zeros(len(rows), int), "text_group": task} if stories else {}
    offsets = length * np.arange(len(rows) + 1)
    features = np.ones((1, 1), np.float32)
    return DataFile(folder, features, offsets, text, subject, task, index, "nothing", {}, clock=clock, **windows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    is_zuco = (folder / ZUCO["SR"][0]).exists()
    data, groups = zuco(folder) if is_zuco else (layout(folder), None)
    splits = (("unique_sent", 0), *SPLITS[:-1], ("blocks", 20)) if is_zuco else SPLITS
    unit, readings, runs = data.clock.unit, readings_of(data), data.clock.recordings()
    print(f"{len(data)} samples of {len(set(data.subject))} subjects in {len(runs)} recordings\n")
    near = [f"within {limit} {unit}" for limit in WITHIN[unit]]
    heads = ("split", "keeps", *near, "group told by time (chance)", "text told by place (chance)")
    print(f"| {' | '.join(heads)} |\n{'| --- ' * len(heads)}|")
    for method, gap in splits:
        name = f"`{method}`" + (f", gap {gap} {unit}" if gap else "")
        try:
            split = make_split(data, method, RATIO, 0, gap=gap)
        except UserError as error:
            print(f"| {name} | cannot be made: {str(error).partition(': ')[2]} | | | | |")
            continue
        found = time_leakage(readings, split.parts, groups_of_readings(readings))
        near = " | ".join(f"{share:.1%}" for share in found["neighbors"]["test"].values())
        told = []
        for group, by_part in found["groups"].items():
            test = by_part["test"]
            share = f"{test['told']:.1%} ({test['chance']:.1%})" if test["samples"] else "no neighbor"
            told.append(f"{group} {share}")
        test = split.parts["test"]
        for group, labels in (groups or {}).items():
            judged = test[labels[test] != ""]
            by_time = neighbor_accuracy(labels, judged, data.clock.nearest(judged, split.parts["train"])[0])
            told.append(f"{group} {by_time['told']:.1%} ({by_time['chance']:.1%})" if by_time["samples"] else group)
        place = max(found["places"]["test"].values(), key=lambda score: score["told"], default=None)
        by_place = f"{place['told']:.1%} ({place['chance']:.1%}), by {place['form']}" if place else "–"
        print(f"| {name} | {split.kept / len(data):.1%} | {near} | {', '.join(told) or '–'} | {by_place} |", flush=True)


if __name__ == "__main__":
    main()
