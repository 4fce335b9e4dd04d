"""Summarize a data file and list all of its faults."""

import collections
import dataclasses
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from eeg2text_jax.base.errors import UserError, count_of, first_line, shortlist
from eeg2text_jax.data.clock import NO_TIME
from eeg2text_jax.data.datafile import DataFile, Frames, read_datafile, read_outline
from eeg2text_jax.data.raw.find import is_raw
from eeg2text_jax.data.source import first_texts, mark_notes

ROUNDING = 1e-6  # of the largest magnitude; smaller deviations are float32 rounding
COMMON = {"the", "a", "an", "and", "of", "to", "in", "is", "was", "he", "she", "der", "die", "das", "la", "le"}
FEWEST_TEXTS = 10  # fewer may share a word by chance
WRONG_SUM = "the checksum of its frames is not the one that the file states: the file is damaged or was edited."
MOST_RATIO, MOST_POWER_RATIO = 100.0, 1000.0  # of subjects' mean magnitudes; larger ones suggest different units


@dataclasses.dataclass
class Findings:
    """The result of checking a data file; the last three are of EEG alone."""

    path: Path
    problems: list[str] = dataclasses.field(default_factory=list)  # faults that make the file unusable
    notes: list[str] = dataclasses.field(default_factory=list)  # warnings
    table: list[str] = dataclasses.field(default_factory=list)  # lines of the summary
    mean: np.ndarray | None = None  # [F], means
    spread: np.ndarray | None = None  # [F], standard deviations
    features_are: str = ""

    def text(self) -> str:
        """Return the summary, notes and problems, one a line."""
        lines = [*self.table, *(f"note: {note}" for note in self.notes), *(f"PROBLEM: {it}" for it in self.problems)]
        wrong, noted = len(self.problems), len(self.notes)
        end = f"{wrong or 'no'} problem{'s' * (wrong > 1)}, {noted} note{'s' * (noted != 1)}"
        return "\n".join([*lines, f"{self.path}: {end}"])


def check_datafile(path: Path) -> Findings:
    """Check a data file block by block. Raises UserError if it is missing or no data file."""
    if path.exists() and (path.is_dir() or is_raw(str(path))):
        raise UserError(
            f"{path}: is no data file but a {'folder' if path.is_dir() else 'recording'}; prepare it first: "
            f"eeg2text prepare {path} --out=own.h5"
        )
    findings = Findings(path)
    try:
        outline = read_outline(path)
    except UserError as error:
        if not path.exists() or "expected an eeg2text data file" in str(error):
            raise
        findings.problems.append(str(error).removeprefix(f"{path}: "))
        return findings
    if outline.is_windows:
        _look_at_texts(outline, findings)
        _look_at_frames(outline, findings)
        return findings
    n = len(outline)
    with h5py.File(path, "r") as file:
        total = len(file["features"])
    lengths = {len(outline.offsets) - 1, len(outline.subject), len(outline.task), len(outline.sentence_index)}
    if not n or lengths != {n} or outline.offsets[0] != 0 or outline.offsets[-1] != total or min(outline.n_words) < 1:
        findings.problems.append(
            f"{n} sentences, {total} words and columns of the lengths {sorted(lengths)} do not fit together; expected "
            "offsets from 0 to the number of words, each larger than the offset before it."
        )
        return findings
    _look_at_texts(outline, findings)
    try:
        _look_at_features(outline, total, findings)
        _look_at_repetitions(outline, findings)
        if not findings.problems:
            read_datafile(path)
    except UserError as error:  # a wrong checksum of the features
        findings.problems.append(str(error).removeprefix(f"{path}: "))
    except (OSError, RuntimeError) as error:
        findings.problems.append(f"its features cannot be read to the end ({first_line(error)}).")
    return findings


def _look_at_texts(outline: DataFile, findings: Findings) -> None:
    note, clock, words = findings.notes.append, outline.clock, outline.n_words
    texts = [" ".join(text.split()).casefold() for text in outline.sentence]
    if empty := [i for i, text in enumerate(texts) if not text]:
        many = count_of(len(empty), "sample has", "samples have")
        findings.problems.append(f"{many} an empty sentence, the first is number {empty[0]}.")
    texts_of: dict[str, set[str]] = collections.defaultdict(set)  # sentence id (`task:index`) -> its texts
    numbers_of: dict[str, set[str]] = collections.defaultdict(set)  # text -> its sentence ids
    for number, text in zip(outline.sentence_id, texts, strict=True):
        texts_of[number].add(text)
        numbers_of[text].add(number)
    if several := [number for number, variants in texts_of.items() if len(variants) > 1]:
        stand = "sentence numbers stand for several texts each"
        note(
            f"{len(several)} {stand} (the first is {several[0]}): splits by number are wrong, those by text are right."
        )
    if n := sum(len(ids) > 1 for ids in numbers_of.values()):
        many = count_of(n, "text has", "texts have")
        note(f"{many} several sentence numbers, for example in several tasks; splits by number leak such a text.")
    shared = set.intersection(*(set(re.findall(r"\w+", text)) for text in numbers_of)) - COMMON if numbers_of else set()
    if shared and len(numbers_of) >= FEWEST_TEXTS:
        named = ", ".join(map(repr, sorted(shared)[:5]))
        note(
            f"all {len(numbers_of)} different texts have the word {named}; a model that only repeats it scores above "
            "zero. If it is a label of the recording software and no word of the sentences, remove it from the texts."
        )
    findings.notes += mark_notes(outline.sentence)
    time = NO_TIME if clock is None else f"known of {clock.timed.sum()} samples; {clock.said_ranges()}"
    findings.notes += [] if clock is None else clock.notes()
    findings.table += [
        f"{len(outline)} samples of {len(set(outline.subject))} subjects, {len(set(outline.task))} tasks, "
        f"{len(numbers_of)} different texts; {words.sum()} {unit_of(outline)}, {words.min()} to "
        f"{words.max()} a sample, median {np.median(words):g}",
        first_texts(outline.sentence),
        f"time: {time}",
    ]
    if unused := outline.provenance.get("not_used"):
        note(f"columns of the source that were not used: {', '.join(map(str, unused))}.")
    notes = map(str, outline.provenance.get("notes", ()))
    findings.notes += [f"from `eeg2text prepare`: {said}" for said in notes if "columns not used" not in said]


def unit_of(outline: DataFile) -> str:
    """Return what positions are: "frames", "moments", "windows" or "words"."""
    of_words = "windows" if "windows of" in outline.features_are else "words"
    return "frames" if outline.is_windows else "moments" if outline.is_waves else of_words


def _look_at_features(outline: DataFile, total: int, findings: Findings) -> None:
    """Find constant features and NaN or infinity, and list each subject's magnitudes."""
    word_of = np.repeat(np.arange(len(outline)), outline.n_words)
    names, subject = np.unique(outline.subject.astype(str), return_inverse=True)
    width = outline.n_features
    sums, squares, low, high = np.zeros(width), np.zeros(width), np.full(width, np.inf), np.full(width, -np.inf)
    shift = None  # first finite word `[F]`; sums of differences from it are precise
    by_subject = np.zeros((len(names), 3))  # sum of words' mean magnitudes, number of words, sum of words' means
    bad: list[int] = []
    digest = hashlib.sha256()
    for start, block in _blocks(outline.path, total, 1 << 16):
        digest.update(block.data)
        samples = word_of[start : start + len(block)]
        finite = np.isfinite(block).all(axis=1)
        bad += np.unique(samples[~finite]).tolist()
        block, samples = block[finite].astype(np.float64), samples[finite]
        if not len(block):
            continue
        shift = block[0] if shift is None else shift
        sums, squares = sums + (block - shift).sum(0), squares + ((block - shift) ** 2).sum(0)
        low, high = np.minimum(low, block.min(0)), np.maximum(high, block.max(0))
        sizes = np.stack([np.abs(block).mean(1), np.ones(len(block)), block.mean(1)], 1)
        np.add.at(by_subject, subject[samples], sizes)
    if isinstance(outline.features, Frames) and digest.hexdigest() != outline.features.digest:
        findings.problems.append(WRONG_SUM)
    if bad:
        many = count_of(len(set(bad)), "sample has", "samples have")
        findings.problems.append(f"{many} NaN or infinity, the first is number {bad[0]}.")
    if shift is None:
        return
    n = by_subject[:, 1].sum()
    findings.mean = sums / n + shift
    findings.spread = np.sqrt(np.maximum(squares / n - (sums / n) ** 2, 0))
    constant = np.flatnonzero(high - low <= ROUNDING * np.maximum(abs(low), abs(high)))
    if len(constant):
        shown = shortlist(constant, 10)
        findings.notes.append(f"{len(constant)} of {width} features do not vary (numbers {shown}): they are fed as 0.")
    findings.features_are, unit = outline.features_are, unit_of(outline)
    scale, level = (by_subject[:, [0, 2]] / np.maximum(by_subject[:, 1:2], 1)).T
    findings.table.append(f"{width} features a {unit.removesuffix('s')}: {outline.features_are}")
    findings.table.append(f"{'subject':<12} {'samples':>8} {unit:>8} {'mean size':>10}")
    for k, name in enumerate(names):
        rows = subject == k
        findings.table.append(f"{name:<12} {rows.sum():>8} {outline.n_words[rows].sum():>8} {scale[k]:>10.3g}")
    most = MOST_RATIO
    if outline.features_are.startswith("log10"):
        scale, most = 10.0 ** (level - level.min()), MOST_POWER_RATIO
    if min(scale) > 0 and (times := max(scale) / min(scale)) > most:
        large, small = names[np.argmax(scale)], names[np.argmin(scale)]
        said = f"the features of {large} are {times:.2g} times as large as those of {small}"
        findings.notes.append(f"{said}: are the units the same?")


def _blocks(path: Path, total: int, size: int) -> Iterator[tuple[int, np.ndarray]]:
    with h5py.File(path, "r") as file:
        for start in range(0, total, size):
            yield start, file["features"][start : start + size]


def _look_at_repetitions(outline: DataFile, findings: Findings) -> None:
    readings = collections.Counter(zip(outline.subject, outline.sentence_id, strict=True))
    if again := sum(readings.values()) - len(readings):
        many = count_of(again, "sample is a repeated reading", "samples are repeated readings")
        findings.notes.append(f"{many}: the same subject read the same sentence before.")
    seen: dict[bytes, int] = {}
    same = []
    with h5py.File(outline.path, "r") as file:
        for i in range(len(outline)):
            words = file["features"][outline.offsets[i] : outline.offsets[i + 1]]
            first = seen.setdefault(hashlib.sha256(words.tobytes()).digest(), i)
            same += [(first, i)] if first != i else []
    if same:
        first, second = (f"number {i}, {outline.subject[i]}, {outline.sentence_id[i]}" for i in same[0])
        many = count_of(len(same), "sample has", "samples have")
        pair = f"(the first pair: {first}, and {second}): is it one recording under two names?"
        findings.notes.append(f"{many} exactly the features of an earlier sample {pair}")


def _look_at_frames(data: DataFile, findings: Findings) -> None:
    """Summarize frames and windows; find damaged frames, and frames in no window."""
    stop = data.starts + data.n_words
    if data.starts.min() < 0 or stop.max() > len(data.features):
        findings.problems.append(
            f"windows begin at frame {data.starts.min()} and go to frame {stop.max()}; expected frames 0 to "
            f"{len(data.features)}; make the file again with `eeg2text prepare`."
        )
        return
    used = np.zeros(len(data.features), bool)
    for start, end in zip(data.starts, stop, strict=True):
        used[start:end] = True
    grid = " x ".join(map(str, data.feature_shape))
    findings.table.append(
        f"{len(used)} frames of {grid} voxels, windows of {data.n_words.min()} to {data.n_words.max()}, "
        f"{len(set(data.text_group))} text groups: {data.features_are}"
    )
    if not used.all():
        findings.notes.append(f"{(~used).sum()} frames are in no window.")
    try:
        size = _frame_magnitudes(data, findings)
    except (OSError, RuntimeError) as error:
        findings.problems.append(f"its frames cannot be read to the end ({first_line(error)}).")
        return
    for name in np.unique(data.subject.astype(str)):
        sizes = size[data.starts[data.subject == name]]
        findings.table.append(f"{name:<12} {len(sizes):>8} windows, mean size of a voxel {sizes.mean():.3g}")


def _frame_magnitudes(data: DataFile, findings: Findings) -> np.ndarray:
    """Return each frame's mean magnitude; find damaged frames and constant voxels."""
    magnitudes, digest, constant, bad = np.zeros(len(data.features)), hashlib.sha256(), True, 0
    first = None
    for start, block in _blocks(data.path, len(magnitudes), 64):
        digest.update(np.ascontiguousarray(block).data)
        block = block.astype(np.float32)
        first = block[0] if first is None else first
        constant = constant & (block == first).all(axis=0)
        bad += int((~np.isfinite(block)).any(axis=(1, 2, 3)).sum())
        magnitudes[start : start + len(block)] = np.abs(block).mean(axis=(1, 2, 3))
    if bad:
        findings.problems.append(f"{bad} frames have NaN or infinity.")
    if isinstance(data.features, Frames) and digest.hexdigest() != data.features.digest:
        findings.problems.append(WRONG_SUM)
    if np.any(constant):
        findings.notes.append(f"{np.sum(constant)} of {data.n_features} voxels do not vary, as usual outside a mask.")
    return magnitudes


def names_of(features_are: str) -> tuple[list[str], list[str]]:
    """Return the bands (`4-8`, Hz) and channel names in a description of features, if any."""
    match = re.search(r"(?:bands in Hz: (.*?); |; )channels: (.*)", features_are)
    return ((match[1] or "").split(), match[2].split()) if match else ([], [])


def scale_figure(findings: Findings) -> Any:
    """Return a figure of the features' standard deviations, band by channel, on a logarithmic scale."""
    from matplotlib.figure import Figure  # slow to import

    width, stated = len(findings.spread), re.search(r"x (\d+) channels", findings.features_are)
    rows = width // int(stated[1]) if stated and width % int(stated[1]) == 0 else 1  # features are band-major
    spread = np.where(findings.spread > 0, findings.spread, np.nan).reshape(rows, -1)
    bands, channels = names_of(findings.features_are)
    figure = Figure(figsize=(8, 1.6 + 0.35 * rows), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(np.log10(spread), aspect="auto", interpolation="nearest", cmap="viridis")
    labels = ("channel", "band") if rows > 1 else ("feature", "")
    axes.set(xlabel=labels[0], ylabel=labels[1], title=f"{findings.path.name}: standard deviation over all positions")
    if len(bands) == spread.shape[0]:
        axes.set_yticks(range(len(bands)), [f"{band} Hz" for band in bands])
    if len(channels) == spread.shape[1]:
        every = -(-len(channels) // 64)  # more names would overlap
        axes.set_xticks(range(0, len(channels), every), channels[::every], rotation=90, fontsize=7)
    figure.colorbar(image, label="log10; white: does not vary")
    return figure
