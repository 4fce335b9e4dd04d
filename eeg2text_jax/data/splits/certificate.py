"""The split certificate: parts, kept samples and leakage of a split, as JSON and as text."""

import collections
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.data.splits.neighbors import groups_of_readings, time_leakage, time_lines
from eeg2text_jax.data.splits.split import (
    FORMAT,
    NORMALIZATIONS,
    PARTS,
    Readings,
    Split,
    hash_ids,
    normalize,
    readings_digest,
    readings_of,
    tokens,
)

# Leakage between parts: the rates of `papers/003`, section 4.2, for subjects and texts, and (near-)duplicate texts.
#
# Read literally, the paper's rates use an empty set (a sample is never in both parts). Its numbers fit a ratio of
# counts: the test samples of subject i over its training samples.

PAIRS = (("train", "test"), ("train", "dev"), ("dev", "test"))  # (part seen before, part judged)
# Comparisons of texts besides `NORMALIZATIONS`: by task and index, by stimulus segment, by text group.
SENTENCE_ID, SEGMENT, STORY = "sentence-id", "segment", "story"
OVERLAP = 0.8  # Jaccard index of words from which on two texts count as near-duplicates


def leakage_rate(train: np.ndarray, test: np.ndarray, n_units: int | None = None) -> float:
    """Return the leakage rate, from 0 to 1, of subjects (equation 8) or texts of EEG (equation 9).

    It is the mean of `min(1, n_test / n_train)`, 0 for a unit that is not in both parts, from the units of samples,
    `[N_train]` and `[N_test]`, over `n_units`; None: over the units in `test`, as the paper says (but rows (b) and TSLR
    (c) of its Table 1 fit the number of all units better).
    """
    n_train = dict(zip(*np.unique(train, return_counts=True), strict=True))
    units, n_test = np.unique(test, return_counts=True)
    if not len(units):
        return 0.0
    terms = [min(1.0, n / n_train[unit]) for unit, n in zip(units, n_test, strict=True) if unit in n_train]
    return float(sum(terms) / (len(units) if n_units is None else n_units))


def segment_leakage_rate(train: np.ndarray, test: np.ndarray, lengths: np.ndarray | None = None) -> float:
    """Return the leakage rate of the texts of windows (equations 10 and 11), from 0 to 1.

    `train` and `test` are the segment numbers of all windows. The rate is `sum_j min(n_test(j), n_train(j)) / sum_j
    n_test(j)` over segments j, weighted by their `lengths` if repetition times differ. The paper's factor 1/M is left
    out: with it, method (a) could not reach the 100% of Table 1.
    """
    if not len(test):
        return 0.0
    segments, n_test = np.unique(test, return_counts=True)
    n_train = np.bincount(train, minlength=segments[-1] + 1)[segments]
    weights = np.ones(len(segments)) if lengths is None else lengths[segments]
    return float(np.minimum(n_test, n_train) @ weights / (n_test @ weights))


class Leakage(NamedTuple):
    """Leakage of part `seen` (such as train) into part `judged` (such as test).

    Rates, from 0 to 1, of subjects (`bslr`) and texts (`tslr`, by comparison) are over those judged, or over all.
    """

    seen: str
    judged: str
    shared_subjects: list[str]
    bslr_over_test: float
    bslr_over_all: float
    shared_texts: dict[str, int]
    tslr: dict[str, float]
    tslr_over_all: dict[str, float]


def text_keys(readings: Readings) -> dict[str, np.ndarray]:
    """Return comparison -> key of each sample, object `[N]`; texts of equal keys count as equal."""
    keys = {SENTENCE_ID: readings.sentence_id}
    if readings.text is not None:
        for name, function in NORMALIZATIONS.items():
            key_of = {text: function(text) for text in set(readings.text.tolist())}
            keys[name] = np.array([key_of[text] for text in readings.text], object)
    return keys


def assess_leakage(readings: Readings, parts: Mapping[str, np.ndarray]) -> list[Leakage]:
    """Return the leakage for each pair in `PAIRS`."""
    keys, subject, leakages = text_keys(readings), readings.subject, []
    if readings.text_group is not None:
        keys[STORY] = readings.text_group
    for seen, judged in PAIRS:
        a, b = parts[seen], parts[judged]
        shared = {name: len(set(key[a]) & set(key[b])) for name, key in keys.items()}
        rates = {name: leakage_rate(key[a], key[b]) for name, key in keys.items()}
        over_all_texts = {name: leakage_rate(key[a], key[b], len(set(key))) for name, key in keys.items()}
        if readings.segments is not None:
            there, here = (segments_of(readings.segments.windows[rows]) for rows in (a, b))
            shared = {SEGMENT: len(np.intersect1d(there, here)), **shared}
            rates = {SEGMENT: segment_leakage_rate(there, here, readings.segments.lengths), **rates}
        both = sorted(set(subject[a]) & set(subject[b]))
        over_judged, over_all = (leakage_rate(subject[a], subject[b], n) for n in (None, len(set(subject))))
        leakages.append(Leakage(seen, judged, both, over_judged, over_all, shared, rates, over_all_texts))
    return leakages


def segments_of(windows: np.ndarray) -> np.ndarray:
    """Return the segment numbers of windows `[N, 2]` (first segment, count), window after window."""
    first, length = windows.T
    begins = np.cumsum(length) - length
    return np.repeat(first - begins, length) + np.arange(length.sum())


def find_duplicates(
    readings: Readings, parts: Mapping[str, np.ndarray], threshold: float = OVERLAP
) -> list[dict[str, Any]]:
    """Return, for each pair in `PAIRS`, texts in both parts, then near-duplicates; `readings.text` must be known.

    Keys: `seen`, `judged` (parts); `overlap`, 1 if equal by letters and digits, else the Jaccard index of normalized
    words; sorted ids of sentences with the text, `seen_sentences` and `judged_sentences`; `other_sentences`, seen only.
    """
    normal_of = {text: normalize(text) for text in set(readings.text.tolist())}
    key = np.array([normal_of[text] for text in readings.text], object)
    words = {normal: frozenset(tokens(text)) for text, normal in normal_of.items()}
    duplicates = []
    for seen, judged in PAIRS:
        there, here = (_sentences_by_text(key, readings.sentence_id, parts[name]) for name in (seen, judged))
        equal = [(text, text, 1.0) for text in here if text in there]
        for a, b, overlap in equal + _near_pairs(list(here), list(there), words, threshold):
            ids = {"seen_sentences": there[b], "judged_sentences": here[a]}
            others = [name for name in there[b] if name not in here[a]]
            about = {"seen": seen, "judged": judged, "overlap": overlap}
            duplicates.append({**about, **ids, "other_sentences": others})
    return duplicates


def _sentences_by_text(key: np.ndarray, sentence_id: np.ndarray, rows: np.ndarray) -> dict[str, list[str]]:
    sentences: dict[str, set[str]] = collections.defaultdict(set)
    for row in rows:
        sentences[key[row]].add(sentence_id[row])
    return {text: sorted(names) for text, names in sentences.items()}


def _near_pairs(
    judged: list[str], seen: list[str], words: dict[str, frozenset[str]], threshold: float
) -> list[tuple[str, str, float]]:
    """Return (judged text, another text seen, Jaccard index of words) from an index of `threshold` on."""
    texts = [*judged, *seen]
    places: dict[str, int] = {}
    columns = [places.setdefault(word, len(places)) for text in texts for word in words[text]]
    sizes = np.array([len(words[text]) for text in texts])
    ones, ends = np.ones(len(columns), np.int64), np.cumsum([0, *sizes])
    incidence = scipy.sparse.csr_array((ones, columns, ends), (len(texts), len(places)))
    common = (incidence[: len(judged)] @ incidence[len(judged) :].T).sorted_indices().tocoo()
    overlap = common.data / (sizes[common.row] + sizes[len(judged) + common.col] - common.data)
    return [
        (judged[i], seen[j], float(o))
        for i, j, o in zip(common.row, common.col, overlap, strict=True)
        if o >= threshold and judged[i] != seen[j]
    ]


def shared_between_tasks(readings: Readings) -> list[dict[str, Any]]:
    """Return the texts that two `tasks` share after `normalization`, which splits by sentence id can leak.

    `sentences` lists for each text its sentence ids.
    """
    shared = []
    for name, key in text_keys(readings).items():
        if name == SENTENCE_ID:
            continue
        groups: dict[str, dict[str, set[str]]] = collections.defaultdict(lambda: collections.defaultdict(set))
        for text, task, sentence in zip(key, readings.task, readings.sentence_id, strict=True):
            groups[text][task].add(sentence)
        for pair in itertools.combinations(sorted(set(readings.task)), 2):
            both = [sorted(set.union(*map(group.get, pair))) for group in groups.values() if {*pair} <= {*group}]
            shared.append({"tasks": pair, "normalization": name, "sentences": sorted(both)})
    return shared


FORMAT_OF_IDS = "eeg2text-split-ids-2"  # of a certificate that was made without the data file


def certify_data(
    data: DataFile,
    split: Split,
    ratio: Sequence[float] | None = None,
    overlap: float = OVERLAP,
    groups: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Return the certificate of a data file's split: `certify`, the ratio, hashes of split and data."""
    readings = readings_of(data)
    certificate = certify(readings, split, overlap, groups)
    stated = {} if ratio is None else {"ratio": list(ratio)}
    made_from = {"name": data.path.name, "digest": data.digest(), **data.digests, "readings": readings_digest(readings)}
    about = {"format": FORMAT, "digest": split.digest(), **stated, "data": made_from}
    return {**certificate, **about, "parts": certificate.pop("parts")}


def certify(
    readings: Readings, split: Split, overlap: float = OVERLAP, groups: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """Return the kept samples and the leakage of a split as a JSON object, without the texts.

    Keys: `method`, `seed`, `kept`, `leakage` (see `Leakage`), `parts` (counts, ids and their SHA-256); `duplicates` and
    `shared_between_tasks` if texts are known, `time` (see `time_leakage`) if times are. `groups`: name of a further
    grouping for `time` -> label of each sample `[N]`.
    """
    keys = text_keys(readings)
    text_key = keys.get("letters-digits", keys[SENTENCE_ID])
    columns = {"subjects": readings.subject, "sentences": readings.sentence_id, "texts": text_key}
    parts = {}
    for name in PARTS:
        rows = split.parts[name]
        ids = readings.sample_id[rows].tolist()
        counts = {"samples": len(rows)} | {what: len(set(column[rows])) for what, column in columns.items()}
        parts[name] = {**counts, "ids_sha256": hash_ids(ids), "ids": ids}
    certificate = {
        "format": FORMAT_OF_IDS,
        "method": split.method,
        "seed": split.seed,
        "kept": {"samples": split.kept, "of": len(readings), "fraction": split.kept / len(readings)},
        "leakage": [leakage._asdict() for leakage in assess_leakage(readings, split.parts)],
        "parts": parts,
    }
    groupings = groups_of_readings(readings) | dict(groups or {})
    if (time := time_leakage(readings, split.parts, groupings)) is not None:
        certificate["time"] = time
    if readings.text is not None:
        certificate["near_duplicate_overlap"] = overlap
        certificate["duplicates"] = find_duplicates(readings, split.parts, overlap)
        certificate["shared_between_tasks"] = shared_between_tasks(readings)
    return certificate


SHOWN = 20  # most duplicate texts printed on the terminal; the certificate has all
FAR = 2.0  # warn if a part's share of the kept samples differs from the ratio by this factor


def paper_table1(data: DataFile, split: Split) -> str:
    """Return Table 1 of *Are EEG-to-Text Models Working?*: each task's samples by part and in total."""
    lines = [f"{'task':<12} {'train':>8} {'dev':>8} {'test':>8} {'total':>8}"]
    rows_of = {task: data.task == task for task in dict.fromkeys(data.task)} | {"all": np.ones(len(data), bool)}
    for task, rows in rows_of.items():
        counts = [int(rows[split.parts[name]].sum()) for name in PARTS]
        lines.append(f"{task:<12} " + " ".join(f"{n:>8}" for n in (*counts, sum(counts))))
    return "\n".join(lines)


def part_table(certificate: dict[str, Any]) -> str:
    """Return method, kept fraction and a table of sizes by part, as text."""
    counts, sizes = certificate["kept"], {"samples": 8, "subjects": 9, "sentences": 10, "texts": 8}  # column -> width
    lines = [
        f"split {certificate['method']} (seed {certificate['seed']}): kept {counts['fraction']:.1%} of the samples "
        f"({counts['samples']} of {counts['of']})"
    ]
    for name, part in {"part": {what: what for what in sizes}, **certificate["parts"]}.items():
        lines.append(f"{name:<8} " + " ".join(f"{part[what]:>{width}}" for what, width in sizes.items()))
    return "\n".join(lines)


def size_lines(certificate: dict[str, Any]) -> list[str]:
    """Return [a warning] if a part's share of the samples is far from the ratio."""
    shares, parts, uneven = certificate.get("ratio") or (), certificate["parts"], []
    total = sum(part["samples"] for part in parts.values())
    for (name, part), share in zip(parts.items(), shares, strict=False):
        has = part["samples"] / total
        if not share / FAR <= has <= share * FAR:
            uneven.append(f"{name} has {has:.1%} of the kept samples in place of {share / sum(shares):.0%}")
    return [f"warning: the sizes are far from the ratio: {', '.join(uneven)}; try another seed"] if uneven else []


def leakage_table(certificate: dict[str, Any]) -> str:
    """Return a text table of leakage rates of subjects (BSLR), and of texts by comparison (TSLR)."""
    names = list(certificate["leakage"][0]["tslr"])
    head = f"{'leakage':<16} {'BSLR, judged':>13} {'BSLR, all':>10}"
    lines = [head + "".join(f" {'TSLR, ' + name:>21}" for name in names)]
    for pair in certificate["leakage"]:
        row = f"{pair['seen']} -> {pair['judged']}"
        row = f"{row:<16} {pair['bslr_over_test']:>13.2%} {pair['bslr_over_all']:>10.2%}"
        lines.append(row + "".join(f" {pair['tslr'][name]:>21.2%}" for name in names))
    return "\n".join(lines)


def duplicate_lines(certificate: dict[str, Any], readings: Readings) -> list[str]:
    """Return lines on texts that tasks share, and on texts that (nearly) equal one of an earlier part."""
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
    """Return a sentence on how many texts, near-duplicates and subjects train and test share."""
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
    """Return a certificate as text for the terminal."""
    parts = "\n".join([part_table(certificate), *size_lines(certificate)])
    lines = [*duplicate_lines(certificate, readings), *time_lines(certificate.get("time")), verdict(certificate)]
    return "\n\n".join([parts, leakage_table(certificate), "\n".join(lines)])
