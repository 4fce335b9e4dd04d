"""What `prepare` read, kept and dropped, and notes on it."""

import collections
import dataclasses
import re
import statistics
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eeg2text_jax.data.datafile import Sample
from eeg2text_jax.errors import nearest

_MOST_ROWS = 120  # beyond, one row per task
SHOWN_TEXTS = 3
_CODE = re.compile(r"[A-Za-z]{0,2} *\d+(\.0)?|\w+?-?\d+")  # `S  8`, `101`, `event_1`
MARK = 5  # ratio of samples to the next text, from which a text may be a mark


@dataclasses.dataclass
class Tally:
    """Samples by (subject, task): how many were kept, and how many dropped for which reason.

    `sentences` counts the entries of each (subject, task) in its file, placeholders included. `notes` are messages for
    the user, `texts` the first different sentences, `unused` the columns of the source that were not used.
    """

    kept: collections.Counter[tuple[str, str]] = dataclasses.field(default_factory=collections.Counter)
    dropped: collections.Counter[tuple[str, str, str]] = dataclasses.field(default_factory=collections.Counter)
    sentences: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    texts: list[str] = dataclasses.field(default_factory=list)
    unused: list[str] = dataclasses.field(default_factory=list)
    _of_text: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def count(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Pass samples on and count them."""
        for sample in samples:
            self.kept[sample.subject, sample.task] += 1
            self._of_text[sample.sentence] += 1
            if len(self.texts) < SHOWN_TEXTS and sample.sentence not in self.texts:
                self.texts.append(sample.sentence)
            yield sample

    def not_used(self, names: Sequence[str], used: Sequence[str], where: str, roles: Mapping[str, str]) -> None:
        """Note unused columns of a source, and which of them may stand for a missing one.

        Args:
          names: all columns of the source.
          used: the used ones.
          where: the source, for the note.
          roles: field of `config.data.columns` -> the optional column that it names.
        """
        self.unused += [name for name in names if name not in used]
        if not self.unused:
            return
        said = [f"{where}: columns not used: {', '.join(self.unused)}"]
        for field, name in roles.items():
            if name not in names and (near := nearest(name, self.unused, 0.6)):
                said.append(f"if {near!r} is the {field}, give data.columns.{field}={near}")
        self.notes.append(f"{'; '.join(said)}.")

    def drops(self, subject: str = "", task: str = "") -> dict[str, int]:
        """Return dropped samples by reason, most frequent first; of one subject and task if given."""
        reasons: collections.Counter[str] = collections.Counter()
        for (of_subject, of_task, reason), n in self.dropped.items():
            if subject in ("", of_subject) and task in ("", of_task):
                reasons[reason] += n
        return dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))

    def table(self) -> str:
        """Return one line per subject and task with the reasons for drops, and the sum."""
        pairs = sorted(self.kept.keys() | {key[:2] for key in self.dropped}, key=lambda pair: pair[::-1])
        if len(pairs) > _MOST_ROWS:
            pairs = [("", task) for task in sorted({task for _, task in pairs})]
        lines = [f"{'subject':<10} {'task':<8} {'read':>7} {'kept':>7} {'dropped':>8}"]
        for subject, task in [*pairs, ("", "")]:
            kept = sum(n for key, n in self.kept.items() if subject in ("", key[0]) and task in ("", key[1]))
            drops = self.drops(subject, task)
            dropped = sum(drops.values())
            why = ", ".join(f"{reason} {n}" for reason, n in drops.items())
            line = f"{subject or 'all':<10} {task or 'all':<8} {kept + dropped:>7} {kept:>7} {dropped:>8}  {why}"
            lines.append(line.rstrip())
        return "\n".join(lines)

    def report(self) -> str:
        """Return the table and the first texts."""
        notes = [f"note: {note}" for note in mark_notes(self._of_text.elements())]
        return "\n".join([self.table(), *([first_texts(self.texts)] if self.texts else []), *notes])


def are_codes(texts: Iterable[str]) -> bool:
    """Return whether three or more texts are all numbers, or words with a number, like codes of triggers."""
    different = set(texts)
    return len(different) >= 3 and all(len(text) < 40 and _CODE.fullmatch(text) for text in different)


def mark_notes(texts: Iterable[str]) -> list[str]:
    """Return a note on texts that look like codes, or on a text so frequent that it is a mark, not a sentence."""
    counts = collections.Counter(texts)
    if are_codes(counts):
        return [
            f"all {len(counts)} texts look like codes of triggers, such as {min(counts)!r}; data.raw.texts names a "
            "table of the texts by `code` or `trial`."
        ]
    if len(counts) < 3:
        return []
    (text, most), (_, second) = counts.most_common(2)
    if most < MARK * second or most < MARK * statistics.median(counts.values()):
        return []
    return [
        f"{text[:60]!r} is the text of {most} of {counts.total()} samples, the next most frequent one of {second}: if "
        "it is a mark and no sentence, such as a fixation cross, name it in data.raw.skip."
    ]


def first_texts(texts: Iterable[str]) -> str:
    """Return a line with the first different texts."""
    shown = list(dict.fromkeys(texts))[:SHOWN_TEXTS]
    return f"first texts: {' | '.join(textwrap.shorten(text, 100, placeholder=' ...') for text in shown)}"
