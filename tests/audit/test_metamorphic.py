"""The audit's answer depends on the set of rows alone: not on their order, their names, or the form of the files.

Every case writes a set of the zoo twice, audits both through the command, and compares the numbers of the JSON file.
The quick cases have four sets; `-m slow` has thirty sets and twenty orders.
"""

import csv
import dataclasses
import functools
import json
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
from decoder_zoo import draw
from null_zoo import NULLS, draw_null

from eeg2text_jax.commands.audit import main
from eeg2text_jax.instrument.predictions.file import Prediction, write_predictions

WORDS = ("verdict", "headline", "exit_status")
Table = list[dict[str, str]]
Tables = dict[str, Table]  # by condition
COLUMNS = ("sample_id", "subject", "reference", "prediction", "mode")

# Kind, quality, seed. Qualities are such that p is often neither the smallest nor near 1.
QUICK = (("german", 0.1, 2), ("one_word", 0.5, 4), ("word_by_word", 0.08, 1), ("two_genres", 0, 1))
FEW = (  # kinds at quality 0.15 or, of nulls, 0; the seed is the place in a line
    (0.15, "bursts silent_bursts choice_from_list letters"),
    (0.15, "three_words captions genre_alone summaries digits"),
    (0.15, "chinese unequal_readers averaged_readers fading"),
    (0.15, "word_pieces special_tokens forced_sampled"),
    (0.15, "first_words shuffled_words copied_rows"),
    (0, "babble rows_by_unknown_task collapsed_control"),
    (0, "readers_with_own_lists half_of_all_rows exact_length"),
    (0, "others_of_the_length copies_across_readers"),
)
SETS = (*QUICK, *((kind, quality, seed) for quality, kinds in FEW for seed, kind in enumerate(kinds.split())))
QUICK_NAMES = [f"{kind}-{quality}-{seed}" for kind, quality, seed in QUICK]
NAMES = {f"{kind}-{quality}-{seed}": (kind, quality, seed) for kind, quality, seed in SETS}


def conditions_of(name: str) -> dict[str, list[Prediction]]:
    kind, quality, seed = {**NAMES, **CLEAR_NAMES}[name]
    made = draw_null(kind, seed) if kind in NULLS else draw(kind, quality, seed, size=60)
    return {"eeg": made.eeg, **made.controls}


@functools.cache
def tables_of(name: str) -> Tables:
    """Return a set of the zoo as tables of texts; its tasks are a column where they are known."""
    conditions = conditions_of(name)
    columns = (*COLUMNS, "task") if conditions["eeg"][0].task else COLUMNS
    return {name: [{c: getattr(row, c) for c in columns} for row in rows] for name, rows in conditions.items()}


def write_csv(path: Path, rows: Table) -> None:
    with path.open("w", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_json_lines(path: Path, rows: Table) -> None:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf8")


def write_parquet(path: Path, rows: Table) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def write_xlsx(path: Path, rows: Table) -> None:
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    for row in ([*rows[0]], *([*row.values()] for row in rows)):
        sheet.append(row)
    book.save(path)


WRITERS = {"csv": write_csv, "jsonl": write_json_lines, "parquet": write_parquet, "xlsx": write_xlsx}


def answer(result: dict) -> dict[str, object]:
    found: dict[str, object] = {name: result[name] for name in WORDS} | {"mde": result["mde"]}
    tests = {f"content of {one['name']}": one["content"] for one in result["conditions"]}
    tests |= {f"against {one['control']}": one["contrast"] for one in result["comparisons"]}
    for name, test in tests.items():
        found |= {f"{figure}: {name}": test[figure] for figure in ("effect", "p", "interval_90")}
    return found


def audited(folder: Path, tables: Tables, ending: str = "csv") -> dict[str, object]:
    folder.mkdir(exist_ok=True)
    paths = {name: folder / f"{name}.{ending}" for name in tables}
    for name, path in paths.items():
        WRITERS[ending](path, tables[name])
    controls = [str(path) for name, path in paths.items() if name != "eeg"]
    return answer_to(folder, ["--eeg", str(paths["eeg"]), *(["--control", *controls] if controls else [])])


def answer_to(folder: Path, options: list[str]) -> dict[str, object]:
    status = main([*options, f"--json={folder / 'result.json'}"])
    found = answer(json.loads((folder / "result.json").read_text(encoding="utf8")))
    assert found["exit_status"] == status
    return found


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Callable[[str], dict[str, object]]:
    return functools.cache(lambda name: audited(tmp_path_factory.mktemp("original"), tables_of(name)))


def assert_same(found: dict[str, object], expected: dict[str, object]) -> None:
    assert found.keys() == expected.keys()
    assert {name: found[name] for name in WORDS} == {name: expected[name] for name in WORDS}
    for name, value in expected.items():
        if name not in WORDS and value is not None:
            assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


def each(tables: Tables, change: Callable[[dict[str, str]], dict[str, str]]) -> Tables:
    return {name: [change(dict(row)) for row in rows] for name, rows in tables.items()}


# The same rows in another form: the same numbers.


def permuted(tables: Tables, order: int) -> Tables:
    """Permute rows: in even orders alike in all files, in odd ones in each file for itself."""
    keys = {name: random.Random(f"{order} {name if order % 2 else ''}") for name in tables}
    return {name: keys[name].sample(rows, len(rows)) for name, rows in tables.items()}


def columns_permuted(tables: Tables) -> Tables:
    return each(tables, lambda row: dict(random.Random(3).sample(list(row.items()), len(row))))


def renamed(tables: Tables, column: str, name: Callable[[int], str]) -> Tables:
    names = sorted({row[column] for rows in tables.values() for row in rows})
    new = dict(zip(names, random.Random(4).sample(range(len(names)), len(names)), strict=True))
    return each(tables, lambda row: row | {column: name(new[row[column]])})


def ids_renamed(tables: Tables) -> Tables:
    return renamed(tables, "sample_id", lambda number: f"z{number}")


def readers_renamed(tables: Tables) -> Tables:
    return renamed(tables, "subject", lambda number: f"P{number:02}")


def unused_column(tables: Tables) -> Tables:
    rng = random.Random(6)
    return each(tables, lambda row: {"comment": rng.choice(("good", "bad", "noisy")), **row})


def decomposed(tables: Tables) -> Tables:
    return each(tables, lambda row: {name: unicodedata.normalize("NFD", text) for name, text in row.items()})


def half_decomposed(tables: Tables) -> Tables:
    return each(tables, lambda row: row | {"prediction": unicodedata.normalize("NFD", row["prediction"])})


FORMS = {
    change.__name__: change
    for change in (columns_permuted, ids_renamed, readers_renamed, unused_column, decomposed, half_decomposed)
}


def quick_of(*cases: str, sets: int) -> pytest.MarkDecorator:
    """Return the mark that leaves the first quick sets in each of some cases among the quick tests."""
    return pytest.mark.quick(*(f"{name}-{case}" for case in cases for name in QUICK_NAMES[:sets]))


@quick_of("0", "1", sets=4)
@pytest.mark.parametrize("order", range(20))
@pytest.mark.parametrize("name", NAMES)
def test_rows_in_any_order(tmp_path, original, name, order):
    assert_same(audited(tmp_path, permuted(tables_of(name), order)), original(name))


@quick_of(
    "columns_permuted", "ids_renamed", "readers_renamed", "unused_column", "decomposed", "half_decomposed", sets=2
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_the_same_rows_in_another_form(tmp_path, original, name, form):
    assert_same(audited(tmp_path, FORMS[form](tables_of(name))), original(name))


@quick_of("jsonl", "parquet", "xlsx", sets=2)
@pytest.mark.parametrize("ending", [ending for ending in WRITERS if ending != "csv"])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_rows_in_another_container(tmp_path, original, name, ending):
    assert_same(audited(tmp_path, tables_of(name), ending), original(name))


def long_table(tables: Tables) -> Table:
    return [row | {"eval_condition": name} for name, rows in tables.items() for row in rows]


def wide_table(tables: Tables) -> Table:
    kept = [column for column in tables["eeg"][0] if column != "prediction"]
    pairs = zip(tables["eeg"], tables["noise"], strict=True)
    return [
        {column: own[column] for column in kept} | {"pred_eeg": own["prediction"], "pred_noise": other["prediction"]}
        for own, other in pairs
    ]


ONE_FILE = {"long": long_table, "wide": wide_table}


@quick_of("long", "wide", sets=2)
@pytest.mark.parametrize("layout", ONE_FILE)
@pytest.mark.parametrize("name", NAMES)
def test_both_conditions_in_one_file(tmp_path, original, name, layout):
    path = tmp_path / "both.csv"
    write_csv(path, ONE_FILE[layout](tables_of(name)))
    assert_same(answer_to(tmp_path, ["--eeg", str(path)]), original(name))


def ours(folder: Path, conditions: dict[str, list[Prediction]]) -> dict[str, object]:
    path = folder / "predictions.jsonl"
    write_predictions(path, {}, [row for rows in conditions.values() for row in rows])
    return answer_to(folder, ["--eeg", str(path)])


def renamed_ours(row: Prediction) -> Prediction:
    ids = {name: getattr(row, name)[::-1] for name in ("sample_id", "sentence_id", "subject")}
    return dataclasses.replace(row, **ids)


@pytest.mark.quick(*QUICK_NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_files_of_our_own_in_any_order_and_under_any_names(tmp_path, name):
    conditions = conditions_of(name)
    expected = ours(tmp_path, conditions)
    renamed = {name: [renamed_ours(row) for row in rows] for name, rows in conditions.items()}
    assert_same(ours(tmp_path, renamed), expected)
    shuffled = {name: random.Random(name).sample(rows, len(rows)) for name, rows in conditions.items()}
    assert_same(ours(tmp_path, shuffled), expected)


# One side written in another way: the same verdict.


WAYS: dict[str, Callable[[str], str]] = {
    "upper": str.upper,
    "lower": str.lower,
    "no_final_mark": lambda text: text.rstrip(".!?"),
    "final_mark": lambda text: text if text.endswith((".", "!", "?", "。")) else f"{text}.",
    "special_tokens": lambda text: f"<s>{text}</s>" + "<pad>" * (len(text) % 5),
    "marked_tokens": lambda text: f"[CLS] {text} [SEP]",
    # With the marks of BERT's tokenizer and of SentencePiece.
    "pieces": lambda text: " ".join(f"{word[:3]} ##{word[3:]}" if len(word) > 5 else word for word in text.split()),
    "marked_words": lambda text: " ".join(f"\u2581{word}" for word in text.split()),
}
CLEAR = (("word_by_word", 0.5, 0), ("three_words", 0.6, 2), ("german", 0.4, 3), ("fading", 0.5, 1), ("babble", 0, 0))
CLEAR_NAMES = {f"{kind}-{quality}-{seed}": (kind, quality, seed) for kind, quality, seed in CLEAR}


@pytest.mark.quick(*(f"three_words-0.6-2-{side}-{way}" for side in ("prediction", "reference") for way in WAYS))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("side", ["prediction", "reference"])
@pytest.mark.parametrize("name", CLEAR_NAMES)
def test_one_side_in_another_form(tmp_path, original, name, side, way):
    changed = each(tables_of(name), lambda row: row | {side: WAYS[way](row[side])})
    found, expected = audited(tmp_path, changed), original(name)
    assert (found["verdict"], found["exit_status"]) == (expected["verdict"], expected["exit_status"])
