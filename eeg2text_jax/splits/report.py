"""Splits and their leaks in words and tables, for the terminal."""

from typing import Any

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.splits.readings import Readings
from eeg2text_jax.splits.split import PARTS, Split

SHOWN = 20  # sentences named on the terminal; the certificate has all


def paper_table1(data: DataFile, split: Split) -> str:
    """Samples of train, dev, test and in total for each task, as Table 1 of the paper counts them."""
    lines = [f"{'task':<12} {'train':>8} {'dev':>8} {'test':>8} {'total':>8}"]
    rows = {
        task: [int(np.sum(data.task[split.parts[name]] == task)) for name in PARTS] for task in dict.fromkeys(data.task)
    }
    rows["all"] = [len(split.parts[name]) for name in PARTS]
    lines += [f"{task:<12} " + " ".join(f"{n:>8}" for n in (*counts, sum(counts))) for task, counts in rows.items()]
    return "\n".join(lines)


def part_table(certificate: dict[str, Any]) -> str:
    """Method, kept fraction, and the size of every part."""
    kept = certificate["kept"]
    lines = [
        f"split {certificate['method']} (seed {certificate['seed']}): kept {kept['fraction']:.1%} of the samples "
        f"({kept['samples']} of {kept['of']})",
        f"{'part':<8} {'samples':>8} {'subjects':>9} {'sentences':>10} {'texts':>8}",
    ]
    for name, part in certificate["parts"].items():
        lines.append(f"{name:<8} {part['samples']:>8} {part['subjects']:>9} {part['sentences']:>10} {part['texts']:>8}")
    return "\n".join(lines)


def leakage_table(certificate: dict[str, Any]) -> str:
    """Both leakage rates of every pair of parts, in percent; text rates under the name of their comparison."""
    names = list(certificate["leakage"][0]["tslr"])
    head = f"{'leakage':<16} {'BSLR, judged':>13} {'BSLR, all':>10}"
    lines = [head + "".join(f" {'TSLR, ' + name:>21}" for name in names)]
    for pair in certificate["leakage"]:
        row = f"{pair['seen'] + ' -> ' + pair['judged']:<16}"
        row += f" {pair['bslr_over_test']:>13.2%} {pair['bslr_over_all']:>10.2%}"
        lines.append(row + "".join(f" {pair['tslr'][name]:>21.2%}" for name in names))
    return "\n".join(lines)


def duplicate_lines(certificate: dict[str, Any], readings: Readings) -> list[str]:
    """Texts that tasks share, and by name the sentences of dev and test that another sentence gives away."""
    if readings.text is None:
        return [
            "no texts in the file: sentences were compared by sentence-id alone; name the data file to compare texts"
        ]
    text_of = dict(zip(readings.sentence_id, readings.text, strict=True))
    lines = [
        f"{' and '.join(shared['tasks'])} share {len(shared['sentences'])} texts by {shared['normalization']}"
        for shared in certificate["shared_between_tasks"]
        if shared["sentences"]
    ]
    given_away = [d for d in certificate["duplicates"] if d["other_sentences"]]
    for d in given_away[:SHOWN]:
        how = "is" if d["overlap"] == 1 else f"overlaps {d['overlap']:.0%} in words with"
        judged, other = ", ".join(d["judged_sentences"]), ", ".join(d["other_sentences"])
        text = text_of[d["judged_sentences"][0]]
        lines.append(f"{d['judged']} {judged} {how} {d['seen']} {other}: {text[:70]}")
    if len(given_away) > SHOWN:
        lines.append(f"... and {len(given_away) - SHOWN} more; --json=OUT lists all")
    return lines


def verdict(certificate: dict[str, Any]) -> str:
    """One sentence on whether subjects, texts or near-duplicates of the test part were seen in training."""
    pair = certificate["leakage"][0]
    how, texts = list(pair["shared_texts"].items())[min(1, len(pair["shared_texts"]) - 1)]
    near = [
        d
        for d in certificate.get("duplicates", ())
        if d["overlap"] < 1 and (d["seen"], d["judged"]) == ("train", "test")
    ]
    subjects = len(pair["shared_subjects"])
    return (
        f"train and test share {_count(texts, 'text')} (by {how}), {_count(len(near), 'near-duplicate')} "
        f"and {_count(subjects, 'subject')}"
    )


def _count(n: int, noun: str) -> str:
    return f"{n or 'no'} {noun}{'s' * (n != 1)}"


def split_report(certificate: dict[str, Any], readings: Readings) -> str:
    """All of the above, one below the other."""
    blocks = [part_table(certificate), leakage_table(certificate)]
    lines = [*duplicate_lines(certificate, readings), verdict(certificate)]
    return "\n\n".join([*blocks, "\n".join(lines)])
