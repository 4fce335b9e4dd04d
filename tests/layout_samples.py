"""Small files of every layout, made of one piece of text a sample, so that tests know where each sample stands."""

import csv
import dataclasses
import io
import json

from eeg2text_jax.instrument.predictions.file import Prediction, write_predictions

REFERENCES = [
    "He was born in Ulm, Germany.",
    'She said "no" - twice.',
    "It's a film; a good one",
    "naïve café dwellers",
    "the end: of it",
    "two words",
]
FORCED = [f" with force {i}, it said" for i in range(6)]
FREE = [f"He was {number} times elected" for number in ("one", "two", "three", "four", "five", "six")]

Outcome = tuple[str, str, str, str]  # reference, evaluation condition, mode, prediction


@dataclasses.dataclass(frozen=True)
class LayoutSample:
    """A file: text before the first sample, a piece of text a sample, and what each piece should be read as."""

    name: str
    before: str
    pieces: list[str]
    outcomes: list[list[Outcome]]

    @property
    def text(self) -> str:
        return self.before + "".join(self.pieces)


def blocks(
    name: str, template: str, *, condition: str = "unknown", modes: tuple[str, ...] = ("unknown",)
) -> LayoutSample:
    texts = {"unknown": FREE, "free_running": FREE, "teacher_forced": FORCED}
    pieces = [template.format(r=r, tf=tf, free=free) for r, tf, free in zip(REFERENCES, FORCED, FREE, strict=True)]
    outcomes = [[(r, condition, mode, texts[mode][i]) for mode in modes] for i, r in enumerate(REFERENCES)]
    return LayoutSample(name, "", pieces, outcomes)


def table(name: str, header: list[str] | None, rows: list[list[str]], outcomes: list[list[Outcome]]) -> LayoutSample:
    def line(fields: list[str]) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(fields)
        return out.getvalue()

    return LayoutSample(name, line(header) if header else "", [line(row) for row in rows], outcomes)


def json_lines(folder) -> LayoutSample:
    rows = [
        Prediction(f"s{i}", "s", "NR", f"t{i}", len(r.split()), "eeg", "noise", 0, mode, r, text)
        for mode, texts in (("teacher_forced", FORCED), ("free_running", FREE))
        for i, (r, text) in enumerate(zip(REFERENCES, texts, strict=True))
    ]
    write_predictions(folder / "whole.jsonl", {"config": "abc"}, rows)
    header, *lines = (folder / "whole.jsonl").read_text("utf8").splitlines(keepends=True)
    outcomes = [[(p.reference, p.eval_condition, p.mode, p.prediction)] for p in rows]
    return LayoutSample("jsonl", header, lines, outcomes)


def json_objects(name: str, before: str, between: str, outcomes: list[list[Outcome]]) -> LayoutSample:
    """JSON lines or a list of objects, under the usual names."""
    pieces = [json.dumps({"ground_truth": o[0][0], "prediction": o[0][3], "wer": 0.5}) + between for o in outcomes]
    if before:
        pieces[-1] = pieces[-1].removesuffix(between) + "\n]"
    return LayoutSample(name, before, pieces, outcomes)


def layout_samples(folder) -> list[LayoutSample]:
    """One file a layout; D has predictions over several lines, F a table with line breaks and one of two conditions."""
    both = ("teacher_forced", "free_running")
    hashes, dashes = "#" * 48 + "\n\n\n", "-" * 60 + "\n\n\n"
    a = "target string: {r}\npredicted string with tf: {tf}\npredicted string: {free}\n" + hashes
    a2 = "target string: {r}\ntarget tokens: ['x']\npredicted string with tf: {tf}\npredicted string: {free}\n" + hashes
    samples = [
        json_lines(folder),
        blocks("A", a, modes=both),
        blocks("A1", "target string: {r}\npredicted string: {free}\n" + hashes),
        blocks("A2", a2, modes=both),
        blocks("B", "Target string: {r}\nPredicted string: {free}\n" + dashes),
        blocks("C", "start####\nPredicted: {free}\nTrue: {r}\nend####\n\n\n"),
        blocks("D", "target sentence: {r}\npredicted sentence: {free}\n\nmore of it\n" + hashes),
        blocks("C1", "Predicted: {free}\nTrue: {r}\n" + "=" * 50 + "\n"),
        blocks("E", "target word: {r}\tpred word: {free}\n"),
    ]
    for outcome in samples[6].outcomes:
        outcome[:] = [(r, c, m, text + "\n\nmore of it") for r, c, m, text in outcome]
    plain = [[(r, "unknown", "unknown", text)] for r, text in zip(REFERENCES, FREE, strict=True)]
    broken = [[(r, c, m, text + ',\nand\n"on"')] for [(r, c, m, text)] in plain]
    two = [
        [(r, "eeg", "unknown", forced), (r, "shuffled", "unknown", free)]
        for r, forced, free in zip(REFERENCES, FORCED, FREE, strict=True)
    ]
    subjects = [["S1", "S2"][i % 2] for i in range(6)]
    rows = [[s, o[0][0], o[0][3], "0.5"] for s, o in zip(subjects, broken, strict=True)]
    samples += [
        table("F", ["subject", "Expected Caption", "Generated Caption", "cer"], rows, broken),
        table("F", ["reference", "real_eeg", "shuffled_eeg"], [[o[0][0], o[0][3], o[1][3]] for o in two], two),
        json_objects("J", "", "\n", plain),
        json_objects("J", "[\n", ",\n", plain),
        table("H", None, [[o[0][0], o[0][3]] for o in plain], plain),
    ]
    return samples
