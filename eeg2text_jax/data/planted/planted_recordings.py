"""Synthetic raw EEG of reading, written by MNE in common file formats: pink noise, with words encoded as band power.

Each word of a small vocabulary has a code: the channels and bands in which oscillations have a higher amplitude while
the word is read. With `planted=False` the code of a random word takes its place, so the signal does not tell the words.
"""

import dataclasses
from pathlib import Path

import numpy as np

VOCABULARY = ("amber", "brook", "cedar", "delta", "ember", "field", "grove", "haven", "isle", "jetty", "knoll", "larch")
BANDS = ((13.5, 18.0), (18.5, 30.0), (30.5, 40.0), (40.0, 49.5))  # Hz, bands of ZuCo whose filters settle within a word
WORD, PAUSE = 0.5, 1.5  # seconds of a word, and between sentences


@dataclasses.dataclass(frozen=True)
class Plan:
    """The sentences of a recording and their onsets, equal for all subjects."""

    sentences: tuple[tuple[int, ...], ...]  # indices in VOCABULARY
    begins: tuple[float, ...]  # seconds

    @classmethod
    def draw(cls, sentences: int, seed: int) -> "Plan":
        rng = np.random.default_rng([seed, 0])
        words: dict[tuple[int, ...], None] = {}
        while len(words) < sentences:
            words[tuple(map(int, rng.integers(len(VOCABULARY), size=rng.integers(4, 8))))] = None
        lengths = np.array([len(sentence) * WORD + PAUSE for sentence in words])
        begins = PAUSE + np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
        return cls(tuple(words), tuple(map(float, begins)))

    @property
    def seconds(self) -> float:
        return self.end(len(self.sentences) - 1) + PAUSE

    def end(self, i: int) -> float:
        return self.begins[i] + WORD * len(self.sentences[i])

    def text(self, i: int) -> str:
        return " ".join(VOCABULARY[word] for word in self.sentences[i])

    def word_times(self, i: int) -> list[float]:
        return [self.begins[i] + WORD * place for place in range(len(self.sentences[i]))]


def voltages(
    plan: Plan, subject: int, *, planted: bool, channels: int = 6, rate: float = 128.0, seed: int = 0
) -> np.ndarray:
    """Return the recording of a subject in volts, `[channels, samples]`."""
    codes = np.random.default_rng([seed, 1]).random((len(VOCABULARY), len(BANDS), channels)) < 0.4
    rng = np.random.default_rng([seed, 2, subject])
    n = int(plan.seconds * rate)
    spectrum = np.fft.rfft(rng.standard_normal((channels, n)))
    spectrum /= np.sqrt(np.maximum(np.fft.rfftfreq(n, 1 / rate), 0.5))  # power falls as 1/f
    noise = np.fft.irfft(spectrum, n)
    volts = 10 * noise / noise.std()
    time = np.arange(int(WORD * rate)) / rate
    swell = np.sin(np.pi * time / WORD)
    for i, sentence in enumerate(plan.sentences):
        for word, begin in zip(sentence, plan.word_times(i), strict=True):
            low, high = np.transpose(BANDS)[:, :, None]
            pitch = rng.uniform(low, high, (len(BANDS), channels))
            waves = np.sin(2 * np.pi * (pitch[..., None] * time + rng.random((len(BANDS), channels, 1))))
            own = codes[word] if planted else rng.permutation(codes.reshape(len(codes), -1))[0].reshape(codes[0].shape)
            start = round(begin * rate)
            volts[:, start : start + len(time)] += 12 * swell * (own[..., None] * waves).sum(0)
    return volts * 1e-6


def write_recordings(
    folder: Path, how: str, *, subjects: int = 4, sentences: int = 60, planted: bool = True, scale: float = 1.0,
    seed: int = 0,
) -> list[str]:  # fmt: skip
    """Write recordings, with tables or annotations that mark the sentences.

    Args:
      folder: created if missing.
      how: "fif" (annotations hold the texts), "edf" (a table of events has them), "brainvision" (codes, and a table of
        texts by trial) or "bids" (codes with durations of zero in tables with byte order marks, texts by code).
      scale: factor by which all voltages are multiplied.

    Returns:
      Command-line overrides of `config.data.raw` that `eeg2text prepare` and `run` need.
    """
    import mne  # an optional package

    folder.mkdir(parents=True, exist_ok=True)
    plan = Plan.draw(sentences, seed)
    for subject in range(subjects):
        volts = scale * voltages(plan, subject, planted=planted, seed=seed)
        info = mne.create_info(["Fz", "Cz", "Pz", "Oz", "C3", "C4"], 128.0, "eeg")
        raw = mne.io.RawArray(volts, info, verbose="error")
        _WRITERS[how](folder, f"S{subject + 1}", raw, plan)
    if how in ("brainvision", "bids"):
        key = "trial" if how == "brainvision" else "code"
        lines = [f"{key}\ttext", *(f"{i + (1 if key == 'trial' else 1000)}\t{plan.text(i)}" for i in range(sentences))]
        (folder / "texts.tsv").write_text("\n".join(lines) + "\n")
    fields = {"fif": {"word": "a word"}, "edf": {"word": "word"}}
    fields["brainvision"] = {"begin": "begin", "end": "end", "word": "word", "texts": str(folder / "texts.tsv")}
    fields["bids"] = {**fields["brainvision"], "begin": "1*", "end": "9"}
    return [f"--config.data.raw.{name}={value}" for name, value in fields[how].items()]


def _fif(folder: Path, subject: str, raw, plan: Plan) -> None:
    import mne

    marks = [(plan.begins[i], plan.end(i) - plan.begins[i], plan.text(i)) for i in range(len(plan.sentences))]
    marks += [(time, WORD, "a word") for i in range(len(plan.sentences)) for time in plan.word_times(i)]
    raw.set_annotations(mne.Annotations(*zip(*marks, strict=True)))
    raw.save(folder / f"{subject}_raw.fif", verbose="error", fmt="double")


def _edf(folder: Path, subject: str, raw, plan: Plan) -> None:
    raw.export(folder / f"{subject}.edf", verbose="error")
    lines = ["onset\tduration\ttrial_type\ttext"]
    for i in range(len(plan.sentences)):
        lines.append(f"{plan.begins[i]}\t{plan.end(i) - plan.begins[i]}\tsentence\t{plan.text(i)}")
        lines += [f"{time}\t{WORD}\tword\tn/a" for time in plan.word_times(i)]
    (folder / f"{subject}_events.tsv").write_text("\n".join(lines) + "\n")


def _brainvision(folder: Path, subject: str, raw, plan: Plan) -> None:
    raw.export(folder / f"{subject}.vhdr", verbose="error")
    (folder / f"{subject}_events.tsv").write_text(_codes(plan, lambda i: "begin", "end", mark=""))


def _bids(folder: Path, subject: str, raw, plan: Plan) -> None:
    import mne_bids

    raw.info["line_freq"] = 50
    path = mne_bids.BIDSPath(subject=subject, task="reading", datatype="eeg", root=folder)
    mne_bids.write_raw_bids(raw, path, format="BrainVision", allow_preload=True, overwrite=True, verbose="error")
    table = path.copy().update(suffix="events", extension=".tsv").fpath
    table.write_text(_codes(plan, lambda i: str(1000 + i), "9", mark="\ufeff"), encoding="utf8")


def _codes(plan: Plan, begin, end: str, mark: str) -> str:
    """Return the text of a table of events with codes and durations of 0, as triggers have; it begins with `mark`."""
    rows = []
    for i in range(len(plan.sentences)):
        rows.append((plan.begins[i], begin(i)))
        rows += [(time, "word") for time in plan.word_times(i)]
        rows.append((plan.end(i), end))
    return f"{mark}onset\tduration\tvalue\n" + "".join(f"{time}\t0.0\t{code}\n" for time, code in rows)


_WRITERS = {"fif": _fif, "edf": _edf, "brainvision": _brainvision, "bids": _bids}
