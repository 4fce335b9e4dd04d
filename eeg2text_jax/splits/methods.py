"""The splitting methods of `config.split.method`, and folds: splits whose test parts together hold every text once.

Methods (a) to (e) of the splitting paper leak (`papers/003`, section 3.2): (a) shares texts, (b) subjects, (c) texts
and subjects, (d) and (e) subjects and, for overlapping windows, texts. They show the effect of leaks on scores and
reproduce published numbers. (f) is in `bipartite.py`, `blocks` in `stretches.py`. `unique_sent` and `unique_subj` are
the splits of Wang & Ji's `data.py`, by fixed positions and fixed subjects.
"""

import os
import re
from collections.abc import Callable, Sequence

import numpy as np

from eeg2text_jax.data.clock import NO_TIME, known_clock, sessions_of
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.kinds import shares
from eeg2text_jax.splits.bipartite import at_least_one, f, f_prose
from eeg2text_jax.splits.split import PARTS, Split, part_sizes, text_units
from eeg2text_jax.splits.splitfile import read_split_file
from eeg2text_jax.splits.stretches import DEV, LEFT_OUT, TEST, TRAIN, block_folds, blocks


def deal(units: np.ndarray, ratio: tuple[float, float, float], rng: np.random.Generator) -> np.ndarray:
    """Return each sample's index into `PARTS`, int `[N]`; distinct `units [N]` are shuffled and cut at `ratio`."""
    distinct, unit = np.unique(units, return_inverse=True)
    part = np.empty(len(distinct), np.int64)
    part[rng.permutation(len(distinct))] = np.repeat(np.arange(len(PARTS)), at_least_one(len(distinct), ratio))
    return part[unit]


def by_subject(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split by method (a): all samples of a subject stay together; texts are in all parts."""
    return Split.of(data, "a", seed, deal(data.subject.astype(str), ratio, np.random.default_rng(seed)))


def by_session(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split by method `sessions`: all samples of a subject's session (a day) stay together; texts are in all parts.

    Recordings whose names state no session are sessions of their own. Raises UserError if recordings are not known.
    """
    return Split.of(data, "sessions", seed, deal(_sessions(data), ratio, np.random.default_rng(seed)))


def _sessions(data: DataFile) -> np.ndarray:
    known_clock(data, f"split 'sessions' needs the recordings of the samples; {NO_TIME}; take 'unique_text'.")
    return sessions_of(data.subject, data.clock.recording)


def pooled(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split by method (c): samples are shuffled; texts and subjects are in all parts."""
    return Split.of(data, "c", seed, deal(np.arange(len(data)), ratio, np.random.default_rng(seed)))


def by_sentence(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split by method (d): the sentence ids of each task are shuffled; subjects are in all parts.

    A text that two tasks share has two ids and may be in two parts; `unique_text` prevents that.
    """
    rng = np.random.default_rng(seed)
    part = np.empty(len(data), np.int64)
    for task in np.unique(data.task.astype(str)):
        inside = data.task == task
        part[inside] = deal(data.sentence_index[inside], ratio, rng)
    return Split.of(data, "d", seed, part)


def by_task(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split by method (b): all samples of a task stay together; subjects are in all parts.

    ZuCo has too few tasks for this method. Windows are divided by text group, because two tasks may tell one story.
    """
    units = data.text_group if data.is_windows else data.task
    return Split.of(data, "b", seed, deal(units.astype(str), ratio, np.random.default_rng(seed)))


def by_block(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split by method (e): in each task a run of consecutive sentences is dev, another test, for all subjects.

    Overlapping windows share text where the runs meet.
    """
    rng = np.random.default_rng(seed)
    part = np.zeros(len(data), np.int64)
    for task in np.unique(data.task.astype(str)):
        inside = np.flatnonzero(data.task == task)
        places, place = np.unique(data.sentence_index[inside], return_inverse=True)
        train, *others = part_sizes(len(places), ratio)
        cuts = np.sort(rng.integers(0, train + 1, 2))  # train sentences before each of the two runs, dev and test
        of_place = np.zeros(len(places), np.int64)
        begin = 0
        for cut, k in zip(np.diff(cuts, prepend=0), rng.permutation([1, 2]), strict=True):
            of_place[begin + cut : begin + cut + others[k - 1]] = k
            begin += cut + others[k - 1]
        part[inside] = of_place[place]
    return Split.of(data, "e", seed, part)


def unique_text(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split the distinct normalized texts of all tasks, or the text groups of windows: a text is in one part only."""
    return Split.of(data, "unique_text", seed, deal(text_units(data), ratio, np.random.default_rng(seed)))


# Wang & Ji's subjects for task SR of ZuCo 1.0, without ZDN.
UNIQUE_SUBJ = {
    "train": ("ZAB", "ZDM", "ZGW", "ZJM", "ZJN", "ZJS", "ZKB", "ZKH", "ZKW"),
    "dev": ("ZMG",),
    "test": ("ZPH",),
}
_SR = re.compile(r"(^|[^A-Z])SR([^A-Z]|$)")


def sentences_per_task(data: DataFile) -> dict[str, int]:
    """Return the number of sentences of every task, including sentences that the data file lacks for all subjects.

    It is the largest of the subjects' counts in the data file's provenance (`sentences`: task -> subject -> count) and
    the largest sentence index plus 1. Wang & Ji use the first subject's count, and their code fails if another
    subject has fewer sentences.
    """
    stated = data.provenance.get("sentences")
    by_subject = stated if isinstance(stated, dict) else {}
    counts = {}
    for task in np.unique(data.task.astype(str)).tolist():
        occurring = int(data.sentence_index[data.task == task].max()) + 1
        counts[task] = max([occurring, *by_subject.get(task, {}).values()])
    return counts


def unique_sent(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split each task by position: the first sentences train, the next are dev, the last test.

    This leaks texts between tasks: ZuCo's NR and TSR share 47 sentences.
    """
    part = np.empty(len(data), np.int64)
    for task, n in sentences_per_task(data).items():
        inside = data.task == task
        bounds = np.cumsum(part_sizes(n, ratio))[:-1]
        part[inside] = np.searchsorted(bounds, data.sentence_index[inside], side="right")
    return Split.of(data, "unique_sent", seed, part)


def unique_subj(data: DataFile, ratio: tuple[float, float, float], seed: int) -> Split:
    """Split task SR of ZuCo 1.0 by `UNIQUE_SUBJ`; other samples are dropped, `ratio` is ignored.

    Raises UserError if the data file has no SR task, or a part has none of its subjects.
    """
    tasks = np.unique(data.task.astype(str)).tolist()
    sr = [task for task in tasks if _SR.search(task)]
    if not sr:
        raise UserError(
            f"{data.path}: split 'unique_subj' is defined for task SR of ZuCo 1.0 only, "
            f"found {', '.join(tasks)}; use split.method=a or f."
        )
    inside = np.isin(data.task.astype(str), sr)
    part = np.full(len(data), LEFT_OUT)
    for k, name in enumerate(PARTS):
        rows = inside & np.isin(data.subject.astype(str), UNIQUE_SUBJ[name])
        if not rows.any():
            raise UserError(
                f"{data.path}: split 'unique_subj' needs SR samples of {' or '.join(UNIQUE_SUBJ[name])} in its {name} "
                "part, found none; use split.method=a or f for other subjects."
            )
        part[rows] = k
    return Split.of(data, "unique_subj", seed, part)


METHODS: dict[str, Callable[..., Split]] = {
    "unique_text": unique_text,
    "unique_sent": unique_sent,
    "unique_subj": unique_subj,
    "a": by_subject,
    "b": by_task,
    "c": pooled,
    "d": by_sentence,
    "e": by_block,
    "f": f,
    "f_prose": f_prose,
    "blocks": blocks,
    "sessions": by_session,
}
SUBJECTS = "subjects"  # value of `folds`: each fold tests one subject, which it leaves out of training
FROM_FILE = "file"  # method that takes the parts of a split file


def make_split(
    data: DataFile,
    method: str,
    ratio: Sequence[float],
    seed: int,
    path: str | os.PathLike[str] = "",
    gap: float = 0.0,
    unique_subjects: bool = False,
    unique_sessions: bool = False,
) -> Split:
    """Divide the samples of a data file into train, dev and test.

    Args:
      data: the samples.
      method: a name in `METHODS`, or "file" for the parts in the file at `path`.
      ratio: shares of train, dev and test in the units that the method divides, such as texts or subjects.
      seed: the only source of randomness.
      path: a certificate or another split file; only for method "file".
      gap: least seconds between samples of different parts; only for method "blocks".
      unique_subjects: whether parts have disjoint subjects; only for method "blocks".
      unique_sessions: the same for sessions.

    Raises:
      UserError: an unknown method, a bad ratio, an empty part, or a split file that does not fit the data.

    Examples:
      >>> from eeg2text_jax import make_split, read_datafile
      >>> split = make_split(read_datafile("own.h5"), "unique_text", (0.75, 0.125, 0.125), seed=0)
      >>> {name: len(rows) for name, rows in split.parts.items()}
      {'train': 48, 'dev': 8, 'test': 8}
    """
    if method == FROM_FILE:
        if not path:
            raise UserError("split.method=file needs split.path, a certificate or split file in JSON.")
        return read_split_file(path).resolve(data)
    if method not in METHODS:
        hint = did_you_mean(method, [*METHODS, FROM_FILE])
        raise UserError(f"split.method: there is no splitting method {method!r}; {hint}")
    own = {"gap": gap, "unique_subjects": unique_subjects, "unique_sessions": unique_sessions}
    options = own if method == "blocks" else {}
    return METHODS[method](data, check_ratio(tuple(ratio)), seed, **options)


def make_folds(
    data: DataFile, method: str, folds: int | str, ratio: Sequence[float], seed: int, gap: float = 0.0
) -> list[Split]:
    """Return a split of a data file for each fold.

    One split of few subjects or sentences tests few of them. Over all folds every text is tested by a model that was
    not trained on it, so an audit of all test parts has as many sentences as the data.

    Args:
      data: the samples.
      method: what the test part of fold k is. "unique_text": group k of the texts. "f": group k of the texts, read by
        group k of the subjects; none of these texts and subjects is in train or dev. "a": group k of the subjects;
        texts are shared, which leaks. "sessions": the same of the sessions. "blocks": stretch k of each recording, with
        texts of its own.
      folds: the number of folds, 2 or more; or "subjects", a fold for each subject.
      ratio: shares of train, dev and test; only the ratio of train to dev counts.
      seed: the only source of randomness.
      gap: least seconds between samples of different parts; only for "blocks".

    Raises:
      UserError: another method, fewer units than folds, or an empty part.
    """
    rng = np.random.default_rng(seed)
    _, subject = np.unique(data.subject.astype(str), return_inverse=True)
    _, text = np.unique(text_units(data), return_inverse=True)
    n_subjects, n_texts = subject.max() + 1, text.max() + 1
    if method not in ("unique_text", "f", "a", "blocks", "sessions"):
        raise UserError(f"--folds: split.method is {method!r}; expected unique_text, f, a, sessions or blocks.")
    if folds == SUBJECTS and method not in ("f", "a"):
        what = "sessions" if method == "sessions" else "texts"
        raise UserError(f"--folds=subjects: split.method is {method!r}, which divides {what}; take f, or a number.")
    if method == "sessions":  # in what follows, sessions are in the place of subjects
        subject = np.unique(_sessions(data), return_inverse=True)[1]
        n_subjects = subject.max() + 1
    count = n_subjects if folds == SUBJECTS else int(folds)
    by_reader = method in ("a", "sessions")
    least = min(n_subjects, n_texts) if method == "f" else n_subjects if by_reader else n_texts
    if not 2 <= count <= least:
        readers = "sessions" if method == "sessions" else "subjects"
        what = readers if by_reader or (method == "f" and n_subjects <= n_texts) else "texts"
        raise UserError(f"--folds is {count}; expected from 2 to {least}, because there are {least} {what}.")
    train, dev, _ = check_ratio(tuple(ratio))
    share = dev / (train + dev)
    if method == "blocks":
        return block_folds(data, count, share, seed, gap)
    texts, subjects = (np.array_split(rng.permutation(n), min(n, count)) for n in (n_texts, n_subjects))
    splits = []
    for k in range(count):
        divided = [fold_parts(texts, k, share, rng)[text]] if not by_reader else []
        divided += [fold_parts(subjects, k, share, rng)[subject]] if method != "unique_text" else []
        part = np.where(divided[0] == divided[-1], divided[0], LEFT_OUT)
        splits.append(Split.of(data, f"{method}, fold {k + 1} of {count}", seed, part))
    return splits


def fold_parts(groups: list[np.ndarray], k: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return the part of each unit in fold k, int `[U]`: group k is test, `share` of the others is dev, the rest train.

    `groups` has the test units of each fold; units are numbered from 0 to U - 1.
    """
    others = rng.permutation(np.concatenate([group for i, group in enumerate(groups) if i != k]))
    n_dev = min(max(round(len(others) * share), 1), len(others) - 1)
    if n_dev < 1:
        raise UserError("--folds: train, dev and test need at least one subject or text each; there are too few.")
    part = np.full(len(others) + len(groups[k]), TRAIN)
    part[others[:n_dev]], part[groups[k]] = DEV, TEST
    return part


def check_ratio(ratio: tuple[float, ...]) -> tuple[float, float, float]:
    """Return the shares of train, dev and test. Raises UserError unless they are positive and add up to 1."""
    if not shares().holds(ratio):
        raise UserError(
            f"split.ratio: expected three positive shares (train, dev, test) that add up to 1, got {tuple(ratio)}; "
            "write for example 0.8,0.1,0.1."
        )
    train, dev, test = map(float, ratio)
    return train, dev, test
