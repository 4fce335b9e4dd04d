"""When each sample was recorded: its recording, with onset and duration in seconds, or its place in the order."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.errors import UserError

CLOCK_COLUMNS: dict[str, type] = {"recording": str, "onset": float, "duration": float, "order": int}
NO_TIME = "when samples were recorded is not known (no recording with onset or order): time cannot be excluded"


@dataclasses.dataclass(frozen=True)
class Clock:
    """Recording and time of N samples.

    Fields:
      recording: object `[N]`, name of one run of one subject; "" where it is not known.
      onset: float64 `[N]`, seconds from the start of the recording; NaN where it is not known.
      duration: float64 `[N]`, seconds; NaN where it is not known.
      order: int64 `[N]`, place of the sample in its recording; -1 where it is not known.
    """

    recording: np.ndarray
    onset: np.ndarray
    duration: np.ndarray
    order: np.ndarray

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]]) -> "Clock":
        """The clock of columns by name; where only onsets are known, their rank in the recording is the order."""
        onset, duration = (np.array(columns[name], np.float64) for name in ("onset", "duration"))
        recording, order = np.array(list(columns["recording"]), object), np.array(columns["order"], np.int64)
        clock = cls(recording, onset, duration, order.copy())
        for rows in clock.recordings().values():
            if (order[rows] < 0).all() and np.isfinite(onset[rows]).all():
                clock.order[rows[np.argsort(onset[rows], kind="stable")]] = np.arange(len(rows))
        return clock

    def columns(self) -> dict[str, np.ndarray]:
        """The columns by the names of `CLOCK_COLUMNS`; none where no time is known."""
        return {name: getattr(self, name) for name in CLOCK_COLUMNS if self.known.any()}

    def __len__(self) -> int:
        return len(self.recording)

    @functools.cached_property
    def known(self) -> np.ndarray:
        """Whether the recording is known and the place in it, bool `[N]`."""
        return (self.recording != "") & (np.isfinite(self.onset) | (self.order >= 0))

    @property
    def in_seconds(self) -> bool:
        """Whether all samples of known time have an onset; else time is counted in samples."""
        return bool(np.isfinite(self.onset[self.known]).all())

    @property
    def unit(self) -> str:
        return "s" if self.in_seconds else "samples"

    @functools.cached_property
    def spans(self) -> np.ndarray:
        """Begin and end of every sample in `unit`, float64 `[N, 2]`; a sample of unknown duration ends at its onset."""
        begin = self.onset if self.in_seconds else self.order.astype(float)
        return np.stack([begin, begin + (np.nan_to_num(self.duration) if self.in_seconds else 0)], axis=1)

    def recordings(self) -> dict[str, np.ndarray]:
        """Rows of each recording with a name."""
        names, label = np.unique(self.recording.astype(str), return_inverse=True)
        rows = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])
        return {str(name): found for name, found in zip(names, rows, strict=False) if name}  # of none, one empty group

    def nearest(self, rows: np.ndarray, among: np.ndarray, barred: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """The sample of the same recording that is nearest in time, for each sample of `rows` `[R]`.

        Time runs from the end of the earlier sample to the begin of the later one; of samples that overlap, the one
        with the nearest onset is taken.

        Args:
          rows: samples to look from.
          among: samples to look in; a sample is never its own neighbor.
          barred: `(i, candidates) -> bool [C]`, candidates that sample `i` may not have; None: all are allowed.

        Returns:
          Neighbor int64 `[R]`, -1 where there is none, and its distance in `unit`, float64 `[R]`, infinite there.
        """
        found, distance = np.full(len(rows), -1), np.full(len(rows), np.inf)
        among = np.unique(among[self.known[among]])
        names, label = np.unique(self.recording[among].astype(str), return_inverse=True)
        grouped = np.split(among[np.argsort(label, kind="stable")], np.cumsum(np.bincount(label))[:-1])
        candidates = dict(zip(names.tolist(), grouped, strict=True)) if len(among) else {}
        for k, i in enumerate(rows.tolist()):
            near = candidates.get(self.recording[i], among[:0]) if self.known[i] else among[:0]
            near = near[near != i]
            near = near if barred is None or not len(near) else near[~barred(i, near)]
            if len(near):
                apart, onsets = gaps(self.spans[i], self.spans[near]), abs(self.spans[near, 0] - self.spans[i, 0])
                best = np.lexsort((onsets, apart))[0]
                found[k], distance[k] = near[best], apart[best]
        return found, distance


def gaps(span: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Time between a span `[2]` and others `[..., 2]`, 0 where they overlap."""
    return np.maximum(np.maximum(others[..., 0] - span[1], span[0] - others[..., 1]), 0)


def stated(row: Any, i: int | None = None) -> dict[str, Any]:
    """What is known of the time of a prediction, or of sample `i` of a clock, by the names of `CLOCK_COLUMNS`."""
    values = {name: getattr(row, name) if i is None else getattr(row, name)[i] for name in CLOCK_COLUMNS}
    known = {name: kind(values[name]) for name, kind in CLOCK_COLUMNS.items() if values[name] not in (None, "")}
    return {name: value for name, value in known.items() if value == value and value != -1}


def clock_of_rows(rows: Sequence[Any]) -> Clock:
    """The clock of predictions or rankings, in their order."""
    blank = {"recording": "", "onset": np.nan, "duration": np.nan, "order": -1}
    found = [{**blank, **stated(row)} for row in rows]
    return Clock.of({name: [row[name] for row in found] for name in CLOCK_COLUMNS})


def parse_time(
    row: Mapping[str, Any], where: str, named: Mapping[str, str] | None = None, default: str = ""
) -> dict[str, Any]:
    """When a row of a table was recorded, by the names of `CLOCK_COLUMNS`; what is not known is left out.

    Args:
      row: values by column, texts or numbers.
      where: the row, for messages.
      named: names of the columns; None: those of `CLOCK_COLUMNS`.
      default: the recording of a row that has an onset or an order alone; without a recording no time is known.

    Raises:
      UserError: a value is no number, or a duration or an order is negative.
    """
    found: dict[str, Any] = {}
    for name, kind in CLOCK_COLUMNS.items():
        column = named[name] if named else name
        value = row.get(column)
        if value is None or value != value or not str(value).strip():
            continue
        try:
            found[name] = kind(str(value).strip())
        except ValueError:
            found[name] = math.nan
        least = -math.inf if name == "onset" else 0
        if kind is not str and not least <= found[name] < math.inf:
            wanted = "a whole number from 0" if kind is int else "a finite number of seconds"
            raise UserError(f"{where}: {column} is {value!r}; expected {wanted}.")
    known = found.get("recording", default) and {"onset", "order"} & found.keys()
    return {"recording": default, **found} if known else {}
