"""The split certificate: what a split is, what it keeps and what it leaks, as JSON that others can check."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.splits.duplicates import OVERLAP, find_duplicates, shared_between_tasks
from eeg2text_jax.splits.leakage import SENTENCE_ID, assess_leakage, text_keys
from eeg2text_jax.splits.readings import Readings, readings_of
from eeg2text_jax.splits.split import PARTS, Split
from eeg2text_jax.splits.splitfile import FORMAT, hash_ids, ids_of, readings_digest

FORMAT_OF_IDS = "eeg2text-split-ids-2"  # of a certificate of ids alone, without a data file


def certify_data(
    data: DataFile, split: Split, ratio: Sequence[float] | None = None, overlap: float = OVERLAP
) -> dict[str, Any]:
    """The certificate of a split of a data file; see `certify`."""
    readings = readings_of(data)
    certificate = certify(readings, split, overlap)
    given = {"ratio": list(ratio)} if ratio is not None else {}
    made_from = {"name": data.path.name, "digest": data.digest(), **data.digests, "readings": readings_digest(readings)}
    about = {"format": FORMAT, "digest": split.digest(), **given, "data": made_from}
    return {**certificate, **about, "parts": certificate.pop("parts")}


def certify(readings: Readings, split: Split, overlap: float = OVERLAP) -> dict[str, Any]:
    """What a split keeps and leaks.

    Returns:
      `method`, `seed`; `kept` (samples, of, fraction); `parts` (counts, ids and their SHA-256); `leakage`, one entry
      a pair of parts with both rates, every text rate under the name of its comparison; and where texts are known
      `duplicates` (texts of one part that are in another, equal by letters and digits or with a word overlap of at
      least `near_duplicate_overlap`) and `shared_between_tasks`. Texts themselves are not in it.
    """
    keys = text_keys(readings)
    text_key = keys.get("letters-digits", keys[SENTENCE_ID])
    parts = {}
    for name, ids in ids_of(readings, split).items():
        rows = split.parts[name]
        counted = {"subjects": readings.subject, "sentences": readings.sentence_id, "texts": text_key}
        counts = {what: len(set(column[rows])) for what, column in counted.items()}
        parts[name] = {"samples": len(rows), **counts, "ids_sha256": hash_ids(ids), "ids": ids}
    certificate = {
        "format": FORMAT_OF_IDS,
        "method": split.method,
        "seed": split.seed,
        "kept": {"samples": split.kept, "of": len(readings), "fraction": split.kept / len(readings)},
        "leakage": [dataclasses.asdict(leakage) for leakage in assess_leakage(readings, split.parts)],
        "parts": {name: parts[name] for name in PARTS},
    }
    if readings.text is not None:
        duplicates = find_duplicates(readings, split.parts, overlap)
        certificate["near_duplicate_overlap"] = overlap
        certificate["duplicates"] = [
            {**dataclasses.asdict(d), "other_sentences": d.other_sentences} for d in duplicates
        ]
        certificate["shared_between_tasks"] = [dataclasses.asdict(s) for s in shared_between_tasks(readings)]
    return certificate
