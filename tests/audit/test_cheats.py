"""The sixty cheats of `tools/calibrations/cheats.py`: forged headers and folders make no run."""

from cheats import CHEATS, NOISE, of_a_run


def test_forged_headers_and_folders_verify_nothing(tmp_path):
    assert len(CHEATS) == 60
    assert not of_a_run(CHEATS["the target"](), tmp_path)


def test_every_cheat_makes_rows_of_its_own():
    made = {name: tuple((row.reference, row.prediction) for row in cheat()) for name, cheat in CHEATS.items()}
    assert len(set(made.values())) == len(CHEATS)
    assert all(0 < len(rows) <= len(NOISE) for rows in made.values())
