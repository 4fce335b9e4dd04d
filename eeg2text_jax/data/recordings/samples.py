"""Convert ZuCo's subject files to samples, one file at a time, and count every dropped sentence."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from eeg2text_jax import kinds
from eeg2text_jax.data.recordings.features import (
    BANDS,
    CHANNELS,
    LARGEST,
    MEASURES,
    Dropped,
    Fields,
    Sentence,
    UnreadableRecording,
    default_sample,
    wang_ji_sample,
)
from eeg2text_jax.data.recordings.mat_v5 import read_mat_v5
from eeg2text_jax.data.recordings.mat_v73 import read_mat_v73
from eeg2text_jax.data.recordings.sources import TASKS, RecordingFile, find_recordings, layout, refuse_duplicates
from eeg2text_jax.data.recordings.wang_ji_pickle import read_pickle
from eeg2text_jax.data.source import Sample
from eeg2text_jax.data.tally import Tally
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest

WANG_JI = "wang-ji"


@dataclasses.dataclass(frozen=True)
class RecordingSpec:
    """Settings for reading ZuCo's recordings: the fields of `config.data.recordings`."""

    measure: Annotated[str, kinds.one_of(*MEASURES)]
    bands: Annotated[tuple[str, ...], kinds.many(kinds.one_of(*BANDS))]
    non_words: Annotated[str, kinds.one_of("keep", "skip")]
    zscore: Annotated[bool, kinds.flag()]
    compat: Annotated[str, kinds.one_of("", WANG_JI)]
    exclude: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    task: Annotated[str, kinds.one_of("", *TASKS)]
    strict: Annotated[bool, kinds.flag()]

    def __post_init__(self) -> None:
        if self.compat and self.measure not in ("GD", "FFD", "TRT"):
            raise UserError(
                f"data.recordings.measure is {self.measure}; with data.recordings.compat={WANG_JI}, expected GD, FFD "
                "or TRT."
            )

    @property
    def features_are(self) -> str:
        """The meaning of a sample's F columns."""
        unit = "z-scores per word" if self.zscore else "µV"
        return f"{self.measure} band amplitudes ({unit}), {' '.join(self.bands)} x {CHANNELS} channels, band-major"


class Recordings:
    """The samples of ZuCo's files, ordered by task, subject, sentence; iterating completes `tally` and `provenance`.

    A file is read completely before its first sample is yielded, so a damaged file yields none. The constructor raises
    UserError for an unusable source; iterating raises it if no sample is found, or, with `strict`, for a damaged file.
    """

    def __init__(self, sources: Sequence[str], spec: RecordingSpec, tally: Tally):
        self._spec, self._fields, self._tally = spec, Fields(spec.measure, spec.bands), tally
        self._files, notes = find_recordings(sources, spec.task)
        tally.notes += notes
        self._done: list[tuple[str, str, Path]] = []  # subject, task and file of what was read
        self._texts: dict[str, tuple[str, list[str]]] = {}  # task -> (first subject, texts of all its sentences)
        self.provenance: dict[str, Any] = {"source": "recordings", **dataclasses.asdict(spec), "files": []}

    def __iter__(self) -> Iterator[Sample]:
        problems = []
        for number, file in enumerate(self._files, 1):
            if file.subject in self._spec.exclude:
                self._tally.notes.append(f"{file.path}: left out, data.recordings.exclude names {file.subject}.")
                continue
            try:
                samples = self._read(file)
            except UnreadableRecording as error:
                if self._spec.strict:
                    raise
                problems.append(str(error))
                self._tally.notes.append(f"LEFT OUT: {error}")
                print(f"[{number}/{len(self._files)}] {file.path}: LEFT OUT, see below", file=sys.stderr)
                continue
            print(f"[{number}/{len(self._files)}] {file.path}: {len(samples)} samples", file=sys.stderr)
            yield from samples
        if not self._tally.kept:
            drops = ", ".join(f"{reason} {n}" for reason, n in self._tally.drops().items())
            raise UserError(f"no sample to write: {problems[0] if problems else f'all were dropped ({drops}).'}")
        entries: dict[str, dict[str, int]] = {}  # task -> subject -> number of sentences, placeholders included
        for (subject, task), n in self._tally.sentences.items():
            entries.setdefault(task, {})[subject] = n
        self.provenance |= {"sentences": entries, "dropped": self._tally.drops(), "notes": list(self._tally.notes)}

    def _read(self, file: RecordingFile) -> list[Sample]:
        how = layout(file.path)
        tally = Tally()  # of this file alone, so that a damaged file adds nothing
        samples: list[Sample] = []
        if how == "pickle":
            sentences_of = read_pickle(file.path, self._fields)
            refuse_duplicates([*self._done, *((subject, file.task, file.path) for subject in sentences_of)])
            while sentences_of:
                subject, sentences = sentences_of.popitem(last=False)
                if subject not in self._spec.exclude:
                    samples += self._subject(file, subject, iter(sentences), how, tally)
        else:
            read = read_mat_v5 if how == "mat-v5" else read_mat_v73
            refuse_duplicates([*self._done, (file.subject, file.task, file.path)])
            samples += self._subject(file, file.subject, read(file.path, self._fields), how, tally)
        self._done += [(subject, task, file.path) for subject, task in tally.sentences]
        self._tally.sentences |= tally.sentences
        self._tally.dropped += tally.dropped
        self._tally.notes += tally.notes
        digest = file_digest(file.path)
        self.provenance["files"].append({"name": file.path.name, "task": file.task, "layout": how, "sha256": digest})
        return samples

    def _subject(
        self, file: RecordingFile, subject: str, sentences: Iterator[Sentence | None], how: str, tally: Tally
    ) -> list[Sample]:
        spec, samples, texts, other_tokens, absurd = self._spec, [], [], 0, 0
        for index, sentence in enumerate(sentences):
            texts.append(sentence.content if sentence else "")
            other_tokens += _has_other_tokens(sentence)
            try:
                if spec.compat:
                    features, text = wang_ji_sample(sentence, how, spec.zscore)
                    absurd += any(np.abs(band).max(initial=0) > LARGEST for word in sentence.words for band in word.eeg)
                else:
                    features, text = default_sample(sentence, spec.measure, spec.non_words, spec.zscore)
            except Dropped as reason:
                tally.dropped[subject, file.task, str(reason)] += 1
            else:
                recording = f"{subject}/{file.task}"  # files have no onsets, sentences are in the order of the task
                samples.append(Sample(features, text, subject, file.task, index, recording, order=index))
        tally.sentences[subject, file.task] = len(texts)
        who = f"{file.path} ({subject}, {file.task})"
        if other_tokens:
            tally.notes.append(f"{who}: in {other_tokens} sentences the words are not the tokens of the text.")
        if absurd:
            tally.notes.append(f"{who}: {absurd} sentences kept with values above {LARGEST:g} µV.")
        tally.notes += self._compare(who, subject, file.task, texts)
        return samples

    def _compare(self, who: str, subject: str, task: str, texts: list[str]) -> list[str]:
        """Return notes on sentences whose text differs from that of the task's first subject at the same index."""
        first, reference = self._texts.setdefault(task, (subject, texts))
        notes = []
        if len(texts) != len(reference):
            notes.append(f"{who}: has {len(texts)} sentences, {first} has {len(reference)}; matched by index.")
        other = [i for i, (a, b) in enumerate(zip(texts, reference, strict=False)) if a and b and a != b]
        if other:
            notes.append(
                f"{who}: {len(other)} sentences have another text than {first}'s of the same index "
                f"(the first is {other[0]}: {texts[other[0]][:40]!r}, {reference[other[0]][:40]!r}); matched by index, "
                "so do not split by index."
            )
        return notes


def _has_other_tokens(sentence: Sentence | None) -> bool:
    """Return whether a sentence's text and its list of words differ in their tokens that have a letter or digit."""
    if sentence is None or sentence.words is None:
        return False
    in_text, in_words = (
        [token for token in tokens if any(map(str.isalnum, token))]
        for tokens in (sentence.content.split(" "), sentence.tokens)
    )
    return in_text != in_words
