"""Find the sentences of a recording among its events: text, times, and spans of words."""

import collections
import dataclasses
from collections.abc import Sequence

from eeg2text_jax.data.raw.events import CODES, MISSING, Event, is_marked_bad, split_type
from eeg2text_jax.data.raw.find import RawFile, RawSpec, stem_of
from eeg2text_jax.data.raw.texts import Texts
from eeg2text_jax.data.tally import are_codes
from eeg2text_jax.errors import UserError, shortlist

NO_END = "no end"
NO_TEXT = "no text"
NO_WORD = "no word"
MARKED_BAD = "marked bad"
LONGEST = 120.0  # seconds; a longer sentence suggests that times are in milliseconds
Span = tuple[float, float]  # start and end, seconds


@dataclasses.dataclass(frozen=True)
class Reading:
    """One sentence in a recording, from `begin` to `end` in seconds; `words` are empty if words have no times."""

    text: str
    begin: float
    end: float
    words: tuple[Span, ...] = ()


def readings(
    file: RawFile, events: Sequence[Event], columns: Sequence[str], spec: RawSpec, texts: Texts | None
) -> tuple[list[Reading], collections.Counter[str]]:
    """Return the sentences of a recording in order of time, and the counter of dropped ones (reason -> number).

    Args:
      file: the recording.
      events: its events in order of time.
      columns: columns of its table of events; empty for annotations.
      spec: says which events begin and end a sentence.
      texts: the user's table of texts; None if the events themselves have the texts.

    Raises:
      UserError: no event can begin a sentence, or two sentences overlap.
    """
    dropped: collections.Counter[str] = collections.Counter()
    begins = _begins(file, events, columns, spec)
    if texts is not None:
        texts.check_trials(file, len(begins))
    bad = [event for event in events if is_marked_bad(event)]
    found: list[Reading] = []
    previous = ""  # code of the sentence before; "" for annotations
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
        code = event.codes[0] if columns and event.codes else ""
        reading = Reading(text, event.onset, end, words)
        if found and event.onset < found[-1].end - 1e-6:
            raise UserError(_overlap(file, found[-1], reading, spec, (previous, code)))
        previous = code
        found.append(reading)
    if texts is not None and spec.seconds_per_character and found:
        shown = [reading.end - reading.begin for reading in found]
        texts.check_durations(file, shown, [reading.text for reading in found], spec.seconds_per_character)
    return found, dropped


def no_sentence(file: RawFile, events: Sequence[Event], spec: RawSpec) -> str:
    """Return a message that explains why no event of a recording begins a sentence."""
    events = [event for event in events if not is_marked_bad(event)]
    codes = list(dict.fromkeys(code for event in events for code in event.codes))
    if not codes:
        table = file.path.with_name(f"{stem_of(file.path)}_events.tsv")
        return f"{file.path}: has no annotations, and there is no table of events {table.name} (or .csv) beside it."
    why = ""
    if not spec.begin and not any(event.duration for event in events):
        why = " and none has a duration, so give data.raw.end, the code that ends a sentence"
    begin = f"{file.path}: no event begins a sentence (data.raw.begin is {spec.begin!r})"
    return f"{begin}{why}; the codes of its events are {shortlist(codes)}."


def refuse_codes(file: RawFile, texts: Sequence[str]) -> None:
    """Raise UserError if the texts of all annotations look like codes of triggers."""
    if are_codes(texts):
        shown = ", ".join(list(dict.fromkeys(texts))[:3])
        raise UserError(
            f"{file.path}: its annotations are no texts but look like codes ({shown}, ...); give "
            "data.raw.begin, the code that begins a sentence ('*': any), and data.raw.texts, a table of texts by "
            "`code` or `trial`."
        )


def _overlap(file: RawFile, first: Reading, second: Reading, spec: RawSpec, codes: tuple[str, str]) -> str:
    """Return the message on two overlapping sentences; the shorter one may be an annotated word of the longer one.

    `codes` are the codes of both in a table of events; "" for annotations.
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
    if inside and codes[word is second] not in ("", codes[word is first]) and not spec.word:
        code = codes[word is second]
        return f"{what}if {code!r} marks a word, name the code of words with data.raw.word={code}; else {advice}"
    if spec.word or spec.begin or not inside or (len(word.text.split()) > len(sentence.text.split()) and not kind):
        return what + advice
    if {part.casefold() for part in word.text.split()} <= {part.casefold() for part in sentence.text.split()}:
        return (
            f"{what}{word.text!r} looks like a word of the sentence, annotated by its own text: give the annotations "
            f"of words a code that sentences do not have, such as 'word/{word.text}', and name it with "
            f"data.raw.word='word/*'; else {advice}"
        )
    chosen = f"if only sentences begin with '{kind}/', give data.raw.begin='{kind}/*'; " if kind else ""
    code = repr(word.text) if " " in word.text else word.text
    return (
        f"{what}{chosen}if {word.text!r} marks a word, name the code of words with data.raw.word={code}; else {advice}"
    )


def _begins(file: RawFile, events: Sequence[Event], columns: Sequence[str], spec: RawSpec) -> list[tuple[int, Event]]:
    """Return the events that begin a sentence, each with its index in `events`."""
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
        # Unless `spec.end` is set, an annotation without duration is a trigger, no sentence; so is an event of a table
        # without duration, if its text would come from a column of codes.
        and ((columns and spec.text not in CODES) or spec.end or event.duration > 0)
    ]


def _end(event: Event, later: Sequence[Event], spec: RawSpec) -> float | None:
    """Return the end of the sentence that `event` begins, in seconds; None if unknown."""
    if spec.end:
        return next((other.onset for other in later if other.match(spec.end) and other.onset > event.onset), None)
    return event.onset + event.duration if event.duration > 0 else None


def _text(file: RawFile, event: Event, trial: int, columns: Sequence[str], spec: RawSpec, texts: Texts | None) -> str:
    """Return the text of the sentence that `event` begins, or ""; `trial` is its number from 1."""
    if texts is not None:
        return texts.find(file, trial, event.codes)
    if columns and spec.text in columns:
        return split_type(event.columns[spec.text])[1]
    match = event.match(spec.begin) if spec.begin else None
    if match is not None and match.groups():  # `sentence/*`: the text in the place of the star
        return match.group(1)
    return "" if spec.begin else split_type(event.columns.get(spec.text, ""))[1]


def _words(begin: float, end: float, events: Sequence[Event], spec: RawSpec) -> tuple[Span, ...]:
    """Return the spans of a sentence's words or fixations; an event without duration lasts until the next one."""
    own = [event for event in events if begin <= event.onset < end and event.match(spec.word)]
    stops = [*(event.onset for event in own), end][1:]
    spans = [
        (event.onset, min(event.onset + event.duration if event.duration > 0 else stop, end))
        for event, stop in zip(own, stops, strict=True)
    ]
    return tuple(span for span in spans if span[1] > span[0])


def windows(reading: Reading, window: float, step: float) -> tuple[Span, ...]:
    """Return windows (start, end) of `window` seconds every `step` seconds; a shorter sentence is one window."""
    count = int((reading.end - reading.begin - window) / step + 1e-9) + 1
    if count < 1 or reading.end - reading.begin < window:
        return ((reading.begin, reading.end),)
    starts = (reading.begin + i * step for i in range(count))
    return tuple((start, start + window) for start in starts)
