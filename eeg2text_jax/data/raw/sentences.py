"""Events -> sentences with their texts, times and words; what does not match is counted."""

import collections
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.data.raw.choices import RawSpec
from eeg2text_jax.data.raw.events import CODES, MISSING, Event, is_marked_bad, read_table, spellings, split_type
from eeg2text_jax.data.raw.find import RawFile
from eeg2text_jax.errors import UserError

NO_END = "no end"
NO_TEXT = "no text"
NO_WORD = "no word"
MARKED_BAD = "marked bad"
KEYS = ("subject", "session", "task", "run", "trial", "code")  # columns by which a table of texts is looked up
Span = tuple[float, float]  # seconds


@dataclasses.dataclass(frozen=True)
class Reading:
    """One sentence in a recording; `words` are empty where words have no times."""

    text: str
    begin: float
    end: float
    words: tuple[Span, ...] = ()


class Texts:
    """A table of texts by trial (from 1, in a recording), by code, or by both; narrowed by subject, task and so on.

    Raises:
      UserError: it cannot be read, lacks the column of texts or all columns to look up by, or says one thing twice.
    """

    def __init__(self, path: Path, column: str):
        self.path = path
        columns, rows = read_table(path)
        self.keys = tuple(key for key in KEYS if key in columns)
        if column not in columns or not {"trial", "code"} & set(self.keys):
            raise UserError(
                f"{path}: has the columns {', '.join(columns)}; expected {column!r} and `trial` or `code`, and where "
                "texts differ between them `subject`, `session`, `task` or `run`."
            )
        self._texts: dict[tuple[str, ...], str] = {}
        self._used: set[tuple[str, ...]] = set()
        for row in rows:
            key = tuple(_key(name, row[name]) for name in self.keys)
            if self._texts.setdefault(key, row[column]) != row[column]:
                named = ", ".join(f"{name} {row[name]}" for name in self.keys)
                raise UserError(f"{path}: has two texts for {named}; a column more is needed to tell them apart.")

    def find(self, file: RawFile, trial: int, codes: Sequence[str]) -> str:
        """The text of a trial; empty where the table has none."""
        known = {"subject": file.subject, "session": file.session, "task": file.task, "run": file.run, "trial": trial}
        for code in itertools.chain.from_iterable(map(spellings, codes)) if "code" in self.keys else [""]:
            key = tuple(_key(name, str({**known, "code": code}[name])) for name in self.keys)
            if self._texts.get(key, "").lower() not in MISSING:
                self._used.add(key)
                return self._texts[key]
        return ""

    def mismatch(self, files: Sequence[RawFile]) -> str:
        """A sentence on why no trial has a text."""
        for place, name in enumerate(self.keys):
            if name in ("trial", "code"):
                continue
            theirs, ours = {key[place] for key in self._texts}, {_plain(getattr(file, name)) for file in files}
            if not theirs & ours:
                return (
                    f"{self.path}: its column {name} has {', '.join(sorted(theirs)[:3])}; the recordings' {name} is "
                    f"{', '.join(sorted(ours)[:3])}; write them alike, or give data.raw.names."
                )
        return f"{self.path}: no row has the {' and '.join(self.keys)} of a sentence here."

    def note(self) -> str:
        """A sentence on rows that no trial had; empty if there are none."""
        unused = [key for key in self._texts if key not in self._used]
        if not unused:
            return ""
        first = ", ".join(f"{name} {value}" for name, value in zip(self.keys, unused[0], strict=True))
        return f"{self.path}: {len(unused)} of {len(self._texts)} texts belong to no trial here (first: {first})."


def _key(name: str, value: str) -> str:
    """A cell of the table by which texts are looked up; `Stimulus/S101`, `S 101` and `101` are one code."""
    if name == "code":
        marker, bare = split_type(value)
        value = spellings(bare)[-1] if marker in ("", "Stimulus/", "Comment/") else marker + bare
    return _plain(value)


def _plain(value: str) -> str:
    """`01`, `1` and `1.0` are one number."""
    value = value.strip().removesuffix(".0")
    return value.lstrip("0") or "0" if value.isdecimal() else value


def readings(
    file: RawFile, events: Sequence[Event], columns: Sequence[str], spec: RawSpec, texts: Texts | None
) -> tuple[list[Reading], collections.Counter[str]]:
    """The sentences of a recording in the order of time, and how many were dropped for which reason.

    Args:
      file: the recording.
      events: its events in the order of time.
      columns: those of its table of events; empty: they are annotations.
      spec: which events begin and end a sentence.
      texts: the table of texts, if there is one.

    Raises:
      UserError: no event can begin a sentence, or two sentences overlap.
    """
    dropped: collections.Counter[str] = collections.Counter()
    begins = _begins(file, events, columns, spec, texts)
    bad = [event for event in events if is_marked_bad(event)]
    found: list[Reading] = []
    for trial, (place, event) in enumerate(begins, 1):
        following = begins[trial][0] if trial < len(begins) else len(events)
        end = _end(event, events[place + 1 : following], spec)
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
        if found and event.onset < found[-1].end - 1e-6:
            raise UserError(_overlap(file, found[-1], Reading(text, event.onset, end), spec))
        found.append(Reading(text, event.onset, end, words))
    return found, dropped


def _overlap(file: RawFile, first: Reading, second: Reading, spec: RawSpec) -> str:
    """What overlaps, and what to do about it: words are often annotated within their sentence."""
    said = " and ".join(f"{one.text[:40]!r} ({one.begin:g} to {one.end:g} s)" for one in (first, second))
    said = f"{file.path}: the sentences {said} overlap; "
    mend = "mend the events, or name the code that ends a sentence with data.raw.end."
    word, sentence = sorted((first, second), key=lambda one: one.end - one.begin)
    inside = sentence.begin - 1e-6 <= word.begin and word.end <= sentence.end + 1e-6
    kind = sentence.text.partition("/")[0] if "/" in sentence.text else ""
    if spec.word or spec.begin or not inside or (len(word.text.split()) > len(sentence.text.split()) and not kind):
        return said + mend
    if {part.casefold() for part in word.text.split()} <= {part.casefold() for part in sentence.text.split()}:
        return (
            f"{said}{word.text!r} looks like a word of the sentence, annotated by its own text: give the annotations "
            f"of words a code that sentences have not, such as 'word/{word.text}', and name it with "
            f"data.raw.word='word/*'; else {mend}"
        )
    chosen = f"if sentences alone begin with '{kind}/', give data.raw.begin='{kind}/*'; " if kind else ""
    code = repr(word.text) if " " in word.text else word.text
    return f"{said}{chosen}if {word.text!r} marks a word, name the code of words with data.raw.word={code}; else {mend}"


def _begins(
    file: RawFile, events: Sequence[Event], columns: Sequence[str], spec: RawSpec, texts: Texts | None
) -> list[tuple[int, Event]]:
    """Events that begin a sentence, each with its place."""
    others = [pattern for pattern in (*spec.skip, spec.word, spec.end) if pattern]
    if spec.begin:
        return [(i, e) for i, e in enumerate(events) if e.match(spec.begin) and not any(map(e.match, spec.skip))]
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
        # An annotation without extent is a trigger, no sentence; so is an event whose code is its text.
        and ((columns and spec.text not in CODES) or spec.end or event.duration > 0)
    ]


def _end(event: Event, later: Sequence[Event], spec: RawSpec) -> float | None:
    """When a sentence ends, in seconds; None where nothing says it."""
    if spec.end:
        return next((other.onset for other in later if other.match(spec.end) and other.onset > event.onset), None)
    return event.onset + event.duration if event.duration > 0 else None


def _text(file: RawFile, event: Event, trial: int, columns: Sequence[str], spec: RawSpec, texts: Texts | None) -> str:
    if texts is not None:
        return texts.find(file, trial, event.codes)
    if columns and spec.text in columns:
        return split_type(event.columns[spec.text])[1]
    match = event.match(spec.begin) if spec.begin else None
    if match is not None and match.groups():  # `sentence/*`: what stands in the place of the star
        return match.group(1)
    return "" if spec.begin else split_type(event.columns.get(spec.text, ""))[1]


def _words(begin: float, end: float, events: Sequence[Event], spec: RawSpec) -> tuple[Span, ...]:
    """Spans of the words or fixations of a sentence; one without a duration goes on until the next."""
    own = [event for event in events if begin <= event.onset < end and event.match(spec.word)]
    stops = [*(event.onset for event in own), end][1:]
    spans = [
        (event.onset, min(event.onset + event.duration if event.duration > 0 else stop, end))
        for event, stop in zip(own, stops, strict=True)
    ]
    return tuple(span for span in spans if span[1] > span[0])


def windows(reading: Reading, window: float, step: float) -> tuple[Span, ...]:
    """Windows of a sentence whose words have no times; a shorter sentence is one window."""
    count = int((reading.end - reading.begin - window) / step + 1e-9) + 1
    if count < 1 or reading.end - reading.begin < window:
        return ((reading.begin, reading.end),)
    starts = (reading.begin + i * step for i in range(count))
    return tuple((start, start + window) for start in starts)
