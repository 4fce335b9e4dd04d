"""Damaged files of pairs and judge folders are read whole or refused; tools/checks/mutate_judge.py does 300."""

import importlib.util
from pathlib import Path


def test_damage_is_a_sentence_or_does_no_harm():
    path = Path(__file__).parents[2] / "tools/checks/mutate_judge.py"
    spec = importlib.util.spec_from_file_location("mutate_judge", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    seen = tool.series(40)
    assert sum(seen.values()) == 40
    assert seen["pairs refused"] > 3
    assert seen["judge refused"] > 10
