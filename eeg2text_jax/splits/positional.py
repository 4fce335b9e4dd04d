"""The authors' own splits, by position in the recordings' lists, as Wang & Ji's `data.py` makes them."""

import re

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError
from eeg2text_jax.splits.split import PARTS, Split, part_sizes

# `unique_subj` of the authors: fixed lists for the SR task of ZuCo 1.0; ZDN is left out.
UNIQUE_SUBJ = {
    "train": ("ZAB", "ZDM", "ZGW", "ZJM", "ZJN", "ZJS", "ZKB", "ZKH", "ZKW"),
    "dev": ("ZMG",),
    "test": ("ZPH",),
}
_SR = re.compile(r"(^|[^A-Z])SR([^A-Z]|$)")


def sentences_per_task(data: DataFile) -> dict[str, int]:
    """Sentences of every task, those that all subjects lost included.

    The longest list of a subject as the provenance of recordings states it (`sentences`: task -> subject -> entries;
    the authors take the first subject's and fail on shorter ones), else the last index that occurs, plus 1.
    """
    stated = data.provenance.get("sentences")
    by_subject = stated if isinstance(stated, dict) else {}
    counts = {}
    for task in np.unique(data.task.astype(str)).tolist():
        occurring = int(data.sentence_index[data.task == task].max()) + 1
        counts[task] = max([occurring, *by_subject.get(task, {}).values()])
    return counts


def unique_sent(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """In each task the first sentences train, the next tune, the last test; nothing is shuffled.

    Despite its name it is unique by position only: ZuCo's NR and TSR share 47 sentences, so that test texts of one
    task are in the train part of another.
    """
    part = np.empty(len(data), np.int64)
    for task, n in sentences_per_task(data).items():
        inside = data.task == task
        bounds = np.cumsum(part_sizes(n, ratio))[:-1]
        part[inside] = np.searchsorted(bounds, data.sentence_index[inside], side="right")
    return Split.of(data, "unique_sent", seed, {name: np.flatnonzero(part == k) for k, name in enumerate(PARTS)})


def unique_subj(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """SR of ZuCo 1.0 with fixed subjects in each part; other tasks and ZDN are left out. Ignores `ratio`.

    Raises:
      UserError: the data file has no SR task, or a part has none of its subjects.
    """
    tasks = np.unique(data.task.astype(str)).tolist()
    sr = [task for task in tasks if _SR.search(task)]
    if not sr:
        raise UserError(
            f"{data.path}: split 'unique_subj' is defined for task SR of ZuCo 1.0 only, "
            f"found {', '.join(tasks)}; use split.method=a or f."
        )
    inside = np.isin(data.task.astype(str), sr)
    parts = {name: np.flatnonzero(inside & np.isin(data.subject.astype(str), who)) for name, who in UNIQUE_SUBJ.items()}
    for name, rows in parts.items():
        if not len(rows):
            raise UserError(
                f"{data.path}: split 'unique_subj' needs SR samples of {' or '.join(UNIQUE_SUBJ[name])} in its {name} "
                "part, found none; use split.method=a or f for other subjects."
            )
    return Split.of(data, "unique_subj", seed, parts)
