"""When each sample was recorded, and which milliseconds of a story's audio an fMRI window covers.

The provenance of a file of volumes has under `story_time`, for each story of a scan: its first frame in the file, that
frame's time in the audio without lag (seconds), and the repetition time (TR), which may differ between scans.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eeg2text_jax.base.errors import UserError, count_of, shortlist

CLOCK_COLUMNS: dict[str, type] = {"recording": str, "onset": float, "duration": float, "order": int}
NO_TIME = "when samples were recorded is not known (no recording with onset or order): time cannot be excluded"
STORY_TIME = "story_time"
MOST_SECONDS = 1e10  # above Unix time in seconds, until the year 2286, and below it in milliseconds
USUAL_STEPS = (0.1, 300.0)  # seconds between samples; a median outside is noted, as another unit is likely
FEWEST_STEPS = 5  # of a recording, for this note
LONG_BREAK = 3600.0  # seconds; longer breaks within a recording are noted
BREAK = 100  # median steps of a recording; `Clock.since_first` shortens longer breaks to this
MOST_WHOLE = 2**63 - 1  # largest int64
FEWEST_COMMON, MOST_PAIRS = 5, 300  # common texts of compared recordings; pairs of recordings
ALIKE = 0.5  # from this order likeness on, recordings have the same order
PLACE_FORMS = ("index", "seconds", "share")
_RUN, _SESSION = re.compile(r"run-[^_/.]+"), re.compile(r"ses-[^_/.]+")
UNIT = 1000  # units of `times_of` in a second, or in a TR of a file without `story_time`


@dataclasses.dataclass(frozen=True)
class Clock:
    """When N samples were recorded."""

    recording: np.ndarray  # object [N], name of a run of a subject; "" if unknown
    onset: np.ndarray  # float64 [N], seconds on the recorder's clock; NaN if unknown
    duration: np.ndarray  # float64 [N], seconds; NaN if unknown
    order: np.ndarray  # int64 [N], place in the recording; -1 if unknown

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]]) -> "Clock":
        """Make a Clock of N values by column; onsets give the order of a recording without `order`.

        Raises UserError if the onset and order of a recording contradict each other.
        """
        onset, duration = (np.array(columns[name], np.float64) for name in ("onset", "duration"))
        recording, order = np.array(list(columns["recording"]), object), np.array(columns["order"], np.int64)
        clock = cls(recording, onset, duration, order)
        for name, rows in clock.recordings().items():
            if (order[rows] < 0).all() and np.isfinite(onset[rows]).all():
                order[rows[np.argsort(onset[rows], kind="stable")]] = np.arange(len(rows))
            rows = rows[np.isfinite(onset[rows]) & (order[rows] >= 0)]
            rows = rows[np.lexsort((onset[rows], order[rows]))]
            if (back := np.flatnonzero(np.diff(onset[rows]) < 0)).size:
                first, then = rows[back[0]], rows[back[0] + 1]
                raise UserError(
                    f"recording {name!r}: onset and order contradict each other (order {order[first]} begins at "
                    f"{onset[first]:g} s, order {order[then]} at {onset[then]:g} s); give each run the name of a "
                    "recording of its own, or leave one of the two columns out."
                )
        return clock

    def columns(self) -> dict[str, np.ndarray]:
        """Return the arrays by name; empty if no sample has a known time."""
        return {name: getattr(self, name) for name in CLOCK_COLUMNS if self.timed.any()}

    def __len__(self) -> int:
        return len(self.recording)

    @functools.cached_property
    def timed(self) -> np.ndarray:
        """Whether recording, and onset or order, are known, bool `[N]`."""
        return (self.recording != "") & (np.isfinite(self.onset) | (self.order >= 0))

    @property
    def in_seconds(self) -> bool:
        """Whether all samples of known time have an onset; else their order stands for it."""
        return bool(np.isfinite(self.onset[self.timed]).all())

    @property
    def unit(self) -> str:
        """Unit of `spans`: "s", or "samples" without onsets."""
        return "s" if self.in_seconds else "samples"

    @functools.cached_property
    def spans(self) -> np.ndarray:
        """Start and end of each sample in `unit`, float64 `[N, 2]`; equal if the duration is unknown.

        Time counts from the first sample of each recording: a recorder may count from midnight or from 1970.
        """
        begin = np.where(self.timed, self.onset if self.in_seconds else self.order, np.nan)
        for rows in self.in_time.values():
            begin[rows] -= begin[rows[0]]
        return np.stack([begin, begin + (np.nan_to_num(self.duration) if self.in_seconds else 0)], axis=1)

    @functools.cached_property
    def since_first(self) -> np.ndarray:
        """Time since the recording's first sample, float64 `[N]`; NaN if unknown.

        A break counts as at most `BREAK` median steps: one wrong onset, or a night between sessions, would else be
        nearly all of the time.
        """
        elapsed = self.spans[:, 0].copy()
        for rows in self.in_time.values():
            steps = np.diff(elapsed[rows])
            if (steps > 0).any():
                usual = np.quantile(steps[steps > 0], 0.5, method="lower")
                elapsed[rows[1:]] -= np.cumsum(np.maximum(steps - BREAK * usual, 0))
        return elapsed

    @functools.cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """First and last onset (or order) of each recording, as its source has them."""
        begin = self.onset if self.in_seconds else self.order
        return {name: (float(begin[rows[0]]), float(begin[rows[-1]])) for name, rows in self.in_time.items()}

    def said_ranges(self) -> str:
        """Describe the number of recordings, and `ranges` of the first three."""
        shown = [f"{name} {first:.10g} to {last:.10g}" for name, (first, last) in self.ranges.items()]
        many = count_of(len(shown), "recording")
        return f"{many}, from first to last sample in {self.unit}: {shortlist(shown, 3)}"

    def notes(self, *, repeated: bool = False) -> list[str]:
        """Return notes on onsets that are hardly seconds, or have long breaks between them.

        `repeated`: a sample may have several rows, so equal onsets count once.
        """
        units, breaks = [], []
        for name, rows in self.in_time.items() if self.in_seconds else ():
            begin = np.unique(self.onset[rows]) if repeated else self.onset[rows]
            if len(steps := np.diff(begin)) == 0:
                continue
            usual, at = float(np.quantile(steps, 0.5, method="lower")), int(np.argmax(steps))
            if len(steps) >= FEWEST_STEPS and not USUAL_STEPS[0] <= usual <= USUAL_STEPS[1]:
                units.append(f"{name} (a median of {usual:.3g} s)")
            elif steps[at] > LONG_BREAK:
                between = f"from {begin[at]:.10g} to {begin[at + 1]:.10g} s"
                breaks.append(f"{name} ({between}, {steps[at] / 3600:,.1f} hours)")
        notes = {
            f"onsets of {count_of(len(units), 'recording')} follow each other too fast or too slowly for seconds: "
            f"{shortlist(units, 3)}; are they milliseconds, days or rounded? Expected seconds.": units,
            f"{count_of(len(breaks), 'recording has', 'recordings have')} a long break between two onsets: "
            f"{shortlist(breaks, 3)}; correct a wrong onset, or give two recordings two names.": breaks,
        }
        return [note for note, odd in notes.items() if odd]

    def recordings(self) -> dict[str, np.ndarray]:
        """Return the row numbers of each named recording."""
        names, label = np.unique(self.recording.astype(str), return_inverse=True)
        rows = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])
        # Not strict: without samples, `rows` is one empty group.
        return {str(name): group for name, group in zip(names, rows, strict=False) if name}

    @functools.cached_property
    def in_time(self) -> dict[str, np.ndarray]:
        """Row numbers of the samples of known time of each recording, in order of time."""
        begin = self.onset if self.in_seconds else self.order
        timed = {name: rows[self.timed[rows]] for name, rows in self.recordings().items()}
        return {name: rows[np.argsort(begin[rows], kind="stable")] for name, rows in timed.items() if len(rows)}

    @functools.cached_property
    def places(self) -> dict[str, np.ndarray]:
        """Place of each sample in its recording by form (`PLACE_FORMS`), float64 `[N]`; NaN if its time is unknown.

        `index` counts samples, `seconds` is the time since the first onset (if known), `share` is the index over the
        last one.
        """
        index, last = np.full(len(self), np.nan), np.ones(len(self))
        for rows in self.in_time.values():
            order = self.order[rows]
            index[rows] = order - order.min() if (order >= 0).all() else np.arange(len(rows))
            last[rows] = max(index[rows].max(), 1)
        seconds = {"seconds": self.spans[:, 0]} if self.in_seconds else {}
        return {"index": index, **seconds, "share": index / last}

    def at_same_place(
        self, rows: np.ndarray, among: np.ndarray, form: str, within: Any = None, apart: Any = None
    ) -> np.ndarray:
        """Return the sample of another recording at the nearest place for each of `rows` `[R]`, int64 `[R]`.

        `form`, a key of `places`, says how places are compared. Candidates are the row numbers `among` with the
        sample's label in `within` `[N]` (None: any), and another label in `apart` `[N]` (None: another recording). The
        result is -1 for a sample of unknown time, or without a candidate.
        """
        place, counterparts = self.places[form], np.full(len(rows), -1)
        label = np.zeros(len(self), int) if within is None else np.unique(within.astype(str), return_inverse=True)[1]
        among = among[self.timed[among]]
        among = among[np.argsort(place[among], kind="stable")]
        names = np.unique((self.recording if apart is None else apart).astype(str), return_inverse=True)[1]
        judged = np.flatnonzero(self.timed[rows])
        for name, group in {(names[rows[k]], label[rows[k]]): None for k in judged.tolist()}:
            here = judged[(names[rows[judged]] == name) & (label[rows[judged]] == group)]
            others = among[(names[among] != name) & (label[among] == group)]
            if len(others):
                counterparts[here] = others[_nearest_value(place[others], place[rows[here]])]
        return counterparts

    def nearest(self, rows: np.ndarray, among: np.ndarray, barred: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the other sample of the same recording that is nearest in time, for each of `rows` `[R]`.

        The distance is from the end of the earlier sample to the start of the later one; among overlapping samples the
        nearest onset wins. Candidates are the row numbers `among`, without those for which `barred(i, candidates) ->
        bool [C]` is true for sample `i`. Returns neighbors int64 `[R]` (-1: none) and distances in `unit`, float64
        `[R]` (infinite: none).
        """
        neighbors, distance = np.full(len(rows), -1), np.full(len(rows), np.inf)
        inside = np.zeros(len(self), bool)
        inside[among] = self.timed[among]
        candidates = {name: members[inside[members]] for name, members in self.recordings().items()}
        for k, i in enumerate(rows.tolist()):
            near = candidates.get(self.recording[i], among[:0]) if self.timed[i] else among[:0]
            near = near[near != i]
            if barred is not None and len(near):
                near = near[~barred(i, near)]
            if len(near):
                apart, onsets = gaps(self.spans[i], self.spans[near]), abs(self.spans[near, 0] - self.spans[i, 0])
                best = np.lexsort((onsets, apart))[0]
                neighbors[k], distance[k] = near[best], apart[best]
        return neighbors, distance


def _nearest_value(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the index of the nearest of sorted `values` for each of `wanted` `[R]`; the first of equals."""
    after = np.searchsorted(values, wanted)
    before = np.searchsorted(values, values[np.maximum(after - 1, 0)])
    after = np.minimum(after, len(values) - 1)
    return np.where(np.abs(values[before] - wanted) <= np.abs(values[after] - wanted), before, after)


def runs_of(task: np.ndarray, recording: np.ndarray) -> np.ndarray:
    """Return the task and the run (`run-X` in the recording's name, if any) of each sample, `[N]`."""
    return np.array([f"{t} {m[0]}" if (m := _RUN.search(r)) else t for t, r in zip(task, recording, strict=True)])


def sessions_of(subject: np.ndarray, recording: np.ndarray) -> np.ndarray:
    """Return subject and session (`ses-X` in the recording's name; else the recording) of each sample, `[N]`."""
    pairs = zip(subject, recording, strict=True)
    return np.array([f"{s} {m[0]}" if (m := _SESSION.search(r)) else r for s, r in pairs])


def order_likeness(clock: Clock, text: np.ndarray) -> float:
    """Return the mean rank correlation of the texts' places over pairs of recordings; 0 without a pair.

    Pairs share at least `FEWEST_COMMON` texts; at most `MOST_PAIRS` are compared.
    """
    first = []
    for rows in clock.in_time.values():
        first.append({name: place for place, name in reversed(list(enumerate(text[rows].tolist())))})
    pairs = [(a, b) for a, b in itertools.combinations(first, 2) if len(a.keys() & b.keys()) >= FEWEST_COMMON]
    correlations = []
    for one, other in pairs[:: -(-len(pairs) // MOST_PAIRS) or 1]:
        common = sorted(one.keys() & other.keys())
        first_ranks, other_ranks = (np.argsort(np.argsort([p[name] for name in common])) for p in (one, other))
        correlations.append(float(np.atleast_2d(np.corrcoef(first_ranks, other_ranks))[0, 1]))
    return float(np.mean(correlations)) if correlations else 0.0


def known_clock(data: Any, purpose: str) -> Clock:
    """Return the times of a data file; raise UserError with the sentence `purpose` if none is known."""
    if data.clock is None or not data.clock.timed.any():
        raise UserError(f"{data.path}: {purpose}")
    return data.clock


def gaps(span: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the time between a span `[2]` and each of `others` `[..., 2]`; 0 if they overlap."""
    return np.maximum(np.maximum(others[..., 0] - span[1], span[0] - others[..., 1]), 0)


def known_time(row: Any, i: int | None = None) -> dict[str, Any]:
    """Return the known ones of `CLOCK_COLUMNS`, name -> value, of a prediction or of a Clock's sample `i`."""
    values = {name: getattr(row, name) if i is None else getattr(row, name)[i] for name in CLOCK_COLUMNS}
    stated = {name: kind(values[name]) for name, kind in CLOCK_COLUMNS.items() if values[name] not in (None, "")}
    return {name: value for name, value in stated.items() if value == value and (name, value) != ("order", -1)}


def clock_of_rows(rows: Sequence[Any]) -> Clock:
    """Make a Clock of the times that predictions or rankings state."""
    blank = {"recording": "", "onset": np.nan, "duration": np.nan, "order": -1}
    times = [{**blank, **known_time(row)} for row in rows]
    return Clock.of({name: [row[name] for row in times] for name in CLOCK_COLUMNS})


def parse_time(
    row: Mapping[str, Any], where: str, named: Mapping[str, str] | None = None, default: str = ""
) -> dict[str, Any]:
    """Return the times that a row (column -> text or number) states; empty without onset and order.

    `where` locates the row in messages; `named` maps `CLOCK_COLUMNS` to columns (None: the same names). `default` is
    the recording of a row that names none; "" discards its times. Raises UserError for an impossible value.
    """
    time: dict[str, Any] = {}
    for name, kind in CLOCK_COLUMNS.items():
        value = row.get(column := named[name] if named else name)
        if value is None or value != value or not str(value).strip():
            continue
        try:
            time[name] = kind(str(value).strip())
        except ValueError:
            time[name] = math.nan
        least = -MOST_SECONDS if name == "onset" else 0
        most = MOST_WHOLE if kind is int else MOST_SECONDS if name == "onset" else math.inf
        if kind is not str and not (least <= time[name] <= most and math.isfinite(time[name])):
            wanted = "a whole number from 0" if kind is int else "a finite number of seconds"
            wanted += ", below 1e10 (are these milliseconds?)" if name == "onset" and math.isfinite(time[name]) else ""
            raise UserError(f"{where}: {column} is {value!r}; expected {wanted}.")
    is_known = time.get("recording", default) and {"onset", "order"} & time.keys()
    return {"recording": default, **time} if is_known else {}


class Stretches(NamedTuple):
    """The audio of stories, cut into numbered stretches at all starts and ends of windows."""

    windows: np.ndarray  # int64 [N, 2], first stretch and number of stretches
    lengths: np.ndarray  # int64 [stretches], milliseconds


def times_of(data: Any) -> np.ndarray:
    """Return start and end of each window in milliseconds of the story's audio, int64 `[N, 2]`.

    In files of earlier versions, without `story_time`, a TR counts as one second.
    """
    table: Sequence[tuple[float, float, float]] = data.provenance.get(STORY_TIME, ())
    if not table:
        return UNIT * np.stack([data.sentence_index, data.sentence_index + data.n_words], axis=1)
    first, begin, tr = np.array(sorted(table), float).T
    scan = np.searchsorted(first, data.starts, side="right") - 1
    start = begin[scan] + (data.starts - first[scan]) * tr[scan]
    return np.rint(UNIT * np.stack([start, start + data.n_words * tr[scan]], axis=1)).astype(np.int64)


def stretches(data: Any) -> Stretches:
    """Cut stories so that windows share a stretch if and only if they overlap."""
    times, windows, lengths = data.story_times, np.zeros((len(data), 2), np.int64), np.zeros(0, np.int64)
    stories = data.task.astype(str)
    for story in np.unique(stories):
        rows = stories == story
        ends = np.unique(times[rows])
        place = np.searchsorted(ends, times[rows])
        windows[rows] = np.stack([len(lengths) + place[:, 0], place[:, 1] - place[:, 0]], axis=1)
        lengths = np.append(lengths, np.diff(ends))
    return Stretches(windows, lengths)


def parse_span(value: Any, where: str) -> list[float]:
    """Check and return a window's start and end in its story (seconds); raise UserError if invalid."""
    numbers = isinstance(value, list) and [type(x) in (int, float) and math.isfinite(x) for x in value] == [True, True]
    if not numbers or value[0] >= value[1]:
        raise UserError(f"{where}: story_time is {value!r:.60}; expected two increasing numbers, in seconds.")
    return [float(x) for x in value]
