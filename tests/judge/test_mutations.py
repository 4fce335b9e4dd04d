"""Damaged files of pairs and judge folders are read whole or refused; tools/checks/mutate_judge.py does 300."""

from mutate_judge import series


def test_damage_is_a_sentence_or_does_no_harm():
    seen = series(40)
    assert sum(seen.values()) == 40
    assert seen["pairs refused"] > 3
    assert seen["judge refused"] > 10
