"""Mutants of our own code: which changes are made, and which tests are tried."""

import ast
import json

import pytest

from eeg2text_testing.line_tests import LineTests
from eeg2text_testing.mutation import mutants, patched, written

MODULE = """LIMIT = 3


def larger(a, b):
    if (
        a > b
        and b > LIMIT
    ):
        return max(
            a,
            b,
        )
    return b
"""


@pytest.fixture
def record(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/sizes.py").write_text(MODULE)
    rows = [
        {
            "file": "tests/test_slow.py",
            "tests": {"tests/test_slow.py::one": 30.0, "tests/test_slow.py::two": 5.0},
            "lines": {"package/sizes.py": {"1": [""], "4": [""], "5": ["tests/test_slow.py::one"]}},
        },
        {
            "file": "tests/test_quick.py",
            "tests": {"tests/test_quick.py::one": 0.1, "tests/test_quick.py::two": 0.2},
            "lines": {"package/sizes.py": {"6": ["tests/test_quick.py::two"], "10": ["tests/test_quick.py::one"]}},
        },
        {"file": "tests/test_far.py", "tests": {"tests/test_far.py::one": 0.1}, "lines": {}},
    ]
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps({**row, "commit": "c"}) + "\n" for row in rows))
    return LineTests(path, tmp_path)


def names(record, line):
    return [[name.removeprefix("tests/test_") for name in part] for part in record.files("package/sizes.py", line)]


def test_tests_of_a_statement_come_first_quickest_first_then_others_of_their_files(record):
    assert names(record, 7) == [["quick.py::two"], ["slow.py::one"], ["quick.py::one"], ["slow.py::two"]]
    assert names(record, 11) == [["quick.py::one"], ["quick.py::two"]]


def test_a_line_that_no_test_runs_has_no_tests(record):
    assert names(record, 13) == []


def test_what_an_import_runs_is_tried_by_every_test_of_the_module(record):
    everyone = [["quick.py::one", "quick.py::two"], ["slow.py::one"], ["slow.py::two"]]
    assert names(record, 1) == names(record, 4) == everyone


def test_every_change_is_one_change_that_parses(tmp_path):
    (tmp_path / "sizes.py").write_text(MODULE)
    found = mutants(tmp_path, "sizes.py")
    assert {"comparison", "and/or", "condition dropped", "function exchanged", "arguments swapped", "constant"} <= {
        mutant.kind for mutant in found
    }
    for mutant in found:
        after = mutant.applied(MODULE.encode())
        ast.parse(after)
        assert after.decode().count("LIMIT") >= 1
        assert mutant.before in MODULE
    with pytest.raises(ValueError, match="has changed since"):
        found[0].applied(b"\n" + MODULE.encode())


def test_changes_by_hand_are_once_in_their_file(record, tmp_path):
    changes = tmp_path / "changes.jsonl"
    good = {"file": "package/sizes.py", "old": "b > LIMIT", "new": "b >= LIMIT"}
    bad = {"file": "package/sizes.py", "old": "    return", "new": "    yield"}
    changes.write_text(json.dumps(good) + "\n")
    (mutant,) = written(tmp_path, changes)
    assert (mutant.line, mutant.kind) == (7, "by hand")
    assert mutant.applied(MODULE.encode()).decode() == MODULE.replace("b > LIMIT", "b >= LIMIT")
    changes.write_text(json.dumps(good) + "\n" + json.dumps(bad) + "\n")
    with pytest.raises(ValueError, match="line 2: 2 places"):
        written(tmp_path, changes)


def test_a_patch_is_what_it_changes_in_its_file(record, tmp_path):
    (tmp_path / "patches").mkdir()
    hunk = "--- a/package/sizes.py\n+++ b/package/sizes.py\n@@ -{0},3 +{0},3 @@\n{1}\n"
    texts = {
        "b": hunk.format(5, "     if (\n-        a > b\n+        a >= b\n         and b > LIMIT"),
        "a": hunk.format(10, "             b,\n         )\n-    return b\n+    return a").replace("10,3", "11,3"),
    }
    for name, text in texts.items():
        (tmp_path / f"patches/{name}.patch").write_text(text)
    found = patched(tmp_path, tmp_path / "patches")
    lines = [("a", 13, "    return b\n", "    return a\n"), ("b", 6, "        a > b\n", "        a >= b\n")]
    assert [(mutant.kind, mutant.line, mutant.before, mutant.after) for mutant in found] == lines
    assert found[1].applied(MODULE.encode()).decode() == MODULE.replace("a > b", "a >= b")
    assert sorted(path.name for path in (tmp_path / "patches").iterdir()) == ["a.patch", "b.patch"]
    for wrong in (texts["b"].replace("a > b", "a < b"), texts["a"] + texts["b"].replace("sizes", "others")):
        (tmp_path / "patches/c.patch").write_text(wrong)
        with pytest.raises(ValueError, match=r"c\.patch: does not apply to one file"):
            patched(tmp_path, tmp_path / "patches")
