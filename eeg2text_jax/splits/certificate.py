"""The split certificate: parts, kept samples and leakage of a split, as JSON with checksums and as text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.splits.leakage import (
    OVERLAP,
    SEGMENT,
    SENTENCE_ID,
    assess_leakage,
    find_duplicates,
    shared_between_tasks,
    text_keys,
)
from eeg2text_jax.splits.neighbors import groups_of_readings, time_leakage, time_lines
from eeg2text_jax.splits.split import PARTS, Readings, Split, readings_of
from eeg2text_jax.splits.splitfile import FORMAT, hash_ids, readings_digest

FORMAT_OF_IDS = "eeg2text-split-ids-2"  # format of a certificate that was made from a split file without its data file


def certify_data(
    data: DataFile,
    split: Split,
    ratio: Sequence[float] | None = None,
    overlap: float = OVERLAP,
    groups: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Return the certificate of a data file's split: the result of `certify`, the ratio, hashes of split and data."""
    readings = readings_of(data)
    certificate = certify(readings, split, overlap, groups)
    stated = {"ratio": list(ratio)} if ratio is not None else {}
    made_from = {"name": data.path.name, "digest": data.digest(), **data.digests, "readings": readings_digest(readings)}
    about = {"format": FORMAT, "digest": split.digest(), **stated, "data": made_from}
    return {**certificate, **about, "parts": certificate.pop("parts")}


def certify(
    readings: Readings, split: Split, overlap: float = OVERLAP, groups: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """Return the kept samples and the leakage of a split as a JSON object, without the texts.

    Its keys: `method`, `seed`, `kept`, `leakage` (see `Leakage`) and `parts` (counts, ids and their SHA-256); if texts
    are known, `duplicates` (see `Duplicate`) and `shared_between_tasks`; if times are known, `time` (see
    `time_leakage`). `groups`: name of a further grouping for `time` -> label of each sample `[N]`.
    """
    keys = text_keys(readings)
    text_key = keys.get("letters-digits", keys[SENTENCE_ID])
    columns = {"subjects": readings.subject, "sentences": readings.sentence_id, "texts": text_key}
    parts = {}
    for name in PARTS:
        rows = split.parts[name]
        counts = {what: len(set(column[rows])) for what, column in columns.items()}
        ids = readings.sample_id[rows].tolist()
        parts[name] = {"samples": len(rows), **counts, "ids_sha256": hash_ids(ids), "ids": ids}
    certificate = {
        "format": FORMAT_OF_IDS,
        "method": split.method,
        "seed": split.seed,
        "kept": {"samples": split.kept, "of": len(readings), "fraction": split.kept / len(readings)},
        "leakage": [dataclasses.asdict(leakage) for leakage in assess_leakage(readings, split.parts)],
        "parts": parts,
    }
    own = groups_of_readings(readings) | dict(groups or {})
    if (time := time_leakage(readings, split.parts, own)) is not None:
        certificate["time"] = time
    if readings.text is not None:
        duplicates = find_duplicates(readings, split.parts, overlap)
        certificate["near_duplicate_overlap"] = overlap
        certificate["duplicates"] = [
            {**dataclasses.asdict(d), "other_sentences": d.other_sentences} for d in duplicates
        ]
        certificate["shared_between_tasks"] = [dataclasses.asdict(s) for s in shared_between_tasks(readings)]
    return certificate


SHOWN = 20  # most duplicate texts printed on the terminal; the certificate has all
FAR = 2.0  # warn if a part's share of the kept samples is above or below the ratio by this factor or more


def paper_table1(data: DataFile, split: Split) -> str:
    """Return a text table of each task's samples in train, dev, test and in total.

    This is Table 1 of *Are EEG-to-Text Models Working?*.
    """
    lines = [f"{'task':<12} {'train':>8} {'dev':>8} {'test':>8} {'total':>8}"]
    rows = {
        task: [int(np.sum(data.task[split.parts[name]] == task)) for name in PARTS] for task in dict.fromkeys(data.task)
    }
    rows["all"] = [len(split.parts[name]) for name in PARTS]
    lines += [f"{task:<12} " + " ".join(f"{n:>8}" for n in (*counts, sum(counts))) for task, counts in rows.items()]
    return "\n".join(lines)


def part_table(certificate: dict[str, Any]) -> str:
    """Return method and kept fraction, and a table of the size of every part, as text."""
    kept = certificate["kept"]
    lines = [
        f"split {certificate['method']} (seed {certificate['seed']}): kept {kept['fraction']:.1%} of the samples "
        f"({kept['samples']} of {kept['of']})",
        f"{'part':<8} {'samples':>8} {'subjects':>9} {'sentences':>10} {'texts':>8}",
    ]
    for name, part in certificate["parts"].items():
        lines.append(f"{name:<8} {part['samples']:>8} {part['subjects']:>9} {part['sentences']:>10} {part['texts']:>8}")
    return "\n".join(lines)


def size_lines(certificate: dict[str, Any]) -> list[str]:
    """Return a list with one warning if a part's share of the samples is far from the ratio; else [].

    This happens because subjects and stories differ in their numbers of samples.
    """
    shares = certificate.get("ratio")
    if not shares:
        return []
    total, found = sum(part["samples"] for part in certificate["parts"].values()), []
    for (name, part), share in zip(certificate["parts"].items(), shares, strict=True):
        has = part["samples"] / total
        if not share / FAR <= has <= share * FAR:
            found.append(f"{name} has {has:.1%} of the kept samples in place of {share / sum(shares):.0%}")
    return [f"warning: the sizes are far from the ratio: {', '.join(found)}; try another seed"] if found else []


def leakage_table(certificate: dict[str, Any]) -> str:
    """Return a text table of leakage rates by pair of parts: of subjects (BSLR), and of texts by comparison (TSLR)."""
    names = list(certificate["leakage"][0]["tslr"])
    head = f"{'leakage':<16} {'BSLR, judged':>13} {'BSLR, all':>10}"
    lines = [head + "".join(f" {'TSLR, ' + name:>21}" for name in names)]
    for pair in certificate["leakage"]:
        row = f"{pair['seen'] + ' -> ' + pair['judged']:<16}"
        row += f" {pair['bslr_over_test']:>13.2%} {pair['bslr_over_all']:>10.2%}"
        lines.append(row + "".join(f" {pair['tslr'][name]:>21.2%}" for name in names))
    return "\n".join(lines)


def duplicate_lines(certificate: dict[str, Any], readings: Readings) -> list[str]:
    """Return lines on texts that tasks share, and on dev and test texts that (nearly) equal one of an earlier part."""
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
        how = "equals" if d["overlap"] == 1 else f"overlaps {d['overlap']:.0%} in words with"
        judged, other = ", ".join(d["judged_sentences"]), ", ".join(d["other_sentences"])
        text = text_of[d["judged_sentences"][0]]
        lines.append(f"{d['judged']} {judged} {how} {d['seen']} {other}: {text[:70]}")
    if len(given_away) > SHOWN:
        lines.append(f"... and {len(given_away) - SHOWN} more; --json=OUT lists all")
    return lines


def verdict(certificate: dict[str, Any]) -> str:
    """Return a sentence with the numbers of texts, near-duplicates and subjects that train and test share."""
    pair = certificate["leakage"][0]
    named = list(pair["shared_texts"])
    how = SEGMENT if SEGMENT in named else named[min(1, len(named) - 1)]
    texts = pair["shared_texts"][how]
    duplicates = (d for d in certificate.get("duplicates", ()) if (d["seen"], d["judged"]) == ("train", "test"))
    near = sum(d["overlap"] < 1 for d in duplicates)
    return (
        f"train and test share {_count(texts, 'text')} (by {how}), {_count(near, 'near-duplicate')} "
        f"and {_count(len(pair['shared_subjects']), 'subject')}"
    )


def _count(n: int, noun: str) -> str:
    return f"{n or 'no'} {noun}{'s' * (n != 1)}"


def split_report(certificate: dict[str, Any], readings: Readings) -> str:
    """Return a certificate as text for the terminal: all tables and sentences."""
    parts = "\n".join([part_table(certificate), *size_lines(certificate)])
    lines = [*duplicate_lines(certificate, readings), *time_lines(certificate.get("time")), verdict(certificate)]
    return "\n\n".join([parts, leakage_table(certificate), "\n".join(lines)])
