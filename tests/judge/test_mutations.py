"""Damaged files of pairs and judge folders are read whole or refused; tools/checks/damage.py does 300."""

from damage import judges, series


def test_damage_is_a_sentence_or_does_no_harm(tmp_path):
    seen = series(judges(tmp_path), 40)
    assert seen.total() == 40
    assert seen["pairs", "refused"] > 3
    assert seen["judge", "refused"] > 10
