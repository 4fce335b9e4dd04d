"""COFETT: Chinese sentences that two readers read and spoke inwardly again on several days (OpenNeuro ds006317).

`eeg2text run --config=configs/cofett.py:phase=reading,task=para1 --workdir=DIR` goes from the recordings
(`data.source`) and the published tables of texts (`data.raw.texts`) to a verdict. The sentences come in the same order
in all recordings (docs/time.md), so the controls of time are on. `held=day` (the default) tests whole sessions;
`held=sentences` tests texts that are in no training recording.
"""

from ml_collections import ConfigDict

from configs import own
from configs.arguments import parse

EVENTS = {"reading": ("65329", "65379"), "inner": ("65379", "65381")}  # codes that begin and end a phase

NAMES = r"sub-(?P<subject>\d+)_ses-(?P<session>\d+)_task-(?P<task>[^_]+)_run-(?P<run>\d+)"


def get_config(argument: str = "") -> ConfigDict:
    given = parse(argument, "cofett", phase=tuple(EVENTS), task=("para1", "para2"), held=("day", "sentences"))
    c = own.get_config()
    c.data.source = f"ds006317/sub-*/ses-*/eeg/*task-{given.task}*.edf"
    c.data.raw.names = NAMES
    c.data.raw.begin, c.data.raw.end = EVENTS[given.phase]
    c.data.raw.texts = "textdataset/text1-{run}.xlsx" if given.task == "para1" else "textdataset/text2.xlsx"
    c.data.raw.seconds_per_character = 0.4
    c.data.raw.exclude = ("10", "111", "VEO", "HEO", "Trigger")  # without positions, and not EEG; 122 are left
    c.data.raw.resample = 250.0
    c.split.method = "sessions" if given.held == "day" else "unique_text"
    c.split.ratio = (0.6, 0.2, 0.2)
    c.grid.train_conditions = ("eeg", "clock")
    c.grid.eval_conditions = ("eeg", "shuffled", "clock", "nearest_in_time", "same_place", "neighbor")
    return c
