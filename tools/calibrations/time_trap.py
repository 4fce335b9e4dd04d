"""The trap of block designs, shown and caught: made-up recordings, a decoder by nearest neighbors, the audit.

    python tools/calibrations/time_trap.py --seeds 20

prints a table: for each design (slow drift or planted words, in blocks of a kind of sentence or in random order) how
many seeds end in the right verdict, by text and by retrieval. The decoder is trained as any other, on pairs of
recordings and texts: it writes the text of the training recording of the same subject whose mean features are nearest.
`--fmri` does the same with scans of stories, whose scenes have words of their own: windows that share no text, of which
some between those of training are tested.
"""

import argparse
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.data.clock import Clock, known_time
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.planted import SyntheticSpec, synthetic_samples
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import sample_ids
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.result import AuditResult
from eeg2text_jax.instrument.auditing.verdict import Time, Verdict
from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_jax.instrument.predictions.rankings import Candidates, Ranking
from eeg2text_jax.training.conditions._donors import clock_features, donor_table, nearest_texts, neighbor_table
from eeg2text_jax.training.configuration import load_config

BASE = SyntheticSpec(signal=0.0, sentences=600, subjects=3, tasks=1, features=48, vocabulary=240, groups=6,
                     order="blocks", drift=2.0, seed=0)  # fmt: skip
# design -> changes, whether the usual audit shall say "uses EEG", and whether content goes beyond its time
DESIGNS = {
    "drift in blocks": ({}, True, False),
    "drift in random order": ({"order": "random"}, False, False),
    "words in blocks": ({"signal": 1.0, "drift": 0.0}, True, True),
    "words and drift in blocks": ({"signal": 1.0, "drift": 0.5}, True, True),
}
SCANS = {"subjects": 3, "stories": 8, "heard": 8, "frames": 200, "grid": (6, 6, 5), "vocabulary": 120, "groups": 4}
WINDOWS = {"lag_tr": 3, "detrend": 2, "mask": 0.2, "window": 5, "stride": 5, "dtype": "float32"}
SCAN_DESIGNS = {
    "drift, scenes": ({"signal": 0.0, "drift": 2.0}, True, False),
    "drift, no scenes": ({"signal": 0.0, "drift": 2.0, "groups": 1}, False, False),
    "words, scenes": ({"signal": 1.0, "drift": 0.0}, True, True),
    "words and drift, scenes": ({"signal": 1.0, "drift": 0.2}, True, True),
}
RATIO = (0.7, 0.05, 0.25)
USUAL, OF_TIME = ("shuffled",), ("shuffled", "clock", "nearest_in_time", "neighbor")


def made(spec: SyntheticSpec) -> DataFile:
    samples = list(synthetic_samples(spec))
    lengths = [len(sample.features) for sample in samples]
    columns = {name: np.array([getattr(s, name) for s in samples], object) for name in ("sentence", "subject", "task")}
    time = ("recording", "onset", "duration", "order")
    return DataFile(
        path="made-up",
        features=np.concatenate([s.features for s in samples]).astype(np.float32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        sentence_index=np.array([s.sentence_index for s in samples]),
        features_are="made up",
        provenance={},
        clock=Clock.of({name: [getattr(s, name) for s in samples] for name in time}),
        **columns,
    )


def scanned(seed: int, **changes: object) -> DataFile:
    """Made-up scans, written as a BIDS tree and read as any other, in memory."""
    config = load_config("default").data
    with config.unlocked(), tempfile.TemporaryDirectory() as folder:
        config.source = "synthetic-fmri"
        config.synthetic_fmri.update({**SCANS, **changes, "seed": seed})
        config.fmri.update(WINDOWS)
        prepare(read_section(DataSettings, config), path := Path(folder) / "scans.h5")
        data = read_datafile(path)
        return dataclasses.replace(data, features=data.features[0 : len(data.features)])


def copied(data: DataFile, parts: list[np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """For each condition, the training samples whose texts the decoder writes for the test part, the last one."""
    train, _, test = parts
    donors = donor_table(data, parts, seed).donor
    means = np.stack([data.words(i).mean(0).ravel() for i in range(len(data))])

    def nearest(features: np.ndarray, fed: np.ndarray) -> np.ndarray:
        apart = ((features[fed][:, None] - features[train][None]) ** 2).sum(2)
        return train[np.where(data.subject[fed][:, None] == data.subject[train][None], apart, np.inf).argmin(1)]

    return {
        "eeg": nearest(means, test),
        "shuffled": nearest(means, donors[test]),
        "clock": nearest(clock_features(data, train, seed), test),
        "neighbor": nearest(means, neighbor_table(data, parts, donors).donor[test]),
        "nearest_in_time": nearest_texts(data, train, test)[0],
    }


def rows_of(data: DataFile, test: np.ndarray, texts: np.ndarray, condition: str) -> Iterator[Prediction]:
    ids = sample_ids(data.subject, data.sentence_id)
    trained = "clock" if condition == "clock" else "eeg"
    for i, near in zip(test.tolist(), texts.tolist(), strict=True):
        about = (ids[i], str(data.subject[i]), str(data.task[i]), str(data.sentence_id[i]), int(data.n_words[i]))
        yield Prediction(*about, trained, condition, 0, "free_running", str(data.sentence[i]),
                         str(data.sentence[near]), **known_time(data.clock, i))  # fmt: skip


def ranked(data: DataFile, test: np.ndarray, rows: list[Prediction]) -> list[Ranking]:
    """Candidates of the test part by how many words they share with the text that was written (cosine)."""
    references = list(dict.fromkeys(data.sentence[test].tolist()))
    first = {text: int(test[np.flatnonzero(data.sentence[test] == text)[0]]) for text in references}
    places = [first[text] for text in references]
    lengths = np.array([len(text.split()) for text in references], float)
    tasks = data.task[places].astype(str)
    candidates = Candidates("test", tuple(references), tuple(data.sentence_id[places]), tuple(tasks.tolist()),
                            lengths, np.unique(tasks, return_inverse=True)[1])  # fmt: skip
    bags = [frozenset(text.split()) for text in references]

    def scores(text: str) -> np.ndarray:
        own = frozenset(text.split())
        return np.array([len(own & bag) / np.sqrt(len(own) * len(bag)) for bag in bags])

    return [
        Ranking(**{**vars(row), "mode": "contrastive"}, scores=scores(row.prediction), candidates=candidates)
        for row in rows
    ]


def audits(design: str, seed: int) -> dict[str, AuditResult]:
    """The audits of one seed: by text and by retrieval, with the usual control and with those of time."""
    if design in DESIGNS:
        data = made(dataclasses.replace(BASE, seed=seed, **DESIGNS[design][0]))
    else:
        data = scanned(seed, **SCAN_DESIGNS[design][0])
    options = {"recording": data.recording}
    # Method `d` gives a window of a story to one part in all scans; all windows of a story are one text to the other.
    split = make_split(data, "d" if data.is_windows else "unique_text", RATIO, seed)
    parts, test = [split.parts[name] for name in ("train", "dev", "test")], split.parts["test"]
    rows = {name: list(rows_of(data, test, texts, name)) for name, texts in copied(data, parts, seed).items()}
    found = {}
    for kind, controls in (("usual", USUAL), ("time", OF_TIME)):
        found[f"{kind}, text"] = audit(rows["eeg"], {name: rows[name] for name in controls}, **options)
        lists = {name: ranked(data, test, rows[name]) for name in ("eeg", *controls)}
        found[f"{kind}, retrieval"] = audit(lists.pop("eeg"), lists, **options)
    return found


def right(design: str, found: dict[str, AuditResult]) -> dict[str, bool]:
    """Whether each audit says what it should: uses EEG or not; beyond its time or not."""
    _, uses, beyond = (DESIGNS | SCAN_DESIGNS)[design]
    said = {name: result.verdict.base is Verdict.USES_EEG for name, result in found.items()}
    for kind in ("text", "retrieval"):
        result = found[f"time, {kind}"]
        goes = said[f"time, {kind}"] and result.verdict.time is Time.BEYOND
        said[f"time, {kind}"] = goes == beyond
        said[f"usual, {kind}"] = said[f"usual, {kind}"] == uses
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--fmri", action="store_true", help="scans of stories in place of EEG")
    flags = parser.parse_args()
    lines = []
    for design in SCAN_DESIGNS if flags.fmri else DESIGNS:
        counts: dict[str, int] = {}
        for seed in range(flags.seeds):
            found = audits(design, seed)
            for name, ok in right(design, found).items():
                counts[name] = counts.get(name, 0) + ok
        shares = " | ".join(f"{counts[name]}/{flags.seeds}" for name in sorted(counts))
        lines.append(f"| {design} | {shares} |")
        print(lines[-1], flush=True)
    print(f"\nright verdicts\n| design | {' | '.join(sorted(counts))} |\n| --- | --- | --- | --- | --- |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
