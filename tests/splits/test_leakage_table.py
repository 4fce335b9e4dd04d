"""Table 1 of the cross-subject paper for a data file: every number is that of its own split."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from reading_grids import grid

from eeg2text_jax.commands.paper_tables import BSLR, leakage_rows, leakage_text
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.source import Sample
from eeg2text_jax.data.splits.certificate import assess_leakage, leakage_rate
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import readings_of

RATIO = (0.8, 0.1, 0.1)


def test_rows_are_the_splits_rates_and_their_averages():
    data = grid(sentences={"SR": 40, "NR": 30, "TSR": 41})
    rows = {(row.rate, row.method): row for row in leakage_rows(data, (1, 2), RATIO)}
    assert {method for _, method in rows} == {*"abcdef"}
    plain = [BSLR, "TSLR, sentence-id", "TSLR, letters-digits", "TSLR, case-space"]
    rates = [f"{rate}{divisor}" for rate in plain for divisor in ("", ", over all")]
    assert list(dict.fromkeys(rate for rate, _ in rows)) == rates, "each divisor beside the other"
    for method in ("a", "c", "d"):
        for seed in (1, 2):
            found = assess_leakage(readings_of(data), make_split(data, method, RATIO, seed).parts)[0]
            assert rows[BSLR, method].values[seed - 1] == 100 * found.bslr_over_test
            for name, value in found.tslr.items():
                assert rows[f"TSLR, {name}", method].values[seed - 1] == 100 * value
            split = make_split(data, method, RATIO, seed).parts
            for rate, key in (("BSLR", data.subject), ("TSLR, sentence-id", data.sentence_id)):
                expected = leakage_rate(key[split["train"]], key[split["test"]], len(set(key)))
                assert rows[f"{rate}, over all", method].values[seed - 1] == pytest.approx(100 * expected)
        assert rows[BSLR, method].average == pytest.approx(sum(rows[BSLR, method].values) / 2)
    assert (rows[BSLR, "c"].published, rows["TSLR, sentence-id", "a"].published) == (12.5, 22.5)
    assert rows["TSLR, letters-digits", "a"].published is rows["TSLR, letters-digits, over all", "a"].published is None
    assert (rows["BSLR, over all", "c"].published, rows["TSLR, sentence-id, over all", "c"].published) == (12.5, 13.07)
    assert rows["TSLR, sentence-id", "f"].average == rows[BSLR, "f"].average == 0
    printed = leakage_text(list(rows.values()), (1, 2)).splitlines()
    assert printed[0].split() == ["(%)", "method", "seed", "1", "seed", "2", "average", "published"]
    assert len({len(line) for line in printed[: len(rows) + 1]}) == 1


def test_the_page_explains_row_b_by_the_second_divisor_and_says_what_counting_does_not_explain():
    page = (Path(__file__).parents[2] / "docs/splits.md").read_text().partition("published leakage rates")[2]
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("|")]
    assert {head.strip() for row in rows for head, cell in zip(rows[0], row, strict=True) if "**" in cell} == {"(e)"}
    (said,) = re.findall(r"- BSLR fMRI \(b\) depends .*: (.*) for seeds 1 to 4\. Over all subjects", page)
    figures = [float(value) for value in re.findall(r"\d+\.\d+", said)]
    counted = next(row for row in rows if row[0].strip() == "BSLR fMRI, counted")
    assert float(counted[2]) == pytest.approx(sum(figures) / 4, abs=0.01)


def test_a_method_that_cannot_divide_the_data_says_why(tmp_path, refused, printed_by):
    path = tmp_path / "small.h5"
    with DataWriter(path, 1, "nothing") as writer:
        for subject in "AB":
            for k in range(30):
                writer.add(Sample(np.ones((2, 1), np.float32), f"text {k}", subject, "NR", k))
    printed = printed_by(["leakage", str(path), "--seeds=3", f"--json={tmp_path / 'table.json'}"])
    lines = [line.split() for line in printed.splitlines()]
    assert ["BSLR", "(a)", "-", "-", "-", "-", "0.00"] in lines
    assert "(a): split 'a' (seed 1) leaves its" in printed
    rows = json.loads((tmp_path / "table.json").read_text())
    assert {len(row["values"]) for row in rows} == {0, 3}
    for seeds in ("0", "99999999999"):
        said = refused(["leakage", str(path), f"--seeds={seeds}"])
        assert f"--seeds={seeds}: expected a whole number from 1 to 1000" in said
