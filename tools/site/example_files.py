"""Writes the two example files of `eeg2text example`: made-up decodes of 50 made-up sentences, read by four subjects.

    python tools/site/example_files.py

Under EEG one word in eight is recognized; under noise the same language model writes on its own.
"""

import csv
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "calibrations"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from decoder_zoo import recognized

from eeg2text_testing.scenes import scene_of

FOLDER = Path(__file__).parents[2] / "eeg2text_jax/commands/example_files"
COLUMNS = ("id", "subject", "topic", "mode", "reference", "prediction")
RIGHT = {"eeg": 0.12, "noise": 0.0}  # share of the words that are recognized


def write_files(folder: Path) -> None:
    """Write `eeg.csv` and `noise.csv`, 200 rows each."""
    scene = scene_of("english", 6, size=50, readers=4)
    for name, right in RIGHT.items():
        rng = random.Random(name)
        with (folder / f"{name}.csv").open("w", encoding="utf8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for number, row in enumerate(scene.rows()):
                text = " ".join(recognized(scene, rng, row, right))
                writer.writerow((number, f"S{row.reader + 1}", row.genre, "free-running", row.text, text))


if __name__ == "__main__":
    write_files(FOLDER)
