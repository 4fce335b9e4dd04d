"""Mutants of our own code: which changes are made."""

import ast
import json

import pytest

from eeg2text_testing.mutation import mutants, written

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


def test_changes_by_hand_are_once_in_their_file(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/sizes.py").write_text(MODULE)
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
