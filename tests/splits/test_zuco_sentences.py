"""Splits of the real ZuCo 1.0 sentences, 12 subjects reading all of them; skipped where the sentences are not there."""

import csv
from pathlib import Path

import numpy as np
import pytest
from reading_grids import grid

from eeg2text_jax.data.splits.certificate import certify_data
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import PARTS

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"
RATIO = (0.8, 0.1, 0.1)
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the ZuCo sentences in ../shared/data")


def read_sr():
    """`;`-separated; some texts hold a `;`, so fields are counted from both ends."""
    lines = (FOLDER / "sentiment_labels_task1.csv").read_text("utf8").splitlines()[1:]
    return [";".join(line.split(";")[1:-2]) for line in lines if not line.startswith("#")]


def read_nr():
    with (FOLDER / "relations_labels_task2.csv").open(encoding="utf8", newline="") as file:
        return [row["sentence"] for row in csv.DictReader(file)]


def read_tsr():
    lines = (FOLDER / "relations_labels_task3.csv").read_text("utf8").splitlines()[1:]
    return [line.split(";") for line in lines]


@pytest.fixture(scope="module")
def zuco():
    texts = {"SR": read_sr(), "NR": read_nr(), "TSR": [";".join(fields[2:-1]) for fields in read_tsr()]}
    return grid(texts=texts)


@pytest.fixture(scope="module")
def positional(zuco):
    return certify_data(zuco, make_split(zuco, "unique_sent", RATIO, 0), RATIO)


def test_positional_sizes(zuco):
    split = make_split(zuco, "unique_sent", RATIO, 0)
    tasks = [zuco.task[split.parts[name]] for name in PARTS]
    sizes = {t: tuple(int(np.sum(found == t)) // 12 for found in tasks) for t in ("SR", "NR", "TSR")}
    assert sizes == {"SR": (320, 40, 40), "NR": (240, 30, 30), "TSR": (325, 40, 42)}


def test_nr_and_tsr_share_47_texts_of_which_the_usual_comparison_sees_36(positional):
    """Quotes around a field are kept here, as a reader that splits at `;` has them; undone, the 36 become 39."""
    assert sum(len(fields) != 4 for fields in read_tsr()) == 8  # rows whose text holds a `;`
    shared = {(*s["tasks"], s["normalization"]): len(s["sentences"]) for s in positional["shared_between_tasks"]}
    assert shared["NR", "TSR", "letters-digits"] == 47
    assert shared["NR", "TSR", "case-space"] == 36
    assert sum(shared.values()) == 47 + 36  # SR shares nothing


def test_the_audit_names_the_test_sentences_that_another_task_gives_away(positional):
    named = {
        (d["judged_sentences"][0], tuple(d["other_sentences"]))
        for d in positional["duplicates"]
        if d["overlap"] == 1 and (d["seen"], d["judged"]) == ("train", "test")
    }
    assert named == {
        ("NR:274", ("TSR:172",)),
        ("NR:285", ("TSR:293",)),
        ("NR:295", ("TSR:259",)),
        ("NR:296", ("TSR:16",)),
        ("NR:297", ("TSR:212", "TSR:234")),
        ("TSR:380", ("NR:119",)),
    }


@pytest.mark.parametrize("method", ["unique_text", "f"])
def test_clean_splits_have_none(zuco, method):
    certificate = certify_data(zuco, make_split(zuco, method, RATIO, 0), RATIO)
    assert not [d for d in certificate["duplicates"] if d["overlap"] == 1]
    for pair in certificate["leakage"]:
        assert set(pair["shared_texts"].values()) == {0}
        assert set(pair["tslr"].values()) == {0}
        assert method == "unique_text" or not pair["shared_subjects"]
