"""Random files of decoded text whose pairs are known, written from docs/layouts.md alone, not from the readers."""

import csv
import dataclasses
import gzip
import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd

REFERENCES = """sentence ground_truth truth input_text reference references target targets true gt gold groundtruth
ref refs original actual expected y_true true_sentence caption_gt target_text reference_text correct_sentence"""
PREDICTIONS = """prediction predictions llm_pred pred preds predict predicted hypothesis hypotheses hyp response
generated generation decoded output output_text model_output reconstructed y_pred predicted_text generated_caption
recognized_text sentence_pred decoded_sentence"""
WORDS = """the a old young captain lamp river house wrote carried found left under over bridge winter letter doctor it's
café naïve Zürich film, scene; said "well" film's movie 1999 3.5 -- (quiet) who's almost never again today"""
REFERENCES, PREDICTIONS, WORDS = (words.split() for words in (REFERENCES, PREDICTIONS, WORDS))
UNKNOWN = ["said", "meant", "human text", "model text", "A", "B", "col1", "x", "what was read", "result", "words"]
OTHERS: dict[str, Any] = {
    "id": lambda r, i: i,
    "idx": lambda r, i: i + 1,
    "epoch": lambda r, i: 7,
    "WER": lambda r, i: round(r.random(), 3),
    "bleu_score": lambda r, i: r.random(),
    "subject": lambda r, i: f"s{i % 3}",
    "task": lambda r, i: "NR",
    "trial": lambda r, i: i % 5,
    "block": lambda r, i: i // 5,
    "session": lambda r, i: f"2023-01-0{1 + i % 2}",
    "model": lambda r, i: "bart-large",
    "language": lambda r, i: "en",
    "comment": lambda r, i: r.choice(["", "unsure", "ok"]),
    "prediction_length": lambda r, i: r.randint(1, 9),
    "target_len": lambda r, i: r.randint(1, 9),
    "correct": lambda r, i: r.choice([True, False]),
    "pred_score": lambda r, i: -r.random(),
    "audio_path": lambda r, i: f"a/{i}.wav",
    "prompt": lambda r, i: "Translate the brain signal into English:",
    "text_id": lambda r, i: f"t{i}",
    "label": lambda r, i: r.randint(0, 2),
    "sentiment": lambda r, i: r.choice(["pos", "neg"]),
    "original_index": lambda r, i: 50 - i,
    "confidence": lambda r, i: None if i % 4 == 0 else r.random(),
    "timestamp": lambda r, i: f"2025-01-01 10:00:{i % 60:02d}",
}
LABELS = [
    ("True Sentence", "Pred Sentence"),
    ("GT ", "PR "),
    ("Reference", "Hypothesis"),
    ("Target text", "Predicted text"),
    ("true caption", "generated caption"),
    ("He meant", "It said"),
]


@dataclasses.dataclass
class Case:
    """Files, the options of their reading, and the pairs in them. `told`: docs/layouts.md says that they are read."""

    path: Path
    pairs: list[tuple[str, str]]
    told: bool
    what: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    conditions: list[str] = dataclasses.field(default_factory=list)  # of each pair; none: not known


def pairs_of(r: random.Random) -> list[tuple[str, str]]:
    """Sentences (each has its own word) and what a decoder made of them."""
    right, empty = r.choice([0.0, 0.5, 0.9]), r.choice([0.0, 0.0, 0.2])
    pairs = []
    for i in range(r.randint(2, 30)):
        words = [r.choice(WORDS) for _ in range(r.randint(2, 9))]
        words.insert(r.randint(0, len(words)), f"own{i}")
        output = [word if r.random() < right else r.choice(WORDS) for word in words]
        pairs.append((" ".join(words), "" if r.random() < empty else f"{' '.join(output)} out{i}"))
    if r.random() < 0.3:
        pairs += [(reference, f"{prediction} again".strip()) for reference, prediction in pairs]
    return pairs


def styled(r: random.Random, name: str) -> str:
    """A name in other case and with other marks between its words, which do not count."""
    form = r.choice([str, str, str.upper, str.title, str.capitalize])
    return form(name.replace("_", r.choice("__ -")))


def separated(rows: list[list[Any]], delimiter: str, r: random.Random) -> str:
    out = io.StringIO()
    quoting = r.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator=r.choice(["\n", "\r\n"])).writerows(rows)
    return out.getvalue()


def markdown(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join("" if c is None else str(c) for c in line) + " |" for line in lines) + "\n"


def as_text(frame: pd.DataFrame, kind: str, r: random.Random) -> str:
    """A table in one of the forms of text."""
    rows = [
        [None if not isinstance(cell, list) and pd.isna(cell) else cell for cell in row]
        for row in frame.astype(object).values.tolist()
    ]
    header = list(frame.columns)
    records = [dict(zip(header, row, strict=True)) for row in rows]
    indent = r.choice([None, 1])
    match kind:
        case "," | ";" | "\t":
            return separated([header, *rows], kind, r)
        case "markdown":
            return markdown(header, rows)
        case "jsonl":
            return "\n".join(json.dumps(record, ensure_ascii=r.random() < 0.5) for record in records)
        case "records":
            return json.dumps(records, indent=indent)
        case "wrapped":
            return json.dumps({r.choice(["results", "data", "samples"]): records}, indent=indent)
        case "columns":
            return json.dumps({name: [row[at] for row in rows] for at, name in enumerate(header)}, indent=indent)
        case "keyed":
            return json.dumps({f"s{i}": record for i, record in enumerate(records)}, indent=indent)
        case "wandb":
            return json.dumps({"columns": header, "data": rows})
    return frame.to_json(orient=kind, indent=indent)


TEXT_KINDS = [",", ",", ",", ";", "\t", "markdown", "jsonl", "records", "columns", "keyed", "wandb", "split", "index"]
TEXT_KINDS += ["table", "wrapped"]


def encoded(text: str, r: random.Random) -> bytes:
    """UTF-8 or UTF-16 with a mark; sometimes packed."""
    data = text.encode(r.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16"]))
    match r.randint(0, 9):
        case 0:
            return gzip.compress(data)
        case 1:
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as archive:
                archive.writestr("out.txt", data)
            return packed.getvalue()
    return data


def written(frame: pd.DataFrame, path: Path, r: random.Random, kind: str | None = None) -> str:
    """Write the table in a random container; give its name."""
    kind = kind or r.choice([*TEXT_KINDS, "parquet", "xlsx"])
    if kind == "parquet":
        frame.to_parquet(path, index=r.random() < 0.5)
    elif kind == "xlsx":
        with pd.ExcelWriter(path, engine="openpyxl") as book:
            frame.to_excel(book, index=r.random() < 0.3, sheet_name="decoded", startrow=r.choice([0, 0, 2]))
            if r.random() < 0.3:
                pd.DataFrame({"note": ["made by hand"]}).to_excel(book, index=False, sheet_name="notes")
    else:
        path.write_bytes(encoded(as_text(frame, kind, r), r))
    return kind


def with_others(columns: dict[str, list[Any]], n: int, r: random.Random, drop: tuple[str, ...] = ()) -> pd.DataFrame:
    """The columns among others that are none of the texts, in any order."""
    for name in r.sample([name for name in OTHERS if name not in drop], r.randint(0, 4)):
        columns.setdefault(name, [OTHERS[name](r, i) for i in range(n)])
    order = r.sample(list(columns), len(columns))
    return pd.DataFrame({name: pd.Series(columns[name], dtype=object) for name in order})


def one_file(folder: Path, r: random.Random) -> Case:
    """References and predictions under names that are known, half known, or unknown."""
    pairs, path = pairs_of(r), folder / r.choice(["out.csv", "out.json", "out.txt", "OUT", "decoded.tsv"])
    names = [styled(r, r.choice(REFERENCES)), styled(r, r.choice(PREDICTIONS))]
    unknown = r.choice([(), (), (), (0,), (1,), (0, 1)])
    for side, other in zip(unknown, r.sample(UNKNOWN, len(unknown)), strict=True):
        names[side] = other
    texts = {names[side]: [pair[side] for pair in pairs] for side in (0, 1)}
    kind = written(with_others(texts, len(pairs), r), path, r)
    options = {"columns": names} if unknown and r.random() < 0.7 else {}
    return Case(path, pairs, bool(options or not unknown) and kind != "wrapped", f"{kind} {names}", options)


def wide(folder: Path, r: random.Random) -> Case:
    """A column of predictions for each condition."""
    pairs, path = pairs_of(r), folder / "out.csv"
    kind = r.choice(
        [("eeg", "noise"), ("real_eeg", "shuffled_eeg"), ("pred_eeg", "pred_noise"), ("noise_pred", "eeg_pred")]
    )
    fed = ["noise" if "noise" in name else "shuffled" if "shuffled" in name else "eeg" for name in kind]
    other = [f"{prediction} beside".strip() for _, prediction in pairs]
    columns = {r.choice(REFERENCES): [a for a, _ in pairs], kind[0]: [b for _, b in pairs], kind[1]: other}
    container = written(with_others(columns, len(pairs), r), path, r)
    both = [*pairs, *((a, c) for (a, _), c in zip(pairs, other, strict=True))]
    conditions = [fed[0]] * len(pairs) + [fed[1]] * len(pairs)
    return Case(path, both, container != "wrapped", f"wide {container} {kind}", conditions=conditions)


def long(folder: Path, r: random.Random) -> Case:
    """A row for each prediction, with its condition; the rows of one split, or with references of several texts."""
    pairs, path = pairs_of(r), folder / "out.csv"
    fed = [r.choice(["eeg", "noise", "shuffled"]) for _ in pairs]
    fed[:2] = ["eeg", "noise"]
    columns = {r.choice(REFERENCES): [a for a, _ in pairs], r.choice(PREDICTIONS): [b for _, b in pairs]}
    columns[styled(r, "eval_condition") if len(pairs) < 6 else r.choice(["condition", "input", "eval_condition"])] = fed
    kept = [True] * len(pairs)
    if r.random() < 0.4:
        kept = [r.random() < 0.5 or i < 2 for i in range(len(pairs))]
        columns[r.choice(["split", "subset"])] = [r.choice(["test", "eval"]) if k else "train" for k in kept]
    container = r.choice([*TEXT_KINDS, "parquet", "xlsx"])
    if container in ("jsonl", "records") and r.random() < 0.5:
        columns["references"] = [[a, f"other {a}"] for a, _ in pairs]
        columns = {name: texts for name, texts in columns.items() if name == "references" or name not in REFERENCES}
    written(with_others(columns, len(pairs), r, ("model",)), path, r, container)
    pairs, fed = ([x for x, k in zip(of, kept, strict=True) if k] for of in (pairs, fed))
    told = container != "wrapped" and len(fed) >= 2 * len({*fed})
    return Case(path, pairs, told, f"long {container} {list(columns)}", conditions=fed)


def without_header(folder: Path, r: random.Random) -> Case:
    pairs, path, delimiter = pairs_of(r), folder / "out.csv", r.choice(",;\t")
    path.write_bytes(encoded(separated([list(pair) for pair in pairs], delimiter, r), r))
    options = {"columns": ["1", "2"], "layout": "H"} if r.random() < 0.5 else {}
    return Case(path, pairs, bool(options), f"no header {delimiter!r}", options)


def labelled(folder: Path, r: random.Random) -> Case:
    """Printed pairs, alone or in a log."""
    pairs = [(a, b) for a, b in pairs_of(r) + pairs_of(r) if b]
    names = r.choice(LABELS)
    log = r.random() < 0.4
    lines = ["loading weights: 100%", "GRU(512, 768)"] if log else []
    one_line = r.random() < 0.3
    for i, (reference, prediction) in enumerate(pairs):
        first, second = f"{names[0]}: {reference}", f"{names[1]}: {prediction}"
        lines += [f"{first} {second} ===="] if one_line else [first, second]
        lines += [f"epoch {i} loss: {r.random():.3f}"] if log else r.choice([[], [""]])
    path = folder / "log.txt"
    path.write_bytes(encoded("\n".join(lines) + "\n", r))
    unknown = names[0] == "He meant"
    options: dict[str, Any] = {"labels": list(names)} if unknown and r.random() < 0.7 else {}
    told = bool(options or not unknown)
    options |= {"block": "all"} if log else {}
    return Case(path, pairs, told, f"labels {names} log={log} one_line={one_line}", options)


def two_files(folder: Path, r: random.Random) -> Case:
    """Outputs and references, joined by a key or row by row; the key may have other names, holes and repetitions."""
    pairs = list(dict(pairs_of(r)).items())
    n, key = len(pairs), r.choice(["rows", "rows", "same", "same", "unlike", "several"])
    ids = r.choice([[f"u{i:03d}" for i in range(n)], list(range(n)), [100 - i for i in range(n)]])
    keys: dict[str, list[Any]] = {r.choice(["id", "utt_id", "segment_id", "sentence_id", "key"]): ids}
    if key == "several":
        keys = {"session": [f"d{i // 6}" for i in range(n)], "block": [i // 3 for i in range(n)]}
        keys |= {"trial": [i % 3 for i in range(n)]}
    keys = {} if key == "rows" else keys
    reference_keys = {("trial" if key == "unlike" else name): list(values) for name, values in keys.items()}
    order = list(range(n)) if key == "rows" or r.random() < 0.3 else r.sample(range(n), n)
    lost = key != "rows" and r.random() < 0.15
    kept = order[1:] if lost else order
    drop = ("id", "idx", "trial", "block", "session", "text_id", "original_index", "audio_path", "label", "subject")
    outputs = with_others({**keys, r.choice(["text", *PREDICTIONS]): [p for _, p in pairs]}, n, r, drop)
    columns = {name: [values[i] for i in kept] for name, values in reference_keys.items()}
    columns |= {r.choice(["text", *REFERENCES]): [pairs[i][0] for i in kept]}
    references = with_others(columns, len(kept), r, drop)
    path, other = folder / "outputs", folder / "references"
    kinds = written(outputs, path, r), written(references, other, r)
    ids_of_rows = {"keyed", "index"} & {*kinds}  # JSON objects by key have ids
    told = not lost and key != "unlike" and "wrapped" not in kinds and not ids_of_rows
    told = told and not ("xlsx" in kinds and key == "rows" and not all(b for _, b in pairs))  # a sheet has no empty row
    what = f"{kinds} key={key} {list(outputs)} {list(references)} lost={lost}"
    return Case(path, pairs, told, what, {"reference": other})


def two_lists(folder: Path, r: random.Random) -> Case:
    """Lines, lines with ids, and JSON of texts."""
    pairs = list(dict(pairs_of(r)).items())
    paths = folder / "outputs", folder / "references"
    form = r.choice(["lines", "id first", "id last", "list", "by id", "by id, lists"])
    for side, path in enumerate(paths):
        texts = [(f"u{i:03d}", pair[1 - side]) for i, pair in enumerate(pairs)]
        if form not in ("lines", "list") and side:
            r.shuffle(texts)
        text = {
            "lines": lambda t: "\n".join(x for _, x in t) + "\n",
            "id first": lambda t: "\n".join(f"{i} {x}" for i, x in t) + "\n",
            "id last": lambda t: "\n".join(f"{x} ({i})" for i, x in t) + "\n",
            "list": lambda t: json.dumps([x for _, x in t]),
            "by id": lambda t: json.dumps(dict(t)),
            "by id, lists": lambda t: json.dumps({i: [x] for i, x in t}),
        }[form](texts)
        path.write_bytes(encoded(text, r))
    return Case(paths[0], pairs, True, form, {"reference": paths[1]})


def random_case(folder: Path, seed: int) -> Case:
    r = random.Random(seed)
    kinds = [one_file, one_file, one_file, two_files, two_files, two_lists, labelled, without_header, wide, long]
    return r.choice(kinds)(folder, r)
