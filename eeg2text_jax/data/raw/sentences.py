"""Find the sentences of a recording among its events, and compute their features."""

import collections
import dataclasses
import io
import itertools
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy  # `scipy.signal`, imported on first use, would cost every command 2 s

from eeg2text_jax.base.errors import UserError, first_line, shortlist
from eeg2text_jax.base.packages import library
from eeg2text_jax.data.raw.find import (
    BIPOLAR,
    CODES,
    MISSING,
    SENSORS,
    Event,
    RawFile,
    RawSpec,
    is_marked_bad,
    read_table,
    spellings,
    split_type,
    stem_of,
)

BIDS_PREFIX = {"subject": "sub-", "session": "ses-", "task": "task-", "run": "run-"}
SHIFTS, FEWEST, MOST_FIT = 3, 10, 0.8  # rows tried, fewest trials checked, share that must fit
KEYS = ("subject", "session", "task", "run", "trial", "code")  # columns that may identify a text


class Texts:
    """A table of texts by trial (from 1 in each recording), code or both, and optionally by subject, task and so on.

    Raises UserError if it is damaged, lacks the column `column` or a key, or has two texts for a key.
    """

    def __init__(self, path: Path, column: str):
        self.path = path
        columns, rows = read_sheets(path, column) if path.suffix == ".xlsx" else read_table(path)
        if "participant_id" in columns and "subject" not in columns:  # BIDS calls the subject so
            columns, rows = [*columns, "subject"], [{**row, "subject": row["participant_id"]} for row in rows]
        self.keys = tuple(key for key in KEYS if key in columns)
        if column not in columns or not {"trial", "code"} & set(self.keys):
            raise UserError(
                f"{path}: has the columns {', '.join(columns)}; expected {column!r} (data.raw.text can name another "
                "column) and `trial` or `code`; where texts differ, also `subject`, `session`, `task` or `run`."
            )
        self._texts: dict[tuple[str, ...], str] = {}
        self._used: set[tuple[str, ...]] = set()
        self._looked_up: set[str] = set()  # codes of events
        for row in rows:
            key = tuple(_key(name, row[name]) for name in self.keys)
            if self._texts.setdefault(key, row[column]) != row[column]:
                named = ", ".join(f"{name} {row[name]}" for name in self.keys)
                raise UserError(f"{path}: has two texts for {named}; add a column such as `subject` or `run`.")

    def find(self, file: RawFile, trial: int, codes: Sequence[str]) -> str:
        """Return the text of a trial by its number or `codes`, or ""."""
        by_code = "code" in self.keys
        self._looked_up.update(_key("code", code) for code in codes if by_code)
        for code in itertools.chain.from_iterable(map(spellings, codes)) if by_code else [""]:
            values = {**vars(file), "trial": str(trial), "code": code}
            key = tuple(_key(name, values[name]) for name in self.keys)
            if self._texts.get(key, "").lower() not in MISSING:
                self._used.add(key)
                return self._texts[key]
        return ""

    def check_trials(self, file: RawFile, trials: int) -> None:
        """Raise UserError if a recording has more or fewer trials than texts."""
        if "code" in self.keys or not trials:
            return
        ours = tuple(_key(name, getattr(file, name)) for name in self.keys[:-1])
        numbers = [key[-1] for key in self._texts if key[:-1] == ours]
        if "0" in numbers:
            raise UserError(f"{self.path}: has a trial 0, but trials count from 1 in each recording; add 1 to all.")
        if numbers and len(numbers) != trials:
            raise UserError(
                f"{self.path}: has {len(numbers)} texts for {file.path.name}, in which {trials} events begin a "
                "sentence, so that texts may be shifted; count trials from 1 in each recording (columns `subject` and "
                "`run` tell recordings apart), give trials without a text a row with n/a, or leave their codes out "
                "with data.raw.skip, and remove rows of trials that were not recorded."
            )

    def check_durations(self, file: RawFile, readings: Sequence["Reading"], unit: float) -> None:
        """Raise UserError if durations do not fit the numbers of characters, `unit` seconds each.

        A text may be shown for up to two further characters, equally many in all trials.
        """
        shown = np.rint(np.array([reading.end - reading.begin for reading in readings]) / unit).astype(int)
        lengths = np.array([len(reading.text) for reading in readings])

        def fits(shift: int) -> float:
            trials = np.arange(max(shift, 0), len(shown) + min(shift, 0))
            further = shown[trials] - lengths[trials - shift]
            return float(max(np.mean(further == constant) for constant in (0, 1, 2)))

        if len(shown) < FEWEST or (share := fits(0)) >= MOST_FIT:
            return
        best = max((s for s in range(-SHIFTS, SHIFTS + 1) if abs(s) < len(shown)), key=fits)
        why = "; no shift of up to 3 rows fits: is it the table of another run?"
        if fits(best) >= MOST_FIT:
            why = f"; shifted by {best:+d} rows, {fits(best):.0%} would: the table is shifted."
        raise UserError(
            f"{self.path}: the texts do not fit {file.path.name}: at {unit:g} s a character "
            f"(data.raw.seconds_per_character), {share:.0%} of its {len(shown)} trials last as long as their text, "
            f"expected {MOST_FIT:.0%} or more{why}"
        )

    def check_codes(self) -> None:
        """Raise UserError if the events' codes are the table's plus a constant."""
        theirs = {int(key[-1]) for key in self._texts if key[-1].isdecimal()}
        ours = {int(code) for code in self._looked_up if code.isdecimal()}
        if theirs and ours and (shift := min(ours) - min(theirs)) and ours == {code + shift for code in theirs}:
            codes = f"the codes {min(theirs)} to {max(theirs)}, and the events have {min(ours)} to {max(ours)}"
            advice = "write the codes as the events have them"
            raise UserError(f"{self.path}: has {codes}: texts would be shifted by {abs(shift)}; {advice}.")

    def mismatch(self, files: Sequence[RawFile]) -> str:
        """Return a sentence on why no trial of the recordings has a text."""
        for place, name in enumerate(self.keys):
            if name in ("trial", "code"):
                continue
            theirs, ours = {key[place] for key in self._texts}, {_key(name, getattr(file, name)) for file in files}
            if not theirs & ours:
                there, here = (", ".join(sorted(values)[:3]) for values in (theirs, ours))
                what = f"its column {name} has {there}; the recordings' {name} is {here}"
                return f"{self.path}: {what}; write them alike, or give data.raw.names."
        return f"{self.path}: no row has the {' and '.join(self.keys)} of a sentence here."

    def notes(self) -> list[str]:
        """Return a note if rows of the table were not used."""
        if not (unused := [key for key in self._texts if key not in self._used]):
            return []
        first = ", ".join(f"{name} {value}" for name, value in zip(self.keys, unused[0], strict=True))
        return [f"{self.path}: {len(unused)} of {len(self._texts)} texts belong to no trial here (first: {first})."]


def read_sheets(path: Path, column: str) -> tuple[list[str], list[dict[str, str]]]:
    """Return columns and rows of Excel files with a text a row, in the order of the trials, as `read_table` does.

    `{run}` in the name stands for digits, the column `run`. Texts are in `column`, else the first column without
    numbers. Raises UserError if there is no file, or no text.
    """
    openpyxl = library("openpyxl", "xlsx")
    before, there, after = path.name.partition("{run}")
    files = sorted(path.parent.glob(f"{before}*{after}")) if there else [path]
    rows: list[dict[str, str]] = []
    for file in files:
        try:
            book = openpyxl.load_workbook(io.BytesIO(file.read_bytes()), read_only=True)
            cells = [row for row in book.worksheets[0].values if any(cell not in (None, "") for cell in row)]
        except (OSError, KeyError, ValueError, IndexError, SyntaxError, zipfile.BadZipFile) as error:
            why = first_line(error)
            raise UserError(f"{file}: cannot be read as an Excel file ({why}); save it as CSV.") from error
        head = [str(cell).strip() for cell in cells[0]] if cells else []
        if column in head:
            place, cells = head.index(column), cells[1:]
        else:
            place = next((k for k in range(len(head)) if all(isinstance(row[k], str) for row in cells)), -1)
        if not cells or place < 0:
            raise UserError(f"{file}: expected a text in each row, in a column without numbers or named {column!r}.")
        run = {"run": file.name.removeprefix(before).removesuffix(after)} if there else {}
        rows += [{**run, "trial": str(n), column: str(row[place]).strip()} for n, row in enumerate(cells, 1)]
    if not rows:
        raise UserError(f"{path}: there is no such file; expected tables of texts.")
    return list(rows[0]), rows


def _key(name: str, value: str) -> str:
    """Normalize a cell of a key column: `Stimulus/S101`, `S 101`, `101` are one code, `01`, `1.0` one number."""
    if name == "code":
        marker, bare = split_type(value)
        value = spellings(bare)[-1] if marker in ("", "Stimulus/", "Comment/") else marker + bare
    value = value.strip().removeprefix(BIDS_PREFIX.get(name, "")).strip().removesuffix(".0")
    return value.lstrip("0") or "0" if value.isdecimal() else value


NO_END, NO_TEXT, NO_WORD, MARKED_BAD = "no end", "no text", "no word", "marked bad"
LONGEST = 120.0  # seconds; a longer sentence suggests that times are in milliseconds
Span = tuple[float, float]  # start and end, seconds


@dataclasses.dataclass(frozen=True)
class Reading:
    """A sentence in a recording; times in seconds; `words` are empty if words have no times."""

    text: str
    begin: float
    end: float
    words: tuple[Span, ...] = ()


def readings(
    file: RawFile, events: Sequence[Event], columns: Sequence[str], spec: RawSpec, texts: Texts | None
) -> tuple[list[Reading], collections.Counter[str]]:
    """Return the sentences of a recording and the number of dropped ones by reason.

    `events` are in order of time, `columns` those of their table (empty for annotations); `texts` is None if the events
    have the texts. Raises UserError if no event can begin a sentence, or two sentences overlap.
    """
    dropped: collections.Counter[str] = collections.Counter()
    begins = _begins(file, events, columns, spec)
    if texts is not None:
        texts.check_trials(file, len(begins))
    bad = [event for event in events if is_marked_bad(event)]
    sentences: list[Reading] = []
    previous = ""  # code of the sentence before; "" for annotations
    for trial, (place, event) in enumerate(begins, 1):
        following = begins[trial][0] if trial < len(begins) else len(events)
        end = event.onset + event.duration if event.duration > 0 else None
        if spec.end:
            ends = (later.onset for later in events[place + 1 : following] if later.match(spec.end))
            end = next((onset for onset in ends if onset > event.onset), None)
        text = " ".join(_text(file, event, trial, columns, spec, texts).split())
        words = _words(event.onset, end, events, spec) if spec.word and end else ()
        problem = (
            NO_END if end is None
            else NO_TEXT if text.lower() in MISSING
            else NO_WORD if spec.word and not words
            else MARKED_BAD if any(b.onset < end and event.onset < b.onset + b.duration for b in bad)
            else ""
        )  # fmt: skip
        if problem:
            dropped[problem] += 1
            continue
        code = event.codes[0] if columns and event.codes else ""
        reading = Reading(text, event.onset, end, words)
        if sentences and event.onset < sentences[-1].end - 1e-6:
            raise UserError(_overlap(file, sentences[-1], reading, spec, (previous, code)))
        previous = code
        sentences.append(reading)
    if texts is not None and spec.seconds_per_character and sentences:
        texts.check_durations(file, sentences, spec.seconds_per_character)
    return sentences, dropped


def no_sentence(file: RawFile, events: Sequence[Event], spec: RawSpec) -> str:
    """Return why no event begins a sentence."""
    events = [event for event in events if not is_marked_bad(event)]
    codes = list(dict.fromkeys(code for event in events for code in event.codes))
    if not codes:
        table = f"{stem_of(file.path)}_events.tsv"
        return f"{file.path}: has no annotations, and there is no table of events {table} (or .csv) beside it."
    what = f"{file.path}: no event begins a sentence (data.raw.begin is {spec.begin!r})"
    if not spec.begin and not any(event.duration for event in events):
        what += " and none has a duration, so give data.raw.end, the code that ends a sentence"
    return f"{what}; the codes of its events are {shortlist(codes)}."


def _overlap(file: RawFile, first: Reading, second: Reading, spec: RawSpec, codes: tuple[str, str]) -> str:
    """Return the message on two overlapping sentences; the shorter may be a word of the longer one.

    `codes` are those of both in a table of events; "" for annotations.
    """
    both = " and ".join(f"{one.text[:40]!r} ({one.begin:g} to {one.end:g} s)" for one in (first, second))
    what = f"{file.path}: the sentences {both} overlap; "
    advice = "mend the events, or set data.raw.end to the code that ends a sentence."
    word, sentence = sorted((first, second), key=lambda one: one.end - one.begin)
    inside = sentence.begin - 1e-6 <= word.begin and word.end <= sentence.end + 1e-6
    kind = sentence.text.partition("/")[0] if "/" in sentence.text else ""
    if word.end - word.begin > LONGEST:
        lengths = f"{word.end - word.begin:g} and {sentence.end - sentence.begin:g} s"
        return f"{what}they last {lengths}: are durations in ms? expected seconds."
    if inside and (code := codes[word is second]) not in ("", codes[word is first]) and not spec.word:
        return f"{what}if {code!r} marks a word, name the code of words with data.raw.word={code}; else {advice}"
    if spec.word or spec.begin or not inside or (len(word.text.split()) > len(sentence.text.split()) and not kind):
        return what + advice
    if {part.casefold() for part in word.text.split()} <= {part.casefold() for part in sentence.text.split()}:
        return (
            f"{what}{word.text!r} looks like a word of the sentence, annotated by its own text: give the annotations "
            f"of words a code that sentences do not have, such as 'word/{word.text}', and name it with "
            f"data.raw.word='word/*'; else {advice}"
        )
    hint = f"if only sentences begin with '{kind}/', give data.raw.begin='{kind}/*'; " if kind else ""
    code = repr(word.text) if " " in word.text else word.text
    return f"{what}{hint}if {word.text!r} marks a word, name the code of words with data.raw.word={code}; else {advice}"


def _begins(file: RawFile, events: Sequence[Event], columns: Sequence[str], spec: RawSpec) -> list[tuple[int, Event]]:
    others = [pattern for pattern in (*spec.skip, spec.word, spec.end) if pattern not in ("", spec.begin)]
    if spec.begin:
        return [(i, e) for i, e in enumerate(events) if e.match(spec.begin) and not any(map(e.match, others))]
    if columns and spec.text not in columns:
        raise UserError(
            f"{file.path}: its table of events has the columns {', '.join(columns)} and none is {spec.text!r}; name "
            "the column of texts with data.raw.text, or give data.raw.begin, the code that begins a sentence, and "
            "data.raw.texts, a table of texts."
        )
    return [
        (i, event)
        for i, event in enumerate(events)
        if split_type(event.columns.get(spec.text, ""))[1].lower() not in MISSING
        and not is_marked_bad(event)
        and not any(map(event.match, others))
        # Without duration and `spec.end`, an annotation is a trigger, as is an event whose text would be a code.
        and ((columns and spec.text not in CODES) or spec.end or event.duration > 0)
    ]


def _text(file: RawFile, event: Event, trial: int, columns: Sequence[str], spec: RawSpec, texts: Texts | None) -> str:
    """Return the text of the sentence number `trial` (from 1) that `event` begins, or ""."""
    if texts is not None:
        return texts.find(file, trial, event.codes)
    if columns and spec.text in columns:
        return split_type(event.columns[spec.text])[1]
    if not spec.begin:
        return split_type(event.columns.get(spec.text, ""))[1]
    match = event.match(spec.begin)
    return match[1] if match and match.groups() else ""  # `sentence/*`: what the star is


def _words(begin: float, end: float, events: Sequence[Event], spec: RawSpec) -> tuple[Span, ...]:
    """Return the spans of words; an event without duration lasts until the next."""
    words = [event for event in events if begin <= event.onset < end and event.match(spec.word)]
    stops = [*(event.onset for event in words), end][1:]
    spans = [
        (event.onset, min(event.onset + event.duration if event.duration > 0 else stop, end))
        for event, stop in zip(words, stops, strict=True)
    ]
    return tuple(span for span in spans if span[1] > span[0])


def windows(reading: Reading, window: float, step: float) -> tuple[Span, ...]:
    """Return spans of `window` seconds every `step` seconds; a shorter sentence is one."""
    if (rest := reading.end - reading.begin - window) < 0:
        return ((reading.begin, reading.end),)
    starts = (reading.begin + i * step for i in range(int(rest / step + 1e-9) + 1))
    return tuple((start, start + window) for start in starts)


SMALL = 1e-6  # large units (V, nT, nT/cm) in a small one (uV, fT, fT/cm)
# Times the median channel's standard deviation, above (below) which a channel is noisy (constant).
NOISY, CONSTANT = 20.0, 1e-3


class Flat(ValueError):
    """A channel, number `args[0]`, has no power of which to take the logarithm."""


class Short(ValueError):
    """A sentence with its margins is too short for the filters."""


def band_power(volts: np.ndarray, rate: float, spans: Sequence[Span], spec: RawSpec) -> np.ndarray:
    """Return the mean power or amplitude of W spans in each band and channel: float64 `[W, F]`, F band-major.

    The amplitude is the magnitude of the analytic signal (Hilbert transform) of the band-passed voltage, as in ZuCo;
    the power is its square. `volts` `[channels, samples]`, `rate` a second, have a margin for the filters; `spans` are
    seconds from the first sample. Raises Short, or Flat with `spec.log`.
    """
    volts, rate = _resampled(volts, rate, spec)
    if spec.log and len(flat := np.flatnonzero(np.ptp(volts, axis=1) == 0)):
        raise Flat(int(flat[0]))
    volts = _filtered(volts, rate, spec)
    places = [_samples(span, rate, volts.shape[1]) for span in spans]
    power = np.empty((len(spans), len(spec.bands), len(volts)))
    for b, band in enumerate(spec.bands):
        narrow = _both_ways(_butter(band, "bandpass", rate), volts)
        analytic = scipy.signal.hilbert(narrow, axis=1)
        moments = np.abs(analytic) if spec.amplitude else analytic.real**2 + analytic.imag**2
        for w, (start, stop) in enumerate(places):
            power[w, b] = moments[:, start:stop].mean(axis=1)
    if spec.log:
        power = np.log10(power / (SMALL if spec.amplitude else SMALL**2))
    return power.reshape(len(spans), -1)


def waves(volts: np.ndarray, rate: float, span: Span, spec: RawSpec) -> np.ndarray:
    """Return a span's samples in small units less each channel's mean, float64 `[W, channels]`; raise Short."""
    volts, rate = _resampled(volts, rate, spec)
    start, stop = _samples(span, rate, volts.shape[1])
    moments = _filtered(volts, rate, spec)[:, start:stop].T / SMALL
    return moments - moments.mean(axis=0)


def _resampled(volts: np.ndarray, rate: float, spec: RawSpec) -> tuple[np.ndarray, float]:
    """Return voltages at the rate that `spec` asks for, and that rate."""
    if not spec.resample or spec.resample == rate:
        return volts, rate
    ratio = spec.ratio(rate)
    return scipy.signal.resample_poly(volts, ratio.numerator, ratio.denominator, axis=1), rate * float(ratio)


def _filtered(volts: np.ndarray, rate: float, spec: RawSpec) -> np.ndarray:
    for edge, kind in ((spec.highpass, "highpass"), (spec.lowpass, "lowpass")):
        if edge:
            volts = _both_ways(_butter(edge, kind, rate), volts)
    if spec.notch:
        volts = _both_ways(scipy.signal.tf2sos(*scipy.signal.iirnotch(spec.notch, 30.0, fs=rate)), volts)
    return volts


def _both_ways(sos: np.ndarray, volts: np.ndarray) -> np.ndarray:
    """Filter forwards and backwards: without delay, with twice the order; raise Short."""
    try:
        return scipy.signal.sosfiltfilt(sos, volts, axis=1)
    except ValueError as error:
        raise Short(str(error)) from error


def _butter(edges: float | tuple[float, float], kind: str, rate: float) -> np.ndarray:
    return scipy.signal.butter(4, edges, kind, fs=rate, output="sos")


def _samples(span: Span, rate: float, n: int) -> tuple[int, int]:
    """Convert seconds to samples: start and end (exclusive), clipped to `n`, at least one sample."""
    start = min(round(span[0] * rate), n - 1)
    return start, max(min(round(span[1] * rate), n), start + 1)


_CONTACT = re.compile(r"(.*?)(\d+)$")  # name of a shaft or grid, and number of the contact


def bipolar_pairs(channels: Sequence[str], types: Sequence[str], spec: RawSpec) -> list[tuple[str, tuple[str, str]]]:
    """Return pairs of neighboring contacts by names such as `LA1-LA2`."""
    pairs = []
    for name, kind in zip(channels, types, strict=True):
        if spec.references.get(kind) == BIPOLAR and (match := _CONTACT.match(name)):
            following = f"{match[1]}{int(match[2]) + 1:0{len(match[2])}d}"
            if following in channels and types[channels.index(following)] == kind:
                pairs.append((f"{name}-{following}", (name, following)))
    return pairs


def rereference(
    volts: np.ndarray, channels: Sequence[str], types: Sequence[str], spec: RawSpec, where: str
) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Re-reference values `[channels, samples]` as `spec` says by type; return them with names and types.

    "average" subtracts the mean of the type's channels, names of channels their mean; "bipolar" takes differences of
    neighboring contacts, without contacts that have none.
    """
    channels, kinds = tuple(channels), np.array(types)
    for kind, how in spec.references.items():
        ours = np.flatnonzero(kinds == kind)
        names = [] if how in ("average", BIPOLAR) else how.split(",")
        if missing := [name for name in names if name not in channels]:
            raise UserError(
                f"{where}: has no channel {missing[0]!r}, which data.raw.reference names; set data.raw.reference to "
                "channels of the recording, 'average' or ''."
            )
        if how != BIPOLAR and len(ours):
            mean = volts[[channels.index(name) for name in names] if names else ours].mean(axis=0)
            volts = volts.copy()
            volts[ours] -= mean
    if BIPOLAR not in spec.references.values():
        return volts, channels, tuple(types)
    monopolar = [name for name, kind in zip(channels, types, strict=True) if spec.references.get(kind) != BIPOLAR]
    made = [(name, (name, "")) for name in monopolar] + bipolar_pairs(channels, types, spec)
    if not made:
        raise UserError(
            f"{where}: has no two neighboring contacts, such as LA1 and LA2, for data.raw.reference={spec.reference}; "
            "set it to 'seeg:average', 'ecog:average' or ''."
        )
    row, type_of = dict(zip(channels, volts, strict=True)), dict(zip(channels, types, strict=True))
    values = [row[one] - row[other] if other else row[one] for _, (one, other) in made]
    return np.stack(values), tuple(name for name, _ in made), tuple(type_of[one] for _, (one, _) in made)


def level_notes(levels: Sequence[np.ndarray], channels: Sequence[str], types: Sequence[str]) -> list[str]:
    """Return notes on constant or noisy channels, and on an implausible unit, by type.

    `levels` are the sentences' standard deviations `[channels]`, in large units, before re-referencing.
    """
    sizes = np.median(levels, axis=0) if levels else np.empty(0)
    notes = []
    for kind in dict.fromkeys(types if levels else ()):
        sensor, ours = SENSORS[kind], np.array(types) == kind
        usual = float(np.median(sizes[ours]))
        odd = (ours & (sizes <= CONSTANT * usual), ours & (sizes > NOISY * usual) & (usual > 0))
        constant, noisy = (shortlist(channels[i] for i in np.flatnonzero(which).tolist()) for which in odd)
        if constant:
            what = f"channels are constant, or nearly so, as recorded: {constant}"
            notes.append(f"{what}; leave them out with data.raw.exclude if they are dead.")
        if noisy:
            why = "loose: the average reference spreads noise" if kind == "eeg" else "faulty"
            what = f"channels vary more than {NOISY:g} times as much as the others: {noisy}"
            notes.append(f"{what}; leave them out with data.raw.exclude if they were {why}.")
        usual /= sensor.factor
        if usual and not sensor.lowest < usual < sensor.highest:
            median = "the median channel" if kind == "eeg" else f"the median of the {sensor.name}"
            typical = f"{sensor.name} has about {sensor.usual:.0e} {sensor.mne}"
            what = f"{median} has a standard deviation of about {usual:.0e} {sensor.mne}; {typical}: is the unit right?"
            notes.append(f"{what} MNE expects {sensor.in_words}; no verdict depends on it.")
    return notes
