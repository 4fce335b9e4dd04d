"""Turn events into sentences with texts, times and words, and count the events that give none."""

import collections
import dataclasses
from collections.abc import Sequence

from eeg2text_jax.data.raw.choices import RawSpec
from eeg2text_jax.data.raw.events import CODES, MISSING, Event, is_marked_bad, split_type
from eeg2text_jax.data.raw.find import RawFile, stem_of
from eeg2text_jax.data.raw.texts import Texts
from eeg2text_jax.data.tally import are_codes
from eeg2text_jax.errors import UserError, shortlist

NO_END = "no end"
NO_TEXT = "no text"
NO_WORD = "no word"
MARKED_BAD = "marked bad"
LONGEST = 120.0  # seconds; a longer sentence suggests another unit
FEWEST = 3  # sentences; fewer may have equal times by chance
MILLISECONDS = "are durations in ms? expected seconds."
Span = tuple[float, float]  # seconds


@dataclasses.dataclass(frozen=True)
class Reading:
    """One sentence in a recording; `words` are empty if words have no times."""

    text: str
    begin: float
    end: float
    words: tuple[Span, ...] = ()


def readings(
    file: RawFile, events: Sequence[Event], columns: Sequence[str], spec: RawSpec, texts: Texts | None
) -> tuple[list[Reading], collections.Counter[str]]:
    """Return the sentences of a recording in order of time, and the number of drops by reason.

    Args:
      file: the recording.
      events: its events in order of time.
      columns: those of its table of events; empty for annotations.
      spec: which events begin and end a sentence.
      texts: the table of texts, if any.

    Raises:
      UserError: no event can begin a sentence, or two sentences overlap.
    """
    dropped: collections.Counter[str] = collections.Counter()
    begins = _begins(file, events, columns, spec, texts)
    if texts is not None:
        texts.check_trials(file, len(begins))
    bad = [event for event in events if is_marked_bad(event)]
    found: list[Reading] = []
    previous = ""  # code of the last sentence in a table
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
            both = (previous, event.codes[0] if columns and event.codes else "")
            raise UserError(_overlap(file, found[-1], Reading(text, event.onset, end), spec, both))
        previous = event.codes[0] if columns and event.codes else ""
        found.append(Reading(text, event.onset, end, words))
    return found, dropped


def no_sentence(file: RawFile, events: Sequence[Event], spec: RawSpec) -> str:
    """Explain why no event of a recording begins a sentence."""
    events = [event for event in events if not is_marked_bad(event)]
    codes = list(dict.fromkeys(code for event in events for code in event.codes))
    if not codes:
        table = file.path.with_name(f"{stem_of(file.path)}_events.tsv")
        return f"{file.path}: has no annotations, and there is no table of events {table.name} (or .csv) beside it."
    why = ""
    if not spec.begin and not any(event.duration for event in events):
        why = " and none has a duration, so give data.raw.end, the code that ends a sentence"
    begin = f"{file.path}: no event begins a sentence (data.raw.begin is {spec.begin!r})"
    return f"{begin}{why}; its codes are {shortlist(codes)}."


def refuse_codes(file: RawFile, texts: Sequence[str]) -> None:
    """Raise UserError if all texts of annotations are codes, as of triggers with durations."""
    if are_codes(texts):
        shown = ", ".join(list(dict.fromkeys(texts))[:3])
        raise UserError(
            f"{file.path}: its annotations are no texts but look like codes ({shown}, ...); give "
            "data.raw.begin, the code that begins a sentence ('*': any), and data.raw.texts, a table of texts by "
            "`code` or `trial`."
        )


def _overlap(file: RawFile, first: Reading, second: Reading, spec: RawSpec, codes: tuple[str, str]) -> str:
    """Describe two overlapping sentences and a fix: words are often annotated within their sentence.

    `codes` are those of the two in a table of events, or "".
    """
    said = " and ".join(f"{one.text[:40]!r} ({one.begin:g} to {one.end:g} s)" for one in (first, second))
    said = f"{file.path}: the sentences {said} overlap; "
    mend = "mend the events, or name the code that ends a sentence with data.raw.end."
    word, sentence = sorted((first, second), key=lambda one: one.end - one.begin)
    inside = sentence.begin - 1e-6 <= word.begin and word.end <= sentence.end + 1e-6
    kind = sentence.text.partition("/")[0] if "/" in sentence.text else ""
    if word.end - word.begin > LONGEST:
        return f"{said}they last {word.end - word.begin:g} and {sentence.end - sentence.begin:g} s: {MILLISECONDS}"
    if inside and codes[word is second] not in ("", codes[word is first]) and not spec.word:
        code = codes[word is second]
        return f"{said}if {code!r} marks a word, name the code of words with data.raw.word={code}; else {mend}"
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
    """Return the events that begin a sentence, each with its place."""
    others = [pattern for pattern in (*spec.skip, spec.word, spec.end) if pattern]
    if spec.begin:
        others = [pattern for pattern in others if pattern != spec.begin]
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
        # An annotation without extent is a trigger, no sentence; so is an event whose code is its text.
        and ((columns and spec.text not in CODES) or spec.end or event.duration > 0)
    ]


def _end(event: Event, later: Sequence[Event], spec: RawSpec) -> float | None:
    """Return when a sentence ends, in seconds; None if unknown."""
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
    """Return the spans of the words or fixations of a sentence; without a duration, one lasts until the next."""
    own = [event for event in events if begin <= event.onset < end and event.match(spec.word)]
    stops = [*(event.onset for event in own), end][1:]
    spans = [
        (event.onset, min(event.onset + event.duration if event.duration > 0 else stop, end))
        for event, stop in zip(own, stops, strict=True)
    ]
    return tuple(span for span in spans if span[1] > span[0])


def windows(reading: Reading, window: float, step: float) -> tuple[Span, ...]:
    """Return the windows of a sentence whose words have no times; a shorter sentence is one window."""
    count = int((reading.end - reading.begin - window) / step + 1e-9) + 1
    if count < 1 or reading.end - reading.begin < window:
        return ((reading.begin, reading.end),)
    starts = (reading.begin + i * step for i in range(count))
    return tuple((start, start + window) for start in starts)


class SameTimes:
    """Detect recordings with the same sentences at the same times, such as raw and filtered copies."""

    def __init__(self) -> None:
        self._first: dict[tuple[tuple[str, float], ...], RawFile] = {}
        self._again: list[tuple[RawFile, RawFile]] = []

    def add(self, file: RawFile, sentences: Sequence[Reading]) -> None:
        """Add the sentences of a recording, in order of time."""
        key = tuple((reading.text, round(reading.begin, 3)) for reading in sentences)
        first = self._first.setdefault(key, file)
        if first is not file and len(key) >= FEWEST:
            self._again.append((first, file))

    def notes(self) -> list[str]:
        """Return a note if there are such recordings."""
        if not self._again:
            return []
        first, second = self._again[0]
        return [
            f"{len(self._again)} recordings have the sentences of another one at the same times, such as "
            f"{second.path.name} ({second.subject}) those of {first.path.name} ({first.subject}); if they are copies, "
            "such as filtered ones, prepare one of each."
        ]
